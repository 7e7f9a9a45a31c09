"""ALTER TABLE, RENAME, DROP and TRUNCATE: changes of what exists.

What SQLite's ALTER TABLE cannot do makes the table anew: create, copy, drop, rename, in one transaction. DROP and
TRUNCATE refuse what other tables refer to, or take it along with CASCADE, in an order in which no reference breaks.

Sections: ALTER TABLE, new tables for old ones, RENAME, DROP and TRUNCATE.
"""

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Final

from interlock.sql.casts import column_type
from interlock.sql.ddl.create_table import (
    COLUMNS_MAX,
    NOTHING,
    TableDraft,
    check_collation,
    column_text,
    constraint_name,
    constraints_of,
    default_value,
    index_name,
    index_names_of_constraints,
    own_key,
    read_column,
    relation_names,
    row_scope,
    settle,
    table_text,
)
from interlock.sql.ddl.create_view import check_views_of, drop_views, refuse_views_of, views_of
from interlock.sql.ddl.enumerations import drop_enumerations, known_enumeration, made_enumeration
from interlock.sql.ddl.sequences import drop_sequences, forget, identity, restart
from interlock.sql.dml import assigned
from interlock.sql.expressions import expression
from interlock.sql.from_clause import table_name
from interlock.sql.literals import text_literal
from interlock.sql.operators_and_functions import comparable
from interlock.sql.parse import Body, names_of, only, quoted_list, quoted_name
from interlock.sql.schema import Column, NumberSequence, Table, definition_parts, names_in, parts_of
from interlock.sql.scope import SYSTEM_COLUMNS, Translation, visible
from interlock.sql.types import FLOAT8, INTEGER_RANGE, PLAIN_TYPES, enumeration, refuse, wrong

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
    if draft.constraints or draft.sequences or draft.generated:
        return None
    if default is not None and "(" in default.split("'")[0]:
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
        texts = dict(definition_parts(table.definition)[0])
        if set(texts) != {column.name for column in table.columns}:
            raise refuse(f"ALTER of {table.name!r}, whose definition cannot be read.", fix="Create a new table.")
        draft = TableDraft(columns=list(table.columns), texts=texts, ready=constraints_of(table))
        for column in table.columns:
            if column.sequence is not None:
                draft.sequences[column.name] = replace(column.sequence, table="")
                if column.sequence.table:
                    del texts[column.name]
            elif column.default is not None and not column.is_generated:
                draft.defaults[column.name] = column.default
        if table.primary_key:
            draft.keys.append(table.primary_key)
        values = {column.name: quoted_name(column.name) for column in table.columns if not column.is_generated}
        return cls(table, translation, draft, values, dict(table.indexes))

    def column(self, name: str) -> Column:
        """Return the column of that name."""
        found = next((column for column in self.draft.columns if column.name == name), None)
        if found is None:
            raise wrong(f"the table {self.table.name!r} has no column {name!r}.")
        if found.is_generated:
            raise refuse(f"a change of the generated column {name!r}.", fix="Drop it and add it again.")
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
        checks += self.generated_of(column)
        return checks + [name for name, text in self.indexes.items() if column in names_in(_expressions_in(text))]

    def generated_of(self, column: str) -> list[str]:
        """Return the generated columns that are computed of this one."""
        generated = [each.name for each in self.table.columns if each.is_generated and each.name != column]
        return [name for name in generated if column in names_in(self.draft.texts.get(name, ""))]

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


def _expressions_in(index: str) -> str:
    """Return the expressions and the condition of an index, without its plain columns."""
    texts = [part for part in parts_of(index) if part.startswith("(")]
    return " ".join([*texts, index.partition(") WHERE ")[2]])


def _add_column(command: Body, change: Rebuild) -> None:
    name: str = command["def"]["ColumnDef"]["colname"]
    known = Table(change.table.name, tuple(change.draft.columns))
    if not _is_known_column(name, known, missing_ok=bool(command.get("missing_ok"))):
        read_column(command["def"]["ColumnDef"], change.draft, change.translation)
        change.same = False


