"""Bucket as the target of a move.

The draft is a lane in the bucket, with a mark that refuses every other use (`lanes.handover`). The mover owns it with
a lease: each piece is one group, in the bucket when the call returns. A plan takes no lease and writes nothing: it
replays the log into a temporary file (`BucketCopy`).

The last round is not one transaction here, and need not be: the source's tombstone decides, and it is written after
the round. Rows may be written twice, and the verified checksum is recorded last. A mover that dies before has moved
nothing, and the next one continues with the draft.

Objects of a log are never deleted, so that a replaced owner can never acknowledge anything. A dropped draft is
emptied and stays a draft, which the next move to this address fills.
"""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# apsw's stubs leave the values of SQLite partly open; mypy --strict looks at what is ours.

import contextlib
import tempfile
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final, NamedTuple, TypeVar, cast

import apsw

from interlock.catalog.open_lane import place_of
from interlock.clock import Clock
from interlock.database.lane_engine import Translators
from interlock.errors import BadUsage, UnavailableError
from interlock.lanes.handover import Draft as Mark
from interlock.lanes.handover import Tombstone, draft_of, mark_again, tombstone_of
from interlock.lanes.lane import Lane
from interlock.lanes.objectlog.bucket_protocol import answering
from interlock.lanes.objectlog.log import bucket_of
from interlock.lanes.objectlog.manifest import read_manifest
from interlock.lanes.objectlog.mover_copy import BucketCopy
from interlock.lanes.settings import LaneSettings
from interlock.lanes.writer import Session, Work
from interlock.relocate.database.lane import (
    STATE,
    LaneSample,
    arrive_in,
    arrived_at,
    begin_in,
    complete_in,
    copy_in,
    draft_in,
    index_in,
    lane_sample,
    put_in,
    replace_in,
    tables_in,
    taken,
)
from interlock.relocate.database.protocol import Draft, FileThread, Pending
from interlock.relocate.database.rows import Page, StoredRow, count_in_lane, lane_rows, lane_rows_of
from interlock.relocate.database.shape import KEY_TABLES, Shape, Table
from interlock.urls import parse_bucket_url

SETTINGS: Final = LaneSettings()
DEFINITIONS: Final = "interlock_definitions"

ResultT = TypeVar("ResultT")


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
        return max(
            state.epoch, 0 if state.mark is None else state.mark.epoch, 0 if state.left is None else state.left.epoch
        )

    async def draft(self) -> Draft | None:
        """Return the draft that exists here; None without one."""
        if self._lane is not None:
            return await self._run(draft_in)
        return (await self._load_state()).draft

    async def refuse_taken(self) -> None:
        """Raise BadUsage when a database lives there, or lived there: a tombstone in a bucket is permanent."""
        state = await self._load_state()
        if state.left is not None:
            raise BadUsage(
                f"the database at {self.location} was moved away from there (move {state.left.epoch}).",
                why="The tombstone in the bucket stays, because it still redirects clients that open that address.",
                fix="Name another address in the bucket.",
            )
        if state.there and state.mark is None:
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
        if left is not None:
            return _AddressState(there=True, left=Tombstone(left.url, left.epoch, left.time_us))
        with tempfile.TemporaryDirectory(prefix="interlock-route-") as folder:
            copy = BucketCopy(self._url, Path(folder), clock=self._clock, prepare=self._translators.prepare)
            with contextlib.closing(copy):
                _ = copy.forward()
                return _state_in(copy.connection())

    # --- the lane -----------------------------------------------------------------------------------------------

    def _own(self, mark: Mark) -> None:
        """Open the lane as its mover. Raises LaneOwned, and UnavailableError when it is not that draft."""
        if self._lane is None:
            place = place_of(self._url, settings=SETTINGS, clock=self._clock)
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
            if mark is None:
                return
            await self._thread.run(lambda: self._own(mark))
        await self._run(lambda connection: arrive_in(connection, epoch, self.location))
        await self._thread.run(self._close)

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
    """Remove keys, user tables and the state of the move."""
    connection.execute(f"DELETE FROM {KEY_TABLES}")  # noqa: S608 -- ours.
    for name in tables_in(connection):
        connection.execute('DROP TABLE "{}"'.format(name.replace('"', '""')))
    for name in (STATE, DEFINITIONS):
        connection.execute(f"DROP TABLE IF EXISTS {name}")


def _arrived(location: str) -> UnavailableError:
    return UnavailableError(f"the draft at {location} has become a database meanwhile.")
