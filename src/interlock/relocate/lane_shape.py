"""Shape of a lane's database: SQLite's catalog in PostgreSQL's terms.

The catalog of every lane has types by their declared names, constraints and indexes. Only expressions are SQLite's
text. Their PostgreSQL text is what users wrote, or else a guess. Either is accepted only if the dialect translates it
to the text of the catalog; otherwise there is no shape.

Sections: lexer, stored definitions, guesses, parser of the catalog, trial translations, shape.
"""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# apsw's stubs leave the values of SQLite partly open; mypy --strict looks at what is ours.

import ast
import contextlib
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from graphlib import TopologicalSorter
from itertools import chain, pairwise
from typing import Final, NamedTuple, cast

import apsw

from interlock.errors import DialectError, TransactionError
from interlock.relocate.rows import text_of
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
from interlock.sql.casts import column_type
from interlock.sql.dialect import translate
from interlock.sql.parse import parse, quoted_list, quoted_name, split, without_positions
from interlock.sql.schema import (
    COLUMNS_QUERY,
    GENERATED,
    OBJECTS_QUERY,
    ColumnRow,
    NumberSequence,
    ObjectRow,
    Schema,
    ViewDefinition,
    chosen,
    schema_from_rows,
    sequence_of,
)
from interlock.sql.schema import Column as KnownColumn
from interlock.sql.schema import Table as KnownTable
from interlock.sql.types import Type, refuse

# --- Lexer -----------------------------------------------------------------------------------------------------------
# Both are read the same way: names, texts, words and signs, of which parentheses and commas at the outermost level
# matter and everything else is kept unchanged. Results are proposals: the reader of a shape translates them again
# and compares.

_WORDS: Final = re.compile(
    r"""(?P<space>\s+|--[^\n]*|/\*.*?\*/)
      | (?P<name>"(?:[^"]|"")*")
      | (?P<text>[xX]?'(?:[^']|'')*')
      | (?P<number>\d[\w.]*)
      | (?P<word>[^\W\d][\w$]*)
      | (?P<sign>.)""",
    re.VERBOSE | re.DOTALL,
)


class Word(NamedTuple):
    """One word: its kind, its text and its position."""

    kind: str
    text: str
    begin: int
    end: int

    @property
    def name(self) -> str | None:
        """Return the identifier as PostgreSQL reads it; None if it cannot be one."""
        if self.kind == "name":
            return self.text[1:-1].replace('""', '"')
        return self.text.lower() if self.kind == "word" else None

    def says(self, *words: str) -> bool:
        """Return whether it is one of these key words or signs."""
        return self.kind != "name" and self.text.upper() in words


def words_of(text: str) -> list[Word]:
    """Return the words of a text without spaces and comments."""
    return [
        Word(found.lastgroup or "", found.group(), found.start(), found.end())
        for found in _WORDS.finditer(text)
        if found.lastgroup != "space"
    ]


def source(words: Sequence[Word]) -> str:
    """Return the original text of the words, without comments."""
    if not words:
        return ""
    parts: list[str] = []
    end = words[0].begin
    for word in words:
        parts.append(" " if word.begin > end else "")
        parts.append(word.text)
        end = word.end
    return "".join(parts).strip()


def inside(words: Sequence[Word], begin: int) -> int:
    """Return the index of the parenthesis that closes the one at `begin`."""
    depth = 0
    for place in range(begin, len(words)):
        if words[place].says("("):
            depth += 1
        elif words[place].says(")"):
            depth -= 1
            if depth == 0:
                return place
    return len(words)


def parted(words: Sequence[Word]) -> Iterator[list[Word]]:
    """Yield the words between the commas of the outermost level."""
    part: list[Word] = []
    depth = 0
    for word in words:
        depth += word.says("(", "[") - word.says(")", "]")
        if depth == 0 and word.says(","):
            yield part
            part = []
        else:
            part.append(word)
    if part:
        yield part


def find(words: Sequence[Word], *wanted: str, begin: int = 0) -> int | None:
    """Return the first index of one of these key words at the outermost level."""
    depth = 0
    for place in range(begin, len(words)):
        word = words[place]
        if depth == 0 and word.says(*wanted):
            return place
        depth += word.says("(", "[") - word.says(")", "]")
    return None


