"""Power cuts at every sync and every named point while workflows move: no row without its history, nothing gone.

Before each cut the event loop is let run until everybody who was told something has taken note of it (G2, G3, B3).
"""

import asyncio
import shutil
from pathlib import Path

import apsw

from interlock import faultpoints
from interlock.clock import SystemChance, SystemClock
from interlock.lanes.lane import Lane
from interlock.lanes.lane_settings import LaneSettings
from interlock.store.lane_store import SqliteStore
from interlock.testing.faults import FaultyDisk
from tests.conformance.store.samples import effect, moved, run, started
from tests.crash.power import let_loop_turn

WORKFLOWS = 6
MOVES = 5
LOG_BYTES_MAX = 65_536


class Cuts:
    """Cuts the power again and again, and examines what each cut leaves."""

    def __init__(self, disk: FaultyDisk, folder: Path) -> None:
        self.known: dict[str, int] = {}
        """The versions that were acknowledged."""
        self.failures: list[str] = []
        self.examined = 0
        self._disk = disk
        self._folder = folder
        self._chance = SystemChance(7)
        self._loop = asyncio.get_running_loop()

    def cut(self, where: str) -> None:
        let_loop_turn(self._loop)
        certain = dict(self.known)
        self._disk.power_cut(self._folder, self._chance)
        try:
            self._examine(certain)
        except (AssertionError, apsw.Error) as error:  # Not raised here: this is the writer's thread.
            self.failures.append(f"{where}: {error!r}")
        shutil.rmtree(self._folder)
        self.examined += 1

    def _examine(self, certain: dict[str, int]) -> None:
        connection = apsw.Connection(str(self._folder / "workflows.lane"))
        assert connection.execute("PRAGMA integrity_check").get == "ok"
        rows = connection.execute("SELECT id, version FROM workflows").fetchall()
        versions = {str(workflow): int(str(version)) for workflow, version in rows}
        history: dict[str, list[int]] = {}
        for workflow, version in connection.execute("SELECT workflow_id, version FROM workflow_events ORDER BY id"):
            history.setdefault(str(workflow), []).append(int(str(version)))
        effects = {effect for (effect,) in connection.execute("SELECT id FROM workflow_effects").fetchall()}
        connection.close()
        for workflow, version in certain.items():
            assert versions.get(workflow, 0) >= version, f"acknowledged, and gone: {workflow} {version}"
        assert history == {each: list(range(1, version + 1)) for each, version in versions.items()}
        assert effects == {f"{each}-{version}" for each, version in versions.items() if version > 1}


async def work(folder: Path, disk: FaultyDisk) -> Cuts:
    """Every workflow moves on, one effect owed at a time."""
    settings = LaneSettings(wal_bytes_max=LOG_BYTES_MAX)
    lane = Lane(
        folder / "workflows.lane",
        settings=settings,
        clock=SystemClock(),
        prepare=lambda _connection, _now: None,
        vfs=disk.name,
    )
    store = SqliteStore(lane, SystemClock())
    await store.begin()
    cuts = Cuts(disk, folder / "after")

    async def live(workflow: str) -> None:
        change = started(workflow, context=b'"%s"' % (b"x" * 700))
        for version in range(1, MOVES + 1):
            assert await store.commit([change]) == []
            cuts.known[workflow] = version
            done = (f"{workflow}-{version}",) if version > 1 else ()
            owed = (effect(f"{workflow}-{version + 1}", workflow=workflow),)
            change = moved(change.row, key=f"k-{version}", effects=owed, effects_done=done)

    def before_sync(_number: int) -> bool:
        cuts.cut("sync")
        return False

    faultpoints.listen(cuts.cut)
    disk.fails_sync = before_sync
    try:
        await asyncio.gather(*(live(f"w-{number}") for number in range(WORKFLOWS)))
    finally:
        faultpoints.listen(None)
        disk.fails_sync = lambda _number: False
        await store.close()
    return cuts


def test_no_power_cut_tears_a_change_or_takes_one_back(tmp_path: Path) -> None:
    async def scenario() -> None:
        disk = FaultyDisk("faulty-store")
        try:
            cuts = await work(tmp_path, disk)
        finally:
            disk.close()
        assert cuts.examined > 2 * MOVES
        assert not cuts.failures, cuts.failures[:3]

    run(scenario)
