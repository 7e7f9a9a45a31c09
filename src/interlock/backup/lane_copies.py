"""Copies of a lane with its streams and shards, each a file of its own.

They are copied into a hidden folder and then renamed: first the streams and shards, last the database itself. So a
database under its name is complete. The one that it replaces is moved away before and removed after: in between
nothing has the name, and never a mixture.

Each file shows its own instant, because writers of different streams do not wait for each other. Everything that was
acknowledged before the call is in the copy.
"""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# apsw's stubs leave the values of SQLite partly open; mypy --strict looks at what is ours.

import contextlib
import os
import shutil
from collections.abc import Generator, Iterator
from pathlib import Path, PurePosixPath
from typing import NamedTuple
from urllib.parse import quote

import apsw

from interlock.clock import Clock, Ids
from interlock.errors import UnavailableError, UnusableFile
from interlock.lanes.file import check_target, own_target, put_in_place
from interlock.lanes.handover import draft_of, moved, tombstone_of, unwatch, watched
from interlock.lanes.objectlog.bucket import answering
from interlock.urls import LANE_SUFFIX, RESERVED_NAMES, parse_bucket_url, redact_secrets, stream_url

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


@contextlib.contextmanager
def staging_path(path: Path, ids: Ids) -> Generator[Path]:
    """Yield a path of the same name in a temporary folder beside it. The folder is removed in any case."""
    folder = path.with_name(f".{path.name}.{ids.new().hex}.copying")
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
            raise moved(stone)
        if mark is not None:
            raise UnavailableError(
                f"the database is arriving from {redact_secrets(mark.source)}, as move {mark.epoch}.",
                why="Its rows are being copied; until the move is over the old place is the one that counts.",
                fix="Copy it from there, or wait.",
            )
        if watched(connection):
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


def put_all_in_place(ready: Path, path: Path, *, force: bool, clock: Clock, ids: Ids) -> None:
    """Rename a staged database, with its streams and shards. Raises LaneOwned when another process has it open."""
    aside = path.with_name(f".{path.name}.{ids.new().hex}.replaced")
    try:
        with own_target(path, clock):
            check_free(path, force=force)
            _move_away(path, aside)
            for folder, name in zip(folders_of(ready), folders_of(path), strict=True):
                if folder.exists():
                    _sync(folder)
                    folder.rename(name)
            put_in_place(ready, path, force=False)
    except OSError as error:
        raise UnusableFile(f"{path} cannot be written: {error.strerror or error}.") from error
    shutil.rmtree(aside, ignore_errors=True)


def _below(path: Path) -> Iterator[Path]:
    for folder in folders_of(path):
        for part in sorted(folder.glob(f"*{LANE_SUFFIX}")):
            yield part
            yield from _below(part)


def _move_away(path: Path, aside: Path) -> None:
    old = [path, *(path.with_name(path.name + suffix) for suffix in _BESIDE), *folders_of(path)]
    for each in old:
        if each.exists():
            aside.mkdir(exist_ok=True)
            each.rename(aside / each.name)


def _sync(folder: Path) -> None:
    """Make the names in a folder durable; the files are durable already."""
    for inside, _, _ in os.walk(folder):
        descriptor = os.open(inside, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


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
    from interlock.lanes.objectlog.manifest import KEY  # noqa: PLC0415 -- the same.
    from interlock.lanes.objectlog.open import folder_of  # noqa: PLC0415 -- an extra, which may not be installed.

    address = parse_bucket_url(url)
    place, mark, options = url.partition("?")
    with answering("list its streams"):
        bucket = folder_of(address)
        keys = [key for folder in FOLDERS for key in bucket.keys(f"{address.name}.{folder}/")]
    found: list[BucketPart] = []
    for key in sorted(keys):
        name, slash, last = key.rpartition("/")
        if slash and last == KEY:
            below = name.removeprefix(address.name)
            *above, final = (_folder_name(part) for part in below.split("/"))
            found.append(
                BucketPart(
                    f"{place.rstrip('/')}{quote(below)}{mark}{options}", PurePosixPath(*above, final + LANE_SUFFIX)
                )
            )
    return found


def bucket_name(name: str) -> str:
    """Return the name of a stream in a bucket, as a part of an address."""
    taken = next((there for there, here in _TAKEN.items() if here == name), None)
    return taken or quote(name)


def _folder_name(name: str) -> str:
    """Return the name of a stream in a folder: names that are reserved in a bucket are escaped there."""
    return _TAKEN.get(name, name)


_TAKEN = {stream_url("s3://bucket/database", name).rpartition("/")[2]: name for name in RESERVED_NAMES}
