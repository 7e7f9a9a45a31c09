"""Fill in the defaults of fields that a decoded value from outside left out, in nested values too.

The decoder does not set such a field on the instance: reading it finds the default of the class, and encoding the value
again leaves it out. Without this, two equal requests, one with the default and one without, would differ in their
bytes. The second would be refused as another input (B4) or another payload (B5).
"""

import dataclasses
from typing import TypeVar, cast

ValueT = TypeVar("ValueT")

TYPES_MAX = 4_096

_FIELDS: dict[type, tuple[str, ...]] = {}
"""The field names of each dataclass; empty for other classes."""


def completed(value: ValueT, *, flat: bool = False) -> ValueT:
    """Set every field on the value and return it. `flat` says that it contains no decoded values to complete."""
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
    """Return whether the instance itself has all these fields; False for an unknown class (None)."""
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
    attributes = cast("dict[str, object]", value.__dict__)
    if not _is_whole(value, names):
        # Field order first, because that is the order of encoding; then attributes that __post_init__ has set.
        whole = {name: getattr(value, name) for name in names} | {
            name: each for name, each in attributes.items() if name not in names
        }
        attributes.clear()
        attributes.update(whole)
    return [each for each in attributes.values() if not isinstance(each, str | int | float | None)]
