"""The store on a lane: workflows in one local file, or the same on a bucket.

A lane has one owner, so revisions are checked and never lost to another process. A change is lost only when its caller
was wrong about the revision, and then nothing of it is written.

Reads run beside the writer and are short: what could be long is returned in pages, each of which sees one moment.
Contexts are JSON and stored as text, so that users can read them with SQL.

Sections: columns, groups, leases, pruning, tables, store, arrival after a move.
"""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# apsw's stubs leave the values of SQLite partly open; mypy --strict looks at what is ours.

import asyncio
import contextlib
import functools
import re
import socket
from collections.abc import Awaitable, Callable, Generator, Iterator, Mapping, Sequence
from functools import partial
from itertools import chain, repeat
from pathlib import Path
from typing import Any, NamedTuple, TypeVar, cast

import apsw
import msgspec

from interlock.catalog.open_lane import closing_thread
from interlock.clock import Clock
from interlock.core.search import MachineSearch, Search
from interlock.errors import (
    ConstraintViolation,
    InternalError,
    InvalidPayload,
    TransactionError,
    UnavailableError,
    UnusableFile,
)
from interlock.lanes.handover import one_snapshot, tombstone_of
from interlock.lanes.hot_rows import Rows
from interlock.lanes.lane import Lane
from interlock.lanes.sqlite_connection import opening
from interlock.lanes.writer import Session, Work
from interlock.store import lane_search
from interlock.store.chart_store import LANE_TABLE, LaneCharts
from interlock.store.protocol import Batch, Granted, Held, LeaseRow, Old, next_lease
from interlock.store.records import (
    Change,
    ChildRecord,
    Cursor,
    Delivered,
    HistoryRecord,
    Letter,
    OwedEffect,
    Row,
    RowsPage,
    StoreTime,
    parse_cursor,
    refuse_twice,
)
from interlock.store.search_pages import SearchPlan, page_steps, read_page

# --- Columns ---------------------------------------------------------------------------------------------------------

Run = Callable[..., Any]
"""Runs one statement on a cursor; its rows are as SQLite has them."""

Read = Callable[[Callable[[Run], Any]], Awaitable[Any]]
Write = Callable[[Callable[[apsw.Connection], Any]], Awaitable[Any]]
"""Runs a function as one transaction of the lane's writer."""

BEFORE_ALL_US = -(2**63)
"""A time before all others."""

FIRST_CURSOR = Cursor(BEFORE_ALL_US, 0)

ROW = (
    "id, workflow_type, machine_version, state, context, version, visit, active, created_at, updated_at, entered_at, "
    "digest, owed, wake_at, duplicates, ignored, refused, revision"
)
EVENT_COLUMNS = (
    "workflow_id, version, from_state, to_state, event, payload, context, created_at, key, key_digest, actor, attempts"
)

ENTERED_AT = 10
"""Index of `entered_at` in `ROW`."""


def start_columns(row: Row) -> tuple[object, ...]:
    """Return every column of a new workflow but its number, in the order of `ROW`."""
    duplicates, ignored, refused = row.counts
    return (
        row.id, row.machine, row.machine_version, row.state, row.context.decode(), row.version, row.visit, row.active,
        row.created_us, row.updated_us, row.entered_us, row.digest, row.owed, row.wake_us, duplicates, ignored, refused,
        row.revision,
    )  # fmt: skip


def move_columns(row: Row, number: int, expected: int) -> tuple[object, ...]:
    """Return the columns by which a transition finds its workflow, and those that it may change (see `_MOVED`)."""
    duplicates, ignored, refused = row.counts
    return (
        number, row.id, expected, row.machine_version, row.state, row.context.decode(), row.version, row.visit,
        row.active, row.updated_us, row.entered_us, row.owed, row.wake_us, duplicates, ignored, refused, row.revision,
    )  # fmt: skip


def event_columns(number: int, happened: HistoryRecord) -> tuple[object, ...]:
    """Return the columns of one row of history: the workflow's number, then `EVENT_COLUMNS`."""
    return (
        number, happened.workflow, happened.version, happened.from_state, happened.to_state, happened.event,
        happened.payload.decode(), happened.context.decode(), happened.created_us, happened.key,
        happened.key_digest or None, happened.by, happened.attempts or None,
    )  # fmt: skip


def row_of(values: tuple[Any, ...]) -> Row:
    """Return the workflow in the columns `ROW`; later columns are ignored."""
    context, active, counts = values[4].encode(), bool(values[7]), values[14:17]
    return Row(*values[:4], context, *values[5:7], active, *values[8:14], counts, values[17])  # type: ignore[call-arg]


def record_of(values: tuple[Any, ...]) -> HistoryRecord:
    """Return the row of history in the columns `EVENT_COLUMNS`."""
    context, digest, attempts = values[6].encode(), values[9] or b"", values[11] or b""
    return HistoryRecord(*values[:5], values[5].encode(), context, *values[7:9], digest, values[10], attempts)  # type: ignore[call-arg]


def delivered_of(values: tuple[Any, ...]) -> Delivered:
    """Return the recorded use of a key from version, to_state and key_digest."""
    version, to_state, digest = values
    return Delivered(version, to_state, digest or b"")


