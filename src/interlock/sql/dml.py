"""INSERT, UPDATE and DELETE, with WITH before them, ON CONFLICT and RETURNING after them.

PostgreSQL computes all values on the state before the statement; where SQLite would see rows that it has already
changed, the statement is written differently. SQLite has no DEFAULT inside VALUES: a column that all rows leave to its
default is left out, and where some rows do, the default is written out as the catalog has it. A sum that may overflow
is left to the column's CHECK, which SQLite evaluates anyway: that keeps `SET n = n + 1` free of function calls.

Sections: targets and assigned values, SET, WHERE and RETURNING, INSERT, ON CONFLICT, UPDATE and DELETE,
WITH that changes data.
"""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from interlock.sql.casts import convert, settled
from interlock.sql.expressions import expression, predicate
from interlock.sql.from_clause import column_texts, sources, table_name, table_relation
from interlock.sql.literals import text_literal
from interlock.sql.operators_and_functions import SEQUENCE_FUNCTIONS
from interlock.sql.parse import Body, Node, kind_of, names_of, only, quoted_list, quoted_name, split, walk
from interlock.sql.schema import Column, Constraint, Table, definition_parts, names_in, parts_of, sequence_of
from interlock.sql.scope import Output, Relation, Scope, Term, Translation
from interlock.sql.select import (
    QueryDraft,
    common_queries,
    common_tables,
    derived,
    draft,
    fixed,
    listed_items,
    written_with,
)
from interlock.sql.stored_values import ResultColumn, StatementStep, step
from interlock.sql.types import INTEGER_RANGE, UNKNOWN, collate, refuse, wrong

# --- Targets and assigned values -------------------------------------------------------------------------------------

Change = tuple[str, tuple[ResultColumn, ...]]
"""SQLite's statement, and the columns that it returns."""

Assignment = tuple[tuple[Column, ...], str]
"""The columns that are assigned together, and the text of their value: several only if one subquery gives them all."""


def assigned(term: Term, column: Column) -> str:
    """Return the text of a value for that column; what the column's CHECK verifies is not verified twice."""
    source = term.type
    value = convert(term, column.type, "assignment")
    if source.name in INTEGER_RANGE and column.type.is_integer and _narrower(source.name, column.type.name):
        return value.checked.text
    return value.text


def _narrower(source: str, target: str) -> bool:
    return INTEGER_RANGE[source][1] < INTEGER_RANGE[target][1]


def target_table(body: Body, translation: Translation) -> tuple[Table, Relation, str]:
    """Return the table that is changed, as a relation and as it is written."""
    name = table_name(body)
    alias = body.get("alias", {}).get("aliasname")
    relation = table_relation(name, alias, Scope(translation))
    text = quoted_name(name) if alias is None else f"{quoted_name(name)} AS {quoted_name(alias)}"
    return translation.table(name), relation, text


def known_column(table: Table, name: str) -> Column:
    """Return the column of that name, which must be there."""
    column = table.column(name)
    if column is None:
        raise wrong(f"the table {table.name!r} has no column {name!r}.")
    return column


def writable(table: Table, name: str, *, overriding: bool = False) -> Column:
    """Return the column of that name, which must not be numbered by the database always."""
    column = known_column(table, name)
    if column.sequence is not None and column.sequence.kind == "always" and not overriding:
        raise wrong(
            f"a value for {name!r}, which is GENERATED ALWAYS.",
            fix="Leave the column out, or write INSERT … OVERRIDING SYSTEM VALUE.",
        )
    if column.is_generated:
        raise wrong(f"a value for {name!r}, which is a generated column.", fix="Leave the column out, or use DEFAULT.")
    return column


def default_text(column: Column) -> str:
    """Return the value of DEFAULT; the catalog has it as SQLite's text already."""
    return "NULL" if column.default is None else f"({column.default})"


# A table of the first preview is numbered by SQLite, which does so for a key that is NULL or left out, and which does
# not evaluate a default there. So INSERT gives the key, always.


_DEFAULT: Node = {"SetToDefault": {}}


def _numbered_by_sqlite(table: Table) -> Column | None:
    return next((each for each in table.columns if each.sequence is not None and each.sequence.table), None)


def _checked_key(text: str, column: Column) -> str:
    """Return the value that an INSERT gives to a column."""
    if column.sequence is None or not column.sequence.table:
        return text
    return (
        f"interlock_explicit_key({text}, {text_literal(column.sequence.name)}, {text_literal(column.sequence.table)})"
    )


# --- SET -------------------------------------------------------------------------------------------------------------


def assignments(nodes: Sequence[Node], table: Table, scope: Scope) -> list[Assignment]:
    """Return SET, each column once."""
    pairs: list[tuple[str, Node]] = []
    listed: list[Assignment] = []
    with scope.at("SET"):
        for node in nodes:
            kind, body = split(node)
            only(kind, body, "name", "val")
            if kind_of(body["val"]) != "MultiAssignRef":
                pairs.append((body["name"], body["val"]))
                continue
            several = body["val"]["MultiAssignRef"]
            source: Node = several["source"]
            if kind_of(source) == "RowExpr":
                pairs.append((body["name"], _part(source, several)))
            elif several["colno"] == 1:
                place = nodes.index(node)
                names = [each["ResTarget"]["name"] for each in nodes[place : place + several["ncolumns"]]]
                listed += _several(names, source, table, scope)
        # All values are read before any is converted: that decides the type of a parameter that is used twice.
        terms = [None if kind_of(value) == "SetToDefault" else expression(value, scope) for _, value in pairs]
        for term in terms:
            if term is not None and term.failing is not None:
                raise term.failing  # PostgreSQL computes constants before the statement runs, and fails, too.
        for (name, _), term in zip(pairs, terms, strict=True):
            column = known_column(table, name) if term is None else writable(table, name)
            if column.is_generated:
                raise refuse(f"SET {name} = DEFAULT of a generated column.", fix="Leave it out: it follows the others.")
            listed.append(((column,), default_text(column) if term is None else assigned(term, column)))
    names = [column.name for columns, _ in listed for column in columns]
    if len(set(names)) != len(names):
        raise wrong("a column is assigned twice.")
    return listed


