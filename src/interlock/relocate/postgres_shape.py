"""Shape of a schema of PostgreSQL, in terms that a lane supports as well.

Every part is translated by the dialect while it is read, so that everything that a lane does not support is found and
named before the copy: a column's type, a default, a check, an index. Expressions are tried in the server's text and
then in simpler equivalent forms (`undressed`).

Sections: queries of the catalog, simplification of expressions, shape.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from graphlib import TopologicalSorter
from typing import Any, Final, NamedTuple, cast

from interlock.errors import DialectError, TransactionError
from interlock.postgres.pool import Link
from interlock.postgres.statements import translate_user_errors
from interlock.relocate.lane_shape import (
    check_in_lane,
    condition_in_lane,
    default_in_lane,
    element_in_lane,
    generated_in_lane,
    known_table,
    source,
    type_in_lane,
    words_of,
)
from interlock.relocate.shape import (
    KEY_TABLES,
    KEYS_TABLE,
    Action,
    Check,
    Column,
    Findings,
    Index,
    Numbered,
    Reference,
    Shape,
    Table,
    Unique,
    ViewShape,
    by_name,
    ordered,
)
from interlock.sql.dialect import translate
from interlock.sql.parse import quoted_list, quoted_name
from interlock.sql.schema import NumberSequence, Schema, ViewDefinition, chosen, schema_from_rows
from interlock.sql.schema import Table as KnownTable
from interlock.sql.types import INTEGER_RANGE, Type, enumeration

# --- Queries of the catalog ------------------------------------------------------------------------------------------
# Every query takes the name of the schema as $1. Expressions are in the server's text.

# Tables and other relations: kind, persistence, inheritance, row level security, and rules.
RELATIONS: Final = """
SELECT c.relname::text, c.relkind::text, c.relpersistence::text,
       c.relispartition OR EXISTS (SELECT 1 FROM pg_inherits i WHERE c.oid IN (i.inhrelid, i.inhparent)),
       c.relrowsecurity OR EXISTS (SELECT 1 FROM pg_policy p WHERE p.polrelid = c.oid),
       EXISTS (SELECT 1 FROM pg_rewrite r WHERE r.ev_class = c.oid AND c.relkind = 'r')
FROM pg_class c WHERE c.relnamespace = (SELECT oid FROM pg_namespace WHERE nspname = $1)
  AND c.relkind IN ('r', 'p', 'v', 'm', 'f')
ORDER BY c.relname"""

COLUMNS: Final = """
SELECT c.relname::text, a.attname::text, format_type(a.atttypid, a.atttypmod), a.attnotnull, a.attidentity::text,
       a.attgenerated::text, pg_get_expr(d.adbin, d.adrelid),
       CASE WHEN a.attcollation NOT IN (0, 100)
            THEN (SELECT collname::text FROM pg_collation WHERE oid = a.attcollation) END,
       (SELECT e.typname::text FROM pg_type t JOIN pg_type e ON e.oid IN (t.oid, t.typelem) AND e.typtype = 'e'
        WHERE t.oid = a.atttypid AND e.typnamespace = c.relnamespace),
       pg_get_serial_sequence(format('%I.%I', $1::text, c.relname), a.attname),
       (SELECT s.seqstart FROM pg_sequence s
        WHERE s.seqrelid = pg_get_serial_sequence(format('%I.%I', $1::text, c.relname), a.attname)::regclass)
FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
LEFT JOIN pg_attrdef d ON d.adrelid = c.oid AND d.adnum = a.attnum
WHERE c.relnamespace = (SELECT oid FROM pg_namespace WHERE nspname = $1) AND c.relkind = 'r'
ORDER BY c.relname, a.attnum"""

# References of a database that has arrived may be unvalidated, and are validated before it moves on.
CONSTRAINTS: Final = """
SELECT c.relname::text, k.conname::text, k.contype::text, pg_get_constraintdef(k.oid),
       ARRAY(SELECT a.attname::text FROM unnest(k.conkey) WITH ORDINALITY AS u (n, place)
             JOIN pg_attribute a ON a.attrelid = k.conrelid AND a.attnum = u.n ORDER BY u.place),
       CASE WHEN k.confrelid <> 0 THEN (SELECT f.relname::text FROM pg_class f WHERE f.oid = k.confrelid) END,
       ARRAY(SELECT a.attname::text FROM unnest(k.confkey) WITH ORDINALITY AS u (n, place)
             JOIN pg_attribute a ON a.attrelid = k.confrelid AND a.attnum = u.n ORDER BY u.place),
       k.confdeltype::text, k.confupdtype::text,
       k.convalidated OR (k.contype = 'f' AND to_regclass(format('%I.interlock_arrived', $1::text)) IS NOT NULL),
       k.condeferrable, k.condeferred,
       k.confrelid <> 0 AND (SELECT f.relnamespace FROM pg_class f WHERE f.oid = k.confrelid) <> c.relnamespace,
       CASE WHEN k.contype = 'c' THEN pg_get_expr(k.conbin, k.conrelid) END
FROM pg_constraint k JOIN pg_class c ON c.oid = k.conrelid
WHERE c.relnamespace = (SELECT oid FROM pg_namespace WHERE nspname = $1) AND c.relkind = 'r'
  AND k.contype IN ('c', 'f', 'p', 'u', 'x')
ORDER BY c.relname, k.conname"""

# Indexes that do not belong to a constraint.
INDEXES: Final = """
SELECT c.relname::text, i.relname::text, x.indisunique, m.amname::text, x.indnatts > x.indnkeyatts,
       x.indexprs IS NOT NULL,
       ARRAY(SELECT pg_get_indexdef(x.indexrelid, n, false) FROM generate_series(1, x.indnkeyatts) AS n ORDER BY n),
       pg_get_expr(x.indpred, x.indrelid), x.indisvalid, pg_get_indexdef(x.indexrelid),
       ARRAY(SELECT a.attname::text FROM unnest(x.indkey::smallint[]) WITH ORDINALITY AS u (n, place)
             JOIN pg_attribute a ON a.attrelid = x.indrelid AND a.attnum = u.n ORDER BY u.place),
       ARRAY(SELECT (o & 1) = 1 FROM unnest(x.indoption::smallint[]) WITH ORDINALITY AS u (o, place) ORDER BY u.place),
       EXISTS (SELECT 1 FROM unnest(x.indclass::oid[]) AS u (o) JOIN pg_opclass p ON p.oid = u.o WHERE NOT p.opcdefault)
FROM pg_index x JOIN pg_class i ON i.oid = x.indexrelid JOIN pg_class c ON c.oid = x.indrelid
JOIN pg_am m ON m.oid = i.relam
WHERE c.relnamespace = (SELECT oid FROM pg_namespace WHERE nspname = $1) AND c.relkind = 'r'
  AND NOT EXISTS (SELECT 1 FROM pg_constraint k WHERE k.conindid = x.indexrelid AND k.contype IN ('p', 'u', 'x'))
ORDER BY c.relname, i.relname"""

# Objects that a lane does not support: triggers, functions and types other than enumerations.
OTHERS: Final = """
SELECT 'the trigger ' || t.tgname || ' of ' || c.relname FROM pg_trigger t JOIN pg_class c ON c.oid = t.tgrelid
WHERE c.relnamespace = (SELECT oid FROM pg_namespace WHERE nspname = $1)
  AND NOT t.tgisinternal AND t.tgname NOT LIKE 'interlock\\_%'
UNION ALL
SELECT 'the function ' || p.proname FROM pg_proc p
WHERE p.pronamespace = (SELECT oid FROM pg_namespace WHERE nspname = $1) AND p.proname NOT LIKE 'interlock\\_%'
  AND NOT EXISTS (SELECT 1 FROM pg_depend d WHERE d.objid = p.oid AND d.deptype = 'e')
