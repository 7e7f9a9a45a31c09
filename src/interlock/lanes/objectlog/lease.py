"""The lease of a lane in a bucket: how a process takes it over, renews it, finds it lost, and releases it.

Every open takes a new epoch, the same owner included, in four steps: swap the manifest to epoch + 1; write a *fence*
into the next free slot; read the manifest again, which must still be ours, with the fence above the floor; replay to
the fence. From then on an older owner can never acknowledge: its next slot is taken, by this fence or by one before it,
and fences are never deleted (G4). What it had appended before the fence is part of the log, and is replayed.

Lease expiry decides when to try, never what is right. It is judged by this process's own monotonic clock: a lease has
run out when the manifest stayed the same for as long as the lease says (G8).

A mover asks a live owner for the lane: the owner stops between two groups, and makes the mover the holder of its lease.
So no group is refused, and the owner's local file stays valid. An owner that does not answer is replaced, and the mover
waits for its lease not before but after the fence. No process writes any more, but the replaced owner goes on answering
reads until its lease is over, and those must show the latest state.
"""

import contextlib
import math
import os
import socket
from collections.abc import Callable, Iterator

import msgspec

from interlock.errors import CorruptionError, Fenced, LaneOwned
from interlock.faultpoints import reach
from interlock.lanes.handover import Arrived, Permission, Tombstone, moved_error
from interlock.lanes.lane_settings import LaneSettings
from interlock.lanes.objectlog.bucket_protocol import Bucket, BucketError, Environment, Found, Patience, answering
from interlock.lanes.objectlog.format import LogObject, corrupt_error, log_key
from interlock.lanes.objectlog.manifest import KEY, LeaseHolder, Manifest, decode, next_revision, read_manifest
from interlock.lanes.objectlog.slots import Position, StoredObject, read_slots, write_slot

RENEWED_AFTER = 1 / 3
"""The part of the lease after which it is renewed."""

LOOKS_PER_LEASE = 8

MOVER_LEASE_S = 5.0
"""The longest lease of a mover that has the lane: when it dies, the lane rests for this long."""


class LaneLease:
    """The lease of one owner, who alone changes the manifest with it. Used by one thread at a time."""

    def __init__(self, bucket: Bucket, world: Environment, limit_s: float, manifest: Manifest, tag: object) -> None:
        self._bucket = bucket
        self._world = world
        self._limit_s = limit_s
        self.manifest = manifest
        """The manifest as this owner last saw it."""
        self._id = "" if manifest.owner is None else manifest.owner.id
        self._tag = tag
        self.since_s = 0.0
        """When, by our own clock, the lease was last requested: it surely holds for `lease_s` from then."""
        self.outlast_s = 0.0
        """Until when, by our own clock, a replaced live owner may still answer reads."""

    def holds(self) -> bool:
        """Whether the lease surely holds, so that reads here see the latest state."""
        return self._world.clock.monotonic_s() < self.since_s + self.manifest.lease_s

    def renew_if_due(self) -> None:
        """Renew the lease after a part of its time. Raises Fenced or OutcomeUnknown."""
        now_s = self._world.clock.monotonic_s()
        if now_s >= self.since_s + self.manifest.lease_s * RENEWED_AFTER:
            self.change(lambda manifest: manifest)
            self.since_s = now_s
            reach("lease.renewed")

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

    def check(self) -> None:
        """Check that the lane is still ours. Raises Fenced."""
        self.manifest = self._look(Patience(self._world, self._limit_s, "a look at the manifest"), None)

    def hand_over(self) -> None:
        """Make the mover that asks for the lane the holder of the lease. Raises Fenced once it is."""
        mine = self.manifest.owner
        self.since_s = -math.inf  # G7: from here on each read renews the lease first, and finds it lost.
        self.change(_handed_over)
        if self.manifest.owner != mine:
            raise fenced_error(self.manifest.epoch, self.manifest.owner)

    def release(self) -> None:
        """Release the lane with one request: if it fails, the lease runs out by itself."""
        if self.manifest.owner is not None and self.manifest.owner.id != self._id:
            return  # It was handed over.
        _, data = self._next(lambda manifest: msgspec.structs.replace(manifest, owner=None))
        with contextlib.suppress(BucketError):
            self._bucket.replace(KEY, data, self._tag)

    def _next(self, update: Callable[[Manifest], Manifest]) -> tuple[Manifest, bytes]:
        changed = next_revision(update(self.manifest), self._world)
        return changed, msgspec.json.encode(changed)

    def _look(self, patience: Patience, last: BucketError | None) -> Manifest:
        while True:
            try:
                found = self._bucket.get(KEY)
            except BucketError as error:
                last = error
            else:
                return self._ours(found)
            patience.pause(last)

    def _ours(self, found: Found | None) -> Manifest:
        if found is None:
            raise corrupt_error(KEY, "it was deleted while a lane was open")
        mine, manifest = self.manifest, decode(found.data)
        if manifest.epoch > mine.epoch or manifest.database != mine.database:
            raise fenced_error(manifest.epoch, manifest.owner)
        if manifest.epoch < mine.epoch:
            raise CorruptionError(f"the manifest went back from epoch {mine.epoch} to {manifest.epoch}.")
        # No owner, or the mover, in our own epoch: it was given up by us, and only the answer was lost.
        if manifest.owner not in {mine.owner, mine.handover_to, None}:
            raise CorruptionError(f"two owners have epoch {mine.epoch}.")
        self._tag = found.tag
        return manifest


