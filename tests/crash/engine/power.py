"""Power cuts under an engine: what was acknowledged, and what was asked of the world outside, is on every disk left.

Each cut leaves the disk in one of the ways a real one may: whatever was not synced is gone, torn or there. It is
audited at once; some are opened again by another engine, with the gateway as it was at that instant, and go on to
their end.
"""

import asyncio
import shutil
from pathlib import Path
from unittest.mock import patch

import apsw

from interlock import faultpoints
from interlock.chaos.shop import outside
from interlock.clock import Clock, SystemChance
from interlock.engine import open_engine as engine_open
from interlock.lanes.lane import Lane
from interlock.lanes.lane_settings import LaneSettings
from interlock.store.lane_store import SqliteStore
from interlock.store.open_store import NAME
from interlock.testing.faults import FaultyDisk
from tests.crash.engine.audit import Audit
from tests.crash.engine.gateway import Books, Gateway, lines_of
from tests.crash.engine.workload import Customers, opened
from tests.crash.power import let_loop_turn

ORDERS = 40
CUT_SHARE = 0.5
GOES_ON_EVERY = 15
LOG_BYTES_MAX = 65_536


class Cuts:
    """Cuts the power now and then while an engine works, and examines what each cut leaves."""

    def __init__(self, disk: FaultyDisk, folder: Path, seed: int) -> None:
        self.acknowledged: dict[str, tuple[int, str]] = {}
        self.examined = 0
        self.unsynced = 0
        """Cuts that found something on its way to the disk."""
        self.problems: list[str] = []
        self.kept: list[Path] = []
        self.books = folder / "gateway"
        self._disk = disk
        self._folder = folder
        self._seed = seed
        self._chance = SystemChance(seed)
        self._loop = asyncio.get_running_loop()

    def begin(self) -> None:
        faultpoints.listen(self._reached)
        self._disk.fails_sync = lambda _number: self.cut("sync")

    def end(self) -> None:
        faultpoints.listen(None)
        self._disk.fails_sync = lambda _number: False

    def say(self, line: str) -> None:
        """Heard from the customers, as the parent of a killed process would."""
        if line.startswith("+ "):
            operation, version, state, _how = line[2:].rsplit(" ", 3)
            self.acknowledged.setdefault(operation, (int(version), state))

    def _reached(self, point: str) -> None:
        if (
            point in faultpoints.LANE_POINTS
        ):  # The engine's own points are in the event loop's thread, which a cut waits for.
            self.cut(point)

    def cut(self, where: str) -> bool:
        """Called where a group is written. False: the sync that it stands before goes on."""
        if self._chance.fraction() > CUT_SHARE:
            return False
        let_loop_turn(self._loop)
        # First what is certain, then the disk: it may know more by then, and never less.
        certain, asked = dict(self.acknowledged), lines_of(self.books)
        after = self._folder / f"after-{self.examined}"
        self.unsynced += any(content.since for content in self._disk._contents.values())
        self._disk.power_cut(after, self._chance)
        told = f"seed {self._seed}, power cut at {where}, number {self.examined}"
        try:
            self._examine(after, certain, Books(asked), told)
        except (AssertionError, apsw.Error) as error:  # Not raised here: this is the writer's thread.
            self.problems.append(f"{told}: {error!r}")
        self.examined += 1
        if self.examined % GOES_ON_EVERY == 0:
            (after / "gateway").write_text("".join(f"{' '.join(map(str, line))}\n" for line in asked))
            self.kept.append(after)
        else:
            shutil.rmtree(after)
        return False

    def _examine(self, after: Path, certain: dict[str, tuple[int, str]], books: Books, told: str) -> None:
        look = after / "look"
        look.mkdir()
        for path in after.glob(f"{NAME}.lane*"):
            shutil.copy(path, look / path.name)
        audit = Audit(look / f"{NAME}.lane", books)
        shutil.rmtree(look)
        self.problems += [f"{told}: {problem}" for problem in audit.problems()]
        for operation, (version, state) in certain.items():
            rows = audit.history.get(operation.split(" ")[1], [])
            if len(rows) < version or rows[version - 1].target != state:
                self.problems.append(f"{told}: {operation} was acknowledged as version {version}, and is gone")


async def work_through_cuts(disk: FaultyDisk, folder: Path, seed: int) -> Cuts:
    """Customers order while the power fails all the time."""

    async def open_faulty(url: str, *, clock: Clock, **_options: object) -> SqliteStore:
        lane = Lane(
            folder / f"{NAME}.lane",
            settings=LaneSettings(wal_bytes_max=LOG_BYTES_MAX),
            clock=clock,
            prepare=lambda _connection, _now_us: None,
            vfs=disk.name,
        )
        store = SqliteStore(lane, clock)
        await store.begin()
        return store

    cuts = Cuts(disk, folder, seed)
    outside.append(Gateway(cuts.books, SystemChance(seed)))
    with patch.object(engine_open, "open_store", open_faulty):
        engine = await opened("memory:", None)
    customers = Customers(engine, cuts.say, SystemChance(seed), 1)
    cuts.begin()
    try:
        await asyncio.gather(*(customers.order(number) for number in range(ORDERS)))
    finally:
        cuts.end()
        await engine.close()
        outside.pop()
    return cuts


async def go_on(after: Path, seed: int) -> list[str]:
    """Open what a cut has left, and let everything come to its end; returns what is wrong then."""
    outside.append(Gateway(after / "gateway", SystemChance(seed), kind=True))
    try:
        async with opened(f"lanes://{after}", None) as engine:
            await Customers(engine, lambda _line: None, SystemChance(seed), 2).see_all_rest()
    finally:
        outside.pop()
    audit = Audit(after / f"{NAME}.lane", Books(lines_of(after / "gateway")))
    return [*audit.problems(), *audit.problems_at_the_end()]
