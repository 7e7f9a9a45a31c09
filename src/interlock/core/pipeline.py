"""Pipelines: the linear machine of "do this, then this, then this, and undo it all if one fails" (A8).

`pipeline("checkout", context=Checkout, steps=[validate, charge, reserve])` builds an ordinary machine: PENDING, one
state per step named by its gerund, COMPLETED, UNDOING and FAILED. A step is a free-standing function from context to
context, so that it can be tested and reused alone; the event it causes (`CHARGE_DONE`) carries the new context.

The odd choice: classes for states and events are made at run time, one set per pipeline, because history should read
`CHARGE_DONE` and not `STEP_DONE("charge")`. The static types are `PipelineState` and `PipelineEvent`.
"""

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, make_dataclass
from enum import Enum, EnumMeta
from typing import TYPE_CHECKING, Concatenate, Generic, Literal, ParamSpec, TypeVar, cast, overload

from interlock.core import definition_errors
from interlock.core.declarations import (
    Action,
    Classify,
    FailedAction,
    Needs,
    StepDeclaration,
    StepFunction,
    TransitionDeclaration,
    UndoDeclaration,
    UndoFunction,
    declared_at,
    declaring_frame,
    line_of,
)
from interlock.core.definition_errors import Names, check_async, check_pure, is_async
from interlock.core.events import Event
from interlock.core.machine import Machine
from interlock.core.policies import Retry, Seconds, in_seconds
from interlock.core.table import name_of
from interlock.core.values import StepContext, StepFailure
from interlock.errors import DefinitionError

# --- Gerunds, which name the states ----------------------------------------------------------------------------------
# `state=` overrides a wrong one.

_VOWELS = "aeiou"

_DOUBLING = frozenset(
    {"admit", "begin", "commit", "defer", "forget", "fulfil", "occur", "permit", "refer", "submit", "transfer"}
)
"""Verbs of two syllables that double their last letter, because the stress is on the second syllable."""


def gerund(name: str) -> str:
    """`charge` -> `charging`, `ship_goods` -> `shipping_goods`, `notify` -> `notifying`."""
    verb, separator, rest = name.strip("_").partition("_")
    return _ing(verb.lower()) + separator + rest


def _ing(verb: str) -> str:
    if verb.endswith("ie"):
        return verb[:-2] + "ying"
    if verb.endswith("e") and not verb.endswith(("ee", "oe", "ye")) and len(verb) > 2:  # noqa: PLR2004 -- "be".
        return verb[:-1] + "ing"
    if verb.endswith("ic"):
        return verb + "king"
    if verb in _DOUBLING or _is_short(verb):
        return verb + verb[-1] + "ing"
    return verb + "ing"


def _is_short(verb: str) -> bool:
    """One syllable that ends consonant, vowel, consonant: ship, get, plan; but not fix, show, pay."""
    padded = f"   {verb}"
    head, before, vowel, last = padded[:-3], padded[-3], padded[-2], padded[-1]
    one_syllable = not any(letter in _VOWELS for letter in head)
    closed = before not in _VOWELS + " " and vowel in _VOWELS and last.isalpha() and last not in _VOWELS + "wxy"
    return one_syllable and closed


# --- Steps and pipelines ---------------------------------------------------------------------------------------------

ContextT = TypeVar("ContextT")

UndoOf = Callable[Concatenate[ContextT, StepContext, ...], Awaitable[None] | None]
"""The undo of a step of a pipeline; a plain function if the step is blocking."""

FunctionT = TypeVar("FunctionT", bound=Callable[..., object])
P = ParamSpec("P")

PENDING_DWELL_S = 60.0
UNDOING_DWELL_S = 3_600.0
OWN_STATES = ("PENDING", "COMPLETED", "UNDOING", "FAILED")


class _StatesByName(EnumMeta):
    if TYPE_CHECKING:

        def __getattr__(cls, name: str) -> "PipelineState": ...


