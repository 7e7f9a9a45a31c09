"""`interlock bench durability`: a quick run, its files, and its exit code when something is lost (D12)."""

import json
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from interlock.bench import durability
from tests.unit.cli.running import ESCAPE, Interlock, run_program

QUICK = ("bench", "durability", "--quick", "--cycles", "2", "--clients", "4")


@pytest.mark.slow
def test_a_quick_run_shows_every_cycle_and_writes_its_files(interlock: Interlock, folder: Path) -> None:
    done = interlock(*QUICK, "--url", f"lanes://{folder}/ledger", "--json", "out/d.json", "--plot", "out/d.svg")
    assert done.code == 0, done.err
    assert done.err == "Wrote out/d.json\nWrote out/d.svg\n"
    result = json.loads((folder / "out/d.json").read_text())
    assert (result["name"], result["lost"], result["torn"], len(result["cycles"])) == ("durability", 0, 0, 2)
    assert ET.parse(folder / "out/d.svg").getroot().tag.endswith("svg")
    assert done.out.count("  cycle ") == 2
    assert "Goal met: 0 of " in done.out
    assert "A kill is not a power cut" in done.out
    assert not list(folder.glob("ledger*"))


def test_a_loss_ends_with_code_1_after_everything_was_shown(
    interlock: Interlock, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        durability.measure,
        "__kwdefaults__",
        {**(durability.measure.__kwdefaults__ or {}), "writer": "tests.crash.sabotaged_writers:acknowledges_early"},
    )
    done = interlock("bench", "durability", "--clients", "4", "--json", "d.json")
    assert done.code == 1
    assert "Goal MISSED" in done.out
    assert "acknowledged commits are gone" in done.err
    assert json.loads((folder / "d.json").read_text())["lost"] > 0


def test_a_database_that_exists_is_refused_and_left_alone(interlock: Interlock, folder: Path) -> None:
    lane = folder / "stock.lane"
    lane.write_bytes(b"mine")
    done = interlock(*QUICK, "--url", f"lanes://{folder}/stock")
    assert done.code == 2
    assert lane.read_bytes() == b"mine"


def test_memory_has_nothing_to_show(interlock: Interlock) -> None:
    done = interlock(*QUICK, "--url", "memory:")
    assert done.code == 2
    assert "no durability to measure" in done.err


@pytest.mark.slow
def test_a_terminal_gets_a_bar(folder: Path) -> None:
    done = run_program(*QUICK, folder=folder, FORCE_COLOR="1", TERM="xterm")
    assert done.code == 0
    assert ESCAPE in done.out
