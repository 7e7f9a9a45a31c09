"""Who lives at a home: every name of its catalog, where it lives, and what its place says about that itself.

A lane of a folder that was only ever opened by its address is in no catalog, and lives there all the same.
Looking changes nothing and needs no lease: a lane's file is read beside its owner, a schema is asked for its marks. A
bucket would have to be replayed for that; `interlock doctor` does so, and here it is not looked at.
"""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# apsw's stubs leave the values of SQLite partly open; mypy --strict looks at what is ours.

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Final, Literal, NamedTuple

import apsw
import msgspec

from interlock.catalog.addresses import SUFFIX, lane_path
from interlock.catalog.catalog import Catalog
from interlock.catalog.entries import Entry, Kind, check_name
from interlock.catalog.opening import opening_thread
from interlock.catalog.secrets import shown
from interlock.errors import BadUsage, InterlockError
from interlock.lanes.arriving import draft_of
from interlock.lanes.doctor import opened_to_look
from interlock.lanes.notes import watched
from interlock.lanes.objects.addresses import is_bucket, parse
from interlock.lanes.tombstone import tombstone_of
from interlock.sql.postgres.address import is_postgres

State = Literal["lives", "moving", "arriving", "left", "absent", "unseen"]
"""`moving`: a move notes what is written there, whether it goes on or was not ended. `arriving`: a draft of a move.
`left`: everything lives elsewhere. `absent`: nothing was made there yet. `unseen`: nobody has looked."""

LOOKS_AT_ONCE: Final = 8


class Resident(msgspec.Struct, frozen=True, kw_only=True):
    """One name of a home."""

    name: str
    kind: Kind
    url: str
    """Where the catalog says that it lives; without secrets."""
    epoch: int
    """Of the move that brought it there; 0 when it was never moved."""
    state: State
    other: str = ""
    """Where it went, or where it comes from."""
    other_epoch: int = 0
    note: str = ""
    """Why it could not be looked at."""


class Marks(NamedTuple):
    """What a place says of its database."""

    state: State
    other: str = ""
    epoch: int = 0


async def residents_of(home: str, *, unlisted: bool = False) -> list[Resident]:
    """All of them, in order of their names: databases first, then machines whose workflows live elsewhere.

    With `unlisted` also the lanes in the folder of the home that its catalog does not know.
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
            return await _resident(catalog, kind, name, entry)

    return await asyncio.gather(*(look(*each) for each in known))


def _lanes_in(folder: Path) -> list[str]:
    return [path.stem for path in folder.glob(f"*{SUFFIX}") if _is_name(path.stem)]


def _is_name(text: str) -> bool:
    try:
        check_name(text)
    except BadUsage:
        return False
    return True


async def _resident(catalog: Catalog, kind: Kind, name: str, entry: Entry) -> Resident:
    url = catalog.home if kind == "workflows" and not entry.url else catalog.address(name, entry)
    found, note = Marks("unseen"), ""
    if kind == "databases":
        try:
            found = await marks_at(url)
        except (InterlockError, OSError, apsw.Error) as error:
            note = error.what if isinstance(error, InterlockError) else f"{error}."
    return Resident(
        name=name,
        kind=kind,
        url=shown(url),
        epoch=entry.epoch,
        state=found.state,
        other=shown(found.other),
        other_epoch=found.epoch,
        note=note,
    )


async def marks_at(url: str) -> Marks:
    """What the place at an address says. Raises what keeps it from being looked at."""
    if is_postgres(url):
        return await _in_postgres(url)
    path = None if is_bucket(url) else lane_path(url)
    return Marks("unseen") if path is None else await asyncio.wrap_future(opening_thread(lambda: _in_file(path)))


async def is_absent(url: str) -> bool:
    """Whether nothing was ever made at an address. Looking makes nothing there, and needs no lease."""
    if is_bucket(url):
        return await asyncio.wrap_future(opening_thread(lambda: _has_no_manifest(url)))
    return url == "memory:" or (await marks_at(url)).state == "absent"


def _has_no_manifest(url: str) -> bool:
    from interlock.lanes.objects.answering import answering  # noqa: PLC0415 -- an extra, which may not be installed.
    from interlock.lanes.objects.door import bucket_of  # noqa: PLC0415 -- as above.
    from interlock.lanes.objects.manifest import KEY  # noqa: PLC0415 -- as above.

    with answering("look for the database"):
        return bucket_of(parse(url)).get(KEY) is None


def _in_file(path: Path) -> Marks:
    if not path.exists():
        return Marks("absent")
    with opened_to_look(path) as (connection, _):
        connection.execute("BEGIN")
        stone, draft = tombstone_of(connection), draft_of(connection)
        noting = watched(connection)
    if stone is not None:
        return Marks("left", stone.url, stone.epoch)
    if draft is not None:
        return Marks("arriving", draft.source, draft.epoch)
    return Marks("moving" if noting else "lives")


async def _in_postgres(url: str) -> Marks:
    from interlock.sql.postgres.address import parsed  # noqa: PLC0415 -- beside the extra.
    from interlock.sql.postgres.leaving import TOUCHED, Found, marks_of  # noqa: PLC0415 -- an extra.
    from interlock.sql.postgres.pool import Pool  # noqa: PLC0415 -- an extra, which may not be installed.

    address = parsed(url)
    schema = address.schema if "schema=" in url.partition("?")[2] else "public"
    pool = Pool(address._replace(connections_max=1))

    async def fetch(sql: str, values: Sequence[object]) -> Sequence[Found]:
        return await pool.read(sql, *values)

    try:
        [row] = await pool.read(
            "SELECT to_regnamespace($1) IS NULL, to_regclass($2) IS NOT NULL", schema, f"{schema}.{TOUCHED}"
        )
        marks = await marks_of(fetch, schema)
    finally:
        await pool.close()
    if marks.url:
        return Marks("left", marks.url, marks.epoch)
    if marks.arriving:
        return Marks("arriving", marks.source, marks.arriving)
    return Marks("absent" if row[0] else "moving" if row[1] else "lives")
