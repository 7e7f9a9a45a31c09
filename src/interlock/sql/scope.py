"""Terms, parameters and scopes: what a translated expression is, and which names are in reach where it stands.

Each SELECT has a scope; the scope of a subquery has the one around it as parent. Every column is written to SQLite with
its relation, quoted, so SQLite never guesses: no alias is taken for a column, no quoted name for a string. SQLite
compares names without regard to case, so names in reach that differ in case alone are refused.
"""

from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Final

import msgspec
from msgspec.structs import replace

from interlock.errors import InterlockError
from interlock.sql.parse import Node, quoted_name
from interlock.sql.schema import NumberSequence, Schema, Table
from interlock.sql.stored_values import StatementStep
from interlock.sql.types import UNKNOWN, Type, refuse, wrong

INTERNAL_PREFIXES: Final = ("interlock_", "sqlite_", "pg_")
SYSTEM_COLUMNS: Final = frozenset({"ctid", "cmax", "cmin", "oid", "rowid", "_rowid_", "tableoid", "xmax", "xmin"})
LISTED_ROWS: Final = "pg_rows"
"""The relation that a function in the list of a SELECT becomes; * does not stand for its columns."""
PARAMETERS_MAX: Final = 32_766
"""The number of parameters that SQLite takes."""

# --- Terms -----------------------------------------------------------------------------------------------------------
# `unchecked` marks a number that SQLite computed natively and that may have left its type: an overflow becomes a
# float, or a whole number too large for its width. Code that uses such a term either runs where the range is
# verified anyway (a column's CHECK, `Statement.decode`) or takes `term.checked`. So `n + 1` stays native on the hot
# path. `bare` contains the columns outside of aggregates, for the rule of GROUP BY.

Reference = tuple[int, str]
"""A column reference: the number of the scope it belongs to, and its text."""

NO_REFERENCES: Final[frozenset[Reference]] = frozenset()


class Parameter:
    """One `$n` of a statement. The first use that wants a type decides it; later uses are values of that type."""

    __slots__ = ("number", "type")

    def __init__(self, number: int) -> None:
        self.number = number
        self.type: Type | None = None

    def take(self, kind: Type) -> None:
        """Give it the type that one of its uses wants."""
        if self.type is None:
            self.type = kind.plain
        elif self.type != kind.plain:
            raise wrong(
                f"${self.number} is used both as {self.type} and as {kind.plain}.",
                fix=f"Use two parameters, or cast its first use: ${self.number}::{self.type}.",
            )


class Term(msgspec.Struct, frozen=True, eq=False):
    """One expression for SQLite."""

    text: str
    type: Type
    atomic: bool = True
    unchecked: bool = False
    volatile: bool = False
    aggregate: bool = False
    bare: frozenset[Reference] = NO_REFERENCES
    inside: frozenset[Reference] = NO_REFERENCES
    """Columns under an aggregate; `bare` has all others."""
    literal: str | None = None
    """The text of a string literal, or of a number as it was written."""
    parameter: Parameter | None = None
    """The `Parameter`, while its type is unknown."""
    nullable: bool = True
    failing: InterlockError | None = None
    """The error of a part of it that is constant and cannot be computed: 1 / 0."""

    @property
    def checked(self) -> "Term":
        """The term with its range verified, by a function if need be."""
        if not self.unchecked:
            return self
        return replace(self, text=f"interlock_{self.type.name}({self.text})", atomic=True, unchecked=False)

    @property
    def operand(self) -> str:
        """The verified text, in parentheses if it needs them."""
        return self.checked.native

    @property
    def native(self) -> str:
        """The text in parentheses if it needs them, not verified."""
        # A minus sign is never left open: two in a row would begin a comment.
        return self.text if self.atomic and not self.text.startswith("-") else f"({self.text})"

    @property
    def is_constant(self) -> bool:
        """Whether it is a literal, NULL or a parameter, or a cast or sum of these."""
        return not (self.bare or self.inside or self.volatile or self.aggregate) and "(SELECT" not in self.text

    @property
    def is_known(self) -> bool:
        """Whether PostgreSQL computes it before the statement runs: a constant without parameters."""
        return self.is_constant and "?" not in self.text


