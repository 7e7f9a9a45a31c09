"""Shape of a schema of PostgreSQL, in terms that a lane supports as well.

Every part is translated by the dialect while it is read, so that everything that a lane does not support is found and
named before the copy: a column's type, a default, a check, an index. Expressions are tried in the server's text and
then in simpler equivalent forms (`undressing`).
"""

from collections.abc import Callable
from typing import Final, cast

from interlock.database.moving import postgres_catalog as catalog
from interlock.database.moving.findings import Findings
from interlock.database.moving.names import chosen
from interlock.database.moving.ordering import by_name, ordered
from interlock.database.moving.postgres_catalog import ColumnRow, ConstraintRow, IndexRow, RelationRow, asked
from interlock.database.moving.shape import (
    KEYS,
    KEYS_TABLE,
    Action,
    Check,
    Column,
    Index,
    Numbered,
    Reference,
    Shape,
    Table,
    Unique,
)
from interlock.database.moving.trying import (
    check_in_lane,
    condition_in_lane,
    default_in_lane,
    known_table,
    type_in_lane,
)
from interlock.database.moving.undressing import undressed
from interlock.errors import DialectError, TransactionError
from interlock.sql.datatypes import Type
from interlock.sql.postgres.link import Link
from interlock.sql.schema import Schema
from interlock.sql.schema import Table as KnownTable
from interlock.sql.translate import translate

OURS: Final = "interlock_"
_NOT_TABLES: Final = {"p": "a partitioned table", "v": "a view", "m": "a materialized view", "f": "a foreign table"}
_ACTIONS: Final[dict[str, Action]] = {"a": "NO ACTION", "r": "RESTRICT", "c": "CASCADE", "n": "SET NULL"}
_IDENTITIES: Final[dict[str, Numbered]] = {"a": "always", "d": "by default"}
_BYTES: Final = frozenset({"C", "POSIX"})


async def shape_of_postgres(link: Link, schema: str) -> Shape:
    """Return the shape of that schema. Raises DialectError with everything that a lane does not support."""
    reading = _Reading()
    relations = [RelationRow(*row) for row in await asked(link, catalog.RELATIONS, schema)]
    for column in [ColumnRow(*row) for row in await asked(link, catalog.COLUMNS, schema)]:
        reading.columns.setdefault(column.table, []).append(column)
    for constraint in [ConstraintRow(*row) for row in await asked(link, catalog.CONSTRAINTS, schema)]:
        reading.constraints.setdefault(constraint.table, []).append(constraint)
    for index in [IndexRow(*row) for row in await asked(link, catalog.INDEXES, schema)]:
        reading.indexes.setdefault(index.table, []).append(index)
    for [what] in await asked(link, catalog.OTHERS, schema):
        reading.findings.add(what, "a lane has tables and indexes alone")
    for [sequence] in await asked(link, catalog.SEQUENCES, schema):
        reading.findings.add(f"the sequence {sequence}", "a lane counts upwards by one, as far as the type goes")
    tables = ordered([table for relation in relations for table in reading.table(relation)], reading.findings)
    reading.offer(tables)
    reading.findings.settle("the database")
    [[bytewise, _]] = await asked(link, catalog.COLLATION, schema)
    if not bytewise and any(column.type.is_text for table in tables for column in table.columns):
        reading.notes.append("Text is sorted by the collation of the PostgreSQL database, and by its bytes in a lane.")
    return Shape(tables, tuple(reading.notes))


