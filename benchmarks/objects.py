"""A database in a bucket: what a commit costs beside a local lane, what it weighs, and how long it takes to come back.

Everybody increments the same row, durably, through `Database`. Buckets of 2, 10 and 50 ms per write differ in nothing
but that; SeaweedFS is a real server over HTTP on the same cores; the local lane of the same run is the baseline. Every
contestant must have counted exactly the commits it acknowledged. Settings are the defaults, so leases are renewed
and snapshots taken while the clients write.
"""

import argparse
import asyncio
import functools
import os
import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import AsyncExitStack, ExitStack
from pathlib import Path

from rich.console import Console
from rich.table import Table

from benchmarks.buckets import Place, local, seaweedfs, slow
from benchmarks.clients import run_clients
from benchmarks.recovery import DEFAULT_LEASE_S, SHORT_LEASE_S, Log, Times, measure, plot
from benchmarks.report import WIDTH_IN_A_PIPE, Figure, Round, interleaved, publish
from benchmarks.weights import weigh
from interlock.database.database import Database
from interlock.lanes.lane_settings import LaneSettings

CLIENTS = (1, 16, 256, 1_000)
PUT_MS = (2, 10, 50)
SIZES = (1, 16, 256)
ROWS = 100_000
GOALS = {"many_clients_share_10_ms": 200.0}

TABLE = "CREATE TABLE counter (id integer PRIMARY KEY, n bigint NOT NULL)"
ROW = "INSERT INTO counter (id, n) VALUES (1, 0)"
INCREMENT = "UPDATE counter SET n = n + 1 WHERE id = $1"
COUNT = "SELECT n FROM counter WHERE id = 1"


class Counter:
    """A counter in one place."""

    def __init__(self, runner: asyncio.Runner, database: Database) -> None:
        self._runner = runner
        self._database = database
        self._expected = 0

    @classmethod
    async def open(cls, runner: asyncio.Runner, stack: AsyncExitStack, place: Place, folder: Path) -> "Counter":
        """Open a database there, with its row at zero."""
        database = await stack.enter_async_context(place.open("counter", folder, LaneSettings(idle_s=3_600)))
        await database.execute(TABLE)
        await database.execute(ROW)
        return cls(runner, database)

    def round(self, clients: int, seconds: float) -> Round:
        """One turn with so many clients."""
        asks = [functools.partial(self._database.execute, INCREMENT, 1)] * clients
        result = self._runner.run(run_clients(asks, seconds=seconds))
        self._expected += result.operations
        return result

    async def check(self) -> None:
        """No commit was lost, none was counted twice."""
        [(found,)] = await self._database.query(COUNT)
        assert found == self._expected, f"counted {found}, acknowledged {self._expected:,}"


def commits(
    folder: Path, places: Sequence[Place], clients: Sequence[int], *, seconds: float, rounds: int
) -> dict[str, Figure]:
    """Same-row increments in every place with every number of clients, in turns."""
    contestants: dict[str, Callable[[], Round]] = {}
    with asyncio.Runner() as runner:
        stack = AsyncExitStack()
        counters: list[Counter] = []
        for number, place in enumerate(places):
            counter = runner.run(Counter.open(runner, stack, place, folder / str(number)))
            counters.append(counter)
            for count in clients:
                contestants[contestant(place, count)] = functools.partial(counter.round, count, seconds)
        figures = interleaved(contestants, rounds=rounds)
        for counter in counters:
            runner.run(counter.check())
        runner.run(stack.aclose())
    return figures


def contestant(place: Place, clients: int) -> str:
    """The name of one line of the table."""
    return f"{place.name}, {clients}"


def ratios_of(figures: Mapping[str, Figure]) -> dict[str, float]:
    """What a bucket costs, as shares of the local lane's rate with as many clients, and what groups save."""
    rate = {name: figure.per_second for name, figure in figures.items()}
    shares = {
        f"bucket_{put_ms}_ms_{clients}_vs_local": rate[f"bucket, {put_ms} ms, {clients}"]
        / rate[f"local disk, {clients}"]
        for put_ms in PUT_MS
        for clients in (1, 1_000)
    }
    return {**shares, "many_clients_share_10_ms": rate["bucket, 10 ms, 1000"] / rate["bucket, 10 ms, 1"]}