# --- Groups ----------------------------------------------------------------------------------------------------------
# A move finds its row by the workflow's number, which spares it the index over all ids. Numbers are read here and
# cached by the store only when the group is durable: the numbers of a group that was rolled back are given again. A
# wrong number would find a row of another id, and the change would be lost.
#
# A change is either written as a whole or leaves nothing: its row is written first, because that is where it is
# lost, and the history of all that were not lost goes in together at the end.
#
# Each statement writes many rows. SQLite runs it without the interpreter, which the engine's event loop uses meanwhile;
# a statement per row would wait for the interpreter twice per row. A statement has a fixed number of rows, so that it
# is prepared once; the rest of its rows are NULL, and do nothing.

SIZES = (1, 8, 32, 128)
"""Rows of a statement."""

_MOVED = (
    "machine_version", "state", "context", "version", "visit", "active", "updated_at", "entered_at", "owed", "wake_at",
    "duplicates", "ignored", "refused",
)  # fmt: skip
_SET = ", ".join(f"{name} = column{place}" for place, name in enumerate(_MOVED, 4))
_STALE = "workflows.revision"
"""Part of the error text for a row that has another revision or id than expected: it would become NULL."""

START = f"INSERT INTO workflows ({ROW}) {{insert}} ON CONFLICT (id) DO NOTHING"
MOVE = f"""
UPDATE workflows SET {_SET}, revision = iif(id = column2 AND revision = column3, column17, NULL)
{{source}} WHERE number = column1"""  # noqa: S608
USED = """
SELECT column1 FROM {joined} workflow_events INDEXED BY workflow_events_by_key
WHERE workflow = column1 AND key = column2"""
INSERT_EVENT = f"INSERT INTO workflow_events (workflow, {EVENT_COLUMNS}) {{insert}}"
NUMBER = "SELECT number FROM workflows WHERE id = ?"
STARTED = "SELECT id, number FROM workflows WHERE number > ?"
EXISTS = "SELECT 1 FROM workflows WHERE number = ?"
EFFECT = "INSERT OR REPLACE INTO workflow_effects VALUES (?, ?, ?, ?, ?, ?, ?)"
EFFECT_AGAIN = "UPDATE workflow_effects SET attempts = ?, wake_at = ? WHERE id = ? AND attempts = ?"
EFFECT_DEAD = "DELETE FROM workflow_effects WHERE id = ? AND attempts = ?"
EFFECT_DONE = "DELETE FROM workflow_effects WHERE id = ?"
LETTER = "INSERT OR REPLACE INTO dead_letters VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
LETTER_GONE = "DELETE FROM dead_letters WHERE id = ?"
CHILD = """
INSERT INTO workflow_children (id, parent, visit, position, state, stage) VALUES (?, ?, ?, ?, ?, ?)
ON CONFLICT (id) DO UPDATE SET state = excluded.state, stage = excluded.stage WHERE stage <= excluded.stage"""
TIME = "UPDATE workflow_store SET time_us = max(time_us, ?) WHERE id = 1"

Columns = tuple[object, ...]


class Applied(NamedTuple):
    """The result of a group, valid once it is durable."""

    lost: list[str]
    numbers: dict[str, int]
    """Numbers of workflows that were not cached before."""


@functools.cache
def statement(sql: str, columns: int, size: int) -> str:
    """Return the statement for `size` rows. For one row SQLite needs no table of rows, which costs half as much."""
    row = f"({', '.join('?' * columns)})"
    if size == 1:
        return re.sub(r"\bcolumn(\d+)", r"?\1", sql.format(insert=f"VALUES {row}", source="", joined=""))
    rows = f"(VALUES {', '.join([row] * size)})"
    insert = f"SELECT * FROM {rows} WHERE column1 IS NOT NULL"  # noqa: S608
    return sql.format(insert=insert, source=f"FROM {rows}", joined=f"{rows} CROSS JOIN")


def _run_rows(cursor: apsw.Cursor, sql: str, rows: Sequence[Columns]) -> apsw.Cursor:
    """Run a statement on at most `SIZES[-1]` rows."""
    count, columns = len(rows), len(rows[0])
    if count == 1:
        return cursor.execute(statement(sql, columns, 1), rows[0])
    size = next(size for size in SIZES if size >= count)
    values = [*chain.from_iterable(rows), *repeat(None, (size - count) * columns)]
    return cursor.execute(statement(sql, columns, size), values)


def _parts(rows: Sequence[Columns]) -> Iterator[Sequence[Columns]]:
    for begin in range(0, len(rows), SIZES[-1]):
        yield rows[begin : begin + SIZES[-1]]


def apply(connection: apsw.Connection, changes: Sequence[Change], numbers: Mapping[str, int], time_us: int) -> Applied:
    """Write the changes that are not lost, and the latest time that the store has returned (G8)."""
    # The signal for hot rows is about the tables of users; here it would cost a twentieth of everything.
    connection.preupdate_hook(None)
    cursor = connection.cursor()
    learned: dict[str, int] = {}
    moves: list[tuple[int, Change]] = []
    starts: list[Change] = []
    lost: set[str] = set()
    for change in changes:
        if not change.expected:
            starts.append(change)
        elif number := numbers.get(change.row.id) or _number(cursor, change.row.id, learned):
            moves.append((number, change))
        else:
            lost.add(change.row.id)
    lost |= _move_all(connection, cursor, moves)
    for part in _parts([start_columns(change.row) for change in starts]):
        learned |= _start(connection, cursor, part)
    for change in starts:
        if number := learned.get(change.row.id):
            moves.append((number, change))
        else:
            lost.add(change.row.id)
    if lost:
        moves = [each for each in moves if each[1].row.id not in lost]
    insert_events(cursor, [event_columns(number, each) for number, change in moves for each in change.history])
    _write_aside(cursor, changes, lost)
    cursor.execute(TIME, (time_us,))
    return Applied([change.row.id for change in changes if change.row.id in lost] if lost else [], learned)


