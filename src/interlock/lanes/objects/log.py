"""The log of an open lane on a bucket: copies each group from the write-ahead log to the bucket, and nothing back.

`append` is the lane's hand-off. It runs in the lane's driver, after the local commit and before any acknowledgement:
capture the pages, write the next slot, and look after the lease, a snapshot and the collection when they are due. The
same thread makes every change of the manifest, so there is never more than one on its way.

G4: the answer to a slot decides, not the lease. G7: the lane holds reads until the group is durable. A lease that may
have run out is renewed before a read is answered, so that a replaced owner notices.
"""

from interlock.errors import OutcomeUnknown, UnavailableError
from interlock.lanes import points
from interlock.lanes.objects.bucket import Bucket, BucketError
from interlock.lanes.objects.cache import Cache
from interlock.lanes.objects.capture import Capture
from interlock.lanes.objects.format import Entry, corrupt, log_key
from interlock.lanes.objects.manifest import Keeper, Manifest, fenced, read_manifest
from interlock.lanes.objects.slots import Position, write_slot
from interlock.lanes.objects.upkeep import Upkeep
from interlock.lanes.objects.world import World
from interlock.lanes.settings import LaneSettings

RENEWED_AFTER = 1 / 3
"""The part of the lease after which it is renewed."""


class ObjectLog:
    """The log of a lane that this process owns. Made by `opening.open_log`."""

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
            points.reach("lease.renewed")
