"""Shape of a database in terms of both engines: types, sequences, tables, columns, constraints, indexes, views.

A shape is read from either engine (`lane_shape`, `postgres_shape`) and written for either. Expressions (defaults,
checks, conditions of indexes) are PostgreSQL's text, and both engines support them; otherwise there is no shape.

The engines differ in what can follow the rows. A lane needs everything but indexes in CREATE TABLE. On PostgreSQL
unique constraints are built faster after the rows. References may point to rows that are not copied yet, so they come
`last`: unvalidated, while writers are blocked, because the source had accepted the verified rows. `validated` checks
them later. Expressions name enumerations and sequences without their schema, and views name tables so: on PostgreSQL
their statements run with `searching`.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from graphlib import CycleError, TopologicalSorter
from typing import Final, Literal, TypeVar

from interlock.database.call_digest import KEYS_SCHEMA as POSTGRES_KEYS
from interlock.database.call_digest import KEYS_TABLE as TABLE
from interlock.errors import DialectError, TransactionError
from interlock.sql.parse import quoted_list, quoted_name
from interlock.sql.schema import NumberSequence
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
    generated: str | None = None
    """The expression that computes it. Rows are read with it, compared with it, and written without it."""

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
    computed: bool = False
    """Whether `columns` has expressions, in parentheses, and names of columns with their quotes."""

    @property
    def keys(self) -> tuple[str, ...]:
        """Return its columns and expressions as SQL."""
        return tuple(name if self.computed else quoted_name(name) for name, _ in self.columns)


@dataclass(frozen=True, slots=True)
class ViewShape:
    """A view, as the statement that makes it."""

    name: str
    create: str


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
    def written(self) -> tuple[Column, ...]:
        """Return the columns that a statement gives values to."""
        return tuple(column for column in self.columns if column.generated is None)

    @property
    def enumerations(self) -> tuple[Type, ...]:
        """Return the enumerations of its columns."""
        kinds = (column.type.element if column.type.is_array else column.type for column in self.columns)
        return tuple(dict.fromkeys(kind for kind in kinds if kind.labels))

    @property
    def alone(self) -> "Table":
        """Return the table without references and defaults, which may need other parts of the database."""
        columns = tuple(replace(column, default=None) for column in self.columns)
        return replace(self, columns=columns, references=())

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
        # Its types are found by `searching`.
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
    """A database without its rows. A table comes after those that it refers to, but for circles."""

    tables: tuple[Table, ...]
    notes: tuple[str, ...] = ()
    """Remarks for people: harmless differences at the other place."""
    enumerations: tuple[Type, ...] = ()
    sequences: tuple[NumberSequence, ...] = ()
    """Those of CREATE SEQUENCE."""
    views: tuple[ViewShape, ...] = ()
    """Each after those that it reads."""

    @property
    def before(self) -> tuple[str, ...]:
        """Return the statements before those of the tables, in PostgreSQL's dialect, for either engine."""
        return (*map(enumeration_text, self.enumerations), *map(_sequence, self.sequences))

    @property
    def lane_definitions(self) -> tuple[str, ...]:
        """Return the statements that make everything but indexes and views in a lane, in PostgreSQL's dialect.

        A reference to a table that is made later, as in a circle, is added after all tables.
        """
        made: set[str] = set()
        first: list[str] = []
        late: list[str] = []
        for table in self.tables:
            made.add(table.name)
            known = tuple(each for each in table.references if each.table in made)
            if not table.ours:
                first.append(replace(table, references=known).create)
            adding = f"ALTER TABLE {quoted_name(table.name)} ADD "
            late += [adding + _reference(each) for each in table.references if each not in known]
        return (*self.before, *first, *late)

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


def searching(schema: str) -> str:
    """Return the statement by which names without a schema are those of this one, until the transaction ends."""
    return f"SET LOCAL search_path TO {quoted_name(schema)}"


def type_text(kind: Type, schema: str = "") -> str:
    """Return the type as statements name it; an enumeration with its schema."""
    if not (kind.element if kind.is_array else kind).labels:
        return str(kind)
    name = quoted_name(kind.title.removesuffix("[]"))
    return f"{quoted_name(schema) + '.' if schema else ''}{name}{'[]' if kind.is_array else ''}"


def enumeration_text(kind: Type) -> str:
    """Return CREATE TYPE."""
    labels = ", ".join("'" + label.replace("'", "''") + "'" for label in kind.labels)
    return f"CREATE TYPE {quoted_name(kind.title)} AS ENUM ({labels})"


def _sequence(sequence: NumberSequence) -> str:
    return (
        f"CREATE SEQUENCE {quoted_name(sequence.name)} INCREMENT BY {sequence.increment} MINVALUE {sequence.minimum} "
        f"MAXVALUE {sequence.maximum} START WITH {sequence.start}{' CYCLE' if sequence.cycle else ''}"
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
    kind = type_text(column.type)
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
    if column.generated is not None:
        return f"{text} GENERATED ALWAYS AS ({column.generated}) STORED"
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
    falling = [" DESC" if descending else "" for _, descending in index.columns]
    listed = ", ".join(map(str.__add__, index.keys, falling))
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


def ordered(tables: Sequence[Table]) -> tuple[Table, ...]:
    """Return the tables by name, each after those that it refers to, unless some refer to each other in a circle."""
    by_name = {table.name: table for table in sorted(tables, key=lambda table: table.name)}
    graph = {
        name: {each.table for each in table.references if each.table != name and each.table in by_name}
        for name, table in by_name.items()
    }
    try:
        return tuple(by_name[name] for name in TopologicalSorter(graph).static_order())
    except CycleError:
        return tuple(by_name.values())


def by_name(parts: Iterable[NamedT]) -> tuple[NamedT, ...]:
    """Return the parts of a table sorted by name."""
    return tuple(sorted(parts, key=lambda part: part.name))
