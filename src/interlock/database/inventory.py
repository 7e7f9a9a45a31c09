"""Inventory of a home: every name of its catalog, its address, and the state of its place.

A lane that was only ever opened by its address is in no catalog; `unlisted` includes it. The inventory changes nothing
and needs no lease: it reads a lane's file beside its owner, and the marks of a schema. It does not read buckets, which
would need a replay; `interlock doctor` does that.
"""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# apsw's stubs leave the values of SQLite partly open; mypy --strict looks at what is ours.

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Final, Literal, NamedTuple

import apsw
import msgspec

from interlock.catalog.catalog import Catalog
from interlock.catalog.entries import Entry, Kind, check_name
from interlock.catalog.open_lane import opening_thread
from interlock.errors import BadUsage, InterlockError
from interlock.lanes.doctor import opened_to_look
from interlock.lanes.handover import draft_of, is_watched, tombstone_of
from interlock.urls import (
    LANE_SUFFIX,
    is_bucket_url,
    is_postgres_url,
    lane_path,
    parse_bucket_url,
    parse_postgres_url,
    redact_secrets,
)

State = Literal["lives", "moving", "arriving", "left", "absent", "unseen"]
"""`moving`: a move records the writes there, running or interrupted. `arriving`: a draft of a move.
`left`: the database lives elsewhere. `absent`: nothing was created there yet. `unseen`: not examined."""

LOOKS_AT_ONCE: Final = 8


class Resident(msgspec.Struct, frozen=True, kw_only=True):
    """One name of a home."""

    name: str
    kind: Kind
    url: str
    """Its address in the catalog, without secrets."""
    epoch: int
    """Epoch of its last move; 0 if it was never moved."""
    state: State
    other: str = ""
    """The other address of a move: its target, or its source."""
    other_epoch: int = 0
    note: str = ""
    """Why it could not be examined."""


class Marks(NamedTuple):
    """State of a place, from its own marks."""

    state: State
    other: str = ""
    epoch: int = 0


async def residents_of(home: str, *, unlisted: bool = False) -> list[Resident]:
    """Return all residents by name: databases first, then machines whose workflows live elsewhere.

    `unlisted` includes the lanes in the home's folder that are not in its catalog.
    """
    catalog = Catalog(home)
    kinds: tuple[Kind, ...] = ("databases", "workflows")
    known: list[tuple[Kind, str, Entry]] = []
    for kind in kinds:
        names = await catalog.names(kind)
        if unlisted and kind == "databases" and catalog.folder is not None:
            names |= {name: Entry() for name in _lanes_in(catalog.folder.folder) if name not in names}
        for name, entry in sorted(names.items()):
            known.append((kind, name, entry))
    few = asyncio.Semaphore(LOOKS_AT_ONCE)

    async def look(kind: Kind, name: str, entry: Entry) -> Resident:
        async with few:
            return await _load_resident(catalog, kind, name, entry)

    return await asyncio.gather(*(look(*each) for each in known))


def _lanes_in(folder: Path) -> list[str]:
    return [path.stem for path in folder.glob(f"*{LANE_SUFFIX}") if _is_name(path.stem)]


def _is_name(text: str) -> bool:
    try:
        check_name(text)
    except BadUsage:
        return False
    return True


async def _load_resident(catalog: Catalog, kind: Kind, name: str, entry: Entry) -> Resident:
    url = catalog.home if kind == "workflows" and not entry.url else catalog.address(name, entry)
    found, note = Marks("unseen"), ""
    if kind == "databases" and not is_bucket_url(url):
        try:
            found = await marks_at(url)
        except (InterlockError, OSError, apsw.Error) as error:
            note = error.what if isinstance(error, InterlockError) else f"{error}."
    return Resident(
        name=name,
        kind=kind,
        url=redact_secrets(url),
        epoch=entry.epoch,
        state=found.state,
        other=redact_secrets(found.other),
        other_epoch=found.epoch,
        note=note,
    )


async def marks_at(url: str) -> Marks:
    """Read the marks of the place at an address. Raises the error of the read."""
    if is_postgres_url(url):
        return await _marks_in_postgres(url)
    if is_bucket_url(url):
        return await asyncio.wrap_future(opening_thread(lambda: _marks_in_bucket(url)))
    path = lane_path(url)
    return Marks("unseen") if path is None else await asyncio.wrap_future(opening_thread(lambda: _marks_in_file(path)))


async def is_absent(url: str) -> bool:
    """Return whether nothing was ever created at an address, without changes and without a lease."""
    if is_bucket_url(url):
        return await asyncio.wrap_future(opening_thread(lambda: _has_no_manifest(url)))
    return url == "memory:" or (await marks_at(url)).state == "absent"


def _has_no_manifest(url: str) -> bool:
    return _marks_in_bucket(url).state == "absent"


def _marks_in_bucket(url: str) -> Marks:
    """Look at the manifest alone, which has the new place of a database that was left."""
    from interlock.lanes.objectlog.bucket_protocol import answering  # noqa: PLC0415 -- an extra, which may not be installed.
    from interlock.lanes.objectlog.log import bucket_of  # noqa: PLC0415 -- as above.
    from interlock.lanes.objectlog.manifest import read_manifest  # noqa: PLC0415 -- as above.

    with answering("look for the database"):
        found = read_manifest(bucket_of(parse_bucket_url(url)))
    if found is None:
        return Marks("absent")
    left = found[0].left
    return Marks("unseen") if left is None else Marks("left", left.url, left.epoch)


def _marks_in_file(path: Path) -> Marks:
    if not path.exists():
        return Marks("absent")
    with opened_to_look(path) as (connection, _):
        connection.execute("BEGIN")
        stone, draft = tombstone_of(connection), draft_of(connection)
        noting = is_watched(connection)
    if stone is not None:
        return Marks("left", stone.url, stone.epoch)
    if draft is not None:
        return Marks("arriving", draft.source, draft.epoch)
    return Marks("moving" if noting else "lives")


async def _marks_in_postgres(url: str) -> Marks:
    from interlock.postgres.handover import TOUCHED, handover_marks  # noqa: PLC0415 -- an extra.
    from interlock.postgres.pool import Pool, Record  # noqa: PLC0415 -- an extra, which may not be installed.

    address = parse_postgres_url(url)
    schema = address.schema if "schema=" in url.partition("?")[2] else "public"
    pool = Pool(address._replace(connections_max=1))

    async def fetch(sql: str, values: Sequence[object]) -> Sequence[Record]:
        return await pool.read(sql, *values)

    try:
        [row] = await pool.read(
            "SELECT to_regnamespace($1) IS NULL, to_regclass($2) IS NOT NULL", schema, f"{schema}.{TOUCHED}"
        )
        marks = await handover_marks(fetch, schema)
    finally:
        await pool.close()
    if marks.url:
        return Marks("left", marks.url, marks.epoch)
    if marks.arriving:
        return Marks("arriving", marks.source, marks.arriving)
    return Marks("absent" if row[0] else "moving" if row[1] else "lives")
