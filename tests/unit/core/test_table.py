"""The compiled machine: what a plain move owes, and which class an event name means."""

from dataclasses import dataclass, replace
from enum import Enum

from interlock.core.events import Event
from interlock.core.machine import Machine
from interlock.core.table import compile_table
from interlock.core.values import RunEffect, RunStep, Snapshot, StartTimer, StepContext, StopStep, StopTimers
from tests.unit.core.machines import Cancel, Order, State, blank_machine, order_machine


class Light(Enum):
    RED = "red"
    GREEN = "green"


@dataclass(frozen=True)
class Lamp:
    turns: int = 0


class LightEvent(Event):
    pass


@dataclass(frozen=True)
class Turn(LightEvent):
    pass


@dataclass(frozen=True, slots=True)
class Dim(LightEvent):
    by: int = 1


def traffic_light() -> Machine[Light, Lamp, LightEvent]:
    """No undo anywhere: every move takes the fast way."""
    light = Machine("light", states=Light, context=Lamp, events=LightEvent, initial=Light.RED, resting=set(Light))

    @light.on(Turn, Light.RED, to=Light.GREEN)
    def turn(lamp: Lamp, event: Turn) -> Lamp:
        return replace(lamp, turns=lamp.turns + 1)

    @light.step(Light.RED, timeout_s=1)
    async def wait(lamp: Lamp, ctx: StepContext) -> Turn:
        return Turn()

    @light.step(Light.GREEN, timeout_s=1)
    async def go(lamp: Lamp, ctx: StepContext) -> Turn:
        return Turn()

    @light.effect(Light.GREEN)
    async def beep(lamp: Lamp, ctx: StepContext) -> None: ...

    light.after(Light.RED, after_s=5, send=Turn(), policy="restart")
    light.after(Light.GREEN, after_s=6, send=Turn())
    return light


def test_a_plain_move_stops_the_source_and_starts_the_target() -> None:
    light = traffic_light()
    decision = light.decide(light.begin(Lamp()), Turn())
    assert decision.commands == (
        StopStep("wait"),
        StopTimers(),
        RunStep("go"),
        RunEffect("beep"),
        StartTimer(Turn(), 6, "deadline"),
    )
    assert decision.snapshot == Snapshot(Light.GREEN, Lamp(1), 2, 2)
    [record] = decision.records
    assert (record.from_state, record.to_state, record.context) == (Light.RED, Light.GREEN, Lamp(1))


def test_a_slotted_event_in_use_is_the_one_that_is_known_by_its_name() -> None:
    light = traffic_light()
    light.on(Dim, Light.GREEN)
    assert light.compiled.events == {"TURN": Turn, "DIM": Dim}
    assert light.codec.decode_event("DIM", b'{"by": 3}') == Dim(3)
    assert light.apply(light.at(Light.GREEN, Lamp()), Dim()).state is Light.GREEN


def test_nodes_know_what_is_next_and_whether_they_are_active() -> None:
    nodes = order_machine().compiled.nodes
    assert [node.name for node in nodes["CHARGING"].next_nodes()] == ["reserving", "undoing", "charging"]
    assert nodes["DONE"].next_nodes() == []
    assert {name for name, node in nodes.items() if node.active} == {"DRAFT", "CHARGING", "RESERVING", "UNDOING"}


def test_a_broken_machine_can_be_compiled_and_looked_at() -> None:
    order = blank_machine()
    order.on(Cancel, State.DRAFT, to=State.CANCELLED)
    table = compile_table(order._declared)
    assert table.nodes["CHARGING"].moves == {}
    assert table.context_class is Order
