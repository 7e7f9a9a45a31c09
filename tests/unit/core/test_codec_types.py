"""A context may be a dataclass, a Struct in all its forms, a TypedDict or a pydantic model."""

# mypy: ignore-errors
# Wrong programs, and values of every type, are what is tested here.

from dataclasses import dataclass, field
from datetime import UTC, datetime
from decimal import Decimal
from enum import Enum
from typing import NotRequired, TypedDict
from uuid import UUID

import msgspec
import pydantic
import pytest

from interlock.core.codec import Codec
from interlock.core.events import Event
from interlock.core.machine import Machine
from interlock.errors import DefinitionError, InvalidPayload


class Color(Enum):
    RED = "red"


class Inner(msgspec.Struct, frozen=True):
    n: int = 0


class Plain(msgspec.Struct, frozen=True):
    inner: Inner = Inner()
    name: str = ""


class Renamed(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    order_id: str = ""
    inner: Inner = Inner()


class Tagged(msgspec.Struct, frozen=True, tag="cart", tag_field="kind"):
    inner: Inner = Inner()


class Rows(msgspec.Struct, frozen=True, array_like=True):
    a: int = 0
    b: str = ""


class Basket(TypedDict):
    cents: int
    inner: NotRequired[Inner]
    notes: NotRequired[dict[str, str]]


class Model(pydantic.BaseModel, frozen=True):
    cents: int = pydantic.Field(alias="amount", default=0)
    price: float = 0
    name: str = ""


class Named(pydantic.BaseModel, frozen=True, populate_by_name=True):
    cents: int = pydantic.Field(alias="amount", default=0)


class Open(pydantic.BaseModel, frozen=True, extra="allow"):
    cents: int = 0


class Choices(pydantic.BaseModel, frozen=True):
    cents: int = pydantic.Field(default=0, validation_alias=pydantic.AliasChoices("cents", "amount"))


@dataclass(frozen=True)
class Rich:
    id: UUID = field(default_factory=lambda: UUID(int=1))
    at: datetime = datetime(2026, 1, 1, tzinfo=UTC)
    price: Decimal = Decimal("1.10")
    color: Color = Color.RED
    raw: bytes = b"\x00\xff"
    tags: frozenset[str] = frozenset({"a"})
    model: Model = field(default_factory=Model)


def codec(context: type[object]) -> Codec[object, Event]:
    return Codec("m", context, {})


GOOD = [
    (Plain, Plain(Inner(3), "x")),
    (Renamed, Renamed("o-1", Inner(2))),
    (Renamed, Renamed()),
    (Tagged, Tagged(Inner(1))),
    (Rows, Rows(1, "x")),
    (Basket, {"cents": 1}),
    (Basket, {"cents": 1, "inner": Inner(2), "notes": {"a": "b"}}),
    (Model, Model(amount=3)),
    (Named, Named(cents=3)),
    (Open, Open(cents=1, surprise=2)),
    (Choices, Choices(amount=4)),
    (Rich, Rich(model=Model(amount=5))),
    (dict[str, int], {"a": 1}),
    (list[Inner], [Inner(1)]),
    (int, 5),
]


@pytest.mark.parametrize(("kind", "context"), GOOD)
def test_every_kind_of_context_comes_back_as_it_was(kind: type[object], context: object) -> None:
    data = codec(kind).checked_context(context)
    assert codec(kind).decode_context(data) == context
    assert codec(kind).decode_context(data, strict=True) == context


@pytest.mark.parametrize(
    ("kind", "data", "path"),
    [
        (Plain, b'{"inner": {"m": 1}}', "inner.m"),
        (Renamed, b'{"order_id": "x"}', "order_id"),
        (Renamed, b'{"orderId": "x", "inner": {"m": 1}}', "inner.m"),
        (Tagged, b'{"kind": "cart", "type": "x"}', "type"),
        (Basket, b'{"cents": 1, "pence": 2}', "pence"),
        (Basket, b'{"cents": 1, "inner": {"m": 1}}', "inner.m"),
        (Model, b'{"amount": 1, "pence": 2}', "pence"),
        (Model, b'{"cents": 1}', "cents"),
        (Named, b'{"cents": 1, "pence": 2}', "pence"),
        (Rich, b'{"model": {"pence": 1}}', "model.pence"),
        (list[Inner], b'[{"n": 1}, {"m": 1}]', "1.m"),
    ],
)
def test_an_unknown_field_is_refused_in_every_kind(kind: type[object], data: bytes, path: str) -> None:
    with pytest.raises(InvalidPayload) as caught:
        codec(kind).decode_context(data, strict=True)
    assert repr(path) in caught.value.what
    codec(kind).decode_context(data)


@pytest.mark.parametrize(
    ("kind", "data"),
    [
        (Renamed, b'{"orderId": "x"}'),
        (Named, b'{"cents": 1}'),
        (Named, b'{"amount": 1}'),
        (Open, b'{"anything": 1}'),
        (Choices, b'{"amount": 1, "whatever": 2}'),
        (Basket, b'{"cents": 1, "notes": {"any": "name"}}'),
    ],
)
def test_what_the_kind_allows_is_allowed(kind: type[object], data: bytes) -> None:
    codec(kind).decode_context(data, strict=True)


@pytest.mark.parametrize(
    ("kind", "context"),
    [
        (Model, Model(price=float("nan"))),
        (Model, Model(price=float("inf"))),
        (Model, Model(name="a\x00")),
        (Model, Model.model_construct(name="\ud800")),
        (Basket, {"cents": 1, "notes": {"a\x00": ""}}),
        (Basket, {"cents": 1, "pence": 2}),
        (Basket, {"pence": 2}),
        (Basket, {"cents": "1"}),
        (Plain, Plain(inner=Inner("x"))),
        (Rich, Rich(model=Model(price=float("nan")))),
    ],
)
def test_bad_values_are_refused_in_every_kind(kind: type[object], context: object) -> None:
    with pytest.raises(InvalidPayload):
        codec(kind).checked_context(context)


def test_pydantic_refuses_in_its_own_words_with_the_cause_chained() -> None:
    with pytest.raises(InvalidPayload) as caught:
        codec(Model).decode_context(b'{"amount": "many"}')
    assert "amount" in caught.value.what
    assert caught.value.__cause__ is not None


def test_every_kind_has_a_schema() -> None:
    for kind, _ in GOOD:
        assert codec(kind).context_schema()
    assert "amount" in str(codec(Model).context_schema())


def test_a_machine_takes_a_model_as_it_takes_a_dataclass() -> None:
    class State(Enum):
        A = "a"
        B = "b"

    class Alphabet(Event):
        pass

    @dataclass(frozen=True)
    class Go(Alphabet):
        pass

    machine = Machine("m", states=State, context=Model, events=Alphabet, initial=State.A, final={State.B})

    @machine.on(Go, State.A, to=State.B)
    def go(model: Model, event: Go) -> Model:
        return model.model_copy(update={"cents": model.cents + 1})

    assert machine.apply(machine.begin(Model(amount=4)), Go()).context.cents == 5


def test_a_class_that_json_cannot_carry_is_named() -> None:
    with pytest.raises(DefinitionError) as caught:
        codec(list[Event])
    assert "Event" in caught.value.what
