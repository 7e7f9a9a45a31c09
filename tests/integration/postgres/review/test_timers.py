"""B9 on a shared store: a timer fires although the step of its state is under way, wherever that was begun."""

import asyncio

import pytest

from interlock import Engine
from tests.conformance.store.samples import run
from tests.integration.postgres.review.shop import Finish, Order, Outside, State, Submit, shop
from tests.integration.postgres.stores import somebody

LONG_S = 60.0
"""Many times as long as anything here takes that works."""


@pytest.mark.slow
def test_a_timer_fires_beside_a_step_that_was_claimed(postgres_url: str) -> None:
    """B9: the step was committed by a process that runs none, and is under way in a worker that has claimed it."""

    async def scenario() -> None:
        outside = Outside()
        machine = shop(outside, timer_s=5.0)  # The step has begun before that, on any machine.
        async with (
            Engine.open(postgres_url, machines=[machine], worker=False) as front,
            Engine.open(postgres_url, machines=[machine], poll_s=0.05, drain_s=0) as _worker,
        ):
            await front.start(machine, "o-1", Order())
            await front.send("o-1", Submit())
            await outside.charging.get()
            await front.wait("o-1", State.LATE, timeout_s=LONG_S)

    run(scenario)


@pytest.mark.slow
def test_timers_fire_on_a_worker_whose_slots_are_taken_and_whose_backlog_is_long(postgres_url: str) -> None:
    """B9: what waits for a slot must not keep the deadlines of all others waiting."""

    async def scenario() -> None:
        outside = Outside()
        busy, timed = shop(outside, name="busy"), shop(outside, name="timed", timer_s=0.2)
        async with Engine.open(postgres_url, machines=[busy, timed], worker=False) as front:
            for number in range(150):
                await front.start(busy, f"b-{number}", Order())
            await front.send_many([(f"b-{number}", Submit()) for number in range(150)])
            async with Engine.open(
                postgres_url, machines=[busy, timed], poll_s=0.05, drain_s=0, steps_max=1, lease_s=30
            ) as _worker:
                await outside.charging.get()
                await front.start(timed, "t-1", Order())
                await front.send("t-1", Submit())
                await front.wait("t-1", State.LATE, timeout_s=LONG_S)

    run(scenario)


@pytest.mark.slow
def test_time_while_no_worker_of_the_machine_was_there_does_not_count(postgres_url: str) -> None:
    """B9, "remaining": that a worker of another machine is alive says nothing about this one."""

    async def scenario() -> None:
        outside = Outside()
        mine = shop(outside, name="mine", timer_s=8.0, policy="remaining")
        other = shop(outside, name="other", timer_s=3600, policy="remaining")
        async with (
            Engine.open(postgres_url, machines=[other], poll_s=0.05),
            Engine.open(postgres_url, machines=[mine], worker=False) as front,
        ):
            async with Engine.open(postgres_url, machines=[mine], poll_s=0.05, drain_s=0) as worker:
                await worker.start(mine, "o-1", Order())
                await worker.send("o-1", Submit())
                await outside.charging.get()
            set_us = (await front._store.load(["o-1"]))["o-1"].updated_us
            while front._store.now_us() < set_us + 8_500_000:  # The timer would be over, if this time counted.
                await front.get("o-1")
            async with Engine.open(postgres_url, machines=[mine], poll_s=0.05, drain_s=0):
                async with asyncio.timeout(LONG_S):
                    await outside.charging.get()
                assert (await front.get("o-1")).state is State.CHARGING
                async with somebody(postgres_url) as connection:
                    [[owed]] = await connection.fetch("SELECT convert_from(owed, 'UTF8') FROM workflows")
                    assert f'"at_us":{set_us + 8_000_000}' not in owed

    run(scenario)


def test_a_worker_that_stops_gives_back_what_it_has_not_begun(postgres_url: str) -> None:
    """B6: the next worker takes it up at once, and does not wait for the end of a lease that nobody needs."""

    async def scenario() -> None:
        outside = Outside()
        machine = shop(outside)
        async with Engine.open(postgres_url, machines=[machine], worker=False) as front:
            for number in range(3):
                await front.start(machine, f"o-{number}", Order())
                await front.send(f"o-{number}", Submit())
            async with Engine.open(
                postgres_url, machines=[machine], poll_s=0.02, drain_s=0, steps_max=1, lease_s=60
            ) as worker:
                await outside.charging.get()
                while len(worker._inside.runner.claimed) < 2:
                    await front.get("o-1")
            async with somebody(postgres_url) as connection:
                held = await connection.fetch("SELECT id FROM workflow_leases")
            assert held == []

    run(scenario)


def test_somebody_who_waits_is_woken_although_others_begin_to_wait_all_the_time(postgres_url: str) -> None:
    """A new wait for the same workflow must not put off the look that an older one waits for."""

    async def scenario() -> None:
        machine = shop(Outside())
        async with (
            Engine.open(postgres_url, machines=[machine], worker=False) as one,
            Engine.open(postgres_url, machines=[machine], worker=False) as two,
        ):
            await one.start(machine, "o-1", Order())
            first = asyncio.ensure_future(one.wait("o-1", State.DONE))
            looks = one._inside.policy.polls.looks  # type: ignore[union-attr]
            while "o-1" not in looks:
                await two.get("o-1")
            due_s, _ = looks["o-1"]
            await one.wait("o-1", State.DRAFT)
            assert one._inside.policy.polls.looks["o-1"][0] <= due_s  # type: ignore[union-attr]
            await two.send("o-1", Finish())
            assert (await first).state is State.DONE

    run(scenario)
