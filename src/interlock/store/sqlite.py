"""Workflows in a lane: one local file, or the same on a bucket.

Both tables are clustered by a number that each workflow gets when it is started. Workflows that are young together move
together, so a group touches few pages, whatever the ids look like. One index beside the keys serves `find` and
`stalled`; what has to be woken is found by an index that holds only those rows.

A lane has one owner, so versions are checked and never lost to another process. A change is lost only when its caller
was wrong about the version, and then it leaves nothing behind, as everywhere.
"""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# apsw's stubs leave the values of SQLite partly open; mypy --strict looks at what is ours.

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, TypeVar, cast

import apsw
import msgspec

from interlock.errors import InvalidPayload
from interlock.lanes.lane import Lane
from interlock.lanes.session import Session
from interlock.lanes.work import Work
from interlock.seams import Clock
from interlock.store.values import Change, Delivered, Found, Happened, Letter, OwedEffect, Row

ResultT = TypeVar("ResultT")
Run = Callable[..., Any]
"""Runs one statement; its rows are as SQLite has them, and the functions at the end give them their types."""

NUMBERS_MAX = 200_000
"""Workflows whose numbers are remembered; the others are looked up by their id."""

SCHEMA = """
CREATE TABLE IF NOT EXISTS workflows (
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
CREATE INDEX IF NOT EXISTS workflows_by_state ON workflows (workflow_type, state, entered_at);
CREATE INDEX IF NOT EXISTS workflows_to_wake ON workflows (wake_at) WHERE wake_at IS NOT NULL;
CREATE TABLE IF NOT EXISTS workflow_events (
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
    PRIMARY KEY (workflow, version)
) WITHOUT ROWID;
CREATE UNIQUE INDEX IF NOT EXISTS workflow_events_by_key ON workflow_events (workflow, key) WHERE key IS NOT NULL;
CREATE TABLE IF NOT EXISTS workflow_effects (
    id TEXT PRIMARY KEY, workflow TEXT NOT NULL, version INTEGER NOT NULL, name TEXT NOT NULL,
    attempts INTEGER NOT NULL, wake_at INTEGER NOT NULL, context BLOB NOT NULL
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS dead_letters (
    id TEXT PRIMARY KEY, kind TEXT NOT NULL, workflow TEXT NOT NULL, name TEXT NOT NULL, attempts INTEGER NOT NULL,
    error TEXT NOT NULL, since INTEGER NOT NULL, version INTEGER NOT NULL, key TEXT NOT NULL, context BLOB NOT NULL
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS notes (name TEXT PRIMARY KEY, text TEXT NOT NULL) WITHOUT ROWID;
"""

_COLUMNS = (
    "id, workflow_type, machine_version, state, context, version, visit, active, created_at, updated_at, entered_at, "
    "digest, owed, wake_at, duplicates, ignored, refused, revision"
)
START = f"INSERT INTO workflows ({_COLUMNS}) VALUES ({', '.join('?' * 18)}) ON CONFLICT (id) DO NOTHING"  # noqa: S608
MOVE = """
UPDATE workflows SET machine_version = ?, state = ?, context = ?, version = ?, visit = ?, active = ?, updated_at = ?,
entered_at = ?, owed = ?, wake_at = ?, duplicates = ?, ignored = ?, refused = ?, revision = ?
WHERE number = ? AND revision = ?"""
HAPPENED = "INSERT INTO workflow_events VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
EFFECT = "INSERT OR REPLACE INTO workflow_effects VALUES (?, ?, ?, ?, ?, ?, ?)"
LETTER = "INSERT OR REPLACE INTO dead_letters VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
NUMBER = "SELECT number, version FROM workflows WHERE id = ?"

USED = "SELECT 1 FROM workflow_events WHERE workflow = ? AND key = ?"
LOAD = f"SELECT {_COLUMNS} FROM workflows WHERE id = ?"  # noqa: S608
DELIVERED = """
SELECT version, to_state, key_digest FROM workflow_events
WHERE workflow = (SELECT number FROM workflows WHERE id = ?) AND key = ?"""
HISTORY = """
SELECT workflow_id, version, from_state, to_state, event, payload, context, created_at, key, key_digest
FROM workflow_events WHERE workflow = (SELECT number FROM workflows WHERE id = ?) AND version > ?
ORDER BY version LIMIT ?"""


