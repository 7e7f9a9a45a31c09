"""CREATE TABLE with its columns, defaults and constraints, and CREATE INDEX.

The invariant is that a column accepts exactly the values of its PostgreSQL type, for every writer: each column has a
CHECK named `interlock_type_<column>` beside the declared constraints. A table with a primary key is WITHOUT ROWID,
which makes its key NOT NULL and one look-up. Constraints that depend on other tables are checked here, because SQLite
does not look at the other table until rows arrive. The name of an unnamed index is the one that PostgreSQL chooses:
table, columns and `idx`, with a number if it is taken.

Sections: tables, columns, constraints, indexes.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Final

from interlock.sql import casts, select
from interlock.sql.casts import column_type
from interlock.sql.ddl.sequences import column_sequence, identity
from interlock.sql.dml import assigned
from interlock.sql.expressions import expression, predicate
from interlock.sql.from_clause import table_name
from interlock.sql.operators_and_functions import comparable
from interlock.sql.parse import (
    IDENTIFIER_BYTES_MAX,
    Body,
    Node,
    kind_of,
    names_of,
    only,
    quoted_list,
    quoted_name,
    split,
    unsupported,
    walk,
)
from interlock.sql.schema import (
    GENERATED,
    Column,
    Constraint,
    NumberSequence,
    Table,
    chosen,
    definition_parts,
    names_in,
)
from interlock.sql.scope import SYSTEM_COLUMNS, Output, Relation, Scope, Translation, visible
from interlock.sql.types import TIMESTAMPTZ, UNKNOWN, Type, collate, declared, enforcement, refuse, wrong

TYPE_CHECK_PREFIX: Final = "interlock_type_"
COLUMNS_MAX: Final = 500
_ACTIONS: Final = {"a": "NO ACTION", "r": "RESTRICT", "c": "CASCADE", "n": "SET NULL"}
_KINDS: Final = {"PRIMARY KEY": "pkey", "UNIQUE": "key", "CHECK": "check", "FOREIGN KEY": "fkey"}
NOTHING: Final = "SELECT 1 WHERE 0"
_VALIDITY: Final = ("contype", "conname", "is_enforced", "initially_valid")


@dataclass(slots=True)
class TableDraft:
    """A column or table while its definition is read."""

    columns: list[Column] = field(default_factory=list[Column])
    defaults: dict[str, str] = field(default_factory=dict[str, str])
    sequences: dict[str, NumberSequence] = field(default_factory=dict[str, NumberSequence])
    """The sequences of columns, which get their names when the table is known."""
    keys: list[tuple[str, ...]] = field(default_factory=list[tuple[str, ...]])
    constraints: list[tuple[str, Body]] = field(default_factory=list[tuple[str, Body]])
    """Constraints with the column that each was written at, or an empty name."""
    generated: dict[str, Node] = field(default_factory=dict[str, Node])
    """The expressions of generated columns, which are read when all columns are known."""
    texts: dict[str, str] = field(default_factory=dict[str, str])
    """SQLite's text of columns that do not change."""
    labels: set[str] = field(default_factory=set[str])
    """Names of NOT NULLs."""
    ready: list[Constraint] = field(default_factory=list[Constraint])
    """Constraints in SQLite's text, each with its name."""


# --- Tables ----------------------------------------------------------------------------------------------------------


def create_table(body: Body, translation: Translation) -> str:
    """Translate CREATE TABLE."""
    only("CreateStmt", body, "relation", "tableElts", "if_not_exists")
    name = _new_table_name(body["relation"])
    draft = TableDraft()
    for node in body.get("tableElts", ()):
        kind, element = split(node)
        if kind == "ColumnDef":
            read_column(element, draft, translation)
        elif kind == "Constraint":
            draft.constraints.append(("", element))
        else:
            raise unsupported(node)
    return _new_table(name, draft, translation, missing_only=bool(body.get("if_not_exists")))


