"""The clauses of a SELECT after FROM: GROUP BY, ORDER BY, LIMIT and OFFSET, locks; and `Draft`, the query they are in.

Where PostgreSQL and SQLite resolve or default differently, the difference is written out: ORDER BY says where NULLs go,
GROUP BY repeats expressions instead of aliases, a negative LIMIT raises.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from sqlglot import exp

from interlock.sql.casts import convert, settled
from interlock.sql.expressions import expression, quantified
from interlock.sql.operators import COLLATED, comparable, keyed, sorting_key
from interlock.sql.parse import (
    Node,
    argument,
    child,
    children,
    flag,
    identifier,
    maybe,
    only,
    quoted_name,
    string_literal,
    unsupported,
)
from interlock.sql.scope import Output, Reference, Scope, Term
from interlock.sql.types import INT8, TEXT, UNKNOWN, Type, refuse, wrong

# --- GROUP BY --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Grouping:
    """GROUP BY: its terms, and its text."""

    terms: tuple[Term, ...]
    text: str


def grouping(node: Node | None, scope: Scope, items: Sequence[tuple[Node, str | None]]) -> Grouping | None:
    """GROUP BY: a number is a place in the list, a bare name is a column, or else an alias of the list."""
    if node is None:
        return None
    only(node, "expressions")
    terms: list[Term] = []
    for item in children(node):
        with scope.at("GROUP BY", volatile=False, subqueries=False):
            term = settled(expression(_grouped_item(item, scope, items), scope))
        comparable(term.type, "GROUP BY")
        if term.parameter is not None or not term.bare:
            raise refuse("a constant in GROUP BY.", fix="Group by columns.")
        terms.append(term)
    if not terms:
        raise refuse("an empty GROUP BY.")
    return Grouping(tuple(terms), f" GROUP BY {', '.join(sorting_key(term) for term in terms)}")


def _grouped_item(node: Node, scope: Scope, items: Sequence[tuple[Node, str | None]]) -> Node:
    if type(node) is exp.Literal:
        return items[_place(node, len(items), "GROUP BY") - 1][0]
    name = _bare_name(node)
    if name is None or any(output.name == name for known in scope.relations for output in known.columns):
        return node
    chosen = [item for item, alias in items if alias == name]
    if len(chosen) > 1:
        raise wrong(f"GROUP BY {name!r} is ambiguous.")
    return chosen[0] if chosen else node


def _bare_name(node: Node) -> str | None:
    if type(node) is exp.Column and maybe(node, "table") is None and type(child(node)) is exp.Identifier:
        return identifier(child(node), "column")
    return None


def _place(node: Node, count: int, clause: str) -> int:
    written = string_literal(node)
    if flag(node, "is_string") or not written.isdecimal() or not 1 <= int(written) <= count:
        raise wrong(f"{clause} {written}: there are {count} columns in the list.")
    return int(written)


# --- ORDER BY --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Key:
    """One key of ORDER BY: what it sorts by, as it is written, and its direction."""

    term: Term
    text: str
    direction: str


def sorted_by(keys: Sequence[Key]) -> str:
    """The text of ORDER BY."""
    return f" ORDER BY {', '.join(key.text + key.direction for key in keys)}" if keys else ""


def ordering(
    node: Node | None,
    scope: Scope,
    terms: Sequence[Term],
    names: Sequence[str],
    *,
    distinct: bool = False,
    compound: bool = False,
    used: list[Term] | None = None,
) -> list[Key]:
    """ORDER BY: a number or a bare name of the list is that place in it, everything else an expression over FROM."""
    if node is None:
        return []
    only(node, "expressions")
    listed: list[Key] = []
    for item in children(node):
        only(item, "this", "desc", "nulls_first")
        key = child(item)
        name = _bare_name(key)
        written = type(key) is exp.Literal
        place = _place(key, len(terms), "ORDER BY") if written else _listed_place(name, terms, names)
        if place:
            term = terms[place - 1]
            if term.volatile:
                raise refuse("ORDER BY a column of random values.", fix="Order by random() itself.")
            text = f"{place} {COLLATED}" if term.type.name == "numeric" else str(place)
        elif is_constant(key):
            raise refuse("ORDER BY a constant.", why="It orders nothing.", fix="Order by columns.")
        elif compound:
            raise refuse("ORDER BY an expression after a set operation.", fix="Order by the name of a column.")
        else:
            with scope.at("ORDER BY", aggregates=True, windows=True):
                term = settled(expression(key, scope))
            if distinct and all(term.text != other.text for other in terms):
                raise wrong("with SELECT DISTINCT, ORDER BY must be in the list.")
            text = sorting_key(term)
            if used is not None:
                used.append(term)
        comparable(term.type, "ORDER BY")
        listed.append(Key(term, text, direction(item, term)))
    return listed


def listed_term(node: Node, scope: Scope, terms: Sequence[Term], names: Sequence[str], clause: str) -> Term:
    """Return the term of a number, listed name or expression in DISTINCT ON, which PostgreSQL reads like ORDER BY."""
    place = _place(node, len(terms), clause) if type(node) is exp.Literal else 0
    place = place or _listed_place(_bare_name(node), terms, names)
    if place:
        return terms[place - 1]
    with scope.at(clause, aggregates=True, windows=True):
        return settled(expression(node, scope))


def is_constant(node: Node) -> bool:
    """Return whether the term is a constant, which orders nothing."""
    while type(node) in {exp.Paren, exp.Cast, exp.Neg}:
        node = child(node)
    return type(node) in {exp.Literal, exp.Null, exp.Boolean, exp.Parameter}


def _listed_place(name: str | None, terms: Sequence[Term], names: Sequence[str]) -> int:
    """The place of that name in the list, or 0. Two of that name must be the same thing."""
    places = [place for place, known in enumerate(names, start=1) if known == name]
    if len({terms[place - 1].text or str(place) for place in places}) > 1:
        raise wrong(f"ORDER BY {name!r} is ambiguous.", fix="Give the columns different names.")
    return places[0] if places else 0


def direction(item: Node, term: Term) -> str:
    """PostgreSQL takes NULL for larger than everything, SQLite for smaller: say where it goes, if there can be any."""
    text = " DESC" if flag(item, "desc") else ""
    if not term.nullable:
        return text
    return f"{text} NULLS {'FIRST' if flag(item, 'nulls_first') else 'LAST'}"


# --- LIMIT -----------------------------------------------------------------------------------------------------------


def limits(limit: Node | None, offset: Node | None, scope: Scope) -> str:
    """Translate LIMIT and OFFSET. A negative one is unlimited in SQLite and an error in PostgreSQL; NULL: no bound."""
    if limit is None and offset is None:
        return ""
    text = " LIMIT -1" if limit is None else f" LIMIT {_bound(limit, scope, 'limit')}"
    return text if offset is None else f"{text} OFFSET {_bound(offset, scope, 'offset')}"


def _bound(node: Node, scope: Scope, name: str) -> str:
    if type(node) is exp.Fetch:
        only(node, "direction", "count", "limit_options")
        options = maybe(node, "limit_options")
        if options is not None:
            only(options, "rows")
        given = maybe(node, "count")
        if given is None:
            return "1"
    elif type(node) in {exp.Limit, exp.Offset}:
        only(node, "expression")
        given = child(node, "expression")
    else:
        raise unsupported(node)
    if type(given) is exp.Var and string_literal(given).upper() == "ALL":
        return "-1"
    alone = Scope(scope.translation, place=name.upper(), subqueries=False)
    term = expression(given, alone)
    if term.type is UNKNOWN and term.parameter is None:
        raise refuse(f"{name.upper()} must be a number or a parameter.")
    term = convert(term, INT8, "assignment")
    if term.literal is not None and term.atomic:
        return term.literal
    return f"interlock_{name}({term.checked.text})"


# --- Locks -----------------------------------------------------------------------------------------------------------


def locks(node: Node, scope: Scope) -> None:
    """FOR UPDATE and the like: nothing is left to do but to run in the writer.

    A lane runs one transaction at a time, so each has every lock it could ask for, and neither SKIP LOCKED nor NOWAIT
    ever finds one taken.
    """
    for lock in children(node, "locks"):
        only(lock, "update", "expressions", "wait", "key")
        if maybe(lock, "wait") is not None:
            raise unsupported(lock)
        for forbidden in ("distinct", "group", "having"):
            if argument(node, forbidden):
                raise wrong(f"FOR UPDATE with {forbidden.upper()}.")
        if any(item.find(exp.Window) is not None for item in children(node)):
            raise wrong("FOR UPDATE with a window function.")
        if any(relation.outer for relation in scope.relations):
            raise refuse("FOR UPDATE with an outer join.", fix="Lock the rows of one table in a statement of its own.")
        known = {relation.name for relation in scope.relations}
        for target in children(lock):
            only(target, "this")
            if identifier(child(target), "table") not in known:
                raise wrong(f"FOR UPDATE OF {identifier(child(target), 'table')!r}, which is not in FROM.")
        scope.translation.locking = True


# --- Proof of one row at most ----------------------------------------------------------------------------------------


def proven_single(node: Node, scope: Scope) -> bool:
    """Return whether a SELECT can give one row at most: no table, LIMIT 1, or the whole primary key asked for."""
    limit = maybe(node, "limit")
    if limit is not None:
        bound = maybe(limit, "count" if type(limit) is exp.Fetch else "expression")
        if bound is None and type(limit) is exp.Fetch:
            return True
        if type(bound) is exp.Literal and string_literal(bound) in {"0", "1"}:
            return True
    if not scope.relations:
        return True
    if len(scope.relations) > 1 or not scope.relations[0].primary_key:
        return False
    [relation] = scope.relations
    where = maybe(node, "where")
    with scope.at("WHERE"):
        asked = set[str]() if where is None else fixed(child(where), scope)
    return {f"{relation.written}.{quoted_name(name)}" for name in relation.primary_key} <= asked


def fixed(node: Node, scope: Scope) -> set[str]:
    """The columns of this scope that a condition equates with something from outside of it."""
    if type(node) is exp.Paren:
        return fixed(child(node), scope)
    if type(node) is exp.And:
        return fixed(child(node), scope) | fixed(child(node, "expression"), scope)
    if type(node) is not exp.EQ or quantified(child(node, "expression")) is not None:
        return set()
    if type(child(node)) is exp.Tuple:
        pairs = zip(children(child(node)), children(child(node, "expression")), strict=True)
        return {
            name for left, right in pairs for name in fixed(exp.EQ(this=left.copy(), expression=right.copy()), scope)
        }
    sides = [expression(child(node, name), scope) for name in ("this", "expression")]
    found: set[str] = set()
    for column, value in (sides, sides[::-1]):
        own = {(scope.number, column.text)}
        # As floats, two different whole numbers may be equal.
        exact = value.type == column.type or value.type.name != "float8"
        if column.bare == own and exact and all(number != scope.number for number, _ in value.bare):
            found.add(column.text)
    return found


# --- Draft: a parsed query whose columns can still get their types from its context ----------------------------------
# The other side of a UNION, the columns of an INSERT or the other rows of VALUES decide what a bare literal is. So a
# query is kept as terms, and its text is made last.


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

    def settle(self) -> "Draft":
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
        """Return whether a UNION merges numerics: SQLite's own compares their texts."""
        return self.operator == "UNION" and any(kind.name == "numeric" for kind in self.types)

    def _merged(self, body: str) -> str:
        listed = ", ".join(
            f"c{place}{f' {COLLATED}' if term.type.name == 'numeric' else ''} AS {quoted_name(name)}"
            for place, (name, term) in enumerate(zip(self.names, self.terms, strict=True))
        )
        return f"SELECT DISTINCT {listed} FROM ({body})"  # noqa: S608 - made of quoted names, literals and ?n alone

    def _listed_texts(self) -> list[str]:
        return [self._listed(term) for term in self.terms]

    def _listed(self, term: Term) -> str:
        if self.distinct if term.type.name == "numeric" else term.type.is_text:
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
        if self.head or self.tail or self.first or (self.parts and (self._is_merged or self.operator != operator)):
            return f"SELECT * FROM ({self.write()})"  # noqa: S608 - made of quoted names, literals and ?n alone
        return self.write()

    def outputs(self) -> tuple[Output, ...]:
        """The columns of the result."""
        return tuple(
            Output(name, term.type, nullable=term.nullable) for name, term in zip(self.names, self.terms, strict=True)
        )

    def outputs_nullable(self) -> tuple[Output, ...]:
        """The columns of the result as rows that are still to come may fill them."""
        return tuple(replace(output, nullable=True) for output in self.outputs())


def _typed(terms: Sequence[Term], kinds: Sequence[Type]) -> list[Term]:
    return [
        replace(settled(term) if kind is UNKNOWN else convert(term, kind, "implicit"), name=term.name)
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
