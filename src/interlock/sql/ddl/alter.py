"""ALTER TABLE and RENAME.

What SQLite's ALTER TABLE cannot do makes the table anew: create, copy, drop, rename, in one transaction.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Final

from interlock.sql.calls import comparable
from interlock.sql.casts import column_type
from interlock.sql.ddl.sequences import forget, identity, restart
from interlock.sql.ddl.tables import (
    COLUMNS_MAX,
    NOTHING,
    TableDraft,
    check_collation,
    column_text,
    constraint_name,
    constraints_of,
    default_value,
    index_name,
    own_key,
    read_column,
    relation_names,
    settle,
    table_text,
)
from interlock.sql.ddl.views import check_views_of, refuse_views_of
from interlock.sql.dml import assigned
from interlock.sql.expressions import expression
from interlock.sql.from_clause import table_name
from interlock.sql.literals import text_literal
from interlock.sql.parse import Body, names_of, only, quoted_list, quoted_name
from interlock.sql.schema import Column, Table, definition_parts, names_in, parts_of
from interlock.sql.scope import SYSTEM_COLUMNS, Output, Relation, Scope, Translation, visible
from interlock.sql.types import INTEGER_RANGE, refuse, wrong

# --- ALTER TABLE -----------------------------------------------------------------------------------------------------


def alter_table(body: Body, translation: Translation) -> str:
    """Translate ALTER TABLE: SQLite's own ADD COLUMN where its meaning agrees, else a new table with the rows."""
    only("AlterTableStmt", body, "relation", "cmds", "objtype", "missing_ok")
    if body.get("objtype") != "OBJECT_TABLE":
        raise refuse("ALTER of something else than a table.")
    name = table_name(body["relation"])
    if body.get("missing_ok") and name not in translation.schema.tables:
        return NOTHING
    table = translation.table(name)
    commands = [node["AlterTableCmd"] for node in body["cmds"]]
    if len(commands) == 1 and commands[0]["subtype"] == "AT_SetIdentity":
        column = table.column(commands[0]["name"])
        if column is None or column.sequence is None or column.sequence.kind == "serial":
            raise wrong(f"{commands[0]['name']!r} is not an identity column of {name!r}.")
        return restart(column.sequence, commands[0]["def"]["List"]["items"], translation)
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
    change = Rebuild.of(table, translation)
    for command in sorted(commands, key=_pass_of):
        _COMMANDS[command["subtype"]][1](command, change)
    return change.write()


