"""The log of an open lane on a bucket: appends each group to the bucket, and keeps the log short by snapshots.

`append` is the lane's hand-off. It runs in the lane's driver, after the local commit and before any acknowledgement:
capture the pages, write the next slot, and look after the lease, a snapshot and the collection when they are due. The
same thread makes every change of the manifest, so there is never more than one on its way.

G4: the answer to a slot decides, not the lease. G7: the lane holds reads until the group is durable. A lease that may
have run out is renewed before a read is answered, so that a replaced owner notices.
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

from interlock import faultpoints
from interlock.errors import CorruptionError, OutcomeUnknown, UnavailableError
from interlock.lanes.objectlog.append import Position, Stored, write_slot
from interlock.lanes.objectlog.bucket import Bucket, BucketError, Unclear, World
from interlock.lanes.objectlog.cache import Cache
from interlock.lanes.objectlog.capture import Capture
from interlock.lanes.objectlog.format import (
    HEADER_BYTES,
    Entry,
    Part,
    corrupt,
    decode_header,
    encode_part,
    log_key,
    part_key,
)
from interlock.lanes.objectlog.manifest import Keeper, Manifest, Snapshot, fenced, read_manifest
from interlock.lanes.settings import LaneSettings

# --- Snapshots -------------------------------------------------------------------------------------------------------
# A snapshot is the whole database at one position of the log. It makes replay short, and old groups can go. It is taken
# beside the writer, from a read transaction that was begun between two groups: what it shows is durable, and stands
# still while it is copied. Its parts have a name that no other writer uses, so they need no condition. The manifest
# names it only when all are stored, and only then are groups deleted: the order is snapshot, floor, deletion. A crash
# between any two leaves nothing worse than unused objects.
#
# The odd choice is page 1. SQLite's backup copies every page as it is but the first, whose counters it raises; so
# that one is put in as it stands in the log, and a snapshot is what replay would have made, byte for byte.

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
    last_bytes = manifest.snapshots[-1].bytes if manifest.snapshots else 0
    return log_bytes + groups * GROUP_WEIGHT_BYTES >= max(settings.snapshot_bytes_min, last_bytes)


class Source(NamedTuple):
    """The database as it was between two groups."""

    path: Path
    at: Position
    connection: apsw.Connection
    page_one: bytes


def begin(path: Path, at: Position, page_one: bytes) -> Source:
    """Begin a read transaction on the database as it is now; the snapshot is copied from it later."""
    connection = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY)
    connection.execute("BEGIN; SELECT 1 FROM sqlite_schema LIMIT 1").fetchall()
    return Source(path, at, connection, page_one)


def store(
    bucket: Bucket, world: World, manifest: Manifest, source: Source, given_up: Callable[[], bool] = lambda: False
) -> Snapshot:
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
    return Snapshot(
        seq=at.seq,
        hash=at.hash.hex(),
        nonce=nonce.hex(),
        parts=parts,
        pages=size // page_bytes,
        page_bytes=page_bytes,
        bytes=stored_bytes,
        time_us=at.time_us,
    )


def _copy(source: Source, path: Path) -> int:
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
) -> Part:
    return Part(
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


def with_snapshot(manifest: Manifest, snapshot: Snapshot, settings: LaneSettings) -> Manifest:
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
    _drop_unknown(bucket, manifest)
    return last


def _drop_unknown(bucket: Bucket, manifest: Manifest) -> None:
    """Delete the parts of snapshots that the manifest does not know, and that are older than those it knows."""
    known = {part_key(each.seq, bytes.fromhex(each.nonce), 0).rpartition("/")[0] for each in manifest.snapshots}
    newest = part_key(manifest.floor, b"", 0).partition("-")[0]
    old = [
        key
        for key in bucket.keys("snapshot/")
        if key.rpartition("/")[0] not in known and key.partition("-")[0] < newest
    ]
    bucket.delete(old)


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

    def __init__(self, bucket: Bucket, world: World, settings: LaneSettings, keeper: Keeper, path: Path) -> None:
        self._bucket = bucket
        self._world = world
        self._settings = settings
        self._keeper = keeper
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

    def count(self, stored: Stored) -> None:
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
        manifest = self._keeper.manifest
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

    def _begin_snapshot(self, manifest: Manifest, position: Position, page_one: bytes) -> None:
        try:
            source = begin(self._path, position, page_one)
        except apsw.Error:
            self.failed += 1
            return
        self._groups = self._log_bytes = 0

        def stored() -> Update:
            snapshot = store(self._bucket, self._world, manifest, source, lambda: self._closing)
            faultpoints.reach("snapshot.stored")
            return lambda manifest: with_snapshot(manifest, snapshot, self._settings)

        self._run(stored)

    def _collected(self, manifest: Manifest) -> Update:
        collected = collect(self._bucket, manifest)
        self._sweep = False
        faultpoints.reach("groups.deleted")
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
            before = self._keeper.manifest.snapshots
            self._keeper.change(update)
            self._sweep = self._sweep or not set(before) <= set(self._keeper.manifest.snapshots)
            faultpoints.reach("manifest.changed")


# --- Log -------------------------------------------------------------------------------------------------------------

RENEWED_AFTER = 1 / 3
"""The part of the lease after which it is renewed."""


class ObjectLog:
    """The log of a lane that this process owns. Made by `open.open_log`."""

    local_sync = False

    def __init__(
        self,
        bucket: Bucket,
        world: World,
        settings: LaneSettings,
        keeper: Keeper,
        upkeep: Upkeep,
        *,
        cache: Cache,
        position: Position,
        leased_s: float,
    ) -> None:
        self._bucket = bucket
        self._world = world
        self._settings = settings
        self._keeper = keeper
        self._upkeep = upkeep
        self.position = position
        self._cache = cache
        self._capture = Capture(cache.path)
        self._page_one = cache.page_one()
        self._leased_s = leased_s
        """When, by our own clock, the lease was last requested: it surely holds for `lease_s` from then."""
        self.bytes_appended = 0

    @property
    def manifest(self) -> Manifest:
        """The manifest as this owner last saw it."""
        return self._keeper.manifest

    @property
    def upkeep_failed(self) -> int:
        """How often a snapshot or a collection failed; it is tried again."""
        return self._upkeep.failed

    def append(self, frames: int, time_us: int) -> None:
        """Make durable what SQLite has committed up to that frame. Raises Fenced or OutcomeUnknown."""
        self._renew_if_due()
        changed = self._capture.changed(frames)
        if changed is None:
            return
        manifest, position = self._keeper.manifest, self.position
        entry = Entry(
            "group",
            bytes.fromhex(manifest.database),
            manifest.epoch,
            position.seq + 1,
            position.hash,
            self._world.nonce(),
            max(time_us, position.time_us),
            changed.page_bytes,
            changed.pages_in_all,
            changed.pages,
        )
        stored = write_slot(self._bucket, entry, self._world, self._settings.append_deadline_s)
        if stored.entry.nonce != entry.nonce:
            if stored.entry.epoch > entry.epoch:
                raise self._replaced(stored.entry)
            raise corrupt(log_key(entry.seq), f"it was written by epoch {stored.entry.epoch}, and not by this owner")
        self._capture.took()
        self.position = stored.position
        if changed.pages[0][0] == 1:
            self._page_one = changed.pages[0][1]
        self._upkeep.count(stored)
        self.bytes_appended += stored.size

    def between(self) -> None:
        """Run upkeep between two groups, after all waiters were notified."""
        self._upkeep.step(self.position, self._page_one)

    def current(self) -> bool:
        """Whether the lease surely holds, so that reads here see the latest state."""
        return self._world.clock.monotonic_s() < self._leased_s + self.manifest.lease_s

    def close(self, *, clean: bool) -> None:
        """Release the lease, so that the next owner need not wait, and mark the local file as reusable.

        After an unclean end neither happens. A lease that cannot be released runs out by itself.
        """
        self._upkeep.close()
        if not clean:
            self._cache.discard()
            return
        self._cache.keep(self.manifest, self.position)
        self._keeper.give_up()

    def _replaced(self, found: Entry) -> UnavailableError:
        """Return the error for a slot that a later owner has filled.

        Mostly our group did not happen. But a slot below the history that is kept may have been ours, replayed by that
        owner, deleted, and filled again by a request of its own that came late.
        """
        try:
            found_now = read_manifest(self._bucket)
        except BucketError:
            found_now = None
        if found_now is not None and found.seq >= found_now[0].kept:
            return fenced(found.epoch, found_now[0].owner)
        return OutcomeUnknown(f"the lane was taken over (epoch {found.epoch}) while an append was on its way.")

    def _renew_if_due(self) -> None:
        now_s = self._world.clock.monotonic_s()
        if now_s >= self._leased_s + self.manifest.lease_s * RENEWED_AFTER:
            self._keeper.change(lambda manifest: manifest)
            self._leased_s = now_s
            faultpoints.reach("lease.renewed")
