"""Alphabets: which classes are events, what they are called on the wire, and which are refused."""

# mypy: ignore-errors
# Wrong programs, and values of every type, are what is tested here.

import copy
import pickle
from dataclasses import FrozenInstanceError, dataclass, field, fields
from enum import Enum
from typing import ClassVar

import msgspec
import pydantic
import pytest

from interlock.core.events import RESERVED_NAMES, Event, events_below, is_event, mistake_in, wire_name
from interlock.core.machine import Machine
from interlock.errors import DefinitionError


class ShopEvent(Event):
    pass


class PaymentEvent(ShopEvent):
    """It groups, and is no event itself."""


@dataclass(frozen=True)
class Opened(ShopEvent):
    pass


@dataclass(frozen=True)
class PaymentFailed(PaymentEvent):
    reason: str = ""


@dataclass(frozen=True)
class PaymentFailedTwice(PaymentFailed):
    times: int = 2


@dataclass(frozen=True, slots=True)
class Slotted(ShopEvent):
    number: int = 0


@dataclass(frozen=True)
class Renamed(ShopEvent):
    wire_name: ClassVar[str] = "shop.renamed"


class Undecorated(PaymentFailed):
    extra: int = 0


class OtherEvent(Event):
    pass


@dataclass(frozen=True)
class Aliased(OtherEvent):
    wire_name: ClassVar[str] = "other.aliased"


@pytest.mark.parametrize(
    ("name", "wire"),
    [
        ("Submit", "SUBMIT"),
        ("PaymentFailed", "PAYMENT_FAILED"),
        ("HTTPFailed", "HTTP_FAILED"),
        ("FailedHTTP", "FAILED_HTTP"),
        ("Step2Done", "STEP2_DONE"),
        ("A", "A"),
        ("snake_case", "SNAKE_CASE"),
    ],
)
def test_the_wire_name_follows_from_the_class_name(name: str, wire: str) -> None:
    assert wire_name(type(name, (OtherEvent,), {})) == wire


def test_the_wire_name_can_be_set_and_is_not_inherited() -> None:
    assert wire_name(Renamed) == "shop.renamed"

    class Below(Aliased):
        pass

    assert wire_name(Below) == "BELOW"


def test_events_are_the_classes_below_without_the_groups() -> None:
    assert set(events_below(ShopEvent)) == {Opened, PaymentFailed, PaymentFailedTwice, Slotted, Renamed, Undecorated}
    assert set(events_below(PaymentEvent)) == {PaymentFailed, PaymentFailedTwice, Undecorated}


def test_a_slotted_dataclass_counts_once_and_it_is_the_new_class() -> None:
    found = [event for event in events_below(ShopEvent) if event.__name__ == "Slotted"]
    assert found == [Slotted]


def test_a_class_that_is_defined_again_replaces_the_first() -> None:
    class LocalEvent(Event):
        pass

    def define() -> type[Event]:
        @dataclass(frozen=True)
        class Go(LocalEvent):
            pass

        return Go

    first, second = define(), define()
    assert events_below(LocalEvent) == [second]
    assert first is not second


def test_an_event_is_strictly_below_its_alphabet() -> None:
    assert is_event(Opened, ShopEvent)
    assert is_event(PaymentFailed, PaymentEvent)
    assert not is_event(ShopEvent, ShopEvent)
    assert not is_event(Opened, PaymentEvent)
    assert not is_event(Opened(), ShopEvent)
    assert not is_event("OPENED", ShopEvent)


@pytest.mark.parametrize("event", [Opened, PaymentFailedTwice, Slotted, Renamed])
def test_a_good_event_has_no_mistake(event: type[Event]) -> None:
    assert mistake_in(event) is None


# --- Classes without a decorator (A12) --------------------------------------------------------------------------------


class PlainEvent(Event):
    pass


class Submit(PlainEvent):
    cents: int
    note: str = ""


class Urgent(Submit):
    tags: tuple[str, ...] = field(default_factory=tuple)


class Group(PlainEvent):
    pass


class Nothing(Group):
    pass


@dataclass(frozen=True)
class Decorated(Submit):
    level: int = 1


class Struct(PlainEvent, msgspec.Struct, frozen=True):
    cents: int


class Model(PlainEvent, pydantic.BaseModel):
    model_config = pydantic.ConfigDict(frozen=True)
    cents: int


PLAIN = [Submit, Urgent, Nothing, Decorated, Struct, Model]


