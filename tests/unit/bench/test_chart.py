"""The charts: well-formed, complete, legible in both themes, and nothing outside the paper."""

import re
from xml.etree import ElementTree as ET

import pytest

from interlock.bench import plots as bench_plots
from interlock.bench.group_commit import GroupCommitPoint, GroupCommitResult, Plateau
from interlock.bench.plots import Axis, ChartLine, Panel, draw, group_commit_plot

SVG = "{http://www.w3.org/2000/svg}"


def texts(drawing: str) -> list[str]:
    return [each.text or "" for each in ET.fromstring(drawing).iter(f"{SVG}text")]


def panel(*lines: ChartLine, logarithmic: bool = False) -> Panel:
    return Panel("Rate", Axis("size", logarithmic=True), Axis("per second", logarithmic=logarithmic), lines)


def test_titles_units_names_and_ticks_are_there() -> None:
    drawing = draw(
        "A <title>", "A remark & more", [panel(ChartLine("one", [(1, 5), (10, 43)]), ChartLine("two", [(1, 7)]))]
    )
    told = texts(drawing)
    assert {"A <title>", "A remark & more", "Rate", "size", "per second", "one", "two"} <= set(told)
    assert {"1", "10", "0", "20", "40"} <= set(told)


@pytest.mark.parametrize("logarithmic", [True, False])
@pytest.mark.parametrize("points", [[(1, 1)], [(1, 0.002), (4, 90_000.0)], [(1, 10.0), (1_000, 10.0)]])
def test_every_point_is_within_the_axes(points: list[tuple[float, float]], logarithmic: bool) -> None:
    drawing = draw("t", "r", [panel(ChartLine("one", points), logarithmic=logarithmic)])
    [shown] = re.findall(r'<polyline class="line l-0" points="([^"]+)"', drawing)
    for pair in shown.split():
        x, y = map(float, pair.split(","))
        assert 0 <= x <= bench_plots.WIDTH - bench_plots.LEFT - bench_plots.RIGHT
        assert 0 <= y <= bench_plots.PLOT_HEIGHT


def test_it_is_drawn_for_light_and_for_dark_paper() -> None:
    drawing = draw("t", "r", [panel(ChartLine("one", [(1, 1)]))])
    light, dark = drawing.split("@media (prefers-color-scheme:dark)")
    for name in ("paper", "title", "soft", "axis", "grid", "l-0", "f-0", "l-7", "mark"):
        assert f".{name}" in light
        assert f".{name}" in dark
    assert "<script" not in drawing
    assert "href" not in drawing


def luminance(colour: str) -> float:
    parts = [int(colour[place : place + 2], 16) / 255 for place in (1, 3, 5)]
    red, green, blue = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


@pytest.mark.parametrize(
    ("paper", "lines"), [(bench_plots.LIGHT, bench_plots.LINES_LIGHT), (bench_plots.DARK, bench_plots.LINES_DARK)]
)
def test_text_and_lines_stand_out(paper: dict[str, str], lines: tuple[str, ...]) -> None:
    for colour in (paper["ink"], paper["soft"], *lines):
        low, high = sorted((luminance(colour), luminance(paper["paper"])))
        assert (high + 0.05) / (low + 0.05) >= 4.5, colour


def test_the_plot_of_group_commit_has_a_line_per_window_in_both_panels() -> None:
    points = [
        GroupCommitPoint(
            window_s=window, batch=batch, commits_per_s=batch * 9.0, group_mean=1, p50_ms=4, p99_ms=5, cpu_us=6
        )
        for window in (0.0, 0.005)
        for batch in (1, 100)
    ]
    plateaus = [Plateau(window_s=window, commits_per_s=900, batch=100, times_ungrouped=100) for window in (0.0, 0.005)]
    drawing = group_commit_plot(GroupCommitResult(clients=64, seconds=1, points=points, plateaus=plateaus))
    assert {"no window", "window 5 ms", "commits per second", "milliseconds"} <= set(texts(drawing))
    assert len(re.findall("<polyline", drawing)) == 4
    assert "one after the other" in drawing


def test_a_long_legend_goes_on_in_the_next_row_and_pushes_the_panels_down() -> None:
    short = [ChartLine(name, [(1, 1)]) for name in "abcd"]
    long = [ChartLine(name * 40, [(1, 1)]) for name in "abcd"]
    heights: list[int] = []
    for lines in (short, long):
        root = ET.fromstring(draw("t", "r", [panel(*lines)]))
        heights.append(int(root.attrib["height"]))
        names = [each for each in root.iter(f"{SVG}text") if each.text in {line.name for line in lines}]
        assert len(names) == 4
        for each in names:
            assert float(each.attrib["x"]) + 7 * len(each.text or "") <= bench_plots.WIDTH
        panels = [each for each in root if each.tag == f"{SVG}g"]
        top = float(re.findall(r"translate\(\d+ (\d+)\)", panels[0].attrib["transform"])[0])
        assert max(float(each.attrib["y"]) for each in names) < top - bench_plots.TOP + 1
    assert heights[1] > heights[0]


def test_panels_with_different_lines_have_a_legend_each_and_a_name_looks_the_same_everywhere() -> None:
    first = panel(ChartLine("one", [(1, 1)]), ChartLine("two", [(1, 2)]))
    second = panel(ChartLine("two", [(1, 3)]), ChartLine("three", [(1, 4)]))
    drawing = draw("t", "r", [first, second])
    assert [text for text in texts(drawing) if text in {"one", "two", "three"}] == ["one", "two", "two", "three"]
    assert re.findall(r'<polyline class="line l-(\d)"', drawing) == ["0", "1", "1", "2"]
    root = ET.fromstring(drawing)
    names = [each for each in root.iter(f"{SVG}text") if each.text in {"one", "two", "three"}]
    plots = [float(found) for found in re.findall(rf"translate\({bench_plots.LEFT} (\d+)\)", drawing) if found != "0"]
    # Each legend is between the title of its panel and its plot.
    assert [float(each.attrib["y"]) < plots[place // 2] for place, each in enumerate(names)] == [True] * 4
    assert float(names[2].attrib["y"]) > plots[0] + bench_plots.PLOT_HEIGHT
    assert all(
        float(each.attrib["x"]) + 7 * len(each.text or "") <= bench_plots.WIDTH - bench_plots.LEFT for each in names
    )


def test_a_remark_may_have_several_lines() -> None:
    drawing = draw("t", "first\nsecond", [panel(ChartLine("one", [(1, 1)]))])
    root = ET.fromstring(drawing)
    places = [float(each.attrib["y"]) for each in root.iter(f"{SVG}text") if each.text in {"first", "second"}]
    assert places == sorted(set(places))
    assert places[-1] < float(root.attrib["height"])


def test_an_axis_with_many_values_has_round_ticks_and_no_fraction_is_rounded_away() -> None:
    crashes = Axis("crash")
    many = Panel("Rate", crashes, Axis("ms"), [ChartLine("one", [(place, 12) for place in range(1, 201)])])
    told = texts(draw("t", "r", [many]))
    assert {"50", "100", "150", "200", "2.5", "7.5", "12.5"} <= set(told)
    assert "199" not in told
