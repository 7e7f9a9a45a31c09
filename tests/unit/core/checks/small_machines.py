"""Small machines of every kind, and a walk through everything that can happen to a workflow of one.

The walk knows nothing of the checks. It plays the runtime with `decide`, `fail` and `unwound`, keeps a book of what was
done outside, and looks into the book whenever the workflow comes to an end. A machine is drawn as plain data and
compiled from declarations, without `Machine`: it has to be quick, and the checks have to stand unsound machines too.
"""

from collections.abc import Iterator
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from enum import Enum
from typing import NamedTuple

from hypothesis import strategies as st
from msgspec.structs import replace as changed

from interlock.core import decide
from interlock.core.declarations import Declarations, StepDeclaration, TransitionDeclaration, UndoDeclaration
from interlock.core.events import Event
from interlock.core.policies import Retry
from interlock.core.table import Node, Table, compile_table
from interlock.core.values import Decision, RunUndos, Snapshot, StepContext, StepFailure

DEPTH_MAX = 14
BOOK_MAX = 3


class State(Enum):
    """Three states in which something may be done, one to unwind in, two ends."""

    A, B, C, UNDOING, FAILED, DONE = "a", "b", "c", "undoing", "failed", "done"


ACTIVE = (State.A, State.B, State.C)


class SmallEvent(Event):
    """The alphabet."""


@dataclass(frozen=True)
class Good(SmallEvent):
    """What every step may return; it is the outcome that has an undo."""


@dataclass(frozen=True)
class Bad(SmallEvent):
    """What some steps may return too."""


@dataclass(frozen=True)
class Stop(SmallEvent):
    """Never the outcome of a step."""


@dataclass(frozen=True)
class Context:
    """Nothing."""


class StepSpec(NamedTuple):
    """A step: what is said about undoing it, what it may return, where it fails to."""

    kind: str
    both: bool
    failed: State | None


class Place(NamedTuple):
    """One of the active states: its step, and where the three events lead. Its own state is an internal transition."""

    step: StepSpec | None
    good: State | None
    bad: State | None
    stop: State | None
    guarded: bool = False
    """Good has a guard, which may say no."""
    settles: type[Event] | None = None
    """The event that makes final what was done before, unless it leads to the unwinding state."""


class Spec(NamedTuple):
    """A whole machine."""

    places: tuple[Place, Place, Place]
    catch_all: State | None = None
    unwinds_to: State = State.FAILED
    resting: bool = False
    straight: bool = False


KINDS = ("read_only", "irreversible", "effect", "undo", "both undos", "undone in c")

# Most failures lead to the unwinding state: were all targets as likely, hardly a machine would be without findings.
STATES = st.sampled_from(list(State))
FAILURES = st.sampled_from([State.UNDOING] * 6 + [None] * 3 + list(State))
STEPS = st.none() | st.builds(StepSpec, st.sampled_from(KINDS), st.booleans(), FAILURES)
SETTLES = st.sampled_from([None, None, Good, Bad, Stop])
PLACES = st.builds(
    Place, STEPS, STATES, st.none() | STATES, FAILURES, st.sampled_from([False, False, False, True]), SETTLES
)
UNWOUND = st.just(State.FAILED) | st.sampled_from([State.A, State.C, State.DONE])
SPECS = st.builds(
    Spec, st.tuples(PLACES, PLACES, PLACES), st.none() | st.none() | FAILURES, UNWOUND, st.booleans(), st.booleans()
)


async def act(context: object, ctx: StepContext) -> object:
    """Never called: the walk decides what a step returns."""
    del context, ctx
    raise AssertionError


async def undo(context: object, done: Event | None, ctx: StepContext) -> None:
    """Never called."""
    del context, done, ctx
    raise AssertionError


def agree(context: object, event: Event) -> bool:
    """The walk refuses in its place."""
    del context, event
    return True


def compiled(spec: Spec) -> Table:
    """The machine of a spec."""
    declared = Declarations(
        name="small",
        version=1,
        states=State,
        context=Context,
        alphabet=SmallEvent,
        initial=State.A,
        final=frozenset({State.FAILED, State.DONE}),
        resting=frozenset({State.B} if spec.resting else ()),
        unwind={State.UNDOING: spec.unwinds_to},
        renamed={},
        location="",
        straight=spec.straight,
    )
    for state, place in zip(ACTIVE, spec.places, strict=True):
        for event, target in ((Good, place.good), (Bad, place.bad), (Stop, place.stop)):
            if target is not None:
                to = None if target is state else target
                guard = agree if event is Good and place.guarded else None
                settle = True if event is place.settles and to is not State.UNDOING else None
                declared.transitions.append(TransitionDeclaration(event, (state,), to, guard, "", settle=settle))
        if place.step is not None:
            declared.steps[state] = _step(state, place.step)
    if spec.catch_all is not None:
        declared.transitions.append(TransitionDeclaration(Stop, (), spec.catch_all, None, ""))
    return compile_table(declared)


