"""Opening a lane on a bucket by its address: as its owner, or only to read.

A reader gets the bucket without the probe: the probe would write, and reading relies on none of the promises it proves.
"""

from functools import partial
from pathlib import Path

from interlock.lanes.beyond import DurableLog, OpenLog
from interlock.lanes.objects.addresses import Address
from interlock.lanes.objects.bucket import Bucket
from interlock.lanes.objects.opening import open_log
from interlock.lanes.objects.probe import REQUEST_TIMEOUT_S_MIN
from interlock.lanes.objects.remote import open_bucket, open_folder, open_proven
from interlock.lanes.objects.world import World
from interlock.lanes.settings import LaneSettings
from interlock.seams import Clock


def log_opener(address: Address, *, settings: LaneSettings, clock: Clock) -> OpenLog:
    """Return the function that opens the log at the address, once the local file's lock is held."""
    return partial(_open, address, settings, World(clock=clock), None)


def log_taker(address: Address, *, settings: LaneSettings, clock: Clock, short_s: float) -> OpenLog:
    """Return the same for a mover, which takes the lane from a live owner (see `takeover.claim`)."""
    return partial(_open, address, settings, World(clock=clock), short_s)


def bucket_of(address: Address) -> Bucket:
    """Return the objects of the database at the address, for reading."""
    return open_bucket(address, request_timeout_s=LaneSettings().request_timeout_s)


def proven_bucket_of(address: Address, *, settings: LaneSettings, clock: Clock) -> Bucket:
    """Return the objects of the database at the address, for writing, after the probe."""
    return open_proven(address, request_timeout_s=settings.request_timeout_s, world=World(clock=clock))


def folder_of(address: Address) -> Bucket:
    """Return the folder that the database shares with others, for the probe."""
    return open_folder(address, request_timeout_s=REQUEST_TIMEOUT_S_MIN)


def _open(
    address: Address, settings: LaneSettings, world: World, short_s: float | None, path: Path | None
) -> DurableLog:
    assert path is not None, "a lane on a bucket has a local file"
    bucket = open_proven(address, request_timeout_s=settings.request_timeout_s, world=world)
    return open_log(bucket, path, settings=settings, world=world, short_s=short_s)
