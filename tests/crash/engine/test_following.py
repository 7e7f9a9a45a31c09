"""D11, G5: an engine is killed, kill -9, at each point of its way to where its workflows went; nothing is lost."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from interlock.faultpoints import FOLLOWING_POINTS
from interlock.testing.faults import At, Processes
from tests.crash.engine.moving import MovingCampaign, MovingHome
from tests.crash.engine.sites import LocalHome

FACTOR = int(os.environ.get("INTERLOCK_CRASHES") or "1")
SEED = int(os.environ.get("INTERLOCK_SEED") or "1")
SEEDS = range(SEED, SEED + FACTOR)


class FollowingCampaign(MovingCampaign):
    """Lives that die on their way."""

    def follow(self, die_at: str) -> None:
        """A life that takes orders while everything is moved, and kills itself when it comes to a point."""
        life = self._start(die_at=At(die_at))
        heard = list(life.lines(40))
        assert self._moved(None, lambda _point: None, life.lines_for, heard)[-1] == "moved"
        self._crashed(life, heard)


@pytest.fixture(scope="module")
def processes() -> Iterator[Processes]:
    with Processes() as started:
        yield started


@pytest.mark.campaign
@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("point", FOLLOWING_POINTS)
def test_an_engine_that_is_killed_on_its_way_has_lost_nothing(
    tmp_path: Path, processes: Processes, postgres_url: str, point: str, seed: int
) -> None:
    campaign = FollowingCampaign(processes, tmp_path, MovingHome(LocalHome(tmp_path), postgres_url), seed=seed)
    campaign.follow(point)
    campaign.arrive()
    campaign.finish()
