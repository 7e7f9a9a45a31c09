"""The functions of the subset: which arguments they take, what type they give, what SQLite runs for them.

A function is here only if its result is PostgreSQL's for every argument, errors included. What depends on the
database's locale (lower and upper of letters beyond ASCII) raises at run time; what is ambiguous is refused.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final

from interlock.sql.casts import convert, settled
from interlock.sql.datatypes import BYTEA, FLOAT8, INT4, INT8, NUMERIC, TEXT, TIMESTAMPTZ, UNKNOWN, UUID_TYPE, Type
from interlock.sql.operators import comparable, keyed
from interlock.sql.refusal import refuse, wrong
from interlock.sql.terms import Term, call, combined, named

Arguments = Sequence[Term]


def scalar(name: str, arguments: Arguments) -> Term:
    """A call of a scalar function."""
    entry = _SCALARS.get(name)
    if entry is None:
        raise refuse(f"the function {name}().", fix="Compute it in Python.")
    counts, build = entry
    if len(arguments) not in counts:
        raise wrong(f"{name}() takes {' or '.join(map(str, counts))} arguments, not {len(arguments)}.")
    return named(build(arguments), name)


def _length(arguments: Arguments) -> Term:
    [value] = arguments
    value = convert(value, TEXT, "implicit") if value.type is UNKNOWN else value
    if not value.type.is_text and value.type != BYTEA:
        raise wrong(f"length() of {value.type}.")
    return call("length", INT4, value)


def _cased(function: str) -> Callable[[Arguments], Term]:
    def build(arguments: Arguments) -> Term:
        return call(function, TEXT, _implicit(arguments[0], TEXT))

    return build


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
    if value.type == FLOAT8:
        return call("interlock_float8_round", FLOAT8, value)
    raise _not_a_number("round", value)


def _whole(function: str) -> Callable[[Arguments], Term]:
    def build(arguments: Arguments) -> Term:
        [value] = arguments
        if value.type.name == "numeric":
            return call(f"interlock_numeric_{function}", NUMERIC, value)
        if value.type == FLOAT8:
            return call(function, FLOAT8, value)
        raise _not_a_number(function, value)

    return build


def _not_a_number(function: str, value: Term) -> Exception:
    return refuse(
        f"{function}() of {value.type}.",
        why="It is outside the subset, or PostgreSQL would first convert the value to double precision.",
        fix="Cast the argument to numeric or double precision.",
    )


def _source(function: str, kind: Type, *, volatile: bool) -> Callable[[Arguments], Term]:
    return lambda _: replace(call(function, kind), volatile=volatile, nullable=False)


_SCALARS: Final[dict[str, tuple[tuple[int, ...], Callable[[Arguments], Term]]]] = {
    "abs": ((1,), _absolute),
    "ceil": ((1,), _whole("ceil")),
    "floor": ((1,), _whole("floor")),
    "gen_random_uuid": ((0,), _source("interlock_uuid", UUID_TYPE, volatile=True)),
    "length": ((1,), _length),
    "lower": ((1,), _cased("interlock_lower")),
    "now": ((0,), _source("interlock_now", TIMESTAMPTZ, volatile=False)),
    "random": ((0,), _source("interlock_random", FLOAT8, volatile=True)),
    "round": ((1, 2), _rounded),
    "upper": ((1,), _cased("interlock_upper")),
}


def aggregate(name: str, value: Term, *, distinct: bool) -> Term:
    """An aggregate over one argument, with PostgreSQL's type: the sum of bigint is numeric, an average is exact."""
    value = settled(value) if value.type is UNKNOWN else value
    function, kind, unchecked = _aggregate(name, value.type)
    if distinct:
        comparable(value.type, f"{name}(DISTINCT …)")
    compared = keyed(value) if distinct or name in {"min", "max"} else value.operand
    text = f"{function}({'DISTINCT ' if distinct else ''}{compared})"
    return combined(text, kind, [value], atomic=True, unchecked=unchecked, name=name)


def _aggregate(name: str, kind: Type) -> tuple[str, Type, bool]:
    """The function, its result's type, and whether its range has to be verified."""
    match name:
        case "count":
            return "count", INT8, False
        case "min" | "max" if kind.is_number or kind.is_text or kind == TIMESTAMPTZ:
            return name, TEXT if kind.is_text else kind.plain, False
        case "sum" if kind.name in {"int2", "int4"}:
            return "sum", INT8, False
        case "sum" | "avg" if kind.is_integer:
            return f"interlock_{name}_integer", NUMERIC, False
        case "sum" | "avg" if kind.name == "numeric":
            return f"interlock_{name}_numeric", NUMERIC, False
        case "sum" | "avg" if kind == FLOAT8:
            return f"interlock_{name}_float8", FLOAT8, False
        case _:
            raise refuse(f"the aggregate {name}() of {kind}.", fix="Compute it in Python.")
