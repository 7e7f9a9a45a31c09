"""Lane on a local disk as the target of a move.

The draft is a lane at its final path, with a mark that refuses every other use (`lanes.arriving`). The mover owns it
like an open lane, and writes without a lane. During the copy its large transactions are not synced, because rows and
position are written together; later ones are. An older file with a tombstone is renamed first, and kept.
"""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# apsw's stubs leave the values of SQLite partly open; mypy --strict looks at what is ours.

import contextlib
from collections.abc import AsyncGenerator, Generator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Final

import apsw

from interlock.catalog.addresses import lane_path
from interlock.database.moving.ends import Draft, Pending
from interlock.database.moving.filling import (
    arrive_in,
    begin_in,
    complete_in,
    copy_in,
    index_in,
    put_in,
    replace_in,
    tables_in,
    taken,
)
from interlock.database.moving.lane_files import (
    fresh_path,
    remove,
    rename_again,
    replace_draft,
    replace_left,
    take_back,
)
from interlock.database.moving.lane_marks import arrived_at, draft_in
from interlock.database.moving.lane_rows import Page, count_in_lane, lane_rows, lane_rows_of
from interlock.database.moving.sampling import LaneSample, lane_sample
from interlock.database.moving.shape import Shape, Table
from interlock.database.moving.threads import Alone
from interlock.database.moving.values import StoredRow
from interlock.database.on_lanes import Translators
from interlock.errors import UnavailableError
from interlock.lanes.arriving import Draft as Mark
from interlock.lanes.arriving import admit
from interlock.lanes.connection import make_folder, open_writer
from interlock.lanes.failures import opening
from interlock.lanes.ownership import Ownership
from interlock.lanes.tombstone import Tombstone, one_snapshot, tombstone_of, write_tombstone
from interlock.lanes.writer import LANE_SCHEMA
from interlock.seams import Clock

FOLDED_PAGES: Final = 4_000
"""Number of pages in the log at which it is checkpointed into the file."""