def names_of(words: Sequence[Word]) -> tuple[str, ...]:
    """Return the names in a list of columns."""
    return tuple(name for part in parted(words) if part and (name := part[0].name) is not None)


# --- Stored definitions ----------------------------------------------------------------------------------------------
# The catalog lacks the PostgreSQL text of expressions, and the declaration and name of a numbered key. Both are
# found here, followed through renames. An expression is accepted only if it is translated to the text of the
# catalog.

_ENDS: Final = (
    "NOT", "NULL", "CHECK", "UNIQUE", "PRIMARY", "REFERENCES", "CONSTRAINT", "GENERATED", "COLLATE", "DEFAULT",
)  # fmt: skip
"""Key words that may follow a default."""


@dataclass(slots=True)
class Written:
    """Definitions of one table."""

    expressions: list[str] = field(default_factory=list[str])
    defaults: dict[str, str] = field(default_factory=dict[str, str])
    """Defaults by column; also among the expressions."""
    checks: dict[str, str] = field(default_factory=dict[str, str])
    """Named checks; also among the expressions."""
    numbered: dict[str, Numbered] = field(default_factory=dict[str, Numbered])
    key_name: str = ""


def written(definitions: Iterable[str]) -> dict[str, Written]:
    """Return the definitions of each table, by its final name."""
    found: dict[str, Written] = {}
    for text in definitions:
        words = [word for word in words_of(text) if not word.says(";")]
        if len(words) < 3:  # noqa: PLR2004 -- the shortest of all: DROP TABLE name
            continue
        if words[0].says("CREATE") and words[1].says("TABLE"):
            _create_table(words, found)
        elif words[0].says("CREATE"):
            _create_index(words, found)
        elif words[0].says("ALTER"):
            _alter(words, found)
        elif words[0].says("DROP") and words[1].says("TABLE"):
            for part in parted(words[4 if words[2].says("IF") else 2 :]):
                found.pop(part[0].name or "", None)
    return found


def _of(found: dict[str, Written], word: Word) -> Written:
    return found.setdefault(word.name or "", Written())


def _create_table(words: list[Word], found: dict[str, Written]) -> None:
    begin = find(words, "(")
    if begin is None:
        return
    table = _of(found, words[begin - 1])
    for part in parted(words[begin + 1 : inside(words, begin)]):
        _read(part, table)


def _create_index(words: list[Word], found: dict[str, Written]) -> None:
    on, where = find(words, "ON"), find(words, "WHERE")
    begin = None if on is None else find(words, "(", begin=on)
    if on is None or begin is None or not words[1].says("INDEX", "UNIQUE"):
        return
    table = _of(found, words[begin - 1] if words[begin - 2].says("ON", ".") else words[on + 1])
    for part in parted(words[begin + 1 : inside(words, begin)]):
        if len(part) > 1 and part[0].says("("):
            table.expressions.append(source(part[1 : inside(part, 0)]))
        elif len(part) > 1 and part[1].says("("):
            table.expressions.append(source(part[: inside(part, 1) + 1]))
    if where is not None:
        table.expressions.append(source(words[where + 1 :]))


def _alter(words: list[Word], found: dict[str, Written]) -> None:
    begin = 4 if words[2].says("IF") else 2
    if not words[1].says("TABLE") or len(words) < begin + 3:
        return
    name = words[begin]
    table = _of(found, name)
    for part in parted(words[begin + 1 :]):
        if part[0].says("ADD"):
            place = 2 if part[1].says("COLUMN") else 1
            _read(part[place + 3 if part[place].says("IF") else place :], table)
        elif part[0].says("ALTER") and len(default := part[find(part, "DEFAULT") or len(part) :]) > 1:
            text = source(default[1:])
            table.expressions.append(text)
            table.defaults[part[2 if part[1].says("COLUMN") else 1].name or ""] = text
        elif part[0].says("RENAME") and part[1].says("TO"):
            new = part[2].name or ""
            found[new] = found.pop(name.name or "")
            for other in found.values():
                _rename(other, name.name or "", new)
        elif part[0].says("RENAME") and not part[1].says("CONSTRAINT"):
            old, new = part[-3].name or "", part[-1].name or ""
            _rename(table, old, new)
            if old in table.numbered:
                table.numbered[new] = table.numbered.pop(old)
            if old in table.defaults:
                table.defaults[new] = table.defaults.pop(old)


