"""Snapshots of a lane in a bucket, and the collection of the groups that they make superfluous.

A snapshot is the whole database at one position of the log. It makes replay short, and old groups can go. It is taken
beside the writer, from a read transaction that was begun between two groups: what it shows is durable, and stands
still while it is copied. Its parts have a name that no other writer uses, so they need no condition. The manifest
names it only when all are stored, and only then are groups deleted: the order is snapshot, floor, deletion. A crash
between any two leaves nothing worse than unused objects.

The odd choice is page 1. SQLite's backup copies every page as it is but the first, whose counters it raises; so
that one is put in as it stands in the log, and a snapshot is what replay would have made, byte for byte.
"""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# apsw's stubs leave the values of SQLite partly open; mypy --strict looks at what is ours.

import contextlib
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO, NamedTuple

import apsw
import msgspec

from interlock.errors import CorruptionError
from interlock.faultpoints import reach
from interlock.lanes.lane_settings import LaneSettings
from interlock.lanes.objectlog.bucket_protocol import Bucket, BucketError, Environment, Unclear
from interlock.lanes.objectlog.format import HEADER_BYTES, SnapshotPart, decode_header, encode_part, log_key, part_key
from interlock.lanes.objectlog.lease import LaneLease
from interlock.lanes.objectlog.manifest import LaneSnapshot, Manifest
from interlock.lanes.objectlog.slots import Position, StoredObject

PART_BYTES = 8_388_608
"""How much of the database one part holds before it is compressed."""

SNAPSHOTS_MAX = 64
"""Snapshots in the manifest; beyond that, those in the middle are thinned out. The history stays whole."""

COLLECTED_AT_ONCE = 100
COLLECTED_MAX = 10_000
"""Groups that one collection deletes; the next one goes on."""

GROUP_WEIGHT_BYTES = 4_096
"""The cost of a group in a replay beside its bytes: a round trip."""


def snapshot_due(manifest: Manifest, groups: int, log_bytes: int, settings: LaneSettings) -> bool:
    """Whether a snapshot is worth its price: replaying the log after the last one costs more than loading it."""
    return log_bytes + groups * GROUP_WEIGHT_BYTES >= snapshot_weight(manifest, settings)


def snapshot_weight(manifest: Manifest, settings: LaneSettings) -> int:
    """Return the weight in bytes of the log after the last snapshot at which the next one is due."""
    return max(settings.snapshot_bytes_min, manifest.snapshots[-1].bytes if manifest.snapshots else 0)


class SnapshotSource(NamedTuple):
    """The database as it was between two groups."""

    path: Path
    at: Position
    connection: apsw.Connection
    page_one: bytes


def begin(path: Path, at: Position, page_one: bytes) -> SnapshotSource:
    """Begin a read transaction on the database as it is now; the snapshot is copied from it later."""
    connection = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY)
    connection.execute("BEGIN; SELECT 1 FROM sqlite_schema LIMIT 1").fetchall()
    return SnapshotSource(path, at, connection, page_one)


