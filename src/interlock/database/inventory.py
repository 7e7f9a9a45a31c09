"""Inventory: every name of a home with its address and the state of its place, and the parts of a database.

A lane that was only ever opened by its address is in no catalog; `unlisted` includes it. The inventory changes nothing
and needs no lease: it reads a lane's file beside its owner, and the marks of a schema. It does not read buckets, which
would need a replay; `interlock doctor` does that.

Sections: residents and their places, streams and shards.
"""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# apsw's stubs leave the values of SQLite partly open; mypy --strict looks at what is ours.

import asyncio
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal, NamedTuple, get_args

import apsw
import msgspec

from interlock.catalog.catalog import Catalog
from interlock.catalog.catalog_entries import CatalogEntry, Kind, check_name
from interlock.catalog.open_lane import opening_thread
from interlock.errors import BadUsage, InterlockError
from interlock.lanes.handover import draft_of, is_watched, tombstone_of
from interlock.lanes.lane_doctor import opened_to_look
from interlock.urls import (
    LANE_SUFFIX,
    PartKind,
    is_bucket_url,
    is_postgres_url,
    lane_path,
    parse_bucket_url,
    parse_database_url,
    parse_postgres_url,
    part_name,
    part_url,
    redact_secrets,
    with_schema,
)

if TYPE_CHECKING:
    from interlock.postgres.pool import PostgresRow

# --- Residents and their places --------------------------------------------------------------------------------------
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


class PlaceMarks(NamedTuple):
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
    known: list[tuple[Kind, str, CatalogEntry]] = []
    for kind in kinds:
        names = await catalog.names(kind)
        if unlisted and kind == "databases" and catalog.folder is not None:
            names |= {name: CatalogEntry() for name in _lanes_in(catalog.folder.folder) if name not in names}
        for name, entry in sorted(names.items()):
            known.append((kind, name, entry))
    few = asyncio.Semaphore(LOOKS_AT_ONCE)

    async def look(kind: Kind, name: str, entry: CatalogEntry) -> Resident:
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


async def _load_resident(catalog: Catalog, kind: Kind, name: str, entry: CatalogEntry) -> Resident:
    url = catalog.home if kind == "workflows" and not entry.url else catalog.address(name, entry)
    found, note = PlaceMarks("unseen"), ""
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


async def marks_at(url: str) -> PlaceMarks:
    """Read the marks of the place at an address. Raises the error of the read."""
    if is_postgres_url(url):
        return await _marks_in_postgres(url)
    if is_bucket_url(url):
        return await asyncio.wrap_future(opening_thread(lambda: _marks_in_bucket(url)))
    path = lane_path(url)
    return (
        PlaceMarks("unseen")
        if path is None
        else await asyncio.wrap_future(opening_thread(lambda: _marks_in_file(path)))
    )


async def is_absent(url: str) -> bool:
    """Return whether nothing was ever created at an address, without changes and without a lease."""
    if is_bucket_url(url):
        return await asyncio.wrap_future(opening_thread(lambda: _has_no_manifest(url)))
    return url == "memory:" or (await marks_at(url)).state == "absent"


def _has_no_manifest(url: str) -> bool:
    return _marks_in_bucket(url).state == "absent"


def _marks_in_bucket(url: str) -> PlaceMarks:
    """Look at the manifest alone, which has the new place of a database that was left."""
    from interlock.lanes.objectlog.bucket_protocol import answering  # noqa: PLC0415 -- an extra, which may not be installed.
    from interlock.lanes.objectlog.log import bucket_of  # noqa: PLC0415 -- as above.
    from interlock.lanes.objectlog.manifest import read_manifest  # noqa: PLC0415 -- as above.

    with answering("look for the database"):
        found = read_manifest(bucket_of(parse_bucket_url(url)))
    if found is None:
        return PlaceMarks("absent")
    left = found[0].left
    return PlaceMarks("unseen") if left is None else PlaceMarks("left", left.url, left.epoch)


