"""Orders in four durable steps: Interlock on a lane and on PostgreSQL, beside SQL by hand, DBOS and Restate.

An order is its start and four transitions, and its steps do nothing: what is measured is the price of durability. All
contestants are on one disk, wait for it before they acknowledge, and take turns in one run. The load is a closed loop
with so many orders in flight. By hand and with Interlock an order has a row with its state and a row of history for
each transition; DBOS and Restate keep only their own journal. Everybody on PostgreSQL uses the same server with the
same settings, and what the server does for them is counted too (see `metering`).

CPU is that of all processes that work for the contestant: client, service, server. Latencies are those of whole orders.
"""

import argparse
import asyncio
import functools
import os
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AbstractContextManager, AsyncExitStack, ExitStack
from dataclasses import dataclass, field
from pathlib import Path

from rich.console import Console

from benchmarks import hot_workflow, postgres_processes, stages
from benchmarks.embedded import MACHINES, TRANSITIONS, Embedded
from benchmarks.handwritten import Handwritten
from benchmarks.metering import BY_HAND, ENGINE, Meter, metered_table
from benchmarks.peers.contestants import dbos, restate
from benchmarks.peers.environment import FOLDER, Absent, Environment
from benchmarks.peers.processes import Peer
from benchmarks.postgres import Server, server
from benchmarks.report import WIDTH_IN_A_PIPE, Figure, Round, interleaved, publish
from interlock import Engine

GOALS = {
    "embedded_256_vs_handwritten": 15.0,
    "embedded_256_vs_onestatement": 4.0,
    "embedded_events_256_vs_onestatement": 5.0,
    "embedded_1_vs_onestatement": 0.9,
    "embedded_64_vs_dbos": 120.0,
    "embedded_64_vs_restate": 15.0,
    "postgres_256_vs_handwritten": 5.0,
    "postgres_256_vs_onestatement": 3.0,
    **hot_workflow.GOALS,
    **postgres_processes.GOALS,
}
MOONSHOTS = {
    "embedded_256_vs_handwritten": 20.0,
    "embedded_256_vs_onestatement": 5.0,
    "postgres_256_vs_handwritten": 8.0,
}

STEPS = "Interlock, steps"
EVENTS = "Interlock, events"
POSTGRES_STEPS = "Interlock on PostgreSQL, steps"
POSTGRES_EVENTS = "Interlock on PostgreSQL, events"
BY_TRANSACTIONS = "by hand, transactions"
TUNED = "by hand, tuned"
BY_STATEMENTS = "by hand, one statement"
DBOS = "DBOS"
RESTATE = "Restate"

KINDS = ("interlock", "handwritten", "dbos", "restate", "hot", "postgres", "processes")
ON_POSTGRES = {"handwritten", "dbos", "postgres"}
RATIOS = {
    "embedded_256_vs_handwritten": (STEPS, BY_TRANSACTIONS, 256),
    "embedded_256_vs_handwritten_tuned": (STEPS, TUNED, 256),
    "embedded_256_vs_onestatement": (STEPS, BY_STATEMENTS, 256),
    "embedded_events_256_vs_handwritten": (EVENTS, BY_TRANSACTIONS, 256),
    "embedded_events_256_vs_onestatement": (EVENTS, BY_STATEMENTS, 256),
    "embedded_1_vs_handwritten": (STEPS, BY_TRANSACTIONS, 1),
    "embedded_1_vs_onestatement": (STEPS, BY_STATEMENTS, 1),
    "postgres_256_vs_handwritten": (POSTGRES_STEPS, BY_TRANSACTIONS, 256),
    "postgres_256_vs_handwritten_tuned": (POSTGRES_STEPS, TUNED, 256),
    "postgres_256_vs_onestatement": (POSTGRES_STEPS, BY_STATEMENTS, 256),
    "postgres_events_256_vs_handwritten": (POSTGRES_EVENTS, BY_TRANSACTIONS, 256),
    "postgres_1_vs_handwritten": (POSTGRES_STEPS, BY_TRANSACTIONS, 1),
    "embedded_64_vs_dbos": (STEPS, DBOS, 64),
    "embedded_64_vs_restate": (STEPS, RESTATE, 64),
}

