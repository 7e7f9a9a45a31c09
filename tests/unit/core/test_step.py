"""The handle of a step: its names, and the function itself."""

import asyncio

from interlock.core.values import StepContext
from tests.unit.core.machines import Charged, Order, State, blank_machine, declare_charge


def test_a_step_knows_its_names() -> None:
    charge = declare_charge(blank_machine("shop"))
    assert (charge.name, charge.machine) == ("charge", "shop")
    assert repr(charge) == "<Step 'charge' of 'shop' in state 'charging'>"


def test_a_step_can_be_awaited_as_it_is() -> None:
    charge = declare_charge(blank_machine())
    assert asyncio.run(charge(Order(), StepContext(key="k-1"))) == Charged("k-1")


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
