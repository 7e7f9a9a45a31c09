"""Changes: INSERT with ON CONFLICT, UPDATE, DELETE, and what they return.

A value assigned to a column is converted as PostgreSQL's assignment does. A sum that may overflow is left to the
column's CHECK, which SQLite evaluates anyway: that keeps `SET n = n + 1` free of function calls. Refused is where
SQLite would see a statement's own changes and PostgreSQL would not.
"""

from dataclasses import replace

from sqlglot import exp

from interlock.sql.casts import convert, settled
from interlock.sql.clauses import table_relation
from interlock.sql.datatypes import INTEGER_RANGE, UNKNOWN
from interlock.sql.expressions import expression, predicate
from interlock.sql.queries import Draft, draft, listed_items
from interlock.sql.refusal import refuse, wrong
from interlock.sql.schema import Column, Table
from interlock.sql.scope import Relation, Scope, Translation
from interlock.sql.statement import ResultColumn
from interlock.sql.syntax import (
    Node,
    argument,
    child,
    children,
    column_name,
    flag,
    identifier,
    maybe,
    only,
    quoted,
    quoted_list,
    string,
    unsupported,
)
from interlock.sql.terms import Term

Change = tuple[str, tuple[ResultColumn, ...]]


def assigned(term: Term, column: Column) -> str:
    """The text of a value for that column; what the column's CHECK verifies is not verified twice."""
    source = term.type
    value = convert(term, column.type, "assignment")
    if source.name in INTEGER_RANGE and column.type.is_integer and _narrower(source.name, column.type.name):
        return value.checked.text
    return value.text


def _narrower(source: str, target: str) -> bool:
    return INTEGER_RANGE[source][1] < INTEGER_RANGE[target][1]


def _target(node: Node, translation: Translation) -> tuple[Table, Relation, str]:
    if type(node) is not exp.Table:
        raise unsupported(node)
    only(node, "this", "alias")
    name = identifier(child(node), "table")
    alias = maybe(node, "alias")
    if alias is not None:
        only(alias, "this")
    known = None if alias is None else identifier(child(alias), "alias")
    relation = table_relation(name, known, Scope(translation))
    text = quoted(name) if known is None else f"{quoted(name)} AS {quoted(known)}"
    return translation.table(name), relation, text


def _column(table: Table, name: str) -> Column:
    column = table.column(name)
    if column is None:
        raise wrong(f"the table {table.name!r} has no column {name!r}.")
    return column


def _writable(table: Table, name: str) -> Column:
    column = _column(table, name)
    if column.serial:
        raise refuse(
            f"a value for {name!r}, which is numbered by the database.",
            why="PostgreSQL's sequence would not notice it and later collide with it.",
            fix="Leave the column out, or declare it as bigint and number it yourself.",
        )
    return column


# --- INSERT -----------------------------------------------------------------------------------------------------------


def insert(node: Node, translation: Translation) -> Change:
    """INSERT … VALUES, DEFAULT VALUES or SELECT, with ON CONFLICT and RETURNING."""
    only(node, "this", "expression", "conflict", "returning", "default", "with_")
    if maybe(node, "with_") is not None:
        raise refuse("WITH before INSERT.", fix="Put it into the SELECT: INSERT INTO … WITH … SELECT ….")
    target = child(node)
    names: list[str] | None = None
    if type(target) is exp.Schema:
        only(target, "this", "expressions")
        names = [column_name(part) for part in children(target)]
        target = child(target)
    table, relation, text = _target(target, translation)
    if names is not None and len(set(names)) != len(names):
        raise wrong("a column twice in INSERT.")
    # Without a list, values go to the first columns; a numbered one among them cannot be given.
    columns = [column.name for column in table.columns] if names is None else names
    conflict = maybe(node, "conflict")
    if flag(node, "default"):
        body = " DEFAULT VALUES"
        if conflict is not None:
            raise refuse("DEFAULT VALUES with ON CONFLICT.", fix="Write VALUES (DEFAULT, …).")
        rows = 1
    else:
        body, rows = _source(node, table, columns, translation, listed=names is not None, conflict=conflict is not None)
    text = f"INSERT INTO {text}{body}"
    if conflict is not None:
        text += _conflict(conflict, table, relation, translation, rows=rows)
    return _returning(node, text, table, relation, translation)