def _drop_column(command: Body, change: Rebuild) -> None:
    """Drop a column, and as PostgreSQL every constraint and index of the table that names it."""
    name: str = command["name"]
    generated = next((each for each in change.draft.columns if each.name == name and each.is_generated), None)
    if command.get("missing_ok") and name not in change.values and generated is None:
        return
    column = generated or change.column(name)
    if users := change.generated_of(name):
        raise refuse(f"DROP of {name!r}, of which {', '.join(users)} is computed.", fix="Drop that first.")
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
    change.values.pop(name, None)
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
        _check_conditions(column.name, change)
        change.change(replace(column, nullable=True))


_COMPARISON: Final = re.compile(
    r"""(?:"(?:[^"]|"")*"|'(?:[^']|'')*'|[-+]?\d+\b|<>|[<>]=?|=|[(),\s]|(?:AND|OR|NOT|IN|IS|NULL|BETWEEN|CHECK|true|false)\b)+"""
)
"""A condition that compares columns and constants, and computes nothing."""


def _check_conditions(column: str, change: Rebuild, *, comparisons: bool = True) -> None:
    """Refuse a change under conditions that were translated for the column as it was, but for `comparisons`.

    A comparison alone has the same text for whole numbers of every size, and for a column with or without NULLs.
    """
    texts = {each.name: each.text for each in change.draft.ready if each.kind == "CHECK"}
    texts |= {name: _expressions_in(text) for name, text in change.indexes.items()}
    # Beside a float the width of a whole number matters: a bigint is rounded for the comparison.
    floats = {each.name for each in change.draft.columns if each.type == FLOAT8}
    users = [
        name
        for name in change.users(column)
        if not comparisons or not _COMPARISON.fullmatch(texts.get(name, "")) or floats & set(names_in(texts[name]))
    ]
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
    kind, serial = column_type(body["typeName"], change.translation.schema.enumerations)
    if serial is not None:
        raise wrong(f"the type {serial} of a column that exists.")
    if "collClause" in body:
        check_collation(names_of(body["collClause"]["collname"]), kind)
    same_values = column.type.name == kind.name or (column.type.is_text and kind.is_text)
    numbers = column.type.is_integer and kind.is_integer
    if not same_values:
        _check_conditions(column.name, change, comparisons=numbers)
        if column.has_default and not numbers:
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
    if column.type != kind and not (numbers and "raw_default" not in body) and (own or change.referring([column.name])):
        raise refuse(f"TYPE of {column.name!r}, which is part of a reference.", fix="Drop the reference first.")
    scope = row_scope(change.table.name, change.table.columns, change.translation, "USING")
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
    kind = body["renameType"]
    if kind == "OBJECT_TYPE":
        only("RenameStmt", body, "renameType", "relationType", "object", "newname", "behavior")
        return _renamed_type(body, translation)
    only("RenameStmt", body, "renameType", "relationType", "relation", "subname", "newname", "behavior", "missing_ok")
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


def _renamed_type(body: Body, translation: Translation) -> str:
    """Return the statements that make an enumeration by another name, and anew each table that has it."""
    old = known_enumeration(body["object"]["List"]["items"], translation)
    texts = [f"DROP VIEW {quoted_name(old.title)}", made_enumeration(body["newname"], old.labels, translation)]
    kinds = {old: enumeration(body["newname"], old.labels)}
    kinds[PLAIN_TYPES[f"{old.name}[]"]] = PLAIN_TYPES[f"{kinds[old].name}[]"]
    for table in translation.schema.tables.values():
        changed = [replace(each, type=kinds[each.type]) for each in table.columns if each.type in kinds]
        if not changed:
            continue
        refuse_views_of(table.name, translation)
        change = Rebuild.of(table, translation)
        if any(column.is_generated for column in changed):
            raise refuse(f"a new name for the type of a generated column of {table.name!r}.", fix="Drop it first.")
        for column in changed:
            change.change(column)
        texts.append(change.write())
    translation.several = True
    return "; ".join(texts)


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
    if same and same != [old]:
        raise refuse("two columns whose names differ in case alone.", fix="Choose another name.")
    return old, new


