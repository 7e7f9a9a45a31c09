"""The world of one seed: the external service that the simulated engine calls, and the story of the seed.

The service is idempotent by key. An attempt may fail before or after the deed, hang, be declined, refuse for ever,
outlive its own cancellation, or kill the process. Calls of a dead process have no effect. Durable history is recorded
at the store, below the engine, and compared with the engine's answers.
"""

import asyncio
import itertools
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from interlock.core.events import Event
from interlock.core.values import StepContext
from interlock.engine.views import Moved, View
from interlock.errors import NonRetryable
from interlock.store.values import Change, HistoryRecord
from interlock.testing.campaigns import Luck
from interlock.testing.engine_simulation.machines import UNDOS
from interlock.testing.lives import Life, never
from interlock.testing.virtual import VirtualClock

# --- External service ------------------------------------------------------------------------------------------------

FAULTS = (
    "fails",
    "fails",
    "done, answer lost",
    "done, answer lost",
    "hangs",
    "done, then hangs",
    "outlives its cancellation",
    "outlives its cancellation",
    "refuses",
    "kills",
    "done, then kills",
)


@dataclass(slots=True, eq=False)
class Visit:
    """One call of the gateway."""

    name: str
    workflow: str
    key: str
    attempt: int
    visit: int
    undoes: str | None
    life: int
    began: int
    ended: int | None = None
    deed: int | None = None
    """The tick of the deed; None if it was not done."""
    stopped: bool = False
    """The engine was closed while the call ran: the attempt is not counted."""


class Gateway:
    """The external service of one seed."""

    def __init__(
        self,
        luck: Luck,
        *,
        faults: float,
        declines: float,
        tick: Callable[[], int],
        tell: Callable[[str, str], None],
        fault: Callable[[str], None],
    ) -> None:
        self.on = True
        self.life: Life | None = None
        self.number = 0
        """The number of the current life."""
        self.calls: list[Visit] = []
        self.done: dict[str, int] = {}
        """The tick of the first deed, by key."""
        self.undone: dict[str, int] = {}
        """The tick of the first undo, by the key of the undone run."""
        self._declined: set[str] = set()
        self._luck = luck
        self._faults = faults
        self._declines = declines
        self._tick = tick
        self._tell = tell
        self._fault = fault

    async def act(self, name: str, ctx: StepContext) -> bool:
        """Do the deed, once per key; return False when it is declined."""
        life = self.life
        if life is None or life.dead:
            await never()  # A dead process does nothing more.
        call = Visit(name, ctx.workflow, ctx.key, ctx.attempt, ctx.visit, ctx.undoes, self.number, self._tick())
        self.calls.append(call)
        self._tell(ctx.workflow, f"{name} begins, attempt {ctx.attempt}, visit {ctx.visit}, key {ctx.key[-6:]}")
        try:
            return await self._behave(call, life)
        finally:
            if life is not None and not life.dead:
                call.ended = self._tick()
                self._tell(ctx.workflow, f"{name} ends, key {ctx.key[-6:]}")

    async def _behave(self, call: Visit, life: Life | None) -> bool:
        if not self.on:
            self._do(call)
            return True
        luck = self._luck
        delay_s = luck.one((0.0, 0.0, 0.02, 0.4, 1.2))
        kind = luck.one(FAULTS) if luck.often(self._faults) else "works"
        if call.name == "charge" and call.key not in self.done and luck.often(self._declines):
            self._declined.add(call.key)
        if kind != "works":
            self._fault(kind)
        if kind.startswith("done"):
            self._do(call)
        if kind == "outlives its cancellation":
            await self._stubborn(life)
        else:
            await asyncio.sleep(delay_s)
        if kind.endswith("kills"):
            assert life is not None
            self._tell(call.workflow, f"{call.name} kills the process")
            life.end()
            await never()
        if kind.endswith("hangs"):
            await asyncio.sleep(3_600)
        if kind in {"fails", "done, answer lost"}:
            raise OSError(kind)
        if kind == "refuses" and call.undoes is None:
            raise NonRetryable(kind)
        return self._do(call)

    async def _stubborn(self, life: Life | None) -> None:
        """Sleep long, and ignore up to two cancellations: a request that was sent cannot be recalled."""
        luck = self._luck
        left_s = luck.between(0.5, 4.0)
        for _ in range(3):
            try:
                await asyncio.sleep(left_s)
            except asyncio.CancelledError:
                if life is None or life.dead:
                    raise
                left_s = luck.between(0.0, 2.0)
            else:
                return

    def _do(self, call: Visit) -> bool:
        if call.key in self._declined:
            return False
        call.deed = self._tick()
        self.done.setdefault(call.key, call.deed)
        if call.name in UNDOS and call.undoes is not None:
            self.undone.setdefault(call.undoes, call.deed)
        return True


