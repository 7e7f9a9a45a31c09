"""The geometry of the SVG, checked on random machines: nothing overlaps, nothing leaves the canvas.

It is checked on the numbers of the layout, arrows included: no line may run through a box or a foreign label.
"""

from itertools import combinations, pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from interlock.core.describe import MachineDescription
from interlock.core.diagrams.layout import Box, CrossingArrow, Layout, assign_tracks, lay_out, lay_out_legend
from interlock.core.diagrams.sketch import sketch, text_width
from tests.unit.core.diagrams.samples import CHECKOUT, HARD, ORDER, SAMPLES, State, Transition, machine
from tests.unit.core.diagrams.strategies import machines

TOLERANCE = 0.2


def overlap(one: Box, other: Box) -> bool:
    return (
        one.left < other.right - TOLERANCE
        and other.left < one.right - TOLERANCE
        and one.top < other.bottom - TOLERANCE
        and other.top < one.bottom - TOLERANCE
    )


def check_geometry(layout: Layout) -> None:
    labels = [*(placed.loop_label for placed in layout.nodes), *(placed.label for placed in layout.arrows)]
    boxes = [*(placed.box for placed in layout.nodes), *(label for label in labels if label is not None)]
    for one, other in combinations(boxes, 2):
        assert not overlap(one, other)
    for box in boxes:
        assert box.left >= 0
        assert box.top >= 0
        assert box.right <= layout.width
        assert box.bottom <= layout.height
        assert box.bottom <= layout.legend_top + TOLERANCE
    for placed in layout.arrows:
        own = placed.label
        for start, end in pairwise(placed.points):
            line = Box(
                min(start[0], end[0]) - 0.1,
                min(start[1], end[1]) - 0.1,
                abs(start[0] - end[0]) + 0.2,
                abs(start[1] - end[1]) + 0.2,
            )
            assert start[0] == end[0] or start[1] == end[1]
            assert not any(overlap(line, box) for box in boxes if box != own)


def check_ends(layout: Layout) -> None:
    for placed in layout.arrows:
        assert on_border(layout.nodes[placed.arrow.tail].box, placed.points[0])
        assert on_border(layout.nodes[placed.arrow.head].box, placed.points[-1])


def on_border(box: Box, point: tuple[float, float]) -> bool:
    x, y = point
    beside = box.left - TOLERANCE <= x <= box.right + TOLERANCE and box.top - TOLERANCE <= y <= box.bottom + TOLERANCE
    at_side = min(abs(x - box.left), abs(x - box.right), abs(y - box.top), abs(y - box.bottom)) <= TOLERANCE
    return beside and at_side


@pytest.mark.slow
@given(machines())
def test_no_box_label_or_arrow_overlaps_another_and_all_are_on_the_canvas(description: MachineDescription) -> None:
    layout = lay_out(sketch(description))
    check_geometry(layout)
    check_ends(layout)


@pytest.mark.parametrize("description", SAMPLES, ids=lambda description: description.name)
def test_the_samples_fit_on_a_page_of_a_readme(description: MachineDescription) -> None:
    layout = lay_out(sketch(description, visits={}))
    check_geometry(layout)
    assert layout.width <= 1100
    assert layout.height <= 1300


@pytest.mark.parametrize("description", [ORDER, CHECKOUT, HARD], ids=lambda description: description.name)
def test_the_arrows_of_the_samples_do_not_cross(description: MachineDescription) -> None:
    layout = lay_out(sketch(description))
    lines = [
        (index, start, end) for index, placed in enumerate(layout.arrows) for start, end in pairwise(placed.points)
    ]
    crossings = [
        (one, other)
        for one, other in combinations(lines, 2)
        if one[0] != other[0] and crosses(one[1], one[2], other[1], other[2])
    ]
    assert crossings == []


def crosses(
    one: tuple[float, float], two: tuple[float, float], three: tuple[float, float], four: tuple[float, float]
) -> bool:
    first = Box(min(one[0], two[0]), min(one[1], two[1]), abs(one[0] - two[0]), abs(one[1] - two[1]))
    second = Box(min(three[0], four[0]), min(three[1], four[1]), abs(three[0] - four[0]), abs(three[1] - four[1]))
    return (
        first.left <= second.right
        and second.left <= first.right
        and first.top <= second.bottom
        and second.top <= first.bottom
    )


