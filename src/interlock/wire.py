"""The wire format of the HTTP API: JSON bodies of requests and answers, and their conversion to and from engine values.

One struct per body, described by OpenAPI; server, client and command line use the same ones. Contexts and payloads are
the machine's own JSON, as stored: nothing is lost or reordered. `Reader` converts answers to values. With the machine,
states are its Enum members, and contexts and events have its types. Without it, a state is a `PlainState` and
everything else is plain JSON. Unknown members of answers are ignored, so that an older client understands a newer
server.

Sections: bodies of requests, answers, engine values to answers and back, problem documents, signals of the stream.
"""

import re
from collections.abc import Iterable
from datetime import datetime
from enum import Enum
from typing import Annotated, Generic, Literal, TypeVar, cast

import msgspec

import interlock.errors as errors  # noqa: PLR0402 -- `from interlock` would be a cycle to a type checker.
from interlock.core.events import Event
from interlock.core.values import Allowed, StepFailure, StoredJson
from interlock.engine.bound_machine import AnyMachine, BoundMachine, state_text
from interlock.engine.engine_settings import Admission
from interlock.engine.operators.bulk_runs import BulkAction
from interlock.engine.operators.retention import BATCH
from interlock.engine.operators.tasks import Task
from interlock.engine.schedules import CatchUp, Overlap
from interlock.engine.views import HistoryRow, Moved, Rewind, RunToUndo, Timer, View, plain_state
from interlock.lanes.hot_rows import HotRow
from interlock.signals import Signal

# --- Bodies of requests ----------------------------------------------------------------------------------------------

JsonObject = Annotated[msgspec.Raw, msgspec.Meta(extra_json_schema={"type": "object"})]
"""A JSON object of a machine; `GET /v1/machines` has its schema."""

JsonObjectOrNull = Annotated[
    msgspec.Raw, msgspec.Meta(extra_json_schema={"anyOf": [{"type": "object"}, {"type": "null"}]})
]

ValueT = TypeVar("ValueT")

_encoder = msgspec.json.Encoder(decimal_format="string")
encode, encode_lines = _encoder.encode, _encoder.encode_lines

EMPTY = msgspec.Raw(b"{}")
NULL = msgspec.Raw(b"null")

PRUNE_WORKFLOWS = 10_000
PRUNE_WORKFLOWS_MAX = 100_000


def _empty() -> msgspec.Raw:
    return EMPTY


class ForkBody(msgspec.Struct, forbid_unknown_fields=True):
    """The version of a workflow that a new one begins with, and the id of the new one."""

    at_version: int
    id: str


class RewindBody(msgspec.Struct, forbid_unknown_fields=True):
    """The version that a workflow is set back to; with `dry_run` it is only shown what would be undone first."""

    to_version: int
    note: str = ""
    dry_run: bool = False
    key: str | None = None
    """As the header Idempotency-Key, for a key that is not ASCII."""


class StartBody(msgspec.Struct, forbid_unknown_fields=True):
    """A workflow to start."""

    id: str
    context: JsonObject = msgspec.field(default_factory=_empty)


class BeginBody(msgspec.Struct, forbid_unknown_fields=True):
    """The machine and the context of a workflow that an event starts, if it does not exist."""

    machine: str
    context: JsonObject = msgspec.field(default_factory=_empty)