def _new_table(name: str, draft: TableDraft, translation: Translation, *, missing_only: bool) -> str:
    """Return CREATE TABLE for SQLite; NOTHING if the table exists and `missing_only`."""
    if any(known.lower() == name.lower() and known != name for known in translation.schema.tables):
        raise refuse(f"the table {name!r}: another one differs from it in case alone.", fix="Choose another name.")
    if not 1 <= len(draft.columns) <= COLUMNS_MAX:
        raise refuse(f"a table of {len(draft.columns)} columns.", fix=f"Use 1 to {COLUMNS_MAX}.")
    folded = [column.name.lower() for column in draft.columns]
    if len(set(folded)) != len(folded):
        raise refuse("two columns whose names differ in case alone, or not at all.", fix="Rename one.")
    if name in relation_names(translation):
        if missing_only:
            return NOTHING
        settle(name, draft, translation)
        raise wrong(f"there is a table, an index or a sequence {name!r} already.")
    settle(name, draft, translation)
    return table_text(name, draft)


def create_table_as(body: Body, translation: Translation) -> str:
    """Translate CREATE TABLE … AS: a table with the columns of the query, and its rows."""
    only("CreateTableAsStmt", body, "query", "into", "objtype", "if_not_exists")
    into = body["into"]
    only("IntoClause", into, "rel", "colNames", "onCommit", "skipData")
    if body.get("objtype") != "OBJECT_TABLE" or kind_of(body["query"]) != "SelectStmt":
        raise refuse("CREATE … AS of something else than a table by a query.", fix="Create a table or a view.")
    name = _new_table_name(into["rel"])
    query = select.draft(body["query"], Scope(translation, volatile=True, place="CREATE TABLE AS")).settle()
    names = names_of(into.get("colNames", ()))
    if len(names) > len(query.names):
        raise wrong(f"{len(names)} names for {len(query.names)} columns.")
    titles = [*names, *query.names[len(names) :]]
    if len(set(titles)) != len(titles):
        raise wrong("two columns with one name.", fix="Name the columns: CREATE TABLE t (a, b) AS …")
    draft = TableDraft()
    for title, term in zip(titles, query.terms, strict=True):
        if title.lower() in SYSTEM_COLUMNS:
            raise refuse(f"a column named {title!r}.", why="The engines use that name themselves.", fix="Rename it.")
        draft.columns.append(Column(title, term.type))
    text = _new_table(name, draft, translation, missing_only=bool(body.get("if_not_exists")))
    if text == NOTHING or into.get("skipData"):
        return text
    translation.several = True
    return f"{text}; INSERT INTO {quoted_name(name)} {query.write()}"


def create_schema(body: Body, _: Translation) -> str:
    """Translate CREATE SCHEMA IF NOT EXISTS public: `public` means this database."""
    only("CreateSchemaStmt", body, "schemaname", "if_not_exists")
    if body["schemaname"] != "public":
        raise refuse(f"the schema {body['schemaname']!r}.", fix="Use a database of its own.")
    if not body.get("if_not_exists"):
        raise wrong("there is a schema 'public' already.")
    return NOTHING


def settle(name: str, draft: TableDraft, translation: Translation) -> None:
    """Translate the constraints that were read, and check what belongs to the table as a whole."""
    for column, element in draft.constraints:
        draft.ready.append(_constraint(column, element, name, draft, translation))
    draft.constraints.clear()
    if len(draft.keys) > 1:
        raise wrong("more than one PRIMARY KEY.")
    for column, sequence in draft.sequences.items():
        if not sequence.name:
            others = {each.name for each in draft.sequences.values()} | {each.name for each in draft.ready}
            title = chosen(name, (column,), "seq", relation_names(translation) | others | {name})
            draft.sequences[column] = replace(sequence, name=title)
        draft.defaults[column] = draft.sequences[column].nextval
    for column, node in draft.generated.items():
        draft.texts[column] = _generated_text(column, node, name, draft, translation)


