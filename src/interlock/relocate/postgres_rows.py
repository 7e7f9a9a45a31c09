"""Rows of a schema of PostgreSQL: read page by page in the order of their key, or by key; copied, written, removed.

They have the form in which a lane stores them (`rows`); PostgreSQL does most of the conversion. A write replaces
colliding rows, as in a lane (`rows` has the reason). They are removed first and inserted then, in the caller's
transaction, because two rows that have exchanged a unique value cannot be updated in any order.

Every name is qualified with its schema, so the settings of the connection do not matter.
"""

# ruff: noqa: S608 -- made of quoted names and $n alone.

from collections.abc import AsyncGenerator, Iterable, Mapping, Sequence
from typing import Final, Protocol, cast

from interlock.clock import Clock
from interlock.errors import BadUsage, DialectError, InterlockError
from interlock.postgres.pool import Link
from interlock.postgres.statements import PLAIN_TEXTS, translate_user_errors
from interlock.postgres.translate_errors import MISSING_STATES, state_of
from interlock.relocate.postgres_link import MoverLink
from interlock.relocate.rows import (
    ROWS_PER_PAGE,
    Page,
    StoredRow,
    TextOf,
    key_of,
    numbered,
    position_name,
    received,
    selected,
    text_of,
    unfit,
    written_values,
)
from interlock.relocate.shape import Column, Findings, Shape, Table, type_text
from interlock.sql.parse import quoted_name
from interlock.sql.stored_values import StoredValue
from interlock.sql.types import Type
from interlock.urls import parse_database_url

BLOCKS_PER_PAGE: Final = 256
"""A table without a key is read by the blocks of its file, two megabytes at a time."""

_ESCAPES: Final = (("\\", "\\\\"), ("\t", "\\t"), ("\n", "\\n"), ("\r", "\\r"))


class Copying(Protocol):
    """The driver's method for COPY."""

    async def copy_to_table(
        self,
        table_name: str,
        *,
        source: AsyncGenerator[bytes],
        columns: Sequence[str],
        schema_name: str,
        format: str,  # noqa: A002 -- the driver's.
    ) -> str:
        """Run COPY … FROM STDIN."""
        ...


# --- Reading ----------------------------------------------------------------------------------------------------------


async def postgres_rows(
    link: Link, schema: str, table: Table, after: StoredRow | None = None, *, limit: int = ROWS_PER_PAGE
) -> Page:
    """Return the rows after `after`, in the order of the key. A table without a key is read in one snapshot."""
    if not table.key:
        return await _blocks(link, schema, table, after)
    # With the table as prefix a name is a column of the table, and not an alias of the select list.
    key = ", ".join(f"held.{quoted_name(name)}" for name in table.key)
    where, values = "", list[object]()
    if after is not None:
        places = [
            f"${place}::text::{type_text(column.type, schema)}"
            for place, column in enumerate(table.key_columns, start=1)
        ]
        where = f" WHERE ({key}) > ({', '.join(places)})"
        values = list(_texts(table.key_columns, after))
    text = f"{_select(table)} FROM {_in(schema, table)} AS held{where} ORDER BY {key} LIMIT {int(limit)}"
    rows = await _fetched(link, table, text, values)
    return Page(rows, key_of(table)(rows[-1]) if len(rows) == limit else None)


async def postgres_rows_of(link: Link, schema: str, table: Table, keys: Sequence[StoredRow]) -> list[StoredRow]:
    """Return the rows with these keys. A key without a row was deleted."""
    if not keys:
        return []
    text = f"{_select(table)} FROM {_in(schema, table)} WHERE {_among(table.key_columns, schema)}"
    return await _fetched(link, table, text, _columns_of_texts(table.key_columns, keys))


async def refuse_unfit(link: Link, schema: str, shape: Shape) -> None:
    """Check every row before the copy. Raises DialectError with values that a lane cannot hold."""
    findings = Findings()
    for table in shape.tables:
        for found in await postgres_unfit(link, schema, table):
            findings.add(*found)
    findings.settle("the database")


