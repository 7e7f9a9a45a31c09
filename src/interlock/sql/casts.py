"""Conversions between types, each allowed where PostgreSQL allows it and as exact as PostgreSQL's.

There are three occasions, each allowing more than the one before: `implicit` inside an expression, `assignment` to a
column, `explicit` by CAST. The catalog says which casts exist on which occasion; the entries of the function modules
have their bodies. A cast that PostgreSQL has and a lane has not is refused.
"""

import dataclasses
import json
from collections.abc import Mapping, Sequence
from typing import Final, cast

from msgspec.structs import replace

from interlock.sql import literals, postgres_catalog
from interlock.sql.functions import decimals
from interlock.sql.literals import text_literal, written
from interlock.sql.parse import Body, kind_of, names_of, only, split
from interlock.sql.postgres_catalog import Occasion
from interlock.sql.registered_functions import CASTS
from interlock.sql.scope import Term, Translation, call
from interlock.sql.stored_values import NUMERIC_DIGITS_MAX
from interlock.sql.types import (
    INT4,
    INT8,
    INTEGER_RANGE,
    NUMERIC,
    PLAIN_TYPES,
    SERIALS,
    TEXT,
    UNKNOWN,
    VARCHAR,
    Type,
    array_of,
    refuse,
    wrong,
)

# --- Constants of a statement ----------------------------------------------------------------------------------------


def number(text: str) -> Term:
    """Return a number as it stands in the statement, with its sign: integer, bigint or numeric, by size and form."""
    digits = text.removeprefix("-")
    if digits.isdecimal() and digits.isascii():
        value = int(text)
        for kind in (INT4, INT8):
            low, high = INTEGER_RANGE[kind.name]
            if low <= value <= high:
                return Term(str(value), kind, atomic=value >= 0, literal=str(value), nullable=False)
    try:
        stored = literals.read_numeric(text)
    except ValueError as error:
        raise refuse(f"the number {text}.", fix="Write plain decimal digits.") from error
    return Term(text_literal(stored), NUMERIC, literal=stored, nullable=False)


def string(text: str) -> Term:
    """Return a string as it stands in the statement, of no type yet."""
    return Term(text_literal(text), UNKNOWN, literal=text, nullable=False)


def null() -> Term:
    """Return NULL, of no type yet."""
    return Term("NULL", UNKNOWN)


# --- Choice of a conversion ------------------------------------------------------------------------------------------


def resolve(term: Term, kind: Type) -> Term:
    """Give a term of unknown type that type: read the literal by its rules, declare the parameter."""
    if term.type is not UNKNOWN:
        return term
    plain = kind.plain
    if term.parameter is not None:
        term.parameter.take(plain)
        return replace(term, type=plain, parameter=None)
    if term.literal is None:
        return replace(term, type=plain)
    stored = literals.read(term.literal, plain)
    text = written(stored)
    literal = str(stored) if plain.is_number or plain.is_text else None
    return replace(term, text=text, type=plain, literal=literal, atomic=not text.startswith("-"))


def check_collation(names: list[str], *, sorts: bool) -> None:
    """Refuse collations that differ from C.UTF-8, or where values are only sorted, those that do not sort by bytes."""
    same = {"pg_c_utf8", "default", "C", "POSIX", "ucs_basic"} if sorts else {"pg_c_utf8", "default"}
    if names[-1] not in same or names[:-1] not in ([], ["pg_catalog"]):
        raise refuse(
            f"COLLATE {'.'.join(names)}{'' if sorts else ' here'}.",
            why="A lane sorts text by its bytes and has the letters of C.UTF-8; in others their case differs.",
            fix='Use COLLATE "pg_c_utf8", or none.',
        )


def settled(term: Term) -> Term:
    """Return a term whose surroundings say nothing about its type: PostgreSQL takes it for text."""
    return resolve(term, TEXT) if term.type is UNKNOWN else term


def unified(terms: Sequence[Term], what: str) -> tuple[Type, list[Term]]:
    """Return all terms in the one type that PostgreSQL chooses for them."""
    common = postgres_catalog.common_type([term.type.name for term in terms])
    if common is None:
        listed = " and ".join(dict.fromkeys(str(term.type) for term in terms if term.type is not UNKNOWN))
        raise wrong(f"{what} types {listed} cannot be matched.", fix="Cast one of them.")
    kind = PLAIN_TYPES[common]
    return kind, [convert(term, kind, "implicit") for term in terms]


def convert(term: Term, kind: Type, occasion: Occasion) -> Term:
    """Return the term as a value of that type, its length or precision included."""
    term = resolve(term, kind)
    if term.type.name != kind.name:
        term = _conversion(term, kind, occasion)
    if kind.length is not None:
        return _fit_text(term, kind, kind.length, occasion)
    if kind.precision is not None and term.type != kind:
        return _fit_precision(term, kind)
    return term


