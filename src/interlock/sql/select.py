"""Queries: SELECT with its clauses, VALUES, unions of them, and common table expressions.

A SELECT is translated into a `QueryDraft` first and written out last, because the types of its bare literals may be
decided by what surrounds it: the other side of a UNION, or the columns of an INSERT. Clauses are translated in
PostgreSQL's order, which decides the types of parameters: FROM, the list, WHERE, HAVING, ORDER BY, GROUP BY, DISTINCT,
LIMIT. What GROUP BY names is known only after the list, so a grouped query translates its list twice.

Differences of the engines are written out: ORDER BY says where NULLs go, GROUP BY repeats expressions, not aliases.

Sections: GROUP BY, ORDER BY, LIMIT, locks, proof of one row, drafts, queries, SELECT, common table expressions.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from dataclasses import replace as replace_fields
from typing import Final, cast

from msgspec.structs import replace

from interlock.sql import aggregates, postgres_catalog
from interlock.sql.aggregates import direction
from interlock.sql.casts import convert, settled
from interlock.sql.expressions import STAR, column_name, compared, expression, predicate
from interlock.sql.from_clause import relations
from interlock.sql.functions.sets import COLUMNS, SET_FUNCTIONS
from interlock.sql.operators_and_functions import comparable, computable, keyed, sorting_key
from interlock.sql.parse import (
    Body,
    Node,
    kind_of,
    names_of,
    only,
    quoted_list,
    quoted_name,
    split,
    unsupported,
    walk,
    without_positions,
)
from interlock.sql.scope import LISTED_ROWS, Output, Query, Reference, Relation, Scope, Term
from interlock.sql.types import INT8, PLAIN_TYPES, TEXT, UNKNOWN, Type, collate, refuse, wrong
from interlock.sql.windows import name_windows


@dataclass(frozen=True, slots=True)
class SelectItem:
    """One item of a SELECT list: an expression, or a column that * stands for."""

    name: str
    node: Node | None = None
    column: Term | None = None
    alias: str | None = None

    def term(self, scope: Scope) -> Term:
        """Return the term of the item."""
        if self.node is not None:
            return expression(self.node, scope)
        assert self.column is not None
        return scope.grouped_term(self.column)


# --- GROUP BY --------------------------------------------------------------------------------------------------------


def grouping(nodes: Sequence[Node], scope: Scope, items: Sequence[SelectItem]) -> tuple[Term, ...]:
    """Return the terms of GROUP BY: a number is a place in the list, a bare name is a column, or else an alias."""
    terms: list[Term] = []
    for node in nodes:
        item = _grouped_item(node, scope, items)
        with scope.at("GROUP BY", volatile=False):
            term = settled(item.term(scope))
        comparable(term.type, "GROUP BY")
        terms.append(term)
    return tuple(terms)


def _grouped_item(node: Node, scope: Scope, items: Sequence[SelectItem]) -> SelectItem:
    if kind_of(node) == "A_Const":
        return items[_place(node, len(items), "GROUP BY") - 1]
    name = _bare_name(node)
    if name is None or any(output.name == name for known in scope.relations for output in known.columns):
        return SelectItem("", node)
    chosen = [item for item in items if item.name == name]
    if len(chosen) > 1 and len({str(item.node) for item in chosen}) > 1:
        raise wrong(f"GROUP BY {name!r} is ambiguous.")
    return chosen[0] if chosen else SelectItem("", node)


def _bare_name(node: Node) -> str | None:
    if kind_of(node) == "ColumnRef":
        fields = node["ColumnRef"]["fields"]
        if len(fields) == 1 and kind_of(fields[0]) == "String":
            return names_of(fields)[0]
    return None


def _place(node: Node, count: int, clause: str) -> int:
    body = node["A_Const"]
    if "ival" not in body:
        raise wrong(f"a constant in {clause} that is not a whole number.", fix="Name a column.")
    place: int = body["ival"].get("ival", 0)
    if not 1 <= place <= count:
        raise wrong(f"{clause} {place}: there are {count} columns in the list.")
    return place


# --- ORDER BY --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Key:
    """One key of ORDER BY: what it sorts by, as it is written, and its direction."""

    term: Term
    text: str
    direction: str


def sorted_by(keys: Sequence[Key]) -> str:
    """Return the text of ORDER BY."""
    return f" ORDER BY {', '.join(key.text + key.direction for key in keys)}" if keys else ""


def ordering(
    nodes: Sequence[Node],
    scope: Scope,
    terms: Sequence[Term],
    names: Sequence[str],
    *,
    distinct: bool = False,
    compound: bool = False,
    used: list[Term] | None = None,
) -> list[Key]:
    """Return ORDER BY: a number or a bare name of the list is that place in it, everything else an expression."""
    listed: list[Key] = []
    for node in nodes:
        kind, body = split(node)
        only(kind, body, "node", "sortby_dir", "sortby_nulls")
        place = _listed_place(body["node"], terms, names, "ORDER BY")
        if place:
            term = terms[place - 1]
            if term.volatile:
                raise refuse("ORDER BY a column of random values.", fix="Order by random() itself.")
            text = f"{place}{collate(term.type)}"
        elif compound:
            raise wrong("ORDER BY an expression after a set operation.", fix="Order by the name of a column.")
        else:
            with scope.at("ORDER BY", aggregates=True, windows=True):
                term = settled(compared(body["node"], scope))
            if distinct and all(term.text != other.text for other in terms):
                raise wrong("with SELECT DISTINCT, ORDER BY must be in the list.")
            text = _not_a_place(term)
            if used is not None:
                used.append(term)
        comparable(term.type, "ORDER BY")
        listed.append(Key(term, text, direction(body, term)))
    return listed


def _not_a_place(term: Term) -> str:
    """Return a key of ORDER BY or GROUP BY. SQLite takes a number that stands there for a place in the list."""
    return f"coalesce({term.checked.text}, NULL)" if term.is_constant else sorting_key(term)


def listed_term(node: Node, scope: Scope, terms: Sequence[Term], names: Sequence[str], clause: str) -> Term:
    """Return the term of a number, listed name or expression in DISTINCT ON, which PostgreSQL reads like ORDER BY."""
    place = _listed_place(node, terms, names, clause)
    if place:
        return terms[place - 1]
    with scope.at(clause, aggregates=True, windows=True):
        return settled(expression(node, scope))


def _listed_place(node: Node, terms: Sequence[Term], names: Sequence[str], clause: str) -> int:
    """Return the place in the list that a number or a bare name means, or 0. Two of a name must be the same thing."""
    if kind_of(node) == "A_Const":
        return _place(node, len(terms), clause)
    name = _bare_name(node)
    places = [place for place, known in enumerate(names, start=1) if known == name]
    if len({terms[place - 1].text or str(place) for place in places}) > 1:
        raise wrong(f"{clause} {name!r} is ambiguous.", fix="Give the columns different names.")
    return places[0] if places else 0


# --- LIMIT -----------------------------------------------------------------------------------------------------------


def limits(body: Body, scope: Scope) -> str:
    """Translate LIMIT and OFFSET. A negative one is unlimited in SQLite and an error in PostgreSQL; NULL: no bound."""
    if body.get("limitOption") == "LIMIT_OPTION_WITH_TIES":
        raise refuse("FETCH … WITH TIES.", fix="Use a window function.")
    # PostgreSQL reads OFFSET before LIMIT.
    offset = None if "limitOffset" not in body else _bound(body["limitOffset"], scope, "offset")
    count = "-1" if "limitCount" not in body else _bound(body["limitCount"], scope, "limit")
    if offset is None:
        return f" LIMIT {count}" if "limitCount" in body else ""
    return f" LIMIT {count} OFFSET {offset}"


def _bound(node: Node, scope: Scope, name: str) -> str:
    if "isnull" in node.get("A_Const", {}):
        return "-1" if name == "limit" else "0"
    alone = Scope(scope.translation, parent=scope.parent, place=name.upper(), subqueries=False)
    term = convert(expression(node, alone), INT8, "assignment")
    if term.bare:
        raise refuse(f"{name.upper()} by a column of the query around it.", fix="Number the rows with row_number().")
    if term.literal is not None and term.atomic:
        return term.literal
    return f"interlock_{name}({term.checked.text})"


# --- Locks -----------------------------------------------------------------------------------------------------------


def locks(body: Body, scope: Scope) -> None:
    """Check FOR UPDATE and the like: nothing is left to do but to run in the writer.

    A lane runs one transaction at a time, so each has every lock it could ask for, and neither SKIP LOCKED nor NOWAIT
    ever finds one taken.
    """
    for node in body.get("lockingClause", ()):
        _check_lockable(body)
        if any(relation.outer for relation in scope.relations):
            raise refuse("FOR UPDATE with an outer join.", fix="Lock the rows of one table in a statement of its own.")
        known = {relation.name for relation in scope.relations}
        for target in node["LockingClause"].get("lockedRels", ()):
            name = target["RangeVar"]["relname"]
            if name not in known:
                raise wrong(f"FOR UPDATE OF {name!r}, which is not in FROM.")
        scope.translation.locking = True


def _check_lockable(body: Body) -> None:
    """Check that each row of a query is a row of its tables; so it must be in the queries of its FROM."""
    for clause, word in (("distinctClause", "DISTINCT"), ("groupClause", "GROUP BY"), ("havingClause", "HAVING")):
        if clause in body:
            raise wrong(f"FOR UPDATE with {word}.")
    if "larg" in body:
        raise wrong("FOR UPDATE with a set operation.")
    if _gives_rows(body.get("targetList", [])):
        raise wrong("FOR UPDATE with a function that gives rows in the list.")
    for kind, found in walk(body.get("targetList", [])):
        if kind == "FuncCall" and ("over" in found or names_of(found["funcname"])[-1] in aggregates.NAMES):
            raise wrong("FOR UPDATE with an aggregate or a window function.")
    for source in body.get("fromClause", ()):
        for subquery_node in _subqueries(source):
            _check_lockable(subquery_node["SelectStmt"])


def _subqueries(node: Node) -> list[Node]:
    kind, body = split(node)
    if kind == "JoinExpr":
        return _subqueries(body["larg"]) + _subqueries(body["rarg"])
    return [body["subquery"]] if kind == "RangeSubselect" else []


# --- Proof of one row at most ----------------------------------------------------------------------------------------


def proven_single(body: Body, scope: Scope) -> bool:
    """Return whether a SELECT can give one row at most: no table, LIMIT 1, or the whole primary key asked for."""
    count = body.get("limitCount", {}).get("A_Const", {}).get("ival")
    if count is not None and count.get("ival", 0) in {0, 1}:
        return True
    if not scope.relations:
        return True
    if len(scope.relations) > 1 or not scope.relations[0].primary_key:
        return False
    [relation] = scope.relations
    with scope.at("WHERE"):
        found = fixed(body["whereClause"], scope) if "whereClause" in body else set[str]()
    return {f"{relation.written}.{quoted_name(name)}" for name in relation.primary_key} <= found


def fixed(node: Node, scope: Scope) -> set[str]:
    """Return the columns of this scope that a condition equates with something from outside of it."""
    kind, body = split(node)
    if kind == "BoolExpr" and body["boolop"] == "AND_EXPR":
        return {name for part in body["args"] for name in fixed(part, scope)}
    if kind != "A_Expr" or body["kind"] != "AEXPR_OP" or names_of(body["name"]) != ["="] or "lexpr" not in body:
        return set()
    if kind_of(body["lexpr"]) == "RowExpr":
        if kind_of(body["rexpr"]) != "RowExpr":
            return set()
        pairs = zip(body["lexpr"]["RowExpr"]["args"], body["rexpr"]["RowExpr"]["args"], strict=True)
    else:
        pairs = zip([body["lexpr"]], [body["rexpr"]], strict=True)
    found: set[str] = set()
    for left, right in pairs:
        terms = [expression(left, scope), expression(right, scope)]
        for column, value in (terms, terms[::-1]):
            own = {(scope.number, column.text)}
            # As floats, two different whole numbers may be equal.
            exact = value.type == column.type or value.type.name != "float8"
            if column.bare == own and exact and all(number != scope.number for number, _ in value.bare):
                found.add(column.text)
    return found


# --- QueryDraft: a parsed query whose columns can still get their types from its context -----------------------------
# The other side of a UNION, the columns of an INSERT or the other rows of VALUES decide what a bare literal is. So a
# query is kept as terms, and its text is made last.


@dataclass(slots=True)
class QueryDraft:
    """A query before it is written out: its list can still be given types."""

    terms: list[Term]
    names: list[str]
    single: bool = False
    distinct: bool = False
    whole: bool = False  # Whether HAVING makes one group of all rows although the list has no aggregate.
    checked: bool = True  # Whether results must be verified here, because rows are dropped or merged afterwards.
    head: str = ""
    parts: list["QueryDraft"] = field(default_factory=list["QueryDraft"])
    rows: list[list[Term]] = field(default_factory=list[list[Term]])  # Of VALUES.
    first: "First | None" = None
    operator: str = ""
    body: str = ""
    tail: str = ""
    bare: frozenset[Reference] = frozenset()

    @property
    def types(self) -> list[Type]:
        """The types of the list so far."""
        return [term.type for term in self.terms]

    def give_types(self, kinds: Sequence[Type]) -> None:
        """Decide the types of the list; bare literals and NULL take any, the others must fit."""
        if self.parts:
            for part in self.parts:
                part.give_types(kinds)
            self.terms = [replace(term, type=kind) for term, kind in zip(self.terms, kinds, strict=True)]
        elif self.rows:
            self.rows = [_typed(row, kinds) for row in self.rows]
            self.terms = [replace(term, type=kind) for term, kind in zip(self.terms, kinds, strict=True)]
        else:
            self.terms = _typed(self.terms, kinds)

    def settle(self) -> "QueryDraft":
        """Give the columns that are still untyped a type: bare literals are text."""
        whole = self.parts or self.rows
        self.give_types([TEXT if kind is UNKNOWN and whole else kind for kind in self.types])
        return self

    def rename(self, names: Sequence[str]) -> None:
        """Give the first columns other names, as AS name (a, b) does."""
        if len(names) > len(self.names):
            raise wrong(f"{len(names)} names for {len(self.names)} columns.")
        self.names = [*names, *self.names[len(names) :]]
        if self.parts:
            self.parts[0].rename(names)

    def write(self) -> str:
        """SQLite's text."""
        if self._is_counted:
            return f"{self.head}{self._counted()}{self.tail}"
        if self.parts:
            operator = self.operator
            if self._is_merged:
                operator = "UNION ALL"
                self.parts[0].rename([f"c{place}" for place in range(len(self.names))])
            left, right = self.parts
            # In a row SQLite reads from left to right, so a second side keeps parentheses where they count.
            body = f"{left.operand(operator)} {operator} {right.operand('' if operator == 'EXCEPT' else operator)}"
            return f"{self.head}{self._merged(body) if self._is_merged else body}{self.tail}"
        if self.rows:
            return f"{self.head}{self._values()}{self.tail}"
        if self.first is not None:
            return f"{self.head}{self.first.write(self._listed_texts(), self.names, self.body)}{self.tail}"
        pairs = zip(self._listed_texts(), self.names, strict=True)
        listed = ", ".join(f"{text} AS {quoted_name(name)}" for text, name in pairs)
        return f"{self.head}SELECT {'DISTINCT ' if self.distinct else ''}{listed}{self.body}{self.tail}"

    @property
    def _is_merged(self) -> bool:
        """Whether a UNION merges values that have a collation: SQLite's own compares their bytes."""
        return self.operator == "UNION" and any(kind.collation for kind in self.types)

    @property
    def _is_rewritten(self) -> bool:
        return self._is_merged or self._is_counted

    def _merged(self, body: str) -> str:
        listed = ", ".join(
            f"c{place}{collate(term.type)} AS {quoted_name(name)}"
            for place, (name, term) in enumerate(zip(self.names, self.terms, strict=True))
        )
        return f"SELECT DISTINCT {listed} FROM ({body})"  # noqa: S608 -- made of quoted names, literals and ?n alone

    @property
    def _is_counted(self) -> bool:
        """Whether rows are counted: EXCEPT ALL and INTERSECT ALL, and without ALL if a type has a collation."""
        if not self.operator.startswith(("EXCEPT", "INTERSECT")):
            return False
        return self.operator.endswith("ALL") or any(kind.collation for kind in self.types)

    def _counted(self) -> str:
        """Number the equal rows of the first side and count those of the second one."""
        places = [f"c{place}" for place in range(len(self.names))]
        sides: list[str] = []
        for number, part in enumerate(self.parts):
            part.rename(places)
            sides.append(f"SELECT *, {number} AS side FROM ({part.write()})")  # noqa: S608 -- quoted names, literals and ?n
        keys = ", ".join(f"{place}{collate(kind)}" for place, kind in zip(places, self.types, strict=True))
        inner = (
            f"SELECT *, row_number() OVER (PARTITION BY side, {keys}) AS n, "  # noqa: S608
            f"sum(side) OVER (PARTITION BY {keys}) AS others FROM ({' UNION ALL '.join(sides)})"
        )
        listed = ", ".join(f"{place} AS {quoted_name(name)}" for place, name in zip(places, self.names, strict=True))
        return f"SELECT {listed} FROM ({inner}) WHERE side = 0 AND {_KEPT[self.operator]}"  # noqa: S608

    def _listed_texts(self) -> list[str]:
        texts = [self._listed(term) for term in self.terms]
        if self.whole:
            # SQLite wants an aggregate in the list.
            texts[0] = f"CASE WHEN count(*) >= 0 THEN {texts[0]} END"
        return texts

    def _listed(self, term: Term) -> str:
        if self.distinct if term.type.collation else term.type.is_text:
            # A COLLATE inside a text would go on with the column, into UNION, DISTINCT and the queries around this one.
            return keyed(term)
        return term.checked.text if self.checked else term.text

    def _values(self) -> str:
        """VALUES as a query: SQLite calls its columns column1, column2, … as PostgreSQL does."""
        listed = ", ".join(f'"column{place}" AS {quoted_name(name)}' for place, name in enumerate(self.names, start=1))
        # SQLite calls a column of VALUES by another name if it is nothing but a column in the first row.
        texts = [[f"+({self._listed(term)})" if term.bare else self._listed(term) for term in self.rows[0]]]
        texts += [[self._listed(term) for term in row] for row in self.rows[1:]]
        rows = ", ".join(f"({', '.join(row)})" for row in texts)
        return f"SELECT {listed} FROM (VALUES {rows})"  # noqa: S608 - made of quoted names, literals and ?n alone

    def operand(self, operator: str) -> str:
        """The text as one side of a set operation. SQLite has no parentheses there, and one precedence for all."""
        if self.head or self.tail or self.first or (self.parts and (self._is_rewritten or self.operator != operator)):
            return f"SELECT * FROM ({self.write()})"  # noqa: S608 - made of quoted names, literals and ?n alone
        return self.write()

    def outputs(self) -> tuple[Output, ...]:
        """The columns of the result."""
        return tuple(
            Output(name, term.type, nullable=term.nullable) for name, term in zip(self.names, self.terms, strict=True)
        )

    def outputs_nullable(self) -> tuple[Output, ...]:
        """The columns of the result as rows that are still to come may fill them."""
        return tuple(replace_fields(output, nullable=True) for output in self.outputs())