class _Reading:
    """Reader of the catalog's rows, with the findings."""

    def __init__(self) -> None:
        self.findings = Findings()
        self.notes: list[str] = []
        self.columns: dict[str, list[ColumnRow]] = {}
        self.constraints: dict[str, list[ConstraintRow]] = {}
        self.indexes: dict[str, list[IndexRow]] = {}

    def table(self, relation: RelationRow) -> list[Table]:
        """Return the table of that name in a list; an empty list if it does not move."""
        if relation.name == KEYS:
            return [KEYS_TABLE]
        if relation.name.startswith(OURS):
            return []
        where = f"the table {relation.name}"
        for found, what in (
            (relation.kind in _NOT_TABLES, f"it is {_NOT_TABLES.get(relation.kind)}"),
            (relation.persistence != "p", "it is unlogged or temporary"),
            (relation.inherits, "it is a part or a parent of another table"),
            (relation.secured, "it has row level security"),
            (relation.ruled, "it has rules"),
        ):
            if found:
                self.findings.add(where, what)
                return []
        columns = tuple(
            column for row in self.columns.get(relation.name, []) if (column := self._column(row)) is not None
        )
        return [self._constrained(Table(relation.name, columns))]

    def offer(self, tables: tuple[Table, ...]) -> None:
        """Translate each table as a whole: its names, its key, its references, its indexes."""
        known: dict[str, KnownTable] = {}
        whole = not self.findings.found
        for table in tables:
            if table.ours:
                continue
            if whole:
                self._offered(f"the table {table.name}", table.create, known)
            known[table.name] = known_table(table)
            for index, text in zip(table.indexes, table.indexing, strict=True):
                self._offered(f"the index {index.name}", text, known)

    def _offered(self, where: str, text: str, known: dict[str, KnownTable]) -> None:
        try:
            _ = translate(text, Schema(0, dict(known)))
        except (DialectError, TransactionError) as error:
            self.findings.refused(where, error)

    # --- Columns ------------------------------------------------------------------------------------------------------

    def _column(self, row: ColumnRow) -> Column | None:
        where = f"the column {row.table}.{row.name}"
        if row.generated:
            self.findings.add(where, "it is generated from others")
            return None
        if row.collation is not None and row.collation not in _BYTES:
            self.findings.add(where, f"it is sorted by the collation {row.collation}, and a lane sorts by bytes")
        elif row.collation is not None:
            self.notes.append(f"{row.table}.{row.name} would come back without COLLATE {row.collation!r}.")
        try:
            kind = type_in_lane(row.type)
        except (DialectError, TransactionError) as error:
            self.findings.refused(where, error)
            return None
        if row.identity:
            return Column(row.name, kind, nullable=False, numbered=_IDENTITIES[row.identity])
        if row.sequence is not None and (row.default or "").startswith("nextval("):
            return Column(row.name, kind, nullable=False, numbered="serial")
        column = Column(row.name, kind, nullable=not row.not_null)
        if row.default is None or row.default.startswith("NULL"):
            return column
        default = self._told(
            f"the default of {row.table}.{row.name}", row.default, {}, lambda tried: default_in_lane(column, tried)
        )
        return Column(row.name, kind, nullable=not row.not_null, default=default)

    def _told(self, where: str, shown: str, kinds: dict[str, Type], translated: Callable[[str], str]) -> str:
        """Return the first form of an expression that a lane supports."""
        refused: DialectError | TransactionError | None = None
        for tried in undressed(shown, kinds):
            try:
                _ = translated(tried)
            except (DialectError, TransactionError) as error:
                refused = error
            else:
                return tried
        assert refused is not None
        self.findings.refused(f"{where}, {shown}", refused)
        return shown

    # --- Constraints and indexes --------------------------------------------------------------------------------------

    def _constrained(self, table: Table) -> Table:
        name, columns = table.name, table.columns
        kinds = {column.name: column.type for column in columns}
        key, key_name = tuple[str, ...](), ""
        checks: list[Check] = []
        uniques: list[Unique] = []
        references: list[Reference] = []
        for row in self.constraints.get(name, []):
            if not self._takes(row):
                continue
            if row.kind == "p":
                key, key_name = tuple(row.columns), row.name
            elif row.kind == "u":
                uniques.append(Unique(row.name, tuple(row.columns)))
            elif row.kind == "c":
                condition = self._told(
                    f"the check {row.name} of {name}",
                    cast("str", row.condition),
                    kinds,
                    lambda tried: check_in_lane(name, columns, tried),
                )
                checks.append(Check(row.name, condition))
            else:
                actions = _ACTIONS[row.on_delete], _ACTIONS[row.on_update]
                references.append(
                    Reference(row.name, tuple(row.columns), cast("str", row.target), tuple(row.key), *actions)
                )
        return Table(
            name,
            columns,
            key,
            key_name="" if key_name == chosen(name, (), "pkey") else key_name,
            checks=by_name(checks),
            uniques=by_name(uniques),
            references=by_name(references),
            indexes=by_name(self._indexes(name, columns, kinds)),
        )

    def _takes(self, row: ConstraintRow) -> bool:
        """Return whether a lane supports this constraint."""
        where = f"the constraint {row.name} of {row.table}"
        for found, what in (
            (row.kind == "x", "it is an exclusion constraint"),
            (row.deferrable, "it can be deferred"),
            (not row.validated, "it was not validated, so rows may violate it"),
            ("NULLS NOT DISTINCT" in row.text, "it takes NULLs for equal"),
            ("NO INHERIT" in row.text or "NOT ENFORCED" in row.text, "it does not hold for every row"),
            (row.elsewhere, "it refers to a table outside of the schema"),
            ("MATCH FULL" in row.text, "it is MATCH FULL"),
            (row.kind == "f" and not {row.on_delete, row.on_update} <= _ACTIONS.keys(), "it is SET DEFAULT"),
            ("SET NULL (" in row.text, "it sets some of its columns to NULL"),
            ("INCLUDE (" in row.text or "WITHOUT OVERLAPS" in row.text or "PERIOD" in row.text, "it has extras"),
        ):
            if found:
                self.findings.add(where, what)
                return False
        return True

    def _indexes(self, table: str, columns: tuple[Column, ...], kinds: dict[str, Type]) -> list[Index]:
        listed: list[Index] = []
        for row in self.indexes.get(table, []):
            reasons = [
                what
                for found, what in (
                    (row.method != "btree", f"it is of the kind {row.method}"),
                    (row.computed, "it is on an expression"),
                    (row.includes or "NULLS NOT DISTINCT" in row.text, "it has extras"),
                    (row.special, "it has an operator class of its own"),
                    (not row.valid, "it is not valid"),
                )
                if found
            ]
            for what in reasons:
                self.findings.add(f"the index {row.name}", what)
            if reasons:
                continue
            where = row.where
            if where is not None:
                where = self._told(
                    f"the index {row.name}", where, kinds, lambda tried: condition_in_lane(table, columns, tried)
                )
            pairs = tuple(zip(row.columns, row.descending, strict=True))
            listed.append(Index(row.name, pairs, unique=row.unique, where=where))
        return listed