def combined(text: str, kind: Type, parts: Iterable[Term], *, atomic: bool = False, unchecked: bool = False) -> Term:
    """Return a term made of others: it is as volatile as its parts, and refers to what they refer to."""
    volatile = aggregate = False
    failing: InterlockError | None = None
    bare = inside = NO_REFERENCES
    for part in parts:
        volatile = volatile or part.volatile
        aggregate = aggregate or part.aggregate
        failing = failing or part.failing
        bare = bare | part.bare if part.bare else bare
        inside = inside | part.inside if part.inside else inside
    return Term(text, kind, atomic, unchecked, volatile, aggregate, bare, inside, failing=failing)


def call(function: str, kind: Type, *parts: Term, extra: str = "", unchecked: bool = False) -> Term:
    """Return a call of a function with verified arguments; `extra` is appended to them as it is."""
    listed = ", ".join([part.checked.text for part in parts] + ([extra] if extra else []))
    return combined(f"{function}({listed})", kind, parts, atomic=True, unchecked=unchecked)


# --- Relations and queries -------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Output:
    """One column that a relation or a query gives."""

    name: str
    type: Type
    nullable: bool = True
    text: str = ""
    """The column as SQLite reads it, where that is not its relation and its name."""


@dataclass(frozen=True, slots=True)
class Relation:
    """A source of columns, under the name it has in the statement and the name SQLite knows it by."""

    name: str
    columns: tuple[Output, ...]
    written: str
    outer: bool = False
    """Whether it is the nullable side of a join."""
    primary_key: tuple[str, ...] = ()
    value: str | None = None
    """The column that the relation's name alone means: the result of a function in FROM."""


@dataclass(frozen=True, slots=True)
class Query:
    """A translated query as a part of something larger."""

    text: str
    columns: tuple[Output, ...]
    single: bool
    """Whether it is proven to give at most one row."""
    bare: frozenset[Reference]
    """Columns of the queries around it."""


@dataclass(frozen=True, slots=True)
class Merged:
    """A column that JOIN … USING made of several: what its name alone means, and the relations that it stands for."""

    term: Term
    relations: frozenset[str]


StarColumn = tuple[str, tuple[str, int] | int]
"""A column that * stands for: its name, and its place in its relation or the part of FROM that merged it."""


@dataclass(slots=True)
class Translation:
    """The state of one statement's translation. `subquery` and `window` translate what expressions may contain."""

    schema: Schema
    subquery: Callable[[Node, "Scope"], Query]
    window: Callable[[Node, "Scope"], Term]
    parameters: dict[int, Parameter] = field(default_factory=dict[int, Parameter])
    scopes: int = 0
    subqueries: int = 0
    sql: str = ""
    """The text of the statement."""
    tables: set[str] = field(default_factory=set[str])
    """Names that were looked up in the schema, found or not: the translation depends on them."""
    locking: bool = False
    """Whether some part of it asks for locks, which the writer alone may give."""
    several: bool = False
    """Whether a definition is several statements of SQLite."""
    rebuilds: str = ""
    """The table that a definition makes anew."""
    around: "dict[str, Relation]" = field(default_factory=dict[str, "Relation"])
    """The WITH queries of a statement that has several steps, as far as they are translated."""
    in_steps: bool = False
    steps: list[StatementStep] = field(default_factory=list[StatementStep])

    def parameter(self, number: int) -> Term:
        """Return `$n`: a value of its type, or of unknown type."""
        if not 1 <= number <= PARAMETERS_MAX:
            raise refuse(f"${number}; parameters are $1 to ${PARAMETERS_MAX:,}.", fix="Pass lists: = ANY($1).")
        found = self.parameters.get(number)
        if found is None:
            found = self.parameters[number] = Parameter(number)
        if found.type is None:
            return Term(f"?{number}", UNKNOWN, parameter=found)
        return Term(f"?{number}", found.type)

    def parameter_types(self) -> tuple[Type, ...]:
        """Return the types of $1, $2, …, all of which must be known by now."""
        types: list[Type] = []
        for number in range(1, max(self.parameters, default=0) + 1):
            known = self.parameters.get(number)
            if known is None or known.type is None:
                raise wrong(
                    f"the type of ${number} cannot be inferred from its place.",
                    fix=f"Write its type: ${number}::bigint; number the parameters without gaps.",
                )
            types.append(known.type)
        return tuple(types)

    def is_taken(self, name: str) -> bool:
        """Return whether a table, an index or a sequence has that name."""
        return name in self.schema.indexes or self.schema.find(name) is not None

    def sequence(self, name: str) -> NumberSequence:
        """Return the sequence of that name."""
        visible(name, "sequence")
        self.tables.add(name)
        found = self.schema.sequences.get(name)
        if found is None:
            raise wrong(f"there is no sequence {name!r}.", fix="Create it first; names without quotes are lower case.")
        return found

    def table(self, name: str) -> Table:
        """Return the table of that name."""
        visible(name, "table")
        self.tables.add(name)
        if name in self.schema.views:
            raise refuse(f"a change or a definition of the view {name!r}.", fix="Use the tables that it reads.")
        table = self.schema.table(name)
        if table is None:
            if name in self.schema.indexes or name in self.schema.sequences:
                raise refuse(f"{name!r} as a table, which is an index or a sequence.", fix="Name a table.")
            raise wrong(f"there is no table {name!r}.", fix="Create it first; names without quotes are lower case.")
        return table


