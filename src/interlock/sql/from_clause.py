"""FROM: tables, common table expressions, subqueries and functions, and the joins between them.

A comma binds more loosely than JOIN in PostgreSQL and like it in SQLite, so a RIGHT or FULL JOIN after a comma, which
would take in what stands before it, is refused. USING and NATURAL are written out as conditions; what their columns
mean without a relation is decided in the scope.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from dataclasses import replace as replace_fields
from typing import Final, Protocol

from msgspec.structs import replace

from interlock.errors import TransactionError
from interlock.sql import postgres_catalog
from interlock.sql.casts import column_type, convert, string
from interlock.sql.expressions import coalesce, expression, predicate
from interlock.sql.functions.sets import COLUMNS, RECORD_FUNCTIONS, SET_FUNCTIONS
from interlock.sql.operators_and_functions import ARGUMENTS_MAX, operate, types_of
from interlock.sql.parse import Body, Node, kind_of, names_of, only, quoted_name, split, unsupported, walk
from interlock.sql.registered_functions import FUNCTIONS
from interlock.sql.schema import ViewDefinition
from interlock.sql.scope import Merged, Output, Query, Relation, Scope, Term, combined
from interlock.sql.types import INT8, JSON, JSONB, PLAIN_TYPES, TEXT, UNKNOWN, Type, refuse, wrong


class Derived(Protocol):
    """Translates a query inside FROM."""

    def __call__(self, node: Node, scope: Scope, names: Sequence[str] = (), *, lateral: bool = False) -> Query:
        """Return the query, under other names for its columns if there are any."""
        ...


def relations(nodes: Sequence[Node], scope: Scope, derived: Derived) -> str:
    """Return FROM with its joins; bring their relations into the scope."""
    return f" FROM {sources(nodes, scope, derived)}" if nodes else ""


def sources(nodes: Sequence[Node], scope: Scope, derived: Derived) -> str:
    """Return relations and the joins between them, as they are written after FROM or USING."""
    return ", ".join([_source(node, scope, derived) for node in nodes])


def _source(node: Node, scope: Scope, derived: Derived) -> str:
    if kind_of(node) == "JoinExpr":
        return _join(node["JoinExpr"], scope, derived)
    relation, text = _relation(node, scope, derived)
    scope.add(relation)
    return text


# --- Joins -----------------------------------------------------------------------------------------------------------

_JOINS: Final = {"JOIN_INNER": "JOIN", "JOIN_LEFT": "LEFT JOIN", "JOIN_RIGHT": "RIGHT JOIN", "JOIN_FULL": "FULL JOIN"}


def _join(body: Body, scope: Scope, derived: Derived) -> str:
    only("JoinExpr", body, "jointype", "isNatural", "larg", "rarg", "usingClause", "quals")
    word = _JOINS.get(body["jointype"])
    if word is None:
        raise refuse("such a join.", fix="Use [LEFT | RIGHT | FULL] JOIN … ON.")
    first, star = len(scope.relations), len(scope.star)
    if word in {"RIGHT JOIN", "FULL JOIN"}:
        _check_outer(word, body, first)
    left_text = _source(body["larg"], scope, derived)
    middle, star_middle = len(scope.relations), len(scope.star)
    if kind_of(body["rarg"]) == "JoinExpr":
        right_text = f"({_source(body['rarg'], scope, derived)})"
        if word != "JOIN" and not (word == "LEFT JOIN" and _joins_tables(body)):
            raise refuse("an outer join with a join in parentheses.", fix="Join a subquery: (SELECT …) AS name.")
    else:
        right_text = _source(body["rarg"], scope, derived)
    names = _common_columns(body, scope, star, star_middle)
    pairs = [
        (name, _side(scope, first, middle).column(None, name), _side(scope, middle).column(None, name))
        for name in names
    ]
    if word in {"LEFT JOIN", "FULL JOIN"}:
        _make_outer(scope, middle, len(scope.relations))
    if word in {"RIGHT JOIN", "FULL JOIN"}:
        _make_outer(scope, first, middle)
    if names:
        tests = [_merge(name, left, right, word, scope, first) for name, left, right in pairs]
        _merge_star(names, scope, star, first)
        return f"{left_text} {word} {right_text} ON {' AND '.join(tests)}"
    if "quals" not in body:
        if word != "JOIN" or body.get("isNatural"):
            raise refuse("NATURAL JOIN without a common column.", fix="Write CROSS JOIN.")
        return f"{left_text} CROSS JOIN {right_text}"
    inside = _alone(scope, first)
    with inside.at("JOIN … ON", volatile=False):
        test = predicate(body["quals"], inside, "JOIN … ON")
    scope.outside |= test.bare
    if word == "FULL JOIN" and not _equates(body["quals"], _side(scope, first, middle), _side(scope, middle)):
        raise refuse("FULL JOIN on something else than column = column.", fix="Use UNION ALL of two LEFT JOINs.")
    return f"{left_text} {word} {right_text} ON {test.checked.text}"


def _joins_tables(body: Body) -> bool:
    """Return whether a join has an ON, and on its right tables alone that are joined by ON, as ORMs write it."""
    right = body["rarg"]["JoinExpr"]
    inner = [right]
    while inner:
        join = inner.pop()
        if "quals" not in join or join.get("usingClause") or join["jointype"] not in {"JOIN_INNER", "JOIN_LEFT"}:
            return False
        for side in (join["larg"], join["rarg"]):
            if kind_of(side) == "JoinExpr":
                inner.append(side["JoinExpr"])
            elif kind_of(side) != "RangeVar":
                return False
    return "quals" in body


def _check_outer(word: str, body: Body, first: int) -> None:
    """Refuse what may read the left side of a join that also gives rows without one: PostgreSQL refuses such reads."""
    if first:
        raise refuse(f"{word} after a comma in FROM.", fix="Put it before the comma, or write CROSS JOIN.")
    kind, right = split(body["rarg"])
    is_lateral = kind == "RangeFunction" or bool(right.get("lateral"))
    if is_lateral and any(found == "ColumnRef" for found, _ in walk(right)):
        raise refuse(f"{word} with LATERAL or a function of columns.", fix="Use JOIN or LEFT JOIN.")


def _alone(scope: Scope, first: int, end: int | None = None) -> Scope:
    """Return the scope as the conditions of a join see it: the relations of its own sides alone."""
    inside = scope.relations[first:end]
    known = {relation.name for relation in inside}
    merged = {key: entry for key, entry in scope.merged.items() if entry.relations <= known}
    alone = replace_fields(scope, relations=inside, merged=merged)
    alone.number = scope.number
    return alone


def _side(scope: Scope, first: int, end: int | None = None) -> Scope:
    """Return the scope of one side of a join, without the queries around: a column of USING is never theirs."""
    side = replace_fields(_alone(scope, first, end), parent=None)
    side.number = scope.number
    return side


def _make_outer(scope: Scope, first: int, end: int) -> None:
    """Mark relations that may be without a row."""
    known = {relation.name for relation in scope.relations[first:end]}
    for place in range(first, end):
        scope.relations[place] = replace_fields(scope.relations[place], outer=True)
    for key, entry in scope.merged.items():
        if entry.relations & known:
            scope.merged[key] = replace_fields(entry, term=replace(entry.term, nullable=True))


def _common_columns(body: Body, scope: Scope, star: int, middle: int) -> list[str]:
    if not body.get("isNatural"):
        names = names_of(body.get("usingClause", ()))
        if len(set(names)) < len(names):
            raise wrong("USING with a column given twice.")
        return names
    right = {name for name, _ in scope.star[middle:]}
    return [name for name, _ in scope.star[star:middle] if name in right]


def _equates(node: Node, left: Scope, right: Scope) -> bool:
    """Return whether PostgreSQL can be sure to join both sides in full: it needs a column of each that are equal."""
    kind, body = split(node)
    if kind == "BoolExpr" and body["boolop"] == "AND_EXPR":
        return all(_equates(part, left, right) for part in body["args"])
    if kind != "A_Expr" or names_of(body["name"]) != ["="] or "lexpr" not in body:
        return False
    if not kind_of(body["lexpr"]) == kind_of(body["rexpr"]) == "ColumnRef":
        return False
    one, other = body["lexpr"], body["rexpr"]
    return (_has(left, one) and _has(right, other)) or (_has(left, other) and _has(right, one))


def _has(side: Scope, column: Node) -> bool:
    try:
        expression(column, side)
    except TransactionError:
        return False
    return True


def _merge(name: str, left: Term, right: Term, word: str, scope: Scope, part: int) -> str:
    if left.type != right.type:
        raise refuse(f"USING ({name}) of {left.type} and {right.type}.", fix="Write ON, with a cast.")
    term = right if word == "RIGHT JOIN" else left
    if word == "FULL JOIN":
        # A row of one side alone has that side's NULL.
        term = replace(coalesce([left, right]), nullable=left.nullable or right.nullable)
    inside = scope.relations[part:]
    known = {relation.name for relation in inside if any(output.name == name for output in relation.columns)}
    for key in [key for key, entry in scope.merged.items() if key[0] == name and entry.relations <= known]:
        del scope.merged[key]
    scope.merged[name, part] = Merged(term, frozenset(known))
    return operate("=", left, right).text


def _merge_star(names: Sequence[str], scope: Scope, star: int, part: int) -> None:
    """PostgreSQL lists the common columns first, once, then the others of both sides."""
    others = [column for column in scope.star[star:] if column[0] not in names]
    scope.star[star:] = [(name, part) for name in names] + others


# --- Relations -------------------------------------------------------------------------------------------------------


def _relation(node: Node, scope: Scope, derived: Derived) -> tuple[Relation, str]:
    kind, body = split(node)
    alias, columns = _alias(body.get("alias"))
    match kind:
        case "RangeVar":
            return _table(body, alias, columns, scope, derived)
        case "RangeSubselect":
            only(kind, body, "subquery", "alias", "lateral")
            query = derived(body["subquery"], scope, columns, lateral=bool(body.get("lateral")))
            if alias is None:
                scope.translation.scopes += 1
                alias = f"pg_unnamed_{scope.translation.scopes}"
            if body.get("lateral"):
                return _lateral(query, alias)
            return Relation(alias, query.columns, quoted_name(alias)), f"({query.text}) AS {quoted_name(alias)}"
        case "RangeFunction":
            return _function(body, alias, columns, scope)
        case _:
            raise unsupported(node)


def _alias(body: Body | None) -> tuple[str | None, list[str]]:
    if body is None:
        return None, []
    return body["aliasname"], names_of(body.get("colnames", ()))


def table_name(body: Body) -> str:
    """Return the name of a table; the schema public is this database."""
    only("RangeVar", body, "relname", "schemaname", "inh", "relpersistence", "alias")
    if not body.get("inh"):
        raise refuse(f"ONLY {body['relname']}.", fix="Leave out ONLY: a lane has no inheritance.")
    if body.get("schemaname", "public") != "public":
        raise refuse(
            f"the table {body['schemaname']}.{body['relname']} of another schema.",
            why="A database is one schema, and a transaction cannot span databases: after a crash one of them could "
            "have happened without the other.",
            fix="Name the table alone if it is in this database. Use another database through its own Database, one "
            "after the other, each with a key.",
        )
    name: str = body["relname"]
    return name


def _table(body: Body, alias: str | None, columns: list[str], scope: Scope, derived: Derived) -> tuple[Relation, str]:
    name = table_name(body)
    common = scope.query_named(name) if "schemaname" not in body else None
    scope.check_shadow(name, common)
    written = quoted_name(alias or name)
    view = scope.translation.schema.views.get(name) if common is None else None
    if view is not None:
        return _view(view, alias, columns, scope, derived)
    if common is not None:
        if not common.columns:
            raise wrong(f"the WITH query {name!r} has no RETURNING clause.")
        relation = Relation(alias or name, common.columns, written)
    else:
        relation = table_relation(name, alias, scope)
    text = f"{quoted_name(name)} AS {written}" if alias else quoted_name(name)
    return _renamed(relation, columns), text


def _view(
    view: ViewDefinition, alias: str | None, columns: list[str], scope: Scope, derived: Derived
) -> tuple[Relation, str]:
    """Return the query of a view in its place."""
    translation = scope.translation
    translation.tables.add(view.name)
    for table in view.tables:
        scope.check_shadow(table, None)
    query = view_query(view.body, Scope(translation, place="a view"), derived)
    if tuple(output.name for output in query.columns) != view.columns:
        raise refuse(
            f"the view {view.name!r}, whose tables have got other columns.", fix="Drop it and create it again."
        )
    written = quoted_name(alias or view.name)
    return _renamed(Relation(alias or view.name, query.columns, written), columns), f"({query.text}) AS {written}"


def view_query(body: Body, alone: Scope, derived: Derived) -> Query:
    """Return the query of CREATE VIEW, which sees nothing of the statement around it."""
    return derived(body["query"], alone, names_of(body.get("aliases", ())))


def _renamed(relation: Relation, columns: Sequence[str]) -> Relation:
    """Return a relation under other names for its first columns."""
    if not columns:
        return relation
    if len(columns) > len(relation.columns):
        raise wrong(f"{len(columns)} names for {len(relation.columns)} columns of {relation.name!r}.")
    renamed = [
        replace_fields(output, name=name, text=output.text or f"{relation.written}.{quoted_name(output.name)}")
        for name, output in zip(columns, relation.columns, strict=False)
    ]
    return replace_fields(relation, columns=(*renamed, *relation.columns[len(columns) :]), primary_key=())


def table_relation(name: str, alias: str | None, scope: Scope) -> Relation:
    """Return a table of the schema as a relation."""
    table = scope.translation.table(name)
    columns = tuple(Output(column.name, column.type, nullable=column.nullable) for column in table.columns)
    return Relation(alias or name, columns, quoted_name(alias or name), primary_key=table.primary_key)


# --- Functions and LATERAL -------------------------------------------------------------------------------------------
# SQLite's json_each() sees the tables before it, as functions in FROM and LATERAL subqueries do in PostgreSQL. So their
# rows are made as one JSON array first. A series of whole numbers that reads no column is counted by a recursive query.


def _lateral(query: Query, alias: str) -> tuple[Relation, str]:
    """Return a LATERAL subquery: its rows are collected for each row before it."""
    if len(query.columns) > ARGUMENTS_MAX:
        raise refuse(f"LATERAL with {len(query.columns)} columns.", fix="Name the columns that you need.")
    written = quoted_name(alias)
    outputs = [
        replace_fields(output, text=text)
        for output, text in zip(query.columns, column_texts(query.columns, written), strict=True)
    ]
    columns = ", ".join(f"s.{quoted_name(output.name)}" for output in query.columns)
    rows = f"SELECT interlock_rows({columns}) FROM ({query.text}) AS s"  # noqa: S608 -- quoted names
    return Relation(alias, tuple(outputs), written), f"json_each(({rows})) AS {written}"


def column_texts(columns: Sequence[Output], written: str) -> list[str]:
    """Return the columns of rows that travel as JSON, read from json_each()."""
    return [_read(f"json_extract({written}.value, '$[{place}]')", each.type) for place, each in enumerate(columns)]


def _read(text: str, kind: Type) -> str:
    """Return a stored value as it is read from JSON."""
    if kind.name in {"bytea", "uuid"}:
        return f"unhex({text})"
    return f"interlock_float_of_digits({text})" if kind.name == "float8" else text


@dataclass(frozen=True, slots=True)
class FunctionInFrom:
    """A call of a function in FROM: its terms, and the names that the statement gives to the result."""

    name: str
    terms: Sequence[Term]
    alias: str | None
    columns: Sequence[str]
    ordinality: bool


def _function(body: Body, alias: str | None, columns: list[str], scope: Scope) -> tuple[Relation, str]:
    only("RangeFunction", body, "functions", "alias", "ordinality", "lateral", "coldeflist")
    node = body["functions"][0]["List"]["items"][0]
    if kind_of(node) != "FuncCall" or len(body["functions"]) > 1:
        raise refuse("such a function in FROM.", fix=_KNOWN)
    only("FuncCall", node["FuncCall"], "funcname", "args", "funcformat")
    names = names_of(node["FuncCall"]["funcname"])
    name = names[-1]
    if name not in SET_FUNCTIONS or (len(names) > 1 and names[0] != "pg_catalog"):
        raise refuse(f"{'.'.join(names)}() in FROM.", fix=_KNOWN)
    scope.translation.subqueries += 1
    with scope.at(f"{name}()", volatile=False):
        terms = [expression(argument, scope) for argument in node["FuncCall"].get("args", [])]
    scope.outside.update(*(term.bare for term in terms))
    call = FunctionInFrom(name, terms, alias, columns, bool(body.get("ordinality")))
    if (name in RECORD_FUNCTIONS) != ("coldeflist" in body):
        raise wrong(f"{name}() and a list of column definitions.", fix="Write it after jsonb_to_recordset() alone.")
    if "coldeflist" in body:
        return _records(call, body["coldeflist"])
    return _unnest(call) if name == "unnest" else _set(call, scope)


_KNOWN: Final = "Use unnest(), generate_series(), jsonb_array_elements() or jsonb_each()."


def _rows_relation(
    call: FunctionInFrom, columns: Sequence[str], kinds: Sequence[Type], texts: Sequence[str], rows: str
) -> tuple[Relation, str]:
    """Return the relation of json_each(rows); a column without a name of its own is called like the relation."""
    name = call.alias or call.name
    written = quoted_name(name)
    single = len(kinds) == 1
    names = [known or (name if single else call.name) for known in columns] + (
        ["ordinality"] if call.ordinality else []
    )
    if len(call.columns) > len(names):
        raise wrong(f"{len(call.columns)} names for the {len(names)} columns of {call.name}().")
    names = [*call.columns, *names[len(call.columns) :]]
    # Several arrays of unnest() without names all have its name: * gives them, the name alone is ambiguous.
    others = [*call.columns, *(known for known in names[len(call.columns) :] if known != "unnest")]
    if len(others) < len(names) - 1:
        others.append("unnest")
    else:
        others = names
    if len({known.lower() for known in others}) != len(others):
        raise refuse(f"{call.name}() without a name for each column.", fix="Write AS name (a, b).")
    values = [text.format(written) for text in texts]
    outputs = [Output(column, kind, text=text) for column, kind, text in zip(names, kinds, values, strict=False)]
    if call.ordinality:
        outputs.append(Output(names[-1], INT8, nullable=False, text=f"({written}.key + 1)"))
    value = names[0] if single and not call.ordinality else None
    return Relation(name, tuple(outputs), written, value=value), f"json_each({rows}) AS {written}"


def _texts(kinds: Sequence[Type]) -> list[str]:
    if len(kinds) == 1:
        return [_read("{0}.value", kinds[0])]
    return [_read(f"json_extract({{0}}.value, '$[{place}]')", kind) for place, kind in enumerate(kinds)]


def _records(call: FunctionInFrom, definitions: Sequence[Node]) -> tuple[Relation, str]:
    """Return jsonb_to_recordset(): each column is the member of its name, read as its type reads text."""
    if len(call.terms) != 1 or call.ordinality or call.columns:
        raise refuse(f"such a call of {call.name}().", fix="Write it with one document: … AS t (a integer, b text).")
    name = call.alias or call.name
    written = quoted_name(name)
    document = Term(f"{written}.value", JSONB)
    outputs: list[Output] = []
    for node in definitions:
        body = node["ColumnDef"]
        only("ColumnDef", body, "colname", "typeName", "is_local")
        kind, serial = column_type(body["typeName"])
        if serial is not None or kind.is_array or kind.length is not None:
            raise refuse(f"a column of {kind} in {call.name}().", fix="Use jsonb or text, and convert it.")
        key = string(body["colname"])
        if kind in {JSONB, JSON}:
            part = operate("->", document, key)
            value = combined(f"nullif({part.text}, 'null')", JSONB, [part], atomic=True)
        else:
            value = operate("->>", document, key)
        outputs.append(Output(body["colname"], kind, text=f"({convert(value, kind, 'explicit').checked.text})"))
    if len({output.name.lower() for output in outputs}) != len(outputs):
        raise refuse(f"two columns of the same name in {call.name}().", fix="Rename one.")
    rows = FUNCTIONS[f"interlock {call.name}", ("jsonb",)].build([convert(call.terms[0], JSONB, "implicit")], TEXT)
    return Relation(name, tuple(outputs), written), f"json_each({rows.text}) AS {written}"


def _unnest(call: FunctionInFrom) -> tuple[Relation, str]:
    for term in call.terms:
        if term.type is UNKNOWN:
            raise wrong("unnest() of an array of unknown type.", fix="Cast it: unnest($1::bigint[]).")
        if not term.type.is_array:
            raise wrong(f"unnest() of {term.type}.")
        if term.type.element.name == "float8":
            raise refuse(f"unnest() of {term.type}.", fix="Use numeric[].")
    kinds = [term.type.element for term in call.terms]
    arrays = ", ".join(term.checked.text for term in call.terms)
    rows = arrays if len(kinds) == 1 else f"interlock_array_zip({arrays})"
    return _rows_relation(call, [""] * len(kinds), kinds, _texts(kinds), rows)


def _set(call: FunctionInFrom, scope: Scope) -> tuple[Relation, str]:
    try:
        found = postgres_catalog.find_function(call.name, *[term.type.name for term in call.terms])
    except postgres_catalog.Ambiguous:
        raise wrong(f"the types of the arguments of {call.name}() are unknown.", fix="Cast one: $1::bigint.") from None
    if found is None:
        raise wrong(f"{call.name}() of such arguments does not exist.", fix="Cast the arguments.")
    entry = FUNCTIONS.get((f"interlock {call.name}", found.takes))
    if entry is None:
        raise refuse(f"{call.name}() of such arguments.", fix="Use another type, or compute it in Python.")
    wanted, _ = types_of(found, call.terms)
    terms = [convert(term, kind, "implicit") for term, kind in zip(call.terms, wanted, strict=True)]
    kind = PLAIN_TYPES[found.takes[0]]
    if call.name == "generate_series":
        reads = any(number == scope.number for term in terms for number, _ in term.bare)
        if kind.is_integer and not reads and not call.ordinality:
            return _series(call, terms, kind)
    names, listed = COLUMNS.get(call.name, (("",), (kind.name,)))
    kinds = [PLAIN_TYPES[each] for each in listed]
    return _rows_relation(call, names, kinds, _texts(kinds), entry.build(terms, TEXT).text)


def _series(call: FunctionInFrom, terms: Sequence[Term], kind: Type) -> tuple[Relation, str]:
    if len(call.columns) > 1:
        raise wrong(f"{len(call.columns)} names for the one column of generate_series().")
    name = call.alias or call.name
    column = call.columns[0] if call.columns else name
    texts = [term.checked.text for term in terms]
    text = _counting(texts if len(texts) > 2 else [*texts, "1"], column)  # noqa: PLR2004 -- start, stop, step
    output = Output(column, kind, nullable=False)
    return Relation(name, (output,), quoted_name(name), value=column), f"({text}) AS {quoted_name(name)}"


def _counting(bounds: Sequence[str], column: str) -> str:
    """Count by a recursive query. No table and no query of a lane has a name with pg_, and none is hidden by these.

    A sum that leaves bigint becomes a float, and counting ends there as it does in PostgreSQL. A name with interlock_
    would be denied by the lane's authorizer where no column of the series is read.
    """
    start, end, step = bounds
    within = "CASE WHEN step > 0 THEN {0} <= stop ELSE {0} >= stop END"
    return (
        f"WITH RECURSIVE pg_bounds (start, stop, step) AS (SELECT {start}, {end}, interlock_step({step})), "  # noqa: S608
        f"pg_counted (n) AS (SELECT start FROM pg_bounds WHERE {within.format('start')} "
        f"UNION ALL SELECT n + step FROM pg_counted, pg_bounds "
        f"WHERE typeof(n + step) = 'integer' AND {within.format('n + step')}) "
        f"SELECT n AS {quoted_name(column)} FROM pg_counted"
    )
