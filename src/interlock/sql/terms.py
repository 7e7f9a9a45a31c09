"""`Term`: a translated expression with its type and the checks that are still to be made.

`unchecked` marks a number that SQLite computed natively and that may have left its type: an overflow becomes a float,
or a whole number too large for its width. Code that uses such a term either runs where the range is verified anyway
(a column's CHECK, `Statement.decode`) or takes `term.checked`. So `n + 1` stays native on the hot path.
`bare` contains the columns outside of aggregates, for the rule of GROUP BY.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace

from interlock.sql.datatypes import Type
from interlock.sql.refusal import refuse

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
