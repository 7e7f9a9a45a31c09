"""Opening a lane on a bucket: take the epoch, bring the local file to the fence, and hand over an open log.

The order matters. The position comes from the log, never from the local file: the file is only asked whether it may be
used again, and then brought to where the log ends.
"""

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import NamedTuple

import msgspec

from interlock import faultpoints
from interlock.clock import Clock
from interlock.errors import CorruptionError, LaneOwned
from interlock.lanes.durable_log import DurableLog, OpenLog
from interlock.lanes.handover import Tombstone, moved
from interlock.lanes.objectlog.append import Position, Stored, read_slots, write_slot
from interlock.lanes.objectlog.bucket import Bucket, BucketError, Patience, World, answering
from interlock.lanes.objectlog.cache import Cache
from interlock.lanes.objectlog.format import Entry, corrupt, log_key
from interlock.lanes.objectlog.log import ObjectLog, Upkeep
from interlock.lanes.objectlog.manifest import KEY, Keeper, Manifest, Owner, fenced, me, read_manifest
from interlock.lanes.objectlog.probe import REQUEST_TIMEOUT_S_MIN
from interlock.lanes.objectlog.remote_bucket import open_bucket, open_folder, open_proven
from interlock.lanes.settings import LaneSettings
from interlock.urls import BucketAddress

# --- Takeover --------------------------------------------------------------------------------------------------------
# How a process becomes the owner. Every open takes a new epoch, the same owner included, in four steps: swap the
# manifest to epoch + 1; write a *fence* into the next free slot; read the manifest again, which must still be ours,
# with the fence above the floor; replay to the fence. From then on an older owner can never acknowledge: its next slot
# is taken, by this fence or by one before it, and fences are never deleted (G4). What it had appended before the fence
# is part of the log, and is replayed.
#
# Lease expiry decides when to try, never what is right. It is judged by this process's own monotonic clock: a lease
# has run out when the manifest stayed the same for as long as the lease says (G8).
#
# A mover takes the lane from a live owner, and waits for its lease not before but after the fence. No process writes
# any more, but the replaced owner goes on answering reads until its lease is over, and what it shows must be the
# latest state.

LOOKS_PER_LEASE = 8


class Claim(NamedTuple):
    """An epoch that is ours by the manifest, but not fenced yet."""

    keeper: Keeper
    leased_s: float
    """When, by our own clock, the lease was requested."""
    outlast_s: float = 0.0
    """Until when, by our own clock, a replaced live owner may still answer reads."""


def claim(bucket: Bucket, world: World, settings: LaneSettings, cache: str, *, short_s: float | None = None) -> Claim:
    """Take the next epoch in the manifest, waiting for a lease that may have run out. Raises LaneOwned, MovedElsewhere.

    With `short_s` it is taken from a live owner: that is when, by our own clock, the owner's lease is surely the
    shortened one; infinite when that is not known.
    """
    owner = me(world, cache, mover=short_s is not None)
    patience = Patience(world, settings.append_deadline_s + settings.lease_s, "taking the lane")
    with answering("open the lane"):
        while True:
            found = read_manifest(bucket)
            if found is not None and found[0].left is not None:
                raise moved(Tombstone(found[0].left.url, found[0].left.epoch, found[0].left.time_us))
            others = found is not None and found[0].owner is not None and found[0].owner.cache != cache
            if found is not None and others and short_s is None:
                _wait_for_lease(bucket, world, found[0])
            asked_s = world.clock.monotonic_s()
            if found is None:
                _refuse_if_lost(bucket)
                keeper = _create(bucket, world, settings, owner)
            else:
                keeper = _take(bucket, world, settings, owner, found)
            if keeper is not None and found is not None and others and short_s is not None:
                return Claim(keeper, asked_s, _over_s(found[0], world.clock.monotonic_s(), short_s))
            if keeper is not None:
                return Claim(keeper, asked_s)
            patience.pause(None)


def _over_s(before: Manifest, now_s: float, short_s: float) -> float:
    """Return when the lease of the previous owner, which cannot renew it any more, has surely run out."""
    return max(now_s + before.lease_s, min(short_s, now_s + before.lease_before_s))


def fence(bucket: Bucket, world: World, settings: LaneSettings, keeper: Keeper, replayed: Position) -> Iterator[Stored]:
    """Write the fence after everything that is in the log. Yields what stands before it, then the fence itself.

    Raises Fenced when another owner was faster.
    """
    database, epoch = bytes.fromhex(keeper.manifest.database), keeper.manifest.epoch
    while True:
        for stored in read_slots(bucket, database, replayed):
            if stored.entry.epoch > epoch:
                raise fenced(stored.entry.epoch)
            replayed = stored.position
            yield stored
        entry = Entry(
            "fence", database, epoch, replayed.seq + 1, replayed.hash, world.nonce(), replayed.time_us, 0, 0, ()
        )
        stored = write_slot(bucket, entry, world, settings.append_deadline_s)
        if stored.entry.nonce == entry.nonce:
            break
        if stored.entry.epoch > epoch:
            raise fenced(stored.entry.epoch)
        if stored.entry.epoch == epoch:
            raise corrupt(log_key(entry.seq), f"two writers have epoch {epoch}")
        # An append of the owner before us was faster: it counts, and the fence goes after it.
    keeper.check()
    if stored.entry.seq <= keeper.manifest.floor:
        raise fenced(keeper.manifest.epoch)
    yield stored


