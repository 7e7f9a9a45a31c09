"""Alphabets: which classes are events, what they are called on the wire, and which are refused."""

# mypy: ignore-errors
# Wrong programs, and values of every type, are what is tested here.

from dataclasses import dataclass
from typing import ClassVar

import pytest

from interlock.core.events import RESERVED_NAMES, Event, events_below, is_event, mistake_in, wire_name


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
    assert wire_name(type(name, (ShopEvent,), {})) == wire


def test_the_wire_name_can_be_set_and_is_not_inherited() -> None:
    assert wire_name(Renamed) == "shop.renamed"
    assert wire_name(type("Below", (Renamed,), {})) == "BELOW"


def test_events_are_the_dataclasses_below_without_the_groups() -> None:
    assert set(events_below(ShopEvent)) == {Opened, PaymentFailed, PaymentFailedTwice, Slotted, Renamed}
    assert set(events_below(PaymentEvent)) == {PaymentFailed, PaymentFailedTwice}


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


def test_a_class_that_only_inherits_a_dataclass_would_lose_its_fields() -> None:
    mistake = mistake_in(Undecorated)
    assert mistake is not None
    assert mistake[0] == "event-not-dataclass"


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