def _part(source: Node, several: Body) -> Node:
    values = source["RowExpr"].get("args", [])
    if any(kind_of(value) == "ColumnRef" and kind_of(value["ColumnRef"]["fields"][-1]) == "A_Star" for value in values):
        raise refuse("a whole row as a value.", fix="Name its columns.")
    if len(values) != several["ncolumns"]:
        raise wrong(f"{len(values)} values for {several['ncolumns']} columns.")
    part: Node = values[several["colno"] - 1]
    return part


def _several(names: Sequence[str], value: Node, table: Table, scope: Scope) -> list[Assignment]:
    """Return SET (a, b) = (SELECT …)."""
    columns = [writable(table, name) for name in names]
    kind, body = split(value)
    if kind != "SubLink":
        raise refuse("SET (…) = something else than a row or a subquery.", fix="Write (a, b) = (1, 2).")
    if not scope.subqueries:
        raise refuse(f"a subquery in {scope.place}.", fix="Query first, then pass the value as a parameter.")
    query = scope.translation.subquery(body["subselect"], scope)
    if len(query.columns) != len(columns):
        raise wrong(f"a subquery of {len(query.columns)} columns for {len(columns)}.")
    if len({output.name.lower() for output in query.columns}) != len(columns):
        raise refuse("a subquery with two columns of the same name.", fix="Give each column an alias of its own.")
    written = [
        assigned(Term(f"interlock_single(s.{quoted_name(output.name)})", output.type), column)
        for output, column in zip(query.columns, columns, strict=True)
    ]
    text = f"(SELECT {', '.join(written)} FROM ({query.text}) AS s)"  # noqa: S608 -- made of quoted names, literals and ?n
    return [(tuple(columns), text)]


def written_assignments(listed: Sequence[Assignment]) -> str:
    """Return the text of SET."""
    return ", ".join(
        f"{quoted_name(columns[0].name)} = {text}"
        if len(columns) == 1
        else f"({quoted_list(column.name for column in columns)}) = {text}"
        for columns, text in listed
    )


# --- WHERE and RETURNING ---------------------------------------------------------------------------------------------


def where(body: Body, scope: Scope) -> str:
    """Return WHERE, or nothing."""
    if "whereClause" not in body:
        return ""
    with scope.at("WHERE"):
        return f" WHERE {predicate(body['whereClause'], scope, 'WHERE').checked.text}"


def returning(
    body: Body, table: Table, relation: Relation, translation: Translation, sources: Sequence[Relation] = ()
) -> Change:
    """Return the text of RETURNING, or nothing, and the columns that it gives."""
    clause = body.get("returningClause")
    if clause is None:
        return "", ()
    only("ReturningClause", clause, "exprs")
    nodes = clause["exprs"]
    _refuse_sources(nodes, sources)
    # SQLite knows the table by its own name there, never by the alias.
    scope = Scope(translation, volatile=True, subqueries=False, place="RETURNING")
    scope.add(replace(relation, written=quoted_name(table.name)))
    columns: list[ResultColumn] = []
    written: list[str] = []
    for item in listed_items(nodes, scope):
        with scope.at("RETURNING"):
            term = settled(item.term(scope))
        columns.append(ResultColumn(item.name, term.type, checked=term.unchecked))
        # What a step returns goes on to another statement of SQLite, which verifies nothing.
        text = term.checked.text if translation.in_steps else term.text
        written.append(f"{text} AS {quoted_name(item.name)}")
    return f" RETURNING {', '.join(written)}", tuple(columns)


def _refuse_sources(nodes: Sequence[Node], sources: Sequence[Relation]) -> None:
    """Refuse columns of another table than the changed one: SQLite returns columns of the changed table alone."""
    if not sources:
        return
    names = {relation.name for relation in sources}
    columns = {output.name for relation in sources for output in relation.columns}
    for kind, body in walk(list(nodes)):
        if kind != "ColumnRef":
            continue
        fields = body["fields"]
        is_star = kind_of(fields[-1]) == "A_Star"
        prefix = names_of(fields[:-1])
        # The name of a relation alone is its whole row.
        unprefixed = not prefix and (is_star or names_of(fields)[-1] in columns | names)
        if unprefixed or (prefix and prefix[-1] in names):
            raise refuse(
                "RETURNING columns of another table than the changed one.",
                why="SQLite returns columns of the changed table alone.",
                fix="Return columns of the changed table, with its name before them; query the others in the same "
                "transact().",
            )


# --- INSERT ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class InsertSource:
    """The rows of an INSERT: a query for the columns, and whether it is proven to give one row at most."""

    columns: Sequence[Column]
    text: str
    single: bool
    volatile: frozenset[str] = frozenset()
    """The columns whose values are random."""


