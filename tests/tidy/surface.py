"""The rule on the public surface: everything it takes and gives has a type that says something.

It looks at the objects themselves, so that an alias that hides `Any` is seen through.
"""

import inspect
import typing
from collections.abc import Callable, Iterator, Mapping
from typing import Any, get_args

SPECIAL = frozenset({"__init__", "__new__", "__call__", "__enter__", "__aenter__", "__iter__", "__getitem__"})


def untyped_names(exported: Mapping[str, object]) -> list[str]:
    """Each place in the annotations of the exported objects where `Any` is written or reached."""
    found: list[str] = []
    for name, thing in exported.items():
        if inspect.isclass(thing):
            for where, annotations in _annotations_of_class(thing):
                found += _report(f"{name}.{where}" if where else name, annotations)
        elif inspect.isroutine(thing):
            for annotations in _annotations_of_function(thing):
                found += _report(name, annotations)
        elif _reaches_any(thing):
            found.append(f"{name}: the alias is or contains Any")
    return sorted(set(found))


def _annotations_of_class(cls: type) -> Iterator[tuple[str, Mapping[str, object]]]:
    fields = {name: hint for name, hint in _hints(cls).items() if not name.startswith("_")}
    yield "", fields
    for owner in cls.__mro__:
        if owner.__module__.split(".")[0] != cls.__module__.split(".")[0]:
            continue
        for name, member in vars(owner).items():
            if name.startswith("_") and name not in SPECIAL:
                continue
            for function in _functions_in(member):
                for annotations in _annotations_of_function(function):
                    yield name, annotations


def _functions_in(member: object) -> Iterator[Callable[..., object]]:
    if isinstance(member, staticmethod | classmethod):
        yield member.__func__
    elif isinstance(member, property):
        yield from (function for function in (member.fget, member.fset) if function)
    elif inspect.isfunction(member):
        yield member


def _annotations_of_function(function: Callable[..., object]) -> Iterator[Mapping[str, object]]:
    # Where there are overloads they are the surface; the implementation behind them is nobody's business.
    yield from map(_hints, typing.get_overloads(function) or [function])


def _hints(thing: type | Callable[..., object]) -> Mapping[str, object]:
    try:
        return typing.get_type_hints(thing, include_extras=True)
    except NameError:  # An annotation names something that exists for type checkers only.
        return inspect.get_annotations(thing)


def _report(where: str, annotations: Mapping[str, object]) -> list[str]:
    return [f"{where}: the type of '{name}' contains Any" for name, hint in annotations.items() if _reaches_any(hint)]


def _reaches_any(hint: object) -> bool:
    if hint is Any:
        return True
    if isinstance(hint, str):
        return "Any" in hint
    if isinstance(hint, list | tuple):  # The parameters of a Callable.
        return any(map(_reaches_any, hint))
    return any(map(_reaches_any, get_args(hint)))
