"""B1, B2, B5, B6, B12, C6, C11, G1 to G5, G9: orders flow while everything around them is disturbed.

INTERLOCK_CRASHES multiplies the number of disturbances; INTERLOCK_SEED starts from another seed. A failure names its
seed and its script, and shows what is stuck.
"""

import os
from collections.abc import Iterator

import pytest

from interlock.chaos.database_servers import OwnPostgres
from interlock.testing.faults import Processes
from tests.chaos.postgres.campaign import Campaign, own_postgres, script
from tests.chaos.postgres.disturbances import DISTURBANCES

FACTOR = int(os.environ.get("INTERLOCK_CRASHES") or "1")
SEED = int(os.environ.get("INTERLOCK_SEED") or "1")
SHOPS = 3
DISTURBANCES_PER_SHOP = 11
assert SHOPS * DISTURBANCES_PER_SHOP >= 30
assert len(DISTURBANCES) <= DISTURBANCES_PER_SHOP


@pytest.fixture(scope="module")
def server() -> Iterator[OwnPostgres]:
    with own_postgres() as started:
        yield started


@pytest.fixture(scope="module")
def processes() -> Iterator[Processes]:
    with Processes() as started:
        yield started


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(SEED, SEED + SHOPS * FACTOR))
def test_everything_acknowledged_is_there_and_every_order_ends_whatever_is_disturbed(
    server: OwnPostgres, processes: Processes, seed: int
) -> None:
    campaign = Campaign(server, processes, seed=seed)
    campaign.run(script(seed, DISTURBANCES_PER_SHOP))
    print(campaign.report())  # noqa: T201 -- the times to recover are what somebody may want to read.
    assert sum(campaign.seen[name] for name in DISTURBANCES) == DISTURBANCES_PER_SHOP
    for what in (*DISTURBANCES, "taken back", "duplicate", "connections refused", "done", "cancelled", "parked"):
        assert campaign.seen[what], f"{what} never happened: {campaign.seen}"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("sabotaged", "name", "told", "takeover_s"),
    [
        (
            "acknowledge_before_commit",
            "worker_killed",
            "was acknowledged|was answered|was refused: workflow-not-found",
            30,
        ),
        # It takes half a minute, and luck in when a worker wakes: the units catch it each time (tests/sabotage).
        *([("result_of_any_visit", "worker_frozen", "applied twice|has the result of", 30)] * (FACTOR > 1)),
        ("leases_without_end", "worker_killed", "others take over", 6),
    ],
)
def test_a_sabotaged_worker_is_caught(
    server: OwnPostgres, processes: Processes, sabotaged: str, name: str, told: str, takeover_s: float
) -> None:
    """The campaign can fail: each of these workers is broken in one way, and it says in which."""
    campaign = Campaign(server, processes, seed=SEED, sabotaged=sabotaged, takeover_s=takeover_s)
    with pytest.raises(AssertionError, match=told):
        campaign.run([name] * 6)