def insert(body: Body, translation: Translation) -> Change:
    """Translate INSERT … VALUES, DEFAULT VALUES or SELECT."""
    only(
        "InsertStmt", body, "relation", "cols", "selectStmt", "onConflictClause", "returningClause", "withClause",
        "override",
    )  # fmt: skip
    override = body.get("override", "OVERRIDING_NOT_SET")
    if override == "OVERRIDING_USER_VALUE":
        raise refuse("INSERT … OVERRIDING USER VALUE.", fix="Leave the numbered column out.")
    around = Scope(translation, queries=dict(translation.around), place="INSERT")
    head = common_tables(body.get("withClause"), around)
    table, relation, target = target_table(body["relation"], translation)
    names: list[str] | None = None
    if "cols" in body:
        for node in body["cols"]:
            only("ResTarget", node["ResTarget"], "name")
        names = [node["ResTarget"]["name"] for node in body["cols"]]
        if len(set(names)) != len(names):
            raise wrong("a column twice in INSERT.")
    # Without a list, values go to the first columns.
    columns = [column.name for column in table.columns] if names is None else names
    conflict = body.get("onConflictClause")
    source = None
    if "selectStmt" in body:
        query = body["selectStmt"]
        into = _Target(table, columns, names is not None, override == "OVERRIDING_SYSTEM_VALUE")
        source = _source(query, into, around, conflict=conflict is not None)
    number = _numbered_by_sqlite(table)
    if source is None and number is not None:
        source = InsertSource([number], f"VALUES ({default_text(number)})", single=True)
    text = f"{head}INSERT INTO {target} "
    if source is None:
        if conflict is not None:
            raise refuse("DEFAULT alone with ON CONFLICT.", fix="Write VALUES with the values.")
        text += "DEFAULT VALUES"
    else:
        rows, action = (
            (source.text, "") if conflict is None else _upsert(conflict, table, relation, translation, source)
        )
        text += f"({quoted_list(column.name for column in source.columns)}) {rows}{action}"
    ending, returned = returning(body, table, relation, translation)
    return text + ending, returned


@dataclass(frozen=True, slots=True)
class _Target:
    """Where an INSERT puts values: the columns that it lists, or else all of the table."""

    table: Table
    columns: list[str]
    listed: bool
    overriding: bool
    """Whether it may give values to columns that are GENERATED ALWAYS."""

    def column(self, name: str) -> Column:
        return writable(self.table, name, overriding=self.overriding)


def _source(node: Node, into: _Target, around: Scope, *, conflict: bool) -> InsertSource | None:
    """Return the source of the rows; None if they consist of defaults alone."""
    body = node["SelectStmt"]
    if set(body) <= {"valuesLists", "limitOption", "op"}:
        return _values([row["List"]["items"] for row in body["valuesLists"]], into, around)
    columns, listed = into.columns, into.listed
    scope = Scope(around.translation, queries=around.queries, volatile=not conflict, place="INSERT … SELECT")
    query = draft(node, scope)
    if len(query.terms) > len(columns) or (listed and len(query.terms) != len(columns)):
        raise wrong(f"{len(query.terms)} values for {len(columns)} columns.")
    targets = [into.column(name) for name in columns[: len(query.terms)]]
    outer = _conversions(query, targets)
    number = _numbered_by_sqlite(into.table)
    names = [f"c{place}" for place in range(len(targets))]
    if number is None and outer == names:
        return InsertSource(targets, query.write(), single=query.single)
    # Numbers are given, and values converted, in the order of the rows, so after they are sorted.
    outer = [_checked_key(text, target) for text, target in zip(outer, targets, strict=True)]
    if number is not None and number not in targets:
        targets, outer = [*targets, number], [*outer, default_text(number)]
    rows = f"WITH interlock_sorted ({', '.join(names)}) AS MATERIALIZED ({query.write()}) "
    text = f"{rows}SELECT {', '.join(outer)} FROM interlock_sorted"  # noqa: S608 -- made of quoted names
    return InsertSource(targets, text, single=query.single)


def _conversions(query: QueryDraft, targets: Sequence[Column]) -> list[str]:
    """Convert the columns of a query for their targets; return what is left to convert around it, as c0, c1, ….

    PostgreSQL sorts and compares what was selected, then converts it.
    """
    outer: list[str] = []
    if query.parts or query.rows:
        kinds = [
            target.type.plain if kind is UNKNOWN else kind for target, kind in zip(targets, query.types, strict=True)
        ]
        query.give_types(kinds)
        for place, (kind, target) in enumerate(zip(query.types, targets, strict=True)):
            outer.append(assigned(Term(f"c{place}", kind), target))
        return outer
    apart = bool(query.distinct or query.tail or query.first)
    terms: list[Term] = []
    for place, (term, target) in enumerate(zip(query.terms, targets, strict=True)):
        text = assigned(term, target)
        same = term.type is UNKNOWN or (term.type.is_integer and target.type.is_integer)
        if apart and not same and text != term.text:
            terms.append(term.checked)
            outer.append(assigned(Term(f"c{place}", term.type), target))
        else:
            terms.append(Term(text, target.type))
            outer.append(f"c{place}")
    query.terms = terms
    return outer