def test_a_class_without_a_decorator_is_a_frozen_value() -> None:
    assert Submit(5) == Submit(cents=5, note="") != Submit(6)
    assert hash(Submit(5)) == hash(Submit(5))
    assert repr(Submit(5)) == "Submit(cents=5, note='')"
    assert Nothing() == Nothing()
    with pytest.raises(FrozenInstanceError):
        Submit(5).cents = 6
    match Submit(5, "x"):
        case Submit(cents, note):
            assert (cents, note) == (5, "x")


def test_fields_are_inherited_with_and_without_a_decorator() -> None:
    assert Urgent(1, "b", tags=("a",)).tags == ("a",)
    assert Urgent(1) == Urgent(1, "", ())
    assert Decorated(1, "b", 3).level == 3
    assert [each.name for each in fields(Decorated)] == ["cents", "note", "level"]


def test_every_form_is_an_event_and_survives_a_pickle() -> None:
    assert set(events_below(PlainEvent)) == set(PLAIN)
    assert [mistake_in(event) for event in PLAIN] == [None] * len(PLAIN)
    for made in (Submit(1), Urgent(2), Nothing(), Decorated(3), Struct(4), Model(cents=5)):
        assert pickle.loads(pickle.dumps(made)) == made == copy.deepcopy(made)


def test_an_alphabet_and_a_group_are_no_events() -> None:
    assert isinstance(PlainEvent(), PlainEvent)
    mistake = mistake_in(Group)
    assert mistake is not None
    assert mistake[:2] == ("event-not-dataclass", "event Group only groups the events below it")
    assert isinstance(Group(), Group)
    with pytest.raises(TypeError, match="argument"):
        PlainEvent(5)


def test_classes_that_cannot_be_values_are_refused_where_they_are_used_first() -> None:
    class WrongEvent(Event):
        pass

    class WrongOrder(WrongEvent):
        cents: int = 0
        note: str

    class Shared(WrongEvent):
        items: list[str] = []  # noqa: RUF012 -- the mistake.

    class OwnInit(WrongEvent):
        def __init__(self, cents: int) -> None:
            self.cents = cents

    for _ in range(2):  # A failed try leaves nothing behind.
        with pytest.raises(DefinitionError, match="'note' follows default") as caught:
            WrongOrder(1, "x")
        assert caught.value.rule == "event-not-dataclass"
    for event, text in [(WrongOrder, "'note' follows"), (Shared, "mutable default"), (OwnInit, "__init__ of its own")]:
        mistake = mistake_in(event)
        assert mistake is not None
        assert mistake[0] == "event-not-dataclass"
        assert text in mistake[1]


def test_structs_and_models_must_be_frozen() -> None:
    class LooseStruct(OtherEvent, msgspec.Struct):
        cents: int = 0

    class LooseModel(OtherEvent, pydantic.BaseModel):
        cents: int = 0

    for event in (LooseStruct, LooseModel):
        mistake = mistake_in(event)
        assert mistake is not None
        assert mistake[0] == "event-not-frozen"


def test_events_of_every_form_travel_through_a_machine() -> None:
    class Stage(Enum):
        OPEN = "open"
        CLOSED = "closed"

    machine = Machine("plain", states=Stage, context=int, events=PlainEvent, initial=Stage.OPEN, final={Stage.CLOSED})
    machine.on(Submit, Stage.OPEN, to=Stage.CLOSED)
    for event in (Urgent, Nothing, Decorated, Struct, Model):
        machine.on(event, Stage.OPEN)
    for made in (Submit(1), Urgent(2, tags=("a",)), Nothing(), Decorated(3), Struct(4), Model(cents=5)):
        stored = machine.codec.stored_event(made)
        assert machine.codec.decode_event(wire_name(type(made)), stored) == made
        machine.apply(machine.begin(0), made)
    for name in machine.compiled.events:
        assert machine.codec.event_schema(name)["x-interlock"] == 1


@pytest.mark.parametrize("reserved", sorted(RESERVED_NAMES))
def test_names_of_built_in_events_are_reserved(reserved: str) -> None:
    @dataclass(frozen=True)
    class Disguised(Event):
        wire_name: ClassVar[str] = reserved

    mistake = mistake_in(Disguised)
    assert mistake is not None
    assert mistake[0] == "reserved-event"


@pytest.mark.parametrize("name", ["a\nb", "a\x00", 5])
def test_a_wire_name_is_a_plain_text(name: object) -> None:
    event = dataclass(frozen=True)(type("Odd", (Event,), {"wire_name": name}))
    mistake = mistake_in(event)
    assert mistake is not None
    assert mistake[0] == "bad-wire-name"


@pytest.mark.parametrize("call", [Opened.event_itself, Opened.event_alphabet])
def test_what_exists_for_type_checkers_says_so(call: object) -> None:
    with pytest.raises(TypeError, match="type checkers"):
        call()
