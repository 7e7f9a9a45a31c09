"""F6: the decision to set a workflow back, and its end."""

from dataclasses import dataclass
from enum import Enum

import pytest

from interlock import Event, InvalidPayload, Machine, StepContext
from interlock.core import decide
from interlock.core.values import Run, RunEffect, RunStep, RunUndos, Snapshot, StartTimer, StopStep, StoredJson


class State(Enum):
    DRAFT, CHARGING, PACKING, DONE, UNDOING, FAILED = "draft", "charging", "packing", "done", "undoing", "failed"


@dataclass(frozen=True)
class Order:
    cents: int = 0


class OrderEvent(Event): ...


class Submit(OrderEvent): ...


class Charged(OrderEvent): ...


class Packed(OrderEvent): ...


PAYLOAD = StoredJson('{"to_version":1,"note":""}', "")
OrderMachine = Machine[State, Order, OrderEvent]


def machine() -> OrderMachine:
    order: OrderMachine = Machine(
        "order",
        states=State,
        context=Order,
        events=OrderEvent,
        initial=State.DRAFT,
        final={State.FAILED},
        resting={State.DONE, State.DRAFT},
        unwind={State.UNDOING: State.FAILED},
    )
    order.on(Submit, State.DRAFT, to=State.CHARGING)
    order.on(Charged, State.CHARGING, to=State.PACKING)
    order.on(Packed, State.PACKING, to=State.DONE)
    order.on(Packed, State.DRAFT, to=State.UNDOING)

    async def step(order: Order, ctx: StepContext) -> Charged:
        return Charged()

    async def undo(order: Order, done: Event | None, ctx: StepContext) -> None: ...

    async def mail(order: Order, ctx: StepContext) -> None: ...

    charge = order.step(State.CHARGING, timeout_s=9, name="charge", failed=State.UNDOING)(step)
    charge.undo(Charged)(undo)
    order.effect(State.CHARGING, State.UNDOING)(mail)
    order.after(State.CHARGING, 60, send=Charged())
    return order


def test_it_enters_the_unwinding_state_without_its_effects_and_keeps_the_log() -> None:
    table = machine().compiled
    snapshot = Snapshot(State.PACKING, Order(5), 3, 3, (Run("charge", 2, Charged()),))
    found = decide.rewind(table, snapshot, 0, State.DRAFT, Order(), PAYLOAD)
    assert (found.snapshot.state, found.snapshot.version, found.snapshot.visit) == (State.UNDOING, 4, 4)
    assert (found.snapshot.context, found.snapshot.undo_log) == (Order(5), snapshot.undo_log)
    [record] = found.records
    assert (record.event, record.from_state, record.to_state) == ("REWINDING", State.PACKING, State.UNDOING)
    assert [type(each) for each in found.commands] == [RunUndos]
    ended = decide.rewound(table, found.snapshot, 0, State.DRAFT, Order(), PAYLOAD)
    assert (ended.snapshot, ended.records[0].event) == (Snapshot(State.DRAFT, Order(), 5, 5), "REWOUND")


def test_a_run_that_is_interrupted_is_undone_with_an_unknown_outcome() -> None:
    snapshot = Snapshot(State.CHARGING, Order(), 2, 2, (), attempted=True)
    [undo] = decide.runs_to_undo(machine().compiled, snapshot, 0)
    assert (undo.step, undo.visit, undo.done) == ("charge", 2, None)
    found = decide.rewind(machine().compiled, snapshot, 0, State.DRAFT, Order(), PAYLOAD)
    assert isinstance(found.commands[0], StopStep)
    assert found.snapshot.undo_log == (Run("charge", 2, None),)


def test_runs_that_are_kept_are_not_undone_and_the_state_begins_again_without_effects() -> None:
    log = (Run("charge", 2, Charged()),)
    found = decide.rewind(
        machine().compiled, Snapshot(State.DONE, Order(), 4, 4, log), 1, State.CHARGING, Order(), PAYLOAD
    )
    assert found.snapshot == Snapshot(State.CHARGING, Order(), 5, 5, log)
    assert [type(each) for each in found.commands] == [RunStep, StartTimer]
    assert not any(isinstance(each, RunEffect) for each in found.commands)


def test_undos_need_an_unwinding_state() -> None:
    snapshot = Snapshot(State.PACKING, Order(5), 3, 3, (Run("charge", 2, Charged()),))
    table = machine().compiled
    table.nodes["UNDOING"].unwinds_to = None
    with pytest.raises(InvalidPayload, match="leads to no unwinding state"):
        decide.rewind(table, snapshot, 0, State.DRAFT, Order(), PAYLOAD)
