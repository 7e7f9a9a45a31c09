"""Calls of functions and operators in expressions: their arguments, their types, what SQLite runs for them.

A function is here only if its result is PostgreSQL's for every argument, errors included. Results that depend on the
database's locale (lower and upper of letters beyond ASCII) raise at run time; ambiguous calls are refused.

Sections: text, arrays, jsonb, moments and intervals, numbers, operators by type.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final, NamedTuple

from interlock.sql import operators
from interlock.sql.casts import convert, settled, text_literal, unified
from interlock.sql.functions import arrays, times
from interlock.sql.operators import comparable, keyed, number_arithmetic
from interlock.sql.scope import Term, call, combined, named
from interlock.sql.types import (
    BOOL,
    BYTEA,
    FLOAT8,
    INT4,
    INT8,
    INTERVAL,
    JSONB,
    NUMERIC,
    TEXT,
    TEXT_ARRAY,
    TIMESTAMPTZ,
    UNKNOWN,
    UUID_TYPE,
    Type,
    array_of,
    refuse,
    wrong,
)

# --- Text ------------------------------------------------------------------------------------------------------------
# Most have one signature, which is all that is written down. `concat` takes everything and writes it as PostgreSQL's
# output does, where a boolean is t or f. What exists for bytea or with patterns, too, is refused for those.

Builder = Callable[[Sequence[Term]], Term]


class _Signature(NamedTuple):
    function: str
    takes: tuple[Type, ...]
    gives: Type


_SIGNATURES: Final[dict[str, tuple[_Signature, ...]]] = {
    "btrim": (_Signature("trim", (TEXT,), TEXT), _Signature("trim_of", (TEXT, TEXT), TEXT)),
    "ltrim": (_Signature("trim_left", (TEXT,), TEXT), _Signature("trim_left_of", (TEXT, TEXT), TEXT)),
    "rtrim": (_Signature("trim_right", (TEXT,), TEXT), _Signature("trim_right_of", (TEXT, TEXT), TEXT)),
    "left": (_Signature("left", (TEXT, INT4), TEXT),),
    "right": (_Signature("right", (TEXT, INT4), TEXT),),
    "lpad": (_Signature("pad_left", (TEXT, INT4), TEXT), _Signature("pad_left_with", (TEXT, INT4, TEXT), TEXT)),
    "rpad": (_Signature("pad_right", (TEXT, INT4), TEXT), _Signature("pad_right_with", (TEXT, INT4, TEXT), TEXT)),
    "md5": (_Signature("md5", (TEXT,), TEXT),),
    "position": (_Signature("position", (TEXT, TEXT), INT4),),
    "repeat": (_Signature("repeat", (TEXT, INT4), TEXT),),
    "replace": (_Signature("replace", (TEXT, TEXT, TEXT), TEXT),),
    "reverse": (_Signature("reverse", (TEXT,), TEXT),),
    "split_part": (_Signature("split_part", (TEXT, TEXT, INT4), TEXT),),
    "starts_with": (_Signature("starts_with", (TEXT, TEXT), BOOL),),
    "strpos": (_Signature("position", (TEXT, TEXT), INT4),),
    "substr": (_Signature("substring_from", (TEXT, INT4), TEXT), _Signature("substring", (TEXT, INT4, INT4), TEXT)),
    "substring": (_Signature("substring_from", (TEXT, INT4), TEXT), _Signature("substring", (TEXT, INT4, INT4), TEXT)),
}


def _signed(name: str, signatures: tuple[_Signature, ...]) -> Builder:
    by_count = {len(signature.takes): signature for signature in signatures}

    def build(arguments: Sequence[Term]) -> Term:
        signature = by_count[len(arguments)]
        for term, kind in zip(arguments, signature.takes, strict=True):
            pattern = kind == INT4 and (term.type.is_text or (term.type is UNKNOWN and term.parameter is None))
            if term.type == BYTEA or (pattern and name == "substring"):
                raise refuse(f"{name}() of {term.type} here.", fix="Compute it in Python.")
        terms = [convert(term, kind, "implicit") for term, kind in zip(arguments, signature.takes, strict=True)]
        return call(f"interlock_{signature.function}", signature.gives, *terms)

    return build


def _octet_length(arguments: Sequence[Term]) -> Term:
    [value] = arguments
    value = convert(value, TEXT, "implicit") if value.type != BYTEA else value
    return call("interlock_octet_length", INT4, value)


def _length(arguments: Sequence[Term]) -> Term:
    [value] = arguments
    value = convert(value, TEXT, "implicit") if value.type is UNKNOWN else value
    if not value.type.is_text and value.type != BYTEA:
        raise wrong(f"length() of {value.type}.")
    return call("length", INT4, value)


def _char_length(arguments: Sequence[Term]) -> Term:
    return call("length", INT4, convert(arguments[0], TEXT, "implicit"))


def _cased(function: str) -> Builder:
    return lambda arguments: call(function, TEXT, convert(arguments[0], TEXT, "implicit"))


def output(term: Term) -> Term:
    """The value as PostgreSQL's output writes it, in a call that takes values of any type."""
    term = settled(term) if term.type is UNKNOWN else term
    if term.type == BOOL:
        return combined(f"CASE {term.operand} WHEN 1 THEN 't' WHEN 0 THEN 'f' END", TEXT, [term])
    if term.type == BYTEA:
        return call("interlock_bytea_to_text", TEXT, term)
    if term.type.is_array or term.type.name == "interval":
        raise refuse(f"{term.type} as text.", fix="Convert it in Python.")
    return convert(term, TEXT, "assignment")


