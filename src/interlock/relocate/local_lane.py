"""Lane on a local disk as the source and as the target of a move.

As the source, the mover has a connection of its own beside the lane's owner, in this process or another one
(`lanes.handover`). SQLite blocks its thread, so everything runs in one thread of the mover.

Sections: marks, source, files of a draft, creation of a shape, contents, sample, draft, target.
"""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# apsw's stubs leave the values of SQLite partly open; mypy --strict looks at what is ours.

import asyncio
import contextlib
import os
import tempfile
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from pathlib import Path
from typing import Final, NamedTuple, Protocol, TypeVar, cast

import apsw
import msgspec

from interlock.clock import Clock
from interlock.database.lane_engine import Translator, Translators
from interlock.errors import BadUsage, LaneOwned, UnavailableError
from interlock.lanes.file import Ownership, make_folder, owner_of, sync_folder
from interlock.lanes.handover import (
    Arrived,
    Leaving,
    Note,
    Seal,
    Tombstone,
    admit,
    draft_of,
    one_snapshot,
    tombstone_of,
    write_tombstone,
)
from interlock.lanes.handover import Draft as Mark
from interlock.lanes.idempotency_keys import SCHEMA as KEYS
from interlock.lanes.sqlite_connection import open_writer, opening
from interlock.lanes.writer import LANE_SCHEMA
from interlock.relocate.lane_shape import shape_of_lane
from interlock.relocate.rows import (
    Page,
    StoredRow,
    bytes_in_lane,
    count_in_lane,
    delete_in_lane,
    empty_in_lane,
    has_table,
    lane_positions,
    lane_rows,
    lane_rows_of,
    set_lane_positions,
    to_lane,
    watched_keys,
)
from interlock.relocate.shape import KEY_TABLES, Shape, Table
from interlock.relocate.source_and_target import Draft, FileThread, Pending, Restart, another_mover
from interlock.urls import lane_path

# --- Marks -----------------------------------------------------------------------------------------------------------

STATE: Final = "interlock_draft"
ARRIVED: Final = "interlock_arrived"
ARRIVING: Final = "interlock_arriving"

ResultT = TypeVar("ResultT")


def arrived_at(connection: apsw.Connection) -> int:
    """Return the epoch of the last move that ended here; 0 without one."""
    if not has_table(connection, ARRIVED):
        return 0
    return cast("int | None", connection.execute(f"SELECT max(epoch) FROM {ARRIVED}").get) or 0  # noqa: S608 -- ours.


def draft_in(connection: apsw.Connection) -> Draft | None:
    """Return the state of the draft; None after the arrival."""
    if not has_table(connection, ARRIVING) or not has_table(connection, STATE):
        return None
    state = connection.execute(f"SELECT state FROM {STATE}").get  # noqa: S608 -- ours.
    return None if state is None else msgspec.msgpack.decode(cast("bytes", state), type=Draft)


def remember(connection: apsw.Connection, draft: Draft) -> None:
    """Store the state of the draft. Inside the caller's transaction."""
    connection.execute(f"CREATE TABLE IF NOT EXISTS {STATE} (id INTEGER PRIMARY KEY CHECK (id = 1), state BLOB)")
    sql = f"INSERT OR REPLACE INTO {STATE} VALUES (1, ?)"  # noqa: S608 -- ours.
    connection.execute(sql, (msgspec.msgpack.encode(draft),))


def forget_draft(connection: apsw.Connection) -> None:
    """Remove the state of the draft. Inside the caller's transaction."""
    connection.execute(f"DROP TABLE IF EXISTS {STATE}")


# --- Source ----------------------------------------------------------------------------------------------------------

NOTES_AT_ONCE: Final = 20_000