def _generated_text(name: str, node: Node, table: str, draft: TableDraft, translation: Translation) -> str:
    """Return SQLite's text of a generated column: it may read other columns that are not generated."""
    [column] = [each for each in draft.columns if each.name == name]
    keys = [*draft.keys, *(each.columns for each in draft.ready if each.kind == "FOREIGN KEY")]
    if any(name in key for key in keys):
        raise refuse(f"a key or a reference with the generated column {name!r}.", fix="Use ordinary columns.")
    plain = [each for each in draft.columns if not each.is_generated]
    scope = row_scope(table, plain, translation, "a generated column")
    with scope.at("a generated column"):
        text = assigned(expression(node, scope), column)
    check_steady(text, "a generated column")
    made, rest = column_text(column, draft, in_key=False).split(" CONSTRAINT ", 1)
    return f"{made} GENERATED ALWAYS AS ({text}) STORED CONSTRAINT {rest}"


def table_text(name: str, draft: TableDraft) -> str:
    """Return CREATE TABLE for SQLite."""
    key = own_key(draft)
    columns = [
        draft.texts.get(column.name) or column_text(column, draft, in_key=column.name in key)
        for column in draft.columns
    ]
    constraints = [f"CONSTRAINT {quoted_name(each.name)} {each.text}" for each in draft.ready]
    ending = " WITHOUT ROWID" if key else ""
    return f"CREATE TABLE {quoted_name(name)} ({', '.join([*columns, *constraints])}){ending}"


def _new_table_name(body: Body) -> str:
    if body.get("relpersistence", "p") != "p":
        raise refuse("a temporary or unlogged table.", fix="Create an ordinary table.")
    name = table_name(body)
    visible(name, "table")
    return name


def index_name(name: str, translation: Translation) -> str:
    """Return the name of an index, which SQLite must tell apart."""
    visible(name, "index")
    if any(known.lower() == name.lower() and known != name for known in relation_names(translation)):
        raise refuse(
            f"the index name {name!r}: another name differs from it in case alone.",
            why="SQLite does not tell them apart.",
            fix="Choose another name.",
        )
    return name


def column_text(column: Column, draft: TableDraft, *, in_key: bool, constant: str | None = None) -> str:
    """Return SQLite's text of a column."""
    name = quoted_name(column.name)
    check = f"CONSTRAINT {quoted_name(TYPE_CHECK_PREFIX + column.name)} CHECK ({{}})"
    text = f"{name} {declared(column.type)}"
    if column.type.collation is not None:
        text += f" COLLATE {column.type.collation}"
    nullable = column.nullable and not in_key
    if not nullable:
        text += " NOT NULL"
    if column.name in draft.defaults:
        text += f" DEFAULT ({draft.defaults[column.name]})"
    elif constant is not None:
        text += f" DEFAULT {constant}"
    return f"{text} {check.format(enforcement(column.type, name, nullable=nullable))}"


# --- Columns ---------------------------------------------------------------------------------------------------------


def _check_label(rule: Body, draft: TableDraft) -> None:
    """Check the name of a NOT NULL, which a lane does not keep."""
    label: str = rule.get("conname", "")
    if rule.get("is_no_inherit") or label in draft.labels or label.endswith("_not_null"):
        raise refuse("NOT NULL with NO INHERIT, or by a name that is taken.", fix="Write NOT NULL alone.")
    if label:
        draft.labels.add(label)


def read_column(body: Body, draft: TableDraft, translation: Translation) -> None:
    """Read the definition of a column into the draft."""
    only("ColumnDef", body, "colname", "typeName", "constraints", "is_local", "collClause")
    name: str = body["colname"]
    if name.lower() in SYSTEM_COLUMNS:
        raise refuse(f"a column named {name!r}.", why="The engines use that name themselves.", fix="Rename it.")
    kind, serial = column_type(body["typeName"], translation.schema.enumerations)
    if "collClause" in body:
        check_collation(names_of(body["collClause"]["collname"]), kind)
    column = Column(name, kind)
    if serial is not None:
        draft.sequences[name] = column_sequence(kind, "serial")
    rules = _with_attributes([node["Constraint"] for node in body.get("constraints", ())])
    for rule in rules:
        match rule["contype"]:
            case "CONSTR_NOTNULL" | "CONSTR_NULL":
                _check_label(rule, draft)
                column = replace(column, nullable=rule["contype"] == "CONSTR_NULL")
            case "CONSTR_DEFAULT" | "CONSTR_IDENTITY" | "CONSTR_GENERATED":
                _read_source(rule, column, draft, translation)
            case _:
                draft.constraints.append((name, rule))
    _check_nulls(rules, name, numbered=name in draft.sequences)
    if name in draft.generated:
        column = replace(column, has_default=True, default=GENERATED)
    if name in draft.sequences:
        column = replace(column, nullable=False, has_default=True)
    draft.columns.append(column)


