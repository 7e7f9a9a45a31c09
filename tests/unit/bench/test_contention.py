"""Experiment 3: what is measured where, what the points say, and that no lost update goes unnoticed (D12, D13)."""

import asyncio
from collections.abc import Sequence

import msgspec
import pytest

from interlock.bench import contention
from interlock.bench.contention import (
    EVENT_LOG,
    FIGURES,
    GROUPED,
    ONE_ROW,
    ONE_ROW_ALONE,
    ROW,
    ROWS,
    SHARDED,
    STREAM_ROWS,
    STREAMS,
    ContentionPoint,
    ContentionResult,
    Part,
    Setting,
    check_bounds,
    findings,
    hand_off_for,
    kind_of,
    measure,
    settings_for,
    verdicts,
)
from interlock.bench.load import ROUNDS, Kind, median_point
from interlock.bench.plots import contention_plot
from interlock.errors import BadUsage, CorruptionError


def point(part: Part, series: str, clients: int, rate: float, *, databases: int = 1) -> ContentionPoint:
    return ContentionPoint(
        part=part,
        series=series,
        clients=clients,
        databases=databases,
        batch=1,
        hand_off_ms=0.0 if part == "disk" else 10.0,
        commits_per_s=rate,
        p50_ms=1.0 if part == "disk" else 11.0,
        p99_ms=12.0,
        cpu_us=3.0,
    )


def lane_points(*, sixteen: float = 14_000.0, sharded: float = 1_500.0, log: float = 6_000.0) -> list[ContentionPoint]:
    return [
        point("disk", ONE_ROW_ALONE, 1, 2_000.0),
        point("disk", ONE_ROW_ALONE, 64, 2_200.0),
        point("disk", ONE_ROW, 1, 2_000.0),
        point("disk", ONE_ROW, 64, 50_000.0),
        point("disk", ROWS, 1, 2_000.0),
        point("alone", ONE_ROW_ALONE, 64, 100.0),
        point("alone", STREAM_ROWS, 16, 1_600.0, databases=16),
        point("alone", SHARDED, 16, 900.0),
        point("alone", SHARDED, 256, sharded),
        point("alone", EVENT_LOG, 64, 99.0),
        point("grouped", ONE_ROW, 64, 6_300.0),
        point("grouped", ROWS, 64, 6_400.0),
        point("grouped", STREAM_ROWS, 64, 6_200.0, databases=16),
        point("grouped", SHARDED, 64, 4_000.0),
        point("grouped", EVENT_LOG, 64, log),
        point("databases", "separate databases", 16, 1_000.0),
        point("databases", "separate databases", 64, 3_900.0, databases=4),
        point("databases", "separate databases", 256, sixteen, databases=16),
    ]


def postgres_points() -> list[ContentionPoint]:
    rates = {ROW: 2_000.0, ROWS: 5_000.0, SHARDED: 4_500.0, EVENT_LOG: 3_000.0}
    return [
        *(point("disk", series, clients, rate) for series, rate in rates.items() for clients in (1, 16)),
        point("databases", "separate databases", 16, 2_000.0),
        point("databases", "separate databases", 256, 4_000.0, databases=16),
    ]


def run(settings: Sequence[Setting], url: str | None = "memory:") -> tuple[ContentionResult, list[ContentionPoint]]:
    seen: list[ContentionPoint] = []
    chosen = [each for each in settings_for(kind_of(url), hand_off_ms=0.0, quick=True) if each not in settings]
    small = [
        Setting(part=each.part, series=each.series, work=each.work, clients=2, databases=min(2, each.databases))
        for each in chosen
        if each.part != "databases"
    ]
    many = [
        Setting(part="databases", series="separate databases", work="row", clients=2 * count, databases=count)
        for count in (1, 2)
    ]
    unique = list(dict.fromkeys([*settings, *small, *many]))
    result = asyncio.run(measure(url=url, settings=unique, hand_off_ms=0.0, seconds=0.003, watch=seen.append))
    assert [(each.series, each.part) for each in seen] == [(each.series, each.part) for each in unique] * ROUNDS
    return result, seen


@pytest.mark.parametrize("url", ["memory:", None])
def test_every_setting_is_measured_in_turns_and_every_row_is_counted(url: str | None) -> None:
    result, _ = run([], url)
    assert all(each.commits_per_s > 0 and each.p50_ms <= each.p99_ms for each in result.points)
    assert result.findings


@pytest.mark.slow
def test_it_runs_on_postgresql(postgres: str) -> None:
    result, _ = run([], postgres)
    assert result.engine == "postgres"
    assert {each.series for each in result.points} >= {ROW, ROWS, SHARDED, EVENT_LOG}


@pytest.mark.parametrize("work", ["row", "rows", "sharded", "event_log"])
def test_an_update_that_is_lost_is_an_error(monkeypatch: pytest.MonkeyPatch, work: str) -> None:
    """A sabotaged increment changes nothing, and a sabotaged counter forgets one addition."""
    monkeypatch.setattr(contention, "INCREMENT", "UPDATE counter SET n = n + 0 WHERE id = $1")
    if work in {"sharded", "event_log"}:
        counted = contention._counting
        monkeypatch.setattr(contention, "_counting", lambda book, key, ask: counted(book, key, counted(book, key, ask)))
    setting = Setting(part="disk", series=ROW, work=work, clients=2)  # type: ignore[arg-type]
    with pytest.raises(CorruptionError, match="acknowledged"):
        asyncio.run(measure(url=None, settings=[setting], hand_off_ms=0.0, seconds=0.003, watch=lambda _: None))