def _conversion(term: Term, kind: Type, occasion: Occasion) -> Term:
    source, target = term.type.name, kind.name
    if not postgres_catalog.can_cast(source, target, occasion):
        if postgres_catalog.can_cast(source, target, "explicit"):
            raise wrong(f"{term.type} where {kind} is needed.", fix=f"Cast it: CAST(… AS {kind}).")
        raise wrong(f"there is no cast from {term.type} to {kind}.")
    if term.type.is_text and kind.is_text:
        return replace(term, type=kind.plain)
    if term.type.labels or kind.labels:
        return _labelled(term, kind)
    if term.type.is_array and kind.is_text and term.type.element.name != "jsonb":
        return call("interlock_array_text", kind.plain, term, extra=text_literal(term.type.element.name))
    build = CASTS.get((source, target))
    if build is None and term.type.is_array and kind.is_array:
        build = CASTS.get(("any[]", "any[]"))
        if (source[:-2], target[:-2]) not in _SAME_FORM:
            build = None
    if build is None:
        raise refuse(f"a conversion from {term.type} to {kind}.", fix="Convert the value in Python.")
    return build([term], kind.plain)


def _labelled(term: Term, kind: Type) -> Term:
    """Return a cast between an enumeration and text: no other type has one."""
    if kind.labels:
        return call("interlock_place_of", kind, term, extra=text_literal(json.dumps(kind.labels)))
    return call("interlock_label_at", kind.plain, term, extra=text_literal(json.dumps(term.type.labels)))


_SAME_FORM: Final = frozenset(
    {("int2", "int4"), ("int2", "int8"), ("int4", "int8"), ("varchar", "text"), ("text", "varchar")}
)
"""Element types whose stored forms are the same, so that an array of one is an array of the other."""


def _fit_text(term: Term, kind: Type, length: int, occasion: Occasion) -> Term:
    if kind.name == "bpchar":
        return _fit_padded(term, kind, length, occasion)
    if kind.is_array:
        fit = "interlock_varchar_array" if occasion == "explicit" else "interlock_varchar_items"
        return term if term.type == kind else call(fit, kind, term, extra=str(length))
    if term.literal is not None and len(term.literal) <= length:
        return replace(term, type=kind)
    if occasion == "explicit":
        return call("substr", kind, term, extra=f"1, {length}")
    return term if term.type == kind else call("interlock_varchar", kind, term, extra=str(length))


def _fit_padded(term: Term, kind: Type, length: int, occasion: Occasion) -> Term:
    """Return the value as char(n) has it: filled with blanks, and cut off by a cast alone."""
    if term.type == kind:
        return term
    if term.literal is not None and len(term.literal) <= length:
        padded = term.literal.ljust(length)
        return replace(term, type=kind, text=text_literal(padded), literal=padded)
    return call("interlock_char_cut" if occasion == "explicit" else "interlock_char", kind, term, extra=str(length))


def _fit_precision(term: Term, kind: Type) -> Term:
    precision, scale = cast("int", kind.precision), kind.scale
    if kind.is_array:
        return call("interlock_numeric_items", kind, term, extra=f"{precision}, {scale}")
    if kind.name != "numeric":
        rounding = "interlock_round_clock" if kind.name == "time" else "interlock_round_time"
        return call(rounding, kind, term, extra=str(precision))
    assert scale is not None
    if term.literal is not None:
        fitted = decimals.fit(term.literal, precision, scale)
        return replace(term, type=kind, text=text_literal(fitted), literal=fitted)
    return call("interlock_numeric_fit", kind, term, extra=f"{precision}, {scale}")


# --- Types as a statement writes them --------------------------------------------------------------------------------
# Only listed types are read, with the sizes that PostgreSQL allows for them. A type that SQLite cannot keep exactly
# is refused with the one to use instead: `real` would silently become double precision.

VARCHAR_LENGTH_MAX: Final = 10_485_760
_FRACTION_DIGITS_MAX: Final = 6
_TIMED: Final = frozenset({"time", "timestamp", "timestamptz"})
_SERIAL_NAMES: Final = {"serial2": "smallserial", "serial4": "serial", "serial8": "bigserial"}
_INSTEAD: Final = {
    "float4": "double precision",
    "timetz": "timestamptz, or time",
    "money": "numeric",
    "char": "text",
    "inet": "text",
    "cidr": "text",
}


