"""Children of one parent that end and are joined, beside SQL by hand and DBOS in the same run: E1, E2.

`python -m benchmarks.family [--quick] [--only KINDS] [--json FILE]`. A parent starts the children; then every child
gets the event that ends it, in batches, and the parent is joined. Each round has a process and a home of its own. The
rate of *ends* is measured from the first event until the join, that of *families* from the start of the parent. Memory
is the growth of the process's resident memory between the first event and its highest value.

By hand there is a table of tasks with a counter in the parent's row: in batches of the same size, on SQLite with
`synchronous=FULL` and on PostgreSQL, and with a transaction for each end, as handlers of single messages have them. It
has no history, no keys, no guards and no recovery. A parent on DBOS starts its children as workflows, and waits.
"""

import argparse
import asyncio
import json
import os
import resource
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from enum import Enum
from pathlib import Path

import asyncpg

from benchmarks.peers.contestants import dbos_families
from benchmarks.peers.environment import FOLDER, Absent, Environment
from benchmarks.postgres import Server, server
from benchmarks.report import Figure, Round, interleaved, publish, timed
from interlock import Child, Engine, Event, Family, Machine

BATCH = 1_000
CLIENTS = 8
KINDS = ("lane", "postgres", "hand", "dbos")
LANE, POSTGRES = "Interlock on a lane", "Interlock on PostgreSQL"
SQLITE, BATCHES, SINGLY = "by hand, SQLite, batches", "by hand, PostgreSQL, batches", "by hand, PostgreSQL, singly"
DBOS = "DBOS, whole families"
RATIOS = {
    "lane_vs_handwritten_sqlite": (LANE, SQLITE),
    "lane_vs_handwritten": (LANE, SINGLY),
    "postgres_vs_handwritten": (POSTGRES, SINGLY),
    "postgres_vs_handwritten_batches": (POSTGRES, BATCHES),
    "lane_family_vs_dbos": (f"{LANE}, whole families", DBOS),
    "postgres_family_vs_dbos": (f"{POSTGRES}, whole families", DBOS),
}
GOALS = {"ends_per_s_lane": 20_000.0, "grown_mb_lane": 30.0, "grown_mb_postgresql": 30.0}
AT_MOST = ("grown_mb_lane", "grown_mb_postgresql")


@dataclass(frozen=True)
class Plan:
    """How many children a family of each contestant has. Rates are compared, so slow ones have fewer."""

    rounds: int = 3
    children: int = 100_000
    children_on_postgres: int = 100_000
    children_singly: int = 5_000
    children_on_dbos: int = 1_000


QUICK = Plan(children=20_000, children_on_postgres=5_000, children_singly=500, children_on_dbos=100)


class ChildState(Enum):
    """A child."""

    OPEN = "open"
    DONE = "done"


class ChildEvent(Event):
    """The alphabet of children."""


class Finish(ChildEvent):
    """It is done."""


@dataclass(frozen=True)
class Item:
    """Nothing but a number."""

    number: int


child = Machine(
    "child", states=ChildState, context=Item, events=ChildEvent, initial=ChildState.OPEN, final={ChildState.DONE}
)
child.on(Finish, ChildState.OPEN, to=ChildState.DONE)


class ParentState(Enum):
    """A parent."""

    WAITING = "waiting"
    DONE = "done"


class ParentEvent(Event):
    """The alphabet of parents."""


@dataclass(frozen=True)
class Parent:
    """How many children, and how many have ended."""

    children: int
    ended: int = 0


parent = Machine(
    "parent", states=ParentState, context=Parent, events=ParentEvent, initial=ParentState.WAITING,
    final={ParentState.DONE},
)  # fmt: skip


@parent.children(ParentState.WAITING, of=child, leave="abandon")
def children(context: Parent) -> Iterable[Child[Item]]:
    """All of them."""
    return (Child(f"{number}", Item(number)) for number in range(context.children))


@parent.join(ParentState.WAITING, to=ParentState.DONE)
def joined(context: Parent, family: Family) -> Parent:
    """Note the number."""
    return replace(context, ended=family.ended)


def resident_kb() -> int:
    """Return the resident memory of this process now."""
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    return pages * resource.getpagesize() // 1024


async def is_started(engine: Engine, count: int) -> bool:
    """Whether all children have started."""
    return (await engine.get("p")).waiting == f"waits for {count} of {count} children"