def _rename(table: Written, old: str, new: str) -> None:
    table.expressions = [_renamed(text, old, new) for text in table.expressions]
    table.checks = {name: _renamed(text, old, new) for name, text in table.checks.items()}


def _renamed(text: str, old: str, new: str) -> str:
    words = [word._replace(text=quoted_name(new), kind="name") if word.name == old else word for word in words_of(text)]
    return source(words)


def _read(part: list[Word], table: Written) -> None:
    """Read a column or a constraint: its expressions, and whether it is an identity."""
    for place, word in enumerate(part):
        following = place + 1
        if word.says("CHECK") and following < len(part) and part[following].says("("):
            text = source(part[following + 1 : inside(part, following)])
            table.expressions.append(text)
            if part[place - 2].says("CONSTRAINT"):
                table.checks[part[place - 1].name or ""] = text
        elif word.says("AS") and part[place - 1].says("ALWAYS") and part[following].says("("):
            table.expressions.append(source(part[following + 1 : inside(part, following)]))
        elif word.says("DEFAULT") and not part[place - 1].says("BY"):
            text = source(part[following : find(part, *_ENDS, begin=following)])
            table.expressions.append(text)
            table.defaults[part[0].name or ""] = text
        elif word.says("PRIMARY") and part[place - 2].says("CONSTRAINT"):
            table.key_name = part[place - 1].name or ""
        elif word.says("IDENTITY"):
            name = part[0].name or ""
            table.numbered[name] = "always" if any(each.says("ALWAYS") for each in part) else "by default"


# --- Guesses ---------------------------------------------------------------------------------------------------------
# A constant is read and written again; a few functions and collations are given their names back. These are guesses,
# and one counts only if it is translated to the very text that it was made from.

_RENAMED: Final = (
    (re.compile(r" COLLATE interlock_\w+\b"), ""),
    (re.compile(r"\binterlock_int[248]\("), "("),
    (re.compile(r"\binterlock_now\(\)"), "now()"),
    (re.compile(r"\binterlock_uuid\(\)"), "gen_random_uuid()"),
    (re.compile(r"\binterlock_jsonb_member_text\(([^,()]+), ([^,()]+)\)"), r"(\1 ->> \2)"),
    (re.compile(r"\binterlock_jsonb_member\(([^,()]+), ([^,()]+)\)"), r"(\1 -> \2)"),
    (re.compile(r"\binterlock_like\((.+), ('(?:[^']|'')*'), '\\'\)"), r"(\1 LIKE \2)"),
    (re.compile(r"\binterlock_([a-z]+)\("), r"\1("),
)
_NUMBER: Final = re.compile(r"'(-?\d+(?:\.\d+)?)'")
_CONSTANT: Final = re.compile(r"-?\d[\d.e+-]*|[xX]?'(?:[^']|'')*'")


def guessed_default(kind: Type, stored: str) -> Iterator[str]:
    """Yield possible texts of a default."""
    sequence = sequence_of(stored)
    if sequence is not None:
        yield f"nextval({_literal(quoted_name(sequence.name))})"
    if _CONSTANT.fullmatch(stored):
        value = _constant(stored)
        if not kind.is_integer and not (kind.name == "float8" and isinstance(value, int)):
            yield _literal(text_of(kind)(value))
        else:
            yield str(value)
    yield from guessed_condition(stored)


def guessed_condition(stored: str) -> Iterator[str]:
    """Yield possible texts of a check or of the condition of an index."""
    yield stored
    for pattern, replacement in _RENAMED:
        stored = pattern.sub(replacement, stored)
    yield stored
    # A number that is compared with a numeric is a text in SQLite.
    yield _NUMBER.sub(r"\1", stored)


def _constant(stored: str) -> int | float | str | bytes:
    if stored[0] in "xX":
        return bytes.fromhex(stored[2:-1])
    if stored[0] == "'":
        return stored[1:-1].replace("''", "'")
    number: int | float = ast.literal_eval(stored)
    return number


