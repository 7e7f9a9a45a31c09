"""The schema of a database for the dialect: tables, their columns and PostgreSQL types, and foreign keys.

The lane reads `COLUMNS_QUERY`, `REFERENCES_QUERY` and `INDEXES_QUERY` from SQLite's own catalog and gives the rows to
`schema_from_rows`; nothing else describes a schema, so none can disagree with the database. Its `version` is part of
the key under which translations are kept, so two catalogs must never share one: count the times it was read. SQLite's
own `schema_version` will not do, because a change that is rolled back gives its number to the next one.
The odd choice: a table with a column of unknown type is left out, so that statements on it are refused.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from interlock.sql.types import SERIALS, Type, parse_declared

COLUMNS_QUERY: Final = """
SELECT catalog.name, info.name, info.type, info."notnull", info.dflt_value, info.pk
FROM sqlite_schema AS catalog JOIN pragma_table_info(catalog.name) AS info
WHERE catalog.type = 'table' ORDER BY catalog.name, info.cid
"""
REFERENCES_QUERY: Final = """
SELECT DISTINCT catalog.name, reference."table"
FROM sqlite_schema AS catalog JOIN pragma_foreign_key_list(catalog.name) AS reference
WHERE catalog.type = 'table'
"""
INDEXES_QUERY: Final = "SELECT name FROM sqlite_schema WHERE type = 'index'"

# Table, column, declared type, NOT NULL, default, place in the primary key: a row of COLUMNS_QUERY.
ColumnRow = tuple[str, str, str, int, str | None, int]
# Table, table that it refers to: a row of REFERENCES_QUERY.
ReferenceRow = tuple[str, str]


@dataclass(frozen=True, slots=True)
class Column:
    """One column. `serial` columns are numbered by SQLite and never written by a statement; `default` is SQLite's."""

    name: str
    type: Type
    nullable: bool = True
    has_default: bool = False
    serial: bool = False
    default: str | None = None


@dataclass(frozen=True, slots=True)
class Table:
    """One table. `references` are the tables its foreign keys point to."""

    name: str
    columns: tuple[Column, ...]
    primary_key: tuple[str, ...] = ()
    references: frozenset[str] = frozenset()

    def column(self, name: str) -> Column | None:
        """The column of that name, in the very spelling of the catalog."""
        return next((column for column in self.columns if column.name == name), None)


@dataclass(frozen=True, slots=True)
class Schema:
    """All tables at one version of the catalog."""

    version: int
    tables: Mapping[str, Table] = field(default_factory=dict[str, Table])
    indexes: frozenset[str] = frozenset()

    def table(self, name: str) -> Table | None:
        """The table of that name, in the very spelling of the catalog."""
        return self.tables.get(name)


def schema_from_rows(
    rows: Iterable[ColumnRow],
    *,
    version: int,
    references: Iterable[ReferenceRow] = (),
    indexes: Iterable[tuple[str]] = (),
) -> Schema:
    """The schema by SQLite's catalog: rows of COLUMNS_QUERY, REFERENCES_QUERY and INDEXES_QUERY."""
    pointing: dict[str, set[str]] = {}
    for table, target in references:
        pointing.setdefault(table, set()).add(target)
    columns: dict[str, list[Column]] = {}
    keys: dict[str, dict[int, str]] = {}
    foreign: set[str] = set()
    for table, name, kind, not_null, default, place in rows:
        column = _column(name, kind, not_null=bool(not_null), default=default, in_key=place > 0)
        if column is None:
            foreign.add(table)
            continue
        columns.setdefault(table, []).append(column)
        if place:
            keys.setdefault(table, {})[place] = name
    tables = {
        table: Table(
            table,
            tuple(listed),
            primary_key=tuple(name for _, name in sorted(keys.get(table, {}).items())),
            references=frozenset(pointing.get(table, ())),
        )
        for table, listed in columns.items()
        if table not in foreign
    }
    return Schema(version, tables, frozenset(name for (name,) in indexes))


def _column(name: str, kind: str, *, not_null: bool, default: str | None, in_key: bool) -> Column | None:
    if kind.upper() == "INTEGER":
        serial = SERIALS.get((default or "").strip("'"))
        if serial is None or not in_key:
            return None
        return Column(name, serial, nullable=False, has_default=True, serial=True)
    known = parse_declared(kind)
    if known is None:
        return None
    return Column(name, known, nullable=not not_null, has_default=default is not None, default=default)
