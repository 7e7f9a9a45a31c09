"""D10, D11, G2, G4, G5: workflows move to PostgreSQL while orders flow through steps, and kill -9 hits whom it likes.

The mover at each of its points, the engine at the source, or nobody: afterwards an engine at the target brings every
order to its end. Each charge was made once, each result applied once, histories have no gaps, delivery keys are still
known, and undo logs unwind. INTERLOCK_CRASHES multiplies the number of seeds.
"""

import os
import signal
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from interlock.testing.faults import Process, Processes
from tests.crash.engine.moving import POINTS, MovingCampaign, MovingHome
from tests.crash.engine.sites import BucketHome, LocalHome
from tests.integration.objects.servers import SeaweedFS

FACTOR = int(os.environ.get("INTERLOCK_CRASHES") or "1")
SEED = int(os.environ.get("INTERLOCK_SEED") or "1")
SEEDS = range(SEED, SEED + FACTOR)


@pytest.fixture(scope="module")
def processes() -> Iterator[Processes]:
    with Processes() as started:
        yield started


@pytest.mark.slow
@pytest.mark.parametrize("seed", SEEDS)
def test_orders_that_flow_while_their_workflows_move_come_to_their_end(
    tmp_path: Path, processes: Processes, postgres_url: str, seed: int
) -> None:
    campaign = MovingCampaign(processes, tmp_path, MovingHome(LocalHome(tmp_path), postgres_url), seed=seed)
    campaign.crash_at("gateway.done", 20)
    assert campaign.move()[-1] == "moved"
    campaign.arrive()
    campaign.crash_until("under way", "duplicate", "taken back", "timers")
    campaign.finish_until("done", "cancelled")


@pytest.mark.slow
@pytest.mark.parametrize("seed", SEEDS)
def test_an_engine_that_nobody_stops_goes_along(
    tmp_path: Path, processes: Processes, postgres_url: str, seed: int
) -> None:
    """D11: its callers are told nothing; their orders go on at the target."""
    campaign = MovingCampaign(processes, tmp_path, MovingHome(LocalHome(tmp_path), postgres_url), seed=seed)
    assert campaign.move(along=300)[-1] == "moved"
    campaign.arrive()
    campaign.finish()


@pytest.mark.campaign
@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("point", POINTS)
def test_a_mover_that_is_killed_is_followed_by_one_that_goes_on(
    tmp_path: Path, processes: Processes, postgres_url: str, point: str, seed: int
) -> None:
    campaign = MovingCampaign(processes, tmp_path, MovingHome(LocalHome(tmp_path), postgres_url), seed=seed)
    assert campaign.move(die_at=point)[-1] == point
    if POINTS.index(point) < POINTS.index("leave"):
        campaign.crash_somewhere()  # Nothing has moved: the home goes on.
        assert campaign.move()[-1] == "moved"
    else:
        assert campaign.move_alone()[-1] == "moved"
    campaign.arrive()
    campaign.finish()


@pytest.mark.slow
@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("point", ["copy/1", "seal/0"])
def test_an_engine_that_is_killed_while_its_workflows_move_loses_nothing(
    tmp_path: Path, processes: Processes, postgres_url: str, point: str, seed: int
) -> None:
    campaign = MovingCampaign(processes, tmp_path, MovingHome(LocalHome(tmp_path), postgres_url), seed=seed)

    def strike(reached: str, life: Process) -> None:
        if reached == point:
            life.kill()

    assert campaign.move(strike=strike)[-1] == "moved"
    campaign.arrive()
    campaign.finish()


@pytest.mark.slow
@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("point", ["catch up/0", "leave/before", "leave"] if FACTOR > 1 else ["leave/before"])
def test_a_mover_from_a_bucket_that_is_killed_is_followed_by_one_that_goes_on(
    tmp_path: Path, processes: Processes, seaweedfs: SeaweedFS, postgres_url: str, point: str, seed: int
) -> None:
    """The mover takes the lane from a living engine, which is killed and loses its disk."""
    home = BucketHome(tmp_path, seaweedfs.url(f"shops/{uuid.uuid4().hex}"))
    campaign = MovingCampaign(processes, tmp_path, MovingHome(home, postgres_url), seed=seed)
    assert campaign.move(die_at=point)[-1] == point
    if point != "leave":
        campaign.crash_somewhere()
    assert campaign.move_alone()[-1] == "moved"
    campaign.arrive()
    campaign.finish()


@pytest.mark.slow
@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("point", ["watch", "copy/1", "catch up/0"] if FACTOR > 1 else ["copy/1"])
def test_an_engine_that_is_frozen_past_its_lease_goes_on_where_its_workflows_live(
    tmp_path: Path, processes: Processes, seaweedfs: SeaweedFS, postgres_url: str, point: str, seed: int
) -> None:
    """G4: the mover waits for the end of the lease, and what the engine had begun is decided at the target."""
    home = BucketHome(tmp_path, seaweedfs.url(f"shops/{uuid.uuid4().hex}"))
    campaign = MovingCampaign(processes, tmp_path, MovingHome(home, postgres_url), seed=seed)

    def strike(reached: str, life: Process) -> None:
        if reached in {point, "moved"}:
            os.kill(life.number, signal.SIGSTOP if reached == point else signal.SIGCONT)

    assert campaign.move(strike=strike, along=100)[-1] == "moved"
    campaign.arrive()
    campaign.finish()


@pytest.mark.slow
@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("point", ["copy/1", "seal/0", "leave/before"] if FACTOR > 1 else ["leave/before"])
def test_orders_come_to_their_end_on_the_way_back_too(
    tmp_path: Path, processes: Processes, postgres_url: str, point: str, seed: int
) -> None:
    """From PostgreSQL into the home again, with a mover that is killed, from under an engine that goes along."""
    campaign = MovingCampaign(processes, tmp_path, MovingHome(LocalHome(tmp_path), postgres_url), seed=seed)
    assert campaign.move()[-1] == "moved"
    campaign.arrive()
    assert campaign.move(die_at=point)[-1] == point
    assert campaign.move(along=100)[-1] == "moved"
    campaign.arrive()
    campaign.finish()