Contestant = Callable[[], Round]


@dataclass(frozen=True)
class Plan:
    """What runs, and for how long. A turn of a slow peer must be several times as long as one of its orders."""

    rounds: int = 7
    in_flight: Sequence[int] = (1, 16, 64, 256)
    by_hand_in_flight: Sequence[int] = (1, 16, 64, 256)
    dbos_in_flight: Sequence[int] = (1, 16, 64)
    restate_in_flight: Sequence[int] = (1, 64, 256)
    postgres_in_flight: Sequence[int] = (1, 64, 256)
    interlock_s: float = 0.8
    postgres_s: float = 1.0
    processes_s: float = 1.5
    by_hand_s: float = 1.0
    restate_s: float = 2.0
    dbos_s: float = 3.0
    trying_s: float = 0.8


QUICK = Plan(
    rounds=3,
    in_flight=(1, 64, 256),
    by_hand_in_flight=(1, 256),
    dbos_in_flight=(64,),
    restate_in_flight=(64,),
    postgres_in_flight=(1, 256),
    interlock_s=0.3,
    postgres_s=0.4,
    processes_s=0.4,
    by_hand_s=0.4,
    restate_s=0.9,
    dbos_s=2.0,
    trying_s=0.2,
)


@dataclass
class Arena:
    """Where contestants are made: they open what they need on the stacks, and say what became of them."""

    runner: asyncio.Runner
    folder: Path
    plan: Plan
    only: Collection[str]
    stack: ExitStack = field(default_factory=ExitStack)
    opened: AsyncExitStack = field(default_factory=AsyncExitStack)
    contestants: dict[str, Contestant] = field(default_factory=dict)
    checks: list[Callable[[], None]] = field(default_factory=list)
    notes: dict[str, object] = field(default_factory=dict)
    meter: Meter | None = None

    def engine(self, url: str | None = None) -> Engine:
        """An engine on a lane of its own, or at an address."""
        url = url or f"lanes://{self.folder}/engine-{len(self.checks)}"
        return self.runner.run(self.opened.enter_async_context(Engine.open(url, machines=list(MACHINES))))

    def interlock(self) -> None:
        """Both forms of the order on one engine."""
        embedded = Embedded(self.engine())
        for name, steps in ((STEPS, True), (EVENTS, False)):
            for count in self.plan.in_flight:
                turn = functools.partial(embedded.round, steps=steps, in_flight=count, seconds=self.plan.interlock_s)
                self.contestants[f"{name}, {count}"] = lambda turn=turn: self.runner.run(turn())  # type: ignore[misc]
        self.checks.append(lambda: self.runner.run(embedded.check()))

    def postgres(self, running: Server) -> None:
        """Both forms on PostgreSQL."""
        embedded = Embedded(self.engine(running.address("orders")), cpu_seconds=running.cpu_seconds)
        for name, steps, in_flight in (
            (POSTGRES_STEPS, True, self.plan.postgres_in_flight),
            (POSTGRES_EVENTS, False, self.plan.postgres_in_flight[-1:]),
        ):
            for count in in_flight:
                turn = functools.partial(embedded.round, steps=steps, in_flight=count, seconds=self.plan.postgres_s)
                self.contestants[f"{name}, {count}"] = lambda turn=turn: self.runner.run(turn())  # type: ignore[misc]
        self.checks.append(lambda: self.runner.run(embedded.check()))

    def handwritten(self, running: Server) -> Handwritten:
        """All forms by hand, each with the number of connections that is best for it."""
        by_hand = self.runner.run(self.opened.enter_async_context(Handwritten(running)))
        forms = (
            (BY_TRANSACTIONS, by_hand.by_the_book, self.plan.by_hand_in_flight),
            (TUNED, by_hand.by_transactions, (256,)),
            (BY_STATEMENTS, by_hand.by_statements, self.plan.by_hand_in_flight),
        )
        for name, work, in_flight in forms:
            size = self.runner.run(by_hand.best_size(work, in_flight=256, seconds=self.plan.trying_s))
            self.notes[f"connections, {name}"] = size
            for count in in_flight:
                turn = functools.partial(
                    by_hand.round,
                    work,
                    size=size,
                    in_flight=count,
                    seconds=self.plan.by_hand_s,
                    operations=TRANSITIONS,
                )
                self.contestants[f"{name}, {count}"] = lambda turn=turn: self.runner.run(turn())  # type: ignore[misc]
        return by_hand

    def peer(self, name: str, opening: AbstractContextManager[Peer], in_flight: Sequence[int], seconds: float) -> None:
        """A peer, or the reason why it is not here."""
        try:
            peer = self.stack.enter_context(opening)
        except Absent as reason:
            self.notes[f"skipped, {name}"] = str(reason)
            print(f"{name} is skipped: {reason}", file=sys.stderr)
            return
        self.notes[f"version, {name}"] = peer.version
        for count in in_flight:
            # One order at a time takes so little of its turn that half a turn is long enough.
            turn_s = seconds if count > 1 else seconds / 2
            self.contestants[f"{name}, {count}"] = functools.partial(peer.round, count, turn_s, TRANSITIONS)

    def hot(self, by_hand: Handwritten | None) -> None:
        """One hot workflow, on an engine of its own."""
        hot = hot_workflow.Hot(self.engine())
        self.runner.run(hot.prepare())
        size = self.runner.run(hot_workflow.best_size(by_hand, self.plan.trying_s)) if by_hand else 0
        self.notes["connections, hot row"] = size
        self.contestants |= hot_workflow.contestants(
            self.runner, hot, by_hand, size=size, seconds=self.plan.interlock_s
        )
        self.checks.append(lambda: self.runner.run(hot.check()))

    def hot_on_postgres(self, running: Server) -> None:
        """The same on PostgreSQL."""
        hot = hot_workflow.Hot(self.engine(running.address("hot")), cpu_seconds=running.cpu_seconds)
        self.runner.run(hot.prepare())
        self.contestants |= hot_workflow.postgres_contestants(self.runner, hot, seconds=self.plan.postgres_s)
        self.checks.append(lambda: self.runner.run(hot.check()))

    def metered(self) -> dict[str, Contestant]:
        """All contestants, and those on PostgreSQL say what the server did for them.

        Those that are compared have their turns next to each other, so that the machine's moods fall on both.
        """
        turns = sorted(self.contestants, key=lambda name: int(name.rpartition(", ")[2]))
        meter = self.meter
        return {
            name: meter.metered(self.contestants[name]) if meter and _on_postgres(name) else self.contestants[name]
            for name in turns
        }

    def count_statements(self) -> None:
        """One more turn each, of those with the most in flight, in which the server counts."""
        meter = self.meter
        if meter is not None:
            counted = {}
            for name, contestant in self.contestants.items():
                if _on_postgres(name) and (name.startswith("hot") or name.endswith(f", {self.plan.in_flight[-1]}")):
                    application = ENGINE if "PostgreSQL" in name else BY_HAND
                    counted[name] = round(meter.statements_each(contestant, application), 4)
            self.notes["statements_each"] = counted