_KEPT: Final = {
    "EXCEPT": "n = 1 AND others = 0",
    "EXCEPT ALL": "n > others",
    "INTERSECT": "n = 1 AND others > 0",
    "INTERSECT ALL": "n <= others",
}
"""Which of the equal rows of the first side stay, by their number and the number of equal ones on the second side."""


def _typed(terms: Sequence[Term], kinds: Sequence[Type]) -> list[Term]:
    return [
        settled(term) if kind is UNKNOWN else convert(term, kind, "implicit")
        for term, kind in zip(terms, kinds, strict=True)
    ]


@dataclass(frozen=True, slots=True)
class First:
    """DISTINCT ON: of the rows that agree in some expressions, the first one in the order of the query."""

    partition: Sequence[str]
    keys: Sequence[str]
    directions: Sequence[str]
    collations: Sequence[str]

    def write(self, texts: Sequence[str], names: Sequence[str], body: str) -> str:
        """The query: SQLite numbers the rows of each part and keeps those with number one."""
        columns = [f'{text} AS "c{place}"' for place, text in enumerate(texts)]
        columns += [f'{key} AS "k{place}"' for place, key in enumerate(self.keys)]
        order = ", ".join(key + direction for key, direction in zip(self.keys, self.directions, strict=True))
        number = f'row_number() OVER (PARTITION BY {", ".join(self.partition)} ORDER BY {order}) AS "number"'
        listed = ", ".join(f'"c{place}" AS {quoted_name(name)}' for place, name in enumerate(names))
        sorted_by = ", ".join(
            f'"k{place}"{collation}{direction}'
            for place, (collation, direction) in enumerate(zip(self.collations, self.directions, strict=True))
        )
        inner = f"SELECT {', '.join([*columns, number])}{body}"
        return f'SELECT {listed} FROM ({inner}) WHERE "number" = 1 ORDER BY {sorted_by}'  # noqa: S608 - made of quoted names, literals and ?n alone


