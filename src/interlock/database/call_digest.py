"""Digest of a call with an idempotency key: stable across restarts, different for a different call.

The digest is stored in the database, so it depends only on what is the same after a restart, on another machine or a
later Python: never on memory addresses, line numbers or bytecode. A function at module level counts by its name. A
lambda or nested function shares its name with others, so the names, constants and operators of its code count too, as
a set: compilers reorder, fold and inline them, but do not change the set.

Captured variables, and the state of a bound object, may differ at every attempt, for example a clock or a connection.
They do not count, except values: a function, a class, an Enum, a frozen dataclass. The check is for mistakes. In doubt
it accepts the key, because the refusal of a correct repetition after a crash would be worse.
"""

import dataclasses
import dis
import enum
import functools
import hashlib
import inspect
import json
import types
from collections.abc import Callable, Iterable, Iterator
from itertools import zip_longest
from typing import Final, cast

from interlock.errors import InvalidPayload
from interlock.import_aliases import first_name
from interlock.lanes.idempotency_keys import KEPT_TYPES, NotPlain, plain

DIGEST_BYTES = 16
NESTED_MAX = 50
"""G6: maximum depth of nested functions and values."""

CODES_MAX = 512
"""Size of the cache of `mentioned`, which takes some tens of microseconds per code."""


def digest_of(how: str, what: str | Callable[..., object], args: tuple[object, ...]) -> bytes:
    """Return the digest of a call: the method, its SQL or function, and the arguments."""
    called = what if isinstance(what, str) else described(what)
    call = [how, called, [_argument(place, value) for place, value in enumerate(args, start=1)]]
    # Sorted, because the equality of dictionaries does not depend on their order.
    text = json.dumps(call, separators=(",", ":"), sort_keys=True)
    return hashlib.blake2b(text.encode(), digest_size=DIGEST_BYTES).digest()


def _argument(place: int, value: object) -> object:
    try:
        # Both types are accepted wherever bytes are, and mean the same.
        known = bytes(cast("bytes", value)) if isinstance(value, bytearray | memoryview) else value
        return plain(known, compared=True)
    except NotPlain as error:
        raise InvalidPayload(
            f"argument {place} holds {error}, which cannot be compared when the key comes again.",
            why="With a key the arguments are part of what is asked: the same key with other arguments is refused.",
            fix=f"Pass {KEPT_TYPES}; hand other objects to the function with functools.partial.",
        ) from None


def described(function: object, around: tuple[object, ...] = ()) -> object:
    """Describe a callable as JSON values; `around` are the objects that contain it, outermost first."""
    if len(around) > NESTED_MAX:
        raise _incomparable(around[0], f"is nested deeper than {NESTED_MAX} levels, or holds itself")
    if isinstance(function, functools.partial):
        bound = cast("functools.partial[object]", function)
        around = (*around, bound)
        positional = [_value(value, around) for value in bound.args]
        named = {name: _value(value, around) for name, value in bound.keywords.items()}
        return ["partial", described(bound.func, around), positional, named]
    if isinstance(function, types.MethodType):
        return ["method", described(function.__func__, around), _bound(function.__self__, around)]
    if isinstance(function, types.FunctionType):
        return _function(function, around)
    # A cache, or another decorator that is a class.
    wrapped: object = None if isinstance(function, type) else getattr(function, "__wrapped__", None)
    if callable(wrapped) and not any(function is outer for outer in around):
        return ["wrapped", _name(type(function)), described(wrapped, (*around, function))]
    return _name(function) if _has_name(function) else _bound(function, around)


def _function(function: types.FunctionType, around: tuple[object, ...]) -> object:
    name = _name(function)
    if "<" not in function.__qualname__ or any(function is outer for outer in around):
        return name
    around = (*around, function)
    inner: object = inspect.unwrap(function)
    if not isinstance(inner, types.FunctionType):
        return ["wrapped", name, described(inner, around)]
    captured = {variable: described(value, around) for variable, value in _captured(inner) if _has_name(value)}
    defaults = [_value(value, around) for value in inner.__defaults__ or ()]
    named = {key: _value(value, around) for key, value in (inner.__kwdefaults__ or {}).items()}
    return ["nested", name, mentioned(inner.__code__), captured, defaults, named]


def _captured(function: types.FunctionType) -> Iterator[tuple[str, object]]:
    for variable, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        try:
            contents: object = cell.cell_contents
        except ValueError:  # Not assigned yet.
            continue
        yield variable, contents


def _bound(owner: object, around: tuple[object, ...]) -> object:
    """Describe the object of a method, or a callable object. A mutable one counts by its class only."""
    kind = _name(type(owner))
    return ["object", kind] if isinstance(owner, list | dict) else _value(owner, around)


