"""Shape of a database in terms of both engines: tables, columns, constraints, indexes.

A shape is read from either engine (`lane_shape`, `postgres_shape`) and written for either. Expressions (defaults,
checks, conditions of indexes) are PostgreSQL's text, and both engines support them; otherwise there is no shape.

The engines differ in what can follow the rows. A lane needs everything but indexes in CREATE TABLE. On PostgreSQL
unique constraints are built faster after the rows. References may point to rows that are not copied yet, so they come
`last`: unvalidated, while writers are blocked, because the source had accepted the verified rows. `validated` checks
them later.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter
from typing import Final, Literal, TypeVar

from interlock.database.call_digest import KEYS_SCHEMA as POSTGRES_KEYS
from interlock.database.call_digest import KEYS_TABLE as TABLE
from interlock.errors import DialectError, TransactionError
from interlock.sql.parse import quoted_list, quoted_name
from interlock.sql.types import BYTEA, INT8, TEXT, TIMESTAMPTZ, Type

KEY_TABLES: Final = TABLE
"""The table of idempotency keys, which each engine creates by itself."""

Numbered = Literal["serial", "always", "by default"]
"""Declaration of a numbered column: serial, or GENERATED … AS IDENTITY."""

Action = Literal["NO ACTION", "RESTRICT", "CASCADE", "SET NULL"]


@dataclass(frozen=True, slots=True)
class Column:
    """One column. `default` is an expression; `in_lane` is its name in a lane if that differs."""

    name: str
    type: Type
    nullable: bool = True
    default: str | None = None
    numbered: Numbered | None = None
    in_lane: str = ""
    start: int = 1
    """The first number of an identity."""

    @property
    def stored(self) -> str:
        """Return its name in a lane."""
        return self.in_lane or self.name


@dataclass(frozen=True, slots=True)
class Check:
    """A condition that is true or NULL for every row."""

    name: str
    condition: str


@dataclass(frozen=True, slots=True)
class Unique:
    """Columns whose values no two rows share, unless one of them is NULL."""

    name: str
    columns: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Reference:
    """A foreign key: columns that hold the primary key, or a unique one, of a row of another table, or of this one."""

    name: str
    columns: tuple[str, ...]
    table: str
    key: tuple[str, ...]
    on_delete: Action = "NO ACTION"
    on_update: Action = "NO ACTION"
    deferrable: bool = False
    deferred: bool = False
    """Checked at the end of a transaction, unless the transaction says otherwise."""


@dataclass(frozen=True, slots=True)
class Index:
    """An index; `columns` with whether they descend. `where` is the condition of a partial one."""

    name: str
    columns: tuple[tuple[str, bool], ...]
    unique: bool = False
    where: str | None = None


@dataclass(frozen=True, slots=True)
class Table:
    """One table. Without a `key` its rows are distinguished only by all their values."""

    name: str
    columns: tuple[Column, ...]
    key: tuple[str, ...] = ()
    key_name: str = ""
    """The name of the primary key if it is not PostgreSQL's default."""
    checks: tuple[Check, ...] = ()
    uniques: tuple[Unique, ...] = ()
    references: tuple[Reference, ...] = ()
    indexes: tuple[Index, ...] = ()

    @property
    def ours(self) -> bool:
        """Whether it is a table of Interlock itself, which users do not see and a move must copy."""
        return self.name == KEY_TABLES

    @property
    def numbered(self) -> tuple[Column, ...]:
        """Return the numbered columns."""
        return tuple(column for column in self.columns if column.numbered is not None)

    @property
    def key_columns(self) -> tuple[Column, ...]:
        """Return the columns of the key, in its order."""
        known = {column.name: column for column in self.columns}
        return tuple(known[name] for name in self.key)

    @property
    def create(self) -> str:
        """Return CREATE TABLE with all constraints, in PostgreSQL's dialect, for either engine."""
        parts = [*_columns(self), *map(_unique, self.uniques), *map(_reference, self.references)]
        return f"CREATE TABLE {quoted_name(self.name)} ({', '.join(parts)})"

    @property
    def indexing(self) -> tuple[str, ...]:
        """Return CREATE INDEX for each index, in PostgreSQL's dialect."""
        return tuple(_index(index, quoted_name(self.name)) for index in self.indexes)

    def first(self, schema: str) -> str:
        """Return the statement before the rows, on PostgreSQL: the table with its columns, primary key and checks."""
        if self.ours:
            return _keys_in(schema)
        return f"CREATE TABLE {_in(schema, self.name)} ({', '.join(_columns(self))})"

    def after(self, schema: str) -> tuple[str, ...]:
        """Return the statements after the rows, on PostgreSQL: unique constraints and indexes; the source serves."""
        table = _in(schema, self.name)
        uniques = [f"ALTER TABLE {table} ADD {_unique(unique)}" for unique in self.uniques]
        return (*uniques, *(_index(index, table) for index in self.indexes))

    def last(self, schema: str) -> tuple[str, ...]:
        """Return the statements of the seal, on PostgreSQL: unvalidated references."""
        table = _in(schema, self.name)
        return tuple(
            f"ALTER TABLE {table} ADD {_reference(reference, schema)} NOT VALID" for reference in self.references
        )

    def validated(self, schema: str) -> tuple[str, ...]:
        """Return the statements after the move, on PostgreSQL: the validation of the references."""
        table = _in(schema, self.name)
        return tuple(
            f"ALTER TABLE {table} VALIDATE CONSTRAINT {quoted_name(reference.name)}" for reference in self.references
        )


@dataclass(frozen=True, slots=True)
class Shape:
    """A database without its rows. A table comes after those that it refers to."""

    tables: tuple[Table, ...]
    notes: tuple[str, ...] = ()
    """Remarks for people: harmless differences at the other place."""

    def table(self, name: str) -> Table:
        """Return the table of that name, which must exist."""
        return next(table for table in self.tables if table.name == name)