# --- Queries ---------------------------------------------------------------------------------------------------------

_OPERATIONS: Final = {"SETOP_UNION": "UNION", "SETOP_INTERSECT": "INTERSECT", "SETOP_EXCEPT": "EXCEPT"}
_TAIL: Final = ("sortClause", "limitOffset", "limitCount", "limitOption", "withClause", "op")


def draft(node: Node, scope: Scope) -> QueryDraft:
    """Translate a query; `scope` is a fresh one, whose parent is whatever the query can see."""
    kind, body = split(node)
    if kind != "SelectStmt":
        raise unsupported(node)
    return draft_select(body, scope)


def draft_select(body: Body, scope: Scope) -> QueryDraft:
    """Translate the fields of a query."""
    head = common_tables(body.get("withClause"), scope)
    if body.get("op", "SETOP_NONE") != "SETOP_NONE":
        result = _set_operation(body, scope)
    elif "valuesLists" in body:
        result = _values(body, scope)
    elif any(kind_of(node) == "GroupingSet" for node in body.get("groupClause", ())):
        expanded = aggregates.union_of_groupings(body, column_name)
        result = _set_operation(expanded, scope) if "op" in expanded else _select(expanded, scope)
    else:
        result = _select(body, scope)
    result.head = head
    return result


def subquery(node: Node, scope: Scope) -> Query:
    """Return a query inside an expression of that scope."""
    scope.translation.subqueries += 1
    inner = Scope(scope.translation, parent=scope, place="a subquery")
    return _finished(draft(node, inner).settle())