def _value(value: object, around: tuple[object, ...]) -> object:
    """Describe an argument of a partial or a default: by itself when it is a value, else by its class only."""
    if _has_name(value):
        return described(value, around)
    kind = _name(type(value))
    if isinstance(value, enum.Enum):
        return ["member", kind, value.name]
    if dataclasses.is_dataclass(value) and type(value).__dataclass_params__.frozen:  # type: ignore[union-attr]
        return ["value", kind, _fields(value, (*around, value))]
    try:
        return ["plain", kind, plain(value, compared=True)]
    except NotPlain:
        return ["object", kind]


def _fields(value: object, around: tuple[object, ...]) -> dict[str, object]:
    if len(around) > NESTED_MAX:
        raise _incomparable(value, f"is nested deeper than {NESTED_MAX} levels, or holds itself")
    try:
        found = [(field.name, getattr(value, field.name)) for field in dataclasses.fields(value)]  # type: ignore[arg-type]
    except AttributeError as error:
        raise _incomparable(value, f"has a field that was never set ({error})") from error
    return {name: _value(content, around) for name, content in found}


def _incomparable(value: object, how: str) -> InvalidPayload:
    return InvalidPayload(
        f"a {type(value).__name__} that the function holds {how}; it cannot be compared when the key comes again.",
        why="With a key, a frozen dataclass or a partial is part of what is asked: it counts by what it holds.",
        fix="Set all of its fields and let it hold plain values, or pass those as arguments.",
    )


def _has_name(value: object) -> bool:
    return isinstance(value, functools.partial | type) or inspect.isroutine(value)


def _name(thing: object) -> str:
    # The name is part of stored digests: what moved between modules keeps its first one.
    return first_name(str(getattr(thing, "__module__", None)), getattr(thing, "__qualname__", type(thing).__qualname__))


@functools.lru_cache(maxsize=CODES_MAX)
def mentioned(code: types.CodeType) -> tuple[str, ...]:
    """Return the names, constants and operators of a code and of its nested codes, sorted, each once.

    Comprehensions are functions of their own until Python 3.11 and part of the function from 3.12 on. Small numbers
    are constants until 3.13 and part of the instruction from 3.14 on. The union over all codes is the same.
    """
    found: set[str] = set()
    waiting = [code]
    while waiting:
        part = waiting.pop()
        for name in (*part.co_names, *part.co_varnames, *part.co_cellvars, *part.co_freevars):
            # Names with a dot, and most with two underscores, are the compiler's own.
            if not name.startswith((".", "__")):
                found.add(f"name {name}")
        steps = list(dis.get_instructions(part))
        for step, after in zip_longest(steps, steps[1:]):
            # So are the name, the docstring and the line of a class body.
            own = after is not None and after.opname == "STORE_NAME" and str(after.argval).startswith("__")
            for constant in () if own else _constants(part, step):
                if isinstance(constant, types.CodeType):
                    waiting.append(constant)
                else:
                    found.add(f"{type(constant).__name__} {constant!r}")
            if step.opname == "BINARY_OP" and step.argrepr != "[]":
                found.add(f"operator {step.argrepr}")
            elif step.opname == "COMPARE_OP":
                found.add(f"operator {step.argval}")
    return tuple(sorted(found))


def _constants(code: types.CodeType, step: dis.Instruction) -> Iterator[object]:
    """Yield the constants that an instruction loads."""
    if step.opname == "LOAD_SMALL_INT":
        yield step.argval
    elif step.opcode in dis.hasconst:
        yield from _flat(code.co_consts[step.arg or 0])


def _flat(constant: object) -> Iterator[object]:
    """Yield the constants in a constant, because compilers differ in what they combine. None is skipped."""
    if isinstance(constant, slice):
        constant = cast("tuple[object, ...]", constant.__reduce__()[1])
    if isinstance(constant, tuple | frozenset):
        for inner in cast("Iterable[object]", constant):
            yield from _flat(inner)
    elif constant is not None:
        yield constant


# --- The table of keys on PostgreSQL ---------------------------------------------------------------------------------
# Movers create it, too, so it is defined where no driver is needed.

KEYS_TABLE: Final = "interlock_keys"
KEYS_SCHEMA: Final = f"""
CREATE TABLE IF NOT EXISTS {KEYS_TABLE} (
    number bigint GENERATED ALWAYS AS IDENTITY,
    key text COLLATE "C" PRIMARY KEY,
    digest bytea NOT NULL,
    result bytea,
    at timestamptz NOT NULL DEFAULT now()
)"""
