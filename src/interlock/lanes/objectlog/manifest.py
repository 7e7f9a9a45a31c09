"""The manifest: one small object that says who owns the lane, since which epoch, and where replay begins.

It is changed by compare-and-swap only, one change at a time. Each body has a revision and a nonce: the tags of many
servers are hashes of the content, and two bodies with the same bytes would let a stale swap win. An unclear answer is
resolved by reading: my nonce means done, a higher epoch means that another owner has taken over (G4).
"""

from collections.abc import Iterator
from itertools import pairwise

import msgspec

from interlock.errors import TargetNotFound, UnavailableError
from interlock.lanes.objectlog.bucket_protocol import Bucket, Environment
from interlock.lanes.objectlog.format import (
    HASH_BYTES,
    HEADER_BYTES,
    VERSION,
    SnapshotPart,
    corrupt_error,
    decode_part,
    log_key,
    part_key,
)

KEY = "manifest"


class LeaseHolder(msgspec.Struct, frozen=True, kw_only=True):
    """The holder of the lease. The id is random per open; the rest is for people."""

    id: str
    pid: int
    host: str
    cache: str
    """The name of the owner's local file: the process with that file's lock knows that this owner is gone."""
    mover: bool = False
    """Whether it moves the lane elsewhere, and owns it only until it has left."""


class LaneSnapshot(msgspec.Struct, frozen=True, kw_only=True):
    """A complete snapshot: the database as it was at `seq`."""

    seq: int
    hash: str
    nonce: str
    parts: int
    pages: int
    page_bytes: int
    bytes: int
    """The size of its parts in the bucket."""
    time_us: int
    """The lane's own time when it was taken, for the retention (G8)."""


class Left(msgspec.Struct, frozen=True, kw_only=True):
    """The new place after a move. The tombstone in the log decides; this spares reading it."""

    url: str
    epoch: int
    time_us: int


class Manifest(msgspec.Struct, frozen=True, kw_only=True):
    """The state of the whole lane in one object."""

    format: int = VERSION
    database: str
    revision: int
    nonce: str
    epoch: int
    owner: LeaseHolder | None
    """None when the last owner has released the lane."""
    lease_s: float
    snapshots: tuple[LaneSnapshot, ...] = ()
    """Oldest first. Replay begins at the last one."""
    kept: int = 0
    """Every state from this number on can be restored; 0 means from the beginning."""
    collected: int = 0
    """Groups below this number are deleted. Fences never are."""
    lease_before_s: float = 0.0
    """The lease before a mover shortened it, which an owner that has not renewed since still believes in; 0 if it was
    not shortened."""
    left: Left | None = None
    handover_to: LeaseHolder | None = None
    """The mover that asks the owner to hand the lane over. A release that does not know this removes it."""

    @property
    def floor(self) -> int:
        """The number after which replay begins."""
        return self.snapshots[-1].seq if self.snapshots else 0


def read_manifest(bucket: Bucket) -> tuple[Manifest, object] | None:
    """Return the manifest and its tag, or None without one. Raises BucketError when the bucket does not answer."""
    found = bucket.get(KEY)
    return None if found is None else (decode(found.data), found.tag)


def decode(data: bytes) -> Manifest:
    """Decode a manifest. Raises CorruptionError for anything else."""
    try:
        manifest = msgspec.json.decode(data, type=Manifest)
    except msgspec.MsgspecError as error:
        raise corrupt_error(KEY, f"it cannot be read ({error})") from error
    if manifest.format != VERSION:
        raise corrupt_error(KEY, f"it is of format version {manifest.format}; this Interlock reads version {VERSION}")
    return manifest


def next_revision(manifest: Manifest, world: Environment) -> Manifest:
    """Return the manifest as the next body, with the next revision and a nonce: no two bodies have the same bytes."""
    return msgspec.structs.replace(manifest, revision=manifest.revision + 1, nonce=world.nonce().hex())


# --- Reading beside the owner ----------------------------------------------------------------------------------------
# A reader needs no lease and leaves no trace. The owner goes on meanwhile: it appends, takes snapshots, and deletes
# what the history no longer needs. So a reader that misses an object reads the manifest again before calling it damage
# (`moved`): an object that was collected meanwhile is not lost, and reading begins anew from what is kept now.

LOOKS_MAX = 5
"""How often reading begins anew because the owner has collected objects that were just being read."""

PARTS_AT_ONCE = 4
ID_BYTES = 16


def manifest_at(bucket: Bucket, name: str) -> Manifest:
    """Return the manifest of the database of that name. Raises TargetNotFound, CorruptionError and BucketError."""
    found = read_manifest(bucket)
    if found is None:
        raise no_database_error(name)
    flaw = flaw_of(found[0])
    if flaw:
        raise corrupt_error(KEY, flaw)
    return found[0]