def _added_column(command: Body, table: Table, translation: Translation) -> str | None:
    """Return SQLite's ADD COLUMN; None if the table has to be made anew."""
    draft = TableDraft()
    read_column(command["def"]["ColumnDef"], draft, translation)
    [column] = draft.columns
    if _is_known_column(column.name, table, missing_ok=bool(command.get("missing_ok"))):
        return NOTHING
    check_views_of(replace(table, columns=(*table.columns, column)), translation)
    default = draft.defaults.pop(column.name, None)
    if draft.constraints or draft.sequences or (default is not None and "(" in default.split("'")[0]):
        return None
    if not column.nullable and (default is None or default == "NULL"):
        return None
    added = column_text(column, draft, in_key=False, constant=default)
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
class Rebuild:
    """A table while ALTER TABLE changes it."""

    table: Table
    translation: Translation
    draft: TableDraft
    values: dict[str, str]
    """The value of each column that comes from the old table."""
    indexes: dict[str, str]
    same: bool = True
    """Whether no command has changed anything."""

    @classmethod
    def of(cls, table: Table, translation: Translation) -> "Rebuild":
        """Return the table without a change."""
        texts = definition_parts(table.definition)[0]
        if set(texts) != {column.name for column in table.columns}:
            raise refuse(f"ALTER of {table.name!r}, whose definition cannot be read.", fix="Create a new table.")
        draft = TableDraft(columns=list(table.columns), texts=texts, ready=constraints_of(table))
        for column in table.columns:
            if column.sequence is not None:
                draft.sequences[column.name] = replace(column.sequence, table="")
                if column.sequence.table:
                    del texts[column.name]
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
            for each in constraints_of(other)
            if each.table == self.table.name and wanted & set(each.key)
        )

    def users(self, column: str) -> list[str]:
        """Return the names of checks and of indexes with conditions or expressions that name the column."""
        checks = [each.name for each in self.draft.ready if each.kind == "CHECK" and column in each.columns]
        return checks + [name for name, text in self.indexes.items() if column in _names_in_expressions(text)]

    def write(self) -> str:
        """Return the statements that make the table anew."""
        settle(self.table.name, self.draft, self.translation)
        if self.same:
            return NOTHING
        if not 1 <= len(self.draft.columns) <= COLUMNS_MAX:
            raise refuse(f"a table of {len(self.draft.columns)} columns.", fix=f"Use 1 to {COLUMNS_MAX}.")
        name, new = self.table.name, f"rebuild of {self.table.name}"
        if any(known.lower() == new.lower() for known in self.translation.schema.tables):
            raise refuse(f"ALTER of {name!r} while there is a table {new!r}.", fix="Rename that one.")
        key = own_key(self.draft)
        if len(self.draft.columns) > len(self.values) or (self.table.primary_key and not self.draft.keys):
            columns = tuple(self.draft.columns)
            check_views_of(replace(self.table, columns=columns, primary_key=key), self.translation)
        for column in self.draft.columns:
            if column.name in key and column.nullable:
                self.draft.texts.pop(column.name, None)
        old_name, new_name = quoted_name(name), quoted_name(new)
        texts = [table_text(new, self.draft)]
        listed, values = quoted_list(self.values), ", ".join(self.values.values())
        texts.append(f"INSERT INTO {new_name} ({listed}) SELECT {values} FROM {old_name}")  # noqa: S608 -- quoted names
        before = [column.sequence for column in self.table.columns if column.sequence is not None]
        # The last number of a table that SQLite has numbered becomes that of its sequence.
        texts += [
            f"INSERT INTO sqlite_sequence (name, seq) SELECT {each.position}, seq FROM sqlite_sequence "  # noqa: S608
            f"WHERE name = {text_literal(each.table)} "
            f"AND NOT EXISTS (SELECT 1 FROM sqlite_sequence WHERE name = {each.position})"
            for each in before
            if each.table
        ]
        kept = {each.name for each in self.draft.sequences.values()}
        dropped = [each for each in before if each.name not in kept]
        texts += [forget(dropped)] if dropped else []
        texts += [f"DROP TABLE {old_name}", f"ALTER TABLE {new_name} RENAME TO {old_name}", *self.indexes.values()]
        self.translation.several, self.translation.rebuilds = True, name
        return "; ".join(texts)


def _names_in_expressions(index: str) -> set[str]:
    """Return the names in the expressions and the condition of an index, without its plain columns."""
    texts = [part for part in parts_of(index) if part.startswith("(")]
    return {name for text in [*texts, index.partition(") WHERE ")[2]] for name in names_in(text)}


def _add_column(command: Body, change: Rebuild) -> None:
    name: str = command["def"]["ColumnDef"]["colname"]
    known = Table(change.table.name, tuple(change.draft.columns))
    if not _is_known_column(name, known, missing_ok=bool(command.get("missing_ok"))):
        read_column(command["def"]["ColumnDef"], change.draft, change.translation)
        change.same = False


def _drop_column(command: Body, change: Rebuild) -> None:
    """Drop a column, and as PostgreSQL every constraint and index of the table that names it."""
    name: str = command["name"]
    if command.get("missing_ok") and name not in change.values:
        return
    column = change.column(name)
    refuse_views_of(change.table.name, change.translation)
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
    draft.sequences.pop(name, None)
    draft.ready = [each for each in draft.ready if name not in each.columns]
    draft.keys = [key for key in draft.keys if name not in key]
    change.indexes = {title: text for title, text in change.indexes.items() if name not in names_in(text)[2:]}
    del change.values[name]
    change.same = False


