"""Conversion between a store's values and the columns of its tables.

A context is JSON and stored as text, so that users can read it with SQL; in memory it is bytes, because
it is only ever passed on.
"""

from typing import Any

from interlock.store.values import Delivered, Happened, Row

ROW = (
    "id, workflow_type, machine_version, state, context, version, visit, active, created_at, updated_at, entered_at, "
    "digest, owed, wake_at, duplicates, ignored, refused, revision"
)
HAPPENED = "workflow_id, version, from_state, to_state, event, payload, context, created_at, key, key_digest"

ENTERED_AT = 10
"""Index of `entered_at` in `ROW`."""


def starting(row: Row) -> tuple[object, ...]:
    """Return every column of a new workflow but its number."""
    duplicates, ignored, refused = row.counts
    return (
        row.id,
        row.machine,
        row.machine_version,
        row.state,
        row.context.decode(),
        row.version,
        row.visit,
        row.active,
        row.created_us,
        row.updated_us,
        row.entered_us,
        row.digest,
        row.owed,
        row.wake_us,
        duplicates,
        ignored,
        refused,
        row.revision,
    )


def moving(row: Row, number: int, expected: int) -> tuple[object, ...]:
    """Return the columns that a transition may change, and those by which it finds its workflow."""
    duplicates, ignored, refused = row.counts
    return (
        row.machine_version,
        row.state,
        row.context.decode(),
        row.version,
        row.visit,
        row.active,
        row.updated_us,
        row.entered_us,
        row.owed,
        row.wake_us,
        duplicates,
        ignored,
        refused,
        row.revision,
        number,
        expected,
        row.id,
    )


def happening(number: int, happened: Happened) -> tuple[object, ...]:
    """Return the columns of one row of history of the workflow with that number."""
    return (
        number,
        happened.workflow,
        happened.version,
        happened.from_state,
        happened.to_state,
        happened.event,
        happened.payload.decode(),
        happened.context.decode(),
        happened.created_us,
        happened.key,
        happened.key_digest or None,
    )


def row_of(values: tuple[Any, ...]) -> Row:
    """Return the workflow in the columns `ROW`; later columns are ignored."""
    context, active, counts = values[4].encode(), bool(values[7]), values[14:17]
    return Row(*values[:4], context, *values[5:7], active, *values[8:14], counts, values[17])  # type: ignore[call-arg]


def happened_of(values: tuple[Any, ...]) -> Happened:
    """Return the row of history in the columns `HAPPENED`."""
    context, digest = values[6].encode(), values[9] or b""
    return Happened(*values[:5], values[5].encode(), context, *values[7:9], digest)  # type: ignore[call-arg]


def delivered_of(values: tuple[Any, ...]) -> Delivered:
    """Return the recorded use of a key from version, to_state and key_digest."""
    version, to_state, digest = values
    return Delivered(version, to_state, digest or b"")
