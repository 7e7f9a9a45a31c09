"""The types of PostgreSQL that a lane keeps, and how SQLite's catalog remembers them.

SQLite has five storage classes and forgets everything else, so the declared type of each column carries PostgreSQL's
name, and a CHECK on the column enforces it. The invariant is that a declared type gives its column an affinity that
never changes a stored value. The odd ones are `numeric text` and `jsonb text`: both are text, and the plain names
would make SQLite turn what looks like a number into one.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Literal, cast

from interlock.errors import DialectError, TransactionError

Name = Literal[
    "int2",
    "int4",
    "int8",
    "numeric",
    "float8",
    "text",
    "varchar",
    "bool",
    "bytea",
    "timestamptz",
    "uuid",
    "jsonb",
    "interval",
    "int2[]",
    "int4[]",
    "int8[]",
    "numeric[]",
    "float8[]",
    "text[]",
    "bool[]",
    "bytea[]",
    "timestamptz[]",
    "uuid[]",
    "unknown",
]
_ARRAY: Final = "[]"


@dataclass(frozen=True, slots=True)
class Type:
    """One type, by PostgreSQL's internal name. `unknown` is a bare literal, NULL or `$n` without a type yet."""

    name: Name
    length: int | None = None
    precision: int | None = None
    scale: int | None = None

    def __str__(self) -> str:
        if self.length is not None:
            return f"{_SPELLING[self.name]}({self.length})"
        if self.precision is not None:
            return f"{_SPELLING[self.name]}({self.precision},{self.scale})"
        return _SPELLING[self.name]

    @property
    def plain(self) -> "Type":
        """The same type without length, precision and scale: what an expression over it has."""
        return PLAIN_TYPES[self.name]

    @property
    def is_integer(self) -> bool:
        """A whole number of two, four or eight bytes."""
        return self.name in INTEGER_RANGE

    @property
    def is_number(self) -> bool:
        """Something that has a sum."""
        return self.name in NUMBER_ORDER

    @property
    def is_text(self) -> bool:
        """Characters, of limited length or not."""
        return self.name in {"text", "varchar"}

    @property
    def is_array(self) -> bool:
        """A list of values of one type."""
        return self.name.endswith(_ARRAY)

    @property
    def element(self) -> "Type":
        """Return the element type of an array."""
        return PLAIN_TYPES[cast("Name", self.name.removesuffix(_ARRAY))]


_SPELLING: Final[dict[Name, str]] = {
    "int2": "smallint",
    "int4": "integer",
    "int8": "bigint",
    "numeric": "numeric",
    "float8": "double precision",
    "text": "text",
    "varchar": "varchar",
    "bool": "boolean",
    "bytea": "bytea",
    "timestamptz": "timestamptz",
    "uuid": "uuid",
    "jsonb": "jsonb",
    "interval": "interval",
    "unknown": "unknown",
}
_ELEMENTS: Final[tuple[Name, ...]] = (
    "int2", "int4", "int8", "numeric", "float8", "text", "bool", "bytea", "timestamptz", "uuid",
)  # fmt: skip
for _element in _ELEMENTS:
    _SPELLING[cast("Name", f"{_element}{_ARRAY}")] = f"{_SPELLING[_element]}{_ARRAY}"
PLAIN_TYPES: Final[dict[Name, Type]] = {name: Type(name) for name in _SPELLING}
# Types of expressions alone: no column has them.
PASSING: Final[frozenset[Name]] = frozenset({"interval", "unknown"})

INT2, INT4, INT8 = PLAIN_TYPES["int2"], PLAIN_TYPES["int4"], PLAIN_TYPES["int8"]
NUMERIC, FLOAT8 = PLAIN_TYPES["numeric"], PLAIN_TYPES["float8"]
TEXT, VARCHAR, BOOL, BYTEA = PLAIN_TYPES["text"], PLAIN_TYPES["varchar"], PLAIN_TYPES["bool"], PLAIN_TYPES["bytea"]
TIMESTAMPTZ, UUID_TYPE, JSONB, UNKNOWN = (
    PLAIN_TYPES["timestamptz"],
    PLAIN_TYPES["uuid"],
    PLAIN_TYPES["jsonb"],
    PLAIN_TYPES["unknown"],
)
INTERVAL, TEXT_ARRAY = PLAIN_TYPES["interval"], PLAIN_TYPES["text[]"]

INTEGER_RANGE: Final[dict[str, tuple[int, int]]] = {
    "int2": (-(2**15), 2**15 - 1),
    "int4": (-(2**31), 2**31 - 1),
    "int8": (-(2**63), 2**63 - 1),
}
# PostgreSQL turns the earlier one into the later one when two numbers meet.
NUMBER_ORDER: Final[tuple[Name, ...]] = ("int2", "int4", "int8", "numeric", "float8")
FLOAT_MAX: Final = "1.7976931348623157e308"