def _read_source(rule: Body, column: Column, draft: TableDraft, translation: Translation) -> None:
    """Read what gives a column its values where a statement gives none: a default, a sequence or an expression."""
    name = column.name
    if name in {*draft.defaults, *draft.sequences, *draft.generated}:
        raise wrong(f"{name!r} has two of a default, a number and an expression.", fix="Declare one.")
    if rule["contype"] == "CONSTR_DEFAULT":
        draft.defaults[name] = default_value(rule["raw_expr"], column, translation)
    elif rule["contype"] == "CONSTR_IDENTITY":
        draft.sequences[name] = identity(rule, column.type)
    else:
        only("Constraint", rule, "contype", "generated_when", "generated_kind", "raw_expr")
        if rule.get("generated_kind", "v") != "s":
            raise refuse(f"{name!r} GENERATED without STORED.", fix="Write GENERATED ALWAYS AS (…) STORED.")
        draft.generated[name] = rule["raw_expr"]


def check_collation(names: list[str], kind: Type, *, sorts: bool = False) -> None:
    """Refuse a collation that a lane does not have."""
    if not kind.is_text and not (kind.is_array and kind.element.is_text):
        report = refuse if kind.name == "bpchar" else wrong
        raise report(f"COLLATE of the type {kind}.", fix="Leave it out.")
    casts.check_collation(names, sorts=sorts)


def _with_attributes(rules: list[Body]) -> list[Body]:
    """Return the constraints of a column, with the words about deferring in the one before them."""
    found: list[Body] = []
    for rule in rules:
        kind: str = rule["contype"]
        if not kind.startswith("CONSTR_ATTR_"):
            found.append(dict(rule))
            continue
        word = kind.removeprefix("CONSTR_ATTR_")
        if word not in {"DEFERRABLE", "NOT_DEFERRABLE", "DEFERRED", "IMMEDIATE"}:
            raise refuse(f"a constraint that is {word.replace('_', ' ')}.", fix="Leave it out.")
        if not found or found[-1]["contype"] not in {"CONSTR_FOREIGN", "CONSTR_UNIQUE", "CONSTR_PRIMARY"}:
            raise wrong(f"a misplaced {word.replace('_', ' ')}.")
        words: set[str] = found[-1].setdefault("words", set())
        pair = {"DEFERRABLE", "NOT_DEFERRABLE"} if word.endswith("DEFERRABLE") else {"DEFERRED", "IMMEDIATE"}
        if words & pair or {word, *words} == {"NOT_DEFERRABLE", "DEFERRED"}:
            raise wrong("words about deferring that contradict each other, or stand there twice.")
        words.add(word)
    for rule in found:
        words = rule.pop("words", set())
        if words & {"DEFERRABLE", "DEFERRED"}:
            rule["deferrable"] = True
        if "DEFERRED" in words:
            rule["initdeferred"] = True
    return found


def _check_nulls(rules: list[Body], name: str, *, numbered: bool) -> None:
    kinds = {rule["contype"] for rule in rules}
    keyed = numbered or "CONSTR_PRIMARY" in kinds
    if "CONSTR_NULL" in kinds and (keyed or "CONSTR_NOTNULL" in kinds):
        raise wrong(f"{name!r} is declared both NULL and NOT NULL.")
    if len({rule["conname"] for rule in rules if rule["contype"] == "CONSTR_NOTNULL" and "conname" in rule}) > 1:
        raise refuse(f"{name!r} has two NOT NULLs with different names.", fix="Write one.")


def default_value(node: Node, column: Column, translation: Translation) -> str:
    """Return SQLite's text of a default."""
    scope = Scope(translation, volatile=True, subqueries=False, place="DEFAULT")
    return assigned(expression(node, scope), column)


