"""Bucket as the source and as the target of a move.

As the source, the mover follows the log in a file of its own (`BucketCopy`), without a lease: the owner serves. Each
change of its own, the triggers and the seal, is a takeover, and the previous owner can never acknowledge again.

As the target, the draft is a lane in the bucket, with a mark that refuses every other use (`lanes.handover`). The
mover owns it with a lease: each piece is one group, in the bucket when the call returns. A plan takes no lease.

Sections: source, target.
"""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# apsw's stubs leave the values of SQLite partly open; mypy --strict looks at what is ours.

import asyncio
import contextlib
import tempfile
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final, NamedTuple, TypeVar, cast

import apsw

from interlock.catalog.open_lane import closing_thread, open_in_thread, place_of
from interlock.clock import Clock
from interlock.database.lane_engine import Translators
from interlock.errors import TargetNotFound, UnavailableError
from interlock.lanes.handover import Draft as Mark
from interlock.lanes.handover import (
    Note,
    Tombstone,
    draft_of,
    is_watched,
    is_watching,
    mark_again,
    notes_after,
    tombstone_of,
    unwatch,
    watch,
    write_tombstone,
)
from interlock.lanes.lane import Lane
from interlock.lanes.objectlog.bucket_protocol import answering
from interlock.lanes.objectlog.log import bucket_of
from interlock.lanes.objectlog.manifest import read_manifest
from interlock.lanes.objectlog.mover_copy import BucketCopy, Hurried, hurry, note_back, note_left, take_over, unhurry
from interlock.lanes.settings import LaneSettings
from interlock.lanes.writer import Session, Work
from interlock.relocate.database.lane import (
    STATE,
    LaneReading,
    LaneSample,
    arrive_in,
    arrived_at,
    begin_in,
    bytes_in_lane,
    complete_in,
    copy_in,
    draft_in,
    has_table,
    index_in,
    lane_sample,
    put_in,
    replace_in,
    tables_in,
    taken,
)
from interlock.relocate.database.lane_shape import shape_of_lane
from interlock.relocate.database.protocol import Draft, FileThread, Pending
from interlock.relocate.database.rows import Page, StoredRow, count_in_lane, lane_positions, lane_rows, lane_rows_of
from interlock.relocate.database.shape import KEY_TABLES, Shape, Table
from interlock.sql.schema import POSITION_PREFIX
from interlock.urls import parse_bucket_url

SETTINGS: Final = LaneSettings()
DEFINITIONS: Final = "interlock_definitions"

ResultT = TypeVar("ResultT")


# --- Source ----------------------------------------------------------------------------------------------------------
# The triggers that note writes are made by a takeover of a moment, after which the owner opens the lane again. The
# notes are rows like others, so they come with the log. None is deleted: the mover remembers how far it has read.
# Before each takeover the owner's lease is shortened, so that its callers wait for half a second and not for ten.


