"""Backup of a database while it serves: of a lane, of a database in a bucket, or in PostgreSQL.

The copy shows one instant, with everything that was acknowledged before the call. Streams and shards are databases of
their own, and each is copied at its own instant.
"""

import asyncio
from pathlib import Path
from typing import Final, NamedTuple

from interlock.catalog.addresses import SUFFIX, lane_path
from interlock.catalog.folder import FolderCatalog
from interlock.catalog.secrets import shown, with_secrets
from interlock.database.copies import check_free, moved_below, parts_of, put_all_in_place, settled, staged
from interlock.database.restore import restore_database
from interlock.database.translation import register
from interlock.errors import BadUsage, CorruptionError, MovedElsewhere, TargetNotFound, UnusableFile
from interlock.lanes.backup import Copied, Watch, back_up
from interlock.lanes.objects.addresses import is_bucket
from interlock.seams import RandomIds, SystemChance, SystemClock
from interlock.sql.postgres.address import is_postgres

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
        path = self.path.absolute()
        return f"lanes://{path.with_suffix('').as_posix()}" if path.suffix == SUFFIX else None

    @property
    def amount(self) -> str:
        """Size of the copy in words."""
        if self.rows is not None:
            return f"{self.rows:,} {'row' if self.rows == 1 else 'rows'}"
        return f"{self.pages:,} pages of {self.page_bytes:,} bytes"


def back_up_database(
    url: str, file: Path, *, force: bool = False, watch: Watch = lambda _what, _done, _of: None
) -> BackedUp:
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
            watch(f"it has moved: following it to {shown(url)}", error.epoch, error.epoch)
    raise CorruptionError(
        f"the database was moved more than {HOPS_MAX} times, and is still not found.",
        fix="Name it by the address where it lives.",
    )


def _copy_database(url: str, file: Path, *, force: bool, watch: Watch) -> BackedUp:
    if is_postgres(url):
        return _from_postgres(url, file, force=force, watch=watch)
    if is_bucket(url):
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
    from interlock.database.copies_lane import copy_into_lane  # noqa: PLC0415
    from interlock.database.copies_postgres import copy_schema, the_schema  # noqa: PLC0415

    check_free(file, force=force)
    with staged(file, RandomIds()) as ready:
        address = asyncio.run(the_schema(url))
        if file.suffix == SUFFIX:
            rows = asyncio.run(copy_into_lane(address, ready.absolute(), watch=watch))
            parts = len(parts_of(ready))
        else:
            manifest = asyncio.run(copy_schema(address, ready, clock=SystemClock(), watch=watch))
            rows, parts = manifest.row_count, len(manifest.schemas) - 1
        put_all_in_place(ready, file, force=force, clock=SystemClock(), ids=RandomIds())
    return BackedUp(url, file, parts=parts, rows=rows)


def copy_lane(source: Path, file: Path, *, force: bool, watch: Watch) -> list[Copied]:
    """Copy the lane in a file, with its streams and shards. The first item of the result is the lane itself."""
    if not source.exists():
        raise TargetNotFound(
            f"there is no lane at {source}.",
            why="A lane lanes:///folder/name is kept in the file /folder/name.lane.",
            fix="Check the address; a lane exists once it has been opened for the first time.",
        )
    if file.resolve() == source.resolve():
        raise UnusableFile(f"{file} is the lane itself.", why="A copy is another file.", fix="Name another file.")
    check_free(file, force=force)
    with staged(file, RandomIds()) as ready:
        copied = [_copy_file(source, ready, watch)]
        settled(ready)
        parts = parts_of(source)
        for number, part in enumerate(parts):
            watch("copying streams and shards", number + 1, len(parts))
            place = moved_below(part, source, ready)
            place.parent.mkdir(parents=True, exist_ok=True)
            copied.append(_copy_file(part, place, _ignore_progress))
        put_all_in_place(ready, file, force=force, clock=SystemClock(), ids=RandomIds())
    return copied


def _copy_file(source: Path, path: Path, watch: Watch) -> Copied:
    return back_up(
        source,
        path,
        force=False,
        clock=SystemClock(),
        ids=RandomIds(),
        prepare=lambda connection, now_us: register(connection, now_us, chance=SystemChance(), ids=RandomIds()),
        watch=watch,
    )


def _ignore_progress(_what: str, _done: int, _of: int) -> None:
    """Ignore the progress of one file: the progress over all files is reported."""


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
