"""What an operator does with an engine: what is owed or has given up, and what may go.

These calls are the engine's own; they stand apart because a program that takes events has no use for them.
"""

import difflib
import functools
from collections.abc import Awaitable, Callable, Coroutine
from types import EllipsisType
from typing import Any, Concatenate, Final, Literal, ParamSpec, TypeVar

from interlock.core.policies import Dependency
from interlock.errors import BadUsage, UnavailableError
from interlock.lanes.contention import HotRow
from interlock.runtime.envelopes import digest_of
from interlock.runtime.following import Follower
from interlock.runtime.inside import Inside
from interlock.runtime.leases import LEASE_S, WAIT_S, Leasing
from interlock.runtime.letters import Settle, TryAgain, check_kind, find_letter, no_letter
from interlock.runtime.pruning import BATCH, Pruned, Pruner
from interlock.runtime.resilience.lines import Line
from interlock.runtime.resilience.views import Breakers, view_of_line
from interlock.runtime.settings import Admission
from interlock.runtime.views import Compensation, DeadLetter, compensations_of, letter_of
from interlock.store.values import Letter

PAGE_MAX = 10_000

FORCES: Final[dict[str, Literal["open", "closed"] | None]] = {"open": "open", "closed": "closed", "auto": None}


OperatingT = TypeVar("OperatingT", bound="Operating")
ResultT = TypeVar("ResultT")
P = ParamSpec("P")


def repeated(
    call: Callable[Concatenate[OperatingT, P], Coroutine[Any, Any, ResultT]],
) -> Callable[Concatenate[OperatingT, P], Coroutine[Any, Any, ResultT]]:
    """A call that looks, and is made again where the workflows are now if they were moved meanwhile.

    What moves a workflow needs none of this: it waits in the data path, which hands it over.
    """

    @functools.wraps(call)
    async def again(self: OperatingT, /, *args: P.args, **kwargs: P.kwargs) -> ResultT:
        while True:  # As below, without another coroutine in between: `wait` is called for every order.
            inside = self._inside
            try:
                return await call(self, *args, **kwargs)
            except UnavailableError as error:
                if self._follower is None or not await self._follower.followed(inside, error):
                    raise

    return again


