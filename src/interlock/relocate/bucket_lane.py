"""Bucket as the source and as the target of a move.

As the source, the mover follows the log in a file of its own (`BucketCopy`), without a lease: the owner serves. Each
change of the mover's own, the triggers and the seal, is a takeover (`take_over`), and the previous owner can never
acknowledge again. The next process that opens the lane finds the tombstone, or, when the mover died, the database as it
was. The mover asks the owner first (`ask_for`): an owner that is used stops between two groups and hands the lane over.
One that does not answer is replaced. It may answer reads until its lease ends, so that takeover lasts as long as the
lease. The mover shortens it when it begins (`hurry`). The owner finds both with its next renewal.

As the target, the draft is a lane in the bucket, with a mark that refuses every other use (`lanes.handover`). The
mover owns it with a lease: each piece is one group, in the bucket when the call returns. A plan takes no lease.

Sections: copy of a bucket, source, draft.
"""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# apsw's stubs leave the values of SQLite partly open; mypy --strict looks at what is ours.

import asyncio
import contextlib
import math
import tempfile
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final, NamedTuple, TypeVar, cast
from urllib.parse import quote

import apsw
import msgspec

from interlock.catalog.open_lane import closing_thread, open_in_thread, place_of
from interlock.clock import Clock
from interlock.database.lane_engine import Translators
from interlock.errors import CorruptionError, Fenced, TargetNotFound, UnavailableError
from interlock.lanes.file import make_folder
from interlock.lanes.handover import Draft as Mark
from interlock.lanes.handover import (
    Note,
    Tombstone,
    is_watched,
    is_watching,
    mark_again,
    notes_after,
    tombstone_of,
    unwatch,
    watch,
    write_tombstone,
)
from interlock.lanes.idempotency_keys import MakeRow
from interlock.lanes.lane import Lane
from interlock.lanes.lane_settings import LaneSettings
from interlock.lanes.objectlog.bucket_protocol import (
    Bucket,
    BucketError,
    Environment,
    Patience,
    Watch,
    answering,
    silent,
)
from interlock.lanes.objectlog.format import HEADER_BYTES, decode_header, log_key
from interlock.lanes.objectlog.lease import MOVER_LEASE_S, lease_holder
from interlock.lanes.objectlog.local_file import Cache
from interlock.lanes.objectlog.log import bucket_of, log_taker, proven_bucket_of
from interlock.lanes.objectlog.manifest import (
    KEY,
    LOOKS_MAX,
    Left,
    Manifest,
    end_of_log,
    history_changed,
    history_too_short_error,
    manifest_at,
    next_revision,
    no_database_error,
    read_manifest,
)
from interlock.lanes.objectlog.slots import Position, read_slots
from interlock.lanes.sqlite_connection import Prepare
from interlock.lanes.writer import Session, Work
from interlock.relocate.lane_shape import VIEWS, shape_of_lane
from interlock.relocate.local_lane import (
    STATE,
    Check,
    LaneReading,
    PlaceState,
    arrive_in,
    arrived_at,
    first_write,
    state_in,
    tables_in,
    unchecked,
)
from interlock.relocate.rows import bytes_in_lane, has_table, lane_positions, watched_keys
from interlock.relocate.shape import KEY_TABLES, Shape
from interlock.relocate.source_and_target import FileThread, Pending
from interlock.sql.parse import quoted_name
from interlock.sql.schema import POSITION_PREFIX
from interlock.urls import parse_bucket_url

# --- Copy of a bucket ------------------------------------------------------------------------------------------------

HURRIED_LEASE_S = 0.5
"""The lease while a mover prepares to take over: for this long a replaced owner may answer reads."""

FORWARD_SLOTS = 32
"""The owner is asked when its log is at most about this many groups ahead of the copy."""

FORWARDS_MAX = 10

ASKED_LOOK_S = 0.005
"""Between two looks whether the owner has handed the lane over: its callers wait meanwhile."""

CHANGE_LIMIT_S = 30.0