class LaneReading:
    """Reads on one connection, in the mover's thread."""

    def __init__(self, thread: FileThread) -> None:
        self._thread = thread

    def connection(self) -> apsw.Connection:
        """Return the connection to read from."""
        raise NotImplementedError

    def notes(self, after: int, limit: int) -> list[Note]:
        """Return the notes above a number, in order."""
        raise NotImplementedError

    async def read(self, use: Callable[[apsw.Connection], ResultT]) -> ResultT:
        """Run a function that reads, in one snapshot."""
        return await self._thread.run(lambda: self._read(use))

    def _read(self, use: Callable[[apsw.Connection], ResultT]) -> ResultT:
        connection = self.connection()
        with one_snapshot(connection):
            return use(connection)

    async def page(self, table: Table, after: StoredRow | None, limit: int) -> Page:
        """Return a page of rows in the order of the key."""
        return await self._thread.run(lambda: lane_rows(self.connection(), table, after, limit=limit))

    async def count(self, table: Table) -> int:
        """Return the number of rows."""
        return await self._thread.run(lambda: count_in_lane(self.connection(), table))

    async def fingerprint(self) -> str:
        """Return SQLite's schema version, which changes with every change of the schema, triggers included."""
        return await self._thread.run(lambda: str(self.connection().execute("PRAGMA schema_version").get))

    async def pending(self, shape: Shape, limit: int) -> Pending:
        """Return the oldest notes and their rows, at one instant."""
        return await self._thread.run(lambda: self._pending(shape, limit))

    async def noted_keys(self, table: Table, after: int) -> tuple[set[StoredRow], int]:
        """Return the keys of one table that were noted after a note, and the number of the last one."""
        return await self._thread.run(lambda: self._noted_keys(table, after))

    def _noted_keys(self, table: Table, last: int) -> tuple[set[StoredRow], int]:
        found = set[StoredRow]()
        while True:
            notes = self.notes(last, NOTES_AT_ONCE)
            found |= {cast("StoredRow", tuple(key)) for _, name, key in notes if name == table.name}
            last = notes[-1][0] if notes else last
            if len(notes) < NOTES_AT_ONCE:
                return found, last

    def _pending(self, shape: Shape, limit: int) -> Pending:
        with one_snapshot(self.connection()):
            return self._pending_of(shape, limit)

    def _pending_of(self, shape: Shape, limit: int) -> Pending:
        tables = {table.name: table for table in shape.tables}
        keys: dict[str, dict[StoredRow, None]] = {}
        last = notes = 0
        complete = False
        while sum(map(len, keys.values())) < limit:
            found = self.notes(last, NOTES_AT_ONCE)
            for number, name, key in found:
                if name not in tables:
                    raise Restart(f"{name} was made anew")
                keys.setdefault(name, {})[cast("StoredRow", tuple(key))] = None
                last = number
            notes += len(found)
            if len(found) < NOTES_AT_ONCE:
                complete = True
                break
        keyed = {name: list(listed) for name, listed in keys.items() if tables[name].key}
        rows = {name: lane_rows_of(self.connection(), tables[name], listed) for name, listed in keyed.items()}
        return Pending(notes=notes, keys=keyed, rows=rows, complete=complete, numbers=(last,) if last else ())


