"""Fifty who want one lease, in several processes, one of them frozen with it and woken (C10, C11, G4).

Mutual exclusion is proved where it counts: at the protected resource, which takes a write unless it has seen a higher
token. Whatever it has taken was then written by one holder after the other.
"""

import asyncio
import contextlib
import logging
import os
import signal
import sys
from collections import Counter
from pathlib import Path

import pytest

from interlock.testing.faults import stop_listening
from tests.integration.redis.conftest import LONG
from tests.integration.redis.contender import TURNS
from tests.integration.redis.living import run, until
from tests.integration.redis.server import Server

log = logging.getLogger(__name__)

PROCESSES, EACH = (5, 10) if LONG else (3, 17)
PROGRAM = Path(__file__).with_name("contender.py")


class Resource:
    """What the lease protects. `fenced=False` is a resource that believes everybody."""

    def __init__(self, *, fenced: bool = True) -> None:
        self.fenced = fenced
        self.highest = 0
        self.taken: list[tuple[int, str]] = []
        self.refused: list[tuple[int, str]] = []
        self.stopped: int | None = None
        self.goes_on = asyncio.Event()
        self.lost: str | None = None

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.closing(writer):
            while line := (await reader.readline()).decode().split():
                match line:
                    case ["write", name, token]:
                        self._write(name, int(token))
                    case ["stop", _, pid]:
                        self.stopped = int(pid)
                        await self.goes_on.wait()
                    case ["lost", _, lost]:
                        self.lost = lost
                    case _:
                        raise AssertionError(line)
                writer.write(b"ok\n")

    def _write(self, name: str, token: int) -> None:
        if self.fenced and token < self.highest:
            self.refused.append((token, name))
            return
        self.highest = max(self.highest, token)
        self.taken.append((token, name))

    def interleaved(self) -> bool:
        """Whether somebody has written after somebody who came later, or two with one token."""
        tokens = [token for token, _ in self.taken]
        return tokens != sorted(tokens) or len(set(self.taken)) != len(set(tokens))


async def contest(server: Server, resource: Resource, *, processes: int, each: int) -> None:
    """Let them contend; the one who stops is frozen past its lease, and woken."""
    where = str(server.socket.parent / "resource.sock")
    listening = await asyncio.start_unix_server(resource.serve, where)
    path = os.pathsep.join(folder for folder in sys.path if folder)
    children: list[asyncio.subprocess.Process] = []
    frozen_at = 0
    try:
        for number in range(processes):
            names = ",".join(f"{number}.{one}" for one in range(each))
            more = {"PYTHONPATH": path, "STOPS": str(int(number == 0)), "WRONG_BY_S": str(3_600 * (number == 1))}
            children.append(
                await asyncio.create_subprocess_exec(
                    sys.executable, str(PROGRAM), server.url, where, names, env={**os.environ, **more}
                )
            )
            if number == 0:
                # The others come when it is frozen: each has so many turns, and there must be some left for then.
                await until(lambda: resource.stopped is not None)
                assert resource.stopped == children[0].pid
                children[0].send_signal(signal.SIGSTOP)
                frozen_at = len(resource.taken)
                resource.goes_on.set()
        await until(lambda: len(resource.taken) > frozen_at + 5)
        children[0].send_signal(signal.SIGCONT)
        async with asyncio.timeout(120):
            assert [await child.wait() for child in children] == [0] * processes
    finally:
        for child in children:
            if child.returncode is None:
                child.send_signal(signal.SIGCONT)
                child.kill()
                await child.wait()
        await stop_listening(listening)


@pytest.mark.slow
def test_fifty_contenders_in_several_processes_write_one_after_the_other(server: Server) -> None:
    """C10, C11, G4: the frozen holder is refused, and the hour by which one clock is wrong changes nothing."""

    async def scenario() -> None:
        resource = Resource()
        await contest(server, resource, processes=PROCESSES, each=EACH)
        assert not resource.interleaved()
        assert "0.0" in [name for _, name in resource.refused], "the holder that was frozen"
        assert resource.lost == "True", "and it knows"
        turns = Counter(name for _, name in set(resource.taken))
        assert len(turns) == PROCESSES * EACH, "everybody had a turn"
        assert set(turns.values()) <= set(range(1, TURNS + 1))
        by_process = Counter(name.split(".")[0] for _, name in sorted(set(resource.taken))[: PROCESSES * EACH])
        log.info("fairness: turns among the first 50 by process: %s", dict(sorted(by_process.items())))

    run(scenario)


@pytest.mark.slow
def test_a_resource_without_fences_is_written_to_by_the_holder_that_was_frozen(server: Server) -> None:
    """Sabotage: the proof above can fail."""

    async def scenario() -> None:
        resource = Resource(fenced=False)
        await contest(server, resource, processes=2, each=4)
        assert resource.interleaved()

    run(scenario)
