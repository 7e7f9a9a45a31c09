"""Opening of lanes: the place of an address, the threads that open and close, reopening after a takeover.

A place is a local file, memory, or a bucket with a local file as its cache. The packages of buckets are an extra, so
they are imported only for the address of one.
"""

import asyncio
import hashlib
import os
import re
import stat
import tempfile
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Generic, NamedTuple, TypeVar

from interlock.clock import Clock
from interlock.errors import BadUsage, UnavailableError
from interlock.lanes.handover import Permission
from interlock.lanes.lane import DurableLog, HandedOff, HandOff, Lane, OpenLog
from interlock.lanes.lane_settings import LaneSettings
from interlock.lanes.objectlog.bucket_protocol import Bucket, Environment, answering
from interlock.urls import BucketAddress, is_bucket_url, lane_path, parse_bucket_url

CACHE_VARIABLE = "INTERLOCK_CACHE"
"""The folder for local files of databases in buckets; ~/.cache/interlock unless set.

Without a home, as under a user id that the system does not know, it is a folder of our own among the temporary ones."""

READABLE_CHARACTERS_MAX = 40


class Place(NamedTuple):
    """The file of a lane, and its durable log beyond that file."""

    path: Path | None
    open_log: OpenLog | None


def place_of(
    url: str,
    *,
    settings: LaneSettings,
    clock: Clock,
    hand_off: HandOff | None = None,
    cache: str | None = None,
    permission: Permission = None,
) -> Place:
    """Return the place of an address. Raises BadUsage if it is invalid, MissingExtra without a bucket's packages.

    With the permission of a move, a bucket that an earlier move has left can be opened again.
    """
    if not is_bucket_url(url):
        return Place(lane_path(url), None if hand_off is None else partial(_handed_off, hand_off))
    address = parse_bucket_url(url)
    from interlock.lanes.objectlog.log import log_opener  # noqa: PLC0415 -- an extra, which may not be installed.

    return Place(cache_path(address, cache), log_opener(address, settings=settings, clock=clock, permission=permission))


def _handed_off(hand_off: HandOff, _path: Path | None) -> DurableLog:
    return HandedOff(hand_off)


def cache_path(address: BucketAddress, folder: str | None = None) -> Path:
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


# --- Threads ---------------------------------------------------------------------------------------------------------
# A thread cannot be cancelled, and an event loop may be closed while one still runs. So no cleanup is left to the
# loop: the thread that opened a lane checks whether its caller still waits, and closes the lane otherwise. Without
# this the lane would stay owned until the process ends.
#
# The pools are private, and closing has its own: opening a lane in a bucket may wait for another owner's lease,
# which must block neither the program's threads nor the closing that it waits for.

ResultT = TypeVar("ResultT")

OPENING_MAX = 64
CLOSING_MAX = 16


class _Threads(NamedTuple):
    opening: ThreadPoolExecutor
    closing: ThreadPoolExecutor


def _fresh_threads() -> _Threads:
    return _Threads(
        ThreadPoolExecutor(OPENING_MAX, thread_name_prefix="interlock-open"),
        ThreadPoolExecutor(CLOSING_MAX, thread_name_prefix="interlock-close"),
    )


_threads = _fresh_threads()
"""For all databases of the process. Threads start on first use."""


def _in_child() -> None:
    # Threads do not come through a fork.
    global _threads  # noqa: PLW0603 -- one pair of pools per process.
    _threads = _fresh_threads()


os.register_at_fork(after_in_child=_in_child)


def opening_thread(function: Callable[[], ResultT]) -> Future[ResultT]:
    """Run the function in an opening thread. It cannot be cancelled, and any event loop may await it.

    Raises UnavailableError without a thread; then it is not run.
    """
    call = _Call(function)
    try:
        _ = _threads.opening.submit(call.run)
    except RuntimeError as error:
        if not call.withdraw():
            return call.done
        raise UnavailableError(
            f"no thread could be had to open a database: {error}.",
            why="The system allows no more threads, or the program is ending.",
            fix="Close databases before the program ends; raise the limit of threads.",
        ) from error
    return call.done


def closing_thread(function: Callable[[], ResultT]) -> Future[ResultT]:
    """Run the function in a closing thread; without a thread it runs here, and blocks the caller.

    A lane that is not closed stays owned until the process ends, and cannot be opened again.
    """
    call = _Call(function)
    try:
        _ = _threads.closing.submit(call.run)
    except RuntimeError:
        call.run()
    return call.done


class _Call(Generic[ResultT]):
    """A function that runs once. An executor that starts no thread raises, and keeps the function in its queue."""

    def __init__(self, function: Callable[[], ResultT]) -> None:
        self._function = function
        self._once = threading.Lock()
        self.done: Future[ResultT] = Future()
        self.done.set_running_or_notify_cancel()

    def run(self) -> None:
        if not self._once.acquire(blocking=False):
            return
        try:
            self.done.set_result(self._function())
        except BaseException as error:  # noqa: BLE001 -- the waiting caller receives it.
            self.done.set_exception(error)

    def withdraw(self) -> bool:
        """Keep the executor from running the function later; return False when a thread runs it already."""
        return self._once.acquire(blocking=False)


async def open_in_thread(make: Callable[[], Lane]) -> Lane:
    """Open a lane in a thread. If the caller is cancelled before, the lane is closed again."""
    opening = opening_thread(make)
    try:
        return await asyncio.wrap_future(opening)
    except BaseException:  # Also when the event loop is thrown away with this in it.
        opening.add_done_callback(_close_unused)
        raise


def _close_unused(opening: Future[Lane]) -> None:
    # Called by the thread that has opened the lane, or by the caller if it is open already. Unused, it closes quickly.
    if opening.exception() is None:
        opening.result().close()


# --- Reopening after a takeover --------------------------------------------------------------------------------------
# A replaced owner of a lane in a bucket may open it again when the lane has no owner: the process that took it over
# has closed it, or a move has left it. A mover has the lane only for as long as its seal lasts, so it is waited for.
# Any other owner keeps the lane, however idle it is: two processes that took one lane from each other again and again
# would both look healthy.
#
# An idle database renews no lease, so its silence says nothing. An idle engine looks at its store every few seconds:
# `dead_after_s` is the silence after which an engine is taken for dead, and its lane may be opened again.

LOOK_S = 0.02
"""Seconds between two reads of the manifest."""


async def is_free_again(url: str, clock: Clock, *, wait_s: float, dead_after_s: float | None = None) -> bool:
    """Return whether a replaced owner may open the lane again. Waits up to `wait_s` for the current owner."""
    if not is_bucket_url(url):
        return False
    from interlock.lanes.objectlog.log import bucket_of  # noqa: PLC0415 -- an extra, which may not be installed.

    bucket, world = bucket_of(parse_bucket_url(url)), Environment(clock=clock)
    looking = opening_thread(lambda: is_free(bucket, wait_s=wait_s, world=world, dead_after_s=dead_after_s))
    return await asyncio.wrap_future(looking)


def is_free(bucket: Bucket, *, wait_s: float, world: Environment, dead_after_s: float | None = None) -> bool:
    """Return the same for a bucket. Blocks."""
    from interlock.lanes.objectlog.manifest import read_manifest  # noqa: PLC0415 -- an extra, which may not be installed.

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