class SqliteStore:
    """A store on a lane. Made by `opening.open_store`."""

    shared = False

    def __init__(self, lane: Lane, clock: Clock) -> None:
        self._lane = lane
        self._clock = clock
        self._last_us = 0
        self._numbers: dict[str, int] = {}

    async def commit(self, changes: Sequence[Change]) -> list[str]:
        """One transaction of the lane for the whole group."""
        return cast("list[str]", await self._lane.submit(Work(self._write, changes)))

    def _write(self, session: Session, changes: Sequence[Change]) -> list[str]:
        return session.lend(lambda connection: self._apply(connection, changes))

    def _apply(self, connection: apsw.Connection, changes: Sequence[Change]) -> list[str]:
        if len(self._numbers) > NUMBERS_MAX:
            self._numbers.clear()
        run = connection.cursor().execute
        lost: list[str] = []
        for change in changes:
            number = self._moved(connection, run, change)
            if number is None:
                lost.append(change.row.id)
                continue
            for happened in change.history:
                run(HAPPENED, _event(number, happened))
            if change.effects or change.effects_done or change.letters or change.letters_gone:
                _aside(run, change)
        return lost

    def _moved(self, connection: apsw.Connection, run: Run, change: Change) -> int | None:
        """Write the row; returns the workflow's number, or None when the change is lost."""
        row = change.row
        if not change.expected:
            run(START, _row_values(row))
            if not connection.changes():
                return None
            number = self._numbers[row.id] = connection.last_insert_rowid()
            return number
        known = self._numbers.get(row.id)
        if known is None:
            found = run(NUMBER, (row.id,)).fetchone()
            if found is None:
                return None
            known = self._numbers[row.id] = cast("int", found[0])
        if any(each.key is not None and run(USED, (known, each.key)).fetchone() for each in change.history):
            return None
        run(MOVE, (*_moving_values(row), known, change.expected))
        return known if connection.changes() else None

    async def load(self, ids: Sequence[str]) -> dict[str, Row]:
        """The rows of these workflows."""
        rows = await self._read(
            lambda run: [found for each in ids if (found := run(LOAD, (each,)).fetchone()) is not None]
        )
        return {row.id: row for row in map(_row, rows)}

    async def delivered(self, keys: Sequence[tuple[str, str]]) -> dict[tuple[str, str], Delivered]:
        """What these delivery keys were used for."""
        found = await self._read(lambda run: [(key, run(DELIVERED, key).fetchone()) for key in keys])
        return {key: Delivered(*row) for key, row in found if row is not None}

    async def history(self, workflow: str, *, after: int = 0, limit: int = 1_000) -> list[Happened]:
        """The history behind a version."""
        rows = await self._read(lambda run: run(HISTORY, (workflow, after, limit)).fetchall())
        return [_happened(row) for row in rows]

    async def find(self, machine: str, state: str | None, *, after: str | None, limit: int) -> Found:
        """The workflows of a machine, in the order of their creation, or of one state in the order of their arrival."""
        order = "number" if state is None else "entered_at, number"
        begin = _cursor(after)
        conditions = "workflow_type = ?" + ("" if state is None else " AND state = ?")
        values: list[object] = [machine] if state is None else [machine, state]
        if begin is not None:
            conditions += " AND number > ?" if state is None else " AND (entered_at, number) > (?, ?)"
            values += begin[1:] if state is None else begin
        sql = f"SELECT {_COLUMNS}, number FROM workflows WHERE {conditions} ORDER BY {order} LIMIT ?"  # noqa: S608
        rows = await self._read(lambda run: run(sql, (*values, limit + 1)).fetchall())
        last = rows[limit - 1] if len(rows) > limit else None
        return Found(tuple(_row(row[:-1]) for row in rows[:limit]), None if last is None else f"{last[10]}.{last[-1]}")

    async def stalled(self, machine: str, before_us: dict[str, int], *, limit: int) -> list[Row]:
        """The active workflows that have been in their state for too long."""
        sql = (
            f"SELECT {_COLUMNS} FROM workflows WHERE workflow_type = ? AND state = ? AND entered_at < ? AND active "  # noqa: S608
            "ORDER BY entered_at LIMIT ?"
        )
        rows = await self._read(
            lambda run: [
                row
                for state, time_us in before_us.items()
                for row in run(sql, (machine, state, time_us, limit)).fetchall()
            ]
        )
        return sorted(map(_row, rows), key=lambda row: row.entered_us)[:limit]

    async def due(self, *, limit: int) -> list[Row]:
        """The workflows with something to wake up for."""
        sql = f"SELECT {_COLUMNS} FROM workflows WHERE wake_at IS NOT NULL ORDER BY wake_at LIMIT ?"  # noqa: S608
        return [_row(row) for row in await self._read(lambda run: run(sql, (limit,)).fetchall())]

    async def effects(self, *, limit: int) -> list[OwedEffect]:
        """The effects that are owed."""
        sql = "SELECT * FROM workflow_effects ORDER BY wake_at LIMIT ?"
        return [OwedEffect(*row) for row in await self._read(lambda run: run(sql, (limit,)).fetchall())]

    async def letters(self, kind: str | None = None, *, limit: int = 1_000) -> list[Letter]:
        """The dead letters, oldest first."""
        sql = "SELECT * FROM dead_letters WHERE ?1 IS NULL OR kind = ?1 ORDER BY since LIMIT ?2"
        return [Letter(*row) for row in await self._read(lambda run: run(sql, (kind, limit)).fetchall())]

    async def living(self) -> dict[tuple[str, int, str], int]:
        """How many workflows there are by machine, version and state."""
        sql = (
            "SELECT workflow_type, machine_version, state, count(*) FROM workflows "
            "GROUP BY workflow_type, machine_version, state"
        )
        return {row[:3]: row[3] for row in await self._read(lambda run: run(sql).fetchall())}

    async def note(self, name: str, text: str) -> None:
        """Keep a short text under a name."""
        await self._lane.submit(Work(_note, (name, text)))

    async def noted(self) -> dict[str, str]:
        """Everything that was noted."""
        return dict(await self._read(lambda run: run("SELECT name, text FROM notes").fetchall()))

    def now_us(self) -> int:
        """The time, which never goes back."""
        self._last_us = max(self._last_us, int(self._clock.wall_s() * 1_000_000))
        return self._last_us

    async def close(self) -> None:
        """Give the lane up."""
        await asyncio.to_thread(self._lane.close)

    async def _read(self, read: Callable[[Run], ResultT]) -> ResultT:
        return cast("ResultT", await self._lane.read(lambda connection: read(connection.cursor().execute)))