# --- Story -----------------------------------------------------------------------------------------------------------

LINES_MAX = 40


@dataclass(slots=True, eq=False)
class Op:
    """One call of a client, and its answer."""

    name: str
    workflow: str
    event: Event | None
    """None for a start."""
    key: str | None = None
    expect_version: int | None = None
    if_allowed: bool = False
    version_before: int = 0
    """The durable version when it was sent, and when it was answered."""
    version_after: int = 0
    answer: View[Any, Any] | Moved[Any] | BaseException | None = None
    """The returned value or raised error; None while unknown."""


@dataclass(slots=True)
class Lived:
    """The time during which one life was open."""

    opened_s: float
    ended_s: float = float("inf")
    clean: bool = False


@dataclass(slots=True)
class Story:
    """The record of one seed."""

    seed: int
    clock: VirtualClock
    lines: list[tuple[float, str, str]] = field(default_factory=list)
    ops: list[Op] = field(default_factory=list)
    lives: list[Lived] = field(default_factory=list)
    history: dict[str, list[HistoryRecord]] = field(default_factory=dict)
    """Durable history rows by workflow, in commit order."""
    by: dict[tuple[str, int], int] = field(default_factory=dict)
    """By workflow and version: the life that made it durable."""
    counts: Counter[str] = field(default_factory=Counter)
    faults: Counter[str] = field(default_factory=Counter)
    complaints: list[tuple[str, str]] = field(default_factory=list)
    """Broken guarantees, each with its workflow."""
    ticks: "itertools.count[int]" = field(default_factory=itertools.count)

    def tick(self) -> int:
        """Return the next tick: a total order of all events, finer than time."""
        return next(self.ticks)

    def tell(self, workflow: str, what: str) -> None:
        """Add a line; without a workflow it is about all of them."""
        self.lines.append((self.clock.now_s, workflow, what))

    def fault(self, kind: str) -> None:
        """Count an injected fault."""
        self.faults[kind] += 1
        if kind.startswith(("commit", "killed", "read")):
            self.tell("", kind)

    def complain(self, what: str, workflow: str = "") -> None:
        """Record that a guarantee was broken."""
        self.complaints.append((what, workflow))
        self.tell(workflow, f"BROKEN: {what}")

    def version(self, workflow: str) -> int:
        """Return the durable version of the workflow."""
        return len(self.history.get(workflow, ()))

    def applied(self, changes: Sequence[Change]) -> None:
        """Record the changes of a group that has become durable."""
        for change in changes:
            known = self.history.setdefault(change.row.id, [])
            for happened in change.history:
                self.tell(
                    change.row.id,
                    f"durable: {happened.version} {happened.event} {happened.from_state} → {happened.to_state}",
                )
                known.append(happened)
                self.by[change.row.id, happened.version] = len(self.lives) - 1

    def excerpt(self) -> tuple[str, ...]:
        """Return the last lines about the workflow of the first complaint, and about all workflows."""
        if not self.complaints:
            return ()
        workflow = self.complaints[0][1]
        chosen = [line for line in self.lines if line[1] in {"", workflow}] if workflow else self.lines
        return tuple(f"  {time_s:8.3f} s  {who:<4} {what}" for time_s, who, what in chosen[-LINES_MAX:])
