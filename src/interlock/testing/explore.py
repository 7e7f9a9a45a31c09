"""Exploration of a machine: its reachable states, the events that lead there, and its unreachable states.

`explore(machine)` reads the graph and evaluates no guard; it includes step failures, unwinding and timers.
`explore(machine, samples=[...], context=...)` plays the samples (`try_samples`): it evaluates guards, runs actions and
compares contexts. `assert_path` plays one sequence of moves.

The invariant: every exploration is bounded, and reaching a bound is reported.
"""

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Generic, Literal, TypeAlias, TypeVar, cast, overload

import msgspec

from interlock.core import decide
from interlock.core.decide import allowed_events, bounded_repr, node_of, suggestion
from interlock.core.declarations import StepDeclaration
from interlock.core.events import STEP_FAILED, UNWOUND, Event, wire_name
from interlock.core.machine import EventT, Machine
from interlock.core.table import Node
from interlock.core.values import Allowed, ContextT, Decision, Snapshot, StateT, StepFailure
from interlock.errors import GuardRejected, InterlockError, InvalidPayload, InvalidTransition, LimitReached, Refusal
from interlock.testing.coverage import Arrow, arrows_of, measure

# --- Moves -----------------------------------------------------------------------------------------------------------
# `Machine.apply` takes events. An engine also reports that a step was begun, its result (which can be undone later),
# a step that gave up and a completed unwinding. `play` takes those too and decides as an engine would, so that
# tests, exploration and random walks reach the states after a failure.

ATTEMPTED = "ATTEMPTED"


@dataclass(frozen=True, slots=True)
class Unwound:
    """The move out of an unwinding state: everything that had to be undone is undone."""


@dataclass(frozen=True, slots=True)
class Attempted:
    """An attempt of the state's step has begun: an event that interrupts it now leaves something to undo."""


AnyEventT = TypeVar("AnyEventT", bound=Event)

Move: TypeAlias = AnyEventT | StepFailure | Unwound | Attempted
"""An event of the machine, `StepFailure(step=..., error=...)` for a step that gave up, `Unwound()`, `Attempted()`."""


EPOCH_S = 1_800_000_000.0
"""The wall-clock time at which virtual time begins: 15 January 2027, 08:00 UTC."""

EXPLORED_AT = datetime.fromtimestamp(EPOCH_S, UTC)
"""The time of every move of a walk or a path, unless a test gives another one: that of a new `Harness`."""


def play(
    machine: Machine[StateT, ContextT, EventT],
    snapshot: Snapshot[StateT, ContextT],
    move: Move[EventT],
    *,
    at: datetime = EXPLORED_AT,
) -> Decision[StateT, ContextT]:
    """Return the engine's decision on the move. Raises the refusal, as `Machine.decide` does.

    An event that the state's step returns, or has an undo for, counts as the step's result: an unwinding undoes it.
    A failure must name the step of the state; another name raises InvalidPayload.
    """
    table = machine.compiled
    node = decide.node_of(table, snapshot.state)
    if isinstance(move, StepFailure):
        if node.step is None or node.failed is None:
            raise _no_transition(machine.name, node, STEP_FAILED)
        if move.step != node.step.name:
            raise _other_step(machine.name, node, node.step.name, move.step)
        decision = decide.fail(table, snapshot, move)
        assert decision is not None  # Only a step without `failed=` stays where it is.
        return decision
    if isinstance(move, Unwound):
        if node.unwinds_to is None:
            raise _no_transition(machine.name, node, UNWOUND)
        # Through the module, where coverage of transitions can see it.
        return decide.unwound(table, snapshot)
    if isinstance(move, Attempted):
        if node.step is None:
            raise _no_transition(machine.name, node, ATTEMPTED)
        return Decision(msgspec.structs.replace(snapshot, attempted=True), ())
    result = node.step is not None and _is_result(node.step, type(move))
    return decide.decide(table, snapshot, move, result=result, at=at)