# --- DROP and TRUNCATE -----------------------------------------------------------------------------------------------


def drop(body: Body, translation: Translation) -> str:
    """Translate DROP TABLE or DROP INDEX."""
    only("DropStmt", body, "objects", "removeType", "behavior", "missing_ok", "concurrent")
    kind = body["removeType"].removeprefix("OBJECT_")
    if kind == "TYPE":
        return several(drop_enumerations(body, translation), translation)
    if kind not in {"TABLE", "INDEX", "SEQUENCE", "VIEW"}:
        raise refuse(f"DROP {kind.replace('_', ' ')}.", fix="A lane has tables, indexes, sequences, views and types.")
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
            if index_name(name, translation) in index_names_of_constraints(translation):
                raise wrong(f"the index {name!r} belongs to a constraint.", fix="Drop the constraint.")
        return several(
            [f"DROP INDEX {'IF EXISTS ' if exists else ''}{quoted_name(name)}" for name in names], translation
        )
    if kind == "SEQUENCE":
        return several(drop_sequences(names, translation, missing_ok=exists), translation)
    if kind == "VIEW":
        if body.get("behavior") == "DROP_CASCADE" and any(views_of(name, translation) for name in names):
            raise refuse("DROP VIEW … CASCADE of a view that others read.", fix="Drop those, too.")
        return several(drop_views(names, translation, missing_ok=exists), translation)
    return _drop_tables(names, translation, exists=exists, cascade=body.get("behavior") == "DROP_CASCADE")


def _drop_tables(names: list[str], translation: Translation, *, exists: bool, cascade: bool) -> str:
    tables = translation.schema.tables
    texts: list[str] = []
    for name in names:
        if any(known.lower() == name.lower() and known != name for known in tables):
            raise wrong(f"there is no table {name!r}.", fix="Mind the case of the name.")
        if not exists:
            translation.table(name)
    for name in names:
        if cascade:
            refuse_views_of(name, translation)
        elif users := views_of(name, translation):
            raise wrong(f"{name!r} is needed by {', '.join(users)}.", fix="Drop the views first.")
    referring = sorted(
        table.name for table in tables.values() if table.name not in names and set(names) & table.references
    )
    if referring and not cascade:
        raise wrong(f"{', '.join(names)}: referred to by {', '.join(referring)}.", fix="Drop those first, or CASCADE.")
    for name in referring:
        # CASCADE drops the references alone; the tables stay.
        change = Rebuild.of(tables[name], translation)
        change.draft.ready = [each for each in change.draft.ready if each.table not in names]
        change.same = False
        texts.append(change.write())
    ordered = _referring_first([name for name in names if name in tables], translation)
    texts += [f"DROP TABLE {quoted_name(name)}" for name in ordered]
    sequences = _sequences(ordered, translation)
    texts += [forget(sequences)] if sequences else []
    return several(texts, translation)


def several(texts: list[str], translation: Translation) -> str:
    """Join the statements of one definition."""
    translation.several = translation.several or len(texts) > 1
    return "; ".join(texts) if texts else NOTHING


def _sequences(names: list[str], translation: Translation) -> list[NumberSequence]:
    """Return the sequences of the columns of these tables."""
    tables = [translation.schema.tables[name] for name in names]
    return [column.sequence for table in tables for column in table.columns if column.sequence is not None]


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
    if any(set(names) & known[name].references for name in names):
        # Each row that refers to another one goes, too. Actions of references do not run, as in PostgreSQL.
        translation.several, translation.rebuilds = True, names[0]
    texts = [f"DELETE FROM {quoted_name(name)}" for name in names]  # noqa: S608
    if body.get("restart_seqs"):
        sequences = _sequences(names, translation)
        # A table that SQLite has numbered begins again, too.
        texts += [f"{forget(sequences)[:-1]}, {', '.join(map(text_literal, names))})"] if sequences else []
    return several(texts, translation)
