"""Several engine processes on one PostgreSQL: two of them together, beside the best that a single one can do.

Each process has an engine of its own and feeds it with orders in a closed loop; the processes of a turn are asked at
the same moment, and the turn is as long as its longest. A single one gets its best chance: it is measured with 256 and
with 512 orders in flight, and two processes with 256 each. They have a server to themselves, because all connections
that a server allows are in use where other contestants are; the single process and the pair have a schema each, in
which every acknowledged order is looked for at the end.
"""

import asyncio
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path

import asyncpg

from benchmarks.embedded import MACHINES, TRANSITIONS, Embedded
from benchmarks.metering import Meter
from benchmarks.peers.answering import answer, claim_answers
from benchmarks.peers.processes import Peer
from benchmarks.peers.processes import running as process_running
from benchmarks.postgres import Server, server
from benchmarks.report import Figure, Round, interleaved
from interlock import Engine

PROCESSES = (1, 2)
IN_FLIGHT = 256
RATIO = "postgres_2_processes_vs_1"
GOALS = {RATIO: 1.5}

Contestant = Callable[[], Round]


class Feeders:
    """Some processes that feed one schema."""

    def __init__(self, on: Server, schema: str, peers: list[Peer], pool: ThreadPoolExecutor) -> None:
        self._server = on
        self._schema = schema
        self._peers = peers
        self._pool = pool
        self._placed = 0

    def round(self, in_flight: int, seconds: float) -> Round:
        """One turn of all of them at once, with so many orders in flight together."""
        server_s = self._server.own_cpu_seconds()
        share = in_flight // len(self._peers)
        turns = [self._pool.submit(peer.round, share, seconds, TRANSITIONS) for peer in self._peers]
        rounds = [turn.result() for turn in turns]
        operations = sum(each.operations for each in rounds)
        self._placed += operations // TRANSITIONS
        return Round(
            operations,
            max(each.seconds for each in rounds),
            sum(each.cpu_seconds for each in rounds) + self._server.own_cpu_seconds() - server_s,
            [latency for each in rounds for latency in each.latencies_s],
        )

    async def check(self) -> None:
        """Every order that was acknowledged has arrived."""
        connection = await asyncpg.connect(self._server.url)
        arrived = await connection.fetchval(
            f"SELECT count(*) FROM {self._schema}.workflows WHERE state = 'shipped' AND version = 5"  # noqa: S608
        )
        await connection.close()
        assert arrived == self._placed, f"{arrived:,} of {self._placed:,} orders arrived"


@contextmanager
def feeders(on: Server, folder: Path, count: int) -> Iterator[Feeders]:
    """So many processes, ready to be asked."""
    schema = f"processes_{count}"
    with ExitStack() as stack:
        peers: list[Peer] = []
        for number in range(count):
            log = folder / f"{schema}-{number}.log"
            command = [sys.executable, "-m", "benchmarks.postgres_processes", on.address(schema), f"p{number}"]
            # The packages that this process uses, wherever they were found.
            paths = {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
            process = stack.enter_context(process_running(command, log=log, environment=paths))
            peers.append(Peer(process, log, ()))
        pool = stack.enter_context(ThreadPoolExecutor(count))
        yield Feeders(on, schema, peers, pool)


def run(folder: Path, *, rounds: int, seconds: float, in_flight: int = IN_FLIGHT) -> dict[str, Figure]:
    """Everything: a server, the processes, their turns, and the look for what they were told."""
    folder.mkdir()
    with asyncio.Runner() as runner, ExitStack() as stack:
        running = stack.enter_context(server(folder))
        runner.run(running.check_durable())
        meter = Meter(runner, running)
        stack.callback(meter.close)
        teams = {count: stack.enter_context(feeders(running, folder, count)) for count in PROCESSES}
        turns = contestants(teams, seconds=seconds, in_flight=in_flight)
        figures = interleaved({name: meter.metered(turn) for name, turn in turns.items()}, rounds=rounds)
        for team in teams.values():
            runner.run(team.check())
        return figures


def contestants(teams: Mapping[int, Feeders], *, seconds: float, in_flight: int = IN_FLIGHT) -> dict[str, Contestant]:
    """The turns: a single process with the orders of one and of two, and two processes."""
    found: dict[str, Contestant] = {}
    for count, team in teams.items():
        for flying in sorted({in_flight * count, in_flight * max(PROCESSES)}):
            found[_name(count, flying)] = lambda team=team, flying=flying: team.round(flying, seconds)  # type: ignore[misc]
    return found


def best(figures: Mapping[str, Figure]) -> dict[str, Figure]:
    """The best figure of each number of processes, under the names that the report has for them."""
    found: dict[str, Figure] = {}
    for count in PROCESSES:
        ours = [figure for name, figure in figures.items() if name.startswith(_name(count, "").rstrip())]
        if ours:
            found[f"postgres_{count}_process{'es' if count > 1 else ''}"] = max(ours, key=lambda each: each.per_second)
    return found


def ratios_of(figures: Mapping[str, Figure]) -> dict[str, float]:
    """Two together, compared with the best single one."""
    single, pair = (best(figures).get(name) for name in ("postgres_1_process", "postgres_2_processes"))
    return {RATIO: pair.per_second / single.per_second} if single and pair else {}


def _name(count: int, in_flight: int | str) -> str:
    return f"{count} {'process' if count == 1 else 'processes'} on PostgreSQL, {in_flight}"


async def feed(url: str, name: str) -> None:
    """The inside of a process: an engine, and turns as they are asked for."""
    answers = claim_answers()
    async with Engine.open(url, machines=list(MACHINES)) as engine:
        orders = Embedded(engine, name=name)

        async def order(_client: int) -> None:
            await orders.by_steps()

        await answer(answers, order)


if __name__ == "__main__":
    asyncio.run(feed(*sys.argv[1:]))
