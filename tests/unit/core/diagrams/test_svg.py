"""What is written in the SVG: every state, every label, nothing unescaped, the same bytes each time.

There is no golden file: a drawing may change its looks, but not what it says.
"""

import random
import re
from xml.etree import ElementTree as ET

import pytest
from hypothesis import given

from interlock.core.describe import MachineDescription
from interlock.core.diagrams import svg
from interlock.core.diagrams.sketch import gather, guard, visible
from interlock.core.diagrams.svg import DARK, LIGHT, Palette
from tests.unit.core.diagrams.samples import CHECKOUT, HARD, ORDER, State, Transition, machine
from tests.unit.core.diagrams.strategies import machines

NAMESPACE = "{http://www.w3.org/2000/svg}"


def texts(document: str) -> list[str]:
    return ["".join(element.itertext()) for element in ET.fromstring(document).iter(f"{NAMESPACE}text")]


def pieces(document: str) -> list[str]:
    return [element.text or "" for element in ET.fromstring(document).iter(f"{NAMESPACE}tspan")]


@pytest.mark.slow
@given(machines())
def test_every_state_and_every_label_is_shown_and_the_xml_parses(description: MachineDescription) -> None:
    document = svg(description)
    shown = pieces(document)
    legend = " ".join(texts(document))
    for state in description.states:
        assert visible(state.name) in shown
    for transition in gather(description).single:
        assert visible(transition.event) in shown
        assert transition.guard is None or guard(transition) in shown
    for group in gather(description).catch_alls:
        for transition in group.transitions:
            assert visible(transition.event) in legend


@pytest.mark.slow
@given(machines())
def test_every_state_has_one_box_that_names_it(description: MachineDescription) -> None:
    """What is drawn beside a box later, as how many workflows are in the state, finds it by this name."""
    groups = ET.fromstring(svg(description)).iter(f"{NAMESPACE}g")
    named = [group.attrib["data-state"] for group in groups if "data-state" in group.attrib]
    assert named == [visible(state.name) for state in description.states]


@pytest.mark.slow
@given(machines(states_max=5))
def test_the_same_machine_gives_the_same_bytes(description: MachineDescription) -> None:
    assert svg(description) == svg(description)


@pytest.mark.slow
@given(machines(states_max=5))
def test_no_coordinate_leaves_the_view_box(description: MachineDescription) -> None:
    root = ET.fromstring(svg(description, visits={description.states[0].name: 7}))
    _, _, width, height = map(float, root.attrib["viewBox"].split())
    for element in root.iter():
        if "x" in element.attrib:
            assert 0 <= float(element.attrib["x"]) <= width
            assert 0 <= float(element.attrib["y"]) <= height
        if element.tag == f"{NAMESPACE}path" and "transform" not in element.attrib:
            numbers = list(map(float, re.findall(r"-?[\d.]+", element.attrib["d"])))
            assert all(0 <= x <= width for x in numbers[::2])
            assert all(0 <= y <= height for y in numbers[1::2])


def test_it_is_accessible() -> None:
    root = ET.fromstring(svg(ORDER))
    assert root.attrib["role"] == "img"
    assert root.attrib["aria-label"] == "State machine order"
    assert root[0].tag == f"{NAMESPACE}title"
    assert root[0].text == "order, version 1"


def test_names_are_escaped() -> None:
    name = "<script>alert('&\"')</script>\n|"
    odd = machine(
        name,
        (State(name=name, initial=True, final=True),),
        (Transition(source=name, event=name, target=name, guard=name, guard_reason=name, action=name),),
    )
    document = svg(odd)
    assert "<script" not in document
    assert visible(name) in pieces(document)
    assert f"[{visible(name)}]" in pieces(document)


def test_it_needs_nothing_from_outside() -> None:
    document = svg(ORDER)
    assert "http" not in document.replace("http://www.w3.org/2000/svg", "")
    assert "<script" not in document
    assert "@import" not in document
    assert "url(" not in document


def test_auto_follows_the_system_and_the_others_do_not() -> None:
    assert "prefers-color-scheme:dark" in svg(ORDER)
    for theme, own, other in (("light", LIGHT, DARK), ("dark", DARK, LIGHT)):
        document = svg(ORDER, theme=theme)  # type: ignore[arg-type]
        assert "prefers-color-scheme" not in document
        assert own.looks["plain"].fill in document
        assert other.looks["plain"].fill not in document


def test_steps_timers_and_unwinding_stand_in_their_box() -> None:
    order, checkout = texts(svg(ORDER)), texts(svg(CHECKOUT))
    assert "take_payment · 4 s" in order
    assert "24 h → CANCEL" in order
    assert "unwinds to failed" in checkout