def test_the_happy_path_is_one_straight_line() -> None:
    layout = lay_out(sketch(CHECKOUT))
    middles = [
        placed.box.left + placed.box.width / 2
        for placed in layout.nodes
        if placed.node.name in ("pending", "validating", "charging", "reserving", "completed")
    ]
    assert max(middles) - min(middles) < 1


def test_a_retry_points_back_up() -> None:
    layout = lay_out(sketch(ORDER))
    names = [placed.node.name for placed in layout.nodes]
    retry = next(
        placed
        for placed in layout.arrows
        if (names[placed.arrow.tail], names[placed.arrow.head]) == ("payment_failed", "payment_processing")
    )
    assert retry.points[0][1] > retry.points[-1][1]


def test_a_short_machine_flows_to_the_right() -> None:
    short = machine(
        "short",
        (State(name="a", initial=True), State(name="b"), State(name="c", final=True)),
        (
            Transition(source="a", event="GO", target="b"),
            Transition(source="b", event="AGAIN", target="b"),
            Transition(source="b", event="GO", target="c"),
        ),
    )
    layout = lay_out(sketch(short))
    assert layout.flow == "right"
    check_geometry(layout)
    check_ends(layout)
    assert layout.nodes[0].box.right < layout.nodes[1].box.left < layout.nodes[2].box.left


def test_a_machine_without_states_is_an_empty_page() -> None:
    layout = lay_out(sketch(machine("empty", (), ())))
    assert layout.nodes == ()
    assert layout.width > 0
    assert layout.height > 0


def test_a_box_with_many_arrows_is_widened_to_keep_them_apart() -> None:
    many = 7
    star = machine(
        "star",
        (State(name="hub", initial=True), *(State(name=f"leaf_{index}") for index in range(many))),
        tuple(Transition(source="hub", event=f"GO_{index}", target=f"leaf_{index}") for index in range(many)),
    )
    layout = lay_out(sketch(star))
    check_geometry(layout)
    axis = 0 if layout.flow == "down" else 1
    ports = sorted(placed.points[0][axis] for placed in layout.arrows if placed.arrow.tail == 0)
    assert len(ports) == many
    assert min(right - left for left, right in pairwise(ports)) >= 10


def test_a_long_chain_does_not_exhaust_the_stack() -> None:
    count = 1500
    chain = machine(
        "chain",
        tuple(State(name=f"s{index}", initial=index == 0) for index in range(count)),
        tuple(Transition(source=f"s{index}", event="GO", target=f"s{index + 1}") for index in range(count - 1)),
    )
    assert len(lay_out(sketch(chain)).nodes) == count + 1


@given(st.lists(st.tuples(st.integers(0, 40), st.integers(0, 40)), max_size=12))
def test_turns_that_overlap_never_share_a_track(ends: list[tuple[int, int]]) -> None:
    check_tracks([CrossingArrow(index, start * 10, end * 10) for index, (start, end) in enumerate(ends)])


def test_a_crowd_of_turns_gets_tracks_too() -> None:
    check_tracks([CrossingArrow(index, index * 7 % 400, index * 13 % 400) for index in range(150)])


def check_tracks(turns: list[CrossingArrow]) -> None:
    tracks = assign_tracks(turns)
    for one, other in combinations(turns, 2):
        if tracks[one.chain] == tracks[other.chain]:
            assert one.high < other.low or other.high < one.low


def test_nested_turns_do_not_cross() -> None:
    outer, inner = CrossingArrow(0, 20, 200), CrossingArrow(1, 10, 100)
    tracks = assign_tracks([inner, outer])
    assert tracks[outer.chain] < tracks[inner.chain]


def test_a_legend_wraps_its_signs_and_breaks_its_remarks() -> None:
    legend = lay_out_legend(
        ["final", "step", "resting"], ["any: " + ", ".join(f"state_{index}" for index in range(20))], 180
    )
    assert legend.entries[0].line == 0
    assert legend.entries[-1].line > 0
    assert legend.entries[-1].left == 0
    assert len(legend.remarks) > 1
    assert all(text_width(line, 11) <= 180 for line in legend.remarks)
    assert legend.width <= 180
    assert lay_out_legend([], [], 180).height == 0


def test_a_word_too_long_for_the_legend_widens_it() -> None:
    assert lay_out_legend([], ["x" * 100], 180).width > 180
