"""E6, Due times of schedules: change of clocks, catching up, queues, bounds; in virtual time."""

import asyncio
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from enum import Enum
from itertools import pairwise

import pytest

from interlock import (
    BlockingEngine,
    DefinitionError,
    Engine,
    InvalidPayload,
    Schedule,
    StepContext,
    UnavailableError,
    View,
    WorkflowNotFound,
)
from interlock.engine import schedules
from interlock.engine.schedules import (
    WAITING_MAX,
    Begun,
    Occasion,
    Planned,
    Schedules,
    ScheduleState,
    Timing,
    find_due,
    schedule_machine,
    start_id,
)
from interlock.errors import BadUsage, RetryAfter
from interlock.testing import Harness
from tests.conformance.engine.test_schedules import Finish, Report, report


def due(timing: Timing, since: datetime, until: datetime) -> list[str]:
    """The due times of a plan that catches up with all of them."""
    plan = Planned(timing=timing, catch_up="all", next_due=since)
    return [each.due.isoformat() for each in find_due(plan, until)[0] if each.due > since]


def test_a_time_that_the_change_of_clocks_skips_is_due_right_after_the_gap() -> None:
    night = Timing("30 2 * * *", timezone="Europe/Berlin")
    assert due(night, datetime(2027, 3, 27, 12, tzinfo=UTC), datetime(2027, 3, 29, 12, tzinfo=UTC)) == [
        "2027-03-28T01:00:00+00:00",  # 03:00 in Berlin: there was no 02:30.
        "2027-03-29T00:30:00+00:00",
    ]


def test_a_time_that_the_change_of_clocks_repeats_is_due_once() -> None:
    night = Timing("30 2 * * *", timezone="Europe/Berlin")
    assert due(night, datetime(2027, 10, 30, 12, tzinfo=UTC), datetime(2027, 11, 1, 12, tzinfo=UTC)) == [
        "2027-10-31T00:30:00+00:00",  # The first of the two.
        "2027-11-01T01:30:00+00:00",
    ]


def test_an_interval_is_counted_from_1970_so_that_all_processes_agree() -> None:
    start = datetime(2027, 1, 1, 0, 0, 7, tzinfo=UTC)
    assert due(Timing(every_s=20), start, start + timedelta(seconds=45)) == [
        "2027-01-01T00:00:20+00:00",
        "2027-01-01T00:00:40+00:00",
    ]


@pytest.mark.parametrize(("catch_up", "count"), [("all", WAITING_MAX), ("last", 61), ("none", 61)])
def test_missed_times_are_bounded(catch_up: str, count: int) -> None:
    start = datetime(2027, 1, 1, tzinfo=UTC)
    plan = Planned(timing=Timing(every_s=1), catch_up=catch_up, next_due=start)  # type: ignore[arg-type]  # One of three.
    found, next_due = find_due(plan, start + timedelta(days=30))
    assert len(found) == count
    assert next_due == found[-1].due + timedelta(seconds=1)


def test_the_machine_of_schedules_has_no_finding() -> None:
    assert schedule_machine.check() == []


def test_a_queued_schedule_starts_one_after_the_other() -> None:
    machine = report(takes_s=90)
    schedule = Schedule("minutely", machine, cron="* * * * *", context=Report(), overlap="queue")
    with Harness(machine, schedules=[schedule]) as h:
        h.advance(minutes=6)
        starts = [view.created_at for view in h.run(h.engine.find(machine)).items]
        assert len(starts) == 4
        assert all(later - earlier >= timedelta(seconds=90) for earlier, later in pairwise(starts))
        assert h.run(h.engine.schedules.get("minutely")).waiting == 2


def test_a_paused_schedule_starts_nothing_that_was_queued_before() -> None:
    machine = report()
    schedule = Schedule("minutely", machine, cron="* * * * *", context=Report(), overlap="queue")
    with Harness(machine, schedules=[schedule]) as h:
        h.advance(minutes=3)
        h.run(h.engine.schedules.pause("minutely"))
        h.send("minutely.2027-01-15T08:01:00Z", Finish())
        h.advance(minutes=2)
        view = h.run(h.engine.schedules.get("minutely"))
        assert (view.started, view.waiting, view.paused) == (1, 2, True)
        h.run(h.engine.schedules.resume("minutely"))
        h.advance(seconds=20)
        view = h.run(h.engine.schedules.get("minutely"))
        assert (view.started, view.waiting, view.last) == (2, 1, "minutely.2027-01-15T08:02:00Z")


