"""G2, G3: a power cut takes every write that was not synced, or tears it, and nothing that was acknowledged is lost.

Power fails at every sync and at every named point, and each time in several ways. A failure names its seed.
"""

import asyncio
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import apsw
import pytest

from interlock.lanes import points
from interlock.lanes.session import Session
from interlock.lanes.work import Work
from interlock.seams import SystemChance
from interlock.testing.faults.disk import FaultyDisk
from tests.unit.lanes.lanes import count, opened, run, sql

FACTOR = int(os.environ.get("INTERLOCK_CRASHES") or "1")
SEED = int(os.environ.get("INTERLOCK_SEED") or "1")
CLIENTS = 8
ROUNDS = 6
WAYS = 2
LOG_BYTES_MAX = 65_536

COUNTER = "CREATE TABLE counter (id INTEGER PRIMARY KEY, n INTEGER NOT NULL, filling BLOB)"
LEDGER = "CREATE TABLE ledger (name TEXT PRIMARY KEY)"


@pytest.fixture
def disk() -> Iterator[FaultyDisk]:
    faulty = FaultyDisk("faulty-power")
    yield faulty
    points.listen(None)
    faulty.close()


def add(name: str) -> Work:
    """Read, write both tables, and be heavy enough for several pages."""

    def function(session: Session) -> object:
        [(n,)] = session.query("SELECT n FROM counter WHERE id = 1")
        assert isinstance(n, int)
        session.execute("INSERT INTO ledger VALUES (?1)", (name,))
        filling = session.time_us.to_bytes(8, "big") * 400
        return session.execute("UPDATE counter SET n = ?1, filling = ?2 WHERE id = 1", (n + 1, filling))

    return Work(function, key=name, digest=b"same")


class Cuts:
    """Cuts the power again and again while a lane works, and examines what each cut leaves."""

    def __init__(self, disk: FaultyDisk, folder: Path, seed: int) -> None:
        self.asked: set[str] = set()
        self.acknowledged: set[str] = set()
        self.examined = 0
        self.lost = 0
        self.places: set[str] = set()
        self.failures: list[str] = []
        self._disk = disk
        self._folder = folder
        self._seed = seed
        self._chance = SystemChance(seed)

    def begin(self) -> None:
        points.listen(self.cut)
        self._disk.fails_sync = self._before_sync

    def _before_sync(self, _number: int) -> bool:
        self.cut("sync")
        return False

    def cut(self, where: str) -> None:
        self.places.add(where)
        for _ in range(WAYS):
            certain = set(self.acknowledged)
            self._disk.power_cut(self._folder, self._chance)
            try:
                self._examine(certain, f"seed {self._seed}, power cut at {where}, number {self.examined}")
            except (AssertionError, apsw.Error) as error:  # Not raised here: this is the writer's thread.
                self.failures.append(repr(error))
            shutil.rmtree(self._folder)
            self.examined += 1

    def _examine(self, certain: set[str], told: str) -> None:
        connection = apsw.Connection(str(self._folder / "x"))
        assert connection.execute("PRAGMA integrity_check").get == "ok", told
        names = {name for (name,) in connection.execute("SELECT name FROM ledger").fetchall()}
        keys = {key for (key,) in connection.execute("SELECT key FROM interlock_keys").fetchall()}
        counted = connection.execute("SELECT n FROM counter").get
        connection.close()
        assert names >= certain, f"{told}: acknowledged, and gone: {certain - names}"
        assert names <= self.asked, told
        assert names == keys, f"{told}: a key without its effect, or the other way round"
        assert counted == len(names), f"{told}: half a transaction"
        self.lost += len(self.asked) - len(names)


@pytest.mark.parametrize("seed", range(SEED, SEED + 10 * FACTOR))
def test_power_cuts_lose_nothing_that_was_acknowledged(tmp_path: Path, disk: FaultyDisk, seed: int) -> None:
    cuts = Cuts(disk, tmp_path / "after", seed)

    async def scenario() -> None:
        with opened(tmp_path / "x", vfs=disk.name, wal_bytes_max=LOG_BYTES_MAX, group_commit_max_batch=3) as lane:
            for statement in (COUNTER, LEDGER, "INSERT INTO counter VALUES (1, 0, NULL)"):
                await lane.run(sql(statement))
            cuts.begin()

            async def client(number: int) -> None:
                for turn in range(ROUNDS):
                    name = f"{number}/{turn}"
                    cuts.asked.add(name)
                    await lane.run(add(name))
                    cuts.acknowledged.add(name)

            await asyncio.gather(*(client(number) for number in range(CLIENTS)))
            assert await count(lane) == CLIENTS * ROUNDS

    run(scenario)
    assert not cuts.failures
    assert cuts.places == {"sync", *points.POINTS}
    assert cuts.examined > 100
    assert cuts.lost > 0, "no cut took anything away: these are not power cuts"
