"""`Draft`: a parsed query whose columns can still get their types from its context.

The other side of a UNION, the columns of an INSERT or the other rows of VALUES decide what a bare literal is. So a
query is kept as terms, and its text is made last.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from interlock.sql.casts import convert, settled
from interlock.sql.datatypes import TEXT, UNKNOWN, Type
from interlock.sql.operators import COLLATED, keyed
from interlock.sql.refusal import wrong
from interlock.sql.scope import Output
from interlock.sql.syntax import quoted
from interlock.sql.terms import Reference, Term


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
        listed = ", ".join(f"{text} AS {quoted(name)}" for text, name in pairs)
        return f"{self.head}SELECT {'DISTINCT ' if self.distinct else ''}{listed}{self.body}{self.tail}"

    @property
    def _is_merged(self) -> bool:
        """Return whether a UNION merges numerics: SQLite's own compares their texts."""
        return self.operator == "UNION" and any(kind.name == "numeric" for kind in self.types)

    def _merged(self, body: str) -> str:
        listed = ", ".join(
            f"c{place}{f' {COLLATED}' if term.type.name == 'numeric' else ''} AS {quoted(name)}"
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
        listed = ", ".join(f'"column{place}" AS {quoted(name)}' for place, name in enumerate(self.names, start=1))
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
        listed = ", ".join(f'"c{place}" AS {quoted(name)}' for place, name in enumerate(names))
        sorted_by = ", ".join(
            f'"k{place}"{collation}{direction}'
            for place, (collation, direction) in enumerate(zip(self.collations, self.directions, strict=True))
        )
        inner = f"SELECT {', '.join([*columns, number])}{body}"
        return f'SELECT {listed} FROM ({inner}) WHERE "number" = 1 ORDER BY {sorted_by}'  # noqa: S608 - made of quoted names, literals and ?n alone
