"""Lane on a local disk as the source of a move.

The mover has a connection of its own beside the lane's owner, in this process or another one (`lanes.leaving`). SQLite
blocks its thread, so everything runs in one thread of the mover.
"""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# apsw's stubs leave the values of SQLite partly open; mypy --strict looks at what is ours.

from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final, TypeVar, cast

import apsw

from interlock.database.moving.ends import Pending, Restart
from interlock.database.moving.lane_marks import arrived_at
from interlock.database.moving.lane_rows import Page, count_in_lane, lane_rows, lane_rows_of
from interlock.database.moving.lane_shape import shape_of_lane
from interlock.database.moving.locking import another_mover
from interlock.database.moving.numbering import lane_positions
from interlock.database.moving.shape import Shape, Table
from interlock.database.moving.threads import Alone
from interlock.database.moving.values import StoredRow
from interlock.database.on_lanes import Translators
from interlock.errors import LaneOwned
from interlock.lanes.leaving import Leaving, Seal
from interlock.lanes.ownership import Ownership
from interlock.lanes.tombstone import tombstone_of
from interlock.seams import Clock

NOTES_AT_ONCE: Final = 20_000
SAMPLE_ROWS: Final = 500

ResultT = TypeVar("ResultT")
Touched = Callable[[int, int], list[tuple[int, str, tuple[object, ...]]]]


class _Reading:
    """Reads on one connection, in the mover's thread."""

    def __init__(self, alone: Alone, connection: apsw.Connection, touched: Touched) -> None:
        self._alone = alone
        self._connection = connection
        self._touched = touched

    async def page(self, table: Table, after: StoredRow | None, limit: int) -> Page:
        """Return a page of rows in the order of the key."""
        return await self._alone.run(lambda: lane_rows(self._connection, table, after, limit=limit))

    async def count(self, table: Table) -> int:
        """Return the number of rows."""
        return await self._alone.run(lambda: count_in_lane(self._connection, table))

    async def fingerprint(self) -> str:
        """Return SQLite's schema version, which changes with every change of the schema, triggers included."""
        return await self._alone.run(lambda: str(self._connection.execute("PRAGMA schema_version").get))

    async def pending(self, shape: Shape, limit: int) -> Pending:
        """Return the oldest notes and their rows, at one instant."""
        return await self._alone.run(lambda: self._pending(shape, limit))

    def _pending(self, shape: Shape, limit: int) -> Pending:
        tables = {table.name: table for table in shape.tables}
        keys: dict[str, dict[StoredRow, None]] = {}
        last = notes = 0
        complete = False
        while sum(map(len, keys.values())) < limit:
            found = self._touched(last, NOTES_AT_ONCE)
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
        rows = {name: lane_rows_of(self._connection, tables[name], listed) for name, listed in keyed.items()}
        return Pending(notes=notes, keys=keyed, rows=rows, complete=complete, numbers=(last,) if last else ())


