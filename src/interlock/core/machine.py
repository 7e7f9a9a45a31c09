"""`Machine`: the declaration of states, events, transitions, guards, actions, steps, timers, children, tasks (A1).

The class records declarations, checks each at its own line (A2), and compiles them when the machine is first used;
from then on it is frozen. Deciding, checking, drawing and encoding are other modules: this one is the façade that
gives them their exact types. `Step` is the handle of one declared step.

Sections: Step; Machine, with declaring, other workflows, deciding, checks and diagrams, for the layers above.
"""

import contextlib
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from datetime import datetime
from enum import Enum
from typing import Concatenate, Generic, Literal, ParamSpec, Protocol, TypeVar, cast, overload

from interlock.core import checks, decide, definition_errors, diagrams
from interlock.core.codec import Codec, lend_copies
from interlock.core.decide import allowed, foreign_state
from interlock.core.declarations import (
    Action,
    AnyState,
    ChildrenDeclaration,
    Classify,
    Declarations,
    DwellDeclaration,
    EffectDeclaration,
    EffectFunction,
    FailedAction,
    Guard,
    JoinAction,
    JoinDeclaration,
    Leave,
    StepDeclaration,
    StepFunction,
    TimerDeclaration,
    TimerFunction,
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
from interlock.core.policies import Retry, Seconds, in_seconds
from interlock.core.search import MachineSearch, search_fields
from interlock.core.table import Table, compile_table, name_of
from interlock.core.values import (
    Allowed,
    Child,
    ContextT,
    Decision,
    Family,
    Finding,
    Send,
    Snapshot,
    StateT,
    StepContext,
    StepFailure,
    TimerPolicy,
)
from interlock.errors import DefinitionError, NonRetryable

# --- Step ------------------------------------------------------------------------------------------------------------
# `@machine.step(...)` turns the function into a `Step`. It stays callable, so a test can await it directly. It is
# the key under which an Engine takes another function: `Engine.open(..., steps={charge: fake})` (C1).

ResultT = TypeVar("ResultT")
DoneT = TypeVar("DoneT")
FunctionT = TypeVar("FunctionT", bound=Callable[..., object])
P = ParamSpec("P")


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

    async def __call__(self, context: ContextT, ctx: StepContext, *provided: object, **named: object) -> ResultT:
        """Call the function directly; a blocking function runs in the caller's thread."""
        called = self._declared.function(context, ctx, *provided, **named)
        return cast("ResultT", called if self._declared.blocking else await called)

    @overload
    def undo(
        self, event: EventOf[DoneT, ResultT], *, retry: Retry | None = None, blocking: Literal[False] = False
    ) -> Callable[
        [Callable[Concatenate[ContextT, DoneT | None, StepContext, P], Awaitable[None]]],
        Callable[Concatenate[ContextT, DoneT | None, StepContext, P], Awaitable[None]],
    ]: ...
    @overload
    def undo(
        self, event: EventOf[DoneT, ResultT], *, retry: Retry | None = None, blocking: Literal[True]
    ) -> Callable[
        [Callable[Concatenate[ContextT, DoneT | None, StepContext, P], None]],
        Callable[Concatenate[ContextT, DoneT | None, StepContext, P], None],
    ]: ...
    def undo(self, event: EventOf[DoneT, ResultT], *, retry: Retry | None = None, blocking: bool = False) -> object:
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
            needs = check_async(function, "undo", arguments, frame.f_locals, location, blocking=blocking)
            declaration = UndoDeclaration(cls, cast("UndoFunction", function), location, retry, blocking, needs)
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
Context_in = TypeVar("Context_in")
Exact_in = TypeVar("Exact_in")


class ActionDecorator(Protocol[Context_in, Exact_in]):
    """The result of `Machine.on`: a decorator of an action, which may take the time of the move."""

    @overload
    def __call__(
        self, action: Callable[[Context_in, Exact_in], Context_in], /
    ) -> Callable[[Context_in, Exact_in], Context_in]: ...
    @overload
    def __call__(
        self, action: Callable[[Context_in, Exact_in, datetime], Context_in], /
    ) -> Callable[[Context_in, Exact_in, datetime], Context_in]: ...


EFFECT_TIMEOUT_S = 30.0

ChildStateT = TypeVar("ChildStateT", bound=Enum)
ChildContextT = TypeVar("ChildContextT")
ChildEventT = TypeVar("ChildEventT", bound=Event)

CHILDREN_TIMEOUT_S = 3_600.0
CHILDREN_ATTEMPTS = 1_000_000_000
"""The start and the end of children are retried until they succeed: each attempt continues the one before."""
SENDS_ATTEMPTS = 1_000
"""Days: the message waits for a store that is away, while a refusal is a dead letter immediately."""


class ChildrenStarted(Event):
    """The outcome of the step that starts children, by which their undo is found. Never sent."""


async def by_an_engine(context: object, *arguments: object) -> None:
    """Stand for a function of the engine. Raises NonRetryable outside an engine."""
    del context, arguments
    raise NonRetryable("only an engine starts children and delivers messages.")


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
        search: Sequence[str] | None = None,
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
        self._search_names = search
        self._search: MachineSearch | None = None
        with contextlib.suppress(NameError):  # An annotation that cannot be resolved yet is looked at on first use.
            self._search = self._searchable()

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

    @property
    def search(self) -> MachineSearch:
        """The fields of the context by which `find` searches: `search=` (F4)."""
        if self._search is None:
            self._search = self._searchable()
        return self._search

    def _searchable(self) -> MachineSearch:
        declared = self._declared
        fields = search_fields(declared.context, self._search_names, declared.name, declared.location)
        return MachineSearch(declared.name, declared.version, fields)

    # --- declaring -----------------------------------------------------------------------------------------------

    def on(
        self,
        event: EventOf[ExactT, EventT],
        *sources: StateT | AnyState,
        to: StateT | None = None,
        when: Callable[[ContextT, ExactT], bool] | Callable[[ContextT, ExactT, datetime], bool] | None = None,
        settle: bool | None = None,
    ) -> ActionDecorator[ContextT, ExactT]:
        """Declare a transition: on `event` from `sources` (or `machine.any`), `to` a state, `when` a guard holds.

        Without `to` it is internal: the state's step and timers go on. Use it as a decorator to add an action.
        Guards and actions may take a third argument `at`, the store's time of the move (A11).
        `settle=True` empties the undo log with this move: completed runs are final and never undone (C21).
        `settle=False` declares that they stay undoable, and silences the finding of `check` about cycles.
        """
        frame = declaring_frame()
        location = line_of(frame)
        definition_errors.after_first_use(self._declared, location)
        cls, context = cast("type[Event]", event), self._declared.context
        definition_errors.in_transition(self._declared, cls, sources, to, location)
        definition_errors.in_settle(self._declared, settle, sources, to, location)
        guard_at = when is not None and check_pure(
            when, "guard", (context, cls), bool, frame.f_locals, location, may_take_time=True
        )
        declaration = TransitionDeclaration(
            event=cls,
            sources=tuple(source for source in sources if isinstance(source, Enum)),
            to=to,
            guard=cast("Guard | None", when),
            location=location,
            settle=settle,
            guard_at=guard_at,
        )
        self._declared.transitions.append(declaration)

        def add_action(action: FunctionT) -> FunctionT:
            definition_errors.after_first_use(self._declared, location)
            definition_errors.second_action(declaration)
            try:
                declaration.action_at = check_pure(
                    action, "action", (context, cls), context, frame.f_locals, location, may_take_time=True
                )
            except DefinitionError:
                # Without its action the transition would differ from what was declared.
                self._declared.transitions = [each for each in self._declared.transitions if each is not declaration]
                raise
            declaration.action = cast("Action", action)
            return action

        return cast("ActionDecorator[ContextT, ExactT]", add_action)

    @overload
    def step(
        self,
        state: StateT,
        *,
        timeout_s: Seconds,
        heartbeat_s: Seconds | None = None,
        retry: Retry = Retry(),  # noqa: B008 -- frozen.
        dependency: str | None = None,
        failed: StateT | None = None,
        classify: Classify | None = None,
        read_only: bool = False,
        irreversible: bool = False,
        undone_in: AbstractSet[StateT] = frozenset(),
        name: str | None = None,
        per: Callable[[ContextT], str] | None = None,
        priority: Callable[[ContextT], int] | None = None,
        blocking: Literal[False] = False,
    ) -> Callable[
        [Callable[Concatenate[ContextT, StepContext, ...], Awaitable[EventOf[ResultT, EventT]]]],
        Step[ContextT, ResultT],
    ]: ...
    @overload
    def step(
        self,
        state: StateT,
        *,
        timeout_s: Seconds,
        heartbeat_s: Seconds | None = None,
        retry: Retry = Retry(),  # noqa: B008 -- frozen.
        dependency: str | None = None,
        failed: StateT | None = None,
        classify: Classify | None = None,
        read_only: bool = False,
        irreversible: bool = False,
        undone_in: AbstractSet[StateT] = frozenset(),
        name: str | None = None,
        per: Callable[[ContextT], str] | None = None,
        priority: Callable[[ContextT], int] | None = None,
        blocking: Literal[True],
    ) -> Callable[
        [Callable[Concatenate[ContextT, StepContext, ...], EventOf[ResultT, EventT]]], Step[ContextT, ResultT]
    ]: ...
    def step(
        self,
        state: StateT,
        *,
        timeout_s: Seconds,
        heartbeat_s: Seconds | None = None,
        retry: Retry = Retry(),  # noqa: B008 -- frozen.
        dependency: str | None = None,
        failed: StateT | None = None,
        classify: Classify | None = None,
        read_only: bool = False,
        irreversible: bool = False,
        undone_in: AbstractSet[StateT] = frozenset(),
        name: str | None = None,
        per: Callable[[ContextT], str] | None = None,
        priority: Callable[[ContextT], int] | None = None,
        blocking: bool = False,
    ) -> object:
        """Declare the state's step: an async function whose result is the next event (C1).

        `heartbeat_s` is the longest time between calls of `ctx.heartbeat()`; a longer silence is a timeout.
        `failed` is the state for a step that gave up; without it the workflow stays, as a dead letter.
        `read_only` declares that the step changes nothing outside, so that it never has to be undone.
        `irreversible` declares that it cannot be undone, `undone_in` which states' steps take it back.
        `per` returns the key (a customer, a tenant) by which its dependency limits calls and gives fair turns;
        among the waiting workflows of a key the highest `priority` comes first. Both are pure (E8).
        With `blocking=True` it is a plain function, which runs in a thread and may block it.
        """
        frame = declaring_frame()
        location = line_of(frame)

        def add_step(function: Callable[..., object]) -> Step[ContextT, object]:
            definition_errors.after_first_use(self._declared, location)
            arguments = (self._declared.context, StepContext)
            needs = check_async(function, "step", arguments, frame.f_locals, location, blocking=blocking)
            declaration = StepDeclaration(
                name=name or name_of(function),
                state=state,
                function=cast("StepFunction", function),
                timeout_s=in_seconds(timeout_s),
                heartbeat_s=in_seconds(heartbeat_s),
                retry=retry,
                dependency=dependency,
                failed=failed,
                classify=classify,
                read_only=read_only,
                irreversible=irreversible,
                undone_in=definition_errors.as_states("undone_in", undone_in),
                blocking=blocking,
                per=per,
                priority=priority,
                returns=returned_events(function, self._declared.alphabet, frame.f_locals, location),
                location=location,
                needs=needs,
            )
            definition_errors.in_step(self._declared, declaration)
            self._declared.steps[state] = declaration
            return Step(self._declared, declaration)

        return add_step

    @overload
    def effect(
        self,
        *states: StateT,
        timeout_s: Seconds = EFFECT_TIMEOUT_S,
        retry: Retry = Retry(),  # noqa: B008 -- frozen.
        dependency: str | None = None,
        name: str | None = None,
        blocking: Literal[False] = False,
    ) -> Callable[
        [Callable[Concatenate[ContextT, StepContext, P], Awaitable[None]]],
        Callable[Concatenate[ContextT, StepContext, P], Awaitable[None]],
    ]: ...
    @overload
    def effect(
        self,
        *states: StateT,
        timeout_s: Seconds = EFFECT_TIMEOUT_S,
        retry: Retry = Retry(),  # noqa: B008 -- frozen.
        dependency: str | None = None,
        name: str | None = None,
        blocking: Literal[True],
    ) -> Callable[
        [Callable[Concatenate[ContextT, StepContext, P], None]], Callable[Concatenate[ContextT, StepContext, P], None]
    ]: ...
    def effect(
        self,
        *states: StateT,
        timeout_s: Seconds = EFFECT_TIMEOUT_S,
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
            needs = check_async(function, "effect", arguments, frame.f_locals, location, blocking=blocking)
            declaration = EffectDeclaration(
                name=name or name_of(function),
                states=states,
                function=cast("EffectFunction", function),
                timeout_s=in_seconds(timeout_s),
                retry=retry,
                dependency=dependency,
                location=location,
                blocking=blocking,
                needs=needs,
            )
            definition_errors.in_effect(self._declared, declaration)
            self._declared.effects.append(declaration)
            return function

        return add_effect

    # --- other workflows -----------------------------------------------------------------------------------------

    def children(
        self,
        state: StateT,
        *,
        of: "Machine[ChildStateT, ChildContextT, ChildEventT]",
        cancel: ChildEventT | None = None,
        leave: Leave = "cancel",
        name: str | None = None,
    ) -> Callable[
        [Callable[[ContextT], Iterable[Child[ChildContextT]]]], Callable[[ContextT], Iterable[Child[ChildContextT]]]
    ]:
        """Declare that entering the state starts children: a pure function of the context returns them (E1).

        A child's id is `<parent>.<name>`. The move that enters the state makes it durable that they start, each once.
        When the state is left, living children get the event `cancel`; with `leave="abandon"` they go on alone.
        An unwinding state undoes them first, by `cancel` too. At most 200,000 children in one visit of the state.
        """
        frame = declaring_frame()
        location = line_of(frame)

        def add_children(
            function: Callable[[ContextT], Iterable[Child[ChildContextT]]],
        ) -> Callable[[ContextT], Iterable[Child[ChildContextT]]]:
            definition_errors.after_first_use(self._declared, location)
            children = ChildrenDeclaration(function, of, cancel, leave)
            definition_errors.in_children(self._declared, state, children, location)
            definition_errors.check_many(function, "children", self._declared.context, frame.f_locals, location)
            declaration = StepDeclaration(
                name=name or name_of(function),
                state=state,
                function=by_an_engine,
                timeout_s=CHILDREN_TIMEOUT_S,
                retry=Retry(attempts=CHILDREN_ATTEMPTS),
                dependency=None,
                failed=None,
                classify=None,
                read_only=leave == "abandon",
                returns=(),
                location=location,
                children=children,
            )
            definition_errors.in_step(self._declared, declaration)
            if leave == "cancel":
                undo = UndoDeclaration(ChildrenStarted, by_an_engine, location, Retry(attempts=CHILDREN_ATTEMPTS))
                declaration.undos.append(undo)
            self._declared.steps[state] = declaration
            return function

        return add_children

    def join(
        self, state: StateT, *, to: StateT, when: Callable[[Family], bool] | None = None
    ) -> Callable[[Callable[[ContextT, Family], ContextT]], Callable[[ContextT, Family], ContextT]]:
        """Declare the move `to` a state when the children of `state` have ended as `when` says; default: all (E2).

        `when` is a pure function of the family, asked after each group of ends. The first join that holds is taken;
        the one without `when` is asked last, wherever it is declared.
        Use it as a decorator to add an action `(context, family) -> context`.
        """
        frame = declaring_frame()
        location = line_of(frame)
        definition_errors.after_first_use(self._declared, location)
        declaration = JoinDeclaration(state, to, when, location)
        definition_errors.in_join(self._declared, declaration)
        if when is not None:
            check_pure(when, "guard", (Family,), bool, frame.f_locals, location)
        self._declared.joins.append(declaration)

        def add_action(action: Callable[[ContextT, Family], ContextT]) -> Callable[[ContextT, Family], ContextT]:
            definition_errors.after_first_use(self._declared, location)
            context = self._declared.context
            try:
                check_pure(action, "action", (context, Family), context, frame.f_locals, location)
            except DefinitionError:
                self._declared.joins = [each for each in self._declared.joins if each is not declaration]
                raise
            declaration.action = cast("JoinAction", action)
            return action

        return add_action

    def sends(
        self, *states: StateT, name: str | None = None
    ) -> Callable[[Callable[[ContextT], Iterable[Send]]], Callable[[ContextT], Iterable[Send]]]:
        """Declare messages to other workflows, owed on entering one of the states: a pure function of the context (E4).

        Each is delivered exactly once. One that is refused becomes a dead letter with the reason.
        """
        frame = declaring_frame()
        location = line_of(frame)

        def add_sends(function: Callable[[ContextT], Iterable[Send]]) -> Callable[[ContextT], Iterable[Send]]:
            definition_errors.after_first_use(self._declared, location)
            definition_errors.check_many(function, "sends", self._declared.context, frame.f_locals, location)
            declaration = EffectDeclaration(
                name=name or name_of(function),
                states=states,
                function=by_an_engine,
                timeout_s=CHILDREN_TIMEOUT_S,
                retry=Retry(attempts=SENDS_ATTEMPTS),
                dependency=None,
                location=location,
                sends=function,
            )
            definition_errors.in_effect(self._declared, declaration)
            self._declared.effects.append(declaration)
            return function

        return add_sends

    # --- timers --------------------------------------------------------------------------------------------------

    def after(
        self,
        state: StateT,
        after: Seconds | Callable[[ContextT], Seconds | None] | None = None,
        *,
        send: EventT,
        after_s: Seconds | None = None,
        policy: TimerPolicy = "deadline",
    ) -> None:
        """Declare a durable timer: after this time in the state, `send` is sent (B9).

        `after` is a number of seconds, a timedelta, or a pure function of the context that returns one of them, or None
        for no timer. It is called once, when the state is entered (B16). A time of 0 or less is due immediately.
        """
        frame = declaring_frame()
        location = line_of(frame)
        definition_errors.after_first_use(self._declared, location)
        length = definition_errors.one_of_two("after", after, "after_s", after_s, location)
        function = cast("TimerFunction", length) if callable(length) else None
        if function is not None:
            check_pure(function, "timer", (self._declared.context,), None, frame.f_locals, location)
        fixed_s = 0.0 if function is not None else in_seconds(cast("Seconds", length))
        self._add_timer(TimerDeclaration(state, fixed_s, send, policy, location, after=function))

    def until(self, state: StateT, at: Callable[[ContextT], datetime | None], *, send: EventT) -> None:
        """Declare a durable timer: at the time that `at` returns, `send` is sent (B16).

        `at` is a pure function of the context, called once, when the state is entered. It returns an aware datetime, or
        None for no timer. A time in the past is due immediately.
        """
        frame = declaring_frame()
        location = line_of(frame)
        definition_errors.after_first_use(self._declared, location)
        check_pure(at, "timer", (self._declared.context,), None, frame.f_locals, location)
        self._add_timer(TimerDeclaration(state, 0.0, send, "deadline", location, until=at))

    def _add_timer(self, declaration: TimerDeclaration) -> None:
        definition_errors.in_timer(self._declared, declaration)
        self._declared.timers.append(declaration)

    def dwell(self, state: StateT, max_s: Seconds) -> None:
        """Declare the longest time a workflow should stay in the state; longer is stalled (B7)."""
        location = declared_at()
        definition_errors.after_first_use(self._declared, location)
        declaration = DwellDeclaration(state=state, max_s=in_seconds(max_s), location=location)
        definition_errors.in_dwell(self._declared, declaration)
        self._declared.dwells[state] = declaration

    def task(
        self,
        state: StateT,
        *,
        role: str,
        title: str,
        events: Sequence[type[EventT]],
        due: Seconds | Callable[[ContextT], Seconds | None] | None = None,
    ) -> None:
        """Declare that the state waits for a person with a role, who decides with one of these events (F2).

        `title` says what to decide, with fields of the context in braces: "Approve {cents} for {customer}". `due` is
        the time in the state after which the task is overdue: seconds, a timedelta, or a pure function of the context
        that returns one of them, or None. A fixed one is also the state's dwell, unless the state declares one.
        Declare the transitions of the events first.
        """
        frame = declaring_frame()
        location = line_of(frame)
        definition_errors.after_first_use(self._declared, location)
        self._declared.tasks[state] = definition_errors.in_task(
            self._declared,
            state,
            role=role,
            title=title,
            events=events,
            due=due,
            local=frame.f_locals,
            location=location,
        )

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

    def decide(
        self, snapshot: Snapshot[StateT, ContextT], event: EventT, *, at: datetime | None = None
    ) -> Decision[StateT, ContextT]:
        """Return the decision for the event. Raises InvalidTransition or GuardRejected when it is refused.

        `at` is the time of the move. Raises InvalidPayload without it, if a guard or action of the event takes it:
        deciding reads no clock.
        """
        return decide.decide(self._table or self.compiled, snapshot, event, at)

    def apply(
        self, snapshot: Snapshot[StateT, ContextT], event: EventT, *, at: datetime | None = None
    ) -> Snapshot[StateT, ContextT]:
        """Return the snapshot after the event. Raises as `decide`."""
        return decide.decide(self._table or self.compiled, snapshot, event, at).snapshot

    def can(self, state: StateT, event: EventOf[ExactT, EventT]) -> bool:
        """Return whether the event (class or instance) has a transition from the state; guards are not evaluated."""
        cls = event if isinstance(event, type) else type(event)
        return decide.can(self.compiled, state, cast("type[Event]", cls))

    def allowed(
        self, snapshot: Snapshot[StateT, ContextT], event: EventT | None = None, *, at: datetime | None = None
    ) -> list[Allowed[StateT]]:
        """Return the transitions from the snapshot's state. With an event, only its own, and `blocked_by` is filled.

        `at` is the time for guards that take it, as in `decide`.
        """
        return allowed(self.compiled, snapshot, event, at=at)

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
    def declarations(self) -> Declarations:
        """What was declared so far. Does not freeze the machine."""
        return self._declared

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
