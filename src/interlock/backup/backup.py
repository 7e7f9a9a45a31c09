"""Backup and restore of a database: a lane, a database in a bucket, or a schema of PostgreSQL.

A backup runs while the database serves. It shows one instant, with everything that was acknowledged before the call;
streams and shards are databases of their own, and each is copied at its own instant. A database in a bucket can be
restored as of any moment. The packages for buckets and PostgreSQL are extras, and are imported only when needed.
"""

import asyncio
import contextlib
import tempfile
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from interlock.backup.lane_copies import (
    bucket_name,
    check_free,
    copy_lane,
    parts_in_bucket,
    parts_of,
    prepare_connection,
    put_all_in_place,
    remove_move_marks,
    staging_path,
)
from interlock.backup.postgres_archive import is_archive
from interlock.catalog.catalog import FolderCatalog
from interlock.clock import SystemClock
from interlock.errors import BadUsage, CorruptionError, MovedElsewhere, TargetNotFound
from interlock.lanes.lane_doctor import Facts
from interlock.lanes.lane_settings import LaneSettings
from interlock.lanes.objectlog.bucket_protocol import Environment, Watch, silent
from interlock.urls import (
    LANE_SUFFIX,
    extend_path,
    is_bucket_url,
    is_postgres_url,
    lane_path,
    parse_bucket_url,
    parse_postgres_url,
    redact_secrets,
    redact_url,
    with_secrets,
)

if TYPE_CHECKING:
    from interlock.lanes.objectlog.point_in_time import Restored


def _lane_url(path: Path) -> str | None:
    path = path.absolute()
    return f"lanes://{path.with_suffix('').as_posix()}" if path.suffix == LANE_SUFFIX else None


# --- Restore of a moment from a bucket -------------------------------------------------------------------------------

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
        return _lane_url(self.path)


def restore_database(
    url: str, file: Path, *, at: int | datetime | None = None, force: bool = False, watch: Watch = silent
) -> RestoredFile:
    """Restore a database in a bucket into a file, as of a number of its log or a time.

    Changes nothing in the bucket, and may run beside the owner. `watch` receives the current activity, the amount done,
    and the total. Raises BadUsage, TargetNotFound, UnusableFile, CorruptionError, UnavailableError.
    """
    if not is_bucket_url(url):
        raise BadUsage(
            f"{redact_url(url)!r} is not in a bucket, and has no history to restore from.",
            why="A local lane keeps its newest state alone; the log of a database in a bucket keeps every state.",
            fix="Copy it as it is now, beside its owner too: interlock backup URL FILE.",
        )
    _check_moment(at)
    check_free(file, force=force)
    with staging_path(file) as ready:
        done = _restore_file(url, ready, at, watch)
        remove_move_marks(ready)
        # A number belongs to the database's own log; its streams and shards are restored as of the same time.
        below = done.time if isinstance(at, int) else at
        parts = [] if below is None and at is not None else _restore_parts(url, ready, below, watch)
        put_all_in_place(ready, file, force=force)
    pages = done.pages + sum(each.pages for each in parts)
    return RestoredFile(file, done.at.seq, done.time, done.snapshot, pages, done.page_bytes, len(parts))


def _restore_parts(url: str, ready: Path, at: datetime | None, watch: Watch) -> "list[Restored]":
    found: list[Restored] = []
    parts = parts_in_bucket(url)
    for number, part in enumerate(parts):
        watch("restoring streams and shards", number + 1, len(parts))
        path = ready.parent / f"{ready.name.removesuffix(LANE_SUFFIX)}{part.below}"
        path.parent.mkdir(parents=True, exist_ok=True)
        # A stream or shard that is younger than the moment did not exist yet.
        with contextlib.suppress(*(TargetNotFound,) * (at is not None)):
            found.append(_restore_file(part.url, path, at, silent))
    return found