def derived(node: Node, scope: Scope, names: Sequence[str] = (), *, lateral: bool = False) -> Query:
    """Return a query inside FROM: it sees what is around its own query, and with LATERAL what is before it."""
    scope.translation.subqueries += 1
    inner = Scope(scope.translation, scope, place="a LATERAL subquery") if lateral else scope.child("a subquery")
    query = finished(draft(node, inner), names)
    scope.outside |= query.bare
    return query


def finished(query: QueryDraft, names: Sequence[str] = ()) -> Query:
    """Return a query inside FROM or WITH, under other names for its columns if there are any."""
    query.rename(names)
    result = _finished(query.settle())
    folded = [output.name.lower() for output in result.columns]
    if len(set(folded)) != len(folded):
        raise refuse("a subquery with two columns of the same name.", fix="Give each column an alias of its own.")
    return result


def _finished(result: QueryDraft) -> Query:
    return Query(result.write(), result.outputs(), single=result.single, bare=result.bare)


def _met(left: Type, right: Type, operator: str) -> Type:
    found = (
        UNKNOWN.name if left is UNKNOWN and right is UNKNOWN else postgres_catalog.common_type([left.name, right.name])
    )
    if found is None:
        raise wrong(f"{operator} types {left} and {right} cannot be matched.", fix="Cast one of them.")
    return PLAIN_TYPES[found]


