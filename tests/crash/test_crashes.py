"""G2, G3, G9: what was acknowledged survives kill -9, nothing is there by half, what is unknown is resolved by its key.

INTERLOCK_CRASHES multiplies the number of databases (`make proof` asks for 20 times as many); INTERLOCK_SEED starts
from another seed. A failure names its seed.
"""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from interlock.faultpoints import LANE_POINTS
from interlock.testing.faults import Processes
from tests.crash.campaign import Campaign
from tests.crash.sites import LocalSite

FACTOR = int(os.environ.get("INTERLOCK_CRASHES") or "1")
SEED = int(os.environ.get("INTERLOCK_SEED") or "1")
DATABASES = 16
CRASHES_PER_DATABASE = 5
REACHED = (1, 2, 3, 5)
assert 2 * (DATABASES * CRASHES_PER_DATABASE + len(LANE_POINTS) * len(REACHED)) >= 200

KINDS = pytest.mark.parametrize("kind", ["statement", "transact"])


@pytest.fixture(scope="module")
def processes() -> Iterator[Processes]:
    with Processes() as started:
        yield started


@pytest.mark.campaign
@KINDS
@pytest.mark.parametrize("seed", range(SEED, SEED + DATABASES * FACTOR))
def test_killed_at_any_instant(tmp_path: Path, processes: Processes, seed: int, kind: str) -> None:
    campaign = Campaign(processes, tmp_path, LocalSite(tmp_path), seed=seed, kind=kind)
    for _ in range(CRASHES_PER_DATABASE):
        campaign.crash_somewhere()
    campaign.finish()
    assert campaign.crashes == CRASHES_PER_DATABASE


@pytest.mark.campaign
@KINDS
@pytest.mark.parametrize("point", LANE_POINTS)
def test_killed_at_every_point(tmp_path: Path, processes: Processes, point: str, kind: str) -> None:
    campaign = Campaign(processes, tmp_path, LocalSite(tmp_path), seed=SEED, kind=kind)
    for reached in REACHED * FACTOR:
        campaign.crash_at(point, reached)
    campaign.finish()
    assert campaign.crashes == len(REACHED) * FACTOR