def column_type(body: Body, enumerations: Mapping[str, Type] | None = None) -> tuple[Type, str | None]:
    """Return the type of a column, and its serial name if it is one."""
    only("TypeName", body, "names", "typmods", "typemod", "arrayBounds")
    names = names_of(body["names"])
    if len(names) > 1 and names[0] not in {"pg_catalog", "public"}:
        raise refuse(f"the type {'.'.join(names)} of another schema.", fix="Use one of the documented types.")
    name = _SERIAL_NAMES.get(names[-1], names[-1])
    sizes = [_size(node) for node in body.get("typmods", ())]
    if name in SERIALS and len(names) == 1 and not body.get("arrayBounds"):
        return SERIALS[name], name
    named = None if names[0] == "pg_catalog" or sizes else (enumerations or {}).get(names[-1])
    kind = named or _plain(name, sizes)
    if not body.get("arrayBounds"):
        return kind, None
    if kind.name in _TIMED and kind.precision is not None:
        raise refuse(
            f"the type {kind}[].",
            why="A lane keeps no precision for the elements of an array, and would store longer ones.",
            fix=f"Use {kind.plain}[].",
        )
    array = array_of(kind.plain)
    if array is None or len(body["arrayBounds"]) > 1:
        raise refuse(f"the type {kind}{'[]' * len(body['arrayBounds'])}.", fix="Use a one-dimensional array, or jsonb.")
    return (dataclasses.replace(kind, name=array.name) if kind.sizes else array), None


def cast_type(body: Body, translation: Translation) -> Type:
    """Return the type that a value is cast to."""
    kind, serial = column_type(body, translation.schema.enumerations)
    if kind.name not in _STANDARD_TYPES:
        translation.tables.update(names_of(body["names"]))
    if serial:
        raise wrong(f"the type {serial} is not one to cast to.", fix="Cast to bigint.")
    return kind


_STANDARD_TYPES: Final = frozenset(PLAIN_TYPES)
_UNITS: Final = {4: "years", 2: "months", 8: "days", 1024: "hours", 2048: "minutes", 4096: "seconds"}
"""PostgreSQL's bits for the fields of an interval."""


def interval_unit(body: Body) -> str:
    """Return the unit of INTERVAL '1' DAY; empty for everything else."""
    sizes: list[dict[str, Body]] = body.get("typmods", [])
    if names_of(body["names"]) != ["pg_catalog", "interval"] or len(sizes) != 1 or body.get("arrayBounds"):
        return ""
    return _UNITS.get(_size(sizes[0]), "")


def _size(node: dict[str, Body]) -> int:
    kind, body = split(node)
    if kind != "A_Const" or "ival" not in body:
        raise refuse("the size of a type that is not a whole number.")
    return cast("int", body["ival"].get("ival", 0))


def _plain(name: str, sizes: list[int]) -> Type:
    match name, sizes:
        case "varchar" | "bpchar", [length]:
            if not 1 <= length <= VARCHAR_LENGTH_MAX:
                raise wrong(f"a length of {length} characters.", fix=f"Use a length from 1 to {VARCHAR_LENGTH_MAX}.")
            return Type(name, length=length)
        case "numeric", [precision, *rest]:
            return _numeric(precision, rest[0] if rest else 0)
        case _, [digits] if name in _TIMED:
            if not 0 <= digits <= _FRACTION_DIGITS_MAX:
                raise refuse(f"{name}({digits}).", fix=f"Use 0 to {_FRACTION_DIGITS_MAX}.")
            return PLAIN_TYPES[name] if digits == _FRACTION_DIGITS_MAX else Type(name, precision=digits)
        case _, []:
            kind = PLAIN_TYPES.get(name)
            if kind is not None and kind is not UNKNOWN:
                return VARCHAR if name == "varchar" else kind
        case _:
            pass
    raise refuse(f"the type {name}.", fix=f"Use {_INSTEAD.get(name, 'one of the documented types')}.")


def _numeric(precision: int, scale: int) -> Type:
    if not 1 <= precision <= NUMERIC_DIGITS_MAX:
        raise wrong(f"numeric({precision}).", fix=f"Use a precision from 1 to {NUMERIC_DIGITS_MAX}.")
    if not 0 <= scale <= precision:
        raise refuse(f"numeric({precision},{scale}).", fix="Use a scale from 0 to the precision.")
    return Type("numeric", precision=precision, scale=scale)


def is_constant_node(node: dict[str, Body] | None) -> bool:
    """Return whether a node is a literal, NULL or a parameter, or a cast of one: such a thing orders nothing."""
    while kind_of(node) == "TypeCast":
        assert node is not None
        node = node["TypeCast"]["arg"]
    return kind_of(node) in {"A_Const", "ParamRef"}
