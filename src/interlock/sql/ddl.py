"""Definitions: CREATE TABLE and INDEX, ALTER TABLE, DROP, TRUNCATE.

The invariant is that a column accepts exactly the values of its PostgreSQL type, for every writer: each column has a
CHECK named `interlock_type_<column>` beside the declared constraints. A table with a primary key is WITHOUT ROWID,
which makes its key NOT NULL and one look-up; only keys numbered by the database use SQLite's row numbers. Constraints
that depend on other tables are checked here, because SQLite does not look at the other table until rows arrive.
"""

from dataclasses import dataclass, field, replace
from typing import Final, cast

from sqlglot import exp

from interlock.sql.casts import column_type
from interlock.sql.dml import assigned
from interlock.sql.expressions import expression, predicate
from interlock.sql.grammar import SYSTEM_COLUMNS
from interlock.sql.operators import comparable
from interlock.sql.parse import (
    IDENTIFIER_BYTES_MAX,
    Node,
    argument,
    child,
    children,
    column_name,
    flag,
    identifier,
    maybe,
    only,
    quoted_list,
    quoted_name,
    unsupported,
)
from interlock.sql.schema import Column, Table
from interlock.sql.scope import Output, Relation, Scope, Translation, visible
from interlock.sql.types import INT2, INT4, INT8, declared, enforcement, refuse, wrong

TYPE_CHECK_PREFIX: Final = "interlock_type_"
COLUMNS_MAX: Final = 500
_SERIAL_NAMES: Final = {INT2: "smallserial", INT4: "serial", INT8: "bigserial"}
_ACTIONS: Final = frozenset({"NO ACTION", "RESTRICT", "CASCADE", "SET NULL"})


@dataclass(slots=True)
class _Draft:
    """A column or table while its definition is read."""

    columns: list[Column] = field(default_factory=list[Column])
    defaults: dict[str, str] = field(default_factory=dict[str, str])
    serial: dict[str, str] = field(default_factory=dict[str, str])
    keys: list[tuple[str, ...]] = field(default_factory=list[tuple[str, ...]])
    constraints: list[tuple[str, Node, str | None]] = field(default_factory=list[tuple[str, Node, str | None]])


def create(node: Node, translation: Translation) -> str:
    """CREATE TABLE or CREATE INDEX."""
    only(node, "this", "kind", "exists", "unique")
    match str(argument(node, "kind")).upper():
        case "TABLE" if type(child(node)) is exp.Schema and not flag(node, "unique"):
            return _create_table(node, translation)
        case "INDEX" if type(child(node)) is exp.Index:
            return _create_index(node, translation)
        case kind:
            raise refuse(f"CREATE {kind}.", fix="A lane has tables and indexes.")


def _create_table(node: Node, translation: Translation) -> str:
    schema = child(node)
    only(schema, "this", "expressions")
    name = _new_name(child(schema), "table")
    draft = _Draft()
    for item in children(schema):
        if type(item) is exp.ColumnDef:
            _read_column(item, draft, translation)
        else:
            draft.constraints.append(("", item, None))
    if any(known.lower() == name.lower() and known != name for known in translation.schema.tables):
        raise refuse(f"the table {name!r}: another one differs from it in case alone.", fix="Choose another name.")
    if not 1 <= len(draft.columns) <= COLUMNS_MAX:
        raise refuse(f"a table of {len(draft.columns)} columns.", fix=f"Use 1 to {COLUMNS_MAX}.")
    folded = [column.name.lower() for column in draft.columns]
    if len(set(folded)) != len(folded):
        raise refuse("two columns whose names differ in case alone, or not at all.", fix="Rename one.")
    constraints = [
        _constraint(column, item, label, name, draft, translation) for column, item, label in draft.constraints
    ]
    if len(draft.keys) > 1:
        raise wrong("more than one PRIMARY KEY.")
    key = draft.keys[0] if draft.keys else ()
    for column in draft.serial:
        if key != (column,):
            raise refuse(f"{column!r} is numbered by the database without being the PRIMARY KEY.", fix="Make it so.")
    columns = [_column_text(column, draft, in_key=column.name in key) for column in draft.columns]
    parts = ", ".join([*columns, *(constraint for constraint in constraints if constraint)])
    exists = "IF NOT EXISTS " if flag(node, "exists") else ""
    ending = " WITHOUT ROWID" if key and not draft.serial else ""
    return f"CREATE TABLE {exists}{quoted_name(name)} ({parts}){ending}"