def _concat(arguments: Sequence[Term]) -> Term:
    return call("interlock_concat", TEXT, *map(output, arguments))


def _concat_ws(arguments: Sequence[Term]) -> Term:
    separator, *rest = arguments
    return call("interlock_concat_ws", TEXT, convert(separator, TEXT, "implicit"), *map(output, rest))


ARGUMENTS_MAX: Final = 100
TEXT_CALLS: Final[dict[str, tuple[tuple[int, ...], Builder]]] = {
    **{
        name: (tuple(len(signature.takes) for signature in signatures), _signed(name, signatures))
        for name, signatures in _SIGNATURES.items()
    },
    "char_length": ((1,), _char_length),
    "character_length": ((1,), _char_length),
    "concat": (tuple(range(1, ARGUMENTS_MAX)), _concat),
    "concat_ws": (tuple(range(2, ARGUMENTS_MAX)), _concat_ws),
    "length": ((1,), _length),
    "lower": ((1,), _cased("interlock_lower")),
    "octet_length": ((1,), _octet_length),
    "upper": ((1,), _cased("interlock_upper")),
}


# --- Arrays ----------------------------------------------------------------------------------------------------------
# `id = ANY($1)` is written so that SQLite can still use an index on `id`: the elements are the rows of a subquery.
# With a written ARRAY[…] it is the IN list that it means.

# Elements that SQLite reads from JSON as they are stored. Floats are read by us, because SQLite may round them.
_NATIVE: Final = frozenset({"int2", "int4", "int8", "numeric", "text", "bool", "timestamptz"})
_BYTES: Final = frozenset({"bytea", "uuid"})


def construct(items: Sequence[Term], element: Type | None = None) -> Term:
    """ARRAY[…], of the type that its elements have in common, or of the one it is cast to."""
    if len(items) >= ARGUMENTS_MAX:
        raise refuse(f"ARRAY[…] of {len(items)} elements.", fix="Pass a list as a parameter: $1::bigint[].")
    if element is not None:
        terms = [convert(item, element, "explicit") for item in items]
    elif items:
        element, terms = unified(*items)
    else:
        raise arrays.no_items("ARRAY[]")
    kind = array_of(element)
    if kind is None:
        raise refuse(f"an array of {element}.", fix="Use jsonb_build_array(), or cast the elements.")
    return named(call("interlock_array", kind, *terms), "array")


def membership(left: Term, array: Term, *, negated: bool = False) -> Term:
    """= ANY (array), or <> ALL (array)."""
    if array.type is UNKNOWN:
        if left.type is UNKNOWN:
            raise refuse("= ANY with both sides of unknown type.", fix="Cast one: $1 = ANY($2::bigint[]).")
        kind = array_of(TEXT if left.type.is_text else left.type.plain)
        if kind is None:
            raise refuse(f"= ANY on {left.type}.", fix="Use IN.")
        array = convert(array, kind, "implicit")
    if not array.type.is_array:
        raise wrong(f"= ANY ({array.type}).", fix="Pass an array: = ANY($1::bigint[]).")
    element = array.type.element
    left = convert(left, element, "implicit") if left.type is UNKNOWN else left
    same = left.type.name == element.name or (left.type.is_text and element.is_text)
    if not (same or (left.type.is_integer and element.is_integer)):
        raise refuse(f"{left.type} = ANY ({array.type}).", fix=f"Cast one side: … = ANY($1::{left.type}[]).")
    text = _member(left, array, element)
    return combined(f"NOT ({text})" if negated else text, BOOL, (left, array))


