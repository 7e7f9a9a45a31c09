"""Copies of a schema of PostgreSQL while clients write, into an archive or the file of a lane, and their restore.

A copy is one transaction with one snapshot. Its locks allow reads and writes, and block changes of tables only. A
restore is one transaction too, so that a failure leaves no trace. A schema that it replaces is renamed, not deleted.
Counts and checksums of the rows are compared after each direction.

Sections: definitions of a schema, archives, lanes.
"""

# ruff: noqa: S608 -- the names put into statements are quoted.

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# apsw's stubs leave the values of SQLite partly open; mypy --strict looks at what is ours.

import contextlib
import re
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Generator, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Final, NamedTuple, Protocol, cast
from urllib.parse import quote

import apsw

from interlock.backup import postgres_archive
from interlock.backup.lane_copies import folders_of, parts_of, prepare_connection
from interlock.backup.postgres_archive import ArchivedSchema, ArchiveManifest, ArchiveReader, Rows
from interlock.clock import Clock, SystemClock
from interlock.database.database import Database
from interlock.errors import (
    BadUsage,
    CorruptionError,
    DialectError,
    InterlockError,
    TargetNotFound,
    UnavailableError,
    UnusableFile,
)
from interlock.lanes.idempotency_keys import SCHEMA as LANE_KEYS
from interlock.lanes.lane_doctor import look_at, opened_to_look
from interlock.lanes.objectlog.bucket_protocol import Watch
from interlock.postgres.handover_marks import GATE, handover_marks, refuse_marked
from interlock.postgres.pool import Driver, Link, PostgresRow, driver_of
from interlock.postgres.translate_errors import is_missing, translate_errors
from interlock.relocate.lane_shape import shape_of_lane
from interlock.relocate.postgres_rows import (
    SETTINGS,
    postgres_positions,
    postgres_rows,
    set_postgres_positions,
    to_postgres,
)
from interlock.relocate.postgres_shape import ENUMERATIONS, shape_of_postgres
from interlock.relocate.rows import Digest, StoredRow, lane_positions, lane_rows, set_lane_positions, to_lane
from interlock.relocate.shape import Shape, Table, enumeration_text, searching
from interlock.sql.parse import quoted_name
from interlock.sql.types import enumeration
from interlock.store.postgres import migrations as workflow_marks
from interlock.urls import LANE_SUFFIX, PostgresAddress, has_schema, parse_postgres_url

# --- Definitions of a schema -----------------------------------------------------------------------------------------
# The texts are the server's (`pg_get_constraintdef` and similar), for a session whose search_path is the schema. So
# they do not name the schema and work in another one. A schema with anything else (functions, triggers, domains,
# partitions) is refused, because a copy would silently lose it; pg_dump can copy it.

Fetch = Callable[..., Awaitable[Sequence[PostgresRow]]]
"""Runs a statement and returns its rows."""

MARKS: Final = ("interlock_touched", "interlock_watched", "interlock_arrived", "workflows_arriving")
"""Tables of a mover. They belong to the place and not to the database, and are not copied."""

OTHERS: Final = """
SELECT CASE relkind WHEN 'p' THEN 'the partitioned table ' WHEN 'm' THEN 'the materialized view '
    WHEN 'f' THEN 'the foreign table ' WHEN 'c' THEN 'the type ' ELSE 'the inherited table ' END || relname
FROM pg_class c WHERE relnamespace = $1::regnamespace AND (relkind IN ('p', 'm', 'f', 'c')
    OR EXISTS (SELECT FROM pg_inherits i WHERE i.inhrelid = c.oid AND relkind = 'r'))
UNION ALL SELECT 'the function ' || proname FROM pg_proc
WHERE pronamespace = $1::regnamespace AND proname NOT LIKE 'interlock\\_%'
UNION ALL SELECT 'the type ' || typname FROM pg_type
WHERE typnamespace = $1::regnamespace AND typtype IN ('d', 'r')
UNION ALL SELECT 'the trigger ' || tgname || ' of ' || relname FROM pg_trigger t JOIN pg_class c ON c.oid = tgrelid
WHERE relnamespace = $1::regnamespace AND NOT tgisinternal AND tgname NOT LIKE 'interlock\\_%'
UNION ALL SELECT 'the policy ' || polname || ' of ' || relname FROM pg_policy p JOIN pg_class c ON c.oid = polrelid
WHERE relnamespace = $1::regnamespace ORDER BY 1"""

