"""Check whether a type can be stored, when a machine is built and before any value is written.

All types of msgspec can be stored, and pydantic models. One combination is refused although msgspec accepts it: a union
of a fixed-length tuple and a constrained type crashes the interpreter in msgspec 0.22 instead of raising. Inspecting
such a type with msgspec crashes too, so it is searched for first, with `typing` only.
"""

import types
import typing
from typing import Annotated, Union, cast

import msgspec
import msgspec.inspect

from interlock.core.table import name_of

_CONSTRAINTS = ("gt", "ge", "lt", "le", "multiple_of", "pattern", "min_length", "max_length", "tz")


def not_storable(context: object) -> str:
    """Return why the type cannot be stored, or an empty text. Annotations that cannot be resolved yet are skipped."""
    try:
        if _crashes(context, set()):
            return (
                "a union of a fixed-length tuple and a constrained type cannot be decoded; wrap one of them in a class"
            )
        information = msgspec.inspect.type_info(context)
    except (NameError, TypeError) as error:
        return str(error) if isinstance(error, TypeError) else ""
    return _problem_in(information, set())


def _problem_in(information: object, visited: set[int]) -> str:
    if id(information) in visited:
        return ""
    visited.add(id(information))
    if isinstance(information, msgspec.inspect.CustomType):
        cls = information.cls
        return "" if hasattr(cls, "model_validate") else f"{name_of(cls)} is not a type that JSON can carry"
    children: list[object] = []
    if isinstance(information, msgspec.Struct):
        children = [getattr(information, name) for name in information.__struct_fields__]
    elif isinstance(information, tuple | list):
        children = list(cast("tuple[object, ...]", information))
    return next((problem for child in children if (problem := _problem_in(child, visited))), "")


def _crashes(kind: object, visited: set[int]) -> bool:
    if id(kind) in visited:
        return False
    visited.add(id(kind))
    members = typing.get_args(kind)
    if typing.get_origin(kind) in (Union, types.UnionType):
        fixed = any(_is_fixed_tuple(member) for member in members)
        if fixed and any(_is_constrained(member) for member in members):
            return True
    if isinstance(kind, type) and not members:
        members = tuple(typing.get_type_hints(kind, include_extras=True).values())
    return any(_crashes(member, visited) for member in members)


def _is_fixed_tuple(kind: object) -> bool:
    plain = typing.get_args(kind)[0] if typing.get_origin(kind) is Annotated else kind
    return typing.get_origin(plain) is tuple and Ellipsis not in typing.get_args(plain)


def _is_constrained(kind: object) -> bool:
    notes = typing.get_args(kind)[1:] if typing.get_origin(kind) is Annotated else ()
    return any(
        isinstance(note, msgspec.Meta) and any(getattr(note, name) is not None for name in _CONSTRAINTS)
        for note in notes
    )