async def measure(home: str, count: int) -> dict[str, float]:
    """Start, end and join the children of one parent. The body of a process of its own."""
    async with Engine.open(home, machines=[parent, child]) as engine:
        first_s, first_cpu_s = time.perf_counter(), time.process_time()
        await engine.start(parent, "p", Parent(count))
        while not await is_started(engine, count):  # noqa: ASYNC110 -- the text is the only sign.
            await asyncio.sleep(0.02)
        before_kb = highest_kb = resident_kb()
        begun_s, cpu_s = time.perf_counter(), time.process_time()
        for begin in range(0, count, BATCH):
            await engine.send_many([(f"p.{number}", Finish()) for number in range(begin, min(count, begin + BATCH))])
            highest_kb = max(highest_kb, resident_kb())
        view = await engine.wait("p", ParentState.DONE)
        now_s, now_cpu_s = time.perf_counter(), time.process_time()
        assert view.context == Parent(count, count), view.context
        assert view.version == 2, "the ends have added rows to the history of the parent"
        return {
            "family_s": now_s - first_s,
            "family_cpu_s": now_cpu_s - first_cpu_s,
            "ends_s": now_s - begun_s,
            "ends_cpu_s": now_cpu_s - cpu_s,
            "grown_mb": (highest_kb - before_kb) / 1024,
        }


# --- By hand ---------------------------------------------------------------------------------------------------------


def on_sqlite(folder: Path, count: int) -> Round:
    """End the tasks in batches: a transaction each."""
    with tempfile.TemporaryDirectory(dir=folder) as fresh:
        connection = sqlite3.connect(f"{fresh}/hand.db", isolation_level=None)
        connection.executescript(
            "PRAGMA journal_mode=WAL; PRAGMA synchronous=FULL;"
            "CREATE TABLE tasks (id TEXT PRIMARY KEY, done INTEGER NOT NULL);"
            "CREATE TABLE parents (id TEXT PRIMARY KEY, ended INTEGER NOT NULL); INSERT INTO parents VALUES ('p', 0);"
        )
        connection.execute("BEGIN")
        connection.executemany("INSERT INTO tasks VALUES (?, 0)", ((f"p.{number}",) for number in range(count)))
        connection.execute("COMMIT")

        def end() -> None:
            for begin in range(0, count, BATCH):
                connection.execute("BEGIN IMMEDIATE")
                for number in range(begin, min(count, begin + BATCH)):
                    connection.execute("UPDATE tasks SET done = 1 WHERE id = ? AND done = 0", (f"p.{number}",))
                    connection.execute("UPDATE parents SET ended = ended + 1 WHERE id = 'p'")
                connection.execute("COMMIT")

        result = timed(count, end)
        assert connection.execute("SELECT ended FROM parents").fetchone() == (count,)
        connection.close()
    return result


async def on_postgres(running: Server, count: int, *, together: int) -> Round:
    """End the tasks on PostgreSQL, so many in one transaction; the clients wait for each other at the parent's row."""
    pool = await asyncpg.create_pool(running.url, min_size=CLIENTS, max_size=CLIENTS)
    try:
        await pool.execute(
            "DROP TABLE IF EXISTS tasks, parents;"
            "CREATE TABLE tasks (id text PRIMARY KEY, done boolean NOT NULL);"
            "CREATE TABLE parents (id text PRIMARY KEY, ended bigint NOT NULL); INSERT INTO parents VALUES ('p', 0);"
        )
        await pool.execute("INSERT INTO tasks SELECT 'p.' || n, false FROM generate_series(0, $1 - 1) AS n", count)
        await pool.execute("ANALYZE tasks")
        batches = iter(range(0, count, together))

        async def client() -> None:
            for begin in batches:
                ids = [f"p.{number}" for number in range(begin, min(count, begin + together))]
                async with pool.acquire() as connection, connection.transaction():
                    ended = await connection.execute(
                        "UPDATE tasks SET done = true WHERE id = ANY($1) AND NOT done", ids
                    )
                    await connection.execute(
                        "UPDATE parents SET ended = ended + $1 WHERE id = 'p'", int(ended.split()[-1])
                    )

        begun_s, cpu_s = time.perf_counter(), running.cpu_seconds()
        await asyncio.gather(*(client() for _ in range(CLIENTS)))
        result = Round(count, time.perf_counter() - begun_s, running.cpu_seconds() - cpu_s)
        assert await pool.fetchval("SELECT ended FROM parents") == count
    finally:
        await pool.close()
    return result


# --- Rounds ----------------------------------------------------------------------------------------------------------