class LaneSource(LaneReading):
    """The file of one lane."""

    def __init__(self, thread: FileThread, leaving: Leaving, location: str, clock: Clock) -> None:
        super().__init__(thread)
        self.location = location
        self._leaving = leaving
        self._connection = leaving.connection
        self._clock = clock
        self._ownership: Ownership | None = None

    @classmethod
    async def opened(cls, path: Path, location: str, *, clock: Clock) -> "LaneSource":
        """Open a second connection to the file, which must exist."""
        thread = FileThread(location)
        try:
            leaving = await thread.run(lambda: Leaving(path, clock=clock, prepare=Translators().prepare))
        except BaseException:
            thread.close()
            raise
        return cls(thread, leaving, location, clock)

    def connection(self) -> apsw.Connection:
        """Return the mover's connection to the file."""
        return self._connection

    def notes(self, after: int, limit: int) -> list[Note]:
        """Return the notes above a number, in order."""
        return self._leaving.touched(after, limit)

    async def close(self) -> None:
        """Close the connection."""
        try:
            await self._thread.run(self._leaving.close)
        finally:
            self._thread.close()
            if self._ownership is not None:
                self._ownership.release()

    async def take(self) -> None:
        """Acquire the movers' lock file, which is separate from that of the lane's owner."""
        if self._ownership is None:
            try:
                self._ownership = Ownership.take(Path(f"{self._leaving.path.resolve()}.leaving"), self._clock)
            except LaneOwned as error:
                raise another_mover(self.location) from error

    async def moved(self) -> tuple[str, int] | None:
        """Return its tombstone; None without one."""
        stone = await self._thread.run(lambda: tombstone_of(self._connection))
        return None if stone is None else (stone.url, stone.epoch)

    async def confirm_left(self) -> None:
        """Do nothing: the tombstone is all."""

    async def last_epoch(self) -> int:
        """Return the epoch of the last move."""
        stone = await self._thread.run(lambda: tombstone_of(self._connection))
        return max(0 if stone is None else stone.epoch, await self._thread.run(lambda: arrived_at(self._connection)))

    async def shape(self) -> Shape:
        """Return the shape of the database."""
        return await self._thread.run(lambda: shape_of_lane(self._connection))

    async def bytes_of(self, shape: Shape) -> Mapping[str, int]:
        """Estimate the bytes of the rows from a sample."""
        return await self._thread.run(
            lambda: {table.name: bytes_in_lane(self._connection, table) for table in shape.tables}
        )

    async def watch(self, shape: Shape) -> float:
        """Create the triggers."""
        return await self.note_writes(watched_keys(shape))

    async def forward(self) -> None:
        """Do nothing: the file has the newest state."""

    async def has_owner(self) -> bool:
        """Return whether a process has the lane open."""
        return await self._thread.run(lambda: owner_of(self._leaving.path)) is not None

    async def note_writes(self, tables: Mapping[str, Sequence[str]]) -> float:
        """Note every write to these tables, each with the columns of its key; return for how long writers waited."""
        begun_s = self._clock.monotonic_s()
        await self._thread.run(lambda: self._leaving.watch(tables))
        return self._clock.monotonic_s() - begun_s

    async def forget(self, pending: Pending) -> None:
        """Delete the notes up to a number: a lane commits in order, so earlier notes were all read."""
        if pending.numbers:
            await self._thread.run(lambda: self._leaving.forget(pending.numbers[0]))

    async def unwatch(self) -> None:
        """Remove the triggers and the notes."""
        await self._thread.run(self._leaving.unwatch)

    @asynccontextmanager
    async def sealed(self, wait_s: float) -> "AsyncGenerator[SealedLane]":
        """Acquire SQLite's write lock, for which the lane's writer waits."""
        block = self._leaving.sealed(wait_s)
        since_s = self._clock.monotonic_s()
        seal = await self._thread.run(block.__enter__)
        try:
            yield SealedLane(self._thread, seal, self._leaving, since_s)
        except BaseException as error:
            kind, value, trace = type(error), error, error.__traceback__
            await self._thread.run(lambda: block.__exit__(kind, value, trace))
            raise
        await self._thread.run(lambda: block.__exit__(None, None, None))


class SealedLane(LaneReading):
    """A source with the write lock."""

    def __init__(self, thread: FileThread, seal: Seal, leaving: Leaving, since_s: float) -> None:
        super().__init__(thread)
        self.since_s = since_s
        self._connection = seal.connection
        self._leaving = leaving
        self._seal = seal

    def connection(self) -> apsw.Connection:
        """Return the connection with the lock."""
        return self._connection

    def notes(self, after: int, limit: int) -> list[Note]:
        """Return the notes above a number, in order."""
        return self._leaving.touched(after, limit)

    async def positions(self, shape: Shape) -> Mapping[str, int]:
        """Return the last number of each numbered table."""
        return await self._thread.run(lambda: lane_positions(self._connection, shape))

    async def leave(self, url: str, epoch: int) -> None:
        """Write the tombstone durably."""
        await self._thread.run(lambda: self._seal.leave(url, epoch))


class LeavingLane(Protocol):
    """A lane in a folder (`LaneSource`) or a bucket (`bucket_lane.BucketSource`) that is left."""

    location: str

    async def read(self, use: Callable[[apsw.Connection], ResultT]) -> ResultT:
        """Run a function that reads, in one snapshot."""
        ...

    def notes(self, after: int, limit: int) -> list[Note]:
        """Return the notes above a number, in order."""
        ...

    async def forward(self) -> None:
        """Read the newest state from now on."""
        ...

    async def has_owner(self) -> bool:
        """Return whether a process has the lane open."""
        ...

    async def note_writes(self, tables: Mapping[str, Sequence[str]]) -> float:
        """Note every write to these tables, each with the columns of its key; return for how long writers waited."""
        ...

    async def unwatch(self) -> None:
        """Remove the triggers and the notes."""
        ...

    def sealed(self, wait_s: float) -> AbstractAsyncContextManager["SealedLane"]:
        """Block writers."""
        ...

    async def close(self) -> None:
        """Give everything up."""
        ...


# --- Files of a draft ------------------------------------------------------------------------------------------------
# A place that was left has a tombstone, which redirects clients. If the file were missing when the mover dies, the
# next client would create an empty database. So the draft is made beside it, with the same tombstone, and replaces
# it. The old file is kept under a name with the epoch of the move.

LOGS: Final = ("-wal", "-shm")


