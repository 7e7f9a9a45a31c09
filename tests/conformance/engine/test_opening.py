"""Opening, Admission, C1, A9: what an engine is given is checked, bounds are kept, and observers harm nobody."""

import asyncio
import os
import socket
from collections.abc import Callable

import pytest

from interlock import (
    Admission,
    BreakerChanged,
    DefinitionError,
    Engine,
    Event,
    InvalidTransition,
    LaneOwned,
    Moved,
    Overloaded,
    Refused,
    Signal,
    StepAttempted,
    StepContext,
    TransitionApplied,
    TransitionRejected,
)
from interlock.engine.bound_machine import Strategy
from interlock.errors import BadUsage, UnavailableError
from tests.conformance.engine.places import Place, SetClock, run, settled
from tests.conformance.engine.shop import (
    Cancel,
    Charged,
    Held,
    Note,
    Order,
    OrderMachine,
    Outside,
    Reserved,
    Ship,
    State,
    Submit,
    World,
    shop,
)


def test_a_second_owner_is_told_who_owns_the_lane(owned: Place) -> None:
    """It names the pid and the host."""

    async def scenario() -> None:
        order = shop().machine
        async with owned.engine(order):
            with pytest.raises(LaneOwned) as refused:
                await owned.engine(order)
            assert str(os.getpid()) in str(refused.value)
            assert socket.gethostname() in str(refused.value)
        async with owned.engine(order) as engine:
            await engine.start(order, "o-1", Order())

    run(scenario)


def test_memory_is_a_new_empty_store_at_each_open(place: Place) -> None:
    async def scenario() -> None:
        order = shop().machine
        async with place.engine(order) as engine:
            await engine.start(order, "o-1", Order())
        async with place.engine(order) as engine:
            found = (await engine.find(order)).items
            assert len(found) == (0 if place.url == "memory:" else 1)

    run(scenario)


def test_an_engine_can_be_awaited_and_closed_by_hand(place: Place) -> None:
    async def scenario() -> None:
        order = shop().machine
        engine = await place.engine(order)
        await engine.start(order, "o-1", Order())
        await engine.close()

    run(scenario)


def test_an_unknown_setting_is_refused_with_the_one_that_was_meant(place: Place) -> None:
    order = shop().machine
    with pytest.raises(DefinitionError, match="Did you mean drain_s"):
        _ = place.engine(order, drains_s=1)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("drain_s", -1),
        ("drain_s", "5"),
        ("steps_max", 0),
        ("effects_max", 0),
        ("group_max", 0),
        ("undo_attempts", 0),
        ("undo_timeout_s", 0),
        ("snapshots_max", -1),
        ("conflicts_max", -1),
        ("timers_saved_s", 11),
        ("steps_max", 1.5),
        ("drain_s", float("nan")),
        ("drain_s", float("inf")),
    ],
)
def test_a_setting_out_of_its_range_is_refused_by_name(place: Place, name: str, value: float) -> None:
    with pytest.raises(DefinitionError, match=name):
        _ = place.engine(shop().machine, **{name: value})  # type: ignore[arg-type]


def test_machines_are_checked_before_anything_is_opened(place: Place) -> None:
    with pytest.raises(DefinitionError, match="without a machine"):
        _ = place.engine()
    with pytest.raises(DefinitionError, match="two machines are named 'order'"):
        _ = place.engine(shop().machine, shop().machine)


@pytest.mark.parametrize(
    ("machines", "what"),
    [
        (shop().machine, "machines= is the machine 'order'."),
        ("order", "machines= is 'order'."),
        (None, "machines= is None."),
        (["order"], "machines= has 'order', which is not a Machine."),
    ],
)
def test_what_is_no_list_of_machines_is_refused_with_the_list_to_pass(machines: object, what: str) -> None:
    with pytest.raises(DefinitionError) as refused:
        _ = Engine.open("memory:", machines=machines)  # type: ignore[arg-type]
    assert (refused.value.what, refused.value.rule) == (what, "not-a-machine")
    assert refused.value.fix == "Pass a list of machines: machines=[order]."


def test_an_engine_that_is_called_and_not_opened_is_refused_with_what_to_write() -> None:
    calls: list[Callable[[], object]] = [
        lambda: Engine("memory:"),  # type: ignore[arg-type]
        lambda: Engine("memory:", machines=[shop().machine]),  # type: ignore[arg-type]
    ]
    for call in calls:
        with pytest.raises(BadUsage, match="Engine") as refused:
            call()
        assert "async with Engine.open" in refused.value.fix