KEYS_TABLE: Final = Table(
    KEY_TABLES,
    (
        Column("number", INT8, nullable=False, numbered="always"),
        Column("key", TEXT, nullable=False),
        Column("digest", BYTEA, nullable=False),
        Column("result", BYTEA),
        Column("at", TIMESTAMPTZ, nullable=False, in_lane="at_us"),
    ),
    key=("key",),
)


def _in(schema: str, table: str) -> str:
    return f"{quoted_name(schema)}.{quoted_name(table)}"


def _keys_in(schema: str) -> str:
    return POSTGRES_KEYS.replace(f"EXISTS {KEY_TABLES}", f"EXISTS {_in(schema, KEY_TABLES)}", 1)


_SERIAL: Final = {"int2": "smallserial", "int4": "serial", "int8": "bigserial"}


def _columns(table: Table) -> list[str]:
    """Return the definitions of the columns, the primary key and the checks."""
    parts = [_column(column, table) for column in table.columns]
    if table.key and (table.key_name or table.key not in [(column.name,) for column in table.numbered]):
        name = f"CONSTRAINT {quoted_name(table.key_name)} " if table.key_name else ""
        parts.append(f"{name}PRIMARY KEY ({quoted_list(table.key)})")
    return parts + [f"CONSTRAINT {quoted_name(check.name)} CHECK ({check.condition})" for check in table.checks]


def _column(column: Column, table: Table) -> str:
    kind = str(column.type)
    if column.numbered == "serial":
        kind = _SERIAL[column.type.name]
    elif column.numbered is not None:
        start = f" (START WITH {column.start})" if column.start != 1 else ""
        kind += f" GENERATED {column.numbered.upper()} AS IDENTITY{start}"
    text = f"{quoted_name(column.name)} {kind}"
    if table.key == (column.name,) and column.numbered is not None and not table.key_name:
        return f"{text} PRIMARY KEY"
    if not column.nullable and column.name not in table.key and column.numbered is None:
        text += " NOT NULL"
    return text if column.default is None else f"{text} DEFAULT {column.default}"


def _unique(unique: Unique) -> str:
    return f"CONSTRAINT {quoted_name(unique.name)} UNIQUE ({quoted_list(unique.columns)})"


def _reference(reference: Reference, schema: str = "") -> str:
    target = _in(schema, reference.table) if schema else quoted_name(reference.table)
    text = (
        f"CONSTRAINT {quoted_name(reference.name)} FOREIGN KEY ({quoted_list(reference.columns)}) "
        f"REFERENCES {target} ({quoted_list(reference.key)})"
    )
    if reference.on_delete != "NO ACTION":
        text += f" ON DELETE {reference.on_delete}"
    if reference.on_update != "NO ACTION":
        text += f" ON UPDATE {reference.on_update}"
    if reference.deferrable:
        text += f" DEFERRABLE INITIALLY {'DEFERRED' if reference.deferred else 'IMMEDIATE'}"
    return text


def _index(index: Index, table: str) -> str:
    listed = ", ".join(quoted_name(name) + (" DESC" if descending else "") for name, descending in index.columns)
    text = f"CREATE {'UNIQUE ' if index.unique else ''}INDEX {quoted_name(index.name)} ON {table} ({listed})"
    return text if index.where is None else f"{text} WHERE {index.where}"


# --- Findings that prevent a move ------------------------------------------------------------------------------------

SHOWN_MAX: Final = 20


class Findings:
    """Collects what the other engine does not support."""

    def __init__(self) -> None:
        self.found: list[str] = []

    def add(self, where: str, what: str) -> None:
        """`where` is a table, a column, a constraint; `what` is the reason."""
        self.found.append(f"{where}: {what.rstrip('.')}")

    def refused(self, where: str, error: DialectError | TransactionError) -> None:
        """Add an error of the dialect."""
        self.add(where, f"{error.what.rstrip('.')} ({error.fix.rstrip('.')})")

    def settle(self, whole: str) -> None:
        """Raise DialectError when something was found."""
        count = len(self.found)
        if count == 0:
            return
        listed = [f"\n  - {each}" for each in self.found[:SHOWN_MAX]]
        if count > SHOWN_MAX:
            listed.append(f"\n  - and {count - SHOWN_MAX} more")
        raise DialectError(
            f"{whole} cannot move; {count} thing{'s' if count > 1 else ''} of it would be another one at the other "
            f"place:{''.join(listed)}",
            why="A move keeps every row and every rule, or does not begin. Nothing was copied or changed.",
            fix="Change or drop what is named, then move; docs/reference/sql.md has what both engines take.",
        )


# --- Order of tables and parts ---------------------------------------------------------------------------------------

NamedT = TypeVar("NamedT", Check, Unique, Reference, Index)


def ordered(tables: Sequence[Table], findings: Findings) -> tuple[Table, ...]:
    """Return the tables by name, each after those that it refers to. Circular references are a finding."""
    by_name = {table.name: table for table in sorted(tables, key=lambda table: table.name)}
    graph = {
        name: {each.table for each in table.references if each.table != name and each.table in by_name}
        for name, table in by_name.items()
    }
    try:
        return tuple(by_name[name] for name in TopologicalSorter(graph).static_order())
    except CycleError as error:
        circle: Sequence[str] = error.args[1]
        findings.add(
            f"the tables {', '.join(circle)}", "they refer to each other, and a lane makes one after the other"
        )
        return tuple(by_name.values())


def by_name(parts: Iterable[NamedT]) -> tuple[NamedT, ...]:
    """Return the parts of a table sorted by name."""
    return tuple(sorted(parts, key=lambda part: part.name))