def _note(session: Session, note: tuple[str, str]) -> None:
    sql = "INSERT OR REPLACE INTO notes VALUES (?, ?)"
    session.lend(lambda connection: connection.cursor().execute(sql, note))


def _aside(run: Run, change: Change) -> None:
    for effect in change.effects:
        run(EFFECT, msgspec.structs.astuple(effect))
    for done in change.effects_done:
        run("DELETE FROM workflow_effects WHERE id = ?", (done,))
    for letter in change.letters:
        run(LETTER, msgspec.structs.astuple(letter))
    for gone in change.letters_gone:
        run("DELETE FROM dead_letters WHERE id = ?", (gone,))


def _row_values(row: Row) -> tuple[object, ...]:
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
        *row.counts,
        row.revision,
    )


def _moving_values(row: Row) -> tuple[object, ...]:
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
        *row.counts,
        row.revision,
    )


def _row(values: tuple[Any, ...]) -> Row:
    context, active, counts = values[4].encode(), bool(values[7]), values[14:17]
    return Row(*values[:4], context, *values[5:7], active, *values[8:14], counts, values[17])  # type: ignore[call-arg]


def _event(number: int, happened: Happened) -> tuple[object, ...]:
    return (
        number,
        happened.version,
        happened.workflow,
        happened.from_state,
        happened.to_state,
        happened.event,
        happened.payload.decode(),
        happened.context.decode(),
        happened.created_us,
        happened.key,
        happened.key_digest or None,
    )


def _happened(values: tuple[Any, ...]) -> Happened:
    context, digest = values[6].encode(), values[9] or b""
    return Happened(*values[:5], values[5].encode(), context, *values[7:9], digest)  # type: ignore[call-arg]


def _cursor(after: str | None) -> tuple[int, int] | None:
    if after is None:
        return None
    entered, mark, number = after.partition(".")
    if not (mark and entered.isdecimal() and number.isdecimal()):
        raise InvalidPayload(f"{after!r} is not a cursor.", fix="Pass the cursor of the page before, as it is.")
    return int(entered), int(number)
