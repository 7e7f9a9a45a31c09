"""What a commit weighs in the bucket: the bytes of the log's objects, divided by the commits in them.

A group is stored as the pages it changed, compressed. So a row that everybody writes costs one page for the whole
group, and rows that have nothing to do with each other cost a page each. Groups of exactly the wanted size are made
by a window that ends when the group is full.
"""

import asyncio
import random
from collections.abc import Sequence
from pathlib import Path

import msgspec

from benchmarks.buckets import opening
from interlock.database.database import Database
from interlock.lanes.lane_settings import LaneSettings
from interlock.testing.lane_simulation.bucket import MemoryBucket

TABLE = "CREATE TABLE account (id integer PRIMARY KEY, n bigint NOT NULL, owner text NOT NULL)"
INSERT = "INSERT INTO account (id, n, owner) VALUES ($1, 0, $2)"
ADD = "UPDATE account SET n = n + $2 WHERE id = $1"
AT_ONCE = 1_000
WINDOW_S = 1.0
NO_SNAPSHOT = LaneSettings(snapshot_bytes_min=4_000_000_000)


async def fill(database: Database, rows: int) -> None:
    """Make the table, with rows that do not compress to nothing."""
    chance = random.Random(rows)
    await database.execute(TABLE)
    for start in range(0, rows, AT_ONCE):
        some = range(start, min(rows, start + AT_ONCE))
        await asyncio.gather(*(database.execute(INSERT, row, f"{chance.getrandbits(128):032x}") for row in some))


def log_bytes(bucket: MemoryBucket, behind: int = 0) -> int:
    """What the log's objects behind that number weigh."""
    found = [bucket.get(key) for key in bucket.keys("log/")[behind:]]
    return sum(len(each.data) for each in found if each is not None)


async def bytes_per_commit(
    folder: Path, *, rows: int, among: Sequence[int], sizes: Sequence[int], groups: int
) -> list[dict[int, float]]:
    """For each size of a group, what one commit of it weighs, on rows at random among the first so many."""
    bucket, chance = MemoryBucket(), random.Random(rows)
    async with opening(bucket, folder, NO_SNAPSHOT) as database:
        await fill(database, rows)
    weights: list[dict[int, float]] = [{} for _ in among]
    for size in sizes:
        exactly = msgspec.structs.replace(NO_SNAPSHOT, group_commit_max_batch=size, group_commit_window=WINDOW_S)
        async with opening(bucket, folder, exactly) as database:
            for choice, weight in zip(among, weights, strict=True):
                before = len(bucket.keys("log/"))
                for _ in range(groups):
                    changes = [(chance.randrange(choice), chance.randrange(1, 1_000)) for _ in range(size)]
                    await asyncio.gather(*(database.execute(ADD, *change) for change in changes))
                stored = len(bucket.keys("log/")) - before
                assert stored == groups, f"{stored} objects instead of {groups} groups of {size}"
                weight[size] = log_bytes(bucket, before) / (groups * size)
    return weights


def weigh(folder: Path, *, rows: int, sizes: Sequence[int], groups: int) -> dict[str, dict[int, float]]:
    """Bytes per commit for one row and for many."""
    small = bytes_per_commit(folder / "small", rows=1, among=[1], sizes=sizes, groups=groups)
    large = bytes_per_commit(folder / "large", rows=rows, among=[1, rows], sizes=sizes, groups=groups)
    names = ("one row, alone in its table", f"one row of {rows:,}", f"rows at random, of {rows:,}")
    return dict(zip(names, [*asyncio.run(small), *asyncio.run(large)], strict=True))
