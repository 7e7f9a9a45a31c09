"""What deciding needs from the engine: ids, the time of the group, and the places where attempts begin.

Deciding is the same wherever it happens. Inside a transaction of the caller's own there are no places: whatever is owed
then is left to an engine.
"""

import msgspec

from interlock.runtime.bound import Bound, Live
from interlock.runtime.owed import Owed
from interlock.runtime.resilience.lines import Line
from interlock.runtime.resilience.outlets import Kind
from interlock.runtime.resilience.places import Places
from interlock.runtime.slots import Slots
from interlock.runtime.tracing import Guarded
from interlock.seams import Ids
from interlock.store.values import OwedEffect

replace = msgspec.structs.replace


class Means:
    """What staging needs from the engine, for one group."""

    __slots__ = ("ids", "now_us", "owner", "places", "recovered", "tracing")

    def __init__(self, ids: Ids, places: Places, owner: str = "", tracing: Guarded | None = None) -> None:
        self.ids = ids
        self.tracing = tracing
        self.owner = owner
        """Who leases what begins here, on a store that is shared; empty where nobody else could."""
        self.places = places
        self.now_us = 0
        self.recovered: set[str] = set()
        """Effects that were found tried when the engine opened: a crash may have ended that, and it is no retry."""

    def line(self, dependency: str | None) -> Line | None:
        """The line at a dependency; None without one."""
        return None if dependency is None else self.places.lines.get(dependency)


def place_of(live: Live, means: Means) -> tuple[Slots, Line | None, Kind]:
    """Where the next attempt of a workflow's step or undo begins."""
    return place_in(live.bound, live.row.state, live.owed, means)


def place_in(bound: Bound, state: str, owed: Owed, means: Means) -> tuple[Slots, Line | None, Kind]:
    """The same for a row that was not read any further. An undo calls what its step has called."""
    places = means.places
    if owed.run is not None:
        node = bound.stored.get(state)
        step = None if node is None else node.step
        line = None if step is None else means.line(step.dependency)
        # Only what has failed is a retry. An attempt that a crash has ended says nothing about its dependency, and a
        # budget that counted it would keep all who were under way then waiting for minutes.
        return places.steps, line, "retry" if owed.run.is_retry else "first"
    node = bound.table.steps.get(owed.undos[0].step) if owed.undos else None
    step = None if node is None else node.step
    return places.undos, None if step is None else means.line(step.dependency), "undo"


def effect_line(bound: Bound, effect: OwedEffect, means: Means) -> Line | None:
    """The line at what an effect calls."""
    declared = bound.effects.get(effect.name)
    return None if declared is None else means.line(declared.dependency)


def effect_kind(effect: OwedEffect, means: Means) -> Kind:
    """Whether the next attempt of an effect is a retry."""
    return "retry" if effect.attempts and effect.id not in means.recovered else "first"


def later_us(means: Means, wait_s: float) -> int:
    """So many seconds from now, by the store's clock."""
    return means.now_us + int(wait_s * 1_000_000)


def count(live: Live, which: int, means: Means) -> None:
    """Count a duplicate, ignored or refused event (0, 1, 2). Written with the workflow's next change (B5).

    On a shared store memory is no place to count in: see `sharing.counting`.
    """
    if means.owner:
        return
    counts = list(live.row.counts)
    counts[which] += 1
    live.row = replace(live.row, counts=(counts[0], counts[1], counts[2]))


def uncount(live: Live | None, counts: tuple[int, int, int] | None, means: Means) -> None:
    """Take back what a group has counted that is decided again, or it would count twice."""
    if live is not None and counts is not None and not means.owner:
        live.row = replace(live.row, counts=counts)
