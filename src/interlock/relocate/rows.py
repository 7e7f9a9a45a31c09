"""Rows of a move, in the form in which a lane stores them: values, rows of a lane, digests and numbering.

Rows of a lane are passed on as they are stored, page by page in the order of their key, or by key. A write replaces the
row with the same key, and rows with the same values in a unique constraint. Those are older: at the source no two rows
had these values simultaneously, so the source has noted them as changed, and they are written again. Foreign keys must
be off on a connection that writes or removes (`PRAGMA foreign_keys = OFF`): a replaced parent would delete its
children. The connection needs the functions and collations of the dialect (`database.lane_engine.register`).
"""

# ruff: noqa: S608 -- made of quoted names and ?n alone.

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# apsw's stubs leave the values of SQLite partly open; mypy --strict looks at what is ours.

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, date, datetime
from functools import lru_cache
from hashlib import blake2b
from itertools import compress
from operator import itemgetter
from typing import Final, NamedTuple, cast

import apsw
import msgspec

from interlock.errors import DialectError
from interlock.relocate.shape import Column, Shape, Table
from interlock.sql.parse import quoted_name
from interlock.sql.schema import COLUMNS_QUERY, POSITION_PREFIX, ColumnRow, NumberSequence, schema_from_rows
from interlock.sql.stored_values import JSON_DEPTH_MAX, NUMERIC_DIGITS_MAX, StoredValue, array_items, array_text
from interlock.sql.types import FLOAT_MAX, Name, Type

# --- Values ----------------------------------------------------------------------------------------------------------
# Nothing is converted on the lane's side, and PostgreSQL converts most values itself: it receives text, cast to the
# type of the column (`text_of`), and returns the expressions of `selected`, so that little is left to Python
# (`received`). The texts do not depend on settings of a session: digits, ISO moments in UTC, bytes in hexadecimal.
#
# PostgreSQL also finds values that a lane cannot hold (`unfit`): NaN and infinity, moments outside of the years 1 to
# 9999, numerics of more than a thousand digits, arrays of several dimensions. Zero has no sign in a lane, and loses
# it here.

StoredRow = tuple[StoredValue, ...]
"""A row as a lane stores it, the form that movers pass on and digest."""

TextOf = Callable[[StoredValue], str]
Received = Callable[[object], StoredValue]

POSTGRES_EPOCH_US: Final = int(datetime(2000, 1, 1, tzinfo=UTC).timestamp()) * 1_000_000
"""Epoch of the moments that PostgreSQL sends, in microseconds since 1970."""

DAYS_CACHED: Final = 10_000
_DAY_S: Final = 86_400
_EPOCH_DAY: Final = date(1970, 1, 1).toordinal()

ARRAYS_LISTED: Final[frozenset[Name]] = frozenset({"int2[]", "int4[]", "int8[]", "float8[]", "text[]"})
"""Arrays whose items the driver returns as a lane stores them."""


def text_of(kind: Type) -> TextOf:
    """Return the function that writes a stored value of that type for PostgreSQL. Not for NULL."""
    if kind.is_array:
        item = text_of(kind.element)
        return lambda value: _array_literal(array_items(kind, cast("str", value)), item)
    if labels := kind.labels:
        return lambda value: labels[cast("int", value)]
    return _TEXTS.get(kind.name, cast("TextOf", str))


def selected(kind: Type, column: str) -> str:
    """Return the expression that selects a value nearly as a lane stores it; `column` is quoted already."""
    if kind.is_array:
        return _selected_array(kind, column)
    if kind.labels:
        return f"{column}::text"
    return _SELECTED.get(kind.name, "{}").format(column)


def received(kind: Type) -> Received | None:
    """Return the function that converts a `selected` value; None if it needs no conversion. Not for NULL."""
    if kind.name in ARRAYS_LISTED:
        zeroed = kind.name == "float8[]"
        return lambda value: _listed(cast("list[StoredValue]", value), zeroed=zeroed)
    if kind.is_array:
        item = received(kind.element) or _same
        return lambda value: array_text([None if each is None else item(each) for each in cast("list[object]", value)])
    if kind.labels:
        places = {label: place for place, label in enumerate(kind.labels)}
        return lambda value: places[cast("str", value)]
    return _RECEIVED.get(kind.name)