def _new_name(node: Node, what: str) -> str:
    if type(node) is exp.Table:
        only(node, "this")
        node = child(node)
    name = identifier(node, what)
    visible(name, what)
    if what == "index" and name != name.lower():
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
    if column.type.name == "numeric":
        text += " COLLATE interlock_numeric"
    nullable = column.nullable and not in_key
    if not nullable:
        text += " NOT NULL"
    if column.name in draft.defaults:
        text += f" DEFAULT ({draft.defaults[column.name]})"
    elif constant is not None:
        text += f" DEFAULT {constant}"
    return f"{text} {check.format(enforcement(column.type, name, nullable=nullable))}"


# --- Columns ---------------------------------------------------------------------------------------------------------


def _read_column(node: Node, draft: _Draft, translation: Translation) -> None:
    only(node, "this", "kind", "constraints")
    name = identifier(child(node), "column")
    if name.lower() in SYSTEM_COLUMNS:
        raise refuse(f"a column named {name!r}.", why="The engines use that name themselves.", fix="Rename it.")
    kind, serial = column_type(child(node, "kind"))
    column = Column(name, kind)
    if serial is not None:
        draft.serial[name] = serial
    for constraint in children(node, "constraints"):
        only(constraint, "this", "kind")
        label = maybe(constraint, "this")
        rule = child(constraint, "kind")
        match type(rule):
            case exp.NotNullColumnConstraint:
                only(rule, "allow_null")
                column = replace(column, nullable=flag(rule, "allow_null"))
            case exp.DefaultColumnConstraint:
                only(rule, "this")
                if name in draft.defaults:
                    raise wrong(f"{name!r} has two defaults.", fix="Write DEFAULT once.")
                draft.defaults[name] = _default(child(rule), column, translation)
            case exp.GeneratedAsIdentityColumnConstraint:
                only(rule, "this")
                if serial is not None or kind not in _SERIAL_NAMES:
                    raise wrong(f"an identity column of type {kind}.", fix="Use integer or bigint.")
                draft.serial[name] = _SERIAL_NAMES[kind]
            case _:
                draft.constraints.append((name, rule, None if label is None else identifier(label, "constraint")))
    _check_nulls(node, name, numbered=name in draft.serial)
    if name in draft.serial:
        if name in draft.defaults:
            raise wrong(f"{name!r} has a default and is numbered by the database.")
        column = replace(column, nullable=False, serial=True)
    draft.columns.append(column)


def _check_nulls(node: Node, name: str, *, numbered: bool) -> None:
    rules = [child(constraint, "kind") for constraint in children(node, "constraints")]
    said = {flag(rule, "allow_null") for rule in rules if type(rule) is exp.NotNullColumnConstraint}
    keyed = numbered or any(type(rule) is exp.PrimaryKeyColumnConstraint for rule in rules)
    if len(said) > 1 or (keyed and True in said):
        raise wrong(f"{name!r} is declared both NULL and NOT NULL.")


def _default(node: Node, column: Column, translation: Translation) -> str:
    scope = Scope(translation, volatile=True, subqueries=False, place="DEFAULT")
    return assigned(expression(node, scope), column)


# --- Constraints -----------------------------------------------------------------------------------------------------


