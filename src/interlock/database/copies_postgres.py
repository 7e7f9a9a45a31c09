"""Copies of a schema of PostgreSQL into an archive while clients write, and restores from one.

The copy is one transaction with one snapshot. Its locks allow reads and writes, and block changes of tables only. The
server computes counts and checksums of the rows: in the same snapshot for the copy, and again after a restore. A
restore is one transaction too, so that a failure leaves no trace. A schema that it replaces is renamed, not deleted.
"""

# ruff: noqa: S608 -- the names put into statements are quoted.

import contextlib
import re
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Final, Protocol, cast

from interlock.database import archive
from interlock.database.archive import ArchivedSchema, Manifest, Reading, Rows
from interlock.database.copies_definitions import Defined, definitions_of
from interlock.errors import (
    BadUsage,
    CorruptionError,
    InterlockError,
    TargetNotFound,
    UnavailableError,
    UnusableFile,
)
from interlock.lanes.backup import Watch
from interlock.seams import Clock
from interlock.sql.postgres.address import Address, parsed
from interlock.sql.postgres.failures import told
from interlock.sql.postgres.leaving import Found, marks_of, refuse_marked
from interlock.sql.postgres.link import Driver, Link, driver_of
from interlock.sql.syntax import quoted
from interlock.store.postgres import marks as workflow_marks

LOCK_TIMEOUT_S: Final = 30
CLOSE_S: Final = 5.0
SNAPSHOT: Final = "BEGIN ISOLATION LEVEL REPEATABLE READ, READ ONLY"
SESSION: Final = f"""
SET LOCAL statement_timeout = 0; SET LOCAL idle_in_transaction_session_timeout = 0;
SET LOCAL lock_timeout = '{LOCK_TIMEOUT_S}s'; SET LOCAL row_security = off;
SET LOCAL timezone = 'UTC'; SET LOCAL datestyle = 'ISO'; SET LOCAL intervalstyle = 'postgres';
SET LOCAL bytea_output = 'hex'; SET LOCAL extra_float_digits = 1; SET LOCAL enable_seqscan = on"""
"""The text form of values depends on these. `row_security = off` raises an error when rows are hidden from us."""

CHECKSUM: Final = """
SELECT count(*), coalesce(sum(('x' || left(md5(t::text), 16))::bit(64)::bigint::numeric), 0)::text FROM {} t"""
SCHEMAS: Final = """
SELECT nspname FROM pg_namespace WHERE (nspname = $1 OR starts_with(nspname, $1 || '__'))
    AND nspname !~ '__(moved|arriving|replaced|before|made)_[0-9]+$' ORDER BY nspname"""
RELATIONS: Final = "SELECT relname FROM pg_class WHERE relnamespace = to_regnamespace($1) AND relkind = 'r' ORDER BY 1"
SHARDS: Final = "hotrow_counter_shard"
"""In PostgreSQL the shards of counters are rows of one table; in lanes each has a database of its own."""
LOCK: Final = "SELECT pg_advisory_xact_lock(hashtextextended($1, 0))"
STEM_CHARACTERS_MAX: Final = 20
DIGESTS: Final = "SELECT nspname FROM pg_namespace WHERE nspname ~ ('^' || $1 || '__[0-9a-f]{32}$') ORDER BY 1"
DIGESTED: Final = re.compile(r"__[0-9a-f]{32}$")
"""The schema of a stream whose key is not a valid name: its digest depends on the name of the database, too."""


class _Copying(Protocol):
    """The driver's methods for COPY."""

    async def copy_from_query(self, query: str, *, output: object, format: str, timeout: float | None) -> str:  # noqa: A002, ASYNC109 -- the driver's.
        """Pass the rows of a query to a function."""
        ...

    async def copy_to_table(
        self,
        table_name: str,
        *,
        source: object,
        schema_name: str,
        columns: tuple[str, ...],
        format: str,  # noqa: A002
        timeout: float | None,  # noqa: ASYNC109
    ) -> str:
        """Fill a table."""
        ...


async def copy_schema(address: Address, path: Path, *, clock: Clock, watch: Watch) -> Manifest:
    """Write the schema at an address, and the schemas of its streams, into an archive. Raises TargetNotFound."""
    async with _connect(address) as driver:
        with told(writing=False):
            await driver.execute(SNAPSHOT + ";" + SESSION)
            names = await schemas_of(driver, address)
            version = str((await driver.fetch("SHOW server_version"))[0][0])
            with archive.writing(path) as file:
                schemas = [await _schema(driver, name, number, file, watch) for number, name in enumerate(names)]
                manifest = Manifest(
                    format=archive.FORMAT,
                    source=address.shown,
                    time=datetime.fromtimestamp(clock.wall_s(), UTC).isoformat(),
                    server=version,
                    schemas=tuple(schemas),
                )
                file.finish(manifest)
            await driver.execute("ROLLBACK")
    return manifest


