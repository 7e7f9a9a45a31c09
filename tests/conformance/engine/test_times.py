"""A11 and B16 on every store: the time that a guard or action sees is its history row's; timers of each workflow."""

from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from enum import Enum

import pytest

from interlock import Event, Machine, StepContext, UserCodeError, WaitTimeout
from interlock.engine.views import Timer
from tests.conformance.engine.places import Place, SetClock, run, settled


class State(Enum):
    TRIAL = "trial"
    CHARGING = "charging"
    ACTIVE = "active"
    UNDOING = "undoing"
    ENDED = "ended"


@dataclass(frozen=True)
class Subscription:
    trial_days: float = 3
    renews_at: datetime | None = None
    broken: bool = False
    times: tuple[datetime, ...] = ()


class SubscriptionEvent(Event): ...


class Note(SubscriptionEvent): ...


class TrialEnded(SubscriptionEvent): ...


class Charged(SubscriptionEvent):
    renews_at: datetime | None = None


class Renew(SubscriptionEvent): ...


class Break(SubscriptionEvent): ...


class Cancel(SubscriptionEvent): ...


SubscriptionMachine = Machine[State, Subscription, SubscriptionEvent]
DAY = timedelta(days=1)


def subscription(charged: Charged = Charged()) -> SubscriptionMachine:  # noqa: B008 -- frozen.
    """A trial of some days, then a charge, then a renewal at a time of its own."""
    machine = Machine(
        "subscription",
        states=State,
        context=Subscription,
        events=SubscriptionEvent,
        initial=State.TRIAL,
        final={State.ENDED},
        resting={State.ACTIVE},
        unwind={State.UNDOING: State.TRIAL},
    )

    def aware(context: Subscription, event: SubscriptionEvent, at: datetime) -> bool:
        """The time has a zone."""
        return at.utcoffset() == timedelta(0)

    def note(context: Subscription, event: SubscriptionEvent, at: datetime) -> Subscription:
        return replace(context, times=(*context.times, at))

    def break_(context: Subscription, event: Break) -> Subscription:
        return replace(context, broken=True)

    machine.on(Note, machine.any, when=aware)(note)
    machine.on(Note, State.UNDOING)(note)
    machine.on(TrialEnded, State.TRIAL, to=State.CHARGING)(note)
    machine.on(Break, State.ACTIVE)(break_)
    machine.on(Cancel, State.ACTIVE, to=State.UNDOING)
    machine.on(Cancel, State.TRIAL, to=State.ENDED)
    machine.on(Renew, State.ACTIVE, to=State.CHARGING)(note)

    @machine.on(Charged, State.CHARGING, to=State.ACTIVE)
    def activate(context: Subscription, event: Charged, at: datetime) -> Subscription:
        return replace(context, times=(*context.times, at), renews_at=event.renews_at)

    @machine.step(State.CHARGING, timeout_s=timedelta(seconds=30))
    async def charge(context: Subscription, ctx: StepContext) -> Charged:
        return charged

    @charge.undo(Charged)
    async def refund(context: Subscription, done: Charged | None, ctx: StepContext) -> None: ...

    def trial(context: Subscription) -> timedelta:
        if context.broken:
            raise ZeroDivisionError("no trial")
        return context.trial_days * DAY

    machine.after(State.TRIAL, trial, send=TrialEnded())
    machine.until(State.ACTIVE, lambda context: context.renews_at, send=Renew())
    return machine


def test_the_time_of_a_move_is_the_time_of_its_history_row(place: Place) -> None:
    """Sent by a caller, fired by a timer, returned by a step: always the store's own time."""

    async def scenario() -> None:
        machine = subscription()
        async with place.engine(machine) as engine:
            await engine.start(machine, "s-1", Subscription(trial_days=0))
            view = await engine.of(machine).wait("s-1", State.ACTIVE)
            for number in range(3):
                await engine.send("s-1", Note(), key=f"n-{number}")
            rows = await engine.of(machine).history("s-1")
            assert [row.event for row in rows] == ["STARTED", "TRIAL_ENDED", "CHARGED", "NOTE", "NOTE", "NOTE"]
            assert rows[-1].context.times == tuple(row.created_at for row in rows[1:])
            assert (await engine.of(machine).get("s-1")).updated_at == rows[-1].created_at
            assert rows[-1].context.times == tuple(sorted(rows[-1].context.times))
            assert [each.blocked_by for each in await engine.allowed("s-1", Note())] == [None]
            assert view.state is State.ACTIVE

    run(scenario)


def test_replaying_history_with_its_times_gives_the_same_contexts(place: Place) -> None:
    async def scenario() -> None:
        machine = subscription()
        async with place.engine(machine) as engine:
            await engine.start(machine, "s-1", Subscription(trial_days=0))
            await engine.wait("s-1", State.ACTIVE)
            await engine.send("s-1", Note())
            rows = await engine.of(machine).history("s-1")
            snapshot = machine.begin(rows[0].context)
            for row in rows[1:]:
                assert isinstance(row.payload, SubscriptionEvent)
                snapshot = machine.apply(snapshot, row.payload, at=row.created_at)
                assert (snapshot.state, snapshot.context) == (row.to_state, row.context)

    run(scenario)