def _constraint(column: str, node: Node, label: str | None, table: str, draft: _Draft, translation: Translation) -> str:
    """A constraint of the table, or of one column written as one of the table."""
    if type(node) is exp.Constraint:
        only(node, "this", "expressions")
        [inner] = children(node)
        return _constraint(column, inner, identifier(child(node), "constraint"), table, draft, translation)
    text = _constraint_body(column, node, table, draft, translation)
    if label is not None:
        visible(label, "constraint")
    elif type(node) is exp.CheckColumnConstraint:
        # Without a name of its own SQLite would give the first one that of the last column's type.
        label = f"{table}_{column}_check" if column else f"{table}_check"
    return f"CONSTRAINT {quoted_name(label)} {text}" if text and label is not None else text


def _constraint_body(column: str, node: Node, table: str, draft: _Draft, translation: Translation) -> str:
    match type(node):
        case exp.PrimaryKeyColumnConstraint | exp.PrimaryKey:
            only(node, "expressions", "include")
            _plain_parameters(node)
            names = _known([column] if column else [column_name(part) for part in children(node)], draft)
            draft.keys.append(names)
            # SQLite numbers a key only if PRIMARY KEY stands at the column itself.
            return "" if names[0] in draft.serial else f"PRIMARY KEY ({quoted_list(names)})"
        case exp.UniqueColumnConstraint:
            only(node, "this", "include")
            _plain_parameters(node)
            listed = maybe(node, "this")
            parts = [column] if listed is None else [column_name(part) for part in children(listed)]
            return f"UNIQUE ({quoted_list(_known(parts, draft))})"
        case exp.CheckColumnConstraint:
            only(node, "this")
            return f"CHECK ({_check(child(node), table, draft.columns, translation, 'CHECK')})"
        case exp.Reference:
            return _foreign_key((column,), node, table, draft, translation)
        case exp.ForeignKey:
            only(node, "expressions", "reference")
            names = _known([column_name(part) for part in children(node)], draft)
            return _foreign_key(names, child(node, "reference"), table, draft, translation)
        case _:
            raise unsupported(node)


def _plain_parameters(node: Node) -> None:
    include = maybe(node, "include")
    if include is not None:
        only(include)


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


def _foreign_key(names: tuple[str, ...], node: Node, table: str, draft: _Draft, translation: Translation) -> str:
    only(node, "this", "options")
    target = child(node)
    columns: list[str] = []
    if type(target) is exp.Schema:
        only(target, "this", "expressions")
        columns = [column_name(part) for part in children(target)]
        target = child(target)
    only(target, "this")
    parent = identifier(child(target), "table")
    known = translation.table(parent) if parent != table else Table(table, tuple(draft.columns), _own_key(draft))
    if tuple(columns or known.primary_key) != known.primary_key or len(names) != len(known.primary_key):
        raise refuse(f"a reference to something else than the primary key of {parent!r}.", fix="Refer to its key.")
    own = {column.name: column.type for column in draft.columns}
    for name, key in zip(names, known.primary_key, strict=True):
        column = known.column(key)
        if column is None or own[name] != column.type:
            raise refuse(f"{name!r} and {parent}.{key} have different types.", fix="Give both the same type.")
    text = f"FOREIGN KEY ({quoted_list(names)}) REFERENCES {quoted_name(parent)} ({quoted_list(known.primary_key)})"
    return text + "".join(_reaction(option) for option in _options(node))


def _own_key(draft: _Draft) -> tuple[str, ...]:
    return draft.keys[0] if draft.keys else ()


def _options(node: Node) -> list[str]:
    return [str(option) for option in cast("list[object]", argument(node, "options") or [])]


def _reaction(option: str) -> str:
    words = option.upper().split(maxsplit=2)
    if len(words) == 3 and words[0] == "ON" and words[1] in {"DELETE", "UPDATE"} and words[2] in _ACTIONS:  # noqa: PLR2004 - ON, event, action
        return f" ON {words[1]} {words[2]}"
    raise refuse(f"{option} of a reference.", fix="Use ON DELETE or ON UPDATE with CASCADE, SET NULL or RESTRICT.")


# --- Indexes, changes of tables, DROP --------------------------------------------------------------------------------