class EventBody(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """An event to send."""

    event: str
    data: JsonObject = msgspec.field(default_factory=_empty)
    key: str | None = None
    """As the header Idempotency-Key, for a key that is not ASCII."""
    start: BeginBody | None = None
    """Starts a workflow that does not exist, in the same commit. If the event is refused, nothing is started."""


class BatchLine(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """One line of a batch."""

    id: str
    event: str
    data: JsonObject = msgspec.field(default_factory=_empty)
    key: str | None = None
    start: BeginBody | None = None


class ResolveBody(msgspec.Struct, forbid_unknown_fields=True):
    """The note of a person who resolved a dead letter."""

    note: Annotated[str, msgspec.Meta(min_length=1, max_length=10_000)]


class BreakerBody(msgspec.Struct, forbid_unknown_fields=True):
    """State of a breaker and limits of its dependency. A member that is left out keeps its value."""

    state: Literal["open", "closed", "auto"] | msgspec.UnsetType = msgspec.UNSET
    concurrency_max: Annotated[int, msgspec.Meta(ge=1)] | msgspec.UnsetType = msgspec.UNSET
    rate_per_s: Annotated[float, msgspec.Meta(gt=0)] | msgspec.UnsetType | None = msgspec.UNSET


class LimitBody(msgspec.Struct, forbid_unknown_fields=True):
    """Limits of a dependency. A member that is left out keeps its value; a rate of null removes the limit."""

    concurrency_max: Annotated[int, msgspec.Meta(ge=1)] | msgspec.UnsetType = msgspec.UNSET
    rate_per_s: Annotated[float, msgspec.Meta(gt=0)] | msgspec.UnsetType | None = msgspec.UNSET


class AdmissionBody(msgspec.Struct, forbid_unknown_fields=True):
    """Admission limits of this process; a member that is left out gets its default."""

    rate_per_s: Annotated[float, msgspec.Meta(gt=0)] | None = None
    burst: Annotated[float, msgspec.Meta(ge=1)] | None = None
    in_flight_max: Annotated[int, msgspec.Meta(ge=1)] = Admission().in_flight_max


class ScheduleBody(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """A schedule: the machine that it starts, `cron` or `every_s`, and the context of its workflows."""

    machine: str
    cron: str | None = None
    every_s: Annotated[float, msgspec.Meta(gt=0)] | None = None
    timezone: str = "UTC"
    context: JsonObject = msgspec.field(default_factory=_empty)
    overlap: Overlap = "skip"
    catch_up: CatchUp = "last"


class BackfillBody(msgspec.Struct, forbid_unknown_fields=True):
    """The due times from `since` up to and without `until`."""

    since: Annotated[datetime, msgspec.Meta(tz=True)]
    until: Annotated[datetime, msgspec.Meta(tz=True)]


class PauseBody(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """What to pause or resume: the workflow `id`, or a machine, or one state of it; and why."""

    id: str | None = None
    machine: str | None = None
    state: str | None = None
    by: str = ""
    """Who wants it, where that is not the holder of the key; the key is recorded too."""
    note: Annotated[str, msgspec.Meta(max_length=10_000)] = ""


class BulkBody(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """What to do with all workflows of a filter: send an event, retry their dead letters, pause or resume them."""

    machine: str
    action: BulkAction
    state: str | None = None
    where: list[str] = []
    """Conditions on searchable fields, as in the listing of workflows."""
    updated_after: Annotated[datetime, msgspec.Meta(tz=True)] | None = None
    updated_before: Annotated[datetime, msgspec.Meta(tz=True)] | None = None
    event: str | None = None
    """For `send`: the event, with its `data`."""
    data: JsonObject = msgspec.field(default_factory=_empty)
    kind: Literal["step", "effect", "undo"] | None = None
    """For `retry`: only dead letters of this kind."""
    letter: str | None = None
    """For `retry`: only those of the step, effect or undo of this name."""
    error: str | None = None
    """For `retry`: only those with this error, or of this group of errors."""
    note: Annotated[str, msgspec.Meta(max_length=10_000)] = ""
    rate_per_s: Annotated[float, msgspec.Meta(gt=0)] | None = None


class PruneBody(msgspec.Struct, forbid_unknown_fields=True):
    """The workflows to prune: those that ended `older_than_s` ago, or only their history."""

    older_than_s: Annotated[float, msgspec.Meta(le=1e10)]
    history_only: bool = False
    with_owed: bool = False
    dry_run: bool = False
    batch: int = BATCH
    limit: Annotated[int, msgspec.Meta(ge=1, le=PRUNE_WORKFLOWS_MAX)] = PRUNE_WORKFLOWS
    """Stop after the batch that reaches this number of workflows; a dry run counts until its time is over."""


class Statement(msgspec.Struct, forbid_unknown_fields=True):
    """One SQL statement with its parameters."""

    sql: Annotated[str, msgspec.Meta(min_length=1)]
    params: list[object] = []
    """JSON values; other types are {"$numeric": …}, {"$timestamptz": …}, {"$uuid": …} or {"$bytes": …}."""


class TransactionBody(msgspec.Struct, forbid_unknown_fields=True):
    """Statements that are committed together or not at all."""

    statements: Annotated[list[Statement], msgspec.Meta(min_length=1)]
    key: str | None = None


# --- Answers ---------------------------------------------------------------------------------------------------------


class ShownWorkflow(msgspec.Struct, frozen=True, kw_only=True):
    """A workflow."""

    id: str
    machine: str
    state: str
    context: JsonObject
    version: int
    created_at: datetime
    updated_at: datetime
    waiting: str | msgspec.UnsetType | None = None
    """UNSET where the machine's code is missing: then it is unknown."""
    timers: tuple[Timer, ...] = ()
    """The timers that are set, the next one first."""
    parent: str | msgspec.UnsetType = msgspec.UNSET
    """The id of the workflow that started it as a child; left out of other workflows."""
    paused: bool = False
    """Whether nothing begins for it until it, its state or its machine is resumed."""


class ShownMove(msgspec.Struct, frozen=True, kw_only=True):
    """The outcome of an event."""

    id: str
    state: str
    version: int
    duplicate: bool = False
    ignored: bool = False


class ShownRewind(msgspec.Struct, frozen=True, kw_only=True):
    """A workflow that is set back to an earlier version, and what is undone first, in this order."""

    id: str
    to_version: int
    state: str
    """The state of that version; of a repetition after its end, the state in which the workflow is now."""
    version: int
    """The version with which it has begun; of a dry run, the version of the workflow now."""
    undo: tuple[RunToUndo, ...] = ()
    """Of a repetition, what is still owed of it."""
    duplicate: bool = False


class ShownRow(msgspec.Struct, frozen=True, kw_only=True):
    """A row of history; `context` is the context after the transition."""

    version: int
    from_state: str
    to_state: str
    event: str
    payload: JsonObjectOrNull
    context: JsonObject
    key: str | None
    created_at: datetime
    by: str | None = None
    """The actor who caused it: a key with the person whom it named, or a caller's `by`; null for the machine's own."""


class ShownAllowed(msgspec.Struct, frozen=True, kw_only=True):
    """An event that has a transition from the current state."""

    event: str
    to: str
    guards: tuple[str, ...] = ()
    blocked_by: str | None = None
    reason: str | None = None


class ShownTask(Task, frozen=True, kw_only=True):
    """A task with the forms of its events."""

    forms: dict[str, dict[str, object]]
    """The JSON schema of the fields of each event, by the event's name."""


class ShownStarts(msgspec.Struct, frozen=True):
    """Workflows that a schedule starts by hand."""

    name: str
    count: int
    id: str | None = None
    """The workflow, where it is one."""


class ShownLetterGroup(msgspec.Struct, frozen=True, kw_only=True):
    """Dead letters of one machine, of one step, effect or undo, with the same error."""

    machine: str
    kind: str
    name: str
    group: str
    """The error without what differs: its first line, with quoted texts and numbers as "…"."""
    count: int
    since: datetime
    """When the oldest gave up."""
    latest: datetime
    example: str
    """A workflow of the group."""


class ShownIdentity(msgspec.Struct, frozen=True, kw_only=True):
    """The client of a request, and what it may do."""

    actor: str
    """Its name in history and the audit log."""
    scopes: tuple[str, ...]
    """From the least to the most: "read", "send", "operate", "admin"."""
    machines: tuple[str, ...] = ()
    """The machines that its key is limited to; empty without such a limit."""
    prefixes: tuple[str, ...] = ()
    """The beginnings of ids that its key is limited to; empty without such a limit."""


class ShownResume(msgspec.Struct, frozen=True):
    """Whether it was paused."""

    resumed: bool


class ShownRuling(msgspec.Struct, frozen=True, kw_only=True):
    """The ruling on a dead letter."""

    id: str
    ruling: Literal["retried", "resolved"]


class ShownResult(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a statement: its rows, or the number of rows it changed."""

    count: int
    rows: list[dict[str, object]] | None = None


class ShownTransaction(msgspec.Struct, frozen=True, kw_only=True):
    """The results of a transaction's statements, in order."""

    results: list[ShownResult]


class ShownPruned(msgspec.Struct, frozen=True, kw_only=True):
    """Number of workflows and events that were removed (or would be); `more` if some were not examined."""

    workflows: int
    events: int
    more: bool


class ShownHot(HotRow, frozen=True, kw_only=True):
    """A row or workflow that writers contend for."""

    database: str | None = None
    """None for a workflow; then `table` is its machine and `key` its id."""


class ShownHealth(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Whether the server can be used."""

    status: Literal["ok", "unavailable"]
    reason: str | None = None


class ShownDelivery(msgspec.Struct, frozen=True, kw_only=True):
    """The outcome of a webhook's delivery."""

    ignored: bool
    duplicate: bool = False
    id: str | None = None
    state: str | None = None
    version: int | None = None


class Listing(msgspec.Struct, Generic[ValueT], frozen=True):
    """One page of items, and the cursor of the next page."""

    items: tuple[ValueT, ...]
    cursor: str | None = None


# --- Engine values to answers ----------------------------------------------------------------------------------------


def shown_view(bound: BoundMachine | None, view: View[Enum, object]) -> ShownWorkflow:
    """Convert a workflow to its JSON form; without the machine its context is plain JSON."""
    return ShownWorkflow(
        id=view.id,
        machine=view.machine,
        state=state_text(view.state),
        context=msgspec.Raw(encode(view.context) if bound is None else bound.codec.encode_context(view.context)),
        version=view.version,
        created_at=view.created_at,
        updated_at=view.updated_at,
        waiting=view.waiting,
        timers=view.timers,
        parent=msgspec.UNSET if view.parent is None else view.parent,
        paused=view.paused,
    )


def shown_rewind(found: Rewind) -> ShownRewind:
    """Convert a rewind to its JSON form."""
    return ShownRewind(
        id=found.workflow,
        to_version=found.to_version,
        state=state_text(found.state),
        version=found.version,
        undo=found.undo,
        duplicate=found.duplicate,
    )


def shown_move(workflow: str, moved: Moved[Enum]) -> ShownMove:
    """Convert the outcome of an event to its JSON form."""
    return ShownMove(
        id=workflow,
        state=state_text(moved.state),
        version=moved.version,
        duplicate=moved.duplicate,
        ignored=moved.ignored,
    )


def shown_row(bound: BoundMachine | None, row: HistoryRow[Enum, object]) -> ShownRow:
    """Convert a row of history to its JSON form; without the machine its values are plain JSON."""
    payload = encode(row.payload) if bound is None else bound.payload(row.payload)
    return ShownRow(
        version=row.version,
        from_state=state_text(row.from_state),
        to_state=state_text(row.to_state),
        event=row.event,
        payload=msgspec.Raw(payload) if payload else NULL,
        context=msgspec.Raw(encode(row.context) if bound is None else bound.context_text(row.context)),
        key=row.key,
        created_at=row.created_at,
        by=row.by,
    )


def shown_allowed(allowed: Allowed[Enum]) -> ShownAllowed:
    """Convert an allowed event to its JSON form."""
    return ShownAllowed(
        event=allowed.event,
        to=state_text(allowed.to),
        guards=allowed.guards,
        blocked_by=allowed.blocked_by,
        reason=allowed.reason,
    )


def shown_hot(database: str | None, row: HotRow) -> ShownHot:
    """Convert a contended row or workflow to its JSON form."""
    return ShownHot(database=database, **msgspec.structs.asdict(row))


# --- Answers to engine values ----------------------------------------------------------------------------------------

STEP_FAILED = "STEP_FAILED"


class Reader:
    """Converts JSON to values; with a machine, to that machine's types."""

    def __init__(self, machine: AnyMachine | None = None) -> None:
        self._bound = None if machine is None else BoundMachine(machine)

    def view(self, wire: ShownWorkflow) -> View[Enum, object]:
        """Convert a workflow."""
        return View(
            id=wire.id,
            machine=wire.machine,
            state=self.state(wire.state),
            context=self._context(wire.context, wire.id),
            version=wire.version,
            created_at=wire.created_at,
            updated_at=wire.updated_at,
            waiting=None if wire.waiting is msgspec.UNSET else wire.waiting,
            timers=wire.timers,
            parent=None if wire.parent is msgspec.UNSET else wire.parent,
            paused=wire.paused,
        )

    def views(self, wire: Iterable[ShownWorkflow]) -> list[View[Enum, object]]:
        """Convert workflows."""
        return [self.view(each) for each in wire]

    def moved(self, wire: ShownMove) -> Moved[Enum]:
        """Convert the answer to an event."""
        return Moved(state=self.state(wire.state), version=wire.version, duplicate=wire.duplicate, ignored=wire.ignored)

    def rewind(self, wire: ShownRewind) -> Rewind:
        """Convert a rewind."""
        return Rewind(
            workflow=wire.id,
            to_version=wire.to_version,
            state=self.state(wire.state),
            version=wire.version,
            undo=wire.undo,
            duplicate=wire.duplicate,
        )

    def row(self, wire: ShownRow) -> HistoryRow[Enum, object]:
        """Convert a row of history."""
        return HistoryRow(
            version=wire.version,
            from_state=self._past_state(wire.from_state),
            to_state=self._past_state(wire.to_state),
            event=wire.event,
            payload=self._payload(wire),
            context=self._past_context(wire.context),
            key=wire.key,
            created_at=wire.created_at,
            by=wire.by,
        )

    def allowed(self, wire: ShownAllowed) -> Allowed[Enum]:
        """Convert an allowed transition."""
        return Allowed(wire.event, self.state(wire.to), wire.guards, wire.blocked_by, wire.reason)

    def knows(self, state: str) -> bool:
        """Return whether the machine has this state; without a machine every name is one."""
        return self._bound is None or state in self._bound.stored

    def takes(self, event: Event | str) -> bool:
        """Return whether the machine has this event in its alphabet."""
        if self._bound is None:
            return False
        events = self._bound.table.events
        return event in events if isinstance(event, str) else type(event) in events.values()

    def state(self, name: str) -> Enum:
        """Return the state of this name."""
        if self._bound is None:
            return plain_state(name)
        try:
            return self._bound.node_of(name).state
        except errors.CorruptionError:
            raise errors.InvalidPayload(
                f"the server has a {self._bound.name!r} workflow in state {name!r}, which the client's machine lacks.",
                why="The two sides run different versions of the machine.",
                fix=f"Update the machine of this client, or call without it: `client.of({self._bound.name!r}).get(…)`.",
            ) from None

    def _past_state(self, name: str) -> Enum:
        return self.state(name) if self.knows(name) else plain_state(name)

    def _context(self, data: msgspec.Raw, where: str) -> object:
        if self._bound is None:
            return cast("object", msgspec.json.decode(data))
        try:
            return cast("object", self._bound.codec.decode_context(bytes(data)))
        except errors.InvalidPayload as error:
            raise errors.InvalidPayload(
                f"the context at the server ({where}) does not fit this client's machine: {error.what}",
                why="The two sides run different versions of the machine.",
                fix=f"Update the machine of this client, or call without it: `client.of({self._bound.name!r}).get(…)`.",
            ) from error

    def _past_context(self, data: msgspec.Raw) -> object:
        if self._bound is None:
            return cast("object", msgspec.json.decode(data))
        return cast("object", self._bound.codec.read_context(bytes(data)))

    def _payload(self, wire: ShownRow) -> Event | StepFailure | StoredJson | None:
        data = bytes(wire.payload)
        if data == b"null":
            return None
        if wire.event == STEP_FAILED:
            return msgspec.json.decode(data, type=StepFailure)
        if self._bound is None:
            # Plain JSON where the type says an event: without the machine there is no event class.
            return cast("Event", msgspec.json.decode(data))
        return self._bound.read_payload(wire.event, data)


# --- Problem documents (RFC 9457) ------------------------------------------------------------------------------------
# A problem's `code` is that of the error, its `what` says what happened, its `detail` adds why, and its `fix` is the
# remedy. Further facts of an error (the state, the allowed events, a time to wait) are members with the names of its
# attributes. An error that crosses the wire has the same class and text on the other side.


class Problem(msgspec.Struct, kw_only=True, omit_defaults=True):
    """A problem document."""

    type: str
    title: str
    """The type of the problem: the same sentence each time."""
    status: int
    detail: str
    """What happened this time, and why."""
    code: str
    what: str
    """What happened this time: the first part of `detail`, without the reason."""
    fix: str
    retry: str | None = None
    """When a repetition may help: "now" or "later"."""
    retry_after_s: float | None = None
    id: str | None = None
    """The workflow, in a line of a batch."""
    machine: str | None = None
    state: str | None = None
    event: str | None = None
    allowed: tuple[str, ...] | None = None
    guard: str | None = None
    guards: tuple[str, ...] | None = None
    reasons: tuple[str, ...] | None = None
    """The descriptions of the guards that refused the event."""
    size_bytes: int | None = None
    limit_bytes: int | None = None
    correlation_id: str | None = None
    """The id under which the traceback of a bug is in the server's log."""
    by: str | None = None
    """The person who has claimed the task."""
    since: datetime | None = None
    """When it was claimed."""
    decided: errors.DecidedMove | None = None
    """How the task was decided before."""


ERROR_MEMBERS: dict[type[errors.InterlockError], dict[str, tuple[object, object]]] = {
    errors.DefinitionError: {"rule": (str, ""), "location": (str, "")},
    errors.MissingExtra: {"extra": (str, "")},
    errors.Refusal: {"machine": (str, ""), "state": (str, ""), "event": (str, ""), "allowed": (tuple[str, ...], ())},
    errors.InvalidTransition: {"decided": (errors.DecidedMove | None, None)},
    errors.VersionConflict: {"decided": (errors.DecidedMove | None, None)},
    errors.TaskClaimed: {"by": (str, ""), "since": (datetime | None, None)},
    errors.GuardRejected: {"guard": (str, ""), "guards": (tuple[str, ...], ()), "reasons": (tuple[str, ...], ())},
    errors.NotAuthenticated: {"presented": (bool, False)},
    errors.UserCodeError: {"machine": (str, ""), "event": (str, ""), "correlation_id": (str, "")},
    errors.PayloadTooLarge: {"size_bytes": (int, 0), "limit_bytes": (int, 0)},
    errors.RetryAfter: {"seconds": (float, 1.0)},
    errors.Overloaded: {"retry_after_s": (float, 1.0)},
    errors.MovedElsewhere: {"url": (str, ""), "epoch": (int, 0)},
    errors.LeaseHeld: {"lease": (str, ""), "owner": (str, ""), "since": (datetime | None, None)},
}
"""Further attributes of errors: the type of each, and its value when a document lacks it."""


_MEMBERS: dict[type[errors.InterlockError], dict[str, tuple[object, object]]] = {}


def members_of(cls: type[errors.InterlockError]) -> dict[str, tuple[object, object]]:
    """Return the members of ERROR_MEMBERS for a class, with those of its parents."""
    found = _MEMBERS.get(cls)
    if found is None:
        found = _MEMBERS[cls] = {}
        for each in reversed(cls.__mro__):
            found |= ERROR_MEMBERS.get(cast("type[errors.InterlockError]", each), {})
    return found


# --- Signals of the stream -------------------------------------------------------------------------------------------


def kind_of(cls: type[Signal]) -> str:
    """Return the name of a signal in the stream: transition_applied for TransitionApplied."""
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "_", cls.__name__).lower()


KINDS: dict[str, type[Signal]] = {kind_of(cls): cls for cls in Signal.__args__}
"""The signals of a stream by name."""