def _write_aside(cursor: apsw.Cursor, changes: Sequence[Change], lost: set[str]) -> None:
    """Write effects, letters and children in the order of the changes: one may remove what another has written."""
    children: list[ChildRecord] = []
    for change in changes:
        if lost and change.row.id in lost:
            continue
        if (
            change.effects
            or change.effects_again
            or change.effects_dead
            or change.effects_done
            or change.letters
            or change.letters_gone
        ):
            _aside(cursor, change)
        if change.children:
            children += change.children
    if children:
        cursor.executemany(CHILD, map(msgspec.structs.astuple, children))


def insert_events(cursor: apsw.Cursor, events: Sequence[Columns]) -> None:
    """Write rows of history, each as `event_columns` returns it."""
    for part in _parts(events):
        _run_rows(cursor, INSERT_EVENT, part)


def _move_all(connection: apsw.Connection, cursor: apsw.Cursor, changes: Sequence[tuple[int, Change]]) -> set[str]:
    """Write the rows of workflows that exist, each with its number; return those of which nothing was written."""
    lost: set[str] = set()
    moves = [move_columns(change.row, number, change.expected) for number, change in changes]
    keys = [(number, each.key) for number, change in changes for each in change.history if each.key is not None]
    if keys:
        used = {number for part in _parts(keys) for (number,) in _run_rows(cursor, USED, part)}
        lost.update(cast("str", move[1]) for move in moves if move[0] in used)
        moves = [move for move in moves if move[0] not in used]
    for part in _parts(moves):
        lost.update(_move(connection, cursor, part))
    return lost


def _number(cursor: apsw.Cursor, workflow: str, learned: dict[str, int]) -> int | None:
    found = cursor.execute(NUMBER, (workflow,)).fetchone()
    if found is None:
        return None
    number = learned[workflow] = cast("int", found[0])
    return number


def _start(connection: apsw.Connection, cursor: apsw.Cursor, starts: Sequence[Columns]) -> dict[str, int]:
    """Write new workflows; return the numbers of those whose id was free. SQLite gives consecutive numbers."""
    _run_rows(cursor, START, starts)
    count, last = connection.changes(), connection.last_insert_rowid()
    if count == len(starts):
        return {cast("str", start[0]): number for number, start in enumerate(starts, last - count + 1)}
    found = cursor.execute(STARTED, (last - count,)) if count else ()
    return {cast("str", workflow): cast("int", number) for workflow, number in found}


def _move(connection: apsw.Connection, cursor: apsw.Cursor, moves: Sequence[Columns]) -> list[str]:
    """Write moves; return the workflows whose row is gone or not as expected. SQLite undoes a statement that fails."""
    try:
        _run_rows(cursor, MOVE, moves)
    except apsw.ConstraintError as error:
        if _STALE not in str(error):
            raise
        if len(moves) == 1:
            return [cast("str", moves[0][1])]
        half = len(moves) // 2
        return _move(connection, cursor, moves[:half]) + _move(connection, cursor, moves[half:])
    if connection.changes() == len(moves):
        return []
    return [cast("str", move[1]) for move in moves if cursor.execute(EXISTS, move[:1]).fetchone() is None]


def _aside(cursor: apsw.Cursor, change: Change) -> None:
    run = cursor.execute
    for effect in change.effects:
        run(EFFECT, msgspec.structs.astuple(effect))
    for again, known in change.effects_again:
        run(EFFECT_AGAIN, (again.attempts, again.wake_us, again.id, known))
    for dead in change.effects_dead:
        run(EFFECT_DEAD, (dead.id, dead.attempts))
    for done in change.effects_done:
        run(EFFECT_DONE, (done,))
    for letter in change.letters:
        run(LETTER, msgspec.structs.astuple(letter))
    for letter_id in change.letters_gone:
        run(LETTER_GONE, (letter_id,))


# --- Leases ----------------------------------------------------------------------------------------------------------
# The time is the store's, which never goes back and continues from the last written time (G8). A read alone finds a
# lease that another owner has, so waiting tasks write nothing.

FIND_LEASE = "SELECT owner, token, since, until FROM leases WHERE name = ?"
GIVE = "INSERT OR REPLACE INTO leases (name, owner, token, since, until) VALUES (?, ?, ?, ?, ?)"
RENEW = "UPDATE leases SET until = ? WHERE name = ? AND token = ? AND until IS NOT NULL"
RELEASE = "UPDATE leases SET until = NULL WHERE name = ? AND token = ? AND until IS NOT NULL"