def _set_default(command: Body, change: Rebuild) -> None:
    column = change.column(command["name"])
    if column.sequence is not None:
        if column.sequence.kind != "serial":
            raise wrong(f"{column.name!r} is an identity column.", fix="Use DROP IDENTITY.")
        raise refuse(f"DEFAULT of {column.name!r}, which is serial.", fix="Create a new table.")
    if "def" not in command:
        change.draft.defaults.pop(column.name, None)
        change.change(replace(column, default=None, has_default=False))
        return
    change.draft.defaults[column.name] = default_value(command["def"], column, change.translation)
    change.change(replace(column, has_default=True))


def _add_identity(command: Body, change: Rebuild) -> None:
    column = change.column(command["name"])
    if column.nullable or column.has_default:
        raise wrong(f"{column.name!r} must be NOT NULL and without a default to become an identity.")
    change.draft.sequences[column.name] = identity(command["def"]["Constraint"], column.type)
    change.change(replace(column, has_default=True))


def _drop_identity(command: Body, change: Rebuild) -> None:
    column = change.column(command["name"])
    if column.sequence is None or column.sequence.kind == "serial":
        if command.get("missing_ok"):
            return
        raise wrong(f"{column.name!r} is not an identity column.")
    del change.draft.sequences[column.name]
    change.change(replace(column, has_default=False, default=None, sequence=None))


def _set_not_null(command: Body, change: Rebuild) -> None:
    column = change.column(command["name"])
    if column.nullable:
        change.change(replace(column, nullable=False))


def _drop_not_null(command: Body, change: Rebuild) -> None:
    column = change.column(command["name"])
    if column.name in own_key(change.draft):
        raise wrong(f"{column.name!r} is in the primary key.")
    if column.sequence is not None:
        if column.sequence.kind != "serial":
            raise wrong(f"{column.name!r} is an identity column.")
        raise refuse(f"DROP NOT NULL of {column.name!r}, which is serial.", fix="Create a new table.")
    if not column.nullable:
        _check_no_condition(column.name, change)
        change.change(replace(column, nullable=True))


def _check_no_condition(column: str, change: Rebuild) -> None:
    """Refuse a change under conditions that were translated for the column as it was."""
    users = change.users(column)
    if users:
        raise refuse(
            f"a change of {column!r}, which {', '.join(users)} has in its condition.",
            fix="Drop that, change the column, and create it again.",
        )


def _set_type(command: Body, change: Rebuild) -> None:
    column = change.column(command["name"])
    refuse_views_of(change.table.name, change.translation)
    body = command["def"]["ColumnDef"]
    only("ColumnDef", body, "typeName", "raw_default", "collClause")
    kind, serial = column_type(body["typeName"])
    if serial is not None:
        raise wrong(f"the type {serial} of a column that exists.")
    if "collClause" in body:
        check_collation(names_of(body["collClause"]["collname"]), kind)
    same_values = column.type.name == kind.name or (column.type.is_text and kind.is_text)
    if not same_values:
        _check_no_condition(column.name, change)
        if column.has_default and not (column.type.is_integer and kind.is_integer):
            raise refuse(f"TYPE of {column.name!r}, which has a default.", fix="Drop the default first.")
        if any(column.name in key for key in [own_key(change.draft), *_keys(change.draft)]):
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
    if column.sequence is not None:
        if not kind.is_integer:
            raise wrong(f"TYPE {kind} of {column.name!r}, which is numbered by the database.")
        if column.sequence.kind != "serial":
            known = change.draft.sequences[column.name]
            change.draft.sequences[column.name] = replace(known, maximum=INTEGER_RANGE[kind.name][1])
    with scope.at("USING"):
        change.values[column.name] = assigned(expression(node, scope), changed)
    change.change(changed)


def _keys(draft: TableDraft) -> list[tuple[str, ...]]:
    return [each.columns for each in draft.ready if each.kind == "UNIQUE"]


