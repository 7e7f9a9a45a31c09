"""`interlock diagram` and `interlock describe`."""

from pathlib import Path
from xml.etree import ElementTree

import pytest

from interlock.core.describe import description_from_json
from interlock.examples.order import order
from tests.unit.cli.running import Interlock

ORDER = "interlock.examples.order:order"


@pytest.mark.parametrize(
    ("kind", "drawn"),
    [("mermaid", order.mermaid()), ("dot", order.dot()), ("svg", order.svg()), ("table", order.table())],
)
def test_a_diagram_is_what_the_machine_draws(interlock: Interlock, folder: Path, kind: str, drawn: str) -> None:
    assert interlock("diagram", ORDER, "--format", kind).out.rstrip("\n") == drawn.rstrip("\n")
    written = interlock("diagram", ORDER, "--format", kind, "--file", f"pictures/new/order.{kind}")
    assert (written.code, written.out) == (0, "")
    assert written.err == f"Wrote pictures/new/order.{kind}\n"
    assert (folder / f"pictures/new/order.{kind}").read_text(encoding="utf-8") == drawn


def test_mermaid_is_what_one_gets_without_asking(interlock: Interlock) -> None:
    assert interlock("diagram", ORDER).out.startswith("stateDiagram-v2")


@pytest.mark.parametrize("theme", ["auto", "light", "dark"])
def test_the_theme_is_that_of_the_picture(interlock: Interlock, theme: str) -> None:
    drawn = interlock("diagram", ORDER, "--format", "svg", "--theme", theme).out
    assert ElementTree.fromstring(drawn).attrib["class"] == f"interlock-{theme}"


def test_a_description_can_be_drawn_without_its_code(interlock: Interlock) -> None:
    interlock("describe", ORDER, "--file", "order.json")
    assert interlock("diagram", "order.json").out == interlock("diagram", ORDER).out


def test_a_description_reads_back_as_the_same_machine(interlock: Interlock, folder: Path) -> None:
    printed = interlock("describe", ORDER)
    assert printed.code == 0
    assert description_from_json(printed.out.encode()) == description_from_json(order.describe().to_json())
    interlock("describe", ORDER, "--file", "order.json")
    assert (folder / "order.json").read_text() == printed.out


def test_a_machine_with_errors_can_be_drawn_because_a_picture_shows_why(interlock: Interlock) -> None:
    done = interlock("diagram", "tickets:broken")
    assert (done.code, done.err) == (0, "")
    assert "stateDiagram-v2" in done.out


@pytest.mark.parametrize("command", [["describe", "tickets:broken"], ["plan", ORDER, "tickets:broken"]])
def test_a_machine_with_errors_is_not_kept_or_compared(interlock: Interlock, command: list[str]) -> None:
    done = interlock(*command)
    assert (done.code, done.out) == (1, "")
    assert "tickets.py:" in done.err
    assert "[unreachable-state]" in done.err
    assert "\n  why: " in done.err


@pytest.mark.parametrize("command", ["diagram", "describe"])
def test_a_file_that_cannot_be_written_is_an_error(interlock: Interlock, command: str) -> None:
    done = interlock(command, ORDER, "--file", "tickets.py/order.svg")
    assert done.code == 1
    assert "error: tickets.py/order.svg cannot be written: " in done.err
    assert "Traceback" not in done.err


def test_an_unknown_format_is_a_usage_error(interlock: Interlock) -> None:
    assert interlock("diagram", ORDER, "--format", "png").code == 2
