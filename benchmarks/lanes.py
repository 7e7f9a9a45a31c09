"""Everybody writes the same row: a lane beside PostgreSQL and plain SQLite, on one disk, all of them durable.

`UPDATE counter SET n = n + 1 WHERE id = $1`, acknowledged when it is on the disk. The lane is used as anybody uses it,
through `Database`. PostgreSQL gets a connection and a prepared statement per client, which spares it the pool's reset,
and counts at its own best number of clients. SQLite runs alone in a tight loop, without an event loop and without a
hand-over between threads. Every contestant must have counted exactly the commits it acknowledged.

Grouping lowers the price of writing one row; the writes still depend on each other and are executed one by one.
"""

import asyncio
import functools
import gc
import tempfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from pathlib import Path

import apsw
import asyncpg

from benchmarks.clients import run_clients
from benchmarks.postgres import Server, server
from benchmarks.report import Figure, Round, arguments, interleaved, publish
from interlock.database.database import Database
from interlock.database.lane_engine import OnLane

GOALS = {
    "hot_row_256_vs_postgres_best": 30.0,
    "hot_row_256_vs_sqlite": 8.0,
    "single_client_vs_sqlite": 0.45,
    "databases_8_scaling": 6.4,
    "signal_cost": 0.95,
    "hand_off_1000_clients_per_s": 15_000.0,
}
LANE_CLIENTS = (1, 16, 64, 256)
POSTGRES_CLIENTS = (1, 4, 8, 16, 32, 64)
HAND_OFF_S = 0.010
LANES = 8
CLIENTS_PER_LANE = 16
SIGNAL_CLIENTS = 256
SIGNAL_ROUNDS = 15
SIGNAL_SECONDS = 0.25

TABLE = "CREATE TABLE counter (id integer PRIMARY KEY, n bigint NOT NULL)"
ROW = "INSERT INTO counter (id, n) VALUES (1, 0)"
INCREMENT = "UPDATE counter SET n = n + 1 WHERE id = $1"
COUNT = "SELECT n FROM counter WHERE id = 1"

SQLITE = "SQLite alone, one thread"
ONE_HANDED_ON = "hand-off, 1 lane, 16"
EIGHT_HANDED_ON = "hand-off, 8 lanes, 16 each"
MANY_HANDED_ON = "hand-off, 1 lane, 1000"
SIGNAL_ON = "lane, 256, signal on"
SIGNAL_OFF = "lane, 256, signal off"
"""Contestants; the number is that of the clients."""

Contestant = Callable[[], Round]


class Lanes:
    """Databases with a counter each, and clients spread over them."""

    def __init__(self, runner: asyncio.Runner, databases: Sequence[Database]) -> None:
        self._runner = runner
        self._databases = databases
        self._expected = 0

    @classmethod
    async def open(
        cls, runner: asyncio.Runner, stack: AsyncExitStack, urls: Sequence[str], *, hand_off_s: float = 0.0
    ) -> "Lanes":
        """Open one database per URL, each with its row at zero."""
        databases: list[Database] = []
        for url in urls:
            # A lane without work gives its writer back after `idle_s`; here it is kept while others have their turn.
            opening = Database.open(url, hand_off=_waiting(hand_off_s) if hand_off_s else None, idle_s=3_600)
            database = await stack.enter_async_context(opening)
            await database.execute(TABLE)
            await database.execute(ROW)
            databases.append(database)
        return cls(runner, databases)

    def watch(self, *, signal: bool) -> "Lanes":
        """With or without the contention signal. There is no setting for it: it is meant to be on in production."""
        for database in self._databases:
            engine = database._engine  # noqa: SLF001 -- see above.
            assert isinstance(engine, OnLane)
            lane = engine.lane
            assert lane._writer is not None  # noqa: SLF001
            lane._writer._contention = lane.contention if signal else None  # noqa: SLF001
        return self

    def round(self, clients: int, seconds: float) -> Round:
        """One turn with so many clients per database."""
        asks = [functools.partial(database.execute, INCREMENT, 1) for database in self._databases] * clients
        result = self._runner.run(run_clients(asks, seconds=seconds))
        self._expected += result.operations
        return result

    async def check(self) -> None:
        """No commit was lost, none was counted twice."""
        found = 0
        for database in self._databases:
            [(n,)] = await database.query(COUNT)
            assert isinstance(n, int)
            found += n
        assert found == self._expected, f"counted {found:,}, acknowledged {self._expected:,}"


class Postgres:
    """The same row on a PostgreSQL server."""

    def __init__(self, runner: asyncio.Runner, running: Server) -> None:
        self._runner = runner
        self._server = running
        self._expected = 0

    async def prepare(self) -> str:
        """Make the table; returns the server's version, after making sure that it commits durably."""
        version = await self._server.check_durable()
        connection = await asyncpg.connect(self._server.url)
        await connection.execute(TABLE)
        await connection.execute(ROW)
        await connection.close()
        return version

    def round(self, clients: int, seconds: float) -> Round:
        """One turn with a pool of exactly so many connections, each with its prepared statement."""
        return self._runner.run(self._round(clients, seconds))

    async def _round(self, clients: int, seconds: float) -> Round:
        async with (
            asyncpg.create_pool(self._server.url, min_size=clients, max_size=clients) as pool,
            AsyncExitStack() as stack,
        ):
            connections = [await stack.enter_async_context(pool.acquire()) for _ in range(clients)]
            statements = [await connection.prepare(INCREMENT) for connection in connections]
            for _ in range(6):  # From the sixth time on the server keeps its plan.
                await asyncio.gather(*(statement.fetch(1) for statement in statements))
            asks = [functools.partial(statement.fetch, 1) for statement in statements]
            result = await run_clients(asks, seconds=seconds, cpu_seconds=self._server.cpu_seconds)
        self._expected += result.operations + 6 * clients
        return result

    async def check(self) -> None:
        """No commit was lost, none was counted twice."""
        connection = await asyncpg.connect(self._server.url)
        found = await connection.fetchval(COUNT)
        await connection.close()
        assert found == self._expected, f"counted {found:,}, acknowledged {self._expected:,}"


