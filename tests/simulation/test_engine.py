"""The engine on its store in virtual time: hundreds of seeds keep every promise, and each of them repeats exactly."""

import subprocess
import sys
from pathlib import Path

import pytest

from interlock.testing.engine_simulation.sample_machines import FAULTS
from interlock.testing.engine_simulation.simulate_engine import COMMIT_FAULTS, play, run_campaign

SEEDS = 400
PROGRAM = """
import hashlib
from interlock.testing.engine_simulation.simulate_engine import play
told = hashlib.sha256()
for seed in range(40, 48):
    for line in play(seed).lines:
        told.update(repr(line).encode())
print(told.hexdigest())
"""


@pytest.mark.slow
def test_every_seed_keeps_every_promise() -> None:
    """G1, G2, G3, G5, G7, B5, B6, B9, B12, C2, C16."""
    campaign = run_campaign(0, SEEDS)
    assert not campaign.failed, "\n".join(
        ["", *(line for seed in campaign.failed[:2] for line in (seed.repeat, *seed.complaints[:5], *seed.story))]
    )
    assert campaign.seeds == SEEDS
    # A campaign that exercised nothing proves nothing.
    assert set(FAULTS) | set(COMMIT_FAULTS) <= set(campaign.faults)
    assert campaign.counts["crashes"] > SEEDS
    assert campaign.counts["clean ends"] > SEEDS / 4
    for kind in ("timers: fixed", "timers: paused", "timers: anew", "dead letters: undo", "dead letters: step"):
        assert campaign.counts[kind] > SEEDS / 50, kind


def test_a_seed_repeats_exactly() -> None:
    first, second = play(7), play(7)
    assert first.lines == second.lines
    assert len(first.lines) > 100


@pytest.mark.slow
def test_a_seed_repeats_exactly_in_another_process() -> None:
    """The order of sets and of addresses in memory decides nothing."""
    source = str(Path(__file__).parents[2] / "src")
    told = {
        subprocess.run(
            [sys.executable, "-c", PROGRAM],
            env={"PYTHONPATH": source, "PYTHONHASHSEED": seed},
            check=True,
            capture_output=True,
            text=True,
        ).stdout
        for seed in ("1", "2")
    }
    assert len(told) == 1
