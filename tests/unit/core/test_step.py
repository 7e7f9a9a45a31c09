"""The handle of a step: its names, and the function itself."""

import asyncio

from msgspec import UNSET

from interlock.core.values import BeatingContext, StepContext
from tests.unit.core.machines import Charged, Order, State, blank_machine, declare_charge


def test_a_step_knows_its_names() -> None:
    charge = declare_charge(blank_machine("shop"))
    assert (charge.name, charge.machine) == ("charge", "shop")
    assert repr(charge) == "<Step 'charge' of 'shop' in state 'charging'>"


def test_a_step_can_be_awaited_as_it_is() -> None:
    charge = declare_charge(blank_machine())
    assert asyncio.run(charge(Order(), StepContext(key="k-1"))) == Charged("k-1")


def test_a_heartbeat_in_a_test_does_nothing() -> None:
    """C1: a step that beats can be awaited as it is."""
    ctx = StepContext(key="k-1")
    ctx.heartbeat()
    assert ctx == StepContext(key="k-1")


def test_a_heartbeat_reaches_whoever_watches() -> None:
    heard: list[str] = []
    ctx = BeatingContext(key="k-1", attempt=2, beat=lambda: heard.append("beat"))
    ctx.heartbeat()
    ctx.heartbeat()
    assert heard == ["beat", "beat"]
    assert isinstance(ctx, StepContext)
    assert (ctx.key, ctx.attempt, ctx.undoes) == ("k-1", 2, None)


def test_the_heartbeat_of_a_step_is_declared_or_none() -> None:
    async def work(order: Order, ctx: StepContext) -> Charged:
        return Charged()

    order = blank_machine()
    order.step(State.CHARGING, timeout_s=3600, heartbeat_s=30, failed=State.UNDOING)(work)
    order.step(State.RESERVING, timeout_s=4, failed=State.UNDOING, name="other")(work)
    heartbeats = {state.name: state.step.heartbeat_s for state in order.describe().states if state.step is not None}
    assert heartbeats == {"charging": 30.0, "reserving": UNSET}


def test_the_name_can_be_given() -> None:
    async def work(order: Order, ctx: StepContext) -> Charged:
        return Charged()

    assert blank_machine().step(State.CHARGING, timeout_s=1, name="take money")(work).name == "take money"


def test_undo_and_effect_give_the_function_back() -> None:
    async def undo(order: Order, done: Charged | None, ctx: StepContext) -> None: ...

    async def mail(order: Order, ctx: StepContext) -> None: ...

    order = blank_machine()
    assert declare_charge(order).undo(Charged)(undo) is undo
    assert order.effect(State.DONE)(mail) is mail
