"""A seed decides who is in which group and where the power goes out; what was acknowledged is always there (G2).

Deterministic: the same seed steps the same writer through the same interleaving. INTERLOCK_SEEDS runs more of them.
"""

import os
from pathlib import Path

import apsw
import pytest

from interlock.clock import SeededIds, SystemChance, SystemClock
from interlock.lanes.writer import Session, Work
from interlock.testing.faults import FaultyDisk
from interlock.testing.stepped_lane import SteppedLane

SEEDS = int(os.environ.get("INTERLOCK_SEEDS", "60"))
ROUNDS = 12


def increment(session: Session) -> object:
    return session.execute("UPDATE counter SET n = n + 1 WHERE id = 1")


def read_then_write(session: Session) -> object:
    [(n,)] = session.query("SELECT n FROM counter WHERE id = 1")
    assert isinstance(n, int)
    return session.execute("UPDATE counter SET n = ?1 WHERE id = 1", (n + 1,))


def failing(session: Session) -> object:
    session.execute("UPDATE counter SET n = n + 1000 WHERE id = 1")
    raise ValueError("halfway")


def vanishing(session: Session) -> object:
    session.execute("UPDATE counter SET n = n + 1000 WHERE id = 1")
    return session.execute("INSERT OR ROLLBACK INTO counter VALUES (1, 7)")


KINDS = (increment, read_then_write, increment, failing, vanishing)


class Story:
    """One seed: a lane on a faulty disk, clients that submit, and what they were told."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.folder = folder
        self.chance = SystemChance(seed)
        self.disk = FaultyDisk(f"stepped-{seed}")
        clock, ids = SystemClock(), SeededIds(seed)
        self.lane = SteppedLane(folder / "x.lane", clock=clock, ids=ids, vfs=self.disk.name)
        self.lane.submit(
            Work(lambda session: session.execute("CREATE TABLE counter (id INTEGER PRIMARY KEY, n INTEGER)"))
        )
        self.lane.submit(Work(lambda session: session.execute("INSERT INTO counter VALUES (1, 0)")))
        self.lane.run()
        self.acknowledged = 0
        self.cuts = 0

    def round(self) -> None:
        for _ in range(1 + int(self.chance.fraction() * 6)):
            self.lane.submit(Work(KINDS[int(self.chance.fraction() * len(KINDS))]))
        size = self.lane.gather(1 + int(self.chance.fraction() * len(self.lane.waiting)))
        self.cut(0)
        self.lane.execute()
        self.cut(0)
        good = sum(work.error is None for work in self.lane.group)
        self.lane.commit()
        self.cut(good)
        assert len(self.lane.acknowledge()) == size
        self.acknowledged += good
        self.cut(0)

    def cut(self, unacknowledged: int) -> None:
        """What a power cut at this instant would leave: everything acknowledged, and at most the group in flight."""
        if self.chance.fraction() < 0.5:
            return
        self.cuts += 1
        folder = self.folder / f"cut-{self.cuts}"
        self.disk.power_cut(folder, self.chance)
        connection = apsw.Connection(str(folder / "x.lane"))
        value = connection.execute("SELECT n FROM counter").get
        assert connection.execute("PRAGMA integrity_check").get == "ok"
        connection.close()
        assert value in (self.acknowledged, self.acknowledged + unacknowledged)
        if unacknowledged:
            assert value == self.acknowledged + unacknowledged, "the commit had returned"


@pytest.mark.campaign
@pytest.mark.parametrize("seed", range(SEEDS))
def test_what_was_acknowledged_survives_a_power_cut_at_any_step(tmp_path: Path, seed: int) -> None:
    story = Story(tmp_path, seed)
    for _ in range(ROUNDS):
        story.round()
    assert story.cuts, f"seed {seed} never lost power"
    story.lane.close()
    story.disk.close()


def test_the_same_seed_tells_the_same_story(tmp_path: Path) -> None:
    told = []
    for run in ("one", "two"):
        story = Story(tmp_path / run, 7)
        for _ in range(ROUNDS):
            story.round()
        told.append((story.acknowledged, story.cuts))
        story.lane.close()
        story.disk.close()
    assert told[0] == told[1]
