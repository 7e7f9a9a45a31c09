"""From an address to the lane behind it: a local file, nothing but memory, or a bucket with a local file as its cache.

What a bucket needs is loaded only when an address asks for one: the packages are an extra.
"""

import hashlib
import os
import re
from functools import partial
from pathlib import Path
from typing import NamedTuple

from interlock.database.addresses import lane_path
from interlock.lanes.beyond import DurableLog, HandedOff, HandOff, OpenLog
from interlock.lanes.objects.addresses import Address, is_bucket, parse
from interlock.lanes.settings import LaneSettings
from interlock.seams import Clock

CACHE_VARIABLE = "INTERLOCK_CACHE"
"""The folder for local files of databases in buckets; ~/.cache/interlock unless set."""

READABLE_CHARACTERS_MAX = 40


class Place(NamedTuple):
    """Where a lane has its file, and what makes it durable beyond that file."""

    path: Path | None
    open_log: OpenLog | None


def place_of(
    url: str, *, settings: LaneSettings, clock: Clock, hand_off: HandOff | None = None, cache: str | None = None
) -> Place:
    """The place behind an address. Raises BadUsage for what is none, MissingExtra for a bucket without its packages."""
    if not is_bucket(url):
        return Place(lane_path(url), None if hand_off is None else partial(_handed_off, hand_off))
    address = parse(url)
    from interlock.lanes.objects.door import log_opener  # noqa: PLC0415 -- an extra, which may not be installed.

    return Place(cache_path(address, cache), log_opener(address, settings=settings, clock=clock))


def _handed_off(hand_off: HandOff, _path: Path | None) -> DurableLog:
    return HandedOff(hand_off)


def cache_path(address: Address, folder: str | None = None) -> Path:
    """The local file of a database in a bucket: the same one for the same address, whatever its credentials are."""
    chosen = folder or os.environ.get(CACHE_VARIABLE)
    if not chosen:
        chosen = str(Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "interlock")
    digest = hashlib.blake2b(f"{address.root}\n{address.path}".encode(), digest_size=12).hexdigest()
    readable = re.sub(r"[^A-Za-z0-9_-]+", "-", address.name)[:READABLE_CHARACTERS_MAX]
    return Path(chosen).absolute() / f"{readable}-{digest}.lane"
