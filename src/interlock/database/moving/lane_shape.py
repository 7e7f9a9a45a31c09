"""Shape of a lane's database: SQLite's catalog in PostgreSQL's terms.

The catalog of every lane has types by their declared names, constraints and indexes. Only expressions are SQLite's
text. Their PostgreSQL text is what users wrote (`noted`), or else a guess (`guesses`). Either is accepted only if the
dialect translates it to the text of the catalog; otherwise there is no shape.
"""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# apsw's stubs leave the values of SQLite partly open; mypy --strict looks at what is ours.

import contextlib
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import replace
from itertools import chain
from typing import Final, cast

import apsw

from interlock.database.moving.catalog_text import CatalogTable, table_of, where_of
from interlock.database.moving.findings import Findings
from interlock.database.moving.guesses import guessed_condition, guessed_default
from interlock.database.moving.lexing import source, words_of
from interlock.database.moving.names import chosen
from interlock.database.moving.noted import Written, written
from interlock.database.moving.ordering import by_name, ordered
from interlock.database.moving.shape import KEYS, KEYS_TABLE, Check, Column, Index, Reference, Shape, Table, Unique
from interlock.database.moving.trying import check_in_lane, condition_in_lane, default_in_lane, same_in_lane
from interlock.errors import DialectError, TransactionError
from interlock.sql.schema import COLUMNS_QUERY, ColumnRow, schema_from_rows
from interlock.sql.schema import Column as KnownColumn
from interlock.sql.schema import Table as KnownTable

TABLES: Final = """
SELECT name, sql FROM sqlite_schema
WHERE type = 'table' AND name NOT LIKE 'sqlite\\_%' ESCAPE '\\' ORDER BY name"""
INDEXES: Final = "SELECT name, sql FROM sqlite_schema WHERE type = 'index' AND tbl_name = ? AND sql IS NOT NULL"
INDEX_NAMES: Final = "SELECT name FROM sqlite_schema WHERE type = 'index' AND sql IS NOT NULL"
INDEXED: Final = 'SELECT name, "desc" FROM pragma_index_xinfo(?) WHERE key = 1 ORDER BY seqno'
UNIQUE: Final = 'SELECT "unique" FROM pragma_index_list(?) WHERE name = ?'
NOTED: Final = "SELECT sql FROM interlock_definitions ORDER BY number"
OURS: Final = "interlock_"

_UNKNOWN: Final = "its PostgreSQL text is not known, and cannot be derived from {!r}"


def shape_of_lane(connection: apsw.Connection) -> Shape:
    """Return the shape of the lane's database. Raises DialectError with everything that has no known text."""
    tables = dict(cast("list[tuple[str, str]]", connection.execute(TABLES).fetchall()))
    known = schema_from_rows(cast("list[ColumnRow]", connection.execute(COLUMNS_QUERY).fetchall()), version=0)
    notes: dict[str, Written] = {}
    if "interlock_definitions" in tables:
        notes = written(cast("str", sql) for (sql,) in connection.execute(NOTED))
    findings = Findings()
    taken = {*tables, *(cast("str", name) for (name,) in connection.execute(INDEX_NAMES))}
    found: list[Table] = [KEYS_TABLE] if KEYS in tables else []
    for name, text in tables.items():
        if name.startswith(OURS):
            continue
        table = known.table(name)
        if table is None:
            findings.add(f"the table {name}", "it was not made by a statement of the dialect")
            continue
        reading = _Reading(connection, table, table_of(text), notes.get(name, Written()), findings, taken)
        found.append(reading.table())
    tables_ordered = ordered(found, findings)
    findings.settle("the database")
    return Shape(tables_ordered)


