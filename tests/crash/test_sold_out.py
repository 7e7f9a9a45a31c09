"""10,000 units, 200 buyers at once, processes killed in between: sold + left + reserved = 10,000 on every engine (D8).

The same for balances (D15): what was paid out is gone, what was not is there, and none is below its limit. A purchase
that was acknowledged is accounted for; one that was under way when its process died happened whole or not at all, and
with its key it happens once. INTERLOCK_CRASHES multiplies the crashes. A failure names its seed.
"""

import os
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from interlock.faultpoints import LANE_POINTS
from interlock.testing.faults import Processes
from tests.crash.buyers import QUANTITY_MAX
from tests.crash.market import Market, Trade
from tests.crash.sites import BucketSite, LocalSite
from tests.integration.objects.servers import SeaweedFS

FACTOR = int(os.environ.get("INTERLOCK_CRASHES") or "1")
SEED = int(os.environ.get("INTERLOCK_SEED") or "1")
CRASHES = 4
SHOPS = 3
CONNECTIONS_MAX = 16

TRADES = pytest.mark.parametrize("trade", ["buy", "pay"])
SEEDS = pytest.mark.parametrize("seed", range(SEED, SEED + FACTOR))


class PostgresSite:
    """A schema that nobody has used, with room for the connections of all shops."""

    cache: str | None = None

    def __init__(self, url: str) -> None:
        self.url = f"{url}&connections_max={CONNECTIONS_MAX}"

    def crashed(self) -> None:
        """The server goes on."""


@pytest.fixture(scope="module")
def processes() -> Iterator[Processes]:
    with Processes() as started:
        yield started


def trade_until_nothing_is_left(market: Market) -> None:
    for _ in range(CRASHES):
        market.crash()
    market.finish()


@TRADES
@SEEDS
def test_a_local_lane_sells_exactly_what_it_has(tmp_path: Path, processes: Processes, trade: Trade, seed: int) -> None:
    market = Market(processes, LocalSite(tmp_path), trade, seed=seed)
    trade_until_nothing_is_left(market)
    assert market.crashes == CRASHES
    if trade == "buy":
        assert market.seen[0] < QUANTITY_MAX, "the crowd went home before it was sold out"


@pytest.mark.slow
@TRADES
@SEEDS
def test_a_lane_in_a_bucket_sells_exactly_what_it_has(
    tmp_path: Path, processes: Processes, seaweedfs: SeaweedFS, trade: Trade, seed: int
) -> None:
    """The disk of each process is lost with it."""
    site = BucketSite(tmp_path, seaweedfs.url(f"markets/{uuid.uuid4().hex}"), keeps_disk=False)
    trade_until_nothing_is_left(Market(processes, site, trade, seed=seed))


@pytest.mark.slow
@TRADES
@SEEDS
def test_several_shops_on_postgresql_sell_exactly_what_they_have(
    processes: Processes, postgres_url: str, trade: Trade, seed: int
) -> None:
    market = Market(processes, PostgresSite(postgres_url), trade, seed=seed, shops=SHOPS)
    trade_until_nothing_is_left(market)
    assert market.crashes == CRASHES * SHOPS


@TRADES
def test_killed_at_every_point_a_lane_sells_exactly_what_it_has(
    tmp_path: Path, processes: Processes, trade: Trade
) -> None:
    """All points in one market: each life meets what all kills before it have left."""
    market = Market(processes, LocalSite(tmp_path), trade, seed=SEED)
    for point in LANE_POINTS:
        market.crash_at(point)
    market.finish()
    assert market.crashes == len(LANE_POINTS)


def test_a_careless_shop_is_caught(tmp_path: Path, processes: Processes) -> None:
    """A check and a change that others come between: units are sold that the books do not have."""
    market = Market(processes, LocalSite(tmp_path), "buy", seed=SEED, careless=True)
    with pytest.raises(AssertionError, match="are gone, and must be"):
        market.finish()
