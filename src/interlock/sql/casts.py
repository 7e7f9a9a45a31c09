"""Conversions between types, each allowed where PostgreSQL allows it and as exact as PostgreSQL's.

There are three occasions, each allowing more than the one before: `implicit` inside an expression, `assignment` to a
column, `explicit` by CAST. Conversions that SQLite makes with the same result stay native; the others call a function
that raises where PostgreSQL does. A conversion missing from the table is refused.
"""

import re
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime
from decimal import Decimal
from typing import Final, Literal, cast
from uuid import UUID

from sqlglot import exp

from interlock.errors import TransactionError
from interlock.sql.functions import arrays, decimals, documents, times
from interlock.sql.parse import Node, argument, child, children, only, string_literal
from interlock.sql.scope import Term, call, combined
from interlock.sql.types import (
    BOOL,
    BYTEA,
    FLOAT8,
    INT2,
    INT4,
    INT8,
    INTEGER_RANGE,
    INTERVAL,
    JSONB,
    NUMBER_ORDER,
    NUMERIC,
    PLAIN_TYPES,
    TEXT,
    TIMESTAMPTZ,
    UNKNOWN,
    UUID_TYPE,
    VARCHAR,
    Name,
    Type,
    array_of,
    refuse,
    wrong,
)
from interlock.sql.values import NUMERIC_DIGITS_MAX, encoder, is_storable, microseconds, numeric_text

# --- Constants -------------------------------------------------------------------------------------------------------
# PostgreSQL gives a bare 'string' the type that its context requires and reads it by that type's rules, when it
# parses the statement. This module does the same: a constant needs no function at run time, and an invalid one is
# refused immediately. Notations that only PostgreSQL reads (hexadecimal, infinity) are refused.

_INTEGER = re.compile(r"[ \t\n\r\f\v]*([+-]?[0-9]+)[ \t\n\r\f\v]*")
_NUMBER = re.compile(r"[ \t\n\r\f\v]*([+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]{1,3})?)[ \t\n\r\f\v]*")
_MOMENT = re.compile(
    r"(\d{4}-\d{2}-\d{2})(?:[ T](\d{2}:\d{2}(?::\d{2}(?:\.\d{1,6})?)?)(?: ?(Z|z|[+-]\d{2}(?::?\d{2})?))?)?", re.ASCII
)
_BYTES = re.compile(r"(?:\\x((?:[0-9a-fA-F]{2})*))?")
_UUID = re.compile(r"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")
_OFFSET_HOURS_MAX: Final = 15
_TRUTHS: Final = {
    **dict.fromkeys(("t", "tr", "tru", "true", "y", "ye", "yes", "on", "1"), True),
    **dict.fromkeys(("f", "fa", "fal", "fals", "false", "n", "no", "of", "off", "0"), False),
}


# What PostgreSQL may read beyond the readers below: refused, not called wrong.
_DIGITS: Final = re.compile(r"^\s*[+-]?(?:0[xXoObB]|[0-9]+_|nan|inf)", re.IGNORECASE)
_WIDER: Final[dict[Name, re.Pattern[str]]] = {
    **dict.fromkeys(("int2", "int4", "int8", "numeric", "float8"), _DIGITS),
    **{name: re.compile(r"^\s*\[|\{\s*\{|\\") for name, kind in PLAIN_TYPES.items() if kind.is_array},
    "bytea": re.compile(""),
    "timestamptz": re.compile(r"[0-9]|now|today|yesterday|tomorrow|epoch|inf", re.IGNORECASE),
    "interval": re.compile(r"[0-9]|inf", re.IGNORECASE),
    "uuid": re.compile(r"^\{?(?:[0-9a-fA-F]{4}-?){8}\}?$"),
}
_PLAIN_FORM: Final[dict[Name, str]] = {
    "bytea": r"Write '\x00ff', or pass a parameter.",
    "timestamptz": "Write '2030-12-31 23:59:59+00', or pass a parameter.",
    "interval": "Write numbers with units: '1 day 12 hours', '1.5 seconds', '02:30:00'.",
    "uuid": "Write it with four hyphens, or pass a parameter.",
}


def number(text: str, *, negative: bool = False) -> Term:
    """A number as it stands in the statement, with its sign: integer, bigint or numeric, by its size and form."""
    if text.isdecimal() and text.isascii():
        value = -int(text) if negative else int(text)
        for kind in (INT4, INT8):
            low, high = INTEGER_RANGE[kind.name]
            if low <= value <= high:
                return Term(str(value), kind, atomic=value >= 0, literal=str(value), nullable=False)
    try:
        written = read_numeric(f"-{text}" if negative else text)
    except (ValueError, TransactionError) as error:
        raise refuse(f"the number {text}.", fix="Write plain decimal digits.") from error
    return Term(text_literal(written), NUMERIC, literal=written, nullable=False)


def string(text: str) -> Term:
    """A string as it stands in the statement, of no type yet."""
    return Term(text_literal(text), UNKNOWN, literal=text)