def _values(rows: Sequence[Sequence[Node]], into: _Target, around: Scope) -> InsertSource | None:
    columns, table = into.columns, into.table
    scope = Scope(around.translation, queries=around.queries, volatile=True, place="VALUES")
    counts = {len(row) for row in rows}
    if len(counts) != 1:
        raise wrong("VALUES with rows of different lengths.")
    [count] = counts
    if count > len(columns) or (into.listed and count != len(columns)):
        raise wrong(f"{count} values for {len(columns)} columns.", fix="Give each listed column one value.")
    used = [known_column(table, name) for name in columns[:count]]
    number = _numbered_by_sqlite(table)
    if number is not None and number not in used:
        used, rows = [*used, number], [[*row, _DEFAULT] for row in rows]
    # A column that every row leaves to its default is left out.
    kept = [place for place in range(len(used)) if not all(_is_default(row[place]) for row in rows)]
    if number is not None and used.index(number) not in kept:
        kept.append(used.index(number))
    if not kept:
        if len(rows) == 1:
            return None
        kept = [0]
    volatile: set[str] = set()
    written = [_row(row, [(place, used[place]) for place in kept], into, scope, volatile) for row in rows]
    chosen = [used[place] for place in kept]
    return InsertSource(chosen, f"VALUES {', '.join(written)}", single=len(rows) == 1, volatile=frozenset(volatile))


def _row(
    row: Sequence[Node], kept: Sequence[tuple[int, Column]], into: _Target, scope: Scope, volatile: set[str]
) -> str:
    # All values of a row are read before any is converted: that decides the type of a parameter that is used twice.
    terms = [None if _is_default(row[place]) else expression(row[place], scope) for place, _ in kept]
    values: list[str] = []
    for term, (_, column) in zip(terms, kept, strict=True):
        text = default_text(column) if term is None else _checked_key(assigned(term, into.column(column.name)), column)
        if "interlock_" in text if term is None else term.volatile:
            volatile.add(column.name)
        values.append(text)
    return f"({', '.join(values)})"


def _is_default(node: Node) -> bool:
    return kind_of(node) == "SetToDefault"


# --- ON CONFLICT -----------------------------------------------------------------------------------------------------
# PostgreSQL refuses to change one row twice in a statement, SQLite does not. So the keys of several rows are recorded
# while they are inserted, and the second row of a key raises (`guards.Upserts`). That is PostgreSQL's error whenever
# the first row was inserted or updated; if DO UPDATE has a condition, it may have been neither, and the refusal says
# so.


def _upsert(
    clause: Body, table: Table, relation: Relation, translation: Translation, source: InsertSource
) -> tuple[str, str]:
    """Return the source as SQLite needs it, and the text of ON CONFLICT."""
    only("OnConflictClause", clause, "action", "infer", "targetList", "whereClause")
    infer = clause.get("infer", {})
    only("InferClause", infer, "indexElems", "whereClause", "conname")
    keys = _conflict_keys(infer, table)
    computed = _conflict_expressions(infer, relation, translation)
    listed_keys = [*(quoted_name(key.name) for key in keys), *computed]
    target = f" ({', '.join(listed_keys)})" if listed_keys else ""
    if "whereClause" in infer:
        if computed:
            raise refuse("ON CONFLICT of an expression with WHERE.", fix="Use an index without WHERE.")
        condition = _partial(infer["whereClause"], relation, translation)
        _check_partial(keys, condition, table)
        target += condition
    # Without a WHERE, SQLite would take ON CONFLICT for the condition of a join.
    plain = source.text if source.text.startswith("VALUES ") else f"SELECT * FROM ({source.text}) WHERE 1"  # noqa: S608
    if clause["action"] == "ONCONFLICT_NOTHING":
        return plain, f" ON CONFLICT{target} DO NOTHING"
    if not listed_keys:
        raise refuse("ON CONFLICT DO UPDATE without columns.", fix="Write ON CONFLICT (column) DO UPDATE SET …")
    scope = Scope(translation, volatile=True, subqueries=False, place="DO UPDATE")
    scope.add(relation)
    scope.add(replace(relation, name="excluded", written="excluded"))
    listed = assignments(clause["targetList"], table, scope)
    text = f" ON CONFLICT{target} DO UPDATE SET {written_assignments(listed)}{where(clause, scope)}"
    if source.single:
        return plain, text
    if "whereClause" in infer:
        raise refuse("ON CONFLICT (…) WHERE … DO UPDATE with several rows.", fix="Insert one row per statement.")
    if computed:
        raise refuse("ON CONFLICT of an expression DO UPDATE with several rows.", fix="Insert one row per statement.")
    changed = {column.name for columns, _ in listed for column in columns}
    return _guarded(source, keys, changed, conditional="whereClause" in clause), text


def _conflict_keys(infer: Body, table: Table) -> list[Column]:
    if "conname" in infer:
        return [known_column(table, name) for name in _constraint_columns(infer["conname"], table)]
    keys: list[Column] = []
    for node in infer.get("indexElems", ()):
        element = node["IndexElem"]
        if element["ordering"] != "SORTBY_DEFAULT" or element["nulls_ordering"] != "SORTBY_NULLS_DEFAULT":
            raise wrong("ASC, DESC or NULLS in ON CONFLICT.", fix="Name the columns alone.")
        only("IndexElem", element, "name", "expr", "ordering", "nulls_ordering")
        if "name" in element:
            keys.append(known_column(table, element["name"]))
    return list(dict.fromkeys(keys))