def _create_index(node: Node, translation: Translation) -> str:
    index = child(node)
    only(index, "this", "table", "params")
    written = maybe(index, "this")
    target = child(index, "table")
    only(target, "this")
    table = translation.table(identifier(child(target), "table"))
    parameters = child(index, "params")
    only(parameters, "columns", "where")
    listed: list[str] = []
    names: list[str] = []
    for item in children(parameters, "columns"):
        only(item, "this", "desc", "nulls_first")
        if type(child(item)) is not exp.Column:
            raise refuse("an index on an expression.", fix="Index columns.")
        column = table.column(column_name(child(item)))
        if column is None:
            raise wrong(f"an index on a column that {table.name!r} does not have.")
        comparable(column.type, "an index")
        # The order of NULLs inside an index never shows.
        names.append(column.name)
        listed.append(quoted_name(column.name) + (" DESC" if flag(item, "desc") else ""))
    if written is None and flag(node, "exists"):
        raise wrong("IF NOT EXISTS without the name of the index.", fix="Name the index.")
    name = _free_index_name(table.name, names, translation) if written is None else _new_name(written, "index")
    text = f"{'UNIQUE ' if flag(node, 'unique') else ''}INDEX {'IF NOT EXISTS ' if flag(node, 'exists') else ''}"
    text = f"CREATE {text}{quoted_name(name)} ON {quoted_name(table.name)} ({', '.join(listed)})"
    where = maybe(parameters, "where")
    if where is None:
        return text
    only(where, "this")
    return f"{text} WHERE {_check(child(where), table.name, table.columns, translation, 'the condition of an index')}"


def _free_index_name(table: str, columns: list[str], translation: Translation) -> str:
    """The name that PostgreSQL gives: table_columns_idx, with a number if it is taken."""
    base = "_".join([table, *columns, "idx"])
    taken = {*translation.schema.tables, *translation.schema.indexes}
    name = next(name for name in (f"{base}{number or ''}" for number in range(len(taken) + 1)) if name not in taken)
    if len(set(columns)) != len(columns) or len(name.encode()) > IDENTIFIER_BYTES_MAX or name != name.lower():
        raise refuse("an index without a name on such columns.", fix="Name the index.")
    return name


def alter(node: Node, translation: Translation) -> str:
    """ALTER TABLE … ADD COLUMN, where SQLite's meaning agrees: a constant default, and no further constraint."""
    only(node, "this", "kind", "actions")
    target = child(node)
    only(target, "this")
    table = translation.table(identifier(child(target), "table"))
    actions = children(node, "actions")
    if str(argument(node, "kind")).upper() != "TABLE" or len(actions) != 1 or type(actions[0]) is not exp.ColumnDef:
        raise refuse("ALTER TABLE other than ADD COLUMN.", fix="Create a new table and copy the rows.")
    draft = _Draft()
    _read_column(actions[0], draft, translation)
    [column] = draft.columns
    if draft.constraints or draft.serial:
        raise refuse("a new column with a key, a reference or a CHECK.", fix="Create a new table and copy the rows.")
    if any(column.name.lower() == known.name.lower() for known in table.columns):
        raise wrong(f"the table {table.name!r} has a column {column.name!r} already.")
    default = draft.defaults.pop(column.name, None)
    if default is not None and "(" in default.split("'")[0]:
        raise refuse("a new column whose default is not a constant.", fix="Add it without, then UPDATE the rows.")
    if not column.nullable and (default is None or default == "NULL"):
        raise refuse("a new NOT NULL column without a default.", fix="Give it a default.")
    added = _column_text(column, draft, in_key=False, constant=default)
    return f"ALTER TABLE {quoted_name(table.name)} ADD COLUMN {added}"