class PipelineState(Enum, metaclass=_StatesByName):
    """The states of a pipeline; each pipeline has its own Enum below this one, as `pipeline.State`."""


class PipelineEvent(Event):
    """The alphabet of all pipelines; each pipeline has its own below this one."""


@dataclass(frozen=True)
class PipelineBegin(PipelineEvent):
    """PENDING -> the first step. Applied in the same commit as the start of a workflow."""


@dataclass(frozen=True)
class PipelineCancel(PipelineEvent):
    """Any state -> UNDOING, or straight to FAILED when nothing has to be undone."""

    reason: str = ""


@dataclass(eq=False, slots=True)
class PipelineStep(Generic[ContextT]):
    """A free-standing step: an async function from context to context, with its timeout and its undo.

    A `blocking` step is a plain function, which runs in a thread; its undo may be a plain function too.
    """

    name: str
    function: Callable[..., Awaitable[ContextT] | ContextT]
    state: str
    timeout_s: float
    retry: Retry
    dependency: str | None
    classify: Classify | None
    read_only: bool
    location: str
    local: Names
    """The local names of the declaring frame, to resolve annotations once the context is known."""
    heartbeat_s: float | None = None
    irreversible: bool = False
    dwell_s: float | None = None
    frozen: bool = False
    """True once a pipeline has been built from it; further declarations then raise."""
    blocking: bool = False
    undo_function: UndoOf[ContextT] | None = None
    undo_needs: Needs = field(default_factory=dict[str, type[object]])
    undo_retry: Retry | None = None
    """How often the undo is tried; None: the setting `undo_attempts`."""
    failed_action: Callable[[ContextT, StepFailure], ContextT] | None = None

    async def __call__(self, context: ContextT, ctx: StepContext, *provided: object, **named: object) -> ContextT:
        """Call the function directly, without engine, timeout or retries."""
        called = self.function(context, ctx, *provided, **named)
        return cast("ContextT", called if self.blocking else await cast("Awaitable[ContextT]", called))

    @overload
    def undo(
        self, function: Callable[Concatenate[ContextT, StepContext, P], Awaitable[None]]
    ) -> Callable[Concatenate[ContextT, StepContext, P], Awaitable[None]]: ...
    @overload
    def undo(
        self, function: Callable[Concatenate[ContextT, StepContext, P], None]
    ) -> Callable[Concatenate[ContextT, StepContext, P], None]: ...
    @overload
    def undo(self, *, retry: Retry) -> Callable[[FunctionT], FunctionT]: ...
    def undo(self, function: UndoOf[ContextT] | None = None, *, retry: Retry | None = None) -> object:
        """Declare how to undo the step when a later one fails, or when its own outcome is unknown.

        `@charge.undo`, or `@charge.undo(retry=Retry(attempts=8))` to override the retry of the undo.
        """
        frame = declaring_frame()
        location = line_of(frame)
        definition_errors.in_undo_retry(retry, location)

        def add_undo(function: FunctionT) -> FunctionT:
            self._not_in_use("undo", location)
            blocking = self.blocking and not is_async(function)
            self.undo_needs = check_async(
                function, "undo", (None, StepContext), frame.f_locals, location, blocking=blocking
            )
            flags = ["read_only"] * self.read_only + ["irreversible"] * self.irreversible
            if flags:
                raise self._conflict(f"is declared {flags[0]}, and this is an undo", location)
            if self.undo_function is not None:
                raise self._conflict("already has an undo", location)
            self.undo_function, self.undo_retry = cast("UndoOf[ContextT]", function), retry
            return function

        return add_undo if function is None else add_undo(cast("Callable[..., object]", function))

    def failed(
        self, action: Callable[[ContextT, StepFailure], ContextT]
    ) -> Callable[[ContextT, StepFailure], ContextT]:
        """Declare a pure action for the move that follows when the step gives up."""
        frame = declaring_frame()
        location = line_of(frame)
        self._not_in_use("failed action", location)
        check_pure(action, "action", (object, StepFailure), object, frame.f_locals, location)
        if self.failed_action is not None:
            raise self._conflict("already has a failed action", location)
        self.failed_action = action
        return action

    def _not_in_use(self, what: str, location: str) -> None:
        if self.frozen:
            raise DefinitionError(
                f"step {self.name!r} is already part of a pipeline, which would ignore this {what}.",
                why="A pipeline takes its steps as they are when it is built.",
                fix=f"Declare the {what} above the pipeline.",
                rule="declared-after-first-use",
                location=location,
            )

    def _conflict(self, what: str, location: str) -> DefinitionError:
        fix = "Keep one of the two."
        return DefinitionError(f"step {self.name!r} {what}.", fix=fix, rule="contradiction", location=location)

    @property
    def dwell_max_s(self) -> float:
        """Return the longest stay: as declared, or twice the longest duration of all attempts and waits together."""
        if self.dwell_s is not None:
            return self.dwell_s
        return 2 * (self.timeout_s * self.retry.attempts + self.retry.waits_s_max())


