"""What a killed life does: eight customers order, pay, wait and cancel, and say what they ask and what they are told.

A line `? operation` is written before an operation is asked for, `+ operation version state how` after it was
acknowledged, `x operation code` after it was refused. An operation is `start|submit|cancel`, the workflow and a
delivery key, so that what is unknown after a kill is asked for again, with the same key, by the next life.
"""

import asyncio
import contextlib
import itertools
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from interlock.chaos.shop import outside
from interlock.clock import SystemChance
from interlock.engine import follow_moves
from interlock.engine.engine import Engine
from interlock.engine.open_engine import EngineOpening
from interlock.errors import MovedElsewhere, Refusal, RequestError
from tests.crash.engine import sabotage, shop
from tests.crash.engine.gateway import Gateway
from tests.crash.engine.shop import State
from tests.crash.workloads import SETTINGS, believe

SHOP = shop.declared(shop.KILLED)
CUSTOMERS = 8
SEAL_WAIT_S = 60.0
"""A seal that lasts longer hangs; how long a mover needs for it is up to the machine."""

Say = Callable[[str], None]
MOMENTS = (State.CHARGING, State.RESERVING, State.RESERVED, State.PACKED, State.SHIPPING, State.UNWINDING)


def opened(url: str, cache: str | None) -> EngineOpening[Engine]:
    """Bounds so small that everything has to wait for a slot now and then, and an undo is never given up."""
    return Engine.open(
        url,
        machines=[SHOP],
        cache=cache,
        drain_s=0.005,
        steps_max=6,
        effects_max=3,
        undo_timeout_s=shop.KILLED.timeout_s,
        undo_attempts=1_000,
        snapshots_max=20,
        group_max=10,
        timers_saved_s=0.01,
        seal_wait_s=SEAL_WAIT_S,
        **SETTINGS,  # type: ignore[arg-type]  # None of the others.
    )


def live(
    say: Say,
    url: str,
    cache: str | None,
    books: str,
    seed: int,
    life: int,
    again: Sequence[str],
    orders: int | None,
    patience_s: float,
    sabotaged: str | None,
) -> None:
    """One life: ask again for what is unknown, then order. With patience, stay until all has come to rest.

    Without a number of orders they never end: however late the kill comes, it meets a life that works.
    """
    believe(url)
    follow_moves.WAITED_S = 60.0  # Whoever would be refused before gives up (see below); a slow disk is no reason to.
    if sabotaged is not None:
        sabotage.SABOTAGE[sabotaged]()
    chance = SystemChance(seed * 1_000 + life)
    outside.append(Gateway(Path(books), chance, kind=patience_s > 0))

    async def main() -> None:
        async with opened(url, cache) as engine:
            say("opened")
            customers = Customers(engine, say, chance, life)
            await asyncio.gather(*map(customers.ask_again, _by_workflow(again)))
            numbers = itertools.count() if orders is None else iter(range(orders))
            await asyncio.gather(*(customers.order_on(numbers) for _ in range(CUSTOMERS)))
            if patience_s:
                with contextlib.suppress(TimeoutError):  # What is left behind then is found by the audit.
                    await asyncio.wait_for(customers.see_all_rest(), patience_s)
        say("closed")

    try:
        asyncio.run(main())
    except MovedElsewhere:
        say("left")  # It stays until it is killed, as a process does that has something else to do.
        threading.Event().wait()


def _by_workflow(operations: Sequence[str]) -> list[list[str]]:
    found: dict[str, list[str]] = {}
    for operation in operations:
        found.setdefault(operation.split(" ")[1], []).append(operation)
    return list(found.values())


class Customers:
    """Everybody who asks something of one engine."""

    def __init__(self, engine: Engine, say: Say, chance: SystemChance, life: int) -> None:
        self._engine = engine
        self._say = say
        self._chance = chance
        self._life = life
        self._turns = asyncio.Semaphore(CUSTOMERS)

    async def order_on(self, numbers: Iterator[int]) -> None:
        """One order after the other, each with the next number that nobody else has taken."""
        for number in numbers:
            await self.order(number)

    async def order(self, number: int) -> None:
        """One order: some are never submitted, some cancelled, at once or at some moment."""
        async with self._turns:
            workflow = f"o-{self._life}-{number}"
            await self.ask(f"start {workflow} {number}")
            luck = self._chance.fraction()
            if luck < 0.1:
                return
            if luck < 0.2:
                both = (f"submit {workflow} s-{number}", f"cancel {workflow} c-{number}")
                await asyncio.gather(*map(self.ask, both))
                return
            await self.ask(f"submit {workflow} s-{number}")
            if luck < 0.6:
                moment = MOMENTS[int(self._chance.fraction() * len(MOMENTS))]
                with contextlib.suppress(RequestError):  # It was never there.
                    await self._engine.wait(workflow, moment, State.PARKED, timeout_s=0.05)
                await self.ask(f"cancel {workflow} c-{number}")
            if luck < 0.3:
                await self.ask(f"cancel {workflow} c-{number}")

    async def ask_again(self, operations: Sequence[str]) -> None:
        for operation in operations:
            await self.ask(operation)

    async def ask(self, operation: str) -> None:
        self._say(f"? {operation}")
        try:
            version, state, how = await shop.run_operation(self._engine, SHOP, operation)
        except Refusal as refusal:
            self._say(f"x {operation} {refusal.code}")
            return
        self._say(f"+ {operation} {version} {state.value} {how}")

    async def see_all_rest(self) -> None:
        """Wait for every workflow that there is."""
        cursor, pages = None, True
        waiting: list[asyncio.Task[Any]] = []
        while pages:
            page = await self._engine.find(SHOP, cursor=cursor)
            waiting += [asyncio.ensure_future(self._engine.wait(view.id)) for view in page.items]
            cursor = page.cursor
            pages = cursor is not None
        await asyncio.gather(*waiting)
        while await self._engine._inside.store.effects(limit=1):
            await self._engine._inside.pipeline.idle()