def unfit(kind: Type, column: str) -> str | None:
    """Return the SQL condition of values that a lane cannot hold; None if all fit. NULL means that a value fits."""
    if kind.is_array:
        inner = _UNFIT.get(kind.element.name)
        several = f"(array_ndims({column}) > 1 OR array_lower({column}, 1) <> 1)"
        if inner is None:
            return several
        return f"({several} OR EXISTS (SELECT 1 FROM unnest({column}) AS item WHERE {inner.format('item')}))"
    condition = _UNFIT.get(kind.name)
    return None if condition is None else f"({condition.format(column)})"


# --- Values to PostgreSQL --------------------------------------------------------------------------------------------


def _time_text(value: StoredValue) -> str:
    seconds, microseconds = divmod(cast("int", value), 1_000_000)
    days, seconds = divmod(seconds, _DAY_S)
    return f"{_day(days)} {_clock(seconds)}.{microseconds:06}+00"


def _timestamp_text(value: StoredValue) -> str:
    return _time_text(value).removesuffix("+00")


def _clock_text(value: StoredValue) -> str:
    seconds, microseconds = divmod(cast("int", value), 1_000_000)
    return f"{_clock(seconds)}.{microseconds:06}"


def _interval_text(value: StoredValue) -> str:
    months, days, microseconds = cast("str", value).split()
    return f"{months} months {days} days {microseconds} microseconds"


@lru_cache(maxsize=DAYS_CACHED)
def _day(number: int) -> str:
    return date.fromordinal(_EPOCH_DAY + number).isoformat()


@lru_cache(maxsize=_DAY_S)
def _clock(seconds: int) -> str:
    return f"{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}"


def _array_literal(items: Sequence[StoredValue], text: TextOf) -> str:
    return "{" + ",".join(["NULL" if item is None else _item(text(item)) for item in items]) + "}"


