"""Parts that all changes share: the changed table, the values assigned to its columns, and RETURNING.

A value assigned to a column is converted as PostgreSQL's assignment does. A sum that may overflow is left to the
column's CHECK, which SQLite evaluates anyway: that keeps `SET n = n + 1` free of function calls.
"""

from collections.abc import Sequence
from dataclasses import replace

from sqlglot import exp

from interlock.sql.casts import convert, settled
from interlock.sql.datatypes import INTEGER_RANGE
from interlock.sql.expressions import expression, predicate
from interlock.sql.joins import table_relation
from interlock.sql.queries import listed_items
from interlock.sql.refusal import refuse, wrong
from interlock.sql.schema import Column, Table
from interlock.sql.scope import Relation, Scope, Translation
from interlock.sql.statement import ResultColumn
from interlock.sql.syntax import (
    Node,
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
# The columns that are assigned together, and the text of their value: several only if one subquery gives them all.
Assignment = tuple[tuple[Column, ...], str]


def assigned(term: Term, column: Column) -> str:
    """The text of a value for that column; what the column's CHECK verifies is not verified twice."""
    source = term.type
    value = convert(term, column.type, "assignment")
    if source.name in INTEGER_RANGE and column.type.is_integer and _narrower(source.name, column.type.name):
        return value.checked.text
    return value.text


def _narrower(source: str, target: str) -> bool:
    return INTEGER_RANGE[source][1] < INTEGER_RANGE[target][1]


def target_table(node: Node, translation: Translation) -> tuple[Table, Relation, str]:
    """The table that is changed, as a relation and as it is written."""
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


def known_column(table: Table, name: str) -> Column:
    """The column of that name, which must be there."""
    column = table.column(name)
    if column is None:
        raise wrong(f"the table {table.name!r} has no column {name!r}.")
    return column


def writable(table: Table, name: str) -> Column:
    """The column of that name, which must not be numbered by the database."""
    column = known_column(table, name)
    if column.serial:
        raise refuse(
            f"a value for {name!r}, which is numbered by the database.",
            why="PostgreSQL's sequence would not notice it and later collide with it.",
            fix="Leave the column out, or declare it as bigint and number it yourself.",
        )
    return column


def default_text(column: Column) -> str:
    """Return the value of DEFAULT; the catalog has it as SQLite's text already."""
    if column.serial:
        raise refuse(f"DEFAULT for {column.name!r}, which is numbered by the database.", fix="Leave the column out.")
    return "NULL" if column.default is None else f"({column.default})"


# --- SET --------------------------------------------------------------------------------------------------------------


def assignments(node: Node, table: Table, scope: Scope) -> list[Assignment]:
    """SET, each column once."""
    listed: list[Assignment] = []
    for item in children(node):
        if type(item) is not exp.EQ:
            raise refuse("a SET that is not column = value.", fix="Assign each column on its own.")
        only(item, "this", "expression")
        left, value = child(item), child(item, "expression")
        with scope.at("SET"):
            if type(left) is exp.Tuple:
                listed += _several(left, value, table, scope)
            else:
                column = writable(table, column_name(left))
                listed.append(((column,), _value(value, column, scope)))
    names = [column.name for columns, _ in listed for column in columns]
    if len(set(names)) != len(names):
        raise wrong("a column is assigned twice.")
    return listed


def _value(node: Node, column: Column, scope: Scope) -> str:
    if type(node) is exp.Column and not flag(child(node), "quoted") and string(child(node)).upper() == "DEFAULT":
        only(node, "this")
        return default_text(column)
    return assigned(expression(node, scope), column)


def _several(left: Node, value: Node, table: Table, scope: Scope) -> list[Assignment]:
    """SET (a, b) = (1, 2), or = (SELECT …)."""
    columns = [writable(table, column_name(part)) for part in children(left)]
    if type(value) is exp.Tuple:
        values = children(value)
        if len(values) != len(columns):
            raise wrong(f"{len(values)} values for {len(columns)} columns.")
        return [((column,), _value(part, column, scope)) for column, part in zip(columns, values, strict=True)]
    if type(value) is not exp.Subquery:
        raise refuse("SET (…) = something else than a row or a subquery.", fix="Write (a, b) = (1, 2).")
    only(value, "this")
    if not scope.subqueries:
        raise refuse(f"a subquery in {scope.place}.", fix="Query first, then pass the value as a parameter.")
    query = scope.translation.subquery(child(value), scope)
    if len(query.columns) != len(columns):
        raise wrong(f"a subquery of {len(query.columns)} columns for {len(columns)}.")
    if len({output.name.lower() for output in query.columns}) != len(columns):
        raise refuse("a subquery with two columns of the same name.", fix="Give each column an alias of its own.")
    written = [
        assigned(Term(f"interlock_single(s.{quoted(output.name)})", output.type), column)
        for output, column in zip(query.columns, columns, strict=True)
    ]
    text = f"(SELECT {', '.join(written)} FROM ({query.text}) AS s)"  # noqa: S608 - made of quoted names, literals and ?n alone
    return [(tuple(columns), text)]


def written_assignments(listed: Sequence[Assignment]) -> str:
    """The text of SET."""
    return ", ".join(
        f"{quoted(columns[0].name)} = {text}"
        if len(columns) == 1
        else f"({quoted_list(column.name for column in columns)}) = {text}"
        for columns, text in listed
    )


# --- WHERE and RETURNING ----------------------------------------------------------------------------------------------


def condition(node: Node, scope: Scope) -> str:
    """WHERE, or nothing."""
    where = maybe(node, "where")
    if where is None:
        return ""
    only(where, "this")
    with scope.at("WHERE"):
        return f" WHERE {predicate(child(where), scope, 'WHERE').checked.text}"


def returning(
    node: Node, text: str, table: Table, relation: Relation, translation: Translation, sources: Sequence[Relation] = ()
) -> Change:
    """The whole change, with what it returns."""
    listed = maybe(node, "returning")
    if listed is None:
        return text, ()
    only(listed, "expressions")
    _refuse_sources(listed, sources)
    # SQLite knows the table by its own name there, never by the alias.
    scope = Scope(translation, volatile=True, subqueries=False, place="RETURNING")
    scope.add(replace(relation, written=quoted(table.name)))
    columns: list[ResultColumn] = []
    written: list[str] = []
    for item, alias in listed_items(listed, scope):
        with scope.at("RETURNING"):
            term = settled(expression(item, scope))
        name = alias or term.name or "?column?"
        columns.append(ResultColumn(name, term.type, checked=term.unchecked))
        written.append(f"{term.text} AS {quoted(name)}")
    return f"{text} RETURNING {', '.join(written)}", tuple(columns)


def _refuse_sources(listed: Node, sources: Sequence[Relation]) -> None:
    """SQLite returns columns of the changed table alone."""
    if not sources:
        return
    names = {relation.name for relation in sources}
    columns = {output.name for relation in sources for output in relation.columns}
    for item in listed.find_all(exp.Column, exp.Star):
        relation = maybe(item, "table") if type(item) is exp.Column else None
        inside = type(item) is exp.Star and type(item.parent) is exp.Column
        of_source = relation is not None and identifier(relation, "relation") in names
        is_open = relation is None and not inside
        if of_source or (is_open and (type(item) is exp.Star or identifier(child(item), "column") in columns)):
            raise refuse(
                "RETURNING columns of another table than the changed one.",
                fix="Return columns of the changed table, with its name before them; query the others.",
            )
