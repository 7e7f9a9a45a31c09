"""Definitions: CREATE TABLE and INDEX, ALTER TABLE, DROP, TRUNCATE.

The invariant is that a column accepts exactly the values of its PostgreSQL type, for every writer: each column has a
CHECK named `interlock_type_<column>` beside the declared constraints. A table with a primary key is WITHOUT ROWID,
which makes its key NOT NULL and one look-up; only keys numbered by the database use SQLite's row numbers. Constraints
that depend on other tables are checked here, because SQLite does not look at the other table until rows arrive.

What SQLite's ALTER TABLE cannot do makes the table anew: create, copy, drop, rename, in one transaction.

Sections: tables, columns, constraints, indexes, ALTER TABLE, new tables for old ones, RENAME, DROP and TRUNCATE.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from interlock.sql.calls import comparable
from interlock.sql.casts import column_type
from interlock.sql.dml import assigned
from interlock.sql.expressions import expression, predicate
from interlock.sql.from_clause import table_name
from interlock.sql.literals import text_literal
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
from interlock.sql.schema import Column, Constraint, Table, chosen, definition_parts, names_in, parts_of
from interlock.sql.scope import SYSTEM_COLUMNS, Output, Relation, Scope, Translation, visible
from interlock.sql.types import INT2, INT4, INT8, Type, declared, enforcement, refuse, wrong

TYPE_CHECK_PREFIX: Final = "interlock_type_"
COLUMNS_MAX: Final = 500
_SERIAL_NAMES: Final = {INT2: "smallserial", INT4: "serial", INT8: "bigserial"}
_ACTIONS: Final = {"a": "NO ACTION", "r": "RESTRICT", "c": "CASCADE", "n": "SET NULL"}
_KINDS: Final = {"PRIMARY KEY": "pkey", "UNIQUE": "key", "CHECK": "check", "FOREIGN KEY": "fkey"}
_NOTHING: Final = "SELECT 1 WHERE 0"
_VALIDITY: Final = ("contype", "conname", "is_enforced", "initially_valid")


@dataclass(slots=True)
class _Draft:
    """A column or table while its definition is read."""

    columns: list[Column] = field(default_factory=list[Column])
    defaults: dict[str, str] = field(default_factory=dict[str, str])
    serial: dict[str, str] = field(default_factory=dict[str, str])
    keys: list[tuple[str, ...]] = field(default_factory=list[tuple[str, ...]])
    constraints: list[tuple[str, Body]] = field(default_factory=list[tuple[str, Body]])
    """Constraints with the column that each was written at, or an empty name."""
    texts: dict[str, str] = field(default_factory=dict[str, str])
    """SQLite's text of columns that do not change."""
    ready: list[Constraint] = field(default_factory=list[Constraint])
    """Constraints in SQLite's text, each with its name."""


# --- Tables ----------------------------------------------------------------------------------------------------------


def create_table(body: Body, translation: Translation) -> str:
    """Translate CREATE TABLE."""
    only("CreateStmt", body, "relation", "tableElts", "if_not_exists", "oncommit")
    name = _new_table_name(body["relation"])
    draft = _Draft()
    for node in body.get("tableElts", ()):
        kind, element = split(node)
        if kind == "ColumnDef":
            _read_column(element, draft, translation)
        elif kind == "Constraint":
            draft.constraints.append(("", element))
        else:
            raise unsupported(node)
    if any(known.lower() == name.lower() and known != name for known in translation.schema.tables):
        raise refuse(f"the table {name!r}: another one differs from it in case alone.", fix="Choose another name.")
    if not 1 <= len(draft.columns) <= COLUMNS_MAX:
        raise refuse(f"a table of {len(draft.columns)} columns.", fix=f"Use 1 to {COLUMNS_MAX}.")
    folded = [column.name.lower() for column in draft.columns]
    if len(set(folded)) != len(folded):
        raise refuse("two columns whose names differ in case alone, or not at all.", fix="Rename one.")
    exists = name in translation.schema.tables
    if exists and body.get("if_not_exists"):
        return _NOTHING
    if not exists and name in _index_names_of_constraints(translation):
        raise wrong(f"there is a constraint {name!r} already, whose index has that name.")
    _settle(name, draft, translation)
    return _table_text(name, draft)


def _settle(name: str, draft: _Draft, translation: Translation) -> None:
    """Translate the constraints that were read, and check what belongs to the table as a whole."""
    for column, element in draft.constraints:
        constraint = _constraint(column, element, name, draft, translation)
        if constraint is not None:
            draft.ready.append(constraint)
    draft.constraints.clear()
    if len(draft.keys) > 1:
        raise wrong("more than one PRIMARY KEY.")
    for column in draft.serial:
        if _own_key(draft) != (column,):
            raise refuse(f"{column!r} is numbered by the database without being the PRIMARY KEY.", fix="Make it so.")


def _table_text(name: str, draft: _Draft) -> str:
    key = _own_key(draft)
    columns = [
        draft.texts.get(column.name) or _column_text(column, draft, in_key=column.name in key)
        for column in draft.columns
    ]
    constraints = [f"CONSTRAINT {quoted_name(each.name)} {each.text}" for each in draft.ready]
    ending = " WITHOUT ROWID" if key and not draft.serial else ""
    return f"CREATE TABLE {quoted_name(name)} ({', '.join([*columns, *constraints])}){ending}"


