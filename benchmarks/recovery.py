"""How long a database in a bucket takes to come back: with its log, and into other hands.

Recovery is an open with an empty local folder: the newest snapshot is loaded, the groups behind it are replayed. The
same log, object for object, lies in every bucket that is compared. Without snapshots the time grows with the log; with
the default settings a snapshot is taken when the log behind the last one weighs more than one would.

A takeover is an open after another owner. A crash is played: the files are copied while the first owner has them open,
and the copy is opened, which is what a process that was killed leaves on its own machine. Another machine has
nothing but the bucket, and waits until the lease has run out.
"""

import asyncio
import functools
import itertools
import random
import shutil
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path

from benchmarks.buckets import Place, copy, opening
from benchmarks.weights import ADD, NO_SNAPSHOT, fill
from interlock.bench.plots import Axis, ChartLine, Panel, draw
from interlock.database.database import Opening
from interlock.lanes.lane_settings import LaneSettings
from interlock.lanes.objectlog.manifest import read_manifest
from interlock.testing.lane_simulation.bucket import MemoryBucket

ROWS = 10_000
DEFAULT_LEASE_S = 10.0
SHORT_LEASE_S = 1.0

_folders = itertools.count()


@dataclass(frozen=True)
class Times:
    """Some turns of the same thing."""

    seconds: Sequence[float]
    cpu_seconds: Sequence[float]

    @property
    def median_ms(self) -> float:
        """The median, in milliseconds."""
        return 1e3 * statistics.median(self.seconds)

    def as_json(self) -> dict[str, float | int]:
        """For the JSON report."""
        return {
            "median_ms": round(self.median_ms, 2),
            "min_ms": round(1e3 * min(self.seconds), 2),
            "max_ms": round(1e3 * max(self.seconds), 2),
            "cpu_ms": round(1e3 * statistics.median(self.cpu_seconds), 2),
            "rounds": len(self.seconds),
        }


@dataclass(frozen=True)
class Log:
    """A log that was written once, to be recovered often."""

    groups: int
    snapshots: bool
    bucket: MemoryBucket
    replayed: int
    """Groups behind the newest snapshot."""
    stored_bytes: int

    @property
    def name(self) -> str:
        """Where it lies in a bucket."""
        return f"log-{self.groups}-{'snapshots' if self.snapshots else 'plain'}"


async def written(folder: Path, groups: int, *, snapshots: bool) -> Log:
    """Write a log of so many groups of one commit each, on rows at random."""
    bucket, chance = MemoryBucket(), random.Random(groups)
    async with opening(bucket, folder, LaneSettings() if snapshots else NO_SNAPSHOT) as database:
        await fill(database, ROWS)
        for _ in range(groups - _last(bucket)):
            await database.execute(ADD, chance.randrange(ROWS), chance.randrange(1, 1_000))
    found = read_manifest(bucket)
    assert found is not None
    stored = sum(len(each.data) for key in bucket.keys("") if (each := bucket.get(key)) is not None)
    return Log(groups, snapshots, bucket, _last(bucket) - found[0].floor, stored)


def _last(bucket: MemoryBucket) -> int:
    return int(bucket.keys("log/")[-1].removeprefix("log/"))


async def recovery(folder: Path, places: Sequence[Place], logs: Sequence[Log], rounds: int) -> dict[str, Times]:
    """Open each log from each place with an empty folder, in turns; the first turn warms up."""
    openings: dict[str, Callable[[], Opening]] = {}
    for place in places:
        for log in logs:
            copy(log.bucket, place.bucket(log.name))
            openings[_turn(place, log)] = functools.partial(_into_empty, place, log, folder)
    turns: dict[str, list[tuple[float, float]]] = {name: [] for name in openings}
    for _ in range(rounds + 1):
        for name, begin in openings.items():
            turns[name].append(await _open_and_close(begin()))
    return {name: _times(found[1:]) for name, found in turns.items()}