def _handed_over(manifest: Manifest) -> Manifest:
    """Return the manifest with the mover as the owner; unchanged when it does not ask any more."""
    if manifest.handover_to is None:
        return manifest
    lease_s = min(MOVER_LEASE_S, max(manifest.lease_s, manifest.lease_before_s))
    return msgspec.structs.replace(manifest, owner=manifest.handover_to, handover_to=None, lease_s=lease_s)


def fenced_error(epoch: int, owner: LeaseHolder | None = None) -> Fenced:
    """Return the error for an owner that was replaced."""
    who = f" by process {owner.pid} on host {owner.host}" if owner is not None else ""
    return Fenced(f"the lane was taken over{who} (epoch {epoch}).")


# --- Takeover --------------------------------------------------------------------------------------------------------


def lease_holder(world: Environment, cache: str, *, mover: bool) -> LeaseHolder:
    """Return this process as the holder of a lease, with the name of its local file."""
    return LeaseHolder(id=world.ids.new().hex, pid=os.getpid(), host=socket.gethostname(), cache=cache, mover=mover)


def claim(
    bucket: Bucket,
    world: Environment,
    settings: LaneSettings,
    cache: str,
    *,
    short_s: float | None = None,
    permission: Permission = None,
) -> LaneLease:
    """Take the next epoch in the manifest, waiting for a lease that may have run out. Raises LaneOwned, MovedElsewhere.

    The epoch is not fenced yet. With `short_s` it is taken from a live owner: that is when, by our own clock, the
    owner's lease is surely the shortened one; infinite when that is not known. A place that was left may be taken with
    the permission of a later move; once that has arrived, `left` is out of date and goes.
    """
    owner = lease_holder(world, cache, mover=short_s is not None)
    patience = Patience(world, settings.append_deadline_s + settings.lease_s, "taking the lane")
    with answering("open the lane"):
        while True:
            before, tag = read_manifest(bucket) or (None, None)
            if before is not None and before.left is not None:
                if permission is None or before.left.epoch >= permission.epoch:
                    raise moved_error(Tombstone(before.left.url, before.left.epoch, before.left.time_us))
                if isinstance(permission, Arrived):
                    before = msgspec.structs.replace(before, left=None)
            others = before is not None and before.owner is not None and before.owner.cache != cache
            if before is not None and others and short_s is None:
                _wait_for_lease(bucket, world, before)
            since_s = world.clock.monotonic_s()
            if before is None:
                _refuse_if_lost(bucket)
            lease = _take(bucket, world, settings, owner, before, tag)
            if lease is not None:
                lease.since_s = since_s
                if before is not None and others and short_s is not None:
                    lease.outlast_s = _over_s(before, world.clock.monotonic_s(), short_s)
                return lease
            patience.pause(None)


