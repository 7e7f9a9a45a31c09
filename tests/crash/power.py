"""Power cuts while a lane works: at every sync and at every named point, each in several ways.

Before each cut the event loop is let run until every client that was told something has taken note of it: what is
acknowledged at that instant must be in every disk that the cut may leave.
"""

import asyncio
import math
import shutil
from pathlib import Path
from unittest import mock

import apsw

from interlock import faultpoints
from interlock.clock import SystemChance
from interlock.lanes import lane as lane_module
from interlock.lanes.writer import Session, Work
from interlock.testing.faults import FaultyDisk
from tests.unit.lanes.lanes import at_rest, count, opened, sql

CLIENTS = 8
ROUNDS = 6
WAYS = 2
LOG_BYTES_MAX = 65_536

COUNTER = "CREATE TABLE counter (id INTEGER PRIMARY KEY, n INTEGER NOT NULL, filling BLOB)"
LEDGER = "CREATE TABLE ledger (name TEXT PRIMARY KEY)"


def add(name: str) -> Work:
    """Read, write both tables, and be heavy enough for several pages."""

    def function(session: Session) -> object:
        [(n,)] = session.query("SELECT n FROM counter WHERE id = 1")
        assert isinstance(n, int)
        session.execute("INSERT INTO ledger VALUES (?1)", (name,))
        filling = session.time_us.to_bytes(8, "big") * 400
        return session.execute("UPDATE counter SET n = ?1, filling = ?2 WHERE id = 1", (n + 1, filling))

    return Work(function, key=name, digest=b"same")


def let_loop_turn(loop: asyncio.AbstractEventLoop) -> bool:
    """Wait in the writer's thread until the loop has run what is ready; False in the loop's own thread.

    There the loop writes a group itself. It cannot turn meanwhile, so no client notices an acknowledgement either.
    """
    if asyncio._get_running_loop() is loop:
        return False
    asyncio.run_coroutine_threadsafe(asyncio.sleep(0), loop).result()
    return True


class Cuts:
    """Cuts the power again and again while a lane works, and examines what each cut leaves."""

    def __init__(self, disk: FaultyDisk, folder: Path, seed: int) -> None:
        self.asked: set[str] = set()
        self.acknowledged: set[str] = set()
        self.examined = 0
        self.lost = 0
        self.places: set[str] = set()
        self.by_loop: set[str] = set()
        """Places that the event loop has reached, where it wrote a group itself."""
        self.failures: list[str] = []
        self._disk = disk
        self._folder = folder
        self._seed = seed
        self._chance = SystemChance(seed)

    def begin(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        faultpoints.listen(self.cut)
        self._disk.fails_sync = self._before_sync

    def end(self) -> None:
        faultpoints.listen(None)
        self._disk.fails_sync = lambda _number: False

    def _before_sync(self, _number: int) -> bool:
        self.cut("sync")
        return False

    def cut(self, where: str) -> None:
        self.places.add(where)
        if not let_loop_turn(self._loop):
            self.by_loop.add(where)
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


async def work_through_cuts(disk: FaultyDisk, folder: Path, seed: int, *, by_loop: bool = False) -> Cuts:
    """Eight clients count up, read and then write, while the power fails all the time.

    With `by_loop` there is one client, whose event loop writes every group itself that it may.
    """
    cuts = Cuts(disk, folder / "after", seed)
    clients, rounds = (1, CLIENTS * ROUNDS) if by_loop else (CLIENTS, ROUNDS)
    with (
        mock.patch.object(lane_module, "RUN_NOW_S_MAX", math.inf),
        opened(folder / "x", vfs=disk.name, wal_bytes_max=LOG_BYTES_MAX, group_commit_max_batch=3) as lane,
    ):
        for statement in (COUNTER, LEDGER, "INSERT INTO counter VALUES (1, 0, NULL)"):
            await lane.run(sql(statement))

        async def client(number: int) -> None:
            for turn in range(rounds):
                name, work = f"{number}/{turn}", add(f"{number}/{turn}")
                cuts.asked.add(name)
                if by_loop:
                    await at_rest(lane)
                if by_loop and lane.run_now(work):
                    work.result()
                else:
                    await lane.run(work)
                cuts.acknowledged.add(name)

        cuts.begin(asyncio.get_running_loop())
        try:
            await asyncio.gather(*(client(number) for number in range(clients)))
            assert await count(lane) == clients * rounds
        finally:
            cuts.end()
            # Not in this thread: the last cut may still be waiting for the event loop.
            await asyncio.to_thread(lane.close)
    return cuts