@overload
def step(
    *,
    timeout_s: Seconds,
    heartbeat_s: Seconds | None = None,
    retry: Retry = Retry(),  # noqa: B008 -- frozen.
    dependency: str | None = None,
    classify: Classify | None = None,
    read_only: bool = False,
    irreversible: bool = False,
    name: str | None = None,
    state: str | None = None,
    dwell_s: Seconds | None = None,
    blocking: Literal[False] = False,
) -> Callable[[Callable[Concatenate[ContextT, StepContext, ...], Awaitable[ContextT]]], PipelineStep[ContextT]]: ...
@overload
def step(
    *,
    timeout_s: Seconds,
    heartbeat_s: Seconds | None = None,
    retry: Retry = Retry(),  # noqa: B008 -- frozen.
    dependency: str | None = None,
    classify: Classify | None = None,
    read_only: bool = False,
    irreversible: bool = False,
    name: str | None = None,
    state: str | None = None,
    dwell_s: Seconds | None = None,
    blocking: Literal[True],
) -> Callable[[Callable[Concatenate[ContextT, StepContext, ...], ContextT]], PipelineStep[ContextT]]: ...
def step(
    *_misplaced: object,
    timeout_s: Seconds | None = None,
    heartbeat_s: Seconds | None = None,
    retry: Retry = Retry(),  # noqa: B008 -- frozen.
    dependency: str | None = None,
    classify: Classify | None = None,
    read_only: bool = False,
    irreversible: bool = False,
    name: str | None = None,
    state: str | None = None,
    dwell_s: Seconds | None = None,
    blocking: bool = False,
) -> object:
    """Declare a step of a pipeline.

    `state` overrides the gerund that names its state. `dwell_s` overrides the time after which a workflow there is
    stalled (twice the longest duration of all attempts). `heartbeat_s` is the longest time between calls of
    `ctx.heartbeat()`. With `blocking=True` it is a plain function, which runs in a thread. Raises DefinitionError for
    `@step` without parentheses.
    """
    frame = declaring_frame()
    location = line_of(frame)
    if _misplaced or timeout_s is None:
        raise DefinitionError(
            "step has no timeout_s." if timeout_s is None else "step takes arguments by name only.",
            why="It is called with its settings, and what it returns decorates the function.",
            fix="Write @step(timeout_s=10) above the function: the maximum duration of one attempt, in seconds.",
            rule="value-out-of-range",
            location=location,
        )

    def declare(function: Callable[..., object]) -> PipelineStep[ContextT]:
        check_async(function, "step", (None, StepContext), frame.f_locals, location, blocking=blocking)
        own_name = name or name_of(function)
        attempt_s, silence_s = in_seconds(timeout_s), in_seconds(heartbeat_s)
        definition_errors.in_step_settings(
            own_name, attempt_s, location, retry=retry, dependency=dependency, classify=classify
        )
        definition_errors.in_heartbeat(silence_s, attempt_s, location)
        return PipelineStep(
            name=own_name,
            function=cast("Callable[..., Awaitable[ContextT] | ContextT]", function),
            state=(state or gerund(own_name)).upper(),
            timeout_s=attempt_s,
            retry=retry,
            dependency=dependency,
            classify=classify,
            read_only=read_only,
            location=location,
            local=frame.f_locals,
            heartbeat_s=silence_s,
            irreversible=irreversible,
            dwell_s=in_seconds(dwell_s),
            blocking=blocking,
        )

    return declare


