"""After a takeover: a lane in a bucket whose owner was replaced, and whether it is to be opened again.

A mover takes a lane from an owner that lives, for as long as its seal lasts, and says in the manifest when it has left.
So whoever was replaced waits for a moment, and then finds the tombstone; or, when the mover died, a lease that runs
out, and opens the lane again. Another owner, which means to stay, has a longer lease than any mover: it is left alone,
and the call says Fenced, as it always did.
"""

import asyncio
from typing import Final

from interlock.catalog.opening import opening_thread
from interlock.lanes.objects.addresses import is_bucket, parse
from interlock.lanes.objects.answering import answering
from interlock.lanes.objects.bucket import Bucket
from interlock.lanes.objects.world import World
from interlock.lanes.settings import LaneSettings
from interlock.seams import Clock

MOVERS_LEASE_S: Final = 5.0
"""No mover has a longer one (`lanes.objects.following`, which needs an extra)."""

LOOK_S: Final = 0.1
"""Between two looks at the manifest."""


async def is_free_again(url: str, settings: LaneSettings, clock: Clock) -> bool:
    """Whether a lane whose owner was replaced is to be opened again; a mover is waited for."""
    if not is_bucket(url):
        return False
    from interlock.lanes.objects.door import bucket_of  # noqa: PLC0415 -- an extra, which may not be installed.

    bucket, world = bucket_of(parse(url)), World(clock=clock)
    return await asyncio.wrap_future(opening_thread(lambda: is_free(bucket, wait_s=settings.seal_wait_s, world=world)))


def is_free(bucket: Bucket, *, wait_s: float, world: World) -> bool:
    """Whether nobody holds the lane any more, or a mover has left it. Waits so long for a mover; blocks."""
    from interlock.lanes.objects.manifest import read_manifest  # noqa: PLC0415 -- an extra, which may not be installed.

    begun_s = since_s = world.clock.monotonic_s()
    revision: int | None = None
    while True:
        with answering("look who owns the lane"):
            found = read_manifest(bucket)
        manifest, now_s = None if found is None else found[0], world.clock.monotonic_s()
        if manifest is None or manifest.left is not None or manifest.owner is None:
            return True
        if manifest.revision != revision:
            revision, since_s = manifest.revision, now_s
        if now_s - since_s >= manifest.lease_s:
            return True
        if manifest.lease_s > MOVERS_LEASE_S or now_s - begun_s >= wait_s:
            return False
        world.pause(LOOK_S)
