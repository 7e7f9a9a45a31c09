"""What becomes of the engine when its schema in PostgreSQL grows: the same table as `growth`, on one server.

An engine writes one finished order and one parked workflow into each schema, and SQL multiplies them, history included:
every column is copied as the engine wrote it, except ids, numbers and times. In a schema of its own all workflows wait
for timers that are a day away; a process of its own opens an engine on it, works on it, and tells its memory. How many
rows the opening read is asked of the server, because an engine that looked at all of them would open slower and slower.

`--quick` has a tenth of the workflows, and the names of its figures say so.
"""

import asyncio
import os
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import asyncpg

from benchmarks.embedded import Embedded, MeasuredOrder, stepped
from benchmarks.growth import ACTIVE_MAX, ACTIVE_SHARE, ALL, OLD_S, Nothing, parked, queries, resident_bytes
from benchmarks.postgres import Server, server
from benchmarks.report import Figure, Round, interleaved
from interlock import Engine

SIZES = (1_000, 100_000, 1_000_000)
IN_FLIGHT = 256
WAITING = "waiting"
GOALS = {"postgres_throughput_1e6_vs_1e5": 0.9}
LIMITS = {
    "postgres_stalled_ms_1e6": 50.0,
    "postgres_find_ms_1e6": 50.0,
    "postgres_find_in_state_ms_1e6": 50.0,
    "postgres_waiting_1e6_rss_mb": 300.0,
}
OURS = """
SELECT column_name FROM information_schema.columns
WHERE table_schema = $1 AND table_name = $2 AND is_identity = 'NO' ORDER BY ordinal_position
"""
ROWS_READ = """
SELECT coalesce(seq_tup_read, 0) + coalesce(idx_tup_fetch, 0) FROM pg_stat_user_tables
WHERE schemaname = $1 AND relname = 'workflows'
"""


@dataclass
class Found:
    """What was measured."""

    figures: dict[str, Figure] = field(default_factory=dict)
    ratios: dict[str, float] = field(default_factory=dict)
    extra: dict[str, float] = field(default_factory=dict)


def power(size: int) -> str:
    """A size as the names of figures have it: 1e6."""
    return f"{size:.0e}".replace("e+0", "e")


async def multiply(connection: Any, schema: str, pattern: str, *, first: int, count: int, every: int) -> None:  # noqa: ANN401 -- asyncpg has no types.
    """Copies of a workflow with its history, under the ids of every so-manieth number; half of them are old."""
    numbers = f"generate_series({first}::bigint, {first + (count - 1) * every}::bigint, {every}) AS n"
    # Every second one has been where it is for longer than it should.
    age = f"(n / {every} % 2) * interval '{2 * OLD_S} seconds'"
    changed = {
        "id": "'w-' || lpad(n::text, 8, '0')",
        "workflow_id": "'w-' || lpad(n::text, 8, '0')",
        "number": f"nextval('{schema}.workflow_numbers')",
        **{name: f"p.{name} - {age}" for name in ("created_at", "updated_at", "entered_at")},
    }
    for table, key in (("workflows", "id"), ("workflow_events", "workflow_id")):
        names = [row[0] for row in await connection.fetch(OURS, schema, table)]
        values = ", ".join(changed.get(name, f"p.{name}") for name in names)
        await connection.execute(
            f"INSERT INTO {schema}.{table} ({', '.join(names)}) "  # noqa: S608 -- names of our own tables.
            f"SELECT {values} FROM {schema}.{table} p, {numbers} WHERE p.{key} = '{pattern}'"
        )


async def fill(on: Server, schema: str, size: int, *, active: int) -> float:
    """Fill a schema; returns how long it took."""
    begun = time.perf_counter()
    async with Engine.open(on.address(schema), machines=ALL) as engine:
        await engine.start(stepped, "finished", MeasuredOrder(cents=999))
        await engine.wait("finished")
        await engine.start(parked, "parked", Nothing())
    connection = await asyncpg.connect(on.url)
    try:
        if active:
            await multiply(connection, schema, "parked", first=size, count=active, every=1)
        if size > active:
            await multiply(connection, schema, "finished", first=0, count=size - active, every=1)
        for table in ("workflows", "workflow_events"):
            await connection.execute(f"VACUUM (ANALYZE) {schema}.{table}")
        # Nobody's turn shall pay for what was written here.
        await connection.execute("CHECKPOINT")
    finally:
        await connection.close()
    return time.perf_counter() - begun