class LaneLeases:
    """The leases of a store on a lane: exclusion between the tasks of its one owner, also after a restart."""

    def __init__(self, read: Read, write: Write, now_us: Callable[[], int]) -> None:
        self._read = read
        self._write = write
        self._now_us = now_us

    async def acquire(self, name: str, owner: str, lease_s: float) -> Granted | Held:
        """Grant the lease to the owner, unless another owner has it."""
        now_us = self._now_us()
        until_us = now_us + round(lease_s * 1_000_000)
        lease = next_lease(await self._read(lambda run: _find_lease(run, name)), owner, now_us, until_us)
        if isinstance(lease, Held):
            return lease
        granted: Granted | Held = await self._write(lambda on: _acquire(on, name, owner, now_us, until_us))
        return granted

    async def renew(self, name: str, token: int, lease_s: float) -> bool:
        """Extend the lease to `lease_s` from now."""
        return await self._change(RENEW, self._now_us() + round(lease_s * 1_000_000), name, token)

    async def release(self, name: str, token: int) -> bool:
        """Release the lease."""
        return await self._change(RELEASE, name, token)

    async def _change(self, sql: str, *values: object) -> bool:
        now_us = self._now_us()

        def change(connection: apsw.Connection) -> bool:
            connection.cursor().execute(sql, values)
            changed = connection.changes() > 0
            if changed:
                connection.cursor().execute(TIME, (now_us,))
            return changed

        return bool(await self._write(change))


def _find_lease(run: Run, name: str) -> LeaseRow | None:
    found = run(FIND_LEASE, (name,)).fetchone()
    return None if found is None else LeaseRow(*found)


def _acquire(connection: apsw.Connection, name: str, owner: str, now_us: int, until_us: int) -> Granted | Held:
    run = connection.cursor().execute
    # Read again: another task may have acquired it since the read.
    lease = next_lease(_find_lease(run, name), owner, now_us, until_us)
    if isinstance(lease, Held):
        return lease
    run(GIVE, (name, *lease))
    run(TIME, (now_us,))
    return Granted(lease.token)


# --- Pruning ---------------------------------------------------------------------------------------------------------
# A workflow's number is never given to another: pages and cached numbers depend on it. SQLite gives the highest one
# again when its row is gone, so the workflow that was started last of all stays until another one is started.

LOOK = """
SELECT number, id, entered_at, active OR wake_at IS NOT NULL FROM workflows INDEXED BY workflows_by_state
WHERE workflow_type = ?1 AND state = ?2 AND entered_at < ?3 AND (entered_at > ?4 OR (entered_at = ?4 AND number > ?5))
ORDER BY entered_at, number LIMIT ?6"""
LAST = "SELECT coalesce(max(number), 0) FROM workflows"
OWING = "SELECT workflow FROM workflow_effects UNION SELECT workflow FROM dead_letters"
UNCOUNTED = """
SELECT 1 FROM workflow_children INDEXED BY workflow_children_by_parent WHERE parent = ? AND stage < 2 LIMIT 1"""
AWAITED = """
SELECT 1 FROM workflow_children k JOIN workflows p ON p.id = k.parent WHERE k.id = ? AND p.visit = k.visit"""
EVENTS = "SELECT count(*) FROM workflow_events WHERE workflow = ?"
REMOVE_EVENTS = "DELETE FROM workflow_events WHERE workflow = ?"
REMOVE_ROW = "DELETE FROM workflows WHERE number = ?"
REMOVE_CHILDREN = "DELETE FROM workflow_children WHERE parent = ?"
REMOVE_ASIDE = ("DELETE FROM workflow_effects WHERE workflow = ?", "DELETE FROM dead_letters WHERE workflow = ?")


def _looked(run: Run, old: Old, begin: Cursor, limit: int) -> tuple[Batch, list[tuple[int, str]]]:
    found: list[tuple[int, str, int, int]] = run(
        LOOK, (old.machine, old.state, old.before_us, begin.entered_us, begin.number, limit)
    ).fetchall()
    [(last,)] = run(LAST).fetchall()
    owing: set[str] = set() if old.owing or not found else {workflow for (workflow,) in run(OWING)}
    chosen: list[tuple[int, str]] = []
    events = 0
    for number, workflow, _, busy in found:
        if busy or workflow in owing or (number == last and not old.history_only):
            continue
        if not (old.owing and old.history_only) and run(UNCOUNTED, (workflow,)).fetchall():
            continue
        if not old.history_only and run(AWAITED, (workflow,)).fetchall():
            continue
        [(count,)] = run(EVENTS, (number,)).fetchall()
        if count or not old.history_only:
            chosen.append((number, workflow))
            events += count
    end = Cursor(found[-1][2], found[-1][0]) if len(found) == limit else None
    return Batch(tuple(workflow for _, workflow in chosen), events, end), chosen


def _prune(connection: apsw.Connection, old: Old, begin: Cursor, limit: int) -> Batch:
    connection.preupdate_hook(None)  # The signal for hot rows is about the tables of users.
    cursor = connection.cursor()
    batch, chosen = _looked(cursor.execute, old, begin, limit)
    numbers = [(number,) for number, _ in chosen]
    cursor.executemany(REMOVE_EVENTS, numbers)
    if not old.history_only:
        cursor.executemany(REMOVE_ROW, numbers)
        cursor.executemany(REMOVE_CHILDREN, [(workflow,) for _, workflow in chosen])
        if old.owing:
            for sql in REMOVE_ASIDE:
                cursor.executemany(sql, [(workflow,) for _, workflow in chosen])
    return batch