def _new_table_name(body: Body) -> str:
    if body.get("relpersistence", "p") != "p":
        raise refuse("a temporary or unlogged table.", fix="Create an ordinary table.")
    name = table_name(body)
    visible(name, "table")
    return name


def _index_name(name: str) -> str:
    visible(name, "index")
    if name != name.lower():
        raise refuse(f"the index name {name!r}.", why="SQLite does not tell its case apart.", fix="Use small letters.")
    return name


def _column_text(column: Column, draft: _Draft, *, in_key: bool, constant: str | None = None) -> str:
    name = quoted_name(column.name)
    check = f"CONSTRAINT {quoted_name(TYPE_CHECK_PREFIX + column.name)} CHECK ({{}})"
    if column.name in draft.serial:
        low_high = enforcement(column.type, name, nullable=False)
        return (
            f"{name} INTEGER PRIMARY KEY AUTOINCREMENT DEFAULT '{draft.serial[column.name]}' {check.format(low_high)}"
        )
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


def _read_column(body: Body, draft: _Draft, translation: Translation) -> None:
    only("ColumnDef", body, "colname", "typeName", "constraints", "is_local", "collClause")
    name: str = body["colname"]
    if name.lower() in SYSTEM_COLUMNS:
        raise refuse(f"a column named {name!r}.", why="The engines use that name themselves.", fix="Rename it.")
    kind, serial = column_type(body["typeName"])
    if "collClause" in body:
        _check_collation(names_of(body["collClause"]["collname"]), kind)
    column = Column(name, kind)
    if serial is not None:
        draft.serial[name] = serial
    rules = _with_attributes([node["Constraint"] for node in body.get("constraints", ())])
    for rule in rules:
        match rule["contype"]:
            case "CONSTR_NOTNULL" | "CONSTR_NULL":
                column = replace(column, nullable=rule["contype"] == "CONSTR_NULL")
            case "CONSTR_DEFAULT":
                if name in draft.defaults:
                    raise wrong(f"{name!r} has two defaults.", fix="Write DEFAULT once.")
                draft.defaults[name] = _default(rule["raw_expr"], column, translation)
            case "CONSTR_IDENTITY":
                only("Constraint", rule, "contype", "generated_when")
                if serial is not None or kind not in _SERIAL_NAMES:
                    raise wrong(f"an identity column of type {kind}.", fix="Use integer or bigint.")
                draft.serial[name] = _SERIAL_NAMES[kind]
            case _:
                draft.constraints.append((name, rule))
    _check_nulls(rules, name, numbered=name in draft.serial)
    if name in draft.serial:
        if name in draft.defaults:
            raise wrong(f"{name!r} has a default and is numbered by the database.")
        column = replace(column, nullable=False, serial=True)
    draft.columns.append(column)


def _check_collation(names: list[str], kind: Type) -> None:
    if not kind.is_text and not (kind.is_array and kind.element.is_text):
        raise wrong(f"COLLATE of the type {kind}.", fix="Leave it out.")
    if names[-1] not in {"C", "default"} or names[:-1] not in ([], ["pg_catalog"]):
        raise refuse(f"COLLATE {'.'.join(names)}.", why="A lane sorts by bytes.", fix='Use COLLATE "C".')


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


def _default(node: Node, column: Column, translation: Translation) -> str:
    scope = Scope(translation, volatile=True, subqueries=False, place="DEFAULT")
    return assigned(expression(node, scope), column)


# --- Constraints -----------------------------------------------------------------------------------------------------


def _constraint(column: str, body: Body, table: str, draft: _Draft, translation: Translation) -> Constraint | None:
    """Return a constraint of the table, or of one column written as one of the table."""
    kind = body["contype"]
    target, key = "", tuple[str, ...]()
    match kind:
        case "CONSTR_PRIMARY":
            only("Constraint", body, "keys", *_VALIDITY)
            names = _known([column] if column else names_of(body["keys"]), draft)
            draft.keys.append(names)
            if names[0] in draft.serial:
                # SQLite numbers a key only if PRIMARY KEY stands at the column itself.
                _ = _constraint_name(body, "PRIMARY KEY", (), table, draft, translation)
                return None
            word, text = "PRIMARY KEY", f"PRIMARY KEY ({quoted_list(names)})"
        case "CONSTR_UNIQUE":
            only("Constraint", body, "keys", *_VALIDITY)
            names = _known([column] if column else names_of(body["keys"]), draft)
            word, text = "UNIQUE", f"UNIQUE ({quoted_list(names)})"
        case "CONSTR_CHECK":
            only("Constraint", body, "raw_expr", *_VALIDITY)
            text = f"CHECK ({_check(body['raw_expr'], table, draft.columns, translation, 'CHECK')})"
            known = {each.name for each in draft.columns}
            word, names = "CHECK", tuple(dict.fromkeys(name for name in names_in(text) if name in known))
        case "CONSTR_FOREIGN":
            names = _known([column] if column else names_of(body["fk_attrs"]), draft)
            text, target, key = _foreign_key(names, body, table, draft, translation)
            word = "FOREIGN KEY"
        case _:
            raise refuse(f"the constraint {kind.removeprefix('CONSTR_').replace('_', ' ')}.", fix="Leave it out.")
    label = _constraint_name(body, word, names, table, draft, translation)
    return Constraint(label, word, names, text, target, key)


