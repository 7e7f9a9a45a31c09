"""JSON bodies of requests and answers: one struct for each, described by OpenAPI.

Contexts and payloads are the machine's own JSON, as stored: nothing is lost or reordered.
"""

from datetime import datetime
from enum import Enum
from typing import Annotated, Literal

import msgspec

from interlock.core.values import Allowed
from interlock.engine.bound_machine import BoundMachine, state_text
from interlock.engine.views import HistoryRow, Moved, View

JsonObject = Annotated[msgspec.Raw, msgspec.Meta(extra_json_schema={"type": "object"})]
"""A JSON object of a machine; `GET /v1/machines` has its schema."""

EMPTY = msgspec.Raw(b"{}")


def _empty() -> msgspec.Raw:
    return EMPTY


class StartBody(msgspec.Struct, forbid_unknown_fields=True):
    """A workflow to start."""

    id: str
    context: JsonObject = msgspec.field(default_factory=_empty)


class EventBody(msgspec.Struct, forbid_unknown_fields=True):
    """An event to send."""

    event: str
    data: JsonObject = msgspec.field(default_factory=_empty)
    key: str | None = None
    """As the header Idempotency-Key, for a key that is not ASCII."""


class BatchLine(msgspec.Struct, forbid_unknown_fields=True):
    """One line of a batch."""

    id: str
    event: str
    data: JsonObject = msgspec.field(default_factory=_empty)
    key: str | None = None


class ResolveBody(msgspec.Struct, forbid_unknown_fields=True):
    """The note of a person who resolved a dead letter."""

    note: Annotated[str, msgspec.Meta(min_length=1, max_length=10_000)]


class BreakerBody(msgspec.Struct, forbid_unknown_fields=True):
    """State of a breaker and limits of its dependency. A member that is left out keeps its value."""

    state: Literal["open", "closed", "auto"] | msgspec.UnsetType = msgspec.UNSET
    concurrency_max: Annotated[int, msgspec.Meta(ge=1)] | msgspec.UnsetType = msgspec.UNSET
    rate_per_s: Annotated[float, msgspec.Meta(gt=0)] | msgspec.UnsetType | None = msgspec.UNSET


class Statement(msgspec.Struct, forbid_unknown_fields=True):
    """One SQL statement with its parameters."""

    sql: Annotated[str, msgspec.Meta(min_length=1)]
    params: list[object] = []
    """JSON values; other types are {"$numeric": …}, {"$timestamptz": …}, {"$uuid": …} or {"$bytes": …}."""


class TransactionBody(msgspec.Struct, forbid_unknown_fields=True):
    """Statements that are committed together or not at all."""

    statements: Annotated[list[Statement], msgspec.Meta(min_length=1)]
    key: str | None = None


class ShownWorkflow(msgspec.Struct, kw_only=True):
    """A workflow."""

    id: str
    machine: str
    state: str
    context: JsonObject
    version: int
    created_at: datetime
    updated_at: datetime
    waiting: str | None = None


class ShownMove(msgspec.Struct, kw_only=True):
    """The outcome of an event."""

    id: str
    state: str
    version: int
    duplicate: bool = False
    ignored: bool = False


class ShownRow(msgspec.Struct, kw_only=True):
    """A row of history; `context` is the context after the transition."""

    version: int
    from_state: str
    to_state: str
    event: str
    payload: JsonObject | None
    context: JsonObject
    key: str | None
    created_at: datetime


class ShownAllowed(msgspec.Struct, kw_only=True):
    """An event that has a transition from the current state."""

    event: str
    to: str
    guards: tuple[str, ...] = ()
    blocked_by: str | None = None
    reason: str | None = None


class ShownRuling(msgspec.Struct, kw_only=True):
    """The ruling on a dead letter."""

    id: str
    ruling: Literal["retried", "resolved"]


class ShownResult(msgspec.Struct, kw_only=True):
    """The result of a statement: its rows, or the number of rows it changed."""

    count: int
    rows: list[dict[str, object]] | None = None


class ShownTransaction(msgspec.Struct, kw_only=True):
    """The results of a transaction's statements, in order."""

    results: list[ShownResult]


class ShownHealth(msgspec.Struct, kw_only=True, omit_defaults=True):
    """Whether the server can be used."""

    status: Literal["ok", "unavailable"]
    reason: str | None = None


class ShownDelivery(msgspec.Struct, kw_only=True):
    """The outcome of a webhook's delivery."""

    ignored: bool
    duplicate: bool = False
    id: str | None = None
    state: str | None = None
    version: int | None = None


def shown_view(bound: BoundMachine, view: View[Enum, object]) -> ShownWorkflow:
    """Convert a workflow to its JSON form."""
    return ShownWorkflow(
        id=view.id,
        machine=view.machine,
        state=state_text(view.state),
        context=msgspec.Raw(bound.codec.encode_context(view.context)),
        version=view.version,
        created_at=view.created_at,
        updated_at=view.updated_at,
        waiting=view.waiting,
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


def shown_row(bound: BoundMachine, row: HistoryRow[Enum, object]) -> ShownRow:
    """Convert a row of history to its JSON form."""
    payload = bound.payload(row.payload)
    return ShownRow(
        version=row.version,
        from_state=state_text(row.from_state),
        to_state=state_text(row.to_state),
        event=row.event,
        payload=msgspec.Raw(payload) if payload else None,
        context=msgspec.Raw(bound.context_text(row.context)),
        key=row.key,
        created_at=row.created_at,
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
