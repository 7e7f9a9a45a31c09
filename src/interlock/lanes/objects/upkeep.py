"""Upkeep of an open lane's log: snapshots when they are due, and collection of what the history no longer needs.

Both take long, so they run beside the writer, one at a time. Neither touches the manifest: a finished piece of work
leaves an update, which the lane's driver applies between two groups. So the manifest never has two concurrent changes,
and never one by a process that is not the owner.
"""

from collections.abc import Callable
from pathlib import Path

import apsw
import msgspec

from interlock.errors import CorruptionError
from interlock.lanes import points
from interlock.lanes.objects import snapshots
from interlock.lanes.objects.bucket import Bucket, BucketError
from interlock.lanes.objects.manifest import Keeper, Manifest
from interlock.lanes.objects.slots import Position, Stored
from interlock.lanes.objects.world import World
from interlock.lanes.settings import LaneSettings

Update = Callable[[Manifest], Manifest]

AGAIN_AFTER_S = 10.0
"""How long upkeep rests after it has failed."""


class Upkeep:
    """The upkeep of one lane's log. `step` and `close` run in the driver."""

    def __init__(self, bucket: Bucket, world: World, settings: LaneSettings, keeper: Keeper, path: Path) -> None:
        self._bucket = bucket
        self._world = world
        self._settings = settings
        self._keeper = keeper
        self._path = path
        self._groups = 0
        """Objects after the newest snapshot, and their bytes: what a replay would cost."""
        self._log_bytes = 0
        self._wait: Callable[[], None] | None = None
        self._update: Update | None = None
        self._over = False
        self._closing = False
        self._collected_last = False
        self._sweep = False
        """Whether a snapshot was dropped whose parts are still there."""
        self._not_before_s = 0.0
        self.failed = 0

    def count(self, stored: Stored) -> None:
        """Count one more object in the log."""
        self._groups += 1
        self._log_bytes += stored.size

    def step(self, position: Position, page_one: bytes) -> None:
        """Apply finished upkeep and begin the next that is due, between two groups."""
        if self._wait is not None:
            if not self._over:
                return
            self._finish()
        if self._world.clock.monotonic_s() < self._not_before_s:
            return
        manifest = self._keeper.manifest
        due = snapshots.due(manifest, self._groups, self._log_bytes, self._settings)
        # In turns, so that neither keeps the other from its work, whichever of them fails.
        if due and (self._collected_last or not (snapshots.collectable(manifest) or self._sweep)):
            self._collected_last = False
            self._begin_snapshot(manifest, position, page_one)
        elif snapshots.collectable(manifest) or self._sweep:
            self._collected_last = True
            self._run(lambda: self._collected(manifest))

    def close(self) -> None:
        """Give up the work in the background, at its next part. The next owner deletes what it has stored."""
        self._closing = True
        if self._wait is not None:
            self._wait()
            self._wait = None

    def _begin_snapshot(self, manifest: Manifest, position: Position, page_one: bytes) -> None:
        try:
            source = snapshots.begin(self._path, position, page_one)
        except apsw.Error:
            self.failed += 1
            return
        self._groups = self._log_bytes = 0

        def stored() -> Update:
            snapshot = snapshots.store(self._bucket, self._world, manifest, source, lambda: self._closing)
            points.reach("snapshot.stored")
            return lambda manifest: snapshots.with_snapshot(manifest, snapshot, self._settings)

        self._run(stored)

    def _collected(self, manifest: Manifest) -> Update:
        collected = snapshots.collect(self._bucket, manifest)
        self._sweep = False
        points.reach("groups.deleted")
        return lambda manifest: msgspec.structs.replace(manifest, collected=collected)

    def _run(self, work: Callable[[], Update]) -> None:
        def run() -> None:
            try:
                self._update = work()
            except (BucketError, CorruptionError, apsw.Error, OSError):
                # Nothing is lost but time: the log is whole, and it is tried again after a while.
                self.failed += 1
                self._not_before_s = self._world.clock.monotonic_s() + AGAIN_AFTER_S
            finally:
                self._over = True

        self._update, self._over = None, False
        self._wait = self._world.beside(run)

    def _finish(self) -> None:
        update, self._wait, self._update = self._update, None, None
        if update is not None:
            before = self._keeper.manifest.snapshots
            self._keeper.change(update)
            self._sweep = self._sweep or not set(before) <= set(self._keeper.manifest.snapshots)
            points.reach("manifest.changed")
