"""The source of workflows that leave a lane, as the mover uses it: rows, recorded changes, the seal and the tombstone.

A lane on a disk records changes and is sealed by a lock; one in a bucket is scanned, and sealed by a takeover.
The mover does not know which of them it has.
"""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# apsw's stubs leave the values of SQLite partly open; mypy --strict looks at what is ours.
# ruff: noqa: S608 -- the names put into statements are those of the store's own tables and columns.

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Callable, Generator, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any, NamedTuple, ParamSpec, Protocol, TypeVar, cast

import apsw

from interlock.clock import Clock
from interlock.errors import BadUsage, UnavailableError
from interlock.lanes.file import owner_of
from interlock.lanes.handover import Leaving, Seal, is_watched, tombstone_of
from interlock.relocate.workflows.canonical import Aside, LeaseRow, Note, Numbered, arriving
from interlock.store import lane
from interlock.store.lane import HELD_US, record_of, row_of, written_time_us
from interlock.store.records import HistoryRecord, Letter, OwedEffect
from interlock.urls import lane_path, redact_url

# --- Reads -----------------------------------------------------------------------------------------------------------
# The lane may be in use meanwhile: each method reads one snapshot. History is only appended to, and pruned from its
# beginning, so that its first and last version show what is missing elsewhere.

WATCHED: Mapping[str, Sequence[str]] = {
    "workflows": ("number",),
    "workflow_events": ("workflow",),
    "workflow_effects": ("id",),
    "dead_letters": ("id",),
    "leases": ("name",),
    "notes": ("name",),
}
"""The moved tables, with the column that identifies a change: for all tables of a workflow its number."""

BY_NUMBER = frozenset({"workflows", "workflow_events"})
SOURCE_ASIDE = tuple(name for name in WATCHED if name not in BY_NUMBER)

_KEYS = {"workflow_effects": "id", "dead_letters": "id", "leases": "name", "notes": "name"}
_MADE = {"workflow_effects": OwedEffect, "dead_letters": Letter, "leases": LeaseRow, "notes": Note}

_ROWS = f"SELECT number, {lane.ROW} FROM workflows"
_EVENTS = f"SELECT workflow, {lane.EVENT_COLUMNS} FROM workflow_events INDEXED BY workflow_events_by_version"
_SPAN = "SELECT count(*), coalesce(min(version), 0), coalesce(max(version), 0) FROM workflow_events WHERE workflow = ?"


class Span(NamedTuple):
    """The history of one workflow that a place has."""

    size: int = 0
    first: int = 0
    last: int = 0


class Sums(NamedTuple):
    """Quick totals of all rows, the same at both places."""

    workflows: int
    revisions: int
    events: int
    versions: int