def _member(left: Term, array: Term, element: Type) -> str:
    if array.parameter is None or element.name not in _NATIVE | _BYTES:
        function = "interlock_numeric_member" if element.name == "numeric" else "interlock_member"
        return f"{function}({left.checked.text}, {array.text})"
    value = "unhex(value)" if element.name in _BYTES else "value"
    # An array that is NULL has one element that is NULL: the answer is NULL for every value.
    rows = f"SELECT {value} FROM json_each(coalesce({array.text}, '[null]'))"  # noqa: S608 - made of ?n alone
    return f"{keyed(left)} IN ({rows})"


def _array(term: Term, function: str) -> Term:
    if term.type is UNKNOWN:
        raise refuse(f"{function}() of an array of unknown type.", fix="Cast it: $1::bigint[].")
    if not term.type.is_array:
        raise wrong(f"{function}() of {term.type}.")
    return term


def _cardinality(arguments: Sequence[Term]) -> Term:
    return call("json_array_length", INT4, _array(arguments[0], "cardinality"))


def _array_length(arguments: Sequence[Term]) -> Term:
    array, dimension = arguments
    return call("interlock_array_length", INT4, _array(array, "array_length"), convert(dimension, INT4, "implicit"))


def _equatable(kind: Type, purpose: str) -> None:
    if kind.element.name in {"numeric", "float8"}:
        raise refuse(f"{purpose} of {kind}.", why="1.0 and 1.00 are equal and kept apart.", fix="Compare in Python.")


def _with_element(name: str, kind: Type | None, *, compares: bool = True) -> Builder:
    def build(arguments: Sequence[Term]) -> Term:
        array, value = arguments
        element = _array(array, name).type.element
        if compares:
            _equatable(array.type, f"{name}()")
        value = convert(value, element, "implicit")
        return call(f"interlock_{name}", kind or array.type, array, value)

    return build


def element_at(array: Term, place: Term) -> Term:
    """Return array[n]: NULL outside of the array's bounds."""
    if not array.type.is_array:
        raise refuse(f"an element of {array.type} by its place in brackets.", fix="Use -> with jsonb, or cast it.")
    element = array.type.element
    inner = call("interlock_array_element", element, array, convert(place, INT4, "implicit"))
    return named(inner if element.name not in _BYTES else call("unhex", element, inner), array.name)


def array_containment(left: Term, right: Term) -> Term:
    """@>: whether each element of the second array is in the first."""
    kind = left.type if left.type.is_array else right.type
    left, right = (convert(term, kind, "implicit") for term in (left, right))
    _equatable(kind, "@>")
    return call("interlock_array_contains", BOOL, left, right)


def join_arrays(left: Term, right: Term) -> Term:
    """||, of two arrays, or of an array and an element."""
    if left.type.is_array and (right.type.is_array or right.type is UNKNOWN):
        return call("interlock_array_join", left.type, left, convert(right, left.type, "implicit"))
    if right.type.is_array and left.type is UNKNOWN:
        return call("interlock_array_join", right.type, convert(left, right.type, "implicit"), right)
    if left.type.is_array and right.type.name == left.type.element.name:
        return call("interlock_array_append", left.type, left, right)
    raise refuse(f"|| on {left.type} and {right.type}.", fix="Cast one side.")


ARRAY_CALLS: Final[dict[str, tuple[tuple[int, ...], Builder]]] = {
    "array_append": ((2,), _with_element("array_append", None, compares=False)),
    "array_length": ((2,), _array_length),
    "array_position": ((2,), _with_element("array_position", INT4)),
    "array_remove": ((2,), _with_element("array_remove", None)),
    "cardinality": ((1,), _cardinality),
}


# --- jsonb -----------------------------------------------------------------------------------------------------------
# A side of unknown type is a key (text) beside -> and -, a path (text[]) beside #>, and a document beside @> and ||.


