"""Description of a machine as plain data, for diagrams, `plan`, HTTP and the dashboard.

A `Machine` holds user functions and classes; a description holds only names, numbers and JSON schemas. So code that
only reads a machine depends on these few frozen values, and can read a description saved by an earlier release. States
are named by their stored value (`State.DRAFT.value`), events by their wire name.

The odd choice: one arrow differs from its declaration. Where a pipeline skips its unwinding state because nothing can
have to be undone yet, the arrow leads to the failed state, where the workflow really goes.
"""

from typing import Literal, TypeVar

import msgspec
from msgspec import UNSET

from interlock.core.codec import Codec
from interlock.core.declarations import TaskDeclaration
from interlock.core.events import CHILDREN_JOINED, STEP_FAILED, UNWOUND, Event, wire_name
from interlock.core.table import Ends, Node, Table, Transition, name_of
from interlock.core.values import ContextT

TransitionKind = Literal["event", "failed", "unwound", "joined"]


class StepDescription(msgspec.Struct, frozen=True, kw_only=True):
    """The step that runs while a workflow is in a state."""

    name: str
    timeout_s: float
    attempts: int
    dependency: str | None = None
    returns: tuple[str, ...] = ()
    """Wire names of the events it may return; empty when the function does not say."""
    undoes: tuple[str, ...] = ()
    """Wire names of the outcomes that have an undo."""
    heartbeat_s: float | msgspec.UnsetType = msgspec.UNSET
    """The longest silence of an attempt. Not encoded when unset, so that saved descriptions stay the same."""


class TimerDescription(msgspec.Struct, frozen=True, kw_only=True):
    """After `after_s` seconds in the state, `event` is sent."""

    event: str
    after_s: float
    policy: Literal["deadline", "remaining", "restart"]
    computed: Literal["after", "until"] | msgspec.UnsetType = msgspec.UNSET
    """How the time of each workflow is computed on entering the state; `after_s` is 0 then. Not encoded when unset."""


class TaskDescription(msgspec.Struct, frozen=True, kw_only=True):
    """What a person does in a state."""

    role: str
    title: str
    """With the names of fields of the context in braces."""
    events: tuple[str, ...]
    """Wire names of the events with which the person decides."""
    due_s: float | None = None
    computed: bool = False
    """Whether the due time of each workflow is computed from its context; `due_s` is None then."""


class StateDescription(msgspec.Struct, frozen=True, kw_only=True):
    """One state and everything attached to it."""

    name: str
    initial: bool = False
    final: bool = False
    resting: bool = False
    unwinds_to: str | None = None
    step: StepDescription | None = None
    effects: tuple[str, ...] = ()
    timers: tuple[TimerDescription, ...] = ()
    dwell_max_s: float | None = None
    task: TaskDescription | msgspec.UnsetType = msgspec.UNSET
    """Not encoded when unset, so that saved descriptions stay the same."""


class TransitionDescription(msgspec.Struct, frozen=True, kw_only=True):
    """One arrow. A catch-all is listed once per state it really applies to, marked `catch_all`.

    `kind` is "event" for a user's event, "failed" for a step that gave up (event STEP_FAILED), "unwound" for an
    unwinding state that is done (event UNWOUND) and "joined" for children that have ended (event CHILDREN_JOINED).
    An internal transition has `target == source` and `internal=True`; an explicit self-target has `target == source`
    and `internal=False`.
    """

    source: str
    event: str
    target: str
    kind: TransitionKind = "event"
    internal: bool = False
    guard: str | None = None
    guard_reason: str | None = None
    action: str | None = None
    catch_all: bool = False
    settle: bool | msgspec.UnsetType = msgspec.UNSET
    """True when completed runs become final. Not encoded when unset, so that saved descriptions stay the same."""


class EventDescription(msgspec.Struct, frozen=True, kw_only=True):
    """One event of the alphabet and the JSON schema of its payload."""

    name: str
    schema: dict[str, object]


class MachineDescription(msgspec.Struct, frozen=True, kw_only=True):
    """A whole machine as data. States and transitions are in declared order, the initial state first."""

    name: str
    version: int
    states: tuple[StateDescription, ...]
    transitions: tuple[TransitionDescription, ...]
    events: tuple[EventDescription, ...]
    context_schema: dict[str, object]
    renamed: dict[str, str] = {}
    """Old state name -> new state name, as declared by the newer machine."""

    def state(self, name: str) -> StateDescription | None:
        """Return the state of that name, or None."""
        return next((state for state in self.states if state.name == name), None)

    def to_json(self) -> bytes:
        """Return the description as JSON, to be kept with a release and compared later by `interlock plan`."""
        return msgspec.json.format(msgspec.json.encode(self), indent=2)