def _refuse_if_lost(bucket: Bucket) -> None:
    """Raise CorruptionError when there is a log and no manifest: the first slot has a fence, which is never deleted."""
    if bucket.get(log_key(1)) is not None and read_manifest(bucket) is None:
        raise corrupt(KEY, "it is missing, although there is a log; a version of it must be brought back")


def _create(bucket: Bucket, world: World, settings: LaneSettings, owner: Owner) -> Keeper | None:
    manifest = Manifest(
        database=world.ids.new().hex,
        revision=1,
        nonce=world.nonce().hex(),
        epoch=1,
        owner=owner,
        lease_s=settings.lease_s,
    )
    try:
        tag = bucket.create(KEY, msgspec.json.encode(manifest))
    except BucketError:
        found = read_manifest(bucket)
        if found is None or found[0].nonce != manifest.nonce:
            return None
        tag = found[1]
    return Keeper(bucket, world, settings.append_deadline_s, manifest, tag)


def _take(
    bucket: Bucket, world: World, settings: LaneSettings, owner: Owner, found: tuple[Manifest, object]
) -> Keeper | None:
    before, tag = found
    manifest = msgspec.structs.replace(
        before,
        revision=before.revision + 1,
        nonce=world.nonce().hex(),
        epoch=before.epoch + 1,
        owner=owner,
        lease_s=settings.lease_s,
        lease_before_s=0.0,
    )
    try:
        tag = bucket.replace(KEY, msgspec.json.encode(manifest), tag)
    except BucketError:
        current = read_manifest(bucket)
        if current is None or current[0].nonce != manifest.nonce:
            return None
        tag = current[1]
    return Keeper(bucket, world, settings.append_deadline_s, manifest, tag)


def _wait_for_lease(bucket: Bucket, world: World, manifest: Manifest) -> None:
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


# --- Opening ---------------------------------------------------------------------------------------------------------


def open_log(
    bucket: Bucket, path: Path, *, settings: LaneSettings, world: World, short_s: float | None = None
) -> ObjectLog:
    """Become the owner and make the local file what the log says it is. With `short_s` as a mover (see `claim`).

    The caller holds the local lock of the file. Raises LaneOwned, Fenced, OutcomeUnknown, CorruptionError,
    MovedElsewhere, and UnavailableError when the bucket does not answer.
    """
    cache = Cache(path, world.boot)
    keeper, leased_s, outlast_s = claim(bucket, world, settings, cache.identity(world), short_s=short_s)
    faultpoints.reach("epoch.taken")
    manifest = keeper.manifest
    upkeep = Upkeep(bucket, world, settings, keeper, path)
    try:
        with answering("read the log"):
            position = cache.reuse(bucket, manifest)
            if position is None:
                position = cache.load(bucket, manifest, manifest.snapshots[-1]) if manifest.snapshots else Position()
            for stored in fence(bucket, world, settings, keeper, position):
                cache.apply(stored.entry)
                upkeep.count(stored)
                position = stored.position
    except CorruptionError:
        # A newer owner collects what we are reading: that is not damage, we are just too late.
        keeper.check()
        raise
    faultpoints.reach("fence.stored")
    while (left_s := outlast_s - world.clock.monotonic_s()) > 0:
        world.pause(left_s)
    return ObjectLog(bucket, world, settings, keeper, upkeep, cache=cache, position=position, leased_s=leased_s)


def log_opener(address: BucketAddress, *, settings: LaneSettings, clock: Clock) -> OpenLog:
    """Return the function that opens the log at the address, once the local file's lock is held."""
    return partial(_open, address, settings, World(clock=clock), None)


def log_taker(address: BucketAddress, *, settings: LaneSettings, clock: Clock, short_s: float) -> OpenLog:
    """Return the function that opens it for a mover, which takes the lane from a live owner (see `claim`)."""
    return partial(_open, address, settings, World(clock=clock), short_s)


def bucket_of(address: BucketAddress) -> Bucket:
    """Return the objects of the database at the address, for reading.

    Without the probe: that would write, and reading relies on none of the promises that it proves.
    """
    return open_bucket(address, request_timeout_s=LaneSettings().request_timeout_s)


def proven_bucket_of(address: BucketAddress, *, settings: LaneSettings, clock: Clock) -> Bucket:
    """Return the objects of the database at the address, for writing, after the probe."""
    return open_proven(address, request_timeout_s=settings.request_timeout_s, world=World(clock=clock))


def folder_of(address: BucketAddress) -> Bucket:
    """Return the folder that the database shares with others, for the probe."""
    return open_folder(address, request_timeout_s=REQUEST_TIMEOUT_S_MIN)


def _open(
    address: BucketAddress, settings: LaneSettings, world: World, short_s: float | None, path: Path | None
) -> DurableLog:
    assert path is not None, "a lane on a bucket has a local file"
    bucket = open_proven(address, request_timeout_s=settings.request_timeout_s, world=world)
    return open_log(bucket, path, settings=settings, world=world, short_s=short_s)
