"""Scopes of names in a statement: the relations in reach, and the constructs that are allowed there.

Each SELECT has a scope; the scope of a subquery has that around it as parent. Every column is written to SQLite with
its relation, quoted, so SQLite never guesses: no alias is taken for a column, no quoted name for a string. SQLite
compares names without regard to case, so names in reach that differ in case alone are refused.
"""

from collections.abc import Callable, Generator, Iterable
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import ClassVar

from sqlglot import exp

from interlock.sql.grammar import INTERNAL_PREFIXES, SPECIAL_RELATIONS, SYSTEM_COLUMNS
from interlock.sql.parse import Node, quoted_name
from interlock.sql.schema import Schema, Table
from interlock.sql.types import Type, refuse, wrong

# --- Term: a translated expression with its type and the checks that are still to be made ----------------------------
# `unchecked` marks a number that SQLite computed natively and that may have left its type: an overflow becomes a
# float, or a whole number too large for its width. Code that uses such a term either runs where the range is
# verified anyway (a column's CHECK, `Statement.decode`) or takes `term.checked`. So `n + 1` stays native on the hot
# path. `bare` contains the columns outside of aggregates, for the rule of GROUP BY.

# A column reference: the number of the scope it belongs to, and its text.
Reference = tuple[int, str]


@dataclass(slots=True, eq=False)
class Parameter:
    """One `$n` of a statement; every use of it must want the same type."""

    number: int
    type: Type | None = None
    assigned: Type | None = None
    place: tuple[int, str] | None = None  # The clause of its first use: the number of the scope, and the name.

    def take(self, kind: Type) -> None:
        """Give it the type that one of its uses wants."""
        if self.type is None:
            self.type = kind.plain
        elif self.type != kind.plain:
            raise refuse(
                f"${self.number} is used both as {self.type} and as {kind.plain}.",
                fix=f"Use two parameters, or cast one use: ${self.number}::{self.type}.",
            )

    def assign(self, kind: Type) -> None:
        """Assign it to a column: PostgreSQL tells text from varchar there, though not in a comparison."""
        if kind.is_text and self.assigned not in {None, kind.plain}:
            raise refuse(
                f"${self.number} is assigned both to text and to varchar.",
                why="PostgreSQL cannot tell its type.",
                fix=f"Use two parameters, or cast one use: ${self.number}::text.",
            )
        self.assigned = kind.plain


@dataclass(frozen=True, slots=True)
class Term:
    """One expression for SQLite."""

    text: str
    type: Type
    atomic: bool = True
    unchecked: bool = False
    volatile: bool = False
    aggregate: bool = False
    bare: frozenset[Reference] = frozenset()
    inside: frozenset[Reference] = frozenset()  # Columns under an aggregate; `bare` has all others.
    literal: str | None = None  # The text of a string literal, or of a number as it was written.
    parameter: "Parameter | None" = None
    nullable: bool = True
    name: str | None = None  # The name PostgreSQL gives the column of a result, if any.
    weak: bool = False  # A name that a cast or a CASE around it replaces.

    @property
    def checked(self) -> "Term":
        """The term with its range verified, by a function if need be."""
        if not self.unchecked:
            return self
        text = f"interlock_{self.type.name}({self.text})"
        return replace(self, text=text, atomic=True, unchecked=False)

    @property
    def operand(self) -> str:
        """The verified text, in parentheses if it needs them."""
        return self.checked.native

    @property
    def native(self) -> str:
        """The text in parentheses if it needs them, not verified."""
        # A minus sign is never left open: two in a row would begin a comment.
        return self.text if self.atomic and not self.text.startswith("-") else f"({self.text})"


def named(term: Term, name: str | None, *, weak: bool = False) -> Term:
    """The term under the name that PostgreSQL gives it."""
    return replace(term, name=name, weak=weak)


def combined(
    text: str,
    kind: Type,
    parts: Iterable[Term],
    *,
    atomic: bool = False,
    unchecked: bool = False,
    name: str | None = None,
) -> Term:
    """A term made of others: it is as volatile as its parts, and refers to what they refer to."""
    parts = tuple(parts)
    return Term(
        text,
        kind,
        atomic=atomic,
        unchecked=unchecked,
        volatile=any(part.volatile for part in parts),
        aggregate=any(part.aggregate for part in parts),
        bare=frozenset[Reference]().union(*(part.bare for part in parts)),
        inside=frozenset[Reference]().union(*(part.inside for part in parts)),
        name=name,
    )


