"""Thousands of stories about a lane whose log is a bucket; in none of them is a promise broken (G1 to G4, G7, G9).

A seed decides everything, so a failure is repeated with the command that is printed. INTERLOCK_SEEDS runs more of them.
"""

import os
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from interlock.testing.simulation.run import play, simulate

SEEDS = int(os.environ.get("INTERLOCK_SEEDS", "5000"))
PORTION = 50
ROOT = Path(__file__).resolve().parents[2]


@contextmanager
def untraced() -> Iterator[None]:
    """Without the tracing of a coverage run: it measures the core, and would only make this slow."""
    trace, thread_trace = sys.gettrace(), threading.gettrace()
    sys.settrace(None)
    threading.settrace(None)
    try:
        yield
    finally:
        threading.settrace(thread_trace)
        sys.settrace(trace)


@pytest.mark.parametrize("first", range(0, SEEDS, PORTION))
def test_no_story_breaks_a_promise(first: int) -> None:
    happened: Counter[str] = Counter()
    with untraced():
        for seed in range(first, min(first + PORTION, SEEDS)):
            result = simulate(seed)
            told = "\n".join((*result.complaints, *result.story, result.repeat))
            assert not result.complaints, f"seed {seed}\n{told}"
            happened.update(result.counts)
    assert {name for name in ("acknowledged", "takeovers", "kills", "fenced", "reads") if happened[name]}


def test_the_same_seed_tells_the_same_story() -> None:
    for seed in range(10):
        assert play(seed).told() == play(seed).told()


def test_another_process_tells_the_same_story() -> None:
    tell = "from interlock.testing.simulation.run import play; print('\\n'.join(play(11).told()))"
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "PYTHONHASHSEED": "77"}
    done = subprocess.run([sys.executable, "-c", tell], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == play(11).told()


def test_stories_are_not_all_alike() -> None:
    """What a simulation does not exercise, it does not prove: everything that can happen has happened."""
    counts: Counter[str] = Counter()
    faults: Counter[str] = Counter()
    with untraced():
        for seed in range(150):
            result = simulate(seed)
            counts.update(result.counts)
            faults.update(result.faults)
    for name in (*EXPECTED, "unknown", "retried by key", "landed late", "landed after the kill", "disks lost"):
        assert counts[name], f"never happened: {name}"
    assert all(faults.values())
    assert len(faults) == KINDS_OF_FAULT


EXPECTED = ("acknowledged", "fenced", "takeovers", "kills", "stalls longer than the lease", "reads", "refusals")
KINDS_OF_FAULT = 11
