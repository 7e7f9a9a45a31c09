"""Point-in-time restore for a database's address: finds the bucket, and knows the functions its schema may call.

What a bucket needs is loaded only when an address asks for one: the packages are an extra.
"""

import contextlib
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from interlock.catalog.addresses import SUFFIX
from interlock.database.copies import check_free, put_all_in_place, settled, staged
from interlock.database.copies_bucket import parts_in_bucket
from interlock.database.translation import register
from interlock.errors import BadUsage, TargetNotFound
from interlock.lanes.objects.addresses import is_bucket, parse, redacted
from interlock.seams import RandomIds, SystemChance, SystemClock

if TYPE_CHECKING:
    from interlock.lanes.objects.restore import Restored

Watch = Callable[[str, int, int], None]

SEQ_MAX = 10**20 - 1


class RestoredFile(NamedTuple):
    """A database that was restored, and from where."""

    path: Path
    seq: int
    """Its place in the log."""
    time: datetime | None
    """The lane's time there; None before the first group."""
    snapshot: int
    """The number of the snapshot that it was made from, or 0."""
    pages: int
    """Of all of its files."""
    page_bytes: int
    parts: int = 0
    """Streams and shards that are in it."""

    @property
    def url(self) -> str | None:
        """The address under which `Database.open` finds it; None when its name does not end in .lane."""
        path = self.path.absolute()
        return f"lanes://{path.with_suffix('').as_posix()}" if path.suffix == SUFFIX else None


def restore_database(
    url: str,
    file: Path,
    *,
    at: int | datetime | None = None,
    force: bool = False,
    watch: Watch = lambda _what, _done, _of: None,
) -> RestoredFile:
    """Restore a database in a bucket, as it was at a number of its log or at a time, into a file.

    Changes nothing in the bucket, and may be run beside the owner. `watch` is told what is being done, how much of it
    is done, and how much there is. Raises BadUsage, TargetNotFound, UnusableFile, CorruptionError, UnavailableError.
    """
    if not is_bucket(url):
        raise BadUsage(
            f"{redacted(url)!r} is not in a bucket, and has no history to restore from.",
            why="A local lane keeps its newest state alone; the log of a database in a bucket keeps every state.",
            fix="Copy it as it is now, beside its owner too: interlock backup URL FILE.",
        )
    _check(at)
    check_free(file, force=force)
    with staged(file, RandomIds()) as ready:
        done = _restored(url, ready, at, watch)
        settled(ready)
        # A number is one of the database's own log; what is below it was at the same time somewhere in its own.
        below = done.time if isinstance(at, int) else at
        parts = [] if below is None and at is not None else _parts_restored(url, ready, below, watch)
        put_all_in_place(ready, file, force=force, clock=SystemClock(), ids=RandomIds())
    pages = done.pages + sum(each.pages for each in parts)
    return RestoredFile(file, done.at.seq, done.time, done.snapshot, pages, done.page_bytes, len(parts))


def _parts_restored(url: str, ready: Path, at: datetime | None, watch: Watch) -> "list[Restored]":
    found: list[Restored] = []
    parts = parts_in_bucket(url)
    for number, part in enumerate(parts):
        watch("restoring streams and shards", number + 1, len(parts))
        path = ready.parent / f"{ready.name.removesuffix(SUFFIX)}{part.below}"
        path.parent.mkdir(parents=True, exist_ok=True)
        # One that is younger than the moment was not there yet.
        with contextlib.suppress(*(TargetNotFound,) * (at is not None)):
            found.append(_restored(part.url, path, at, lambda _what, _done, _of: None))
    return found


def _restored(url: str, path: Path, at: int | datetime | None, watch: Watch) -> "Restored":
    address = parse(url)
    from interlock.lanes.objects.door import bucket_of  # noqa: PLC0415 -- an extra, which may not be installed.
    from interlock.lanes.objects.restore import restore  # noqa: PLC0415

    return restore(
        bucket_of(address),
        path,
        name=str(address),
        at=at,
        force=False,
        clock=SystemClock(),
        ids=RandomIds(),
        prepare=lambda connection, now_us: register(connection, now_us, chance=SystemChance(), ids=RandomIds()),
        watch=watch,
    )


def moment(text: str) -> int | datetime:
    """The place in a log that a text names: a number, or a time in ISO 8601. Raises BadUsage."""
    if text.isascii() and text.isdigit():
        return int(text)
    try:
        return datetime.fromisoformat(text)
    except ValueError as error:
        raise BadUsage(
            f"{text!r} is neither a number of the log nor a time.",
            fix="Write a number from 1, or a time with its zone: 2026-11-15T16:55:14Z.",
        ) from error


def _check(at: int | datetime | None) -> None:
    if isinstance(at, int) and not 0 < at <= SEQ_MAX:
        raise BadUsage(f"{at} is not a number of the log.", why="The log is numbered from 1.")
    if isinstance(at, datetime) and at.tzinfo is None:
        raise BadUsage(
            f"{at.isoformat()} has no time zone.",
            why="It would be another moment on another machine.",
            fix=f"Add one: {at.isoformat()}Z, or {at.isoformat()}+01:00.",
        )
