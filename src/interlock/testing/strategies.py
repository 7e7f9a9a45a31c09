"""Random walks through a machine, as a Hypothesis strategy.

A walk begins with a context and makes moves that exist in its state: events with payloads drawn from their types,
steps that give up, unwindings that end. A refusal of a guard is recorded and the walk continues. A property over
walks ("no walk ever ships an unpaid order") finds unexpected sequences, and shrinks them to the shortest.

The odd choice: fields with a default are drawn too, where their type can be. A default that is new each time (an id)
would make an example that cannot be repeated.
"""

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import MISSING, fields, is_dataclass
from typing import Generic, NamedTuple, cast, get_type_hints

import msgspec

from interlock.core.decide import foreign_event, node_of
from interlock.core.declarations import StepDeclaration
from interlock.core.events import Event, wire_name
from interlock.core.machine import EventT, Machine
from interlock.core.table import Node, Table, reached_from
from interlock.core.values import ContextT, Snapshot, StateT, StepFailure
from interlock.errors import DefinitionError, GuardRejected, InterlockError, Refusal, RequestError
from interlock.testing.campaigns import missing_extra
from interlock.testing.explore import Attempted, Move, Unwound, play

try:
    from hypothesis import strategies as st
    from hypothesis.errors import HypothesisException
    from hypothesis.strategies import DrawFn, SearchStrategy
except ModuleNotFoundError as error:
    raise missing_extra(__name__, "hypothesis") from error

WALK_LENGTH_MAX = 20
"""The default maximum length of a walk, in moves."""

ONE_STOPS_OF = 50
"""A walk ends early at each move with a probability of about one in this number."""

TOWARDS_GOAL_OF_TEN = 8
"""Moves of ten that lead nearer to the walk's goal state."""

STRAYS_OF_TEN = 2
"""With `strays=True`: moves of ten that are events without a transition in the current state."""


class WalkStep(NamedTuple, Generic[EventT]):
    """One move of a walk, and its refusal, if any."""

    event: Move[EventT]
    refusal: Refusal | None = None


class Walk(msgspec.Struct, Generic[StateT, ContextT, EventT], frozen=True):
    """A walk through a machine. `snapshots[i + 1]` is what `steps[i]` led to: the same as before if it was refused."""

    machine: str
    snapshots: tuple[Snapshot[StateT, ContextT], ...]
    steps: tuple[WalkStep[EventT], ...]

    @property
    def end(self) -> Snapshot[StateT, ContextT]:
        """The last snapshot."""
        return self.snapshots[-1]

    @property
    def events(self) -> tuple[Move[EventT], ...]:
        """The moves that were not refused: played again, they lead to the same end."""
        return tuple(step.event for step in self.steps if step.refusal is None)

    def __repr__(self) -> str:
        return story(self.machine, self.snapshots, self.steps)


def story(machine: str, snapshots: Sequence[Snapshot[StateT, ContextT]], steps: Sequence[WalkStep[EventT]]) -> str:
    """Return the walk as text: a line per move, with its changes of the context."""
    lines = [f"Walk of {machine!r}:", f"  begins in {snapshots[0].state.value!r} with {snapshots[0].context!r}"]
    for number, (step, before, after) in enumerate(zip(steps, snapshots, snapshots[1:], strict=False), start=1):
        if step.refusal is not None:
            lines.append(f"  {number}. {step.event!r} is refused: {_reason(step.refusal)}")
            continue
        change = _change(before.context, after.context)
        lines.append(f"  {number}. {step.event!r} leads to {after.state.value!r}{change}")
    return "\n".join(lines)


def walks(
    machine: Machine[StateT, ContextT, EventT],
    *,
    context: ContextT | SearchStrategy[ContextT],
    events: Mapping[type[Event], SearchStrategy[Event]] | None = None,
    length_max: int = WALK_LENGTH_MAX,
    strays: bool = False,
) -> SearchStrategy[Walk[StateT, ContextT, EventT]]:
    """Return a strategy for walks of up to `length_max` moves, starting with `context` (a value or a strategy).

    Payloads are drawn from the fields' types; `events` overrides that per event. With `strays`, a walk now and then
    sends an event that has no transition where it stands.
    """
    table = machine.compiled
    for event in events or {}:
        if event not in table.events.values():
            raise foreign_event(table, event)
    strategies = {**_instances(machine), **cast("dict[type[EventT], SearchStrategy[EventT]]", events or {})}
    _warm_up(strategies.values())
    chart = _Chart(table)
    return _walks(machine, chart, _contexts(machine, context), strategies, length_max, strays=strays)


