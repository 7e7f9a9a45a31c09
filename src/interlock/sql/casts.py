"""Conversions between types, each allowed where PostgreSQL allows it and as exact as PostgreSQL's.

There are three occasions, each allowing more than the one before: `implicit` inside an expression, `assignment` to a
column, `explicit` by CAST. What SQLite converts with the same result stays native; the rest calls a function that
raises where PostgreSQL does. A conversion missing from the table is refused.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Final, Literal, cast

from interlock.sql import decimals
from interlock.sql.datatypes import INTEGER_RANGE, NUMBER_ORDER, TEXT, UNKNOWN, Name, Type
from interlock.sql.literals import text_literal, typed
from interlock.sql.refusal import refuse, wrong
from interlock.sql.terms import Term, call, combined

Occasion = Literal["implicit", "assignment", "explicit"]
_OCCASIONS: Final[tuple[Occasion, ...]] = ("implicit", "assignment", "explicit")


def resolve(term: Term, kind: Type) -> Term:
    """Give a term of unknown type that type: read the literal by its rules, declare the parameter."""
    if term.type is not UNKNOWN:
        return term
    plain = TEXT if kind.is_text else kind.plain
    if term.parameter is not None:
        term.parameter.take(plain)
        return replace(term, type=plain)
    if term.literal is None:
        return replace(term, type=plain)
    text = typed(term.literal, plain)
    literal = text[1:-1] if plain.name == "numeric" else term.literal if plain.is_text else None
    return replace(term, text=text, type=plain, literal=literal, atomic=not text.startswith("-"))


def settled(term: Term) -> Term:
    """A term whose surroundings say nothing about its type: a literal is text, a parameter must be cast."""
    if term.type is UNKNOWN and term.parameter is not None:
        raise refuse(
            f"the type of ${term.parameter.number} cannot be inferred from its place.",
            fix=f"Write its type: ${term.parameter.number}::bigint, for example.",
        )
    return resolve(term, TEXT)


def meet(left: Type, right: Type) -> Type | None:
    """The type in which two terms meet (in a comparison, in the branches of CASE), or None."""
    if left is UNKNOWN or right is UNKNOWN:
        return right.plain if left is UNKNOWN else left.plain
    if left.is_number and right.is_number:
        return max(left.plain, right.plain, key=lambda kind: NUMBER_ORDER.index(kind.name))
    if left.is_text and right.is_text:
        return left.plain  # PostgreSQL takes the first of two that convert into each other.
    return left.plain if left.name == right.name else None


def unified(*terms: Term) -> tuple[Type, list[Term]]:
    """All terms in the one type that PostgreSQL chooses for them."""
    common = UNKNOWN
    for term in terms:
        met = meet(common, term.type)
        if met is None:
            raise wrong(f"{common} and {term.type} do not go together.", fix=f"Cast one of them: CAST(… AS {common}).")
        common = met
    if common is UNKNOWN:
        return TEXT, [settled(term) for term in terms]
    return common, [convert(term, common, "implicit") for term in terms]


def convert(term: Term, kind: Type, occasion: Occasion) -> Term:
    """The term as a value of that type, its length or precision included."""
    if occasion == "assignment" and term.parameter is not None and term.type is UNKNOWN:
        term.parameter.assign(kind)
    term = resolve(term, kind)
    if term.type.name != kind.name and not (term.type.is_text and kind.is_text):
        term = _conversion(term, kind, occasion)
    if kind.length is not None:
        return _fit_text(term, kind, kind.length, occasion)
    if kind.precision is not None and kind.scale is not None and term.type != kind:
        return _fit_numeric(term, kind, kind.precision, kind.scale)
    return replace(term, type=kind) if term.type.name != kind.name else term


def _conversion(term: Term, kind: Type, occasion: Occasion) -> Term:
    entry = _CONVERSIONS.get((term.type.name, kind.name))
    if entry is None:
        raise refuse(f"a conversion from {term.type} to {kind}.", fix="Convert the value in Python.")
    least, build = entry
    if _OCCASIONS.index(occasion) < _OCCASIONS.index(least):
        raise wrong(f"{term.type} where {kind} is needed.", fix=f"Cast it: CAST(… AS {kind}).")
    return replace(build(term, kind.plain), name=term.name)


def _fit_text(term: Term, kind: Type, length: int, occasion: Occasion) -> Term:
    if term.literal is not None and len(term.literal) <= length:
        return replace(term, type=kind)
    if occasion == "explicit":
        return replace(call("substr", kind, term, extra=f"1, {length}"), name=term.name)
    if term.type == kind:
        return term
    return call("interlock_varchar", kind, term, extra=str(length))


def _fit_numeric(term: Term, kind: Type, precision: int, scale: int) -> Term:
    if term.literal is not None:
        fitted = decimals.fit(term.literal, precision, scale)
        return replace(term, type=kind, text=text_literal(fitted), literal=fitted)
    return replace(call("interlock_numeric_fit", kind, term, extra=f"{precision}, {scale}"), name=term.name)


# --- The conversions --------------------------------------------------------------------------------------------------

Builder = Callable[[Term, Type], Term]


def _widen(term: Term, kind: Type) -> Term:
    return replace(term.checked, type=kind)


def _narrow(term: Term, kind: Type) -> Term:
    if term.literal is not None:
        low, high = INTEGER_RANGE[kind.name]
        if low <= int(term.literal) <= high:
            return replace(term, type=kind)
    # Not verified first: what overflowed the wider type is outside the narrower one, too.
    return replace(term, type=kind, unchecked=True, literal=None)


def _integer_to_text(term: Term, kind: Type) -> Term:
    if term.literal is not None:
        return replace(term, text=text_literal(term.literal), type=kind)
    return combined(f"CAST({term.checked.text} AS TEXT)", kind, [term], atomic=True)


def _integer_to_float(term: Term, kind: Type) -> Term:
    if term.literal is not None:
        return replace(term, text=repr(float(term.literal)), type=kind, literal=None)
    return combined(f"CAST({term.checked.text} AS REAL)", kind, [term], atomic=True)


def _numeric_to_float(term: Term, kind: Type) -> Term:
    if term.literal is not None:
        return replace(term, text=repr(decimals.to_float(term.literal)), type=kind, literal=None)
    return call("interlock_numeric_to_float8", kind, term)


def _numeric_to_text(term: Term, kind: Type) -> Term:
    if term.literal is not None:
        return replace(term, type=kind)
    # The concatenation drops the column's collation, which a cast would keep.
    return combined(f"{term.operand} || ''", kind, [term])


def _to_integer(function: str) -> Builder:
    return lambda term, kind: call(function, kind, term, unchecked=kind.name != "int8")


def _by(function: str) -> Builder:
    return lambda term, kind: call(function, kind, term)


def _bool_to_text(term: Term, kind: Type) -> Term:
    return combined(f"CASE {term.operand} WHEN 1 THEN 'true' WHEN 0 THEN 'false' END", kind, [term])


def _bool_to_integer(term: Term, kind: Type) -> Term:
    return replace(term, type=kind)


def _integer_to_bool(term: Term, kind: Type) -> Term:
    return combined(f"{term.operand} <> 0", kind, [term])


_CONVERSIONS: dict[tuple[Name, Name], tuple[Occasion, Builder]] = {
    ("int2", "int4"): ("implicit", _widen),
    ("int2", "int8"): ("implicit", _widen),
    ("int4", "int8"): ("implicit", _widen),
    ("int8", "int4"): ("assignment", _narrow),
    ("int8", "int2"): ("assignment", _narrow),
    ("int4", "int2"): ("assignment", _narrow),
    ("numeric", "float8"): ("implicit", _numeric_to_float),
    ("float8", "numeric"): ("assignment", _by("interlock_float8_to_numeric")),
    ("bool", "int4"): ("explicit", _bool_to_integer),
    ("int4", "bool"): ("explicit", _integer_to_bool),
}
_DOCUMENTED: Final[tuple[Name, ...]] = ("int2", "int4", "int8", "numeric", "float8", "bool")
for _name in _DOCUMENTED:
    _CONVERSIONS["jsonb", _name] = ("explicit", _by(f"interlock_jsonb_to_{_name}"))
for _narrow_array, _wide_array in (("int2[]", "int4[]"), ("int2[]", "int8[]"), ("int4[]", "int8[]")):
    _CONVERSIONS[cast("Name", _narrow_array), cast("Name", _wide_array)] = ("implicit", _widen)
_INTEGERS: Final[tuple[Name, ...]] = ("int2", "int4", "int8")
_CHARACTERS: Final[tuple[Name, ...]] = ("text", "varchar")
_READABLE: Final[tuple[Name, ...]] = ("numeric", "float8", "bool", "uuid", "timestamptz", "jsonb")
_WRITTEN: Final[tuple[Name, ...]] = ("uuid", "timestamptz", "float8", "jsonb")
for _integer in _INTEGERS:
    _CONVERSIONS[_integer, "numeric"] = ("implicit", _integer_to_text)
    _CONVERSIONS[_integer, "float8"] = ("implicit", _integer_to_float)
    _CONVERSIONS["numeric", _integer] = ("assignment", _to_integer("interlock_numeric_to_integer"))
    _CONVERSIONS["float8", _integer] = ("assignment", _to_integer("interlock_float8_to_integer"))
for _characters in _CHARACTERS:
    for _integer in _INTEGERS:
        _CONVERSIONS[_integer, _characters] = ("assignment", _integer_to_text)
        _CONVERSIONS[_characters, _integer] = ("explicit", _by(f"interlock_text_to_{_integer}"))
    _CONVERSIONS["numeric", _characters] = ("assignment", _numeric_to_text)
    _CONVERSIONS["bool", _characters] = ("assignment", _bool_to_text)
    for _other in _WRITTEN:
        _CONVERSIONS[_other, _characters] = ("assignment", _by(f"interlock_{_other}_to_text"))
    for _other in _READABLE:
        _CONVERSIONS[_characters, _other] = ("explicit", _by(f"interlock_text_to_{_other}"))
