"""Snapshots: the whole database at one position of the log, so that replay is short and old groups can go.

A snapshot is taken beside the writer, from a read transaction that was begun between two groups: what it shows is
durable, and stands still while it is copied. Its parts have a name that no other writer uses, so they need no
condition. The manifest names it only when all are stored, and only then are groups deleted: the order is snapshot,
floor, deletion. A crash between any two leaves nothing worse than unused objects.

The odd choice is page 1. SQLite's backup copies every page as it is but the first, whose counters it raises; so that
one is put in as it stands in the log, and a snapshot is what replay would have made, byte for byte.
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

from interlock.lanes.objects.bucket import Bucket, Unclear
from interlock.lanes.objects.format import HEADER_BYTES, Part, decode_header, encode_part, log_key, part_key
from interlock.lanes.objects.manifest import Manifest, Snapshot
from interlock.lanes.objects.slots import Position
from interlock.lanes.objects.world import World
from interlock.lanes.settings import LaneSettings

PART_BYTES = 8_388_608
"""How much of the database one part holds before it is compressed."""

SNAPSHOTS_MAX = 64
"""Snapshots in the manifest; beyond that, those in the middle are thinned out. The history stays whole."""

COLLECTED_AT_ONCE = 100
COLLECTED_MAX = 10_000
"""Groups that one collection deletes; the next one goes on."""

GROUP_WEIGHT_BYTES = 4_096
"""The cost of a group in a replay beside its bytes: a round trip."""


def due(manifest: Manifest, groups: int, log_bytes: int, settings: LaneSettings) -> bool:
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