def call(function: str, kind: Type, *parts: Term, extra: str = "", unchecked: bool = False) -> Term:
    """A call of a function with verified arguments; `extra` is appended to them as it is."""
    listed = ", ".join([part.checked.text for part in parts] + ([extra] if extra else []))
    return combined(f"{function}({listed})", kind, parts, atomic=True, unchecked=unchecked)


# --- Scopes ----------------------------------------------------------------------------------------------------------

PARAMETERS_MAX = 1000


@dataclass(frozen=True, slots=True)
class Output:
    """One column that a relation or a query gives."""

    name: str
    type: Type
    nullable: bool = True


@dataclass(frozen=True, slots=True)
class Relation:
    """Something that columns come from, under the name it has in the statement and the name SQLite knows it by."""

    name: str
    columns: tuple[Output, ...]
    written: str
    outer: bool = False  # The nullable side of a LEFT JOIN.
    primary_key: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Query:
    """A translated query as a part of something larger."""

    text: str
    columns: tuple[Output, ...]
    single: bool  # Proven to give at most one row.
    bare: frozenset[tuple[int, str]]  # Columns of the queries around it.


@dataclass(frozen=True, slots=True)
class Merged:
    """A column that JOIN … USING made of several: what its name alone means, and the relations that it stands for."""

    term: Term
    relations: frozenset[str]


class MergedColumn(exp.Column):
    """A merged column that * stands for: the name alone may be ambiguous, the part of FROM tells which one it is."""

    arg_types: ClassVar[dict[str, bool]] = {"this": True, "part": True}


@dataclass(slots=True)
class Translation:
    """The state of one statement's translation. `subquery` and `window` translate what expressions may contain."""

    schema: Schema
    subquery: Callable[[Node, "Scope"], Query]
    window: Callable[[Node, "Scope"], Term]
    parameters: dict[int, Parameter] = field(default_factory=dict[int, Parameter])
    scopes: int = 0
    subqueries: int = 0
    locking: bool = False  # Whether some part of it asks for locks, which the writer alone may give.

    def parameter(self, number: int) -> Parameter:
        """The parameter of that number."""
        if not 1 <= number <= PARAMETERS_MAX:
            raise refuse(f"${number}; parameters are $1 to ${PARAMETERS_MAX}.")
        return self.parameters.setdefault(number, Parameter(number))

    def parameter_types(self) -> tuple[Type, ...]:
        """The types of $1, $2, …, all of which must be known by now."""
        types: list[Type] = []
        for number in range(1, max(self.parameters, default=0) + 1):
            known = self.parameters.get(number)
            if known is None:
                raise wrong(f"${number} is not used.", fix="Number the parameters without gaps.")
            if known.type is None:
                raise refuse(
                    f"the type of ${number} cannot be inferred from its place.",
                    fix=f"Write its type: ${number}::bigint.",
                )
            types.append(known.type)
        return tuple(types)

    def table(self, name: str) -> Table:
        """The table of that name."""
        visible(name, "table")
        table = self.schema.table(name)
        if table is None:
            raise wrong(f"there is no table {name!r}.", fix="Create it first; names without quotes are lower case.")
        return table


def visible(name: str, what: str) -> None:
    """Refuse names that belong to the lane or to the engines."""
    if name.lower().startswith(INTERNAL_PREFIXES):
        raise refuse(f"the {what} name {name!r}.", why="The prefix is reserved.", fix="Choose another name.")


