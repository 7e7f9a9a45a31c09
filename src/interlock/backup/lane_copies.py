"""Copies of lanes while their owners go on: the copy of one file, streams and shards, and the place of the result.

SQLite's own backup copies page by page inside one read transaction, so the copy of a file is of the moment when it
began, with everything acknowledged before. A writer never waits for it. The log beside the file is part of what is
read. A lane that no process has open is read without a lock, and read again if a process opened it meanwhile. The copy
is checked by SQLite and synced before it gets its name.

Streams and shards are files of their own, and each shows its own instant, because their writers do not wait for each
other. All are copied into a hidden folder and then renamed: first the streams and shards, last the database itself. So
a database under its name is complete. The one that it replaces is moved away before and removed after: in between
nothing has the name, and never a mixture.
"""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# apsw's stubs leave the values of SQLite partly open; mypy --strict looks at what is ours.

import contextlib
import os
import shutil
from collections.abc import Generator, Iterator
from functools import partial
from pathlib import Path, PurePosixPath
from typing import NamedTuple
from urllib.parse import quote

import apsw

from interlock.clock import RandomIds, SystemChance, SystemClock
from interlock.database.lane_engine import register
from interlock.errors import CorruptionError, LaneOwned, UnavailableError, UnusableFile
from interlock.lanes.file import check_target, own_target, put_in_place, sync_file, sync_folder
from interlock.lanes.handover import admit, draft_of, is_watched, moved_error, tombstone_of, unwatch
from interlock.lanes.lane_doctor import LOOKS_MAX, Facts, look_at, opened_to_look, traces
from interlock.lanes.objectlog.bucket_protocol import Watch, answering, silent
from interlock.lanes.sqlite_connection import no_lane_error
from interlock.urls import LANE_SUFFIX, RESERVED_NAMES, extend_path, parse_bucket_url, redact_secrets, stream_url

# --- Copies ----------------------------------------------------------------------------------------------------------

PAGES_AT_ONCE = 5_000

prepare_connection = partial(register, chance=SystemChance(), ids=RandomIds())
"""Registers the SQL functions that the schema of a lane may call."""


def copy_lane(source: Path, file: Path, *, force: bool, watch: Watch) -> list[Facts]:
    """Copy the lane in a file, with its streams and shards; return the facts of each copy, first those of the lane.

    Raises TargetNotFound without a lane, UnusableFile for the copy, CorruptionError for a lane that is damaged,
    LaneOwned for one that stays locked, MovedElsewhere for one that was left.
    """
    if not source.exists():
        raise no_lane_error(source)
    if file.resolve() == source.resolve():
        raise UnusableFile(f"{file} is the lane itself.", why="A copy is another file.", fix="Name another file.")
    check_free(file, force=force)
    with staging_path(file) as ready:
        copied = [copy_file(source, ready, watch)]
        parts = parts_of(source)
        for number, part in enumerate(parts):
            watch("copying streams and shards", number + 1, len(parts))
            place = path_below(part, source, ready)
            place.parent.mkdir(parents=True, exist_ok=True)
            copied.append(copy_file(part, place, silent))  # The number of files is the progress.
        put_all_in_place(ready, file, force=force)
    return copied


def copy_file(source: Path, path: Path, watch: Watch) -> Facts:
    """Copy the lane in one file into a new one, durably. Raises as `copy_lane` does."""
    _copy(source.resolve(), path, watch)
    watch("checking the pages", 0, 1)
    facts = look_at(path, clock=SystemClock(), prepare=prepare_connection)
    for finding in facts.findings:
        if finding.severity == "error":
            raise CorruptionError(
                f"the copy is not whole: {finding.what}",
                why="The lane itself is damaged, or the file is not a lane.",
                fix="Look at it with `interlock doctor`.",
            )
    sync_file(path)
    watch("checking the pages", 1, 1)
    return facts