def _item(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


_TEXTS: Final[dict[Name, TextOf]] = {
    "float8": repr,
    "bool": lambda value: "t" if value else "f",
    "bytea": lambda value: "\\x" + cast("bytes", value).hex(),
    "date": lambda value: _day(cast("int", value)),
    "time": _clock_text,
    "timestamp": _timestamp_text,
    "timestamptz": _time_text,
    "interval": _interval_text,
    "uuid": lambda value: cast("bytes", value).hex(),
    "numeric": lambda value: cast("str", value),
    "text": lambda value: cast("str", value),
    "varchar": lambda value: cast("str", value),
    "bpchar": lambda value: cast("str", value),
    "json": lambda value: cast("str", value),
    "jsonb": lambda value: cast("str", value),
}

# --- Values from PostgreSQL ------------------------------------------------------------------------------------------

INTERVAL_PARTS: Final = (
    "(extract(year FROM {0}) * 12 + extract(month FROM {0}))::integer || ' ' || "
    "extract(day FROM {0})::integer || ' ' || (extract(hour FROM {0}) * 3600000000 + "
    "extract(minute FROM {0}) * 60000000 + extract(microseconds FROM {0}))::bigint"
)
"""An interval as a lane stores it: months, days and microseconds."""

_SELECTED: Final[dict[Name, str]] = {
    "numeric": "{}::text",
    "bool": "{}::integer",
    "date": "({} - DATE '1970-01-01')",
    "time": "(extract(epoch FROM {}) * 1000000)::bigint",
    "timestamp": "timestamp_send({})",
    "timestamptz": "timestamptz_send({})",
    "interval": INTERVAL_PARTS,
    "uuid": "uuid_send({})",
    "json": "{}::text",
    "jsonb": "{}::text",
}


def _selected_array(kind: Type, column: str) -> str:
    if kind.name in ARRAYS_LISTED:
        return column
    item = selected(kind.element, "item")
    listed = f"ARRAY(SELECT {item} FROM unnest({column}) WITH ORDINALITY AS listed (item, place) ORDER BY place)"
    return f"CASE WHEN {column} IS NOT NULL THEN {listed} END"


def _same(value: object) -> StoredValue:
    return cast("StoredValue", value)


def received_time(value: object) -> int:
    """Convert a moment from PostgreSQL to microseconds since 1970."""
    return int.from_bytes(cast("bytes", value), "big", signed=True) + POSTGRES_EPOCH_US


def _document(value: object) -> StoredValue:
    """Return a document unchanged. Raises DialectError if a lane could not read it."""
    text = cast("str", value)
    if (text.count("[") + text.count("{") > JSON_DEPTH_MAX and _depth(text) > JSON_DEPTH_MAX) or (
        len(text) > NUMERIC_DIGITS_MAX and _LONG_NUMBER.search(_WORDS.sub("", text))
    ):
        raise DialectError(
            f"a document has no place in a lane: {text[:60]}….",
            why=f"It is nested deeper than {JSON_DEPTH_MAX}, or has a number of more than {NUMERIC_DIGITS_MAX} digits.",
            fix="Change or remove such documents first.",
        )
    return text


_WORDS: Final = re.compile(r'"(?:[^"\\]|\\.)*"')
_LONG_NUMBER: Final = re.compile(rf"\d{{{NUMERIC_DIGITS_MAX + 1},}}")


def _depth(text: str) -> int:
    depth = deepest = 0
    for sign in re.findall(r"[\[{}\]]", _WORDS.sub("", text)):
        depth += 1 if sign in "[{" else -1
        deepest = max(deepest, depth)
    return deepest


def _listed(items: list[StoredValue], *, zeroed: bool) -> str:
    if zeroed:
        items = [None if item is None else cast("float", item) + 0.0 for item in items]
    return json.dumps(items, ensure_ascii=False, separators=(",", ":"))


_RECEIVED: Final[dict[Name, Received]] = {
    "float8": lambda value: cast("float", value) + 0.0,
    "timestamp": received_time,
    "timestamptz": received_time,
    "json": _document,
    "jsonb": _document,
}

# NaN is above everything in PostgreSQL's order, so one comparison finds it and both infinities.
_UNFIT: Final[dict[Name, str]] = {
    "numeric": f"abs({{0}}) >= 1e{NUMERIC_DIGITS_MAX} OR scale({{0}}) >= {NUMERIC_DIGITS_MAX}",
    "float8": f"abs({{0}}) > {FLOAT_MAX}::double precision",
    "date": "{0} < '0001-01-01' OR {0} > '9999-12-31'",
    "time": "{0} = '24:00:00'",
    "timestamp": "{0} < '0001-01-01 00:00:00' OR {0} > '9999-12-31 23:59:59.999999'",
    "interval": "NOT isfinite({0})",
    "timestamptz": "{0} < '0001-01-01 00:00:00+00' OR {0} > '9999-12-31 23:59:59.999999+00'",
}


# --- Rows of a lane --------------------------------------------------------------------------------------------------

ROWS_PER_PAGE: Final = 5_000


class Page(NamedTuple):
    """Some rows of a table."""

    rows: list[StoredRow]
    after: StoredRow | None
    """The key after which the next page begins; None after the last page."""


def key_of(table: Table) -> Callable[[StoredRow], StoredRow]:
    """Return a function that takes the key out of a row."""
    places = [column.name for column in table.columns]
    listed = [places.index(name) for name in table.key]
    if len(listed) == 1:
        [place] = listed
        return lambda row: (row[place],)
    return cast("Callable[[StoredRow], StoredRow]", itemgetter(*listed))


def lane_rows(
    connection: apsw.Connection, table: Table, after: StoredRow | None = None, *, limit: int = ROWS_PER_PAGE
) -> Page:
    """Return the rows after `after`, in the order of the key, or of SQLite's row numbers without a key."""
    columns, key = table.columns, table.key_columns
    order = _names(key) if key else "rowid"
    where = ""
    if after is not None:
        where = f" WHERE ({order}) > ({_places(after)})"
    listed = _names(columns) if key else f"{_names(columns)}, rowid"
    text = f"SELECT {listed} FROM {quoted_name(table.name)}{where} ORDER BY {order} LIMIT {int(limit)}"
    rows = cast("list[StoredRow]", connection.execute(text, after or ()).fetchall())
    if not key:
        following = (rows[-1][-1],) if len(rows) == limit else None
        return Page([row[:-1] for row in rows], following)
    return Page(rows, key_of(table)(rows[-1]) if len(rows) == limit else None)


def lane_rows_of(connection: apsw.Connection, table: Table, keys: Iterable[StoredRow]) -> list[StoredRow]:
    """Return the rows with these keys. A key without a row was deleted."""
    text = f"SELECT {_names(table.columns)} FROM {quoted_name(table.name)} WHERE {_same_key(table)}"
    return cast("list[StoredRow]", connection.executemany(text, keys).fetchall())


def to_lane(connection: apsw.Connection, table: Table, rows: Iterable[StoredRow]) -> None:
    """Write rows, replacing those with the same key. Inside the caller's transaction."""
    columns = table.written
    text = f"INSERT OR REPLACE INTO {quoted_name(table.name)} ({_names(columns)}) VALUES ({_places(columns)})"
    connection.executemany(text, written_values(table, rows))


def written_values(table: Table, rows: Iterable[StoredRow]) -> Iterable[StoredRow]:
    """Return the rows without the values of generated columns."""
    if table.written == table.columns:
        return rows
    kept = [column.generated is None for column in table.columns]
    return (tuple(compress(row, kept)) for row in rows)


def delete_in_lane(connection: apsw.Connection, table: Table, keys: Iterable[StoredRow]) -> None:
    """Remove the rows with these keys. Inside the caller's transaction."""
    connection.executemany(f"DELETE FROM {quoted_name(table.name)} WHERE {_same_key(table)}", keys)


def empty_in_lane(connection: apsw.Connection, table: Table) -> None:
    """Remove all rows, before a table without a key is copied again."""
    connection.execute(f"DELETE FROM {quoted_name(table.name)}")


def has_table(connection: apsw.Connection, name: str) -> bool:
    """Return whether the file has a table of that name."""
    sql = "SELECT 1 FROM sqlite_schema WHERE type = 'table' AND name = ?"
    return connection.execute(sql, (name,)).get is not None


def watched_keys(shape: Shape) -> dict[str, list[str]]:
    """Return the tables that are watched, each with the columns of its key."""
    return {table.name: [column.stored for column in table.key_columns] for table in shape.tables if table.key}


SAMPLE_ROWS: Final = 500


def bytes_in_lane(connection: apsw.Connection, table: Table) -> int:
    """Estimate the bytes of a table from a sample of its rows."""
    rows = lane_rows(connection, table, limit=SAMPLE_ROWS).rows
    weights = sum(len(value) if isinstance(value, str | bytes) else 8 for row in rows for value in row)
    return count_in_lane(connection, table) * weights // max(len(rows), 1)


def count_in_lane(connection: apsw.Connection, table: Table) -> int:
    """Return the number of rows."""
    return cast("int", connection.execute(f"SELECT count(*) FROM {quoted_name(table.name)}").get)


def _names(columns: Sequence[Column]) -> str:
    return ", ".join(quoted_name(column.stored) for column in columns)


def _places(values: Sequence[object]) -> str:
    return ", ".join("?" * len(values))


def _same_key(table: Table) -> str:
    return " AND ".join(f"{quoted_name(column.stored)} = ?" for column in table.key_columns)


# --- Digests ---------------------------------------------------------------------------------------------------------
# Each row has a number of 128 bits, made of its stored form; the digest of a set of rows is the sum of their
# numbers. So a row that is lost, doubled or changed changes it, values that were swapped between two rows change it,
# and it can be kept up to date: subtract the row as it was, add the row as it is. The numbers are a cryptographic
# hash's, because with plain checksums two changes cancel each other out too easily.
#
# The stored form is the same wherever the row lives, so it needs no further normalising. Its writing
# tells types apart: 1, 1.0, "1" and b"1" have four digests.

BITS: Final = 128
_MODULUS: Final = 1 << BITS
_BYTES: Final = BITS // 8


class Digest:
    """Running digest of some rows, with their number."""

    __slots__ = ("rows", "total")

    def __init__(self, total: int = 0, rows: int = 0) -> None:
        self.total = total
        self.rows = rows

    def add(self, rows: Iterable[StoredRow]) -> None:
        """Add rows."""
        count, total = _summed(rows)
        self.rows += count
        self.total = (self.total + total) % _MODULUS

    def remove(self, rows: Iterable[StoredRow]) -> None:
        """Subtract rows that were deleted or will be changed."""
        count, total = _summed(rows)
        self.rows -= count
        self.total = (self.total - total) % _MODULUS

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Digest) and (self.rows, self.total) == (other.rows, other.total)

    def __hash__(self) -> int:
        return hash((self.rows, self.total))

    def __repr__(self) -> str:
        return f"Digest(rows={self.rows}, total={self.total:032x})"


