"""The driver of the lane simulation: one seed is one reproducible story.

The seed decides the number of machines, the settings of the lane, the faults, and every later draw. When all machines
have ended, the faults stop. One last process opens the lane and retries the transactions with an unknown outcome; then
the checks run.
"""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# apsw's stubs leave the values of SQLite partly open; mypy --strict looks at what is ours.

import shutil
import tempfile
from collections.abc import Generator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from types import ModuleType

import apsw

from interlock import faultpoints
from interlock.lanes.objectlog import append, log
from interlock.lanes.settings import LaneSettings
from interlock.testing.campaigns import Campaign, Luck, Simulated, Watcher, gather, refuse_numbers
from interlock.testing.lane_simulation.bucket import REQUEST_TIMEOUT_S, Server
from interlock.testing.lane_simulation.checks import check
from interlock.testing.lane_simulation.machine import Machine
from interlock.testing.lane_simulation.story import Attempt, Story, Weather
from interlock.testing.lane_simulation.threads import Baton, Life

MEMORY_DISK = Path("/dev/shm")  # noqa: S108 -- a disk in memory, where there is one; what lies there is removed again.
PROCESSES_MAX = 8


class Simulation:
    """One seed: its machines, its bucket and its story."""

    def __init__(
        self, seed: int, folder: Path, *, processes: int | None = None, conditions_ignored: bool = False
    ) -> None:
        luck = Luck(seed)
        self.baton = Baton()
        self.story = Story(seed)
        self.folder = folder
        self.settings = _settings(luck)
        self.weather = Weather(Luck(luck.number()), conditions_ignored=conditions_ignored)
        self.server = Server(self.baton, Luck(luck.number()), self.weather, self.story)
        self.unknown: list[Attempt] = []
        self.owner = ""
        count = luck.count(2, 4)
        self._machines = [
            Machine(chr(ord("a") + at), self, Luck(luck.number()), lives=luck.count(1, 2), rounds=luck.count(2, 5))
            for at in range(processes or count)
        ]
        # The last process runs where another one ran before it, or on a machine of its own.
        self._last = Machine("z", self, Luck(luck.number()), lives=1, rounds=1)
        if luck.often(0.5):
            self._last = luck.one(self._machines)
        self.page_bytes = luck.one((512, 512, 1_024, 4_096))
        self._bounds: list[tuple[ModuleType, str, int]] = [
            (append, "READ_AHEAD", luck.one((1, 3, 32))),
            (log, "PART_BYTES", luck.one((4_096, 8_192, log.PART_BYTES))),
            (log, "COLLECTED_AT_ONCE", luck.one((2, 100))),
        ]

    def run(self) -> None:
        """Run the seed to its end, and check it."""
        with self._small_world():
            for machine in self._machines:
                self.baton.spawn(Life(machine.name), machine.name, machine.run)
            self.baton.run()
            self._complain_about_strands()
            self.weather.calm()
            if self.story.complaints:
                return
            self.baton.spawn(Life(f"{self._last.name}9"), self._last.name, self._last.finish)
            self.baton.run()
            self._complain_about_strands()
        if not self.story.complaints:
            check(self.story, self.server, self.settings)

    @contextmanager
    def _small_world(self) -> Generator[None]:
        """Small pages, small portions, temporary files in memory: more happens in less time."""
        hook = self._small_pages
        folder, tempfile.tempdir = tempfile.tempdir, str(self.folder)
        bounds = [(module, name, getattr(module, name)) for module, name, _ in self._bounds]
        apsw.connection_hooks.append(hook)
        faultpoints.listen(self._reached)
        _set_bounds(self._bounds)
        try:
            yield
        finally:
            _set_bounds(bounds)
            faultpoints.listen(None)
            apsw.connection_hooks.remove(hook)
            tempfile.tempdir = folder

    def _small_pages(self, connection: apsw.Connection) -> None:
        connection.execute(f"PRAGMA page_size = {self.page_bytes}")

    def _reached(self, point: str) -> None:
        self.story.counts["logs folded"] += point == "log.folded"
        name = self.baton.current.life.name[0]
        machine = next((each for each in self._machines if each.name == name), None)
        if machine is not None:
            machine.reached(point)

    def _complain_about_strands(self) -> None:
        for strand, error in self.baton.crashes:
            self.story.complain(f"the {strand.name} of {strand.life.name} ended with {error!r}", strand.life.name)
        self.baton.crashes.clear()
        for strand in self.baton.stuck:
            self.story.complain(f"the {strand.name} of {strand.life.name} waits for ever", strand.life.name)
            strand.life.killed = True
            self.baton.wake(strand)
        self.baton.run()


def simulate(seed: int, *, processes: int | None = None, conditions_ignored: bool = False) -> Simulated:
    """Run one seed."""
    return summarize(play(seed, processes=processes, conditions_ignored=conditions_ignored))


def play(seed: int, *, processes: int | None = None, conditions_ignored: bool = False) -> Story:
    """Run one seed and return its whole story."""
    disk = str(MEMORY_DISK) if MEMORY_DISK.is_dir() else None
    folder = Path(tempfile.mkdtemp(prefix="interlock-simulation-", dir=disk))
    try:
        simulation = Simulation(seed, folder, processes=processes, conditions_ignored=conditions_ignored)
        simulation.run()
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return simulation.story


def summarize(story: Story) -> Simulated:
    """Return the result of a story, with the lines about its first complaint."""
    lines: tuple[str, ...] = ()
    if story.complaints:
        lines = tuple(story.text_lines(story.complaints[0][1]))
    return Simulated(
        seed=story.seed,
        complaints=tuple(what for what, _ in story.complaints),
        story=lines,
        counts=dict(story.counts),
        faults=dict(story.faults),
    )


def _set_bounds(bounds: list[tuple[ModuleType, str, int]]) -> None:
    for module, name, value in bounds:
        setattr(module, name, value)


def _settings(luck: Luck) -> LaneSettings:
    return LaneSettings(
        lease_s=luck.one((4.0, 10.0)),
        append_deadline_s=luck.one((2.0, 6.0, 20.0)),
        group_commit_max_batch=luck.one((1, 2, 1_000, 1_000)),
        request_timeout_s=REQUEST_TIMEOUT_S,
        snapshot_bytes_min=luck.one((4_096, 4_096, 16_384, 65_536)),
        snapshots_retained=luck.one((1, 2)),
        retention_s=luck.one((0.0, 0.0, 15.0)),
        idle_s=luck.one((0.0, 1.0, 30.0, 30.0)),
        wal_bytes_max=65_536,
    )


def run_campaign(
    first: int, seeds: int, *, processes: int | None = None, workers: int | None = None, watch: Watcher | None = None
) -> Campaign:
    """Run `seeds` seeds, beginning with `first`. Raises BadUsage for numbers out of range."""
    refuse_numbers(("processes", processes, 1, PROCESSES_MAX))
    return gather(partial(run_portion, processes=processes), first, seeds, workers=workers, watch=watch)


def run_portion(seeds: range, *, processes: int | None) -> list[Simulated]:
    """Run some seeds, one after the other."""
    return [simulate(seed, processes=processes) for seed in seeds]