def _step(state: State, spec: StepSpec) -> StepDeclaration:
    returns: tuple[type[Event], ...] = (Good, Bad) if spec.both else (Good,)
    undone: dict[str, tuple[type[Event], ...]] = {"undo": (Good,), "both undos": returns}
    return StepDeclaration(
        name=f"step {state.value}",
        state=state,
        function=act,
        timeout_s=1,
        retry=Retry(),
        dependency=None,
        failed=spec.failed,
        classify=None,
        read_only=spec.kind == "read_only",
        irreversible=spec.kind == "irreversible",
        undone_in=frozenset({State.C} if spec.kind == "undone in c" and state is not State.C else ()),
        returns=returns,
        location="",
        undos=[UndoDeclaration(event, undo, "") for event in undone.get(spec.kind, ())],
    )


@dataclass(frozen=True)
class Entry:
    """Something that was done outside, or may have been, and was not taken back. Visits tell runs of a step apart."""

    step: str
    visit: int
    broken: bool = False
    """Something has failed since: it must not be left."""


@dataclass(frozen=True)
class Scene:
    """A moment in the life of a workflow."""

    snapshot: Snapshot[State, Context]
    book: tuple[Entry, ...] = ()
    spoken: bool = False
    """The step of this visit has returned and the workflow has stayed: nothing runs any more."""
    story: tuple[str, ...] = ()

    @property
    def key(self) -> object:
        """What its future depends on: not on the numbers of its visits."""
        log = tuple((run.step, run.done) for run in self.snapshot.undo_log)
        book = tuple((entry.step, entry.broken) for entry in self.book)
        return self.snapshot.state, self.snapshot.attempted, log, book, self.spoken


def left_behind(table: Table) -> tuple[str, ...] | None:
    """A story at whose end something stays done although the workflow has failed; None when there is none."""
    walk = Walk(table)
    waiting, seen = [Scene(decide.start(table, State.A, Context()).snapshot)], set[object]()
    while waiting:
        scene = waiting.pop(0)
        if scene.key in seen:
            continue
        seen.add(scene.key)
        if any(entry.broken and walk.is_end(scene.snapshot.state, entry) for entry in scene.book):
            return scene.story
        if len(scene.story) < DEPTH_MAX and len(scene.book) <= BOOK_MAX:
            waiting += walk.onward(scene)
    return None


def undone_rounds(table: Table) -> tuple[str, ...] | None:
    """A story at whose end two finished runs of one step are undone together; None when there is none."""
    walk = Walk(table)
    waiting, seen = [Scene(decide.start(table, State.A, Context()).snapshot)], set[object]()
    while waiting:
        scene = waiting.pop(0)
        if scene.key in seen:
            continue
        seen.add(scene.key)
        finished = [run.step for run in scene.snapshot.undo_log if run.done is not None]
        if scene.snapshot.state is State.UNDOING and len(finished) > len(set(finished)):
            return scene.story
        if len(scene.story) < DEPTH_MAX and len(scene.book) <= BOOK_MAX:
            waiting += walk.onward(scene)
    return None


