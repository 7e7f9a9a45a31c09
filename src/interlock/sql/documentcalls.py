"""jsonb in expressions: its operators and functions, each with the operands that PostgreSQL has them for.

A side of unknown type is a key (text) beside -> and -, a path (text[]) beside #>, and a document beside @> and ||.
"""

from collections.abc import Callable, Sequence
from typing import Final

from interlock.sql.casts import convert, settled
from interlock.sql.datatypes import (
    BOOL,
    BYTEA,
    FLOAT8,
    INT4,
    JSONB,
    TEXT,
    TEXT_ARRAY,
    TIMESTAMPTZ,
    UNKNOWN,
    UUID_TYPE,
    Type,
)
from interlock.sql.refusal import refuse, wrong
from interlock.sql.terms import Term, call, combined
from interlock.sql.textcalls import ARGUMENTS_MAX, output

Builder = Callable[[Sequence[Term]], Term]


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


def containment(left: Term, right: Term) -> Term:
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


def joined(left: Term, right: Term) -> Term:
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
CALLS: Final[dict[str, tuple[tuple[int, ...], Builder]]] = {
    "jsonb_array_length": ((1,), _of_document("interlock_jsonb_array_length", INT4)),
    "jsonb_build_array": (_ANY, _build_array),
    "jsonb_build_object": (_ANY, _build_object),
    "jsonb_set": ((3, 4), _set),
    "jsonb_strip_nulls": ((1,), _of_document("interlock_jsonb_strip_nulls", JSONB)),
    "jsonb_typeof": ((1,), _of_document("interlock_jsonb_typeof", TEXT)),
    "to_jsonb": ((1,), _to_jsonb),
}