def no_database_error(name: str) -> TargetNotFound:
    """Return the error for an address without a database."""
    return TargetNotFound(
        f"there is no database at {name}.",
        why="A database in a bucket has a manifest below its address, from the first time it is opened.",
        fix="Check the address: the bucket, the folder, the name, the endpoint.",
    )


def history_too_short_error(name: str, action: str) -> UnavailableError:
    """Return the error for a database whose owner collects faster than it can be read."""
    return UnavailableError(
        f"{name} could not be {action}: {LOOKS_MAX} times, its owner has deleted what was just being read.",
        why="Its history is shorter than it takes to read it.",
        fix="Try again, from a machine nearer to the bucket, or raise retention_s of the database.",
    )


def flaw_of(manifest: Manifest) -> str:  # noqa: PLR0911 -- one line for each flaw.
    """Return the first contradiction in a manifest; empty when it is sound."""
    snapshots = manifest.snapshots
    if not _is_hex(manifest.database, ID_BYTES):
        return f"{manifest.database!r} is not the id of a database"
    for each in snapshots:
        if not _is_hex(each.hash, HASH_BYTES) or not _is_hex(each.nonce, ID_BYTES):
            return f"the hash or the nonce of its snapshot at {each.seq} is invalid"
        if min(each.seq, each.parts, each.pages, each.page_bytes) < 1:
            return f"its snapshot at {each.seq} has {each.parts} parts and {each.pages} pages of {each.page_bytes}"
    if any(one.seq >= other.seq for one, other in pairwise(snapshots)):
        return "its snapshots are not in order"
    if manifest.kept and (not snapshots or manifest.kept != snapshots[0].seq):
        return f"its history begins at {manifest.kept}, where no snapshot is"
    if manifest.collected and manifest.collected >= manifest.kept:
        return f"groups are deleted up to {manifest.collected}, where no snapshot takes their place"
    return ""


def _is_hex(text: str, size: int) -> bool:
    try:
        return len(text) == 2 * size and len(bytes.fromhex(text)) == size
    except ValueError:
        return False


def history_changed(bucket: Bucket, before: Manifest) -> bool:
    """Whether the manifest no longer promises something that it promised before."""
    found = read_manifest(bucket)
    if found is None:
        return True
    now = found[0]
    kept = {(each.seq, each.nonce) for each in now.snapshots}
    return (
        now.database != before.database
        or now.kept != before.kept
        or not {(each.seq, each.nonce) for each in before.snapshots} <= kept
    )


def end_of_log(bucket: Bucket, known: int) -> int:
    """Return the last filled slot. Everything up to `known` is filled; the log is dense, so few slots need a look."""

    def filled(seq: int) -> bool:
        return bucket.get_many([log_key(seq)], bytes_max=HEADER_BYTES) != [None]

    last, step = known, 1
    while filled(last + step):
        last, step = last + step, 2 * step
    empty = last + step
    while empty - last > 1:
        middle = (last + empty) // 2
        if filled(middle):
            last = middle
        else:
            empty = middle
    return last


def read_parts(bucket: Bucket, database: str, snapshot: LaneSnapshot) -> Iterator[SnapshotPart]:
    """Yield the parts of a snapshot in order, each checked. Raises CorruptionError, naming the part, or BucketError."""
    keys = [part_key(snapshot.seq, bytes.fromhex(snapshot.nonce), part) for part in range(snapshot.parts)]
    expected = (database, snapshot.seq, snapshot.hash, snapshot.nonce, snapshot.parts, snapshot.page_bytes)
    next_page = 1
    for start in range(0, len(keys), PARTS_AT_ONCE):
        some = keys[start : start + PARTS_AT_ONCE]
        for number, (key, data) in enumerate(zip(some, bucket.get_many(some), strict=True), start):
            if data is None:
                raise corrupt_error(key, "it is missing")
            part = decode_part(data, key)
            actual = (part.database.hex(), part.seq, part.at_hash.hex(), part.nonce.hex(), part.parts, part.page_bytes)
            if actual != expected:
                raise corrupt_error(key, "it belongs to another snapshot")
            if (part.part, part.first_page) != (number, next_page):
                raise corrupt_error(key, f"it is part {part.part}, from page {part.first_page}, and not part {number}")
            next_page += len(part.data) // part.page_bytes
            yield part
    if next_page - 1 != snapshot.pages:
        raise corrupt_error(keys[-1], f"the snapshot has {next_page - 1:,} pages instead of {snapshot.pages:,}")


def check_hash(snapshot: LaneSnapshot, found: bytes) -> None:
    """Check that the snapshot was taken after the object in the slot of its number. Raises CorruptionError."""
    if found.hex() != snapshot.hash:
        key = part_key(snapshot.seq, bytes.fromhex(snapshot.nonce), 0)
        raise corrupt_error(key, f"its snapshot was taken after another object than {log_key(snapshot.seq)}")