async def the_schema(url: str) -> Address:
    """Return the address with its schema. Without one it is the default of workflows if that exists, else `public`."""
    address = parsed(url)
    if any(option.partition("=")[0] == "schema" for option in url.partition("?")[2].split("&")):
        return address
    async with _connect(address) as driver:
        with told(writing=False):
            [(found,)] = await driver.fetch("SELECT to_regnamespace($1) IS NOT NULL", quoted(address.schema))
    return address if found else address._replace(schema="public")


async def schemas_of(driver: Driver, address: Address) -> list[str]:
    """Return the schema of a database and those of its streams. Raises TargetNotFound and MovedElsewhere."""
    names = [str(row[0]) for row in await driver.fetch(SCHEMAS, address.schema)]
    if address.schema not in names:
        raise TargetNotFound(
            f"there is no schema {address.schema!r} at {address.shown}.",
            why="A database on PostgreSQL is a schema, from the first time it is opened.",
            fix="Check the address: the host, the database, and ?schema=.",
        )
    await refuse_left(driver, address)
    await _refuse_ambiguous(driver, address)
    return names


async def refuse_left(driver: Driver, address: Address) -> None:
    """Raise MovedElsewhere for a schema whose database has moved, and UnavailableError for one that is arriving."""

    async def fetch(sql: str, values: Sequence[object]) -> Sequence[Found]:
        return await driver.fetch(sql, *values)

    try:
        with told(writing=False):
            marks = await marks_of(fetch, address.schema)
            marks_of_workflows = await workflow_marks.marks_of(driver.fetch, address.schema)
    except InterlockError as error:
        if workflow_marks.is_missing(error):
            # The snapshot has an older catalog than the current names: a move has removed its mark in between.
            raise UnavailableError(
                f"a move to or from {address.shown} has ended while the copy began.",
                why="A copy shows one moment, and at that moment the schema was only arriving or leaving.",
                fix="Run the copy again. Nothing was copied.",
            ) from error
        raise
    refuse_marked(marks, address.shown)
    workflow_marks.refuse_marked(marks_of_workflows, address.shown)


async def _refuse_ambiguous(driver: Driver, address: Address) -> None:
    """Refuse streams with a digest of a database with a long name: their schemas do not show the whole name."""
    if len(address.schema) > STEM_CHARACTERS_MAX:
        found = [str(row[0]) for row in await driver.fetch(DIGESTS, address.schema[:STEM_CHARACTERS_MAX])]
        if found:
            raise BadUsage(
                f"{found[0]} may be a stream of {address.schema!r}, or of another database whose name begins so.",
                why="A stream whose key is not a name has a schema of 20 characters of the database's and a digest.",
                fix="Copy the schemas with pg_dump, each by its name.",
            )


async def _schema(driver: Driver, name: str, number: int, file: archive.Writing, watch: Watch) -> ArchivedSchema:
    await driver.execute(f"SET LOCAL search_path TO {quoted(name)}")
    defined = await definitions_of(driver.fetch, name)
    if defined.tables:
        listed = ", ".join(f"{quoted(name)}.{quoted(each.table)}" for each in defined.tables)
        await driver.execute(f"LOCK TABLE {listed} IN ACCESS SHARE MODE")
        # A table that was changed before the lock would differ from the snapshot.
        if await definitions_of(driver.fetch, name) != defined:
            raise UnusableFile(
                f"a table of {name!r} was changed just now.", why="The copy had begun before.", fix="Try again."
            )
    rows: list[Rows] = []
    for place, each in enumerate(defined.tables):
        watch(f"copying tables of {name}", place + 1, len(defined.tables))
        rows.append(await _rows(driver, name, each, f"{number}/{place}", file))
    sequences: list[archive.Sequence] = []
    for table, column, sequence in [(each.table, each.column, each.name) for each in defined.sequences]:
        [(value, called)] = await driver.fetch(f"SELECT last_value, is_called FROM {quoted(name)}.{quoted(sequence)}")
        own = "" if table else sequence
        sequences.append(archive.Sequence(table=table, column=column, name=own, value=int(value), called=bool(called)))
    return ArchivedSchema(
        name=name, before=defined.before, rows=tuple(rows), after=defined.after, sequences=tuple(sequences)
    )


async def _rows(driver: Driver, schema: str, defined: Defined, member: str, file: archive.Writing) -> Rows:
    table = f"{quoted(schema)}.{quoted(defined.table)}"
    columns = ", ".join(map(quoted, defined.columns))
    with file.member(member) as stream:
        if defined.columns:
            await cast("_Copying", driver).copy_from_query(
                f"SELECT {columns} FROM ONLY {table}", output=stream.write, format="binary", timeout=None
            )
    [(count, checksum)] = await driver.fetch(CHECKSUM.format(table))
    return Rows(
        table=defined.table,
        columns=defined.columns,
        member=member,
        rows=int(count),
        checksum=str(checksum),
        sha256=stream.sha256,
    )


