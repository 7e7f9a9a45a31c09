"""The story of one seed: readable lines, and the calls, answers and durable history for the checks.

Durable history is recorded at the store, below the engine, and compared with the engine's answers.
"""

import itertools
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from interlock.core.events import Event
from interlock.runtime.views import Moved, View
from interlock.store.values import Change, Happened
from interlock.testing.virtual import VirtualClock

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
    history: dict[str, list[Happened]] = field(default_factory=dict)
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