def test_a_machine_that_was_built_twice_is_refused_as_another_object() -> None:
    async def main() -> None:
        async with Engine.open("memory:", machines=[shop().machine]) as engine:
            with pytest.raises(UnavailableError, match="another object than the machine 'order'") as refused:
                await engine.find(shop().machine)
            assert "built twice" in refused.value.why

    asyncio.run(main())


def test_strategies_are_swapped_for_steps_undos_and_effects(place: Place) -> None:
    """C1: without touching the machine."""

    async def scenario() -> None:
        order, world, charge = shop()
        [refund], [mail] = _undos(order, "charge"), order.compiled.declared.effects
        called: list[str] = []

        async def fake_charge(order: Order, ctx: StepContext) -> Event:
            called.append(f"charge {order.cents}")
            return Charged("fake")

        async def fake_refund(order: Order, done: Event | None, ctx: StepContext) -> None:
            called.append(f"refund {done}")

        async def fake_mail(order: Order, ctx: StepContext) -> None:
            called.append("mail")

        swaps: dict[object, Strategy] = {charge: fake_charge, refund: fake_refund, mail.function: fake_mail}
        async with place.engine(order, steps=swaps) as engine:
            await engine.start(order, "o-1", Order())
            await engine.send("o-1", Submit(cents=3))
            assert (await engine.of(order).wait("o-1", State.DONE)).context.receipt == "fake"
            await engine.send("o-1", Cancel())
            await engine.wait("o-1", State.CANCELLED)
            await settled(engine)
        assert sorted(called) == ["charge 3", "mail", "refund Charged(receipt='fake')"]
        assert world.charge.calls == world.refund.calls == world.mail.calls == []
        assert len(world.reserve.calls) == len(world.release.calls) == 1

    run(scenario)


def _undos(order: OrderMachine, name: str) -> list[object]:
    step = order.compiled.steps[name].step
    assert step is not None
    return [undo.function for undo in step.undos]


def test_a_strategy_for_what_no_machine_has_is_refused(place: Place) -> None:
    async def fake(order: Order, ctx: StepContext) -> Event:
        return Reserved()

    order, other = shop(), shop(name="parcel")
    for wrong in (other.charge, fake, "no such step", None, 7):
        with pytest.raises(DefinitionError, match="which is not a step"):
            _ = place.engine(order.machine, steps={wrong: fake})


def test_observers_are_told_what_happens(place: Place) -> None:
    """A9."""

    async def scenario() -> None:
        order = shop(World(charge=Outside(OSError("net"), Charged()))).machine
        early: list[Signal] = []
        late: list[Signal] = []
        async with place.engine(order, observers=[early.append]) as engine:
            await engine.start(order, "o-1", Order())
            engine.subscribe(late.append)
            await engine.send("o-1", Submit())
            await engine.wait("o-1")
            with pytest.raises(InvalidTransition):
                await engine.send("o-1", Submit())
            engine.unsubscribe(late.append)
            await engine.send("o-1", Ship())
        applied = [(each.event, each.to_state, each.version) for each in early if isinstance(each, TransitionApplied)]
        assert applied == [
            ("STARTED", "draft", 1), ("SUBMIT", "charging", 2), ("CHARGED", "reserving", 3),
            ("RESERVED", "done", 4), ("SHIP", "shipped", 5),
        ]  # fmt: skip
        attempts = [(each.step, each.attempt, each.outcome) for each in early if isinstance(each, StepAttempted)]
        assert [each for each in attempts if each[0] != "mail"] == [
            ("charge", 1, "retryable"), ("charge", 2, "done"), ("reserve", 1, "done"),
        ]  # fmt: skip
        [rejected] = [each for each in early if isinstance(each, TransitionRejected)]
        assert (rejected.workflow, rejected.state, rejected.event) == ("o-1", "done", "SUBMIT")
        assert [each.event for each in late if isinstance(each, TransitionApplied)] == ["SUBMIT", "CHARGED", "RESERVED"]
        assert not any(isinstance(each, BreakerChanged) for each in early)

    run(scenario)