def _set_operation(body: Body, scope: Scope) -> QueryDraft:
    only("SelectStmt", body, "larg", "rarg", "all", *_TAIL)
    operator = _OPERATIONS[body["op"]]
    every = bool(body.get("all"))
    for side in (body["larg"], body["rarg"]):
        if "lockingClause" in side:
            raise wrong(f"FOR UPDATE with {operator}.")
    parts = [draft_select(side, scope.child(operator)) for side in (body["larg"], body["rarg"])]
    left, right = parts
    if len(left.terms) != len(right.terms):
        raise wrong(f"the sides of {operator} have {len(left.terms)} and {len(right.terms)} columns.")
    kinds = [_met(one, other, operator) for one, other in zip(left.types, right.types, strict=True)]
    kinds = [TEXT if kind is UNKNOWN else kind for kind in kinds]
    result = QueryDraft([Term("", kind) for kind in kinds], left.names, parts=parts)
    result.operator = f"{operator} ALL" if every else operator
    result.bare = left.bare | right.bare
    result.give_types(kinds)
    if not every or operator != "UNION":
        for kind in kinds:
            comparable(kind, operator)
    result.tail = sorted_by(ordering(body.get("sortClause", ()), scope, result.terms, left.names, compound=True))
    result.tail += limits(body, scope)
    return result


def _values(body: Body, scope: Scope) -> QueryDraft:
    """Return VALUES as a query: each column has the type in which all rows meet."""
    only("SelectStmt", body, "valuesLists", *_TAIL)
    rows: list[list[Term]] = []
    for row in body["valuesLists"]:
        with scope.at("VALUES"):
            rows.append([expression(item, scope) for item in row["List"]["items"]])
    if len({len(row) for row in rows}) != 1:
        raise wrong("VALUES with rows of different lengths.")
    names = [f"column{place}" for place in range(1, len(rows[0]) + 1)]
    kinds: list[Type] = []
    for column in zip(*rows, strict=True):
        known = [term.type.name for term in column if term.type is not UNKNOWN]
        found = postgres_catalog.common_type(known) if known else UNKNOWN.name
        if found is None:
            raise wrong(
                f"VALUES types {' and '.join(dict.fromkeys(known))} cannot be matched.", fix="Cast one of them."
            )
        kinds.append(PLAIN_TYPES[found])
    result = QueryDraft([Term("", kind) for kind in kinds], names, rows=rows, single=len(rows) == 1)
    result.bare = frozenset(reference for terms in rows for term in terms for reference in term.bare)
    if "sortClause" in body:
        result.settle()
    result.tail = sorted_by(ordering(body.get("sortClause", ()), scope, result.terms, names, compound=True))
    result.tail += limits(body, scope)
    return result


# --- SELECT ----------------------------------------------------------------------------------------------------------

_SELECT: Final = (
    "targetList", "fromClause", "whereClause", "groupClause", "havingClause", "distinctClause", "windowClause",
    "lockingClause", *_TAIL,
)  # fmt: skip


def _select(body: Body, scope: Scope) -> QueryDraft:
    only("SelectStmt", body, *_SELECT)
    body = with_rows_in_from(body)
    text = relations(body.get("fromClause", ()), scope, derived)
    name_windows(body.get("windowClause", ()), scope)
    items = listed_items(body.get("targetList", ()), scope)
    if not items:
        raise refuse("a SELECT without columns.")
    terms = _list(items, scope)
    bare = set(scope.outside)
    if "whereClause" in body:
        with scope.at("WHERE", volatile=scope.volatile):
            test = predicate(body["whereClause"], scope, "WHERE")
        text += f" WHERE {test.checked.text}"
        bare |= test.bare
    groups: tuple[Term, ...] = ()
    if "groupClause" in body:
        _having(body, scope)
        groups = grouping(body["groupClause"], scope, items)
        scope.grouped = frozenset(term.text for term in groups)
        text += f" GROUP BY {', '.join(_not_a_place(term) for term in groups)}"
        untyped = [term.parameter for term in terms]
        terms = _list(items, scope)
        for parameter, term in zip(untyped, terms, strict=True):
            if parameter is not None and term.parameter is None:
                parameter.take(TEXT)  # PostgreSQL takes a bare parameter of the list for text, last of all.
    names = [item.name for item in items]
    used = list(terms)
    having = _having(body, scope)
    if having is not None:
        text += f" HAVING {having.checked.text}"
        used.append(having)
    result = QueryDraft(terms, names, body=text, distinct=_is_distinct(body, terms))
    keys = ordering(body.get("sortClause", ()), scope, terms, names, distinct=result.distinct, used=used)
    sums_up = having is not None or any(term.aggregate for term in used)
    result.whole = sums_up and not groups and not any(term.aggregate for term in terms)
    result.first = _first(body, scope, terms, names, keys)
    result.tail = "" if result.first else sorted_by(keys)
    result.tail += limits(body, scope)
    dropped = bool(result.tail) or result.distinct or result.first is not None
    result.checked = scope.parent is not None or dropped or not scope.volatile
    is_aggregate = having is not None or any(term.aggregate for term in used)
    if is_aggregate and "lockingClause" in body:
        raise wrong("FOR UPDATE with an aggregate.")
    locks(body, scope)
    if scope.parent is None and scope.volatile and "fromClause" in body:
        computable(used, "the list")
    if groups or is_aggregate:
        _require_grouped(used, scope)
    result.single = (is_aggregate and not groups) or proven_single(body, scope)
    bare.update(*(term.bare for term in used), *(term.inside for term in used))
    result.bare = frozenset(item for item in bare if item[0] != scope.number)
    return result