class LaneTarget:
    """The file of one lane."""

    def __init__(self, alone: Alone, path: Path, shown: str, clock: Clock) -> None:
        self.shown = shown
        self._alone = alone
        self._path = path
        self._clock = clock
        self._translators = Translators()
        self._ownership: Ownership | None = None
        self._writing: apsw.Connection | None = None
        self._inside = False

    @classmethod
    async def opened(cls, url: str, shown: str, *, clock: Clock) -> "LaneTarget":
        """Return the target without opening the file: an owner there must not be disturbed without need."""
        path = lane_path(url)
        assert path is not None
        return cls(Alone(), path, shown, clock)

    async def close(self) -> None:
        """Close the file and release it."""
        try:
            await self._alone.run(self._close)
        finally:
            self._alone.close()

    def _close(self) -> None:
        writing, self._writing = self._writing, None
        if writing is not None:
            writing.close()
        ownership, self._ownership = self._ownership, None
        if ownership is not None:
            ownership.release()

    # --- before -------------------------------------------------------------------------------------------------

    async def last_epoch(self) -> int:
        """Return the epoch of the last move."""
        return await self._alone.run(self._last_epoch)

    def _last_epoch(self) -> int:
        with self._looking() as connection:
            if connection is None:
                return 0
            stone = tombstone_of(connection)
            return max(0 if stone is None else stone.epoch, arrived_at(connection))

    async def draft(self) -> Draft | None:
        """Return the draft that exists here; None without one."""
        return await self._alone.run(self._draft)

    def _draft(self) -> Draft | None:
        with self._looking() as connection:
            return None if connection is None else draft_in(connection)

    @contextmanager
    def _looking(self) -> Generator[apsw.Connection | None]:
        """Yield a connection with one snapshot for the whole block; None without a file."""
        if self._writing is not None:
            yield self._writing
        elif not self._path.exists():
            yield None
        else:
            with opening(self._path):
                connection = apsw.Connection(str(self._path), flags=apsw.SQLITE_OPEN_READWRITE)
                connection.execute("PRAGMA query_only = ON")
            with contextlib.closing(connection), one_snapshot(connection):
                yield connection

    async def refuse_taken(self) -> None:
        """Raise BadUsage when a database lives there."""
        await self._alone.run(self._refuse_taken)

    def _refuse_taken(self) -> None:
        with self._looking() as connection:
            if connection is None or tombstone_of(connection) is not None:
                return
            names = tables_in(connection)
            if names:
                raise taken(self.shown, names)

    # --- while the source serves --------------------------------------------------------------------------------

    async def begin(self, draft: Draft, shape: Shape) -> None:
        """Create the file, its mark and its tables; an existing file is renamed."""
        await self._alone.run(lambda: self._begin(draft, shape))

    def _begin(self, draft: Draft, shape: Shape) -> None:
        rename_again(self._path)
        self._take()
        self._close_file()
        before, stone = self._found()
        fresh = fresh_path(self._path, draft.epoch)
        remove(fresh)
        with contextlib.closing(self._opened(fresh)) as connection:
            with self._transaction(connection):
                admit(connection, Mark(draft.epoch, draft.source), f"lane {self._path}")
                if stone is not None:
                    write_tombstone(connection.execute, stone)  # Until the arrival it redirects clients.
                begin_in(connection, draft, shape)
                connection.execute(LANE_SCHEMA)  # It marks the file as a lane before its first opening.
            _ = connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)
        with opening(self._path):
            if before is not None:
                replace_draft(self._path, fresh, epoch=draft.epoch, before=before.epoch)
            elif self._path.exists():
                replace_left(self._path, fresh, epoch=draft.epoch)
            else:
                fresh.rename(self._path)
        _ = self._open()

    def _found(self) -> tuple[Draft | None, Tombstone | None]:
        with self._looking() as connection:
            return (None, None) if connection is None else (draft_in(connection), tombstone_of(connection))

    async def resume(self, shape: Shape) -> None:
        """Acquire the draft of an earlier mover."""
        del shape
        await self._alone.run(self._resume)

    def _resume(self) -> None:
        self._take()
        _ = self._open()

    def _take(self) -> None:
        if self._ownership is None:
            make_folder(self._path.parent)
            self._ownership = Ownership.take(self._path, self._clock)

    def _open(self) -> apsw.Connection:
        if self._writing is None:
            self._writing = self._opened(self._path)
        return self._writing

    def _opened(self, path: Path) -> apsw.Connection:
        with opening(path):
            connection = open_writer(path)
            for pragma in ("synchronous = NORMAL", "foreign_keys = OFF", f"wal_autocheckpoint = {FOLDED_PAGES}"):
                connection.execute(f"PRAGMA {pragma}")
            self._translators.prepare(connection, lambda: int(self._clock.wall_s() * 1_000_000))
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
        with opening(self._path):
            connection.execute("BEGIN IMMEDIATE")
            try:
                yield
                connection.execute("COMMIT")
            finally:
                if connection.in_transaction:
                    connection.execute("ROLLBACK")

    async def copy(self, table: Table, rows: Sequence[StoredRow], draft: Draft) -> None:
        """Write rows and position in one transaction."""
        await self._alone.run(lambda: self._copy(table, rows, draft))

    def _copy(self, table: Table, rows: Sequence[StoredRow], draft: Draft) -> None:
        connection = self._open()
        with self._transaction(connection):
            copy_in(connection, table, rows, draft)

    async def put(self, shape: Shape, pending: Pending) -> None:
        """Write pending rows. All their keys are removed first, so that unique values cannot collide."""
        await self._alone.run(lambda: self._put(shape, pending))

    def _put(self, shape: Shape, pending: Pending) -> None:
        connection = self._open()
        if not self._inside:
            connection.execute("PRAGMA synchronous = FULL")  # After this the source deletes its notes.
        with self._transaction(connection):
            put_in(connection, shape, pending)

    async def replace(self, table: Table, rows: Sequence[StoredRow], *, first: bool) -> None:
        """Replace all rows with these if `first`, else add them."""
        await self._alone.run(lambda: self._replace(table, rows, first=first))

    def _replace(self, table: Table, rows: Sequence[StoredRow], *, first: bool) -> None:
        connection = self._open()
        with self._transaction(connection):
            replace_in(connection, table, rows, first=first)

    async def rows_of(self, table: Table, keys: Sequence[StoredRow]) -> list[StoredRow]:
        """Return the rows with these keys."""
        return await self._alone.run(lambda: lane_rows_of(self._open(), table, keys))

    async def page(self, table: Table, after: StoredRow | None, limit: int) -> Page:
        """Return a page of rows in the order of the key."""
        return await self._alone.run(lambda: lane_rows(self._open(), table, after, limit=limit))

    async def count(self, table: Table) -> int:
        """Return the number of rows."""
        return await self._alone.run(lambda: count_in_lane(self._open(), table))

    async def index(self, shape: Shape, draft: Draft) -> None:
        """Create the indexes, after the rows."""
        await self._alone.run(lambda: self._index(shape, draft))

    def _index(self, shape: Shape, draft: Draft) -> None:
        connection = self._open()
        with self._transaction(connection):
            index_in(connection, shape, draft)
        # Checkpointed pages need no work in the last sync.
        _ = connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)

    # --- the end ------------------------------------------------------------------------------------------------

    @asynccontextmanager
    async def last(self) -> AsyncGenerator[None]:
        """Open a transaction whose commit syncs all earlier ones, too."""
        connection = await self._alone.run(self._open)
        await self._alone.run(lambda: connection.execute("PRAGMA synchronous = FULL; BEGIN IMMEDIATE"))
        self._inside = True
        try:
            yield
            with opening(self._path):
                await self._alone.run(lambda: connection.execute("COMMIT"))
        finally:
            self._inside = False
            if connection.in_transaction:
                await self._alone.run(lambda: connection.execute("ROLLBACK"))

    async def complete(self, shape: Shape, positions: Mapping[str, int], draft: Draft) -> None:
        """Set the numbering, and record the verified checksum."""
        await self._alone.run(lambda: complete_in(self._open(), shape, positions, draft))

    async def arrive(self, epoch: int) -> None:
        """Remove the mark. A client that was redirected here may have removed it before."""
        await self._alone.run(lambda: self._arrive(epoch))

    def _arrive(self, epoch: int) -> None:
        if self._draft() is None:
            return
        self._take()
        connection = self._open()
        connection.execute("PRAGMA synchronous = FULL")
        with self._transaction(connection):
            arrive_in(connection, epoch, f"lane {self._path}")
        self._close()

    async def finish(self) -> None:
        """Do nothing: all constraints are validated already."""

    async def drop(self) -> None:
        """Remove the file of the draft; a file that it replaced keeps its new name."""
        await self._alone.run(self._drop)

    def _drop(self) -> None:
        if self._draft() is None:
            return
        self._take()
        self._close_file()
        draft = self._draft()
        if draft is None:
            raise UnavailableError(f"the draft at {self.shown} has become a database meanwhile.")
        with opening(self._path):
            take_back(self._path, draft.epoch)

    @asynccontextmanager
    async def sample(self, table: Table) -> AsyncGenerator[LaneSample]:
        """Return a lane in a temporary folder, which is removed at the end of the block."""
        async with lane_sample(self._alone, table, self._clock) as sample:
            yield sample
