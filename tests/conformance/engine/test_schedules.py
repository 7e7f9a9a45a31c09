"""E6, Schedules: each due time starts exactly one workflow, whatever is closed, killed, paused or declared again."""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import Enum

import pytest

from interlock import DefinitionError, Engine, Event, Machine, WorkflowNotFound
from interlock.engine.schedules import Schedule, start_id
from tests.conformance.engine.places import Place, SetClock, crash, names, run, settled


class State(Enum):
    OPEN = "open"
    DONE = "done"


@dataclass(frozen=True)
class Report:
    day: str = ""


class ReportEvent(Event): ...


class Finish(ReportEvent): ...


ReportMachine = Machine[State, Report, ReportEvent]

HOUR_S = 3_600.0
NOON = datetime(2027, 1, 15, 12, tzinfo=UTC)
PAST = datetime(2026, 1, 1, 12, tzinfo=UTC)


def report(takes_s: float | None = None, name: str = "report") -> ReportMachine:
    """A report that is open until it is finished, by a person or after this time."""
    machine = Machine(name, states=State, context=Report, events=ReportEvent, initial=State.OPEN, final={State.DONE})
    machine.on(Finish, State.OPEN, to=State.DONE)
    if takes_s is not None:
        machine.after(State.OPEN, takes_s, send=Finish())
    return machine


def hourly(machine: ReportMachine, **options: object) -> Schedule:
    """Every hour, on the hour."""
    chosen = {"cron": "0 * * * *", "context": Report(), "overlap": "allow"} | options
    return Schedule("hourly", machine, **chosen)  # type: ignore[arg-type]  # A test gives the right ones.


def clock_at(time: datetime) -> SetClock:
    return SetClock(time.timestamp())


async def reports(engine: Engine, machine: ReportMachine) -> list[str]:
    """The reports, when no due time waits for its start: on a slow machine the step needs several runs."""
    await settled(engine)
    while any(each.waiting for each in await engine.schedules.list()):
        await settled(engine)
    return names((await engine.find(machine)).items)


def test_each_due_time_starts_one_workflow_with_its_time_in_the_id(kept: Place) -> None:
    async def scenario() -> None:
        machine, clock = report(), clock_at(NOON)
        schedules = [hourly(machine, context=lambda at: Report(at.isoformat()))]
        async with kept.engine(machine, clock=clock, schedules=schedules) as engine:
            assert await reports(engine, machine) == []
            [view] = await engine.schedules.list()
            assert (view.name, view.machine, view.cron) == ("hourly", "report", "0 * * * *")
            assert view.next_due == NOON + timedelta(hours=1)
        for hours in (1, 2):
            clock.now_s = NOON.timestamp() + hours * HOUR_S + 5
            for _ in range(2):  # The second engine finds nothing more to do.
                async with kept.engine(machine, clock=clock, schedules=schedules) as engine:
                    await settled(engine)
                    expected = [start_id("hourly", NOON + timedelta(hours=each)) for each in range(1, hours + 1)]
                    assert await reports(engine, machine) == expected
        async with kept.engine(machine, clock=clock, worker=False) as engine:
            assert (await engine.get("hourly.2027-01-15T13:00:00Z")).context == Report("2027-01-15T13:00:00+00:00")
            [view] = await engine.schedules.list()
            assert (view.started, view.skipped, view.waiting) == (2, 0, 0)
            assert view.last == "hourly.2027-01-15T14:00:00Z"

    run(scenario)


@pytest.mark.parametrize(("catch_up", "hours"), [("all", [1, 2, 3]), ("last", [3]), ("none", [])])
def test_missed_times_are_caught_up_with_as_declared(kept: Place, catch_up: str, hours: list[int]) -> None:
    async def scenario() -> None:
        machine, clock = report(), clock_at(NOON)
        schedules = [hourly(machine, catch_up=catch_up)]
        async with kept.engine(machine, clock=clock, schedules=schedules):
            pass
        clock.now_s += 3 * HOUR_S + 600
        async with kept.engine(machine, clock=clock, schedules=schedules) as engine:
            await settled(engine)
            assert await reports(engine, machine) == [start_id("hourly", NOON + timedelta(hours=n)) for n in hours]
            assert (await engine.schedules.get("hourly")).next_due == NOON + timedelta(hours=4)

    run(scenario)


