"""Evidence from a file: read strictly, because a misspelt field would be a measurement that was not taken."""

import json
from pathlib import Path

import msgspec
import pytest

from interlock.errors import BadUsage, TargetNotFound, UnusableFile
from interlock.hotrow import placement_advice
from interlock.hotrow.placement_advice import Evidence, read_evidence, timed
from interlock.lanes.lane_settings import LaneSettings
from tests.unit.hotrow.placement_advice.windows import row, window

LEAST = {"database": "stock", "engine": "lane", "seconds": 10, "writes_per_s": 0}


def test_windows_come_back_as_they_were_written(tmp_path: Path) -> None:
    windows = [window(row(3), row(4, key=7)), window(engine="postgres", p99_s=None)]
    (tmp_path / "seen.json").write_bytes(msgspec.json.encode(windows))
    assert read_evidence(tmp_path / "seen.json") == windows


def test_what_was_not_measured_may_be_left_out(tmp_path: Path) -> None:
    (tmp_path / "seen.json").write_text(json.dumps([LEAST]))
    [found] = read_evidence(tmp_path / "seen.json")
    assert (found.p99_s, found.plateau_per_s, found.rows, found.streams) == (None, None, (), 1)
    assert found.flag_threshold == LaneSettings().contention_flag_threshold


@pytest.mark.parametrize(
    "content",
    [
        "",
        "no JSON",
        "{}",
        "[1]",
        "[{}]",
        "[" * 100_000,
        b"\xff",
        json.dumps([{**LEAST, "p99": 0.1}]),
        json.dumps([{**LEAST, "engine": "redis"}]),
        json.dumps([{**LEAST, "seconds": 0}]),
        json.dumps([{**LEAST, "writes_per_s": -1}]),
        json.dumps([{**LEAST, "p99_s": -1}]),
        json.dumps([{**LEAST, "plateau_per_s": 0}]),
        json.dumps([{**LEAST, "streams": 0}]),
        json.dumps([{**LEAST, "rows": [{"table": "stock"}]}]),
        '[{"database": "stock", "engine": "lane", "seconds": NaN, "writes_per_s": 0}]',
    ],
    ids=lambda content: str(content)[:30],
)
def test_a_file_that_holds_no_evidence_is_refused(tmp_path: Path, content: str | bytes) -> None:
    path = tmp_path / "seen.json"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(UnusableFile) as caught:
        read_evidence(path)
    assert "seen.json" in caught.value.what
    assert "JSON array" in caught.value.why


def test_a_file_that_is_not_there_or_cannot_be_read_is_told(tmp_path: Path) -> None:
    with pytest.raises(TargetNotFound, match=r"there is no file .*seen\.json"):
        read_evidence(tmp_path / "seen.json")
    with pytest.raises(UnusableFile, match="Is a directory"):
        read_evidence(tmp_path)


@pytest.mark.parametrize("name", ["", "x" * 101, "a\nb"])
def test_a_name_that_no_database_has_is_refused(tmp_path: Path, name: str) -> None:
    (tmp_path / "seen.json").write_text(json.dumps([{**LEAST, "database": name}]))
    with pytest.raises(UnusableFile, match="is not the name of a database"):
        read_evidence(tmp_path / "seen.json")


def test_there_is_a_bound_on_windows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(placement_advice, "WINDOWS_MAX", 2)
    (tmp_path / "seen.json").write_text(json.dumps([LEAST] * 3))
    with pytest.raises(BadUsage, match="has 3 windows; at most 2"):
        read_evidence(tmp_path / "seen.json")


def test_windows_without_a_time_follow_each_other_up_to_now() -> None:
    windows = [window(seconds=5), window(seconds=10), window(seconds=20)]
    assert [end_s for end_s, _ in timed(windows, 100.0)] == [70.0, 80.0, 100.0]


def test_a_window_that_has_a_time_ended_then() -> None:
    at: list[Evidence] = [window(seconds=5), msgspec.structs.replace(window(seconds=10), at_s=50.0), window(seconds=20)]
    assert [end_s for end_s, _ in timed(at, 100.0)] == [40.0, 50.0, 100.0]
    assert timed([], 100.0) == []
