"""The types of PostgreSQL that a lane keeps, and how SQLite's catalog remembers them.

SQLite has five storage classes and forgets everything else, so the declared type of each column carries PostgreSQL's
name, and a CHECK on the column enforces it. The invariant is that a declared type gives its column an affinity that
never changes a stored value. Some declared types have the word `text` added: the plain names would make SQLite turn
what looks like a number into one. Types that SQLite's byte order would sort wrongly have a collation.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from interlock.errors import DialectError, TransactionError

Name = str
"""PostgreSQL's internal name of a type; an array has [] after its element's name."""

_ARRAY: Final = "[]"
INTEGER_RANGE: Final[dict[Name, tuple[int, int]]] = {
    "int2": (-(2**15), 2**15 - 1),
    "int4": (-(2**31), 2**31 - 1),
    "int8": (-(2**63), 2**63 - 1),
}
_NUMBERS: Final = frozenset({"int2", "int4", "int8", "numeric", "float8"})
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
    "date": "date",
    "time": "time",
    "timestamp": "timestamp",
    "timestamptz": "timestamptz",
    "interval": "interval",
    "uuid": "uuid",
    "json": "json",
    "jsonb": "jsonb",
    "unknown": "unknown",
}
"""The types of expressions and columns, as errors and declarations spell them."""

_ELEMENTS: Final[tuple[Name, ...]] = tuple(name for name in _SPELLING if name not in {"unknown", "json"})


@dataclass(frozen=True, slots=True)
class Type:
    """One type, by PostgreSQL's internal name. `unknown` is a bare literal, NULL or `$n` without a type yet."""

    name: Name
    length: int | None = None
    precision: int | None = None
    scale: int | None = None

    def __str__(self) -> str:
        spelled = _SPELLING.get(self.name, self.name)
        if self.length is not None:
            return f"{spelled}({self.length})"
        if self.precision is not None and self.scale is not None:
            return f"{spelled}({self.precision},{self.scale})"
        return f"{spelled}({self.precision})" if self.precision is not None else spelled

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
        return self.name in _NUMBERS

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
        """The element type of an array."""
        return PLAIN_TYPES[self.name.removesuffix(_ARRAY)]

    @property
    def collation(self) -> str | None:
        """The collation by which SQLite sorts and compares its values as PostgreSQL does; None for byte order."""
        if self.is_array:
            element = self.name.removesuffix(_ARRAY)
            return f"interlock_array_{element}" if element in _COLLATIONS else "interlock_array"
        return _COLLATIONS.get(self.name)


_COLLATIONS: Final[dict[Name, str]] = {name: f"interlock_{name}" for name in ("numeric", "interval", "jsonb")}
for _element in _ELEMENTS:
    _SPELLING[f"{_element}{_ARRAY}"] = f"{_SPELLING[_element]}{_ARRAY}"
PLAIN_TYPES: Final[dict[Name, Type]] = {name: Type(name) for name in _SPELLING}

INT2, INT4, INT8 = PLAIN_TYPES["int2"], PLAIN_TYPES["int4"], PLAIN_TYPES["int8"]
NUMERIC, FLOAT8 = PLAIN_TYPES["numeric"], PLAIN_TYPES["float8"]
TEXT, VARCHAR, BOOL, BYTEA = PLAIN_TYPES["text"], PLAIN_TYPES["varchar"], PLAIN_TYPES["bool"], PLAIN_TYPES["bytea"]
DATE, TIME, TIMESTAMP = PLAIN_TYPES["date"], PLAIN_TYPES["time"], PLAIN_TYPES["timestamp"]
TIMESTAMPTZ, INTERVAL = PLAIN_TYPES["timestamptz"], PLAIN_TYPES["interval"]
UUID_TYPE, JSON, JSONB, UNKNOWN = (PLAIN_TYPES[name] for name in ("uuid", "json", "jsonb", "unknown"))
TEXT_ARRAY = PLAIN_TYPES["text[]"]

FLOAT_MAX: Final = "1.7976931348623157e308"

# An auto-numbered key has to be declared INTEGER, exactly, so its width is kept where SQLite never looks: in the
# default of a column whose value SQLite always makes itself.
SERIALS: Final[dict[str, Type]] = {"smallserial": INT2, "serial": INT4, "bigserial": INT8}


def array_of(kind: Type) -> Type | None:
    """Return the array of that type, or None without one."""
    return PLAIN_TYPES.get(f"{kind.name}{_ARRAY}")


_TEXT_ADDED: Final = frozenset({"numeric", "interval", "json", "jsonb"})


def declared(kind: Type) -> str:
    """Return the type as SQLite's CREATE TABLE has it. Never `integer`: SQLite numbers such a key itself."""
    if kind.is_array:
        # Brackets would quote a name. "[1,2]" is not a number, so no affinity changes it.
        return f"array {kind.name.removesuffix(_ARRAY)}"
    if kind.name == "int4":
        return "int4"
    if kind.name in _TEXT_ADDED:
        size = "" if kind.precision is None else f"({kind.precision},{kind.scale})"
        return f"{kind.name} text{size}"
    return str(kind)


def parse_declared(text: str) -> Type | None:
    """Return the type that `declared` wrote, or None for a column that the dialect did not create."""
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
    if kind.name in {"time", "timestamp", "timestamptz"} and second is None:
        return Type(kind.name, precision=int(first))
    return None


_DECLARED = re.compile(r"(?P<base>[a-z0-9 ]+?)\s*(?:\(\s*(?P<first>\d+)\s*(?:,\s*(?P<second>-?\d+)\s*)?\))?")
_BY_DECLARED: Final[dict[str, Type]] = {declared(kind): kind for kind in PLAIN_TYPES.values() if kind is not UNKNOWN}
_BY_DECLARED["jsonb"] = JSONB  # As it was written while a document was an object or an array alone.


def enforcement(kind: Type, column: str, *, nullable: bool = True) -> str:
    """Return the condition of the CHECK that makes SQLite keep the type; `column` is already quoted. NULL may pass."""
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


_STORED: Final[dict[Name, str]] = {
    **dict.fromkeys(("int2", "int4", "int8", "bool", "date", "time", "timestamp", "timestamptz"), "integer"),
    **dict.fromkeys(("bytea", "uuid"), "blob"),
    "float8": "real",
}
"""How SQLite keeps each; everything else is text."""

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
    """Return a refusal to raise: what is outside the subset, why, and what to write instead."""
    return DialectError(what, why=why, fix=fix)


def wrong(what: str, *, fix: str = "") -> TransactionError:
    """Return the error to raise for what PostgreSQL refuses, too, before it runs anything."""
    return TransactionError(what, why="PostgreSQL refuses it, too.", fix=fix)
