"""A served App gives its steps what they take by type, as `Engine.open(provide=)` does."""

from dataclasses import dataclass
from enum import Enum

import pytest

from interlock import App, BlockingClient, DefinitionError, Event, Machine, StepContext
from tests.unit.cli.serving import serving


class State(Enum):
    OPEN = "open"
    DONE = "done"


@dataclass(frozen=True)
class Bill:
    receipt: str = ""


class BillEvent(Event): ...


class Paid(BillEvent):
    receipt: str


class Gateway:
    """What the step calls."""

    def pay(self) -> str:
        return "r-1"


bill = Machine("bill", states=State, context=Bill, events=BillEvent, initial=State.OPEN, final={State.DONE})


@bill.on(Paid, State.OPEN, to=State.DONE)
def paid(context: Bill, event: Paid) -> Bill:
    return Bill(event.receipt)


@bill.step(State.OPEN, timeout_s=60)
async def pay(context: Bill, ctx: StepContext, gateway: Gateway) -> Paid:
    return Paid(gateway.pay())


def test_a_served_step_gets_its_resource() -> None:
    with (
        serving(App(machines=[bill], provide=[Gateway()]), worker=True) as url,
        BlockingClient(url, machines=[bill]) as client,
    ):
        client.start(bill, "b-1", Bill())
        assert client.of(bill).wait("b-1", timeout_s=60).context == Bill("r-1")


def test_a_server_without_the_resource_does_not_start() -> None:
    with pytest.raises(DefinitionError, match="Gateway"), serving(App(machines=[bill]), worker=True):
        pass