class Ours:
    """Rounds of Interlock at one kind of home, each in a process of its own."""

    def __init__(self, home: Callable[[int], str], count: int, own_cpu_s: Callable[[], float]) -> None:
        self._home = home
        self._count = count
        self._own_cpu_s = own_cpu_s
        self._number = 0
        self.whole = Figure()
        """From the start of the parent to its join."""
        self.grown_mb: list[float] = []

    def round(self) -> Round:
        """Return the round of the ends."""
        self._number += 1
        command = [sys.executable, "-m", "benchmarks.family", "--inside", self._home(self._number)]
        before_s = self._own_cpu_s()
        done = subprocess.run(  # noqa: S603 -- this program.
            [*command, "--children", str(self._count)], check=True, stdout=subprocess.PIPE, text=True, env=os.environ
        )
        served_s = self._own_cpu_s() - before_s
        found = json.loads(done.stdout)
        if self._number > 1:
            self.whole.rounds.append(Round(self._count, found["family_s"], found["family_cpu_s"] + served_s))
        self.grown_mb.append(found["grown_mb"])
        # The server's CPU is that of the whole family, so this is an upper bound.
        return Round(self._count, found["ends_s"], found["ends_cpu_s"] + served_s)


def run(folder: Path, plan: Plan, only: Sequence[str], peers: Path) -> tuple[dict[str, Figure], dict[str, object]]:
    """Let all contestants take turns."""
    notes: dict[str, object] = {}
    contestants: dict[str, Callable[[], Round]] = {}
    ours: dict[str, Ours] = {}
    with ExitStack() as stack:
        running = stack.enter_context(server(folder)) if {"postgres", "hand", "dbos"} & set(only) else None
        if "lane" in only:
            ours[LANE] = Ours(lambda number: f"lanes://{folder}/home-{number}", plan.children, float)
        if running is not None and "postgres" in only:
            address, cpu_s = running.address, running.own_cpu_seconds
            ours[POSTGRES] = Ours(lambda number: address(f"family_{number}"), plan.children_on_postgres, cpu_s)
        contestants.update({name: each.round for name, each in ours.items()})
        if running is not None and "hand" in only:
            runner = stack.enter_context(asyncio.Runner())
            notes["postgres_version"] = runner.run(running.check_durable())
            contestants |= {
                SQLITE: lambda: on_sqlite(folder, plan.children),
                BATCHES: lambda: runner.run(on_postgres(running, plan.children_on_postgres, together=BATCH)),
                SINGLY: lambda: runner.run(on_postgres(running, plan.children_singly, together=1)),
            }
        if running is not None and "dbos" in only:
            opening = dbos_families(Environment(peers), folder, url=running.url, postmaster=running.postmaster)
            try:
                peer = stack.enter_context(opening)
                notes["dbos_version"] = peer.version
                contestants[DBOS] = lambda: peer.round(plan.children_on_dbos, 0, plan.children_on_dbos)
            except Absent as error:
                notes["dbos"] = f"skipped: {error}"
        figures = interleaved(contestants, rounds=plan.rounds)
        for name, each in ours.items():
            figures[f"{name}, whole families"] = each.whole
            notes[f"grown_mb_{name.rpartition(' ')[2].lower()}"] = round(max(each.grown_mb), 1)
    return figures, notes


def ratios_of(figures: Mapping[str, Figure]) -> dict[str, float]:
    """The ratios of one run; those whose contestants have not run are left out."""
    return {
        ratio: figures[ours].per_second / figures[theirs].per_second
        for ratio, (ours, theirs) in RATIOS.items()
        if ours in figures and theirs in figures
    }


def main() -> None:
    """Run, compare, report."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="fewer children: end within 90 seconds on 2 cores")
    parser.add_argument("--only", metavar="KINDS", default=",".join(KINDS), help=f"a selection of {', '.join(KINDS)}")
    parser.add_argument("--peers", type=Path, default=FOLDER, metavar="FOLDER", help="where the peers are installed")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the report as JSON")
    parser.add_argument("--children", type=int, metavar="N", help="children of each of our families")
    parser.add_argument("--inside", metavar="URL", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.inside:
        print(json.dumps(asyncio.run(measure(given.inside, given.children))))
        return
    plan = QUICK if given.quick else Plan()
    if given.children:
        plan = replace(plan, children=given.children, children_on_postgres=given.children)
    with tempfile.TemporaryDirectory(prefix="interlock-family-") as folder:
        figures, notes = run(Path(folder), plan, given.only.split(","), given.peers)
    ends = {
        f"ends_per_s_{name.rpartition(' ')[2].lower()}": figures[name].per_second
        for name in (LANE, POSTGRES)
        if name in figures
    }
    publish(
        "family",
        figures=figures,
        ratios=ratios_of(figures),
        goals=GOALS,
        at_most=AT_MOST,
        unit="children",
        file=given.json,
        extra={**notes, **ends, "children": plan.children, "children_on_postgres": plan.children_on_postgres},
    )


if __name__ == "__main__":
    main()