_PLAIN: Final = frozenset({"ColumnRef", "A_Const", "ParamRef", "SubLink"})


def with_rows_in_from(body: Body) -> Body:
    """Return a SELECT without functions that give rows in its list: FROM ends with them, the list names their columns.

    PostgreSQL evaluates such functions of a list beside each other, after WHERE and before ORDER BY.
    """
    targets = [node["ResTarget"] for node in body.get("targetList", ())]
    if not any(kind_of(each["val"]) not in _PLAIN and _gives_rows(each["val"]) for each in targets):
        return body
    grouped = _grouped_by_rows(body, targets)
    for clause, word in (("groupClause", "GROUP BY"), ("havingClause", "HAVING"), ("windowClause", "WINDOW")):
        if clause in body and not (grouped and clause != "windowClause"):
            raise refuse(f"a function that gives rows in a list, with {word}.", fix="Write it in FROM of a subquery.")
    for kind, found in walk([*(each["val"] for each in targets), *body.get("sortClause", ())]):
        is_group = kind == "FuncCall" and ("over" in found or names_of(found["funcname"])[-1] in aggregates.NAMES)
        if (is_group and not grouped) or (
            kind in {"CaseExpr", "CoalesceExpr", "SubLink"} and _gives_rows({kind: found})
        ):
            raise refuse("a function that gives rows beside an aggregate, or inside CASE.", fix="Write it in FROM.")
    if "lockingClause" in body:
        raise wrong("FOR UPDATE with a function that gives rows in the list.")
    if _gives_rows(body.get("sortClause", [])):
        raise refuse("a function that gives rows in ORDER BY.", fix="Order by its place in the list.")
    if body.get("distinctClause", [{}]) != [{}]:
        # PostgreSQL chooses the first rows, and then gives all rows of the function for each.
        raise refuse("a function that gives rows in a list with DISTINCT ON.", fix="Write it in a query around.")
    calls: list[Body] = []
    listed = [{"ResTarget": {**each, **_replaced_target(each, calls)}} for each in targets]
    names = [names_of(found["funcname"])[-1] for found in calls]
    if any(name == "unnest" and len(found["args"]) != 1 for name, found in zip(names, calls, strict=True)):
        raise wrong("unnest() of several arrays in a list does not exist.", fix="Write it in FROM.")
    if len(calls) > 1 and set(names) != {"unnest"}:
        raise refuse("several functions that give rows in one list.", fix="Write them in FROM, or use unnest() alone.")
    function = {**calls[0], "args": [argument for found in calls for argument in found.get("args", ())]}
    columns = [{"String": {"sval": f"{LISTED_ROWS}_{place}"}} for place in range(len(calls))]
    source = {
        "functions": [{"List": {"items": [{"FuncCall": function}, {}]}}],
        "alias": {"aliasname": LISTED_ROWS, "colnames": columns},
    }
    made = {**body, "targetList": listed, "fromClause": [*body.get("fromClause", ()), {"RangeFunction": source}]}
    return {**made, "groupClause": grouped} if grouped else made


def _grouped_by_rows(body: Body, targets: Sequence[Body]) -> list[Node]:
    """Return GROUP BY for a list with one function that gives rows and is grouped by; empty if it is not.

    PostgreSQL gives the rows of such a function before it groups, and those of any other after that.
    """
    [*places] = [place for place, each in enumerate(targets, 1) if _gives_rows(each["val"])]
    if (
        len(places) != 1
        or kind_of(targets[places[0] - 1]["val"]) != "FuncCall"
        or _gives_rows(body.get("havingClause"))
    ):
        return []
    target = targets[places[0] - 1]
    alias, value = target.get("name"), without_positions(target["val"])
    inputs = {names_of(found["fields"][-1:])[0] for kind, found in walk(value) if kind == "ColumnRef"}
    first = _named_column(f"{LISTED_ROWS}_0")
    items: list[Node] = []
    for node in body.get("groupClause", ()):
        plain = without_positions(node)
        is_alias = alias is not None and alias not in inputs and plain == _named_column(alias)
        is_place = node.get("A_Const", {}).get("ival", {}).get("ival") == places[0]
        items.append(first if is_alias or is_place or plain == value else node)
    return items if first in items and not any(_gives_rows(node) for node in items) else []


def _named_column(name: str) -> Node:
    return {"ColumnRef": {"fields": [{"String": {"sval": name}}]}}


def _gives_rows(value: object) -> bool:
    return any(kind == "FuncCall" and names_of(found["funcname"])[-1] in SET_FUNCTIONS for kind, found in walk(value))


def _replaced_target(target: Body, calls: list[Body]) -> Body:
    name = target.get("name") or column_name(target["val"])
    return {"name": name, "val": _replaced(target["val"], calls)}