def fresh_path(path: Path, epoch: int) -> Path:
    """Return the path where the draft of this move is made."""
    return path.with_name(f"{path.name}.arriving-{epoch}")


def kept_path(path: Path, epoch: int) -> Path:
    """Return the path under which the file from before this move is kept."""
    return path.with_name(f"{path.name}.before-{epoch}")


def remove(path: Path) -> None:
    """Remove a file of SQLite's with its log."""
    for ending in ("", *LOGS):
        _beside(path, ending).unlink(missing_ok=True)
    sync_folder(path.parent)


def rename_again(path: Path) -> None:
    """Remove the second name of the old file, which a mover left when it died before the replacement."""
    for kept in path.parent.glob(f"{_escaped(path.name)}.before-*"):
        if path.exists() and kept.samefile(path):
            kept.unlink()


def replace_draft(path: Path, fresh: Path, *, epoch: int, before: int) -> None:
    """Replace an old draft with a fresh one; the file that was kept for the old one is kept for this."""
    kept = kept_path(path, before)
    if before != epoch and kept.exists():
        kept.rename(kept_path(path, epoch))
    _replace_folded(path, fresh)


def replace_left(path: Path, fresh: Path, *, epoch: int) -> None:
    """Replace a file that was left with a fresh draft; the file is kept under another name."""
    kept = kept_path(path, epoch)
    _fold(path)
    for log in LOGS:
        with contextlib.suppress(FileNotFoundError):  # Open readers keep reading the old file.
            _beside(path, log).rename(_beside(kept, log))
    kept.unlink(missing_ok=True)
    os.link(path, kept)
    fresh.replace(path)
    sync_folder(path.parent)


def take_back(path: Path, epoch: int) -> None:
    """Remove a draft, and restore the kept file with its tombstone, which redirects clients."""
    kept = kept_path(path, epoch)
    if kept.exists():
        _replace_folded(path, kept)
    else:
        remove(path)


def _replace_folded(path: Path, other: Path) -> None:
    _fold(path)
    for log in LOGS:
        _beside(path, log).unlink(missing_ok=True)
    other.replace(path)
    sync_folder(path.parent)


def _fold(path: Path) -> None:
    """Checkpoint the log into the file, so that the file is complete without it."""
    with contextlib.closing(apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READWRITE)) as connection:
        _ = connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)


def _beside(path: Path, ending: str) -> Path:
    return path.with_name(path.name + ending)


def _escaped(name: str) -> str:
    return "".join(f"[{letter}]" if letter in "[*?" else letter for letter in name)


# --- Creation of a shape ---------------------------------------------------------------------------------------------
# Each statement is run through the dialect and stored like a user's (`database.transactions`), so that the next move
# finds it again as it was written. The connection is the mover's own, with foreign keys off.

DEFINITIONS: Final = """
CREATE TABLE IF NOT EXISTS interlock_definitions (number INTEGER PRIMARY KEY AUTOINCREMENT, sql TEXT NOT NULL)"""
NOTE: Final = "INSERT INTO interlock_definitions (sql) VALUES (?)"


def make_in_lane(connection: apsw.Connection, shape: Shape) -> None:
    """Create the types, sequences, tables and views. Inside the caller's transaction."""
    connection.execute(DEFINITIONS)
    if any(table.ours for table in shape.tables):
        connection.execute(KEYS)
    for text in shape.lane_definitions:
        _define(connection, text)
    for view in shape.views:
        _define(connection, view.create)


def index_in_lane(connection: apsw.Connection, shape: Shape) -> None:
    """Create the indexes. Inside the caller's transaction."""
    for table in shape.tables:
        for text in table.indexing:
            _define(connection, text)


def _define(connection: apsw.Connection, sql: str) -> None:
    connection.execute(Translator(connection).statement(sql).text)
    connection.execute(NOTE, (sql,))


# --- Contents --------------------------------------------------------------------------------------------------------

NAMED_MAX = 5


def arrive_in(connection: apsw.Connection, epoch: int, what: object) -> None:
    """Remove the mark: the draft becomes the database."""
    admit(connection, Arrived(epoch), what)
    forget_draft(connection)


def tables_in(connection: apsw.Connection) -> list[str]:
    """Return the user tables, and the table of keys if it has rows."""
    sql = "SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT GLOB 'interlock_*' "
    names = [str(name) for (name,) in connection.execute(sql + "AND name NOT GLOB 'sqlite_*'")]
    has_keys = f"SELECT 1 FROM {KEY_TABLES} LIMIT 1"  # noqa: S608 -- ours.
    if not names and has_table(connection, KEY_TABLES) and connection.execute(has_keys).get:
        names = [KEY_TABLES]
    return names


