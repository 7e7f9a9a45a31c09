"""Values from outside made whole: fields that were left out and have a default are set, wherever they lie.

The decoder leaves such a field to its class, where reading it finds the default; encoding the value again would leave
it out. Then two requests that mean the same, one with the default and one without, would differ in their bytes, and the
second would be refused as another input (B4) or another payload (B5).
"""

import dataclasses
from typing import TypeVar, cast

ValueT = TypeVar("ValueT")

TYPES_MAX = 4_096

_FIELDS: dict[type, tuple[str, ...]] = {}
"""The names of the fields of each dataclass; of anything else none."""


def completed(value: ValueT, *, flat: bool = False) -> ValueT:
    """The same value, with every field set on it; with `flat` nothing that lies in it was read from outside."""
    if flat and _is_whole(value, _FIELDS.get(type(value))):
        return value
    waiting: list[object] = [value]
    while waiting:
        each = waiting.pop()
        if isinstance(each, dict):
            waiting += cast("dict[object, object]", each).values()
        elif isinstance(each, list | tuple | set | frozenset):
            waiting += cast("list[object]", each)
        else:
            names = _FIELDS.get(type(each))
            if names is None:
                names = _names(each)
            if names:
                waiting += _complete(each, names)
    return value


def _is_whole(value: object, names: tuple[str, ...] | None) -> bool:
    """Whether the value has all of these fields itself. Of a class that was not seen before nothing is known."""
    return names is not None and (not names or all(map(value.__dict__.__contains__, names)))


def _names(value: object) -> tuple[str, ...]:
    if len(_FIELDS) >= TYPES_MAX:
        _FIELDS.clear()
    names: tuple[str, ...] = ()
    if dataclasses.is_dataclass(value) and not isinstance(value, type) and hasattr(value, "__dict__"):
        names = tuple(field.name for field in dataclasses.fields(value))
    _FIELDS[type(value)] = names
    return names


def _complete(value: object, names: tuple[str, ...]) -> list[object]:
    held = cast("dict[str, object]", value.__dict__)
    if not _is_whole(value, names):
        # In the order of the fields, because that is the order they are written in; then what a __post_init__ has set.
        whole = {name: getattr(value, name) for name in names} | {
            name: each for name, each in held.items() if name not in names
        }
        held.clear()
        held.update(whole)
    return [each for each in held.values() if not isinstance(each, str | int | float | None)]
