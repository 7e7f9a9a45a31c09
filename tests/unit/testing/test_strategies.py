"""Random walks: they go where the machine goes, and tell it well (A1, A3, A5)."""

import math
from dataclasses import dataclass, replace
from enum import Enum
from typing import TypedDict

import msgspec
import pytest
from hypothesis import Phase, find, given, settings
from hypothesis import strategies as st

from interlock import DefinitionError, Event, InvalidPayload, InvalidTransition, Machine, UserCodeError
from interlock.examples.checkout import Checkout, checkout
from interlock.examples.order import Item, Order, order
from interlock.examples.order import State as OrderState
from interlock.examples.order import Submit as OrderSubmit
from interlock.testing import Unwound, Walk, WalkStep, assert_path, explore, walks
from tests.unit.testing.samples import ITEMS_MAX, Basket, Charged, Put, ShopEvent, State, Submit, shop

ShopWalk = Walk[State, Basket, ShopEvent]
# `find` has its own number of examples; from a fixed seed, so that what is found once is found always.
ONCE = settings(max_examples=2000, database=None, derandomize=True)
ANY = settings(ONCE, phases=[Phase.generate])


@given(walks(shop, context=st.builds(Basket, items=st.integers(0, 2)), strays=True))
def test_a_walk_is_in_one_state_at_a_time_and_changes_nothing_when_refused(walk: ShopWalk) -> None:
    """A1, A3: one snapshot after each move; a refused one leaves the very same."""
    assert len(walk.snapshots) == len(walk.steps) + 1
    for step, before, after in zip(walk.steps, walk.snapshots, walk.snapshots[1:], strict=False):
        if step.refusal is None:
            assert after.version >= before.version
        else:
            assert after is before
            assert step.refusal.state == before.state.value
        assert 0 <= after.context.items <= ITEMS_MAX


@given(walks(shop, context=Basket(), length_max=7))
def test_a_walk_without_strays_meets_no_missing_transition(walk: ShopWalk) -> None:
    assert len(walk.steps) <= 7
    assert not [step for step in walk.steps if isinstance(step.refusal, InvalidTransition)]


@given(walks(shop, context=Basket(), strays=True))
def test_a_walk_can_be_played_again(walk: ShopWalk) -> None:
    """A5: the same events lead to the same snapshot."""
    assert assert_path(shop, Basket(), *walk.events) == walk.end


@pytest.mark.parametrize("state", State)
def test_walks_reach_every_state(state: State) -> None:
    strategy = walks(shop, context=Basket(), events={Put: st.builds(Put, items=st.integers(1, 2))})
    walk = find(strategy, lambda walk: state in {each.state for each in walk.snapshots}, settings=ANY)
    shortest = explore(shop, samples=[Put(1), Submit(), Charged("")], context=Basket()).reached
    if state in shortest:
        assert len(walk.steps) >= len(shortest[state])


@pytest.mark.slow
def test_a_failing_walk_shrinks_to_its_shortest_and_reads_like_a_story() -> None:
    walk = find(
        walks(order, context=Order(items=(Item("a", 1),)), strays=True),
        lambda walk: OrderState.SHIPPED in {each.state for each in walk.snapshots},
        settings=ONCE,
    )
    first, *story = repr(walk).splitlines()[1:]
    assert repr(walk).startswith("Walk of 'order':\n")
    assert first.startswith("  begins in 'pending' with Order(")
    assert story == [
        "  1. Submit() leads to 'payment_processing'",
        "  2. PaymentSucceeded(payment_intent_id='') leads to 'paid' with payment_intent_id=''",
        "  3. InventoryReserved() leads to 'fulfillment_pending'",
        "  4. Ship(shipment_id='') leads to 'shipped' with shipment_id=''",
    ]


