"""Charts of a store: sums of several processes, added up to any step, rolled up to hours and removed (F7)."""

import asyncio
import random
from typing import Any

from interlock.store.chart_store import HOUR_S, MINUTE_S, ChartRecord, chart_record
from interlock.store.protocol import Store
from tests.conformance.store.places import Place
from tests.conformance.store.samples import run

MINUTE_US = MINUTE_S * 1_000_000
HOUR_US = HOUR_S * 1_000_000
BEGIN_US = 1_800_000_000_000_000 // HOUR_US * HOUR_US


def minute(number: int, *sums: int | None, machine: str = "order", state: str = "new") -> ChartRecord:
    """The record of a minute after `BEGIN_US`."""
    return chart_record(MINUTE_S, BEGIN_US + number * MINUTE_US, machine, state, *sums)


async def read(store: Store, minutes: int, *, step: int = 1, machine: str = "") -> list[tuple[Any, ...]]:
    """The minute at which each step begins, with its machine, state and sums."""
    end_us = BEGIN_US + minutes * MINUTE_US
    found = (await store.charts.read(machine, BEGIN_US, end_us, step * MINUTE_US)).records
    return [
        (
            (each.since_us - BEGIN_US) // MINUTE_US, each.machine, each.state, each.moves, each.started, each.entered,
            each.left, each.dwells, each.dwell_us, each.dwell_max_us, each.failed, each.refused,
            each.dead_letters, each.waiting,
        )
        for each in found
    ]  # fmt: skip


def test_records_of_one_minute_add_up(place: Place) -> None:
    async def scenario() -> None:
        async with place.opened() as store:
            assert await store.charts.read("", BEGIN_US, BEGIN_US + HOUR_US, MINUTE_US) == (None, [])
            await store.charts.add([minute(0, 1, 2, 3, 4, 5, 50, 30, 7, 8, 9)])
            await store.charts.add([minute(0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 5)])
            await store.charts.add([minute(0, 10, 20, 30, 40, 50, 500, 20, 70, 80, 90, 6), minute(1, 1)])
            sums = (11, 22, 33, 44, 55, 550, 30, 77, 88, 99, 11)
            empty = (0,) * 9
            assert await read(store, 9) == [(0, "order", "new", *sums), (1, "order", "new", 1, *empty, None)]
            assert await read(store, 1) == [(0, "order", "new", *sums)]
            first_us, _ = await store.charts.read("", BEGIN_US + HOUR_US, BEGIN_US + 2 * HOUR_US, MINUTE_US)
            assert first_us == BEGIN_US

    run(scenario)


def test_steps_add_minutes_up_and_take_the_highest_sample(place: Place) -> None:
    async def scenario() -> None:
        async with place.opened() as store:
            none = (0,) * 6
            await store.charts.add(
                [minute(number, 1, 0, 0, *none, 0, number) for number in range(10)]
                + [minute(3, 1, machine="other"), minute(3, 1, state="done")]
            )
            found = await read(store, 10, step=5)
            assert [(row[0], row[1], row[2], row[3], row[-1]) for row in found] == [
                (0, "order", "done", 1, None),
                (0, "order", "new", 5, 4),
                (5, "order", "new", 5, 9),
                (0, "other", "new", 1, None),
            ]
            assert [row[1] for row in await read(store, 10, step=10, machine="other")] == ["other"]

    run(scenario)


def test_old_minutes_become_hours_with_the_same_sums_and_old_hours_go(place: Place) -> None:
    async def scenario() -> None:
        async with place.opened() as store:
            rng = random.Random(7)
            records = [
                minute(number, *(rng.randrange(100) for _ in range(11)), state=state)
                for number in range(0, 180, 7)
                for state in ("new", "done")
            ]
            await store.charts.add(records)
            before = await read(store, 180, step=60)
            await store.charts.roll_up(BEGIN_US + 2 * HOUR_US, BEGIN_US - HOUR_US)
            assert await read(store, 180, step=60) == before
            assert {row[0] for row in await read(store, 180)} == {0, 60, *range(126, 180, 7)}
            # A minute that comes late is added to its hour; a second time nothing changes.
            await store.charts.add([minute(1, 1_000)])
            for _ in range(2):
                await store.charts.roll_up(BEGIN_US + 2 * HOUR_US, BEGIN_US - HOUR_US)
            after = await read(store, 180, step=60)
            assert [row for row in after if row not in before] == [
                (*row[:3], row[3] + 1_000, *row[4:]) for row in before if row[:3] == (0, "order", "new")
            ]  # fmt: skip
            await store.charts.roll_up(BEGIN_US + 2 * HOUR_US, BEGIN_US + HOUR_US)
            assert {row[0] for row in await read(store, 180, step=60)} == {60, 120}

    run(scenario)


def test_concurrent_additions_and_roll_ups_lose_and_repeat_nothing(place: Place) -> None:
    async def scenario() -> None:
        async with place.opened() as store:
            rng = random.Random(3)

            async def add(states: list[str]) -> None:
                await store.charts.add([minute(0, 1, state=state) for state in states])

            states = [f"s{number}" for number in range(20)]
            works = [add(rng.sample(states, 20)) for _ in range(20)]
            works += [store.charts.roll_up(BEGIN_US + HOUR_US, 0) for _ in range(5)]
            rng.shuffle(works)
            await asyncio.gather(*works)
            found = await read(store, 60, step=60)
            assert {row[2]: row[3] for row in found} == dict.fromkeys(states, 20)

    run(scenario)