def taken(location: str, names: Sequence[str]) -> BadUsage:
    """Return the error for a place where a database lives."""
    named = f": {', '.join(names[:NAMED_MAX])}" if names else ""
    return BadUsage(
        f"there is something at {location} already{named}.",
        why="A move brings a whole database, and mixes it with nothing.",
        fix="Name an unused place.",
    )


# --- Sample ----------------------------------------------------------------------------------------------------------
# It also stands in for a bucket, because objects of a sample would stay in the bucket's log.


class LaneSample:
    """Rows in a temporary file."""

    def __init__(self, thread: FileThread, connection: apsw.Connection, table: Table) -> None:
        self._thread = thread
        self._connection = connection
        self._table = table

    async def write(self, rows: Sequence[StoredRow]) -> None:
        """Add rows."""
        await self._thread.run(lambda: self._write(rows))

    def _write(self, rows: Sequence[StoredRow]) -> None:
        self._connection.execute("BEGIN")
        to_lane(self._connection, self._table, rows)
        self._connection.execute("COMMIT")

    async def read(self, keys: Sequence[StoredRow]) -> list[StoredRow]:
        """Return the rows with these keys."""
        return await self._thread.run(lambda: lane_rows_of(self._connection, self._table, keys))


@asynccontextmanager
async def lane_sample(thread: FileThread, table: Table, clock: Clock) -> AsyncGenerator[LaneSample]:
    """Create a lane with such a table, which is removed at the end of the block."""
    translators = Translators()
    with tempfile.TemporaryDirectory(prefix="interlock-route-") as folder:
        connection = await thread.run(lambda: _sampled(Path(folder) / "sample.lane", table, translators, clock))
        try:
            yield LaneSample(thread, connection, table)
        finally:
            await thread.run(connection.close)


def _sampled(path: Path, table: Table, translators: Translators, clock: Clock) -> apsw.Connection:
    connection = open_writer(path)
    for pragma in ("synchronous = NORMAL", "foreign_keys = OFF"):
        connection.execute(f"PRAGMA {pragma}")
    translators.prepare(connection, lambda: int(clock.wall_s() * 1_000_000))
    make_in_lane(connection, Shape((table.alone,), enumerations=table.enumerations))
    return connection


# --- Draft -----------------------------------------------------------------------------------------------------------
# The draft is a lane at its final path, with a mark that refuses every other use (`lanes.handover`). The mover owns
# it like an open lane, and writes without a lane. During the copy its large transactions are not synced, because
# rows and position are written together; later ones are. An older file with a tombstone is renamed first, and kept.

FOLDED_PAGES: Final = 4_000
"""Number of pages in the log at which it is checkpointed into the file."""


class PlaceState(NamedTuple):
    """What is at the address of a draft before the mover owns it."""

    there: bool = False
    """Whether a file or log with content is there; a file without tables of a user may be replaced."""
    left: Tombstone | None = None
    mark: Mark | None = None
    draft: Draft | None = None
    names: tuple[str, ...] = ()
    epoch: int = 0
    """Of the last move that has arrived here."""


def state_in(connection: apsw.Connection) -> PlaceState:
    """Return what is in this file, in one snapshot."""
    with one_snapshot(connection):
        return PlaceState(
            there=connection.execute("SELECT 1 FROM sqlite_schema LIMIT 1").get is not None,
            left=tombstone_of(connection),
            mark=draft_of(connection),
            draft=draft_in(connection),
            names=tuple(tables_in(connection)),
            epoch=arrived_at(connection),
        )


Check = Callable[[apsw.Connection | None], None]


def unchecked(_connection: apsw.Connection | None) -> None:
    """Refuse nothing."""