def _literal(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


# --- Parser of the catalog -------------------------------------------------------------------------------------------
# The text is the dialect's own (`sql.ddl`), or SQLite's change of it after ALTER TABLE, so its form is
# known: columns with their defaults, then constraints. Columns that were added later come after the constraints.

_CONSTRAINTS: Final = ("CONSTRAINT", "PRIMARY", "UNIQUE", "CHECK", "FOREIGN")
_ACTIONS: Final[dict[str, Action]] = {
    "NO ACTION": "NO ACTION",
    "RESTRICT": "RESTRICT",
    "CASCADE": "CASCADE",
    "SET NULL": "SET NULL",
}


@dataclass(slots=True)
class CatalogTable:
    """A table of SQLite's catalog; conditions and defaults are SQLite's text. A constraint may have no name."""

    defaults: dict[str, str] = field(default_factory=dict[str, str])
    generated: dict[str, str] = field(default_factory=dict[str, str])
    checks: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])
    uniques: list[Unique] = field(default_factory=list[Unique])
    references: list[Reference] = field(default_factory=list[Reference])
    key_name: str = ""


def table_of(text: str) -> CatalogTable:
    """Parse CREATE TABLE."""
    found = CatalogTable()
    words = words_of(text)
    begin = find(words, "(")
    assert begin is not None
    for part in parted(words[begin + 1 : inside(words, begin)]):
        if part[0].says(*_CONSTRAINTS):
            _constraint(part, found)
        else:
            _default(part, found)
    return found


def elements_of(text: str) -> list[str]:
    """Return the columns and expressions of CREATE INDEX, without DESC."""
    words = words_of(text)
    begin = find(words, "(")
    assert begin is not None
    parts = parted(words[begin + 1 : inside(words, begin)])
    return [source(part[:-1] if part[-1].says("DESC", "ASC") else part) for part in parts]


def where_of(text: str) -> str | None:
    """Return the condition of CREATE INDEX; None without one."""
    words = words_of(text)
    place = find(words, "WHERE")
    return None if place is None else source(words[place + 1 :])


def _default(part: list[Word], found: CatalogTable) -> None:
    name = part[0].name
    assert name is not None
    made = find(part, "GENERATED")
    if made is not None:  # GENERATED ALWAYS AS (…)
        found.generated[name] = source(part[made + 4 : inside(part, made + 3)])
    place = find(part, "DEFAULT")
    if place is None:
        return
    if part[place + 1].says("("):
        value = part[place + 2 : inside(part, place + 1)]
    else:
        value = part[place + 1 : find(part, "CONSTRAINT", begin=place)]
    found.defaults[name] = source(value)


def _constraint(part: list[Word], found: CatalogTable) -> None:
    label = ""
    if part[0].says("CONSTRAINT"):
        label = part[1].name or ""
        part = part[2:]
    begin = find(part, "(")
    assert begin is not None
    end = inside(part, begin)
    between = part[begin + 1 : end]
    match part[0].text.upper():
        case "CHECK":
            found.checks.append((label, source(between)))
        case "UNIQUE":
            found.uniques.append(Unique(label, names_of(between)))
        case "PRIMARY":
            found.key_name = label
        case _:
            found.references.append(_reference(label, names_of(between), part[end + 1 :]))


def _reference(label: str, columns: tuple[str, ...], rest: list[Word]) -> Reference:
    """REFERENCES "table" ("key") ON DELETE … ON UPDATE …."""
    close = inside(rest, 2)
    reactions: dict[str, Action] = {}
    clauses = " ".join(word.text.upper() for word in rest[close + 1 :])
    clauses, deferrable, deferred = clauses.partition(" DEFERRABLE" if clauses.startswith("ON ") else "DEFERRABLE")
    for reaction in clauses.split("ON ")[1:]:
        event, _, action = reaction.strip().partition(" ")
        reactions[event] = _ACTIONS[action]
    return Reference(
        label,
        columns,
        rest[1].name or "",
        names_of(rest[3:close]),
        on_delete=reactions.get("DELETE", "NO ACTION"),
        on_update=reactions.get("UPDATE", "NO ACTION"),
        deferrable=bool(deferrable),
        deferred=deferred.endswith("DEFERRED"),
    )


# --- Trial translations ----------------------------------------------------------------------------------------------
# An expression cannot be translated alone: it needs its columns. So a table with the columns and this expression is
# translated, and only the expression is taken from the result. Raises DialectError for what a lane does not support,
# or TransactionError if PostgreSQL does not support it either.


