"""What an auto counter measures, and when (D7)."""

import asyncio
from collections.abc import Sequence

import pytest

from interlock.errors import UnavailableError
from interlock.hotrow.counters import Automatic, Form, Groups, Signal
from interlock.lanes.hot_rows import HotRow
from interlock.lanes.lane import LaneStats
from interlock.sql.stored_values import EngineName


class SetClock:
    def __init__(self) -> None:
        self.now_s = 100.0

    def wall_s(self) -> float:
        return self.now_s

    def monotonic_s(self) -> float:
        return self.now_s


class World:
    """One counter, a clock, and what the signal says."""

    def __init__(self, engine: EngineName = "postgres", *, grouped: bool = False) -> None:
        self.clock = SetClock()
        self.rows: list[HotRow] = []
        self.looks = 0
        self.error: Exception | None = None
        self.groups, self.transactions = 0, 0
        self.signal = Signal(self._contention, self.clock, groups=Groups(self._stats, 10) if grouped else None)
        self.counter = self.another("n", engine)

    def another(self, name: str, engine: EngineName = "postgres") -> Automatic:
        return Automatic(name, threshold=50.0, shard_count=4, engine=engine)

    async def _contention(self) -> Sequence[HotRow]:
        self.looks += 1
        if self.error is not None:
            raise self.error
        return self.rows

    def _stats(self) -> LaneStats:
        return LaneStats(
            groups=self.groups,
            transactions=self.transactions,
            failed=0,
            waiting=0,
            largest_group=0,
            log_bytes=0,
            folds_failed=0,
        )

    def hot(self, table: str, key: object, handoffs: float, conflicts: float = 0.0) -> None:
        self.rows.append(
            HotRow(
                table=table,
                key=key,
                handoffs_per_s=handoffs,
                writes_per_s=handoffs,
                wait_s=0.0,
                flagged=False,
                conflicts_per_s=conflicts,
            )
        )

    def add(self, times: int = 1, *, per_s: float | None = None) -> Form:
        """So many adds at this moment, or spread over time at this rate; the form of the last one."""

        async def adds() -> Form:
            form = self.counter.form
            for _ in range(times):
                if per_s is not None:
                    self.clock.now_s += 1.0 / per_s
                form = await self.counter.next_form(self.signal, self.clock.now_s)
            return form

        return asyncio.run(adds())


def test_the_signal_is_looked_at_once_a_second_at_most() -> None:
    world = World()
    world.add(1_000)
    assert world.looks == 0
    world.add(3_000, per_s=300.0)
    assert 9 <= world.looks <= 10


def test_all_counters_of_a_database_look_at_it_together() -> None:
    world = World()
    counters = [world.another(f"n{number}") for number in range(100)]

    async def adds() -> None:
        for _ in range(3):
            for counter in counters:
                await counter.next_form(world.signal, world.clock.now_s)
            world.clock.now_s += 1.0

    asyncio.run(adds())
    assert world.looks == 2


def test_a_hot_row_is_split_within_a_second() -> None:
    world = World()
    assert world.add() == "exact"
    world.hot("hotrow_counter", "other", 1_000.0)
    world.hot("public.hotrow_counter", "n", 40.0, conflicts=20.0)
    assert world.add(90, per_s=100.0) == "exact"
    assert world.add(20, per_s=100.0) == "sharded"


def test_a_hot_row_of_a_lane_stays_whole_until_its_groups_are_full() -> None:
    """D13: as long as its writers share commits, splitting it would only make more of them."""
    world = World("lane", grouped=True)
    world.hot("hotrow_counter", "n", 10_000.0)
    for _ in range(5):
        world.groups, world.transactions = world.groups + 100, world.transactions + 500
        assert world.add(10, per_s=8.0) == "exact"
    world.groups, world.transactions = world.groups + 100, world.transactions + 501
    assert world.add(10, per_s=8.0) == "sharded"


@pytest.mark.parametrize(("engine", "form"), [("lane", "sharded"), ("postgres", "event_log")])
def test_hot_shards_become_a_log_on_postgresql_alone(engine: EngineName, form: Form) -> None:
    world = World(engine)
    world.counter.form = "sharded"
    world.hot("hotrow_counter_shard", ("n", 1), 10.0)
    world.hot("hotrow_counter_shard", ("n", 3), 60.0)
    world.hot("hotrow_counter_shard", ("other", 0), 5.0)
    assert world.add(300, per_s=100.0) == form


def test_a_storm_that_is_over_is_followed_by_a_minute_of_calm() -> None:
    """Hysteresis: the row is whole again a minute after the adds fell below a quarter of the threshold."""
    world = World()
    world.hot("hotrow_counter", "n", 60.0)
    world.add(300, per_s=100.0)
    world.rows.clear()
    assert world.add(600, per_s=13.0) == "sharded"
    assert world.add(12 * 58, per_s=12.0) == "sharded"
    assert world.add(12 * 4, per_s=12.0) == "exact"


def test_one_loud_second_begins_the_calm_anew() -> None:
    world = World()
    world.counter.form = "sharded"
    world.add(12 * 55, per_s=12.0)
    world.add(50, per_s=25.0)
    assert world.add(12 * 55, per_s=12.0) == "sharded"
    assert world.add(12 * 8, per_s=12.0) == "exact"


def test_a_counter_that_rested_comes_back_as_less() -> None:
    world = World()
    world.counter.form = "event_log"
    world.add()
    world.clock.now_s += 3_600.0
    assert world.add() == "sharded"
    assert world.add(60, per_s=1.0) == "exact"


def test_a_signal_that_cannot_be_read_is_counted_and_fails_no_add(caplog: pytest.LogCaptureFixture) -> None:
    world = World()
    world.counter.form = "sharded"
    world.error = UnavailableError("the views are not readable.")
    assert world.add(50, per_s=20.0) == "sharded"
    assert world.signal.failures == world.looks == 2
    assert "could not be read" in caplog.text


def test_without_a_signal_a_counter_stays_exact() -> None:
    clock = SetClock()
    signal = Signal(None, clock)
    counter = Automatic("n", threshold=0.0, shard_count=4, engine="lane")

    async def adds() -> list[Form]:
        found: list[Form] = []
        for _ in range(100):
            clock.now_s += 0.1
            found.append(await counter.next_form(signal, clock.now_s))
        return found

    assert set(asyncio.run(adds())) == {"exact"}