class LaneDraft:
    """The file of one lane that is filled by a mover."""

    def __init__(self, url: str, location: str, clock: Clock) -> None:
        path = lane_path(url)
        assert path is not None
        self.location = location
        self.path = path
        self.clock = clock
        self.thread = FileThread(location)
        self._translators = Translators()
        self._ownership: Ownership | None = None
        self._writing: apsw.Connection | None = None
        self._inside = False

    async def close(self) -> None:
        """Close the file and release it."""
        try:
            await self.thread.run(self._close)
        finally:
            self.thread.close()

    def _close(self) -> None:
        self._close_file()
        ownership, self._ownership = self._ownership, None
        if ownership is not None:
            ownership.release()

    async def state(self) -> PlaceState:
        """Return what is there. An owner must not be disturbed without need: the file is not opened for it."""
        state = await self.look(lambda connection: PlaceState() if connection is None else state_in(connection))
        return state._replace(there=bool(state.names))

    async def look(self, use: Callable[[apsw.Connection | None], ResultT]) -> ResultT:
        """Read from one snapshot of the file; the function gets None without a file."""
        return await self.thread.run(lambda: self._look(use))

    def _look(self, use: Callable[[apsw.Connection | None], ResultT]) -> ResultT:
        with self._looking() as connection:
            return use(connection)

    @contextmanager
    def _looking(self) -> Generator[apsw.Connection | None]:
        if self._writing is not None:
            yield self._writing
        elif not self.path.exists():
            yield None
        else:
            with opening(self.path):
                connection = apsw.Connection(str(self.path), flags=apsw.SQLITE_OPEN_READWRITE)
                connection.execute("PRAGMA query_only = ON")
            with contextlib.closing(connection), one_snapshot(connection):
                yield connection

    async def begin(self, mark: Mark, make: Callable[[apsw.Connection], None], check: Check = unchecked) -> None:
        """Create the file, its mark and its tables; an existing file is renamed.

        `check` may refuse the file that is there, once no other process can open it.
        """
        await self.thread.run(lambda: self._begin(mark, make, check))

    def _begin(self, mark: Mark, make: Callable[[apsw.Connection], None], check: Check) -> None:
        rename_again(self.path)
        self._take()
        self._close_file()
        self._look(check)
        state = self._look(lambda found: PlaceState() if found is None else state_in(found))
        fresh = fresh_path(self.path, mark.epoch)
        remove(fresh)
        with contextlib.closing(self._opened(fresh)) as connection:
            with self._transaction(connection):
                admit(connection, mark, f"lane {self.path}")
                if state.left is not None:
                    write_tombstone(connection.execute, state.left)  # Until the arrival it redirects clients.
                make(connection)
                connection.execute(LANE_SCHEMA)  # It marks the file as a lane before its first opening.
            _ = connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)
        with opening(self.path):
            if state.mark is not None:
                replace_draft(self.path, fresh, epoch=mark.epoch, before=state.mark.epoch)
            elif self.path.exists():
                replace_left(self.path, fresh, epoch=mark.epoch)
            else:
                fresh.rename(self.path)
        _ = self._open()

    async def resume(self) -> None:
        """Acquire the draft of an earlier mover."""
        await self.thread.run(self._resume)

    def _resume(self) -> None:
        self._take()
        _ = self._open()

    def _take(self) -> None:
        if self._ownership is None:
            make_folder(self.path.parent)
            self._ownership = Ownership.take(self.path, self.clock)

    def _open(self) -> apsw.Connection:
        if self._writing is None:
            self._writing = self._opened(self.path)
        return self._writing

    def _opened(self, path: Path) -> apsw.Connection:
        with opening(path):
            connection = open_writer(path)
            for pragma in ("synchronous = NORMAL", "foreign_keys = OFF", f"wal_autocheckpoint = {FOLDED_PAGES}"):
                connection.execute(f"PRAGMA {pragma}")
            self._translators.prepare(connection, lambda: int(self.clock.wall_s() * 1_000_000))
        return connection

    def _close_file(self) -> None:
        writing, self._writing = self._writing, None
        if writing is not None:
            writing.close()

    @contextmanager
    def _transaction(self, connection: apsw.Connection) -> Generator[None]:
        if self._inside:
            yield
            return
        with opening(self.path):
            connection.execute("BEGIN IMMEDIATE")
            try:
                yield
                connection.execute("COMMIT")
            finally:
                if connection.in_transaction:
                    connection.execute("ROLLBACK")

    async def run(self, use: Callable[[apsw.Connection], ResultT], *, durable: bool = False) -> ResultT:
        """Run a transaction, or a part of `last`. After a durable one all earlier ones are durable, too."""
        return await self.thread.run(lambda: self._run(use, durable=durable))

    def _run(self, use: Callable[[apsw.Connection], ResultT], *, durable: bool) -> ResultT:
        connection = self._open()
        if durable and not self._inside:
            connection.execute("PRAGMA synchronous = FULL")
        with self._transaction(connection):
            return use(connection)

    async def read(self, use: Callable[[apsw.Connection], ResultT]) -> ResultT:
        """Read from the draft."""
        return await self.thread.run(lambda: use(self._open()))

    async def fold(self) -> None:
        """Checkpoint the log: folded pages need no work in the last sync."""
        await self.read(lambda connection: connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE))

    @asynccontextmanager
    async def last(self) -> AsyncGenerator[None]:
        """Open a transaction whose commit syncs all earlier ones, too."""
        connection = await self.thread.run(self._open)
        await self.thread.run(lambda: connection.execute("PRAGMA synchronous = FULL; BEGIN IMMEDIATE"))
        self._inside = True
        try:
            yield
            with opening(self.path):
                await self.thread.run(lambda: connection.execute("COMMIT"))
        finally:
            self._inside = False
            if connection.in_transaction:
                await self.thread.run(lambda: connection.execute("ROLLBACK"))

    async def arrive(self, epoch: int) -> None:
        """Remove the mark. A client that was redirected here may have removed it before."""
        await self.thread.run(lambda: self._arrive(epoch))

    def _arrive(self, epoch: int) -> None:
        if self._mark() is None:
            return
        self._take()
        self._run(lambda connection: arrive_in(connection, epoch, f"lane {self.path}"), durable=True)
        self._close()

    async def is_used(self) -> bool:
        """Return whether a process has written a group since the arrival: then its log is not empty."""
        log = self.path.with_name(f"{self.path.name}-wal")
        return await self.thread.run(lambda: log.exists() and log.stat().st_size > 0)

    def _mark(self) -> Mark | None:
        return self._look(lambda connection: None if connection is None else draft_of(connection))

    async def drop(self) -> None:
        """Remove the file of the draft; a file that it replaced keeps its new name."""
        await self.thread.run(self._drop)

    def _drop(self) -> None:
        if self._mark() is None:
            return
        self._take()
        self._close_file()
        mark = self._mark()
        if mark is None:
            raise UnavailableError(f"the draft at {self.location} has become a database meanwhile.")
        with opening(self.path):
            take_back(self.path, mark.epoch)