def test_a_failing_observer_harms_nothing(place: Place) -> None:
    """A9."""

    async def scenario() -> None:
        def fails(signal: Signal) -> None:
            raise ZeroDivisionError("an observer that is wrong")

        order = shop(World(charge=Outside(OSError("net"), Charged()))).machine
        async with place.engine(order, observers=[fails]) as engine:
            await engine.start(order, "o-1", Order())
            await engine.send("o-1", Submit())
            assert (await engine.wait("o-1")).state is State.DONE
            with pytest.raises(InvalidTransition):
                await engine.send("o-1", Submit())

    run(scenario)


def test_more_calls_than_in_flight_max_are_refused_with_a_time_to_come_back(place: Place) -> None:
    """Admission."""

    async def scenario() -> None:
        order = shop().machine
        async with place.engine(order, admission=Admission(in_flight_max=3)) as engine:
            await engine.start(order, "o-1", Order())
            answers = await engine.send_many([("o-1", Note("x"), None)] * 5)
            assert [isinstance(each, Moved) for each in answers] == [True] * 3 + [False] * 2
            last = answers[-1]
            assert isinstance(last, Refused)
            assert isinstance(last.error, Overloaded)
            assert last.error.retry_after_s > 0
            answers = await engine.send_many([("o-1", Note("x"), None), ("nobody", Note("x"), None)] * 2)
            assert sum(isinstance(each, Moved) for each in answers) == 2
            assert (await engine.send("o-1", Note("x"))).version == 7

    run(scenario)


def test_more_calls_than_the_rate_are_refused_until_time_has_passed(place: Place) -> None:
    """Admission: results of steps, timers, undos and effects never pass it."""

    async def scenario() -> None:
        clock = SetClock()
        order, world, _ = shop()
        async with place.engine(order, clock=clock, admission=Admission(rate_per_s=1, burst=2)) as engine:
            await engine.start(order, "o-1", Order())
            await engine.send("o-1", Submit())
            with pytest.raises(Overloaded) as refused:
                await engine.send("o-1", Note("x"))
            assert refused.value.retry_after_s == pytest.approx(1.0)
            assert (await engine.wait("o-1")).state is State.DONE
            assert len(world.reserve.calls) == 1
            clock.now_s += 1
            await engine.send("o-1", Ship())
            with pytest.raises(Overloaded):
                await engine.start(order, "o-2", Order())

    run(scenario)


def test_rate_and_burst_are_unlimited_unless_asked_for(place: Place) -> None:
    async def scenario() -> None:
        order = shop().machine
        async with place.engine(order) as engine:
            await engine.start(order, "o-1", Order())
            answers = await engine.send_many([("o-1", Note(""), None)] * 3_000)
            assert all(isinstance(each, Moved) for each in answers)

    run(scenario)


def test_a_burst_without_a_rate_and_no_calls_at_all_are_refused() -> None:
    with pytest.raises(DefinitionError, match="burst"):
        Admission(burst=5)
    for most in (0, -1):
        with pytest.raises(DefinitionError, match="in_flight_max"):
            Admission(in_flight_max=most)


def test_a_slot_that_a_workflow_has_no_use_for_any_more_goes_to_the_next(place: Place) -> None:
    """The trap of the lost wake-up: the one that is called has moved on meanwhile."""

    async def scenario() -> None:
        held = Held(Charged())
        order = shop(World(charge=Outside(held, Charged()))).machine
        async with place.engine(order, steps_max=1) as engine:
            for each in ("first", "gone", "last"):
                await engine.start(order, each, Order())
                await engine.send(each, Submit())
            await held.begun.wait()
            await engine.send("gone", Cancel())
            held.go.set()
            for each in ("first", "last"):
                assert (await engine.wait(each)).state is State.DONE

    run(scenario)


def test_more_workflows_than_fit_into_memory_lose_nothing(place: Place) -> None:
    """G6: also not the counts that wait in memory for the next write."""

    async def scenario() -> None:
        order = shop().machine
        async with place.engine(order, snapshots_max=2) as engine:
            ids = [f"o-{number}" for number in range(10)]
            for each in ids:
                await engine.start(order, each, Order())
                await engine.send(each, Ship(), if_allowed=True)
            await engine.send_many([(each, Submit(), None) for each in ids])
            views = await asyncio.gather(*(engine.wait(each) for each in ids))
            assert {view.state for view in views} == {State.DONE}
            assert [(await engine.stats(each)).ignored for each in ids] == [1] * 10

    run(scenario)
