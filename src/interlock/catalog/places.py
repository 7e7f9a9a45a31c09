"""The place of an address: a local file, memory, or a bucket with a local file as its cache.

The packages of buckets are an extra, so they are imported only for the address of one.
"""

import hashlib
import os
import re
import stat
import tempfile
from functools import partial
from pathlib import Path
from typing import NamedTuple

from interlock.catalog.addresses import lane_path
from interlock.errors import BadUsage, UnavailableError
from interlock.lanes.beyond import DurableLog, HandedOff, HandOff, OpenLog
from interlock.lanes.objects.addresses import Address, is_bucket, parse
from interlock.lanes.settings import LaneSettings
from interlock.seams import Clock

CACHE_VARIABLE = "INTERLOCK_CACHE"
"""The folder for local files of databases in buckets; ~/.cache/interlock unless set.

Without a home, as under a user id that the system does not know, it is a folder of our own among the temporary ones."""

READABLE_CHARACTERS_MAX = 40


class Place(NamedTuple):
    """The file of a lane, and its durable log beyond that file."""

    path: Path | None
    open_log: OpenLog | None


def place_of(
    url: str, *, settings: LaneSettings, clock: Clock, hand_off: HandOff | None = None, cache: str | None = None
) -> Place:
    """Return the place of an address. Raises BadUsage if it is invalid, MissingExtra without a bucket's packages."""
    if not is_bucket(url):
        return Place(lane_path(url), None if hand_off is None else partial(_handed_off, hand_off))
    address = parse(url)
    from interlock.lanes.objects.door import log_opener  # noqa: PLC0415 -- an extra, which may not be installed.

    return Place(cache_path(address, cache), log_opener(address, settings=settings, clock=clock))


def _handed_off(hand_off: HandOff, _path: Path | None) -> DurableLog:
    return HandedOff(hand_off)


def cache_path(address: Address, folder: str | None = None) -> Path:
    """Return the local file of a database in a bucket: one per address, independent of credentials."""
    chosen = _expanded(folder or os.environ.get(CACHE_VARIABLE) or "") or _default_folder()
    digest = hashlib.blake2b(f"{address.root}\n{address.path}".encode(), digest_size=12).hexdigest()
    readable = re.sub(r"[^A-Za-z0-9_-]+", "-", address.name)[:READABLE_CHARACTERS_MAX]
    return chosen.absolute() / f"{readable}-{digest}.lane"


def _expanded(chosen: str) -> Path | None:
    if not chosen:
        return None
    try:
        return Path(chosen).expanduser()
    except RuntimeError as error:
        raise BadUsage(
            f"{chosen!r} is not a folder for local files: the home directory of ~ is unknown.",
            why=f"The folder of a database's local file comes from cache= or {CACHE_VARIABLE}.",
            fix="Write the whole path, or set HOME.",
        ) from error


def _default_folder() -> Path:
    caches = os.environ.get("XDG_CACHE_HOME")
    if caches:
        return Path(caches) / "interlock"
    try:
        return Path.home() / ".cache" / "interlock"
    except RuntimeError:
        return _temporary_folder()


def _temporary_folder() -> Path:
    """Create a folder of this user. All users may write beside it, so a folder of another user is refused."""
    folder = Path(tempfile.gettempdir()) / f"interlock-{os.getuid()}"
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
        found = folder.lstat()
    except OSError as error:
        raise _no_folder(folder, f"{error.strerror or error}") from error
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid() or found.st_mode & 0o077:
        raise _no_folder(folder, "others can write or read there")
    return folder


def _no_folder(folder: Path, reason: str) -> UnavailableError:
    return UnavailableError(
        f"there is no folder for the local files of databases in buckets: {folder} cannot be used, {reason}.",
        why="This user has no home, so that the folder would be among the temporary ones.",
        fix=f"Set {CACHE_VARIABLE} to a folder of this user's, or HOME.",
    )