def _replaced(value: object, calls: list[Body]) -> object:
    """Return a part of a tree with columns in the place of functions that give rows; collect these functions."""
    if isinstance(value, list):
        return [_replaced(item, calls) for item in cast("list[object]", value)]
    if not isinstance(value, dict):
        return value
    node = cast("Node", value)
    found = node.get("FuncCall")
    if found is not None and names_of(found["funcname"])[-1] in SET_FUNCTIONS:
        if len(COLUMNS.get(names_of(found["funcname"])[-1], (("",),))[0]) > 1 or _gives_rows(found.get("args", [])):
            raise refuse("such a function that gives rows in a list.", fix="Write it in FROM.")
        calls.append(found)
        return {"ColumnRef": {"fields": [{"String": {"sval": f"{LISTED_ROWS}_{len(calls) - 1}"}}]}}
    return {name: _replaced(member, calls) for name, member in node.items()}


def _list(items: Sequence[SelectItem], scope: Scope) -> list[Term]:
    with scope.at("the SELECT list", aggregates=True, windows=True):
        return [item.term(scope) for item in items]


def _having(body: Body, scope: Scope) -> Term | None:
    if "havingClause" not in body:
        return None
    with scope.at("HAVING", aggregates=True, volatile=False):
        return predicate(body["havingClause"], scope, "HAVING")


def listed_items(nodes: Sequence[Node], scope: Scope) -> list[SelectItem]:
    """Return the items of the list with their names, stars written out."""
    items: list[SelectItem] = []
    for node in nodes:
        kind, body = split(node)
        only(kind, body, "name", "val")
        value: Node = body["val"]
        fields: list[Node] = value["ColumnRef"]["fields"] if kind_of(value) == "ColumnRef" else []
        if fields and kind_of(fields[-1]) == "A_Star":
            relation = names_of(fields[:-1])
            if len(relation) > 1:
                raise refuse(f"{'.'.join(relation)}.*.", fix="Name the table alone: t.*")
            found = scope.star_terms(relation[0] if relation else None)
            items += [SelectItem(name, column=term) for name, term in found]
        else:
            items.append(SelectItem(body.get("name") or _name(value, scope), value, alias=body.get("name")))
    return items


def _name(value: Node, scope: Scope) -> str:
    name = column_name(value)
    if name == STAR and kind_of(value) == "SubLink":
        return subquery(value["SubLink"]["subselect"], scope).columns[0].name
    return name


def _is_distinct(body: Body, terms: list[Term]) -> bool:
    if body.get("distinctClause", [None]) != [{}]:
        return False
    for term in terms:
        comparable(term.type, "SELECT DISTINCT")
    return True


def _first(body: Body, scope: Scope, terms: list[Term], names: list[str], keys: list[Key]) -> First | None:
    """Return DISTINCT ON, whose expressions ORDER BY must begin with: otherwise it is chance which row is first."""
    nodes = body.get("distinctClause", [{}])
    if nodes == [{}]:
        return None
    chosen = [listed_term(node, scope, terms, names, "DISTINCT ON") for node in nodes]
    if not keys:
        raise refuse("DISTINCT ON without ORDER BY.", why="It is chance which row is first.", fix="Add ORDER BY.")
    texts = {term.text for term in chosen}
    leading = {key.term.text for key in keys[: len(texts)]}
    if leading < texts and len(keys) < len(texts):
        raise refuse("DISTINCT ON more than ORDER BY has.", why="It is chance which row is first.", fix="Order by all.")
    if texts != leading or any(term.volatile for term in chosen):
        raise wrong("DISTINCT ON something else than what ORDER BY begins with.")
    if any(" OVER (" in term.text for term in (*chosen, *(key.term for key in keys))):
        raise refuse("DISTINCT ON a window function.", fix="Compute it in a subquery in FROM.")
    for term in chosen:
        comparable(term.type, "DISTINCT ON")
    return First(
        [sorting_key(term) for term in chosen],
        [sorting_key(key.term) for key in keys],
        [key.direction for key in keys],
        [collate(key.term.type) for key in keys],
    )


def _require_grouped(terms: list[Term], scope: Scope) -> None:
    for term in terms:
        for number, text in term.bare:
            if number == scope.number and not _follows(text, scope):
                raise wrong(
                    f"the column {text} must be in GROUP BY or inside an aggregate.",
                    fix="Add it to GROUP BY, or use min(), max(), …",
                )


def _follows(text: str, scope: Scope) -> bool:
    """PostgreSQL lets the columns of a relation follow its grouped primary key: they are the same in all its rows."""
    for relation in scope.relations:
        key = {f"{relation.written}.{quoted_name(name)}" for name in relation.primary_key}
        if key and key <= scope.grouped and text.startswith(f"{relation.written}."):
            return True
    return False


# --- Common table expressions ----------------------------------------------------------------------------------------
# Both engines build a recursive query from a first part and a part that is applied to the rows found last.
# PostgreSQL applies it to all of them together and SQLite row by row. The results are equal as long as each row is
# processed alone: so DISTINCT, GROUP BY, windows and LIMIT are refused in the second part, and it names itself once.


def common_tables(clause: Body | None, scope: Scope) -> str:
    """Return the text of WITH, and bring its queries into the scope."""
    return "" if clause is None else written_with(common_queries(clause, scope))


def written_with(queries: Sequence[str]) -> str:
    """Return the text of WITH; SQLite finds out by itself which query is recursive."""
    return f"WITH {', '.join(queries)} " if queries else ""