TABLES: Final = """
SELECT c.oid, relname, array_to_string(reloptions, ', '), relpersistence = 'u' FROM pg_class c
WHERE relnamespace = $1::regnamespace AND relkind = 'r' AND relname <> ALL ($2::text[]) ORDER BY relname"""

COLUMNS: Final = """
SELECT attname, format_type(atttypid, atttypmod), attnotnull, pg_get_expr(adbin, adrelid), attidentity::text,
    attgenerated::text, CASE WHEN attcollation <> typcollation THEN collname END
FROM pg_attribute a JOIN pg_type t ON t.oid = atttypid LEFT JOIN pg_attrdef d ON adrelid = attrelid AND adnum = attnum
LEFT JOIN pg_collation l ON l.oid = attcollation
WHERE attrelid = $1 AND attnum > 0 AND NOT attisdropped ORDER BY attnum"""

CONSTRAINTS: Final = """
SELECT relname, conname, contype = 'f', pg_get_constraintdef(o.oid)
FROM pg_constraint o JOIN pg_class c ON c.oid = conrelid
WHERE relnamespace = $1::regnamespace AND contype IN ('p', 'u', 'c', 'x', 'f') AND relkind = 'r'
    AND relname <> ALL ($2::text[]) ORDER BY contype = 'f', relname, conname"""

INDEXES: Final = """
SELECT relname, pg_get_indexdef(indexrelid) FROM pg_index JOIN pg_class c ON c.oid = indrelid
WHERE relnamespace = $1::regnamespace AND relkind = 'r' AND relname <> ALL ($2::text[])
    AND NOT EXISTS (SELECT FROM pg_constraint WHERE conindid = indexrelid AND contype IN ('p', 'u', 'x'))
ORDER BY indexrelid::regclass::text"""

SEQUENCES: Final = """
SELECT c.relname, format_type(seqtypid, NULL), seqstart, seqincrement, seqmin, seqmax, seqcache, seqcycle,
    d.deptype::text, t.relname, a.attname
FROM pg_sequence s JOIN pg_class c ON c.oid = seqrelid
LEFT JOIN pg_depend d ON d.objid = c.oid AND d.deptype IN ('a', 'i') AND d.classid = 'pg_class'::regclass
    AND d.refclassid = 'pg_class'::regclass AND d.refobjsubid > 0
LEFT JOIN pg_class t ON t.oid = d.refobjid LEFT JOIN pg_attribute a ON a.attrelid = t.oid AND a.attnum = d.refobjsubid
WHERE c.relnamespace = $1::regnamespace AND coalesce(t.relname <> ALL ($2::text[]), true) ORDER BY c.relname"""

VIEWS: Final = """
SELECT relname, pg_get_viewdef(oid) FROM pg_class
WHERE relnamespace = $1::regnamespace AND relkind = 'v' ORDER BY oid"""


class DefinedTable(NamedTuple):
    """A table, and its columns that are written."""

    table: str
    columns: tuple[str, ...]


class DefinedSequence(NamedTuple):
    """A sequence; `table` and `column` name its identity column (GENERATED … AS IDENTITY)."""

    name: str
    table: str
    column: str


class Definitions(NamedTuple):
    """A schema without its rows."""

    before: tuple[str, ...]
    after: tuple[str, ...]
    tables: tuple[DefinedTable, ...]
    sequences: tuple[DefinedSequence, ...]