class BucketCopy:
    """A local copy of a database in a bucket, at one position of its log. Blocks; for one thread at a time."""

    def __init__(
        self,
        url: str,
        folder: Path,
        *,
        clock: Clock,
        prepare: Prepare,
        bucket: Bucket | None = None,
        watch: Watch = silent,
    ) -> None:
        address = parse_bucket_url(url)
        self.path = folder / f"{address.name}.copy.lane"
        self._name = str(address)
        self._bucket = bucket_of(address) if bucket is None else bucket
        self._clock = clock
        self._prepare = prepare
        self._watch = watch
        make_folder(folder)
        self._cache = Cache(self.path, Environment(clock=clock).boot)
        self._manifest: Manifest | None = None
        self._at: Position | None = None
        self._open: apsw.Connection | None = None

    def forward(self) -> int:
        """Bring the file to the newest durable state; return its number. Connections to it end.

        Raises TargetNotFound, CorruptionError, and UnavailableError for a bucket that does not answer.
        """
        self._disconnect()
        with answering("follow the log"):
            for _ in range(LOOKS_MAX):
                manifest = manifest_at(self._bucket, self._name)
                try:
                    return self._forward(manifest)
                except CorruptionError:
                    # Missing may mean collected: the owner goes on while we read.
                    self._at = None
                    if not history_changed(self._bucket, manifest):
                        raise
        raise history_too_short_error(self._name, "copied")

    @property
    def seq(self) -> int:
        """Return the number of the last group in the file."""
        return 0 if self._at is None else self._at.seq

    def connection(self) -> apsw.Connection:
        """Return a connection that reads the state of the last `forward`, until the next one."""
        if self._at is None:
            self.forward()
        if self._open is None:
            # No other process writes the file, and it stays so: SQLite needs no lock and leaves nothing beside it.
            self._open = apsw.Connection(
                f"file:{quote(str(self.path.absolute()))}?mode=ro&immutable=1",
                flags=apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI,
            )
            self._prepare(self._open, lambda: int(self._clock.wall_s() * 1_000_000))
        return self._open

    def keep(self) -> Path:
        """Keep the file for a lane that opens with it, which then needs only what came since; return its path.

        When that lane has closed, the copy goes on with the file as the lane has left it.
        """
        self._disconnect()
        if self._at is not None and self._manifest is not None:
            self._cache.keep(self._manifest, self._at)
        self._at = None
        return self.path

    def close(self) -> None:
        """Delete the file."""
        self._disconnect()
        self._cache.discard()

    def _forward(self, manifest: Manifest) -> int:
        at, before = self._at, self._manifest
        # Slots below `kept` may be deleted at any moment: `collected` in the manifest changes only after the deletion.
        if at is None or before is None or before.database != manifest.database or at.seq + 1 < manifest.kept:
            at = self._cache.reuse(self._bucket, manifest) if at is None else None
        if at is None:
            self._cache.discard()
            self.path.touch()
            at = Position()
            if manifest.snapshots:
                at = self._cache.load(self._bucket, manifest, manifest.snapshots[-1], self._watch)
        begun, self._manifest = at.seq, manifest
        for stored in read_slots(self._bucket, bytes.fromhex(manifest.database), at):
            self._at = None  # Until all its pages are written the file has no valid state.
            self._cache.apply(stored.entry)
            self._at = at = stored.position
            self._watch("replaying the log", at.seq - begun, 0)
        self._at = at
        return at.seq

    def _disconnect(self) -> None:
        connection, self._open = self._open, None
        if connection is not None:
            connection.close()


class Hurried(NamedTuple):
    """A lease that a mover has shortened."""

    epoch: int
    """Of the owner whose lease it is."""
    short_s: float
    """When, by our own clock, the longer lease has surely run out."""


def hurry(url: str, *, clock: Clock, bucket: Bucket | None = None) -> Hurried:
    """Shorten the owner's lease, if there is an owner."""

    def shorten(manifest: Manifest) -> Manifest:
        if manifest.owner is None or manifest.lease_s <= HURRIED_LEASE_S:
            return manifest
        before_s = max(manifest.lease_s, manifest.lease_before_s)
        return msgspec.structs.replace(manifest, lease_s=HURRIED_LEASE_S, lease_before_s=before_s)

    changed = _changed(bucket, clock, url, shorten)
    return Hurried(changed.epoch, clock.monotonic_s() + (changed.lease_before_s if changed.owner is not None else 0.0))


def unhurry(url: str, *, clock: Clock, bucket: Bucket | None = None) -> None:
    """Restore the length of the lease: the move is given up."""

    def lengthen(manifest: Manifest) -> Manifest:
        if not manifest.lease_before_s:
            return msgspec.structs.replace(manifest, handover_to=None)
        return msgspec.structs.replace(manifest, lease_s=manifest.lease_before_s, lease_before_s=0.0, handover_to=None)

    _changed(bucket, clock, url, lengthen)