# --- Tables ----------------------------------------------------------------------------------------------------------
# `workflows` is clustered by a number that each workflow gets when it is started, and so is the index over its
# history. Workflows that are young together move together, so a group touches few pages, whatever the ids look like;
# history itself is only ever appended to. One index beside the keys serves `stalled` and `find` by state; the one
# that serves `find` by machine is written only when a workflow starts. Wake times have no index: a lane has one
# owner, which keeps them in memory, and finds them again by state.
#
# The format is written down when the tables are made. A later one is refused: guessing at its meaning could lose a
# workflow. An earlier one is where a later version of Interlock begins to migrate.

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
    key_digest BLOB,
    actor TEXT,
    attempts BLOB
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
CHILDREN_TABLE = """
CREATE TABLE IF NOT EXISTS workflow_children (
    id TEXT PRIMARY KEY, parent TEXT NOT NULL, visit INTEGER NOT NULL, position INTEGER NOT NULL, state TEXT NOT NULL,
    stage INTEGER NOT NULL
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS workflow_children_by_parent ON workflow_children (parent, visit, position);
CREATE INDEX IF NOT EXISTS workflow_children_to_count ON workflow_children (parent, visit, position) WHERE stage = 1;
CREATE INDEX IF NOT EXISTS dead_letters_by_workflow ON dead_letters (workflow, since);
"""
LATER_TABLES = f"{CHILDREN_TABLE}{LANE_TABLE}"
"""What stores of earlier releases do not have: it is added when one is opened, and its format stays.

The same holds for `ADDED_COLUMNS` of history. An earlier release that opens the store afterwards goes on: it names the
columns that it writes and reads.
"""

ADDED_COLUMNS = {"actor": "TEXT", "attempts": "BLOB"}
"""Columns of history that stores of earlier releases do not have, with their types; each may be NULL."""

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


def make_tables(connection: apsw.Connection) -> None:
    """Create the tables, in one transaction with their format."""
    connection.cursor().execute(TABLES)
    connection.cursor().execute(LATER_TABLES)
    connection.cursor().execute("INSERT INTO workflow_store VALUES (1, ?, 0)", (FORMAT,))


def add_missing(connection: apsw.Connection) -> None:
    """Add the tables and columns that an earlier release has not made. It rewrites no row, so it takes no time."""
    connection.cursor().execute(LATER_TABLES)
    for name in missing_columns(connection):
        connection.cursor().execute(f"ALTER TABLE workflow_events ADD COLUMN {name} {ADDED_COLUMNS[name]}")


def missing_columns(connection: apsw.Connection) -> list[str]:
    """Return the columns of history that an earlier release has not made."""
    present = {name for (name,) in connection.cursor().execute("SELECT name FROM pragma_table_info('workflow_events')")}
    return [name for name in ADDED_COLUMNS if name not in present]


# --- Store -----------------------------------------------------------------------------------------------------------

ResultT = TypeVar("ResultT")

NUMBERS_MAX = 200_000
"""Workflows whose numbers are remembered; the others are looked up by their id."""

SMALL_MAX = 64
"""Rows of history, effects and children of a group that the calling event loop may write itself: it stands still
meanwhile, but takes less CPU time than two hand-overs between threads."""

COUNTED_AT_ONCE = 100_000
"""Workflows that one read of `living` counts: a tenth of a second."""

# A statement names its index: without statistics SQLite would guess, and a wrong guess reads every workflow.
LOAD = f"SELECT {ROW} FROM workflows WHERE id = ?"  # noqa: S608
DELIVERED = """
SELECT version, to_state, key_digest FROM workflow_events
WHERE workflow = (SELECT number FROM workflows WHERE id = ?) AND key = ?"""
HISTORY = f"""
SELECT {EVENT_COLUMNS} FROM workflow_events
WHERE workflow = (SELECT number FROM workflows WHERE id = ?) AND version > ? ORDER BY version LIMIT ?"""  # noqa: S608
FIND = f"""
SELECT {ROW}, number FROM workflows INDEXED BY workflows_by_type
WHERE workflow_type = ? AND number > ? ORDER BY number LIMIT ?"""  # noqa: S608
FIND_IN_STATE = f"""
SELECT {ROW}, number FROM workflows INDEXED BY workflows_by_state WHERE workflow_type = ? AND state = ?"""  # noqa: S608
STALLED = f"""
SELECT {ROW}, number FROM workflows INDEXED BY workflows_by_state
WHERE workflow_type = ? AND state = ? AND entered_at < ? AND active ORDER BY entered_at, number LIMIT ?"""  # noqa: S608
EFFECTS = """
SELECT * FROM workflow_effects INDEXED BY workflow_effects_to_wake
WHERE (wake_at, id) > (?, ?) ORDER BY wake_at, id LIMIT ?"""
LETTERS = """
SELECT * FROM dead_letters INDEXED BY dead_letters_by_age
WHERE (since, id) > (?1, ?2) AND (?3 IS NULL OR kind = ?3) ORDER BY since, id LIMIT ?4"""
LETTERS_OF = """
SELECT * FROM dead_letters INDEXED BY dead_letters_by_workflow
WHERE workflow = ?5 AND (since, id) > (?1, ?2) AND (?3 IS NULL OR kind = ?3) ORDER BY since, id LIMIT ?4"""
IS_CURRENT = """
SELECT 1 WHERE
(SELECT count(*) FROM sqlite_schema
WHERE name IN ('workflow_children', 'workflow_charts', 'dead_letters_by_workflow')) = 3
AND (SELECT count(*) FROM pragma_table_info('workflow_events') WHERE name IN ('actor', 'attempts')) = 2"""
CHILDREN = """
SELECT id, parent, visit, position, state, stage FROM workflow_children INDEXED BY workflow_children_by_parent
WHERE parent = ?1 AND (?2 IS NULL OR visit = ?2) AND (visit, position, id) > (?3, ?4, ?5)
ORDER BY visit, position, id LIMIT ?6"""
NEWEST_CHILDREN = """
SELECT id, parent, visit, position, state, stage FROM workflow_children INDEXED BY workflow_children_by_parent
WHERE parent = ?1 AND (?2 IS NULL OR visit = ?2) AND (visit, position, id) < (?3, ?4, ?5)
ORDER BY visit DESC, position DESC, id DESC LIMIT ?6"""
ENDED_CHILDREN = """
SELECT id, parent, visit, position, state, stage FROM workflow_children INDEXED BY workflow_children_to_count
WHERE stage = 1 AND parent = ? ORDER BY visit, position LIMIT ?"""
PARENTS_TO_COUNT = """
SELECT DISTINCT parent FROM workflow_children INDEXED BY workflow_children_to_count
WHERE stage = 1 AND parent > ? ORDER BY parent LIMIT ?"""
LIVING_COUNT = """
SELECT workflow_type, machine_version, state, count(*) FROM workflows
WHERE number > ? AND number <= ? GROUP BY workflow_type, machine_version, state"""
NOTE = "INSERT OR REPLACE INTO notes VALUES (?, ?)"
FIRST_BATCHES = 10
"""Batches that are added to the indexes of a search before the store is used."""