def default_lease(times: Mapping[str, Times]) -> dict[str, float]:
    """Takeover after the default lease, where it was not waited for: that of the short one, and the difference."""
    short, long = f"another machine, lease {SHORT_LEASE_S:g} s", f"another machine, lease {DEFAULT_LEASE_S:g} s"
    return {
        name.replace(short, f"{long} (computed)"): each.median_ms + 1e3 * (DEFAULT_LEASE_S - SHORT_LEASE_S)
        for name, each in times.items()
        if name.endswith(short) and name.replace(short, long) not in times
    }


def show(
    console: Console, weights: Mapping[str, Mapping[int, float]], times: Mapping[str, Times], logs: Sequence[Log]
) -> None:
    """Print what is not a rate."""
    table = Table(title="bytes per commit in the bucket, by the size of the group")
    table.add_column("workload")
    for size in SIZES:
        table.add_column(f"{size:,}", justify="right")
    for name, by_size in weights.items():
        table.add_row(name, *(f"{value:,.1f}" for value in by_size.values()))
    console.print(table)
    table = Table(title="opening, ms")
    for heading in ("what", "median", "least", "most", "CPU"):
        table.add_column(heading, justify="left" if heading == "what" else "right", no_wrap=heading == "what")
    for name, each in times.items():
        found = each.as_json()
        table.add_row(name, *(f"{found[key]:,.0f}" for key in ("median_ms", "min_ms", "max_ms", "cpu_ms")))
    for name, value in default_lease(times).items():
        table.add_row(name, f"{value:,.0f}")
    console.print(table)
    for log in logs:
        console.print(f"  {log.name}: {log.replayed:,} groups replayed, {log.stored_bytes:,} bytes in all")


def arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="end within 90 seconds on 2 cores")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the report as JSON")
    parser.add_argument("--plot", type=Path, metavar="FILE", help="also draw the recovery, as SVG")
    return parser.parse_args()


def main() -> None:
    """Run, compare, report."""
    options = arguments()
    quick = options.quick
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="interlock-objects-")))
        server = stack.enter_context(seaweedfs())
        writing = [local(), *(slow(f"bucket, {put_ms} ms", put_s=put_ms / 1e3) for put_ms in PUT_MS), server]
        figures = commits(
            folder / "commits", writing, CLIENTS, seconds=0.25 if quick else 1.0, rounds=3 if quick else 5
        )
        weights = weigh(folder / "weights", rows=ROWS, sizes=SIZES, groups=10 if quick else 50)
        reading = [slow("2 ms per GET", get_s=0.002), server]
        times, logs = measure(
            folder / "recovery",
            reading,
            [slow("10 ms per request", get_s=0.010, put_s=0.010), server],
            lengths=(100, 300, 1_000) if quick else (100, 300, 1_000, 3_000, 5_000),
            rounds=3,
            wait=not quick,
        )
    load = os.getloadavg()[0]
    publish(
        "objects",
        figures=figures,
        ratios=ratios_of(figures),
        goals=GOALS,
        unit="commits",
        file=options.json,
        extra={
            "load_average_at_the_end": load,
            "bytes_per_commit": weights,
            **{name: each.as_json() for name, each in times.items()},
            **{name: {"computed_ms": round(value, 2)} for name, value in default_lease(times).items()},
            **{log.name: {"replayed": log.replayed, "bytes": log.stored_bytes} for log in logs},
        },
    )
    console = Console()
    show(console if console.is_terminal else Console(width=WIDTH_IN_A_PIPE), weights, times, logs)
    print(f"load average at the end: {load:.1f}")
    if options.plot is not None:
        options.plot.write_text(plot(times, logs, reading))


if __name__ == "__main__":
    main()
