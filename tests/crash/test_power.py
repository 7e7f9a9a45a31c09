"""G2, G3: a power cut takes every write that was not synced, or tears it, and nothing that was acknowledged is lost.

Power fails at every sync and at every named point, and each time in several ways. A failure names its seed.
"""

import asyncio
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from interlock import faultpoints
from interlock.testing.faults import FaultyDisk
from tests.crash.power import work_through_cuts

FACTOR = int(os.environ.get("INTERLOCK_CRASHES") or "1")
SEED = int(os.environ.get("INTERLOCK_SEED") or "1")


@pytest.fixture
def disk() -> Iterator[FaultyDisk]:
    faulty = FaultyDisk("faulty-power")
    yield faulty
    faulty.close()


@pytest.mark.campaign
@pytest.mark.parametrize("seed", range(SEED, SEED + 10 * FACTOR))
def test_power_cuts_lose_nothing_that_was_acknowledged(tmp_path: Path, disk: FaultyDisk, seed: int) -> None:
    cuts = asyncio.run(work_through_cuts(disk, tmp_path, seed))
    assert not cuts.failures
    assert cuts.places == {"sync", *faultpoints.LANE_POINTS}
    assert cuts.examined > 100
    assert cuts.lost > 0, "no cut took anything away: these are not power cuts"


@pytest.mark.campaign
@pytest.mark.parametrize("seed", range(SEED, SEED + 3 * FACTOR))
def test_power_cuts_lose_nothing_that_an_event_loop_wrote_itself(tmp_path: Path, disk: FaultyDisk, seed: int) -> None:
    cuts = asyncio.run(work_through_cuts(disk, tmp_path, seed, by_loop=True))
    assert not cuts.failures
    assert cuts.by_loop == {"sync", *faultpoints.LANE_POINTS} - {"log.folded"}
    assert cuts.examined > 100
    assert cuts.lost > 0, "no cut took anything away: these are not power cuts"
