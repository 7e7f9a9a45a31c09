"""F7: what happened per minute, per machine and state, is read from the store: after a restart, of all processes."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from interlock import Engine, NonRetryable
from interlock.engine.charts import MachineCharts, StateCharts
from interlock.errors import InvalidPayload, InvalidTransition
from tests.conformance.engine.places import Place, SetClock, crash, run, settled
from tests.conformance.engine.shop import Charged, Order, Outside, Ship, State, Submit, World, shop

BEGIN_S = 1_800_000_000 // 3_600 * 3_600
BEGIN = datetime.fromtimestamp(BEGIN_S, UTC)


def at(minutes: float) -> datetime:
    return BEGIN + timedelta(minutes=minutes)


async def charts(engine: Engine, minutes: int, *, step_s: int = 60) -> MachineCharts:
    """The charts of the only machine, from the beginning."""
    found = await engine.charts(since=at(0), until=at(minutes), step_s=step_s)
    assert (found.since, found.until, found.step_s) == (at(0), at(minutes), step_s)
    [machine] = found.machines
    return machine


def of(machine: MachineCharts, state: State) -> StateCharts:
    return next(each for each in machine.states if each.state == state.value)


async def written(engine: Engine) -> None:
    """The minute is over, and its timer has fired."""
    recorder = engine._inside.charts
    recorder._on_timer()
    if recorder._task is not None:
        await recorder._task


def test_a_chart_shows_moves_and_backlog_minute_by_minute(place: Place) -> None:
    async def scenario() -> None:
        order, _, _ = shop()
        clock = SetClock(BEGIN_S + 90)
        async with place.engine(order, clock=clock) as engine:
            for number in range(3):
                await engine.start(order, f"o-{number}", Order())
            clock.now_s = BEGIN_S + 200
            await engine.send("o-0", Submit())
            await engine.wait("o-0", State.DONE)
            await settled(engine)
            machine = await charts(engine, 5)
            assert machine.started == [0, 3, 0, 0, 0]
            assert machine.moves == [0, 3, 0, 3, 0]
            assert machine.workflows == [None, 3, 3, 3, 3]
            draft = of(machine, State.DRAFT)
            assert draft.left == [0, 0, 0, 1, 0]
            assert draft.dwell_mean_s == draft.dwell_max_s == [None, None, None, 110.0, None]
            assert draft.workflows == [None, 3, 3, 2, 2]
            assert of(machine, State.DONE).workflows == [None, 0, 0, 1, 1]
            assert not draft.final
            assert of(machine, State.SHIPPED).final
            # The same with the sums in the store.
            await written(engine)
            assert await charts(engine, 5) == machine
            assert (await charts(engine, 10, step_s=300)).moves == [6, 0]

    run(scenario)


def test_failures_refusals_and_dead_letters_are_counted_where_they_happen(place: Place) -> None:
    async def scenario() -> None:
        refusing = Outside(NonRetryable("no address"))
        order, _, _ = shop(World(charge=Outside(OSError("away"), OSError("away"), Charged()), mail=refusing))
        clock = SetClock(BEGIN_S)
        async with place.engine(order, clock=clock) as engine:
            await engine.start(order, "o-1", Order())
            with pytest.raises(InvalidTransition):
                await engine.send("o-1", Ship())
            await engine.send("o-1", Submit())
            while not await engine.dead_letters():
                await settled(engine)
            machine = await charts(engine, 1)
            assert of(machine, State.DRAFT).refused == machine.refused == [1]
            assert of(machine, State.CHARGING).failed_attempts == [2]
            # An effect belongs to no state: its workflow may be in another one by now.
            assert (machine.failed_attempts, machine.dead_letters) == ([3], [1])
            assert sum(each.dead_letters[0] for each in machine.states) == 0

    run(scenario)


def test_charts_survive_a_restart(kept: Place) -> None:
    async def scenario() -> None:
        order, _, _ = shop()
        clock = SetClock(BEGIN_S)
        async with kept.engine(order, clock=clock) as engine:
            await engine.start(order, "o-1", Order())
            before = await charts(engine, 60)
        clock = SetClock(BEGIN_S + 3_000)
        async with kept.engine(order, clock=clock) as engine:
            assert await charts(engine, 60) == before
            assert before.started == [1, *[0] * 59]
            assert before.workflows == [1] * 60

    run(scenario)


def test_a_crash_loses_at_most_the_minute_that_was_not_written(kept: Place) -> None:
    async def scenario() -> None:
        order, _, _ = shop()
        clock = SetClock(BEGIN_S)
        engine = await kept.engine(order, clock=clock)
        await engine.start(order, "o-1", Order())
        clock.now_s = BEGIN_S + 60
        await written(engine)
        await engine.start(order, "o-2", Order())
        await crash(engine)
        async with kept.engine(order, clock=SetClock(BEGIN_S + 120)) as again:
            machine = await charts(again, 3)
            assert machine.started == [1, 0, 0]
            # The workflows are counted, and the one that was not charted looks as if it had always been there.
            assert machine.workflows == [2, 2, 2]

    run(scenario)


def test_what_is_over_a_day_old_is_shown_by_the_hour(kept: Place) -> None:
    async def scenario() -> None:
        order, _, _ = shop()
        async with kept.engine(order, clock=SetClock(BEGIN_S)) as engine:
            await engine.start(order, "o-1", Order())
        clock = SetClock(BEGIN_S + 100_000)
        async with kept.engine(order, clock=clock) as engine:
            await engine.start(order, "o-2", Order())
            await written(engine)
            begin_us = BEGIN_S * 1_000_000
            span = await engine._inside.store.charts.read("", begin_us, begin_us + 3_600_000_000, 60_000_000)
            assert [each.started for each in span.records if each.state] == [1]
            found = await engine.charts(since=at(0))
            assert found.step_s == 3_600
            assert found.machines[0].started == [1, *[0] * 26, 1]
            with pytest.raises(InvalidPayload, match="multiple of 3600"):
                await engine.charts(since=at(0), step_s=60)
        async with kept.engine(order, clock=SetClock(BEGIN_S + 40 * 86_400)) as engine:
            await engine.start(order, "o-3", Order())
            await written(engine)
            found = await engine.charts(since=at(0))
            assert sum(found.machines[0].started) == 1

    run(scenario)


def test_an_idle_engine_writes_nothing(place: Place) -> None:
    async def scenario() -> None:
        order, _, _ = shop()
        async with place.engine(order, clock=SetClock(BEGIN_S)) as engine:
            recorder = engine._inside.charts
            assert recorder._timer is None
            await engine.start(order, "o-1", Order())
            assert recorder._timer is not None
            recorder._timer.cancel()
            await written(engine)
            assert recorder._timer is None
            await engine.get("o-1")
            await engine.find(order)
            assert recorder._timer is None

    run(scenario)


def test_a_span_that_cannot_be_shown_is_refused(place: Place) -> None:
    async def scenario() -> None:
        order, _, _ = shop()
        async with place.engine(order, clock=SetClock(BEGIN_S)) as engine:
            spans: list[tuple[dict[str, Any], str]] = [
                ({"since": at(0)}, "since is"),
                ({"since": datetime(2026, 1, 1)}, "without a timezone"),  # noqa: DTZ001
                ({"step_s": 90}, "multiple of 60"),
                ({"step_s": 0}, "multiple of 60"),
                ({"since": at(-1_430), "until": at(4_000), "step_s": 60}, "points"),
            ]
            for span, problem in spans:
                with pytest.raises(InvalidPayload, match=problem):
                    await engine.charts(**span)
            assert (await engine.charts(order)).step_s == 60
            assert (await engine.charts(order, since=at(-1_430))).step_s == 300

    run(scenario)


def test_an_engine_that_stops_without_its_store_writes_no_charts_later(place: Place) -> None:
    async def scenario() -> None:
        order, _, _ = shop()
        engine = await place.engine(order, clock=SetClock(BEGIN_S))
        await engine.start(order, "o-1", Order())
        recorder = engine._inside.charts
        assert recorder._timer is not None
        await crash(engine)
        assert recorder._timer.cancelled()
        assert recorder.unwritten

    run(scenario)
