"""`interlock bench`: a quick run, its files, and what it refuses."""

import json
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from tests.unit.cli.running import ESCAPE, Interlock, run_program

QUICK = ("bench", "group-commit", "--quick", "--clients", "8", "--seconds", "0.03")


def test_a_quick_run_shows_every_setting_and_writes_its_files(interlock: Interlock, folder: Path) -> None:
    done = interlock(*QUICK, "--json", "out/plateau.json", "--plot", "out/plateau.svg")
    assert done.code == 0, done.err
    assert done.err == "Wrote out/plateau.json\nWrote out/plateau.svg\n"
    result = json.loads((folder / "out/plateau.json").read_text())
    assert [(each["window_s"], each["batch"]) for each in result["points"]] == [
        (window, batch) for window in (0, 0.002) for batch in (1, 16, 256)
    ]
    assert ET.parse(folder / "out/plateau.svg").getroot().tag.endswith("svg")
    assert done.out.count("Window ") == 2


def test_it_says_what_grouping_does_not_do(interlock: Interlock) -> None:
    done = interlock(*QUICK, "--window", "0", "--batch", "4")
    assert "it does not remove the dependency" in done.out
    assert "solve" not in done.out + interlock("bench", "group-commit", "--help").out


def test_a_lane_that_exists_is_refused_and_left_alone(interlock: Interlock, folder: Path) -> None:
    lane = folder / "stock.lane"
    lane.write_bytes(b"mine")
    done = interlock(*QUICK, "--url", f"lanes://{folder}/stock")
    assert done.code == 2
    assert "there is a lane at" in done.err
    assert lane.read_bytes() == b"mine"


def test_a_pipe_gets_plain_lines(folder: Path) -> None:
    done = run_program(*QUICK, "--window", "0", "--batch", "4", folder=folder)
    assert done.code == 0
    assert ESCAPE not in done.out
    assert done.out.count("  window 0 ms, batch 4: ") == 3


@pytest.mark.slow
def test_a_terminal_gets_a_bar(folder: Path) -> None:
    done = run_program(*QUICK, "--window", "0", "--batch", "4", folder=folder, FORCE_COLOR="1", TERM="xterm")
    assert done.code == 0
    assert ESCAPE in done.out