def _conflict_expressions(infer: Body, relation: Relation, translation: Translation) -> list[str]:
    """Return the expressions of a unique index, which SQLite compares with those of the index itself."""
    scope = Scope(translation, subqueries=False, place="ON CONFLICT (…)")
    scope.add(replace(relation, written=""))
    nodes = [node["IndexElem"]["expr"] for node in infer.get("indexElems", ()) if "expr" in node["IndexElem"]]
    terms = [expression(node, scope) for node in nodes]
    if any(term.parameter or "?" in term.text for term in terms):
        raise wrong("a parameter in the expression of ON CONFLICT.", fix="Write the expression of the index.")
    return [f"({term.checked.text}){collate(term.type)}" for term in terms]


def _constraint_columns(name: str, table: Table) -> tuple[str, ...]:
    """Return the columns of a primary key or a unique constraint by its name."""
    found = {each.name: each for each in definition_parts(table.definition)[1]}.get(name)
    if found is None and name == f"{table.name}_pkey" and table.primary_key:
        return table.primary_key
    if found is None or found.kind not in {"PRIMARY KEY", "UNIQUE"}:
        raise wrong(f"{name!r} is not a key or a unique constraint of {table.name!r}.", fix="Name the columns.")
    return found.columns


def _partial(node: Node, relation: Relation, translation: Translation) -> str:
    """Return the condition of a partial index, which SQLite compares with the index's own."""
    scope = Scope(translation, subqueries=False, place="ON CONFLICT … WHERE")
    scope.add(replace(relation, written=""))
    return f" WHERE {predicate(node, scope, 'ON CONFLICT … WHERE').checked.text}"


def _check_partial(keys: Sequence[Column], condition: str, table: Table) -> None:
    """Refuse a condition that is not that of an index: PostgreSQL takes one that implies it, SQLite does not."""
    names = {key.name for key in keys}
    indexes = [text for _, text in table.indexes if text.startswith("CREATE UNIQUE ") and ") WHERE " in text]
    found = [text for text in indexes if {name for part in parts_of(text) for name in names_in(part)} == names]
    if found and not any(text.endswith(condition) for text in found):
        raise refuse(
            f"ON CONFLICT ({', '.join(sorted(names))}) WHERE … with another condition than that of the index.",
            why="A lane does not prove that one condition implies another.",
            fix="Write the condition of CREATE UNIQUE INDEX.",
        )


def _guarded(source: InsertSource, keys: Sequence[Column], changed: set[str], *, conditional: bool) -> str:
    """Return the rows, the key of each recorded."""
    places = {column.name: place for place, column in enumerate(source.columns)}
    for key in keys:
        if key.name not in places or key.name in changed or key.name in source.volatile:
            raise refuse(
                f"ON CONFLICT ({key.name}) DO UPDATE with several rows, where {key.name!r} is left out, random or set.",
                why="Whether a row is affected twice could not be checked.",
                fix="Insert one row per statement, inside transact() if they belong together.",
            )
    for key in keys:
        if key.type.collation not in {None, "interlock_numeric"}:
            # Equal values of these types have several forms, and the guard compares the stored form.
            raise refuse(
                f"ON CONFLICT ({key.name}) DO UPDATE with several rows and a key of {key.type}.",
                fix="Insert one row per statement, inside transact() if they belong together.",
            )
    kinds = "".join("n" if key.type.name == "numeric" else "v" for key in keys)
    listed_keys = ", ".join(f"c{places[key.name]}" for key in keys)
    guard = f"interlock_propose((SELECT interlock_begin_upsert()), {int(conditional)}, '{kinds}', {listed_keys})"
    listed = [guard if column.name == keys[0].name else f"c{place}" for place, column in enumerate(source.columns)]
    names = ", ".join(f"c{place}" for place in range(len(source.columns)))
    return f"WITH interlock_rows ({names}) AS ({source.text}) SELECT {', '.join(listed)} FROM interlock_rows WHERE 1"  # noqa: S608


# --- UPDATE and DELETE -----------------------------------------------------------------------------------------------
# SQLite computes the values of an UPDATE row by row; only an UPDATE … FROM computes them all first. So an UPDATE whose
# SET has a subquery is given a FROM of one empty row. Which of several source rows an UPDATE … FROM uses is chance in
# both engines: unless one is proven to be the only one, they must agree on the values, and raise when they do not.

_FOUND = "interlock_found"


def update(body: Body, translation: Translation) -> Change:
    """Translate UPDATE, with FROM or without. PostgreSQL reads WHERE and RETURNING before SET."""
    only("UpdateStmt", body, "relation", "targetList", "whereClause", "fromClause", "returningClause", "withClause")
    around = Scope(translation, queries=dict(translation.around), place="UPDATE")
    head = common_tables(body.get("withClause"), around)
    table, relation, target = target_table(body["relation"], translation)
    scope = Scope(translation, queries=around.queries, volatile=True, place="UPDATE")
    if "fromClause" in body:
        return _update_from(body, head, (table, relation, target), scope)
    scope.add(relation)
    test = where(body, scope)
    ending, returned = returning(body, table, relation, translation)
    before = translation.subqueries
    listed = assignments(body["targetList"], table, scope)
    first = " FROM (SELECT 1)" if translation.subqueries > before else ""
    return f"{head}UPDATE {target} SET {written_assignments(listed)}{first}{test}{ending}", returned  # noqa: S608