def _add_constraint(command: Body, change: Rebuild) -> None:
    body = command["def"]["Constraint"]
    if body.get("skip_validation"):
        raise refuse("a constraint that is NOT VALID.", fix="Leave it out: the rows are checked immediately.")
    if body["contype"] == "CONSTR_NOTNULL":
        raise refuse("ADD CONSTRAINT … NOT NULL.", fix="Use ALTER COLUMN … SET NOT NULL.")
    if "indexname" in body:
        raise refuse("a constraint that uses an index.", fix="Drop the index and name the columns.")
    change.draft.constraints.append(("", body))
    change.same = False


def _drop_constraint(command: Body, change: Rebuild) -> None:
    name: str = command["name"]
    found = next((each for each in change.draft.ready if each.name == name), None)
    if found is None:
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
            pointing = [each for each in constraints_of(other) if each.table == change.table.name]
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


_COMMANDS: Final[dict[str, tuple[int, Callable[[Body, Rebuild], None]]]] = {
    "AT_DropColumn": (0, _drop_column),
    "AT_DropConstraint": (0, _drop_constraint),
    "AT_DropNotNull": (0, _drop_not_null),
    "AT_AlterColumnType": (1, _set_type),
    "AT_AddColumn": (2, _add_column),
    "AT_SetNotNull": (3, _set_not_null),
    "AT_AddConstraint": (4, _add_constraint),
    "AT_ColumnDefault": (5, _set_default),
    "AT_AddIdentity": (5, _add_identity),
    "AT_DropIdentity": (0, _drop_identity),
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
        return NOTHING
    table = translation.table(name)
    if kind == "OBJECT_TABCONSTRAINT":
        return _renamed_constraint(table, body["subname"], body["newname"], translation)
    refuse_views_of(name, translation)
    text = f"ALTER TABLE {quoted_name(table.name)} RENAME"
    if kind == "OBJECT_TABLE":
        name = _free_table_name(body["newname"], translation)
        text += f" TO {quoted_name(name)}"
    else:
        old, new = _renamed_column(body["subname"], body["newname"], table)
        text += f" COLUMN {quoted_name(old)} TO {quoted_name(new)}"
    if any(column.sequence is not None and column.sequence.table for column in table.columns):
        # In the form of the first preview the names of the table and the column are that of the sequence.
        change = Rebuild.of(table, translation)
        change.same = False
        text = f"{change.write()}; {text}"
        translation.rebuilds = name
    return text


def _renamed_index(old: str, new: str, translation: Translation, *, missing_ok: bool) -> str:
    visible(old, "index")
    for table in translation.schema.tables.values():
        if any(each.name == old and each.kind in {"PRIMARY KEY", "UNIQUE"} for each in constraints_of(table)):
            return _renamed_constraint(table, old, new, translation)
        text = dict(table.indexes).get(old)
        if text is None:
            continue
        if index_name(new, translation) in relation_names(translation):
            raise wrong(f"there is a table, an index or a constraint {new!r} already.")
        translation.several = True
        begin = text.index("INDEX ") + len("INDEX ")
        rest = text[text.index(" ON ", begin + len(quoted_name(old))) :]
        return f"DROP INDEX {quoted_name(old)}; {text[:begin]}{quoted_name(new)}{rest}"
    if missing_ok:
        return NOTHING
    if old in translation.schema.tables:
        raise refuse(f"{old!r} is a table.", why="PostgreSQL renames it, too.", fix="Use ALTER TABLE.")
    raise wrong(f"there is no index {old!r}.")


def _renamed_constraint(table: Table, old: str, new: str, translation: Translation) -> str:
    change = Rebuild.of(table, translation)
    found = next((each for each in change.draft.ready if each.name == old), None)
    if found is None:
        raise wrong(f"the table {table.name!r} has no constraint {old!r}.")
    others = replace(change.draft, ready=[each for each in change.draft.ready if each is not found])
    if new == old:
        raise wrong(f"there is a constraint {new!r} already.")
    name = constraint_name({"conname": new}, found.kind, found.columns, table.name, others, translation)
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