def ask_for(url: str, path: Path, *, clock: Clock, bucket: Bucket | None = None) -> float | None:
    """Ask the owner for the lane, and return when it handed it over to this file, by our own clock.

    Returns None when there is no owner, or it does not answer: it is idle or dead, executes a long transaction, or is
    of a release that cannot hand over. Then it is replaced. Blocks for about as long as its lease.
    """
    world = Environment(clock=clock)
    mover = lease_holder(world, Cache(path, world.boot).identity(world), mover=True)

    def ask(manifest: Manifest) -> Manifest:
        if manifest.owner is None or manifest.owner.mover:
            return manifest
        return msgspec.structs.replace(manifest, handover_to=mover)

    bucket = bucket or bucket_of(parse_bucket_url(url))
    found = _changed(bucket, clock, url, ask)
    looked_s = since_s = clock.monotonic_s()
    with answering("look who owns the lane"):
        while found.handover_to == mover and found.owner is not None and looked_s - since_s < found.lease_s:
            world.pause(ASKED_LOOK_S)
            before, before_s, looked_s = found, looked_s, clock.monotonic_s()
            found = manifest_at(bucket, url)
            if found.owner == mover:
                return before_s
            if found.revision != before.revision:
                since_s = looked_s
    return None


def take_over(
    url: str,
    path: Path,
    *,
    settings: LaneSettings,
    clock: Clock,
    prepare: Prepare,
    short_s: float = math.inf,
    make_row: MakeRow = lambda _names, values: values,
    taken: Callable[[], None] = lambda: None,
) -> Lane:
    """Take the lane in the bucket from its owner immediately, with a local file of the mover's own (`BucketCopy.keep`).

    `short_s` is the result of `hurry`. `taken` is called when the owner begins to lose the lane. When this returns, no
    other process can write, or answer a read with an outdated state. Raises MovedElsewhere when a move has left
    already, Fenced when another process was faster.
    """
    chosen = msgspec.structs.replace(settings, lease_s=min(settings.lease_s, MOVER_LEASE_S))
    opener = log_taker(parse_bucket_url(url), settings=chosen, clock=clock, short_s=short_s, taken=taken)
    return Lane(path, settings=chosen, clock=clock, prepare=prepare, open_log=opener, make_row=make_row)


def note_left(url: str, stone: Tombstone, *, clock: Clock, bucket: Bucket | None = None) -> None:
    """Write the new place into the manifest, once the tombstone is durable: then no process has to read the log.

    The lane has no owner any more. The mover cannot release it after this, because the manifest is another one.
    """

    def leave(manifest: Manifest) -> Manifest:
        left = Left(url=stone.url, epoch=stone.epoch, time_us=stone.time_us)
        return msgspec.structs.replace(manifest, left=left, owner=None)

    _changed(bucket, clock, url, leave)


def note_back(url: str, epoch: int, *, clock: Clock, bucket: Bucket | None = None) -> None:
    """Remove the new place from the manifest, once the draft of a later move has arrived here."""

    def come_back(manifest: Manifest) -> Manifest:
        if manifest.left is None or manifest.left.epoch >= epoch:
            return manifest
        return msgspec.structs.replace(manifest, left=None)

    _changed(bucket, clock, url, come_back)


def _changed(bucket: Bucket | None, clock: Clock, url: str, update: Callable[[Manifest], Manifest]) -> Manifest:
    """Change the manifest without being its owner: the loser of a swap, owner or mover, repeats it on top."""
    bucket = bucket or bucket_of(parse_bucket_url(url))
    world = Environment(clock=clock)
    patience = Patience(world, CHANGE_LIMIT_S, "a change of the manifest")
    while True:
        last: BucketError | None = None
        try:
            found = read_manifest(bucket)
            if found is None:
                raise no_database_error(str(parse_bucket_url(url)))
            wanted = update(found[0])
            if wanted == found[0]:
                return wanted
            wanted = next_revision(wanted, world)
            with contextlib.suppress(BucketError):
                bucket.replace(KEY, msgspec.json.encode(wanted), found[1])
                return wanted
        except BucketError as error:
            last = error
        patience.pause(last)


