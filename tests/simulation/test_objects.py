"""Thousands of stories about a lane whose log is a bucket; in none of them is a promise broken (G1 to G4, G7, G9).

A seed decides everything, so a failure is repeated with the command that is printed. INTERLOCK_SEEDS runs more of them.
"""

import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from interlock.testing.lane_simulation.bucket import READ_FAULTS, STORMS, WRITE_FAULTS
from interlock.testing.lane_simulation.simulate_lanes import play, simulate
from tests.simulation.tracing import untraced

SEEDS = int(os.environ.get("INTERLOCK_SEEDS", "1500"))
PORTION = 50
ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.campaign
@pytest.mark.parametrize("first", range(0, SEEDS, PORTION))
def test_no_story_breaks_a_promise(first: int) -> None:
    with untraced():
        for seed in range(first, min(first + PORTION, SEEDS)):
            result = simulate(seed)
            told = "\n".join((f"seed {seed}", *result.complaints, *result.story, result.repeat))
            assert not result.complaints, told


def test_the_same_seed_tells_the_same_story() -> None:
    with untraced():
        for seed in range(10):
            assert play(seed).text_lines() == play(seed).text_lines()


def test_another_process_tells_the_same_story() -> None:
    tell = "from interlock.testing.lane_simulation.simulate_lanes import play; print('\\n'.join(play(11).text_lines()))"
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "PYTHONHASHSEED": "77"}
    done = subprocess.run([sys.executable, "-c", tell], env=environment, capture_output=True, text=True, check=True)
    with untraced():
        assert done.stdout.splitlines() == play(11).text_lines()


@pytest.mark.slow
def test_stories_are_not_all_alike() -> None:
    """What a simulation does not exercise, it does not prove: everything that can happen has happened."""
    counts: Counter[str] = Counter()
    faults: Counter[str] = Counter()
    with untraced():
        for seed in range(150):
            result = simulate(seed)
            counts.update(result.counts)
            faults.update(result.faults)
    assert not [name for name in EXPECTED if not counts[name]]
    assert set(faults) == {*WRITE_FAULTS, *READ_FAULTS, *STORMS, "stale list", "deleted in part"}


EXPECTED = (
    *("acknowledged", "unknown", "fenced", "retried by key", "reads", "refusals", "spilled and rolled back"),
    *("opens with a clean local file", "takeovers", "kills", "disks lost", "stalls longer than the lease"),
    *("landed late", "landed after the kill", "landed in a collected slot"),
    *("logs folded", "parts of snapshots", "objects deleted"),
    *("not opened: LaneOwned", "not opened: Fenced", "not opened: OutcomeUnknown", "not opened: UnavailableError"),
)