def type_in_lane(format_type: str, enumerations: Mapping[str, Type]) -> Type:
    """Return the type of a text of PostgreSQL's format_type."""
    _, statement = split(parse(f"CREATE TABLE tried (tried {format_type})"))
    kind, _ = column_type(statement["tableElts"][0]["ColumnDef"]["typeName"], enumerations)
    return kind


def schema_of(tables: Iterable[Table], sequences: Iterable[NumberSequence] = ()) -> Schema:
    """Return a schema with the enumerations of these tables, and these sequences."""
    kinds = {kind.title: kind for table in tables for kind in table.enumerations}
    return Schema(0, enumerations=kinds, sequences={each.name: each for each in sequences})


def _translated(tried: Table, sequences: Iterable[NumberSequence] = ()) -> CatalogTable:
    return table_of(translate(tried.create, schema_of([tried], sequences)).text)


def default_in_lane(column: Column, expression: str, sequences: Iterable[NumberSequence]) -> str:
    """Return SQLite's text of a default."""
    tried = Table("tried", (replace(column, default=expression, numbered=None),))
    return _translated(tried, sequences).defaults[column.name]


def generated_in_lane(table: str, columns: Sequence[Column], name: str, expression: str) -> str:
    """Return SQLite's text of the expression that computes a column."""
    listed = [replace(each, default=None, numbered=None, generated=None) for each in columns if each.name != name]
    [column] = [replace(each, generated=expression) for each in columns if each.name == name]
    return _translated(Table(table, (*listed, column))).generated[name]


def check_in_lane(table: str, columns: Sequence[Column], expression: str) -> str:
    """Return SQLite's text of a check."""
    listed = tuple(replace(each, default=None, numbered=None, generated=None) for each in columns)
    tried = Table(table, listed, checks=(Check("tried", expression),))
    [(_, condition)] = _translated(tried).checks
    return condition


def condition_in_lane(table: str, columns: Sequence[Column], expression: str) -> str:
    """Return SQLite's text of the condition of an index."""
    listed = [column.name for column in columns if column.type.name != "jsonb" and not column.type.is_array]
    if not listed:
        raise refuse("an index on a table of documents and arrays alone.")
    [indexed, *_] = listed
    tried = Table(table, tuple(columns), indexes=(Index("tried", ((indexed, False),), where=expression),))
    schema = replace(schema_of([tried]), tables={table: known_table(tried)})
    return where_of(translate(tried.indexing[0], schema).text) or ""


def element_in_lane(table: str, columns: Sequence[Column], expression: str) -> str:
    """Return SQLite's text of an expression in an index."""
    tried = Table(table, tuple(columns), indexes=(Index("tried", ((f"({expression})", False),), computed=True),))
    schema = replace(schema_of([tried]), tables={table: known_table(tried)})
    [element] = elements_of(translate(tried.indexing[0], schema).text)
    return element


def same_in_lane(one: str, other: str) -> bool:
    """Return whether both texts mean the same to SQLite: they may differ in redundant parentheses."""
    if one == other:
        return True
    try:
        # The tree has no node for parentheses.
        return without_positions(parse(f"SELECT {one}")) == without_positions(parse(f"SELECT {other}"))
    except DialectError:
        return False


def known_table(table: Table) -> KnownTable:
    """Return the table in the dialect's form."""
    columns = tuple(
        KnownColumn(
            column.name,
            column.type,
            nullable=column.nullable and column.name not in table.key,
            sequence=None
            if column.numbered is None
            else NumberSequence(f"{table.name}_{column.name}_seq", column.numbered),
            has_default=not {column.default, column.numbered, column.generated} <= {None},
            default=None if column.generated is None else GENERATED,
        )
        for column in table.columns
    )
    # The text that tells which columns a reference may point to.
    uniques = ", ".join(f"UNIQUE ({quoted_list(each.columns)})" for each in table.uniques)
    return KnownTable(
        table.name,
        columns,
        table.key,
        frozenset(each.table for each in table.references),
        definition=f"CREATE TABLE {quoted_name(table.name)} ({uniques})" if uniques else "",
    )