def test_each_workflow_has_timers_of_its_own_and_shows_them(kept: Place) -> None:
    async def scenario() -> None:
        clock, machine = SetClock(), subscription()
        begun = datetime.fromtimestamp(clock.now_s, UTC)
        async with kept.engine(machine, clock=clock) as engine:
            started = await engine.start(machine, "s-1", Subscription(trial_days=3))
            await engine.start(machine, "s-2", Subscription(trial_days=30))
            await settled(engine)
            assert started.timers == (Timer("TRIAL_ENDED", started.created_at + 3 * DAY),)
            assert abs(started.created_at - begun) < timedelta(seconds=60)
            await engine.send("s-1", Note())  # Internal: the timer goes on.
            assert (await engine.get("s-1")).timers == started.timers
        clock.now_s += (4 * DAY).total_seconds()
        async with kept.engine(machine, clock=clock) as engine:
            assert (await engine.wait("s-1", State.ACTIVE)).timers == ()
            other = await engine.get("s-2")
            assert other.state is State.TRIAL
            assert other.timers == (Timer("TRIAL_ENDED", other.created_at + 30 * DAY),)
            page = await engine.find(machine, state=State.TRIAL)
            assert [each.timers for each in page.items] == [other.timers]

    run(scenario)


def test_a_timer_may_be_due_at_a_time_that_the_workflow_knows(kept: Place) -> None:
    async def scenario() -> None:
        clock = SetClock()
        renews = datetime.fromtimestamp(clock.now_s, UTC) + 7 * DAY
        machine = subscription(Charged(renews))
        async with kept.engine(machine, clock=clock) as engine:
            await engine.start(machine, "s-1", Subscription(trial_days=0))
            view = await engine.wait("s-1", State.ACTIVE)
            assert view.timers == (Timer("RENEW", renews),)
        clock.now_s += (8 * DAY).total_seconds()
        machine = subscription(Charged(renews + 30 * DAY))
        async with kept.engine(machine, clock=clock) as engine:
            while (view := await engine.wait("s-1", State.ACTIVE)).version < 5:
                await settled(engine)
            assert view.timers == (Timer("RENEW", renews + 30 * DAY),)
            rows = [row.event for row in await engine.history("s-1")]
            assert rows == ["STARTED", "TRIAL_ENDED", "CHARGED", "RENEW", "CHARGED"]

    run(scenario)


def test_a_timer_that_cannot_be_computed_refuses_the_move(place: Place) -> None:
    async def scenario() -> None:
        machine = subscription()
        async with place.engine(machine) as engine:
            with pytest.raises(UserCodeError, match="timer TRIAL_ENDED for STARTED in state 'trial' raised ZeroDiv"):
                await engine.start(machine, "s-1", Subscription(broken=True))
            await engine.start(machine, "s-1", Subscription())
            assert (await engine.get("s-1")).version == 1

    run(scenario)


def test_an_unwinding_into_a_state_with_a_broken_timer_waits_for_a_person(place: Place) -> None:
    """The undo is tried again with the same key, or settled, when the machine is corrected."""

    async def scenario() -> None:
        machine = subscription()
        async with place.engine(machine) as engine:
            await engine.start(machine, "s-1", Subscription(trial_days=0))
            await engine.wait("s-1", State.ACTIVE)
            await engine.send("s-1", Break())
            await engine.send("s-1", Cancel())
            await settled(engine)
            (letter,) = await engine.dead_letters()
            assert (letter.kind, letter.name) == ("undo", "charge")
            assert "timer TRIAL_ENDED for UNWOUND" in letter.error
            assert (await engine.get("s-1")).state is State.UNDOING
            await engine.retry_dead_letter(letter.id)
            await settled(engine)
            (again,) = await engine.dead_letters()
            assert again.key == letter.key

    run(scenario)


def test_calls_take_timedeltas(place: Place) -> None:
    async def scenario() -> None:
        machine = subscription()
        machine.dwell(State.TRIAL, max_s=timedelta(hours=1))
        async with place.engine(machine, drain_s=timedelta(seconds=1)) as engine:  # type: ignore[arg-type]
            await engine.start(machine, "s-1", Subscription())
            with pytest.raises(WaitTimeout, match=r"within 0\.001 s"):
                await engine.wait("s-1", State.ENDED, timeout_s=timedelta(milliseconds=1))
            assert len(await engine.stalled(machine, older_than_s=timedelta(0))) == 1
            assert await engine.stalled(machine, older_than_s=DAY) == []
            assert (await engine.prune(older_than_s=DAY, pause_s=timedelta(0))).workflows == 0
            async with engine.lease("nightly", wait_s=timedelta(0), lease_s=timedelta(seconds=30)) as lease:
                assert lease.token

    run(scenario)
