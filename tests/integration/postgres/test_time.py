"""The store's time is the database's: never ahead of it, never back, whatever this machine's clocks say (G8, C11)."""

import pytest

from interlock.store.postgres.store import open_postgres
from interlock.store.records import DatabaseTime
from tests.conformance.store.samples import begun, run, started
from tests.integration.postgres.settime import set_by_the_test
from tests.integration.postgres.stores import opened, somebody
from tests.unit.lanes.lanes import SetClock

NOW = "SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint"


def test_the_time_is_the_database_s_whatever_the_clock_here_says(postgres_url: str) -> None:
    async def scenario() -> None:
        clock = SetClock(100.0)
        async with somebody(postgres_url) as caller:
            store = await open_postgres(postgres_url, clock=clock)
            try:
                told_us = store.now_us()
                clock.now_wall_s = 5.0
                assert store.now_us() == told_us
                before_us = await caller.fetchval(NOW)
                assert told_us <= before_us
                await begun(store, started())
                assert before_us <= store.now_us() <= await caller.fetchval(NOW), "every commit brings the time along"
            finally:
                await store.close()

    run(scenario)


def test_who_only_reads_hears_the_time_every_few_seconds(postgres_url: str) -> None:
    """Two clocks part; one that was heard an hour ago would run ahead of the database."""

    async def scenario() -> None:
        clock = SetClock()
        store = await open_postgres(postgres_url, clock=clock)
        async with somebody(postgres_url) as caller:
            clock.now_monotonic_s += 3_600.0
            await store.load(["w"])
            assert store.now_us() <= await caller.fetchval(NOW)
        await store.close()

    run(scenario)


def test_a_time_that_was_told_is_never_ahead_of_the_database(postgres_url: str) -> None:
    """Whoever reads it later, in whichever process, sees no time go back."""

    async def scenario() -> None:
        async with opened(postgres_url) as one, opened(postgres_url) as two:
            for number in range(20):
                told_us = one.now_us()
                await begun(two, started(f"w-{number}"))
                assert told_us <= two.now_us()

    run(scenario)


def test_time_never_goes_back_when_the_database_s_clock_was_set_back() -> None:
    """A failover to a server whose clock is behind: time stands still until it is reached again."""
    clock = SetClock()
    time = DatabaseTime(clock)
    time.record(5_000_000)
    assert time.now_us() == 5_000_000
    time.record(3_000_000)
    assert time.now_us() == 5_000_000
    time.record(6_000_000)
    assert time.now_us() == 6_000_000


def test_a_test_can_set_the_time_of_the_database(postgres_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """For suites that move time by hand; what the server itself does by its clock, claims, stays with it."""
    set_by_the_test(monkeypatch)

    async def scenario() -> None:
        clock = SetClock(100.0)
        store = await open_postgres(postgres_url, clock=clock)
        await begun(store, started())
        assert store.now_us() == 100_000_000
        clock.now_wall_s = 101.0
        assert store.now_us() == 101_000_000
        await store.close()

    run(scenario)
