"""Nothing public is typed `Any`."""

# ruff: noqa: ANN401 - the samples are what the rule must catch.

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, overload

import pytest

import interlock
from tests.tidy.surface import untyped_names


def test_the_public_surface_is_typed() -> None:
    exported = {name: getattr(interlock, name) for name in interlock.__all__}
    offences = untyped_names(exported)
    assert exported
    assert not offences, "\n" + "\n".join(offences)


Hidden = Callable[[Any], int]


def takes(value: Any) -> int:
    raise NotImplementedError


def gives(value: int) -> list[Any]:
    raise NotImplementedError


def hides(value: Hidden) -> None: ...
def quotes(value: "dict[str, Any]") -> None: ...
def spreads(*args: Any) -> None: ...


@dataclass
class Field:
    value: Any


class Method:
    def method(self) -> "Any | None":
        raise NotImplementedError


class Parent(Method):
    pass


class Constructor:
    def __init__(self, value: Any) -> None: ...


class Made:
    @classmethod
    def make(cls, value: Any) -> "Made":
        raise NotImplementedError


class Property:
    @property
    def value(self) -> Any:
        raise NotImplementedError


@pytest.mark.parametrize(
    "thing", [takes, gives, hides, quotes, spreads, Field, Method, Parent, Constructor, Made, Property, Hidden]
)
def test_any_is_found_wherever_it_is(thing: object) -> None:
    assert untyped_names({"thing": thing})


@overload
def many(value: int) -> int: ...
@overload
def many(value: str) -> str: ...
def many(value: Any) -> Any:
    return value


class Private:
    _value: Any

    def _method(self, value: Any) -> Any:
        raise NotImplementedError

    def public(self, value: object) -> list[int]:
        raise NotImplementedError


@pytest.mark.parametrize("thing", [many, Private, 42, int | None])
def test_what_a_user_cannot_see_is_not_the_surface(thing: object) -> None:
    assert not untyped_names({"thing": thing})
