"""A machine bound to an engine: its table and codec, and the conversion between values and stored bytes.

An engine has machines of any types side by side, so here a context is just a value. Types are checked when the machine
is declared, and again where values come from outside. `Owed` is the pending work of a workflow. It is written with the
workflow's row, in the same commit as the transition that owes it (G3), and stores do not decode it.

Idempotency keys are made only here: once, from random ids, and written before the first attempt (C6).

Sections: pending work; attempts; machine and loaded workflow.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from enum import Enum
from functools import partial
from typing import Any, Final, Literal, Protocol, cast

import msgspec

from interlock.clock import Ids
from interlock.core.codec import Codec, fill_defaults
from interlock.core.decide import foreign_state
from interlock.core.declarations import EffectDeclaration, StepDeclaration, UndoDeclaration
from interlock.core.definition_errors import is_async, needs_of
from interlock.core.describe import MachineDescription
from interlock.core.events import CHILDREN_JOINED, FORKED, REWIND_NAMES, Event, wire_name
from interlock.core.plan import Plan
from interlock.core.policies import Retry
from interlock.core.search import MachineSearch
from interlock.core.table import Node, Table
from interlock.core.values import Run, Snapshot, StepFailure, StoredJson, TimerPolicy
from interlock.engine.dependencies.fair_queue import NO_TURN, Turn
from interlock.engine.dependencies.step_threads import StepThreads, threaded
from interlock.engine.pauses import Pauses
from interlock.errors import CorruptionError, DefinitionError, InvalidPayload, MachineMismatch
from interlock.store.records import Row

# --- Pending work ----------------------------------------------------------------------------------------------------

AttemptOutcome = Literal["running", "completed", "failed", "timed_out", "crashed", "cancelled"]


class ParentRef(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """The workflow that started this one, kept with the child for its whole life."""

    id: str
    visit: int
    position: int
    ended: bool = False
    """Whether the child has ended, which its parent counts once."""


class FamilyRun(msgspec.Struct, frozen=True, gc=False):
    """The children of the current visit, after all of them were started."""

    total: int
    ended: int = 0
    """The ends that the parent has counted."""
    counts: dict[str, int] = {}
    """Counted ends by state."""


class StepRun(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """The step of the current visit, from when it is owed until its result is applied."""

    key: str
    attempts: int = 0
    """Attempts that were begun; counted before they begin, so that one that kills the process counts too."""
    token: int = 0
    """The token of the running attempt, one more for each, counted or not. A result with another token is late."""
    started: bool = False
    """Whether an attempt is under way, or was when the process died."""
    retry_us: int | None = None
    unknown: bool = False
    """Whether a failed attempt may have had an effect."""
    parked: bool = False
    """Whether `retry_us` is the next check of its dependency, and not the end of a backoff."""
    crashed: bool = False
    """Whether the last attempt ended with its process. The next is then not a retry of a failed call."""
    family: FamilyRun | None = None
    """The children that it has started, for whose ends the workflow waits; then no attempt is owed."""
    per: str = ""
    """The key of its turns at the dependency (E8)."""
    priority: int = 0
    begun_us: int = 0
    """When its last attempt began; 0: when the state was entered, or an earlier release began it."""
    worker: str = ""
    """The process that began it: its host and pid."""

    @property
    def turn(self) -> Turn:
        """Its key and its priority."""
        return self.per, self.priority

    @property
    def attempted(self) -> bool:
        """Whether it may have had an effect: an attempt is under way, or one has ended with an unknown outcome."""
        return self.started or self.unknown or self.family is not None

    @property
    def is_retry(self) -> bool:
        """Whether the next attempt repeats one that has failed."""
        return self.retry_us is not None and self.attempts > 0 and not self.crashed


class TimerRun(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """A timer of the current visit."""

    event: str
    payload: bytes
    policy: TimerPolicy
    after_us: int
    at_us: int
    """When it fires, by the store's clock."""
    set_us: int = 0
    """When `at_us` was computed: running time for the policy "remaining" counts from there."""