class BucketSource(LaneReading):
    """A copy of the lane in the bucket, which follows its log."""

    def __init__(
        self, thread: FileThread, url: str, location: str, folder: "tempfile.TemporaryDirectory[str]", clock: Clock
    ) -> None:
        super().__init__(thread)
        self.location = location
        self._url = url
        self._clock = clock
        self._folder = folder
        self._translators = Translators()
        self._copy = self._fresh_copy()
        self._used = False
        """Whether the lane of a takeover has used the file of the copy."""
        self._forgotten = 0
        """Number of the last note whose row was brought over."""
        self._hurried: Hurried | None = None

    @classmethod
    async def opened(cls, url: str, location: str, *, clock: Clock) -> "BucketSource":
        """Copy the database. Raises TargetNotFound without one."""
        thread = FileThread()
        folder = tempfile.TemporaryDirectory(prefix="interlock-route-")
        try:
            return await thread.run(lambda: cls(thread, url, location, folder, clock))
        except BaseException:
            thread.close()
            folder.cleanup()
            raise

    async def close(self) -> None:
        """Remove the copy."""
        try:
            await self._thread.run(self._copy.close)
        finally:
            self._thread.close()
            self._folder.cleanup()

    def _fresh_copy(self) -> BucketCopy:
        place = Path(tempfile.mkdtemp(dir=self._folder.name))
        copy = BucketCopy(self._url, place, clock=self._clock, prepare=self._translators.prepare)
        _ = copy.forward()
        if copy.connection().execute("SELECT 1 FROM sqlite_schema LIMIT 1").get is None:
            raise TargetNotFound(
                f"there is no database at {self.location}.",
                why="Its log in the bucket is empty.",
                fix="Check the address; `interlock route` moves a database that is there.",
            )
        return copy

    def connection(self) -> apsw.Connection:
        """Return the connection to the copy."""
        if self._used:
            self._copy.close()
            self._copy, self._used = self._fresh_copy(), False
        return self._copy.connection()

    def notes(self, after: int, limit: int) -> list[Note]:
        """Return the notes above a number, without those that were brought over."""
        return notes_after(self.connection(), max(after, self._forgotten), limit)

    async def take(self) -> None:
        """Do nothing: movers delete no notes here, and of two takeovers the later one wins."""

    async def moved(self) -> tuple[str, int] | None:
        """Return its tombstone; None without one."""
        stone = await self._thread.run(lambda: tombstone_of(self.connection()))
        return None if stone is None else (stone.url, stone.epoch)

    async def confirm_left(self) -> None:
        """Write the tombstone into the manifest."""
        stone = await self._thread.run(lambda: tombstone_of(self.connection()))
        if stone is not None:
            await self._thread.run(lambda: note_left(self._url, stone, clock=self._clock))

    async def last_epoch(self) -> int:
        """Return the epoch of the last move."""
        left = await self.moved()
        return max(0 if left is None else left[1], await self._thread.run(lambda: arrived_at(self.connection())))

    async def shape(self) -> Shape:
        """Return the shape of the database."""
        return await self._thread.run(lambda: shape_of_lane(self.connection()))

    async def bytes_of(self, shape: Shape) -> Mapping[str, int]:
        """Estimate the bytes of the rows from a sample."""
        return await self._thread.run(
            lambda: {table.name: bytes_in_lane(self.connection(), table) for table in shape.tables}
        )

    async def watch(self, shape: Shape) -> None:
        """Create the triggers, by a takeover of a moment."""
        tables = {table.name: [column.stored for column in table.key_columns] for table in shape.tables if table.key}
        if not await self._thread.run(lambda: is_watching(self.connection(), tables)):
            await self._change(lambda connection: watch(connection, tables))
            self._forgotten = 0  # A new table of notes numbers them from 1.

    async def unwatch(self) -> None:
        """Remove the triggers and the notes, and restore the lease."""
        if await self._thread.run(lambda: is_watched(self.connection())):
            await self._change(unwatch)
        await self._thread.run(lambda: unhurry(self._url, clock=self._clock))

    async def _change(self, change: Callable[[apsw.Connection], None]) -> None:
        """Run a short transaction as the owner of the lane, and release it."""
        async with self._taken_over() as lane:
            _ = await lane.run(Work(_use, change))

    @asynccontextmanager
    async def _taken_over(self) -> AsyncGenerator[Lane]:
        """Own the lane during the block. Afterwards the previous owner may open it again."""
        short_s = await self._wait_for_lease()
        path, self._used = await self._thread.run(self._copy.keep), True
        lane = await open_in_thread(
            lambda: take_over(
                self._url,
                path,
                settings=SETTINGS,
                clock=self._clock,
                prepare=self._translators.prepare,
                short_s=short_s,
            )
        )
        try:
            yield lane
        finally:
            await asyncio.wrap_future(closing_thread(lane.close))
            self._hurried = None

    async def _wait_for_lease(self) -> float:
        """Shorten the lease, and wait while the owner serves until it has noticed; return the end of the long one."""
        await self._thread.run(self._hurry)
        hurried = self._hurried
        assert hurried is not None
        await asyncio.sleep(max(0.0, hurried.short_s - self._clock.monotonic_s()))
        return hurried.short_s

    def _hurry(self) -> None:
        found = hurry(self._url, clock=self._clock)
        if self._hurried is None or self._hurried.epoch != found.epoch:
            self._hurried = found

    async def noted_keys(self, table: Table) -> set[StoredRow]:
        """Return the noted keys of one table."""
        return await self._thread.run(lambda: self.keys_noted(table))

    async def pending(self, shape: Shape, limit: int) -> Pending:
        """Follow the log, and return the oldest notes and their rows."""
        await self._thread.run(self._forward)
        return await super().pending(shape, limit)

    def _forward(self) -> None:
        self._hurry()
        _ = self.connection()
        _ = self._copy.forward()

    async def forget(self, pending: Pending) -> None:
        """Remember how far the notes were read."""
        self._forgotten = max(self._forgotten, *pending.numbers, 0)

    @asynccontextmanager
    async def sealed(self, wait_s: float) -> "AsyncGenerator[_Sealed]":
        """Take the lane over. It is released at the end, left or not."""
        del wait_s
        await self._wait_for_lease()
        path = self._copy.path
        since_s = self._clock.monotonic_s()
        async with self._taken_over() as lane:
            connection = await self._thread.run(lambda: self._beside(path))
            try:
                yield _Sealed(self._thread, connection, lane, self, since_s)
            finally:
                await self._thread.run(connection.close)

    def _beside(self, path: Path) -> apsw.Connection:
        connection = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READWRITE)
        connection.execute("PRAGMA query_only = ON")
        self._translators.prepare(connection, lambda: int(self._clock.wall_s() * 1_000_000))
        return connection

    async def leave(self, lane: Lane, url: str, epoch: int) -> None:
        """Write the tombstone as the last transaction of the lane, and then into the manifest."""
        stone = Tombstone(url, epoch, int(self._clock.wall_s() * 1_000_000))

        def end(connection: apsw.Connection) -> None:
            unwatch(connection)
            write_tombstone(connection.execute, stone)

        _ = await lane.run(Work(_use, end))
        await self._thread.run(lambda: note_left(self._url, stone, clock=self._clock))

    @property
    def forgotten(self) -> int:
        """Return the number of the last note whose row was brought over."""
        return self._forgotten


