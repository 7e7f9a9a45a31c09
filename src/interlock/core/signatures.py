"""Checks of user functions when they are declared: shape, purity and annotations.

Users without a type checker get these errors at the line of the declaration. Annotations that are missing or cannot be
resolved are skipped: the first decision would still find a wrong type.

The odd choice: annotations are resolved with the local names of the declaring frame too, because machines are
often built inside a function (a test), where `from __future__ import annotations` hides the local classes. For a
function of another module that module's own names take precedence.
"""

import inspect
import types
import typing
from collections.abc import Callable, Mapping
from dataclasses import is_dataclass
from functools import partial
from typing import TypeGuard, Union

from interlock.core.events import Event, events_below, is_event, wire_name
from interlock.core.table import class_of, name_of
from interlock.errors import DefinitionError

Names = Mapping[str, object]
Expected = tuple[type[object] | None, ...]
"""The types of a function's arguments, in order; None for one that is not checked."""


def check_pure(
    function: object,
    *,
    kind: str,
    arguments: tuple[type[object], ...],
    returns: type[object],
    local: Names,
    location: str,
) -> None:
    """Demand a synchronous function of `arguments` that returns `returns`. `kind` is "guard" or "action"."""
    shape = f"({', '.join(name_of(argument) for argument in arguments)}) -> {name_of(returns)}"
    if is_async(function):
        raise DefinitionError(
            f"{kind} {name_of(function)} is async.",
            why=f"Guards and actions are pure and synchronous: a {kind} does no I/O.",
            fix="Make it a plain function; put the I/O into a step, whose result is an event.",
            rule="impure-function",
            location=location,
        )
    _check_shape(function, kind, len(arguments), shape, location)
    _check_annotations(function, kind, arguments, returns, shape, local, location)


def check_async(
    function: object,
    *,
    kind: str,
    arguments: Expected,
    shape: str,
    local: Names,
    location: str,
    returns: type[object] | None = None,
    blocking: bool = False,
) -> None:
    """Demand an `async def` that can be called with these arguments; `returns` is checked unless it is None.

    With `blocking` demand a plain `def`, which an engine runs in a thread.
    """
    if blocking and is_async(function):
        raise DefinitionError(
            f"{kind} {name_of(function)} is async and declared blocking=True.",
            why="A blocking function runs in a thread, where there is no event loop to await in.",
            fix=f"Write `def {name_of(function)}{shape}`, or leave blocking=True out.",
            rule="wrong-signature",
            location=location,
        )
    if not blocking and not is_async(function):
        raise DefinitionError(
            f"{kind} {name_of(function)} is not async.",
            why=f"A {kind} does I/O; a timeout has to be able to cancel it.",
            fix=f"Write `async def {name_of(function)}{shape}`; declare a function that blocks with blocking=True: "
            "it runs in a thread.",
            rule="wrong-signature",
            location=location,
        )
    _check_shape(function, kind, len(arguments), shape, location)
    _check_annotations(function, kind, arguments, returns, shape, local, location)


def _check_annotations(
    function: object,
    kind: str,
    arguments: Expected,
    returns: type[object] | None,
    shape: str,
    local: Names,
    location: str,
) -> None:
    hints = _hints(function, local)
    for (name, annotated), expected in zip(_positional(function, hints), arguments, strict=False):
        if expected is not None and not _takes(annotated, expected):
            problem = f"takes {name}: {_label(annotated, expected)}, but receives a {_label(expected, annotated)}"
            raise _mismatch(function, kind, problem, shape, location)
    if returns is not None and "return" in hints and not _gives(hints["return"], returns):
        text = _label(hints["return"], returns)
        problem = f"returns {text}, but must return {_label(returns, hints['return'])}"
        raise _mismatch(function, kind, problem, shape, location)


def returned_events(function: object, *, alphabet: type[Event], local: Names, location: str) -> tuple[type[Event], ...]:
    """Return the events in a step's return annotation; empty without one, or for the whole alphabet.

    A class that only groups events stands for all events below it.
    """
    hints = _hints(function, local)
    if "return" not in hints:
        return ()
    found: list[type[Event]] = []
    for member in _members(hints["return"]):
        if member is alphabet or member is typing.Any:
            return ()
        if not is_event(member, alphabet):
            raise DefinitionError(
                f"step {name_of(function)} may return {_label(member)}, which is not an event of {alphabet.__name__}.",
                why="The result of a step is the next event of its machine; anything else could not be applied.",
                fix=f"Return events below {alphabet.__name__} only; a failure is raised, not returned.",
                rule="step-returns-foreign-event",
                location=location,
            )
        event = typing.cast("type[Event]", member)
        found += [event] if is_dataclass(event) else events_below(event)
    return tuple(dict.fromkeys(found))