UNION ALL
SELECT 'the type ' || t.typname FROM pg_type t
WHERE t.typnamespace = (SELECT oid FROM pg_namespace WHERE nspname = $1) AND t.typtype IN ('d', 'r')
ORDER BY 1"""

ENUMERATIONS: Final = """
SELECT t.typname::text, ARRAY(
  SELECT e.enumlabel::text FROM pg_enum e WHERE e.enumtypid = t.oid ORDER BY e.enumsortorder)
FROM pg_type t WHERE t.typnamespace = (SELECT oid FROM pg_namespace WHERE nspname = $1) AND t.typtype = 'e'
ORDER BY t.typname"""

# Sequences, and whether each belongs to a column.
SEQUENCES: Final = """
SELECT c.relname::text, s.seqstart, s.seqincrement, s.seqmin, s.seqmax, s.seqcycle, EXISTS (
  SELECT 1 FROM pg_depend d WHERE d.objid = c.oid AND d.classid = 'pg_class'::regclass AND d.deptype IN ('a', 'i'))
FROM pg_sequence s JOIN pg_class c ON c.oid = s.seqrelid
WHERE c.relnamespace = (SELECT oid FROM pg_namespace WHERE nspname = $1) ORDER BY c.relname"""
_LAST_NUMBERS: Final = frozenset(high for _, high in INTEGER_RANGE.values())

# Views, and the other relations that each reads.
VIEWS: Final = """
SELECT c.relname::text, pg_get_viewdef(c.oid), ARRAY(SELECT a.attname::text FROM pg_attribute a
    WHERE a.attrelid = c.oid AND a.attnum > 0 ORDER BY a.attnum),
  ARRAY(SELECT DISTINCT o.relname::text FROM pg_rewrite r JOIN pg_depend d ON d.objid = r.oid
    AND d.classid = 'pg_rewrite'::regclass AND d.refclassid = 'pg_class'::regclass
    JOIN pg_class o ON o.oid = d.refobjid WHERE r.ev_class = c.oid AND o.oid <> c.oid)
