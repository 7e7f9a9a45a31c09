"""C2-C5, C8, C9, C16 in virtual time: a fleet of orders, a bank with weather, and everything is judged by what arrives.

`INTERLOCK_FLEETS` says how many seeds; `python -m tests.simulation.fleet SEED` tells the story of one again.
"""

import os

import pytest

from tests.simulation.fleet import Fleet, run_campaign

SEEDS = int(os.environ.get("INTERLOCK_FLEETS", "200"))

RACES = (
    "cancels during a call",
    "cancelled, and done all the same",
    "done after the time limit",
    "done, answer lost",
    "killed between charge and commit",
    "refunds that fail twice",
    "breaker: closed to open",
    "breaker: half_open to open",
    "breaker: half_open to closed",
    "calls in a wave",
    "engines that share",
    "retries beyond the free ones",
    "dead letters: undo",
    "dead letters: effect",
    "forced: open",
    "forced: closed",
    "crashes",
    "clean ends",
)
"""A campaign in which one of these never happened proves nothing."""


@pytest.mark.slow
def test_every_fleet_comes_to_its_end_and_nothing_is_charged_in_vain() -> None:
    """No charge without its refund unless done, one key each, attempts within bounds, nothing called while open."""
    campaign = run_campaign(0, SEEDS)
    assert not campaign.failed, "\n".join(
        f"python -m tests.simulation.fleet {seed.seed}\n" + "\n".join((*seed.complaints[:5], *seed.story))
        for seed in campaign.failed[:2]
    )
    assert campaign.seeds == SEEDS
    seldom = {race: campaign.counts.get(race, 0) for race in RACES if campaign.counts.get(race, 0) < SEEDS / 40}
    assert not seldom, f"a campaign that does not do this proves nothing of it: {seldom}"


def test_a_fleet_repeats_exactly() -> None:
    told = []
    for _ in range(2):
        fleet = Fleet(11)
        fleet.run()
        told.append(fleet.story.lines)
    assert told[0] == told[1]
    assert len(told[0]) > 50