@dataclass(slots=True)
class Scope:
    """The names in reach at one level of a statement, and what may stand at the place being translated."""

    translation: Translation
    parent: "Scope | None" = None
    relations: list[Relation] = field(default_factory=list[Relation])
    queries: dict[str, Relation] = field(default_factory=dict[str, Relation])  # Common table expressions.
    merged: dict[tuple[str, int], Merged] = field(default_factory=dict[tuple[str, int], Merged])  # By name and part.
    star: list[Node] = field(default_factory=list[Node])  # The columns that * stands for.
    named_windows: dict[str, Node] = field(default_factory=dict[str, Node])
    grouped: frozenset[str] = frozenset()
    aggregates: bool = False
    windows: bool = False
    volatile: bool = False
    subqueries: bool = True
    place: str = "this place"
    number: int = field(init=False)

    def __post_init__(self) -> None:
        self.translation.scopes += 1
        self.number = self.translation.scopes

    @contextmanager
    def at(
        self,
        place: str,
        *,
        aggregates: bool = False,
        windows: bool = False,
        volatile: bool | None = None,
        subqueries: bool | None = None,
    ) -> Generator[None]:
        """Translate a clause: what may stand in it, and its name for errors."""
        before = self.place, self.aggregates, self.windows, self.volatile, self.subqueries
        self.place, self.aggregates, self.windows = place, aggregates, windows
        self.volatile = self.volatile if volatile is None else volatile
        self.subqueries = self.subqueries if subqueries is None else subqueries
        try:
            yield
        finally:
            self.place, self.aggregates, self.windows, self.volatile, self.subqueries = before

    def add(self, relation: Relation) -> None:
        """Bring a relation into reach, for what follows it."""
        scope: Scope | None = self
        while scope is not None:
            for known in scope.relations:
                if known.name.lower() == relation.name.lower() and (scope is self or known.name != relation.name):
                    raise refuse(f"the name {relation.name!r} stands for two relations.", fix="Use different aliases.")
            scope = scope.parent
        self.relations.append(relation)
        self.star += [qualified(relation.name, output.name) for output in relation.columns]

    def query_named(self, name: str) -> Relation | None:
        """The common table expression of that name."""
        scope: Scope | None = self
        while scope is not None:
            if name in scope.queries:
                return scope.queries[name]
            scope = scope.parent
        return None

    def column(self, relation: str | None, name: str) -> Term:
        """The column of that name, from the innermost level that has it."""
        scope: Scope | None = self
        while scope is not None:
            found = [
                (known, output)
                for known in scope.relations
                if relation is None or known.name == relation
                for output in known.columns
                if output.name == name
            ]
            merged = [entry for (known, _), entry in scope.merged.items() if known == name and relation is None]
            for entry in merged:
                found = [(known, output) for known, output in found if known.name not in entry.relations]
            if len(found) + len(merged) > 1:
                raise wrong(f"the column {name!r} is ambiguous.", fix="Put its relation before it: t.name.")
            if merged:
                return scope.grouped_term(merged[0].term)
            if found:
                return scope.term(*found[0])
            if relation is not None and any(known.name == relation for known in scope.relations):
                break
            scope = scope.parent
        self._refuse_special(relation, name)
        full = name if relation is None else f"{relation}.{name}"
        raise wrong(f"there is no column {full!r} here.", fix="Names without quotes are lower case; text is in '…'.")

    def _refuse_special(self, relation: str | None, name: str) -> None:
        """Refuse names that PostgreSQL resolves although no table has such a column."""
        scope: Scope | None = self
        while scope is not None:
            if relation is None and any(known.name == name for known in scope.relations):
                raise refuse(f"the whole row of {name!r} as a value.", fix="Name its columns.")
            scope = scope.parent
        if relation in SPECIAL_RELATIONS or name in SYSTEM_COLUMNS:
            full = name if relation is None else f"{relation}.{name}"
            raise refuse(f"the column {full!r} of the system.", fix="Use columns of tables.")

    def term(self, relation: Relation, output: Output) -> Term:
        """A column of this scope as a term."""
        text = f"{relation.written}.{quoted_name(output.name)}" if relation.written else quoted_name(output.name)
        bare = frozenset({(self.number, text)})
        nullable = output.nullable or relation.outer
        return self.grouped_term(Term(text, output.type, bare=bare, name=output.name, nullable=nullable))

    def grouped_term(self, term: Term) -> Term:
        """The term; if GROUP BY names it, its columns need no aggregate around them."""
        return replace(term, bare=frozenset[tuple[int, str]]()) if term.text in self.grouped else term


def qualified(relation: str, name: str) -> Node:
    """The column of that relation, as if it had been written."""
    return exp.Column(this=exp.Identifier(this=name, quoted=True), table=exp.Identifier(this=relation, quoted=True))
