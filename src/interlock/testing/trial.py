"""Breadth-first trial of sample events on a machine: it evaluates guards, runs actions and compares contexts.

Every sample is played in every reachable snapshot. So are the first event of a pipeline, the events of timers, the
start of a step, a step that gives up (its outcome known or not) and the end of an unwinding. Two snapshots are the same
when state and encoded context are equal: a machine with finitely many contexts is explored completely.

The invariant: a trial that was cut short names the limit (`stopped_by`).
"""

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Generic, Literal, cast

from interlock.core.decide import known
from interlock.core.events import STEP_FAILED
from interlock.core.machine import EventT, Machine
from interlock.core.values import ContextT, Snapshot, StateT, StepFailure
from interlock.errors import GuardRejected, InterlockError, Refusal
from interlock.testing.arrows import Arrow
from interlock.testing.coverage import measure
from interlock.testing.moves import Attempted, Move, Unwound, name_of_move, play

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
class _Notes(Generic[StateT, EventT]):
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
    notes: _Notes[StateT, EventT] = _Notes(reached={start.state: ()})
    known = {_key(machine, start)}
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
                    key = _key(machine, decision.snapshot)
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
    node = known(machine.compiled, snapshot.state)
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


def _key(
    machine: Machine[StateT, ContextT, EventT], snapshot: Snapshot[StateT, ContextT]
) -> tuple[StateT, bytes, bool, bool]:
    # Of the undo log only one thing decides where a workflow goes: whether there is anything in it.
    context = machine.codec.checked_context(snapshot.context)
    return snapshot.state, context, bool(snapshot.undo_log), snapshot.attempted
