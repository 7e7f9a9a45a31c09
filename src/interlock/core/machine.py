"""`Machine`: the declaration of states, events, transitions, guards, actions, steps and timers (A1).

The class records declarations, checks each at its own line (A2), and compiles them when the machine is first used;
from then on it is frozen. Deciding, checking, drawing and encoding are other modules: this one is the façade that
gives them their exact types. `Step` is the handle of one declared step.
"""

from collections.abc import Awaitable, Callable, Mapping
from collections.abc import Set as AbstractSet
from enum import Enum
from typing import Generic, Literal, TypeVar, cast, overload

from interlock.core import checks, decide, definition_errors, diagrams
from interlock.core.codec import Codec, lend_copies
from interlock.core.decide import allowed, foreign_state
from interlock.core.declarations import (
    Action,
    AnyState,
    Classify,
    Declarations,
    DwellDeclaration,
    EffectDeclaration,
    EffectFunction,
    FailedAction,
    Guard,
    StepDeclaration,
    StepFunction,
    TimerDeclaration,
    TransitionDeclaration,
    UndoDeclaration,
    UndoFunction,
    declared_at,
    declaring_frame,
    line_of,
)
from interlock.core.definition_errors import check_async, check_pure, returned_events
from interlock.core.describe import MachineDescription, describe
from interlock.core.events import Event, EventOf
from interlock.core.policies import Retry
from interlock.core.table import Table, compile_table, name_of
from interlock.core.values import (
    Allowed,
    ContextT,
    Decision,
    Finding,
    Snapshot,
    StateT,
    StepContext,
    StepFailure,
    TimerPolicy,
)
from interlock.errors import DefinitionError

# --- Step ------------------------------------------------------------------------------------------------------------
# `@machine.step(...)` turns the function into a `Step`. It stays callable, so a test can await it directly. It is
# the key under which an Engine takes another function: `Engine.open(..., steps={charge: fake})` (C1).

ResultT = TypeVar("ResultT")
DoneT = TypeVar("DoneT")
FunctionT = TypeVar("FunctionT", bound=Callable[..., object])


class Step(Generic[ContextT, ResultT]):
    """A declared step. Call it to run the function itself, without engine, timeout or retries."""

    def __init__(self, machine: Declarations, declared: StepDeclaration) -> None:
        self._machine = machine
        self._declared = declared

    def __repr__(self) -> str:
        return f"<Step {self.name!r} of {self._machine.name!r} in state {self._declared.state.value!r}>"

    @property
    def name(self) -> str:
        """The step's name: the prefix of its idempotency keys."""
        return self._declared.name

    @property
    def machine(self) -> str:
        """The name of the machine it belongs to."""
        return self._machine.name

    async def __call__(self, context: ContextT, ctx: StepContext) -> ResultT:
        """Call the function directly; a blocking function runs in the caller's thread."""
        called = self._declared.function(context, ctx)
        return cast("ResultT", called if self._declared.blocking else await called)

    @overload
    def undo(
        self, event: EventOf[DoneT, ResultT], *, retry: Retry | None = None, blocking: Literal[False] = False
    ) -> Callable[
        [Callable[[ContextT, DoneT | None, StepContext], Awaitable[None]]],
        Callable[[ContextT, DoneT | None, StepContext], Awaitable[None]],
    ]: ...
    @overload
    def undo(
        self, event: EventOf[DoneT, ResultT], *, retry: Retry | None = None, blocking: Literal[True]
    ) -> Callable[
        [Callable[[ContextT, DoneT | None, StepContext], None]], Callable[[ContextT, DoneT | None, StepContext], None]
    ]: ...
    def undo(
        self, event: EventOf[DoneT, ResultT], *, retry: Retry | None = None, blocking: bool = False
    ) -> Callable[[FunctionT], FunctionT]:
        """Declare how to undo this outcome, or an unknown one (`done` is then None), when the workflow unwinds.

        Without `retry` the undo has `Retry(attempts=undo_attempts)`, a setting of the engine.
        With `blocking=True` it is a plain function, which runs in a thread.
        """
        frame = declaring_frame()
        location = line_of(frame)
        cls = cast("type[Event]", event)

        def add_undo(function: FunctionT) -> FunctionT:
            definition_errors.after_first_use(self._machine, location)
            definition_errors.in_undo(self._machine, self._declared, cls, retry, location)
            arguments = (self._machine.context, cls, StepContext)
            check_async(function, "undo", arguments, frame.f_locals, location, blocking=blocking)
            declaration = UndoDeclaration(cls, cast("UndoFunction", function), location, retry, blocking)
            self._declared.undos.append(declaration)
            return function

        return add_undo

    def failed(
        self, action: Callable[[ContextT, StepFailure], ContextT]
    ) -> Callable[[ContextT, StepFailure], ContextT]:
        """Declare a pure action for the move to `failed=`: `(context, failure) -> context`."""
        frame = declaring_frame()
        location = line_of(frame)
        definition_errors.after_first_use(self._machine, location)
        definition_errors.in_failed_action(self._declared, location)
        context = self._machine.context
        check_pure(action, "action", (context, StepFailure), context, frame.f_locals, location)
        self._declared.failed_action = cast("FailedAction", action)
        return action