class FirstWrite:
    """Looks for the first group of an owner that has opened the lane after a mover. Blocks."""

    def __init__(self, url: str, last: int = 0) -> None:
        self._url = url
        self._last = last
        """The last number in the log, as far as it is known."""

    def is_there(self) -> bool:
        """Return whether the last object in the log is a group of the current owner, a mover excepted."""
        bucket = bucket_of(parse_bucket_url(self._url))
        with answering("look for a program that follows"):
            manifest = manifest_at(bucket, self._url)
            if manifest.owner is None or manifest.owner.mover:
                return False
            self._last = end_of_log(bucket, max(self._last, manifest.floor))
            [head] = bucket.get_many([log_key(self._last)], bytes_max=HEADER_BYTES)
        if head is None:
            return False
        entry = decode_header(head, log_key(self._last))
        return entry.kind == "group" and entry.epoch == manifest.epoch


def has_owner(url: str) -> bool:
    """Return whether a process has the lane in the bucket open."""
    with answering("look who owns the lane"):
        found = read_manifest(bucket_of(parse_bucket_url(url)))
    return found is not None and found[0].owner is not None


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
        self._copy = BucketCopy(url, Path(folder.name), clock=clock, prepare=self._translators.prepare)
        self._forgotten = 0
        """Number of the last note whose row was brought over."""
        self._hurried: Hurried | None = None
        self._handed_over_s: float | None = None
        """When the owner handed the lane over, at the last takeover; None when it was replaced."""
        self._taken_s = 0.0
        """When the mover took it."""
        self._last_seq = 0
        """The last group in the copy before that."""

    @classmethod
    async def opened(cls, url: str, location: str, *, clock: Clock) -> "BucketSource":
        """Copy the database. Raises TargetNotFound without one."""
        thread = FileThread(location)
        folder = tempfile.TemporaryDirectory(prefix="interlock-route-")
        source = cls(thread, url, location, folder, clock)
        try:
            await thread.run(source._refuse_empty)
        except BaseException:
            await source.close()
            raise
        return source

    async def close(self) -> None:
        """Remove the copy."""
        try:
            await self._thread.run(self._copy.close)
        finally:
            self._thread.close()
            self._folder.cleanup()

    def _refuse_empty(self) -> None:
        if self.connection().execute("SELECT 1 FROM sqlite_schema LIMIT 1").get is None:
            raise TargetNotFound(
                f"there is no database at {self.location}.",
                why="Its log in the bucket is empty.",
                fix="Check the address; `interlock route` moves a database that is there.",
            )

    def connection(self) -> apsw.Connection:
        """Return the connection to the copy."""
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

    async def watch(self, shape: Shape) -> float:
        """Create the triggers, by a takeover of a moment."""
        return await self.note_writes(watched_keys(shape))

    async def note_writes(self, tables: Mapping[str, Sequence[str]]) -> float:
        """Note every write to these tables, by a takeover of a moment; return for how long writers waited."""
        if await self._thread.run(lambda: is_watching(self.connection(), tables)):
            return 0.0
        await self._change(lambda connection: watch(connection, tables))
        self._forgotten = 0  # A new table of notes numbers them from 1.
        if self._handed_over_s is None:
            return 0.0  # There is no owner, or it was silent for as long as its lease.
        look = FirstWrite(self._url, self._last_seq)
        return await first_write(lambda: self._thread.run(look.is_there), self._clock) - self._handed_over_s

    async def has_owner(self) -> bool:
        """Return whether a process has the lane open."""
        return await self._thread.run(lambda: has_owner(self._url))

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
        path = await self._thread.run(self._prepare_takeover)
        self._handed_over_s = await self._thread.run(lambda: ask_for(self._url, path, clock=self._clock))
        try:
            lane = await open_in_thread(
                lambda: take_over(
                    self._url,
                    path,
                    settings=SETTINGS,
                    clock=self._clock,
                    prepare=self._translators.prepare,
                    short_s=short_s,
                    taken=self._take_time,
                )
            )
            try:
                yield lane
            finally:
                await asyncio.wrap_future(closing_thread(lane.close))
                self._hurried = None
        except Fenced as error:
            raise UnavailableError(
                f"{self.location} was taken over from this mover by another process.",
                why="Another mover is at work there, or this one was suspended and the owner has opened it again. "
                "Nothing has moved by this one.",
                fix="Run the same command again when no other mover runs: it goes on where it ended.",
            ) from error

    def _prepare_takeover(self) -> Path:
        """Do what would make callers wait once the owner is asked; return the copy, which then needs little more."""
        _ = proven_bucket_of(parse_bucket_url(self._url), settings=SETTINGS, clock=self._clock)
        for _ in range(FORWARDS_MAX):
            before = self._copy.seq
            if self._copy.forward() - before <= FORWARD_SLOTS:
                break
        self._last_seq = self._copy.seq
        return self._copy.keep()

    def _take_time(self) -> None:
        self._taken_s = self._clock.monotonic_s()

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

    async def pending(self, shape: Shape, limit: int) -> Pending:
        """Follow the log, and return the oldest notes and their rows."""
        await self.forward()
        return await super().pending(shape, limit)

    async def forward(self) -> None:
        """Follow the log, and keep the lease short: waiting for that here keeps the last round before a seal short."""
        _ = await self._wait_for_lease()
        _ = await self._thread.run(self._copy.forward)

    async def forget(self, pending: Pending) -> None:
        """Remember how far the notes were read."""
        self._forgotten = max(self._forgotten, *pending.numbers, 0)

    @asynccontextmanager
    async def sealed(self, wait_s: float) -> "AsyncGenerator[_Sealed]":
        """Take the lane over. It is released at the end, left or not."""
        del wait_s
        path = self._copy.path
        async with self._taken_over() as lane:
            connection = await self._thread.run(lambda: self._beside(path))
            try:
                since_s = self._taken_s if self._handed_over_s is None else self._handed_over_s
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