# --- Target ----------------------------------------------------------------------------------------------------------

FOLLOWED_S_MAX: Final = 2.0
"""Longest wait for a program that follows. It only makes the printed wait exact."""

LOOK_S: Final = 0.005


async def first_write(is_used: Callable[[], Awaitable[bool]], clock: Clock) -> float:
    """Wait for the first write of the program that follows; return when that was, or when it could have been."""
    since_s = clock.monotonic_s()
    while clock.monotonic_s() - since_s < FOLLOWED_S_MAX:
        if await is_used():
            return clock.monotonic_s()
        await asyncio.sleep(LOOK_S)
    return since_s


class DraftPlace(Protocol):
    """The lane that a mover fills: a file (`LaneDraft`) or a log in a bucket (`bucket_lane.BucketDraft`)."""

    location: str
    thread: FileThread
    clock: Clock

    async def state(self) -> PlaceState:
        """Return what is there, without opening it."""
        ...

    async def look(self, use: Callable[[apsw.Connection | None], ResultT]) -> ResultT:
        """Read what is there, without opening it."""
        ...

    async def begin(self, mark: Mark, make: Callable[[apsw.Connection], None], check: Check = unchecked) -> None:
        """Create a draft with its mark; an existing one is replaced. `check` may refuse what is there."""
        ...

    async def resume(self) -> None:
        """Acquire the draft of an earlier mover."""
        ...

    async def run(self, use: Callable[[apsw.Connection], ResultT], *, durable: bool = False) -> ResultT:
        """Run a transaction, or a part of `last`."""
        ...

    async def read(self, use: Callable[[apsw.Connection], ResultT]) -> ResultT:
        """Read from the draft."""
        ...

    async def fold(self) -> None:
        """Prepare for a quick last transaction."""
        ...

    def last(self) -> AbstractAsyncContextManager[None]:
        """Open the last transaction: when the block ends, the draft is durable."""
        ...

    async def arrive(self, epoch: int) -> None:
        """Remove the mark and release the lane. A second call changes nothing."""
        ...

    async def is_used(self) -> bool:
        """Return whether a process has written to the lane since the arrival."""
        ...

    async def drop(self) -> None:
        """Remove the draft."""
        ...

    async def close(self) -> None:
        """Release the draft, so that another mover can continue."""
        ...


