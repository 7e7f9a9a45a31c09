"""The experiment on group commit: what it measures, where it stops, what it leaves behind."""

import asyncio
from pathlib import Path

import pytest

from interlock.bench.group_commit import FIGURES, GroupCommitPoint, GroupCommitResult, check_bounds, measure, plateau
from interlock.bench.load import ROUNDS, median_point
from interlock.errors import BadUsage


def run(url: str | None, seen: list[GroupCommitPoint], **options: object) -> GroupCommitResult:
    chosen = {"windows_s": [0.0, 0.001], "batches": [1, 8], "clients": 8, "seconds": 0.06, **options}
    return asyncio.run(measure(url=url, watch=seen.append, **chosen))  # type: ignore[arg-type]


def point(batch: int, rate: float, window_s: float = 0.0) -> GroupCommitPoint:
    return GroupCommitPoint(
        window_s=window_s, batch=batch, commits_per_s=rate, group_mean=1, p50_ms=rate, p99_ms=2, cpu_us=3
    )


def test_every_setting_is_measured_in_turns() -> None:
    seen: list[GroupCommitPoint] = []
    result = run(None, seen)
    settings = [(0.0, 1), (0.0, 8), (0.001, 1), (0.001, 8)]
    assert [(each.window_s, each.batch) for each in result.points] == settings
    assert [(each.window_s, each.batch) for each in seen] == settings * ROUNDS
    assert [each.window_s for each in result.plateaus] == [0.0, 0.001]
    for each in result.points:
        assert each.commits_per_s > 0
        assert each.p50_ms <= each.p99_ms
        assert 1 <= each.group_mean <= each.batch


def test_it_never_claims_to_solve_contention() -> None:
    assert "does not remove the dependency" in run(None, []).caveat


def test_a_lane_of_the_user_is_never_touched(tmp_path: Path) -> None:
    lane = tmp_path / "stock.lane"
    lane.write_bytes(b"mine")
    with pytest.raises(BadUsage, match="already"):
        run(f"lanes://{tmp_path}/stock", [])
    assert [(each.name, each.read_bytes()) for each in tmp_path.iterdir()] == [("stock.lane", b"mine")]


def test_what_it_made_is_gone_afterwards(tmp_path: Path) -> None:
    run(f"lanes://{tmp_path}/here", [])
    assert list(tmp_path.iterdir()) == []


def test_it_runs_in_memory_too() -> None:
    assert run("memory:", []).points[0].commits_per_s > 0


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"windows_s": [-0.1]}, "a window of -0.1 s"),
        ({"windows_s": [1.5]}, "a window of 1.5 s"),
        ({"windows_s": [float("nan")]}, "a window of nan s"),
        ({"batches": [0]}, "a batch of 0"),
        ({"batches": [10_001]}, "a batch of 10,001"),
        ({"clients": 0}, "0 clients"),
        ({"clients": 10_001}, "10,001 clients"),
        ({"seconds": 0.0}, "0 seconds"),
        ({"seconds": 61.0}, "61 seconds"),
        ({"windows_s": []}, "0 settings"),
        ({"windows_s": [0.0] * 9}, "9 windows"),
        ({"batches": [1] * 201}, "201 settings"),
    ],
)
def test_what_would_not_end_or_not_fit_is_refused(options: dict[str, object], told: str) -> None:
    chosen = {"windows_s": [0.0], "batches": [1], "clients": 1, "seconds": 1.0, **options}
    with pytest.raises(BadUsage, match=told):
        check_bounds(**chosen)  # type: ignore[arg-type]


def test_a_point_is_made_of_medians() -> None:
    assert median_point([point(4, 30.0), point(4, 10.0), point(4, 20.0)], FIGURES) == point(4, 20.0)


def test_the_plateau_begins_where_nine_tenths_are_reached() -> None:
    found = plateau([point(1, 10.0), point(4, 40.0), point(16, 91.0), point(64, 100.0), point(256, 89.0)])
    assert (found.batch, found.commits_per_s, found.times_ungrouped) == (16, 100.0, 10.0)


def test_without_a_rate_of_single_commits_nothing_is_compared() -> None:
    assert plateau([point(4, 40.0)]).times_ungrouped is None
