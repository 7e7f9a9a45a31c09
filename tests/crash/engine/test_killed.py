"""B1, B3, B5, B6, B9, B12, C2, C6, G2, G3, G5: kill -9 while orders flow through steps, and nothing is lost or doubled.

At any instant and at every named point: before a commit, between commit, acknowledgement and dispatch, between an
attempt and its report, in recovery, while timers are set again, in closing. INTERLOCK_CRASHES multiplies the number of
kills; INTERLOCK_SEED starts from another seed. A failure names its seed.
"""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from interlock.faultpoints import CLOSING_POINTS, GROUP_POINTS, LANE_POINTS, RECOVERY_POINTS
from interlock.testing.faults import Processes
from tests.crash.engine.campaign import Campaign
from tests.crash.engine.gateway import POINTS as GATEWAY_POINTS
from tests.crash.engine.sites import LocalHome

FACTOR = int(os.environ.get("INTERLOCK_CRASHES") or "1")
SEED = int(os.environ.get("INTERLOCK_SEED") or "1")
SHOPS = 6
CRASHES_PER_SHOP = 10
REACHED = (1, 3, 8)
FLOWING_POINTS = (*LANE_POINTS, *GROUP_POINTS, *GATEWAY_POINTS)
assert SHOPS * CRASHES_PER_SHOP + len(FLOWING_POINTS) * len(REACHED) + 8 >= 100


@pytest.fixture(scope="module")
def processes() -> Iterator[Processes]:
    with Processes() as started:
        yield started


@pytest.mark.campaign
@pytest.mark.parametrize("seed", range(SEED, SEED + SHOPS * FACTOR))
def test_nothing_is_lost_or_doubled_by_kills_at_any_instant(tmp_path: Path, processes: Processes, seed: int) -> None:
    campaign = Campaign(processes, tmp_path, LocalHome(tmp_path), seed=seed)
    for _ in range(CRASHES_PER_SHOP):
        campaign.crash_somewhere()
    assert campaign.crashes == CRASHES_PER_SHOP
    campaign.crash_until("under way", "duplicate", "taken back")
    campaign.finish_until("done", "cancelled")


@pytest.mark.campaign
@pytest.mark.parametrize("point", FLOWING_POINTS)
def test_nothing_is_lost_or_doubled_by_kills_at_a_point_of_the_data_path(
    tmp_path: Path, processes: Processes, point: str
) -> None:
    campaign = Campaign(processes, tmp_path, LocalHome(tmp_path), seed=SEED)
    for reached in REACHED * FACTOR:
        campaign.crash_at(point, reached)
    campaign.finish()
    assert campaign.crashes == len(REACHED) * FACTOR


@pytest.mark.campaign
@pytest.mark.parametrize("point", RECOVERY_POINTS)
def test_nothing_is_lost_or_doubled_by_kills_in_recovery(tmp_path: Path, processes: Processes, point: str) -> None:
    """Each recovery meets what a kill among flowing orders has left, and is killed itself, twice in a row."""
    campaign = Campaign(processes, tmp_path, LocalHome(tmp_path), seed=SEED)
    for _ in range(2 * FACTOR):
        campaign.crash_at("gateway.done", 20)
        campaign.crash_at(point, 1)
        campaign.crash_at(point, 1)
    campaign.crash_until("under way", "timers")
    campaign.finish()


@pytest.mark.campaign
@pytest.mark.parametrize("point", CLOSING_POINTS)
def test_nothing_is_lost_or_doubled_by_kills_in_closing(tmp_path: Path, processes: Processes, point: str) -> None:
    campaign = Campaign(processes, tmp_path, LocalHome(tmp_path), seed=SEED)
    for _ in range(2 * FACTOR):
        campaign.crash_at(point, 1, orders=12)
        campaign.close(orders=12)
    campaign.finish()
    assert campaign.crashes == 2 * FACTOR


@pytest.mark.slow
@pytest.mark.parametrize(
    ("sabotaged", "told"),
    [
        ("acknowledge_before_commit", "was acknowledged"),
        ("new_key_after_crash", "key"),
        ("owed_only_in_memory", "is left"),
    ],
)
def test_a_sabotaged_engine_is_caught(tmp_path: Path, processes: Processes, sabotaged: str, told: str) -> None:
    """The campaign can fail: each of these engines is broken in one way, and it says in which."""
    campaign = Campaign(processes, tmp_path, LocalHome(tmp_path), seed=SEED, sabotaged=sabotaged)
    with pytest.raises(AssertionError, match=told):
        _crash_and_finish(campaign)


def _crash_and_finish(campaign: Campaign) -> None:
    for _ in range(5):
        campaign.crash_at("gateway.done", 15)
        campaign.crash_at("group.executed", 20)
    campaign.finish(patience_s=1)
