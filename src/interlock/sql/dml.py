"""INSERT, UPDATE and DELETE, with WITH before them, ON CONFLICT and RETURNING after them.

PostgreSQL computes all values on the state before the statement; where SQLite would see rows that it has already
changed, the statement is written differently. SQLite has no DEFAULT inside VALUES: a column that all rows leave to its
default is left out, and where some rows do, the default is written out as the catalog has it. A sum that may overflow
is left to the column's CHECK, which SQLite evaluates anyway: that keeps `SET n = n + 1` free of function calls.

Sections: targets and assigned values, SET, WHERE and RETURNING, INSERT, ON CONFLICT, UPDATE and DELETE.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from interlock.sql.casts import convert, settled
from interlock.sql.expressions import expression, predicate
from interlock.sql.from_clause import sources, table_name, table_relation
from interlock.sql.parse import Body, Node, kind_of, names_of, only, quoted_list, quoted_name, split, walk
from interlock.sql.schema import Column, Table
from interlock.sql.scope import Relation, Scope, Term, Translation
from interlock.sql.select import Draft, common_tables, derived, draft, fixed, listed_items
from interlock.sql.types import INTEGER_RANGE, UNKNOWN, refuse, wrong
from interlock.sql.values import ResultColumn

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


def writable(table: Table, name: str) -> Column:
    """Return the column of that name, which must not be numbered by the database."""
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
        for (name, _), term in zip(pairs, terms, strict=True):
            column = writable(table, name)
            listed.append(((column,), default_text(column) if term is None else assigned(term, column)))
    names = [column.name for columns, _ in listed for column in columns]
    if len(set(names)) != len(names):
        raise wrong("a column is assigned twice.")
    return listed


def _part(source: Node, several: Body) -> Node:
    values = source["RowExpr"].get("args", [])
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
        written.append(f"{term.text} AS {quoted_name(item.name)}")
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
        unprefixed = not prefix and (is_star or names_of(fields)[-1] in columns)
        if unprefixed or (prefix and prefix[-1] in names):
            raise refuse(
                "RETURNING columns of another table than the changed one.",
                why="SQLite returns columns of the changed table alone.",
                fix="Return columns of the changed table, with its name before them; query the others in the same "
                "transact().",
            )


# --- INSERT ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Source:
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
    if body.get("override", "OVERRIDING_NOT_SET") != "OVERRIDING_NOT_SET":
        raise refuse("INSERT … OVERRIDING.", fix="Leave the numbered column out.")
    around = Scope(translation, place="INSERT")
    head = common_tables(body.get("withClause"), around)
    table, relation, target = target_table(body["relation"], translation)
    names: list[str] | None = None
    if "cols" in body:
        for node in body["cols"]:
            only("ResTarget", node["ResTarget"], "name")
        names = [node["ResTarget"]["name"] for node in body["cols"]]
        if len(set(names)) != len(names):
            raise wrong("a column twice in INSERT.")
    # Without a list, values go to the first columns; a numbered one among them cannot be given.
    columns = [column.name for column in table.columns] if names is None else names
    conflict = body.get("onConflictClause")
    source = None
    if "selectStmt" in body:
        query = body["selectStmt"]
        source = _source(query, table, columns, around, listed=names is not None, conflict=conflict is not None)
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


def _source(
    node: Node, table: Table, columns: list[str], around: Scope, *, listed: bool, conflict: bool
) -> Source | None:
    """Return the source of the rows; None if they consist of defaults alone."""
    body = node["SelectStmt"]
    if set(body) <= {"valuesLists", "limitOption", "op"}:
        return _values([row["List"]["items"] for row in body["valuesLists"]], table, columns, around, listed=listed)
    scope = Scope(around.translation, queries=around.queries, volatile=not conflict, place="INSERT … SELECT")
    query = draft(node, scope)
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
            Term(_selected(term, target, query), target.type) for term, target in zip(query.terms, targets, strict=True)
        ]
    return Source(targets, query.write(), single=query.single)


def _selected(term: Term, column: Column, query: Draft) -> str:
    """Return a value that INSERT … SELECT assigns: PostgreSQL sorts what was selected, then converts it."""
    text = assigned(term, column)
    same = term.type is UNKNOWN or (term.type.is_integer and column.type.is_integer)
    if (query.distinct or query.tail or query.first) and not same and text != term.text:
        raise refuse(
            f"{term.type} into a column of {column.type} by a SELECT with DISTINCT, ORDER BY or LIMIT.",
            why="It would be sorted and compared after the conversion.",
            fix=f"Convert it in the list: CAST(… AS {column.type}).",
        )
    return text


def _values(
    rows: Sequence[Sequence[Node]], table: Table, columns: list[str], around: Scope, *, listed: bool
) -> Source | None:
    scope = Scope(around.translation, queries=around.queries, volatile=True, place="VALUES")
    counts = {len(row) for row in rows}
    if len(counts) != 1:
        raise wrong("VALUES with rows of different lengths.")
    [count] = counts
    if count > len(columns) or (listed and count != len(columns)):
        raise wrong(f"{count} values for {len(columns)} columns.", fix="Give each listed column one value.")
    used = [known_column(table, name) for name in columns[:count]]
    # A column that every row leaves to its default is left out, which also leaves its numbering to the database.
    kept = [place for place in range(count) if not all(_is_default(row[place]) for row in rows)]
    if not kept:
        if len(rows) > 1:
            raise refuse("several rows of DEFAULT alone.", fix="Insert them one by one.")
        return None
    volatile: set[str] = set()
    written = [_row(row, [(place, used[place]) for place in kept], table, scope, volatile) for row in rows]
    chosen = [used[place] for place in kept]
    return Source(chosen, f"VALUES {', '.join(written)}", single=len(rows) == 1, volatile=frozenset(volatile))


def _row(
    row: Sequence[Node], kept: Sequence[tuple[int, Column]], table: Table, scope: Scope, volatile: set[str]
) -> str:
    # All values of a row are read before any is converted: that decides the type of a parameter that is used twice.
    terms = [None if _is_default(row[place]) else expression(row[place], scope) for place, _ in kept]
    values: list[str] = []
    for term, (_, column) in zip(terms, kept, strict=True):
        text = default_text(column) if term is None else assigned(term, writable(table, column.name))
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
    clause: Body, table: Table, relation: Relation, translation: Translation, source: Source
) -> tuple[str, str]:
    """Return the source as SQLite needs it, and the text of ON CONFLICT."""
    only("OnConflictClause", clause, "action", "infer", "targetList", "whereClause")
    infer = clause.get("infer", {})
    only("InferClause", infer, "indexElems", "whereClause", "conname")
    keys = _conflict_keys(infer, table)
    target = f" ({quoted_list(key.name for key in keys)})" if keys else ""
    if "whereClause" in infer:
        target += _partial(infer["whereClause"], relation, translation)
    # Without a WHERE, SQLite would take ON CONFLICT for the condition of a join.
    plain = source.text if source.text.startswith("VALUES ") else f"SELECT * FROM ({source.text}) WHERE 1"  # noqa: S608
    if clause["action"] == "ONCONFLICT_NOTHING":
        return plain, f" ON CONFLICT{target} DO NOTHING"
    if not keys:
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
    changed = {column.name for columns, _ in listed for column in columns}
    return _guarded(source, keys, changed, conditional="whereClause" in clause), text


def _conflict_keys(infer: Body, table: Table) -> list[Column]:
    if "conname" in infer:
        if infer["conname"] != f"{table.name}_pkey" or not table.primary_key:
            raise refuse(f"ON CONFLICT ON CONSTRAINT {infer['conname']}.", fix="Name its columns: ON CONFLICT (a, b).")
        return [known_column(table, name) for name in table.primary_key]
    keys: list[Column] = []
    for node in infer.get("indexElems", ()):
        element = node["IndexElem"]
        if element["ordering"] != "SORTBY_DEFAULT" or element["nulls_ordering"] != "SORTBY_NULLS_DEFAULT":
            raise wrong("ASC, DESC or NULLS in ON CONFLICT.", fix="Name the columns alone.")
        only("IndexElem", element, "name", "ordering", "nulls_ordering")
        keys.append(known_column(table, element["name"]))
    return keys


def _partial(node: Node, relation: Relation, translation: Translation) -> str:
    """Return the condition of a partial index, which SQLite compares with the index's own."""
    scope = Scope(translation, subqueries=False, place="ON CONFLICT … WHERE")
    scope.add(replace(relation, written=""))
    return f" WHERE {predicate(node, scope, 'ON CONFLICT … WHERE').checked.text}"


def _guarded(source: Source, keys: Sequence[Column], changed: set[str], *, conditional: bool) -> str:
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
    around = Scope(translation, place="UPDATE")
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
    around = Scope(translation, place="DELETE")
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
