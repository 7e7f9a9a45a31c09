"""`interlock bench orders`: a quick run, its files, and what it refuses."""

import json
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from interlock.bench import orders
from interlock.errors import CorruptionError
from tests.unit.cli.running import Interlock

SHORT = ("bench", "orders", "--seconds", "0.01", "--clients", "2", "--clients", "4")


def test_a_short_run_shows_every_series_and_writes_its_files(interlock: Interlock, folder: Path) -> None:
    done = interlock(*SHORT, "--url", f"lanes://{folder}/shop", "--json", "out/o.json", "--plot", "out/o.svg")
    assert done.code == 0, done.err
    assert done.err == "Wrote out/o.json\nWrote out/o.svg\n"
    result = json.loads((folder / "out/o.json").read_text())
    assert result["name"] == "orders"
    assert [(point["series"], point["clients"]) for point in result["points"]] == [
        (series, clients) for clients in (2, 4) for series in orders.SERIES
    ]
    assert len(result["ratios"]) == 4
    assert all(point["orders_per_s"] > 0 for point in result["points"])
    assert ET.parse(folder / "out/o.svg").getroot().tag.endswith("svg")
    assert "times by hand" in done.out
    assert "has arrived, with its history" in done.out
    assert not list(folder.glob("shop*"))


@pytest.mark.parametrize("words", [("--url", "memory:"), ("--clients", "0"), ("--seconds", "0"), ("--seconds", "61")])
def test_what_cannot_be_measured_is_refused(interlock: Interlock, words: tuple[str, ...]) -> None:
    done = interlock("bench", "orders", *words)
    assert done.code == 2
    assert "Traceback" not in done.err


def test_an_order_that_has_not_arrived_is_told() -> None:
    orders._check_arrived("order", 5, 5, True)
    for found, whole in ((4, True), (5, False)):
        with pytest.raises(CorruptionError):
            orders._check_arrived("order", found, 5, whole)
