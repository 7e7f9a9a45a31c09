"""INSERT, UPDATE and DELETE, with WITH before them, ON CONFLICT and RETURNING after them.

PostgreSQL computes all values on the state before the statement; where SQLite would see rows that it has already
changed, the statement is written differently. SQLite has no DEFAULT inside VALUES: a column that all rows leave to its
default is left out, and where some rows do, the default is written out as the catalog has it.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from sqlglot import exp

from interlock.sql.casts import convert, settled
from interlock.sql.clauses import Draft, fixed
from interlock.sql.expressions import expression, predicate
from interlock.sql.joins import sources, table_relation
from interlock.sql.parse import (
    Node,
    child,
    children,
    column_name,
    flag,
    identifier,
    maybe,
    only,
    quoted_list,
    quoted_name,
    string_literal,
    unsupported,
)
from interlock.sql.schema import Column, Table
from interlock.sql.scope import Relation, Scope, Term, Translation
from interlock.sql.select import QUERIES, common_tables, derived, draft, listed_items
from interlock.sql.types import INTEGER_RANGE, UNKNOWN, refuse, wrong
from interlock.sql.values import ResultColumn

# --- Targets and assigned values -------------------------------------------------------------------------------------
# A value assigned to a column is converted as PostgreSQL's assignment does. A sum that may overflow is left to the
# column's CHECK, which SQLite evaluates anyway: that keeps `SET n = n + 1` free of function calls.

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
    text = quoted_name(name) if known is None else f"{quoted_name(name)} AS {quoted_name(known)}"
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


# --- SET -------------------------------------------------------------------------------------------------------------


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
    if (
        type(node) is exp.Column
        and not flag(child(node), "quoted")
        and string_literal(child(node)).upper() == "DEFAULT"
    ):
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
        assigned(Term(f"interlock_single(s.{quoted_name(output.name)})", output.type), column)
        for output, column in zip(query.columns, columns, strict=True)
    ]
    text = f"(SELECT {', '.join(written)} FROM ({query.text}) AS s)"  # noqa: S608 - made of quoted names, literals and ?n alone
    return [(tuple(columns), text)]


def written_assignments(listed: Sequence[Assignment]) -> str:
    """The text of SET."""
    return ", ".join(
        f"{quoted_name(columns[0].name)} = {text}"
        if len(columns) == 1
        else f"({quoted_list(column.name for column in columns)}) = {text}"
        for columns, text in listed
    )


# --- WHERE and RETURNING ---------------------------------------------------------------------------------------------


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
    scope.add(replace(relation, written=quoted_name(table.name)))
    columns: list[ResultColumn] = []
    written: list[str] = []
    for item, alias in listed_items(listed, scope):
        with scope.at("RETURNING"):
            term = settled(expression(item, scope))
        name = alias or term.name or "?column?"
        columns.append(ResultColumn(name, term.type, checked=term.unchecked))
        written.append(f"{term.text} AS {quoted_name(name)}")
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


# --- ON CONFLICT -----------------------------------------------------------------------------------------------------
# PostgreSQL refuses to change one row twice in a statement, SQLite does not. So the keys of several rows are recorded
# while they are inserted, and the second row of a key raises (`registry.Upserts`). That is PostgreSQL's error whenever
# the first row was inserted or updated; if DO UPDATE has a condition, it may have been neither, and the refusal says
# so.


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
    action = string_literal(child(node, "action")).upper()
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
    return f"({', '.join(quoted_name(column.name) for column in columns)})"


# --- INSERT ----------------------------------------------------------------------------------------------------------


def insert(node: Node, translation: Translation) -> Change:
    """INSERT … VALUES, DEFAULT VALUES or SELECT, with ON CONFLICT and RETURNING."""
    only(node, "this", "expression", "conflict", "returning", "default", "with_")
    around = Scope(translation, place="INSERT")
    head = common_tables(maybe(node, "with_"), around, QUERIES)
    target = child(node)
    names: list[str] | None = None
    if type(target) is exp.Schema:
        only(target, "this", "expressions")
        names = [column_name(part) for part in children(target)]
        target = child(target)
    table, relation, text = target_table(target, translation)
    if names is not None and len(set(names)) != len(names):
        raise wrong("a column twice in INSERT.")
    # Without a list, values go to the first columns; a numbered one among them cannot be given.
    columns = [column.name for column in table.columns] if names is None else names
    conflict = maybe(node, "conflict")
    source = None
    if flag(node, "default") and names is not None:
        raise wrong("DEFAULT VALUES after a list of columns.", fix="Leave out the list, or write VALUES (DEFAULT, …).")
    if not flag(node, "default"):
        source = _source(node, table, columns, around, listed=names is not None, conflict=conflict is not None)
    text = f"{head}INSERT INTO {text} "
    if source is None:
        if conflict is not None:
            raise refuse("DEFAULT alone with ON CONFLICT.", fix="Write VALUES with the values.")
        text += "DEFAULT VALUES"
    elif conflict is None:
        text += f"{quoted_columns(source.columns)} {source.text}"
    else:
        rows, action = upsert(conflict, table, relation, translation, source)
        text += f"{quoted_columns(source.columns)} {rows}{action}"
    return returning(node, text, table, relation, translation)


def _source(
    node: Node, table: Table, columns: list[str], around: Scope, *, listed: bool, conflict: bool
) -> Source | None:
    """Return the source of the rows; None if they consist of defaults alone."""
    source = child(node, "expression")
    if type(source) is exp.Values:
        only(source, "expressions")
        return _values(children(source), table, columns, around, listed=listed)
    scope = Scope(around.translation, queries=around.queries, volatile=not conflict, place="INSERT … SELECT")
    query = draft(source, scope)
    if len(query.terms) > len(columns) or (listed and len(query.terms) != len(columns)):
        raise wrong(f"{len(query.terms)} values for {len(columns)} columns.")
    targets = [writable(table, name) for name in columns[: len(query.terms)]]
    if query.parts or query.rows:
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
    return Source(targets, query.write(), single=query.single)


def _selected(term: Term, column: Column, query: Draft) -> str:
    """A value that INSERT … SELECT assigns: PostgreSQL sorts and compares what was selected, then converts it."""
    text = assigned(term, column)
    same = term.type is UNKNOWN or (term.type.is_integer and column.type.is_integer)
    if (query.distinct or query.tail or query.first) and not same and text != term.text:
        raise refuse(
            f"{term.type} into a column of {column.type} by a SELECT with DISTINCT, ORDER BY or LIMIT.",
            why="It would be sorted and compared after the conversion.",
            fix=f"Convert it in the list: CAST(… AS {column.type}).",
        )
    return text


def _values(rows: list[Node], table: Table, columns: list[str], around: Scope, *, listed: bool) -> Source | None:
    scope = Scope(around.translation, queries=around.queries, volatile=True, place="VALUES")
    counts = {len(children(row)) for row in rows}
    if len(counts) != 1:
        raise wrong("VALUES with rows of different lengths.")
    [count] = counts
    if count > len(columns) or (listed and count != len(columns)):
        raise wrong(f"{count} values for {len(columns)} columns.", fix="Give each listed column one value.")
    used = [known_column(table, name) for name in columns[:count]]
    # A column that every row leaves to its default is left out, which also leaves its numbering to the database.
    kept = [place for place in range(count) if not all(_is_default(row, place) for row in rows)]
    if not kept:
        if len(rows) > 1:
            raise refuse("several rows of DEFAULT alone.", fix="Insert them one by one.")
        return None
    volatile: set[str] = set()
    written = [_row(row, [(place, used[place]) for place in kept], table, scope, volatile) for row in rows]
    chosen = [used[place] for place in kept]
    return Source(chosen, f"VALUES {', '.join(written)}", single=len(rows) == 1, volatile=frozenset(volatile))


def _row(row: Node, kept: Sequence[tuple[int, Column]], table: Table, scope: Scope, volatile: set[str]) -> str:
    if type(row) is not exp.Tuple:
        raise unsupported(row)
    only(row, "expressions")
    items = children(row)
    values: list[str] = []
    for place, column in kept:
        if _is_default(row, place):
            values.append(default_text(column))
            if "interlock_" in values[-1]:
                volatile.add(column.name)
            continue
        term = expression(items[place], scope)
        if term.volatile:
            volatile.add(column.name)
        values.append(assigned(term, writable(table, column.name)))
    return f"({', '.join(values)})"


def _is_default(row: Node, place: int) -> bool:
    item = children(row)[place]
    return type(item) is exp.Var and string_literal(item).upper() == "DEFAULT"


# --- UPDATE and DELETE -----------------------------------------------------------------------------------------------
# SQLite computes the values of an UPDATE row by row; only an UPDATE … FROM computes them all first. So an UPDATE whose
# SET has a subquery is given a FROM of one empty row. Which of several source rows an UPDATE … FROM uses is chance in
# both engines: unless one is proven to be the only one, they must agree on the values, and raise when they do not.

_FOUND = "interlock_found"


def update(node: Node, translation: Translation) -> Change:
    """UPDATE, with FROM or without."""
    only(node, "this", "expressions", "where", "returning", "from_", "with_")
    around = Scope(translation, place="UPDATE")
    head = common_tables(maybe(node, "with_"), around, QUERIES)
    table, relation, text = target_table(child(node), translation)
    scope = Scope(translation, queries=around.queries, volatile=True, place="UPDATE")
    source = maybe(node, "from_")
    if source is not None:
        only(source, "this")
        text, others = _update_from(node, child(source), (table, relation, text), scope)
        return returning(node, head + text, table, relation, translation, others)
    scope.add(relation)
    before = translation.subqueries
    listed = assignments(node, table, scope)
    first = " FROM (SELECT 1)" if translation.subqueries > before else ""
    text = f"{head}UPDATE {text} SET {written_assignments(listed)}{first}{condition(node, scope)}"  # noqa: S608 - made of quoted names, literals and ?n alone
    return returning(node, text, table, relation, translation)


def _update_from(
    node: Node, source: Node, target: tuple[Table, Relation, str], scope: Scope
) -> tuple[str, Sequence[Relation]]:
    table, relation, text = target
    scope.volatile = False
    written = _sources(source, scope)
    others = list(scope.relations)
    scope.add(relation)
    listed = assignments(node, table, scope)
    where = condition(node, scope)
    if _proven_only(node, others, relation, scope):
        return f"UPDATE {text} SET {written_assignments(listed)} FROM {written}{where}", others  # noqa: S608 - made of quoted names, literals and ?n alone
    if any(len(columns) > 1 for columns, _ in listed):
        raise refuse("SET (…) = (SELECT …) in an UPDATE … FROM.", fix="Assign each column on its own.")
    keys = _keys(table, relation)
    columns = [f"{key} AS k{place}" for place, key in enumerate(keys)]
    columns += [f"interlock_same({value}) AS v{place}" for place, (_, value) in enumerate(listed)]
    found = f"SELECT {', '.join(columns)} FROM {written}, {text}{where} GROUP BY {', '.join(keys)}"  # noqa: S608 - made of quoted names, literals and ?n alone
    values: list[Assignment] = [(columns, f"{_FOUND}.v{place}") for place, (columns, _) in enumerate(listed)]
    same = " AND ".join(f"{key} = {_FOUND}.k{place}" for place, key in enumerate(keys))
    return f"UPDATE {text} SET {written_assignments(values)} FROM ({found}) AS {_FOUND} WHERE {same}", others  # noqa: S608 - made of quoted names, literals and ?n alone


def _sources(node: Node, scope: Scope) -> str:
    """FROM or USING, where sqlglot puts the joins into the first relation."""
    joins = children(node, "joins")
    first = node.copy()
    first.set("joins", None)
    return sources(first, joins, scope, derived)


def _keys(table: Table, relation: Relation) -> list[str]:
    """Return the columns that identify the rows of a table."""
    if not table.primary_key:
        return [f"{relation.written}.rowid"]
    return [f"{relation.written}.{quoted_name(name)}" for name in table.primary_key]


def _proven_only(node: Node, others: Sequence[Relation], relation: Relation, scope: Scope) -> bool:
    """Return whether each row has one source row at most: its whole primary key is asked for."""
    where = maybe(node, "where")
    if where is None or len(others) != 1 or not others[0].primary_key:
        return False
    around = Scope(scope.translation, queries=scope.queries)
    around.add(relation)
    inner = Scope(scope.translation, parent=around, relations=list(others))
    key = {f"{others[0].written}.{quoted_name(name)}" for name in others[0].primary_key}
    return key <= fixed(child(where), inner)


def delete(node: Node, translation: Translation) -> Change:
    """DELETE, with USING or without."""
    only(node, "this", "where", "returning", "using", "with_")
    around = Scope(translation, place="DELETE")
    head = common_tables(maybe(node, "with_"), around, QUERIES)
    table, relation, text = target_table(child(node), translation)
    using = children(node, "using")
    scope = Scope(translation, queries=around.queries, volatile=not using, place="DELETE")
    if not using:
        scope.add(relation)
        text = f"{head}DELETE FROM {text}{condition(node, scope)}"  # noqa: S608 - made of quoted names, literals and ?n alone
        return returning(node, text, table, relation, translation)
    [first, *more] = using
    if more:
        raise refuse("DELETE … USING of tables side by side.", fix="Write CROSS JOIN.")
    written = _sources(first, scope)
    others = list(scope.relations)
    scope.add(relation)
    keys = ", ".join(_keys(table, relation))
    found = f"SELECT {keys} FROM {written}, {text}{condition(node, scope)}"  # noqa: S608 - made of quoted names, literals and ?n alone
    text = f"{head}DELETE FROM {text} WHERE ({keys}) IN ({found})"  # noqa: S608 - made of quoted names, literals and ?n alone
    return returning(node, text, table, relation, translation, others)
