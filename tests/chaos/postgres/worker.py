"""The program of a process: an engine, a few customers of its own, and steps that ask the gateway outside.

With `worker` false it is a node that only takes events. What an answer says about repeating is what its customers do:
an operation that may or may not have happened is repeated with the same key until it is answered.
"""

import asyncio
import contextlib
import signal
from collections.abc import Callable
from typing import cast

from interlock.core.values import StepContext
from interlock.engine.engine import Engine
from interlock.errors import NonRetryable, Refusal, UnavailableError, VersionConflict, WorkflowNotFound
from tests.chaos.postgres import orders, sabotage
from tests.chaos.postgres.orders import Cancel, Order, State, Submit
from tests.chaos.postgres.world import END
from tests.crash.engine.gateway import DECLINED, DONE

LIFETIME_S = 1_200
"""No process lives longer than this, whatever becomes of the one that started it."""

CUSTOMERS = 4
LEASE_S = 1.0
POLL_S = 0.1

Say = Callable[[str], None]


async def opened(url: str, *, worker: bool) -> Engine:
    """An open engine. A server that is away or full is asked again: that is what starts programs, not an operator."""
    while True:
        try:
            return await Engine.open(
                url,
                machines=[orders.shop],
                worker=worker,
                drain_s=1,
                undo_timeout_s=orders.TIMEOUT_S,
                undo_attempts=1_000,
                lease_s=LEASE_S,
                poll_s=POLL_S,
            )
        except UnavailableError:
            await asyncio.sleep(0.05)


def live(say: Say, url: str, world: str, life: int, worker: bool, sabotaged: str | None) -> None:
    """One life of a process, until it is told to close or killed."""
    signal.alarm(LIFETIME_S)
    if sabotaged is not None:
        sabotage.SABOTAGE[sabotaged]()

    async def main() -> None:
        orders.gateways.append(Gateway(world, life))
        reader, writer = await connected(world, "control", life)
        engine = await opened(url, worker=worker)
        try:
            async with asyncio.TaskGroup() as group:
                for _ in range(CUSTOMERS):
                    group.create_task(Customer(engine).live(world, life))
            await reader.readline()
        finally:
            await engine.close()
        writer.write(f"{END}\n".encode())
        await writer.drain()

    asyncio.run(main())


async def connected(world: str, kind: str, life: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """A connection to the world, which has said what it is for."""
    reader, writer = await asyncio.open_unix_connection(world)
    writer.write(f"{kind} {life}\n".encode())
    return reader, writer


class Customer:
    """Asks one thing at a time, until it is answered."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    async def live(self, world: str, life: int) -> None:
        reader, writer = await connected(world, "customer", life)
        while (operation := (await reader.readline()).decode().strip()) not in {"", END}:
            writer.write(f"{await self._answer(operation, writer)}\n".encode())
        writer.close()

    async def _answer(self, operation: str, writer: asyncio.StreamWriter) -> str:
        while True:
            try:
                version, state, how = await self._asked(*operation.split(" "))
            except (Refusal, WorkflowNotFound) as refusal:
                return f"x {refusal.code}"
            except (UnavailableError, VersionConflict) as error:
                writer.write(f"- {error.code}\n".encode())
                await asyncio.sleep(0.05)  # Everybody asking at once would not bring the server back.
            else:
                return f"+ {version} {state.value} {how}"

    async def _asked(self, what: str, workflow: str, key: str) -> tuple[int, State, str]:
        if what == "start":
            view = await self._engine.start(orders.shop, workflow, Order(int(key)))
            return view.version, view.state, "started"
        event = Submit(int(key[2:])) if what == "submit" else Cancel()
        moved = await self._engine.send(workflow, event, key=key, if_allowed=what == "cancel")
        how = "duplicate" if moved.duplicate else "ignored" if moved.ignored else "moved"
        return moved.version, cast("State", moved.state), how


class Gateway:
    """The way from steps to the gateway outside: connections are used again, each by one call at a time."""

    def __init__(self, world: str, life: int) -> None:
        self._world = world
        self._life = life
        self._idle: list[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = []

    async def ask(self, deed: str, ctx: StepContext) -> None:
        """Ask once. A call that is given up says so by closing its connection."""
        reader, writer = self._idle.pop() if self._idle else await connected(self._world, "gateway", self._life)
        with contextlib.ExitStack() as unless_answered:
            unless_answered.callback(writer.close)
            writer.write(f"{deed} {ctx.workflow} {ctx.visit} {ctx.key} {ctx.undoes or '-'}\n".encode())
            answer = (await reader.readline()).decode().strip()
            unless_answered.pop_all()
        self._idle.append((reader, writer))
        if answer == DECLINED:
            raise NonRetryable("declined")
        if answer != DONE:
            raise ConnectionError("nobody answers, or the answer is lost")