SEARCH_SQL = lane_search.LaneSearchSql(ROW)


def _rows_in(change: Change) -> int:
    return len(change.history) + len(change.effects) + len(change.children)


class SqliteStore:
    """A store on a lane. Made by `open_store`."""

    shared = False

    def __init__(self, lane: Lane, clock: Clock) -> None:
        self._lane = lane
        self._clock = clock
        self._time = StoreTime(clock)
        self._numbers: dict[str, int] = {}
        self._searches: tuple[MachineSearch, ...] = ()
        self.leases = LaneLeases(self._read, self._write, self.now_us)
        self.charts = LaneCharts(self._read, self._write)

    async def begin(self) -> None:
        """Create missing tables, and continue from the last written time (G8)."""
        with _translated_errors():
            time_us = cast("int | None", await self._lane.read(written_time_us))
            if time_us is None:
                await self._lane.submit(Work(Session.lend, make_tables))
            elif not await self._all(IS_CURRENT):
                await self._lane.submit(Work(Session.lend, add_missing))
        self._time = StoreTime(self._clock, time_us or 0)

    def here(self) -> bool:
        """Return whether cached workflows are current; False: read them again. Raises MovedElsewhere."""
        return self._lane.here()

    def publish(self, rows: Rows) -> None:
        """Have the lane publish these hot rows with its own, for other processes (D9)."""
        self._lane.publishing.also = rows

    async def commit(self, changes: Sequence[Change]) -> list[str]:
        """Commit the whole group in one transaction of the lane."""
        refuse_twice(changes)
        time_us = self._time.last_us

        def write(connection: apsw.Connection) -> Applied:
            return apply(connection, changes, self._numbers, time_us)

        # Without a savepoint: only one of a failing group would cost less.
        work = Work(Session.lend, write, single=True)
        with _translated_errors():
            small = len(changes) <= SMALL_MAX and sum(map(_rows_in, changes)) <= SMALL_MAX
            if small and self._lane.run_now(work):
                applied = work.result()
            else:
                applied = await self._lane.submit(work)
        lost, learned = cast("Applied", applied)
        # Only now: the numbers of a group that is not durable may be given to other workflows.
        if len(self._numbers) + len(learned) > NUMBERS_MAX:
            self._numbers = {}
        self._numbers.update(learned)
        return lost

    async def load(self, ids: Sequence[str]) -> dict[str, Row]:
        """Return the rows of these workflows."""
        rows = await self._read(
            lambda run: [found for each in ids if (found := run(LOAD, (each,)).fetchone()) is not None]
        )
        return {row.id: row for row in map(row_of, rows)}

    async def delivered(self, keys: Sequence[tuple[str, str]]) -> dict[tuple[str, str], Delivered]:
        """Return the recorded uses of these delivery keys."""
        found = await self._read(lambda run: [(key, run(DELIVERED, key).fetchone()) for key in keys])
        return {key: delivered_of(values) for key, values in found if values is not None}

    async def history(self, workflow: str, *, after: int = 0, limit: int = 1_000) -> list[HistoryRecord]:
        """Return the history after a version."""
        return [record_of(values) for values in await self._all(HISTORY, workflow, after, limit)]

    async def find(self, machine: str, state: str | None, *, after: str | None, limit: int) -> RowsPage:
        """Return the workflows of a machine in the order of creation, or of one state in the order of entry."""
        begin = parse_cursor(after) or FIRST_CURSOR
        if state is None:
            found = await self._all(FIND, machine, begin.number, limit + 1)
        else:
            found = await self._read(lambda run: _find_in_state(run, machine, state, begin, limit + 1))
        page = found[:limit]
        end = Cursor(page[-1][ENTERED_AT], page[-1][-1]) if len(found) > limit else None
        numbers = tuple(values[-1] for values in page)
        return RowsPage(tuple(map(row_of, page)), None if end is None else str(end), numbers)

    async def declare_search(self, searches: Sequence[MachineSearch]) -> bool:
        """Create and drop the tables of indexes, and add the first workflows to them."""
        self._searches = tuple(searches)
        if not await self._read(lambda run: lane_search.is_declared(run, searches)):
            with _translated_errors():
                await self._lane.submit(Work(Session.inspect, partial(lane_search.declare, searches=searches)))
        for _ in range(FIRST_BATCHES):
            if not await self.fill_search():
                return False
        return True

    async def fill_search(self) -> bool:
        """Add one batch to an index, in one transaction of the writer."""
        if await self._read(lambda run: lane_search.is_complete(run, self._searches)):
            return False
        return await self._write(lambda connection: lane_search.fill(connection, self._searches))

    async def search(self, search: Search) -> RowsPage:
        """Return the workflows that match, in the order of the search."""
        plan = SearchPlan(SEARCH_SQL, search)

        def read(run: Run) -> tuple[Sequence[Any], str | None]:
            lane_search.refuse_incomplete(run, search.machine, plan.indexes)
            return read_page(page_steps(plan, search.limit), lambda each: run(each.sql, each.values).fetchall())

        rows, cursor = await self._read(read)
        return RowsPage(tuple(map(row_of, rows)), cursor)

    async def stalled(self, machine: str, before_us: dict[str, int], *, limit: int) -> list[Row]:
        """Return the active workflows that have been in their state for too long."""
        found = await self._read(
            lambda run: [
                values
                for state, time_us in before_us.items()
                for values in run(STALLED, (machine, state, time_us, limit)).fetchall()
            ]
        )
        found.sort(key=lambda values: (values[ENTERED_AT], values[-1]))
        return [row_of(values) for values in found[:limit]]

    async def effects(self, *, after: OwedEffect | None = None, limit: int) -> list[OwedEffect]:
        """Return the owed effects, soonest first."""
        begin = (BEFORE_ALL_US, "") if after is None else (after.wake_us, after.id)
        return [OwedEffect(*values) for values in await self._all(EFFECTS, *begin, limit)]

    async def letters(
        self,
        kind: str | None = None,
        *,
        workflow: str | None = None,
        after: Letter | None = None,
        limit: int = 1_000,
    ) -> list[Letter]:
        """Return the dead letters, of all workflows or of one, oldest first."""
        begin = (BEFORE_ALL_US, "") if after is None else (after.since_us, after.id)
        if workflow is None:
            return [Letter(*values) for values in await self._all(LETTERS, *begin, kind, limit)]
        return [Letter(*values) for values in await self._all(LETTERS_OF, *begin, kind, limit, workflow)]

    async def children(
        self,
        parent: str,
        *,
        visit: int | None = None,
        after: ChildRecord | None = None,
        limit: int,
        newest_first: bool = False,
    ) -> list[ChildRecord]:
        """Return the children of a workflow by visit, position and id."""
        begin = (-1, -1, "") if after is None else (after.visit, after.position, after.id)
        if newest_first and after is None:
            begin = (2**62, 0, "")
        sql = NEWEST_CHILDREN if newest_first else CHILDREN
        return [ChildRecord(*values) for values in await self._all(sql, parent, visit, *begin, limit)]

    async def ended_children(self, parent: str, *, limit: int) -> list[ChildRecord]:
        """Return children that have ended and that their parent has not counted."""
        return [ChildRecord(*values) for values in await self._all(ENDED_CHILDREN, parent, limit)]

    async def parents_to_count(self, *, after: str = "", limit: int) -> list[str]:
        """Return the ids of workflows with such children."""
        return [parent for (parent,) in await self._all(PARENTS_TO_COUNT, after, limit)]

    async def living(self) -> dict[tuple[str, int, str], int]:
        """Count the workflows by machine, version and state."""
        counts: dict[tuple[str, int, str], int] = {}
        [(last,)] = await self._all("SELECT coalesce(max(number), 0) FROM workflows")
        # A workflow keeps its number, so that each is counted once, whatever moves meanwhile.
        for begin in range(0, last, COUNTED_AT_ONCE):
            for *place, count in await self._all(LIVING_COUNT, begin, begin + COUNTED_AT_ONCE):
                where = cast("tuple[str, int, str]", tuple(place))
                counts[where] = counts.get(where, 0) + count
        return counts

    async def note(self, name: str, text: str) -> None:
        """Keep a short text under a name."""

        def write(connection: apsw.Connection) -> None:
            connection.cursor().execute(NOTE, (name, text)).fetchall()

        await self._write(write)

    async def notes(self) -> dict[str, str]:
        """Return all notes by name."""
        return dict(await self._all("SELECT name, text FROM notes"))

    async def prune(self, old: Old, *, after: Cursor | None, limit: int, dry_run: bool = False) -> Batch:
        """Read the next workflows and remove those that match, in one transaction of the writer."""
        begin = after or FIRST_CURSOR
        if not dry_run:
            return await self._write(lambda connection: _prune(connection, old, begin, limit))
        batch, _ = await self._read(lambda run: _looked(run, old, begin, limit))
        return batch

    def now_us(self) -> int:
        """Return the time, which never goes back."""
        return self._time.now_us()

    async def close(self) -> None:
        """Close the lane, even if the caller is cancelled."""
        await asyncio.wrap_future(closing_thread(self._lane.close))

    async def _write(self, write: Callable[[apsw.Connection], ResultT]) -> ResultT:
        with _translated_errors():
            return cast("ResultT", await self._lane.submit(Work(Session.lend, write)))

    async def _all(self, sql: str, *values: object) -> list[tuple[Any, ...]]:
        return await self._read(lambda run: run(sql, values).fetchall())

    async def _read(self, read: Callable[[Run], ResultT]) -> ResultT:
        with _translated_errors():
            return cast("ResultT", await self._lane.read(lambda connection: read(connection.cursor().execute)))