@st.composite
def _walks(
    draw: DrawFn,
    machine: Machine[StateT, ContextT, EventT],
    chart: "_Chart",
    contexts: SearchStrategy[ContextT],
    events: Mapping[type[EventT], SearchStrategy[EventT]],
    length_max: int,
    *,
    strays: bool,
) -> Walk[StateT, ContextT, EventT]:
    snapshots = [machine.begin(draw(contexts))]
    steps: list[WalkStep[EventT]] = []
    # Purely random walks would mostly be cancelled after a few moves. So each walk has a goal state.
    distances = draw(st.sampled_from(chart.distances))
    # Asking before each move, instead of for a length beforehand, lets Hypothesis cut any move out of a failing walk.
    while len(steps) < length_max and draw(st.integers(0, ONE_STOPS_OF)) > 0:
        snapshot = snapshots[-1]
        ways = _ways(machine, snapshot, events, strays=strays and _chance(draw, STRAYS_OF_TEN))
        if not ways:
            break
        here = distances.get(node_of(machine.compiled, snapshot.state), 0)
        nearer = [way for way in ways if any(distances.get(target, here) < here for target in way.targets)]
        # A guard that has just refused would refuse again: another move has to come first.
        stuck = bool(steps) and steps[-1].refusal is not None
        if not nearer or stuck or not _chance(draw, TOWARDS_GOAL_OF_TEN):
            nearer = [way for way in ways for _ in range(chart.weight(way.targets))]
        move = draw(draw(st.sampled_from(nearer)).moves)
        try:
            snapshots.append(play(machine, snapshot, move).snapshot)
            steps.append(WalkStep(move))
        except Refusal as refusal:
            snapshots.append(snapshot)
            steps.append(WalkStep(move, refusal))
        except InterlockError as error:
            error.add_note(f"{story(machine.name, snapshots, steps)}\n  {len(steps) + 1}. {move!r} raises this")
            raise
    return Walk(machine.name, tuple(snapshots), tuple(steps))


def _warm_up(strategies: Iterable[SearchStrategy[EventT]]) -> None:
    """Build the strategies now, which Hypothesis would do in the first draw.

    Its table of all Unicode characters takes a second where it is not cached yet (a fresh clone, a CI runner). As part
    of a draw that would fail the health check `too_slow`, on the very first run and never again.
    """
    for strategy in strategies:
        # A strategy that cannot be built is a mistake only when a walk draws from it, which raises this again.
        with suppress(Exception):
            strategy.validate()


def _contexts(
    machine: Machine[StateT, ContextT, EventT], context: ContextT | SearchStrategy[ContextT]
) -> SearchStrategy[ContextT]:
    if not isinstance(context, SearchStrategy):
        return st.just(context)
    drawn = cast("SearchStrategy[ContextT]", context)
    return drawn.filter(lambda each: _storable_context(machine, each))


def _chance(draw: DrawFn, of_ten: int) -> bool:
    return draw(st.integers(1, 10)) > 10 - of_ten


class _Chart:
    """The distances of every state from every goal, and the number of states reachable from each."""

    def __init__(self, table: Table) -> None:
        nodes = list(table.nodes.values())
        self.distances = [_distances(table, goal) for goal in nodes]
        self._states_after = {node: len(reached_from([node])) for node in nodes}

    def weight(self, targets: tuple[Node, ...]) -> int:
        """Return the weight of a move: the most states that are reachable after it."""
        return max((self._states_after[target] for target in targets), default=1)


class _Way(NamedTuple, Generic[EventT]):
    """One kind of move that can be made from a state, and the nodes it may lead to."""

    moves: SearchStrategy[Move[EventT]]
    targets: tuple[Node, ...] = ()


