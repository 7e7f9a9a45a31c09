"""Queries: SELECT with its clauses, unions of them, and common table expressions.

A SELECT is translated into a `Draft` first and written out last, because the types of its bare literals may be decided
by what surrounds it: the other side of a UNION, or the columns of an INSERT. Clauses are translated in PostgreSQL's
order (FROM before the list), and names in GROUP BY and ORDER BY are resolved by PostgreSQL's rules, not by SQLite's.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from sqlglot import exp

from interlock.sql.casts import convert, meet, settled
from interlock.sql.clauses import grouping, limits, ordering, proven_single, relations
from interlock.sql.datatypes import TEXT, UNKNOWN, Type
from interlock.sql.expressions import expression, predicate
from interlock.sql.operators import comparable, keyed
from interlock.sql.refusal import refuse, wrong
from interlock.sql.scope import Output, Query, Relation, Scope
from interlock.sql.syntax import (
    Node,
    argument,
    child,
    children,
    flag,
    identifier,
    maybe,
    only,
    quoted,
    quoted_list,
    unsupported,
)
from interlock.sql.terms import Reference, Term
from interlock.sql.words import SPECIAL_RELATIONS

_SET_OPERATIONS: Final[dict[type[Node], str]] = {
    exp.Union: "UNION",
    exp.Intersect: "INTERSECT",
    exp.Except: "EXCEPT",
}


@dataclass(slots=True)
class Draft:
    """A query before it is written out: its list can still be given types."""

    terms: list[Term]
    names: list[str]
    single: bool = False
    distinct: bool = False
    checked: bool = True  # Whether results must be verified here, because rows are dropped or merged afterwards.
    head: str = ""
    parts: list["Draft"] = field(default_factory=list["Draft"])
    operator: str = ""
    body: str = ""
    tail: str = ""
    tables: frozenset[str] = frozenset()
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
        else:
            self.terms = [
                replace(convert(term, kind, "implicit"), name=term.name)
                if kind is not UNKNOWN
                else replace(settled(term), name=term.name)
                for term, kind in zip(self.terms, kinds, strict=True)
            ]

    def settle(self) -> "Draft":
        """Decide what nobody else did: bare literals are text."""
        self.give_types([TEXT if kind is UNKNOWN and self.parts else kind for kind in self.types])
        return self

    def write(self) -> str:
        """SQLite's text."""
        if self.parts:
            body = f" {self.operator} ".join(part.operand(self.operator) for part in self.parts)
            return f"{self.head}{body}{self.tail}"
        listed = ", ".join(self._listed(term, name) for term, name in zip(self.terms, self.names, strict=True))
        return f"{self.head}SELECT {'DISTINCT ' if self.distinct else ''}{listed}{self.body}{self.tail}"

    def _listed(self, term: Term, name: str) -> str:
        text = term.checked.text if self.checked else term.text
        if self.distinct if term.type.name == "numeric" else term.type.is_text:
            # A COLLATE inside a text would go on with the column, into UNION, DISTINCT and the queries around this one.
            text = keyed(term)
        return f"{text} AS {quoted(name)}"

    def operand(self, operator: str) -> str:
        """The text as one side of a set operation. SQLite has no parentheses there, and one precedence for all."""
        if self.head or self.tail or (self.parts and self.operator != operator):
            return f"SELECT * FROM ({self.write()})"  # noqa: S608 - made of quoted names, literals and ?n alone
        return self.write()

    def outputs(self) -> tuple[Output, ...]:
        """The columns of the result."""
        return tuple(
            Output(name, term.type, nullable=term.nullable) for name, term in zip(self.names, self.terms, strict=True)
        )


def draft(node: Node, scope: Scope) -> Draft:
    """Translate a query; `scope` is a fresh one, whose parent is whatever the query can see."""
    if type(node) is exp.Subquery:
        only(node, "this")
        return draft(child(node), scope)
    head = _common_tables(maybe(node, "with_"), scope)
    before = set(scope.translation.tables)
    scope.translation.tables.clear()
    if type(node) is exp.Select:
        result = _select(node, scope)
    elif type(node) in _SET_OPERATIONS:
        result = _set_operation(node, scope)
    else:
        raise unsupported(node)
    result.tables = frozenset(scope.translation.tables)
    scope.translation.tables |= before
    result.head = head
    return result


def subquery(node: Node, scope: Scope) -> Query:
    """A query inside an expression of that scope."""
    inner = Scope(scope.translation, parent=scope, place="a subquery")
    return _finished(draft(node, inner).settle())