def test_an_engine_that_dies_between_a_due_time_and_its_start_starts_it_once(kept: Place) -> None:
    async def scenario() -> None:
        machine, clock = report(), clock_at(NOON)
        schedules = [hourly(machine)]
        async with kept.engine(machine, clock=clock, schedules=schedules, worker=False):
            pass
        clock.now_s += HOUR_S + 5
        engine = await kept.engine(machine, clock=clock, schedules=schedules)
        await settled(engine)
        await crash(engine)
        async with kept.engine(machine, clock=clock, schedules=schedules) as engine:
            await settled(engine)
            assert await reports(engine, machine) == [start_id("hourly", NOON + timedelta(hours=1))]

    run(scenario)


def test_a_paused_schedule_starts_nothing_also_when_it_is_declared_again(kept: Place) -> None:
    async def scenario() -> None:
        machine, clock = report(), clock_at(NOON)
        schedules = [hourly(machine)]
        async with kept.engine(machine, clock=clock, schedules=schedules) as engine:
            assert (await engine.schedules.pause("hourly")).paused
        clock.now_s += 2 * HOUR_S
        async with kept.engine(machine, clock=clock, schedules=schedules) as engine:
            assert await reports(engine, machine) == []
            resumed = await engine.schedules.resume("hourly")
            assert (resumed.paused, resumed.next_due) == (False, NOON + timedelta(hours=3))
            assert await reports(engine, machine) == []

    run(scenario)


def test_a_skipped_time_is_counted_and_a_triggered_one_starts_beside_another(place: Place) -> None:
    async def scenario() -> None:
        machine = report()
        async with place.engine(machine, schedules=[hourly(machine, overlap="skip")]) as engine:
            first, second = [await engine.schedules.trigger("hourly") for _ in range(2)]
            assert {(await engine.get(each)).id for each in (first, second)} == {first, second}, "they have started"
            await settled(engine)
            assert await reports(engine, machine) == [first, second]

    run(scenario)


def test_a_backfill_starts_the_times_of_the_past(place: Place) -> None:
    async def scenario() -> None:
        machine = report()
        async with place.engine(machine, schedules=[hourly(machine)]) as engine:
            assert await engine.schedules.backfill("hourly", PAST, PAST + timedelta(hours=3)) == 3
            await settled(engine)
            assert await reports(engine, machine) == [start_id("hourly", PAST + timedelta(hours=n)) for n in range(3)]

    run(scenario)


def test_a_schedule_that_was_put_by_hand_stays_and_a_deleted_one_goes(kept: Place) -> None:
    async def scenario() -> None:
        machine, clock = report(), clock_at(NOON)
        async with kept.engine(machine, clock=clock) as engine:
            await engine.schedules.put(hourly(machine, context=Report("by hand")))
        clock.now_s += HOUR_S + 1
        async with kept.engine(machine, clock=clock) as engine:
            await settled(engine)
            assert (await engine.get(start_id("hourly", NOON + timedelta(hours=1)))).context == Report("by hand")
            await engine.schedules.delete("hourly")
            assert await engine.schedules.list() == []
            with pytest.raises(WorkflowNotFound, match="no schedule 'hourly'"):
                await engine.schedules.pause("hourly")
        clock.now_s += HOUR_S
        async with kept.engine(machine, clock=clock) as engine:
            assert len(await reports(engine, machine)) == 1

    run(scenario)


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"cron": "61 * * * *"}, "bad minute"),
        ({"cron": "* * */20 * 1L"}, "never due"),
        ({"cron": None}, "has neither cron= nor every="),
        ({"every": 60}, "has both"),
        ({"timezone": "Europe/Berlim"}, "does not exist"),
        ({"cron": None, "every": 0.01}, "every=0.01"),
        ({"overlap": "maybe"}, "overlap='maybe'"),
        ({"catch_up": "some"}, "catch_up='some'"),
    ],
)
def test_a_mistake_is_refused_where_it_is_declared(options: dict[str, object], problem: str) -> None:
    machine = report()
    with pytest.raises(DefinitionError, match=problem) as caught:
        _ = Engine.open("memory:", machines=[machine], schedules=[hourly(machine, **options)])
    assert "schedule 'hourly'" in str(caught.value)


def test_a_schedule_of_a_machine_that_the_engine_does_not_have_is_refused() -> None:
    with pytest.raises(DefinitionError, match="does not have"):
        _ = Engine.open("memory:", machines=[report()], schedules=[hourly(report())])