FROM pg_class c WHERE c.relnamespace = (SELECT oid FROM pg_namespace WHERE nspname = $1) AND c.relkind = 'v'
ORDER BY c.relname"""

# Whether text is sorted by its bytes, as a lane sorts it.
COLLATION: Final = "SELECT 'a'::text > 'B'::text AND 'ä'::text > 'z'::text, $1::text"


class RelationRow(NamedTuple):
    """A row of RELATIONS."""

    name: str
    kind: str
    persistence: str
    inherits: bool
    secured: bool
    ruled: bool


class ColumnRow(NamedTuple):
    """A row of COLUMNS."""

    table: str
    name: str
    type: str
    not_null: bool
    identity: str
    generated: str
    default: str | None
    collation: str | None
    enumeration: str | None
    sequence: str | None
    start: int | None


class ConstraintRow(NamedTuple):
    """A row of CONSTRAINTS."""

    table: str
    name: str
    kind: str
    text: str
    columns: list[str]
    target: str | None
    key: list[str]
    on_delete: str
    on_update: str
    validated: bool
    deferrable: bool
    deferred: bool
    elsewhere: bool
    condition: str | None


class IndexRow(NamedTuple):
    """A row of INDEXES."""

    table: str
    name: str
    unique: bool
    method: str
    includes: bool
    computed: bool
    elements: list[str]
    where: str | None
    valid: bool
    text: str
    columns: list[str]
    descending: list[bool]
    special: bool


class ViewRow(NamedTuple):
    """A row of VIEWS."""

    name: str
    text: str
    columns: list[str]
    reads: list[str]


async def fetch_catalog(link: Link, question: str, schema: str) -> list[list[Any]]:
    """Return the rows of one of these queries."""
    with translate_user_errors(writing=False):
        return [list(row) for row in await link.driver.fetch(question, schema)]


# --- Simplification of expressions -----------------------------------------------------------------------------------
# The server shows an expression with every cast and with internal names: `name IN ('a')` of a varchar is
# `((name)::text = ANY ((ARRAY['a'::character varying])::text[]))`, LIKE is `~~`. Each rewriting here removes what
# changes nothing: a cast of a text to a text, a constant's cast to its own type, the other name of an operator. The
# dialect decides whether a lane supports the result.
#
# Constants and quoted names are replaced by marks first, so that their content is never rewritten.

_TEXT: Final = r"\[t\d+\]"
_ASIDE: Final = re.compile(r"\[[tn](\d+)\]")
_ANY_TEXT: Final = r"(?:text|character varying)"

# IN of a varchar column. PostgreSQL shows the list as an array with a cast, and shows that text in yet another form
# once it is parsed again, so only IN itself comes back unchanged from a second move.
_VARCHAR: Final = rf"{_TEXT}::character varying"
_LISTS: Final = (
    (re.compile(rf"= ANY \(\(ARRAY\[({_VARCHAR}(?:, {_VARCHAR})*)\]\)::text\[\]\)"), "IN"),
    (re.compile(rf"<> ALL \(\(ARRAY\[({_VARCHAR}(?:, {_VARCHAR})*)\]\)::text\[\]\)"), "NOT IN"),
)
# Rewritings that are safe in any expression.
_PLAINER: Final = (
    (re.compile(r"\btimestamp with time zone\b"), "timestamptz"),
    (re.compile(r"\b(timestamp|time) without time zone\b"), r"\1"),
    (re.compile(r"!~~\*"), "NOT ILIKE"),
    (re.compile(r"~~\*"), "ILIKE"),
    (re.compile(r"!~~"), "NOT LIKE"),
    (re.compile(r"~~"), "LIKE"),
    (re.compile(rf"({_TEXT})::{_ANY_TEXT}(?![\w(\[])"), r"\1"),
    (re.compile(rf"= ANY \(\(ARRAY\[({_TEXT}(?:, {_TEXT})*)\]\)::text\[\]\)"), r"IN (\1)"),
    (re.compile(rf"<> ALL \(\(ARRAY\[({_TEXT}(?:, {_TEXT})*)\]\)::text\[\]\)"), r"NOT IN (\1)"),
    (re.compile(rf"\((ARRAY\[{_TEXT}(?:, {_TEXT})*\])\)::{_ANY_TEXT}\[\]"), r"\1"),
    (re.compile(r"\bPOSITION\(\(([^()]*)\) IN \(([^()]*)\)\)"), r"position(\1 IN \2)"),
    (re.compile(r"\bTRIM\(BOTH FROM ([^()]*)\)"), r"trim(\1)"),
    (re.compile(r"\bROW\("), "("),
)
# Rewritings that are safe because the other side of the operator has the type.
_PLAINEST: Final = (
    (re.compile(r"\((-?\d+)\)::(?:bigint|smallint|integer|numeric)\b(?!\()"), r"\1"),
    (re.compile(r"= ANY \(ARRAY\[((?:[^\[\]]|\[[tn]\d+\])*)\]\)"), r"IN (\1)"),
    (re.compile(r"<> ALL \(ARRAY\[((?:[^\[\]]|\[[tn]\d+\])*)\]\)"), r"NOT IN (\1)"),
)


def undressed(location: str, columns: Mapping[str, Type]) -> Iterator[str]:
    """Yield equivalent forms of the server's text, each simpler than the one before."""
    masked, aside = _put_aside(location, columns)
    text = masked
    for pattern, operator in _LISTS:
        for found in pattern.finditer(text):
            text = text.replace(found[0], f"{operator} ({found[1].replace('::character varying', '')})")
    if text != masked:
        yield _put_back(text, aside)
    yield source(words_of(location))
    for pattern, replacement in _PLAINER:
        text = pattern.sub(replacement, text)
    yield _put_back(text, aside)
    for pattern, replacement in _PLAINEST:
        text = pattern.sub(replacement, text)
    yield _put_back(text, aside)