def test_a_refusal_is_part_of_the_story() -> None:
    guard = find(walks(order, context=Order()), lambda walk: bool(walk.steps and walk.steps[0].refusal), settings=ONCE)
    assert repr(guard).endswith("  1. Submit() is refused: guard has_items")
    assert guard.steps == (WalkStep(OrderSubmit(), guard.steps[0].refusal),)
    assert guard.events == ()
    stray = find(
        walks(shop, context=Basket(), strays=True),
        lambda walk: any(isinstance(step.refusal, InvalidTransition) for step in walk.steps),
        settings=ONCE,
    )
    assert repr(stray).endswith("  1. Charged(receipt='') is refused: no transition from 'cart'")


def test_a_walk_goes_through_failure_and_unwinding() -> None:
    walk = find(
        walks(checkout, context=Checkout()),
        lambda walk: any(isinstance(step.event, Unwound) for step in walk.steps),
        settings=ANY,
    )
    states = [snapshot.state.value for snapshot in walk.snapshots]
    assert states[states.index("undoing") :][-1] == "failed"


class Tap(Enum):
    OPEN = "open"
    SHUT = "shut"


@dataclass(frozen=True)
class Tank:
    litres: float = 0.0


class TapEvent(Event): ...


@dataclass(frozen=True)
class Pour(TapEvent):
    litres: float


@dataclass(frozen=True)
class Shut(TapEvent): ...


tap = Machine("tap", states=Tap, context=Tank, events=TapEvent, initial=Tap.OPEN, final={Tap.SHUT})
tap.on(Pour, Tap.OPEN)
tap.on(Shut, Tap.OPEN, to=Tap.SHUT)


@given(walks(tap, context=st.builds(Tank, litres=st.floats())))
def test_drawn_values_can_be_stored(walk: Walk[Tap, Tank, TapEvent]) -> None:
    # Hypothesis is fond of NaN and infinity, and JSON has neither.
    assert math.isfinite(walk.snapshots[0].context.litres)
    assert all(math.isfinite(step.event.litres) for step in walk.steps if isinstance(step.event, Pour))


@given(walks(shop, context=Basket(), events={Put: st.just(Put(2))}))
def test_the_strategy_of_an_event_can_be_given(walk: ShopWalk) -> None:
    assert {step.event for step in walk.steps if isinstance(step.event, Put)} <= {Put(2)}


def test_an_event_of_another_machine_is_refused() -> None:
    with pytest.raises(InvalidPayload, match="shop has an event SUBMIT, but not this class"):
        walks(shop, context=Basket(), events={OrderSubmit: st.just(OrderSubmit())})


class Light(Enum):
    OFF = "off"
    ON = "on"


@dataclass(frozen=True)
class Room:
    lux: int = 0


class LightEvent(Event): ...


class Lamp:
    """A type that can be stored and not be drawn: nothing says what `watts` is."""

    def __init__(self, watts) -> None:  # type: ignore[no-untyped-def] # noqa: ANN001
        self.watts = watts

    def model_dump(self, **options: object) -> object:
        return self.watts

    @classmethod
    def model_validate(cls, plain: object) -> "Lamp":
        return cls(plain)


@dataclass(frozen=True)
class Press(LightEvent):
    lux: int
    wish: str = "bright"