def _copy(source: Path, path: Path, watch: Watch) -> None:
    for look in range(LOOKS_MAX):
        before = traces(source)
        try:
            logged = _copied(source, path, watch)
        except apsw.BusyError as error:
            raise LaneOwned(
                f"lane {source} stayed locked.",
                why="Its owner is just opening or closing it, or something that is not Interlock has it open.",
                fix="Try again.",
            ) from error
        except (apsw.CorruptError, apsw.NotADBError, apsw.IOError, apsw.FullError, apsw.CantOpenError) as error:
            # Without a lock, pages may be met that an owner is just folding in: then they are read again.
            if look + 1 < LOOKS_MAX and traces(source) != before:
                continue
            raise CorruptionError(
                f"lane {source} cannot be copied: {error}.",
                why="A page cannot be read, or the copy cannot be written.",
                fix="Look at it with `interlock doctor`, and at the room on the disk.",
            ) from error
        if logged or traces(source) == before:
            return
    raise LaneOwned(
        f"lane {source} was opened and written {LOOKS_MAX} times while it was copied.",
        why="No process had it open when the copy began.",
        fix="Try again: beside an owner that goes on, a copy is made in one go.",
    )


def _copied(source: Path, path: Path, watch: Watch) -> bool:
    """Copy one instant; return whether it was read under a lock, beside its log."""
    path.unlink(missing_ok=True)
    with opened_to_look(source) as (connection, locked):
        # The transaction keeps the instant, however many steps the copy takes.
        connection.execute("BEGIN")
        connection.execute("SELECT count(*) FROM sqlite_schema").fetchall()
        _refuse_elsewhere(connection, source)
        copy = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_CREATE)
        try:
            with copy.backup("main", connection, "main") as backup:
                while not backup.done:
                    backup.step(PAGES_AT_ONCE)
                    watch("copying pages", backup.page_count - backup.remaining, backup.page_count)
            if is_watched(copy):
                with copy:  # No mover reads notes of the copy.
                    unwatch(copy)
        finally:
            copy.close()
    return locked


def _refuse_elsewhere(connection: apsw.Connection, source: Path) -> None:
    """Raise MovedElsewhere for a lane that was left, UnavailableError for one that a move is filling."""
    stone = tombstone_of(connection)
    if stone is not None:
        raise moved_error(stone)
    admit(connection, None, f"lane {source}")


# --- Streams and shards ----------------------------------------------------------------------------------------------

FOLDERS = ("streams", "shards")
PARTS_MAX = 100_000
"""G6: maximum number of streams and shards that are copied."""

_BESIDE = ("-wal", "-shm", "-journal")


def folders_of(path: Path) -> list[Path]:
    """Return the folders with the streams and the shards of the database in this file."""
    stem = path.name.removesuffix(LANE_SUFFIX)
    return [path.with_name(f"{stem}.{folder}") for folder in FOLDERS]


def parts_of(path: Path) -> list[Path]:
    """Return the files of all streams and shards of the database in this file, at any depth."""
    found = list(_below(path))
    if len(found) > PARTS_MAX:
        raise UnusableFile(
            f"{path} has {len(found):,} streams and shards; at most {PARTS_MAX:,} are copied.",
            why="Each of them is a file of its own.",
            fix="Copy its folder while it is closed.",
        )
    return found


def path_below(part: Path, source: Path, target: Path) -> Path:
    """Return the path of a stream or shard of `source` after the database was renamed to `target`."""
    below = part.relative_to(source.parent)
    first = below.parts[0].replace(source.name.removesuffix(LANE_SUFFIX), target.name.removesuffix(LANE_SUFFIX), 1)
    return target.parent.joinpath(first, *below.parts[1:])


def _below(path: Path) -> Iterator[Path]:
    for folder in folders_of(path):
        for part in sorted(folder.glob(f"*{LANE_SUFFIX}")):
            yield part
            yield from _below(part)


