"""The lanes at an address: of a database, or of a home with all of its databases, their streams and shards.

Nothing is opened and nothing is created: the owner of a lane may be any process, and its report lies beside the lane's
file. The report of a database in a bucket lies beside its local file, so only on the host where its owner runs.
"""

import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Literal, NamedTuple
from urllib.parse import quote

from interlock.catalog.addresses import SUFFIX, lane_path
from interlock.catalog.defaults import below
from interlock.catalog.folder import FolderCatalog
from interlock.catalog.places import cache_path
from interlock.errors import BadUsage, TargetNotFound
from interlock.lanes.objects.addresses import is_bucket, parse, redacted
from interlock.sql.postgres.address import is_postgres

LANES_MAX = 10_000
"""The most lanes that are read: a home may have any number of streams."""

WORKFLOWS = "workflows"


class LanePlace(NamedTuple):
    """A lane, and the file beside which its owner publishes reports."""

    name: str
    url: str
    """Without secrets."""
    file: Path
    engine: Literal["lane", "object"] = "lane"


def lanes_at(url: str, *, cache: str | None = None) -> list[LanePlace]:
    """Return the lanes of a database, or of a whole home. Raises TargetNotFound for an address without lanes."""
    if url == "memory:":
        raise BadUsage(
            "a database in memory cannot be looked at from outside.",
            why="It exists only inside the program that opened it.",
            fix="Ask there: await db.contention(), await engine.contention().",
        )
    if is_bucket(url):
        return _in_bucket(url, cache)
    found = list(itertools.islice(_lanes(url), LANES_MAX))
    if not found:
        raise TargetNotFound(
            f"there is no database at {redacted(url)}, and no home with one.",
            why="A database is the file NAME.lane; a home is a folder of databases.",
            fix="Check the address: lanes:///var/shop for all of a home, lanes:///var/shop/stock for one.",
        )
    return found


def _lanes(url: str) -> Iterator[LanePlace]:
    known: set[Path] = set()
    for place in _candidates(url):
        if place.file not in known:
            known.add(place.file)
            yield place


def _candidates(url: str) -> Iterator[LanePlace]:
    path = lane_path(url)
    assert path is not None, "memory was refused before"
    if path.exists():
        yield LanePlace(path.name.removesuffix(SUFFIX), url, path)
    yield from _below(path, url)
    folder = path.with_name(path.name.removesuffix(SUFFIX))
    if not folder.is_dir():
        return
    for file in sorted(folder.glob(f"*{SUFFIX}")):
        name = file.name.removesuffix(SUFFIX)
        yield LanePlace(name, f"{url.rstrip('/')}/{quote(name)}", file)
        yield from _below(file, f"{url.rstrip('/')}/{quote(name)}")
    for name, place in FolderCatalog(url).names().items():
        # A moved database is followed once: a catalog names databases, never homes.
        if is_bucket(place.url):
            address = parse(place.url)
            yield LanePlace(name, str(address), cache_path(address), "object")
        elif place.url and not is_postgres(place.url) and (moved := lane_path(place.url)) is not None:
            yield LanePlace(name, place.url, moved)
            yield from _below(moved, place.url)


def _below(path: Path, url: str, called: str = "") -> Iterator[LanePlace]:
    """The streams of a database, the shards of its counters, and those of its streams' counters."""
    file_name = path.name.removesuffix(SUFFIX)
    name = called or file_name
    # A shard has a number for its name, and so may a stream.
    for folder, prefix in (("streams", name), ("shards", f"{name}/shards")):
        for file in sorted(path.with_name(f"{file_name}.{folder}").glob(f"*{SUFFIX}")):
            part = file.name.removesuffix(SUFFIX)
            below = f"{url.rstrip('/')}.{folder}/{quote(part)}"
            yield LanePlace(f"{prefix}/{part}", below, file)
            yield from _below(file, below, f"{prefix}/{part}")


def _in_bucket(url: str, cache: str | None) -> list[LanePlace]:
    """The database at the address and, if it is a home, its workflows; others are found by their own addresses."""
    inside = below(url, WORKFLOWS)
    return [
        LanePlace(address.name, str(address), cache_path(address, cache), "object")
        for address in (parse(url), parse(inside))
    ]
