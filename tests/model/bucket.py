"""The bucket of the model: what lies in it, what a request does to it, and what an undisturbed opener would read.

Everything is a value: two buckets with the same contents are the same bucket. A hash or a nonce is not computed; the
bytes name their author, and nobody else ever writes the same ones. Tags of the manifest are hashes of its CONTENT, as
in a real bucket, so the tag of a body is the body itself: identical bytes have the identical tag.
"""

from functools import lru_cache
from typing import Literal, NamedTuple, TypeVar

Answer = Literal["done", "exists", "no answer"]

T = TypeVar("T")

NAMES = "ABCDEFGH"
NO_HASH = "-"


class Entry(NamedTuple):
    """One object of the log: a group of one payload, or a fence (no payload). Author and payload are its nonce."""

    seq: int
    epoch: int
    author: int
    payload: str
    previous: str

    @property
    def hash(self) -> str:
        return f"{self.title}@{self.seq}"

    @property
    def title(self) -> str:
        return self.payload or f"fence of {NAMES[self.author]}"


class Manifest(NamedTuple):
    """The one object that is changed by CAS. Author and revision are its nonce."""

    epoch: int
    floor: int
    author: int
    revision: int


class Snapshot(NamedTuple):
    """The state made by all slots below a floor, and the hash of the last of them."""

    payloads: tuple[str, ...]
    last: str


class Bucket(NamedTuple):
    """`log[seq]` and `snapshots[floor]`; None = no such object."""

    log: tuple[Entry | None, ...]
    manifest: Manifest
    snapshots: tuple[Snapshot | None, ...]


class Create(NamedTuple):
    """PUT log/<seq>, if absent."""

    entry: Entry

    def __str__(self) -> str:
        return f"create log/{self.entry.seq} = {self.entry.title} (epoch {self.entry.epoch})"


class Change(NamedTuple):
    """PUT manifest, if its tag is still the one of `expected`."""

    expected: Manifest
    body: Manifest

    def __str__(self) -> str:
        return f"change the manifest to epoch {self.body.epoch}, floor {self.body.floor}"


class Store(NamedTuple):
    """PUT snapshot/<floor>."""

    floor: int
    snapshot: Snapshot

    def __str__(self) -> str:
        return f"store a snapshot of what is below {self.floor}: {told(self.snapshot.payloads)}"


class Delete(NamedTuple):
    """DELETE log/<seq>, whatever is there when it arrives."""

    seq: int

    def __str__(self) -> str:
        return f"delete log/{self.seq}"


Request = Create | Change | Store | Delete


def empty_bucket(slots: int) -> Bucket:
    """A database that was made and never opened."""
    empty = Snapshot((), NO_HASH)
    return Bucket((None,) * slots, Manifest(0, 0, -1, 0), (empty, *(None,) * slots))


def carry_out(bucket: Bucket, request: Request) -> tuple[Bucket, Answer]:
    """What the bucket is after the request arrived, and its honest answer ("exists": the condition did not hold)."""
    answer: Answer = "done"
    match request:
        case Create(entry) if bucket.log[entry.seq] is None:
            bucket = Bucket(_with(bucket.log, entry.seq, entry), bucket.manifest, bucket.snapshots)
        case Change(expected, body) if bucket.manifest == expected:
            bucket = Bucket(bucket.log, body, bucket.snapshots)
        case Create() | Change():
            answer = "exists"
        case Store(floor, snapshot) if bucket.snapshots[floor] != snapshot:
            bucket = Bucket(bucket.log, bucket.manifest, _with(bucket.snapshots, floor, snapshot))
        case Delete(seq) if bucket.log[seq] is not None:
            bucket = Bucket(_with(bucket.log, seq, None), bucket.manifest, bucket.snapshots)
        case Store() | Delete():
            pass  # It is so already.
    return bucket, answer


class Recovered(NamedTuple):
    """What an opener that nobody disturbs reads, or why it cannot."""

    payloads: tuple[str, ...]
    problem: str = ""


@lru_cache(maxsize=1 << 18)
def recover(bucket: Bucket) -> Recovered:
    """Snapshot at the floor, then the log from there to the first free slot, with its chain checked."""
    snapshot = bucket.snapshots[bucket.manifest.floor]
    if snapshot is None:
        return Recovered((), f"there is no snapshot for the floor {bucket.manifest.floor}")
    payloads, last = snapshot
    epoch = 0
    for entry in bucket.log[bucket.manifest.floor :]:
        if entry is None:
            break
        if entry.previous != last:
            return Recovered(payloads, f"the chain is broken: {entry.hash} follows {last}, not {entry.previous}")
        if entry.epoch < epoch:
            return Recovered(payloads, f"{entry.hash} of epoch {entry.epoch} follows epoch {epoch}")
        epoch, last = entry.epoch, entry.hash
        payloads += (entry.payload,) if entry.payload else ()
    if len(set(payloads)) < len(payloads):
        return Recovered(payloads, f"a payload is there twice: {told(payloads)}")
    return Recovered(payloads)


def told(payloads: tuple[str, ...]) -> str:
    """A sequence of payloads, for a story."""
    return f"[{', '.join(payloads)}]"


def _with(values: tuple[T, ...], index: int, value: T) -> tuple[T, ...]:
    return (*values[:index], value, *values[index + 1 :])