def derived(node: Node, scope: Scope) -> Query:
    """A query inside FROM or WITH: it sees what is around the query it belongs to, not its neighbours."""
    inner = Scope(scope.translation, parent=scope.parent, queries=dict(scope.queries), place="a subquery")
    result = _finished(draft(node, inner).settle())
    folded = [output.name.lower() for output in result.columns]
    if len(set(folded)) != len(folded):
        raise refuse("a subquery with two columns of the same name.", fix="Give each column an alias of its own.")
    return result


def _finished(result: Draft) -> Query:
    return Query(result.write(), result.outputs(), single=result.single, bare=result.bare, tables=result.tables)


def _common_tables(node: Node | None, scope: Scope) -> str:
    if node is None:
        return ""
    only(node, "expressions")
    written: list[str] = []
    for table in children(node):
        only(table, "this", "alias")
        if type(child(table)) not in {exp.Select, *_SET_OPERATIONS}:
            raise refuse("a WITH query that changes data.", fix="Run the change as a statement of its own.")
        alias = child(table, "alias")
        only(alias, "this", "columns")
        name = identifier(child(alias), "name")
        taken = {known.lower() for known in (*scope.translation.schema.tables, *scope.queries)}
        if name.lower() in taken:
            raise refuse(f"the WITH query {name!r} has the name of a table or of another one.", fix="Rename it.")
        query = derived(child(table), scope)
        columns = _renamed(query.columns, [identifier(column, "column") for column in children(alias, "columns")])
        scope.queries[name] = Relation(name, columns, quoted(name))
        listed = quoted_list(column.name for column in columns)
        written.append(f"{quoted(name)} ({listed}) AS ({query.text})")
    return f"WITH {', '.join(written)} "


def _renamed(columns: tuple[Output, ...], names: list[str]) -> tuple[Output, ...]:
    if not names:
        return columns
    if len(names) != len(columns):
        raise refuse("a WITH query with another number of names than columns.", fix="Name each column.")
    if len({name.lower() for name in names}) != len(names):
        raise wrong("a WITH query with two columns of the same name.")
    return tuple(replace(column, name=name) for column, name in zip(columns, names, strict=True))


def _set_operation(node: Node, scope: Scope) -> Draft:
    only(node, "this", "expression", "distinct", "with_", "order", "limit", "offset")
    operator = _SET_OPERATIONS[type(node)]
    every = not flag(node, "distinct")
    if every and operator != "UNION":
        raise refuse(f"{operator} ALL.", fix=f"Use {operator} without ALL.")
    sides = [child(node), child(node, "expression")]
    for side in sides:
        if type(side) in _SET_OPERATIONS and type(side) is not type(node):
            raise refuse("different set operations side by side.", fix="Put parentheses around the inner one.")
    parts = [
        draft(side, Scope(scope.translation, parent=scope.parent, queries=dict(scope.queries), place=operator))
        for side in sides
    ]
    left, right = parts
    if len(left.terms) != len(right.terms):
        raise wrong(f"the sides of {operator} have {len(left.terms)} and {len(right.terms)} columns.")
    kinds = [_met(one, other, operator) for one, other in zip(left.types, right.types, strict=True)]
    terms = [Term("", kind, name=name) for kind, name in zip(kinds, left.names, strict=True)]
    result = Draft(terms, left.names, parts=parts, operator=f"{operator} ALL" if every else operator)
    result.bare = left.bare | right.bare
    result.give_types(kinds)
    if not every:
        for kind in kinds:
            comparable(kind, operator)
            if kind.name == "numeric":
                raise refuse(f"{operator} on numeric.", fix="Use UNION ALL, or SELECT DISTINCT over it.")
    result.tail = ordering(maybe(node, "order"), scope, result.terms, left.names, compound=True)
    result.tail += limits(maybe(node, "limit"), maybe(node, "offset"), scope)
    return result


def _met(left: Type, right: Type, operator: str) -> Type:
    met = meet(left, right)
    if met is None:
        raise wrong(f"the sides of {operator} have columns of {left} and {right}.", fix="Cast one of them.")
    return TEXT if met is UNKNOWN else met