def _update_from(body: Body, head: str, target: tuple[Table, Relation, str], scope: Scope) -> Change:
    table, relation, text = target
    scope.volatile = False
    scope.check_shadow(table.name, None)
    written = sources(body["fromClause"], scope, derived)
    others = list(scope.relations)
    scope.add(relation)
    test = where(body, scope)
    ending, returned = returning(body, table, relation, scope.translation, others)
    listed = assignments(body["targetList"], table, scope)
    if _proven_only(body, others, relation, scope):
        return f"{head}UPDATE {text} SET {written_assignments(listed)} FROM {written}{test}{ending}", returned  # noqa: S608
    if any(len(columns) > 1 for columns, _ in listed):
        raise refuse("SET (…) = (SELECT …) in an UPDATE … FROM.", fix="Assign each column on its own.")
    keys = _row_keys(table, relation)
    columns = [f"{key} AS k{place}" for place, key in enumerate(keys)]
    columns += [f"interlock_same({value}) AS v{place}" for place, (_, value) in enumerate(listed)]
    found = f"SELECT {', '.join(columns)} FROM {written}, {text}{test} GROUP BY {', '.join(keys)}"  # noqa: S608
    values: list[Assignment] = [(columns, f"{_FOUND}.v{place}") for place, (columns, _) in enumerate(listed)]
    same = " AND ".join(f"{key} = {_FOUND}.k{place}" for place, key in enumerate(keys))
    changed = f"UPDATE {text} SET {written_assignments(values)} FROM ({found}) AS {_FOUND} WHERE {same}"  # noqa: S608
    return f"{head}{changed}{ending}", returned


def _row_keys(table: Table, relation: Relation) -> list[str]:
    """Return the columns that identify the rows of a table."""
    if not table.primary_key:
        return [f"{relation.written}.rowid"]
    return [f"{relation.written}.{quoted_name(name)}" for name in table.primary_key]


def _proven_only(body: Body, others: Sequence[Relation], relation: Relation, scope: Scope) -> bool:
    """Return whether each row has one source row at most: its whole primary key is asked for."""
    if "whereClause" not in body or len(others) != 1 or not others[0].primary_key:
        return False
    around = Scope(scope.translation, queries=scope.queries)
    around.add(relation)
    inner = Scope(scope.translation, parent=around, relations=list(others))
    key = {f"{others[0].written}.{quoted_name(name)}" for name in others[0].primary_key}
    return key <= fixed(body["whereClause"], inner)


def delete(body: Body, translation: Translation) -> Change:
    """Translate DELETE, with USING or without."""
    only("DeleteStmt", body, "relation", "whereClause", "usingClause", "returningClause", "withClause")
    around = Scope(translation, queries=dict(translation.around), place="DELETE")
    head = common_tables(body.get("withClause"), around)
    table, relation, target = target_table(body["relation"], translation)
    using = body.get("usingClause", ())
    scope = Scope(translation, queries=around.queries, volatile=not using, place="DELETE")
    if not using:
        scope.add(relation)
        test = where(body, scope)
        ending, returned = returning(body, table, relation, translation)
        return f"{head}DELETE FROM {target}{test}{ending}", returned  # noqa: S608
    scope.check_shadow(table.name, None)
    written = sources(using, scope, derived)
    others = list(scope.relations)
    scope.add(relation)
    keys = ", ".join(_row_keys(table, relation))
    found = f"SELECT {keys} FROM {written}, {target}{where(body, scope)}"  # noqa: S608
    ending, returned = returning(body, table, relation, translation, others)
    return f"{head}DELETE FROM {target} WHERE ({keys}) IN ({found}){ending}", returned  # noqa: S608


# --- WITH that changes data ------------------------------------------------------------------------------------------
# PostgreSQL runs all parts of such a statement on the state before it, in an order of its own. SQLite runs them as
# statements, one after the other, and the rows of each are a parameter of those after it. The result is the same as
# long as no part reads or changes what an earlier one has changed. A query of WITH that reads a changed table runs
# first. Foreign keys are verified by SQLite after each part, and by PostgreSQL after the last: parts whose order could
# matter to a key are refused.

_ANY: Final = "*"
_COMMANDS: Final = {"InsertStmt": "INSERT", "UpdateStmt": "UPDATE", "DeleteStmt": "DELETE"}


@dataclass(frozen=True, slots=True)
class _Part:
    """One part of the statement: what it reads and what it changes."""

    command: str
    table: str
    reads: frozenset[str]
    changes: frozenset[str] = frozenset()
    """Its table, and those that references change with it."""
    columns: frozenset[str] = frozenset()
    """The columns that an UPDATE sets."""
    conflicts: bool = False
    """Whether an INSERT has ON CONFLICT."""
    sequences: frozenset[str] = frozenset()
    """The sequences of its defaults; `_ANY` for those that it names itself."""


def has_steps(body: Body) -> bool:
    """Return whether a query of WITH changes data."""
    listed = body.get("withClause", {}).get("ctes", ())
    return any(kind_of(node["CommonTableExpr"]["ctequery"]) != "SelectStmt" for node in listed)