def digest(rows: Iterable[StoredRow]) -> int:
    """Return the digest of a set of rows of one table."""
    return _summed(rows)[1] % _MODULUS


def checksum(digests: Mapping[str, Digest]) -> str:
    """Return one text for all tables of a database, which must be the same at both places."""
    listed = [(name, digests[name].rows, f"{digests[name].total:032x}") for name in sorted(digests)]
    return blake2b(msgspec.msgpack.encode(listed), digest_size=_BYTES).hexdigest()


def _summed(rows: Iterable[StoredRow]) -> tuple[int, int]:
    encode, number = msgspec.msgpack.encode, int.from_bytes
    count = total = 0
    for row in rows:
        total += number(blake2b(encode(row), digest_size=_BYTES).digest(), "big")
        count += 1
    return count, total


# --- Numbering -------------------------------------------------------------------------------------------------------
# A position is the last assigned number, or the one before the first. It is read and set while writers are blocked,
# because they assign numbers. A sequence continues after it, whatever numbers its rows have.

_POSITION: Final = "SELECT seq FROM sqlite_sequence WHERE name = ?"


def lane_positions(connection: apsw.Connection, shape: Shape) -> dict[str, int]:
    """Return the last number of each numbered column, and of each sequence that was used."""
    found: dict[str, int] = {}
    known = _lane_sequences(connection)
    for name, table, column in numbered(shape):
        if table.ours:
            found[name] = cast("int", connection.execute("SELECT coalesce(max(number), 0) FROM interlock_keys").get)
            continue
        sequence = known[table.name, column.name]
        position = connection.execute(_POSITION, (POSITION_PREFIX + sequence.name,)).get
        if position is None and sequence.table:
            position = connection.execute(_POSITION, (sequence.table,)).get
        found[name] = sequence.start - 1 if position is None else cast("int", position)
    for each in shape.sequences:
        position = connection.execute(_POSITION, (POSITION_PREFIX + each.name,)).get
        if position is not None:
            found[position_name(each)] = cast("int", position)
    return found


