"""The transitions of a machine by name (A1, A4)."""

from dataclasses import dataclass
from enum import Enum

import pytest

from interlock import Event, Machine
from interlock.examples.checkout import checkout
from interlock.examples.order import order
from interlock.testing import Arrow, Compiled, transitions
from interlock.testing.coverage import arrows_of, measure
from tests.unit.testing.samples import shop


def test_every_kind_of_transition_is_an_arrow() -> None:
    assert transitions(shop) == {
        Arrow("cart", "PUT", "cart", "fits"),
        Arrow("cart", "SUBMIT", "charging", "filled"),
        Arrow("cart", "CANCEL", "undoing"),
        Arrow("cart", "VANISH", "lost"),
        Arrow("charging", "CHARGED", "paid"),
        Arrow("charging", "CANCEL", "undoing"),
        Arrow("charging", "VANISH", "lost"),
        Arrow("charging", "STEP_FAILED", "undoing"),
        Arrow("paid", "CANCEL", "undoing"),
        Arrow("paid", "VANISH", "lost"),
        Arrow("undoing", "UNWOUND", "cancelled"),
    }


@pytest.mark.parametrize("machine", [shop, order, checkout], ids=lambda machine: machine.name)
def test_arrows_are_the_transitions_of_the_description(machine: Compiled) -> None:
    assert isinstance(machine, Machine)
    described = [Arrow(each.source, each.event, each.target, each.guard) for each in machine.describe().transitions]
    assert list(arrows_of(machine.compiled)) == described


def test_an_arrow_reads_like_one() -> None:
    assert str(Arrow("cart", "SUBMIT", "charging", "filled")) == "cart --SUBMIT [filled]--> charging"
    assert str(Arrow("cart", "CANCEL", "undoing")) == "cart --CANCEL--> undoing"


class Light(Enum):
    OFF = "off"
    ON = "on"


@dataclass(frozen=True)
class Room:
    lux: int = 0


class LightEvent(Event): ...


@dataclass(frozen=True)
class Press(LightEvent): ...


def test_guards_of_the_same_name_are_told_apart() -> None:
    light = Machine("light", states=Light, context=Room, events=LightEvent, initial=Light.OFF, final={Light.ON})

    def dark(room: Room, event: Press) -> bool:
        return room.lux < 10

    light.on(Press, Light.OFF, to=Light.ON, when=dark)

    def darker(room: Room, event: Press) -> bool:
        return room.lux > 20

    darker.__name__ = "dark"
    light.on(Press, Light.OFF, to=Light.ON, when=darker)

    assert [arrow.guard for arrow in arrows_of(light.compiled)] == ["dark", "dark#2"]
    with measure(light) as coverage:
        light.apply(light.begin(Room(lux=30)), Press())
    assert [arrow.guard for arrow in coverage.of(light).taken] == ["dark#2"]
