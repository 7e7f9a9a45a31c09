"""Counters that several processes write at once, as PostgreSQL allows: each with connections and memory of its own."""

import asyncio
from contextlib import AsyncExitStack

from interlock.database.database import Database
from interlock.hotrow.counters import Counters
from tests.conformance.hotrow.counting import KINDS, NEVER_S, entries
from tests.conformance.hotrow.places import run

PROCESSES = 6


async def processes(stack: AsyncExitStack, url: str) -> list[Counters]:
    opened = [await stack.enter_async_context(Database.open(url)) for _ in range(PROCESSES)]
    found = [Counters(db, shard_count=3 + number, roll_up_every_s=NEVER_S) for number, db in enumerate(opened)]
    for counters in found:
        stack.push_async_callback(counters.close)
    return found


def test_processes_that_come_first_at_once_make_one_counter(postgres_url: str) -> None:
    """D5: each finds the tables missing, all of them make them, and one alone places the keys."""

    async def scenario() -> None:
        async with AsyncExitStack() as stack:
            everybody = await processes(stack, postgres_url)
            opened = [each.open("n", kind=kind) for each in everybody for kind in KINDS]
            await asyncio.gather(*[counter.add(1) for counter in opened])
            await asyncio.gather(*[counter.add(100, key=f"k{n}") for counter in opened for n in range(3)])
            assert await everybody[0].open("n").value() == len(opened) + 300

    run(scenario)


def test_folds_of_several_processes_meet_and_count_nothing_twice(postgres_url: str) -> None:
    """D6: a fold that met another one is run again, or takes other entries."""

    async def scenario() -> None:
        async with AsyncExitStack() as stack:
            everybody = await processes(stack, postgres_url)
            opened = [each.open("n", kind="event_log") for each in everybody]
            await asyncio.gather(*[counter.add(2) for counter in opened for _ in range(20)])
            async with asyncio.TaskGroup() as tasks:
                folds = [tasks.create_task(counter.roll_up()) for counter in opened for _ in range(2)]
                for _ in range(20):
                    await asyncio.gather(*[counter.add(2) for counter in opened])
            folded = [fold.result() for fold in folds]
            folded += [await opened[0].roll_up()]
            assert sum(folded) == PROCESSES * 40
            assert await opened[0].value() == PROCESSES * 80

    run(scenario)


def test_an_entry_that_is_committed_late_is_not_taken_with_the_others(postgres_url: str) -> None:
    """D6: entries are not committed in the order of their numbers, so the smallest may come last."""

    async def scenario() -> None:
        async with Database.open(postgres_url) as db:
            counters = Counters(db, roll_up_every_s=NEVER_S)
            log = counters.open("n", kind="event_log")
            await log.add(1)
            # As if its number had been given out long before it was committed.
            late = "INSERT INTO hotrow_counter_event (id, name, delta) VALUES ($1, $2, $3)"

            async def commit_late(number: int) -> None:
                await db.execute(late, -number, "n", 10)

            await asyncio.gather(*[commit_late(number) for number in range(1, 11)], *[log.roll_up() for _ in range(5)])
            await log.roll_up()
            assert await entries(db) == 0
            assert await log.value() == 101
            await counters.close()

    run(scenario)