class Source:
    """The tables of a store in a lane."""

    def __init__(self, connection: apsw.Connection) -> None:
        self._connection = connection

    def use(self, connection: apsw.Connection) -> None:
        """Read there from now on: a copy was brought forward, or is the store itself by now."""
        self._connection = connection

    @contextlib.contextmanager
    def moment(self) -> Generator[None]:
        """Read one snapshot during the context; within a transaction that is already so."""
        if self._connection.in_transaction:
            yield
            return
        self._run("BEGIN")
        try:
            yield
        finally:
            self._run("COMMIT")

    def time_us(self) -> int | None:
        """The last time that the store has written (G8); None: no store was ever opened here."""
        return written_time_us(self._connection)

    def machines(self) -> dict[str, int]:
        """Count the workflows of each machine."""
        rows = self._run("SELECT workflow_type, count(*) FROM workflows GROUP BY workflow_type ORDER BY workflow_type")
        return {str(machine): int(count) for machine, count in rows}

    def last_number(self) -> int:
        """The highest number of a workflow."""
        [(last,)] = self._run("SELECT coalesce(max(number), 0) FROM workflows")
        return int(last)

    def rows_between(self, after: int, limit: int) -> list[Numbered]:
        """Return the next workflows after a number."""
        return _numbered(self._run(f"{_ROWS} WHERE number > ? ORDER BY number LIMIT ?", (after, limit)))

    def events_between(self, after: int, last: int) -> dict[int, list[HistoryRecord]]:
        """The history of the workflows with these numbers."""
        return _by_number(
            self._run(f"{_EVENTS} WHERE workflow > ? AND workflow <= ? ORDER BY workflow, version", (after, last))
        )

    def rows(self, numbers: Iterable[int]) -> dict[int, Numbered]:
        """These workflows; those that are gone are missing."""
        found: dict[int, Numbered] = {}
        for number in numbers:
            for each in _numbered(self._run(f"{_ROWS} WHERE number = ?", (number,))):
                found[number] = each
        return found

    def spans(self, numbers: Iterable[int]) -> dict[int, Span]:
        """Return the span of history of these workflows."""
        return {number: Span(*self._run(_SPAN, (number,))[0]) for number in numbers}

    def revisions(self) -> list[tuple[int, int]]:
        """Return the revision of each workflow."""
        return [
            (int(number), int(revision)) for number, revision in self._run("SELECT number, revision FROM workflows")
        ]

    def all_spans(self) -> dict[int, Span]:
        """Return the span of history of every workflow, from an index alone."""
        sql = """SELECT workflow, count(*), min(version), max(version)
FROM workflow_events INDEXED BY workflow_events_by_version GROUP BY workflow"""
        return {int(number): Span(*values) for number, *values in self._run(sql)}

    def events_behind(self, number: int, version: int) -> list[HistoryRecord]:
        """Return the history of a workflow after a version."""
        found = self._run(f"{_EVENTS} WHERE workflow = ? AND version > ? ORDER BY version", (number, version))
        return [record_of(values[1:]) for values in found]

    def aside(self, table: str, keys: Sequence[str]) -> dict[str, Aside]:
        """Return the records of these keys."""
        made, sql = _MADE[table], f"SELECT * FROM {table} WHERE {_KEYS[table]} = ?"
        found = ((key, values) for key in keys for values in self._run(sql, (key,)))
        return {key: made(*values) for key, values in found}

    def keys_aside(self, table: str, after: str, limit: int) -> list[str]:
        """Return the next keys after one."""
        key = _KEYS[table]
        return [str(found) for (found,) in self._run(
            f"SELECT {key} FROM {table} WHERE {key} > ? ORDER BY {key} LIMIT ?", (after, limit))]  # fmt: skip

    def count(self, table: str) -> int:
        """Rows of a table."""
        [(count,)] = self._run(f"SELECT count(*) FROM {table}")
        return int(count)

    def sums(self) -> Sums:
        """Return quick totals of all rows: it reads the workflows, and an index over history."""
        [rows] = self._run("SELECT count(*), coalesce(sum(revision), 0) FROM workflows")
        [events] = self._run(
            "SELECT count(*), coalesce(sum(version), 0) FROM workflow_events INDEXED BY workflow_events_by_version"
        )
        return Sums(*map(int, (*rows, *events)))

    def _run(self, sql: str, values: Sequence[object] = ()) -> list[tuple[Any, ...]]:
        found = self._connection.cursor().execute(sql, cast("tuple[str | int, ...]", tuple(values)))
        return cast("list[tuple[Any, ...]]", found.fetchall())


def _numbered(rows: Iterable[tuple[Any, ...]]) -> list[Numbered]:
    return [arriving(values[0], row_of(values[1:])) for values in rows]


def _by_number(rows: Iterable[tuple[Any, ...]]) -> dict[int, list[HistoryRecord]]:
    found: dict[int, list[HistoryRecord]] = {}
    for values in rows:
        found.setdefault(values[0], []).append(record_of(values[1:]))
    return found


# --- Protocols -------------------------------------------------------------------------------------------------------

Touched = tuple[int, str, tuple[object, ...]]
"""A note: its number, the table, and the key of what was written."""


class Left(NamedTuple):
    """The tombstone of a source."""

    url: str
    epoch: int


class Sealed(Protocol):
    """A source without writers. If it was not left, the end of the seal changes nothing."""

    source: Source

    async def leave(self, url: str, epoch: int) -> None:
        """Write the tombstone, durably: from now on the workflows live there."""
        ...


class Origin(Protocol):
    """A source of workflows, used while an engine serves them."""

    source: Source

    async def left(self) -> Left | None:
        """Return the new place of the workflows, if they have left."""
        ...

    async def watch(self, tables: Mapping[str, Sequence[str]]) -> None:
        """Note from now on what is written, also by others, until it is left or forgotten."""
        ...

    async def touched(self, after: int, limit: int) -> list[Touched]:
        """Return the changes after that number."""
        ...

    async def forget(self, upto: int) -> None:
        """Notes up to this one are not needed any more."""
        ...

    async def forget_all(self) -> None:
        """No move is under way any more."""
        ...

    def sealed(self) -> AbstractAsyncContextManager[Sealed]:
        """Block all writers during the context; they wait. The seal ends with the mover, also if it dies."""
        ...

    async def held_us(self) -> int:
        """Return how long an attempt at the source may still run, in microseconds; 0 without a live engine.

        Asked before it is left.
        """
        ...