def _marks_in_file(path: Path) -> PlaceMarks:
    if not path.exists():
        return PlaceMarks("absent")
    with opened_to_look(path) as (connection, _):
        connection.execute("BEGIN")
        stone, draft = tombstone_of(connection), draft_of(connection)
        noting = is_watched(connection)
    if stone is not None:
        return PlaceMarks("left", stone.url, stone.epoch)
    if draft is not None:
        return PlaceMarks("arriving", draft.source, draft.epoch)
    return PlaceMarks("moving" if noting else "lives")


async def _marks_in_postgres(url: str) -> PlaceMarks:
    from interlock.postgres.handover_marks import TOUCHED, handover_marks  # noqa: PLC0415 -- an extra.
    from interlock.postgres.pool import Pool  # noqa: PLC0415 -- an extra, which may not be installed.

    schema = parse_database_url(url).schema
    pool = Pool(parse_postgres_url(url)._replace(connections_max=1))

    async def fetch(sql: str, values: Sequence[object]) -> "Sequence[PostgresRow]":
        return await pool.read(sql, *values)

    try:
        [row] = await pool.read(
            "SELECT to_regnamespace($1) IS NULL, to_regclass($2) IS NOT NULL", schema, f"{schema}.{TOUCHED}"
        )
        marks = await handover_marks(fetch, schema)
    finally:
        await pool.close()
    if marks.url:
        return PlaceMarks("left", marks.url, marks.epoch)
    if marks.arriving:
        return PlaceMarks("arriving", marks.source, marks.arriving)
    return PlaceMarks("absent" if row[0] else "moving" if row[1] else "lives")


# --- Streams and shards ----------------------------------------------------------------------------------------------
# They are databases of their own. A part moves by its own tombstone, and its clients follow it (see
# `streams_and_shards`). So a move of the whole brings one part after the other, and the database itself last: while it
# is sealed no part may be left. A client that creates a part after that look checks the database again before it
# writes, finds the tombstone, and creates it at the new place.

KINDS: Final[tuple[PartKind, ...]] = get_args(PartKind)

SCHEMAS_BELOW: Final = """
SELECT nspname, coalesce(obj_description(oid, 'pg_namespace'), ''),
  EXISTS (SELECT FROM pg_class WHERE relnamespace = pg_namespace.oid AND relname = ANY($2::text[])) FROM pg_namespace
WHERE (starts_with(nspname, $1 || '__') OR nspname ~ ('^' || left($1, 20) || '__[0-9a-f]{32}$'))
  AND nspname !~ '__(moved|arriving|replaced)(_[0-9]+)?$' ORDER BY nspname"""

_COMMENT: Final = re.compile(r"interlock (streams|shards) of ([^:]*): (.*)")
_DIGEST: Final = re.compile(r"[0-9a-f]{32}")


class DatabasePart(NamedTuple):
    """A stream by the name that it has in a lane, or a shard by its number."""

    kind: PartKind
    name: str


async def refuse_other_schemas(url: str) -> None:
    """Raise BadUsage when a schema is named like a part of this database, and Interlock did not make it."""
    if not is_postgres_url(url):
        return
    begin = f"{parse_database_url(url).schema}__"
    found = [str(row[0]) for row in await _schemas_below(url) if not _is_own(row) and str(row[0]).startswith(begin)]
    if found:
        raise BadUsage(
            f"{', '.join(found)}: named like streams of the database at {redact_secrets(url)}, and not made by "
            "Interlock. Nothing was copied.",
            why="They have no tables of Interlock. A move takes streams along, and nothing that belongs to others.",
            fix=f'Rename them: ALTER SCHEMA "{found[0]}" RENAME TO another name; then move again.',
        )


async def parts_of(url: str) -> Mapping[DatabasePart, str]:
    """Return the parts directly below a database, with their addresses."""
    if is_postgres_url(url):
        return _schemas(url, await _schemas_below(url))
    if url == "memory:":
        return {}
    find = _in_bucket if is_bucket_url(url) else _in_folder
    parts = await asyncio.wrap_future(opening_thread(lambda: find(url)))
    return {part: part_url(url, *part) for part in parts}


def address_of(url: str, part: DatabasePart) -> str:
    """Return the address of a part at the place of its database."""
    if not is_postgres_url(url):
        return part_url(url, *part)
    from interlock.database.postgres_engine import part_schema  # noqa: PLC0415 -- an extra, which may not be installed.

    return with_schema(url, part_schema(parse_database_url(url).schema, *part))