def _on_postgres(name: str) -> bool:
    return "PostgreSQL" in name or "by hand" in name


def run(folder: Path, plan: Plan, only: Collection[str], peers: Path) -> tuple[dict[str, Figure], dict[str, object]]:
    """Open all contestants, let them take turns, check that nothing was lost, and end everything."""
    with asyncio.Runner() as runner, ExitStack() as stack:
        arena = Arena(runner, folder, plan, only, stack)
        running = stack.enter_context(server(folder)) if ON_POSTGRES & set(only) else None
        # Behind the server, so that its clients leave before it does.
        stack.callback(lambda: runner.run(arena.opened.aclose()))
        if running is not None:
            arena.meter = Meter(runner, running)
            stack.callback(arena.meter.close)
        environment = Environment(peers)
        by_hand = None
        if "interlock" in only:
            arena.interlock()
        if running is not None:
            arena.notes["postgres_version"] = runner.run(running.check_durable())
        if running is not None and "handwritten" in only:
            by_hand = arena.handwritten(running)
        if running is not None and "dbos" in only:
            opening = dbos(environment, folder, url=running.url, postmaster=running.postmaster)
            arena.peer(DBOS, opening, plan.dbos_in_flight, plan.dbos_s)
        if "restate" in only:
            arena.peer(RESTATE, restate(environment, folder), plan.restate_in_flight, plan.restate_s)
        if "hot" in only:
            arena.hot(by_hand)
        if running is not None and "postgres" in only:
            arena.postgres(running)
        if running is not None and {"hot", "postgres"} <= set(only):
            arena.hot_on_postgres(running)
        measured = interleaved(arena.metered(), rounds=plan.rounds)
        figures = {name: measured[name] for name in arena.contestants}
        arena.count_statements()
        for check in arena.checks:
            check()
        if by_hand is not None:
            runner.run(by_hand.check())
        return figures, arena.notes