class Pipeline(Machine[PipelineState, ContextT, PipelineEvent], Generic[ContextT]):
    """A linear machine built from steps. `State` is its Enum; `Begin` and `Cancel` are its own events."""

    def __init__(
        self,
        name: str,
        *,
        context: type[ContextT],
        steps: Sequence[PipelineStep[ContextT]],
        version: int = 1,
        renamed: Mapping[str, str] | None = None,
        search: Sequence[str] | None = None,
    ) -> None:
        steps = _check_steps(name, steps, declared_at())
        title = "".join(word.capitalize() for word in str(name).replace("-", "_").split("_"))
        names = ["PENDING", *(each.state for each in steps), "COMPLETED", "UNDOING", "FAILED"]
        # Type checkers read the functional form of Enum as a look-up by value.
        make = cast("Callable[[str, dict[str, str]], type[PipelineState]]", PipelineState)
        self.State = make(f"{title}State", {each: each.lower() for each in names})
        alphabet = cast("type[PipelineEvent]", type(f"{title}Event", (PipelineEvent,), {"__slots__": ()}))
        self.Begin = _event("Begin", alphabet, PipelineBegin)
        self.Cancel = _event("Cancel", alphabet, PipelineCancel)
        states = self.State
        super().__init__(
            name,
            states=states,
            context=context,
            events=alphabet,
            initial=states.PENDING,
            final={states.COMPLETED, states.FAILED},
            unwind={states.UNDOING: states.FAILED},
            version=version,
            renamed={old: _member(states, new) for old, new in (renamed or {}).items()},
            search=search,
        )
        self._declared.straight = True
        self._opening = self.Begin()
        self.dwell(states.PENDING, max_s=PENDING_DWELL_S)
        self.dwell(states.UNDOING, max_s=UNDOING_DWELL_S)
        self._chain(steps, alphabet)

    def _chain(self, steps: Sequence[PipelineStep[ContextT]], alphabet: type[PipelineEvent]) -> None:
        states, context = self.State, self._declared.context
        stops = [states[each.state] for each in steps]
        self.on(self.Begin, states.PENDING, to=stops[0])
        for each, here, there in zip(steps, stops, [*stops[1:], states.COMPLETED], strict=True):
            title = "".join(word.capitalize() for word in each.name.split("_"))
            done = make_dataclass(f"{title}Done", [("context", context)], bases=(alphabet,), frozen=True)
            self._declared.transitions.append(
                TransitionDeclaration(
                    event=done,
                    sources=(here,),
                    to=there,
                    guard=None,
                    location=each.location,
                    action=_context_action(each.name),
                )
            )
            # Only now is the context known that the annotations of a free-standing step must match.
            arguments = (context, StepContext)
            needs = check_async(
                each.function, "step", arguments, each.local, each.location, returns=context, blocking=each.blocking
            )
            each.frozen = True
            declaration = _declaration(each, here, states.UNDOING, done)
            declaration.needs = needs
            definition_errors.in_step(self._declared, declaration)
            self._declared.steps[here] = declaration
            self.dwell(here, max_s=each.dwell_max_s)
        self.on(self.Cancel, self.any, to=states.UNDOING)