def _restore_file(url: str, path: Path, at: int | datetime | None, watch: Watch) -> "Restored":
    address = parse_bucket_url(url)
    from interlock.lanes.objectlog.log import bucket_of  # noqa: PLC0415 -- an extra, which may not be installed.
    from interlock.lanes.objectlog.point_in_time import restore  # noqa: PLC0415

    return restore(
        bucket_of(address), path, name=str(address), at=at, clock=SystemClock(), prepare=prepare_connection, watch=watch
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


def _check_moment(at: int | datetime | None) -> None:
    if isinstance(at, int) and not 0 < at <= SEQ_MAX:
        raise BadUsage(f"{at} is not a number of the log.", why="The log is numbered from 1.")
    if isinstance(at, datetime) and at.tzinfo is None:
        raise BadUsage(
            f"{at.isoformat()} has no time zone.",
            why="It would be another moment on another machine.",
            fix=f"Add one: {at.isoformat()}Z, or {at.isoformat()}+01:00.",
        )


# --- Backup ----------------------------------------------------------------------------------------------------------

HOPS_MAX: Final = 32
"""Maximum number of moves that a backup follows to the database."""


class BackedUp(NamedTuple):
    """Result of a backup."""

    source: str
    """The current address of the database."""
    path: Path
    pages: int = 0
    """Pages of all its files; 0 for an archive."""
    page_bytes: int = 0
    parts: int = 0
    """Number of its streams and shards."""
    rows: int | None = None
    """Number of rows, if rows were copied and not pages."""

    @property
    def url(self) -> str | None:
        """The address of the copy for `Database.open`; None when its name does not end in .lane."""
        return _lane_url(self.path)

    @property
    def amount(self) -> str:
        """Size of the copy in words."""
        if self.rows is not None:
            return f"{self.rows:,} {'row' if self.rows == 1 else 'rows'}"
        return f"{self.pages:,} pages of {self.page_bytes:,} bytes"


def back_up_database(url: str, file: Path, *, force: bool = False, watch: Watch = silent) -> BackedUp:
    """Copy the database at an address into a file, also while its owner runs. A home may name its only database.

    A moved database is copied from its current place. From PostgreSQL, NAME.lane becomes a lane, and any other name an
    archive. Call it in a thread without an event loop. Raises BadUsage, TargetNotFound, UnusableFile, CorruptionError,
    DialectError, LaneOwned, UnavailableError.
    """
    for _ in range(HOPS_MAX):
        try:
            return _copy_database(url, file, force=force, watch=watch)
        except MovedElsewhere as error:
            url = with_secrets(error.url, url)
            watch(f"it has moved: following it to {redact_secrets(url)}", error.epoch, error.epoch)
    raise CorruptionError(
        f"the database was moved more than {HOPS_MAX} times, and is still not found.",
        fix="Name it by the address where it lives.",
    )


def _copy_database(url: str, file: Path, *, force: bool, watch: Watch) -> BackedUp:
    if is_postgres_url(url):
        return _from_postgres(url, file, force=force, watch=watch)
    if is_bucket_url(url):
        # The log in the bucket has everything that was acknowledged, and is read without a lease.
        done = restore_database(url, file, force=force, watch=watch)
        return BackedUp(url, done.path, done.pages, done.page_bytes, done.parts)
    source = _lane_of(url)
    path = lane_path(source)
    if path is None:
        raise BadUsage(
            "a database in memory cannot be copied from outside.",
            why="It exists only inside the process that opened it.",
            fix="Name a lane: lanes:///var/shop/stock.",
        )
    copied = copy_lane(path, file, force=force, watch=watch)
    return BackedUp(source, file, sum(each.pages for each in copied), copied[0].page_bytes, len(copied) - 1)


def _from_postgres(url: str, file: Path, *, force: bool, watch: Watch) -> BackedUp:
    # The driver of PostgreSQL is an extra, which may not be installed.
    from interlock.backup.postgres_copies import address_with_schema, copy_into_lane, copy_schema  # noqa: PLC0415

    check_free(file, force=force)
    with staging_path(file) as ready:
        address = asyncio.run(address_with_schema(url))
        if file.suffix == LANE_SUFFIX:
            rows = asyncio.run(copy_into_lane(address, ready.absolute(), watch=watch))
            parts = len(parts_of(ready))
        else:
            manifest = asyncio.run(copy_schema(address, ready, clock=SystemClock(), watch=watch))
            rows, parts = manifest.row_count, len(manifest.schemas) - 1
        put_all_in_place(ready, file, force=force)
    return BackedUp(url, file, parts=parts, rows=rows)


def _lane_of(url: str) -> str:
    """Return the address itself, or that of the only database of a home. Raises BadUsage for several."""
    path = lane_path(url)
    if path is None or path.exists() or not path.with_suffix("").is_dir():
        return url
    home = FolderCatalog(url)
    names = sorted(home.names())
    if len(names) == 1:
        return home.locate(names[0])
    if not names:
        return url
    raise TargetNotFound(
        f"{url} is a home with {len(names)} databases: {', '.join(names)}.",
        why="One database is copied into one file.",
        fix=f"Name one of them: {home.locate(names[0])}.",
    )


# --- Restore of a copy -----------------------------------------------------------------------------------------------
# An existing database is replaced only with `force`, and never while another process has it open. The copy is
# checked first; a damaged one is refused before anything has the name of the database.

SEEDING: Final = LaneSettings(request_timeout_s=300.0, append_deadline_s=900.0)
"""Longer timeouts: the pages of a whole database are one object."""


class PutBack(NamedTuple):
    """Result of a restore."""

    path: Path
    url: str
    what: str
    """Size of the copy in words."""
    parts: int = 0
    """Number of its streams and shards."""


def put_back(file: Path, url: str, *, force: bool = False, watch: Watch = silent) -> PutBack:
    """Restore the copy in a file as the database at an address.

    Raises BadUsage, TargetNotFound, LaneOwned, UnavailableError, UnusableFile for an existing database, and
    CorruptionError for a damaged copy.
    """
    if not file.exists():
        raise TargetNotFound(
            f"there is no file {file}.", why="A copy is put back from its file.", fix="Check the path of the copy."
        )
    if is_postgres_url(url):
        return _into_postgres(file, url, force=force, watch=watch)
    if is_archive(file):
        raise BadUsage(
            f"{file} is an archive of PostgreSQL, and {redact_secrets(url)} is not there.",
            why="An archive has everything that PostgreSQL knows of the tables, which other engines do not.",
            fix="Restore it there; a copy of a database named NAME.lane goes everywhere.",
        )
    if is_bucket_url(url):
        return _into_bucket(file, url, force=force, watch=watch)
    path = lane_path(url)
    if path is None:
        raise BadUsage(
            "a database in memory cannot be put back.",
            why="It exists only inside the process that opens it.",
            fix="Name a lane: lanes:///var/shop/stock.",
        )
    path.parent.mkdir(parents=True, exist_ok=True)
    copied = copy_lane(file, path, force=force, watch=watch)
    return PutBack(file, url, _amount(copied), len(copied) - 1)


def _into_postgres(file: Path, url: str, *, force: bool, watch: Watch) -> PutBack:
    # The driver of PostgreSQL is an extra, which may not be installed.
    from interlock.backup.postgres_copies import restore_lane_into_postgres, restore_schema  # noqa: PLC0415

    address = parse_postgres_url(url)
    if is_archive(file):
        manifest = asyncio.run(restore_schema(file, address, force=force, watch=watch))
        return PutBack(file, url, f"{manifest.row_count:,} rows", len(manifest.schemas) - 1)
    rows = asyncio.run(restore_lane_into_postgres(file, address, force=force, watch=watch))
    return PutBack(file, url, f"{rows:,} rows")


def _into_bucket(file: Path, url: str, *, force: bool, watch: Watch) -> PutBack:
    """Store each file as a database of its own; the database itself comes last, so that it exists only complete."""
    from interlock.lanes.objectlog.log import proven_bucket_of  # noqa: PLC0415 -- an extra, which may not be installed.
    from interlock.lanes.objectlog.point_in_time import seed  # noqa: PLC0415

    # A second copy is checked, and has no log beside it.
    with tempfile.TemporaryDirectory(prefix="interlock-restoring-") as folder:
        ready = Path(folder) / f"ready{LANE_SUFFIX}"
        copied = copy_lane(file, ready, force=False, watch=watch)
        files = [*parts_of(ready), ready]
        for number, each in enumerate(files):
            watch("storing databases in the bucket", number + 1, len(files))
            address = parse_bucket_url(_address_below(url, each, ready))
            bucket = proven_bucket_of(address, settings=SEEDING, clock=SystemClock())
            seed(bucket, each, name=str(address), settings=SEEDING, world=Environment(), force=force)
    return PutBack(file, url, _amount(copied), len(copied) - 1)


def _amount(copied: list[Facts]) -> str:
    return f"{sum(each.pages for each in copied):,} pages of {copied[0].page_bytes:,} bytes"


def _address_below(url: str, part: Path, ready: Path) -> str:
    if part == ready:
        return url
    below = part.relative_to(ready.parent).as_posix().removeprefix(ready.name.removesuffix(LANE_SUFFIX))
    names = [bucket_name(name) for name in below.removesuffix(LANE_SUFFIX).split("/")]
    return extend_path(url, "/".join(names))
