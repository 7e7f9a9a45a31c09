"""The way into a lane on a bucket, for those who have an address and want a log."""

from functools import partial
from pathlib import Path

from interlock.lanes.beyond import DurableLog, OpenLog
from interlock.lanes.objects.addresses import Address
from interlock.lanes.objects.opening import open_log
from interlock.lanes.objects.remote import open_proven
from interlock.lanes.objects.world import World
from interlock.lanes.settings import LaneSettings
from interlock.seams import Clock


def log_opener(address: Address, *, settings: LaneSettings, clock: Clock) -> OpenLog:
    """What opens the log behind the address, once the local file's lock is held."""
    return partial(_open, address, settings, World(clock=clock))


def _open(address: Address, settings: LaneSettings, world: World, path: Path | None) -> DurableLog:
    assert path is not None, "a lane on a bucket has a local file"
    bucket = open_proven(address, request_timeout_s=settings.request_timeout_s, world=world)
    return open_log(bucket, path, settings=settings, world=world)