def name_of_move(move: Event | StepFailure | Unwound | Attempted) -> str:
    """Return the move's name in history: the event's wire name, STEP_FAILED or UNWOUND; or ATTEMPTED."""
    if isinstance(move, Attempted):
        return ATTEMPTED
    if isinstance(move, StepFailure):
        return STEP_FAILED
    if isinstance(move, Unwound):
        return UNWOUND
    return wire_name(type(move))


def allowed_text(allowed: Allowed[StateT]) -> str:
    """Return one allowed transition as text: `SUBMIT [has_items] -> paid`."""
    guards = f" [{', '.join(allowed.guards)}]" if allowed.guards else ""
    return f"{allowed.event}{guards} -> {allowed.to.value}"


def _is_result(step: StepDeclaration, event: type[Event]) -> bool:
    # Without a return annotation only the events with an undo count as results. Other events are taken for a client's:
    # as results they would leave nothing to undo, and an attempt that a Cancel interrupts would be forgotten (G5).
    return event in step.returns or any(event is undo.event for undo in step.undos)


def _other_step(machine: str, node: Node, step: str, failed: str) -> InvalidPayload:
    return InvalidPayload(
        f"{machine}: step {bounded_repr(failed)} cannot fail in state {node.name!r}, whose step is {step!r}."
        f"{suggestion(failed, [step])}",
        why="Only the step of the state that a workflow is in can give up there.",
        fix=f"Write StepFailure(step={step!r}, ...), or move to the state of the step that is meant.",
    )


def _no_transition(machine: str, node: Node, event: str) -> InvalidTransition:
    return InvalidTransition(machine=machine, state=node.name, event=event, allowed=allowed_events(node))


# --- Trial of samples ------------------------------------------------------------------------------------------------
# Every sample is played in every reachable snapshot, breadth first. So are the first event of a pipeline, the events
# of timers, the start of a step, a step that gives up (its outcome known or not) and the end of an unwinding. Two
# snapshots are the same when state and encoded context are equal: a machine with finitely many contexts is explored
# completely.

TRIAL_DEPTH = 50
"""The default maximum number of moves in a row."""

SNAPSHOTS_MAX = 10_000
"""The number of distinct snapshots after which a trial stops."""


@dataclass(frozen=True, slots=True)
class Problem(Generic[StateT, EventT]):
    """A failed move: a guard or action raised, or made a context that cannot be stored."""

    state: StateT
    moves: tuple[Move[EventT], ...]
    """The moves from the start up to and including the failed one."""
    error: InterlockError


@dataclass(frozen=True, slots=True, repr=False)
class Trial(Generic[StateT, EventT]):
    """The result of playing the samples."""

    machine: str
    reached: Mapping[StateT, tuple[Move[EventT], ...]]
    """State -> a shortest list of moves that leads there."""
    unreached: tuple[StateT, ...]
    taken: tuple[Arrow, ...]
    never_taken: tuple[Arrow, ...]
    refusals: Mapping[str, tuple[Refusal, ...]]
    """Event -> its refusals: one per state and set of guards that refused."""
    problems: tuple[Problem[StateT, EventT], ...]
    snapshots: int
    """The number of distinct snapshots."""
    stopped_by: Literal["depth", "snapshots"] | None = None
    """The limit that cut the trial short, or None when it is complete."""

    def __repr__(self) -> str:
        total = len(self.reached) + len(self.unreached)
        return (
            f"<Trial of {self.machine!r}: {len(self.reached)} of {total} states reached, "
            f"transitions never taken: {len(self.never_taken)}, problems: {len(self.problems)}>"
        )

    @property
    def complete(self) -> bool:
        """Whether every snapshot that the samples can reach was visited."""
        return self.stopped_by is None

    def text(self) -> str:
        """Return the report as text."""
        ending = f", stopped by the limit of {self.stopped_by}" if self.stopped_by else ""
        lines = [f"{self.machine}: {self.snapshots:,} snapshots tried{ending}"]
        width = max(len(state.value) for state in self.reached)
        lines += [
            f"  {state.value:<{width}}  {', '.join(map(name_of_move, moves)) or '(initial)'}"
            for state, moves in self.reached.items()
        ]
        lines += [f"  not reached: {state.value}" for state in self.unreached]
        lines += [f"  never taken: {arrow}" for arrow in self.never_taken]
        lines += [
            f"  refused: {event} in {refusal.state} by {', '.join(refusal.guards)}"
            for event, refusals in self.refusals.items()
            for refusal in refusals
            if isinstance(refusal, GuardRejected)
        ]
        for problem in self.problems:
            lines += [f"  problem: {problem.error.what}", f"    after {', '.join(map(repr, problem.moves))}"]
        return "\n".join(lines)


