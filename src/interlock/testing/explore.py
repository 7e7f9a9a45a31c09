"""Exploration of a machine: its reachable states, the events that lead there, and its unreachable states.

`explore(machine)` reads the graph and evaluates no guard; it includes step failures, unwinding and timers.
`explore(machine, samples=[...], context=...)` applies the samples and is described in `trial`.

The invariant: every exploration is bounded, and reaching a bound is reported.
"""

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, cast, overload

from interlock.core.machine import EventT, Machine
from interlock.core.values import ContextT, StateT
from interlock.errors import LimitReached
from interlock.testing.arrows import Arrow, arrows_of
from interlock.testing.trial import TRIAL_DEPTH, Trial, try_samples

PATH_DEPTH = 8
"""The default maximum length of a path of `Exploration.paths`, in transitions."""

PATHS_MAX = 100_000
"""The number of paths that `Exploration.paths` yields before it raises LimitReached."""


@dataclass(frozen=True, slots=True, repr=False)
class Exploration(Generic[StateT]):
    """The reachable states of a machine's graph, without evaluating guards."""

    machine: str
    initial: StateT
    arrows: tuple[Arrow, ...]
    """Every transition, in declared order."""
    shortest: Mapping[StateT, tuple[str, ...]]
    """State -> the names of the events on a shortest path there; empty for the initial state."""
    unreached: tuple[StateT, ...]
    """States without a path to them."""
    depth: int = PATH_DEPTH

    def __repr__(self) -> str:
        total = len(self.shortest) + len(self.unreached)
        return f"<Exploration of {self.machine!r}: {len(self.shortest)} of {total} states reached>"

    def paths(self, depth: int | None = None, *, paths_max: int = PATHS_MAX) -> Iterator[tuple[Arrow, ...]]:
        """Yield every path through the machine, up to a state without exit or of `depth` transitions.

        Raises LimitReached when there are more than `paths_max`; `itertools.islice` takes a few of many.
        """
        longest = self.depth if depth is None else depth
        exits = _exits(self.arrows)
        found = 0
        waiting: list[tuple[str, tuple[Arrow, ...]]] = [(self.initial.value, ())]
        while waiting:
            state, path = waiting.pop()
            onward = exits.get(state, ()) if len(path) < longest else ()
            if onward:
                waiting += [(arrow.to_state, (*path, arrow)) for arrow in reversed(onward)]
                continue
            if found == paths_max:
                raise LimitReached(
                    f"{self.machine}: there are more than {paths_max:,} paths of up to {longest} transitions.",
                    why="Loops multiply the number of paths with every step of depth.",
                    fix="Ask for a smaller depth, take the first ones with itertools.islice, or raise paths_max.",
                )
            found += 1
            yield path

    def text(self) -> str:
        """Return the report as text: every state with a shortest path to it."""
        lines = [f"{self.machine}: {len(self.arrows)} transitions, {len(self.shortest)} states reached"]
        width = max(len(state.value) for state in self.shortest)
        lines += [
            f"  {state.value:<{width}}  {', '.join(events) or '(initial)'}" for state, events in self.shortest.items()
        ]
        lines += [f"  {state.value}: not reached" for state in self.unreached]
        return "\n".join(lines)


@overload
def explore(machine: Machine[StateT, ContextT, EventT], *, depth: int = ...) -> Exploration[StateT]: ...
@overload
def explore(
    machine: Machine[StateT, ContextT, EventT], *, samples: Sequence[EventT], context: ContextT, depth: int = ...
) -> Trial[StateT, EventT]: ...
def explore(
    machine: Machine[StateT, ContextT, EventT],
    *,
    depth: int | None = None,
    samples: Sequence[EventT] | None = None,
    context: ContextT | None = None,
) -> Exploration[StateT] | Trial[StateT, EventT]:
    """Find the reachable states of a machine.

    Without samples: by its graph, without guards; `depth` is the maximum length of a path of `paths()`. With sample
    events and a starting context: by applying them, with guards; `depth` is the maximum number of moves in a row.
    """
    if samples is None and context is None:
        return _graph(machine, PATH_DEPTH if depth is None else depth)
    if samples is None or context is None:
        raise TypeError("explore() takes samples= and context= together, or neither: events need a context to act on")
    return try_samples(machine, samples, context, depth=TRIAL_DEPTH if depth is None else depth)


def _graph(machine: Machine[StateT, ContextT, EventT], depth: int) -> Exploration[StateT]:
    table = machine.compiled
    assert table.initial is not None  # A machine without an initial state does not compile.
    arrows = arrows_of(table)
    exits = _exits(arrows)
    shortest: dict[str, tuple[str, ...]] = {table.initial.name: ()}
    waiting = deque([table.initial.name])
    while waiting:
        state = waiting.popleft()
        for arrow in exits.get(state, ()):
            if arrow.to_state not in shortest:
                shortest[arrow.to_state] = (*shortest[state], arrow.event)
                waiting.append(arrow.to_state)
    return Exploration(
        machine=machine.name,
        initial=cast("StateT", table.initial.state),
        arrows=arrows,
        shortest={machine.state(name): events for name, events in shortest.items()},
        unreached=tuple(cast("StateT", node.state) for node in table.nodes.values() if node.name not in shortest),
        depth=depth,
    )


def _exits(arrows: tuple[Arrow, ...]) -> dict[str, list[Arrow]]:
    exits: dict[str, list[Arrow]] = {}
    for arrow in arrows:
        exits.setdefault(arrow.from_state, []).append(arrow)
    return exits