async def postgres_unfit(link: Link, schema: str, table: Table, *, limit: int = 3) -> list[tuple[str, str]]:
    """Return some values that a lane cannot hold: the column and the row's key, and the reason."""
    conditions = {
        column.name: f"coalesce({condition}, false)"
        for column in table.columns
        if (condition := unfit(column.type, quoted_name(column.name))) is not None
    }
    if not conditions:
        return []
    key = ", ".join(f"left({quoted_name(name)}::text, 40)" for name in table.key)
    listed = f"concat_ws(', ', {key or 'NULL'}), {', '.join(conditions.values())}"
    text = f"SELECT {listed} FROM {_in(schema, table)} WHERE {' OR '.join(conditions.values())} LIMIT {int(limit)}"
    with translate_user_errors(writing=False):
        rows = await link.driver.fetch(text)
    return [
        (f"{table.name}.{name} of the row {location!r}" if table.key else f"{table.name}.{name}", _NO_PLACE)
        for location, *bad in rows
        for name, is_bad in zip(conditions, bad, strict=True)
        if is_bad
    ]


async def count_in_postgres(link: Link, schema: str, table: Table) -> int:
    """Return the number of rows."""
    with translate_user_errors(writing=False):
        [[count]] = await link.driver.fetch(f"SELECT count(*) FROM {_in(schema, table)}")
    return cast("int", count)


_NO_PLACE: Final = (
    "a lane holds neither NaN nor infinity, no moment outside of the years 1 to 9999, no numeric of more than a "
    "thousand digits, and arrays of one dimension that begin at 1"
)


def _select(table: Table) -> str:
    listed = [selected(column.type, quoted_name(column.name)) for column in table.columns]
    conditions = [condition for column in table.columns if (condition := unfit(column.type, quoted_name(column.name)))]
    # One check per row instead of one per value.
    listed.append(f"coalesce({' OR '.join(f'coalesce({each}, false)' for each in conditions) or 'false'}, false)")
    return f"SELECT {', '.join(listed)}"


async def _fetched(link: Link, table: Table, text: str, values: Sequence[object]) -> list[StoredRow]:
    with translate_user_errors(writing=False):
        records = await link.driver.fetch(text, *values)
    if not records:
        return []
    *columns, bad = cast("list[tuple[StoredValue, ...]]", list(zip(*records, strict=True)))
    if any(bad):
        wrong = tuple(value for value in records[bad.index(True)])[:-1]
        raise DialectError(
            f"a row of {table.name!r} has no place in a lane: {str(wrong)[:200]}.",
            why=f"{_NO_PLACE[0].upper()}{_NO_PLACE[1:]}.",
            fix="Change or remove such values first.",
        )
    for place, column in enumerate(table.columns):
        convert = received(column.type)
        if convert is not None:
            columns[place] = tuple([None if value is None else convert(value) for value in columns[place]])
    return list(zip(*columns, strict=True))


async def _blocks(link: Link, schema: str, table: Table, after: StoredRow | None) -> Page:
    first = 0 if after is None else cast("int", after[0])
    size = "SELECT pg_relation_size($1::text::regclass) / current_setting('block_size')::bigint"
    with translate_user_errors(writing=False):
        [[blocks]] = await link.driver.fetch(size, _in(schema, table))
    following = first + BLOCKS_PER_PAGE
    where = f"ctid >= '({first},0)'::tid AND ctid < '({following},0)'::tid"
    rows = await _fetched(link, table, f"{_select(table)} FROM {_in(schema, table)} WHERE {where}", ())
    return Page(rows, (following,) if following < cast("int", blocks) else None)


# --- Writing ----------------------------------------------------------------------------------------------------------


async def to_postgres(link: Link, schema: str, table: Table, rows: Sequence[StoredRow]) -> None:
    """Copy new rows, inside the caller's transaction or in one of its own."""
    if not rows:
        return
    data = _copied(table.written, list(written_values(table, rows)))

    async def source() -> AsyncGenerator[bytes]:
        yield data

    with translate_user_errors(writing=False):
        _ = await cast("Copying", link.driver).copy_to_table(
            table.name,
            source=source(),
            columns=[column.name for column in table.written],
            schema_name=schema,
            format="text",
        )