# --- Constraints -----------------------------------------------------------------------------------------------------


def _constraint(column: str, body: Body, table: str, draft: TableDraft, translation: Translation) -> Constraint:
    """Return a constraint of the table, or of one column written as one of the table."""
    kind = body["contype"]
    target, key = "", tuple[str, ...]()
    match kind:
        case "CONSTR_PRIMARY":
            only("Constraint", body, "keys", *_VALIDITY)
            names = _known([column] if column else names_of(body["keys"]), draft)
            draft.keys.append(names)
            word, text = "PRIMARY KEY", f"PRIMARY KEY ({quoted_list(names)})"
        case "CONSTR_UNIQUE":
            only("Constraint", body, "keys", *_VALIDITY)
            names = _known([column] if column else names_of(body["keys"]), draft)
            word, text = "UNIQUE", f"UNIQUE ({quoted_list(names)})"
        case "CONSTR_CHECK":
            only("Constraint", body, "raw_expr", *_VALIDITY)
            text = f"CHECK ({condition(body['raw_expr'], table, draft.columns, translation, 'CHECK')})"
            known = {each.name for each in draft.columns}
            word, names = "CHECK", tuple(dict.fromkeys(name for name in names_in(text) if name in known))
        case "CONSTR_FOREIGN":
            names = _known([column] if column else names_of(body["fk_attrs"]), draft)
            text, target, key = _foreign_key(names, body, table, draft, translation)
            word = "FOREIGN KEY"
        case _:
            raise refuse(f"the constraint {kind.removeprefix('CONSTR_').replace('_', ' ')}.", fix="Leave it out.")
    label = constraint_name(body, word, names, table, draft, translation)
    return Constraint(label, word, names, text, target, key)


def constraint_name(
    body: Body, kind: str, columns: tuple[str, ...], table: str, draft: TableDraft, translation: Translation
) -> str:
    """Return the name in the statement, or the one that PostgreSQL chooses."""
    taken = {each.name for each in draft.ready} | draft.labels
    if kind in {"PRIMARY KEY", "UNIQUE"}:
        taken |= {table, *relation_names(translation, without=table)}
    label: str | None = body.get("conname")
    if label is None:
        named = columns if kind in {"UNIQUE", "FOREIGN KEY"} or (kind == "CHECK" and len(columns) == 1) else ()
        return chosen(table, named, _KINDS[kind], taken)
    visible(label, "constraint")
    if label in taken:
        raise wrong(f"there is a constraint or a table {label!r} already.", fix="Choose another name.")
    return label


def index_names_of_constraints(translation: Translation, without: str = "") -> set[str]:
    """Return the names of keys and unique constraints, which PostgreSQL gives to their indexes, too."""
    return {
        each.name
        for table in translation.schema.tables.values()
        if table.name != without
        for each in constraints_of(table)
        if each.kind in {"PRIMARY KEY", "UNIQUE"}
    }


def relation_names(translation: Translation, without: str = "") -> set[str]:
    """Return the names that PostgreSQL has given to tables, indexes and sequences; one name is given once."""
    schema = translation.schema
    return {
        *schema.tables,
        *schema.indexes,
        *schema.sequences,
        *schema.views,
        *schema.enumerations,
        *index_names_of_constraints(translation, without),
    }


def constraints_of(table: Table) -> list[Constraint]:
    """Return the constraints of a table, those without a name by the name that PostgreSQL would have chosen."""
    found: list[Constraint] = []
    columns = {column.name for column in table.columns}
    for each in definition_parts(table.definition)[1]:
        named = () if each.kind == "PRIMARY KEY" else tuple(name for name in each.columns if name in columns)
        if each.kind == "CHECK" and len(named) > 1:
            named = ()
        name = each.name or chosen(table.name, named, _KINDS[each.kind], {other.name for other in found})
        found.append(replace(each, name=name))
    if table.primary_key and not any(each.kind == "PRIMARY KEY" for each in found):
        # A key that SQLite numbered stands at its column, without a name.
        text = f"PRIMARY KEY ({quoted_list(table.primary_key)})"
        found.append(Constraint(chosen(table.name, (), "pkey"), "PRIMARY KEY", table.primary_key, text))
    return found


