"""Reads from the lane that workflows leave, over a connection of the mover's own.

The lane may be in use meanwhile: each method reads one snapshot. History is only appended to, and pruned from its
beginning, so that its first and last version show what is missing elsewhere.
"""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# apsw's stubs leave the values of SQLite partly open; mypy --strict looks at what is ours.
# ruff: noqa: S608 -- the names put into statements are those of the store's own tables and columns.

import contextlib
from collections.abc import Generator, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, cast

import apsw

from interlock.store import columns
from interlock.store.columns import happened_of, row_of
from interlock.store.moving.canonical import Aside, LeaseRow, Note, Numbered, arriving
from interlock.store.tables import written_time_us
from interlock.store.values import Happened, Letter, OwedEffect

WATCHED: Mapping[str, Sequence[str]] = {
    "workflows": ("number",),
    "workflow_events": ("workflow",),
    "workflow_effects": ("id",),
    "dead_letters": ("id",),
    "leases": ("name",),
    "notes": ("name",),
}
"""The moved tables, with the column that identifies a change: for all tables of a workflow its number."""

BY_NUMBER = frozenset({"workflows", "workflow_events"})
ASIDE = tuple(name for name in WATCHED if name not in BY_NUMBER)

_KEYS = {"workflow_effects": "id", "dead_letters": "id", "leases": "name", "notes": "name"}
_MADE = {"workflow_effects": OwedEffect, "dead_letters": Letter, "leases": LeaseRow, "notes": Note}

_ROWS = f"SELECT number, {columns.ROW} FROM workflows"
_EVENTS = f"SELECT workflow, {columns.HAPPENED} FROM workflow_events INDEXED BY workflow_events_by_version"
_SPAN = "SELECT count(*), coalesce(min(version), 0), coalesce(max(version), 0) FROM workflow_events WHERE workflow = ?"


class Span(NamedTuple):
    """The history of one workflow that a place has."""

    size: int = 0
    first: int = 0
    last: int = 0


class Sums(NamedTuple):
    """Quick totals of all rows, the same at both places."""

    workflows: int
    revisions: int
    events: int
    versions: int


class Source:
    """The tables of a store in a lane."""

    def __init__(self, connection: apsw.Connection) -> None:
        self._connection = connection

    def use(self, connection: apsw.Connection) -> None:
        """Read there from now on: a copy was brought forward, or is the store itself by now."""
        self._connection = connection

    @contextlib.contextmanager
    def moment(self) -> Generator[None]:
        """Read one snapshot during the context; within a transaction that is already so."""
        if self._connection.in_transaction:
            yield
            return
        self._run("BEGIN")
        try:
            yield
        finally:
            self._run("COMMIT")

    def time_us(self) -> int | None:
        """The last time that the store has written (G8); None: no store was ever opened here."""
        return written_time_us(self._connection)

    def machines(self) -> dict[str, int]:
        """Count the workflows of each machine."""
        rows = self._run("SELECT workflow_type, count(*) FROM workflows GROUP BY workflow_type ORDER BY workflow_type")
        return {str(machine): int(count) for machine, count in rows}

    def last_number(self) -> int:
        """The highest number of a workflow."""
        [(last,)] = self._run("SELECT coalesce(max(number), 0) FROM workflows")
        return int(last)

    def rows_between(self, after: int, limit: int) -> list[Numbered]:
        """Return the next workflows after a number."""
        return _numbered(self._run(f"{_ROWS} WHERE number > ? ORDER BY number LIMIT ?", (after, limit)))

    def events_between(self, after: int, last: int) -> dict[int, list[Happened]]:
        """The history of the workflows with these numbers."""
        return _by_number(
            self._run(f"{_EVENTS} WHERE workflow > ? AND workflow <= ? ORDER BY workflow, version", (after, last))
        )

    def rows(self, numbers: Iterable[int]) -> dict[int, Numbered]:
        """These workflows; those that are gone are missing."""
        found: dict[int, Numbered] = {}
        for number in numbers:
            for each in _numbered(self._run(f"{_ROWS} WHERE number = ?", (number,))):
                found[number] = each
        return found

    def spans(self, numbers: Iterable[int]) -> dict[int, Span]:
        """Return the span of history of these workflows."""
        return {number: Span(*self._run(_SPAN, (number,))[0]) for number in numbers}

    def revisions(self) -> list[tuple[int, int]]:
        """Return the revision of each workflow."""
        return [
            (int(number), int(revision)) for number, revision in self._run("SELECT number, revision FROM workflows")
        ]

    def all_spans(self) -> dict[int, Span]:
        """Return the span of history of every workflow, from an index alone."""
        sql = """SELECT workflow, count(*), min(version), max(version)
FROM workflow_events INDEXED BY workflow_events_by_version GROUP BY workflow"""
        return {int(number): Span(*values) for number, *values in self._run(sql)}

    def events_behind(self, number: int, version: int) -> list[Happened]:
        """Return the history of a workflow after a version."""
        found = self._run(f"{_EVENTS} WHERE workflow = ? AND version > ? ORDER BY version", (number, version))
        return [happened_of(values[1:]) for values in found]

    def aside(self, table: str, keys: Sequence[str]) -> dict[str, Aside]:
        """Return the records of these keys."""
        made, sql = _MADE[table], f"SELECT * FROM {table} WHERE {_KEYS[table]} = ?"
        found = ((key, values) for key in keys for values in self._run(sql, (key,)))
        return {key: made(*values) for key, values in found}

    def keys_aside(self, table: str, after: str, limit: int) -> list[str]:
        """Return the next keys after one."""
        key = _KEYS[table]
        return [str(found) for (found,) in self._run(
            f"SELECT {key} FROM {table} WHERE {key} > ? ORDER BY {key} LIMIT ?", (after, limit))]  # fmt: skip

    def count(self, table: str) -> int:
        """Rows of a table."""
        [(count,)] = self._run(f"SELECT count(*) FROM {table}")
        return int(count)

    def sums(self) -> Sums:
        """Return quick totals of all rows: it reads the workflows, and an index over history."""
        [rows] = self._run("SELECT count(*), coalesce(sum(revision), 0) FROM workflows")
        [events] = self._run(
            "SELECT count(*), coalesce(sum(version), 0) FROM workflow_events INDEXED BY workflow_events_by_version"
        )
        return Sums(*map(int, (*rows, *events)))

    def _run(self, sql: str, values: Sequence[object] = ()) -> list[tuple[Any, ...]]:
        found = self._connection.cursor().execute(sql, cast("tuple[str | int, ...]", tuple(values)))
        return cast("list[tuple[Any, ...]]", found.fetchall())


def _numbered(rows: Iterable[tuple[Any, ...]]) -> list[Numbered]:
    return [arriving(values[0], row_of(values[1:])) for values in rows]


def _by_number(rows: Iterable[tuple[Any, ...]]) -> dict[int, list[Happened]]:
    found: dict[int, list[Happened]] = {}
    for values in rows:
        found.setdefault(values[0], []).append(happened_of(values[1:]))
    return found