@dataclass(slots=True)
class _Findings(Generic[StateT, EventT]):
    """The findings of a running trial."""

    reached: dict[StateT, tuple[Move[EventT], ...]] = field(default_factory=dict)
    refusals: dict[tuple[str, str, tuple[str, ...]], Refusal] = field(default_factory=dict)
    problems: dict[tuple[str, str, str], Problem[StateT, EventT]] = field(default_factory=dict)
    stopped_by: Literal["depth", "snapshots"] | None = None

    def refused(self, error: Refusal) -> None:
        guards = error.guards if isinstance(error, GuardRejected) else ()
        self.refusals.setdefault((error.event, error.state, guards), error)

    def failed(self, state: StateT, moves: tuple[Move[EventT], ...], error: InterlockError) -> None:
        # One per state, event and kind is enough to find it: the same mistake shows in every context.
        self.problems.setdefault(
            (state.value, name_of_move(moves[-1]), error.code), Problem(state=state, moves=moves, error=error)
        )

    def refusals_by_event(self) -> dict[str, tuple[Refusal, ...]]:
        found: dict[str, tuple[Refusal, ...]] = {}
        for (event, _, _), refusal in self.refusals.items():
            found[event] = (*found.get(event, ()), refusal)
        return found


def try_samples(
    machine: Machine[StateT, ContextT, EventT],
    samples: Sequence[EventT],
    context: ContextT,
    *,
    depth: int = TRIAL_DEPTH,
    snapshots_max: int = SNAPSHOTS_MAX,
) -> Trial[StateT, EventT]:
    """Play the samples from `context` on, in every reachable snapshot, and return the result."""
    start = machine.begin(context)
    notes: _Findings[StateT, EventT] = _Findings(reached={start.state: ()})
    known = {_snapshot_key(machine, start)}
    waiting: deque[tuple[Snapshot[StateT, ContextT], tuple[Move[EventT], ...]]] = deque([(start, ())])
    with measure(machine) as coverage:
        while waiting:
            snapshot, path = waiting.popleft()
            for move in _moves(machine, snapshot, samples):
                if len(path) >= depth:
                    notes.stopped_by = "depth"
                    break
                moves = (*path, move)
                try:
                    decision = play(machine, snapshot, move)
                    key = _snapshot_key(machine, decision.snapshot)
                except Refusal as error:
                    notes.refused(error)
                    continue
                except InterlockError as error:
                    notes.failed(snapshot.state, moves, error)
                    continue
                for record in decision.records:
                    notes.reached.setdefault(record.to_state, moves)
                if key in known:
                    continue
                if len(known) >= snapshots_max:
                    notes.stopped_by = "snapshots"
                    continue
                known.add(key)
                waiting.append((decision.snapshot, moves))
    covered = coverage.of(machine)
    states = [cast("StateT", node.state) for node in machine.compiled.nodes.values()]
    return Trial(
        machine=machine.name,
        reached=notes.reached,
        unreached=tuple(state for state in states if state not in notes.reached),
        taken=covered.taken,
        never_taken=covered.missing,
        refusals=notes.refusals_by_event(),
        problems=tuple(notes.problems.values()),
        snapshots=len(known),
        stopped_by=notes.stopped_by,
    )