def _known(names: list[str], draft: TableDraft) -> tuple[str, ...]:
    kinds = {column.name: column.type for column in draft.columns}
    for name in names:
        if name not in kinds:
            raise wrong(f"a constraint on {name!r}, which is not a column of the table.")
        comparable(kinds[name], "a key")
    if len(set(names)) != len(names) or not names:
        raise wrong("a constraint with a column twice, or with none.")
    return tuple(names)


def condition(
    node: Node, table: str, columns: list[Column] | tuple[Column, ...], translation: Translation, place: str
) -> str:
    """Return SQLite's text of a condition over the columns of one table."""
    scope = row_scope(table, columns, translation, place)
    with scope.at(place):
        text = predicate(node, scope, place).checked.text
    check_steady(text, place)
    return text


def row_scope(table: str, columns: Iterable[Column], translation: Translation, place: str) -> Scope:
    """Return a scope with the columns of one row of a table."""
    scope = Scope(translation, subqueries=False, place=place)
    outputs = tuple(Output(column.name, column.type, nullable=column.nullable) for column in columns)
    scope.add(Relation(table, outputs, ""))
    return scope


def check_steady(text: str, place: str) -> None:
    """Refuse calls in a stored definition whose result for the same row may change."""
    if "interlock_now(" in text:
        raise refuse(f"now() in {place}.", why="A row that was right would become wrong by waiting.")
    if "interlock_label_at(" in text or "interlock_place_of(" in text:
        raise refuse(
            f"a cast between an enumeration and text in {place}.",
            why="The labels may change.",
            fix="Compare it with a label: mood = 'happy'.",
        )


def _foreign_key(
    names: tuple[str, ...], body: Body, table: str, draft: TableDraft, translation: Translation
) -> tuple[str, str, tuple[str, ...]]:
    """Return SQLite's text of a reference, the table that it points to, and the columns there."""
    only(
        "Constraint", body, "pktable", "fk_attrs", "pk_attrs", "fk_matchtype", "fk_upd_action", "fk_del_action",
        "deferrable", "initdeferred", *_VALIDITY,
    )  # fmt: skip
    if body.get("fk_matchtype", "s") != "s":
        raise refuse("MATCH FULL or PARTIAL of a reference.", fix="Leave it out.")
    parent = table_name(body["pktable"])
    if parent == table:
        known, uniques = Table(table, tuple(draft.columns), own_key(draft)), draft.ready
        waiting = [
            (at, each) for at, each in draft.constraints if each["contype"] in {"CONSTR_UNIQUE", "CONSTR_PRIMARY"}
        ]
        keys = [tuple([at] if at else names_of(each["keys"])) for at, each in waiting]
        first = [key for key, (_, each) in zip(keys, waiting, strict=True) if each["contype"] == "CONSTR_PRIMARY"]
        known = replace(known, primary_key=known.primary_key or (first[0] if first else ()))
    else:
        known, keys = translation.table(parent), []
        uniques = constraints_of(known)
    keys = [known.primary_key, *keys, *(each.columns for each in uniques if each.kind == "UNIQUE")]
    key = tuple(names_of(body.get("pk_attrs", ()))) or known.primary_key
    if not key or len(names) != len(key) or not any(sorted(key) == sorted(each) for each in keys):
        raise refuse(
            f"a reference to something else than the primary key or a UNIQUE constraint of {parent!r}.",
            fix="Refer to its key.",
        )
    own = {column.name: column.type for column in draft.columns}
    for name, column_name in zip(names, key, strict=True):
        column = known.column(column_name)
        if column is None or not _is_same_kind(own[name], column.type):
            raise refuse(f"{name!r} and {parent}.{column_name} have different types.", fix="Give both the same type.")
    text = f"FOREIGN KEY ({quoted_list(names)}) REFERENCES {quoted_name(parent)} ({quoted_list(key)})"
    for field_name, event in (("fk_del_action", "DELETE"), ("fk_upd_action", "UPDATE")):
        action = _ACTIONS.get(body.get(field_name, "a"))
        if action is None:
            raise refuse(
                f"ON {event} SET DEFAULT of a reference.", fix="Use CASCADE, SET NULL or RESTRICT.",
            )  # fmt: skip
        text += "" if action == "NO ACTION" else f" ON {event} {action}"
    if body.get("deferrable"):
        text += f" DEFERRABLE INITIALLY {'DEFERRED' if body.get('initdeferred') else 'IMMEDIATE'}"
    return text, parent, key


