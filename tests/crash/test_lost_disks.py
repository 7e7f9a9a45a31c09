"""G2, G3, G9 on a bucket: kill -9 and the loss of the local disk, at any instant and at every point, lose nothing.

Every life begins on another machine, as far as the lane can tell: with an empty folder, behind a lease that has to run
out. `make proof` goes through more than a hundred of them at any instant alone. A failure names its seed.
"""

import os
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from interlock.faultpoints import BUCKET_POINTS, LANE_POINTS
from interlock.testing.faults import Processes
from tests.crash.campaign import Campaign
from tests.crash.sites import BucketSite
from tests.integration.objects.servers import SeaweedFS

FACTOR = int(os.environ.get("INTERLOCK_CRASHES") or "1")
SEED = int(os.environ.get("INTERLOCK_SEED") or "1")
CRASHES_PER_DATABASE = 4
PROOF_DATABASES, PROOF_FACTOR = 13, 20
DATABASES = max(1, PROOF_DATABASES * FACTOR // PROOF_FACTOR)
assert 2 * CRASHES_PER_DATABASE * PROOF_DATABASES >= 100

KINDS = pytest.mark.parametrize("kind", ["statement", "transact"])


@pytest.fixture(scope="module")
def processes() -> Iterator[Processes]:
    with Processes() as started:
        yield started


def site(server: SeaweedFS, folder: Path, *, keeps_disk: bool = False) -> BucketSite:
    """A database of its own in a folder that all share, so that it is probed as any other."""
    return BucketSite(folder, server.url(f"crashes/{uuid.uuid4().hex}"), keeps_disk=keeps_disk)


@pytest.mark.slow
@KINDS
@pytest.mark.parametrize("seed", range(SEED, SEED + DATABASES))
def test_killed_at_any_instant_with_its_disk(
    tmp_path: Path, processes: Processes, seaweedfs: SeaweedFS, seed: int, kind: str
) -> None:
    campaign = Campaign(processes, tmp_path, site(seaweedfs, tmp_path), seed=seed, kind=kind)
    for _ in range(CRASHES_PER_DATABASE):
        campaign.crash_somewhere()
    campaign.finish()
    assert campaign.crashes == CRASHES_PER_DATABASE


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(SEED, SEED + DATABASES))
def test_killed_at_any_instant_and_its_disk_is_still_there(
    tmp_path: Path, processes: Processes, seaweedfs: SeaweedFS, seed: int
) -> None:
    """What the disk has may be ahead of the bucket, and must not be believed; but nobody waits for a lease."""
    kept = site(seaweedfs, tmp_path, keeps_disk=True)
    campaign = Campaign(processes, tmp_path, kept, seed=seed, kind="transact")
    for _ in range(CRASHES_PER_DATABASE):
        campaign.crash_somewhere()
    campaign.finish()
    assert campaign.crashes == CRASHES_PER_DATABASE


@pytest.mark.slow
def test_killed_at_every_point_with_its_disk(tmp_path: Path, processes: Processes, seaweedfs: SeaweedFS) -> None:
    """All points in one database: each life meets what all kills before it have left."""
    campaign = Campaign(processes, tmp_path, site(seaweedfs, tmp_path), seed=SEED, kind="transact")
    for point in (*BUCKET_POINTS, *LANE_POINTS):
        campaign.crash_at(point, 1)
    campaign.finish()
    assert campaign.crashes == len(BUCKET_POINTS) + len(LANE_POINTS)
