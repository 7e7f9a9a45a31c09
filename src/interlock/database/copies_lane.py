"""Copies of a database in PostgreSQL into the file of a lane, and back, with counts and checksums.

The file opens as a lane. Each direction is one transaction at PostgreSQL: it reads one instant, or it writes
everything or nothing. Rows are converted as in a move. Values that the other engine cannot hold are refused before
anything is written.
"""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# apsw's stubs leave the values of SQLite partly open; mypy --strict looks at what is ours.

import contextlib
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Final
from urllib.parse import quote

import apsw

from interlock.catalog.addresses import SUFFIX
from interlock.database.copies import folders_of, parts_of
from interlock.database.copies_postgres import CLOSE_S, SESSION, SHARDS, SNAPSHOT, make_room, schemas_of
from interlock.database.database import Database
from interlock.database.moving.digests import Digest
from interlock.database.moving.lane_rows import lane_rows, to_lane
from interlock.database.moving.lane_shape import shape_of_lane
from interlock.database.moving.numbering import lane_positions, set_lane_positions
from interlock.database.moving.postgres_link import SETTINGS
from interlock.database.moving.postgres_numbering import postgres_positions, set_postgres_positions
from interlock.database.moving.postgres_rows import postgres_rows, to_postgres
from interlock.database.moving.postgres_shape import shape_of_postgres
from interlock.database.moving.shape import Shape, Table
from interlock.database.translation import register
from interlock.errors import BadUsage, CorruptionError, DialectError
from interlock.lanes.backup import Watch
from interlock.lanes.doctor import look_at, opened_to_look
from interlock.lanes.keys import SCHEMA as LANE_KEYS
from interlock.seams import RandomIds, SystemChance, SystemClock
from interlock.sql.postgres.address import Address
from interlock.sql.postgres.failures import told
from interlock.sql.postgres.link import Link, driver_of
from interlock.sql.postgres.turns import GATE
from interlock.sql.syntax import quoted
from interlock.store.postgres.marks import marks_of

AS_ARCHIVE: Final = "Copy it into an archive: a file whose name does not end in .lane."


async def copy_into_lane(address: Address, ready: Path, *, watch: Watch) -> int:
    """Write the database at an address, with its streams, into the file of a lane; return the number of rows.

    Raises TargetNotFound, MovedElsewhere, and DialectError for what a lane cannot hold.
    """
    rows = 0
    async with _connect(address) as link:
        with told(writing=False):
            await link.driver.execute(SNAPSHOT + ";" + SESSION)
            names = await schemas_of(link.driver, address)
        for name in names:
            path = ready
            if name != address.schema:
                [folder, _] = folders_of(ready)
                folder.mkdir(exist_ok=True)
                path = folder / f"{_stream_key(name, address.schema)}{SUFFIX}"
            rows += await _into_lane(link, name, path, watch)
            for left in path.parent.glob(f"{path.name}?*"):
                left.unlink()  # The owner's files beside the file of the lane.
    return rows


def _stream_key(name: str, schema: str) -> str:
    stream = name.removeprefix(f"{schema}__")
    if stream.startswith("=") or stream.isidentifier():
        return stream
    raise DialectError(
        f"{name} is a stream of {schema!r} whose key is unknown, so that its lane could not be found again.",
        why="Its schema is named after a digest of the key.",
        fix=AS_ARCHIVE,
    )


async def _into_lane(link: Link, schema: str, path: Path, watch: Watch) -> int:
    with told(writing=False):
        await link.driver.execute(f"SET LOCAL search_path TO {quoted(schema)}")
    if (await marks_of(link.driver.fetch, schema)).present:
        raise BadUsage(
            f"the schema {schema!r} has workflows, which do not become a lane by being copied.",
            why="A lane keeps them in other tables; to change the engine they are moved: interlock route.",
            fix=AS_ARCHIVE,
        )
    shape = await shape_of_postgres(link, schema)
    await _refuse_shards(link, schema, shape)
    url = f"lanes://{quote(path.with_suffix('').as_posix())}"
    async with Database.open(url) as db:
        for table in shape.tables:
            if not table.ours:
                _ = await db.execute(table.create)
    digests: dict[str, Digest] = {}
    connection = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READWRITE)
    with contextlib.closing(connection):
        _prepare(connection)
        connection.execute(LANE_KEYS)
        for number, table in enumerate(shape.tables):
            watch(f"copying tables of {schema}", number + 1, len(shape.tables))
            digests[table.name] = await _table_into_lane(link, schema, table, connection)
        with connection:
            set_lane_positions(connection, shape, await postgres_positions(link, schema, shape))
    async with Database.open(url) as db:
        for sql in (sql for table in shape.tables for sql in table.indexing):
            _ = await db.execute(sql)
    connection = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READWRITE)
    with contextlib.closing(connection):
        _prepare(connection)
        _verify_lane(connection, shape, digests)
    return sum(digest.rows for digest in digests.values())