def _put_aside(location: str, columns: Mapping[str, Type]) -> tuple[str, list[str]]:
    """Return the text with marks instead of constants and column names, and the marked texts.

    The cast of a text column to text is removed here, because the types of columns are known.
    """
    aside: list[str] = []
    parts: list[str] = []
    words = words_of(location)
    end = 0
    for place, word in enumerate(words):
        parts.append(" " if word.begin > end else "")
        end = word.end
        called = place + 1 < len(words) and words[place + 1].says("(")
        if word.kind == "name" and called and re.fullmatch(r'"[a-z_]+"', word.text):
            parts.append(word.text[1:-1])  # A function whose name is a key word.
        elif word.kind in {"text", "name"} or (word.name in columns and not called):
            kind = "t" if word.kind == "text" else "n"
            parts.append(f"[{kind}{len(aside)}]")
            aside.append(word.text)
        else:
            parts.append(word.text)
    text = "".join(parts).strip()
    for number, written in enumerate(aside):
        [word] = words_of(written)
        known = columns.get(word.name or "") if word.kind != "text" else None
        if known is not None and known.is_text:
            text = re.sub(rf"\((\[n{number}\])\)::text(?![\w\[])", r"\1", text)
            aside[number] = quoted_name(word.name or "")
    return text, aside


def _put_back(text: str, aside: list[str]) -> str:
    return _ASIDE.sub(lambda found: aside[int(found.group(1))], text)


# --- Shape -----------------------------------------------------------------------------------------------------------

OURS: Final = "interlock_"
_NOT_TABLES: Final = {"p": "a partitioned table", "m": "a materialized view", "f": "a foreign table"}
_ACTIONS: Final[dict[str, Action]] = {"a": "NO ACTION", "r": "RESTRICT", "c": "CASCADE", "n": "SET NULL"}
_IDENTITIES: Final[dict[str, Numbered]] = {"a": "always", "d": "by default"}
_BYTES: Final = frozenset({"C", "POSIX", "pg_c_utf8"})


async def shape_of_postgres(link: Link, schema: str) -> Shape:
    """Return the shape of that schema. Raises DialectError with everything that a lane does not support."""
    reading = _Reading()
    # The server leaves out the schema in the texts of expressions and views: at the other place it has another name.
    before = await _search(link, quoted_name(schema))
    relations = [RelationRow(*row) for row in await fetch_catalog(link, RELATIONS, schema)]
    for name, labels in await fetch_catalog(link, ENUMERATIONS, schema):
        reading.enumerations[name] = enumeration(name, labels)
    for *sequence, is_owned in await fetch_catalog(link, SEQUENCES, schema):
        reading.sequence(NumberSequence(sequence[0], "sequence", *sequence[1:]), is_owned=is_owned)
    for column in [ColumnRow(*row) for row in await fetch_catalog(link, COLUMNS, schema)]:
        reading.columns.setdefault(column.table, []).append(column)
    for constraint in [ConstraintRow(*row) for row in await fetch_catalog(link, CONSTRAINTS, schema)]:
        reading.constraints.setdefault(constraint.table, []).append(constraint)
    for index in [IndexRow(*row) for row in await fetch_catalog(link, INDEXES, schema)]:
        reading.indexes.setdefault(index.table, []).append(index)
    for [what] in await fetch_catalog(link, OTHERS, schema):
        reading.findings.add(what, "a lane has tables, indexes, views, sequences and enumerations alone")
    views = [ViewRow(*row) for row in await fetch_catalog(link, VIEWS, schema)]
    _ = await _search(link, before)
    tables = ordered([table for relation in relations for table in reading.table(relation)])
    shape = Shape(
        tables,
        enumerations=tuple(reading.enumerations.values()),
        sequences=tuple(reading.sequences.values()),
        views=_views(views),
    )
    reading.offer(shape)
    reading.findings.settle("the database")
    [[bytewise, _]] = await fetch_catalog(link, COLLATION, schema)
    if not bytewise and any(column.type.is_text for table in tables for column in table.columns):
        reading.notes.append("Text is sorted by the collation of the PostgreSQL database, and by its bytes in a lane.")
    return replace(shape, notes=tuple(reading.notes))


