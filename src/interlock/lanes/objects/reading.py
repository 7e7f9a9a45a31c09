"""Reading a database in a bucket from outside: without its lease, beside its owner, and without a trace.

The owner goes on meanwhile: it appends, takes snapshots, and deletes what the history no longer needs. So a reader that
misses an object reads the manifest again before calling it damage (`moved`): an object that was collected meanwhile is
not lost, and reading begins anew from what is kept now.
"""

from collections.abc import Callable, Iterator
from itertools import pairwise

from interlock.errors import TargetNotFound
from interlock.lanes.objects.bucket import Bucket
from interlock.lanes.objects.format import HASH_BYTES, HEADER_BYTES, Part, corrupt, decode_part, log_key, part_key
from interlock.lanes.objects.manifest import KEY, Manifest, Snapshot, read_manifest

LOOKS_MAX = 5
"""How often reading begins anew because the owner has collected objects that were just being read."""

PARTS_AT_ONCE = 4
ID_BYTES = 16

Watch = Callable[[str, int, int], None]
"""A progress callback: the activity, how much of it is done, and how much there is."""


def silent(_what: str, _done: int, _of: int) -> None:
    """Ignore all progress."""


def manifest_at(bucket: Bucket, name: str) -> Manifest:
    """Return the manifest of the database of that name. Raises TargetNotFound, CorruptionError and BucketError."""
    found = read_manifest(bucket)
    if found is None:
        raise no_database(name)
    flaw = flaw_of(found[0])
    if flaw:
        raise corrupt(KEY, flaw)
    return found[0]


def no_database(name: str) -> TargetNotFound:
    """The error for an address without a database."""
    return TargetNotFound(
        f"there is no database at {name}.",
        why="A database in a bucket has a manifest below its address, from the first time it is opened.",
        fix="Check the address: the bucket, the folder, the name, the endpoint.",
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


def moved(bucket: Bucket, before: Manifest) -> bool:
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


def read_parts(bucket: Bucket, database: str, snapshot: Snapshot) -> Iterator[Part]:
    """Yield the parts of a snapshot in order, each checked. Raises CorruptionError, naming the part, or BucketError."""
    keys = [part_key(snapshot.seq, bytes.fromhex(snapshot.nonce), part) for part in range(snapshot.parts)]
    expected = (database, snapshot.seq, snapshot.hash, snapshot.nonce, snapshot.parts, snapshot.page_bytes)
    next_page = 1
    for start in range(0, len(keys), PARTS_AT_ONCE):
        some = keys[start : start + PARTS_AT_ONCE]
        for number, (key, data) in enumerate(zip(some, bucket.get_many(some), strict=True), start):
            if data is None:
                raise corrupt(key, "it is missing")
            part = decode_part(data, key)
            actual = (part.database.hex(), part.seq, part.at_hash.hex(), part.nonce.hex(), part.parts, part.page_bytes)
            if actual != expected:
                raise corrupt(key, "it belongs to another snapshot")
            if (part.part, part.first_page) != (number, next_page):
                raise corrupt(key, f"it is part {part.part}, from page {part.first_page}, and not part {number}")
            next_page += len(part.data) // part.page_bytes
            yield part
    if next_page - 1 != snapshot.pages:
        raise corrupt(keys[-1], f"the snapshot has {next_page - 1:,} pages instead of {snapshot.pages:,}")


def check_hash(snapshot: Snapshot, found: bytes) -> None:
    """Check that the snapshot was taken after the object in the slot of its number. Raises CorruptionError."""
    if found.hex() != snapshot.hash:
        key = part_key(snapshot.seq, bytes.fromhex(snapshot.nonce), 0)
        raise corrupt(key, f"its snapshot was taken after another object than {log_key(snapshot.seq)}")