def in_steps(node: Node, translation: Translation, translate: Callable[[Node, Translation], Change]) -> Change:
    """Translate a statement whose WITH changes data: everything but its last part is a step of the translation."""
    kind, body = split(node)
    clause: Body = body["withClause"]
    only("WithClause", clause, "ctes", "recursive")
    queries: list[Body] = [each["CommonTableExpr"] for each in clause["ctes"]]
    parts = [(query, _effects(query["ctequery"], translation)) for query in queries]
    steps = _Steps(translation, translate, frozenset[str]().union(*(part.changes for _, part in parts)))
    steps.place = max((found.get("number", 0) for name, found in walk(node) if name == "ParamRef"), default=0)
    translation.in_steps = True
    translation.tables.update(translation.schema.tables)  # References of all tables decide what is changed.
    for query, part in parts:
        if part.table:
            steps.change(query, part)
        else:
            steps.query({**clause, "ctes": [{"CommonTableExpr": query}]}, query["ctename"], part)
    rest: Body = {field: value for field, value in body.items() if field != "withClause"}
    text, columns = translate({kind: rest}, translation)
    last = _effects({kind: rest}, translation)
    # What reads a changed table runs before all changes.
    ordered = sorted(steps.parts, key=lambda pair: bool(pair[0].table))
    _check_parts([*(part for part, _ in ordered), steps.resolved(last)], translation)
    translation.steps += [each for _, each in ordered]
    return written_with(steps.common) + text, columns


@dataclass(slots=True)
class _Steps:
    """The queries of WITH, as far as they are translated."""

    translation: Translation
    translate: Callable[[Node, Translation], Change]
    changed: frozenset[str]
    place: int = 0
    """The highest parameter so far."""
    common: list[str] = field(default_factory=list[str])
    reads: dict[str, frozenset[str]] = field(default_factory=dict[str, frozenset[str]])
    """The tables that each query reads while it is evaluated as a part of another one."""
    following: set[str] = field(default_factory=set[str])
    """The queries that need the rows of a change."""
    parts: list[tuple[_Part, StatementStep]] = field(default_factory=list[tuple[_Part, StatementStep]])

    def resolved(self, part: _Part) -> _Part:
        """Return the part with the tables that it reads through other queries of WITH."""
        return replace(part, reads=frozenset[str]().union(*(self.reads.get(name, {name}) for name in part.reads)))

    def change(self, query: Body, part: _Part) -> None:
        """Add a query that changes data."""
        only("CommonTableExpr", query, "ctename", "aliascolnames", "ctematerialized", "ctequery")
        name: str = query["ctename"]
        if "withClause" in split(query["ctequery"])[1]:
            raise refuse(f"WITH inside the WITH query {name!r}.", fix="Write its queries before it, in the same WITH.")
        if name in self.reads:
            raise wrong(f"the WITH query {name!r} is defined twice.")
        if name.lower() == "json_each":
            raise refuse(f"the WITH query {name!r}, a name that SQLite reads otherwise.", fix="Rename it.")
        if name.lower() in {known.lower() for known in self.reads}:
            raise refuse(f"the WITH query {name!r} differs from another one in case alone.", fix="Rename it.")
        text, columns = self.translate(query["ctequery"], self.translation)
        names = names_of(query.get("aliascolnames", ()))
        if len(names) > len(columns):
            raise wrong(f"{len(names)} names for {len(columns)} columns of {name!r}.")
        names += [column.name for column in columns[len(names) :]]
        if len({known.lower() for known in names}) != len(names):
            raise refuse(f"two columns of the same name in {name!r}.", fix="Give each column an alias of its own.")
        outputs = [Output(known, column.type) for known, column in zip(names, columns, strict=True)]
        self.following.add(name)
        self._add(name, tuple(outputs), part, text)

    def query(self, clause: Body, name: str, part: _Part) -> None:
        """Add a query that reads: what reads a changed table is a step of its own, run before the changes."""
        if name in self.reads:
            raise wrong(f"the WITH query {name!r} is defined twice.")
        scope = Scope(self.translation, queries=dict(self.translation.around), place="WITH")
        [written] = common_queries(clause, scope)
        relation = scope.queries[name]
        if part.reads & self.following:
            self.following.add(name)
        tables = self.resolved(part).reads
        if not tables & self.changed:
            self.common.append(written)
            self.reads[name], self.translation.around[name] = tables, relation
            return
        if name in self.following:
            raise _reads_change(tables & self.changed)
        self._add(name, relation.columns, part, f"SELECT * FROM {quoted_name(name)}", written)  # noqa: S608

    def _add(self, name: str, outputs: tuple[Output, ...], part: _Part, text: str, *own: str) -> None:
        self.place += 1
        self.parts.append((self.resolved(part), step(written_with([*self.common, *own]) + text, self.place)))
        self.reads[name] = frozenset()
        self.translation.around[name] = Relation(name, outputs, quoted_name(name))
        if outputs:
            texts = ", ".join(column_texts(outputs, "json_each"))
            listed = quoted_list(output.name for output in outputs)
            self.common.append(f"{quoted_name(name)} ({listed}) AS (SELECT {texts} FROM json_each(?{self.place}))")  # noqa: S608


def _effects(node: Node, translation: Translation) -> _Part:
    kind, body = split(node)
    reads = frozenset(found["relname"] for name, found in walk(body) if name == "RangeVar")
    calls = (names_of(found["funcname"])[-1] for name, found in walk(body) if name == "FuncCall")
    sequences = frozenset({_ANY} if SEQUENCE_FUNCTIONS & set(calls) else ())
    if kind not in _COMMANDS:
        return _Part("SELECT", "", reads, sequences=sequences)
    command, table = _COMMANDS[kind], translation.table(table_name(body["relation"]))
    columns = frozenset[str]()
    if command == "UPDATE":
        columns = frozenset(each["ResTarget"]["name"] for each in body["targetList"])
    if command == "INSERT" or any(name == "SetToDefault" for name, _ in walk(body)):
        sequences |= {each.name for column in table.columns if (each := sequence_of(column.default or ""))}
    part = _Part(command, table.name, reads, frozenset({table.name}), columns, "onConflictClause" in body, sequences)
    return replace(part, changes=_changed_with(part, translation))


