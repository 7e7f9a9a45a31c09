"""One owner at a time, over real HTTP: the second is told who the first is, a sleeper that wakes up is fenced (G4)."""

import asyncio
import os
import signal
import socket
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from interlock.database.database import Database
from interlock.errors import LaneOwned
from interlock.testing.faults import Process, Processes
from tests.integration.objects.lives import written
from tests.integration.objects.servers import SeaweedFS

SHORT_S, LONG_S = 0.5, 10.0
"""Leases: one that is soon slept through, and one that a busy owner renews in time on any machine."""

OWN = "tests.integration.objects.lives:own"


@pytest.fixture(scope="module")
def processes() -> Iterator[Processes]:
    with Processes() as started:
        yield started


@pytest.fixture
def url(seaweedfs: SeaweedFS) -> str:
    return seaweedfs.url(f"owners/{uuid.uuid4().hex}")


def owner(processes: Processes, url: str, cache: Path, does: str, lease_s: float) -> Process:
    process = processes.start(OWN, url, str(cache), does, lease_s)
    assert list(process.lines(1)) == ["owned"]
    return process


async def refused(url: str, cache: Path) -> LaneOwned:
    with pytest.raises(LaneOwned) as caught:
        await Database.open(url, cache=str(cache))
    return caught.value


@pytest.mark.slow
@pytest.mark.parametrize("same_cache", [True, False], ids=["same machine", "another machine"])
def test_a_second_owner_is_told_who_the_first_is(
    tmp_path: Path, processes: Processes, url: str, *, same_cache: bool
) -> None:
    """On the same machine the lock of the file says so at once; from another one, the lease that is renewed."""
    first = owner(processes, url, tmp_path / "one", "write", LONG_S)
    error = asyncio.run(refused(url, tmp_path / ("one" if same_cache else "two")))
    assert f"process {first.number}" in error.what
    assert socket.gethostname() in error.what
    first.close()


@pytest.mark.slow
@pytest.mark.parametrize("does", ["write", "read"])
def test_a_process_that_slept_through_its_lease_is_fenced(
    tmp_path: Path, processes: Processes, url: str, does: str
) -> None:
    first = owner(processes, url, tmp_path / "one", does, SHORT_S)
    said = list(first.lines(5))
    os.kill(first.number, signal.SIGSTOP)

    async def take_over() -> list[tuple[object, ...]]:
        async with Database.open(url, cache=str(tmp_path / "two"), lease_s=60.0) as db:
            for number in range(3):
                await written(db, "second", number)
            os.kill(first.number, signal.SIGCONT)
            said.extend(await asyncio.to_thread(lambda: list(first.lines())))
            await written(db, "second", 3)
            return [tuple(row) for row in await db.query("SELECT writer, at FROM entry ORDER BY id")]

    rows = asyncio.run(take_over())
    first.end()
    first.close()
    assert said[-4:] == ["!Fenced", "!Fenced", "!Fenced", "closed"], "its writes and its reads are refused alike"
    acknowledged = [int(line[1:]) for line in said if line[0] == "+"]
    kept = [at for writer, at in rows if writer == "first"]
    assert [writer for writer, _ in rows] == ["first"] * len(kept) + ["second"] * 4, "nothing of it behind the fence"
    # One append may have been on its way when it was stopped: stored before the fence, it is part of the log.
    assert kept in ([0, *acknowledged], [0, *acknowledged, len(acknowledged) + 1])
    if does == "read":
        assert {line for line in said if line[0] == "="} == {"=1"}, "it never showed an old state as the latest"
