"""Opening a lane on a bucket: take the epoch, bring the local file to the fence, and hand over an open log.

The order matters. The position comes from the log, never from the local file: the file is only asked whether it may be
used again, and then brought to where the log ends.
"""

from pathlib import Path

from interlock.errors import CorruptionError
from interlock.lanes import points
from interlock.lanes.objects.answering import answering
from interlock.lanes.objects.bucket import Bucket
from interlock.lanes.objects.cache import Cache
from interlock.lanes.objects.log import ObjectLog
from interlock.lanes.objects.slots import Position
from interlock.lanes.objects.takeover import claim, fence
from interlock.lanes.objects.upkeep import Upkeep
from interlock.lanes.objects.world import World
from interlock.lanes.settings import LaneSettings


def open_log(
    bucket: Bucket, path: Path, *, settings: LaneSettings, world: World, short_s: float | None = None
) -> ObjectLog:
    """Become the owner and make the local file what the log says it is. With `short_s` as a mover (see `claim`).

    The caller holds the local lock of the file. Raises LaneOwned, Fenced, OutcomeUnknown, CorruptionError,
    MovedElsewhere, and UnavailableError when the bucket does not answer.
    """
    cache = Cache(path, world.boot)
    keeper, leased_s, outlast_s = claim(bucket, world, settings, cache.identity(world), short_s=short_s)
    points.reach("epoch.taken")
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
    points.reach("fence.stored")
    while (left_s := outlast_s - world.clock.monotonic_s()) > 0:
        world.pause(left_s)
    return ObjectLog(bucket, world, settings, keeper, upkeep, cache=cache, position=position, leased_s=leased_s)
