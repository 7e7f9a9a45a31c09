"""Rows with names: tuples whose values can also be read as attributes.

Each statement makes its class once; a row is then as cheap as a tuple and equal to one. A class made at run time
cannot be pickled by name, so a row is rebuilt from its names and values. A name that is not an identifier, or that
occurs twice, is reachable by position alone.
"""

from collections.abc import Sequence
from functools import lru_cache
from operator import itemgetter
from typing import ClassVar, Final

ROW_CLASSES_MAX: Final = 512


class Row(tuple[object, ...]):
    """One row of a result: a tuple, with the columns' names as attributes."""

    __slots__ = ()
    _fields: ClassVar[tuple[str, ...]] = ()

    def _asdict(self) -> dict[str, object]:
        return dict(zip(self._fields, self, strict=True))

    def __getattr__(self, name: str) -> object:
        # Only reached when no column has the name; the columns themselves are properties of the subclass.
        raise AttributeError(f"no column {name!r} in this row; it has {', '.join(self._fields) or 'none'}")

    def __repr__(self) -> str:
        return f"Row({', '.join(f'{name}={value!r}' for name, value in zip(self._fields, self, strict=True))})"

    def __reduce__(self) -> tuple[object, ...]:
        return _revive, (self._fields, tuple(self))


@lru_cache(maxsize=ROW_CLASSES_MAX)
def row_class(names: tuple[str, ...]) -> type[Row]:
    """The class of rows with these column names."""
    attributes: dict[str, object] = {"__slots__": (), "_fields": names}
    for place, name in enumerate(names):
        if name.isidentifier() and not name.startswith("_") and names.count(name) == 1:
            attributes[name] = property(itemgetter(place))
    return type("Row", (Row,), attributes)


def _revive(names: tuple[str, ...], values: Sequence[object]) -> Row:
    return row_class(names)(values)