def common_queries(clause: Body, scope: Scope) -> list[str]:
    """Return the queries of WITH as they are written, and bring them into the scope."""
    only("WithClause", clause, "ctes", "recursive")
    recursive = bool(clause.get("recursive"))
    written: list[str] = []
    own: set[str] = set()
    for place, node in enumerate(clause["ctes"]):
        body = node["CommonTableExpr"]
        # Whether it is computed once or each time makes no difference: nothing volatile may stand in it.
        only("CommonTableExpr", body, "ctename", "aliascolnames", "ctematerialized", "ctequery")
        name, query_node = body["ctename"], body["ctequery"]
        if kind_of(query_node) != "SelectStmt":
            raise wrong("a WITH query that changes data is not in the outermost WITH.", fix="Move it there.")
        if name in own:
            raise wrong(f"the WITH query {name!r} is defined twice.")
        own.add(name)
        if name.lower() in {known.lower() for known in scope.queries if known != name}:
            raise refuse(f"the WITH query {name!r} differs from another one in case alone.", fix="Rename it.")
        if any(k == "CommonTableExpr" and found["ctename"].lower() == name.lower() for k, found in walk(query_node)):
            # SQLite needs no RECURSIVE, and would take some uses of the inner one for the outer one.
            raise refuse(f"the WITH query {name!r} contains another one of its name.", fix="Rename the inner one.")
        names = names_of(body.get("aliascolnames", ()))
        scope.translation.subqueries += 1
        occurs = bool(_occurrences(query_node, name))
        if any("schemaname" in found for found in _occurrences(query_node, name)):
            raise refuse(f"the WITH query {name!r} reads a table of its own name.", fix="Rename the query.")
        later = (later["CommonTableExpr"]["ctename"] for later in clause["ctes"][place + 1 :])
        if recursive and any(_occurrences(query_node, other) for other in later):
            raise refuse(f"the WITH query {name!r} reads a later one.", fix="Put what it reads before it.")
        if recursive and occurs:
            query = _recursive(query_node, name, names, scope)
        else:
            if occurs:
                raise refuse(f"the WITH query {name!r} reads a table of its own name.", fix="Rename the query.")
            query = finished(draft(query_node, scope.child("a subquery")), names)
        scope.queries[name] = Relation(name, query.columns, quoted_name(name))
        listed = quoted_list(column.name for column in query.columns)
        written.append(f"{quoted_name(name)} ({listed}) AS ({query.text})")
    return written


def _occurrences(value: object, name: str) -> list[Body]:
    """Return the places where a query names that table."""
    return [body for kind, body in walk(value) if kind == "RangeVar" and body["relname"].lower() == name.lower()]


def _recursive(node: Node, name: str, names: Sequence[str], scope: Scope) -> Query:
    body = node["SelectStmt"]
    only("SelectStmt", body, "larg", "rarg", "op", "all", "limitOption")
    if body.get("op") != "SETOP_UNION":
        raise wrong(f"the recursive query {name!r} is not first UNION [ALL] next.")
    every = bool(body.get("all"))
    if _occurrences(body["larg"], name):
        raise wrong(f"the first part of the recursive query {name!r} names itself.")
    _check_following(body["rarg"], name)
    left = draft_select(body["larg"], scope.child("a subquery"))
    left.rename(names)
    left.settle()
    inner = scope.child("a subquery")
    inner.queries[name] = Relation(name, left.outputs_nullable(), quoted_name(name))
    right = draft_select(body["rarg"], inner)
    if len(left.terms) != len(right.terms):
        raise wrong(f"the parts of {name!r} have {len(left.terms)} and {len(right.terms)} columns.")
    for place, (kind, other) in enumerate(zip(left.types, right.types, strict=True), start=1):
        if kind != other and other is not UNKNOWN:
            raise refuse(
                f"column {place} of the recursive query {name!r} is {kind} first and {other} then.",
                fix=f"Cast the first one to {other}, or the other to {kind}.",
            )
    right.give_types(left.types)
    if not every and any(kind.collation for kind in left.types):
        raise refuse("UNION on numeric in a recursive query.", fix="Use UNION ALL.")
    whole = QueryDraft([replace(term, nullable=True) for term in left.terms], left.names, parts=[left, right])
    whole.operator = "UNION ALL" if every else "UNION"
    whole.bare = left.bare | right.bare
    return finished(whole, ())


_TOGETHER: Final = {
    "distinctClause": "DISTINCT",
    "groupClause": "GROUP BY",
    "havingClause": "HAVING",
    "sortClause": "ORDER BY",
    "limitCount": "LIMIT",
    "limitOffset": "OFFSET",
    "windowClause": "WINDOW",
    "lockingClause": "FOR UPDATE",
    "withClause": "WITH",
}


def _check_following(body: Body, name: str) -> None:
    if body.get("op", "SETOP_NONE") != "SETOP_NONE" or "valuesLists" in body:
        raise refuse(f"a recursive part of {name!r} that is not a plain SELECT.", fix="Write UNION ALL SELECT …, once.")
    for clause, word in _TOGETHER.items():
        if clause in body:
            raise refuse(
                f"{word} in the recursive part of {name!r}.",
                why="PostgreSQL applies that part to many rows together, SQLite to one after the other.",
                fix="Do it in the query that reads the whole.",
            )
    for kind, found in walk(body):
        if kind == "FuncCall" and ("over" in found or names_of(found["funcname"])[-1] in aggregates.NAMES):
            raise refuse(f"an aggregate or a window in the recursive part of {name!r}.", fix="Use it outside.")
        if kind == "JoinExpr" and found["jointype"] != "JOIN_INNER":
            raise refuse(f"an outer join in the recursive part of {name!r}.", fix="Use JOIN.")
    direct = [found for node in body.get("fromClause", ()) for found in _joined(node)]
    places = _occurrences(body, name)
    if len(places) != 1 or not any(places[0] is found for found in direct):
        raise refuse(f"the recursive query {name!r} names itself elsewhere than once in FROM.", fix="Join it once.")


def _joined(node: Node) -> list[Body]:
    kind, body = split(node)
    if kind == "JoinExpr":
        return _joined(body["larg"]) + _joined(body["rarg"])
    return [body] if kind == "RangeVar" else []