async def definitions_of(fetch: Fetch, schema: str) -> Definitions:
    """Return the definitions of a schema. Raises DialectError for objects that cannot be copied."""
    name = quoted_name(schema)
    others = [str(row[0]) for row in await fetch(OTHERS, name)]
    if others:
        raise DialectError(
            f"the schema {schema!r} has more than tables, sequences, enumerations and views: {'; '.join(others[:10])}.",
            why="A copy must not silently leave out a part of a database.",
            fix="Copy it with pg_dump, which knows everything that PostgreSQL has.",
        )
    before, owned, identities = await _sequence_statements(fetch, name)
    tables: list[DefinedTable] = []
    for oid, table, options, unlogged in await fetch(TABLES, name, MARKS):
        create, columns = await _table_columns(fetch, int(oid), str(table), identities)
        tables.append(DefinedTable(str(table), columns))
        kind = "UNLOGGED TABLE" if unlogged else "TABLE"
        before.append(f"CREATE {kind} {quoted_name(str(table))} ({create})" + (f" WITH ({options})" if options else ""))
    before += owned
    kinds = [enumeration(str(kind), labels) for kind, labels in await fetch(ENUMERATIONS, schema)]
    before = [*map(enumeration_text, kinds), *before]
    after = [_index_statement(str(text), schema) for _, text in await fetch(INDEXES, name, MARKS)]
    keys: list[str] = []
    references: list[str] = []
    for table, constraint, refers, text in await fetch(CONSTRAINTS, name, MARKS):
        statement = f"ALTER TABLE {quoted_name(str(table))} ADD CONSTRAINT {quoted_name(str(constraint))} {text}"
        (references if refers else keys).append(statement)
    views = [f"CREATE VIEW {quoted_name(str(view))} AS {text}" for view, text in await fetch(VIEWS, name)]
    sequences = tuple(
        DefinedSequence(str(row[0]), *((str(row[9]), str(row[10])) if row[8] == "i" else ("", "")))
        for row in await fetch(SEQUENCES, name, MARKS)
    )
    return Definitions(tuple(before), (*keys, *after, *references, *views), tuple(tables), sequences)


async def _sequence_statements(fetch: Fetch, name: str) -> tuple[list[str], list[str], dict[tuple[str, str], str]]:
    """Return statements before the tables, statements after them, and the options of identity columns."""
    made: list[str] = []
    owned: list[str] = []
    identities: dict[tuple[str, str], str] = {}
    for row in await fetch(SEQUENCES, name, MARKS):
        sequence, kind, start, step, least, most, cache, cycle, how, table, column = cast(
            "tuple[object, ...]", tuple(row)
        )
        options = (
            f"START WITH {start} INCREMENT BY {step} MINVALUE {least} MAXVALUE {most} CACHE {cache}"
            f"{' CYCLE' if cycle else ''}"
        )
        if how == "i":
            identities[str(table), str(column)] = f"SEQUENCE NAME {quoted_name(str(sequence))} {options}"
            continue
        made.append(f"CREATE SEQUENCE {quoted_name(str(sequence))} AS {kind} {options}")
        if how == "a":
            owner = f"{quoted_name(str(table))}.{quoted_name(str(column))}"
            owned.append(f"ALTER SEQUENCE {quoted_name(str(sequence))} OWNED BY {owner}")
    return made, owned, identities


async def _table_columns(
    fetch: Fetch, oid: int, table: str, identities: dict[tuple[str, str], str]
) -> tuple[str, tuple[str, ...]]:
    parts: list[str] = []
    written: list[str] = []
    for row in await fetch(COLUMNS, oid):
        name, kind, filled, default, identity, generated, collation = tuple(row)
        part = f"{quoted_name(str(name))} {kind}"
        part += f" COLLATE {quoted_name(str(collation))}" if collation else ""
        if identity:
            how = "ALWAYS" if identity == "a" else "BY DEFAULT"
            part += f" GENERATED {how} AS IDENTITY ({identities[table, str(name)]})"
        elif generated:
            part += f" GENERATED ALWAYS AS ({default}) {'STORED' if generated == 's' else 'VIRTUAL'}"
        elif default is not None:
            part += f" DEFAULT {default}"
        parts.append(part + (" NOT NULL" if filled else ""))
        if not generated:
            written.append(str(name))
    return ", ".join(parts), tuple(written)


def _index_statement(text: str, schema: str) -> str:
    """Return the statement that makes an index, without the schema of its table."""
    for name in (quoted_name(schema), schema):
        text = text.replace(f" ON {name}.", " ON ", 1)
    return text


# --- Archives --------------------------------------------------------------------------------------------------------

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
DIGEST_SUFFIX: Final = re.compile(r"__[0-9a-f]{32}$")
"""The schema of a stream whose key is not a valid name: its digest depends on the name of the database, too."""


class _CopyDriver(Protocol):
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


async def copy_schema(address: PostgresAddress, path: Path, *, clock: Clock, watch: Watch) -> ArchiveManifest:
    """Write the schema at an address, and the schemas of its streams, into an archive. Raises TargetNotFound."""
    async with _connect(address, {}) as link:
        driver = link.driver
        with translate_errors(writing=False):
            await driver.execute(SNAPSHOT + ";" + SESSION)
            names = await schemas_of(driver, address)
            version = str((await driver.fetch("SHOW server_version"))[0][0])
            with postgres_archive.writing(path) as file:
                schemas = [
                    await _archive_schema(driver, name, number, file, watch) for number, name in enumerate(names)
                ]
                manifest = ArchiveManifest(
                    format=postgres_archive.FORMAT,
                    source=address.redacted_url,
                    time=datetime.fromtimestamp(clock.wall_s(), UTC).isoformat(),
                    server=version,
                    schemas=tuple(schemas),
                )
                file.finish(manifest)
            await driver.execute("ROLLBACK")
    return manifest


