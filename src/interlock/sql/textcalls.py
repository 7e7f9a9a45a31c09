"""Functions on text in expressions: their arguments, their types, and what runs for them.

Most have one signature, which is all that is written down. `concat` takes everything and writes it as PostgreSQL's
output does, where a boolean is t or f. What exists for bytea or with patterns, too, is refused for those.
"""

from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from interlock.sql.casts import convert, settled
from interlock.sql.datatypes import BOOL, BYTEA, INT4, TEXT, UNKNOWN, Type
from interlock.sql.refusal import refuse, wrong
from interlock.sql.terms import Term, call, combined

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
CALLS: Final[dict[str, tuple[tuple[int, ...], Builder]]] = {
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