def null() -> Term:
    """NULL, of no type yet."""
    return Term("NULL", UNKNOWN)


def text_literal(text: str) -> str:
    """Text as SQLite reads it."""
    if not is_storable(text):
        raise wrong("a string with NUL or a lone surrogate.")
    return "'" + text.replace("'", "''") + "'"


def typed(text: str, kind: Type) -> str:
    """The constant that PostgreSQL makes of the string for that type, as SQLite's text. Length limits come later."""
    try:
        return _READERS[kind.name](text, kind)
    except (ValueError, ArithmeticError, TransactionError) as error:
        refuse_wider(text, kind.name, error)
        what = f"invalid input for type {kind}: {text!r}."
        raise wrong(what, fix=f"Write a {kind}, or pass it as a parameter.") from error


def refuse_wider(text: str, name: Name, error: Exception) -> None:
    """Refuse what PostgreSQL may be able to read as that type."""
    wider = _WIDER.get(name)
    if wider is not None and wider.search(text):
        raise refuse(
            f"the text {text[:40]!r} for type {PLAIN_TYPES[name]}.",
            why="PostgreSQL may read it; a lane reads the plain form alone.",
            fix=_PLAIN_FORM.get(name, "Write plain decimal digits, or pass a parameter."),
        ) from error


def read_integer(text: str, kind: Type) -> int:
    """A whole number in decimal digits, within its type."""
    matched = _INTEGER.fullmatch(text)
    low, high = INTEGER_RANGE[kind.name]
    if matched is None or not low <= int(matched[1]) <= high:
        raise ValueError(text)
    return int(matched[1])


def read_numeric(text: str) -> str:
    """A decimal number, as it is stored."""
    matched = _NUMBER.fullmatch(text)
    if matched is None:
        raise ValueError(text)
    return numeric_text(Decimal(matched[1]))


def read_float(text: str) -> float:
    """A finite float. One that PostgreSQL would call out of range is refused."""
    matched = _NUMBER.fullmatch(text)
    if matched is None:
        raise ValueError(text)
    value = float(matched[1])
    if abs(value) == float("inf") or (value == 0 and Decimal(matched[1]) != 0):
        raise ValueError(text)
    return value + 0.0


def read_bool(text: str) -> bool:
    """A truth value in one of PostgreSQL's spellings."""
    truth = _TRUTHS.get(text.strip(" \t\n\r\f\v").lower())
    if truth is None:
        raise ValueError(text)
    return truth


def read_moment(text: str) -> int:
    """A moment with date, time and offset, as it is stored. Without an offset it is UTC, as every session is."""
    matched = _MOMENT.fullmatch(text.strip())
    if matched is None:
        raise ValueError(text)
    day, clock, offset = matched[1], matched[2] or "00:00", matched[3] or "Z"
    if offset in {"Z", "z"}:
        offset = "+00:00"
    digits = offset[1:].replace(":", "").ljust(4, "0")
    if int(digits[:2]) > _OFFSET_HOURS_MAX:
        raise ValueError(text)
    return microseconds(datetime.fromisoformat(f"{day}T{clock}{offset[0]}{digits[:2]}:{digits[2:]}"))


def read_uuid(text: str) -> bytes:
    """A uuid in its usual form."""
    if not _UUID.fullmatch(text):
        raise ValueError(text)
    return UUID(text).bytes


def _read_bytes(text: str) -> bytes:
    matched = _BYTES.fullmatch(text)
    if matched is None:
        raise ValueError(text)
    return bytes.fromhex(matched[1] or "")


def _read_array(text: str, kind: Type) -> str:
    element = encoder(kind.element)
    read = _ELEMENTS.get(kind.element.name)
    if read is None:
        raise refuse(f"a constant of type {kind}.", fix="Write ARRAY[…], or pass a parameter.")
    items = [None if item is None else element(read(item), 0) for item in arrays.read_items(text)]
    return text_literal(arrays.make(*items))


_ELEMENTS: Final[dict[Name, Callable[[str], object]]] = {
    **{name: (lambda text: read_integer(text, INT8)) for name in ("int2", "int4", "int8")},
    "numeric": lambda text: Decimal(read_numeric(text)),
    "float8": read_float,
    "text": str,
    "bool": read_bool,
    "uuid": lambda text: UUID(bytes=read_uuid(text)),
}

_READERS: Final[dict[Name, Callable[[str, Type], str]]] = {
    **{name: (lambda text, kind: str(read_integer(text, kind))) for name in ("int2", "int4", "int8")},
    "numeric": lambda text, _: text_literal(read_numeric(text)),
    "float8": lambda text, _: repr(read_float(text)),
    "text": lambda text, _: text_literal(text),
    "varchar": lambda text, _: text_literal(text),
    "bool": lambda text, _: str(int(read_bool(text))),
    "bytea": lambda text, _: f"X'{_read_bytes(text).hex()}'",
    "timestamptz": lambda text, _: str(read_moment(text)),
    "uuid": lambda text, _: f"X'{read_uuid(text).hex()}'",
    "jsonb": lambda text, _: text_literal(documents.read(text)),
    "interval": lambda text, _: text_literal(times.read_interval(text)),
}
for _name, _kind in PLAIN_TYPES.items():
    if _kind.is_array:
        _READERS[_name] = _read_array