def _is_same_kind(one: Type, other: Type) -> bool:
    """Return whether SQLite compares values of the two types as PostgreSQL does: texts, or numbers, of any length."""
    return one == other or (one.is_integer and other.is_integer) or (one.is_text and other.is_text)


def own_key(draft: TableDraft) -> tuple[str, ...]:
    """Return the columns of the primary key."""
    return draft.keys[0] if draft.keys else ()


# --- Indexes ---------------------------------------------------------------------------------------------------------


def create_index(body: Body, translation: Translation) -> str:
    """Translate CREATE INDEX."""
    only(
        "IndexStmt",
        body,
        "idxname",
        "relation",
        "accessMethod",
        "indexParams",
        "whereClause",
        "unique",
        "if_not_exists",
        "concurrent",
    )
    method = body.get("accessMethod", "btree")
    if method not in {"btree", "hash"}:
        raise refuse(f"an index of kind {method}.", fix="Leave out USING: a lane has B-trees.")
    ordered = any(node["IndexElem"]["ordering"] != "SORTBY_DEFAULT" for node in body["indexParams"])
    if method == "hash" and (body.get("unique") or ordered or len(body["indexParams"]) > 1):
        # What finds equal values is all the same; a B-tree finds them, too.
        raise wrong("a hash index that is unique, sorted or on several columns.", fix="Leave out USING.")
    table = translation.table(table_name(body["relation"]))
    elements = [_index_element(node["IndexElem"], table, translation) for node in body["indexParams"]]
    exists = bool(body.get("if_not_exists"))
    if "idxname" in body:
        name = index_name(body["idxname"], translation)
        if name in index_names_of_constraints(translation):
            if exists:
                return NOTHING
            raise wrong(f"there is a constraint {name!r} already, whose index has that name.")
    else:
        name = _free_index_name(table.name, [title for title, _ in elements], translation)
    text = f"{'UNIQUE ' if body.get('unique') else ''}INDEX {'IF NOT EXISTS ' if exists else ''}"
    text = f"CREATE {text}{quoted_name(name)} ON {quoted_name(table.name)} ({', '.join(each for _, each in elements)})"
    if "whereClause" not in body:
        return text
    test = condition(body["whereClause"], table.name, table.columns, translation, "the condition of an index")
    return f"{text} WHERE {test}"


_PATTERN_CLASSES: Final = frozenset({"text_pattern_ops", "varchar_pattern_ops", "text_ops", "varchar_ops"})
_INDEXED_FUNCTIONS: Final = frozenset({"lower", "upper", "length", "char_length", "btrim", "md5", "abs"})
"""Functions of an index: their value depends on nothing but their arguments, on both engines."""


_INDEXED_OPERATORS: Final = frozenset({"+", "-", "*", "/", "||", "->", "->>", "#>>"})
_TEXTS: Final = ("text", "varchar", "bpchar", "unknown")
_STEADY_CASTS: Final = frozenset({"bool", "int2", "int4", "int8", "float8", "numeric", "jsonb", "uuid", *_TEXTS})
"""Types whose casts are immutable on PostgreSQL. Those from and to dates and times depend on the session there."""
_INDEXED_NODES: Final = frozenset({"ColumnRef", "A_Const", "String", "Integer", "TypeName"})


