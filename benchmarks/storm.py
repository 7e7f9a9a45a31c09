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
from dataclasses import dataclass, replace
from pathlib import Path

import msgspec
from rich.console import Console

from benchmarks.postgres import Server, server
from benchmarks.report import WIDTH_IN_A_PIPE, publish
from benchmarks.storming.arena import Setup, Turn, fresh_database, take_turn
from benchmarks.storming.load import Outcome
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
FLOOD_PER_S = 3_000

NAIVE_IN_FLIGHT = 128
"""Orders that the naive chain works on at once. See `naive` for how it was found."""
ENGINE_IN_FLIGHT = 256
ENGINE_IN_FLIGHT_ON_POSTGRES = 512
"""Calls at once. A place is held while the attempt is counted too, and that takes longer on PostgreSQL."""
ENGINE_CONNECTIONS = 6

SETUPS = {
    NAIVE: Setup(name=NAIVE, kind="naive", store="postgres", in_flight=NAIVE_IN_FLIGHT, connections=32),
    EMBEDDED: Setup(name=EMBEDDED, kind="interlocked", store="embedded", in_flight=ENGINE_IN_FLIGHT),
    POSTGRES: Setup(name=POSTGRES, kind="interlocked", store="postgres", in_flight=ENGINE_IN_FLIGHT_ON_POSTGRES),
}

SLOW = Weather(latency_ms=40, spread=0.6, error=0.02)
FAILING = Weather(latency_ms=10, error=0.15, refuse=0.03, reset=0.03, lose=0.01)
HANGING = Weather(latency_ms=10, error=0.03, hang=0.05, reset=0.01)
LOSING = Weather(latency_ms=10, error=0.03, hang=0.03, lose=0.05)
DOWN = Weather(down=True)
RECOVERING = Weather(latency_ms=30, spread=0.6, error=0.05, refuse=0.05)


@dataclass(frozen=True)
class Plan:
    """How long and how often."""

    rounds: int = 3
    scale: float = 2.0
    drain_s: float = 60.0
    pools: Sequence[int] = (8, 16, 32, 48)
    """Numbers of connections that are tried for the naive chain."""
    tries: int = 2
    trying_s: float = 2.0


QUICK = Plan(rounds=1, scale=0.6, drain_s=15.0, pools=(16, 32), trying_s=0.8)


def script(capacity_per_s: float, scale: float, *, seed: int = SEED) -> Script:
    """The storm. Rates rise from half of what the naive chain can do in calm weather to six times as much.

    The weather gets worse while they rise, ends in an outage, and clears up while the load is at its highest.
    """

    def segment(name: str, seconds: float, times: float, weather: Weather, **special: Weather) -> Segment:
        return Segment(
            name=name,
            seconds=scale * seconds,
            rate_per_s=times * capacity_per_s,
            weather=weather,
            special={f"/{endpoint}": each for endpoint, each in special.items()},
        )

    segments = (
        segment("calm", 0.3, 0.5, Weather()),
        segment("slow", 0.3, 1, SLOW),
        segment("failing", 0.6, 2, FAILING),
        segment("hanging", 1, 4, HANGING, charge=LOSING),
        segment("down", 1, 4, DOWN),
        segment("recovering", 1, 5, RECOVERING),
        segment("clear", 7.8, 6, Weather()),
    )
    return Script(seed=seed, segments=segments)


class Arena:
    """A folder, a PostgreSQL server and the contestants."""

    def __init__(self, folder: Path, running: Server | None) -> None:
        self._folder = folder
        self._running = running
        self._turns = 0
        if running is not None:
            asyncio.run(running.check_durable())

    def turn(self, setup: Setup, storm: Script, drain_s: float) -> Turn:
        """One contestant in one storm."""
        self._turns += 1
        folder = self._folder / f"turn_{self._turns}"
        used, url = None, f"lanes://{folder}/lane"
        if setup.store == "postgres":
            assert self._running is not None
            used, url = self._running, asyncio.run(fresh_database(self._running, folder.name))
            if setup.kind == "interlocked":
                url += f"{'&' if '?' in url else '?'}schema=storm&connections_max={ENGINE_CONNECTIONS}"
        return take_turn(setup, storm, folder=folder, url=url, server=used, drain_s=drain_s)

    def tuned(self, setup: Setup, plan: Plan) -> tuple[Setup, float]:
        """The naive chain with the number of connections that is best for it, and how many orders it then completes."""
        flood = Script(seed=SEED, segments=[Segment(name="flood", seconds=plan.trying_s, rate_per_s=FLOOD_PER_S)])
        rates: dict[int, float] = {}
        # The best of several tries: a machine that is busy with others makes a short one slow, and none of them fast.
        for connections in plan.tries * tuple(plan.pools):
            tried = msgspec.structs.replace(setup, connections=connections)
            turn = self.turn(tried, flood, 0.0)
            rate = turn.count(Outcome.COMPLETED) / turn.report.seconds
            rates[connections] = max(rate, rates.get(connections, 0.0))
        best = max(rates, key=lambda connections: rates[connections])
        return msgspec.structs.replace(setup, connections=best), rates[best]

    def run(self, setups: Sequence[Setup], storm: Script, plan: Plan) -> dict[str, list[Turn]]:
        """Let the contestants take turns."""
        turns: dict[str, list[Turn]] = {setup.name: [] for setup in setups}
        for number in range(plan.rounds):
            # The order rotates, so that nobody always runs behind the one that heats the machine.
            for setup in [*setups[number % len(setups) :], *setups[: number % len(setups)]]:
                turns[setup.name].append(self.turn(setup, storm, plan.drain_s))
        return turns


def parsed(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="a shorter storm: end within 90 seconds on 2 cores")
    parser.add_argument("--store", choices=STORES, default="both", help="the stores of Interlock (default: both)")
    parser.add_argument("--capacity", type=float, metavar="N", help="orders/s of the naive chain; measured if left out")
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
    plan = QUICK if options.quick else Plan()
    plan = replace(plan, rounds=options.rounds or plan.rounds)
    with tempfile.TemporaryDirectory(prefix="interlock-storm-") as folder, server(Path(folder)) as running:
        arena = Arena(Path(folder), running)
        naive, capacity = SETUPS[NAIVE], options.capacity
        if capacity is None:
            naive, capacity = arena.tuned(naive, plan)
        storm = script(capacity, plan.scale, seed=options.seed)
        turns = arena.run([*(SETUPS[name] for name in STORES[options.store]), naive], storm, plan)
    notes = {
        "rounds": plan.rounds,
        "seed": options.seed,
        "naive_calm_capacity_per_s": round(capacity, 1),
        "naive_in_flight": naive.in_flight,
        "naive_connections": naive.connections,
        "load_average_before": load,
        "cpu": "of the contestant's process and of the PostgreSQL server that works for it",
    }
    publish(
        "storm",
        figures={name: figure_of(storm, mine) for name, mine in turns.items()},
        ratios=ratios_of(storm, turns),
        goals=GOALS,
        at_most=AT_MOST,
        unit="orders",
        file=options.json,
        extra={"storm": storm_figures(turns), **notes},
    )
    console = Console(width=WIDTH_IN_A_PIPE)
    console.print(storm_table(storm, turns))
    console.print(timeline_table(storm, turns))
    for name, note in notes.items():
        print(f"  {name}: {note}")
    print(f"  the run took {time.monotonic() - begun:.0f} s")


if __name__ == "__main__":
    main()