def store(
    bucket: Bucket,
    world: Environment,
    manifest: Manifest,
    source: SnapshotSource,
    given_up: Callable[[], bool] = lambda: False,
) -> LaneSnapshot:
    """Copy the database into the bucket, part by part. Raises BucketError; then the manifest does not name it.

    The read transaction ends with the local copy: while it is open SQLite cannot start its log anew.
    """
    nonce, at = world.nonce(), source.at
    with tempfile.TemporaryDirectory(prefix=f"{source.path.name}-snapshot-", dir=source.path.parent) as folder:
        copy = Path(folder) / "copy"
        with contextlib.closing(source.connection):
            page_bytes = _copy(source, copy)
        size = copy.stat().st_size
        parts = max(1, -(-size // PART_BYTES))
        stored_bytes = 0
        with copy.open("rb") as file:
            for number in range(parts):
                if given_up():
                    raise Unclear("the lane is being closed")
                part = _part(file, manifest, at, nonce, number, parts, page_bytes)
                data = encode_part(part)
                bucket.put(part_key(at.seq, nonce, number), data)
                stored_bytes += len(data)
    return LaneSnapshot(
        seq=at.seq,
        hash=at.hash.hex(),
        nonce=nonce.hex(),
        parts=parts,
        pages=size // page_bytes,
        page_bytes=page_bytes,
        bytes=stored_bytes,
        time_us=at.time_us,
    )


def _copy(source: SnapshotSource, path: Path) -> int:
    """Copy page for page, so that the page numbers of the log stay valid. Returns the size of a page."""
    target = apsw.Connection(str(path))
    with contextlib.closing(target):
        target.execute("PRAGMA synchronous = OFF")
        target.execute("PRAGMA journal_mode = OFF")
        with target.backup("main", source.connection, "main") as backup:
            while not backup.done:
                backup.step(1_000)
    with path.open("r+b") as file:
        file.write(source.page_one)
    return len(source.page_one)


def _part(
    file: BinaryIO, manifest: Manifest, at: Position, nonce: bytes, number: int, parts: int, page_bytes: int
) -> SnapshotPart:
    return SnapshotPart(
        bytes.fromhex(manifest.database),
        manifest.epoch,
        at.seq,
        at.hash,
        nonce,
        number,
        parts,
        page_bytes,
        number * PART_BYTES // page_bytes + 1,
        file.read(PART_BYTES),
    )


def with_snapshot(manifest: Manifest, snapshot: LaneSnapshot, settings: LaneSettings) -> Manifest:
    """Return the manifest with this snapshot, and without those that the retention no longer needs."""
    if snapshot in manifest.snapshots:
        return manifest  # Its answer was lost, and a mover has changed the manifest since.
    snapshots = [*manifest.snapshots, snapshot]
    oldest_us = snapshot.time_us - int(settings.retention_s * 1_000_000)
    # The history begins at a snapshot: one goes when the next one also covers the time to keep. At first it begins with
    # the log itself, until a snapshot covers that time.
    while len(snapshots) > settings.snapshots_retained and snapshots[1].time_us <= oldest_us:
        del snapshots[0]
    kept = snapshots[0].seq if manifest.kept or snapshots[0].time_us <= oldest_us else 0
    while len(snapshots) > SNAPSHOTS_MAX:
        gaps = [snapshots[at + 1].seq - snapshots[at - 1].seq for at in range(1, len(snapshots) - 1)]
        del snapshots[1 + gaps.index(min(gaps))]
    return msgspec.structs.replace(manifest, snapshots=tuple(snapshots), kept=kept)


def collectable(manifest: Manifest) -> bool:
    """Whether there are groups that the history no longer needs."""
    return manifest.collected < manifest.kept - 1


def collect(bucket: Bucket, manifest: Manifest) -> int:
    """Delete the groups and snapshots that the history no longer needs; returns the new value of `collected`.

    Fences stay for ever: each keeps the slot that an owner before it would write to (G4). What is deleted was read
    before, and was a group. The slot at the floor stays too, so that a local file that stands there can be checked.
    """
    last = max(manifest.collected, min(manifest.kept - 1, manifest.collected + COLLECTED_MAX))
    for start in range(manifest.collected, last, COLLECTED_AT_ONCE):
        keys = [log_key(seq) for seq in range(start + 1, min(last, start + COLLECTED_AT_ONCE) + 1)]
        heads = bucket.get_many(keys, bytes_max=HEADER_BYTES)
        bucket.delete(
            [
                key
                for key, head in zip(keys, heads, strict=True)
                if head is not None and decode_header(head, key).kind == "group"
            ]
        )
    bucket.delete(unknown_parts(bucket, manifest, manifest.floor))
    return last


def unknown_parts(bucket: Bucket, manifest: Manifest, seq: int) -> list[str]:
    """Return the parts of snapshots before this number that the manifest does not know."""
    known = {part_key(each.seq, bytes.fromhex(each.nonce), 0).rpartition("/")[0] for each in manifest.snapshots}
    end = part_key(seq, b"", 0).partition("-")[0]
    return [
        key for key in bucket.keys("snapshot/") if key.rpartition("/")[0] not in known and key.partition("-")[0] < end
    ]


# --- Upkeep ----------------------------------------------------------------------------------------------------------
# Snapshots when they are due, and the collection of what the history no longer needs. Both take long, so they run
# beside the writer, one at a time. Neither touches the manifest: a finished piece of work leaves an update, which the
# lane's driver applies between two groups. So the manifest never has two concurrent changes, and never one by a process
# that is not the owner.

Update = Callable[[Manifest], Manifest]

AGAIN_AFTER_S = 10.0
"""How long upkeep rests after it has failed."""


class Upkeep:
    """The upkeep of one lane's log. `step` and `close` run in the driver."""

    def __init__(
        self, bucket: Bucket, world: Environment, settings: LaneSettings, lease: LaneLease, path: Path
    ) -> None:
        self._bucket = bucket
        self._world = world
        self._settings = settings
        self._lease = lease
        self._path = path
        self._groups = 0
        """Objects after the newest snapshot, and their bytes: what a replay would cost."""
        self._log_bytes = 0
        self._wait: Callable[[], None] | None = None
        self._update: Update | None = None
        self._over = False
        self._closing = False
        self._collected_last = False
        self._sweep = False
        """Whether a snapshot was dropped whose parts are still there."""
        self._not_before_s = 0.0
        self.failed = 0

    def count(self, stored: StoredObject) -> None:
        """Count one more object in the log."""
        self._groups += 1
        self._log_bytes += stored.size

    def step(self, position: Position, page_one: bytes) -> None:
        """Apply finished upkeep and begin the next that is due, between two groups."""
        if self._wait is not None:
            if not self._over:
                return
            self._finish()
        if self._world.clock.monotonic_s() < self._not_before_s:
            return
        manifest = self._lease.manifest
        due = snapshot_due(manifest, self._groups, self._log_bytes, self._settings)
        # In turns, so that neither keeps the other from its work, whichever of them fails.
        if due and (self._collected_last or not (collectable(manifest) or self._sweep)):
            self._collected_last = False
            self._begin_snapshot(manifest, position, page_one)
        elif collectable(manifest) or self._sweep:
            self._collected_last = True
            self._run(lambda: self._collected(manifest))

    def close(self) -> None:
        """Give up the work in the background, at its next part. The next owner deletes what it has stored."""
        self._closing = True
        if self._wait is not None:
            self._wait()
            self._wait = None
        self._closing = False  # A mover that does not ask for the lane any more leaves it to this owner.

    def _begin_snapshot(self, manifest: Manifest, position: Position, page_one: bytes) -> None:
        try:
            source = begin(self._path, position, page_one)
        except apsw.Error:
            self.failed += 1
            return
        self._groups = self._log_bytes = 0

        def stored() -> Update:
            snapshot = store(self._bucket, self._world, manifest, source, lambda: self._closing)
            reach("snapshot.stored")
            return lambda manifest: with_snapshot(manifest, snapshot, self._settings)

        self._run(stored)

    def _collected(self, manifest: Manifest) -> Update:
        collected = collect(self._bucket, manifest)
        self._sweep = False
        reach("groups.deleted")
        return lambda manifest: msgspec.structs.replace(manifest, collected=collected)

    def _run(self, work: Callable[[], Update]) -> None:
        def run() -> None:
            try:
                self._update = work()
            except (BucketError, CorruptionError, apsw.Error, OSError):
                # Nothing is lost but time: the log is whole, and it is tried again after a while.
                self.failed += 1
                self._not_before_s = self._world.clock.monotonic_s() + AGAIN_AFTER_S
            finally:
                self._over = True

        self._update, self._over = None, False
        self._wait = self._world.beside(run)

    def _finish(self) -> None:
        update, self._wait, self._update = self._update, None, None
        if update is not None:
            before = self._lease.manifest.snapshots
            self._lease.change(update)
            self._sweep = self._sweep or not set(before) <= set(self._lease.manifest.snapshots)
            reach("manifest.changed")
