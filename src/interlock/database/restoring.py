"""Restore of a copy into a lane, a bucket, or PostgreSQL.

An existing database is replaced only with `force`, and never while another process has it open. The copy is checked
first; a damaged one is refused before anything has the name of the database.
"""

import asyncio
import tempfile
from pathlib import Path
from typing import Final, NamedTuple

from interlock.catalog.addresses import SUFFIX, lane_path
from interlock.catalog.secrets import shown
from interlock.database.archive import is_archive
from interlock.database.backup import copy_lane
from interlock.database.copies import parts_of
from interlock.database.copies_bucket import bucket_name
from interlock.errors import BadUsage, TargetNotFound
from interlock.lanes.backup import Watch
from interlock.lanes.objects.addresses import is_bucket, parse
from interlock.lanes.objects.world import World
from interlock.lanes.settings import LaneSettings
from interlock.seams import SystemClock
from interlock.sql.postgres.address import is_postgres, parsed

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


def put_back(file: Path, url: str, *, force: bool = False, watch: Watch = lambda _what, _done, _of: None) -> PutBack:
    """Restore the copy in a file as the database at an address.

    Raises BadUsage, TargetNotFound, LaneOwned, UnavailableError, UnusableFile for an existing database, and
    CorruptionError for a damaged copy.
    """
    if not file.exists():
        raise TargetNotFound(
            f"there is no file {file}.", why="A copy is put back from its file.", fix="Check the path of the copy."
        )
    if is_postgres(url):
        return _into_postgres(file, url, force=force, watch=watch)
    if is_archive(file):
        raise BadUsage(
            f"{file} is an archive of PostgreSQL, and {shown(url)} is not there.",
            why="An archive has everything that PostgreSQL knows of the tables, which other engines do not.",
            fix="Restore it there; a copy of a database named NAME.lane goes everywhere.",
        )
    if is_bucket(url):
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
    pages = sum(each.pages for each in copied)
    return PutBack(file, url, f"{pages:,} pages of {copied[0].page_bytes:,} bytes", len(copied) - 1)


def _into_postgres(file: Path, url: str, *, force: bool, watch: Watch) -> PutBack:
    # The driver of PostgreSQL is an extra, which may not be installed.
    from interlock.database.copies_lane import restore_lane_into_postgres  # noqa: PLC0415
    from interlock.database.copies_postgres import restore_schema  # noqa: PLC0415

    address = parsed(url)
    if is_archive(file):
        manifest = asyncio.run(restore_schema(file, address, force=force, watch=watch))
        return PutBack(file, url, f"{manifest.row_count:,} rows", len(manifest.schemas) - 1)
    rows = asyncio.run(restore_lane_into_postgres(file, address, force=force, watch=watch))
    return PutBack(file, url, f"{rows:,} rows")


def _into_bucket(file: Path, url: str, *, force: bool, watch: Watch) -> PutBack:
    """Store each file as a database of its own; the database itself comes last, so that it exists only complete."""
    from interlock.lanes.objects.door import proven_bucket_of  # noqa: PLC0415 -- an extra, which may not be installed.
    from interlock.lanes.objects.seeding import seed  # noqa: PLC0415

    # A second copy is checked, and has no log beside it.
    with tempfile.TemporaryDirectory(prefix="interlock-restoring-") as folder:
        ready = Path(folder) / f"ready{SUFFIX}"
        copied = copy_lane(file, ready, force=False, watch=watch)
        files = [*parts_of(ready), ready]
        for number, each in enumerate(files):
            watch("storing databases in the bucket", number + 1, len(files))
            address = parse(_address_below(url, each, ready))
            bucket = proven_bucket_of(address, settings=SEEDING, clock=SystemClock())
            seed(bucket, each, name=str(address), settings=SEEDING, world=World(), force=force)
    pages = sum(each.pages for each in copied)
    return PutBack(file, url, f"{pages:,} pages of {copied[0].page_bytes:,} bytes", len(copied) - 1)


def _address_below(url: str, part: Path, ready: Path) -> str:
    if part == ready:
        return url
    place, mark, options = url.partition("?")
    below = part.relative_to(ready.parent).as_posix().removeprefix(ready.name.removesuffix(SUFFIX))
    names = [bucket_name(name) for name in below.removesuffix(SUFFIX).split("/")]
    return f"{place.rstrip('/')}{'/'.join(names)}{mark}{options}"
