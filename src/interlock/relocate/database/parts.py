"""Parts of a database that are databases of their own: streams, and the shards of counters on lanes.

A part moves by its own tombstone, and its clients follow it (`database.write_streams`). So a move of the whole brings
one part after the other, and the database itself last: while it is sealed no part may be left. A client that creates a
part after that look checks the database again before it writes, finds the tombstone, and creates it at the new place.
"""

import asyncio
import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple, get_args

from interlock.catalog.open_lane import opening_thread
from interlock.errors import BadUsage
from interlock.urls import (
    LANE_SUFFIX,
    PartKind,
    is_bucket_url,
    is_postgres_url,
    lane_path,
    parse_bucket_url,
    parse_postgres_url,
    part_name,
    part_url,
    redact_secrets,
    with_schema,
)

if TYPE_CHECKING:
    from interlock.postgres.pool import Record

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
    begin = f"{_schema(url)}__"
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

    return with_schema(url, part_schema(_schema(url), *part))


async def describe(url: str, part: DatabasePart) -> None:
    """Write down which part of the database at `url` a schema is, where its name does not tell it."""
    if not is_postgres_url(url):
        return
    from interlock.database.postgres_engine import Connections, part_comment, part_schema  # noqa: PLC0415 -- an extra.

    schema = part_schema(_schema(url), *part)
    if schema == f"{_schema(url)}__{part.name}":
        return
    connections = Connections(parse_postgres_url(url)._replace(connections_max=1))
    try:
        await connections.describe(schema, part_comment(_schema(url), *part), local="")
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


def _schema(url: str) -> str:
    return parse_postgres_url(url).schema if "schema=" in url.partition("?")[2] else "public"


async def _schemas_below(url: str) -> "Sequence[Record]":
    from interlock.postgres.handover import MARKS, OWN  # noqa: PLC0415 -- an extra, which may not be installed.
    from interlock.postgres.pool import Pool  # noqa: PLC0415 -- as above.

    pool = Pool(parse_postgres_url(url)._replace(connections_max=1))
    try:
        return await pool.read(SCHEMAS_BELOW, _schema(url), [*OWN, *MARKS])
    finally:
        await asyncio.shield(pool.close())


def _is_own(row: "Record") -> bool:
    """Return whether a schema has a comment or a table of Interlock."""
    return bool(row[2]) or _COMMENT.fullmatch(str(row[1])) is not None


def _schemas(url: str, rows: "Sequence[Record]") -> dict[DatabasePart, str]:
    from interlock.database.postgres_engine import part_schema  # noqa: PLC0415 -- an extra, which may not be installed.

    parent = _schema(url)
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