def _document(term: Term, operator: str) -> Term:
    if term.type is UNKNOWN:
        raise refuse(f"{operator} on {term.type}.", fix="Say that it is a document: $1::jsonb.")
    if term.type != JSONB:
        raise wrong(f"{operator} on {term.type}.", fix="Cast it: CAST(… AS jsonb).")
    return term


def extraction(operator: str, left: Term, right: Term) -> Term:
    """-> and ->> by a key or a place, #> and #>> by a path."""
    left = _document(left, operator)
    kind, ending = (TEXT, "_text") if operator.endswith(">>") else (JSONB, "")
    if operator.startswith("#"):
        return call(f"interlock_jsonb_inside{ending}", kind, left, convert(right, TEXT_ARRAY, "implicit"))
    if right.type.name in {"int2", "int4"}:
        return call(f"interlock_jsonb_item{ending}", kind, left, convert(right, INT4, "implicit"))
    return call(f"interlock_jsonb_member{ending}", kind, left, convert(right, TEXT, "implicit"))


def document_containment(left: Term, right: Term) -> Term:
    """@>, of documents."""
    left, right = (convert(term, JSONB, "implicit") for term in (left, right))
    return call("interlock_jsonb_contains", BOOL, left, right)


def keys(operator: str, left: Term, right: Term) -> Term:
    """?, ?| and ?&: whether keys are there."""
    left = _document(left, operator)
    match operator:
        case "?":
            return call("interlock_jsonb_has_key", BOOL, left, convert(right, TEXT, "implicit"))
        case "?|":
            return call("interlock_jsonb_has_any", BOOL, left, convert(right, TEXT_ARRAY, "implicit"))
        case _:
            return call("interlock_jsonb_has_all", BOOL, left, convert(right, TEXT_ARRAY, "implicit"))


def removal(left: Term, right: Term) -> Term:
    """- with a key or a place."""
    left = _document(left, "-")
    if right.type == TEXT_ARRAY:
        raise refuse("jsonb - text[].", fix="Remove one key after the other.")
    if right.type.name in {"int2", "int4"}:
        return call("interlock_jsonb_remove_item", JSONB, left, convert(right, INT4, "implicit"))
    return call("interlock_jsonb_remove", JSONB, left, convert(right, TEXT, "implicit"))


def path_removal(left: Term, right: Term) -> Term:
    """#-, by a path."""
    return call("interlock_jsonb_remove_path", JSONB, _document(left, "#-"), convert(right, TEXT_ARRAY, "implicit"))


def join_documents(left: Term, right: Term) -> Term:
    """||, of two documents."""
    left, right = (convert(term, JSONB, "implicit") for term in (left, right))
    return call("interlock_jsonb_join", JSONB, left, right)


def document_of(term: Term) -> Term:
    """Any value as a document: to_jsonb(), and each argument of jsonb_build_array()."""
    term = settled(term) if term.type is UNKNOWN else term
    kind = term.type
    if kind == JSONB:
        return term
    if kind.is_integer or kind.name in {"numeric", "bool"}:
        return convert(term, TEXT, "assignment")
    if kind.is_text or kind in {UUID_TYPE, BYTEA}:
        return call("interlock_jsonb_from_text", JSONB, output(term))
    if kind in {FLOAT8, TIMESTAMPTZ}:
        return call(f"interlock_jsonb_from_{kind.name}", JSONB, term)
    if kind.is_array and (kind.element.is_integer or kind.element.is_text):
        return call("interlock_jsonb_from_array", JSONB, term)
    raise refuse(f"{kind} as jsonb.", fix="Make the document in Python and pass it as a parameter.")


def _to_jsonb(arguments: Sequence[Term]) -> Term:
    [value] = arguments
    if value.type is UNKNOWN:
        raise wrong("to_jsonb() of a value whose type is unknown.", fix="Cast it: to_jsonb('a'::text).")
    return combined(document_of(value).checked.text, JSONB, [value], atomic=False)


def _build_array(arguments: Sequence[Term]) -> Term:
    return call("interlock_jsonb_build_array", JSONB, *map(document_of, arguments))


def _build_object(arguments: Sequence[Term]) -> Term:
    if len(arguments) % 2:
        raise wrong("jsonb_build_object() with a key that has no value.", fix="Pass keys and values by turns.")
    terms = [document_of(term) if place % 2 else object_key(term) for place, term in enumerate(arguments)]
    return call("interlock_jsonb_build_object", JSONB, *terms)