def _constraint_name(
    body: Body, kind: str, columns: Sequence[str], table: str, draft: _Draft, translation: Translation
) -> str:
    """Return the name in the statement, or the one that PostgreSQL chooses."""
    taken = {each.name for each in draft.ready}
    if kind in {"PRIMARY KEY", "UNIQUE"}:
        taken |= {*translation.schema.tables, *translation.schema.indexes, table}
        taken |= _index_names_of_constraints(translation, without=table)
    label: str | None = body.get("conname")
    if label is None:
        named = columns if kind in {"UNIQUE", "FOREIGN KEY"} or (kind == "CHECK" and len(columns) == 1) else ()
        return chosen(table, named, _KINDS[kind], taken)
    visible(label, "constraint")
    if label in taken:
        raise wrong(f"there is a constraint or a table {label!r} already.", fix="Choose another name.")
    return label


def _index_names_of_constraints(translation: Translation, without: str = "") -> set[str]:
    """Return the names of keys and unique constraints, which PostgreSQL gives to their indexes, too."""
    return {
        each.name
        for table in translation.schema.tables.values()
        if table.name != without
        for each in _constraints(table)
        if each.kind in {"PRIMARY KEY", "UNIQUE"}
    }


def _constraints(table: Table) -> list[Constraint]:
    """Return the constraints of a table, those without a name by the name that PostgreSQL would have chosen."""
    found: list[Constraint] = []
    columns = {column.name for column in table.columns}
    for each in definition_parts(table.definition)[1]:
        named = () if each.kind == "PRIMARY KEY" else tuple(name for name in each.columns if name in columns)
        if each.kind == "CHECK" and len(named) > 1:
            named = ()
        name = each.name or chosen(table.name, named, _KINDS[each.kind], {other.name for other in found})
        found.append(replace(each, name=name))
    return found


def _known(names: list[str], draft: _Draft) -> tuple[str, ...]:
    kinds = {column.name: column.type for column in draft.columns}
    for name in names:
        if name not in kinds:
            raise wrong(f"a constraint on {name!r}, which is not a column of the table.")
        comparable(kinds[name], "a key")
    if len(set(names)) != len(names) or not names:
        raise wrong("a constraint with a column twice, or with none.")
    return tuple(names)


def _check(
    node: Node, table: str, columns: list[Column] | tuple[Column, ...], translation: Translation, place: str
) -> str:
    scope = Scope(translation, subqueries=False, place=place)
    outputs = tuple(Output(column.name, column.type, nullable=column.nullable) for column in columns)
    scope.add(Relation(table, outputs, ""))
    with scope.at(place):
        text = predicate(node, scope, place).checked.text
    if "interlock_now(" in text:
        raise refuse(f"now() in {place}.", why="A row that was right would become wrong by waiting.")
    return text