def position_name(sequence: NumberSequence) -> str:
    """Return the name of a sequence's position. One that was not used yet has none."""
    return f"sequence {sequence.name}"


def set_lane_positions(connection: apsw.Connection, shape: Shape, positions: Mapping[str, int]) -> None:
    """Set the last numbers of the columns. Inside the caller's transaction."""
    known = _lane_sequences(connection)
    for name, table, column in numbered(shape):
        if table.ours:
            continue  # It continues after its highest number by itself.
        _set_position(connection, known[table.name, column.name].name, positions[name])
    for each in shape.sequences:
        if position_name(each) in positions:
            _set_position(connection, each.name, positions[position_name(each)])


def _set_position(connection: apsw.Connection, sequence: str, position: int) -> None:
    title = POSITION_PREFIX + sequence
    connection.execute("DELETE FROM sqlite_sequence WHERE name = ?", (title,))
    connection.execute("INSERT INTO sqlite_sequence (name, seq) VALUES (?, ?)", (title, position))


def _lane_sequences(connection: apsw.Connection) -> dict[tuple[str, str], NumberSequence]:
    schema = schema_from_rows(cast("list[ColumnRow]", connection.execute(COLUMNS_QUERY).fetchall()), version=0)
    return {
        (table.name, column.name): column.sequence
        for table in schema.tables.values()
        for column in table.columns
        if column.sequence is not None
    }


def numbered(shape: Shape) -> list[tuple[str, Table, Column]]:
    """Return the numbered columns with their tables, each by one name."""
    return [(f"{table.name}.{column.name}", table, column) for table in shape.tables for column in table.numbered]
