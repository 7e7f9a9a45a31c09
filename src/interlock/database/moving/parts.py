"""Refusal of databases with streams or with shards of counters, which a move does not copy.

A stream is a database of its own, and so is each shard of a counter on lanes; on PostgreSQL the shards of a counter
are rows. A move copies the rows of one database, and would silently lose the others. So a database with such parts is
refused before anything is copied (`apart`), and again in the seal, because one may have been created meanwhile. A
counter records that it has shards before it writes the first of them. After it has created a part, a client checks
the database again (`Database.stream`), and so sees the tombstone of a faster move.
"""

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Final, Protocol

from interlock.catalog.addresses import SUFFIX, lane_path
from interlock.catalog.secrets import shown
from interlock.database.moving.lane_rows import Page
from interlock.database.moving.shape import Shape, Table
from interlock.database.moving.values import StoredRow
from interlock.errors import BadUsage
from interlock.lanes.objects.addresses import is_bucket
from interlock.sql.postgres.address import is_postgres, parsed

COUNTERS: Final = "hotrow_counter"
SHARDS: Final = "shard_count"
NAMED_MAX: Final = 3
ROWS_AT_ONCE: Final = 1_000

FOLD: Final = (
    "add what its shards hold to the rows of its counters, with the program of docs/how-to/move-a-database.md, under "
    "“Counters with shards”."
)

SCHEMAS_BELOW: Final = """
SELECT nspname FROM pg_namespace
WHERE (starts_with(nspname, $1 || '__') OR nspname ~ ('^' || left($1, 20) || '__[0-9a-f]{32,64}$'))
  AND nspname !~ '__(moved|arriving|replaced)(_[0-9]+)?$' ORDER BY nspname"""


class Paged(Protocol):
    """An end of a move with readable rows."""

    async def page(self, table: Table, after: StoredRow | None, limit: int) -> Page:
        """Return a page of rows in the order of the key."""
        ...


async def refuse_parts(end: Paged, shape: Shape, source: str, target: str) -> None:
    """Raise BadUsage for a database with streams, or with counters whose shards the other engine keeps elsewhere."""
    await _refuse_streams(source)
    if is_postgres(source) and is_postgres(target):
        return
    for table in shape.tables:
        names = [column.name for column in table.columns]
        if table.name == COUNTERS and SHARDS in names:
            await _refuse_sharded(end, table, names.index(SHARDS), source)


async def _refuse_streams(source: str) -> None:
    found = await _in_postgres(source) if is_postgres(source) else _in_folder(source)
    if found:
        raise BadUsage(
            f"{shown(source)} has {len(found):,} streams or shards below it: {', '.join(found[:NAMED_MAX])}"
            f"{', …' if len(found) > NAMED_MAX else ''}.",
            why="Each of them is a database of its own, and a move copies the rows of one: these would be lost.",
            fix=f"Leave it where it is; or end the programs that use it, and {_first(found)}",
        )


def _first(found: Sequence[str]) -> str:
    if all(".shards/" in each for each in found):
        return FOLD
    return "bring the rows of each stream into the database itself; then put the streams aside."


async def _refuse_sharded(end: Paged, table: Table, place: int, source: str) -> None:
    after: StoredRow | None = None
    while True:
        page = await end.page(table, after, ROWS_AT_ONCE)
        sharded = [row for row in page.rows if row[place] != 0]
        if sharded:
            raise BadUsage(
                f"a counter of {shown(source)} is sharded: {sharded[0][0]!r}.",
                why="On lanes each shard is a database of its own, on PostgreSQL a row: a move brings neither over.",
                fix=f"Leave it where it is; or end the programs that use it, and {FOLD}",
            )
        after = page.after
        if after is None:
            return


def _in_folder(source: str) -> Sequence[str]:
    path = None if is_bucket(source) else lane_path(source)
    if path is None:
        return ()
    name = path.name.removesuffix(SUFFIX)
    folders: list[Path] = [path.with_name(f"{name}.{kind}") for kind in ("streams", "shards")]
    return [str(file.relative_to(path.parent)) for folder in folders for file in sorted(folder.glob(f"*{SUFFIX}"))]


async def _in_postgres(source: str) -> Sequence[str]:
    from interlock.sql.postgres.pool import Pool  # noqa: PLC0415 -- an extra, which may not be installed.

    address = parsed(source)
    schema = address.schema if "schema=" in source.partition("?")[2] else "public"
    pool = Pool(address._replace(connections_max=1))
    try:
        return [str(row[0]) for row in await pool.read(SCHEMAS_BELOW, schema)]
    finally:
        await asyncio.shield(pool.close())