class LaneSource(_Reading):
    """The file of one lane."""

    def __init__(self, alone: Alone, leaving: Leaving, shown: str, clock: Clock) -> None:
        super().__init__(alone, leaving.connection, leaving.touched)
        self.shown = shown
        self._leaving = leaving
        self._clock = clock
        self._ownership: Ownership | None = None

    @classmethod
    async def opened(cls, path: Path, shown: str, *, clock: Clock) -> "LaneSource":
        """Open a second connection to the file, which must exist."""
        alone = Alone()
        try:
            leaving = await alone.run(lambda: Leaving(path, clock=clock, prepare=Translators().prepare))
        except BaseException:
            alone.close()
            raise
        return cls(alone, leaving, shown, clock)

    async def close(self) -> None:
        """Close the connection."""
        try:
            await self._alone.run(self._leaving.close)
        finally:
            self._alone.close()
            if self._ownership is not None:
                self._ownership.release()

    async def take(self) -> None:
        """Acquire the movers' lock file, which is separate from that of the lane's owner."""
        if self._ownership is None:
            try:
                self._ownership = Ownership.take(Path(f"{self._leaving.path.resolve()}.leaving"), self._clock)
            except LaneOwned as error:
                raise another_mover(self.shown) from error

    async def moved(self) -> tuple[str, int] | None:
        """Return its tombstone; None without one."""
        stone = await self._alone.run(lambda: tombstone_of(self._connection))
        return None if stone is None else (stone.url, stone.epoch)

    async def last_epoch(self) -> int:
        """Return the epoch of the last move."""
        stone = await self._alone.run(lambda: tombstone_of(self._connection))
        return max(0 if stone is None else stone.epoch, await self._alone.run(lambda: arrived_at(self._connection)))

    async def shape(self) -> Shape:
        """Return the shape of the database."""
        return await self._alone.run(lambda: shape_of_lane(self._connection))

    async def bytes_of(self, shape: Shape) -> Mapping[str, int]:
        """Estimate the bytes of the rows from a sample."""
        return await self._alone.run(lambda: {table.name: self._bytes(table) for table in shape.tables})

    def _bytes(self, table: Table) -> int:
        rows = lane_rows(self._connection, table, limit=SAMPLE_ROWS).rows
        weights = sum(len(value) if isinstance(value, str | bytes) else 8 for row in rows for value in row)
        return count_in_lane(self._connection, table) * weights // max(len(rows), 1)

    async def watch(self, shape: Shape) -> None:
        """Create the triggers."""
        tables = {table.name: [column.stored for column in table.key_columns] for table in shape.tables if table.key}
        await self._alone.run(lambda: self._leaving.watch(tables))

    async def noted(self, table: Table) -> set[StoredRow]:
        """Return the noted keys of one table."""
        return await self._alone.run(lambda: self._noted(table))

    def _noted(self, table: Table) -> set[StoredRow]:
        found, last = set[StoredRow](), 0
        while True:
            notes = self._touched(last, NOTES_AT_ONCE)
            found |= {cast("StoredRow", tuple(key)) for _, name, key in notes if name == table.name}
            if len(notes) < NOTES_AT_ONCE:
                return found
            last = notes[-1][0]

    def _pending(self, shape: Shape, limit: int) -> Pending:
        self._connection.execute("BEGIN")
        try:
            return super()._pending(shape, limit)
        finally:
            self._connection.execute("COMMIT")

    async def forget(self, pending: Pending) -> None:
        """Delete the notes up to a number: a lane commits in order, so earlier notes were all read."""
        if pending.numbers:
            await self._alone.run(lambda: self._leaving.forget(pending.numbers[0]))

    async def unwatch(self) -> None:
        """Remove the triggers and the notes."""
        await self._alone.run(self._leaving.unwatch)

    @asynccontextmanager
    async def sealed(self, wait_s: float) -> "AsyncGenerator[_Sealed]":
        """Acquire SQLite's write lock, for which the lane's writer waits."""
        block = self._leaving.sealed(wait_s)
        since_s = self._clock.monotonic_s()
        seal = await self._alone.run(block.__enter__)
        try:
            yield _Sealed(self._alone, seal, self._leaving.touched, since_s)
        except BaseException as error:
            kind, value, trace = type(error), error, error.__traceback__
            await self._alone.run(lambda: block.__exit__(kind, value, trace))
            raise
        await self._alone.run(lambda: block.__exit__(None, None, None))


class _Sealed(_Reading):
    """A source with the write lock."""

    def __init__(self, alone: Alone, seal: Seal, touched: Touched, since_s: float) -> None:
        super().__init__(alone, seal.connection, touched)
        self.since_s = since_s
        self._seal = seal

    async def positions(self, shape: Shape) -> Mapping[str, int]:
        """Return the last number of each numbered table."""
        return await self._alone.run(lambda: lane_positions(self._connection, shape))

    async def leave(self, url: str, epoch: int) -> None:
        """Write the tombstone durably."""
        await self._alone.run(lambda: self._seal.leave(url, epoch))