def _moves(
    machine: Machine[StateT, ContextT, EventT], snapshot: Snapshot[StateT, ContextT], samples: Sequence[EventT]
) -> Iterator[Move[EventT]]:
    node = node_of(machine.compiled, snapshot.state)
    if node.final:
        return
    yield from samples
    if node is machine.compiled.initial and machine.opening is not None:
        yield machine.opening
    for timer in node.timers:
        yield cast("EventT", timer.send)
    if node.step is not None and node.failed is not None:
        for unknown in (False, True):
            yield StepFailure(step=node.step.name, error=STEP_FAILED, unknown=unknown)
    if node.undoable and not snapshot.attempted:
        yield Attempted()
    if node.unwinds_to is not None:
        yield Unwound()


def _snapshot_key(
    machine: Machine[StateT, ContextT, EventT], snapshot: Snapshot[StateT, ContextT]
) -> tuple[StateT, bytes, bool, bool]:
    # Of the undo log only one thing decides where a workflow goes: whether there is anything in it.
    context = machine.codec.checked_context(snapshot.context)
    return snapshot.state, context, bool(snapshot.undo_log), snapshot.attempted


# --- Exploration -----------------------------------------------------------------------------------------------------

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
        return _explore_graph(machine, PATH_DEPTH if depth is None else depth)
    if samples is None or context is None:
        raise TypeError("explore() takes samples= and context= together, or neither: events need a context to act on")
    return try_samples(machine, samples, context, depth=TRIAL_DEPTH if depth is None else depth)


def _explore_graph(machine: Machine[StateT, ContextT, EventT], depth: int) -> Exploration[StateT]:
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


# --- One path --------------------------------------------------------------------------------------------------------


def assert_path(
    machine: Machine[StateT, ContextT, EventT],
    context: ContextT | Snapshot[StateT, ContextT],
    *moves: Move[EventT],
    ends_in: StateT | None = None,
    at: datetime = EXPLORED_AT,
) -> Snapshot[StateT, ContextT]:
    """Play the moves from a new workflow (or from a snapshot) and return where they lead.

    A move is an event, `StepFailure(...)` for a step that gave up, `Unwound()` for an unwinding that is done, or
    `Attempted()` for a step that was begun and may be interrupted. `at` is the time of all moves. Fails when one of
    them is refused, or when the end is not `ends_in`.
    """
    __tracebackhide__ = True
    snapshot = cast("Snapshot[StateT, ContextT]", context) if isinstance(context, Snapshot) else machine.begin(context)
    story = [f"  {snapshot.state.value}"]
    for number, move in enumerate(moves, start=1):
        try:
            decision = play(machine, snapshot, move, at=at)
        except Refusal as refusal:
            where = f"{machine.name} stopped in {snapshot.state.value!r} at move {number} of {len(moves)}:"
            story += [f"    {move!r}", "  refused", refusal.what, _allowed_moves(machine, snapshot)]
            raise AssertionError("\n".join([where, *story])) from refusal
        except InterlockError as error:
            error.add_note("\n".join(["The way to it:", *story, f"    {move!r}"]))
            raise
        story.append(f"    {move!r}")
        # An unwinding with nothing to undo ends in the same decision: the state in between is shown too.
        story += [f"  {record.to_state.value}" for record in decision.records]
        snapshot = decision.snapshot
    if ends_in is not None and snapshot.state is not ends_in:
        last = name_of_move(moves[-1]) if moves else "nothing"
        where = f"{machine.name} ended in {snapshot.state.value!r} after {last}, not in {ends_in.value!r}:"
        raise AssertionError("\n".join([where, *story, _allowed_moves(machine, snapshot)]))
    return snapshot


def _allowed_moves(machine: Machine[StateT, ContextT, EventT], snapshot: Snapshot[StateT, ContextT]) -> str:
    allowed = machine.allowed(snapshot)
    if not allowed:
        return f"nothing is allowed from {snapshot.state.value!r}"
    return "\n".join(["allowed from here:", *(f"  {allowed_text(each)}" for each in allowed)])