async def _table_into_lane(link: Link, schema: str, table: Table, connection: apsw.Connection) -> Digest:
    digest = Digest()
    page = await postgres_rows(link, schema, table)
    while True:
        digest.add(page.rows)
        with connection:
            to_lane(connection, table, page.rows)
        if page.after is None:
            return digest
        page = await postgres_rows(link, schema, table, page.after)


def _verify_lane(connection: apsw.Connection, shape: Shape, digests: dict[str, Digest]) -> None:
    broken = connection.execute("PRAGMA foreign_key_check").fetchall()
    for table in shape.tables:
        found = Digest()
        page = lane_rows(connection, table)
        found.add(page.rows)
        while page.after is not None:
            page = lane_rows(connection, table, page.after)
            found.add(page.rows)
        if found != digests[table.name] or broken:
            raise _mismatch_error(table.name, found, digests[table.name])


async def _refuse_shards(link: Link, schema: str, shape: Shape) -> None:
    if any(table.name == SHARDS for table in shape.tables):
        with told(writing=False):
            [row] = await link.driver.fetch(f"SELECT count(*) FROM {quoted(schema)}.{SHARDS}")  # noqa: S608 -- quoted.
        if row[0]:
            raise DialectError(
                f"the schema {schema!r} has counters with shards, which are databases of their own in a lane.",
                why="In PostgreSQL they are rows of one table.",
                fix=AS_ARCHIVE,
            )


async def restore_lane_into_postgres(file: Path, address: Address, *, force: bool, watch: Watch) -> int:
    """Restore the lane in a file into a schema, in one transaction; return the number of rows."""
    if parts_of(file):
        raise BadUsage(
            f"{file} has streams or shards below it, which are not put into PostgreSQL.",
            why="They are databases of their own, and would have to become schemas or rows.",
            fix="Put it back as a lane: interlock restore FILE lanes:///folder/name.",
        )
    facts = look_at(file, clock=SystemClock(), prepare=lambda connection, _now_us: _prepare(connection))
    for finding in facts.findings:
        if finding.severity == "error":
            raise CorruptionError(f"{file} is damaged: {finding.what}", fix="Use another copy. Nothing was restored.")
    with opened_to_look(file) as (connection, _):
        _prepare(connection)
        connection.execute("BEGIN")
        shape = shape_of_lane(connection)
        async with _connect(address) as link:
            with told(writing=False):
                await link.driver.execute("BEGIN;" + SESSION)
                await make_room(link.driver, address.schema, address, force=force)
                await link.driver.execute(f"CREATE TABLE {quoted(address.schema)}.{GATE} ()")
            rows = await _into_postgres(link, address.schema, shape, connection, watch)
            with told(writing=True):
                await link.driver.execute("COMMIT")
    return rows


async def _into_postgres(link: Link, schema: str, shape: Shape, connection: apsw.Connection, watch: Watch) -> int:
    total = 0
    for number, table in enumerate(shape.tables):
        watch(f"restoring tables of {schema}", number + 1, len(shape.tables))
        with told(writing=False):
            await link.driver.execute(table.first(schema))
        written, found = Digest(), Digest()
        page = lane_rows(connection, table)
        while True:
            written.add(page.rows)
            await to_postgres(link, schema, table, page.rows)
            if page.after is None:
                break
            page = lane_rows(connection, table, page.after)
        page = await postgres_rows(link, schema, table)
        found.add(page.rows)
        while page.after is not None:
            page = await postgres_rows(link, schema, table, page.after)
            found.add(page.rows)
        if found != written:
            raise _mismatch_error(table.name, found, written)
        total += found.rows
    with told(writing=False):
        for sql in [sql for table in shape.tables for sql in table.after(schema)]:
            await link.driver.execute(sql)
        for sql in [sql for table in shape.tables for sql in (*table.last(schema), *table.validated(schema))]:
            await link.driver.execute(sql)
    await set_postgres_positions(link, schema, shape, lane_positions(connection, shape))
    return total


def _mismatch_error(table: str, found: Digest, wanted: Digest) -> CorruptionError:
    return CorruptionError(
        f"{table} has {found.rows:,} rows or a checksum that are not those of the source, {wanted.rows:,} rows.",
        why="Rows were changed on the way, which must not happen.",
        fix="Report it. Nothing was made.",
    )


def _prepare(connection: apsw.Connection) -> None:
    register(connection, lambda: int(SystemClock().wall_s() * 1_000_000), chance=SystemChance(), ids=RandomIds())


@contextlib.asynccontextmanager
async def _connect(address: Address) -> AsyncGenerator[Link]:
    link = Link(await driver_of(address, SETTINGS), address)
    try:
        yield link
    finally:
        await link.end(CLOSE_S)