def pipeline(
    name: str,
    *,
    context: type[ContextT],
    steps: Sequence[PipelineStep[ContextT]],
    version: int = 1,
    renamed: Mapping[str, str] | None = None,
    search: Sequence[str] | None = None,
) -> Pipeline[ContextT]:
    """Build the linear machine of the steps: PENDING, a state per step, COMPLETED, UNDOING, FAILED.

    `renamed` maps state names of an earlier version to the present ones: `{"paying": "CHARGING"}`. `search` names
    fields of the context by which workflows are found, as for a `Machine`.
    """
    return Pipeline(name, context=context, steps=steps, version=version, renamed=renamed, search=search)


def _context_action(name: str) -> Action:
    """Return the action of a step's Done event, named like the step: it returns the event's context."""

    def carried(_: object, event: Event) -> object:
        return event.context  # type: ignore[attr-defined]  # Every Done event has it: made in _chain.

    carried.__name__ = name
    return carried


def _member(states: type[PipelineState], name: str) -> PipelineState:
    # An unknown name is passed on unchanged; `Machine` raises for it.
    known = states.__members__.get(name) if isinstance(name, str) else None
    return known or cast("PipelineState", name)


BeginOrCancel = TypeVar("BeginOrCancel", bound=PipelineEvent)


def _event(name: str, alphabet: type[PipelineEvent], kind: type[BeginOrCancel]) -> type[BeginOrCancel]:
    return cast("type[BeginOrCancel]", dataclass(frozen=True)(type(name, (alphabet, kind), {})))


def _declaration(
    each: PipelineStep[ContextT], here: PipelineState, failed: PipelineState, done: type[Event]
) -> StepDeclaration:
    undos: list[UndoDeclaration] = []
    function = each.undo_function
    if function is not None:
        # The outcome of a pipeline's step is its context, which the undo receives anyway.
        def undo(context: object, _done: Event | None, ctx: StepContext, **provided: object) -> object:
            return function(cast("ContextT", context), ctx, **provided)

        blocking = not is_async(function)
        undos.append(
            UndoDeclaration(done, cast("UndoFunction", undo), each.location, each.undo_retry, blocking, each.undo_needs)
        )
    return StepDeclaration(
        name=each.name,
        state=here,
        function=cast("StepFunction", each.function),
        timeout_s=each.timeout_s,
        heartbeat_s=each.heartbeat_s,
        retry=each.retry,
        dependency=each.dependency,
        failed=failed,
        classify=each.classify,
        read_only=each.read_only,
        irreversible=each.irreversible,
        blocking=each.blocking,
        returns=(done,),
        location=each.location,
        result=cast("Callable[[object], Event]", done),
        failed_action=cast("FailedAction | None", each.failed_action),
        undos=undos,
    )


def _check_steps(name: str, argument: object, location: str) -> tuple[PipelineStep[ContextT], ...]:
    steps = tuple(cast("Iterable[object]", argument)) if isinstance(argument, Iterable) else ()
    problem = "" if steps else "has no steps" if isinstance(argument, Iterable) else "takes steps= as a list"
    taken: set[str] = set(OWN_STATES)
    for each in steps:
        if not isinstance(each, PipelineStep):
            problem = problem or f"has {name_of(each)} among its steps, which is not declared with @step(timeout_s=...)"
        elif each.state.startswith("_"):
            problem = problem or f"would have a state {each.state}, and Enum keeps names with an underscore for itself"
        elif each.state in taken:
            problem = problem or f"would have two states {each.state}"
        else:
            taken.add(each.state)
    if problem:
        raise DefinitionError(
            f"pipeline {name!r} {problem}.",
            why="A pipeline has one state per step, each with its own name, and every step has a timeout.",
            fix="Pass functions declared with @step(timeout_s=...); give a step state=... if names collide.",
            rule="bad-pipeline",
            location=location,
        )
    return cast("tuple[PipelineStep[ContextT], ...]", steps)
