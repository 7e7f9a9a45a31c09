"""A virtual year costs what happens in it: nothing looks again and again at workflows that nothing can change."""

from dataclasses import dataclass, replace
from enum import Enum

import pytest

from interlock import AlertRaised, Event, Machine, StepContext
from interlock.engine.alerts.detector import QUIET_S_MAX, StallDetector
from interlock.signals import Signal
from interlock.store.memory import MemoryStore
from interlock.store.records import Row
from interlock.testing import Harness

DAY_S = 86_400.0


class State(Enum):
    ACTIVE = "active"
    RENEWING = "renewing"
    OVER = "over"


@dataclass(frozen=True)
class Subscription:
    renewals: int = 0


class SubscriptionEvent(Event):
    pass


@dataclass(frozen=True)
class Due(SubscriptionEvent):
    pass


@dataclass(frozen=True)
class Paid(SubscriptionEvent):
    pass


@dataclass(frozen=True)
class Stop(SubscriptionEvent):
    pass


SubscriptionMachine = Machine[State, Subscription, SubscriptionEvent]


def subscriptions(*, dwell_s: float = 60.0, state: State = State.RENEWING) -> SubscriptionMachine:
    machine: SubscriptionMachine = Machine(
        "subscription",
        states=State,
        context=Subscription,
        events=SubscriptionEvent,
        initial=State.ACTIVE,
        final={State.OVER},
    )
    machine.on(Due, State.ACTIVE, to=State.RENEWING)
    machine.on(Stop, State.ACTIVE, to=State.OVER)

    @machine.on(Paid, State.RENEWING, to=State.ACTIVE)
    def renewed(context: Subscription, event: Paid) -> Subscription:
        return replace(context, renewals=context.renewals + 1)

    @machine.step(State.RENEWING, timeout_s=5, read_only=True)
    async def charge(context: Subscription, ctx: StepContext) -> Paid:
        return Paid()

    machine.after(State.ACTIVE, after_s=30 * DAY_S, send=Due())
    machine.dwell(state, max_s=dwell_s)
    return machine


def test_a_year_of_monthly_renewals_looks_for_stalls_a_bounded_number_of_times(monkeypatch: pytest.MonkeyPatch) -> None:
    looks = queries = 0
    look, stalled = StallDetector.look, MemoryStore.stalled

    async def counted_look(self: StallDetector) -> object:
        nonlocal looks
        looks += 1
        return await look(self)

    async def counted_query(self: MemoryStore, machine: str, before_us: dict[str, int], *, limit: int) -> list[Row]:
        nonlocal queries
        queries += 1
        return await stalled(self, machine, before_us, limit=limit)

    monkeypatch.setattr(StallDetector, "look", counted_look)
    monkeypatch.setattr(MemoryStore, "stalled", counted_query)
    machine = subscriptions()
    with Harness(machine) as harness:
        harness.start("s-1", Subscription())
        harness.advance(days=365)
        assert harness.view("s-1").context.renewals == 12
    bound = 365 * DAY_S / QUIET_S_MAX + 5 * 12 + 5
    assert looks <= bound  # Every 30 s there would be a million.
    assert queries <= 3 * bound


@pytest.mark.parametrize("dwell_s", [10.0, 3 * DAY_S + 7])
def test_a_workflow_that_stays_too_long_is_raised_in_time_although_nothing_happens(dwell_s: float) -> None:
    signals: list[Signal] = []
    machine = subscriptions(dwell_s=dwell_s, state=State.ACTIVE)
    with Harness(machine, observers=[signals.append]) as harness:
        for number in range(3):  # The one that is late first is not the only one, and others follow.
            harness.start(f"s-{number}", Subscription())
            harness.advance(hours=7)
        for number in range(3):
            harness.advance(seconds=max(0.0, 7 * 3_600 * number + dwell_s + 31 - harness.clock.now_s))
            raised = [each.subject for each in signals if isinstance(each, AlertRaised) and not each.resolved]
            assert f"s-{number}" in raised
            if dwell_s > DAY_S:
                assert raised == [f"s-{each}" for each in range(number + 1)]
        harness.send("s-0", Stop())
        harness.advance(seconds=61)
        assert [each.subject for each in signals if isinstance(each, AlertRaised) and each.resolved] == ["s-0"]