async def put_in_postgres(link: Link, schema: str, table: Table, rows: Sequence[StoredRow]) -> None:
    """Write rows with distinct keys, replacing those with the same key. Inside the caller's transaction."""
    if not rows:
        return
    key = key_of(table)
    await delete_in_postgres(link, schema, table, [key(row) for row in rows])
    texts = _columns_of_texts(table.columns, rows)
    given_values = f"WITH given AS ({_given_values(table.columns, schema)})"
    into = _in(schema, table)
    unique = [(tuple(map(quoted_name, each.columns)), "true") for each in table.uniques]
    unique += [(each.keys, each.where or "true") for each in table.indexes if each.unique]
    with translate_user_errors(writing=False):
        for names, where in unique:
            listed = ", ".join(names)
            among = f"({listed}) IN (SELECT {listed} FROM given WHERE {where})"
            _ = await link.driver.fetch(f"{given_values} DELETE FROM {into} WHERE ({where}) AND {among}", *texts)
        every = ", ".join(quoted_name(column.name) for column in table.written)
        insert = f"{given_values} INSERT INTO {into} ({every}) OVERRIDING SYSTEM VALUE SELECT {every} FROM given"
        _ = await link.driver.fetch(insert, *texts)


async def delete_in_postgres(link: Link, schema: str, table: Table, keys: Sequence[StoredRow]) -> None:
    """Remove the rows with these keys."""
    if not keys:
        return
    text = f"DELETE FROM {_in(schema, table)} WHERE {_among(table.key_columns, schema)}"
    with translate_user_errors(writing=False):
        _ = await link.driver.fetch(text, *_columns_of_texts(table.key_columns, keys))


async def empty_in_postgres(link: Link, schema: str, table: Table) -> None:
    """Remove all rows, before a table without a key is copied again."""
    with translate_user_errors(writing=False):
        _ = await link.driver.fetch(f"DELETE FROM {_in(schema, table)}")


def _in(schema: str, table: Table) -> str:
    return f"{quoted_name(schema)}.{quoted_name(table.name)}"


def _given_values(columns: Sequence[Column], schema: str) -> str:
    """Return a query of rows that are passed as one array of texts per column."""
    places = range(1, len(columns) + 1)
    listed = [
        f"c{place}::{type_text(column.type, schema)} AS {quoted_name(column.name)}"
        for place, column in zip(places, columns, strict=True)
    ]
    arrays, names = [f"${place}::text[]" for place in places], [f"c{place}" for place in places]
    return f"SELECT {', '.join(listed)} FROM unnest({', '.join(arrays)}) AS texts ({', '.join(names)})"


def _among(columns: Sequence[Column], schema: str) -> str:
    return f"({', '.join(quoted_name(column.name) for column in columns)}) IN ({_given_values(columns, schema)})"


def _texts(columns: Sequence[Column], values: StoredRow) -> Iterable[str | None]:
    for column, value in zip(columns, values, strict=True):
        yield None if value is None else text_of(column.type)(value)


def _columns_of_texts(columns: Sequence[Column], rows: Sequence[StoredRow]) -> list[list[str | None]]:
    return [
        _column_of_texts(column.type, values) for column, values in zip(columns, zip(*rows, strict=True), strict=True)
    ]


def _column_of_texts(kind: Type, values: Sequence[StoredValue]) -> list[str | None]:
    text = text_of(kind)
    return [None if value is None else text(value) for value in values]


def _copied(columns: Sequence[Column], rows: Sequence[StoredRow]) -> bytes:
    """Return the rows in the text format of COPY."""
    written = [_copied_column(column, values) for column, values in zip(columns, zip(*rows, strict=True), strict=True)]
    return ("\n".join(map("\t".join, zip(*written, strict=True))) + "\n").encode()


def _copied_column(column: Column, values: Sequence[StoredValue]) -> list[str]:
    text: TextOf = text_of(column.type)
    if column.type.is_integer or column.type.name in {"numeric", "float8", "bool", "timestamptz", "uuid"}:
        return ["\\N" if value is None else text(value) for value in values]  # Nothing that COPY would interpret.
    written = [text(value) for value in values if value is not None]
    # One joined text is many times faster than single ones, and no text has a NUL.
    together = "\0".join(written)
    for letter, escaped in _ESCAPES:
        together = together.replace(letter, escaped)
    if len(written) == len(values):
        return together.split("\0")
    following = iter(together.split("\0"))
    return ["\\N" if value is None else next(following) for value in values]


# --- Numbering -------------------------------------------------------------------------------------------------------
# A position is a sequence's last number, read and set as `rows` describes for a lane.