def _find_in_state(run: Run, machine: str, state: str, begin: Cursor, limit: int) -> list[tuple[Any, ...]]:
    """Return a page in the order of entry. Workflows that entered at the same time are searched by number."""
    entered_us, number = begin
    found: list[tuple[Any, ...]] = run(
        f"{FIND_IN_STATE} AND entered_at = ? AND number > ? ORDER BY number LIMIT ?",
        (machine, state, entered_us, number, limit),
    ).fetchall()
    later = f"{FIND_IN_STATE} AND entered_at > ? ORDER BY entered_at, number LIMIT ?"
    found += run(later, (machine, state, entered_us, limit - len(found))).fetchall()
    return found


@contextlib.contextmanager
def _translated_errors() -> Generator[None]:
    """Raise the errors of a store for those of a lane's transaction."""
    try:
        yield
    except ConstraintViolation as error:
        raise InternalError(
            f"a group of changes contradicts the history that is stored: {error.what}",
            why="A version or a delivery key stands in history once; what was decided upon was something else.",
        ) from error
    except TransactionError as error:
        raise UnavailableError(f"the store could not do it: {error.what}", why=error.why, fix=error.fix) from error
    except (UnicodeError, OverflowError) as error:
        raise InvalidPayload(
            f"a value cannot be stored: {error}.",
            why="Texts are Unicode without lone surrogates, and numbers have 64 bits.",
        ) from error