class _Sealed(LaneReading):
    """A source whose lane the mover owns."""

    def __init__(
        self, thread: FileThread, connection: apsw.Connection, lane: Lane, source: BucketSource, since_s: float
    ) -> None:
        super().__init__(thread)
        self.since_s = since_s
        self._connection = connection
        self._lane = lane
        self._source = source

    def connection(self) -> apsw.Connection:
        """Return the connection to the local file of the lane."""
        return self._connection

    def notes(self, after: int, limit: int) -> list[Note]:
        """Return the notes above a number, without those that were brought over."""
        return notes_after(self._connection, max(after, self._source.forgotten), limit)

    async def positions(self, shape: Shape) -> Mapping[str, int]:
        """Return the last number of each numbered table."""
        return await self._thread.run(lambda: lane_positions(self._connection, shape))

    async def leave(self, url: str, epoch: int) -> None:
        """Write the tombstone durably."""
        await self._source.leave(self._lane, url, epoch)


# --- Target ----------------------------------------------------------------------------------------------------------
# The last round is not one transaction here, and need not be: the source's tombstone decides, and it is written after
# the round. Rows may be written twice, and the verified checksum is recorded last. A mover that dies before has moved
# nothing, and the next one continues with the draft.
#
# Objects of a log are never deleted, so that a replaced owner can never acknowledge anything. A dropped draft is
# emptied and stays a draft, which the next move to this address fills. A place that was left redirects clients by its
# manifest until the draft of a move back has arrived.


class _AddressState(NamedTuple):
    """State of the address."""

    there: bool = False
    """Whether a log with content exists."""
    left: Tombstone | None = None
    mark: Mark | None = None
    draft: Draft | None = None
    names: tuple[str, ...] = ()
    epoch: int = 0