def ratios_of(figures: Mapping[str, Figure]) -> dict[str, float]:
    """The ratios of one run, from the medians of its contestants; those whose contestants have not run are left out."""
    ratios: dict[str, float] = {}
    for ratio, (ours, theirs, count) in RATIOS.items():
        numerator, denominator = figures.get(f"{ours}, {count}"), figures.get(f"{theirs}, {count}")
        if numerator is not None and denominator is not None:
            ratios[ratio] = numerator.per_second / denominator.per_second
            if ratio in GOALS:
                # How many times less CPU: on a machine with other work this says more than the rates do.
                ratios[f"{ratio}_in_cpu"] = denominator.cpu_ms / numerator.cpu_ms
    return {**ratios, **hot_workflow.ratios_of(figures), **postgres_processes.ratios_of(figures)}


def parsed(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="fewer sizes and rounds: end within 90 seconds on 2 cores")
    parser.add_argument("--only", metavar="KINDS", help=f"a comma-separated selection of {', '.join(KINDS)}")
    parser.add_argument("--peers", type=Path, default=FOLDER, metavar="FOLDER", help="where the peers are installed")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the report as JSON")
    parser.add_argument("--profile", action="store_true", help="only calls and CPU time per stage of the data path")
    options = parser.parse_args(arguments)
    options.only = tuple((options.only or ",".join(KINDS)).split(","))
    if unknown := sorted(set(options.only) - set(KINDS)):
        parser.error(f"--only: {', '.join(unknown)} is not among {', '.join(KINDS)}")
    return options


def main() -> None:
    """Run, compare, report."""
    options = parsed()
    # Whoever stops this program stops the servers that it has started.
    signal.signal(signal.SIGTERM, lambda number, _frame: sys.exit(128 + number))
    if options.profile:
        with tempfile.TemporaryDirectory(prefix="interlock-stages-") as folder:
            stages.show(Path(folder))
        return
    load = [round(each, 2) for each in os.getloadavg()]
    begun = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="interlock-orders-") as folder:
        plan = QUICK if options.quick else Plan()
        figures, notes = run(Path(folder), plan, options.only, options.peers)
        if "processes" in options.only:
            figures |= postgres_processes.run(Path(folder) / "processes", rounds=plan.rounds, seconds=plan.processes_s)
    ratios = ratios_of(figures)
    publish(
        "orders",
        figures=figures,
        ratios=ratios,
        goals=GOALS,
        at_most=hot_workflow.AT_MOST,
        unit="transitions",
        file=options.json,
        extra={
            **notes,
            **{name: figure.as_json() for name, figure in postgres_processes.best(figures).items()},
            **{f"moonshot_{ratio}": moonshot for ratio, moonshot in MOONSHOTS.items()},
            "load_average_before": load,
            "cpu": "of all processes that work for the contestant",
        },
    )
    for ratio, moonshot in MOONSHOTS.items():
        if (ours := ratios.get(ratio)) is not None:
            print(f"  moonshot for {ratio} ≥ {moonshot:g}: {'met' if ours >= moonshot else 'not met'}")
    statements = notes.pop("statements_each", {})
    if isinstance(statements, dict) and statements:
        Console(width=WIDTH_IN_A_PIPE).print(metered_table(figures, statements))
    for name, note in notes.items():
        print(f"  {name}: {note}")
    print(f"  load average before the run: {', '.join(map(str, load))}; the run took {time.monotonic() - begun:.0f} s")


if __name__ == "__main__":
    main()
