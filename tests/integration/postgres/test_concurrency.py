"""Several processes write the same workflows at once: one sequence of versions without gaps, nothing lost (G1, B2)."""

import asyncio
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from interlock.store.postgres.store import PostgresStore
from tests.conformance.store.samples import begun, moved, run, started
from tests.integration.postgres.stores import emptied, opened, several

IDS = tuple("abcdef")
PROCESSES = 3
MOVES = 40

WRITER = """
import asyncio, sys
from tests.integration.postgres.test_concurrency import count_up
asyncio.run(count_up(sys.argv[1]))
"""

groups = st.lists(st.lists(st.sampled_from(IDS), min_size=1, max_size=6, unique=True), min_size=1, max_size=8)


async def write(store: PostgresStore, name: str, plan: list[list[str]]) -> dict[str, list[int]]:
    """Move each group once upon what is there; returns the versions that were told to be written."""
    told: dict[str, list[int]] = {each: [] for each in IDS}
    for group in plan:
        rows = await store.load(group)
        changes = [moved(rows[each], state=name, key=f"{name}-{rows[each].version}") for each in group]
        lost = await store.commit(changes)
        for change in changes:
            if change.row.id not in lost:
                told[change.row.id].append(change.row.version)
    return told


@pytest.mark.slow
@settings(max_examples=25)
@given(plans=st.tuples(groups, groups, groups))
def test_of_concurrent_changes_one_wins_and_versions_are_dense(
    postgres: str, plans: tuple[list[list[str]], ...]
) -> None:
    """G1, B2: whatever two processes do to the same workflows at the same time."""

    async def scenario() -> None:
        await emptied(f"{postgres}&schema=race")
        async with several(f"{postgres}&schema=race", len(plans)) as stores:
            await begun(stores[0], *(started(each) for each in IDS))
            told = await asyncio.gather(
                *(write(store, f"p{at}", plan) for at, (store, plan) in enumerate(zip(stores, plans, strict=True)))
            )
            rows = await stores[0].load(IDS)
            for each in IDS:
                written = {version: f"p{at}" for at, mine in enumerate(told) for version in mine[each]}
                assert sum(len(mine[each]) for mine in told) == len(written), "two were told that they wrote a version"
                history = await stores[0].history(each)
                assert [happened.version for happened in history] == list(range(1, rows[each].version + 1))
                assert {happened.version: happened.to_state for happened in history[1:]} == written

    run(scenario)


async def count_up(url: str) -> None:
    """Move one workflow so many times, deciding again whenever somebody was faster."""
    async with opened(url) as store:
        done = 0
        while done < MOVES:
            row = (await store.load(["w"]))["w"]
            count = int(row.context)
            done += await store.commit([moved(row, context=str(count + 1).encode())]) == []


@pytest.mark.slow
def test_no_increment_of_several_processes_is_lost(postgres_url: str) -> None:
    """G1, B2: real processes on one row, each upon what it has read."""

    async def scenario() -> None:
        async with opened(postgres_url) as store:
            await begun(store, started(context=b"0"))
            root = str(Path(__file__).parents[3])
            path = f"{root}/src:{root}"
            writers = [
                await asyncio.create_subprocess_exec(
                    sys.executable, "-c", WRITER, postgres_url, env={"PYTHONPATH": path}
                )
                for _ in range(PROCESSES)
            ]
            assert [await each.wait() for each in writers] == [0] * PROCESSES
            row = (await store.load(["w"]))["w"]
            assert (row.context, row.version) == (str(PROCESSES * MOVES).encode(), PROCESSES * MOVES + 1)
            assert [each.version for each in await store.history("w")] == list(range(1, row.version + 1))

    run(scenario)