SEQUENCE: Final = "SELECT pg_get_serial_sequence($1, $2)"
SET_POSITION: Final = "SELECT setval($1::text::regclass, $2, $3)"


async def postgres_positions(link: Link, schema: str, shape: Shape) -> dict[str, int]:
    """Return the last number of each numbered column, and of each sequence that was used."""
    found: dict[str, int] = {}
    for name, table, column in numbered(shape):
        sequence = await _sequence(link, schema, table, column)
        with translate_user_errors(writing=False):
            [[position]] = await link.driver.fetch(
                f"SELECT CASE WHEN is_called THEN last_value ELSE last_value - 1 END FROM {sequence}"
            )
        found[name] = cast("int", position)
    for each in shape.sequences:
        with translate_user_errors(writing=False):
            [[last, called]] = await link.driver.fetch(
                f"SELECT last_value, is_called FROM {quoted_name(schema)}.{quoted_name(each.name)}"
            )
        if called or last != each.start:
            found[position_name(each)] = cast("int", last) - (0 if called else each.increment)
    return found


async def set_postgres_positions(link: Link, schema: str, shape: Shape, positions: Mapping[str, int]) -> None:
    """Set the last numbers of the columns. A rollback does not undo it, which does no harm."""
    for name, table, column in numbered(shape):
        sequence = await _sequence(link, schema, table, column)
        position = positions[name]
        with translate_user_errors(writing=False):
            # No number was ever assigned: the next number is the first one.
            _ = await link.driver.fetch(SET_POSITION, sequence, max(position, 1), position > 0)
    for each in shape.sequences:
        if position_name(each) in positions:
            position = positions[position_name(each)]
            called = each.minimum <= position <= each.maximum
            sequence = f"{quoted_name(schema)}.{quoted_name(each.name)}"
            with translate_user_errors(writing=False):
                _ = await link.driver.fetch(
                    SET_POSITION, sequence, position if called else position + each.increment, called
                )


async def _sequence(link: Link, schema: str, table: Table, column: Column) -> str:
    with translate_user_errors(writing=False):
        [[sequence]] = await link.driver.fetch(
            SEQUENCE, f"{quoted_name(schema)}.{quoted_name(table.name)}", column.name
        )
    return cast("str", sequence)


# --- Mover's connections ---------------------------------------------------------------------------------------------
# A pooler in transaction mode is refused: a mover's locks and its last transaction belong to one connection.

SETTINGS: Final = {
    "timezone": "UTC",
    "jit": "off",
    "application_name": "interlock-route",
    "synchronous_commit": "on",  # If a crash could undo a tombstone, the database would live at two places.
    **PLAIN_TEXTS,
}
DROPPED_STATES: Final = (*MISSING_STATES, "42704")
"""SQLSTATEs of a missing table, schema or constraint."""

UNVALIDATED: Final = """
SELECT format('ALTER TABLE %I.%I VALIDATE CONSTRAINT %I', n.nspname, c.relname, k.conname)
FROM pg_constraint k JOIN pg_class c ON c.oid = k.conrelid JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE n.nspname = $1 AND k.contype = 'f' AND NOT k.convalidated ORDER BY c.relname, k.conname"""


class MoverConnections:
    """Connections of a mover to one schema."""

    def __init__(self, url: str, clock: Clock) -> None:
        self.url = url
        self.clock = clock
        address = parse_database_url(url)
        if address.pgbouncer:
            raise BadUsage(
                f"{address.redacted_url} is reached through a pooler, through which no database is moved.",
                why="The seal is a lock of one connection, and a pooler gives every transaction another one.",
                fix="Name the server itself, without pgbouncer=true.",
            )
        self.address = address

    async def connected(self, *, patient: bool = False) -> MoverLink:
        """Open a connection. With `patient` it waits for a restarting server."""
        return await MoverLink.opened(self.address, SETTINGS, patient=patient)


async def validate_references(link: MoverLink, schema: str) -> None:
    """Validate the references that a move created unvalidated, if its mover died before it could.

    The database is in use: a table or reference that was dropped meanwhile needs no validation.
    """
    for row in await link.fetch(UNVALIDATED, schema):
        try:
            await link.execute(str(row[0]))
        except InterlockError as error:
            cause = error.__cause__
            if cause is None or state_of(cause) not in DROPPED_STATES:
                raise
