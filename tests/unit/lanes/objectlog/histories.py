"""A database in a bucket whose every state is known, and ways to look at it from outside, for tests."""

import random
from collections.abc import Callable
from datetime import datetime
from pathlib import Path

import apsw
import msgspec

from interlock.backup.lane_copies import check_free, put_all_in_place, staging_path
from interlock.lanes.objectlog import bucket_doctor, manifest, point_in_time
from interlock.lanes.objectlog.bucket_protocol import Bucket, Watch, silent
from interlock.lanes.objectlog.doctor_report import BucketReport
from interlock.lanes.objectlog.format import (
    LogObject,
    SnapshotPart,
    decode_entry,
    decode_part,
    encode_entry,
    encode_part,
    hash_of,
    log_key,
)
from interlock.lanes.objectlog.manifest import Manifest
from tests.unit.lanes.objectlog.buckets import Owner, ScriptedBucket, StillClock

NAME = "s3://bucket/shop/stock"

Rows = list[tuple[object, ...]]


class History:
    """Owners one after the other, each state of the database noted by its number."""

    def __init__(
        self,
        folder: Path,
        bucket: ScriptedBucket | None = None,
        *,
        snapshots_kept: int = 100,
        snapshot_bytes_min: int = 4 * 4_096,
    ) -> None:
        self.bucket = bucket or ScriptedBucket()
        self.folder = folder
        self.snapshots_kept = snapshots_kept
        self.snapshot_bytes_min = snapshot_bytes_min
        self.states: dict[int, Rows] = {}
        self.times_us: dict[int, int] = {}
        self._luck = random.Random(1)
        self.owners = 0
        self.owner = self.open()
        self.write("CREATE TABLE interlock_lane (time_us INTEGER)")

    def open(self) -> Owner:
        """Another owner; the one before is closed."""
        if self.owners:
            self.owner.close()
        self.owners += 1
        self.owner = Owner(
            self.bucket,
            self.folder / f"owner-{self.owners}",
            self.owners,
            snapshot_bytes_min=self.snapshot_bytes_min,
            snapshots_retained=self.snapshots_kept,
            retention_s=0.0,
        )
        self.note()
        return self.owner

    def write(self, sql: str) -> None:
        """One group."""
        self.owner.frames = 0
        self.owner.connection.execute(sql)
        self.owner.log.append(self.owner.frames, 1_000_000 * (len(self.states) + 1))
        self.owner.log.run_upkeep()
        self.note()

    def insert(self, count: int = 1) -> None:
        """So many groups of one row."""
        for _ in range(count):
            self.write(f"INSERT INTO t (b) VALUES ('{self._luck.randbytes(40).hex()}')")

    def insert_behind_snapshot(self, count: int) -> None:
        """Groups until exactly so many lie behind the newest snapshot."""
        while self.last - self.manifest.floor != count:
            self.insert()

    def note(self) -> None:
        """Remember what the database holds now."""
        position = self.owner.log.position
        self.states[position.seq] = self.owner.rows()
        self.times_us[position.seq] = position.time_us

    @property
    def last(self) -> int:
        """The end of the log."""
        return self.owner.log.position.seq

    @property
    def manifest(self) -> Manifest:
        """What the bucket says now."""
        return manifest.decode(self.bucket.objects[manifest.KEY])

    def change_manifest(self, **fields: object) -> None:
        """Write something else into it."""
        changed = msgspec.structs.replace(self.manifest, **fields)
        self.bucket.objects[manifest.KEY] = msgspec.json.encode(changed)

    def change_snapshot(self, place: int, change: Callable[[SnapshotPart], SnapshotPart]) -> None:
        """Store another snapshot of one part in the place of one, in agreement with the manifest."""
        snapshots = list(self.manifest.snapshots)
        [key] = self.bucket.keys(f"snapshot/{snapshots[place].seq:020d}")
        part = change(decode_part(self.bucket.objects[key], key))
        self.bucket.objects[key] = encode_part(part)
        pages = len(part.data) // part.page_bytes
        snapshots[place] = msgspec.structs.replace(snapshots[place], hash=part.at_hash.hex(), pages=pages)
        self.change_manifest(snapshots=tuple(snapshots))

    def entry(self, seq: int) -> LogObject:
        """One object of the log."""
        return decode_entry(self.bucket.objects[log_key(seq)], log_key(seq))

    def change_entry(self, seq: int, change: Callable[[LogObject], LogObject], *, mend: bool = True) -> None:
        """Put another object into a slot, with a right checksum; the chain behind it is mended, or breaks there."""
        entry = change(self.entry(seq))
        while True:
            data = self.bucket.objects[log_key(seq)] = encode_entry(entry)
            seq += 1
            if not mend or log_key(seq) not in self.bucket.objects:
                return
            entry = self.entry(seq)._replace(previous=hash_of(data))

    def flip(self, key: str) -> None:
        """Change one byte of an object's body, or of its checksum if it has none."""
        data = bytearray(self.bucket.objects[key])
        data[-1] ^= 1
        self.bucket.objects[key] = bytes(data)

    def restore(self, file: Path, at: int | datetime | None = None, *, force: bool = False) -> point_in_time.Restored:
        """Restore it."""
        return restore_from(self.bucket, file, at, force=force)

    def examine(self, folder: Bucket | None = None) -> BucketReport:
        """What the doctor says."""
        return examined(self.bucket, folder)


def restore_from(
    bucket: Bucket, file: Path, at: int | datetime | None = None, *, force: bool = False, watch: Watch = silent
) -> point_in_time.Restored:
    """Restore what is in a bucket, and give it its name."""
    check_free(file, force=force)
    with staging_path(file) as ready:
        done = point_in_time.restore(
            bucket,
            ready,
            name=NAME,
            at=at,
            clock=StillClock(),
            prepare=lambda _connection, _now_us: None,
            watch=watch,
        )
        put_all_in_place(ready, file, force=force)
    return done


def examined(bucket: Bucket, folder: Bucket | None = None, watch: Watch = silent) -> BucketReport:
    """What the doctor says about a bucket."""
    return bucket_doctor.examine(
        bucket, name=NAME, clock=StillClock(), prepare=lambda _connection, _now_us: None, folder=folder, watch=watch
    )


def rows_of(file: Path) -> Rows:
    """What is in the table of a restored file."""
    connection = apsw.Connection(str(file))
    try:
        if not connection.execute("SELECT 1 FROM sqlite_schema WHERE name = 't'").fetchall():
            return []
        return connection.execute("SELECT a, b FROM t ORDER BY a").fetchall()
    finally:
        connection.close()
