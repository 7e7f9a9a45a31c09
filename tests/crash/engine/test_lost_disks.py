"""B6, G2, G3, G5 on a bucket: the process is killed and its disk is lost, and the next one, elsewhere, goes on.

Every life begins with an empty folder, behind a lease that has to run out. `make proof` goes through twenty times as
many. A failure names its seed.
"""

import os
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from interlock.testing.faults import Processes
from tests.crash.engine.campaign import Campaign
from tests.crash.engine.sites import BucketHome
from tests.integration.objects.servers import SeaweedFS

FACTOR = int(os.environ.get("INTERLOCK_CRASHES") or "1")
SEED = int(os.environ.get("INTERLOCK_SEED") or "1")
POINTS = ("engine.decided", "engine.committed", "gateway.done", "recovery.rearmed", "fence.stored")


@pytest.fixture(scope="module")
def processes() -> Iterator[Processes]:
    with Processes() as started:
        yield started


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(SEED, SEED + FACTOR))
def test_nothing_is_lost_or_doubled_when_the_disk_is_lost_too(
    tmp_path: Path, processes: Processes, seaweedfs: SeaweedFS, seed: int
) -> None:
    home = BucketHome(tmp_path, seaweedfs.url(f"shops/{uuid.uuid4().hex}"))
    campaign = Campaign(processes, tmp_path, home, seed=seed)
    campaign.close(orders=4)
    for point in POINTS:
        campaign.crash_at(point, 1 if point in {"recovery.rearmed", "fence.stored"} else 6)
    assert campaign.crashes == len(POINTS)
    campaign.crash_until("under way")
    campaign.finish()