def drop(node: Node, translation: Translation) -> str:
    """DROP TABLE or DROP INDEX."""
    only(node, "this", "tables", "kind", "exists", "restrict")
    kind = str(argument(node, "kind")).upper()
    targets = children(node, "tables") or [child(node)]
    if kind not in {"TABLE", "INDEX"} or len(targets) != 1:
        raise refuse(f"DROP {kind} of {len(targets)} things.", fix="Drop one table or index per statement.")
    name = _new_name(targets[0], kind.lower())
    exists = flag(node, "exists")
    if kind == "TABLE":
        if any(known.lower() == name.lower() and known != name for known in translation.schema.tables):
            raise wrong(f"there is no table {name!r}.", fix="Mind the case of the name.")
        referring = sorted(
            table.name
            for table in translation.schema.tables.values()
            if name in table.references and table.name != name
        )
        if referring:
            raise wrong(f"{name!r} is referred to by {', '.join(referring)}.", fix="Drop those first.")
        if not exists:
            translation.table(name)
    return f"DROP {kind} {'IF EXISTS ' if exists else ''}{quoted_name(name)}"


# --- Renames and TRUNCATE --------------------------------------------------------------------------------------------
# Renaming is SQLite's own work: it rewrites every CHECK, index and reference that has the name. TRUNCATE is a DELETE
# of all rows, refused wherever PostgreSQL refuses it.


def alter_table(node: Node, translation: Translation) -> str:
    """ALTER TABLE … ADD COLUMN, RENAME COLUMN or RENAME TO."""
    actions = children(node, "actions")
    if len(actions) != 1 or type(actions[0]) not in {exp.RenameColumn, exp.AlterRename}:
        return alter(node, translation)
    only(node, "this", "kind", "actions")
    if str(argument(node, "kind")).upper() != "TABLE":
        raise refuse("ALTER of something else than a table.")
    target = child(node)
    only(target, "this")
    table = translation.table(identifier(child(target), "table"))
    text = f"ALTER TABLE {quoted_name(table.name)} RENAME"
    if type(actions[0]) is exp.AlterRename:
        return f"{text} TO {quoted_name(_new_table(actions[0], translation))}"
    old, new = _renamed_column(actions[0], table)
    return f"{text} COLUMN {quoted_name(old)} TO {quoted_name(new)}"


def _new_table(action: Node, translation: Translation) -> str:
    only(action, "this")
    target = child(action)
    only(target, "this")
    name = identifier(child(target), "table")
    visible(name, "table")
    same = [known for known in translation.schema.tables if known.lower() == name.lower()]
    if name in same:
        raise wrong(f"there is a table {name!r} already.")
    if same:
        raise refuse(f"the table {name!r}: another one differs from it in case alone.", fix="Choose another name.")
    return name


def _renamed_column(action: Node, table: Table) -> tuple[str, str]:
    only(action, "this", "to")
    old, new = column_name(child(action)), column_name(child(action, "to"))
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


def truncate(node: Node, translation: Translation) -> str:
    """TRUNCATE of one table; like PostgreSQL it tells no number of rows."""
    only(node, "expressions", "identity", "option")
    if str(argument(node, "identity") or "CONTINUE").upper() != "CONTINUE":
        raise refuse("TRUNCATE … RESTART IDENTITY.", fix="Drop the table and create it again.")
    if str(argument(node, "option") or "RESTRICT").upper() != "RESTRICT":
        raise refuse("TRUNCATE … CASCADE.", fix="Empty the tables one by one.")
    targets = children(node)
    if len(targets) != 1:
        raise refuse("TRUNCATE of several tables.", fix="Write one statement per table.")
    [target] = targets
    only(target, "this")
    table = translation.table(identifier(child(target), "table"))
    if table.name in table.references:
        raise refuse(f"TRUNCATE of {table.name!r}, which refers to itself.", fix="Use DELETE.")
    referring = sorted(known.name for known in translation.schema.tables.values() if table.name in known.references)
    if referring:
        raise wrong(f"{table.name!r} is referred to by {', '.join(referring)}.", fix="Use DELETE.")
    return f"DELETE FROM {quoted_name(table.name)}"  # noqa: S608 - a quoted name