def _changed_with(part: _Part, translation: Translation) -> frozenset[str]:
    """Return the tables that a part changes: its own, and those that a reference changes with it."""
    keys = [(table.name, key) for table in translation.schema.tables.values() for key in _references(table)]
    found = {name for name, key in keys if key.table == part.table and _passes_on(key, part)}
    changed = {part.table}
    while found:
        changed |= found
        # A row that a reference changes may be deleted or get another key: every action passes it on.
        found = {name for name, key in keys if key.table in found and _has_action(key, "DELETE", "UPDATE")} - changed
    return frozenset(changed)


def _passes_on(key: Constraint, part: _Part) -> bool:
    """Return whether a reference changes its own table with the one that it refers to."""
    if part.command == "DELETE":
        return _has_action(key, "DELETE")
    changes_key = part.conflicts or bool(part.columns & set(key.key)) or (not key.key and bool(part.columns))
    return changes_key and _has_action(key, "UPDATE")


def _has_action(key: Constraint, *events: str) -> bool:
    return any(f" ON {event} {word}" in key.text for event in events for word in ("CASCADE", "SET"))


def _references(table: Table) -> list[Constraint]:
    if not table.references:
        return []
    return [each for each in definition_parts(table.definition)[1] if each.kind == "FOREIGN KEY"]


def _reads_change(tables: Collection[str]) -> Exception:
    return refuse(
        f"a statement whose WITH changes {', '.join(sorted(tables))}, which a later part reads or changes, too.",
        why="PostgreSQL runs all parts on the state before the statement.",
        fix="Read the table in a WITH query of its own, or run the statements one by one inside transact().",
    )


def _check_parts(parts: Sequence[_Part], translation: Translation) -> None:
    """Refuse parts whose result depends on their order, which PostgreSQL does not promise."""
    for place, first in enumerate(parts):
        for second in parts[place + 1 :]:
            if first.changes & second.reads:
                raise _reads_change(first.changes & second.reads)
            if first.changes & second.changes and not _is_independent(first, second, translation):
                raise _reads_change(first.changes & second.changes)
            _check_keys(first, second, translation)
            shared = first.sequences & second.sequences or _ANY in first.sequences | second.sequences
            if first.sequences and second.sequences and shared:
                raise refuse(
                    "two parts of one statement that take numbers of the same sequence, or name a sequence.",
                    why="Which of them PostgreSQL runs first is not promised.",
                    fix="Run the statements one by one inside transact().",
                )


def _is_independent(first: _Part, second: _Part, translation: Translation) -> bool:
    """Return whether two changes of one table cannot meet.

    These are new rows after new rows or after other columns' values, and deleted rows that references delete, too.
    """
    if first.command == second.command == "DELETE":
        return second.table not in first.changes
    if second.command != "INSERT" or second.conflicts or first.conflicts or first.table != second.table:
        return False
    table = translation.table(second.table)
    if first.command == "INSERT":
        return not any(column.sequence for column in table.columns)
    if first.command != "UPDATE":
        return False
    keys = {name for each in definition_parts(table.definition)[1] if each.kind != "CHECK" for name in each.columns}
    keys.update(table.primary_key, *(names_in(text) for _, text in table.indexes))
    return not keys & first.columns


def _check_keys(first: _Part, second: _Part, translation: Translation) -> None:
    for one, other, is_first in ((first, second, True), (second, first, False)):
        keys = [(name, key) for name in sorted(one.changes) for key in _references(translation.table(name))]
        for name, key in keys:
            if key.table not in other.changes:
                continue
            if key.table == other.table and one.command == other.command == "DELETE" and _has_action(key, "DELETE"):
                continue  # Whichever row is deleted first, the reference goes with it.
            refers = _touches(one, name, key.columns, translation)
            target = _touches(other, key.table, key.key or translation.table(key.table).primary_key, translation)
            in_order = (one.command == "DELETE" and is_first) or (other.command == "INSERT" and not is_first)
            if one.command == "DELETE" and other.command == "INSERT":
                in_order = True
            if refers and target and not (in_order and not (one.conflicts or other.conflicts)):
                raise refuse(
                    f"changes of {name} and of {key.table}, to which it refers, in one statement in this order.",
                    why="A lane verifies a reference after each part, PostgreSQL after all of them.",
                    fix="Insert the rows that are referred to first, delete them last; or use transact().",
                )


def _touches(part: _Part, table: str, columns: Sequence[str], translation: Translation) -> bool:
    """Return whether a part adds or deletes rows of a table, or sets one of these columns, also by references."""
    if table == part.table and (part.command != "UPDATE" or part.columns & set(columns)):
        return True
    keys = [key for key in _references(translation.table(table)) if key.table in part.changes]
    if part.command == "DELETE" and any(" ON DELETE CASCADE" in key.text for key in keys):
        return True
    return any(_has_action(key, "DELETE", "UPDATE") and set(columns) & set(key.columns) for key in keys)
