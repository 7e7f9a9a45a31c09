"""Shape of a database in terms of both engines: tables, columns, constraints, indexes.

A shape is read from either engine (`lane_shape`, `postgres_shape`) and written for either. Expressions (defaults,
checks, conditions of indexes) are PostgreSQL's text, and both engines support them; otherwise there is no shape.

The engines differ in what can follow the rows. A lane needs everything but indexes in CREATE TABLE. On PostgreSQL
unique constraints are built faster after the rows. References may point to rows that are not copied yet, so they come
`last`: unvalidated, while writers are blocked, because the source had accepted the verified rows. `validated` checks
them later.
"""

from dataclasses import dataclass
from typing import Final, Literal

from interlock.database.remembering import SCHEMA as POSTGRES_KEYS
from interlock.database.remembering import TABLE
from interlock.sql.datatypes import BYTEA, INT8, TEXT, TIMESTAMPTZ, Type
from interlock.sql.syntax import quoted, quoted_list

KEYS: Final = TABLE
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
    """A foreign key: columns that hold the primary key of a row of another table, or of this one."""

    name: str
    columns: tuple[str, ...]
    table: str
    key: tuple[str, ...]
    on_delete: Action = "NO ACTION"
    on_update: Action = "NO ACTION"


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
        return self.name == KEYS

    @property
    def numbered(self) -> Column | None:
        """Return the numbered column, if there is one. There is never more than one."""
        return next((column for column in self.columns if column.numbered is not None), None)

    @property
    def key_columns(self) -> tuple[Column, ...]:
        """Return the columns of the key, in its order."""
        known = {column.name: column for column in self.columns}
        return tuple(known[name] for name in self.key)

    @property
    def create(self) -> str:
        """Return CREATE TABLE with all constraints, in PostgreSQL's dialect, for either engine."""
        parts = [*_columns(self), *map(_unique, self.uniques), *map(_reference, self.references)]
        return f"CREATE TABLE {quoted(self.name)} ({', '.join(parts)})"

    @property
    def indexing(self) -> tuple[str, ...]:
        """Return CREATE INDEX for each index, in PostgreSQL's dialect."""
        return tuple(_index(index, quoted(self.name)) for index in self.indexes)

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
            f"ALTER TABLE {table} VALIDATE CONSTRAINT {quoted(reference.name)}" for reference in self.references
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
    KEYS,
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
    return f"{quoted(schema)}.{quoted(table)}"


def _keys_in(schema: str) -> str:
    return POSTGRES_KEYS.replace(f"EXISTS {KEYS}", f"EXISTS {_in(schema, KEYS)}", 1)


_SERIAL: Final = {"int2": "smallserial", "int4": "serial", "int8": "bigserial"}


def _columns(table: Table) -> list[str]:
    """Return the definitions of the columns, the primary key and the checks."""
    parts = [_column(column, table) for column in table.columns]
    if table.key and (table.numbered is None or table.key_name):
        name = f"CONSTRAINT {quoted(table.key_name)} " if table.key_name else ""
        parts.append(f"{name}PRIMARY KEY ({quoted_list(table.key)})")
    return parts + [f"CONSTRAINT {quoted(check.name)} CHECK ({check.condition})" for check in table.checks]


def _column(column: Column, table: Table) -> str:
    kind = str(column.type)
    if column.numbered == "serial":
        kind = _SERIAL[column.type.name]
    elif column.numbered is not None:
        kind += f" GENERATED {column.numbered.upper()} AS IDENTITY"
    text = f"{quoted(column.name)} {kind}"
    if table.key == (column.name,) and column.numbered is not None and not table.key_name:
        return f"{text} PRIMARY KEY"
    if not column.nullable and column.name not in table.key and column.numbered is None:
        text += " NOT NULL"
    return text if column.default is None else f"{text} DEFAULT {column.default}"


def _unique(unique: Unique) -> str:
    return f"CONSTRAINT {quoted(unique.name)} UNIQUE ({quoted_list(unique.columns)})"


def _reference(reference: Reference, schema: str = "") -> str:
    target = _in(schema, reference.table) if schema else quoted(reference.table)
    text = (
        f"CONSTRAINT {quoted(reference.name)} FOREIGN KEY ({quoted_list(reference.columns)}) "
        f"REFERENCES {target} ({quoted_list(reference.key)})"
    )
    if reference.on_delete != "NO ACTION":
        text += f" ON DELETE {reference.on_delete}"
    return text if reference.on_update == "NO ACTION" else f"{text} ON UPDATE {reference.on_update}"


def _index(index: Index, table: str) -> str:
    listed = ", ".join(quoted(name) + (" DESC" if descending else "") for name, descending in index.columns)
    text = f"CREATE {'UNIQUE ' if index.unique else ''}INDEX {quoted(index.name)} ON {table} ({listed})"
    return text if index.where is None else f"{text} WHERE {index.where}"
