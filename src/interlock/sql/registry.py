"""Entries: one for each function, operator and cast, with the types it takes, the type it gives, and its body.

A body is a function in Python, a text of SQLite, or a builder of terms. An entry with a Python body is also what a lane
registers on its connections, as `interlock_<name>`: those names stand in CHECKs and defaults of stored schemas, so a
name that was used once stays. Python bodies take and give stored values (see `stored_values`). They receive no NULL
unless the entry says so, because nearly all of PostgreSQL's functions are strict.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal, NamedTuple, Protocol

from interlock.sql.scope import Term, call, combined
from interlock.sql.stored_values import StoredValue
from interlock.sql.types import InvalidValue, Type

Build = Callable[[Sequence[Term], Type], Term]
"""Makes the term of a call from its converted arguments and the type that it gives."""

Implementation = Callable[..., StoredValue]
Body = (
    Callable[[], StoredValue]
    | Callable[[Any], StoredValue]
    | Callable[[Any, Any], StoredValue]
    | Callable[[Any, Any, Any], StoredValue]
    | Callable[[Any, Any, Any, Any], StoredValue]
    | Callable[[Any, Any, Any, Any, Any], StoredValue]
    | Callable[[Any, Any, Any, Any, Any, Any], StoredValue]
)
"""A body by the number of its arguments, so that type checkers read a lambda whose arguments have no types."""

ANY_NUMBER: Final = -1


@dataclass(frozen=True, slots=True)
class Function:
    """One scalar function of SQLite: `apsw.Connection.create_scalar_function(name, call, arguments, …)`."""

    name: str
    call: Implementation
    arguments: int
    deterministic: bool = True


class Accumulator(Protocol):
    """The state of one aggregate over one group."""

    def step(self, *values: StoredValue) -> None:
        """Take one row."""
        ...

    def final(self) -> StoredValue:
        """Return the result of the group."""
        ...


@dataclass(frozen=True, slots=True)
class Aggregate:
    """One aggregate of SQLite: `apsw.Connection.create_aggregate_function(name, make, arguments)`."""

    name: str
    make: Callable[[], Accumulator]
    arguments: int = 1


@dataclass(frozen=True, slots=True)
class Collation:
    """One collation of SQLite: `apsw.Connection.create_collation(name, compare)`."""

    name: str
    compare: Callable[[str, str], int]


class Entry(NamedTuple):
    """One function, operator, cast or aggregate of PostgreSQL as a lane runs it."""

    kind: Literal["function", "operator", "cast", "aggregate"]
    name: str
    takes: tuple[str, ...]
    gives: str
    build: Build
    function: Function | Aggregate | None = None
    """What SQLite needs for it."""


def function(
    name: str,
    takes: str,
    gives: str,
    body: Body,
    *,
    sqlite: str = "",
    null: bool = False,
    unchecked: bool = False,
) -> Entry:
    """Declare a function with a body in Python. `null` says that it receives NULLs."""
    return _python("function", name, takes, gives, body, sqlite or name, null=null, unchecked=unchecked)


def internal(name: str, takes: str, gives: str, body: Body, *, null: bool = False) -> Entry:
    """Declare a function that other entries call by its name; PostgreSQL has none of that name."""
    return function(f"interlock {name}", takes, gives, body, sqlite=name, null=null)


def operator(
    name: str, takes: str, gives: str, body: Body, *, sqlite: str, null: bool = False, unchecked: bool = False
) -> Entry:
    """Declare an operator with a body in Python."""
    return _python("operator", name, takes, gives, body, sqlite, null=null, unchecked=unchecked)


def cast(source: str, target: str, body: Body, *, sqlite: str = "", unchecked: bool = False) -> Entry:
    """Declare a cast with a body in Python."""
    return _python("cast", "", source, target, body, sqlite or f"{source}_to_{target}", null=False, unchecked=unchecked)


def written(kind: Literal["function", "operator", "cast"], name: str, takes: str, gives: str, text: str) -> Entry:
    """Declare a function, operator or cast that SQLite has: the text with {0}, {1}, … for the arguments."""

    def build(terms: Sequence[Term], result: Type) -> Term:
        return combined(text.format(*[term.operand for term in terms]), result, terms, atomic=text.endswith(")"))

    return Entry(kind, name, _listed(takes), gives, build)


def built(kind: Literal["function", "operator", "cast"], name: str, takes: str, gives: str, build: Build) -> Entry:
    """Declare a function, operator or cast with a builder of its own."""
    return Entry(kind, name, _listed(takes), gives, build)


def aggregate(name: str, takes: str, gives: str, make: Callable[[], Accumulator], *, sqlite: str = "") -> Entry:
    """Declare an aggregate with an accumulator in Python."""
    arguments = _listed(takes)
    made = Aggregate(f"interlock_{sqlite or name}", make, len(arguments))
    return Entry("aggregate", name, arguments, gives, _calling(made.name, unchecked=False), made)


def _python(
    kind: Literal["function", "operator", "cast"],
    name: str,
    takes: str,
    gives: str,
    body: Body,
    sqlite: str,
    *,
    null: bool,
    unchecked: bool,
) -> Entry:
    arguments = _listed(takes)
    count = ANY_NUMBER if "any" in arguments else len(arguments)
    implementation: Implementation = body
    made = Function(f"interlock_{sqlite}", implementation if null else strict(implementation), count)
    return Entry(kind, name, arguments, gives, _calling(made.name, unchecked=unchecked), made)


def _calling(name: str, *, unchecked: bool) -> Build:
    return lambda terms, result: call(name, result, *terms, unchecked=unchecked)


def strict(body: Implementation) -> Implementation:
    """Return a function that gives NULL for NULL, as nearly all of PostgreSQL's do."""

    def called(*values: StoredValue) -> StoredValue:
        if None in values:
            return None
        try:
            return body(*values)
        except OverflowError as error:
            raise InvalidValue("a value is out of range.", fix="Use smaller values.") from error

    return called


def swapped(body: Implementation) -> Implementation:
    """Return the function with its two arguments exchanged."""

    def called(left: StoredValue, right: StoredValue) -> StoredValue:
        return body(right, left)

    return called


def _listed(takes: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in takes.split(",")) if takes else ()
