"""INSERT … ON CONFLICT: DO NOTHING, and DO UPDATE for one row or many.

PostgreSQL refuses to change one row twice in a statement, SQLite does not mind. So the keys of several rows are noted
while they are inserted, and the second row of a key raises (`guards.Upserts`). That is PostgreSQL's error whenever the
first row was inserted or updated; if DO UPDATE has a condition, it may have been neither, and the refusal says so.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from sqlglot import exp

from interlock.sql.assignments import assignments, condition, known_column, written_assignments
from interlock.sql.expressions import predicate
from interlock.sql.refusal import refuse
from interlock.sql.schema import Column, Table
from interlock.sql.scope import Relation, Scope, Translation
from interlock.sql.syntax import Node, child, children, column_name, maybe, only, quoted, quoted_list, string


@dataclass(frozen=True, slots=True)
class Source:
    """The rows of an INSERT: a query for the columns, and whether it is proven to give one row at most."""

    columns: Sequence[Column]
    text: str
    single: bool
    volatile: frozenset[str] = frozenset()  # The columns whose values are random.


def upsert(node: Node, table: Table, relation: Relation, translation: Translation, source: Source) -> tuple[str, str]:
    """The source as SQLite needs it, and the text of ON CONFLICT."""
    only(node, "conflict_keys", "action", "expressions", "where", "index_predicate")
    keys: list[Column] = []
    for key in children(node, "conflict_keys"):
        if type(key) is exp.Ordered:
            only(key, "this", "nulls_first")
        column = child(key) if type(key) is exp.Ordered else key
        keys.append(known_column(table, column_name(column)))
    target = f" ({quoted_list(key.name for key in keys)})" if keys else ""
    target += _partial(node, relation, translation)
    action = string(child(node, "action")).upper()
    # Without a WHERE, SQLite would take ON CONFLICT for the condition of a join.
    plain = source.text if source.text.startswith("VALUES ") else f"SELECT * FROM ({source.text}) WHERE 1"  # noqa: S608 - made of quoted names, literals and ?n alone
    if action == "DO NOTHING":
        return plain, f" ON CONFLICT{target} DO NOTHING"
    if action != "DO UPDATE" or not keys:
        raise refuse(f"ON CONFLICT {action}.", fix="Write ON CONFLICT (column) DO UPDATE SET … or DO NOTHING.")
    scope = Scope(translation, volatile=True, subqueries=False, place="DO UPDATE")
    scope.add(relation)
    scope.add(replace(relation, name="excluded", written="excluded"))
    listed = assignments(node, table, scope)
    text = f" ON CONFLICT{target} DO UPDATE SET {written_assignments(listed)}{condition(node, scope)}"
    if source.single:
        return plain, text
    if maybe(node, "index_predicate") is not None:
        raise refuse("ON CONFLICT (…) WHERE … DO UPDATE with several rows.", fix="Insert one row per statement.")
    changed = {column.name for columns, _ in listed for column in columns}
    return _guarded(source, keys, changed, conditional=maybe(node, "where") is not None), text


def _partial(node: Node, relation: Relation, translation: Translation) -> str:
    """The condition of a partial index, which SQLite compares with the index's own."""
    where = maybe(node, "index_predicate")
    if where is None:
        return ""
    only(where, "this")
    scope = Scope(translation, subqueries=False, place="ON CONFLICT … WHERE")
    scope.add(replace(relation, written=""))
    return f" WHERE {predicate(child(where), scope, 'ON CONFLICT … WHERE').checked.text}"


def _guarded(source: Source, keys: Sequence[Column], changed: set[str], *, conditional: bool) -> str:
    """The rows, each noted by its key."""
    places = {column.name: place for place, column in enumerate(source.columns)}
    for key in keys:
        if key.name not in places or key.name in changed or key.name in source.volatile:
            raise refuse(
                f"ON CONFLICT ({key.name}) DO UPDATE with several rows, where {key.name!r} is left out, random or set.",
                why="Whether a row is affected twice could not be checked.",
                fix="Insert one row per statement, inside transact() if they belong together.",
            )
    kinds = "".join("n" if key.type.name == "numeric" else "v" for key in keys)
    noted = ", ".join(f"c{places[key.name]}" for key in keys)
    guard = f"interlock_propose((SELECT interlock_begin_upsert()), {int(conditional)}, '{kinds}', {noted})"
    listed = [guard if column.name == keys[0].name else f"c{place}" for place, column in enumerate(source.columns)]
    names = ", ".join(f"c{place}" for place in range(len(source.columns)))
    return f"WITH interlock_rows ({names}) AS ({source.text}) SELECT {', '.join(listed)} FROM interlock_rows WHERE 1"  # noqa: S608 - made of quoted names, literals and ?n alone


def quoted_columns(columns: Sequence[Column]) -> str:
    """The columns of an INSERT, in parentheses."""
    return f"({', '.join(quoted(column.name) for column in columns)})"
