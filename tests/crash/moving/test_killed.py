"""kill -9 of the mover, of whoever writes, and of PostgreSQL, at each stage of a move; then the same command again.

INTERLOCK_CRASHES greater than 1 tries every stage; otherwise it is those where most can go wrong.
"""

import asyncio
import itertools
import os
from collections.abc import Generator
from pathlib import Path

import pytest

from interlock import Database
from interlock.chaos.database_servers import OwnPostgres
from interlock.testing.faults import Process, Processes
from tests.chaos.postgres.campaign import own_postgres
from tests.crash.moving.workloads import INCREMENT, POINTS

ALL = int(os.environ.get("INTERLOCK_CRASHES") or "1") > 1
SOME = {
    "mover": ("copy", "verify", "leave/before", "leave", "arrive"),
    "writer": ("copy", "seal/0", "leave"),
    "server": ("copy", "seal/0", "leave/before", "leave"),
}
CASES = [
    (direction, victim, point)
    for direction in ("lane-to-postgres", "postgres-to-lane")
    for victim in ("mover", "writer", "server")
    for point in (POINTS if ALL else SOME[victim])
]
RESUMES_MAX = 5
_numbers = itertools.count()


@pytest.fixture(scope="module")
def server() -> Generator[OwnPostgres]:
    """A server of these tests' own, because it is killed."""
    with own_postgres() as server, pytest.MonkeyPatch.context() as environment:
        # Where a database was moved to is stored without its password.
        environment.setenv("PGPASSWORD", server._password)
        yield server


@pytest.fixture(scope="module")
def processes(server: OwnPostgres) -> Generator[Processes]:
    """Whoever is killed; they inherit the password."""
    with Processes() as processes:
        yield processes


class World:
    """One database, one writer that counts, one move after the other."""

    def __init__(self, processes: Processes, server: OwnPostgres, folder: Path, direction: str) -> None:
        lane = f"lanes://{folder}/shop"
        remote = f"{server.url}?schema=shop_{next(_numbers)}"
        self.source, self.target = (lane, remote) if direction.startswith("lane") else (remote, lane)
        self._processes = processes
        self._server = server
        self._stop = folder / "stop"
        self._go = folder / "go"
        os.mkfifo(self._go)
        self._lives = 0
        self._asked: set[str] = set()
        self._acknowledged: set[str] = set()
        life = processes.start("tests.crash.moving.workloads:make", self.source)
        assert list(life.lines()) == ["made"]
        life.end()
        self._writer = self._begin()

    def _begin(self) -> Process:
        self._lives += 1
        life = self._processes.start("tests.crash.moving.workloads:write", self.source, self._lives, str(self._stop))
        self._read(list(life.lines(40)))
        return life

    def _read(self, lines: list[str]) -> None:
        assert not [line for line in lines if line.startswith(("never", "!"))], lines
        self._asked |= {line.partition(" ")[2] for line in lines if line.startswith("ask")}
        self._acknowledged |= {line.partition(" ")[2] for line in lines if line.startswith("ack")}

    def strike(self, victim: str, point: str) -> None:
        """A mover that comes to the point, where somebody is killed."""
        mover = self._mover(point, victim)
        [said] = list(mover.lines(1))
        assert said.startswith(f"at {point}"), said
        if victim == "writer":
            self._writer.kill()
            self._ended()
        elif victim == "server":
            self._server.kill()
            self._server.start()
        if victim != "mover":
            self._go.write_bytes(b"go")
        if victim == "writer":
            self._writer = self._begin()
        rest = list(mover.lines())
        assert not [line for line in rest if line.startswith(("!", "failed never"))], rest
        mover.close()

    def _mover(self, point: str, how: str) -> Process:
        return self._processes.start(
            "tests.crash.moving.workloads:move", self.source, self.target, point, how, str(self._go)
        )

    def _ended(self) -> None:
        self._read(list(self._writer.lines()))
        self._writer.close()

    def end_the_move(self) -> None:
        """The same command again, until it says that it has moved."""
        lines: list[str] = []
        for _ in range(RESUMES_MAX):
            mover = self._mover("nowhere", "mover")
            lines = list(mover.lines())
            mover.close()
            if lines and lines[-1].startswith("moved"):
                return
            assert all(line.startswith(("failed now", "failed later")) for line in lines), lines
        raise AssertionError(lines)

    async def check(self) -> None:
        """Every key that was asked for has happened once, and the source is sealed."""
        self._stop.touch()
        self._ended()
        async with Database.open(self.source) as db:
            assert db.url.partition(":")[0] == self.target.partition(":")[0]
            for key in sorted(self._asked - self._acknowledged):
                await db.execute(INCREMENT, key=key)  # Perhaps it has happened, and then it is not done again.
            assert await db.query("SELECT n FROM counter") == [(len(self._asked),)]
            assert await db.query("SELECT count(*) FROM thing") == [(20,)]
            assert len(self._acknowledged) > 10


@pytest.mark.campaign
@pytest.mark.parametrize(("direction", "victim", "point"), CASES)
def test_a_move_survives_whoever_is_killed(
    direction: str, victim: str, point: str, processes: Processes, server: OwnPostgres, tmp_path: Path
) -> None:
    world = World(processes, server, tmp_path, direction)
    world.strike(victim, point)
    world.end_the_move()
    asyncio.run(world.check())
