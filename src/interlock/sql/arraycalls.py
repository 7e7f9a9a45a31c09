"""Arrays in expressions: ARRAY[…], = ANY, and the functions on arrays.

`id = ANY($1)` is written so that SQLite can still use an index on `id`: the elements are the rows of a subquery. With a
written ARRAY[…] it is the IN list that it means.
"""

from collections.abc import Callable, Sequence
from typing import Final

from interlock.sql import arrays
from interlock.sql.casts import convert, unified
from interlock.sql.datatypes import BOOL, INT4, TEXT, UNKNOWN, Type, array_of
from interlock.sql.operators import keyed
from interlock.sql.refusal import refuse, wrong
from interlock.sql.terms import Term, call, combined, named
from interlock.sql.textcalls import ARGUMENTS_MAX

Builder = Callable[[Sequence[Term]], Term]
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


def containment(left: Term, right: Term) -> Term:
    """@>: whether each element of the second array is in the first."""
    kind = left.type if left.type.is_array else right.type
    left, right = (convert(term, kind, "implicit") for term in (left, right))
    _equatable(kind, "@>")
    return call("interlock_array_contains", BOOL, left, right)


def joined(left: Term, right: Term) -> Term:
    """||, of two arrays, or of an array and an element."""
    if left.type.is_array and (right.type.is_array or right.type is UNKNOWN):
        return call("interlock_array_join", left.type, left, convert(right, left.type, "implicit"))
    if right.type.is_array and left.type is UNKNOWN:
        return call("interlock_array_join", right.type, convert(left, right.type, "implicit"), right)
    if left.type.is_array and right.type.name == left.type.element.name:
        return call("interlock_array_append", left.type, left, right)
    raise refuse(f"|| on {left.type} and {right.type}.", fix="Cast one side.")


CALLS: Final[dict[str, tuple[tuple[int, ...], Builder]]] = {
    "array_append": ((2,), _with_element("array_append", None, compares=False)),
    "array_length": ((2,), _array_length),
    "array_position": ((2,), _with_element("array_position", INT4)),
    "array_remove": ((2,), _with_element("array_remove", None)),
    "cardinality": ((1,), _cardinality),
}
