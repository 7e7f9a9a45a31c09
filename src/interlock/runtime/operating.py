"""Engine calls for operators: compensations, dead letters, breakers, limits and pruning.

They are methods of the engine, separate because a program that sends events does not need them.
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
    """Repeat a reading call at the new place of the workflows if they were moved meanwhile.

    Calls that change a workflow do not need this: they wait in the pipeline, which hands them over.
    """

    @functools.wraps(call)
    async def again(self: OperatingT, /, *args: P.args, **kwargs: P.kwargs) -> ResultT:
        while True:  # As `_repeated`, without another coroutine: `wait` is called for every order.
            inside = self._inside
            try:
                return await call(self, *args, **kwargs)
            except UnavailableError as error:
                if self._follower is None or not await self._follower.followed(inside, error):
                    raise

    return again


class Operating:
    """The operators' calls of an engine."""

    def __init__(self, inside: Inside, follower: Follower | None = None) -> None:
        self._follower = follower
        if follower is not None:
            follower.entered.append(self._enter)
        self._enter(inside)
        self._in_command: set[str] = set()
        """Dead letters with a command under way."""

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
        """Return the pending and running undos of all workflows that unwind."""
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
        """Return the dead letters, oldest first; `kind` is "step", "effect", "undo" or None for all."""
        self._inside.refuse_if_closed()
        check_kind(kind)
        return [letter_of(letter) for letter in await self._store.letters(kind, limit=max(1, min(limit, PAGE_MAX)))]

    async def retry_dead_letter(self, letter_id: str) -> None:
        """Retry a dead letter, with the same idempotency key and all its attempts."""
        await self._command_letter(letter_id, TryAgain)

    async def resolve_dead_letter(self, letter_id: str, *, note: str) -> None:
        """Mark a dead letter as dealt with. An unwinding goes on; a step's workflow waits for an event.

        The note goes to the log `interlock.operators` and to observers.
        """
        self._inside.settled(await self._command_letter(letter_id, Settle), note)

    def breakers(self) -> Breakers:
        """Return the breakers of all dependencies of these machines, with their limits, in this process (C4).

        `engine.breakers()["gateway"].state` is "closed", "open" or "half_open".
        """
        self._inside.refuse_if_closed()
        return Breakers(view_of_line(line) for line in self._inside.places.lines.values())

    async def contention(self) -> list[HotRow]:
        """Return the workflows with the most contention between events, worst first, in this process (D9).

        A row's `table` is the name of the machine and its `key` the id of the workflow.
        """
        self._inside.refuse_if_closed()
        return self._pipeline.contended.worst(self._inside.now_s())

    def force_breaker(self, dependency: str, state: Literal["open", "closed", "auto"]) -> None:
        """Force a breaker open or closed; "auto" lets it decide again. It survives a restart.

        All engines of this process share it.
        """
        line = self._line(dependency)
        if state not in FORCES:
            raise BadUsage(
                f"a breaker cannot be forced to be {state!r}.",
                why="It is forced open, forced closed, or decides by itself.",
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
        """Change the limits of a dependency while the engine runs; omitted ones stay as they are (C8).

        `rate_per_s=None` removes the limit. Only this process is changed, and only until it ends.
        """
        outlet = self._line(dependency).outlet
        now = outlet.rate.rate_per_s if outlet.rate is not None else None
        rate = now if isinstance(rate_per_s, EllipsisType) else rate_per_s
        wanted = Dependency(
            dependency, outlet.concurrency_max if concurrency_max is None else concurrency_max, rate_per_s=rate
        )
        outlet.limit(concurrency_max=wanted.concurrency_max, rate_per_s=wanted.rate_per_s)

    def set_admission(self, admission: Admission) -> None:
        """Change the admission limits of the engine while it runs (C7)."""
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
        """Remove workflows of these machines that ended `older_than_s` ago, with history, effects and letters.

        With `history_only` the workflows stay. One that owes an effect or has a dead letter stays unless `with_owed`.
        Each batch is a transaction of its own, followed by a pause of `pause_s`.
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
    async def _command_letter(self, letter_id: str, ruling: type[TryAgain | Settle]) -> Letter:
        """Apply an operator's command to a letter. Of two concurrent ones the second gets WorkflowNotFound."""
        self._inside.refuse_if_closed()
        if letter_id in self._in_command:
            raise no_letter(letter_id)
        self._in_command.add(letter_id)
        try:
            if not self._store.shared:
                return await self._apply_command(letter_id, ruling)
            # The lease makes that hold for two engines of a shared store too.
            name = f"dead-letter:{digest_of('', letter_id.encode('utf-8', 'replace')).hex()}"
            async with Leasing(self._inside.own_leases, name, wait_s=WAIT_S, lease_s=LEASE_S):
                return await self._apply_command(letter_id, ruling)
        finally:
            self._in_command.discard(letter_id)

    async def _apply_command(self, letter_id: str, ruling: type[TryAgain | Settle]) -> Letter:
        letter = await find_letter(self._store, letter_id)
        await self._pipeline.admit(ruling(letter))
        return letter
