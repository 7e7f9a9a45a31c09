"""The log of an open lane on a bucket, and its opening.

The lane's driver makes three calls per group: `renew` before it is executed; `append` after the local commit and before
any acknowledgement, to capture the pages and write the next slot; `run_upkeep` after the callers have their answers,
for a snapshot, the collection and a handover. It makes every change of the manifest, so one at most is on its way.

G4: the answer to a slot decides, not the lease. G7: the lane holds reads until the group is durable. A lease that may
have run out is renewed before a read is answered, so that a replaced owner notices.
"""

from collections.abc import Callable
from functools import partial
from pathlib import Path

from interlock.clock import Clock
from interlock.errors import CorruptionError, OutcomeUnknown, UnavailableError
from interlock.faultpoints import reach
from interlock.lanes.handover import Permission
from interlock.lanes.lane import DurableLog, OpenLog
from interlock.lanes.lane_settings import LaneSettings
from interlock.lanes.objectlog.bucket_protocol import Bucket, BucketError, Environment, answering
from interlock.lanes.objectlog.format import LogObject, corrupt_error, log_key
from interlock.lanes.objectlog.lease import LaneLease, claim, fence, fenced_error
from interlock.lanes.objectlog.local_file import Cache, Capture, Changed
from interlock.lanes.objectlog.manifest import Manifest, read_manifest
from interlock.lanes.objectlog.probe import REQUEST_TIMEOUT_S_MIN
from interlock.lanes.objectlog.remote_bucket import open_bucket, open_folder, open_proven
from interlock.lanes.objectlog.slots import Position, write_slot
from interlock.lanes.objectlog.snapshots import Upkeep
from interlock.urls import BucketAddress


class ObjectLog:
    """The log of a lane that this process owns. Made by `open_log`."""

    local_sync = False

    def __init__(
        self,
        bucket: Bucket,
        world: Environment,
        settings: LaneSettings,
        lease: LaneLease,
        upkeep: Upkeep,
        *,
        cache: Cache,
        position: Position,
    ) -> None:
        self._bucket = bucket
        self._world = world
        self._settings = settings
        self._lease = lease
        self._upkeep = upkeep
        self.position = position
        self._cache = cache
        self._capture = Capture(cache.path)
        self._page_one = cache.page_one()
        self.bytes_appended = 0

    @property
    def manifest(self) -> Manifest:
        """The manifest as this owner last saw it."""
        return self._lease.manifest

    @property
    def upkeep_failed(self) -> int:
        """How often a snapshot or a collection failed; it is tried again."""
        return self._upkeep.failed

    def renew(self) -> None:
        """Renew the lease after a part of its time: a lost one is found before SQLite commits. Raises as `append`."""
        self._lease.renew_if_due()

    def append(self, frames: int, time_us: int) -> None:
        """Make durable what SQLite has committed up to that frame. Raises Fenced or OutcomeUnknown."""
        changed = self._capture.read_changes(frames)
        if changed is None:
            return
        entry = group_entry(self.manifest, self.position, self._world.nonce(), time_us, changed)
        stored = write_slot(self._bucket, entry, self._world, self._settings.append_deadline_s)
        if stored.entry.nonce != entry.nonce:
            if stored.entry.epoch > entry.epoch:
                raise self._replaced(stored.entry)
            raise corrupt_error(
                log_key(entry.seq), f"it was written by epoch {stored.entry.epoch}, and not by this owner"
            )
        self._capture.advance()
        self.position = stored.position
        if changed.pages[0][0] == 1:
            self._page_one = changed.pages[0][1]
        self._upkeep.count(stored)
        self.bytes_appended += stored.size

    def run_upkeep(self) -> None:
        """Run upkeep between two groups, after all waiters were notified. Raises Fenced when a mover gets the lane."""
        if self.manifest.handover_to is not None:
            self._upkeep.close()
            self._lease.hand_over()
        self._upkeep.step(self.position, self._page_one)

    def is_current(self) -> bool:
        """Whether the lease surely holds, so that reads here see the latest state."""
        return self._lease.holds()

    def close(self, *, clean: bool) -> None:
        """Release the lease, so that the next owner need not wait, and mark the local file as reusable.

        After an unclean end neither happens. A lease that cannot be released runs out by itself. One that was handed
        over is the mover's.
        """
        self._upkeep.close()
        if not clean:
            self._cache.discard()
            return
        self._cache.keep(self.manifest, self.position)
        self._lease.release()

    def _replaced(self, found: LogObject) -> UnavailableError:
        """Return the error for a slot that a later owner has filled.

        Mostly our group did not happen. But a slot below the history that is kept may have been ours, replayed by that
        owner, deleted, and filled again by a request of its own that came late.
        """
        try:
            found_now = read_manifest(self._bucket)
        except BucketError:
            found_now = None
        if found_now is not None and found.seq >= found_now[0].kept:
            return fenced_error(found.epoch, found_now[0].owner)
        return OutcomeUnknown(f"the lane was taken over (epoch {found.epoch}) while an append was on its way.")