class BucketTarget:
    """One database in a bucket."""

    def __init__(self, url: str, location: str, clock: Clock) -> None:
        self.location = location
        self._url = url
        self._thread = FileThread()
        self._clock = clock
        self._translators = Translators()
        self._state: _AddressState | None = None
        self._lane: Lane | None = None

    async def close(self) -> None:
        """Release the draft, so that another mover can continue."""
        try:
            await self._thread.run(self._close)
        finally:
            self._thread.close()

    def _close(self) -> None:
        lane, self._lane = self._lane, None
        if lane is not None:
            lane.close()

    # --- before -------------------------------------------------------------------------------------------------

    async def last_epoch(self) -> int:
        """Return the epoch of the last move."""
        state = await self._load_state()
        emptied = state.mark is not None and state.draft is None
        return max(
            state.epoch,
            state.mark.epoch if emptied and state.mark is not None else 0,
            0 if state.left is None else state.left.epoch,
        )

    async def draft(self) -> Draft | None:
        """Return the draft that exists here; None without one."""
        if self._lane is not None:
            return await self._run(draft_in)
        return (await self._load_state()).draft

    async def refuse_taken(self) -> None:
        """Raise BadUsage when a database lives there."""
        state = await self._load_state()
        if state.there and state.mark is None and state.left is None:
            raise taken(self.location, state.names)

    async def _load_state(self) -> _AddressState:
        if self._state is None:
            self._state = await self._thread.run(self._read_state)
        return self._state

    def _read_state(self) -> _AddressState:
        address = parse_bucket_url(self._url)
        with answering("look for a database"):
            found = read_manifest(bucket_of(address))
        if found is None:
            return _AddressState()
        left = found[0].left
        with tempfile.TemporaryDirectory(prefix="interlock-route-") as folder:
            copy = BucketCopy(self._url, Path(folder), clock=self._clock, prepare=self._translators.prepare)
            with contextlib.closing(copy):
                _ = copy.forward()
                state = _state_in(copy.connection())
        if left is None or state.left is not None:
            return state
        return state._replace(left=Tombstone(left.url, left.epoch, left.time_us))

    # --- the lane -----------------------------------------------------------------------------------------------

    def _own(self, mark: Mark) -> None:
        """Open the lane as its mover. Raises LaneOwned, and UnavailableError when it is not that draft."""
        if self._lane is None:
            place = place_of(self._url, settings=SETTINGS, clock=self._clock, permission=mark)
            self._lane = Lane(
                place.path,
                settings=SETTINGS,
                clock=self._clock,
                prepare=self._prepare,
                open_log=place.open_log,
                permission=mark,
            )

    def _prepare(self, connection: apsw.Connection, now_us: Callable[[], int]) -> None:
        self._translators.prepare(connection, now_us)
        connection.execute("PRAGMA foreign_keys = OFF")  # A replaced row must not cascade to others.

    async def _run(self, use: Callable[[apsw.Connection], ResultT]) -> ResultT:
        """Run one group; its writes are in the bucket when this returns. A group that only reads stores nothing."""
        lane = self._lane
        assert lane is not None, "begin or resume comes first"
        return cast("ResultT", await lane.run(Work(_use, use)))

    # --- while the source serves --------------------------------------------------------------------------------

    async def begin(self, draft: Draft, shape: Shape) -> None:
        """Create the lane, its mark and its tables; an existing draft is emptied."""
        mark = Mark(draft.epoch, draft.source)
        if self._lane is None:
            state = await self._load_state()
            left = state.left
            if left is not None:  # The draft replaces the tombstone, and from then on the manifest redirects clients.
                await self._thread.run(lambda: note_left(self._url, left, clock=self._clock))
            await self._thread.run(lambda: self._own(state.mark or mark))

        def make(connection: apsw.Connection) -> None:
            _empty(connection)
            mark_again(connection, mark)
            begin_in(connection, draft, shape)

        await self._run(make)

    async def resume(self, shape: Shape) -> None:
        """Acquire the draft of an earlier mover."""
        del shape
        state = await self._load_state()
        if state.mark is None:
            raise _arrived(self.location)
        mark = state.mark
        await self._thread.run(lambda: self._own(mark))

    async def copy(self, table: Table, rows: Sequence[StoredRow], draft: Draft) -> None:
        """Write rows and position in one group."""
        await self._run(lambda connection: copy_in(connection, table, rows, draft))

    async def put(self, shape: Shape, pending: Pending) -> None:
        """Write pending rows in one group, also in `last`."""
        await self._run(lambda connection: put_in(connection, shape, pending))

    async def replace(self, table: Table, rows: Sequence[StoredRow], *, first: bool) -> None:
        """Replace all rows with these if `first`, else add them."""
        await self._run(lambda connection: replace_in(connection, table, rows, first=first))

    async def rows_of(self, table: Table, keys: Sequence[StoredRow]) -> list[StoredRow]:
        """Return the rows with these keys."""
        return await self._run(lambda connection: lane_rows_of(connection, table, keys))

    async def page(self, table: Table, after: StoredRow | None, limit: int) -> Page:
        """Return a page of rows in the order of the key."""
        return await self._run(lambda connection: lane_rows(connection, table, after, limit=limit))

    async def count(self, table: Table) -> int:
        """Return the number of rows."""
        return await self._run(lambda connection: count_in_lane(connection, table))

    async def index(self, shape: Shape, draft: Draft) -> None:
        """Create the indexes, after the rows."""
        await self._run(lambda connection: index_in(connection, shape, draft))

    # --- the end ------------------------------------------------------------------------------------------------

    @asynccontextmanager
    async def last(self) -> AsyncGenerator[None]:
        """Do nothing: each group inside is durable by itself."""
        yield

    async def complete(self, shape: Shape, positions: Mapping[str, int], draft: Draft) -> None:
        """Set the numbering, and record the verified checksum."""
        await self._run(lambda connection: complete_in(connection, shape, positions, draft))

    async def arrive(self, epoch: int) -> None:
        """Remove the mark and release the lane. A client that was redirected here may have removed the mark before."""
        if self._lane is None:
            self._state = None
            mark = (await self._load_state()).mark
            if mark is not None:
                await self._thread.run(lambda: self._own(mark))
        if self._lane is not None:
            await self._run(lambda connection: arrive_in(connection, epoch, self.location))
            await self._thread.run(self._close)
        await self._thread.run(lambda: note_back(self._url, epoch, clock=self._clock))

    async def finish(self) -> None:
        """Do nothing: all constraints are validated already."""

    async def drop(self) -> None:
        """Empty the draft; the address stays marked, for the next move to it."""
        if self._lane is None:
            mark = (await self._load_state()).mark
            if mark is None:
                return
            await self._thread.run(lambda: self._own(mark))
        await self._run(_empty)
        self._state = None

    @asynccontextmanager
    async def sample(self, table: Table) -> AsyncGenerator[LaneSample]:
        """Return a lane in a temporary folder: a sample in the bucket could not be removed."""
        async with lane_sample(self._thread, table, self._clock) as sample:
            yield sample


