"""Rows of a lane: read page by page in the order of their key, or by key; written and removed by key.

They are passed on as they are stored. A write replaces the row with the same key, and rows with the same values in a
unique constraint. Those are older: at the source no two rows had these values simultaneously, so the source has noted
them as changed, and they are written again. Foreign keys must be off on a connection that writes or removes
(`PRAGMA foreign_keys = OFF`): a replaced parent would delete its children.

The connection needs the functions and collations of the dialect (`translation.register`).
"""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# apsw's stubs leave the values of SQLite partly open; mypy --strict looks at what is ours.
# ruff: noqa: S608 -- made of quoted names and ?n alone.

from collections.abc import Callable, Iterable, Sequence
from operator import itemgetter
from typing import Final, NamedTuple, cast

import apsw

from interlock.database.moving.shape import Column, Table
from interlock.database.moving.values import StoredRow
from interlock.sql.syntax import quoted

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
    text = f"SELECT {listed} FROM {quoted(table.name)}{where} ORDER BY {order} LIMIT {int(limit)}"
    rows = cast("list[StoredRow]", connection.execute(text, after or ()).fetchall())
    if not key:
        following = (rows[-1][-1],) if len(rows) == limit else None
        return Page([row[:-1] for row in rows], following)
    return Page(rows, key_of(table)(rows[-1]) if len(rows) == limit else None)


def lane_rows_of(connection: apsw.Connection, table: Table, keys: Iterable[StoredRow]) -> list[StoredRow]:
    """Return the rows with these keys. A key without a row was deleted."""
    text = f"SELECT {_names(table.columns)} FROM {quoted(table.name)} WHERE {_same_key(table)}"
    return cast("list[StoredRow]", connection.executemany(text, keys).fetchall())


def to_lane(connection: apsw.Connection, table: Table, rows: Iterable[StoredRow]) -> None:
    """Write rows, replacing those with the same key. Inside the caller's transaction."""
    text = f"INSERT OR REPLACE INTO {quoted(table.name)} ({_names(table.columns)}) VALUES ({_places(table.columns)})"
    connection.executemany(text, rows)


def delete_in_lane(connection: apsw.Connection, table: Table, keys: Iterable[StoredRow]) -> None:
    """Remove the rows with these keys. Inside the caller's transaction."""
    connection.executemany(f"DELETE FROM {quoted(table.name)} WHERE {_same_key(table)}", keys)


def empty_in_lane(connection: apsw.Connection, table: Table) -> None:
    """Remove all rows, before a table without a key is copied again."""
    connection.execute(f"DELETE FROM {quoted(table.name)}")


def count_in_lane(connection: apsw.Connection, table: Table) -> int:
    """Return the number of rows."""
    return cast("int", connection.execute(f"SELECT count(*) FROM {quoted(table.name)}").get)


def _names(columns: Sequence[Column]) -> str:
    return ", ".join(quoted(column.stored) for column in columns)


def _places(values: Sequence[object]) -> str:
    return ", ".join("?" * len(values))


def _same_key(table: Table) -> str:
    return " AND ".join(f"{quoted(column.stored)} = ?" for column in table.key_columns)