def test_what_is_started_by_hand_while_paused_starts_before_a_time_that_waits() -> None:
    machine = report()
    plan = Planned("report", Timing(every_s=60), "{}", paused=True)
    hand, time = datetime(2027, 1, 1, 1, tzinfo=UTC), datetime(2027, 1, 1, 2, tzinfo=UTC)
    with Harness(machine) as h:
        ctx = StepContext(key="k", workflow="schedule:s", attempt=1, visit=1)
        waiting = (Occasion(hand, by_hand=True), Occasion(time))
        begun = h.run(h.engine.schedules(replace(plan, waiting=waiting), ctx))
        assert (begun.times, begun.started) == ((hand,), 1)
        with pytest.raises(RetryAfter, match="is paused"):
            h.run(h.engine.schedules(replace(plan, waiting=waiting[1:]), ctx))


def test_a_backfill_leaves_the_times_to_come_to_the_schedule() -> None:
    machine = report()
    with Harness(machine, schedules=[Schedule("daily", machine, cron="0 3 * * *", context=Report())]) as h:
        since, until = datetime(2027, 1, 14, tzinfo=UTC), datetime(2028, 1, 1, tzinfo=UTC)
        assert h.run(h.engine.schedules.backfill("daily", since, until)) == 2
        assert h.run(h.engine.schedules.backfill("daily", until, until + timedelta(days=1))) == 0
        h.advance(minutes=1)
        assert len(h.run(h.engine.find(machine)).items) == 2


def test_a_skipped_time_starts_nothing_while_the_one_before_is_active() -> None:
    machine = report(takes_s=90)
    schedule = Schedule("minutely", machine, cron="* * * * *", context=Report(), overlap="skip")
    with Harness(machine, schedules=[schedule]) as h:
        h.advance(minutes=6, seconds=1)
        view = h.run(h.engine.schedules.get("minutely"))
        assert (view.started, view.skipped, view.waiting) == (3, 3, 0)


def test_a_kill_between_any_two_commits_starts_each_time_once() -> None:
    machine = report()
    schedule = Schedule("minutely", machine, cron="* * * * *", context=Report(), overlap="allow", catch_up="all")
    with Harness(machine, schedules=[schedule]) as h:
        began = h.clock.wall_s()
        for after_s in range(0, 300, 7):
            h.advance(seconds=7)
            h.crash(down_s=after_s % 3)
        h.advance(seconds=5)
        first = datetime.fromtimestamp(began, UTC) + timedelta(minutes=1)
        started = [view.id for view in h.run(h.engine.find(machine)).items]
        assert started == [start_id("minutely", first + timedelta(minutes=n)) for n in range(len(started))]
        assert len(started) >= 5


def test_a_start_whose_count_is_lost_is_not_repeated(monkeypatch: pytest.MonkeyPatch) -> None:
    call = Schedules.__call__

    async def loses_its_result(self: Schedules, plan: Planned, ctx: StepContext) -> Begun:
        result = await call(self, plan, ctx)
        if ctx.attempt == 1:
            raise ConnectionError("the process is gone before the result is durable")
        return result

    monkeypatch.setattr(Schedules, "__call__", loses_its_result)
    machine = report()
    schedule = Schedule("minutely", machine, cron="* * * * *", context=Report(), overlap="allow", catch_up="all")
    with Harness(machine, schedules=[schedule]) as h:
        first = datetime.fromtimestamp(h.clock.wall_s(), UTC) + timedelta(minutes=1)
        h.advance(minutes=4, seconds=5)
        started = [view.id for view in h.run(h.engine.find(machine)).items]
        assert started == [start_id("minutely", first + timedelta(minutes=n)) for n in range(4)]
        view = h.run(h.engine.schedules.get("minutely"))
        assert (view.started, view.skipped, view.waiting) == (4, 0, 0)


