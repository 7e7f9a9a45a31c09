"""The storm: a chain of calls to a payment gateway that slows down, fails, hangs, loses answers and goes away.

Interlock, embedded and on PostgreSQL, beside the chain that a good engineer writes without an engine (`naive`). Orders
arrive by a schedule that does not wait for anybody, at rates that double until the naive chain cannot follow, while the
gateway goes through the same weather for everybody. Every contestant has a process, a store and a gateway of its own;
they take turns in one run. CPU is that of the contestant's process and of the PostgreSQL server that works for it.
"""

import argparse
import asyncio
import os
import signal
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

from rich.console import Console

from benchmarks.postgres import Server, server
from benchmarks.report import WIDTH_IN_A_PIPE, publish
from benchmarks.storming.arena import Setup, Turn, fresh_database, take_turn
from benchmarks.storming.verdict import (
    AT_MOST,
    EMBEDDED,
    GOALS,
    NAIVE,
    POSTGRES,
    figure_of,
    ratios_of,
    storm_figures,
    storm_table,
    timeline_table,
)
from benchmarks.storming.weather import Script, Segment, Weather

STORES = {"embedded": (EMBEDDED,), "postgres": (POSTGRES,), "both": (EMBEDDED, POSTGRES)}
SEED = 7
DRAIN_S = 20.0

NAIVE_IN_FLIGHT = 256
NAIVE_CONNECTIONS = 16
ENGINE_IN_FLIGHT = 256
ENGINE_CONNECTIONS = 6

SETUPS = {
    NAIVE: Setup(name=NAIVE, kind="naive", store="postgres", in_flight=NAIVE_IN_FLIGHT, connections=NAIVE_CONNECTIONS),
    EMBEDDED: Setup(name=EMBEDDED, kind="interlocked", store="embedded", in_flight=ENGINE_IN_FLIGHT),
    POSTGRES: Setup(name=POSTGRES, kind="interlocked", store="postgres", in_flight=ENGINE_IN_FLIGHT),
}

SLOW = Weather(latency_ms=40, spread=0.6, error=0.02)
FAILING = Weather(latency_ms=10, error=0.15, refuse=0.03, reset=0.03, lose=0.01)
HANGING = Weather(latency_ms=10, error=0.03, hang=0.05, reset=0.01)
LOSING = Weather(latency_ms=10, error=0.03, hang=0.03, lose=0.05)
DOWN = Weather(down=True)
RECOVERING = Weather(latency_ms=30, spread=0.6, error=0.05, refuse=0.05)


def script(scale: float, *, seed: int = SEED) -> Script:
    """The storm: the rate doubles, and the weather gets worse, ends in an outage, and clears up."""
    segments = (
        Segment(name="calm", seconds=scale, rate_per_s=100),
        Segment(name="slow", seconds=scale, rate_per_s=200, weather=SLOW),
        Segment(name="failing", seconds=scale, rate_per_s=400, weather=FAILING),
        Segment(name="hanging", seconds=scale, rate_per_s=800, weather=HANGING, special={"/charge": LOSING}),
        Segment(name="down", seconds=scale, rate_per_s=1_600, weather=DOWN),
        Segment(name="recovering", seconds=scale, rate_per_s=1_600, weather=RECOVERING),
        Segment(name="clear", seconds=scale, rate_per_s=3_200),
    )
    return Script(seed=seed, segments=segments)


def run(
    folder: Path, storm: Script, *, names: Sequence[str], rounds: int, drain_s: float = DRAIN_S
) -> dict[str, list[Turn]]:
    """Let the contestants take turns."""
    turns: dict[str, list[Turn]] = {name: [] for name in names}
    with ExitStack() as stack:
        needed = any(SETUPS[name].store == "postgres" for name in names)
        running = stack.enter_context(server(folder)) if needed else None
        if running is not None:
            asyncio.run(running.check_durable())
        for number in range(rounds):
            # The order rotates, so that nobody always runs behind the one that heats the machine.
            for name in [*names[number % len(names) :], *names[: number % len(names)]]:
                place = folder / f"turn-{number}-{list(names).index(name)}"
                turns[name].append(_turn(SETUPS[name], storm, place, running, drain_s))
    return turns


def _turn(setup: Setup, storm: Script, folder: Path, running: Server | None, drain_s: float) -> Turn:
    used, url = None, f"lanes://{folder}/lane"
    if setup.store == "postgres":
        assert running is not None
        used, url = running, asyncio.run(fresh_database(running, folder.name.replace("-", "_")))
        if setup.kind == "interlocked":
            url += f"{'&' if '?' in url else '?'}schema=storm&connections_max={ENGINE_CONNECTIONS}"
    return take_turn(setup, storm, folder=folder, url=url, server=used, drain_s=drain_s)


def parsed(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="a shorter storm: end within 90 seconds on 2 cores")
    parser.add_argument("--store", choices=STORES, default="both", help="the stores of Interlock (default: both)")
    parser.add_argument("--rounds", type=int, metavar="N", help="storms for each contestant")
    parser.add_argument("--seed", type=int, default=SEED, help=f"of arrivals and weather (default: {SEED})")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the report as JSON")
    return parser.parse_args(arguments)


def main() -> None:
    """Run, compare, report."""
    options = parsed()
    # Whoever stops this program stops the servers that it has started.
    signal.signal(signal.SIGTERM, lambda number, _frame: sys.exit(128 + number))
    load = [round(each, 2) for each in os.getloadavg()]
    begun = time.monotonic()
    storm = script(1.0 if options.quick else 2.0, seed=options.seed)
    rounds = options.rounds or (1 if options.quick else 3)
    with tempfile.TemporaryDirectory(prefix="interlock-storm-") as folder:
        turns = run(Path(folder), storm, names=(*STORES[options.store], NAIVE), rounds=rounds)
    publish(
        "storm",
        figures={name: figure_of(storm, mine) for name, mine in turns.items()},
        ratios=ratios_of(storm, turns),
        goals=GOALS,
        at_most=AT_MOST,
        unit="orders",
        file=options.json,
        extra={
            "storm": storm_figures(turns),
            "rounds": rounds,
            "seed": options.seed,
            "naive_in_flight": NAIVE_IN_FLIGHT,
            "naive_connections": NAIVE_CONNECTIONS,
            "load_average_before": load,
            "cpu": "of the contestant's process and of the PostgreSQL server that works for it",
        },
    )
    console = Console(width=WIDTH_IN_A_PIPE)
    console.print(storm_table(storm, turns))
    console.print(timeline_table(storm, turns))
    at_once = f"{NAIVE_IN_FLIGHT} orders at once over {NAIVE_CONNECTIONS} connections"
    print(f"  {rounds} round(s), seed {options.seed}; the naive chain works on {at_once}")
    print(f"  load average before the run: {', '.join(map(str, load))}; the run took {time.monotonic() - begun:.0f} s")


if __name__ == "__main__":
    main()
