"""The schema of a database for the dialect: tables, their columns and PostgreSQL types, and foreign keys.

The lane reads `COLUMNS_QUERY`, `REFERENCES_QUERY` and `OBJECTS_QUERY` from SQLite's own catalog and gives the rows to
`schema_from_rows`; nothing else describes a schema, so none can disagree with the database. Its `version` is part of
the key under which translations are kept, so two catalogs must never share one: count the times it was read. SQLite's
own `schema_version` will not do, because a change that is rolled back gives its number to the next one.
The odd choice: a table with a column of unknown type is left out, so that statements on it are refused.
"""

import json
import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from types import MappingProxyType
from typing import Final, Literal, cast

from interlock.sql.parse import Body, parse, split, walk
from interlock.sql.types import INT8, INTEGER_RANGE, SERIALS, Type, enumeration, parse_declared

DEFINITIONS_MAX: Final = 1024
"""Definitions of tables whose parts are kept."""

COLUMNS_QUERY: Final = """
SELECT catalog.name, info.name, info.type, info."notnull", iif(info.hidden = 3, 'generated', info.dflt_value), info.pk
FROM sqlite_schema AS catalog JOIN pragma_table_xinfo(catalog.name) AS info
WHERE catalog.type = 'table' AND info.hidden IN (0, 3) ORDER BY catalog.name, info.cid
"""
REFERENCES_QUERY: Final = """
SELECT DISTINCT catalog.name, reference."table"
FROM sqlite_schema AS catalog JOIN pragma_foreign_key_list(catalog.name) AS reference
WHERE catalog.type = 'table'
"""
OBJECTS_QUERY: Final = (
    "SELECT type, name, tbl_name, sql FROM sqlite_schema WHERE type IN ('table', 'index', 'view') ORDER BY name"
)

IDENTITIES_QUERY: Final = """
SELECT sql FROM interlock_definitions
WHERE sql LIKE '%identity%' OR sql LIKE '%rename%' OR sql LIKE '%drop%' ORDER BY number
"""

GENERATED: Final = "generated"
"""The default of a column that is GENERATED ALWAYS AS (…) STORED; that of no other column is a name."""

# Table, column, declared type, NOT NULL, default, place in the primary key: a row of COLUMNS_QUERY.
ColumnRow = tuple[str, str, str, int, str | None, int]
# Table, table that it refers to: a row of REFERENCES_QUERY.
ReferenceRow = tuple[str, str]
# Kind, name, table, definition: a row of OBJECTS_QUERY. An index that a constraint has made has no definition.
ObjectRow = tuple[str, str, str, str | None]


Numbering = Literal["serial", "always", "by default", "sequence"]
"""How a sequence was declared: by the type of a column, as an identity of one, or by CREATE SEQUENCE."""

POSITION_PREFIX: Final = "interlock_sequence "
"""SQLite's own table `sqlite_sequence` has the position of each sequence, under this prefix and its name."""

_CALL: Final = re.compile(
    r"interlock_nextval\('(?P<name>(?:[^']|'')*)', '(?P<kind>[a-z ]+)', "
    r"(?P<start>-?\d+), (?P<increment>-?\d+), (?P<minimum>-?\d+), (?P<maximum>-?\d+), (?P<cycle>[01])"
)

_POSITION: Final = re.compile(rf"'{POSITION_PREFIX}((?:[^']|'')*)'")


@dataclass(frozen=True, slots=True)
class NumberSequence:
    """One sequence. SQLite's texts have it as the call of nextval() that gives its next number."""

    name: str
    kind: Numbering = "sequence"
    start: int = 1
    increment: int = 1
    minimum: int = 1
    maximum: int = INTEGER_RANGE[INT8.name][1]
    cycle: bool = False
    table: str = ""
    """The table whose rows SQLite numbered itself, in the form of the first preview."""

    @property
    def nextval(self) -> str:
        """SQLite's call that gives the next number."""
        numbers = f"{self.start}, {self.increment}, {self.minimum}, {self.maximum}, {int(self.cycle)}"
        table = f", {_text(self.table)}" if self.table else ""
        return f"interlock_nextval({_text(self.name)}, '{self.kind}', {numbers}{table})"

    @property
    def position(self) -> str:
        """The name of its position, as a text of SQLite."""
        return _text(POSITION_PREFIX + self.name)