def test_failed_and_unwound_arrows_are_dashed_in_their_own_colours() -> None:
    document = svg(CHECKOUT)
    assert document.count('<path class="line failed"') == 5 + 1  # The legend shows one, too.
    assert document.count('<path class="line unwound"') == 1 + 1
    assert re.search(r"\.line\.failed[^{]*\{stroke-dasharray", document)


def test_parallel_arrows_are_one_arrow_with_several_lines() -> None:
    both = svg(
        machine(
            "m",
            (State(name="a", initial=True), State(name="b")),
            (
                Transition(source="a", event="ONE", target="b"),
                Transition(source="a", event="TWO", target="b", kind="failed"),
            ),
        )
    )
    assert both.count('<path class="line') == 2  # The dot's arrow and the shared one.
    assert {"ONE", "TWO"} <= set(texts(both))


def test_an_arrow_taken_only_by_failure_looks_like_failure() -> None:
    document = svg(
        machine(
            "m",
            (State(name="a", initial=True),),
            (
                Transition(source="a", event="UNWOUND", target="a", kind="unwound"),
                Transition(source="a", event="STEP_FAILED", target="a", kind="failed"),
            ),
        )
    )
    assert document.count('<path class="line failed"') == 2
    assert "unwound" not in [line.lower() for line in texts(document) if line != "UNWOUND"]


def test_a_catch_all_is_one_pill_and_a_legend() -> None:
    shown = texts(svg(HARD))
    assert shown.count("any") == 1
    assert shown.count("EXPIRE") == 1
    assert "any: every state that is not final" in shown
    assert "ANNOTATE: handled without leaving, in every state that is not final" in shown


def test_two_catch_alls_with_other_sources_are_told_apart() -> None:
    names = ("a", "b", "c", "d", "e", "f", "g")
    states = (*(State(name=name, initial=name == "a") for name in names), State(name="z"))
    early = tuple(Transition(source=name, event="STOP", target="z", catch_all=True) for name in names[:3])
    late = tuple(Transition(source=name, event="HALT", target="z", catch_all=True) for name in names[1:])
    shown = texts(svg(machine("m", states, early + late)))
    assert "any: a, b, c" in shown
    assert "any 2: every state that is not final except a, z" in shown


def test_visits_colour_the_boxes_and_are_shown() -> None:
    document = svg(ORDER, visits={"pending": 12345, "paid": 1, "delivered": 200})
    shown = texts(document)
    assert "12,345 visits" in shown
    assert "1 visit" in shown
    assert shown.count("0 visits") == len(ORDER.states) - 3
    assert '<g class="plain heat5" data-state="pending">' in document
    assert '<g class="step heat0" data-state="payment_processing">' in document
    assert '<g class="cold"' in document
    assert "runs a step" not in shown


def test_a_legend_names_only_what_is_there() -> None:
    assert "resting" not in texts(svg(CHECKOUT))
    assert {"runs a step", "unwinding", "final", "step failed", "unwound"} <= set(texts(svg(CHECKOUT)))
    assert {"resting", "final"} <= set(texts(svg(ORDER)))


@pytest.mark.parametrize("palette", [LIGHT, DARK], ids=["light", "dark"])
def test_every_text_is_legible_on_its_fill(palette: Palette) -> None:
    for text in (palette.title, palette.muted, palette.label, palette.guard, palette.failed, palette.unwound):
        assert contrast(text, palette.canvas) >= 4.5
    assert LIGHT.looks.keys() == DARK.looks.keys()
    for paint in palette.looks.values():
        assert contrast(paint.text, paint.fill) >= 4.5
        assert contrast(paint.soft, paint.fill) >= 4.5


def contrast(one: str, other: str) -> float:
    lighter, darker = sorted((luminance(one), luminance(other)), reverse=True)
    return (lighter + 0.05) / (darker + 0.05)


def luminance(colour: str) -> float:
    channels = [int(colour[start : start + 2], 16) / 255 for start in (1, 3, 5)]
    linear = [channel / 12.92 if channel <= 0.04045 else ((channel + 0.055) / 1.055) ** 2.4 for channel in channels]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def test_a_crowded_machine_is_drawn_all_the_same() -> None:
    chance = random.Random(1)
    names = [f"state_{index}" for index in range(70)]
    crowded = machine(
        "crowded",
        tuple(State(name=name, initial=index == 0) for index, name in enumerate(names)),
        tuple(
            Transition(source=chance.choice(names), event=f"EVENT_{index}", target=chance.choice(names))
            for index in range(260)
        ),
    )
    shown = pieces(svg(crowded))
    assert all(f"EVENT_{index}" in shown for index in range(260))
