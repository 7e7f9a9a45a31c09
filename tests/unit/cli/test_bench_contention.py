"""`interlock bench contention`: a quick run, its files, what it says and what it does not claim (D12, D13)."""

import json
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from interlock.bench import contention
from interlock.bench.load import ROUNDS
from tests.unit.cli.running import Interlock

QUICK = ("bench", "contention", "--quick", "--seconds", "0.006", "--handoff-ms", "1")


@pytest.mark.slow
def test_a_quick_run_shows_every_setting_and_writes_its_files(
    interlock: Interlock, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(contention, "FAR_MS", 0.0)  # So that goals are judged with a short hand-off, too.
    done = interlock(*QUICK, "--url", "memory:", "--json", "out/wall.json", "--plot", "out/wall.svg")
    assert done.code == 0, done.err
    assert done.err == "Wrote out/wall.json\nWrote out/wall.svg\n"
    result = json.loads((folder / "out/wall.json").read_text())
    assert (result["name"], result["engine"], result["hand_off_ms"]) == ("contention", "memory", 1.0)
    settings = contention.settings_for(contention.kind_of("memory:"), hand_off_ms=1.0, quick=True)
    assert [(each["part"], each["series"], each["clients"]) for each in result["points"]] == [
        (each.part, each.series, each.clients) for each in settings
    ]
    assert ET.parse(folder / "out/wall.svg").getroot().tag.endswith("svg")
    assert done.out.count(" commits/s\n") == len(settings) * ROUNDS
    assert done.out.count("Goal ") == 3
    assert "No update was lost" in done.out
    assert "the dependency stays" in done.out
    assert "…" not in done.out, "a column is cut off"


def test_it_never_claims_to_solve_contention(interlock: Interlock) -> None:
    told = interlock("bench", "contention", "--help").out
    assert "lower the price of contention" in told
    assert "solve" not in told


def test_a_lane_that_exists_is_refused_and_left_alone(interlock: Interlock, folder: Path) -> None:
    lane = folder / "stock.lane"
    lane.write_bytes(b"mine")
    done = interlock(*QUICK, "--url", f"lanes://{folder}/stock")
    assert done.code == 2
    assert "there is something at" in done.err
    assert lane.read_bytes() == b"mine"


@pytest.mark.parametrize("options", [("--handoff-ms", "-1"), ("--seconds", "0")])
def test_what_would_not_end_is_refused(interlock: Interlock, options: tuple[str, str]) -> None:
    assert interlock("bench", "contention", *options).code == 2


def test_a_hand_off_for_postgresql_is_told_to_be_none(interlock: Interlock) -> None:
    done = interlock(*QUICK, "--url", "postgresql://127.0.0.1:1/none?connect_timeout_s=0.1")
    assert done.code == 5
    assert "--handoff-ms is for lanes" in done.err
