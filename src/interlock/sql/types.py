"""The types of PostgreSQL that a lane keeps, and how SQLite's catalog remembers them.

SQLite has five storage classes and forgets everything else, so the declared type of each column carries PostgreSQL's
name, and a CHECK on the column enforces it. The invariant is that a declared type gives its column an affinity that
never changes a stored value. Some declared types have the word `text` added: the plain names would make SQLite turn
what looks like a number into one. Types that SQLite's byte order would sort wrongly have a collation.
"""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from interlock.errors import DialectError, TransactionError

Name = str
"""PostgreSQL's internal name of a type; an array has [] after its element's name.

That of an enumeration has its labels in it, because each database has its own: `mood`, a separator, a JSON list.
"""

_ARRAY: Final = "[]"
_LABELS: Final = "\x1f"
"""What stands between the name of an enumeration and its labels."""

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
    "bpchar": "bpchar",
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

_ELEMENTS: Final[tuple[Name, ...]] = tuple(name for name in _SPELLING if name not in {"unknown", "json", "bpchar"})


@dataclass(frozen=True, slots=True)
class Type:
    """One type, by PostgreSQL's internal name. `unknown` is a bare literal, NULL or `$n` without a type yet."""

    name: Name
    length: int | None = None
    precision: int | None = None
    scale: int | None = None

    def __str__(self) -> str:
        spelled = _SPELLING.get(self.name, self.title)
        if not self.sizes:
            return spelled
        # A text of fixed length is char(n); char alone would be char(1).
        return f"{spelled.removesuffix(_ARRAY).removeprefix('bp')}{self.sizes}{_ARRAY if self.is_array else ''}"

    @property
    def sizes(self) -> str:
        """Length, or precision and scale, in parentheses; empty without them. Those of an array are its elements'."""
        sizes = ",".join(str(size) for size in (self.length, self.precision, self.scale) if size is not None)
        return f"({sizes})" if sizes else ""

    @property
    def plain(self) -> "Type":
        """The same type without length, precision and scale: what an expression over it has."""
        return PLAIN_TYPES[self.name]

    @property
    def title(self) -> str:
        """PostgreSQL's internal name, without the labels of an enumeration."""
        name, separator, _ = self.name.partition(_LABELS)
        return f"{name}{_ARRAY}" if separator and self.is_array else name

    @property
    def labels(self) -> tuple[str, ...]:
        """The labels of an enumeration, in its order: a value is stored as its place among them. Else nothing."""
        _, separator, labels = self.name.partition(_LABELS)
        return labels_of(labels) if separator and not self.is_array else ()

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


_COLLATIONS: Final[dict[Name, str]] = {name: f"interlock_{name}" for name in ("numeric", "interval", "jsonb", "bpchar")}
for _element in _ELEMENTS:
    _SPELLING[f"{_element}{_ARRAY}"] = f"{_SPELLING[_element]}{_ARRAY}"


class _Types(dict[Name, Type]):
    """All types by name. Those of enumerations, and arrays of them, are made of their names."""

    def __missing__(self, name: Name) -> Type:
        if _LABELS not in name:
            raise KeyError(name)
        return Type(name)

    def get(self, name: Name, default: Type | None = None) -> Type | None:  # type: ignore[override]
        return self[name] if _LABELS in name else super().get(name, default)

    def __contains__(self, name: object) -> bool:
        return super().__contains__(name) or (isinstance(name, str) and _LABELS in name)


PLAIN_TYPES: Final = _Types({name: Type(name) for name in _SPELLING})

INT2, INT4, INT8 = PLAIN_TYPES["int2"], PLAIN_TYPES["int4"], PLAIN_TYPES["int8"]
NUMERIC, FLOAT8 = PLAIN_TYPES["numeric"], PLAIN_TYPES["float8"]
TEXT, VARCHAR, BOOL, BYTEA = PLAIN_TYPES["text"], PLAIN_TYPES["varchar"], PLAIN_TYPES["bool"], PLAIN_TYPES["bytea"]
DATE, TIME, TIMESTAMP = PLAIN_TYPES["date"], PLAIN_TYPES["time"], PLAIN_TYPES["timestamp"]
TIMESTAMPTZ, INTERVAL = PLAIN_TYPES["timestamptz"], PLAIN_TYPES["interval"]
UUID_TYPE, JSON, JSONB, UNKNOWN = (PLAIN_TYPES[name] for name in ("uuid", "json", "jsonb", "unknown"))


def enumeration(name: str, labels: Sequence[str]) -> Type:
    """Return the type of an enumeration."""
    return Type(f"{name}{_LABELS}{json.dumps(labels, ensure_ascii=False)}")


@lru_cache(maxsize=256)
def labels_of(text: str) -> tuple[str, ...]:
    """Return the labels that a JSON list has."""
    return tuple(json.loads(text))