# --- Shape -----------------------------------------------------------------------------------------------------------

TABLES: Final = """
SELECT name, sql FROM sqlite_schema
WHERE type = 'table' AND name NOT LIKE 'sqlite\\_%' ESCAPE '\\' ORDER BY name"""
VIEWS: Final = "SELECT name FROM sqlite_schema WHERE type = 'view' ORDER BY name"
INDEXES: Final = "SELECT name, sql FROM sqlite_schema WHERE type = 'index' AND tbl_name = ? AND sql IS NOT NULL"
INDEX_NAMES: Final = "SELECT name FROM sqlite_schema WHERE type = 'index' AND sql IS NOT NULL"
INDEXED: Final = 'SELECT name, "desc" FROM pragma_index_xinfo(?) WHERE key = 1 ORDER BY seqno'
UNIQUE: Final = 'SELECT "unique" FROM pragma_index_list(?) WHERE name = ?'
NOTED: Final = "SELECT sql FROM interlock_definitions ORDER BY number"
OURS: Final = "interlock_"

_UNKNOWN: Final = "its PostgreSQL text is not known, and cannot be derived from {!r}"


def shape_of_lane(connection: apsw.Connection) -> Shape:
    """Return the shape of the lane's database. Raises DialectError with everything that has no known text."""
    findings = Findings()
    shape = _shape(connection, findings)
    findings.settle("the database")
    return shape


def read_shape(connection: apsw.Connection) -> Shape:
    """Return the users' tables, for tools that describe them; an expression without a known text is left out."""
    return Shape(tuple(table for table in _shape(connection, Findings()).tables if not table.ours))


def read_schema(connection: apsw.Connection) -> Schema:
    """Return the tables, sequences, views and enumerations in the dialect's form."""
    columns = cast("list[ColumnRow]", connection.execute(COLUMNS_QUERY).fetchall())
    objects = cast("list[ObjectRow]", connection.execute(OBJECTS_QUERY).fetchall())
    return schema_from_rows(columns, version=0, objects=objects)


def _shape(connection: apsw.Connection, findings: Findings) -> Shape:
    tables = dict(cast("list[tuple[str, str]]", connection.execute(TABLES).fetchall()))
    known = read_schema(connection)
    notes: dict[str, Written] = {}
    if "interlock_definitions" in tables:
        notes = written(cast("str", sql) for (sql,) in connection.execute(NOTED))
    taken = {*tables, *(cast("str", name) for (name,) in connection.execute(INDEX_NAMES))}
    found: list[Table] = [KEYS_TABLE] if KEY_TABLES in tables else []
    for name, text in tables.items():
        if name.startswith(OURS):
            continue
        table = known.table(name)
        if table is None:
            findings.add(f"the table {name}", "it was not made by a statement of the dialect")
            continue
        reading = _Reading(connection, table, table_of(text), notes.get(name, Written()), findings, taken)
        reading.sequences = list(known.sequences.values())
        found.append(reading.table())
    for (name,) in cast("list[tuple[str]]", connection.execute(VIEWS).fetchall()):
        if known.find(name) is None:
            findings.add(f"the view {name}", "it was not made by a statement of the dialect")
    return Shape(
        ordered(found),
        enumerations=tuple(known.enumerations.values()),
        sequences=tuple(each for each in known.sequences.values() if each.kind == "sequence"),
        views=tuple(_views(known.views)),
    )


def _views(known: Mapping[str, ViewDefinition]) -> Iterator[ViewShape]:
    """Yield the views, each after those that it reads."""
    for name in TopologicalSorter({name: view.tables & known.keys() for name, view in known.items()}).static_order():
        yield ViewShape(name, _without_public(known[name].text))