async def address_with_schema(url: str) -> PostgresAddress:
    """Return the address with its schema. Without one it is the default of workflows if that exists, else `public`."""
    address = parse_postgres_url(url)
    if has_schema(url):
        return address
    async with _connect(address, {}) as link:
        with translate_errors(writing=False):
            [(found,)] = await link.driver.fetch("SELECT to_regnamespace($1) IS NOT NULL", quoted_name(address.schema))
    return address if found else address._replace(schema="public")


async def schemas_of(driver: Driver, address: PostgresAddress) -> list[str]:
    """Return the schema of a database and those of its streams. Raises TargetNotFound and MovedElsewhere."""
    names = [str(row[0]) for row in await driver.fetch(SCHEMAS, address.schema)]
    if address.schema not in names:
        raise TargetNotFound(
            f"there is no schema {address.schema!r} at {address.redacted_url}.",
            why="A database on PostgreSQL is a schema, from the first time it is opened.",
            fix="Check the address: the host, the database, and ?schema=.",
        )
    await refuse_left(driver, address)
    await _refuse_ambiguous(driver, address)
    return names


async def refuse_left(driver: Driver, address: PostgresAddress) -> None:
    """Raise MovedElsewhere for a schema whose database has moved, and UnavailableError for one that is arriving."""

    async def fetch(sql: str, values: Sequence[object]) -> Sequence[PostgresRow]:
        return await driver.fetch(sql, *values)

    try:
        with translate_errors(writing=False):
            marks = await handover_marks(fetch, address.schema)
            marks_of_workflows = await workflow_marks.marks_of(driver.fetch, address.schema)
    except InterlockError as error:
        if is_missing(error):
            # The snapshot has an older catalog than the current names: a move has removed its mark in between.
            raise UnavailableError(
                f"a move to or from {address.redacted_url} has ended while the copy began.",
                why="A copy shows one moment, and at that moment the schema was only arriving or leaving.",
                fix="Run the copy again. Nothing was copied.",
            ) from error
        raise
    refuse_marked(marks, address.redacted_url)
    workflow_marks.refuse_marked(marks_of_workflows, address.redacted_url)


async def _refuse_ambiguous(driver: Driver, address: PostgresAddress) -> None:
    """Refuse streams with a digest of a database with a long name: their schemas do not show the whole name."""
    if len(address.schema) > STEM_CHARACTERS_MAX:
        found = [str(row[0]) for row in await driver.fetch(DIGESTS, address.schema[:STEM_CHARACTERS_MAX])]
        if found:
            raise BadUsage(
                f"{found[0]} may be a stream of {address.schema!r}, or of another database whose name begins so.",
                why="A stream whose key is not a name has a schema of 20 characters of the database's and a digest.",
                fix="Copy the schemas with pg_dump, each by its name.",
            )


async def _archive_schema(
    driver: Driver, name: str, number: int, file: postgres_archive.ArchiveWriter, watch: Watch
) -> ArchivedSchema:
    await driver.execute(f"SET LOCAL search_path TO {quoted_name(name)}")
    defined = await definitions_of(driver.fetch, name)
    if defined.tables:
        listed = ", ".join(f"{quoted_name(name)}.{quoted_name(each.table)}" for each in defined.tables)
        await driver.execute(f"LOCK TABLE {listed} IN ACCESS SHARE MODE")
        # A table that was changed before the lock would differ from the snapshot.
        if await definitions_of(driver.fetch, name) != defined:
            raise UnusableFile(
                f"a table of {name!r} was changed just now.", why="The copy had begun before.", fix="Try again."
            )
    rows: list[Rows] = []
    for place, each in enumerate(defined.tables):
        watch(f"copying tables of {name}", place + 1, len(defined.tables))
        rows.append(await _archive_rows(driver, name, each, f"{number}/{place}", file))
    sequences: list[postgres_archive.Sequence] = []
    for table, column, sequence in [(each.table, each.column, each.name) for each in defined.sequences]:
        [(value, called)] = await driver.fetch(
            f"SELECT last_value, is_called FROM {quoted_name(name)}.{quoted_name(sequence)}"
        )
        own = "" if table else sequence
        sequences.append(
            postgres_archive.Sequence(table=table, column=column, name=own, value=int(value), called=bool(called))
        )
    return ArchivedSchema(
        name=name, before=defined.before, rows=tuple(rows), after=defined.after, sequences=tuple(sequences)
    )


