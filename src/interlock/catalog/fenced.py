"""Reopening of a lane in a bucket after a takeover: whether the replaced owner may open it again.

It may when the lane has no owner: the process that took it over has closed it, or a move has left it. A mover has the
lane only for as long as its seal lasts, so it is waited for. Any other owner keeps the lane, however idle it is: two
processes that took one lane from each other again and again would both look healthy.

An idle database renews no lease, so its silence says nothing. An idle engine looks at its store every few seconds:
`dead_after_s` is the silence after which an engine is taken for dead, and its lane may be opened again.
"""

import asyncio

from interlock.catalog.opening import opening_thread
from interlock.lanes.objects.addresses import is_bucket, parse
from interlock.lanes.objects.answering import answering
from interlock.lanes.objects.bucket import Bucket
from interlock.lanes.objects.world import World
from interlock.seams import Clock

LOOK_S = 0.1
"""Seconds between two reads of the manifest."""


async def is_free_again(url: str, clock: Clock, *, wait_s: float, dead_after_s: float | None = None) -> bool:
    """Return whether a replaced owner may open the lane again. Waits up to `wait_s` for the current owner."""
    if not is_bucket(url):
        return False
    from interlock.lanes.objects.door import bucket_of  # noqa: PLC0415 -- an extra, which may not be installed.

    bucket, world = bucket_of(parse(url)), World(clock=clock)
    looking = opening_thread(lambda: is_free(bucket, wait_s=wait_s, world=world, dead_after_s=dead_after_s))
    return await asyncio.wrap_future(looking)


def is_free(bucket: Bucket, *, wait_s: float, world: World, dead_after_s: float | None = None) -> bool:
    """The same for a bucket. Blocks."""
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
        if manifest.owner.mover:
            silence_s: float | None = manifest.lease_s
        else:
            silence_s = None if dead_after_s is None else max(manifest.lease_s, dead_after_s)
        if silence_s is not None and now_s - since_s >= silence_s:
            return True
        if silence_s is None or now_s - begun_s >= wait_s:
            return False
        world.pause(LOOK_S)