def object_key(term: Term) -> Term:
    """A value as the key of an object."""
    term = settled(term) if term.type is UNKNOWN else term
    if term.type == BOOL:
        return convert(term, TEXT, "assignment")
    if term.type == JSONB:
        raise refuse("a document as a key.", fix="Use text.")
    return output(term)


def _set(arguments: Sequence[Term]) -> Term:
    kinds = (JSONB, TEXT_ARRAY, JSONB, BOOL)
    terms = [convert(term, kind, "implicit") for term, kind in zip(arguments, kinds, strict=False)]
    extra = "" if len(terms) == len(kinds) else "1"
    return call("interlock_jsonb_set", JSONB, *terms, extra=extra)


def _of_document(function: str, kind: Type) -> Builder:
    return lambda arguments: call(function, kind, convert(arguments[0], JSONB, "implicit"))


_ANY: Final = tuple(range(ARGUMENTS_MAX))
DOCUMENT_CALLS: Final[dict[str, tuple[tuple[int, ...], Builder]]] = {
    "jsonb_array_length": ((1,), _of_document("interlock_jsonb_array_length", INT4)),
    "jsonb_build_array": (_ANY, _build_array),
    "jsonb_build_object": (_ANY, _build_object),
    "jsonb_set": ((3, 4), _set),
    "jsonb_strip_nulls": ((1,), _of_document("interlock_jsonb_strip_nulls", JSONB)),
    "jsonb_typeof": ((1,), _of_document("interlock_jsonb_typeof", TEXT)),
    "to_jsonb": ((1,), _to_jsonb),
}


# --- Moments and intervals -------------------------------------------------------------------------------------------
# The choice among PostgreSQL's operators follows its rule for a side of unknown type: it is taken for the type of
# the other side if there is such an operator, so `now() - $1` wants a moment and `now() + $1` an interval.

# The fields of extract() that PostgreSQL takes in the singular and in the plural.
_SAME: Final = {f"{unit}s": unit for unit in ("second", "minute", "hour", "day", "week", "month", "year")} | {
    "microsecond": "microseconds",
    "millisecond": "milliseconds",
}


def is_temporal(*terms: Term) -> bool:
    """Return whether an operator on these is one of this module."""
    return any(term.type in {TIMESTAMPTZ, INTERVAL} for term in terms)


def time_arithmetic(operator: str, left: Term, right: Term) -> Term:
    """+ - * / where one side is a moment or an interval."""
    if TIMESTAMPTZ in {left.type, right.type}:
        return _moments(operator, left, right)
    match operator, left.type.name, right.type.name:
        case "+" | "-", "interval" | "unknown", "interval" | "unknown":
            function = "interlock_interval_add" if operator == "+" else "interlock_interval_subtract"
            return call(function, INTERVAL, *(convert(side, INTERVAL, "implicit") for side in (left, right)))
        case "*" | "/", "interval", _ if right.type.is_number or right.type is UNKNOWN:
            function = "interlock_interval_multiply" if operator == "*" else "interlock_interval_divide"
            return call(function, INTERVAL, left, convert(right, FLOAT8, "implicit"))
        case "*", _, "interval" if left.type.is_number or left.type is UNKNOWN:
            return call("interlock_interval_multiply", INTERVAL, right, convert(left, FLOAT8, "implicit"))
        case _:
            raise _no_operator(operator, left, right)


def _moments(operator: str, left: Term, right: Term) -> Term:
    match operator, left.type.name, right.type.name:
        case "+", "timestamptz", "interval" | "unknown":
            return call("interlock_time_add", TIMESTAMPTZ, left, convert(right, INTERVAL, "implicit"))
        case "+", "interval" | "unknown", "timestamptz":
            return call("interlock_time_add", TIMESTAMPTZ, right, convert(left, INTERVAL, "implicit"))
        case "-", "timestamptz", "interval":
            return call("interlock_time_subtract", TIMESTAMPTZ, left, right)
        case "-", "timestamptz" | "unknown", "timestamptz" | "unknown":
            sides = (convert(side, TIMESTAMPTZ, "implicit") for side in (left, right))
            return call("interlock_time_difference", INTERVAL, *sides)
        case _:
            raise _no_operator(operator, left, right)