# An auto-numbered key has to be declared INTEGER, exactly, so its width is kept where SQLite never looks: in the
# default of a column whose value SQLite always makes itself.
SERIALS: Final[dict[str, Type]] = {"smallserial": INT2, "serial": INT4, "bigserial": INT8}


def array_of(kind: Type) -> Type | None:
    """Return the array of that type, or None without one."""
    return PLAIN_TYPES.get(cast("Name", f"{kind.name}{_ARRAY}"))


def declared(kind: Type) -> str:
    """The type as it is written into SQLite's CREATE TABLE. Never `integer` alone: SQLite numbers such a key itself."""
    match kind.name:
        case name if kind.is_array:
            # Brackets would quote a name. "[1,2]" is not a number, so no affinity changes it.
            return f"array {name.removesuffix(_ARRAY)}"
        case "int4":
            return "int4"
        case "numeric" if kind.precision is not None:
            return f"numeric text({kind.precision},{kind.scale})"
        case "numeric" | "jsonb" as name:
            # Without the word SQLite would make a number of a text that looks like one.
            return f"{name} text"
        case _:
            return str(kind)


def parse_declared(text: str) -> Type | None:
    """The type that `declared` wrote, or None for a column that the dialect did not create."""
    matched = _DECLARED.fullmatch(text.strip().lower())
    if matched is None:
        return None
    base, first, second = matched["base"], matched["first"], matched["second"]
    kind = _BY_DECLARED.get(base)
    if kind is None or first is None:
        return kind
    if kind is VARCHAR and second is None:
        return Type("varchar", length=int(first))
    if kind is NUMERIC and second is not None:
        return Type("numeric", precision=int(first), scale=int(second))
    return None


_DECLARED = re.compile(r"(?P<base>[a-z0-9 ]+?)\s*(?:\(\s*(?P<first>\d+)\s*(?:,\s*(?P<second>-?\d+)\s*)?\))?")
_BY_DECLARED: Final[dict[str, Type]] = {
    declared(kind): kind for name, kind in PLAIN_TYPES.items() if name not in PASSING
}
_BY_DECLARED["jsonb"] = JSONB  # As it was written while a document was an object or an array alone.


def enforcement(kind: Type, column: str, *, nullable: bool = True) -> str:
    """The condition of the CHECK that makes SQLite keep the type; `column` is already quoted. NULL may pass."""
    stored, limit = _STORED.get(kind.name, "text"), _LIMITS.get(kind.name)
    if kind.name == "bool":
        return f"{column} IN (0, 1)"
    # One comparison less on the hot path.
    text = f"typeof({column}) IN ('{stored}', 'null')" if nullable else f"typeof({column}) = '{stored}'"
    return text if limit is None else text + limit(kind, column)


def _ranged(kind: Type, column: str) -> str:
    low, high = INTEGER_RANGE[kind.name]
    return f" AND {column} BETWEEN {low} AND {high}"


def _short(kind: Type, column: str) -> str:
    return "" if kind.length is None else f" AND length({column}) <= {kind.length}"


# How SQLite keeps each; arrays are text.
_STORED: Final[dict[Name, str]] = {
    "int2": "integer",
    "int4": "integer",
    "int8": "integer",
    "numeric": "text",
    "float8": "real",
    "text": "text",
    "varchar": "text",
    "bool": "integer",
    "bytea": "blob",
    "timestamptz": "integer",
    "uuid": "blob",
    "jsonb": "text",
}
_LIMITS: Final[dict[Name, Callable[[Type, str], str]]] = {
    "int2": _ranged,
    "int4": _ranged,
    "varchar": _short,
    "float8": lambda _, column: f" AND {column} BETWEEN -{FLOAT_MAX} AND {FLOAT_MAX}",
    "uuid": lambda _, column: f" AND length({column}) = 16",
}


# --- Refusals --------------------------------------------------------------------------------------------------------
# What PostgreSQL understands and a lane does not is a `DialectError`. What PostgreSQL refuses, too (no such table, a
# comparison of text with a number), is the `TransactionError` that it would be there.


def refuse(what: str, *, why: str = "", fix: str = "") -> DialectError:
    """A refusal to raise: what is outside the subset, why, and what to write instead."""
    return DialectError(what, why=why, fix=fix)


def wrong(what: str, *, fix: str = "") -> TransactionError:
    """A refusal to raise of what PostgreSQL refuses, too, before it runs anything."""
    return TransactionError(what, why="PostgreSQL refuses it, too.", fix=fix)