def build_light() -> Machine[Light, Room, LightEvent]:
    light = Machine("light", states=Light, context=Room, events=LightEvent, initial=Light.OFF, final={Light.ON})

    @light.on(Press, Light.OFF, to=Light.ON)
    def press(room: Room, event: Press) -> Room:
        return replace(room, lux=100 // event.lux)

    return light


def test_an_error_of_user_code_brings_the_story_with_it() -> None:
    @settings(database=None)
    @given(walks(build_light(), context=Room()))
    def explores(walk: Walk[Light, Room, LightEvent]) -> None: ...

    with pytest.raises(UserCodeError) as failed:
        explores()
    assert (
        "Walk of 'light':\n  begins in 'off' with Room(lux=0)\n  1. Press(lux=0, wish='') raises this"
        in failed.value.__notes__
    )


def test_defaults_are_drawn_too() -> None:
    walk = find(
        walks(build_light(), context=Room(), events={Press: st.builds(Press, lux=st.just(1), wish=st.text())}),
        lambda walk: bool(walk.steps),
        settings=ONCE,
    )
    assert walk.events == (Press(1, wish=""),)


class Plug(Enum):
    OUT = "out"
    IN = "in"


class PlugEvent(Event): ...


@dataclass(frozen=True)
class Screw(PlugEvent):
    lamp: Lamp
    turns: int = 3


def test_a_field_that_nobody_can_draw_says_what_to_do() -> None:
    plug = Machine("plug", states=Plug, context=Room, events=PlugEvent, initial=Plug.OUT, final={Plug.IN})
    plug.on(Screw, Plug.OUT, to=Plug.IN)

    @settings(database=None)
    @given(walks(plug, context=Room()))
    def explores(walk: Walk[Plug, Room, PlugEvent]) -> None: ...

    with pytest.raises(DefinitionError, match=r"no value can be drawn for its field 'lamp'") as failed:
        explores()
    assert "walks(..., events={Screw: ...})" in failed.value.fix


class Ampere:
    """A type that is slow to draw: what it needs is made on first use."""

    @classmethod
    def model_validate(cls, plain: object) -> "Ampere":
        return cls()

    def model_dump(self, **options: object) -> object:
        return 16


class FuseEvent(Event): ...


@dataclass(frozen=True)
class Blow(FuseEvent):
    current: Ampere


def test_what_is_slow_to_build_is_built_before_the_first_draw() -> None:
    built: list[type] = []

    def resolve(kind: type[Ampere]) -> st.SearchStrategy[Ampere]:
        built.append(kind)
        return st.builds(Ampere)

    st.register_type_strategy(Ampere, resolve)
    box = Machine("box", states=Plug, context=Room, events=FuseEvent, initial=Plug.IN, final={Plug.OUT})
    box.on(Blow, Plug.IN, to=Plug.OUT)
    walks(box, context=Room())
    assert built == [Ampere]


@dataclass(frozen=True)
class Unscrew(PlugEvent):
    spare: Lamp = Lamp(40)  # noqa: RUF009 -- nothing changes it.


class Socket(msgspec.Struct, frozen=True):
    lamps: int = 1
    label: str = "hall"


class Fuse(TypedDict):
    amps: int


def test_a_default_that_nobody_can_draw_stays_as_it_is() -> None:
    plug = Machine("plug", states=Plug, context=Socket, events=PlugEvent, initial=Plug.OUT, final={Plug.IN})

    @plug.on(Unscrew, Plug.OUT, to=Plug.IN)
    def unscrew(socket: Socket, event: Unscrew) -> Socket:
        return msgspec.structs.replace(socket, lamps=0)

    walk = find(walks(plug, context=Socket()), lambda walk: bool(walk.steps), settings=ONCE)
    assert walk.events == (Unscrew(),)
    assert repr(walk).endswith("leads to 'in' with lamps=0")


def test_a_context_of_another_kind_is_shown_whole() -> None:
    fuse = Machine("fuse", states=Plug, context=Fuse, events=PlugEvent, initial=Plug.OUT, final={Plug.IN})

    @fuse.on(Unscrew, Plug.OUT, to=Plug.IN)
    def unscrew(context: Fuse, event: Unscrew) -> Fuse:
        return Fuse(amps=16)

    walk = find(walks(fuse, context=st.just(Fuse(amps=10))), lambda walk: bool(walk.steps), settings=ONCE)
    assert repr(walk).endswith("leads to 'in' with {'amps': 16}")


@given(walks(shop, context=st.builds(Basket, receipt=st.sampled_from(["\x00", "kept"]))))
def test_a_context_that_cannot_be_stored_is_not_begun_with(walk: ShopWalk) -> None:
    assert walk.snapshots[0].context.receipt == "kept"