# --- Place -----------------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def staging_path(path: Path) -> Generator[Path]:
    """Yield a path of the same name in a temporary folder beside it. The folder is removed in any case."""
    folder = path.with_name(f".{path.name}.{RandomIds().new().hex}.copying")
    try:
        folder.mkdir()
        yield folder / path.name
    except OSError as error:
        raise UnusableFile(f"{path} cannot be written: {error.strerror or error}.") from error
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def remove_move_marks(path: Path) -> None:
    """Remove the marks of a mover from a fresh copy of a lane.

    Raises MovedElsewhere for a database that has moved, and UnavailableError for the draft of a move.
    """
    connection = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READWRITE)
    with contextlib.closing(connection):
        stone, mark = tombstone_of(connection), draft_of(connection)
        if stone is not None:
            raise moved_error(stone)
        if mark is not None:
            raise UnavailableError(
                f"the database is arriving from {redact_secrets(mark.source)}, as move {mark.epoch}.",
                why="Its rows are being copied; until the move is over the old place is the one that counts.",
                fix="Copy it from there, or wait.",
            )
        if is_watched(connection):
            with connection:
                unwatch(connection)


def check_free(path: Path, *, force: bool) -> None:
    """Raise UnusableFile when the name is taken, unless `force` allows to replace it."""
    if force and path.is_file():
        return  # It is replaced together with its log.
    check_target(path, force=force)
    for folder in [] if force else folders_of(path):
        if folder.exists():
            raise UnusableFile(
                f"{folder} exists: streams or shards of another database of that name.",
                why="They would become part of the new one.",
                fix="Choose another name, remove the folder, or say --force to replace it.",
            )


def put_all_in_place(ready: Path, path: Path, *, force: bool) -> None:
    """Rename a staged database, with its streams and shards. Raises LaneOwned when another process has it open."""
    aside = path.with_name(f".{path.name}.{RandomIds().new().hex}.replaced")
    try:
        with own_target(path, SystemClock()):
            check_free(path, force=force)
            if force:
                _move_away(path, aside)
            for folder, name in zip(folders_of(ready), folders_of(path), strict=True):
                if folder.exists():
                    for inside, _, _ in os.walk(folder):  # The files themselves are durable already.
                        sync_folder(Path(inside))
                    folder.rename(name)
            put_in_place(ready, path, force=False)
    except OSError as error:
        raise UnusableFile(f"{path} cannot be written: {error.strerror or error}.") from error
    shutil.rmtree(aside, ignore_errors=True)


def _move_away(path: Path, aside: Path) -> None:
    old = [path, *(path.with_name(path.name + suffix) for suffix in _BESIDE), *folders_of(path)]
    for each in old:
        if each.exists():
            aside.mkdir(exist_ok=True)
            each.rename(aside / each.name)


# --- Streams and shards in a bucket ----------------------------------------------------------------------------------
# Only a listing finds them. A stream that is created during the call may be missing. Its writes were not
# acknowledged before the call, so the copy is still complete.


class BucketPart(NamedTuple):
    """A stream or a shard."""

    url: str
    below: PurePosixPath
    """Its file in a copy, relative to the folder of the database and without the database's name."""


def parts_in_bucket(url: str) -> list[BucketPart]:
    """Return all streams and shards of the database at an address. Raises UnavailableError."""
    from interlock.lanes.objectlog.log import folder_of  # noqa: PLC0415 -- an extra, which may not be installed.
    from interlock.lanes.objectlog.manifest import KEY  # noqa: PLC0415 -- the same.

    address = parse_bucket_url(url)
    with answering("list its streams"):
        bucket = folder_of(address)
        keys = [key for folder in FOLDERS for key in bucket.keys(f"{address.name}.{folder}/")]
    found: list[BucketPart] = []
    for key in sorted(keys):
        name, slash, last = key.rpartition("/")
        if slash and last == KEY:
            below = name.removeprefix(address.name)
            *above, final = (_folder_name(part) for part in below.split("/"))
            found.append(BucketPart(extend_path(url, quote(below)), PurePosixPath(*above, final + LANE_SUFFIX)))
    return found


def bucket_name(name: str) -> str:
    """Return the name of a stream in a bucket, as a part of an address."""
    taken = next((there for there, here in _TAKEN.items() if here == name), None)
    return taken or quote(name)


def _folder_name(name: str) -> str:
    """Return the name of a stream in a folder: names that are reserved in a bucket are escaped there."""
    return _TAKEN.get(name, name)


_TAKEN = {stream_url("s3://bucket/database", name).rpartition("/")[2]: name for name in RESERVED_NAMES}