FLOAT_MAX: Final = "1.7976931348623157e308"

# An auto-numbered key has to be declared INTEGER, exactly, so its width is kept where SQLite never looks: in the
# default of a column whose value SQLite always makes itself.
SERIALS: Final[dict[str, Type]] = {"smallserial": INT2, "serial": INT4, "bigserial": INT8}


def array_of(kind: Type) -> Type | None:
    """Return the array of that type, or None without one."""
    return None if kind.is_array else PLAIN_TYPES.get(f"{kind.name}{_ARRAY}")


_ENUMERATION: Final = "int enum_"
"""The word int makes SQLite keep a whole number, whatever the name."""

_TEXT_ADDED: Final = frozenset({"numeric", "interval", "json", "jsonb"})


def declared(kind: Type) -> str:
    """Return the type as SQLite's CREATE TABLE has it. Never `integer`: SQLite numbers such a key itself."""
    if kind.is_array:
        # Brackets would quote a name. "[1,2]" is not a number, so no affinity changes it.
        return f"array {declared(kind.element) if kind.element.labels else kind.element.name}{kind.sizes}"
    if kind.labels:
        return f"{_ENUMERATION}{kind.title}"
    if kind.name == "int4":
        return "int4"
    if kind.name in _TEXT_ADDED:
        return f"{kind.name} text{kind.sizes}"
    return str(kind)


def parse_declared(text: str, enumerations: Mapping[str, Type] | None = None) -> Type | None:
    """Return the type that `declared` wrote, or None for a column that the dialect did not create."""
    array, is_enumeration, name = text.partition(_ENUMERATION)
    if is_enumeration:
        found = (enumerations or {}).get(name)
        return array_of(found) if found is not None and array else found
    matched = _DECLARED.fullmatch(text.strip().lower())
    if matched is None:
        return None
    base, first, second = matched["base"], matched["first"], matched["second"]
    kind = _BY_DECLARED.get(base)
    if kind is None or first is None:
        return kind
    if kind.name in {"numeric", "numeric[]"} and second is not None:
        return Type(kind.name, precision=int(first), scale=int(second))
    if second is not None or kind.name not in {"varchar", "varchar[]", "bpchar", "time", "timestamp", "timestamptz"}:
        return None
    is_text = kind.name.startswith(("varchar", "bpchar"))
    return Type(kind.name, length=int(first)) if is_text else Type(kind.name, precision=int(first))


_DECLARED = re.compile(r"(?P<base>[a-z0-9 ]+?)\s*(?:\(\s*(?P<first>\d+)\s*(?:,\s*(?P<second>-?\d+)\s*)?\))?")
_BY_DECLARED: Final[dict[str, Type]] = {declared(kind): kind for kind in PLAIN_TYPES.values() if kind is not UNKNOWN}
_BY_DECLARED["char"] = PLAIN_TYPES["bpchar"]
_BY_DECLARED["jsonb"] = JSONB  # As it was written while a document was an object or an array alone.


def enforcement(kind: Type, column: str, *, nullable: bool = True) -> str:
    """Return the condition of the CHECK that makes SQLite keep the type; `column` is already quoted. NULL may pass."""
    stored, limit = "integer" if kind.labels else _STORED.get(kind.name, "text"), _LIMITS.get(kind.name)
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
    "bpchar": lambda kind, column: "" if kind.length is None else f" AND length({column}) = {kind.length}",
    "float8": lambda _, column: f" AND {column} BETWEEN -{FLOAT_MAX} AND {FLOAT_MAX}",
    "uuid": lambda _, column: f" AND length({column}) = 16",
}


# --- Refusals --------------------------------------------------------------------------------------------------------
# What PostgreSQL understands and a lane does not is a `DialectError`. What PostgreSQL refuses, too (no such table, a
# comparison of text with a number), is the `TransactionError` that it would be there.


def refuse(what: str, *, why: str = "", fix: str = "") -> DialectError:
    """Return a refusal to raise: what is outside the subset, why, and what to write instead."""
    return DialectError(what, why=why, fix=fix)


class InvalidValue(TransactionError):
    """A value that its type does not have, or a result that leaves it: DataError of PEP 249, class 22 of PostgreSQL."""


def wrong(what: str, *, fix: str = "") -> TransactionError:
    """Return the error to raise for what PostgreSQL refuses, too, before it runs anything."""
    return TransactionError(what, why="PostgreSQL refuses it, too.", fix=fix)


def invalid(what: str, *, fix: str = "") -> InvalidValue:
    """Return the error to raise for a value that PostgreSQL refuses, too."""
    return InvalidValue(what, why="PostgreSQL refuses it, too.", fix=fix)


def collate(kind: Type) -> str:
    """Return the COLLATE that a column of that type needs where SQLite merges or sorts rows by it; or nothing."""
    return "" if kind.collation is None else f" COLLATE {kind.collation}"