def group_entry(manifest: Manifest, before: Position, nonce: bytes, time_us: int, changed: Changed) -> LogObject:
    """Return the entry of a group that follows `before`. Its time never goes back."""
    return LogObject(
        "group",
        bytes.fromhex(manifest.database),
        manifest.epoch,
        before.seq + 1,
        before.hash,
        nonce,
        max(time_us, before.time_us),
        changed.page_bytes,
        changed.pages_in_all,
        changed.pages,
    )


# --- Opening ---------------------------------------------------------------------------------------------------------
# Take the epoch, bring the local file to the fence, and hand over an open log. The order matters. The position comes
# from the log, never from the local file: the file is only asked whether it may be used again, and then brought to
# where the log ends.


def open_log(
    bucket: Bucket,
    path: Path,
    *,
    settings: LaneSettings,
    world: Environment,
    short_s: float | None = None,
    permission: Permission = None,
    taken: Callable[[], None] = lambda: None,
) -> ObjectLog:
    """Become the owner and make the local file what the log says it is. With `short_s` as a mover (see `claim`).

    The caller holds the local lock of the file. `taken` is called when an earlier owner begins to lose the lane. Raises
    LaneOwned, Fenced, OutcomeUnknown, CorruptionError, MovedElsewhere, and UnavailableError when the bucket does not
    answer.
    """
    cache = Cache(path, world.boot)
    lease = claim(bucket, world, settings, cache.identity(world), short_s=short_s, permission=permission)
    reach("epoch.taken")
    taken()
    manifest = lease.manifest
    upkeep = Upkeep(bucket, world, settings, lease, path)
    try:
        with answering("read the log"):
            position = cache.reuse(bucket, manifest)
            if position is None:
                position = cache.load(bucket, manifest, manifest.snapshots[-1]) if manifest.snapshots else Position()
            for stored in fence(bucket, world, settings, lease, position):
                cache.apply(stored.entry)
                upkeep.count(stored)
                position = stored.position
    except CorruptionError:
        # A newer owner collects what we are reading: that is not damage, we are just too late.
        lease.check()
        raise
    reach("fence.stored")
    while (left_s := lease.outlast_s - world.clock.monotonic_s()) > 0:
        world.pause(left_s)
    return ObjectLog(bucket, world, settings, lease, upkeep, cache=cache, position=position)


def log_opener(
    address: BucketAddress, *, settings: LaneSettings, clock: Clock, permission: Permission = None
) -> OpenLog:
    """Return the function that opens the log at the address, once the local file's lock is held."""
    return partial(_open, address, settings, Environment(clock=clock), None, permission)


def log_taker(
    address: BucketAddress, *, settings: LaneSettings, clock: Clock, short_s: float, taken: Callable[[], None]
) -> OpenLog:
    """Return the function that opens it for a mover, which takes the lane from a live owner (see `claim`)."""
    return partial(_open, address, settings, Environment(clock=clock), short_s, None, taken=taken)


def bucket_of(address: BucketAddress) -> Bucket:
    """Return the objects of the database at the address, for reading.

    Without the probe: that would write, and reading relies on none of the promises that it proves.
    """
    return open_bucket(address, request_timeout_s=LaneSettings().request_timeout_s)


def proven_bucket_of(address: BucketAddress, *, settings: LaneSettings, clock: Clock) -> Bucket:
    """Return the objects of the database at the address, for writing, after the probe."""
    return open_proven(address, request_timeout_s=settings.request_timeout_s, world=Environment(clock=clock))


def folder_of(address: BucketAddress) -> Bucket:
    """Return the folder that the database shares with others, for the probe."""
    return open_folder(address, request_timeout_s=REQUEST_TIMEOUT_S_MIN)


def _open(
    address: BucketAddress,
    settings: LaneSettings,
    world: Environment,
    short_s: float | None,
    permission: Permission,
    path: Path | None,
    *,
    taken: Callable[[], None] = lambda: None,
) -> DurableLog:
    assert path is not None, "a lane on a bucket has a local file"
    bucket = open_proven(address, request_timeout_s=settings.request_timeout_s, world=world)
    return open_log(bucket, path, settings=settings, world=world, short_s=short_s, permission=permission, taken=taken)
