"""A replica of a lane in a bucket, which follows its log beside the owner, and the takeover that seals the lane.

Nothing at the source notes the writes, and nothing needs to: the log has every page. `BucketCopy` keeps the database in
a local file; `forward` brings it to the newest state by the objects that came since. It takes no lease, so the owner
goes on. For the seal the mover becomes the owner itself (`take_over`): the previous owner can never acknowledge again.
The next process that opens the lane finds the tombstone, or, when the mover died, the database as it was.

An owner that is replaced alive may answer reads until its lease ends, so a takeover lasts as long as the lease. To
make that short the mover shortens the lease when it begins (`hurry`): the owner finds that out with its next renewal.
"""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# apsw's stubs leave the values of SQLite partly open; mypy --strict looks at what is ours.

import contextlib
import math
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple
from urllib.parse import quote

import apsw
import msgspec

from interlock.clock import Clock
from interlock.errors import CorruptionError
from interlock.lanes.connection import Prepare
from interlock.lanes.file import make_folder
from interlock.lanes.handover import Tombstone
from interlock.lanes.idempotency_keys import MakeRow
from interlock.lanes.lane import Lane
from interlock.lanes.objectlog.bucket_protocol import Bucket, BucketError, Patience, Watch, World, answering, silent
from interlock.lanes.objectlog.local_file import Cache
from interlock.lanes.objectlog.log import bucket_of, log_taker
from interlock.lanes.objectlog.manifest import (
    KEY,
    LOOKS_MAX,
    Left,
    Manifest,
    history_changed,
    history_too_short_error,
    manifest_at,
    next_revision,
    no_database_error,
    read_manifest,
)
from interlock.lanes.objectlog.slots import Position, read_slots
from interlock.lanes.settings import LaneSettings
from interlock.urls import parse_bucket_url

HURRIED_LEASE_S = 0.5
"""The lease while a mover prepares to take over: for this long a replaced owner may answer reads."""

TAKEN_LEASE_S = 5.0
"""The lease of a mover that has taken over: when it dies, the lane rests for this long."""

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
        self._cache = Cache(self.path, World(clock=clock).boot)
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

    def connection(self) -> apsw.Connection:
        """Return a connection that reads the state of the last `forward`, until the next one."""
        assert self._at is not None, "forward comes first"
        if self._open is None:
            # No other process writes the file, and it stays so: SQLite needs no lock and leaves nothing beside it.
            self._open = apsw.Connection(
                f"file:{quote(str(self.path.absolute()))}?mode=ro&immutable=1",
                flags=apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI,
            )
            self._prepare(self._open, lambda: int(self._clock.wall_s() * 1_000_000))
        return self._open

    def keep(self) -> Path:
        """Keep the file for a lane that opens with it, which then needs only what came since; return its path."""
        self._disconnect()
        if self._at is not None and self._manifest is not None:
            self._cache.keep(self._manifest, self._at)
        return self.path

    def close(self) -> None:
        """Delete the file."""
        self._disconnect()
        self._cache.discard()

    def _forward(self, manifest: Manifest) -> int:
        at, before = self._at, self._manifest
        # Slots below `kept` may be deleted at any moment: `collected` in the manifest changes only after the deletion.
        if at is None or before is None or before.database != manifest.database or at.seq + 1 < manifest.kept:
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
            return manifest
        return msgspec.structs.replace(manifest, lease_s=manifest.lease_before_s, lease_before_s=0.0)

    _changed(bucket, clock, url, lengthen)


def take_over(
    url: str,
    path: Path,
    *,
    settings: LaneSettings,
    clock: Clock,
    prepare: Prepare,
    short_s: float = math.inf,
    make_row: MakeRow = lambda _names, values: values,
) -> Lane:
    """Take the lane in the bucket from its owner immediately, with a local file of the mover's own (`BucketCopy.keep`).

    `short_s` is the result of `hurry`. When this returns, no other process can write, or answer a read with an outdated
    state. Raises MovedElsewhere when a move has left already, Fenced when another process was faster.
    """
    chosen = msgspec.structs.replace(settings, lease_s=min(settings.lease_s, TAKEN_LEASE_S))
    opener = log_taker(parse_bucket_url(url), settings=chosen, clock=clock, short_s=short_s)
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
    world = World(clock=clock)
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
