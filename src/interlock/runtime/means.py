"""The context of decisions: ids, the time of the group, and the slots in which attempts begin.

Inside a transaction of the caller there are no slots: an engine begins what is owed then.
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
    """The ids, time and slots of the engine, for one group."""

    __slots__ = ("ids", "now_us", "owner", "places", "recovered", "tracing")

    def __init__(self, ids: Ids, places: Places, owner: str = "", tracing: Guarded | None = None) -> None:
        self.ids = ids
        self.tracing = tracing
        self.owner = owner
        """The lease owner of attempts that begin here, on a shared store; empty on a store with one owner."""
        self.places = places
        self.now_us = 0
        self.recovered: set[str] = set()
        """Effects with attempts from before the engine opened. A crash may have ended them: the next is not a retry."""

    def line(self, dependency: str | None) -> Line | None:
        """Return the wait queue of a dependency; None without one."""
        return None if dependency is None else self.places.lines.get(dependency)


def place_of(live: Live, means: Means) -> tuple[Slots, Line | None, Kind]:
    """Return the slots, wait queue and kind of the next attempt of a workflow's step or undo."""
    return place_in(live.bound, live.row.state, live.owed, means)


def place_in(bound: Bound, state: str, owed: Owed, means: Means) -> tuple[Slots, Line | None, Kind]:
    """Return the same for a row that is not decoded. An undo calls the dependency of its step."""
    places = means.places
    if owed.run is not None:
        node = bound.stored.get(state)
        step = None if node is None else node.step
        line = None if step is None else means.line(step.dependency)
        # Only a failed attempt makes the next one a retry. A crash says nothing about the dependency. Counting it in
        # the retry budget would delay all attempts that were under way for minutes.
        return places.steps, line, "retry" if owed.run.is_retry else "first"
    node = bound.table.steps.get(owed.undos[0].step) if owed.undos else None
    step = None if node is None else node.step
    return places.undos, None if step is None else means.line(step.dependency), "undo"


def effect_line(bound: Bound, effect: OwedEffect, means: Means) -> Line | None:
    """Return the wait queue of the dependency that an effect calls."""
    declared = bound.effects.get(effect.name)
    return None if declared is None else means.line(declared.dependency)


def effect_kind(effect: OwedEffect, means: Means) -> Kind:
    """Return whether the next attempt of an effect is a retry."""
    return "retry" if effect.attempts and effect.id not in means.recovered else "first"


def later_us(means: Means, wait_s: float) -> int:
    """Return the time `wait_s` from now, by the store's clock."""
    return means.now_us + int(wait_s * 1_000_000)


def count(live: Live, which: int, means: Means) -> None:
    """Count a duplicate, ignored or refused event (0, 1, 2). Written with the workflow's next change (B5).

    Does nothing on a shared store: see `sharing.counting`.
    """
    if means.owner:
        return
    counts = list(live.row.counts)
    counts[which] += 1
    live.row = replace(live.row, counts=(counts[0], counts[1], counts[2]))


def uncount(live: Live | None, counts: tuple[int, int, int] | None, means: Means) -> None:
    """Restore the counts before a group that is decided again, or its events would count twice."""
    if live is not None and counts is not None and not means.owner:
        live.row = replace(live.row, counts=counts)