def _text(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def sequence_of(text: str) -> NumberSequence | None:
    """Return the sequence that SQLite's text of a default or a view calls; None without one."""
    found = _CALL.search(text)
    if found is None:
        return None
    start, increment, minimum, maximum = (int(each) for each in found.group("start", "increment", "minimum", "maximum"))
    name, kind = found["name"].replace("''", "'"), cast("Numbering", found["kind"])
    return NumberSequence(name, kind, start, increment, minimum, maximum, cycle=found["cycle"] == "1")


def called_sequences(text: str) -> set[str]:
    """Return the names of the sequences that SQLite's text calls."""
    return {found["name"].replace("''", "'") for found in _CALL.finditer(text)}


def positions_in(text: str) -> set[str]:
    """Return the names of the sequences whose positions SQLite's text changes."""
    return {name.replace("''", "'") for name in _POSITION.findall(text)}


@dataclass(frozen=True, slots=True)
class Column:
    """One column; `default` is SQLite's text. `sequence` is the one that numbers it and belongs to it."""

    name: str
    type: Type
    nullable: bool = True
    has_default: bool = False
    default: str | None = None
    sequence: NumberSequence | None = None

    @property
    def is_generated(self) -> bool:
        """Whether it is computed of other columns, so that nothing else writes it."""
        return self.default == GENERATED


@dataclass(frozen=True, slots=True)
class Table:
    """One table. `references` are the tables its foreign keys point to; `definition` is SQLite's text of it."""

    name: str
    columns: tuple[Column, ...]
    primary_key: tuple[str, ...] = ()
    references: frozenset[str] = frozenset()
    definition: str = ""
    indexes: tuple[tuple[str, str], ...] = ()
    """Name and definition of each index that was created by a statement."""

    def column(self, name: str) -> Column | None:
        """The column of that name, in the very spelling of the catalog."""
        return next((column for column in self.columns if column.name == name), None)


_VIEW: Final = re.compile(
    r"AS SELECT 'view' AS kind, '(?P<shape>(?:[^']|'')*)' AS shape, '(?P<text>(?:[^']|'')*)' AS text", re.DOTALL
)


@dataclass(frozen=True, slots=True)
class ViewDefinition:
    """One view: its columns, everything that it reads, and the statement that made it."""

    name: str
    columns: tuple[str, ...]
    tables: frozenset[str]
    text: str

    @property
    def body(self) -> Body:
        """The statement's tree."""
        return parse(self.text)["ViewStmt"]


_ENUMERATION: Final = re.compile(r"AS SELECT 'enum' AS kind, '((?:[^']|'')*)' AS labels", re.DOTALL)


def _kept(name: str, text: str) -> "NumberSequence | Type | ViewDefinition | None":
    """Return what a view of SQLite keeps: a sequence, an enumeration or a view."""
    found = _ENUMERATION.search(text)
    if found is None:
        return sequence_of(text) or _view_of(name, text)
    return enumeration(name, cast("list[str]", json.loads(found[1].replace("''", "'"))))


def _view_of(name: str, text: str) -> ViewDefinition | None:
    found = _VIEW.search(text)
    if found is None:
        return None
    shape = json.loads(found["shape"].replace("''", "'"))
    return ViewDefinition(name, tuple(shape["columns"]), frozenset(shape["tables"]), found["text"].replace("''", "'"))


@dataclass(frozen=True, slots=True)
class Schema:
    """All tables at one version of the catalog."""

    version: int
    tables: Mapping[str, Table] = field(default_factory=dict[str, Table])
    indexes: frozenset[str] = frozenset()
    sequences: Mapping[str, NumberSequence] = field(default_factory=dict[str, NumberSequence])
    """Those of columns and those of CREATE SEQUENCE."""

    views: Mapping[str, ViewDefinition] = field(default_factory=dict[str, ViewDefinition])
    enumerations: Mapping[str, Type] = field(default_factory=dict[str, Type])

    def find(self, name: str) -> Table | NumberSequence | ViewDefinition | Type | None:
        """The table, sequence, view or enumeration of that name."""
        return self.tables.get(name) or self.sequences.get(name) or self.views.get(name) or self.enumerations.get(name)

    def table(self, name: str) -> Table | None:
        """The table of that name, in the very spelling of the catalog."""
        return self.tables.get(name)


def schema_from_rows(
    rows: Iterable[ColumnRow],
    *,
    version: int,
    references: Iterable[ReferenceRow] = (),
    objects: Iterable[ObjectRow] = (),
    identities: Mapping[tuple[str, str], Numbering] | None = None,
) -> Schema:
    """The schema by SQLite's catalog: rows of COLUMNS_QUERY, REFERENCES_QUERY and OBJECTS_QUERY.

    `identities` are those of the first preview, by table and column.
    """
    declared = identities or {}
    texts: dict[str, str] = {}
    indexes: dict[str, list[tuple[str, str]]] = {}
    listed_objects = list(objects)
    for kind, name, table, text in listed_objects:
        if kind == "table":
            texts[name] = text or ""
        elif kind == "index" and text is not None:
            indexes.setdefault(table, []).append((name, text))
    kept = {name: _kept(name, text or "") for kind, name, _, text in listed_objects if kind == "view"}
    sequences = {name: each for name, each in kept.items() if isinstance(each, NumberSequence)}
    enumerations = {name: each for name, each in kept.items() if isinstance(each, Type)}
    pointing: dict[str, set[str]] = {}
    for table, target in references:
        pointing.setdefault(table, set()).add(target)
    columns: dict[str, list[Column]] = {}
    keys: dict[str, dict[int, str]] = {}
    foreign: set[str] = set()
    for table, name, kind, not_null, default, place in rows:
        numbering = declared.get((table, name), "serial")
        old = _numbered_column(table, name, default, numbering) if place and kind.upper() == "INTEGER" else None
        known = parse_declared(kind, enumerations)
        column = old or (None if known is None else _column(name, known, not_null=bool(not_null), default=default))
        if column is None:
            foreign.add(table)
            continue
        columns.setdefault(table, []).append(column)
        if column.sequence is not None:
            sequences[column.sequence.name] = column.sequence
        if place:
            keys.setdefault(table, {})[place] = name
    tables = {
        table: Table(
            table,
            tuple(listed),
            primary_key=tuple(name for _, name in sorted(keys.get(table, {}).items())),
            references=frozenset(pointing.get(table, ())),
            definition=texts.get(table, ""),
            indexes=tuple(indexes.get(table, ())),
        )
        for table, listed in columns.items()
        if table not in foreign
    }
    names = frozenset(name for kind, name, _, _ in listed_objects if kind == "index")
    views = {name: each for name, each in kept.items() if isinstance(each, ViewDefinition)}
    return Schema(version, tables, names, sequences, views, enumerations)


# --- Identities of the first preview ---------------------------------------------------------------------------------
# Its catalog had every numbered key as serial. Whether one was an identity is in the stored definitions alone.


def has_old_keys(rows: Iterable[ColumnRow]) -> bool:
    """Return whether a table has a key in the form of the first preview."""
    return any(
        kind.upper() == "INTEGER" and (default or "").strip("'") in SERIALS for _, _, kind, _, default, _ in rows
    )


def identities(definitions: Iterable[str]) -> dict[tuple[str, str], Numbering]:
    """Return the identity columns of stored definitions, by their present names."""
    found: dict[tuple[str, str], Numbering] = {}
    for text in definitions:
        kind, body = split(parse(text))
        table = body.get("relation", {}).get("relname", "")
        match kind, body.get("renameType"):
            case "CreateStmt" | "AlterTableStmt", _:
                for place, column in walk(body):
                    rules = column.get("constraints", ()) if place == "ColumnDef" else ()
                    for rule in (node["Constraint"] for node in rules):
                        if rule["contype"] == "CONSTR_IDENTITY":
                            found[table, column["colname"]] = (
                                "always" if rule["generated_when"] == "a" else "by default"
                            )
            case "RenameStmt", "OBJECT_TABLE":
                found = {
                    (body["newname"] if name == table else name, each): value for (name, each), value in found.items()
                }
            case "RenameStmt", "OBJECT_COLUMN" if (table, body["subname"]) in found:
                found[table, body["newname"]] = found.pop((table, body["subname"]))
            case "DropStmt", _:
                dropped = {each["sval"] for place, each in walk(body) if place == "String"}
                found = {key: value for key, value in found.items() if key[0] not in dropped}
            case _:
                pass
    return found


def _numbered_column(table: str, name: str, default: str | None, numbering: Numbering) -> Column | None:
    """Return a key in the form of the first preview: SQLite numbered the rows, and the default said how wide one is."""
    serial = SERIALS.get((default or "").strip("'"))
    if serial is None:
        return None
    maximum = INTEGER_RANGE[serial.name][1]
    made = NumberSequence(chosen(table, (name,), "seq"), numbering, maximum=maximum, table=table)
    return Column(name, serial, nullable=False, has_default=True, default=made.nextval, sequence=made)


def _column(name: str, known: Type, *, not_null: bool, default: str | None) -> Column:
    sequence = None if default is None else sequence_of(default)
    owned = sequence if sequence is not None and sequence.kind != "sequence" else None
    return Column(name, known, nullable=not not_null, has_default=default is not None, default=default, sequence=owned)


# --- Constraints of a table, from SQLite's text ----------------------------------------------------------------------
# The text is that of `sql.ddl`, or SQLite's change of it: all names are quoted and there are no comments.

_TOKENS: Final = re.compile(r""""(?:[^"]|"")*"|'(?:[^']|'')*'|[(),]|[^"'(),]+""")
_NAME: Final = re.compile(r'"((?:[^"]|"")*)"')
_CONSTRAINT: Final = re.compile(
    r'(?:CONSTRAINT "(?P<label>(?:[^"]|"")*)" )?(?P<text>(?P<kind>PRIMARY KEY|UNIQUE|CHECK|FOREIGN KEY) ?\(.*)',
    re.DOTALL,
)


@dataclass(frozen=True, slots=True)
class Constraint:
    """One constraint; `text` is SQLite's without the name, which may be empty in old tables."""

    name: str
    kind: str
    columns: tuple[str, ...]
    text: str
    table: str = ""
    """The table that a foreign key refers to."""
    key: tuple[str, ...] = ()
    """The columns that a foreign key refers to."""


def names_in(text: str) -> list[str]:
    """Return the quoted names in SQLite's text, whatever stands in its strings."""
    return [_unquoted(token) for token in _TOKENS.findall(text) if token.startswith('"')]


@lru_cache(maxsize=DEFINITIONS_MAX)
def definition_parts(definition: str) -> tuple[Mapping[str, str], tuple[Constraint, ...]]:
    """Return the texts of the columns, by name, and the constraints of a table.

    Each definition asks for those of all tables, to find a name that is free.
    """
    columns: dict[str, str] = {}
    constraints: list[Constraint] = []
    for part in parts_of(definition):
        matched = _CONSTRAINT.fullmatch(part)
        if matched is None:
            name = _NAME.match(part)
            # SQLite quotes no name that it did not have to: "x" stays, and a renamed one is quoted, too.
            columns[_unquoted(name[0]) if name else part.split()[0]] = part
        else:
            constraints.append(_constraint_of(matched))
    return MappingProxyType(columns), tuple(constraints)


def _constraint_of(matched: re.Match[str]) -> Constraint:
    text, kind = matched["text"], matched["kind"]
    label = (matched["label"] or "").replace('""', '"')
    if kind == "CHECK":
        return Constraint(label, kind, tuple(dict.fromkeys(names_in(text))), text)
    columns = tuple(name for part in parts_of(text) for name in names_in(part))
    if kind != "FOREIGN KEY":
        return Constraint(label, kind, columns, text)
    rest = text[text.index(" REFERENCES ") :]
    table, *key = names_in(rest)
    return Constraint(label, kind, columns, text, table, tuple(key))


def parts_of(text: str) -> list[str]:
    """Return what stands between the commas in the first parentheses."""
    parts = [""]
    depth = 0
    for piece in _TOKENS.findall(text):
        match piece, depth:
            case "(", 0:
                depth = 1
                continue
            case ")", 1:
                break
            case ",", 1:
                parts.append("")
                continue
            case _:
                depth += (piece == "(") - (piece == ")")
        if depth:
            parts[-1] += piece
    return [part.strip() for part in parts if part.strip()]


def _unquoted(token: str) -> str:
    return token[1:-1].replace('""', '"')


# --- Names of unnamed constraints ------------------------------------------------------------------------------------
# The rules of PostgreSQL's `makeObjectName`: table, columns and a word for the kind, truncated to the limit.

BYTES_MAX: Final = 63


def chosen(table: str, columns: Iterable[str], kind: str, taken: Collection[str] = ()) -> str:
    """Return the name that PostgreSQL would choose, with a number appended if it is `taken`."""
    number = 0
    while True:
        name = _made(table, "_".join(columns), f"{kind}{number or ''}")
        if name not in taken:
            return name
        number += 1


def _made(table: str, columns: str, kind: str) -> str:
    first, second = table.encode(), columns.encode()
    over = len(kind) + 1 + (len(second) + 1 if second else 0) + len(first) - BYTES_MAX
    while over > 0:
        # The longer one is cut, letter by letter, as PostgreSQL does.
        if len(first) > len(second):
            first = first[:-1]
        else:
            second = second[:-1]
        over -= 1
    parts = [first.decode(errors="ignore"), second.decode(errors="ignore"), kind]
    return "_".join(part for part in parts if part)