async def look(url: str) -> None:
    """The body of the process whose memory is measured: open, list, work, tell."""
    begun = time.perf_counter()
    async with Engine.open(url, machines=ALL) as engine:
        opened_s = time.perf_counter() - begun
        await queries(engine)
        turn = await Embedded(engine).round(steps=True, in_flight=IN_FLIGHT, seconds=1.0)
        print(resident_bytes(), opened_s, turn.operations / turn.seconds)


def looked(url: str, *, only_open: bool) -> list[float]:
    """What the process told: memory in bytes, seconds to open, transitions per second."""
    body = "open" if only_open else "look"
    command = [sys.executable, "-m", "benchmarks.growth_postgres", body, url]
    paths = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    told = subprocess.run(command, check=True, capture_output=True, text=True, env=paths).stdout  # noqa: S603 -- ourselves.
    return [float(each) for each in told.split()]


async def only_open(url: str) -> None:
    """The body of the process whose reading is measured."""
    async with Engine.open(url, machines=ALL):
        pass


async def memory(on: Server, size: int) -> dict[str, float]:
    """An engine on a schema where everybody waits: its memory, and what opening it read."""
    extra = {f"postgres_waiting_{power(size)}_fill_s": round(await fill(on, WAITING, size, active=size), 1)}
    connection = await asyncpg.connect(on.url)
    try:
        # A process that ends has told the server's statistics everything, so the difference is exact.
        before = await connection.fetchval(ROWS_READ, WAITING)
        await asyncio.to_thread(looked, on.address(WAITING), only_open=True)
        extra[f"postgres_waiting_{power(size)}_rows_read_by_opening"] = (
            await connection.fetchval(ROWS_READ, WAITING) - before
        )
    finally:
        await connection.close()
    resident, opened_s, rate = await asyncio.to_thread(looked, on.address(WAITING), only_open=False)
    name = f"postgres_waiting_{power(size)}"
    extra |= {f"{name}_rss_mb": resident / 1e6, f"{name}_open_s": opened_s, f"{name}_transitions_per_s": rate}
    empty, *_ = await asyncio.to_thread(looked, on.address("empty"), only_open=False)
    extra["postgres_empty_rss_mb"] = empty / 1e6
    return extra


async def measure(on: Server, sizes: Sequence[int], *, seconds: float, rounds: int) -> Found:
    """Fill, take turns, ask, weigh."""
    found = Found()
    for size in sizes:
        active = min(ACTIVE_MAX, size // ACTIVE_SHARE)
        found.extra[f"postgres_fill_s_{power(size)}"] = round(await fill(on, _schema(size), size, active=active), 1)
    async with AsyncExitStack() as stack:
        engines = {
            size: await stack.enter_async_context(Engine.open(on.address(_schema(size)), machines=ALL))
            for size in sizes
        }
        loop = asyncio.get_running_loop()

        def contestant(orders: Embedded) -> Callable[[], Round]:
            return lambda: asyncio.run_coroutine_threadsafe(
                orders.round(steps=True, in_flight=IN_FLIGHT, seconds=seconds), loop
            ).result()

        turns = {
            f"{size:,} workflows on PostgreSQL": contestant(Embedded(engine, cpu_seconds=on.cpu_seconds))
            for size, engine in engines.items()
        }
        found.figures = await asyncio.to_thread(interleaved, turns, rounds=rounds)
        for size, engine in engines.items():
            for name, value in (await queries(engine)).items():
                found.extra[f"postgres_{name}_{power(size)}"] = round(value, 2)
    middle, large = sizes[1:]
    rates = {size: found.figures[f"{size:,} workflows on PostgreSQL"].per_second for size in sizes}
    found.ratios[f"postgres_throughput_{power(large)}_vs_{power(middle)}"] = rates[large] / rates[middle]
    found.extra |= await memory(on, large)
    return found


def run(folder: Path, *, quick: bool, sizes: Sequence[int] = SIZES) -> Found:
    """Everything, on a server of its own."""
    folder.mkdir()
    if quick:
        sizes = tuple(max(size // 10, 100) for size in sizes)
    with server(folder) as on:
        return asyncio.run(measure(on, sizes, seconds=0.4 if quick else 1.0, rounds=3 if quick else 9))


def _schema(size: int) -> str:
    return f"growth_{power(size)}"


if __name__ == "__main__":
    asyncio.run(only_open(sys.argv[2]) if sys.argv[1] == "open" else look(sys.argv[2]))