def sqlite_round(path: Path, seconds: float) -> Round:
    """SQLite by itself: one thread, one prepared statement, one transaction per commit, nothing else."""
    connection = apsw.Connection(str(path))
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = FULL")
    if not connection.table_exists("main", "counter"):
        connection.execute(TABLE)
        connection.execute(ROW)
    before = connection.execute(COUNT).get
    run = connection.cursor().execute
    latencies: list[float] = []
    gc.collect()
    cpu, begun = time.process_time(), time.perf_counter()
    asked, end = begun, begun + seconds
    while asked < end:
        run("UPDATE counter SET n = n + 1 WHERE id = ?", (1,))
        answered = time.perf_counter()
        latencies.append(answered - asked)
        asked = answered
    result = Round(len(latencies), asked - begun, time.process_time() - cpu, latencies)
    assert connection.execute(COUNT).get == before + result.operations
    connection.close()
    return result


def _waiting(seconds: float) -> Callable[[], None]:
    never = threading.Event()

    def hand_off() -> None:
        never.wait(seconds)

    return hand_off


def ratios_of(figures: Mapping[str, Figure], signal: Mapping[str, Figure]) -> dict[str, float]:
    """The ratios of one run, from the medians of its contestants."""
    rate = {name: figure.per_second for name, figure in figures.items()}
    return {
        "hot_row_256_vs_postgres_best": rate["lane, 256"] / rate[best_of_postgres(figures)],
        "hot_row_256_vs_sqlite": rate["lane, 256"] / rate[SQLITE],
        "single_client_vs_sqlite": rate["lane, 1"] / rate[SQLITE],
        "databases_8_scaling": rate[EIGHT_HANDED_ON] / rate[ONE_HANDED_ON],
        "signal_cost": signal[SIGNAL_ON].per_second / signal[SIGNAL_OFF].per_second,
    }


def best_of_postgres(figures: Mapping[str, Figure]) -> str:
    """The name of PostgreSQL's contestant with the highest rate."""
    return max((name for name in figures if name.startswith("PostgreSQL")), key=lambda name: figures[name].per_second)


def run(folder: Path, *, seconds: float, rounds: int) -> tuple[dict[str, Figure], dict[str, Figure], str]:
    """All rounds: the contestants, the pair for the signal's cost, and PostgreSQL's version."""
    with asyncio.Runner() as runner, server(folder) as running:
        stack = AsyncExitStack()

        def opened(*names: str, hand_off_s: float = 0.0) -> Lanes:
            urls = [f"lanes://{folder}/lanes/{name}" for name in names]
            return runner.run(Lanes.open(runner, stack, urls, hand_off_s=hand_off_s))

        lane, many = opened("hot"), opened("many", hand_off_s=HAND_OFF_S)
        one = opened("one", hand_off_s=HAND_OFF_S)
        eight = opened(*(f"lane-{number}" for number in range(LANES)), hand_off_s=HAND_OFF_S)
        postgres = Postgres(runner, running)
        version = runner.run(postgres.prepare())
        contestants: dict[str, Contestant] = {
            f"lane, {count}": functools.partial(lane.round, count, seconds) for count in LANE_CLIENTS
        }
        contestants[SQLITE] = lambda: sqlite_round(folder / "plain.sqlite", seconds)
        for count in POSTGRES_CLIENTS:
            contestants[f"PostgreSQL, {count}"] = functools.partial(postgres.round, count, seconds)
        contestants[ONE_HANDED_ON] = lambda: one.round(CLIENTS_PER_LANE, seconds)
        contestants[EIGHT_HANDED_ON] = lambda: eight.round(CLIENTS_PER_LANE, seconds)
        contestants[MANY_HANDED_ON] = lambda: many.round(1_000, seconds)
        figures = interleaved(contestants, rounds=rounds)
        # Two rates that are nearly the same need many short turns on one file: the machine's moods fall on both.
        signal = interleaved(
            {
                SIGNAL_ON: lambda: lane.watch(signal=True).round(SIGNAL_CLIENTS, SIGNAL_SECONDS),
                SIGNAL_OFF: lambda: lane.watch(signal=False).round(SIGNAL_CLIENTS, SIGNAL_SECONDS),
            },
            rounds=SIGNAL_ROUNDS,
        )
        for each in (lane, many, one, eight, postgres):
            runner.run(each.check())
        runner.run(stack.aclose())
        return figures, signal, version


def main() -> None:
    """Run, compare, report."""
    options = arguments(__doc__ or "")
    with tempfile.TemporaryDirectory(prefix="interlock-lanes-") as folder:
        figures, signal, version = run(
            Path(folder), seconds=0.25 if options.quick else 0.5, rounds=9 if options.quick else 31
        )
    publish(
        "lanes",
        figures={**figures, **signal},
        ratios=ratios_of(figures, signal),
        goals=GOALS,
        unit="commits",
        file=options.json,
        extra={
            "hand_off_1000_clients_per_s": figures[MANY_HANDED_ON].per_second,
            "postgres_best": best_of_postgres(figures),
            "postgres_version": version,
            "postgres_cpu": "of the client and of the server together",
        },
    )


if __name__ == "__main__":
    main()