def _foreign_key(
    names: tuple[str, ...], body: Body, table: str, draft: _Draft, translation: Translation
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
        known, uniques = Table(table, tuple(draft.columns), _own_key(draft)), draft.ready
        waiting = [
            (at, each) for at, each in draft.constraints if each["contype"] in {"CONSTR_UNIQUE", "CONSTR_PRIMARY"}
        ]
        keys = [tuple([at] if at else names_of(each["keys"])) for at, each in waiting]
        first = [key for key, (_, each) in zip(keys, waiting, strict=True) if each["contype"] == "CONSTR_PRIMARY"]
        known = replace(known, primary_key=known.primary_key or (first[0] if first else ()))
    else:
        known, keys = translation.table(parent), []
        uniques = _constraints(known)
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
        if column is None or own[name] != column.type:
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


def _own_key(draft: _Draft) -> tuple[str, ...]:
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
    if body.get("accessMethod", "btree") != "btree":
        raise refuse(f"an index of kind {body['accessMethod']}.", fix="Leave out USING: a lane has B-trees.")
    table = translation.table(table_name(body["relation"]))
    elements = [_index_element(node["IndexElem"], table, translation) for node in body["indexParams"]]
    exists = bool(body.get("if_not_exists"))
    if "idxname" in body:
        name = _index_name(body["idxname"])
        if name in _index_names_of_constraints(translation):
            if exists:
                return _NOTHING
            raise wrong(f"there is a constraint {name!r} already, whose index has that name.")
    else:
        name = _free_index_name(table.name, [title for title, _ in elements], translation)
    text = f"{'UNIQUE ' if body.get('unique') else ''}INDEX {'IF NOT EXISTS ' if exists else ''}"
    text = f"CREATE {text}{quoted_name(name)} ON {quoted_name(table.name)} ({', '.join(each for _, each in elements)})"
    if "whereClause" not in body:
        return text
    test = _check(body["whereClause"], table.name, table.columns, translation, "the condition of an index")
    return f"{text} WHERE {test}"


_PATTERN_CLASSES: Final = frozenset({"text_pattern_ops", "varchar_pattern_ops", "text_ops", "varchar_ops"})
_INDEXED_FUNCTIONS: Final = frozenset({"lower", "upper", "length", "char_length", "btrim", "md5"})
"""Functions of an index: their value depends on nothing but their arguments, on both engines."""


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
        _check_collation(names_of(body["collation"]), kind)
    # The order of NULLs inside an index never shows.
    return title, text + (" DESC" if body.get("ordering") == "SORTBY_DESC" else "")


def _indexed_expression(node: Node, table: Table, translation: Translation) -> tuple[str, str, Type]:
    names: list[str] = []
    for kind, body in walk(node):
        name = names_of(body["funcname"])[-1] if kind == "FuncCall" else ""
        names += [name] if name else []
        if kind not in {"FuncCall", "ColumnRef", "A_Const", "String", "CoalesceExpr"} or (
            name and name not in _INDEXED_FUNCTIONS
        ):
            raise refuse(
                "an index on such an expression.",
                why=f"It may have columns, constants, coalesce and {', '.join(sorted(_INDEXED_FUNCTIONS))}.",
                fix="Index columns.",
            )
    scope = Scope(translation, subqueries=False, place="an index")
    outputs = tuple(Output(column.name, column.type, nullable=column.nullable) for column in table.columns)
    scope.add(Relation(table.name, outputs, ""))
    with scope.at("an index"):
        term = expression(node, scope).checked
    if not (term.type.is_text or term.type.is_integer):
        raise refuse(f"an index on an expression of type {term.type}.", fix="Index columns.")
    title = {"FuncCall": names[0] if names else "", "CoalesceExpr": "coalesce"}.get(kind_of(node), "expr")
    return title, f"({term.text})", term.type


def _free_index_name(table: str, columns: list[str], translation: Translation) -> str:
    """Return the name that PostgreSQL gives: table_columns_idx, with a number if it is taken."""
    base = "_".join([table, *columns, "idx"])
    taken = {*translation.schema.tables, *translation.schema.indexes, *_index_names_of_constraints(translation)}
    name = next(name for name in (f"{base}{number or ''}" for number in range(len(taken) + 1)) if name not in taken)
    if len(set(columns)) != len(columns) or len(name.encode()) > IDENTIFIER_BYTES_MAX or name != name.lower():
        raise refuse("an index without a name on such columns.", fix="Name the index.")
    return name


# --- ALTER TABLE -----------------------------------------------------------------------------------------------------


def alter_table(body: Body, translation: Translation) -> str:
    """Translate ALTER TABLE: SQLite's own ADD COLUMN where its meaning agrees, else a new table with the rows."""
    only("AlterTableStmt", body, "relation", "cmds", "objtype", "missing_ok")
    if body.get("objtype") != "OBJECT_TABLE":
        raise refuse("ALTER of something else than a table.")
    name = table_name(body["relation"])
    if body.get("missing_ok") and name not in translation.schema.tables:
        return _NOTHING
    table = translation.table(name)
    commands = [node["AlterTableCmd"] for node in body["cmds"]]
    for command in commands:
        if command["subtype"] not in _COMMANDS:
            words = command["subtype"].removeprefix("AT_")
            raise refuse(f"ALTER TABLE with {words}.", fix="Create a new table and copy the rows.")
        only("AlterTableCmd", command, "subtype", "name", "def", "behavior", "missing_ok")
    if len(commands) == 1 and commands[0]["subtype"] == "AT_AddColumn":
        text = _added_column(commands[0], table, translation)
        if text is not None:
            return text
    # PostgreSQL's order of the commands, whatever the order of the statement.
    change = _Rebuild.of(table, translation)
    for command in sorted(commands, key=_pass_of):
        _COMMANDS[command["subtype"]][1](command, change)
    return change.write()


def _added_column(command: Body, table: Table, translation: Translation) -> str | None:
    """Return SQLite's ADD COLUMN; None if the table has to be made anew."""
    draft = _Draft()
    _read_column(command["def"]["ColumnDef"], draft, translation)
    [column] = draft.columns
    if _is_known_column(column.name, table, missing_ok=bool(command.get("missing_ok"))):
        return _NOTHING
    default = draft.defaults.pop(column.name, None)
    if draft.constraints or draft.serial or (default is not None and "(" in default.split("'")[0]):
        return None
    if not column.nullable and (default is None or default == "NULL"):
        return None
    added = _column_text(column, draft, in_key=False, constant=default)
    return f"ALTER TABLE {quoted_name(table.name)} ADD COLUMN {added}"


def _is_known_column(name: str, table: Table, *, missing_ok: bool) -> bool:
    same = [known.name for known in table.columns if known.name.lower() == name.lower()]
    if same and same[0] != name:
        raise refuse("two columns whose names differ in case alone.", fix="Choose another name.")
    if same and not missing_ok:
        raise wrong(f"the table {table.name!r} has a column {name!r} already.")
    return bool(same)


# --- New tables for old ones -----------------------------------------------------------------------------------------
# The new table gets the rows, the indexes and the old name. Other tables refer to the name, so their references hold.
# The engine turns foreign keys off meanwhile (`Statement.rebuilds`), because DROP TABLE would delete referring rows.


@dataclass(slots=True)
class _Rebuild:
    """A table while ALTER TABLE changes it."""

    table: Table
    translation: Translation
    draft: _Draft
    values: dict[str, str]
    """The value of each column that comes from the old table."""
    indexes: dict[str, str]
    same: bool = True
    """Whether no command has changed anything."""

    @classmethod
    def of(cls, table: Table, translation: Translation) -> "_Rebuild":
        """Return the table without a change."""
        texts = definition_parts(table.definition)[0]
        if set(texts) != {column.name for column in table.columns}:
            raise refuse(f"ALTER of {table.name!r}, whose definition cannot be read.", fix="Create a new table.")
        draft = _Draft(columns=list(table.columns), texts=texts, ready=_constraints(table))
        for column in table.columns:
            if column.serial:
                draft.serial[column.name] = _SERIAL_NAMES[column.type]
            elif column.default is not None:
                draft.defaults[column.name] = column.default
        if table.primary_key:
            draft.keys.append(table.primary_key)
        values = {column.name: quoted_name(column.name) for column in table.columns}
        return cls(table, translation, draft, values, dict(table.indexes))

    def column(self, name: str) -> Column:
        """Return the column of that name."""
        found = next((column for column in self.draft.columns if column.name == name), None)
        if found is None:
            raise wrong(f"the table {self.table.name!r} has no column {name!r}.")
        if name not in self.values:
            raise refuse(f"a change of {name!r} in the statement that adds it.", fix="Use two statements.")
        return found

    def change(self, column: Column) -> None:
        """Replace a column by its new definition."""
        if column.serial:
            raise refuse(f"ALTER of {column.name!r}, which the database numbers.", fix="Create a new table.")
        self.draft.columns = [column if each.name == column.name else each for each in self.draft.columns]
        self.draft.texts.pop(column.name, None)
        self.same = False

    def referring(self, columns: Iterable[str]) -> list[str]:
        """Return the other tables that refer to one of these columns."""
        wanted = set(columns)
        return sorted(
            other.name
            for other in self.translation.schema.tables.values()
            if other.name != self.table.name and self.table.name in other.references
            for each in _constraints(other)
            if each.table == self.table.name and wanted & set(each.key)
        )

    def users(self, column: str) -> list[str]:
        """Return the names of checks and of indexes with conditions or expressions that name the column."""
        checks = [each.name for each in self.draft.ready if each.kind == "CHECK" and column in each.columns]
        return checks + [name for name, text in self.indexes.items() if column in _names_in_expressions(text)]

    def write(self) -> str:
        """Return the statements that make the table anew."""
        _settle(self.table.name, self.draft, self.translation)
        if self.same:
            return _NOTHING
        if not 1 <= len(self.draft.columns) <= COLUMNS_MAX:
            raise refuse(f"a table of {len(self.draft.columns)} columns.", fix=f"Use 1 to {COLUMNS_MAX}.")
        name, new = self.table.name, f"rebuild of {self.table.name}"
        if any(known.lower() == new.lower() for known in self.translation.schema.tables):
            raise refuse(f"ALTER of {name!r} while there is a table {new!r}.", fix="Rename that one.")
        key = _own_key(self.draft)
        for column in self.draft.columns:
            if column.name in key and column.nullable:
                self.draft.texts.pop(column.name, None)
        old_name, new_name = quoted_name(name), quoted_name(new)
        texts = [_table_text(new, self.draft)]
        listed, values = quoted_list(self.values), ", ".join(self.values.values())
        texts.append(f"INSERT INTO {new_name} ({listed}) SELECT {values} FROM {old_name}")  # noqa: S608 -- quoted names
        if self.draft.serial:
            literals = [text_literal(each) for each in (name, new)]
            texts.append(f"DELETE FROM sqlite_sequence WHERE name = {literals[1]}")  # noqa: S608 -- a quoted text
            texts.append(
                f"INSERT INTO sqlite_sequence (name, seq) SELECT {literals[1]}, seq FROM sqlite_sequence "  # noqa: S608
                f"WHERE name = {literals[0]}"
            )
        texts += [f"DROP TABLE {old_name}", f"ALTER TABLE {new_name} RENAME TO {old_name}", *self.indexes.values()]
        self.translation.several, self.translation.rebuilds = True, name
        return "; ".join(texts)


def _names_in_expressions(index: str) -> set[str]:
    """Return the names in the expressions and the condition of an index, without its plain columns."""
    texts = [part for part in parts_of(index) if part.startswith("(")]
    return {name for text in [*texts, index.partition(") WHERE ")[2]] for name in names_in(text)}


def _add_column(command: Body, change: _Rebuild) -> None:
    name: str = command["def"]["ColumnDef"]["colname"]
    known = Table(change.table.name, tuple(change.draft.columns))
    if not _is_known_column(name, known, missing_ok=bool(command.get("missing_ok"))):
        _read_column(command["def"]["ColumnDef"], change.draft, change.translation)
        change.same = False


def _drop_column(command: Body, change: _Rebuild) -> None:
    """Drop a column, and as PostgreSQL every constraint and index of the table that names it."""
    name: str = command["name"]
    if command.get("missing_ok") and name not in change.values:
        return
    column = change.column(name)
    referring = change.referring([name])
    keys = [each.columns for each in change.draft.ready if each.kind == "UNIQUE" and name in each.columns]
    keys += [key for key in change.draft.keys if name in key]
    referring += [table for key in keys for table in change.referring(key)]
    if referring and command.get("behavior") == "DROP_CASCADE":
        raise refuse("DROP COLUMN … CASCADE of a column that others refer to.", fix="Drop their constraints first.")
    if referring:
        raise wrong(f"{name!r} is referred to by {', '.join(referring)}.", fix="Drop their constraints first.")
    draft = change.draft
    if any(each.table == change.table.name and set(each.key) & {name} for each in draft.ready):
        raise refuse(f"DROP of {name!r}, to which the table itself refers.", fix="Drop that constraint first.")
    draft.columns.remove(column)
    draft.texts.pop(name, None)
    draft.defaults.pop(name, None)
    draft.serial.pop(name, None)
    draft.ready = [each for each in draft.ready if name not in each.columns]
    draft.keys = [key for key in draft.keys if name not in key]
    change.indexes = {title: text for title, text in change.indexes.items() if name not in names_in(text)[2:]}
    del change.values[name]
    change.same = False


def _set_default(command: Body, change: _Rebuild) -> None:
    column = change.column(command["name"])
    if "def" not in command:
        change.draft.defaults.pop(column.name, None)
        change.change(replace(column, default=None, has_default=False))
        return
    change.draft.defaults[column.name] = _default(command["def"], column, change.translation)
    change.change(replace(column, has_default=True))


def _set_not_null(command: Body, change: _Rebuild) -> None:
    column = change.column(command["name"])
    if column.nullable:
        change.change(replace(column, nullable=False))


def _drop_not_null(command: Body, change: _Rebuild) -> None:
    column = change.column(command["name"])
    if column.name in _own_key(change.draft):
        raise wrong(f"{column.name!r} is in the primary key.")
    if not column.nullable:
        _check_no_condition(column.name, change)
        change.change(replace(column, nullable=True))


def _check_no_condition(column: str, change: _Rebuild) -> None:
    """Refuse a change under conditions that were translated for the column as it was."""
    users = change.users(column)
    if users:
        raise refuse(
            f"a change of {column!r}, which {', '.join(users)} has in its condition.",
            fix="Drop that, change the column, and create it again.",
        )


def _set_type(command: Body, change: _Rebuild) -> None:
    column = change.column(command["name"])
    body = command["def"]["ColumnDef"]
    only("ColumnDef", body, "typeName", "raw_default", "collClause")
    kind, serial = column_type(body["typeName"])
    if serial is not None:
        raise wrong(f"the type {serial} of a column that exists.")
    if "collClause" in body:
        _check_collation(names_of(body["collClause"]["collname"]), kind)
    same_values = column.type.name == kind.name or (column.type.is_text and kind.is_text)
    if not same_values:
        _check_no_condition(column.name, change)
        if column.has_default and not (column.type.is_integer and kind.is_integer):
            raise refuse(f"TYPE of {column.name!r}, which has a default.", fix="Drop the default first.")
        if any(column.name in key for key in [_own_key(change.draft), *_keys(change.draft)]):
            comparable(kind, "a key")
        for text in change.indexes.values():
            if column.name in names_in(text)[2:]:
                comparable(kind, "an index")
    foreign = [each for each in change.draft.ready if each.kind == "FOREIGN KEY"]
    own = any(
        column.name in {*each.columns, *(each.key if each.table == change.table.name else ())} for each in foreign
    )
    if column.type != kind and (own or change.referring([column.name])):
        raise refuse(f"TYPE of {column.name!r}, which is part of a reference.", fix="Drop the reference first.")
    scope = Scope(change.translation, subqueries=False, place="USING")
    outputs = tuple(Output(each.name, each.type, nullable=each.nullable) for each in change.table.columns)
    scope.add(Relation(change.table.name, outputs, ""))
    node = body.get("raw_default") or {"ColumnRef": {"fields": [{"String": {"sval": column.name}}]}}
    changed = replace(column, type=kind)
    with scope.at("USING"):
        change.values[column.name] = assigned(expression(node, scope), changed)
    change.change(changed)


def _keys(draft: _Draft) -> list[tuple[str, ...]]:
    return [each.columns for each in draft.ready if each.kind == "UNIQUE"]


def _add_constraint(command: Body, change: _Rebuild) -> None:
    body = command["def"]["Constraint"]
    if body.get("skip_validation"):
        raise refuse("a constraint that is NOT VALID.", fix="Leave it out: the rows are checked immediately.")
    if body["contype"] == "CONSTR_NOTNULL":
        raise refuse("ADD CONSTRAINT … NOT NULL.", fix="Use ALTER COLUMN … SET NOT NULL.")
    if "indexname" in body:
        raise refuse("a constraint that uses an index.", fix="Drop the index and name the columns.")
    change.draft.constraints.append(("", body))
    change.same = False


def _drop_constraint(command: Body, change: _Rebuild) -> None:
    name: str = command["name"]
    found = next((each for each in change.draft.ready if each.name == name), None)
    if found is None:
        if change.draft.serial and name.endswith("_pkey"):
            raise refuse("DROP of the key of a column that the database numbers.", fix="Create a new table.")
        if name.endswith("_not_null"):
            raise refuse("DROP CONSTRAINT of a NOT NULL.", fix="Use ALTER COLUMN … DROP NOT NULL.")
        if command.get("missing_ok"):
            return
        raise wrong(f"the table {change.table.name!r} has no constraint {name!r}.")
    if found.kind in {"PRIMARY KEY", "UNIQUE"}:
        inside = any(
            each.table == change.table.name and sorted(each.key) == sorted(found.columns) for each in change.draft.ready
        )
        referring = [] if not inside else [change.table.name]
        for other in change.translation.schema.tables.values():
            pointing = [each for each in _constraints(other) if each.table == change.table.name]
            if other.name != change.table.name and any(sorted(each.key) == sorted(found.columns) for each in pointing):
                referring.append(other.name)
        if referring and command.get("behavior") == "DROP_CASCADE":
            raise refuse("DROP CONSTRAINT … CASCADE of a key that others refer to.", fix="Drop their references first.")
        if referring:
            raise wrong(f"{name!r} is needed by {', '.join(referring)}.", fix="Drop their references first.")
    if found.kind == "PRIMARY KEY":
        change.draft.keys = []
    change.draft.ready.remove(found)
    change.same = False


_COMMANDS: Final[dict[str, tuple[int, Callable[[Body, _Rebuild], None]]]] = {
    "AT_DropColumn": (0, _drop_column),
    "AT_DropConstraint": (0, _drop_constraint),
    "AT_DropNotNull": (0, _drop_not_null),
    "AT_AlterColumnType": (1, _set_type),
    "AT_AddColumn": (2, _add_column),
    "AT_SetNotNull": (3, _set_not_null),
    "AT_AddConstraint": (4, _add_constraint),
    "AT_ColumnDefault": (5, _set_default),
}
"""The commands, each with its place in PostgreSQL's order."""


def _pass_of(command: Body) -> int:
    if command["subtype"] == "AT_ColumnDefault" and "def" not in command:
        return 0
    return _COMMANDS[command["subtype"]][0]


# --- RENAME ----------------------------------------------------------------------------------------------------------


def rename(body: Body, translation: Translation) -> str:
    """Translate ALTER … RENAME: SQLite rewrites every CHECK, index and reference that has the name."""
    only("RenameStmt", body, "renameType", "relationType", "relation", "subname", "newname", "behavior", "missing_ok")
    kind = body["renameType"]
    if kind not in {"OBJECT_COLUMN", "OBJECT_TABLE", "OBJECT_INDEX", "OBJECT_TABCONSTRAINT"}:
        raise refuse(f"a new name for a {kind.removeprefix('OBJECT_').lower()}.", fix="Create it anew.")
    name = table_name(body["relation"])
    if kind == "OBJECT_INDEX":
        return _renamed_index(name, body["newname"], translation, missing_ok=bool(body.get("missing_ok")))
    if body.get("missing_ok") and name not in translation.schema.tables:
        return _NOTHING
    table = translation.table(name)
    if kind == "OBJECT_TABCONSTRAINT":
        return _renamed_constraint(table, body["subname"], body["newname"], translation)
    text = f"ALTER TABLE {quoted_name(table.name)} RENAME"
    if kind == "OBJECT_TABLE":
        return f"{text} TO {quoted_name(_free_table_name(body['newname'], translation))}"
    old, new = _renamed_column(body["subname"], body["newname"], table)
    return f"{text} COLUMN {quoted_name(old)} TO {quoted_name(new)}"


def _renamed_index(old: str, new: str, translation: Translation, *, missing_ok: bool) -> str:
    visible(old, "index")
    for table in translation.schema.tables.values():
        if any(each.name == old and each.kind in {"PRIMARY KEY", "UNIQUE"} for each in _constraints(table)):
            return _renamed_constraint(table, old, new, translation)
        text = dict(table.indexes).get(old)
        if text is None:
            continue
        taken = {*translation.schema.tables, *translation.schema.indexes, *_index_names_of_constraints(translation)}
        if _index_name(new) in taken:
            raise wrong(f"there is a table, an index or a constraint {new!r} already.")
        translation.several = True
        begin = text.index("INDEX ") + len("INDEX ")
        rest = text[text.index(" ON ", begin + len(quoted_name(old))) :]
        return f"DROP INDEX {quoted_name(old)}; {text[:begin]}{quoted_name(new)}{rest}"
    if missing_ok:
        return _NOTHING
    raise wrong(f"there is no index {old!r}.")


def _renamed_constraint(table: Table, old: str, new: str, translation: Translation) -> str:
    change = _Rebuild.of(table, translation)
    found = next((each for each in change.draft.ready if each.name == old), None)
    if found is None:
        raise wrong(f"the table {table.name!r} has no constraint {old!r}.")
    others = replace(change.draft, ready=[each for each in change.draft.ready if each is not found])
    if new == old:
        raise wrong(f"there is a constraint {new!r} already.")
    name = _constraint_name({"conname": new}, found.kind, found.columns, table.name, others, translation)
    change.draft.ready = [replace(each, name=name) if each is found else each for each in change.draft.ready]
    change.same = False
    return change.write()


def _free_table_name(name: str, translation: Translation) -> str:
    visible(name, "table")
    same = [known for known in translation.schema.tables if known.lower() == name.lower()]
    if name in same:
        raise wrong(f"there is a table {name!r} already.")
    if same:
        raise refuse(f"the table {name!r}: another one differs from it in case alone.", fix="Choose another name.")
    return name


def _renamed_column(old: str, new: str, table: Table) -> tuple[str, str]:
    if table.column(old) is None:
        raise wrong(f"the table {table.name!r} has no column {old!r}.")
    if new.lower() in SYSTEM_COLUMNS:
        raise refuse(f"a column named {new!r}.", why="The engines use that name themselves.", fix="Choose another.")
    same = [column.name for column in table.columns if column.name.lower() == new.lower()]
    if new in same:
        raise wrong(f"the table {table.name!r} has a column {new!r} already.")
    if same:
        raise refuse("two columns whose names differ in case alone.", fix="Choose another name.")
    return old, new


# --- DROP and TRUNCATE -----------------------------------------------------------------------------------------------


def drop(body: Body, translation: Translation) -> str:
    """Translate DROP TABLE or DROP INDEX."""
    only("DropStmt", body, "objects", "removeType", "behavior", "missing_ok", "concurrent")
    kind = body["removeType"].removeprefix("OBJECT_")
    if kind not in {"TABLE", "INDEX"}:
        raise refuse(f"DROP {kind.replace('_', ' ')}.", fix="A lane has tables and indexes.")
    names: list[str] = []
    for node in body["objects"]:
        *schema, name = names_of(node["List"]["items"])
        if schema not in ([], ["public"]):
            raise refuse(f"the {kind.lower()} {'.'.join([*schema, name])} of another schema.", fix="Name it alone.")
        visible(name, kind.lower())
        if name not in names:
            names.append(name)
    exists = bool(body.get("missing_ok"))
    if kind == "INDEX":
        for name in names:
            if _index_name(name) in _index_names_of_constraints(translation):
                raise wrong(f"the index {name!r} belongs to a constraint.", fix="Drop the constraint.")
        return _several(
            [f"DROP INDEX {'IF EXISTS ' if exists else ''}{quoted_name(name)}" for name in names], translation
        )
    return _drop_tables(names, translation, exists=exists, cascade=body.get("behavior") == "DROP_CASCADE")


def _drop_tables(names: list[str], translation: Translation, *, exists: bool, cascade: bool) -> str:
    tables = translation.schema.tables
    texts: list[str] = []
    for name in names:
        if any(known.lower() == name.lower() and known != name for known in tables):
            raise wrong(f"there is no table {name!r}.", fix="Mind the case of the name.")
        if not exists:
            translation.table(name)
    referring = sorted(
        table.name for table in tables.values() if table.name not in names and set(names) & table.references
    )
    if referring and not cascade:
        raise wrong(f"{', '.join(names)}: referred to by {', '.join(referring)}.", fix="Drop those first, or CASCADE.")
    for name in referring:
        # CASCADE drops the references alone; the tables stay.
        change = _Rebuild.of(tables[name], translation)
        change.draft.ready = [each for each in change.draft.ready if each.table not in names]
        change.same = False
        texts.append(change.write())
    ordered = _referring_first([name for name in names if name in tables], translation)
    texts += [f"DROP TABLE {quoted_name(name)}" for name in ordered]
    return _several(texts, translation)


def _several(texts: list[str], translation: Translation) -> str:
    translation.several = translation.several or len(texts) > 1
    return "; ".join(texts) if texts else _NOTHING


def _referring_first(names: list[str], translation: Translation) -> list[str]:
    """Return the tables in an order in which no table comes before one that refers to it."""
    rest, ordered = list(dict.fromkeys(names)), list[str]()
    tables = translation.schema.tables
    while rest:
        free = [name for name in rest if not any(name in tables[other].references for other in rest if other != name)]
        if not free:
            raise refuse(f"{', '.join(rest)} refer to each other.", fix="Drop a constraint first.")
        ordered += free
        rest = [name for name in rest if name not in free]
    return ordered


def truncate(body: Body, translation: Translation) -> str:
    """Translate TRUNCATE, a DELETE of all rows; like PostgreSQL it tells no number of rows."""
    only("TruncateStmt", body, "relations", "restart_seqs", "behavior")
    tables = [translation.table(table_name(node["RangeVar"])) for node in body["relations"]]
    names = list(dict.fromkeys(table.name for table in tables))
    known = translation.schema.tables
    while True:
        referring = sorted(
            table.name for table in known.values() if table.name not in names and set(names) & table.references
        )
        if not referring:
            break
        if body.get("behavior") != "DROP_CASCADE":
            raise wrong(f"{', '.join(names)}: referred to by {', '.join(referring)}.", fix="Name those, too.")
        names += referring
    for name in names:
        if name in known[name].references:
            raise refuse(f"TRUNCATE of {name!r}, which refers to itself.", fix="Use DELETE.")
    texts = [f"DELETE FROM {quoted_name(name)}" for name in _referring_first(names, translation)]  # noqa: S608
    if body.get("restart_seqs"):
        numbered = [name for name in names if any(column.serial for column in known[name].columns)]
        texts += [f"DELETE FROM sqlite_sequence WHERE name = {text_literal(name)}" for name in numbered]  # noqa: S608
    return _several(texts, translation)
