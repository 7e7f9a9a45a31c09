"""The testing kit: explore a machine, walk it at random, and see which transitions the tests never took.

Importing it needs nothing but Interlock. `walks` needs Hypothesis and is loaded on first use; the pytest plugin needs
pytest and is loaded by pytest itself. Both come with `pip install "interlock[testing]"`.

Below it: `interlock.testing.faults` breaks disks and processes, `interlock.testing.objects` has a bucket in memory, and
`interlock.testing.simulation` runs lanes on a bucket in virtual time.
"""

from importlib import import_module
from typing import TYPE_CHECKING

from interlock.testing.arrows import Arrow, Compiled, transitions
from interlock.testing.coverage import MachineCoverage, TransitionCoverage, coverage_from_json, measure
from interlock.testing.explore import Exploration, explore
from interlock.testing.moves import Attempted, Move, Unwound, play
from interlock.testing.path import assert_path
from interlock.testing.trial import Problem, Trial

if TYPE_CHECKING:
    from interlock.testing.stepping import SteppedLane
    from interlock.testing.strategies import Walk, WalkStep, walks
else:
    # Hidden from type checkers: to them a module with this function has every name, the misspelt ones too.
    def __getattr__(name: str) -> object:
        if name in {"Walk", "WalkStep", "walks"}:
            return getattr(import_module("interlock.testing.strategies"), name)
        if name == "SteppedLane":
            return getattr(import_module("interlock.testing.stepping"), name)
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


__all__ = [
    "Arrow",
    "Attempted",
    "Compiled",
    "Exploration",
    "MachineCoverage",
    "Move",
    "Problem",
    "SteppedLane",
    "TransitionCoverage",
    "Trial",
    "Unwound",
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