async def _archive_rows(
    driver: Driver, schema: str, defined: DefinedTable, member: str, file: postgres_archive.ArchiveWriter
) -> Rows:
    table = f"{quoted_name(schema)}.{quoted_name(defined.table)}"
    columns = ", ".join(map(quoted_name, defined.columns))
    with file.member(member) as stream:
        if defined.columns:
            await cast("_CopyDriver", driver).copy_from_query(
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


async def restore_schema(path: Path, address: PostgresAddress, *, force: bool, watch: Watch) -> ArchiveManifest:
    """Restore the archive into the schema at an address. Raises UnusableFile when the schema has tables already."""
    watch("checking the archive", 0, 1)
    with postgres_archive.reading(path) as found:
        manifest = found.manifest
        renamed = _new_names(manifest, address.schema)
        async with _connect(address, {}) as link:
            driver = link.driver
            with translate_errors(writing=False):
                await driver.execute("BEGIN;" + SESSION)
                await driver.fetch(LOCK, f"interlock {address.schema}")
                for name in renamed.values():
                    await make_room(driver, name, address, force=force)
                for schema in manifest.schemas:
                    await _restore_rows(driver, schema, renamed[schema.name], found, watch)
            with translate_errors(writing=True):
                await driver.execute("COMMIT")
    return manifest


def _new_names(manifest: ArchiveManifest, schema: str) -> dict[str, str]:
    """Return the new name of each schema of the archive: streams are named after their database."""
    origin = manifest.schemas[0].name
    if origin != schema and any(DIGEST_SUFFIX.search(each.name) for each in manifest.schemas):
        raise BadUsage(
            f"the archive has streams that are only found below a schema {origin!r}.",
            why="A stream whose key is not a name has a schema with a digest of the key and the database's name.",
            fix=f"Restore it at an address with schema={origin}, in another database if that one is taken.",
        )
    return {each.name: schema + each.name.removeprefix(origin) for each in manifest.schemas}


async def make_room(driver: Driver, schema: str, address: PostgresAddress, *, force: bool) -> None:
    """Make an empty schema. An existing one is renamed with `force`; otherwise raises UnusableFile."""
    taken = [str(row[0]) for row in await driver.fetch(RELATIONS, quoted_name(schema))]
    if taken and not force:
        raise UnusableFile(
            f"the schema {schema!r} at {address.redacted_url} has tables already: {', '.join(taken[:5])}.",
            why="What they hold would be gone.",
            fix="Name another schema, or say --force: the old one is then kept under another name.",
        )
    [(exists,)] = await driver.fetch("SELECT to_regnamespace($1) IS NOT NULL", quoted_name(schema))
    if taken:
        number = 1
        while (await driver.fetch("SELECT to_regnamespace($1) IS NOT NULL", quoted_name(_aside(schema, number))))[0][0]:
            number += 1
        await driver.execute(f"ALTER SCHEMA {quoted_name(schema)} RENAME TO {quoted_name(_aside(schema, number))}")
    if taken or not exists:
        await driver.execute(f"CREATE SCHEMA {quoted_name(schema)}")


def _aside(schema: str, number: int) -> str:
    ending = f"__replaced_{number}"
    return schema[: 63 - len(ending)] + ending


async def _restore_rows(driver: Driver, schema: ArchivedSchema, name: str, found: ArchiveReader, watch: Watch) -> None:
    await driver.execute(f"SET LOCAL search_path TO {quoted_name(name)}")
    for statement in schema.before:
        await driver.execute(statement)
    for place, rows in enumerate(schema.rows):
        watch(f"restoring tables of {name}", place + 1, len(schema.rows))
        if rows.columns:
            await cast("_CopyDriver", driver).copy_to_table(
                rows.table,
                schema_name=name,
                columns=rows.columns,
                source=_read_pieces(found, rows),
                format="binary",
                timeout=None,
            )
        table = f"{quoted_name(name)}.{quoted_name(rows.table)}"
        [(count, checksum)] = await driver.fetch(CHECKSUM.format(table))
        if (int(count), str(checksum)) != (rows.rows, rows.checksum):
            raise CorruptionError(
                f"{rows.table} was restored with {int(count):,} rows and another checksum; {rows.rows:,} were copied.",
                why="The server does not say of the rows what the other one said.",
                fix="Restore it into a PostgreSQL of the same version. Nothing was changed.",
            )
    for each in schema.sequences:
        target = quoted_name(each.name)
        if each.table:
            [(serial,)] = await driver.fetch(
                "SELECT pg_get_serial_sequence($1, $2)", quoted_name(each.table), each.column
            )
            target = str(serial)
        await driver.fetch("SELECT setval($1::regclass, $2, $3)", target, each.value, each.called)
    for statement in schema.after:
        watch(f"indexes and constraints of {name}", 0, len(schema.after))
        await driver.execute(statement)


async def _read_pieces(found: ArchiveReader, rows: Rows) -> AsyncIterator[bytes]:
    for data in found.chunks(rows):
        yield data


@contextlib.asynccontextmanager
async def _connect(address: PostgresAddress, settings: Mapping[str, str]) -> AsyncGenerator[Link]:
    link = Link(await driver_of(address, settings), address)
    try:
        yield link
    finally:
        await link.end(CLOSE_S)  # This ends the transaction, too.


# --- Lanes -----------------------------------------------------------------------------------------------------------
# Rows are converted as in a move. Values that the other engine cannot hold are refused before anything is written.

AS_ARCHIVE: Final = "Copy it into an archive: a file whose name does not end in .lane."


async def copy_into_lane(address: PostgresAddress, ready: Path, *, watch: Watch) -> int:
    """Write the database at an address, with its streams, into the file of a lane; return the number of rows.

    Raises TargetNotFound, MovedElsewhere, and DialectError for what a lane cannot hold.
    """
    rows = 0
    async with _connect(address, SETTINGS) as link:
        with translate_errors(writing=False):
            await link.driver.execute(SNAPSHOT + ";" + SESSION)
            names = await schemas_of(link.driver, address)
        for name in names:
            path = ready
            if name != address.schema:
                [folder, _] = folders_of(ready)
                folder.mkdir(exist_ok=True)
                path = folder / f"{_stream_key(name, address.schema)}{LANE_SUFFIX}"
            rows += await _schema_into_lane(link, name, path, watch)
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


async def _schema_into_lane(link: Link, schema: str, path: Path, watch: Watch) -> int:
    with translate_errors(writing=False):
        await link.driver.execute(f"SET LOCAL search_path TO {quoted_name(schema)}")
    if (await workflow_marks.marks_of(link.driver.fetch, schema)).present:
        raise BadUsage(
            f"the schema {schema!r} has workflows, which do not become a lane by being copied.",
            why="A lane keeps them in other tables; to change the engine they are moved: interlock route.",
            fix=AS_ARCHIVE,
        )
    shape = await shape_of_postgres(link, schema)
    await _refuse_shards(link, schema, shape)
    url = f"lanes://{quote(path.with_suffix('').as_posix())}"
    async with Database.open(url) as db:
        for sql in shape.lane_definitions:
            _ = await db.execute(sql)
    digests: dict[str, Digest] = {}
    with _open_lane(path) as connection:
        connection.execute(LANE_KEYS)
        for number, table in enumerate(shape.tables):
            watch(f"copying tables of {schema}", number + 1, len(shape.tables))
            digest = digests[table.name] = Digest()
            async for rows in _read_postgres(link, schema, table):
                digest.add(rows)
                with connection:
                    to_lane(connection, table, rows)
        with connection:
            set_lane_positions(connection, shape, await postgres_positions(link, schema, shape))
    async with Database.open(url) as db:
        for sql in (sql for table in shape.tables for sql in table.indexing):
            _ = await db.execute(sql)
        for view in shape.views:
            _ = await db.execute(view.create)
    with _open_lane(path) as connection:
        _verify_lane(connection, shape, digests)
    return sum(digest.rows for digest in digests.values())


async def _read_postgres(link: Link, schema: str, table: Table) -> AsyncIterator[list[StoredRow]]:
    page = await postgres_rows(link, schema, table)
    yield page.rows
    while page.after is not None:
        page = await postgres_rows(link, schema, table, page.after)
        yield page.rows


def _read_lane(connection: apsw.Connection, table: Table) -> Iterator[list[StoredRow]]:
    page = lane_rows(connection, table)
    yield page.rows
    while page.after is not None:
        page = lane_rows(connection, table, page.after)
        yield page.rows


def _verify_lane(connection: apsw.Connection, shape: Shape, digests: dict[str, Digest]) -> None:
    broken = connection.execute("PRAGMA foreign_key_check").fetchall()
    for table in shape.tables:
        found = Digest()
        for rows in _read_lane(connection, table):
            found.add(rows)
        if found != digests[table.name] or broken:
            raise _mismatch_error(table.name, found, digests[table.name])


async def _refuse_shards(link: Link, schema: str, shape: Shape) -> None:
    if any(table.name == SHARDS for table in shape.tables):
        with translate_errors(writing=False):
            shards = f"{quoted_name(schema)}.{SHARDS}"
            [row] = await link.driver.fetch(f"SELECT count(*) FROM {shards}")
        if row[0]:
            raise DialectError(
                f"the schema {schema!r} has counters with shards, which are databases of their own in a lane.",
                why="In PostgreSQL they are rows of one table.",
                fix=AS_ARCHIVE,
            )


async def restore_lane_into_postgres(file: Path, address: PostgresAddress, *, force: bool, watch: Watch) -> int:
    """Restore the lane in a file into a schema, in one transaction; return the number of rows."""
    if parts_of(file):
        raise BadUsage(
            f"{file} has streams or shards below it, which are not put into PostgreSQL.",
            why="They are databases of their own, and would have to become schemas or rows.",
            fix="Put it back as a lane: interlock restore FILE lanes:///folder/name.",
        )
    facts = look_at(file, clock=SystemClock(), prepare=prepare_connection)
    for finding in facts.findings:
        if finding.severity == "error":
            raise CorruptionError(f"{file} is damaged: {finding.what}", fix="Use another copy. Nothing was restored.")
    with opened_to_look(file) as (connection, _):
        prepare_connection(connection, _now_us)
        connection.execute("BEGIN")
        shape = shape_of_lane(connection)
        async with _connect(address, SETTINGS) as link:
            with translate_errors(writing=False):
                await link.driver.execute("BEGIN;" + SESSION)
                await make_room(link.driver, address.schema, address, force=force)
                await link.driver.execute(f"CREATE TABLE {quoted_name(address.schema)}.{GATE} ()")
            rows = await _lane_into_schema(link, address.schema, shape, connection, watch)
            with translate_errors(writing=True):
                await link.driver.execute("COMMIT")
    return rows


async def _lane_into_schema(link: Link, schema: str, shape: Shape, connection: apsw.Connection, watch: Watch) -> int:
    total = 0
    with translate_errors(writing=False):
        for sql in (searching(schema), *shape.before):
            await link.driver.execute(sql)
    for number, table in enumerate(shape.tables):
        watch(f"restoring tables of {schema}", number + 1, len(shape.tables))
        with translate_errors(writing=False):
            await link.driver.execute(table.first(schema))
        written, found = Digest(), Digest()
        for rows in _read_lane(connection, table):
            written.add(rows)
            await to_postgres(link, schema, table, rows)
        async for rows in _read_postgres(link, schema, table):
            found.add(rows)
        if found != written:
            raise _mismatch_error(table.name, found, written)
        total += found.rows
    with translate_errors(writing=False):
        for sql in [sql for table in shape.tables for sql in table.after(schema)]:
            await link.driver.execute(sql)
        for sql in [sql for table in shape.tables for sql in (*table.last(schema), *table.validated(schema))]:
            await link.driver.execute(sql)
        for view in shape.views:
            await link.driver.execute(view.create)
    await set_postgres_positions(link, schema, shape, lane_positions(connection, shape))
    return total


def _mismatch_error(table: str, found: Digest, wanted: Digest) -> CorruptionError:
    return CorruptionError(
        f"{table} has {found.rows:,} rows or a checksum that are not those of the source, {wanted.rows:,} rows.",
        why="Rows were changed on the way, which must not happen.",
        fix="Report it. Nothing was made.",
    )


@contextlib.contextmanager
def _open_lane(path: Path) -> Generator[apsw.Connection]:
    with contextlib.closing(apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READWRITE)) as connection:
        prepare_connection(connection, _now_us)
        yield connection


def _now_us() -> int:
    return int(SystemClock().wall_s() * 1_000_000)