def check_undo(event: type[Event], *, step: str, returns: tuple[type[Event], ...], location: str) -> None:
    """Demand that the step can return the event that its undo is declared for."""
    if returns and event not in returns:
        raise DefinitionError(
            f"step {step!r} can never return {wire_name(event)}, so there is nothing to undo; "
            f"it returns {', '.join(wire_name(known) for known in returns)}.",
            why="An undo belongs to one outcome of its step.",
            fix="Name one of the events it returns, or add this one to the step's return annotation.",
            rule="undo-of-impossible-event",
            location=location,
        )


def is_async(function: object) -> bool:
    """Return whether it is an `async def`, also as a bound method, a partial or an object with an async `__call__`."""
    target = function
    while isinstance(target, partial):
        target = target.func
    call = inspect.getattr_static(type(target), "__call__", None)
    return any(
        test(candidate)
        for candidate in (target, call)
        for test in (inspect.iscoroutinefunction, inspect.isasyncgenfunction)
    )


def _check_shape(function: object, kind: str, arguments: int, shape: str, location: str) -> None:
    problem = ""
    if not callable(function):
        problem = "is not callable"
    elif inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        problem = "is a generator"
    else:
        signature = _signature(function)
        try:
            if signature is not None:
                signature.bind(*range(arguments))
        except TypeError as error:
            problem = f"cannot be called with {arguments} arguments: {error}"
    if problem:
        raise _mismatch(function, kind, problem, shape, location)


def _mismatch(function: object, kind: str, problem: str, shape: str, location: str) -> DefinitionError:
    return DefinitionError(
        f"{kind} {name_of(function)} {problem}.",
        why=f"Interlock calls it as {shape}.",
        fix=f"Write {name_of(function)}{shape}.",
        rule="wrong-signature",
        location=location,
    )


def _signature(function: Callable[..., object]) -> inspect.Signature | None:
    try:
        return inspect.signature(function)
    except ValueError:  # Some built-ins have no signature; a wrong one fails at the first call.
        return None


def _positional(function: object, hints: Names) -> list[tuple[str, object]]:
    signature = _signature(typing.cast("Callable[..., object]", function))
    parameters = signature.parameters.values() if signature else ()
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return [(each.name, hints.get(each.name, typing.Any)) for each in parameters if each.kind in kinds]


def _hints(function: object, local: Names) -> dict[str, object]:
    target = function if inspect.isroutine(function) else inspect.getattr_static(type(function), "__call__", function)
    own: Names = getattr(inspect.unwrap(target), "__globals__", {}) if callable(target) else {}
    # A nested function may refer to a local class; a function of a module refers to that module's names.
    inside = "<locals>" in getattr(target, "__qualname__", "")
    try:
        return typing.get_type_hints(target, localns={n: v for n, v in local.items() if inside or n not in own})
    except Exception:  # noqa: BLE001 -- an annotation that cannot be resolved is skipped.
        return {}


def _members(annotation: object) -> tuple[object, ...]:
    if typing.get_origin(annotation) in (Union, types.UnionType):
        return typing.get_args(annotation)
    return (annotation,)


def _takes(annotated: object, argument: type[object]) -> bool:
    """Return whether a parameter with this annotation accepts an `argument`; True for anything but a plain class."""
    argument_class = class_of(argument)
    if argument_class is object:  # A union of contexts, or a context that only the pipeline will know.
        return True
    return any(not _is_plain_class(member) or issubclass(argument_class, member) for member in _members(annotated))


def _gives(annotated: object, wanted: type[object]) -> bool:
    """Return whether the annotation only admits values of the wanted type; True for anything but a plain class."""
    wanted_class = class_of(wanted)
    if wanted is not type(None) and type(None) in _members(annotated):  # A forgotten return, for any class.
        return False
    return all(not _is_plain_class(member) or issubclass(member, wanted_class) for member in _members(annotated))


def _is_plain_class(annotation: object) -> TypeGuard[type[object]]:
    """Return whether `issubclass` works with it: not Any, not a TypedDict, not a Protocol."""
    special = hasattr(annotation, "__required_keys__") or getattr(annotation, "_is_protocol", False)
    return isinstance(annotation, type) and annotation is not typing.Any and not special


def _label(annotation: object, other: object = None) -> str:
    if not isinstance(annotation, type):
        return str(annotation)
    # Two classes with the same name are distinguished by their modules.
    same = getattr(other, "__name__", "") == annotation.__name__
    return f"{annotation.__module__}.{annotation.__qualname__}" if same else annotation.__name__