def _source(
    node: Node, table: Table, columns: list[str], translation: Translation, *, listed: bool, conflict: bool
) -> tuple[str, int]:
    source = child(node, "expression")
    if type(source) is exp.Values:
        only(source, "expressions")
        rows = children(source)
        return _values(rows, table, columns, translation, listed=listed), len(rows)
    scope = Scope(translation, volatile=not conflict, place="INSERT … SELECT")
    query = draft(source, scope)
    if len(query.terms) > len(columns) or (listed and len(query.terms) != len(columns)):
        raise wrong(f"{len(query.terms)} values for {len(columns)} columns.")
    targets = [_writable(table, name) for name in columns[: len(query.terms)]]
    if query.parts:
        kinds = [
            target.type.plain if kind is UNKNOWN else kind for target, kind in zip(targets, query.types, strict=True)
        ]
        query.give_types(kinds)
        for kind, target in zip(query.types, targets, strict=True):
            if kind != target.type and not (kind.is_integer and target.type.is_integer):
                raise refuse(f"a set operation of {kind} into a column of {target.type}.", fix="Cast both sides.")
    else:
        query.terms = [
            Term(_selected(term, target, query), target.type, name=term.name)
            for term, target in zip(query.terms, targets, strict=True)
        ]
    names = quoted_list(target.name for target in targets)
    # Without a WHERE, SQLite would take ON CONFLICT for the condition of a join.
    text = f"SELECT * FROM ({query.write()}) WHERE 1" if conflict else query.write()  # noqa: S608 - made of quoted names, literals and ?n alone
    return f" ({names}) {text}", 2


def _selected(term: Term, column: Column, query: Draft) -> str:
    """A value that INSERT … SELECT assigns: PostgreSQL sorts and compares what was selected, then converts it."""
    text = assigned(term, column)
    same = term.type is UNKNOWN or (term.type.is_integer and column.type.is_integer)
    if (query.distinct or query.tail) and not same and text != term.text:
        raise refuse(
            f"{term.type} into a column of {column.type} by a SELECT with DISTINCT, ORDER BY or LIMIT.",
            why="It would be sorted and compared after the conversion.",
            fix=f"Convert it in the list: CAST(… AS {column.type}).",
        )
    return text


def _values(rows: list[Node], table: Table, columns: list[str], translation: Translation, *, listed: bool) -> str:
    scope = Scope(translation, volatile=True, place="VALUES")
    counts = {len(children(row)) for row in rows}
    if len(counts) != 1:
        raise wrong("VALUES with rows of different lengths.")
    [count] = counts
    if count > len(columns) or (listed and count != len(columns)):
        raise wrong(f"{count} values for {len(columns)} columns.", fix="Give each listed column one value.")
    used = columns[:count]
    defaulted = [_is_default(row, place) for row in rows for place in range(count)]
    # SQLite has no DEFAULT inside VALUES: a column that every row leaves to its default is left out.
    kept = [place for place in range(count) if not all(defaulted[row * count + place] for row in range(len(rows)))]
    if not kept:
        if len(rows) > 1:
            raise refuse("several rows of DEFAULT alone.", fix="Insert them one by one.")
        return " DEFAULT VALUES"
    written: list[str] = []
    for row in rows:
        if type(row) is not exp.Tuple:
            raise unsupported(row)
        only(row, "expressions")
        items = children(row)
        values: list[str] = []
        for place in kept:
            if _is_default(row, place):
                raise refuse("DEFAULT in some rows of VALUES and not in others.", fix="Insert those rows separately.")
            values.append(assigned(expression(items[place], scope), _writable(table, used[place])))
        written.append(f"({', '.join(values)})")
    for place in range(count):
        _column(table, used[place])
    return f" ({quoted_list(used[place] for place in kept)}) VALUES {', '.join(written)}"


def _is_default(row: Node, place: int) -> bool:
    item = children(row)[place]
    return type(item) is exp.Var and string(item).upper() == "DEFAULT"


def _conflict(node: Node, table: Table, relation: Relation, translation: Translation, *, rows: int) -> str:
    only(node, "conflict_keys", "action", "expressions", "where")
    keys: list[str] = []
    for key in children(node, "conflict_keys"):
        column = child(key) if type(key) is exp.Ordered else key
        keys.append(_column(table, column_name(column)).name)
    target = f" ({quoted_list(keys)})" if keys else ""
    action = string(child(node, "action")).upper()
    if action == "DO NOTHING":
        return f" ON CONFLICT{target} DO NOTHING"
    if action != "DO UPDATE" or not keys:
        raise refuse(f"ON CONFLICT {action}.", fix="Write ON CONFLICT (column) DO UPDATE SET … or DO NOTHING.")
    if rows > 1:
        raise refuse(
            "ON CONFLICT DO UPDATE with several rows.",
            why="PostgreSQL refuses to update one row twice in a statement; SQLite would do it.",
            fix="Insert one row per statement, inside transact() if they belong together.",
        )
    scope = Scope(translation, volatile=True, subqueries=False, place="DO UPDATE")
    scope.add(relation)
    scope.add(replace(relation, name="excluded", written="excluded"))
    text = f" ON CONFLICT{target} DO UPDATE SET {_assignments(node, table, scope)}"
    return text + _where(node, scope)


