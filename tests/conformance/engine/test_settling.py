"""C21: what a transition with `settle=True` makes final is never undone, also after the process was killed."""

from dataclasses import dataclass, replace
from enum import Enum

import pytest

from interlock import Engine, Event, Machine, Retry, Retryable, StepContext
from tests.conformance.engine.places import Place, crash, run


class State(Enum):
    ACTIVE, CHARGING, UNDOING, PAST_DUE = "active", "charging", "undoing", "past_due"


@dataclass(frozen=True)
class Subscription:
    months: int = 0


class SubscriptionEvent(Event): ...


@dataclass(frozen=True)
class Renew(SubscriptionEvent): ...


@dataclass(frozen=True)
class Charged(SubscriptionEvent): ...


@dataclass(frozen=True)
class Close(SubscriptionEvent): ...


SubscriptionMachine = Machine[State, Subscription, SubscriptionEvent]


class Gateway:
    """Charges that succeed until they do not, and what was refunded: the keys of both."""

    def __init__(self) -> None:
        self.charged: list[str] = []
        self.refunded: list[str | None] = []
        self.fails = False


def subscription(gateway: Gateway, *, settle: bool) -> SubscriptionMachine:
    machine: SubscriptionMachine = Machine(
        "subscription",
        states=State,
        context=Subscription,
        events=SubscriptionEvent,
        initial=State.ACTIVE,
        resting={State.ACTIVE, State.PAST_DUE},
        unwind={State.UNDOING: State.PAST_DUE},
    )
    machine.on(Renew, State.ACTIVE, to=State.CHARGING)
    machine.on(Close, State.ACTIVE, to=State.UNDOING)

    @machine.on(Charged, State.CHARGING, to=State.ACTIVE, settle=settle)
    def charged(paid: Subscription, event: Charged) -> Subscription:
        return replace(paid, months=paid.months + 1)

    @machine.step(State.CHARGING, timeout_s=20, retry=Retry(attempts=1), failed=State.UNDOING)
    async def charge(paid: Subscription, ctx: StepContext) -> Charged:
        gateway.charged.append(ctx.key)
        if gateway.fails:
            raise Retryable("perhaps charged")
        return Charged()

    @charge.undo(Charged)
    async def refund(paid: Subscription, done: Charged | None, ctx: StepContext) -> None:
        gateway.refunded.append(ctx.undoes)

    return machine


async def renewed(engine: Engine, months: int) -> None:
    for _ in range(months):
        await engine.send("s-1", Renew())
        await engine.wait("s-1", State.ACTIVE)


@pytest.mark.parametrize("settle", [True, False])
def test_a_renewal_that_fails_refunds_what_is_not_settled(place: Place, settle: bool) -> None:
    async def scenario() -> None:
        gateway = Gateway()
        machine = subscription(gateway, settle=settle)
        async with place.engine(machine) as engine:
            await engine.start(machine, "s-1", Subscription())
            await renewed(engine, 4)
            gateway.fails = True
            await engine.send("s-1", Renew())
            view = await engine.of(machine).wait("s-1", State.PAST_DUE)
            assert view.context.months == 4
            expected = gateway.charged[4:] if settle else gateway.charged
            assert gateway.refunded == expected[::-1]

    run(scenario)


def test_what_was_settled_stays_settled_when_the_process_is_killed(kept: Place) -> None:
    async def scenario() -> None:
        gateway = Gateway()
        machine = subscription(gateway, settle=True)
        async with kept.engine(machine) as engine:
            await engine.start(machine, "s-1", Subscription())
            await renewed(engine, 2)
            await crash(engine)
        async with kept.engine(machine) as engine:
            await engine.send("s-1", Close())
            await engine.wait("s-1", State.PAST_DUE)
            assert [row.event for row in await engine.history("s-1")][-2:] == ["CLOSE", "UNWOUND"]
            assert gateway.refunded == []

    run(scenario)