def _no_operator(operator: str, left: Term, right: Term) -> Exception:
    what = f"{left.type} {operator} {right.type}."
    return wrong(what, fix="Add an interval: at + interval '1 day', or at + 2 * interval '1 hour'.")


def extract(field: str, value: Term) -> Term:
    """EXTRACT(field FROM value), a numeric."""
    field = _SAME.get(field.lower(), field.lower())
    if value.type == TIMESTAMPTZ:
        known, function = times.MOMENT_PARTS, "interlock_time_part"
    elif value.type == INTERVAL:
        known, function = times.INTERVAL_PARTS, "interlock_interval_part"
    else:
        raise refuse(f"extract() from {value.type}.", fix="Cast it to timestamptz first.")
    if field not in known:
        raise refuse(f"extract({field[:20]} FROM {value.type}).", fix=f"Use one of {', '.join(sorted(known))}.")
    part = Term(text_literal(field), TEXT, nullable=False)
    return replace(call(function, NUMERIC, part, value), name="extract", nullable=value.nullable)


def _date_trunc(arguments: Sequence[Term]) -> Term:
    field, value = arguments
    if value.type not in {TIMESTAMPTZ, UNKNOWN}:
        raise refuse(f"date_trunc() of {value.type}.", fix="Cast it to timestamptz first.")
    field, value = convert(field, TEXT, "implicit"), convert(value, TIMESTAMPTZ, "implicit")
    if field.literal is not None:
        times.check_field(field.literal)
    return call("interlock_time_truncate", TIMESTAMPTZ, field, value)


def _to_timestamp(arguments: Sequence[Term]) -> Term:
    return call("interlock_time_from_epoch", TIMESTAMPTZ, convert(arguments[0], FLOAT8, "implicit"))


TIME_CALLS: Final[dict[str, tuple[tuple[int, ...], Callable[[Sequence[Term]], Term]]]] = {
    "date_trunc": ((2,), _date_trunc),
    "to_timestamp": ((1,), _to_timestamp),
}


# --- Numbers ---------------------------------------------------------------------------------------------------------

Arguments = Sequence[Term]


def scalar(name: str, arguments: Arguments) -> Term:
    """A call of a scalar function."""
    entry = _SCALARS.get(name)
    if entry is None:
        raise refuse(f"the function {name}().", fix="Compute it in Python.")
    counts, build = entry
    if len(arguments) not in counts:
        listed = " or ".join(map(str, counts[:3]))
        raise refuse(f"{name}() with {len(arguments)} arguments.", fix=f"Pass {listed}, or compute it in Python.")
    return named(build(arguments), name)


def _implicit(term: Term, kind: Type) -> Term:
    return convert(term, kind, "implicit")


def _absolute(arguments: Arguments) -> Term:
    [value] = arguments
    if value.type == NUMERIC or value.type.name == "numeric":
        return call("interlock_numeric_absolute", NUMERIC, value)
    if value.type.is_integer:
        return call("abs", value.type, value, unchecked=value.type != INT8)
    if value.type == FLOAT8:
        return call("abs", FLOAT8, value)
    raise _not_a_number("abs", value)


def _rounded(arguments: Arguments) -> Term:
    value = arguments[0]
    if value.type is UNKNOWN:
        raise _not_a_number("round", value)
    if len(arguments) > 1:
        scale = convert(arguments[1], INT4, "implicit")
        if value.type.is_integer or value.type.name == "numeric":
            return call("interlock_numeric_round", NUMERIC, _implicit(value, NUMERIC), scale)
        raise wrong(f"round({value.type}, integer).", fix="Cast the value to numeric first.")
    if value.type.name == "numeric":
        return call("interlock_numeric_round", NUMERIC, value, extra="0")
    return call("interlock_float8_round", FLOAT8, _float(value, "round"))


def _float(value: Term, function: str) -> Term:
    """A whole number becomes double precision where PostgreSQL has the function for that and for numeric alone."""
    if value.type.is_integer or value.type == FLOAT8:
        return _implicit(value, FLOAT8)
    raise _not_a_number(function, value)


def _truncated(arguments: Arguments) -> Term:
    value = arguments[0]
    if len(arguments) > 1 and (value.type.is_integer or value.type.name == "numeric"):
        scale = _implicit(arguments[1], INT4)
        return call("interlock_numeric_truncate", NUMERIC, _implicit(value, NUMERIC), scale)
    if len(arguments) > 1:
        raise wrong(f"trunc({value.type}, integer).", fix="Cast the value to numeric first.")
    if value.type.name == "numeric":
        return call("interlock_numeric_truncate", NUMERIC, value, extra="0")
    return call("trunc", FLOAT8, _float(value, "trunc"))