def visible(name: str, what: str) -> None:
    """Refuse names that belong to the lane or to the engines."""
    if name.lower().startswith(INTERNAL_PREFIXES):
        raise refuse(
            f"the {what} name {name!r}.",
            why="The prefix is reserved, and a lane does not have PostgreSQL's catalog.",
            fix="Choose another name. SQLAlchemy's inspect() and Django's inspectdb describe the tables.",
        )


# --- Scopes ----------------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class Scope:
    """The names in reach at one level of a statement, and what may stand at the place being translated."""

    translation: Translation
    parent: "Scope | None" = None
    relations: list[Relation] = field(default_factory=list[Relation])
    queries: dict[str, Relation] = field(default_factory=dict[str, Relation])
    """Common table expressions."""
    merged: dict[tuple[str, int], Merged] = field(default_factory=dict[tuple[str, int], Merged])
    """Columns of USING, by name and part of FROM."""
    star: list[StarColumn] = field(default_factory=list[StarColumn])
    named_windows: dict[str, Node] = field(default_factory=dict[str, Node])
    grouped: frozenset[str] = frozenset()
    aggregates: bool = False
    windows: bool = False
    volatile: bool = False
    subqueries: bool = True
    place: str = "this place"
    outside: set[Reference] = field(default_factory=set[Reference])
    """Columns that FROM reads, among them those of the queries around it."""
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
                    is_wrong = scope is self and known.name == relation.name != "excluded"
                    error = wrong if is_wrong else refuse
                    raise error(f"the name {relation.name!r} stands for two relations.", fix="Use different aliases.")
            scope = scope.parent
        self.relations.append(relation)
        if relation.name != LISTED_ROWS:
            self.star += [(output.name, (relation.name, place)) for place, output in enumerate(relation.columns)]

    def query_named(self, name: str) -> Relation | None:
        """Return the common table expression of that name."""
        scope: Scope | None = self
        while scope is not None:
            if name in scope.queries:
                return scope.queries[name]
            scope = scope.parent
        return None

    def check_shadow(self, name: str, meant: Relation | None) -> None:
        """Refuse the name of a table where SQLite would read another query of WITH: it ignores case and schemas."""
        scope: Scope | None = self
        while scope is not None:
            for known in scope.queries.values():
                if known.name.lower() == name.lower() and known is not meant:
                    raise refuse(f"the table {name!r} beside a WITH query of that name.", fix="Rename the query.")
            if meant is not None and any(known is meant for known in scope.queries.values()):
                return
            scope = scope.parent

    def free_alias(self) -> str:
        """Return a name that no relation in reach has, for a query whose condition reads these relations."""
        taken: set[str] = set()
        scope: Scope | None = self
        while scope is not None:
            taken |= {relation.name.lower() for relation in scope.relations}
            scope = scope.parent
        return next(name for name in (f"s{number or ''}" for number in range(len(taken) + 1)) if name not in taken)

    def column(self, relation: str | None, name: str) -> Term:
        """Return the column of that name, from the innermost level that has it."""
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
            if relation is None and (value := scope.value_of(name)) is not None:
                return value
            scope = scope.parent
        self._refuse_special(relation, name)
        full = name if relation is None else f"{relation}.{name}"
        raise wrong(f"there is no column {full!r} here.", fix="Names without quotes are lower case; text is in '…'.")

    def value_of(self, name: str) -> Term | None:
        """Return the value that the name of a function in FROM means; None without one."""
        for known in self.relations:
            if known.name == name and known.value is not None:
                return self.column(known.name, known.value)
        return None

    def whole_row(self, name: str, *, starred: bool) -> list[tuple[str, Term]] | None:
        """Return the columns of the row that a relation's name stands for; None if the name alone means a column.

        The terms are as without GROUP BY: PostgreSQL takes a whole row there if its key is grouped by, and else none.
        """
        scopes: list[Scope] = []
        scope: Scope | None = self
        while scope is not None:
            scopes.append(scope)
            scope = scope.parent
        if not starred and any(each.has_column(name) for each in scopes):
            return None
        found = [(each, known) for each in scopes for known in each.relations if known.name == name]
        if not found or found[0][1].value is not None:
            return None
        scope, relation = found[0]
        if not relation.written:
            raise refuse(
                f"the whole row of {name!r} in {self.place}.",
                why="A later column would be in it.",
                fix="Name its columns.",
            )
        if relation.outer:
            raise refuse(
                f"the whole row of {name!r}, which may be without one.",
                why="PostgreSQL gives NULL then, and not a document.",
                fix="Name its columns.",
            )
        return [(output.name, scope.bare_term(relation, output)) for output in relation.columns]

    def has_column(self, name: str) -> bool:
        """Return whether a name alone is that of a column at this level."""
        columns = (output.name for known in self.relations for output in known.columns)
        return name in columns or self.value_of(name) is not None

    def _refuse_special(self, relation: str | None, name: str) -> None:
        """Refuse names that PostgreSQL resolves although no table has such a column."""
        scope: Scope | None = self
        while scope is not None:
            if relation is None and any(known.name == name for known in scope.relations):
                raise refuse(f"the whole row of {name!r} as a value.", fix="Name its columns.")
            scope = scope.parent
        if relation in {"old", "new"} or name in SYSTEM_COLUMNS:
            full = name if relation is None else f"{relation}.{name}"
            raise refuse(f"the column {full!r} of the system.", fix="Use columns of tables.")

    def term(self, relation: Relation, output: Output) -> Term:
        """Return a column of this scope as a term."""
        return self.grouped_term(self.bare_term(relation, output))

    def bare_term(self, relation: Relation, output: Output) -> Term:
        """Return a column as a term, whatever GROUP BY names."""
        text = output.text or quoted_name(output.name)
        if relation.written and not output.text:
            text = f"{relation.written}.{text}"
        bare = frozenset({(self.number, text)})
        return Term(text, output.type, bare=bare, nullable=output.nullable or relation.outer)

    def grouped_term(self, term: Term) -> Term:
        """Return the term; if GROUP BY names it, its columns need no aggregate around them."""
        return replace(term, bare=NO_REFERENCES) if term.text in self.grouped else term

    def star_terms(self, relation: str | None) -> list[tuple[str, Term]]:
        """Return the columns that * or relation.* stands for, with their names."""
        if relation is None:
            if not self.relations:
                raise wrong("* without a table.")
            return [(name, self._star_term(name, source)) for name, source in self.star]
        scope: Scope | None = self
        while scope is not None:
            for known in scope.relations:
                if known.name == relation:
                    return [(output.name, scope.term(known, output)) for output in known.columns]
            scope = scope.parent
        if relation in {"old", "new"}:
            raise refuse(f"{relation}.*.", fix="Name the columns; query first for what was there before.")
        raise wrong(f"there is no relation {relation!r} here.")

    def _star_term(self, name: str, source: tuple[str, int] | int) -> Term:
        if isinstance(source, int):
            return self.grouped_term(self.merged[name, source].term)
        relation, place = source
        found = next(known for known in self.relations if known.name == relation)
        return self.term(found, found.columns[place])

    def child(self, place: str) -> "Scope":
        """Return the scope of a query in FROM or WITH: it sees what is around this query, not its neighbours."""
        return Scope(self.translation, parent=self.parent, queries=dict(self.queries), place=place)


def texts_of(terms: Sequence[Term]) -> str:
    """Return the verified texts of terms, separated by commas."""
    return ", ".join(term.checked.text for term in terms)
