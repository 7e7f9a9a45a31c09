"""ALTER TABLE and TRUNCATE.

Adding a column is a definition (`definitions.alter`). Renaming is SQLite's own work: it rewrites every CHECK, index
and reference that has the name. TRUNCATE is a DELETE of everything, refused wherever PostgreSQL refuses it.
"""

from sqlglot import exp

from interlock.sql import definitions
from interlock.sql.refusal import refuse, wrong
from interlock.sql.schema import Table
from interlock.sql.scope import Translation, visible
from interlock.sql.syntax import Node, argument, child, children, column_name, identifier, only, quoted
from interlock.sql.words import SYSTEM_COLUMNS


def alter(node: Node, translation: Translation) -> str:
    """ALTER TABLE … ADD COLUMN, RENAME COLUMN or RENAME TO."""
    actions = children(node, "actions")
    if len(actions) != 1 or type(actions[0]) not in {exp.RenameColumn, exp.AlterRename}:
        return definitions.alter(node, translation)
    only(node, "this", "kind", "actions")
    if str(argument(node, "kind")).upper() != "TABLE":
        raise refuse("ALTER of something else than a table.")
    target = child(node)
    only(target, "this")
    table = translation.table(identifier(child(target), "table"))
    text = f"ALTER TABLE {quoted(table.name)} RENAME"
    if type(actions[0]) is exp.AlterRename:
        return f"{text} TO {quoted(_new_table(actions[0], translation))}"
    old, new = _renamed_column(actions[0], table)
    return f"{text} COLUMN {quoted(old)} TO {quoted(new)}"


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
    return f"DELETE FROM {quoted(table.name)}"  # noqa: S608 - a quoted name