def _assignments(node: Node, table: Table, scope: Scope) -> str:
    written: list[str] = []
    names: set[str] = set()
    for item in children(node):
        if type(item) is not exp.EQ:
            raise refuse("a SET that is not column = value.", fix="Assign each column on its own.")
        only(item, "this", "expression")
        column = _writable(table, column_name(child(item)))
        if column.name in names:
            raise wrong(f"{column.name!r} is assigned twice.")
        names.add(column.name)
        value = child(item, "expression")
        if type(value) is exp.Column and not flag(child(value), "quoted") and string(child(value)).upper() == "DEFAULT":
            raise refuse("SET column = DEFAULT.", fix="Write the value.")
        with scope.at("SET"):
            term = expression(value, scope)
        written.append(f"{quoted(column.name)} = {assigned(term, column)}")
    return ", ".join(written)


def _where(node: Node, scope: Scope) -> str:
    where = maybe(node, "where")
    if where is None:
        return ""
    only(where, "this")
    with scope.at("WHERE"):
        return f" WHERE {predicate(child(where), scope, 'WHERE').checked.text}"


# --- UPDATE and DELETE ------------------------------------------------------------------------------------------------


def update(node: Node, translation: Translation) -> Change:
    """UPDATE of one table."""
    only(node, "this", "expressions", "where", "returning", "from_", "with_")
    if maybe(node, "from_") is not None:
        raise refuse(
            "UPDATE … FROM.",
            why="Which of several matching rows is used is not defined.",
            fix="Use a subquery: SET a = (SELECT … LIMIT 1).",
        )
    if maybe(node, "with_") is not None:
        raise refuse("WITH before UPDATE.", fix="Use a subquery.")
    table, relation, text = _target(child(node), translation)
    scope = Scope(translation, volatile=True, place="UPDATE")
    scope.add(relation)
    translation.tables.clear()
    assignments = _assignments(node, table, scope)
    if table.name in translation.tables:
        raise refuse(
            f"a subquery over {table.name!r} in the SET of its own UPDATE.",
            why="SQLite would show it rows that this statement has already changed.",
            fix="Query first and pass the value as a parameter, inside transact().",
        )
    text = f"UPDATE {text} SET {assignments}{_where(node, scope)}"  # noqa: S608 - made of quoted names, literals and ?n alone
    return _returning(node, text, table, relation, translation)


def delete(node: Node, translation: Translation) -> Change:
    """DELETE from one table."""
    only(node, "this", "where", "returning", "using", "with_")
    if argument(node, "using"):
        raise refuse("DELETE … USING.", fix="Use a subquery: WHERE id IN (SELECT …).")
    if maybe(node, "with_") is not None:
        raise refuse("WITH before DELETE.", fix="Use a subquery.")
    table, relation, text = _target(child(node), translation)
    scope = Scope(translation, volatile=True, place="DELETE")
    scope.add(relation)
    text = f"DELETE FROM {text}{_where(node, scope)}"  # noqa: S608 - made of quoted names, literals and ?n alone
    return _returning(node, text, table, relation, translation)


def _returning(node: Node, text: str, table: Table, relation: Relation, translation: Translation) -> Change:
    returning = maybe(node, "returning")
    if returning is None:
        return text, ()
    only(returning, "expressions")
    # SQLite knows the table by its own name there, never by the alias.
    scope = Scope(translation, volatile=True, subqueries=False, place="RETURNING")
    scope.add(replace(relation, written=quoted(table.name)))
    columns: list[ResultColumn] = []
    written: list[str] = []
    for item, alias in listed_items(returning, scope):
        with scope.at("RETURNING"):
            term = settled(expression(item, scope))
        name = alias or term.name or "?column?"
        columns.append(ResultColumn(name, term.type, checked=term.unchecked))
        written.append(f"{term.text} AS {quoted(name)}")
    return f"{text} RETURNING {', '.join(written)}", tuple(columns)