def _modulo(arguments: Arguments) -> Term:
    return number_arithmetic("%", *arguments)


def _float_only(function: str) -> Callable[[Arguments], Term]:
    def build(arguments: Arguments) -> Term:
        return call(f"interlock_float8_{function}", FLOAT8, *(_float(value, function) for value in arguments))

    return build


def _chosen(name: str) -> Callable[[Arguments], Term]:
    """greatest() and least(), which leave NULLs out."""

    def build(arguments: Arguments) -> Term:
        kind, terms = unified(*arguments)
        comparable(kind, f"{name}()")
        function = f"interlock_numeric_{name}" if kind == NUMERIC else f"interlock_{name}"
        return call(function, kind, *terms)

    return build


def _whole(function: str) -> Callable[[Arguments], Term]:
    def build(arguments: Arguments) -> Term:
        [value] = arguments
        if value.type.name == "numeric":
            return call(f"interlock_numeric_{function}", NUMERIC, value)
        native = "interlock_float8_sign" if function == "sign" else function
        return call(native, FLOAT8, _float(value, function))

    return build


def _not_a_number(function: str, value: Term) -> Exception:
    return refuse(
        f"{function}() of {value.type}.",
        why="It is outside the subset, or PostgreSQL would first convert the value to double precision.",
        fix="Cast the argument to numeric or double precision.",
    )


def _source(function: str, kind: Type, *, volatile: bool) -> Callable[[Arguments], Term]:
    return lambda _: replace(call(function, kind), volatile=volatile, nullable=False)


_MANY: Final = tuple(range(1, ARGUMENTS_MAX))
_SCALARS: Final[dict[str, tuple[tuple[int, ...], Callable[[Arguments], Term]]]] = {
    "abs": ((1,), _absolute),
    **ARRAY_CALLS,
    **DOCUMENT_CALLS,
    **TEXT_CALLS,
    **TIME_CALLS,
    "ceil": ((1,), _whole("ceil")),
    "ceiling": ((1,), _whole("ceil")),
    "current_timestamp": ((0,), _source("interlock_now", TIMESTAMPTZ, volatile=False)),
    "floor": ((1,), _whole("floor")),
    "gen_random_uuid": ((0,), _source("interlock_uuid", UUID_TYPE, volatile=True)),
    "greatest": (_MANY, _chosen("greatest")),
    "least": (_MANY, _chosen("least")),
    "mod": ((2,), _modulo),
    "now": ((0,), _source("interlock_now", TIMESTAMPTZ, volatile=False)),
    "power": ((2,), _float_only("power")),
    "random": ((0,), _source("interlock_random", FLOAT8, volatile=True)),
    "round": ((1, 2), _rounded),
    "sign": ((1,), _whole("sign")),
    "sqrt": ((1,), _float_only("sqrt")),
    "trunc": ((1, 2), _truncated),
}


# --- Operators by the types of their sides ---------------------------------------------------------------------------


def arithmetic(operator: str, left: Term, right: Term) -> Term:
    """One of + - * / %."""
    if is_temporal(left, right):
        return time_arithmetic(operator, left, right)
    if operator == "-" and left.type == JSONB:
        return removal(left, right)
    return operators.number_arithmetic(operator, left, right)


def negation(term: Term) -> Term:
    """A minus sign before a value."""
    return call("interlock_interval_negate", INTERVAL, term) if term.type == INTERVAL else operators.negation(term)


def concatenation(left: Term, right: Term) -> Term:
    """||."""
    if JSONB in {left.type, right.type}:
        return join_documents(left, right)
    if left.type.is_array or right.type.is_array:
        return join_arrays(left, right)
    return operators.concatenation(left, right)


def containment(left: Term, right: Term) -> Term:
    """@>, of documents or of arrays."""
    if left.type is UNKNOWN and right.type is UNKNOWN:
        raise wrong("the types of both sides of @> are unknown.", fix="Cast one side: $1::jsonb.")
    if left.type.is_array or right.type.is_array:
        return array_containment(left, right)
    return document_containment(left, right)
