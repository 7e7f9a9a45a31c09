"""`interlock simulate lanes`: a summary of what happened, and the story of a seed that broke a promise."""

import json
from importlib import import_module as really_import

import pytest

from interlock.cli import chaos_and_simulate as simulate
from interlock.engine.recovery import Recovery
from interlock.lanes.lane import Lane
from interlock.testing.lane_simulation.simulate_lanes import PROCESSES_MAX, run_campaign
from tests.unit.cli.running import Interlock


def test_the_summary_says_what_happened(interlock: Interlock) -> None:
    done = interlock("simulate", "lanes", "--seeds", "4", "--from", "3")
    assert done.code == 0
    assert "4 seeds, " in done.out
    assert "  acknowledged" in done.out
    assert done.out.endswith("Every promise was kept, from seed 3 to 6.\n")


def test_json_has_the_counts(interlock: Interlock) -> None:
    done = interlock("simulate", "lanes", "--seeds", "2", "--processes", "3", "-o", "json")
    told = json.loads(done.out)
    assert (told["first"], told["seeds"], told["failed"]) == (0, 2, [])
    assert told["counts"]["opens"] >= 2
    assert isinstance(told["faults"], dict)


def test_a_broken_promise_is_told_with_its_story(interlock: Interlock, monkeypatch: pytest.MonkeyPatch) -> None:
    async def at_once(_lane: Lane, _groups: int) -> None:
        pass

    monkeypatch.setattr(Lane, "durable_up_to", at_once)
    done = interlock("simulate", "lanes", "--seeds", "20")
    assert done.code == 1
    assert "before it was durable" in done.out
    assert "is shown" in done.out
    assert "Again: interlock simulate lanes --seeds 1 --from" in done.out
    assert "broke a promise" in done.out.splitlines()[-1]


@pytest.mark.parametrize(
    "wrong", [("--seeds", "0"), ("--seeds", "1", "--from", "-1"), ("--processes", str(PROCESSES_MAX + 1))]
)
def test_numbers_that_make_no_sense_are_refused(interlock: Interlock, wrong: tuple[str, ...]) -> None:
    done = interlock("simulate", "lanes", *wrong)
    assert done.code == 2
    assert "Give a number from" in done.err


def test_without_the_extra_the_command_to_install_it_is_shown(
    interlock: Interlock, monkeypatch: pytest.MonkeyPatch
) -> None:
    def missing(name: str) -> object:
        if name == "interlock.testing.lane_simulation.simulate_lanes":
            raise ModuleNotFoundError(name="zstandard")
        return really_import(name)

    monkeypatch.setattr(simulate, "import_module", missing)
    done = interlock("simulate", "lanes", "--seeds", "1")
    assert done.code == 1
    assert 'pip install "interlock[objects]"' in done.err


@pytest.mark.slow
def test_seeds_are_dealt_out_to_several_processes() -> None:
    done: list[int] = []
    campaign = run_campaign(0, 30, workers=2, watch=done.append)
    assert sorted(done) == [10, 20]
    assert campaign.seeds == 30
    assert not campaign.failed


def test_the_engine_is_simulated(interlock: Interlock) -> None:
    done = interlock("simulate", "engine", "--seeds", "3", "--from", "5")
    assert done.code == 0
    assert "3 seeds, " in done.out
    assert "  transitions" in done.out
    assert done.out.endswith("Every promise was kept, from seed 5 to 7.\n")


@pytest.mark.slow
def test_a_broken_engine_is_told_with_its_story(interlock: Interlock, monkeypatch: pytest.MonkeyPatch) -> None:
    async def none(recovery: Recovery) -> int:
        del recovery
        return 0

    monkeypatch.setattr(Recovery, "_effects", none)
    done = interlock("simulate", "engine", "--seeds", "20", "-o", "json")
    assert done.code == 1
    [failed, *_] = json.loads(done.out)["failed"]
    assert "never ran" in failed["complaints"][0] or "never ends" in failed["complaints"][0]
    done = interlock("simulate", "engine", "--seeds", "20")
    assert "Again: interlock simulate engine --seeds 1 --from" in done.out
    assert "BROKEN" in done.out