def _index_element(body: Body, table: Table, translation: Translation) -> tuple[str, str]:
    """Return one column or expression of an index: its name for PostgreSQL's choice of a name, and its text."""
    only("IndexElem", body, "name", "expr", "ordering", "nulls_ordering", "opclass", "collation")
    if "expr" in body:
        title, text, kind = _indexed_expression(body["expr"], table, translation)
    else:
        column = table.column(body["name"])
        if column is None:
            raise wrong(f"an index on a column that {table.name!r} does not have.")
        comparable(column.type, "an index")
        title, text, kind = column.name, quoted_name(column.name), column.type
    # In the collation C these classes have the order of the column itself.
    if "opclass" in body and not (kind.is_text and names_of(body["opclass"])[-1] in _PATTERN_CLASSES):
        raise refuse(f"the operator class {names_of(body['opclass'])[-1]} of an index.", fix="Leave it out.")
    if "collation" in body:
        check_collation(names_of(body["collation"]), kind, sorts=True)
    # The order of NULLs inside an index never shows.
    return title, text + (" DESC" if body.get("ordering") == "SORTBY_DESC" else "")


def _indexed_expression(node: Node, table: Table, translation: Translation) -> tuple[str, str, Type]:
    scope = row_scope(table.name, table.columns, translation, "an index")
    with scope.at("an index"):
        for kind, body in walk(node):
            _check_indexed(kind, body, scope)
        term = expression(node, scope).checked
    if term.text.startswith("'") or term.type is UNKNOWN:
        raise refuse("an index on a constant text.", why="SQLite reads it as a name.", fix="Index columns, or 1.")
    comparable(term.type, "an index")
    return _index_title(node), f"({term.text}){collate(term.type)}", term.type


def _check_indexed(kind: str, body: Body, scope: Scope) -> None:
    """Refuse a node of an indexed expression whose value for the same row may change, on PostgreSQL or here."""
    if kind == "TypeCast":
        kinds = {column_type(body["typeName"])[0].name, expression(body["arg"], scope).type.name}
        is_steady = kinds <= _STEADY_CASTS
    elif kind == "A_Expr" and body["kind"] == "AEXPR_OP":
        sides = [expression(body[side], scope).type for side in ("lexpr", "rexpr") if side in body]
        operator = names_of(body["name"])[-1]
        is_steady = operator in _INDEXED_OPERATORS and TIMESTAMPTZ not in sides
        kinds = {side.name for side in sides}
        if operator == "||" and not kinds.isdisjoint(_TEXTS):  # The other side is cast to text.
            is_steady = kinds <= _STEADY_CASTS
    elif kind == "CoalesceExpr":
        kinds = {expression(node, scope).type.name for node in body["args"]}
        is_steady = kinds <= _STEADY_CASTS or len(kinds - {"unknown"}) == 1
    elif kind == "FuncCall":
        is_steady = names_of(body["funcname"])[-1] in _INDEXED_FUNCTIONS
    else:
        is_steady = kind in _INDEXED_NODES
    if not is_steady:
        raise refuse(
            "an index on such an expression.",
            why=f"It may have columns, constants, coalesce, {', '.join(sorted(_INDEXED_FUNCTIONS))}, the operators "
            f"{' '.join(sorted(_INDEXED_OPERATORS))}, and casts between numbers, text, boolean, uuid and jsonb.",
            fix="Index columns.",
        )


def _index_title(node: Node) -> str:
    """Return PostgreSQL's name for an expression in the name of an index."""
    match split(node):
        case "ColumnRef", body:
            return names_of(body["fields"])[-1]
        case "FuncCall", body:
            return names_of(body["funcname"])[-1]
        case "CoalesceExpr", _:
            return "coalesce"
        case "TypeCast", body:
            title = _index_title(body["arg"])
            return names_of(body["typeName"]["names"])[-1] if title == "expr" else title
        case _:
            return "expr"


def _free_index_name(table: str, columns: list[str], translation: Translation) -> str:
    """Return the name that PostgreSQL gives: table_columns_idx, with a number if it is taken."""
    base = "_".join([table, *columns, "idx"])
    taken = relation_names(translation)
    name = next(name for name in (f"{base}{number or ''}" for number in range(len(taken) + 1)) if name not in taken)
    if len(set(columns)) != len(columns) or len(name.encode()) > IDENTIFIER_BYTES_MAX or name != name.lower():
        raise refuse("an index without a name on such columns.", fix="Name the index.")
    return name