def _without_public(text: str) -> str:
    """Return a statement without the name of the schema: at the other place it has another one."""
    words = words_of(text)
    named = {
        place
        for place, (word, following) in enumerate(pairwise(words))
        if following.says(".") and word.name == "public" and not words[place - 1].says(".")
    }
    kept = [word for place, word in enumerate(words) if not {place, place - 1} & named]
    return source(kept) if named else text


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
        self.sequences: list[NumberSequence] = []
        """Those of the database, which a default may name."""
        self._taken = taken
        """Names of tables and indexes: on PostgreSQL the index of a unique constraint has its name in the schema."""

    def table(self) -> Table:
        """Return the table."""
        name, key = self._known.name, self._known.primary_key
        columns = tuple(self._column(column) for column in self._known.columns)
        columns = tuple(self._generated(column, columns) for column in columns)
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
        if known.sequence is not None:
            numbered = known.sequence.kind
            if known.sequence.table:
                numbered = self._notes.numbered.get(known.name, "serial")
            assert numbered != "sequence"
            return Column(known.name, known.type, nullable=False, numbered=numbered, start=known.sequence.start)
        stored = self._catalog.defaults.get(known.name)
        if stored is None or stored == "NULL":
            return column
        first = self._notes.defaults.get(known.name)
        guesses = guessed_default(known.type, stored)
        text = self._postgres_text(
            first, guesses, lambda tried: same_in_lane(default_in_lane(column, tried, self.sequences), stored)
        )
        if text is None:
            self._findings.add(f"the default of {self._known.name}.{known.name}", _UNKNOWN.format(stored))
        return Column(known.name, known.type, nullable=known.nullable, default=text)

    def _generated(self, column: Column, columns: tuple[Column, ...]) -> Column:
        table, stored = self._known.name, self._catalog.generated.get(column.name)
        if stored is None:
            return column
        text = self._postgres_text(
            None,
            guessed_condition(stored),
            lambda tried: same_in_lane(generated_in_lane(table, columns, column.name, tried), stored),
        )
        if text is None:
            self._findings.add(f"the generated column {table}.{column.name}", _UNKNOWN.format(stored))
        return replace(column, generated=text or "")

    def _check(self, label: str, stored: str, columns: tuple[Column, ...]) -> Check:
        table, key = self._known.name, self._known.primary_key
        # A key column may have been declared NOT NULL, too, which changes the translation.
        also = tuple(replace(each, nullable=each.nullable or each.name in key) for each in columns)
        # Or become NOT NULL after the check was made.
        before = tuple(replace(each, nullable=True) for each in columns)
        text = self._postgres_text(
            self._notes.checks.get(label),
            guessed_condition(stored),
            lambda tried: any(
                same_in_lane(check_in_lane(table, each, tried), stored) for each in (columns, also, before)
            ),
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
        return replace(found, name=name)

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
            listed = cast("list[tuple[str | None, int]]", self._connection.execute(INDEXED, (name,)).fetchall())
            computed = any(column is None for column, _ in listed)
            keys = [column or "" for column, _ in listed]
            if computed:
                keys = [self._element(name, *each, columns) for each in zip(keys, elements_of(text), strict=True)]
            unique = bool(self._connection.execute(UNIQUE, (table, name)).get)
            stored = where_of(text)
            where = None
            if stored is not None:
                where = self._postgres_text(
                    None,
                    guessed_condition(stored),
                    lambda tried, wanted=stored: same_in_lane(condition_in_lane(table, columns, tried), wanted),  # type: ignore[misc]
                )
                if where is None:
                    self._findings.add(f"the index {name}", _UNKNOWN.format(stored))
            pairs = tuple((key, bool(down)) for key, (_, down) in zip(keys, listed, strict=True))
            yield Index(name, pairs, unique=unique, where=where, computed=computed)

    def _element(self, index: str, column: str, stored: str, columns: tuple[Column, ...]) -> str:
        """Return a column or an expression of an index as SQL."""
        if column:
            return quoted_name(column)
        text = self._postgres_text(
            None,
            guessed_condition(stored),
            lambda tried: same_in_lane(element_in_lane(self._known.name, columns, tried), stored),
        )
        if text is None:
            self._findings.add(f"the index {index}", _UNKNOWN.format(stored))
        return f"({text})"

    def _postgres_text(self, first: str | None, guesses: Iterable[str], fits: Callable[[str], bool]) -> str | None:
        """Return PostgreSQL's text of an expression: a text that users wrote, or else a guess; None if none fits."""
        rejected: set[str] = set()
        for tried in chain([] if first is None else [first], self._notes.expressions, guesses):
            if tried in rejected:
                continue
            rejected.add(tried)
            with contextlib.suppress(DialectError, TransactionError):
                if fits(tried):
                    return source(words_of(tried))
        return None