# --- Draft -----------------------------------------------------------------------------------------------------------
# The last round is not one transaction here, and need not be: the source's tombstone decides, and it is written after
# the round. Rows may be written twice, and the verified checksum is recorded last. A mover that dies before has moved
# nothing, and the next one continues with the draft.
#
# Objects of a log are never deleted, so that a replaced owner can never acknowledge anything. A dropped draft is
# emptied and stays a draft, which the next move to this address fills. A place that was left redirects clients by its
# manifest until the draft of a move back has arrived.


class BucketDraft:
    """One lane in a bucket that is filled by a mover."""

    def __init__(self, url: str, location: str, clock: Clock) -> None:
        self.location = location
        self.clock = clock
        self.thread = FileThread(location)
        self._url = url
        self._translators = Translators()
        self._state: PlaceState | None = None
        self._lane: Lane | None = None
        self._first_write = FirstWrite(url)

    async def close(self) -> None:
        """Release the draft, so that another mover can continue."""
        try:
            await self.thread.run(self._close)
        finally:
            self.thread.close()

    def _close(self) -> None:
        lane, self._lane = self._lane, None
        if lane is not None:
            lane.close()

    # --- before -------------------------------------------------------------------------------------------------

    async def state(self) -> PlaceState:
        """Return what is there. The log is read once, until the mover owns the lane."""
        if self._lane is not None:
            return await self.read(state_in)
        if self._state is None:
            self._state = await self.look(lambda found: PlaceState() if found is None else state_in(found))
            left = await self.thread.run(self._left_in_manifest)
            if left is not None and self._state.left is None:
                self._state = self._state._replace(left=left)
        return self._state

    async def look(self, use: Callable[[apsw.Connection | None], ResultT]) -> ResultT:
        """Read from a copy of the lane; the function gets None without one."""
        return await self.thread.run(lambda: self._look(use))

    def _look(self, use: Callable[[apsw.Connection | None], ResultT]) -> ResultT:
        with answering("look for a database"):
            found = read_manifest(bucket_of(parse_bucket_url(self._url)))
        if found is None:
            return use(None)
        with tempfile.TemporaryDirectory(prefix="interlock-route-") as folder:
            copy = BucketCopy(self._url, Path(folder), clock=self.clock, prepare=self._translators.prepare)
            with contextlib.closing(copy):
                _ = copy.forward()
                return use(copy.connection())

    def _left_in_manifest(self) -> Tombstone | None:
        with answering("look for a database"):
            found = read_manifest(bucket_of(parse_bucket_url(self._url)))
        left = None if found is None else found[0].left
        return None if left is None else Tombstone(left.url, left.epoch, left.time_us)

    # --- the lane -----------------------------------------------------------------------------------------------

    def _own(self, mark: Mark) -> None:
        """Open the lane as its mover. Raises LaneOwned, and UnavailableError when it is not that draft."""
        if self._lane is None:
            place = place_of(self._url, settings=SETTINGS, clock=self.clock, permission=mark)
            self._lane = Lane(
                place.path,
                settings=SETTINGS,
                clock=self.clock,
                prepare=self._prepare,
                open_log=place.open_log,
                permission=mark,
            )

    def _prepare(self, connection: apsw.Connection, now_us: Callable[[], int]) -> None:
        self._translators.prepare(connection, now_us)
        connection.execute("PRAGMA foreign_keys = OFF")  # A replaced row must not cascade to others.

    async def run(self, use: Callable[[apsw.Connection], ResultT], *, durable: bool = True) -> ResultT:
        """Run one group; its writes are in the bucket when this returns. A group that only reads stores nothing."""
        del durable
        lane = self._lane
        assert lane is not None, "begin or resume comes first"
        return cast("ResultT", await lane.run(Work(_use, use)))

    async def read(self, use: Callable[[apsw.Connection], ResultT]) -> ResultT:
        """Read from the draft."""
        return await self.run(use)

    async def begin(self, mark: Mark, make: Callable[[apsw.Connection], None], check: Check = unchecked) -> None:
        """Create the lane, its mark and its tables; an existing draft is emptied. Its mark refuses any other lane."""
        del check
        if self._lane is None:
            state = await self.state()
            left = state.left
            if left is not None:  # The draft replaces the tombstone, and from then on the manifest redirects clients.
                await self.thread.run(lambda: note_left(self._url, left, clock=self.clock))
            await self.thread.run(lambda: self._own(state.mark or mark))

        def fill(connection: apsw.Connection) -> None:
            _empty(connection)
            mark_again(connection, mark)
            make(connection)

        await self.run(fill)

    async def resume(self) -> None:
        """Acquire the draft of an earlier mover."""
        mark = (await self.state()).mark
        if mark is None:
            raise _arrived(self.location)
        await self.thread.run(lambda: self._own(mark))

    # --- the end ------------------------------------------------------------------------------------------------

    async def fold(self) -> None:
        """Do nothing: each group is in the bucket."""

    @asynccontextmanager
    async def last(self) -> AsyncGenerator[None]:
        """Do nothing: each group inside is durable by itself."""
        yield

    async def arrive(self, epoch: int) -> None:
        """Remove the mark and release the lane. A client that was redirected here may have removed the mark before."""
        if self._lane is None:
            self._state = None
            mark = (await self.state()).mark
            if mark is not None:
                await self.thread.run(lambda: self._own(mark))
        if self._lane is not None:
            await self.run(lambda connection: arrive_in(connection, epoch, self.location))
            await self.thread.run(self._close)
        self._state = None
        await self.thread.run(lambda: note_back(self._url, epoch, clock=self.clock))

    async def is_used(self) -> bool:
        """Return whether a process has written a group since the arrival."""
        return await self.thread.run(self._first_write.is_there)

    async def drop(self) -> None:
        """Empty the draft; the address stays marked, for the next move to it."""
        if self._lane is None:
            mark = (await self.state()).mark
            if mark is None:
                return
            await self.thread.run(lambda: self._own(mark))
        await self.run(_empty)
        self._state = None


def _use(session: Session, use: Callable[[apsw.Connection], object]) -> object:
    return session.own(lambda _run: use(session.connection))


def _empty(connection: apsw.Connection) -> None:
    """Remove keys, user tables, what is kept as a view, positions of sequences, and the state of the move."""
    unwatch(connection)
    connection.execute(f"DELETE FROM {KEY_TABLES}")  # noqa: S608 -- ours.
    views = [str(name) for (name,) in connection.execute(VIEWS).fetchall()]
    for kind, name in (*(("VIEW", name) for name in views), *(("TABLE", name) for name in tables_in(connection))):
        connection.execute(f"DROP {kind} {quoted_name(name)}")
    if has_table(connection, "sqlite_sequence"):
        connection.execute("DELETE FROM sqlite_sequence WHERE name GLOB ?", (f"{POSITION_PREFIX}*",))
    for name in (STATE, DEFINITIONS):
        connection.execute(f"DROP TABLE IF EXISTS {name}")


def _arrived(location: str) -> UnavailableError:
    return UnavailableError(f"the draft at {location} has become a database meanwhile.")