def description_from_json(data: bytes) -> MachineDescription:
    """Return the description that `to_json` wrote. Raises `msgspec.ValidationError` on anything else."""
    return msgspec.json.decode(data, type=MachineDescription)


EventT = TypeVar("EventT", bound=Event)


def describe(table: Table, codec: Codec[ContextT, EventT]) -> MachineDescription:
    """Return the machine as plain data, the initial state first, everything else in declared order."""
    ends = Ends(table)
    nodes = sorted(table.nodes.values(), key=lambda node: node is not table.initial)
    return MachineDescription(
        name=table.name,
        version=table.version,
        states=tuple(_state(node, initial=node is table.initial) for node in nodes),
        transitions=tuple(transition for node in nodes for transition in _transitions(node, ends)),
        events=tuple(EventDescription(name=name, schema=codec.event_schema(name)) for name in table.events),
        context_schema=codec.context_schema(),
        renamed={old: new.value for old, new in table.declared.renamed.items()},
    )


def _state(node: Node, *, initial: bool) -> StateDescription:
    return StateDescription(
        name=node.name,
        initial=initial,
        final=node.final,
        resting=node.resting,
        unwinds_to=node.unwinds_to.name if node.unwinds_to else None,
        step=_step(node),
        effects=tuple(effect.name for effect in node.effects),
        timers=tuple(
            TimerDescription(
                event=wire_name(type(timer.send)),
                after_s=float(timer.after_s),
                policy=timer.policy,
                computed=UNSET if timer.function is None else "after" if timer.until is None else "until",
            )
            for timer in node.timers
        ),
        dwell_max_s=None if node.dwell_max_s is None else float(node.dwell_max_s),
        task=UNSET if node.task is None else _task(node.task),
    )


def _task(task: TaskDeclaration) -> TaskDescription:
    braced = {"{": "{{", "}": "}}"}
    return TaskDescription(
        role=task.role,
        title="".join(
            "".join(braced.get(each, each) for each in text) + (f"{{{name}}}" if name else "")
            for text, name in task.parts
        ),
        events=tuple(wire_name(event) for event in task.events),
        due_s=task.due_s,
        computed=task.due is not None,
    )


def _step(node: Node) -> StepDescription | None:
    step = node.step
    if step is None:
        return None
    return StepDescription(
        name=step.name,
        timeout_s=float(step.timeout_s),
        attempts=step.retry.attempts,
        dependency=step.dependency,
        returns=tuple(wire_name(event) for event in step.returns),
        undoes=tuple(undo.name for undo in step.undos),
        heartbeat_s=UNSET if step.heartbeat_s is None else float(step.heartbeat_s),
    )


def _transitions(node: Node, ends: Ends) -> list[TransitionDescription]:
    found: list[TransitionDescription] = []
    for moves in node.moves.values():
        for move in moves:
            found += [_transition(node, move, target) for target in ends.of(node, move.target)]
    if node.failed is not None:
        found += [_built_in(node, STEP_FAILED, target, "failed") for target in ends.of(node, node.failed)]
    for join in node.joins:
        guard = None if join.declared.when is None else name_of(join.declared.when)
        joins = [_built_in(node, CHILDREN_JOINED, target, "joined") for target in ends.of(node, join.target)]
        found += [msgspec.structs.replace(each, guard=guard) for each in joins]
    if node.unwinds_to is not None:
        found.append(_built_in(node, UNWOUND, node.unwinds_to, "unwound"))
    return found


def _built_in(node: Node, event: str, target: Node, kind: TransitionKind) -> TransitionDescription:
    return TransitionDescription(source=node.name, event=event, target=target.name, kind=kind)


def _transition(node: Node, move: Transition, target: Node) -> TransitionDescription:
    return TransitionDescription(
        source=node.name,
        event=move.event,
        target=target.name,
        internal=move.target is None,
        guard=move.guard_name,
        guard_reason=move.guard_reason or None,
        action=None if move.declared.action is None else name_of(move.declared.action),
        catch_all=move.declared.catch_all,
        settle=True if move.settles else UNSET,
    )