def no_workflows(home: str) -> BadUsage:
    """The error for a home that has no workflows."""
    return BadUsage(
        f"there are no workflows at {redact_url(home)}.",
        why="They live in the database `workflows` of the home that an engine was opened with.",
        fix="Name the home as the engine does: lanes:///var/shop.",
    )


# --- Thread for blocking calls ---------------------------------------------------------------------------------------
# The call of a cancelled task runs to its end; the next call, such as giving up a seal, comes after it.

ArgsP = ParamSpec("ArgsP")
ResultT = TypeVar("ResultT")


class Apart:
    """One thread."""

    def __init__(self) -> None:
        self._threads = ThreadPoolExecutor(1, thread_name_prefix="interlock-move")

    async def __call__(self, call: Callable[ArgsP, ResultT], *args: ArgsP.args, **named: ArgsP.kwargs) -> ResultT:
        """Run it there."""
        running = self._threads.submit(call, *args, **named)
        return await asyncio.shield(asyncio.wrap_future(running))

    def close(self) -> None:
        """Wait for nothing: a call that is under way ends by itself."""
        self._threads.shutdown(wait=False)


# --- Lane on a local disk --------------------------------------------------------------------------------------------
# The mover does not talk to that engine. Triggers in the file record its changes, and it waits for the seal as for
# any other lock on the file.

SEAL_WAIT_S = 5.0
"""Longest wait of the mover for the group that is being written."""


class LocalSeal:
    """The lane's writer waits."""

    def __init__(self, seal: Seal, apart: Apart) -> None:
        self.source = Source(seal.connection)
        self._seal = seal
        self._apart = apart

    async def leave(self, url: str, epoch: int) -> None:
        """Write the tombstone."""
        await self._apart(self._seal.leave, url, epoch)


class LocalOrigin:
    """A second connection to the lane's file."""

    def __init__(self, leaving: Leaving, apart: Apart) -> None:
        self.source = Source(leaving.connection)
        self._leaving = leaving
        self._apart = apart

    @staticmethod
    @contextlib.asynccontextmanager
    async def opened(home: str, apart: Apart, clock: Clock) -> AsyncGenerator["LocalOrigin"]:
        """Connect to the workflows of a home."""
        path = lane_path(f"{home.rstrip('/')}/workflows")
        if path is None or not path.exists():
            raise no_workflows(home)
        leaving = await apart(_leaving, path, clock)
        try:
            origin = LocalOrigin(leaving, apart)
            if await apart(origin.source.time_us) is None:
                raise no_workflows(home)
            yield origin
        finally:
            await apart(leaving.close)

    async def left(self) -> Left | None:
        """The tombstone of the lane."""
        stone = await self._apart(tombstone_of, self._leaving.connection)
        return None if stone is None else Left(stone.url, stone.epoch)

    async def watch(self, tables: Mapping[str, Sequence[str]]) -> None:
        """Have triggers note what is written."""
        await self._apart(self._leaving.watch, tables)

    async def touched(self, after: int, limit: int) -> list[Touched]:
        """Return the recorded changes. Raises UnavailableError when the triggers were removed: some may be missing."""
        return await self._apart(self._touched, after, limit)

    def _touched(self, after: int, limit: int) -> list[Touched]:
        found = self._leaving.touched(after, limit)
        if not found and not is_watched(self._leaving.connection):
            raise UnavailableError(
                f"nothing notes any more what is written to {self._leaving.path}.",
                why="Another process has taken the move back. Nothing has moved.",
                fix="Run the same again if it shall go on: it compares everything that is there already.",
            )
        return found

    async def forget(self, upto: int) -> None:
        """Notes up to this one are not needed any more."""
        await self._apart(self._leaving.forget, upto)

    async def forget_all(self) -> None:
        """Triggers and notes go."""
        await self._apart(self._leaving.unwatch)

    @contextlib.asynccontextmanager
    async def sealed(self) -> AsyncGenerator[LocalSeal]:
        """Hold SQLite's lock for writing."""
        sealed = self._leaving.sealed(SEAL_WAIT_S)
        seal = await self._apart(sealed.__enter__)
        try:
            yield LocalSeal(seal, self._apart)
        except BaseException as error:
            await self._apart(sealed.__exit__, type(error), error, error.__traceback__)
            raise
        await self._apart(sealed.__exit__, None, None, None)

    async def held_us(self) -> int:
        """Return how long an attempt of an engine that does not know of the move may still run, in microseconds."""
        return HELD_US if await self._apart(owner_of, self._leaving.path) is not None else 0


def _leaving(path: Path, clock: Clock) -> Leaving:
    return Leaving(path, clock=clock, prepare=lambda _connection, _now_us: None)
