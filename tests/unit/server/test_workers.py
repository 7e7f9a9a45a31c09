"""The supervisor with workers that are small programs: beginning, dying, stopping, and what each is told (C7)."""

import asyncio
import errno
import os
import signal
import sys
from pathlib import Path

import pytest

from interlock import Admission
from interlock.errors import BadUsage
from interlock.server import workers
from interlock.server.lifecycle import bound_socket
from interlock.server.workers import INHERITED, Supervisor, check_home, inherited_descriptors, part_of

SERVES = """
import os, signal, socket, sys
listening, line = (socket.socket(fileno=int(each)) for each in os.environ["INTERLOCK_INHERITED"].split())
open(sys.argv[1], "a").write("begun\\n")
"""
GOOD = SERVES + "line.send(b'.')\nline.recv(1)\n"
"""Says that it serves, and lives until a signal ends it or its supervisor is gone."""

BAD = SERVES + "sys.exit(3)\n"
STUBBORN = "import signal; signal.signal(signal.SIGTERM, lambda *_: os._exit(7))\n" + GOOD
ONCE_BAD = (
    SERVES + "line.send(b'.')\nsys.exit(3 if open(sys.argv[1]).read().count('begun') == 1 else line.recv(1) != b'')\n"
)


class Supervised:
    """A supervisor over one of those programs."""

    def __init__(self, program: str, notes: Path, count: int = 2) -> None:
        self.said: asyncio.Queue[str] = asyncio.Queue()
        self._notes = notes
        self._socket = bound_socket("127.0.0.1", 0)
        command = [sys.executable, "-c", program, str(notes)]
        self.supervisor = Supervisor(
            command, self._socket, count=count, environment=os.environ, tell=self.said.put_nowait
        )

    async def run(self) -> int:
        with self._socket:
            return await self.supervisor.run(lambda where: self.said.put_nowait(where.url))

    @property
    def begun(self) -> int:
        return self._notes.read_text().count("begun")


def test_workers_that_serve_are_stopped_together(tmp_path: Path) -> None:
    async def scenario() -> None:
        each = Supervised(GOOD, tmp_path / "notes")
        running = asyncio.ensure_future(each.run())
        assert (await each.said.get()).startswith("http://127.0.0.1:")
        assert each.begun == 2
        each.supervisor.stop()
        assert await running == 0

    asyncio.run(scenario())


def test_a_worker_that_cannot_begin_ends_the_server_with_its_code(tmp_path: Path) -> None:
    """The first one alone: what is wrong is told once."""

    async def scenario() -> None:
        each = Supervised(BAD, tmp_path / "notes", count=4)
        assert await each.run() == 3
        assert each.begun == 1
        assert each.said.empty()

    asyncio.run(scenario())


