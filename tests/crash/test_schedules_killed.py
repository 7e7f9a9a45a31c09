"""E6: each due time starts one workflow, while the processes that serve the schedule are killed and frozen at random.

`INTERLOCK_CRASHES=50` makes 50 schedules, so about 1,000 due times.
"""

import contextlib
import os
import random
import signal
import subprocess
import sys
from collections.abc import Iterator
from datetime import datetime, timedelta

import pytest

from interlock import Engine
from interlock.engine.schedules import start_id
from tests.conformance.engine.places import run, settled
from tests.conformance.engine.test_schedules import ReportMachine, report
from tests.crash.schedules_killed import secondly

SCHEDULES = int(os.environ.get("INTERLOCK_CRASHES", "4"))
PROCESSES = 4
DUE_EACH = 20
"""Due times of each schedule, at least."""


class Fleet:
    """Processes that serve the same schedules. One that is killed is started again."""

    def __init__(self, url: str, chance: random.Random) -> None:
        self._url = url
        self._chance = chance
        self._running = [self._start() for _ in range(PROCESSES)]
        for each in self._running:
            assert each.stdout is not None
            assert each.stdout.readline() == "open\n"
        self.killed = self.frozen = 0

    def _start(self) -> subprocess.Popen[str]:
        command = [sys.executable, "-m", "tests.crash.schedules_killed", self._url, str(SCHEDULES)]
        return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)

    def harm(self) -> None:
        """Kill one process, or freeze it for longer than its leases."""
        place = self._chance.randrange(PROCESSES)
        process = self._running[place]
        if self._chance.random() < 0.5:
            self._end(process)
            self._running[place] = self._start()
            self.killed += 1
        else:
            process.send_signal(signal.SIGSTOP)
            with contextlib.suppress(subprocess.TimeoutExpired):  # A frozen process does not end.
                process.wait(self._chance.uniform(0.5, 3.0))
            process.send_signal(signal.SIGCONT)
            self.frozen += 1

    def close(self) -> None:
        """Kill all."""
        for each in self._running:
            self._end(each)

    def _end(self, process: subprocess.Popen[str]) -> None:
        process.kill()
        process.wait()
        assert process.stdout is not None
        process.stdout.close()


@contextlib.contextmanager
def fleet(url: str, chance: random.Random) -> Iterator[Fleet]:
    """Start the processes; end them afterwards."""
    running = Fleet(url, chance)
    try:
        yield running
    finally:
        running.close()


async def started(engine: Engine, machine: ReportMachine) -> dict[str, list[str]]:
    """The ids of the workflows of each schedule, oldest due time first."""
    found: dict[str, list[str]] = {f"s{number}": [] for number in range(SCHEDULES)}
    cursor: str | None = None
    while True:
        page = await engine.find(machine, limit=1_000, cursor=cursor)
        for each in page.items:
            found[each.id.partition(".")[0]].append(each.id)
        cursor = page.cursor
        if cursor is None:
            return {name: sorted(ids) for name, ids in found.items()}


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1])
def test_each_due_time_of_processes_that_are_killed_and_frozen_starts_one_workflow(
    seed: int, postgres_url: str
) -> None:
    machine = report()

    async def seconds_served() -> int:
        async with Engine.open(postgres_url, machines=[machine], worker=False) as engine:
            return min(map(len, (await started(engine, machine)).values()))

    async def check() -> int:
        total = 0
        async with Engine.open(postgres_url, machines=[machine], lease_s=2.0) as engine:
            for schedule in secondly(machine, SCHEDULES):
                await engine.schedules.pause(schedule.name)
            while any(each.waiting for each in await engine.schedules.list()):
                await settled(engine)
            views = {each.name: each for each in await engine.schedules.list()}
            for name, ids in (await started(engine, machine)).items():
                first = datetime.fromisoformat(ids[0].partition(".")[2])
                expected = [start_id(name, first + timedelta(seconds=number)) for number in range(len(ids))]
                assert ids == expected, f"{name} has gaps or more than one start of a due time"
                assert views[name].started == len(ids), f"{name} has counted other starts than it made"
                assert views[name].skipped == 0
                total += len(ids)
            assert await engine.dead_letters() == []
        return total

    chance = random.Random(seed)
    with fleet(postgres_url, chance) as processes:
        while True:
            served: list[int] = []

            async def look() -> None:
                served.append(await seconds_served())  # noqa: B023 -- it runs in this round.

            run(look)
            if served[0] >= DUE_EACH:
                break
            processes.harm()
        assert processes.killed + processes.frozen > 0
        summary = f"{processes.killed} kills, {processes.frozen} freezes"

    totals: list[int] = []

    async def finish() -> None:
        totals.append(await check())

    run(finish)
    assert totals[0] >= SCHEDULES * DUE_EACH
    sys.stdout.write(f"{totals[0]} due times, {totals[0]} starts, {summary}\n")