# --- Choice of a conversion ------------------------------------------------------------------------------------------

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


# --- Conversions -----------------------------------------------------------------------------------------------------

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


# --- Types as a statement writes them --------------------------------------------------------------------------------
# Only listed types are read, with the sizes that PostgreSQL allows for them. A type that SQLite cannot keep exactly
# is refused with the one to use instead: `real` would silently become double precision, `char(n)` would not pad.

_PLAIN: Final[dict[exp.DType, Type]] = {
    exp.DType.SMALLINT: INT2,
    exp.DType.INT: INT4,
    exp.DType.BIGINT: INT8,
    exp.DType.DOUBLE: FLOAT8,
    exp.DType.TEXT: TEXT,
    exp.DType.BOOLEAN: BOOL,
    exp.DType.VARBINARY: BYTEA,
    exp.DType.TIMESTAMPTZ: TIMESTAMPTZ,
    exp.DType.UUID: UUID_TYPE,
    exp.DType.JSONB: JSONB,
}
_SERIAL: Final[dict[exp.DType, tuple[Type, str]]] = {
    exp.DType.SMALLSERIAL: (INT2, "smallserial"),
    exp.DType.SERIAL: (INT4, "serial"),
    exp.DType.BIGSERIAL: (INT8, "bigserial"),
}
_INSTEAD: Final[dict[exp.DType, str]] = {
    exp.DType.FLOAT: "double precision",
    exp.DType.TIMESTAMP: "timestamptz",
    exp.DType.DATE: "timestamptz, or text in the form 2030-12-31",
    exp.DType.CHAR: "text or varchar(n)",
    exp.DType.BPCHAR: "text or varchar(n)",
    exp.DType.JSON: "jsonb",
    exp.DType.INTERVAL: "a number of seconds",
}
VARCHAR_LENGTH_MAX: Final = 10_485_760


def column_type(node: Node) -> tuple[Type, str | None]:
    """The type, and its serial name if it is one."""
    if type(node) is not exp.DataType:
        raise refuse("a type that is not a plain name.")
    only(node, "this", "expressions", "nested")
    kind = argument(node, "this")
    written = node.sql(dialect="postgres").lower()
    if kind is exp.DType.ARRAY:
        return _array(node, written), None
    if not isinstance(kind, exp.DType) or argument(node, "nested"):
        raise refuse(f"the type {written}.", fix="Use one of the documented types.")
    sizes = [_size(part) for part in children(node)]
    if kind in _SERIAL and not sizes:
        return _SERIAL[kind]
    if kind in _PLAIN and not sizes:
        return _PLAIN[kind], None
    if kind is exp.DType.VARCHAR:
        return _varchar(sizes), None
    if kind is exp.DType.DECIMAL:
        return _numeric(sizes), None
    raise refuse(f"the type {written}.", fix=f"Use {_INSTEAD.get(kind, 'one of the documented types')}.")


def cast_type(node: Node) -> tuple[Type, str | None]:
    """The type that a value is cast to, which may be one that no column has."""
    if type(node) is exp.DataType and argument(node, "this") is exp.DType.INTERVAL:
        only(node, "this")
        return INTERVAL, None
    return column_type(node)


def _array(node: Node, written: str) -> Type:
    listed = children(node)
    if len(listed) != 1:
        raise refuse("ARRAY without the type of its elements.", fix="Write bigint[], for example.")
    element, serial = column_type(listed[0])
    kind = array_of(element)
    if kind is None or serial or element != element.plain:
        raise refuse(f"the type {written}.", fix="Use an array of a plain type, such as bigint[] or text[], or jsonb.")
    return kind


def _size(node: Node) -> int:
    only(node, "this")
    number = child(node) if type(node) is exp.DataTypeParam else node
    if type(number) is not exp.Literal or not string_literal(number).isdecimal():
        raise refuse("the size of a type that is not a number.")
    return int(string_literal(number))


def _varchar(sizes: list[int]) -> Type:
    match sizes:
        case []:
            return VARCHAR
        case [length] if 1 <= length <= VARCHAR_LENGTH_MAX:
            return Type("varchar", length=length)
        case _:
            raise wrong("the length of a varchar.", fix=f"Use 1 to {VARCHAR_LENGTH_MAX}.")


def _numeric(sizes: list[int]) -> Type:
    match sizes:
        case []:
            return NUMERIC
        case [precision, *scale] if 1 <= precision <= NUMERIC_DIGITS_MAX and len(scale) <= 1:
            digits = scale[0] if scale else 0
            if digits <= precision:
                return Type("numeric", precision=precision, scale=digits)
            raise refuse("a numeric with more digits after the point than in all.")
        case _:
            raise wrong("the precision of a numeric.", fix=f"Use 1 to {NUMERIC_DIGITS_MAX}.")
