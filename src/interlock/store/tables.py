"""The tables of a store on a lane, and their format.

`workflows` is clustered by a number that each workflow gets when it is started, and so is the index over its history.
Workflows that are young together move together, so a group touches few pages, whatever the ids look like; history
itself is only ever appended to. One index beside the keys serves `stalled` and `find` by state; the one that serves
`find` by machine is written only when a workflow starts. Wake times have no index: a lane has one owner, which keeps
them in memory, and finds them again by state.

The format is written down when the tables are made. A later one is refused: guessing at its meaning could lose a
workflow. An earlier one is where a later version of Interlock begins to migrate.
"""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# apsw's stubs leave the values of SQLite partly open; mypy --strict looks at what is ours.

from typing import cast

import apsw

from interlock.errors import UnusableFile
from interlock.lanes.session import Session

FORMAT = 1

TABLES = """
CREATE TABLE workflows (
    number INTEGER PRIMARY KEY,
    id TEXT NOT NULL UNIQUE,
    workflow_type TEXT NOT NULL,
    machine_version INTEGER NOT NULL,
    state TEXT NOT NULL,
    context TEXT NOT NULL,
    version INTEGER NOT NULL,
    visit INTEGER NOT NULL,
    active INTEGER NOT NULL,
    created_at INTEGER NOT NULL,
    updated_at INTEGER NOT NULL,
    entered_at INTEGER NOT NULL,
    digest BLOB NOT NULL,
    owed BLOB NOT NULL,
    wake_at INTEGER,
    duplicates INTEGER NOT NULL,
    ignored INTEGER NOT NULL,
    refused INTEGER NOT NULL,
    revision INTEGER NOT NULL
);
CREATE INDEX workflows_by_type ON workflows (workflow_type);
CREATE INDEX workflows_by_state ON workflows (workflow_type, state, entered_at);
CREATE TABLE workflow_events (
    id INTEGER PRIMARY KEY,
    workflow INTEGER NOT NULL,
    version INTEGER NOT NULL,
    workflow_id TEXT NOT NULL,
    from_state TEXT NOT NULL,
    to_state TEXT NOT NULL,
    event TEXT NOT NULL,
    payload TEXT NOT NULL,
    context TEXT NOT NULL,
    created_at INTEGER NOT NULL,
    key TEXT,
    key_digest BLOB
);
CREATE UNIQUE INDEX workflow_events_by_version ON workflow_events (workflow, version);
CREATE UNIQUE INDEX workflow_events_by_key ON workflow_events (workflow, key) WHERE key IS NOT NULL;
CREATE TABLE workflow_effects (
    id TEXT PRIMARY KEY, workflow TEXT NOT NULL, version INTEGER NOT NULL, name TEXT NOT NULL,
    attempts INTEGER NOT NULL, wake_at INTEGER NOT NULL, context BLOB NOT NULL
) WITHOUT ROWID;
CREATE INDEX workflow_effects_to_wake ON workflow_effects (wake_at);
CREATE TABLE dead_letters (
    id TEXT PRIMARY KEY, kind TEXT NOT NULL, workflow TEXT NOT NULL, name TEXT NOT NULL, attempts INTEGER NOT NULL,
    error TEXT NOT NULL, since INTEGER NOT NULL, version INTEGER NOT NULL, key TEXT NOT NULL, context BLOB NOT NULL
) WITHOUT ROWID;
CREATE INDEX dead_letters_by_age ON dead_letters (since);
CREATE TABLE leases (
    name TEXT PRIMARY KEY, owner TEXT NOT NULL, token INTEGER NOT NULL, since INTEGER NOT NULL, until INTEGER
) WITHOUT ROWID;
CREATE TABLE notes (name TEXT PRIMARY KEY, text TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE workflow_store (id INTEGER PRIMARY KEY CHECK (id = 1), format INTEGER NOT NULL, time_us INTEGER NOT NULL);
"""
NAMES = ("workflows", "workflow_events", "workflow_effects", "dead_letters", "leases", "notes", "workflow_store")

PRESENT = f"SELECT name FROM sqlite_schema WHERE type = 'table' AND name IN ({', '.join('?' * len(NAMES))})"  # noqa: S608


def written_time_us(connection: apsw.Connection) -> int | None:
    """Return the last time that was written with a group, or None without tables.

    Raises UnusableFile when the tables are of a later version, or not a store's.
    """
    present = {name for (name,) in connection.cursor().execute(PRESENT, NAMES)}
    if not present:
        return None
    if "workflow_store" not in present:
        raise UnusableFile(
            f"the database of the workflows has a table {min(present)!r} that no store has made.",
            why="Workflows live in the database `workflows` of their home, and another program has used it before.",
            fix="Move that database to another name, or use another home for workflows.",
        )
    ((form, time_us),) = connection.cursor().execute("SELECT format, time_us FROM workflow_store").fetchall()
    if form != FORMAT:
        raise UnusableFile(
            f"the workflows are kept in format {form}; this version knows {FORMAT}.",
            why="Another version of Interlock wrote them, and guessing at their meaning could lose some.",
            fix="Use the version of Interlock that wrote them, or a later one.",
        )
    return cast("int", time_us)


def make_tables(session: Session) -> None:
    """Create the tables, in one transaction with their format."""
    session.lend(_make)


def _make(connection: apsw.Connection) -> None:
    connection.cursor().execute(TABLES)
    connection.cursor().execute("INSERT INTO workflow_store VALUES (1, ?, 0)", (FORMAT,))