def _into_empty(place: Place, log: Log, folder: Path) -> Opening:
    return place.open(log.name, _empty(folder), LaneSettings())


def _turn(place: Place, log: Log) -> str:
    return f"recovery, {place.name}, {log.groups} groups, {'default snapshots' if log.snapshots else 'no snapshot'}"


async def takeover(folder: Path, place: Place, rounds: int, *, lease_s: float) -> dict[str, Times]:
    """The ways in which a lane changes hands. Every turn has a database of its own."""
    turns: dict[str, list[tuple[float, float]]] = {
        "closed cleanly, same machine": [],
        "crashed, same machine": [],
        f"another machine, lease {lease_s:g} s": [],
    }
    clean, crashed, other = turns.values()
    settings = LaneSettings(lease_s=lease_s)
    for _ in range(rounds):
        home = _empty(folder)
        name = home.name
        async with place.open(name, home, settings) as database:
            await fill(database, 100)
        clean.append(await _open_and_close(place.open(name, home, settings)))
        async with AsyncExitStack() as stack:
            # The owners before are closed at the end only; they have been replaced, and must bear it.
            owner = await stack.enter_async_context(place.open(name, home, settings))
            await owner.execute(ADD, 1, 1)
            copied = _empty(folder)
            shutil.copytree(home, copied, dirs_exist_ok=True)
            second = place.open(name, copied, settings)
            crashed.append(await _opened(second, stack))
            other.append(await _opened(place.open(name, _empty(folder), settings), stack))
    return {f"takeover, {place.name}, {name}": _times(found) for name, found in turns.items()}


async def _open_and_close(begun: Opening) -> tuple[float, float]:
    async with AsyncExitStack() as stack:
        return await _opened(begun, stack)


async def _opened(begun: Opening, stack: AsyncExitStack) -> tuple[float, float]:
    cpu, wall = time.process_time(), time.perf_counter()
    await stack.enter_async_context(begun)
    return time.perf_counter() - wall, time.process_time() - cpu


def _empty(folder: Path) -> Path:
    made = folder / f"machine-{next(_folders)}"
    made.mkdir(parents=True)
    return made


def _times(turns: Sequence[tuple[float, float]]) -> Times:
    return Times([wall for wall, _ in turns], [cpu for _, cpu in turns])


def measure(
    folder: Path, recovered: Sequence[Place], taken: Sequence[Place], *, lengths: Sequence[int], rounds: int, wait: bool
) -> tuple[dict[str, Times], list[Log]]:
    """Everything. The default lease is waited for only if `wait`; else its time is not among the results."""

    async def run() -> tuple[dict[str, Times], list[Log]]:
        logs = [
            await written(_empty(folder), groups, snapshots=snapshots)
            for groups in lengths
            for snapshots in (False, True)
        ]
        found = await recovery(folder, recovered, logs, rounds)
        for place in taken:
            found |= await takeover(folder, place, rounds, lease_s=SHORT_LEASE_S)
            if wait:
                waited = await takeover(folder, place, 1, lease_s=DEFAULT_LEASE_S)
                found |= {name: times for name, times in waited.items() if "another" in name}
        return found, logs

    return asyncio.run(run())


def plot(times: Mapping[str, Times], logs: Sequence[Log], places: Sequence[Place]) -> str:
    """Recovery over the length of the log, a line per place, with and without snapshots (SVG)."""
    lines = [
        ChartLine(
            f"{place.name}, {'default snapshots' if snapshots else 'no snapshot'}",
            [
                (float(log.groups), times[_turn(place, log)].median_ms / 1e3)
                for log in logs
                if log.snapshots == snapshots
            ],
        )
        for place in places
        for snapshots in (False, True)
    ]
    return draw(
        "Recovery of a database in a bucket, into an empty folder",
        "Medians. Snapshots keep the replay short: by default one is due after about 650 groups of one page.",
        [
            Panel(
                "How long the open takes",
                Axis("groups in the log", logarithmic=True),
                Axis("seconds", logarithmic=True),
                lines,
            )
        ],
    )