def _over_s(before: Manifest, now_s: float, short_s: float) -> float:
    """Return when the lease of the previous owner, which cannot renew it any more, has surely run out."""
    return max(now_s + before.lease_s, min(short_s, now_s + before.lease_before_s))


def fence(
    bucket: Bucket, world: Environment, settings: LaneSettings, lease: LaneLease, replayed: Position
) -> Iterator[StoredObject]:
    """Write the fence after everything that is in the log. Yields what stands before it, then the fence itself.

    Raises Fenced when another owner was faster.
    """
    database, epoch = bytes.fromhex(lease.manifest.database), lease.manifest.epoch
    while True:
        for stored in read_slots(bucket, database, replayed):
            if stored.entry.epoch > epoch:
                raise fenced_error(stored.entry.epoch)
            replayed = stored.position
            yield stored
        entry = LogObject(
            "fence", database, epoch, replayed.seq + 1, replayed.hash, world.nonce(), replayed.time_us, 0, 0, ()
        )
        stored = write_slot(bucket, entry, world, settings.append_deadline_s)
        if stored.entry.nonce == entry.nonce:
            break
        if stored.entry.epoch > epoch:
            raise fenced_error(stored.entry.epoch)
        if stored.entry.epoch == epoch:
            raise corrupt_error(log_key(entry.seq), f"two writers have epoch {epoch}")
        # An append of the owner before us was faster: it counts, and the fence goes after it.
    lease.check()
    if stored.entry.seq <= lease.manifest.floor:
        raise fenced_error(lease.manifest.epoch)
    yield stored


def _refuse_if_lost(bucket: Bucket) -> None:
    """Raise CorruptionError when there is a log and no manifest: the first slot has a fence, which is never deleted."""
    if bucket.get(log_key(1)) is not None and read_manifest(bucket) is None:
        raise corrupt_error(KEY, "it is missing, although there is a log; a version of it must be brought back")


def _take(
    bucket: Bucket, world: Environment, settings: LaneSettings, owner: LeaseHolder, before: Manifest | None, tag: object
) -> LaneLease | None:
    """Swap in a manifest with the next epoch; return None when another process was faster."""
    if before is None:
        manifest = Manifest(
            database=world.ids.new().hex,
            revision=1,
            nonce=world.nonce().hex(),
            epoch=1,
            owner=owner,
            lease_s=settings.lease_s,
        )
    else:
        manifest = msgspec.structs.replace(
            next_revision(before, world),
            epoch=before.epoch + 1,
            owner=owner,
            lease_s=settings.lease_s,
            lease_before_s=0.0,
            handover_to=None,
        )
    data = msgspec.json.encode(manifest)
    try:
        tag = bucket.create(KEY, data) if before is None else bucket.replace(KEY, data, tag)
    except BucketError:
        found = read_manifest(bucket)
        if found is None or found[0].nonce != manifest.nonce:
            return None
        tag = found[1]
    return LaneLease(bucket, world, settings.append_deadline_s, manifest, tag)


def _wait_for_lease(bucket: Bucket, world: Environment, manifest: Manifest) -> None:
    """Wait until the lease has surely run out. Raises LaneOwned when its owner renews it."""
    until_s = world.clock.monotonic_s() + manifest.lease_s
    while (left_s := until_s - world.clock.monotonic_s()) > 0:
        world.pause(min(left_s, manifest.lease_s / LOOKS_PER_LEASE))
        found = read_manifest(bucket)
        if found is None or found[0].owner is None:
            return
        if found[0].revision != manifest.revision:
            owner = found[0].owner
            raise LaneOwned(
                f"the lane is owned by process {owner.pid} on host {owner.host} (epoch {found[0].epoch}), "
                "which has just renewed its lease."
            )