class Walk:
    """What can happen next, and what it does to the book."""

    def __init__(self, table: Table) -> None:
        self.table = table
        nodes = table.nodes.values()
        ends = {node.state for node in nodes if node.final or node.resting}
        failed = {end.state for node in nodes for end in (node.unwinds_to, node.failed) if end and end.final}
        self.failure_ends = failed if ends - failed else set()

    def step_of(self, entry: Entry) -> StepDeclaration:
        """The step that did it."""
        step = self.table.steps[entry.step].step
        assert step is not None
        return step

    def is_end(self, state: State, entry: Entry) -> bool:
        """Final, or a place to rest from which nothing can be reached that would take the entry back."""
        node, step = self.table.nodes[state.name], self.step_of(entry)
        hope = {State.UNDOING} if step.undos else step.undone_in
        return node.final or (node.resting and not self._may_reach(node, hope, set()))

    def _may_reach(self, node: Node, hope: AbstractSet[Enum], seen: set[Node]) -> bool:
        if node in seen:
            return False
        seen.add(node)
        settles = any(move.settles for moves in node.moves.values() for move in moves)
        return settles or node.state in hope or any(self._may_reach(other, hope, seen) for other in node.next_nodes())

    def onward(self, scene: Scene) -> Iterator[Scene]:
        """Every scene that may follow."""
        snapshot = scene.snapshot
        node = self.table.nodes[snapshot.state.name]
        step = node.step
        if node.unwinds_to is not None:
            decision = decide.unwound(self.table, snapshot)
            yield self._after(scene, decision, scene.book, node.unwinds_to, "everything is undone")
        elif step is not None and snapshot.attempted:
            yield from self._ends(scene, node, step)
        elif step is not None and not scene.spoken:
            yield replace(
                scene, snapshot=changed(snapshot, attempted=True), story=(*scene.story, f"{step.name} begins")
            )
        for event in node.moves:
            if step is None or event not in step.returns:
                yield self._from_outside(scene, node, event())

    def _ends(self, scene: Scene, node: Node, step: StepDeclaration) -> Iterator[Scene]:
        run = Entry(step.name, scene.snapshot.visit)
        for event in step.returns:
            moves = node.moves.get(event, ())
            if not moves or moves[0].guard is not None:
                yield from self._refused(scene, node, step, event)
            if moves:
                decision = decide.decide(self.table, scene.snapshot, event(), result=True)
                book = tuple(entry for entry in scene.book if node.state not in self.step_of(entry).undone_in)
                if not step.read_only and (not step.undos or any(each.event is event for each in step.undos)):
                    book = (*book, run)
                book = () if moves[0].settles else book
                target = moves[0].target
                after = self._after(scene, decision, book, target, f"{step.name} returns {event.__name__}")
                yield replace(after, spoken=target is None)
        for unknown in (True, False):
            failure = StepFailure(step=step.name, error="e", unknown=unknown)
            failed = decide.fail(self.table, scene.snapshot, failure)
            if failed is not None:
                done = unknown and not step.read_only
                book = (*scene.book, run) if done else scene.book
                story = f"{step.name} fails, and {'may have' if unknown else 'has not'} happened"
                yield self._after(scene, failed, _broken(book), node.failed, story)

    def _refused(self, scene: Scene, node: Node, step: StepDeclaration, event: type[Event]) -> Iterator[Scene]:
        """The machine refuses the outcome: a failure for good, as if nothing had happened."""
        decision = decide.fail(self.table, scene.snapshot, StepFailure(step=step.name, error="e", unknown=False))
        if decision is not None:
            done = not step.read_only and (not step.undos or any(each.event is event for each in step.undos))
            book = (*scene.book, Entry(step.name, scene.snapshot.visit)) if done else scene.book
            what = f"{step.name} returns {event.__name__} and is refused"
            yield self._after(scene, decision, _broken(book), node.failed, what)

    def _from_outside(self, scene: Scene, node: Node, event: Event) -> Scene:
        snapshot, step = scene.snapshot, node.step
        decision = decide.decide(self.table, snapshot, event)
        move = node.moves[type(event)][0]
        book = () if move.settles else scene.book  # A run that is cut off now is not done, and not settled.
        if move.target is None:
            return self._after(scene, decision, book, None, f"{type(event).__name__} is noted")
        if step is not None and snapshot.attempted:
            if not step.read_only:
                book = (*book, Entry(step.name, snapshot.visit))
            book = _broken(book)
        elif move.declared.catch_all and move.target.final:
            book = _broken(book)
        return self._after(scene, decision, book, move.target, f"{type(event).__name__} comes from outside")

    def _after(
        self,
        scene: Scene,
        decision: Decision[State, Context],
        book: tuple[Entry, ...],
        target: Node | None,
        what: str,
    ) -> Scene:
        state = decision.snapshot.state
        undone = {
            (undo.step, undo.visit)
            for command in decision.commands
            if isinstance(command, RunUndos)
            for undo in command.undos
        }
        book = tuple(entry for entry in book if (entry.step, entry.visit) not in undone)
        # The declared target: an unwinding state without anything to undo is passed within the same decision.
        if (target is not None and target.state is State.UNDOING) or state in self.failure_ends:
            book = _broken(book)
        # What can only be accepted does not stand in the book any longer than until it is accepted.
        book = tuple(entry for entry in book if not self.step_of(entry).irreversible)
        spoken = scene.spoken and target is None
        return Scene(decision.snapshot, book, spoken, (*scene.story, f"{what}: {state.value}"))


def _broken(book: tuple[Entry, ...]) -> tuple[Entry, ...]:
    return tuple(replace(entry, broken=True) for entry in book)
