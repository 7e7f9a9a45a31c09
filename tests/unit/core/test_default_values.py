"""Values from outside are made whole, in the order of their fields."""

from dataclasses import dataclass, field, make_dataclass

import msgspec
import pytest

from interlock.core.codec import Codec, fill_defaults
from interlock.core.events import Event


@dataclass(frozen=True)
class Inner:
    a: int = 1
    b: str = "x"


@dataclass(frozen=True)
class Outer:
    first: int = 0
    one: Inner = Inner()
    many: list[Inner] = field(default_factory=list)
    by_name: dict[str, Inner] = field(default_factory=dict)


def whole(text: bytes) -> bytes:
    return msgspec.json.encode(fill_defaults(msgspec.json.decode(text, type=Outer)))


def test_a_default_is_set_wherever_it_is_left_out() -> None:
    assert whole(b"{}") == msgspec.json.encode(Outer())
    given = b'{"many": [{"b": "y"}], "by_name": {"k": {}}, "one": {"b": "z"}}'
    expected = Outer(one=Inner(b="z"), many=[Inner(b="y")], by_name={"k": Inner()})
    assert whole(given) == msgspec.json.encode(expected)


def test_what_is_no_dataclass_stays_as_it_is() -> None:
    assert fill_defaults([1, {"a": (2, None)}, "x"]) == [1, {"a": (2, None)}, "x"]


@dataclass(frozen=True)
class Fresh:
    a: int = 1
    b: str = "x"


def test_the_first_value_of_a_class_is_made_whole_as_all_others_are() -> None:
    """B4: whatever came before, a value with nothing in it is written as the defaults are."""
    first = fill_defaults(msgspec.json.decode(b"{}", type=Fresh), flat=True)
    assert msgspec.json.encode(first) == msgspec.json.encode(Fresh())


@dataclass(frozen=True)
class Remembering:
    a: int = 1
    b: int = 2

    def __post_init__(self) -> None:
        object.__setattr__(self, "_sum", self.a + self.b)
        object.__setattr__(self, "_product", self.a * self.b)


def test_what_a_class_has_set_besides_its_fields_counts_for_none_and_stays() -> None:
    for _ in range(2):
        found = fill_defaults(msgspec.json.decode(b"{}", type=Remembering), flat=True)
        assert {"a", "b", "_sum", "_product"} == set(vars(found))
        assert msgspec.json.encode(found) == msgspec.json.encode(Remembering())


def test_what_is_known_of_classes_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """G6: classes that are made on and on are forgotten, and found again."""
    monkeypatch.setattr("interlock.core.codec.TYPES_MAX", 1)
    for name in ("One", "Two"):
        made = make_dataclass(name, [("a", int, 1), ("b", str, "x")])
        codec: Codec[object, Event] = Codec("machine", made, {})
        for _ in range(2):
            assert vars(codec.decode_context(b'{"a": 2}', strict=True)) == {"a": 2, "b": "x"}
    assert whole(b"{}") == msgspec.json.encode(Outer())
