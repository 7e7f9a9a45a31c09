"""Point-in-time restore of a database in a bucket.

The packages for buckets are an extra, and are imported only when they are needed.
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
    """Result of a restore."""

    path: Path
    seq: int
    """Sequence number of the restored state in the log."""
    time: datetime | None
    """The lane's time at that number; None before the first group."""
    snapshot: int
    """The number of the snapshot that was used, or 0."""
    pages: int
    """Pages of all its files."""
    page_bytes: int
    parts: int = 0
    """Number of its streams and shards."""

    @property
    def url(self) -> str | None:
        """The address of the file for `Database.open`; None when its name does not end in .lane."""
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
    """Restore a database in a bucket into a file, as of a number of its log or a time.

    Changes nothing in the bucket, and may run beside the owner. `watch` receives the current activity, the amount done,
    and the total. Raises BadUsage, TargetNotFound, UnusableFile, CorruptionError, UnavailableError.
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
        done = _restore_file(url, ready, at, watch)
        settled(ready)
        # A number belongs to the database's own log; its streams and shards are restored as of the same time.
        below = done.time if isinstance(at, int) else at
        parts = [] if below is None and at is not None else _restore_parts(url, ready, below, watch)
        put_all_in_place(ready, file, force=force, clock=SystemClock(), ids=RandomIds())
    pages = done.pages + sum(each.pages for each in parts)
    return RestoredFile(file, done.at.seq, done.time, done.snapshot, pages, done.page_bytes, len(parts))


def _restore_parts(url: str, ready: Path, at: datetime | None, watch: Watch) -> "list[Restored]":
    found: list[Restored] = []
    parts = parts_in_bucket(url)
    for number, part in enumerate(parts):
        watch("restoring streams and shards", number + 1, len(parts))
        path = ready.parent / f"{ready.name.removesuffix(SUFFIX)}{part.below}"
        path.parent.mkdir(parents=True, exist_ok=True)
        # A stream or shard that is younger than the moment did not exist yet.
        with contextlib.suppress(*(TargetNotFound,) * (at is not None)):
            found.append(_restore_file(part.url, path, at, lambda _what, _done, _of: None))
    return found


def _restore_file(url: str, path: Path, at: int | datetime | None, watch: Watch) -> "Restored":
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
    """Parse a place in a log: a number, or a time in ISO 8601. Raises BadUsage."""
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
