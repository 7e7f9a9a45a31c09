"""What an idempotency key stands for: a digest of the call, the same after a restart, another for another call.

The digest is kept in the database file, so it is made only of what the same program finds again in its next life, on
another machine or a later Python: never of addresses, line numbers or bytecode. A function at module level is its name.
A lambda or nested function shares its name with others, so the names, constants and operators in its code count too, as
a set: compilers reorder, fold and inline, but do not change what is mentioned.

What a function captures, and the state of an object it is bound to, may be a clock or a connection, different at every
attempt. They do not count, but for what is a value by itself: a function, a class, an Enum, a frozen dataclass. The
check is there to find mistakes, and where it cannot tell it lets the key decide: to refuse an honest repetition after a
crash would be worse.
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
from typing import cast

from interlock.errors import InvalidPayload
from interlock.lanes.keys import KEY_CHARACTERS_MAX
from interlock.lanes.results import KEPT_TYPES, NotPlain, plain

DIGEST_BYTES = 16
NESTED_MAX = 50
"""G6: levels of functions and values that hold each other."""

CODES_MAX = 512
"""Codes of nested functions whose mentions are remembered; looking at one takes some tens of microseconds."""


def check_key(key: object) -> None:
    """Raise InvalidPayload for what is not an idempotency key."""
    if not isinstance(key, str):
        wrong = f"the idempotency key is {type(key).__name__}"
    elif not 0 < len(key) <= KEY_CHARACTERS_MAX:
        wrong = f"the idempotency key has {len(key):,} characters"
    elif "\x00" in key or any("\ud800" <= character <= "\udfff" for character in key):
        wrong = f"the idempotency key {key!a} holds NUL or half of a surrogate pair"
    else:
        return
    raise InvalidPayload(
        f"{wrong}; it must be a text of 1 to {KEY_CHARACTERS_MAX} characters that UTF-8 can write.",
        why="The key is stored with the transaction and found again by its text.",
        fix='Pass a text that names the call, the same at every attempt: key=f"order-{order_id}".',
    )


def digest_of(how: str, what: str | Callable[..., object], args: tuple[object, ...]) -> bytes:
    """The digest of a call: the method, its SQL or function, and the arguments."""
    called = what if isinstance(what, str) else described(what)
    asked = [how, called, [_argument(place, value) for place, value in enumerate(args, start=1)]]
    # Sorted, because two dictionaries are equal whatever the order in which they were filled.
    text = json.dumps(asked, separators=(",", ":"), sort_keys=True)
    return hashlib.blake2b(text.encode(), digest_size=DIGEST_BYTES).digest()


def _argument(place: int, value: object) -> object:
    try:
        # Those two are taken wherever bytes are, and mean the same.
        known = bytes(cast("bytes", value)) if isinstance(value, bytearray | memoryview) else value
        return plain(known, compared=True)
    except NotPlain as error:
        raise InvalidPayload(
            f"argument {place} holds {error}, which cannot be compared when the key comes again.",
            why="With a key the arguments are part of what is asked: the same key with other arguments is refused.",
            fix=f"Pass {KEPT_TYPES}; hand other objects to the function with functools.partial.",
        ) from None


def described(function: object, around: tuple[object, ...] = ()) -> object:
    """A callable in plain terms; `around` is what it is part of, from the outside in."""
    if len(around) > NESTED_MAX:
        raise _incomparable(around[0], f"is nested deeper than {NESTED_MAX} levels, or holds itself")
    if isinstance(function, functools.partial):
        bound = cast("functools.partial[object]", function)
        around = (*around, bound)
        given = [_value(value, around) for value in bound.args]
        named = {name: _value(value, around) for name, value in bound.keywords.items()}
        return ["partial", described(bound.func, around), given, named]
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
    """What the object of a method contributes, or one that is called itself. One that can change is its class alone."""
    kind = _name(type(owner))
    return ["object", kind] if isinstance(owner, list | dict) else _value(owner, around)


def _value(value: object, around: tuple[object, ...]) -> object:
    """What an argument of a partial or a default contributes: itself when it is a value, else its class alone."""
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
    return f"{getattr(thing, '__module__', None)}.{getattr(thing, '__qualname__', type(thing).__qualname__)}"


@functools.lru_cache(maxsize=CODES_MAX)
def mentioned(code: types.CodeType) -> tuple[str, ...]:
    """The names, constants and operators of a code and of those inside it, sorted, each once.

    Comprehensions are functions of their own until Python 3.11 and part of the function from 3.12 on; small numbers
    are constants until 3.13 and part of the instruction from 3.14 on. The union over all the codes is the same.
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
            # So are those that the body of a class keeps about itself: its name, its docstring, its line.
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
    """The constants that an instruction loads."""
    if step.opname == "LOAD_SMALL_INT":
        yield step.argval
    elif step.opcode in dis.hasconst:
        yield from _flat(code.co_consts[step.arg or 0])


def _flat(constant: object) -> Iterator[object]:
    """The constants in a constant: compilers differ in what they put together. None is everywhere and says nothing."""
    if isinstance(constant, slice):
        constant = cast("tuple[object, ...]", constant.__reduce__()[1])
    if isinstance(constant, tuple | frozenset):
        for inner in cast("Iterable[object]", constant):
            yield from _flat(inner)
    elif constant is not None:
        yield constant
