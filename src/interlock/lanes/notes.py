"""The change notes of a mover: triggers at the source record the key of every row that is written.

They run inside the owner's own transactions, so a note exists exactly when the write does. A note names the row, not
the change: the mover reads the current state of the row, so the order does not matter and a note may be read twice. A
row that is written again gets a new number and loses its old note: there are never more notes than rows.

The odd choice is a DELETE before each INSERT instead of OR REPLACE: the conflict clause of the statement that fires a
trigger overrides those inside it, and under OR IGNORE a row would not be noted again.
"""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# apsw's stubs leave the values of SQLite partly open; mypy --strict looks at what is ours.

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Literal, cast

import apsw

from interlock.lanes.connection import WATCH_PREFIX

Note = tuple[int, str, tuple[object, ...]]
"""The number of a note, the table, and the key of the row."""

_MAKE = """
CREATE TABLE IF NOT EXISTS interlock_touched (
    number INTEGER PRIMARY KEY AUTOINCREMENT, "table" TEXT NOT NULL, key TEXT NOT NULL, UNIQUE ("table", key)
)
"""
_EXISTS = "SELECT 1 FROM sqlite_schema WHERE type = 'table' AND name = 'interlock_touched'"
_TRIGGERS = "SELECT name, sql FROM sqlite_schema WHERE type = 'trigger' AND name GLOB 'interlock_watch_*'"
_AFTER = 'SELECT number, "table", key FROM interlock_touched WHERE number > ?1 ORDER BY number LIMIT ?2'
_FORGET = """
DELETE FROM interlock_touched
WHERE number IN (SELECT number FROM interlock_touched WHERE number <= ?1 ORDER BY number LIMIT ?2)
"""
_TRIGGER = """
CREATE TRIGGER {name} AFTER {event} ON {table} {condition} BEGIN
    DELETE FROM interlock_touched WHERE "table" = {literal} AND key = {key};
    INSERT INTO interlock_touched ("table", key) VALUES ({literal}, {key});
END
"""
_EVENTS: tuple[tuple[str, str, Literal["old", "new"]], ...] = (
    ("insert", "INSERT", "new"),
    ("update", "UPDATE", "new"),
    ("rekey", "UPDATE", "old"),
    ("delete", "DELETE", "old"),
)


def watch(connection: apsw.Connection, tables: Mapping[str, Sequence[str]]) -> None:
    """Note every write to these tables, each with the columns of its key; stop watching all other tables.

    A table without a key is noted as a whole, by an empty key.

    Runs inside the caller's transaction. A second call changes nothing, so no statement has to be prepared again.
    """
    wanted = dict(each for table, key in tables.items() for each in _triggers(table, key))
    there = {str(name): str(sql) for name, sql in connection.execute(_TRIGGERS)}
    connection.execute(_MAKE)
    for name, sql in there.items():
        if sql != wanted.get(name):
            connection.execute(f"DROP TRIGGER {_quoted(name)}")
    for name, sql in wanted.items():
        if there.get(name) != sql:
            connection.execute(sql)


def unwatch(connection: apsw.Connection) -> None:
    """Stop noting, and delete all notes. Runs inside the caller's transaction."""
    for name, _ in connection.execute(_TRIGGERS).fetchall():
        connection.execute(f"DROP TRIGGER {_quoted(str(name))}")
    connection.execute("DROP TABLE IF EXISTS interlock_touched")


def watched(connection: apsw.Connection) -> bool:
    """Whether writes are noted in this file."""
    return connection.execute(_EXISTS).get is not None


def touched(connection: apsw.Connection, after: int, limit: int) -> list[Note]:
    """Return the notes above number `after`, in order."""
    if not watched(connection):
        return []
    rows = connection.execute(_AFTER, (after, limit)).fetchall()
    return [(int(str(number)), str(table), _key(str(key))) for number, table, key in rows]


def forget(connection: apsw.Connection, upto: int, limit: int) -> int:
    """Delete at most `limit` notes up to this number; return how many were deleted."""
    if not watched(connection):
        return 0
    connection.execute(_FORGET, (upto, limit))
    return connection.changes()


def _triggers(table: str, key: Sequence[str]) -> Iterator[tuple[str, str]]:
    changed = " OR ".join(f"old.{_quoted(column)} COLLATE BINARY IS NOT new.{_quoted(column)}" for column in key)
    for what, event, row in _EVENTS:
        if what == "rekey" and not key:
            continue
        name = f"{WATCH_PREFIX}{what}_{table}"
        yield (
            name,
            _TRIGGER.strip().format(
                name=_quoted(name),
                event=event,
                table=_quoted(table),
                condition=f"WHEN {changed}" if what == "rekey" else "",
                literal=_text(table),
                key=_made_key(row, key),
            ),
        )


def _made_key(row: Literal["old", "new"], key: Sequence[str]) -> str:
    """SQL that makes the key of a row: a JSON array, in which bytes and numbers with a fraction are written out.

    JSON has no bytes, and SQLite's own writes 15 digits of a number where 17 may be needed to find the row again.
    """
    if not key:
        return "'[]'"
    return "'[' || " + " || ',' || ".join(_made_value(f"{row}.{_quoted(column)}") for column in key) + " || ']'"


def _made_value(value: str) -> str:
    return (
        f"CASE typeof({value}) WHEN 'blob' THEN '{{\"$hex\":\"' || hex({value}) || '\"}}' "
        f"WHEN 'real' THEN '{{\"$real\":\"' || quote({value}) || '\"}}' ELSE json_quote({value}) END"
    )


def _key(text: str) -> tuple[object, ...]:
    return tuple(_value(each) for each in cast("list[object]", json.loads(text)))


def _value(value: object) -> object:
    if not isinstance(value, dict):
        return value
    [(kind, written)] = cast("dict[str, str]", value).items()
    return bytes.fromhex(written) if kind == "$hex" else float(written)


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _text(value: str) -> str:
    return "'" + value.replace("'", "''") + "'"