# --- Machine ---------------------------------------------------------------------------------------------------------

EventT = TypeVar("EventT", bound=Event)
ExactT = TypeVar("ExactT")

EFFECT_TIMEOUT_S = 30.0


class Machine(Generic[StateT, ContextT, EventT]):
    """A finite state machine: declared once, checked, drawn, and run by an Engine or by hand."""

    any = AnyState()
    """As a source in `on`: every state that is neither final nor unwinding."""

    def __init__(
        self,
        name: str,
        *,
        states: type[StateT],
        context: type[ContextT],
        events: type[EventT],
        initial: StateT | None = None,
        final: AbstractSet[StateT] = frozenset(),
        resting: AbstractSet[StateT] = frozenset(),
        unwind: Mapping[StateT, StateT] | None = None,
        version: int = 1,
        renamed: Mapping[str, StateT] | None = None,
    ) -> None:
        self._declared = Declarations(
            name=name,
            version=version,
            states=states,
            context=context,
            alphabet=events,
            initial=initial,
            final=definition_errors.as_states("final", final),
            resting=definition_errors.as_states("resting", resting),
            unwind=definition_errors.as_mapping("unwind", unwind),
            renamed=definition_errors.as_mapping("renamed", renamed),
            location=declared_at(),
        )
        self._table: Table | None = None
        self._codec: Codec[ContextT, EventT] | None = None
        self._opening: EventT | None = None
        definition_errors.in_machine(self._declared)

    def __repr__(self) -> str:
        return f"<Machine {self.name!r} version {self.version}: {len(self._declared.states)} states>"

    @property
    def name(self) -> str:
        """The machine's name: stored with every workflow."""
        return self._declared.name

    @property
    def version(self) -> int:
        """The declared version of the definition: raise it when stored workflows are affected."""
        return self._declared.version

    # --- declaring -----------------------------------------------------------------------------------------------

    def on(
        self,
        event: EventOf[ExactT, EventT],
        *sources: StateT | AnyState,
        to: StateT | None = None,
        when: Callable[[ContextT, ExactT], bool] | None = None,
        settle: bool | None = None,
    ) -> Callable[[Callable[[ContextT, ExactT], ContextT]], Callable[[ContextT, ExactT], ContextT]]:
        """Declare a transition: on `event` from `sources` (or `machine.any`), `to` a state, `when` a guard holds.

        Without `to` it is internal: the state's step and timers go on. Use it as a decorator to add an action.
        `settle=True` empties the undo log with this move: completed runs are final and never undone (C21).
        `settle=False` declares that they stay undoable, and silences the finding of `check` about cycles.
        """
        frame = declaring_frame()
        location = line_of(frame)
        definition_errors.after_first_use(self._declared, location)
        cls, context = cast("type[Event]", event), self._declared.context
        definition_errors.in_transition(self._declared, cls, sources, to, location)
        definition_errors.in_settle(self._declared, settle, sources, to, location)
        if when is not None:
            check_pure(when, "guard", (context, cls), bool, frame.f_locals, location)
        declaration = TransitionDeclaration(
            event=cls,
            sources=tuple(source for source in sources if isinstance(source, Enum)),
            to=to,
            guard=cast("Guard | None", when),
            location=location,
            settle=settle,
        )
        self._declared.transitions.append(declaration)

        def add_action(action: Callable[[ContextT, ExactT], ContextT]) -> Callable[[ContextT, ExactT], ContextT]:
            definition_errors.after_first_use(self._declared, location)
            definition_errors.second_action(declaration)
            try:
                check_pure(action, "action", (context, cls), context, frame.f_locals, location)
            except DefinitionError:
                # Without its action the transition would differ from what was declared.
                self._declared.transitions = [each for each in self._declared.transitions if each is not declaration]
                raise
            declaration.action = cast("Action", action)
            return action

        return add_action

    @overload
    def step(
        self,
        state: StateT,
        *,
        timeout_s: float,
        heartbeat_s: float | None = None,
        retry: Retry = Retry(),  # noqa: B008 -- frozen.
        dependency: str | None = None,
        failed: StateT | None = None,
        classify: Classify | None = None,
        read_only: bool = False,
        irreversible: bool = False,
        undone_in: AbstractSet[StateT] = frozenset(),
        name: str | None = None,
        blocking: Literal[False] = False,
    ) -> Callable[
        [Callable[[ContextT, StepContext], Awaitable[EventOf[ResultT, EventT]]]], Step[ContextT, ResultT]
    ]: ...
    @overload
    def step(
        self,
        state: StateT,
        *,
        timeout_s: float,
        heartbeat_s: float | None = None,
        retry: Retry = Retry(),  # noqa: B008 -- frozen.
        dependency: str | None = None,
        failed: StateT | None = None,
        classify: Classify | None = None,
        read_only: bool = False,
        irreversible: bool = False,
        undone_in: AbstractSet[StateT] = frozenset(),
        name: str | None = None,
        blocking: Literal[True],
    ) -> Callable[[Callable[[ContextT, StepContext], EventOf[ResultT, EventT]]], Step[ContextT, ResultT]]: ...
    def step(
        self,
        state: StateT,
        *,
        timeout_s: float,
        heartbeat_s: float | None = None,
        retry: Retry = Retry(),  # noqa: B008 -- frozen.
        dependency: str | None = None,
        failed: StateT | None = None,
        classify: Classify | None = None,
        read_only: bool = False,
        irreversible: bool = False,
        undone_in: AbstractSet[StateT] = frozenset(),
        name: str | None = None,
        blocking: bool = False,
    ) -> object:
        """Declare the state's step: an async function whose result is the next event (C1).

        `heartbeat_s` is the longest time between calls of `ctx.heartbeat()`; a longer silence is a timeout.
        `failed` is the state for a step that gave up; without it the workflow stays, as a dead letter.
        `read_only` declares that the step changes nothing outside, so that it never has to be undone.
        `irreversible` declares that it cannot be undone, `undone_in` which states' steps take it back.
        With `blocking=True` it is a plain function, which runs in a thread and may block it.
        """
        frame = declaring_frame()
        location = line_of(frame)

        def add_step(function: Callable[[ContextT, StepContext], object]) -> Step[ContextT, object]:
            definition_errors.after_first_use(self._declared, location)
            arguments = (self._declared.context, StepContext)
            check_async(function, "step", arguments, frame.f_locals, location, blocking=blocking)
            declaration = StepDeclaration(
                name=name or name_of(function),
                state=state,
                function=cast("StepFunction", function),
                timeout_s=timeout_s,
                heartbeat_s=heartbeat_s,
                retry=retry,
                dependency=dependency,
                failed=failed,
                classify=classify,
                read_only=read_only,
                irreversible=irreversible,
                undone_in=definition_errors.as_states("undone_in", undone_in),
                blocking=blocking,
                returns=returned_events(function, self._declared.alphabet, frame.f_locals, location),
                location=location,
            )
            definition_errors.in_step(self._declared, declaration)
            self._declared.steps[state] = declaration
            return Step(self._declared, declaration)

        return add_step

    @overload
    def effect(
        self,
        *states: StateT,
        timeout_s: float = EFFECT_TIMEOUT_S,
        retry: Retry = Retry(),  # noqa: B008 -- frozen.
        dependency: str | None = None,
        name: str | None = None,
        blocking: Literal[False] = False,
    ) -> Callable[
        [Callable[[ContextT, StepContext], Awaitable[None]]], Callable[[ContextT, StepContext], Awaitable[None]]
    ]: ...
    @overload
    def effect(
        self,
        *states: StateT,
        timeout_s: float = EFFECT_TIMEOUT_S,
        retry: Retry = Retry(),  # noqa: B008 -- frozen.
        dependency: str | None = None,
        name: str | None = None,
        blocking: Literal[True],
    ) -> Callable[[Callable[[ContextT, StepContext], None]], Callable[[ContextT, StepContext], None]]: ...
    def effect(
        self,
        *states: StateT,
        timeout_s: float = EFFECT_TIMEOUT_S,
        retry: Retry = Retry(),  # noqa: B008 -- frozen.
        dependency: str | None = None,
        name: str | None = None,
        blocking: bool = False,
    ) -> Callable[[FunctionT], FunctionT]:
        """Declare a durable side message, owed on entering one of the states; it never moves the machine (B12).

        With `blocking=True` it is a plain function, which runs in a thread.
        """
        frame = declaring_frame()
        location = line_of(frame)

        def add_effect(function: FunctionT) -> FunctionT:
            definition_errors.after_first_use(self._declared, location)
            arguments = (self._declared.context, StepContext)
            check_async(function, "effect", arguments, frame.f_locals, location, blocking=blocking)
            declaration = EffectDeclaration(
                name=name or name_of(function),
                states=states,
                function=cast("EffectFunction", function),
                timeout_s=timeout_s,
                retry=retry,
                dependency=dependency,
                location=location,
                blocking=blocking,
            )
            definition_errors.in_effect(self._declared, declaration)
            self._declared.effects.append(declaration)
            return function

        return add_effect

    def after(self, state: StateT, *, after_s: float, send: EventT, policy: TimerPolicy = "deadline") -> None:
        """Declare a durable timer: after `after_s` seconds in the state, `send` is sent (B9)."""
        location = declared_at()
        definition_errors.after_first_use(self._declared, location)
        declaration = TimerDeclaration(state=state, after_s=after_s, send=send, policy=policy, location=location)
        definition_errors.in_timer(self._declared, declaration)
        self._declared.timers.append(declaration)

    def dwell(self, state: StateT, *, max_s: float) -> None:
        """Declare the longest time a workflow should stay in the state; longer is stalled (B7)."""
        location = declared_at()
        definition_errors.after_first_use(self._declared, location)
        declaration = DwellDeclaration(state=state, max_s=max_s, location=location)
        definition_errors.in_dwell(self._declared, declaration)
        self._declared.dwells[state] = declaration

    # --- deciding, by hand and in microseconds -------------------------------------------------------------------

    def begin(self, context: ContextT) -> Snapshot[StateT, ContextT]:
        """Return a new workflow's snapshot: the initial state at version 1."""
        self.codec.checked_context(context)
        return self.start(context).snapshot

    def start(self, context: ContextT) -> Decision[StateT, ContextT]:
        """Return the start as a decision: the STARTED record and the commands of entering the initial state."""
        table = self.compiled
        assert table.initial is not None
        return decide.start(table, cast("StateT", table.initial.state), context)

    def at(
        self, state: StateT, context: ContextT, *, version: int = 1, attempted: bool = False
    ) -> Snapshot[StateT, ContextT]:
        """Return a snapshot in any state, for tests. `attempted` says that the state's step may have been started."""
        self.codec.checked_context(context)
        definition_errors.in_snapshot(version)
        decide.node_of(self.compiled, state)
        return Snapshot(state, context, version, version, attempted=attempted)

    def decide(self, snapshot: Snapshot[StateT, ContextT], event: EventT) -> Decision[StateT, ContextT]:
        """Return the decision for the event. Raises InvalidTransition or GuardRejected when it is refused."""
        return decide.decide(self._table or self.compiled, snapshot, event)

    def apply(self, snapshot: Snapshot[StateT, ContextT], event: EventT) -> Snapshot[StateT, ContextT]:
        """Return the snapshot after the event. Raises InvalidTransition or GuardRejected when it is refused."""
        return decide.decide(self._table or self.compiled, snapshot, event).snapshot

    def can(self, state: StateT, event: EventOf[ExactT, EventT]) -> bool:
        """Return whether the event (class or instance) has a transition from the state; guards are not evaluated."""
        cls = event if isinstance(event, type) else type(event)
        return decide.can(self.compiled, state, cast("type[Event]", cls))

    def allowed(self, snapshot: Snapshot[StateT, ContextT], event: EventT | None = None) -> list[Allowed[StateT]]:
        """Return the transitions from the snapshot's state. With an event, only its own, and `blocked_by` is filled."""
        return allowed(self.compiled, snapshot, event)

    # --- checks and diagrams -------------------------------------------------------------------------------------

    def check(self) -> list[Finding]:
        """Return the findings of all checks, errors first. Does not raise and does not freeze the machine."""
        table = self._table or compile_table(self._declared)
        return checks.findings(table, lambda: self._codec_for(table))

    def describe(self) -> MachineDescription:
        """Return the machine as plain data, for diagrams, plans and the wire.

        This works for an unsound machine too, and does not freeze it: a picture helps to find the mistake.
        """
        table = self._table or compile_table(self._declared)
        return describe(table, self._codec or self._codec_for(table))

    def mermaid(self) -> str:
        """Return the machine as a Mermaid state diagram."""
        return diagrams.mermaid(self.describe())

    def dot(self) -> str:
        """Return the machine as a Graphviz digraph."""
        return diagrams.dot(self.describe())

    def svg(self, *, visits: Mapping[str, int] | None = None, theme: Literal["auto", "light", "dark"] = "auto") -> str:
        """Return the machine as an SVG picture; `visits` (state name -> count) colours it."""
        return diagrams.svg(self.describe(), visits=visits, theme=theme)

    def table(self) -> str:
        """Return the machine as Markdown tables: its transitions and its states."""
        return diagrams.table(self.describe())

    # --- for the layers above ------------------------------------------------------------------------------------

    @property
    def compiled(self) -> Table:
        """The compiled machine. The first use checks the graph and freezes the declarations."""
        if self._table is None:
            # Freeze first: a declaration by another thread during the compilation must raise, not be lost.
            self._declared.frozen = True
            try:
                table = compile_table(self._declared)
                checks.demand_sound(table)
                lend_copies(table, lambda: self._codec_for(table))
            except DefinitionError:
                self._declared.frozen = False
                raise
            self._table = table
        return self._table

    @property
    def codec(self) -> Codec[ContextT, EventT]:
        """The codec of this machine's contexts and events."""
        if self._codec is None:
            self._codec = self._codec_for(self.compiled)
        return self._codec

    def _codec_for(self, table: Table) -> Codec[ContextT, EventT]:
        context = cast("type[ContextT]", self._declared.context)
        events = cast("dict[str, type[EventT]]", table.events)
        return Codec(self.name, context, events, location=self._declared.location)

    @property
    def opening(self) -> EventT | None:
        """The event that is applied in the same commit as the start, as pipelines do, or None."""
        return self._opening

    def state(self, name: str) -> StateT:
        """Return the state of that stored name. Raises InvalidPayload, which lists the states."""
        for state in self._declared.states:
            if state.value == name:
                return cast("StateT", state)
        raise foreign_state(self.compiled, name)