def test_a_due_time_that_two_processes_fire_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sabotage: a start that finds the workflow of its due time makes another one."""
    start = Schedules._start

    async def twice(self: Schedules, plan: Planned, name: str, due: datetime, workflow: str) -> None:
        exists = True
        try:
            await self._engine.get(workflow)
        except WorkflowNotFound:
            exists = False
        await start(self, plan, name, due, f"{workflow}.again" if exists else workflow)

    monkeypatch.setattr(Schedules, "_start", twice)
    with pytest.raises(AssertionError):
        test_a_start_whose_count_is_lost_is_not_repeated(monkeypatch)


def test_a_context_that_cannot_be_made_is_a_dead_letter() -> None:
    def broken(at: datetime) -> Report:
        raise ValueError(at)

    machine = report()
    with Harness(machine, schedules=[Schedule("hourly", machine, every=3600, context=broken)]) as h:
        h.advance(hours=1)
        [letter] = h.run(h.engine.dead_letters())
        assert letter.workflow == "schedule:hourly"
        assert "ValueError" in letter.error


def test_times_without_a_zone_and_too_many_of_them_are_refused() -> None:
    machine = report()
    with Harness(machine, schedules=[Schedule("hourly", machine, every=3600, context=Report())]) as h:
        with pytest.raises(BadUsage, match="time zone"):
            h.run(h.engine.schedules.backfill("hourly", datetime(2027, 1, 1), datetime(2027, 1, 2)))  # noqa: DTZ001 -- the point.
        since = datetime(2020, 1, 1, tzinfo=UTC)
        with pytest.raises(BadUsage, match="more than 1,000 times"):
            h.run(h.engine.schedules.backfill("hourly", since, since + timedelta(days=365)))


def test_a_deleted_schedule_can_be_declared_again() -> None:
    machine = report()
    schedule = Schedule("hourly", machine, every=3600, context=Report())
    with Harness(machine, schedules=[schedule]) as h:
        h.run(h.engine.schedules.delete("hourly"))
        h.advance(hours=2)
        assert h.run(h.engine.find(machine)).items == ()
        h.run(h.engine.schedules.put(schedule))
        h.advance(hours=1)
        assert len(h.run(h.engine.find(machine)).items) == 1
        assert h.run(h.engine.get("schedule:hourly")).state is ScheduleState.READY


def test_a_blocking_engine_has_schedules() -> None:
    machine = report()
    with BlockingEngine.open("memory:", machines=[machine]) as engine:
        engine.schedules.put(Schedule("hourly", machine, every=timedelta(hours=1), context=Report()))
        workflow = engine.schedules.trigger("hourly")
        assert [each.name for each in engine.schedules.list()] == ["hourly"]
        assert workflow.startswith("hourly.")


@pytest.mark.parametrize(("catch_up", "count"), [("last", 1), ("none", 0)])
def test_an_hour_that_comes_twice_is_caught_up_with_once(catch_up: str, count: int) -> None:
    """In New York 01:30 came at 05:30Z and at 06:30Z on 7 November 2027; it is due the first time."""
    timing = Timing("30 1 * * *", timezone="America/New_York")
    plan = Planned(timing=timing, catch_up=catch_up, next_due=datetime(2027, 11, 7, 5, 30, tzinfo=UTC))  # type: ignore[arg-type]
    found, next_due = find_due(plan, datetime(2027, 11, 7, 6, 10, 0, 500_000, tzinfo=UTC))
    assert [each.due for each in found] == [datetime(2027, 11, 7, 5, 30, tzinfo=UTC)][:count]
    assert next_due == datetime(2027, 11, 8, 6, 30, tzinfo=UTC)


def test_what_was_done_is_removed_by_its_place_and_not_by_its_time() -> None:
    time = datetime(2027, 1, 1, tzinfo=UTC)
    waiting = (Occasion(time), Occasion(time, by_hand=True))
    snapshot = schedule_machine.at(ScheduleState.STARTING, Planned(waiting=waiting))
    moved = schedule_machine.apply(snapshot, Begun((time,), "", 0, 1), at=time)
    assert (moved.state, moved.context.waiting) == (ScheduleState.STARTING, (Occasion(time, by_hand=True),))


def test_a_schedule_goes_on_when_the_machine_of_its_last_workflow_is_gone() -> None:
    machine, other = report(), report(name="other")
    with Harness(machine, other, schedules=[Schedule("hourly", other, every=3600, context=Report())]) as h:
        h.advance(hours=1)
        h.run(h.engine.schedules.put(Schedule("hourly", machine, every=3600, context=Report())))
        del h._schedules._machines["other"]
        h.advance(hours=2)
        assert len(h.run(h.engine.find(machine)).items) == 1  # The second is skipped: the first is still open.


def test_a_store_that_is_away_is_not_taken_for_the_end_of_the_workflow_before() -> None:
    machine = report()
    with Harness(machine, schedules=[Schedule("minutely", machine, cron="* * * * *", context=Report())]) as h:
        h.advance(minutes=1)
        first, asked = h.run(h.engine.schedules.get("minutely")).last, list[str]()
        get = h.engine.get

        async def get_later(workflow: str) -> View[Enum, object]:
            if workflow == first:
                asked.append(workflow)
                if len(asked) == 1:
                    raise UnavailableError("the store is away.")
            return await get(workflow)

        h.engine.get = get_later  # type: ignore[method-assign]
        h.advance(seconds=90)
        assert len(asked) > 1
        view = h.run(h.engine.schedules.get("minutely"))
        assert (view.started, view.skipped, view.last) == (1, 1, first)


def test_a_start_by_hand_does_not_hide_the_workflow_that_is_still_active() -> None:
    machine = report()
    with Harness(machine, schedules=[Schedule("hourly", machine, every=3600, context=Report())]) as h:
        h.advance(hours=1)
        by_hand = h.run(h.engine.schedules.trigger("hourly"))
        h.drain()
        h.send(by_hand, Finish())
        h.advance(hours=1)
        view = h.run(h.engine.schedules.get("hourly"))
        assert (view.started, view.skipped) == (2, 1)


def test_many_starts_go_on_although_times_become_due_meanwhile() -> None:
    machine = report()
    with Harness(machine, schedules=[Schedule("often", machine, every=1, context=Report(), overlap="allow")]) as h:
        start = Engine.start

        async def slow_start(self: Engine, *arguments: object) -> object:
            await asyncio.sleep(0.03)
            return await start(self, *arguments)  # type: ignore[arg-type]  # As the engine's own.

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Engine, "start", slow_start)
            since = datetime(2020, 1, 1, tzinfo=UTC)
            h.run(h.engine.schedules.backfill("often", since, since + timedelta(seconds=500)))
            h.advance(seconds=40)
        view = h.run(h.engine.schedules.get("often"))
        assert (view.started >= 500, view.waiting < 5) == (True, True)


@pytest.mark.parametrize("event", ["put", "resume"])
def test_a_change_while_starts_wait_sets_the_timer(event: str) -> None:
    machine = report()
    schedule = Schedule("hourly", machine, every=3600, context=Report(), overlap="queue")
    with Harness(machine, schedules=[schedule]) as h:
        h.advance(hours=2)  # The second is queued behind the first, which is open.
        if event == "put":
            h.run(h.engine.schedules.put(Schedule("hourly", machine, every=60, context=Report(), overlap="queue")))
        else:
            h.run(h.engine.schedules.pause("hourly"))
            h.run(h.engine.schedules.resume("hourly"))
        view, plan = h.run(h.engine.get("schedule:hourly")), h.run(h.engine.schedules.get("hourly"))
        assert [timer.due_at for timer in view.timers] == [plan.next_due]


def test_a_timer_that_was_lost_comes_back_with_the_next_put() -> None:
    machine = report()
    schedule = Schedule("nightly", machine, cron="0 3 * * *", timezone="Europe/Berlin", context=Report())
    with Harness(machine, schedules=[schedule]) as h:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(schedules, "ZoneInfo", no_zones)
            h.advance(days=1)
        assert h.run(h.engine.get("schedule:nightly")).timers == ()
        h.restart()
        h.advance(days=1)
        assert h.run(h.engine.schedules.get("nightly")).started >= 1


def no_zones(name: str) -> object:
    raise KeyError(name)


def test_names_that_cannot_be_are_refused() -> None:
    machine = report()
    with pytest.raises(InvalidPayload, match="id of a workflow of this schedule"):
        _ = Engine.open("memory:", machines=[machine], schedules=[Schedule("n" * 185, machine, every=60)])
    with pytest.raises(DefinitionError, match=r"a machine is named 'interlock\.schedule'"):
        _ = Engine.open("memory:", machines=[report(name="interlock.schedule")])
