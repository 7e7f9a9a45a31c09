"""B3, C6, G2, G3, G5: the power fails under an engine, and nothing is missing that anybody outside has seen.

Neither what was acknowledged to a customer, nor the transition and the key behind a call to the gateway. What a cut has
left is opened again and comes to its end. A failure names its seed.
"""

import asyncio
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from interlock.testing.faults import FaultyDisk
from tests.crash.engine.power import go_on, work_through_cuts

FACTOR = int(os.environ.get("INTERLOCK_CRASHES") or "1")
SEED = int(os.environ.get("INTERLOCK_SEED") or "1")


@pytest.fixture
def disk() -> Iterator[FaultyDisk]:
    faulty = FaultyDisk("faulty-engine")
    yield faulty
    faulty.close()


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(SEED, SEED + 2 * FACTOR))
def test_power_cuts_lose_nothing_that_was_told_or_asked(tmp_path: Path, disk: FaultyDisk, seed: int) -> None:
    cuts = asyncio.run(work_through_cuts(disk, tmp_path, seed))
    assert not cuts.problems
    assert cuts.examined >= 30
    assert cuts.unsynced
    assert cuts.kept
    for after in cuts.kept:
        assert not asyncio.run(go_on(after, seed))