async def restore_schema(path: Path, address: Address, *, force: bool, watch: Watch) -> Manifest:
    """Restore the archive into the schema at an address. Raises UnusableFile when the schema has tables already."""
    watch("checking the archive", 0, 1)
    with archive.reading(path) as found:
        manifest = found.manifest
        renamed = _new_names(manifest, address.schema)
        async with _connect(address) as driver:
            with told(writing=False):
                await driver.execute("BEGIN;" + SESSION)
                await driver.fetch(LOCK, f"interlock {address.schema}")
                for name in renamed.values():
                    await make_room(driver, name, address, force=force)
                for schema in manifest.schemas:
                    await _restore_rows(driver, schema, renamed[schema.name], found, watch)
            with told(writing=True):
                await driver.execute("COMMIT")
    return manifest


def _new_names(manifest: Manifest, schema: str) -> dict[str, str]:
    """Return the new name of each schema of the archive: streams are named after their database."""
    origin = manifest.schemas[0].name
    if origin != schema and any(DIGESTED.search(each.name) for each in manifest.schemas):
        raise BadUsage(
            f"the archive has streams that are only found below a schema {origin!r}.",
            why="A stream whose key is not a name has a schema with a digest of the key and the database's name.",
            fix=f"Restore it at an address with schema={origin}, in another database if that one is taken.",
        )
    return {each.name: schema + each.name.removeprefix(origin) for each in manifest.schemas}


async def make_room(driver: Driver, schema: str, address: Address, *, force: bool) -> None:
    """Make an empty schema. An existing one is renamed with `force`; otherwise raises UnusableFile."""
    taken = [str(row[0]) for row in await driver.fetch(RELATIONS, quoted(schema))]
    if taken and not force:
        raise UnusableFile(
            f"the schema {schema!r} at {address.shown} has tables already: {', '.join(taken[:5])}.",
            why="What they hold would be gone.",
            fix="Name another schema, or say --force: the old one is then kept under another name.",
        )
    [(exists,)] = await driver.fetch("SELECT to_regnamespace($1) IS NOT NULL", quoted(schema))
    if taken:
        number = 1
        while (await driver.fetch("SELECT to_regnamespace($1) IS NOT NULL", quoted(_aside(schema, number))))[0][0]:
            number += 1
        await driver.execute(f"ALTER SCHEMA {quoted(schema)} RENAME TO {quoted(_aside(schema, number))}")
    if taken or not exists:
        await driver.execute(f"CREATE SCHEMA {quoted(schema)}")


def _aside(schema: str, number: int) -> str:
    ending = f"__replaced_{number}"
    return schema[: 63 - len(ending)] + ending


async def _restore_rows(driver: Driver, schema: ArchivedSchema, name: str, found: Reading, watch: Watch) -> None:
    await driver.execute(f"SET LOCAL search_path TO {quoted(name)}")
    for statement in schema.before:
        await driver.execute(statement)
    for place, rows in enumerate(schema.rows):
        watch(f"restoring tables of {name}", place + 1, len(schema.rows))
        if rows.columns:
            await cast("_Copying", driver).copy_to_table(
                rows.table,
                schema_name=name,
                columns=rows.columns,
                source=_read_pieces(found, rows),
                format="binary",
                timeout=None,
            )
        table = f"{quoted(name)}.{quoted(rows.table)}"
        [(count, checksum)] = await driver.fetch(CHECKSUM.format(table))
        if (int(count), str(checksum)) != (rows.rows, rows.checksum):
            raise CorruptionError(
                f"{rows.table} was restored with {int(count):,} rows and another checksum; {rows.rows:,} were copied.",
                why="The server does not say of the rows what the other one said.",
                fix="Restore it into a PostgreSQL of the same version. Nothing was changed.",
            )
    for each in schema.sequences:
        target = quoted(each.name)
        if each.table:
            [(serial,)] = await driver.fetch("SELECT pg_get_serial_sequence($1, $2)", quoted(each.table), each.column)
            target = str(serial)
        await driver.fetch("SELECT setval($1::regclass, $2, $3)", target, each.value, each.called)
    for statement in schema.after:
        watch(f"indexes and constraints of {name}", 0, len(schema.after))
        await driver.execute(statement)


async def _read_pieces(found: Reading, rows: Rows) -> AsyncIterator[bytes]:
    for data in found.chunks(rows):
        yield data


@contextlib.asynccontextmanager
async def _connect(address: Address) -> AsyncGenerator[Driver]:
    link = Link(await driver_of(address, {}), address)
    try:
        yield link.driver
    finally:
        await link.end(CLOSE_S)  # This ends the transaction, too.