def _use(session: Session, use: Callable[[apsw.Connection], object]) -> object:
    return session.own(lambda _run: use(session.connection))


def _state_in(connection: apsw.Connection) -> _AddressState:
    there = connection.execute("SELECT 1 FROM sqlite_schema LIMIT 1").get is not None
    return _AddressState(
        there=there,
        left=tombstone_of(connection),
        mark=draft_of(connection),
        draft=draft_in(connection),
        names=tuple(tables_in(connection)),
        epoch=arrived_at(connection),
    )


def _empty(connection: apsw.Connection) -> None:
    """Remove keys, user tables with the positions of their sequences, and the state of the move."""
    unwatch(connection)
    connection.execute(f"DELETE FROM {KEY_TABLES}")  # noqa: S608 -- ours.
    for name in tables_in(connection):
        connection.execute('DROP TABLE "{}"'.format(name.replace('"', '""')))
    if has_table(connection, "sqlite_sequence"):
        connection.execute("DELETE FROM sqlite_sequence WHERE name GLOB ?", (f"{POSITION_PREFIX}*",))
    for name in (STATE, DEFINITIONS):
        connection.execute(f"DROP TABLE IF EXISTS {name}")


def _arrived(location: str) -> UnavailableError:
    return UnavailableError(f"the draft at {location} has become a database meanwhile.")