def _ways(
    machine: Machine[StateT, ContextT, EventT],
    snapshot: Snapshot[StateT, ContextT],
    events: Mapping[type[EventT], SearchStrategy[EventT]],
    *,
    strays: bool,
) -> list[_Way[EventT]]:
    node = node_of(machine.compiled, snapshot.state)
    astray = [_Way(strategy) for event, strategy in events.items() if event not in node.moves]
    if strays and astray:
        return astray
    ways: list[_Way[EventT]] = [
        _Way(events[cast("type[EventT]", event)], tuple(move.target or node for move in moves))
        for event, moves in node.moves.items()
    ]
    if node.step is not None and node.failed is not None:
        ways.append(_Way(_failures(node.step), (node.failed,)))
    if node.undoable and not snapshot.attempted:
        ways.append(_Way(st.just(Attempted()), (node,)))
    if node.unwinds_to is not None:
        ways.append(_Way(st.just(Unwound()), (node.unwinds_to,)))
    return ways


def _distances(table: Table, goal: Node) -> dict[Node, int]:
    """Return the distance of each node from the goal in moves; nodes that cannot reach it are left out."""
    distances = {goal: 0}
    for distance in range(1, len(table.nodes)):
        nearest = [
            node
            for node in table.nodes.values()
            if node not in distances and any(each in distances for each in node.next_nodes())
        ]
        distances.update(dict.fromkeys(nearest, distance))
    return distances


def _failures(step: StepDeclaration) -> SearchStrategy[StepFailure]:
    known_outcome = st.just(StepFailure(step=step.name, error="non-retryable", unknown=False))
    unknown_outcome = st.just(StepFailure(step=step.name, error="timeout", attempts=step.retry.attempts))
    return known_outcome | unknown_outcome


def _instances(machine: Machine[StateT, ContextT, EventT]) -> dict[type[EventT], SearchStrategy[EventT]]:
    events = cast("dict[str, type[EventT]]", machine.compiled.events)
    return {event: _instances_of(machine, event) for event in events.values()}


def _instances_of(machine: Machine[StateT, ContextT, EventT], event: type[EventT]) -> SearchStrategy[EventT]:
    # Deferred: an event whose fields cannot be drawn is a mistake only when a walk sends it.
    return st.deferred(lambda: _built(event)).filter(lambda drawn: _storable_event(machine, drawn))


def _built(event: type[EventT]) -> SearchStrategy[EventT]:
    if not is_dataclass(event):
        return st.from_type(event)  # A msgspec struct or a pydantic model: by the signature of its class.
    hints = get_type_hints(event)
    drawn: dict[str, SearchStrategy[object]] = {}
    for each in (each for each in fields(event) if each.init):
        strategy: SearchStrategy[object] = st.from_type(hints[each.name])
        try:
            strategy.validate()
        except HypothesisException as error:
            if each.default is MISSING and each.default_factory is MISSING:
                raise DefinitionError(
                    f"event {event.__name__}: no value can be drawn for its field {each.name!r}: {error}",
                    why="Hypothesis draws payloads from the types of their fields, and does not know this one.",
                    fix=f"Pass walks(..., events={{{event.__name__}: ...}}), or register the type with Hypothesis.",
                    rule="undrawable-event",
                ) from error
        else:
            drawn[each.name] = strategy
    return st.builds(event, **drawn)


def _storable_event(machine: Machine[StateT, ContextT, EventT], event: EventT) -> bool:
    try:
        machine.codec.decode_event(wire_name(type(event)), machine.codec.encode_event(event), strict=False)
    except RequestError:
        return False
    return True


def _storable_context(machine: Machine[StateT, ContextT, EventT], context: ContextT) -> bool:
    try:
        machine.codec.checked_context(context)
    except RequestError:
        return False
    return True


def _change(before: object, after: object) -> str:
    if before == after:
        return ""
    names: tuple[str, ...] = ()
    if isinstance(after, msgspec.Struct):
        names = after.__struct_fields__
    elif is_dataclass(after):
        names = tuple(each.name for each in fields(after))
    changed = [f"{name}={getattr(after, name)!r}" for name in names if getattr(before, name) != getattr(after, name)]
    return f" with {', '.join(changed) or repr(after)}"


def _reason(refusal: Refusal) -> str:
    if isinstance(refusal, GuardRejected):
        return f"guard {', '.join(refusal.guards)}"
    return f"no transition from {refusal.state!r}"