def test_a_machine_that_cannot_start_another_worker_is_asked_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those that serve go on: one that is missing is no reason to end them all."""
    monkeypatch.setattr(workers, "PAUSE_S", 0.001)

    async def scenario() -> None:
        each = Supervised(ONCE_BAD, tmp_path / "notes", count=1)
        start, refused = each.supervisor._start, iter((False, True, True, False))

        async def short_of_memory(place: int) -> workers._Worker:
            if next(refused):
                raise OSError(errno.ENOMEM, "Cannot allocate memory")
            return await start(place)

        monkeypatch.setattr(each.supervisor, "_start", short_of_memory)
        running = asyncio.ensure_future(each.run())
        said = [await each.said.get() for _ in range(5)]
        assert [text.count("Cannot allocate memory") for text in said] == [0, 0, 1, 1, 0]
        assert "serves" in said[-1]
        each.supervisor.stop()
        assert await running == 0

    asyncio.run(scenario())


def test_a_place_that_was_taken_meanwhile_is_not_taken_twice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """SIGHUP while a worker that has died is about to be replaced: there is one for each place, and no more."""

    async def scenario() -> None:
        each = Supervised(ONCE_BAD, tmp_path / "notes", count=1)
        supervisor, rolled, found = each.supervisor, asyncio.Event(), asyncio.Queue[object]()
        successor = supervisor._successor

        async def pausing(pause_s: float) -> bool:
            await rolled.wait()
            return False

        async def told(place: int, worker: workers._Worker) -> workers._Worker | None:
            await found.put(await successor(place, worker))
            return None

        monkeypatch.setattr(supervisor, "_stops_within", pausing)
        monkeypatch.setattr(supervisor, "_successor", told)
        running = asyncio.ensure_future(each.run())
        assert "ended with 3" in [await each.said.get() for _ in range(2)][1]
        supervisor.roll()
        assert await each.said.get() == "All workers were replaced."
        rolled.set()
        assert await found.get() is None
        assert each.begun == 2
        supervisor.stop()
        assert await running == 0

    asyncio.run(scenario())


def test_a_worker_that_dies_is_replaced(tmp_path: Path) -> None:
    async def scenario() -> None:
        each = Supervised(ONCE_BAD, tmp_path / "notes", count=1)
        running = asyncio.ensure_future(each.run())
        said = [await each.said.get() for _ in range(3)]
        assert "ended with 3; another takes its place" in said[1]
        assert said[2].endswith("serves.")
        each.supervisor.stop()
        assert await running == 0
        assert each.begun == 2

    asyncio.run(scenario())


def test_a_worker_that_does_not_stop_well_is_told(tmp_path: Path) -> None:
    async def scenario() -> None:
        each = Supervised("import os\n" + STUBBORN, tmp_path / "notes")
        running = asyncio.ensure_future(each.run())
        await each.said.get()
        os.kill(os.getpid(), signal.SIGTERM)
        assert await running == 7

    asyncio.run(scenario())


def test_successors_serve_before_anybody_goes(tmp_path: Path) -> None:
    async def scenario() -> None:
        each = Supervised(GOOD, tmp_path / "notes")
        running = asyncio.ensure_future(each.run())
        await each.said.get()
        each.supervisor.roll()
        each.supervisor.roll()
        assert await each.said.get() == "All workers were replaced."
        assert each.begun == 4
        each.supervisor.stop()
        each.supervisor.roll()
        assert await running == 0

    asyncio.run(scenario())


def test_old_workers_go_on_while_new_ones_cannot_begin(tmp_path: Path) -> None:
    program = GOOD.replace("line.send", "len(open(sys.argv[1]).read()) > 12 and sys.exit(3)\nline.send")

    async def scenario() -> None:
        each = Supervised(program, tmp_path / "notes")
        running = asyncio.ensure_future(each.run())
        await each.said.get()
        each.supervisor.roll()
        assert "the old workers continue" in await each.said.get()
        each.supervisor.stop()
        assert await running == 0

    asyncio.run(scenario())


def test_each_worker_takes_in_its_part() -> None:
    """C7: the bound is that of the server, however many processes it has."""
    told = part_of(Admission(rate_per_s=10_000, burst=15_000), 4)
    assert told == {"INTERLOCK_RATE_PER_S": "2500.0", "INTERLOCK_BURST": "3750.0"}
    assert part_of(Admission(rate_per_s=1, burst=1), 4)["INTERLOCK_RATE_PER_S"] == "1.0"


def test_workers_that_share_a_redis_have_the_whole_rate_in_common(monkeypatch: pytest.MonkeyPatch) -> None:
    """C7: a part of it each would be a part of it for all."""
    monkeypatch.setenv("INTERLOCK_REDIS", "redis://cache")
    told = part_of(Admission(rate_per_s=10_000, burst=15_000), 4)
    assert (told["INTERLOCK_RATE_PER_S"], told["INTERLOCK_BURST"]) == ("10000.0", "15000.0")


@pytest.mark.parametrize("home", ["memory:", "lanes:///var/shop", "s3://bucket/shop"])
def test_only_postgresql_is_served_by_several(home: str) -> None:
    check_home(home, 1)
    check_home("postgresql://host/shop", 3)
    with pytest.raises(BadUsage, match="3 processes"):
        check_home(home, 3)


def test_what_a_worker_inherits_is_not_passed_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(INHERITED, raising=False)
    assert inherited_descriptors() is None
    monkeypatch.setenv(INHERITED, "5 6")
    assert inherited_descriptors() == (5, 6)
    assert INHERITED not in os.environ
    monkeypatch.setenv(INHERITED, "x")
    with pytest.raises(BadUsage, match=INHERITED):
        inherited_descriptors()