class LaneTarget:
    """A database that arrives in a lane.

    Foreign keys are off: rows come in the order of their tables, and a replaced row must not cascade to others.
    """

    def __init__(self, place: DraftPlace) -> None:
        self.location = place.location
        self._place = place

    async def close(self) -> None:
        """Release the draft, so that another mover can continue."""
        await self._place.close()

    async def last_epoch(self) -> int:
        """Return the epoch of the last move."""
        state = await self._place.state()
        emptied = 0 if state.mark is None or state.draft is not None else state.mark.epoch
        return max(state.epoch, emptied, 0 if state.left is None else state.left.epoch)

    async def draft(self) -> Draft | None:
        """Return the draft that exists here; None without one."""
        return (await self._place.state()).draft

    async def refuse_taken(self) -> None:
        """Raise BadUsage when a database lives there."""
        state = await self._place.state()
        if state.there and state.mark is None and state.left is None:
            raise taken(self.location, state.names)

    async def begin(self, draft: Draft, shape: Shape) -> None:
        """Create the lane, its mark and its tables; an existing draft is replaced."""

        def make(connection: apsw.Connection) -> None:
            remember(connection, draft)
            make_in_lane(connection, shape)

        await self._place.begin(Mark(draft.epoch, draft.source), make)

    async def resume(self, shape: Shape) -> None:
        """Acquire the draft of an earlier mover."""
        del shape
        await self._place.resume()

    async def copy(self, table: Table, rows: Sequence[StoredRow], draft: Draft) -> None:
        """Write rows and position in one transaction."""

        def copy(connection: apsw.Connection) -> None:
            to_lane(connection, table, rows)
            remember(connection, draft)

        await self._place.run(copy)

    async def put(self, shape: Shape, pending: Pending) -> None:
        """Write pending rows, durably: after this the source deletes its notes.

        All their keys are removed first, so that unique values cannot collide.
        """

        def put(connection: apsw.Connection) -> None:
            for name, keys in pending.keys.items():
                delete_in_lane(connection, shape.table(name), keys)
            for name, rows in pending.rows.items():
                to_lane(connection, shape.table(name), rows)

        await self._place.run(put, durable=True)

    async def replace(self, table: Table, rows: Sequence[StoredRow], *, first: bool) -> None:
        """Replace all rows with these if `first`, else add them."""

        def replace_rows(connection: apsw.Connection) -> None:
            if first:
                empty_in_lane(connection, table)
            to_lane(connection, table, rows)

        await self._place.run(replace_rows)

    async def rows_of(self, table: Table, keys: Sequence[StoredRow]) -> list[StoredRow]:
        """Return the rows with these keys."""
        return await self._place.read(lambda connection: lane_rows_of(connection, table, keys))

    async def page(self, table: Table, after: StoredRow | None, limit: int) -> Page:
        """Return a page of rows in the order of the key."""
        return await self._place.read(lambda connection: lane_rows(connection, table, after, limit=limit))

    async def count(self, table: Table) -> int:
        """Return the number of rows."""
        return await self._place.read(lambda connection: count_in_lane(connection, table))

    async def index(self, shape: Shape, draft: Draft) -> None:
        """Create the indexes, after the rows."""

        def index(connection: apsw.Connection) -> None:
            index_in_lane(connection, shape)
            remember(connection, draft)

        await self._place.run(index)
        await self._place.fold()

    def last(self) -> AbstractAsyncContextManager[None]:
        """Open the last transaction: when the block ends, the draft is durable."""
        return self._place.last()

    async def complete(self, shape: Shape, positions: Mapping[str, int], draft: Draft) -> None:
        """Set the numbering, and record the verified checksum."""

        def complete(connection: apsw.Connection) -> None:
            set_lane_positions(connection, shape, positions)
            remember(connection, draft)

        await self._place.run(complete)

    async def arrive(self, epoch: int) -> None:
        """Make the draft the database."""
        await self._place.arrive(epoch)

    async def reached(self) -> float:
        """Wait for the first write of the program that follows. There may be none on this host."""
        return await first_write(self._place.is_used, self._place.clock)

    async def finish(self) -> None:
        """Do nothing: all constraints are validated already."""

    async def drop(self) -> None:
        """Remove the draft."""
        await self._place.drop()

    @asynccontextmanager
    async def sample(self, table: Table) -> AsyncGenerator[LaneSample]:
        """Return a lane in a temporary folder, also for a bucket: a sample there could not be removed."""
        async with lane_sample(self._place.thread, table, self._place.clock) as sample:
            yield sample