@pytest.mark.parametrize(
    ("url", "kind"),
    [
        (None, "lane"),
        ("lanes:///x/y", "lane"),
        ("memory:", "memory"),
        ("s3://bucket/x", "bucket"),
        ("postgresql://host/db", "postgres"),
    ],
)
def test_the_address_says_which_engine_is_measured(url: str | None, kind: str) -> None:
    assert kind_of(url) == kind


def test_lanes_have_a_hand_off_and_others_have_their_own_way() -> None:
    assert [hand_off_for(None, None), hand_off_for(None, 3.0), hand_off_for("memory:", 0.0)] == [10.0, 3.0, 0.0]
    assert [hand_off_for("s3://bucket/x", 10.0), hand_off_for("postgresql://host/db", 10.0)] == [0.0, 0.0]


@pytest.mark.parametrize("quick", [True, False])
def test_on_lanes_both_the_red_case_and_groups_are_measured(quick: bool) -> None:
    settings = settings_for("lane", hand_off_ms=10.0, quick=quick)
    walls = {(each.part, each.batch) for each in settings if each.work == "row" and each.databases == 1}
    assert walls >= {("disk", 1), ("disk", GROUPED), ("alone", 1), ("grouped", GROUPED)}
    assert {each.databases for each in settings if each.part == "databases"} >= {1, 4, 16}
    assert all(each.hand_off_ms == (0.0 if each.part == "disk" else 10.0) for each in settings)
    assert {each.databases for each in settings if each.series == STREAM_ROWS} == {STREAMS}


@pytest.mark.parametrize("kind", ["bucket", "postgres"])
def test_what_is_far_away_by_itself_gets_no_hand_off(kind: Kind) -> None:
    assert not any(each.hand_off_ms for each in settings_for(kind, hand_off_ms=10.0, quick=False))


def test_goals_are_judged_by_shares_of_the_same_run() -> None:
    met = {each.name: (each.measured, each.met) for each in verdicts("lane", lane_points())}
    assert met == {
        "databases_linear": (14_000 / 16_000, True),
        "sharded_recovered": (1_500 / 1_600, True),
        "event_log_recovered": (6_000 / 6_400, True),
    }
    missed = verdicts("lane", lane_points(sixteen=12_000.0, sharded=1_200.0, log=5_000.0))
    assert [each.met for each in missed] == [False, False, False]


def test_nothing_is_judged_where_the_durable_place_is_near_and_the_reader_is_told() -> None:
    near = [msgspec.structs.replace(each, p50_ms=1.4) for each in lane_points()]
    assert verdicts("lane", near) == []
    assert any("The durable place is 1.4 ms away" in each for each in findings("lane", near))
    assert not any("The durable place is" in each for each in findings("lane", lane_points()))


def test_on_postgresql_the_reference_is_a_row_for_each_client_and_nothing_is_claimed_of_schemas() -> None:
    assert {each.name: (each.measured, each.met) for each in verdicts("postgres", postgres_points())} == {
        "sharded_recovered": (0.9, True),
        "event_log_recovered": (0.6, False),
    }


def test_the_findings_say_that_one_row_flattens() -> None:
    told = findings("lane", lane_points())
    assert told[0] == (
        "One row, one commit per group: 64 times the clients do 1.1 times the work; its best is 2,200/s, "
        "and the last step, from 1 to 64 clients, brings +10%."
    )
    assert any("An event log in a lane is one queue" in each for each in told)
    assert "16 separate databases do 14.0 times as much as one" in told[-1]
    assert "2.0 times as much as one" in findings("postgres", postgres_points())[-1]


def test_a_point_is_made_of_medians() -> None:
    rounds = [point("disk", ROW, 1, rate) for rate in (30.0, 10.0, 20.0)]
    assert median_point(rounds, FIGURES) == point("disk", ROW, 1, 20.0)


@pytest.mark.parametrize(
    ("seconds", "hand_off_ms", "told"),
    [(0.0, 0.0, "0 seconds"), (61.0, 0.0, "61 seconds"), (1.0, -1.0, "-1 ms"), (1.0, float("nan"), "nan ms")],
)
def test_what_would_not_end_is_refused(seconds: float, hand_off_ms: float, told: str) -> None:
    with pytest.raises(BadUsage, match=told):
        check_bounds(seconds=seconds, hand_off_ms=hand_off_ms)


@pytest.mark.parametrize(("kind", "points", "panels"), [("lane", lane_points(), 4), ("postgres", postgres_points(), 2)])
def test_the_plot_has_a_panel_for_each_part_and_says_that_the_dependency_stays(
    kind: Kind, points: list[ContentionPoint], panels: int
) -> None:
    result = ContentionResult(
        engine=kind, url="x", hand_off_ms=10.0, seconds=1.0, points=points, findings=[], verdicts=[]
    )
    drawing = contention_plot(result)
    assert drawing.count(">clients<") + drawing.count(">databases<") == panels
    assert "the dependency stays" in drawing
    assert "the dependency stays" in result.caveat
    assert ("goal: 0.8 · N · one" in drawing) == (kind == "lane")
