"""A small disk: what a lane says when it is full, and what is there when it is not full any more (C14, G9)."""

import asyncio
import contextlib
import os
import select
import signal
import subprocess
import sys
from collections.abc import Generator
from pathlib import Path

import pytest

from interlock.errors import InterlockError, OutcomeUnknown, TransactionError, UnavailableError
from interlock.testing.faults import FILLING, DiskKind, SmallDisk, use_disk
from tests.unit.lanes.lanes import opened, run, sql


def may_mount() -> bool:
    """As far as one can know without doing it: root in a container often may not."""
    return sys.platform.startswith("linux") and os.geteuid() == 0 and not _refused()


def _refused() -> bool:
    status = Path("/proc/self/status").read_text(encoding="ascii")
    effective = next(line for line in status.splitlines() if line.startswith("CapEff:")).split()[1]
    return not int(effective, 16) >> 21 & 1  # CAP_SYS_ADMIN


KINDS: list[DiskKind] = ["simulated", "tmpfs"] if may_mount() else ["simulated"]


@pytest.fixture(params=KINDS)
def disk(request: pytest.FixtureRequest, tmp_path: Path) -> Generator[SmallDisk]:
    kind: DiskKind = request.param
    with contextlib.closing(SmallDisk(tmp_path / "disk", size_bytes=4_000_000, mounts=kind == "tmpfs")) as made:
        assert made.kind == kind
        simulated = use_disk(made.folder, made.kind)
        try:
            yield made
        finally:
            if simulated is not None:
                simulated.unregister()


def mounted(folder: Path) -> bool:
    mounts = Path("/proc/mounts")
    return mounts.exists() and str(folder) in mounts.read_text(encoding="utf-8")


def test_a_lane_on_a_full_disk_loses_nothing_that_it_has_acknowledged(disk: SmallDisk) -> None:
    """Whoever could not be served is told so; with space it goes on, and what was acknowledged is there."""

    async def scenario() -> None:
        acknowledged = 0
        with opened(disk.folder / "x") as lane:
            await lane.run(sql("CREATE TABLE big (data BLOB)"))
            disk.fill()
            refused: InterlockError | None = None
            while refused is None:
                try:
                    await lane.run(sql("INSERT INTO big VALUES (randomblob(10000))"))
                except (TransactionError, UnavailableError) as error:
                    refused = error
                else:
                    acknowledged += 1
                    assert acknowledged < 100, "there is no room for so much"
            assert "full" in str(refused)
            doubted = isinstance(refused, OutcomeUnknown)
        disk.empty()
        with opened(disk.folder / "x") as lane:
            found = await lane.read(lambda connection: connection.execute("SELECT count(*) FROM big").get)
            assert isinstance(found, int)
            assert acknowledged <= found <= acknowledged + doubted
            await lane.run(sql("INSERT INTO big VALUES (randomblob(10000))"))

    run(scenario)


def test_a_full_disk_says_so_to_everything_that_grows_on_it_and_to_nothing_elsewhere(
    disk: SmallDisk, tmp_path: Path
) -> None:
    disk.fill()
    run(lambda: _grow(tmp_path / "beside"))
    with pytest.raises(UnavailableError):
        run(lambda: _grow(disk.folder / "x"))
    disk.empty()
    run(lambda: _grow(disk.folder / "x"))


async def _grow(path: Path) -> None:
    with opened(path) as lane:
        await asyncio.wait_for(lane.run(sql("CREATE TABLE made (id INTEGER)")), 300)


def test_nothing_is_left_of_it(tmp_path: Path) -> None:
    for kind in KINDS:
        disk = SmallDisk(tmp_path / "disk", mounts=kind == "tmpfs")
        assert mounted(disk.folder) == (kind == "tmpfs")
        (disk.folder / "file").write_text("x")
        disk.fill()
        disk.close()
        disk.close()
        assert not disk.folder.exists()
        assert not mounted(disk.folder)


def test_who_may_not_mount_gets_a_simulated_one_that_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    with contextlib.closing(SmallDisk(tmp_path / "disk")) as disk:
        assert disk.kind == "simulated"
        assert "simulated" in disk.description
        disk.fill()
        assert (disk.folder / FILLING).stat().st_size == 0
    with pytest.raises(UnavailableError, match="no disk can be mounted"):
        SmallDisk(tmp_path / "disk", mounts=True)


KILLED = """
import os, signal, sys
from pathlib import Path
from interlock.testing.faults import SmallDisk
disk = SmallDisk(Path(sys.argv[1]), mounts=True)
print(disk._unmounting.pid, flush=True)
sys.stdin.readline()
os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.skipif("tmpfs" not in KINDS, reason="this process may not mount")
def test_a_disk_is_taken_out_when_the_experiment_is_killed(tmp_path: Path) -> None:
    folder = tmp_path / "disk"
    path = os.pathsep.join(each for each in sys.path if each)
    command = [sys.executable, "-c", KILLED, str(folder)]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env={**os.environ, "PYTHONPATH": path}
    ) as child:
        assert child.stdin is not None
        assert child.stdout is not None
        unmounting = os.pidfd_open(int(child.stdout.readline()))
        try:
            assert mounted(folder)
            child.communicate(b"\n")
            assert child.returncode == -signal.SIGKILL
            assert select.select([unmounting], [], [], 60)[0], "what takes it out has ended"
        finally:
            os.close(unmounting)
    assert not mounted(folder)