class Operating:
    """The calls of an engine that need a person."""

    def __init__(self, inside: Inside, follower: Follower | None = None) -> None:
        self._follower = follower
        if follower is not None:
            follower.entered.append(self._enter)
        self._enter(inside)
        self._ruled: set[str] = set()
        """Dead letters about which somebody has just said something."""

    async def _repeated(self, call: Callable[[], Awaitable[ResultT]]) -> ResultT:
        while True:
            inside = self._inside
            try:
                return await call()
            except UnavailableError as error:
                if self._follower is None or not await self._follower.followed(inside, error):
                    raise

    def _enter(self, inside: Inside) -> None:
        self._inside = inside
        self._store = inside.store
        self._pipeline = inside.pipeline

    @repeated
    async def compensations(self) -> list[Compensation]:
        """The undos that are pending or being tried, of all workflows that unwind."""
        self._inside.refuse_if_closed()
        found: list[Compensation] = []
        for bound in self._inside.machines.values():
            for node in bound.table.nodes.values():
                if node.unwinds_to is not None:
                    rows = await self._inside.all_in(bound, node)
                    lives = self._inside.readable(bound, rows)
                    found += [each for live in lives for each in compensations_of(live)]
        return found

    @repeated
    async def dead_letters(self, kind: str | None = None, *, limit: int = 1_000) -> list[DeadLetter]:
        """What gave up and waits for a person, oldest first; `kind` is "step", "effect", "undo" or None for all."""
        self._inside.refuse_if_closed()
        check_kind(kind)
        return [letter_of(letter) for letter in await self._store.letters(kind, limit=max(1, min(limit, PAGE_MAX)))]

    async def retry_dead_letter(self, letter_id: str) -> None:
        """Have it tried again, with the same idempotency key and all its attempts."""
        await self._rule(letter_id, TryAgain)

    async def resolve_dead_letter(self, letter_id: str, *, note: str) -> None:
        """Say that a person has dealt with it. An unwinding goes on; a step's workflow waits for an event.

        The note goes to the log `interlock.operators` and to observers.
        """
        self._inside.settled(await self._rule(letter_id, Settle), note)

    def breakers(self) -> Breakers:
        """The breakers of everything that these machines call, with their limits, as this process has them (C4).

        `engine.breakers()["gateway"].state` is "closed", "open" or "half_open".
        """
        self._inside.refuse_if_closed()
        return Breakers(view_of_line(line) for line in self._inside.places.lines.values())

    async def contention(self) -> list[HotRow]:
        """The workflows that events wait for each other on, worst first, as this process has seen them (D9).

        A row's `table` is the name of the machine and its `key` the id of the workflow.
        """
        self._inside.refuse_if_closed()
        return self._pipeline.contended.worst(self._inside.now_s())

    def force_breaker(self, dependency: str, state: Literal["open", "closed", "auto"]) -> None:
        """Hold a breaker open or closed, whatever happens; "auto" lets it decide again. It survives a restart.

        All engines of this process share it.
        """
        line = self._line(dependency)
        if state not in FORCES:
            raise BadUsage(
                f"a breaker cannot be forced to be {state!r}.",
                why="It is held open, held closed, or decides by itself.",
                fix='Use "open", "closed" or "auto".',
            )
        forced = FORCES[state]
        line.outlet.force(forced, "a person lets it decide again" if forced is None else f"a person holds it {forced}")

    def set_limit(
        self,
        dependency: str,
        *,
        concurrency_max: int | None = None,
        rate_per_s: float | EllipsisType | None = ...,
    ) -> None:
        """Change the limits of a dependency while everything runs; what is not given stays as it is (C8).

        `rate_per_s=None` lifts the limit. Only this process is changed, and only until it ends.
        """
        outlet = self._line(dependency).outlet
        now = outlet.rate.rate_per_s if outlet.rate is not None else None
        rate = now if isinstance(rate_per_s, EllipsisType) else rate_per_s
        wanted = Dependency(
            dependency, outlet.concurrency_max if concurrency_max is None else concurrency_max, rate_per_s=rate
        )
        outlet.limit(concurrency_max=wanted.concurrency_max, rate_per_s=wanted.rate_per_s)

    def set_admission(self, admission: Admission) -> None:
        """Change what the engine takes in while it runs (C7)."""
        self._inside.refuse_if_closed()
        self._inside.gate.set(admission)

    def _line(self, dependency: str) -> Line:
        self._inside.refuse_if_closed()
        lines = self._inside.places.lines
        if dependency not in lines:
            near = difflib.get_close_matches(str(dependency), lines, n=1)
            meant = f" Did you mean {near[0]!r}?" if near else ""
            raise BadUsage(
                f"nothing here calls a dependency {dependency!r}.{meant}",
                why=f"The machines of this engine call {', '.join(map(repr, lines)) or 'none'}.",
                fix=f"Use one of those names, or have a step name it: dependency={str(dependency)!r}.",
            )
        return lines[dependency]

    @repeated
    async def prune(
        self,
        *,
        older_than_s: float,
        history_only: bool = False,
        with_owed: bool = False,
        dry_run: bool = False,
        batch: int = BATCH,
        pause_s: float = 0.0,
    ) -> Pruned:
        """Remove workflows of this engine's machines that ended so long ago, with their history, effects and letters.

        With `history_only` the workflows stay. One that owes an effect or has a dead letter stays unless `with_owed`.
        Each batch is a transaction of its own; `pause_s` lies between two.
        """
        self._inside.refuse_if_closed()
        pruner = Pruner(
            self._store,
            older_than_s=older_than_s,
            machines=self._inside.machines,
            history_only=history_only,
            owing=with_owed,
            dry_run=dry_run,
            batch=batch,
            pause_s=pause_s,
        )
        keeps = history_only or dry_run
        return await pruner.run(lambda each: None if keeps else self._pipeline.forget(each.workflows))

    @repeated
    async def _rule(self, letter_id: str, ruling: type[TryAgain | Settle]) -> Letter:
        """Have a person's word on a letter, once: of two at the same time the second finds it gone."""
        self._inside.refuse_if_closed()
        if letter_id in self._ruled:
            raise no_letter(letter_id)
        self._ruled.add(letter_id)
        try:
            if not self._store.shared:
                return await self._ruled_upon(letter_id, ruling)
            # Of two engines that rule upon it at the same time, too, the second finds it gone.
            name = f"dead-letter:{digest_of('', letter_id.encode('utf-8', 'replace')).hex()}"
            async with Leasing(self._inside.own_leases, name, wait_s=WAIT_S, lease_s=LEASE_S):
                return await self._ruled_upon(letter_id, ruling)
        finally:
            self._ruled.discard(letter_id)

    async def _ruled_upon(self, letter_id: str, ruling: type[TryAgain | Settle]) -> Letter:
        letter = await find_letter(self._store, letter_id)
        await self._pipeline.admit(ruling(letter))
        return letter