def _select(node: Node, scope: Scope) -> Draft:
    only(
        node,
        "expressions",
        "from_",
        "joins",
        "where",
        "group",
        "having",
        "order",
        "limit",
        "offset",
        "distinct",
        "with_",
    )
    body = relations(node, scope, derived)
    bare: set[Reference] = set()
    where = maybe(node, "where")
    if where is not None:
        only(where, "this")
        with scope.at("WHERE", volatile=scope.volatile):
            condition = predicate(child(where), scope, "WHERE")
        body += f" WHERE {condition.checked.text}"
        bare |= condition.bare
    items = listed_items(node, scope)
    groups = grouping(maybe(node, "group"), scope, items)
    if groups is not None:
        scope.grouped = frozenset(term.text for term in groups.terms)
        body += groups.text
    with scope.at("the SELECT list", aggregates=True):
        terms = [expression(item, scope) for item, _ in items]
    names = [alias or term.name or "?column?" for term, (_, alias) in zip(terms, items, strict=True)]
    used = list(terms)
    having = maybe(node, "having")
    if having is not None:
        if groups is None:
            raise refuse("HAVING without GROUP BY.", fix="Filter in Python, or group.")
        only(having, "this")
        with scope.at("HAVING", aggregates=True, volatile=False):
            condition = predicate(child(having), scope, "HAVING")
        body += f" HAVING {condition.checked.text}"
        used.append(condition)
    result = Draft(terms, names, body=body, distinct=_distinct(node, terms))
    result.tail = ordering(maybe(node, "order"), scope, terms, names, distinct=result.distinct, used=used)
    result.tail += limits(maybe(node, "limit"), maybe(node, "offset"), scope)
    result.checked = scope.parent is not None or bool(result.tail) or result.distinct or not scope.volatile
    is_aggregate = any(term.aggregate for term in used)
    if groups is not None or is_aggregate:
        _require_grouped(used, scope)
    result.single = (is_aggregate and groups is None) or proven_single(node, scope)
    bare.update(*(term.bare for term in used), *(term.inside for term in used))
    result.bare = frozenset(item for item in bare if item[0] != scope.number)
    return result


def listed_items(node: Node, scope: Scope) -> list[tuple[Node, str | None]]:
    """The items of the list with their aliases, stars written out."""
    items: list[tuple[Node, str | None]] = []
    for item in children(node):
        if type(item) is exp.Alias:
            only(item, "this", "alias")
            items.append((child(item), identifier(child(item, "alias"), "alias")))
        elif type(item) is exp.Star:
            only(item)
            items += [(column, None) for column in _star(scope, None)]
        elif type(item) is exp.Column and type(child(item)) is exp.Star:
            only(item, "this", "table")
            only(child(item))
            items += [(column, None) for column in _star(scope, identifier(child(item, "table"), "relation"))]
        else:
            items.append((item, None))
    if not items:
        raise refuse("a SELECT without columns.")
    return items


def _star(scope: Scope, relation: str | None) -> list[Node]:
    """The columns that * stands for, as if they had been written."""
    chosen = [known for known in scope.relations if relation is None or known.name == relation]
    if not chosen:
        if relation in SPECIAL_RELATIONS:
            raise refuse(f"{relation}.*.", fix="Name the columns; query first for what was there before.")
        raise wrong("* without a table." if relation is None else f"there is no relation {relation!r} here.")
    return [
        exp.Column(
            this=exp.Identifier(this=output.name, quoted=True), table=exp.Identifier(this=known.name, quoted=True)
        )
        for known in chosen
        for output in known.columns
    ]


def _distinct(node: Node, terms: list[Term]) -> bool:
    distinct = argument(node, "distinct")
    if not distinct:
        return False
    if not isinstance(distinct, exp.Distinct):
        raise unsupported(node)
    only(distinct)
    for term in terms:
        comparable(term.type, "SELECT DISTINCT")
    return True


def _require_grouped(terms: list[Term], scope: Scope) -> None:
    for term in terms:
        for number, text in term.bare:
            if number == scope.number:
                _refuse_dependent(scope)
                raise wrong(
                    f"the column {text} must be in GROUP BY or inside an aggregate.",
                    fix="Add it to GROUP BY, or use min(), max(), …",
                )


def _refuse_dependent(scope: Scope) -> None:
    """PostgreSQL lets the columns of a relation follow its grouped primary key."""
    for relation in scope.relations:
        key = {f"{relation.written}.{quoted(name)}" for name in relation.primary_key}
        if key and key <= scope.grouped:
            raise refuse(
                f"columns of {relation.name!r} that follow from its primary key in GROUP BY.",
                fix="Name them in GROUP BY, too.",
            )
