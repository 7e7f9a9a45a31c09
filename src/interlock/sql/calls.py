"""The functions of the subset, those on numbers here: their arguments, their types, what SQLite runs for them.

A function is here only if its result is PostgreSQL's for every argument, errors included. What depends on the
database's locale (lower and upper of letters beyond ASCII) raises at run time; what is ambiguous is refused.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final

from interlock.sql import arraycalls, documentcalls, textcalls, timecalls
from interlock.sql.casts import convert, unified
from interlock.sql.datatypes import FLOAT8, INT4, INT8, NUMERIC, TIMESTAMPTZ, UNKNOWN, UUID_TYPE, Type
from interlock.sql.operators import arithmetic, comparable
from interlock.sql.refusal import refuse, wrong
from interlock.sql.terms import Term, call, named

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
    return arithmetic("%", *arguments)


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


_MANY: Final = tuple(range(1, textcalls.ARGUMENTS_MAX))
_SCALARS: Final[dict[str, tuple[tuple[int, ...], Callable[[Arguments], Term]]]] = {
    "abs": ((1,), _absolute),
    **arraycalls.CALLS,
    **documentcalls.CALLS,
    **textcalls.CALLS,
    **timecalls.CALLS,
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
