"""Find contexts and events that can be changed in place, and pass copies of them to user code (A10).

A change in place is visible wherever the value is referenced: in the snapshot that a refusal must leave unchanged, in
an engine's cache, in a caller's history. So user code receives a copy of every value whose class is mutable. Classes
are examined once, when the machine is compiled: immutable values are passed as they are, without a check per call.

Two judgements differ where an annotation is vague. Every value that may be mutable is *copied*, also a field of type
`Any` or `Sequence`, which decodes as a list. Only what is certainly mutable is *reported* (`mutable-context`).
"""

import collections.abc
import dataclasses
import datetime
import decimal
import types
import typing
from collections.abc import Callable, Iterator
from enum import Enum
from typing import Annotated, Any, Literal, NamedTuple, Protocol, Union

import msgspec

from interlock.core.events import Event
from interlock.core.table import Table, Transition, class_of, name_of

_VALUES: tuple[type[object], ...] = (
    bool, int, float, str, bytes, types.NoneType, Enum, decimal.Decimal,
    datetime.date, datetime.time, datetime.timedelta,
)  # fmt: skip
"""Classes whose instances never change. A datetime is a date."""

_CONTAINERS: tuple[type[object], ...] = (
    list, dict, set, bytearray,
    collections.abc.MutableSequence, collections.abc.MutableMapping, collections.abc.MutableSet,
)  # fmt: skip

_TRANSPARENT = (Union, types.UnionType, Annotated, typing.Final, typing.Required, typing.NotRequired)


class Part(NamedTuple):
    """One place in a type that can be changed in place. `certain` is False where the annotation is vague."""

    what: str
    certain: bool = True


class Copies(Protocol):
    """The methods of a codec that are used here."""

    def copy_context(self, context: Any) -> Any:  # noqa: ANN401 -- a context of the machine.
        """Return a deep copy of the context."""
        ...

    def copy_event(self, event: Any) -> Any:  # noqa: ANN401 -- an event of the machine's own alphabet.
        """Return a deep copy of the event."""
        ...


def changeable_parts(kind: object) -> list[Part]:
    """Return every place in the type that can be changed in place, the outermost first."""
    return list(_parts(kind, name_of(kind) if isinstance(kind, type) else str(kind), set()))


def lend_copies(table: Table, codec: Callable[[], Copies]) -> None:
    """Make guards and actions receive copies, where the context or the event can be changed in place.

    Raises DefinitionError when a value cannot be copied; such a value cannot be stored either.
    """
    context = bool(changeable_parts(table.declared.context))
    events = {event for event in table.events.values() if changeable_parts(event)}
    if not context and not events:
        return
    copies = codec()
    table.copy_context = copies.copy_context if context else None
    for node in table.nodes.values():
        for event, moves in node.moves.items():
            if context or event in events:
                for move in moves:
                    _lend(
                        move, copies.copy_context if context else _same, copies.copy_event if event in events else _same
                    )


def _lend(move: Transition, context: Callable[[Any], Any], event: Callable[[Any], Any]) -> None:
    move.guard = _with_copies(move.guard, context, event)
    move.action = _with_copies(move.action, context, event)


def _with_copies(
    function: Callable[[object, Event], Any] | None,
    copy_context: Callable[[object], object],
    copy_event: Callable[[Event], Event],
) -> Callable[[object, Event], Any] | None:
    if function is None:
        return None

    def call(context: object, event: Event) -> object:
        return function(copy_context(context), copy_event(event))

    return call


def _same(value: Any) -> Any:  # noqa: ANN401 -- whatever it is.
    return value


def _parts(kind: object, path: str, visited: set[object]) -> Iterator[Part]:
    while (aliased := getattr(kind, "__supertype__", None) or getattr(kind, "__value__", None)) is not None:
        kind = aliased  # A NewType, or a `type` statement.
    origin, members = typing.get_origin(kind), typing.get_args(kind)
    if origin in _TRANSPARENT or origin in (tuple, frozenset):
        inner = members[:1] if origin is Annotated else members
        for member in inner:
            if member is not Ellipsis:
                yield from _parts(member, path, visited)
    elif origin not in (Literal, typing.ClassVar):
        cls = kind if origin is None else origin
        yield from _parts_of_class(cls, path, visited) if isinstance(cls, type) else [_unknown(path, kind)]
        for member in members:
            yield from _parts(member, path, visited)


def _parts_of_class(cls: type[object], path: str, visited: set[object]) -> Iterator[Part]:
    if cls in visited or _is_value(cls):
        return
    if _is_typed_dict(cls) or _is_a(cls, _CONTAINERS):
        yield Part(f"{path} is a {class_of(cls).__name__}")
    fields = _fields(cls)
    if fields is None:
        if not _is_a(cls, _CONTAINERS):
            yield _unknown(path, cls)
        return
    visited.add(cls)
    if not _is_typed_dict(cls) and not _is_frozen(cls):
        yield Part(
            f"{path} is not frozen"
            if path == name_of(cls)
            else f"{path} is of class {name_of(cls)}, which is not frozen"
        )
    for name, kind in fields.items():
        yield from _parts(kind, f"{name_of(cls)}.{name}", visited)


def _is_a(cls: type[object], kinds: tuple[type[object], ...]) -> bool:
    """Return `issubclass`, without narrowing the class to one with unknown parameters for a type checker."""
    return issubclass(cls, kinds)


def _is_value(cls: type[object]) -> bool:
    # UUID is compared by name: the core must not import a module that draws random numbers.
    return _is_a(cls, _VALUES) or (cls.__module__, cls.__qualname__) == ("uuid", "UUID")


def _unknown(path: str, kind: object) -> Part:
    return Part(f"{path} may be anything that {kind} allows", certain=False)


def _fields(cls: type[object]) -> dict[str, object] | None:
    """Return the types of the fields by name, or None for a class without declared fields."""
    model: dict[str, object] | None = getattr(cls, "model_fields", None)
    if model is not None:
        found: dict[str, object] = {name: getattr(field, "annotation", Any) for name, field in model.items()}
        return found | {"model_extra": Any} if _config(cls).get("extra") == "allow" else found
    named = _is_a(cls, (tuple,)) and hasattr(cls, "_fields")
    if not (named or dataclasses.is_dataclass(cls) or _is_a(cls, (msgspec.Struct,)) or _is_typed_dict(cls)):
        return None
    try:
        return dict(typing.get_type_hints(cls, include_extras=True))
    except (NameError, TypeError):
        return {"": Any}  # The annotations cannot be resolved here, so the value is copied.


def _config(model: type[object]) -> dict[str, object]:
    return getattr(model, "model_config", {})


def _is_typed_dict(cls: type[object]) -> bool:
    return hasattr(cls, "__required_keys__")


def _is_frozen(cls: type[object]) -> bool:
    if _is_a(cls, (tuple,)):
        return True
    if hasattr(cls, "model_fields"):
        return _config(cls).get("frozen") is True
    parameters = getattr(cls, "__dataclass_params__", None) or getattr(cls, "__struct_config__", None)
    return parameters is not None and bool(parameters.frozen)