class PastRun(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """A run in the undo log, which an unwinding would undo."""

    step: str
    visit: int
    key: str
    event: str | None = None
    """None when its outcome is unknown."""
    payload: bytes = b""


class UndoRun(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """A pending undo. The first of them is the one that runs."""

    step: str
    undo: str
    visit: int
    key: str
    undoes: str
    event: str | None = None
    payload: bytes = b""
    attempts: int = 0
    token: int = 0
    started: bool = False
    retry_us: int | None = None
    parked: bool = False
    begun_us: int = 0
    worker: str = ""


class PastAttempt(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """An attempt of a step, an undo or an effect (B17).

    It is stored with the workflow's row, and goes into the next row of history when it has ended: as an array, of which
    the last items may be missing.
    """

    key: str
    begun_us: int
    worker: str
    number: int
    outcome: AttemptOutcome = "completed"
    ended_us: int = 0
    """0 in a row of history: it ended with that row."""
    kind: Literal["step", "undo", "effect"] = "step"
    error: str = ""
    traceback: str = ""
    """Only the newest attempt beside the row has one."""


class TaskClaim(msgspec.Struct, frozen=True, gc=False):
    """The person who has claimed the task of the current visit (F2)."""

    by: str
    since_us: int


class RewindTarget(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """The version that a workflow is set back to, after its undos (F6)."""

    version: int
    state: str
    context: bytes
    """The context as the history of that version has it."""
    keep: int
    """The number of the oldest runs in the undo log that stay."""
    note: str = ""
    by: str | None = None

    @property
    def payload(self) -> StoredJson:
        """Return the payload of its rows of history."""
        text = msgspec.json.encode({"to_version": self.version, "note": self.note}).decode()
        return StoredJson(text, "the version that the workflow is set back to")


class Owed(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """All pending work of one workflow, besides its effects."""

    run: StepRun | None = None
    timers: tuple[TimerRun, ...] = ()
    past: tuple[PastRun, ...] = ()
    undos: tuple[UndoRun, ...] = ()
    dead: Literal["step", "undo", "settled"] | None = None
    """The kind of work that became a dead letter; "settled" is a step whose letter an operator has resolved."""
    letter: str = ""
    """The id of the dead letter, while there is one."""
    trace: str = ""
    """With tracing, the W3C `traceparent` of its last pass and, after a space, that of its first if it differs. Later
    passes link to them, also after a crash."""
    parent: ParentRef | None = None
    tried: tuple[PastAttempt, ...] = ()
    """Attempts since the last move: those that have ended, and those of effects that are under way."""
    claim: TaskClaim | None = None
    rewind: RewindTarget | None = None
    """What the workflow is set back to when everything is undone; None: it unwinds as its machine declares."""

    @property
    def current(self) -> StepRun | UndoRun | None:
        """The step or the newest undo that runs or is next; None for a dead letter."""
        if self.dead is not None:
            return None
        run = self.run
        if run is not None:
            return run if run.family is None else None
        return self.undos[0] if self.undos else None

    @property
    def turn(self) -> Turn:
        """The key and priority of its step at the dependency (E8)."""
        return NO_TURN if self.run is None or not (self.run.per or self.run.priority) else self.run.turn

    def with_current(self, **changes: object) -> "Owed":
        """Return it with changes of the step or the newest undo that runs or is next."""
        if self.run is not None:
            return msgspec.structs.replace(self, run=msgspec.structs.replace(self.run, **changes))
        undo = msgspec.structs.replace(self.undos[0], **changes)
        return msgspec.structs.replace(self, undos=(undo, *self.undos[1:]))

    def wake_us(self, now_us: int) -> int | None:
        """Return when a worker must check the workflow again; now for a running attempt, in case this process dies."""
        if self is NOTHING:
            return None
        soonest = None
        current = self.current
        if current is not None:
            soonest = current.retry_us or now_us
        for timer in self.timers:
            if soonest is None or timer.at_us < soonest:
                soonest = timer.at_us
        return soonest


UUID_CHARACTERS = 36

NOTHING = Owed()

_decoder = msgspec.json.Decoder(Owed)
_encode = msgspec.json.Encoder().encode


def encode_owed(owed: Owed) -> bytes:
    """Encode it for the store; empty when nothing is owed."""
    return b"" if owed is NOTHING else _encode(owed)


def decode_owed(data: bytes) -> Owed:
    """Decode it from the store."""
    return _decoder.decode(data) if data else NOTHING


def fresh_key(name: str, ids: Ids) -> str:
    """Make an idempotency key: the name of the step, undo or effect, and a random UUID. Never from a clock (C6)."""
    return f"{name}-{ids.text()}"


def named_in(key: str) -> str:
    """Return the name of the step, undo or effect that a key was made for."""
    return key[: -UUID_CHARACTERS - 1]


# --- Attempts --------------------------------------------------------------------------------------------------------

ATTEMPT_CHARACTERS_MAX = 500
"""Characters kept of the error of each attempt."""


def with_attempt(tried: tuple[PastAttempt, ...], ended: PastAttempt, attempts_max: int) -> tuple[PastAttempt, ...]:
    """Return the attempts with one more that has ended, in place of its beginning: the newest `attempts_max` of them.

    Only the newest traceback is kept.
    """
    known = [each for each in tried if each.outcome != "running" or each.key != ended.key]
    if ended.traceback:
        known = [msgspec.structs.replace(each, traceback="") if each.traceback else each for each in known]
    over = len(known) + 1 - attempts_max
    if over > 0:
        # Those under way belong to effects, of which the slots bound the number.
        oldest = [each for each in known if each.outcome != "running"][:over]
        known = [each for each in known if each not in oldest]
    return (*known, ended)


def ended_attempts(tried: Sequence[PastAttempt]) -> list[PastAttempt]:
    """Return those that have ended."""
    return [each for each in tried if each.outcome != "running"]


def running_attempts(tried: tuple[PastAttempt, ...]) -> tuple[PastAttempt, ...]:
    """Return those of effects that are under way."""
    return tuple([each for each in tried if each.outcome == "running"]) if tried else ()


_attempts_decoder = msgspec.json.Decoder(list[PastAttempt])


def decode_attempts(data: bytes) -> list[PastAttempt]:
    """Decode the attempts of a row of history."""
    return _attempts_decoder.decode(data) if data else []


encode_attempts: Callable[[Sequence[PastAttempt | tuple[str, int, str, int]]], bytes] = _encode
"""Encodes the attempts for a row of history; one that has succeeded and ends with it also as a tuple."""


# --- Machine and loaded workflow -------------------------------------------------------------------------------------


class AnyMachine(Protocol):
    """The part of a machine that an engine uses, for any types of states, contexts and events."""

    @property
    def name(self) -> str:
        """The name that its workflows are stored with."""
        ...

    @property
    def compiled(self) -> Table:
        """The table that `decide` uses."""
        ...

    @property
    def codec(self) -> object:
        """The encoder and decoder of its contexts and events."""
        ...

    @property
    def opening(self) -> Event | None:
        """The event that is applied with the start."""
        ...

    @property
    def search(self) -> MachineSearch:
        """What it declares searchable."""
        ...

    def describe(self) -> MachineDescription:
        """Return its description as plain data."""
        ...


AnySnapshot = Snapshot[Any, Any]

_decode_failure = msgspec.json.Decoder(StepFailure).decode


TEXTS_MAX = 4_096
"""The number of cached event names."""

_TEXTS: dict[type[Event], str] = {}

OWN_MACHINES: Final = frozenset({"interlock.schedule", "interlock.pause", "interlock.bulk"})
"""The machines of schedules, pauses and bulk runs, whose workflows are records of a home."""

Strategy = Callable[..., Awaitable[object]]
"""The function of a step, an undo or an effect. Its signature is checked where it is declared."""


class Effect(msgspec.Struct, frozen=True):
    """A declared effect with the function that runs it here."""

    function: Strategy
    timeout_s: float
    retry: Retry
    dependency: str | None = None
    state: Enum | None = None
    """Its state; None where it belongs to several."""


class LoadedWorkflow(msgspec.Struct, gc=False):
    """A workflow in memory: its stored row, and its decoded values."""

    bound: "BoundMachine"
    row: Row
    snapshot: AnySnapshot
    owed: Owed

    def lend_context(self) -> object:
        """Return the context for user code: a copy, if its class can be changed in place (A10)."""
        bound = self.bound
        return (
            self.snapshot.context if bound.table.copy_context is None else bound.codec.decode_context(self.row.context)
        )

    @property
    def paused(self) -> bool:
        """Whether a pause that its engine has read covers it (E7)."""
        pauses, row = self.bound.pauses, self.row
        return pauses.any and pauses.names(row.machine, row.state, row.id)


class NotCompared(Exception):
    """Raised for a row of a version that this machine was not compared with yet."""


class BoundMachine:
    """One machine of an engine, with the strategies that run its steps, undos and effects (C1)."""

    def __init__(
        self,
        machine: AnyMachine,
        strategies: Mapping[object, Strategy] | None = None,
        provide: Sequence[object] | None = None,
    ) -> None:
        self.machine = machine
        self.name = machine.name
        self.table = machine.compiled
        self.codec = cast("Codec[Any, Any]", machine.codec)
        self.opening = machine.opening
        self.version = self.table.version
        self.plans: dict[int, Plan | str | None] = {}
        """Plans from other versions to this one, or why a plan is missing; None for a lower, undescribed version."""
        self.accepted: set[int] = set()
        """Other versions whose losses were accepted when the engine was opened."""
        self.verdicts: dict[tuple[int, str], str] = {}
        """Why this process may not decide on workflows of a version and state; empty if it may."""
        self.stored = {str(node.state.value): node for node in self.table.nodes.values()}
        """The nodes by stored name: their current names and earlier ones."""
        for old, new in self.table.declared.renamed.items():
            self.stored.setdefault(old, self.table.nodes[new.name])
        self.apart: set[str] = set()
        """Steps whose attempts get a task each: one of them has suspended, or set a context variable."""
        self.threads: StepThreads | None = None
        """Where blocking functions run; without it they run in the event loop, as with a virtual clock."""
        swapped = strategies or {}
        self._provide = provide
        """The resources for steps, undos and effects; None for an engine that runs no steps."""
        self.steps: dict[str, Strategy] = {}
        self.undos: dict[tuple[str, str], Strategy] = {}
        self.undo_retries: dict[tuple[str, str], Retry] = {}
        """The retries of undos that declare one; the others use that of the engine."""
        for name, node in self.table.steps.items():
            assert node.step is not None
            chosen = swapped.get((self.name, name), swapped.get(name, node.step.function))
            self.steps[name] = self._runnable(chosen, node.step, f"step {name!r}")
            for undo in node.step.undos:
                chosen = swapped.get(undo.function, undo.function)
                self.undos[name, undo.name] = self._runnable(chosen, undo, f"the undo of {name!r}")
                if undo.retry is not None:
                    self.undo_retries[name, undo.name] = undo.retry
        self.effects = {
            each.name: Effect(
                self._runnable(swapped.get(each.function, each.function), each, f"effect {each.name!r}"),
                each.timeout_s,
                each.retry,
                each.dependency,
                each.states[0] if len(each.states) == 1 else None,
            )
            for each in self.table.declared.effects
        }

        self.timers = self.table.declared.timers
        self.pauses = Pauses()
        """The pauses of its engine."""
        self.why: Callable[[str, Literal["first", "retry", "undo"]], str | None] = _no_reason
        """Returns the reason why a call of a dependency would have to wait, for people."""

    def _runnable(
        self, function: Strategy, declared: StepDeclaration | UndoDeclaration | EffectDeclaration, what: str
    ) -> Strategy:
        """Return the function as an awaitable one, with its resources. A blocking function runs in a thread.

        Raises DefinitionError for a resource that is missing or ambiguous.
        """
        if self._provide is not None:
            arguments = 3 if isinstance(declared, UndoDeclaration) else 2
            own = function is declared.function
            needs = declared.needs if own else needs_of(function, arguments, {})
            place = declared.location if own else ""
            found = {
                name: resource_of(self._provide, cls, f"{what} of machine {self.name!r}", name, place)
                for name, cls in needs.items()
            }
            function = partial(function, **found) if found else function
        blocking = declared.blocking and not is_async(function)
        return threaded(function, lambda: self.threads) if blocking else function

    def dependencies(self) -> set[str]:
        """Return the names of the dependencies of its steps and effects."""
        steps = (node.step.dependency for node in self.table.steps.values() if node.step is not None)
        effects = (each.dependency for each in self.table.declared.effects)
        return {name for name in (*steps, *effects) if name is not None}

    def unwinding(self) -> list[str]:
        """Return the names of the states in which workflows are undone."""
        return [node.name for node in self.table.nodes.values() if node.unwinds_to is not None]

    def swappable(self) -> set[object]:
        """Return the keys of `strategies`: steps by machine and name, undos and effects by their function."""
        undos = {undo.function for node in self.table.steps.values() if node.step for undo in node.step.undos}
        effects = {effect.function for effect in self.table.declared.effects}
        found: set[object] = {(self.name, name) for name in self.steps}
        return found | undos | effects

    def node(self, state: Enum) -> Node:
        """Return the node of a state. Raises InvalidPayload for a state of another machine."""
        value: object = state  # Not every caller has a type checker.
        node = self.table.node(state) if isinstance(value, Enum) else None
        if node is None:
            raise foreign_state(self.table, state)
        return node

    def node_of(self, state: str) -> Node:
        """Return the node of a stored state. Raises CorruptionError for an unknown one."""
        node = self.stored.get(state)
        if node is None:
            raise CorruptionError(
                f"a workflow of {self.name!r} is stored in state {state!r}, which the machine does not have.",
                why="The definition was changed while a workflow was in that state.",
                fix="Run `interlock plan OLD NEW`, and give the new version a place for it (renamed=).",
            )
        return node

    def decidable(self, row: Row) -> LoadedWorkflow:
        """Return the workflow in this row, to be decided on.

        Raises NotCompared for a row of an unknown version, and MachineMismatch where deciding could lose something.
        """
        if row.machine_version != self.version:
            verdict = self.verdicts.get((row.machine_version, row.state))
            if verdict is None:
                raise NotCompared
            if verdict:
                raise self._mismatch(row, verdict)
        return self.live(row)

    def is_compared(self, row: Row) -> bool:
        """Whether it is known if this process may decide on the row."""
        return row.machine_version == self.version or (row.machine_version, row.state) in self.verdicts

    def refuses(self, row: Row) -> bool:
        """Whether this process may not decide on the row."""
        return row.machine_version != self.version and self.verdicts.get((row.machine_version, row.state)) != ""

    def live(self, row: Row) -> LoadedWorkflow:
        """Decode the workflow in this row. Raises CorruptionError, with its id, when the machine cannot read it.

        Raises MachineMismatch instead when a newer version has written it.
        """
        try:
            return self._live(row)
        except (InvalidPayload, CorruptionError) as error:
            if row.machine_version > self.version:
                raise self._mismatch(row, f"Here it cannot be read: {error.what}") from error
            if isinstance(error, CorruptionError):
                raise
            raise CorruptionError(
                f"workflow {row.id!r} of {self.name!r} is stored in a way that the machine cannot read: {error.what}",
                why="The definition has changed under it: a context or an event takes other values now.",
                fix="Let the new version take what is stored; `interlock plan OLD NEW` says what that is.",
            ) from error

    def _mismatch(self, row: Row, why: str) -> MachineMismatch:
        newer = "a process of that version" if row.machine_version > self.version else "a process that can read it"
        return MachineMismatch(
            f"workflow {row.id!r} was stored by version {row.machine_version} of machine {self.name!r}; "
            f"this process runs version {self.version}.",
            why=why,
            fix=f"Send it to {newer}, or repeat it when the rollout is over; `interlock plan` says what is in the way.",
        )

    def _live(self, row: Row) -> LoadedWorkflow:
        owed = decode_owed(row.owed)
        log = tuple(
            Run(
                each.step,
                each.visit,
                None if each.event is None else self.codec.decode_event(each.event, each.payload, strict=False),
            )
            for each in owed.past
        )
        node = self.node_of(row.state)
        context = self.codec.decode_context(row.context)
        if row.machine_version != self.version:
            context = fill_defaults(context)  # Add the fields of this version, so that they are written back.
        if node.name != row.state:
            # With the new name it is a row of this version: an older process must not take it for its own.
            stored, context = self.codec.stored_context(context)
            row = msgspec.structs.replace(row, state=node.name, machine_version=self.version, context=stored)
        attempted = owed.run is not None and owed.run.attempted
        snapshot: AnySnapshot = Snapshot(node.state, context, row.version, row.visit, log, attempted)
        return LoadedWorkflow(self, row, snapshot, owed)

    def payload(self, value: Event | StepFailure | StoredJson | None) -> bytes:
        """Return the payload of a record as JSON; empty when it has none."""
        if isinstance(value, Event):
            return self.codec.stored_event(value)
        if value is None:
            return b""
        return value.text.encode() if isinstance(value, StoredJson) else _encode(value)

    def read_payload(self, event: str, data: bytes) -> Event | StepFailure | StoredJson | None:
        """Decode a stored payload, perhaps of an earlier version of the machine."""
        if not data:
            return None
        if event == FORKED:
            return StoredJson(data.decode(), "the workflow and the version that it begins with")
        if event in REWIND_NAMES and event not in self.table.events:
            return StoredJson(data.decode(), "the version that the workflow is set back to")
        if event == CHILDREN_JOINED:
            return StoredJson(data.decode(), "the children of the state, as they were counted")
        return _decode_failure(data) if event == "STEP_FAILED" else self.codec.read_event(event, data)

    def context_text(self, context: object) -> bytes:
        """Return the context of a row of history as JSON."""
        return context.text.encode() if isinstance(context, StoredJson) else self.codec.encode_context(context)


def resource_of(provide: Sequence[object], cls: type[object], what: str, name: str, location: str) -> object:
    """Return the resource of the type: an instance of the class itself, or else the only one of a class below it.

    Raises DefinitionError unless exactly one matches.
    """
    exact = [each for each in provide if type(each) is cls]
    try:
        found = exact or [each for each in provide if isinstance(each, cls)]
    except TypeError:  # A protocol that is not checkable at run time.
        found = []
    if len(found) == 1:
        return found[0]
    present = ", ".join(_kind_of(each) for each in provide) or "nothing"
    problem = "is not provided" if not found else f"is provided {len(found)} times"
    raise DefinitionError(
        f"{what} takes {name}: {cls.__qualname__}, which {problem}; provide= has {present}.",
        why="Steps, undos and effects get what they need by the type of a parameter, so exactly one value must match.",
        fix=f"Pass one instance: Engine.open(url, machines=[…], provide=[{cls.__name__}(…)]).",
        rule="resource-missing" if not found else "resource-ambiguous",
        location=location,
    )


def _kind_of(value: object) -> str:
    return f"the class {value.__qualname__}" if isinstance(value, type) else type(value).__qualname__


def _no_reason(dependency: str, kind: str) -> None:
    del dependency, kind


def state_text(state: Enum) -> str:
    """Return the stored name of a state."""
    return str(state.value)


def event_text(event: Event) -> str:
    """Return the stored name of an event."""
    kind = type(event)
    text = _TEXTS.get(kind)
    if text is None:
        if len(_TEXTS) >= TEXTS_MAX:
            _TEXTS.clear()
        text = _TEXTS[kind] = wire_name(kind)
    return text