class _Reading:
    """Reader of one table."""

    def __init__(
        self,
        connection: apsw.Connection,
        known: KnownTable,
        catalog: CatalogTable,
        notes: Written,
        findings: Findings,
        taken: set[str],
    ) -> None:
        self._connection = connection
        self._known = known
        self._catalog = catalog
        self._notes = notes
        self._findings = findings
        self._names: set[str] = set()
        self._taken = taken
        """Names of tables and indexes: on PostgreSQL the index of a unique constraint has its name in the schema."""

    def table(self) -> Table:
        """Return the table."""
        name, key = self._known.name, self._known.primary_key
        columns = tuple(self._column(column) for column in self._known.columns)
        key_name = self._catalog.key_name or (self._notes.key_name if any(each.numbered for each in columns) else "")
        return Table(
            name,
            columns,
            key,
            key_name="" if key_name == chosen(name, (), "pkey") else key_name,
            checks=by_name(self._check(label, text, columns) for label, text in self._catalog.checks),
            uniques=by_name(map(self._unique, self._catalog.uniques)),
            references=by_name(map(self._reference, self._catalog.references)),
            indexes=by_name(self._indexes(columns)),
        )

    def _column(self, known: KnownColumn) -> Column:
        column = Column(known.name, known.type, nullable=known.nullable)
        if known.serial:
            numbered = self._notes.numbered.get(known.name, "serial")
            return Column(known.name, known.type, nullable=False, numbered=numbered)
        stored = self._catalog.defaults.get(known.name)
        if stored is None or stored == "NULL":
            return column
        first = self._notes.defaults.get(known.name)
        guesses = guessed_default(known.type, stored)
        text = self._told(first, guesses, lambda tried: same_in_lane(default_in_lane(column, tried), stored))
        if text is None:
            self._findings.add(f"the default of {self._known.name}.{known.name}", _UNKNOWN.format(stored))
        return Column(known.name, known.type, nullable=known.nullable, default=text)

    def _check(self, label: str, stored: str, columns: tuple[Column, ...]) -> Check:
        table, key = self._known.name, self._known.primary_key
        # A key column may have been declared NOT NULL, too, which changes the translation.
        also = tuple(replace(each, nullable=each.nullable or each.name in key) for each in columns)
        text = self._told(
            self._notes.checks.get(label),
            guessed_condition(stored),
            lambda tried: any(same_in_lane(check_in_lane(table, each, tried), stored) for each in (columns, also)),
        )
        if text is None:
            self._findings.add(f"the check {label} of {table}", _UNKNOWN.format(stored))
        # Two checks of one table may have one name in a lane.
        return Check(self._named(label, (), "check"), text or "")

    def _unique(self, found: Unique) -> Unique:
        name = self._named(found.name, found.columns, "key", self._taken)
        self._taken.add(name)
        return Unique(name, found.columns)

    def _reference(self, found: Reference) -> Reference:
        name = self._named(found.name, found.columns, "fkey")
        return Reference(name, found.columns, found.table, found.key, found.on_delete, found.on_update)

    def _named(self, label: str, columns: tuple[str, ...], kind: str, taken: Collection[str] = ()) -> str:
        """Return its own name, or the one that PostgreSQL would choose: a lane allows missing and duplicate names."""
        taken = {*self._names, *taken}
        name = label
        if not label:
            name = chosen(self._known.name, columns, kind, taken)
        elif label in taken:
            name = chosen(label.removesuffix(f"_{kind}"), (), kind, taken)
        self._names.add(name)
        return name

    def _indexes(self, columns: tuple[Column, ...]) -> Iterator[Index]:
        table = self._known.name
        for name, text in cast("list[tuple[str, str]]", self._connection.execute(INDEXES, (table,)).fetchall()):
            listed = cast("list[tuple[str, int]]", self._connection.execute(INDEXED, (name,)).fetchall())
            unique = bool(self._connection.execute(UNIQUE, (table, name)).get)
            stored = where_of(text)
            where = None
            if stored is not None:
                where = self._told(
                    None,
                    guessed_condition(stored),
                    lambda tried, wanted=stored: same_in_lane(condition_in_lane(table, columns, tried), wanted),  # type: ignore[misc]
                )
                if where is None:
                    self._findings.add(f"the index {name}", _UNKNOWN.format(stored))
            yield Index(name, tuple((column, bool(down)) for column, down in listed), unique=unique, where=where)

    def _told(self, first: str | None, guesses: Iterable[str], fits: Callable[[str], bool]) -> str | None:
        """Return PostgreSQL's text of an expression: a text that users wrote, or else a guess; None if none fits."""
        seen: set[str] = set()
        for tried in chain([] if first is None else [first], self._notes.expressions, guesses):
            if tried in seen:
                continue
            seen.add(tried)
            with contextlib.suppress(DialectError, TransactionError):
                if fits(tried):
                    return source(words_of(tried))
        return None