async def describe_part(url: str, part: DatabasePart) -> None:
    """Write down which part of the database at `url` a schema is, where its name does not tell it."""
    if not is_postgres_url(url):
        return
    from interlock.database.postgres_engine import Connections, part_comment, part_schema  # noqa: PLC0415 -- an extra.

    schema = part_schema(parse_database_url(url).schema, *part)
    if schema == f"{parse_database_url(url).schema}__{part.name}":
        return
    connections = Connections(parse_postgres_url(url)._replace(connections_max=1))
    try:
        await connections.describe(schema, part_comment(parse_database_url(url).schema, *part), local="")
    finally:
        await connections.close()


def _in_folder(url: str) -> list[DatabasePart]:
    path = lane_path(url)
    assert path is not None
    name = path.name.removesuffix(LANE_SUFFIX)
    return [
        DatabasePart(kind, file.name.removesuffix(LANE_SUFFIX))
        for kind in KINDS
        for file in sorted(path.with_name(f"{name}.{kind}").glob(f"*{LANE_SUFFIX}"))
    ]


def _in_bucket(url: str) -> list[DatabasePart]:
    from interlock.lanes.objectlog.bucket_protocol import answering  # noqa: PLC0415 -- an extra, which may not be installed.
    from interlock.lanes.objectlog.log import folder_of  # noqa: PLC0415 -- as above.
    from interlock.lanes.objectlog.manifest import KEY  # noqa: PLC0415 -- as above.

    address = parse_bucket_url(url)
    folder = folder_of(address)
    found: list[DatabasePart] = []
    with answering("look for streams and shards"):
        for kind in KINDS:
            begin = f"{address.name}.{kind}/"
            for key in folder.keys(begin):
                name, _, rest = key.removeprefix(begin).partition("/")
                if rest == KEY:
                    found.append(DatabasePart(kind, part_name(name)))
    return found


async def _schemas_below(url: str) -> "Sequence[PostgresRow]":
    from interlock.postgres.handover_marks import MARKS, OWN  # noqa: PLC0415 -- an extra, which may not be installed.
    from interlock.postgres.pool import Pool  # noqa: PLC0415 -- as above.

    pool = Pool(parse_postgres_url(url)._replace(connections_max=1))
    try:
        return await pool.read(SCHEMAS_BELOW, parse_database_url(url).schema, [*OWN, *MARKS])
    finally:
        await asyncio.shield(pool.close())


def _is_own(row: "PostgresRow") -> bool:
    """Return whether a schema has a comment or a table of Interlock."""
    return bool(row[2]) or _COMMENT.fullmatch(str(row[1])) is not None


def _schemas(url: str, rows: "Sequence[PostgresRow]") -> dict[DatabasePart, str]:
    from interlock.database.postgres_engine import part_schema  # noqa: PLC0415 -- an extra, which may not be installed.

    parent = parse_database_url(url).schema
    found: dict[DatabasePart, str] = {}
    for row in filter(_is_own, rows):
        schema, described = str(row[0]), _COMMENT.fullmatch(str(row[1]))
        rest = schema.removeprefix(f"{parent}__")
        if described is not None:
            if described[2] == parent:
                kind: PartKind = "streams" if described[1] == "streams" else "shards"
                found[DatabasePart(kind, described[3])] = with_schema(url, schema)
        elif _DIGEST.fullmatch(rest.rpartition("__")[2]):
            raise BadUsage(
                f"the schema {schema} below {redact_secrets(url)} is a stream whose key is not known.",
                why="Its name is a digest of the key, and it was created before keys were written down beside it.",
                fix="Open the stream once with this version of Interlock, as db.stream(key), and move again.",
            )
        elif "=" in rest:
            raise BadUsage(
                f"the schema {schema} below {redact_secrets(url)} is a stream that no address can name.",
                why="An early preview named it, with a sign that only quoted names have.",
                fix=f'ALTER SCHEMA "{schema}" RENAME TO {part_schema(parent, "streams", rest)}; then move again.',
            )
        elif "__" not in rest:
            found[DatabasePart("streams", rest)] = with_schema(url, schema)
    return found
