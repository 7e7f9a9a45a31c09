"""The manifest: one small object that says who owns the lane, since which epoch, and where replay begins.

It is changed by compare-and-swap only, one change at a time. Each body has a revision and a nonce: the tags of many
servers are hashes of the content, and two bodies with the same bytes would let a stale swap win. An unclear answer is
resolved by reading: my nonce means done, a higher epoch means that another owner has taken over (G4).
"""

import contextlib
import os
import socket
from collections.abc import Callable

import msgspec

from interlock.errors import CorruptionError, Fenced
from interlock.lanes.objects.bucket import Bucket, BucketError, Found
from interlock.lanes.objects.format import VERSION, corrupt
from interlock.lanes.objects.world import Patience, World

KEY = "manifest"


class Owner(msgspec.Struct, frozen=True, kw_only=True):
    """The holder of the lease. The id is random per open; the rest is for people."""

    id: str
    pid: int
    host: str
    cache: str
    """The name of the owner's local file: the process with that file's lock knows that this owner is gone."""
    mover: bool = False
    """Whether it moves the lane elsewhere, and owns it only until it has left."""


class Snapshot(msgspec.Struct, frozen=True, kw_only=True):
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
    owner: Owner | None
    """None when the last owner has released the lane."""
    lease_s: float
    snapshots: tuple[Snapshot, ...] = ()
    """Oldest first. Replay begins at the last one."""
    kept: int = 0
    """Every state from this number on can be restored; 0 means from the beginning."""
    collected: int = 0
    """Groups below this number are deleted. Fences never are."""
    lease_before_s: float = 0.0
    """The lease before a mover shortened it, which an owner that has not renewed since still believes in; 0 if it was
    not shortened."""
    left: Left | None = None

    @property
    def floor(self) -> int:
        """The number after which replay begins."""
        return self.snapshots[-1].seq if self.snapshots else 0


def me(world: World, cache: str, *, mover: bool = False) -> Owner:
    """Return this process as a new owner."""
    return Owner(id=world.ids.new().hex, pid=os.getpid(), host=socket.gethostname(), cache=cache, mover=mover)


def read_manifest(bucket: Bucket) -> tuple[Manifest, object] | None:
    """Return the manifest and its tag, or None without one. Raises BucketError when the bucket does not answer."""
    found = bucket.get(KEY)
    return None if found is None else (decode(found.data), found.tag)


def decode(data: bytes) -> Manifest:
    """Decode a manifest. Raises CorruptionError for anything else."""
    try:
        manifest = msgspec.json.decode(data, type=Manifest)
    except msgspec.MsgspecError as error:
        raise corrupt(KEY, f"it cannot be read ({error})") from error
    if manifest.format != VERSION:
        raise corrupt(KEY, f"it is of format version {manifest.format}; this Interlock reads version {VERSION}")
    return manifest


class Keeper:
    """Changes the manifest on behalf of one owner. Used by one thread at a time."""

    def __init__(self, bucket: Bucket, world: World, limit_s: float, manifest: Manifest, tag: object) -> None:
        self._bucket = bucket
        self._world = world
        self._limit_s = limit_s
        self.manifest = manifest
        self._tag = tag

    def change(self, update: Callable[[Manifest], Manifest]) -> None:
        """Swap in what `update` makes of the manifest. Raises Fenced or OutcomeUnknown."""
        patience = Patience(self._world, self._limit_s, "a change of the manifest")
        wanted, data = self._next(update)
        while True:
            unclear: BucketError | None = None
            try:
                self._tag = self._bucket.replace(KEY, data, self._tag)
            except BucketError as error:
                unclear = error
            else:
                self.manifest = wanted
                return
            found = self._look(patience, unclear)
            if found.nonce == wanted.nonce:
                self.manifest = found
                return
            if found.revision != self.manifest.revision:
                # A change of ours that was given up has landed after all: this one is made anew on top of it.
                self.manifest = found
                wanted, data = self._next(update)
            else:
                patience.pause(unclear)

    def give_up(self) -> None:
        """Release the lane with one request, without an owner: if it fails, the lease runs out by itself."""
        _, data = self._next(lambda manifest: msgspec.structs.replace(manifest, owner=None))
        with contextlib.suppress(BucketError):
            self._bucket.replace(KEY, data, self._tag)

    def _next(self, update: Callable[[Manifest], Manifest]) -> tuple[Manifest, bytes]:
        changed = msgspec.structs.replace(
            update(self.manifest), revision=self.manifest.revision + 1, nonce=self._world.nonce().hex()
        )
        return changed, msgspec.json.encode(changed)

    def check(self) -> None:
        """Check that the lane is still ours. Raises Fenced."""
        self.manifest = self._look(Patience(self._world, self._limit_s, "a look at the manifest"), None)

    def _look(self, patience: Patience, last: BucketError | None) -> Manifest:
        mine = self.manifest
        while True:
            try:
                found = self._bucket.get(KEY)
            except BucketError as error:
                last = error
            else:
                return self._ours(mine, found)
            patience.pause(last)

    def _ours(self, mine: Manifest, found: Found | None) -> Manifest:
        if found is None:
            raise corrupt(KEY, "it was deleted while a lane was open")
        manifest = decode(found.data)
        if manifest.epoch > mine.epoch or manifest.database != mine.database:
            raise fenced(manifest.epoch, manifest.owner)
        if manifest.epoch < mine.epoch:
            raise CorruptionError(f"the manifest went back from epoch {mine.epoch} to {manifest.epoch}.")
        # No owner in our own epoch: it was given up by us, and only the answer was lost.
        if manifest.owner not in {mine.owner, None}:
            raise CorruptionError(f"two owners have epoch {mine.epoch}.")
        self._tag = found.tag
        return manifest


def fenced(epoch: int, owner: Owner | None = None) -> Fenced:
    """Return the error for an owner that was replaced."""
    who = f" by process {owner.pid} on host {owner.host}" if owner is not None else ""
    return Fenced(f"the lane was taken over{who} (epoch {epoch}).")
