"""The testing kit: run machines on the real engine in virtual time, explore them, walk them at random, measure tests.

`Harness` opens an engine in memory whose time skips by itself, breaks steps and kills the engine.

Importing it needs nothing but Interlock. `walks` needs Hypothesis and is loaded on first use; the pytest plugin needs
pytest and is loaded by pytest itself. Both come with `pip install "interlock[testing]"`.

Below it: `interlock.testing.faults` breaks disks and processes; `interlock.testing.lane_simulation` runs lanes on a
bucket in virtual time, and its `bucket` has a correct bucket in memory, too.
"""

from importlib import import_module
from typing import TYPE_CHECKING

from interlock.testing.coverage import (
    Arrow,
    Compiled,
    MachineCoverage,
    TransitionCoverage,
    coverage_from_json,
    measure,
    transitions,
)
from interlock.testing.explore import Attempted, Exploration, Move, Problem, Trial, Unwound, assert_path, explore, play

LATER = {
    "Call": "interlock.testing.harness",
    "Harness": "interlock.testing.harness",
    "SteppedLane": "interlock.testing.stepped_lane",
    "VirtualClock": "interlock.testing.virtual_time",
    "VirtualLoop": "interlock.testing.virtual_time",
}
"""What needs the engine or a database is loaded when it is first used: a test of a machine alone needs neither."""

if TYPE_CHECKING:
    from interlock.testing.harness import Call, Harness
    from interlock.testing.stepped_lane import SteppedLane
    from interlock.testing.strategies import Walk, WalkStep, walks
    from interlock.testing.virtual_time import VirtualClock, VirtualLoop
else:
    # Hidden from type checkers: to them a module with this function has every name, the misspelt ones too.
    def __getattr__(name: str) -> object:
        if name in {"Walk", "WalkStep", "walks"}:
            return getattr(import_module("interlock.testing.strategies"), name)
        if name in LATER:
            return getattr(import_module(LATER[name]), name)
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


__all__ = [
    "Arrow",
    "Attempted",
    "Call",
    "Compiled",
    "Exploration",
    "Harness",
    "MachineCoverage",
    "Move",
    "Problem",
    "SteppedLane",
    "TransitionCoverage",
    "Trial",
    "Unwound",
    "VirtualClock",
    "VirtualLoop",
    "Walk",
    "WalkStep",
    "assert_path",
    "coverage_from_json",
    "explore",
    "measure",
    "play",
    "transitions",
    "walks",
]