async def _search(link: Link, path: str) -> str:
    """Set the search path of the session; return the former one."""
    [[before]] = await fetch_catalog(link, "SELECT current_setting('search_path') WHERE $1::text IS NOT NULL", path)
    _ = await fetch_catalog(link, "SELECT set_config('search_path', $1, false)", path)
    return str(before)


def _views(rows: list[ViewRow]) -> tuple[ViewShape, ...]:
    """Return the views, each after those that it reads."""
    known = {row.name: row for row in rows}
    order = TopologicalSorter({name: {*row.reads} & known.keys() for name, row in known.items()}).static_order()
    return tuple(
        ViewShape(name, f"CREATE VIEW {quoted_name(name)} ({quoted_list(known[name].columns)}) AS {known[name].text}")
        for name in order
    )


class _Reading:
    """Reader of the catalog's rows, with the findings."""

    def __init__(self) -> None:
        self.findings = Findings()
        self.notes: list[str] = []
        self.columns: dict[str, list[ColumnRow]] = {}
        self.constraints: dict[str, list[ConstraintRow]] = {}
        self.indexes: dict[str, list[IndexRow]] = {}
        self.enumerations: dict[str, Type] = {}
        self.sequences: dict[str, NumberSequence] = {}
        """Those that belong to no column."""

    def sequence(self, sequence: NumberSequence, *, is_owned: bool) -> None:
        """Add a sequence. One that belongs to a column is made with the column, and counts as columns do."""
        counts_on = sequence.increment == 1 and not sequence.cycle and sequence.minimum >= 1
        if not is_owned:
            self.sequences[sequence.name] = sequence
        elif not counts_on or sequence.maximum not in _LAST_NUMBERS:
            self.findings.add(
                f"the sequence {sequence.name}", "the one of a column counts upwards by one, as far as the type goes"
            )

    def table(self, relation: RelationRow) -> list[Table]:
        """Return the table of that name in a list; an empty list if it does not move."""
        if relation.name == KEY_TABLES:
            return [KEYS_TABLE]
        if relation.name.startswith(OURS) or relation.kind == "v":
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
        columns = tuple(self._generated(relation.name, column, columns) for column in columns)
        return [self._constrained(Table(relation.name, columns))]

    def offer(self, shape: Shape) -> None:
        """Translate each part as a whole: tables with their names, keys and references, indexes, sequences, views."""
        tables: dict[str, KnownTable] = {}
        views: dict[str, ViewDefinition] = {}
        known = Schema(0, tables, sequences=self.sequences, views=views, enumerations=self.enumerations)
        for text in shape.before:
            _ = self._offered(text, text, Schema(0))
        whole = not self.findings.found
        for table in shape.tables:
            if table.ours:
                continue
            if whole:
                there = tuple(each for each in table.references if each.table in {*tables, table.name})
                _ = self._offered(f"the table {table.name}", replace(table, references=there).create, known)
            tables[table.name] = known_table(table)
            for index, text in zip(table.indexes, table.indexing, strict=True):
                if whole or not index.computed:
                    _ = self._offered(f"the index {index.name}", text, known)
        for view in shape.views:
            made = self._offered(f"the view {view.name}", view.create, known) if whole else ""
            views.update(schema_from_rows((), version=0, objects=[("view", view.name, view.name, made)]).views)

    def _offered(self, where: str, text: str, known: Schema) -> str:
        try:
            return translate(text, known).text
        except (DialectError, TransactionError) as error:
            self.findings.refused(where, error)
            return ""

    # --- Columns ------------------------------------------------------------------------------------------------------

    def _column(self, row: ColumnRow) -> Column | None:
        where = f"the column {row.table}.{row.name}"
        if row.generated == "v":
            self.findings.add(where, "it is VIRTUAL, and a lane stores what is generated")
            return None
        if row.collation is not None and row.collation not in _BYTES:
            self.findings.add(where, f"it is sorted by the collation {row.collation}, and a lane sorts by bytes")
        elif row.collation is not None:
            self.notes.append(f"{row.table}.{row.name} would come back without COLLATE {row.collation!r}.")
        try:
            kind = type_in_lane(row.type, self.enumerations)
        except (DialectError, TransactionError) as error:
            self.findings.refused(where, error)
            return None
        if row.identity:
            return Column(row.name, kind, nullable=False, numbered=_IDENTITIES[row.identity], start=row.start or 1)
        if row.sequence is not None and (row.default or "").startswith("nextval("):
            return Column(row.name, kind, nullable=False, numbered="serial")
        column = Column(row.name, kind, nullable=not row.not_null, generated=row.default if row.generated else None)
        if row.generated or row.default is None or row.default.startswith("NULL"):
            return column
        default = self._supported_form(
            f"the default of {row.table}.{row.name}",
            row.default,
            {},
            lambda tried: default_in_lane(column, tried, self.sequences.values()),
        )
        return Column(row.name, kind, nullable=not row.not_null, default=default)

    def _generated(self, table: str, column: Column, columns: tuple[Column, ...]) -> Column:
        if column.generated is None:
            return column
        text = self._supported_form(
            f"the generated column {table}.{column.name}",
            column.generated,
            {each.name: each.type for each in columns},
            lambda tried: generated_in_lane(table, columns, column.name, tried),
        )
        return replace(column, generated=text)

    def _supported_form(
        self, where: str, location: str, kinds: dict[str, Type], translated: Callable[[str], str]
    ) -> str:
        """Return the first form of an expression that a lane supports."""
        refused: DialectError | TransactionError | None = None
        for tried in undressed(location, kinds):
            try:
                _ = translated(tried)
            except (DialectError, TransactionError) as error:
                refused = error
            else:
                return tried
        assert refused is not None
        self.findings.refused(f"{where}, {location}", refused)
        return location

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
                condition = self._supported_form(
                    f"the check {row.name} of {name}",
                    cast("str", row.condition),
                    kinds,
                    lambda tried: check_in_lane(name, columns, tried),
                )
                checks.append(Check(row.name, condition))
            else:
                actions = _ACTIONS[row.on_delete], _ACTIONS[row.on_update]
                references.append(
                    Reference(
                        row.name,
                        tuple(row.columns),
                        cast("str", row.target),
                        tuple(row.key),
                        *actions,
                        deferrable=row.deferrable,
                        deferred=row.deferred,
                    )
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
            (row.deferrable and row.kind != "f", "it can be deferred"),
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
                where = self._supported_form(
                    f"the index {row.name}", where, kinds, lambda tried: condition_in_lane(table, columns, tried)
                )
            keys = row.columns
            if row.computed:
                keys = [self._element(row, each, columns, kinds) for each in row.elements]
            pairs = tuple(zip(keys, row.descending, strict=True))
            listed.append(Index(row.name, pairs, unique=row.unique, where=where, computed=row.computed))
        return listed

    def _element(self, row: IndexRow, element: str, columns: tuple[Column, ...], kinds: dict[str, Type]) -> str:
        """Return a column or an expression of an index as SQL."""
        name, *more = words_of(element)
        if not more:
            return quoted_name(name.name or "")
        text = self._supported_form(
            f"the index {row.name}", element, kinds, lambda tried: element_in_lane(row.table, columns, tried)
        )
        return f"({text})"