# --- Arrival after a move --------------------------------------------------------------------------------------------
# Engines that shared the workflows before a move may be in the middle of attempts, and learn within a second that
# they are not theirs any more. A lane has no leases of workflows that would keep others from beginning the same, so
# its owner waits.
#
# The record of an arrival is written with the last transaction of the draft. So an engine that followed a tombstone
# can check that this is the right lane: the same address on another host is another disk, and an empty store there
# would be a second copy.

HELD = "held_us"
"""The note with the time before which no step may begin, in microseconds by the time of the store."""

HELD_US = 2_000_000
"""Microseconds in which a live engine learns that its workflows have left: it checks every second."""

HELD_AT_BUCKET_US = 11_000_000
"""The same at a bucket, where it checks every ten seconds, because each check costs a request."""

_ARRIVED = "CREATE TABLE IF NOT EXISTS interlock_arrived (epoch INTEGER PRIMARY KEY)"
_REPORT = "CREATE TABLE IF NOT EXISTS interlock_report (epoch INTEGER PRIMARY KEY, report TEXT NOT NULL)"
_HAS = "SELECT 1 FROM sqlite_schema WHERE type = 'table' AND name = ?"


def record_arrival(connection: apsw.Connection, epoch: int, report: str) -> None:
    """Record the epoch and the report of a move. Inside a transaction of the caller."""
    run = connection.cursor().execute
    run(_ARRIVED)
    run(_REPORT)
    run("INSERT OR IGNORE INTO interlock_arrived VALUES (?)", (epoch,))
    run("INSERT OR REPLACE INTO interlock_report VALUES (?, ?)", (epoch, report))


def arrival_report(connection: apsw.Connection, epoch: int) -> str | None:
    """Return the report of a move; None if it is unknown here."""
    run = connection.cursor().execute
    if run(_HAS, ("interlock_report",)).get is None:
        return None
    found = run("SELECT report FROM interlock_report WHERE epoch = ?", (epoch,)).get
    return None if found is None else str(found)


def arrived_epoch(connection: apsw.Connection) -> int:
    """Return the epoch of the last move that ended here, or is about to; 0 without one."""
    run = connection.cursor().execute
    if run(_HAS, ("interlock_arrived",)).get is None:
        return 0
    return int(str(run("SELECT coalesce(max(epoch), 0) FROM interlock_arrived").get))


@contextlib.contextmanager
def open_snapshot(path: Path) -> Generator[apsw.Connection | None]:
    """Open the file for reading, as one snapshot for the whole block; None without a file."""
    if not path.exists():
        yield None
        return
    with opening(path):
        connection = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READWRITE)
        connection.execute("PRAGMA query_only = ON")
    with contextlib.closing(connection), one_snapshot(connection):
        yield connection


def refuse_other_lane(path: Path, epoch: int) -> None:
    """Raise UnavailableError unless the file is the one that this move has ended in, or a later one has."""
    with open_snapshot(path) as connection:
        if connection is not None and (tombstone_of(connection) is not None or arrived_epoch(connection) >= epoch):
            return
    raise UnavailableError(
        f"move {epoch} has not arrived at {path} on host {socket.gethostname()}.",
        why="A lane is a file on one host, and this host has another one at that address, or none.",
        fix="Run the engine on the host that the workflows were moved to, or move them to PostgreSQL again.",
    )
