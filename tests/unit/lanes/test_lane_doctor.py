"""The doctor: what it sees, that it sees damage, and that it changes nothing."""

import asyncio
import os
import shutil
from pathlib import Path

import apsw
import pytest

from interlock.errors import LaneOwned, TargetNotFound, UnusableFile
from interlock.lanes import lane_doctor
from interlock.lanes.file import lock_path
from interlock.lanes.lane_doctor import LaneReport, Owner, examine
from tests.unit.lanes.lanes import SetClock, increment, make_counter, opened, sql

Files = dict[str, tuple[int, int, bytes]]


def look(path: Path, *, wall_s: float = 1_000.0) -> LaneReport:
    return examine(path, clock=SetClock(wall_s), prepare=lambda _connection, _now: None)


def codes(report: LaneReport) -> list[str]:
    return [finding.code for finding in report.findings]


def files(folder: Path) -> Files:
    """Everything that could change: names, sizes, times, bytes."""
    return {
        each.name: (each.stat().st_size, each.stat().st_mtime_ns, each.read_bytes())
        for each in sorted(folder.iterdir())
    }


@pytest.fixture
def lane(tmp_path: Path) -> Path:
    """A lane with one counter and one key, closed."""
    path = tmp_path / "here" / "stock.lane"
    with opened(path, clock=SetClock()) as running:

        async def fill() -> None:
            await make_counter(running)
            await running.run(sql("UPDATE counter SET n = 5", key="k", digest=b"d"))

        asyncio.run(fill())
    return path


def crashed(lane: Path, folder: Path, *, index: bool) -> Path:
    """What a killed owner leaves: the files as they are while it works."""
    folder.mkdir()
    with opened(lane, idle_s=60) as running:
        asyncio.run(running.run(increment()))
        for each in lane.parent.iterdir():
            if index or not each.name.endswith("-shm"):
                shutil.copyfile(each, folder / each.name)
    return folder / lane.name


def test_a_closed_lane_is_healthy_and_told(lane: Path) -> None:
    report = look(lane)
    assert report.healthy
    assert report.owner is None
    assert (report.log_bytes, report.keys, report.tables, report.pages_free) == (0, 1, 1, 0)
    assert report.pages is not None
    assert report.page_bytes is not None
    assert report.database_bytes == report.pages * report.page_bytes
    assert report.lane_time == "1970-01-01T00:16:40+00:00"
    assert report.findings == []


def test_a_closed_lane_is_left_as_it_was(lane: Path) -> None:
    before = files(lane.parent)
    look(lane)
    assert files(lane.parent) == before


def test_beside_its_owner_it_sees_the_log_and_the_owner(lane: Path) -> None:
    with opened(lane, clock=SetClock(2_000.0), idle_s=60) as running:
        asyncio.run(running.run(increment()))
        names = set(files(lane.parent))
        report = look(lane)
        assert report.healthy
        assert report.owner is not None
        assert (report.owner.pid, report.owner.since) == (os.getpid(), "1970-01-01T00:33:20+00:00")
        assert report.log_bytes > 0
        assert set(files(lane.parent)) == names
        asyncio.run(running.run(increment()))


@pytest.mark.parametrize("index", [True, False])
def test_a_lane_whose_owner_died_is_readable_and_left_as_it_was(lane: Path, tmp_path: Path, index: bool) -> None:
    path = crashed(lane, tmp_path / "crashed", index=index)
    before = files(path.parent)
    report = look(path)
    assert files(path.parent) == before
    assert codes(report) == ["not-closed"]
    assert report.healthy
    assert report.keys == 1


def test_a_log_without_index_is_copied_only_up_to_a_limit(
    lane: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = crashed(lane, tmp_path / "crashed", index=False)
    monkeypatch.setattr(lane_doctor, "COPY_BYTES_MAX", 1)
    report = look(path)
    assert codes(report) == ["unread-log", "not-closed"]
    assert not report.healthy
    assert report.pages is None


def test_damaged_pages_are_found(lane: Path) -> None:
    with lane.open("r+b") as file:
        file.seek(4_096)
        file.write(b"\xff" * 8_192)
    report = look(lane)
    assert not report.healthy
    assert set(codes(report)) & {"damaged", "unreadable"}


def test_an_index_that_lies_is_found(lane: Path) -> None:
    connection = apsw.Connection(str(lane))
    connection.execute("CREATE INDEX by_n ON counter (n)")
    connection.execute("PRAGMA writable_schema = ON")
    connection.execute("UPDATE sqlite_schema SET sql = 'CREATE INDEX by_n ON counter (id)' WHERE name = 'by_n'")
    connection.close()
    report = look(lane)
    assert "damaged" in codes(report)
    assert all(finding.why and finding.fix for finding in report.findings)


def test_rows_without_their_parent_are_found_up_to_a_limit(lane: Path) -> None:
    connection = apsw.Connection(str(lane))
    connection.execute("CREATE TABLE item (id INTEGER PRIMARY KEY, counter INTEGER REFERENCES counter (id))")
    connection.executemany("INSERT INTO item VALUES (?, 9)", [(number,) for number in range(50)])
    connection.close()
    report = look(lane)
    assert codes(report) == ["foreign-key"] * lane_doctor.SYMPTOMS_MAX
    assert "row 0 of item refers to a row of counter" in report.findings[0].what


@pytest.mark.parametrize("content", [b"", b"not a database at all" * 100])
def test_a_file_that_is_no_lane_is_told(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "x.lane"
    path.write_bytes(content)
    report = look(path)
    assert not report.healthy
    assert codes(report) == ["not-a-lane" if not content else "unreadable"]


def test_no_lane_is_not_found(tmp_path: Path) -> None:
    with pytest.raises(TargetNotFound):
        look(tmp_path / "x.lane")


def test_a_folder_is_no_lane(tmp_path: Path) -> None:
    with pytest.raises(UnusableFile):
        look(tmp_path)


def test_a_lane_that_is_ahead_of_the_clock_is_told(lane: Path) -> None:
    assert codes(look(lane, wall_s=1_000.0 - 59)) == []
    report = look(lane, wall_s=1_000.0 - 61)
    assert codes(report) == ["time-ahead"]
    assert "61 s ahead" in report.findings[0].what
    assert not report.healthy


def test_files_that_everybody_may_write_are_told(lane: Path) -> None:
    lane.chmod(0o666)
    report = look(lane)
    assert codes(report) == ["permissions"]
    assert "every user" in report.findings[0].what


def test_files_that_may_not_be_written_are_told(lane: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "access", lambda path, _mode: Path(path) != lock_path(lane))
    report = look(lane)
    assert [(finding.code, finding.severity) for finding in report.findings] == [("permissions", "error")]


def test_a_lock_that_may_not_be_read_is_taken_for_held(lane: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(_: Path) -> None:
        raise PermissionError

    monkeypatch.setattr(lane_doctor, "owner_of", refused)
    report = look(lane)
    assert report.owner == Owner(pid=None, host=None, since=None)
    assert report.keys == 1


def test_a_folder_that_may_not_be_entered_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(_: Path) -> bool:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "exists", refused)
    with pytest.raises(UnusableFile, match="Permission denied"):
        look(tmp_path / "x.lane")


def test_a_large_log_and_many_free_pages_are_told(lane: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lane_doctor, "LOG_BYTES_EXPECTED", 1)
    monkeypatch.setattr(lane_doctor, "FREE_PAGES_MIN", 1)
    with opened(lane, idle_s=60) as running:

        async def churn() -> None:
            await running.run(sql("CREATE TABLE big (data BLOB)"))
            await running.run(sql("INSERT INTO big VALUES (zeroblob(200000))"))
            await running.run(sql("DELETE FROM big"))

        asyncio.run(churn())
        assert codes(look(lane)) == ["log-large", "much-free"]


def test_a_lane_that_stays_locked_names_who_has_it(lane: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lane_doctor, "BUSY_MS", 10)
    with opened(lane, idle_s=60) as running:
        asyncio.run(running.run(increment()))
        monkeypatch.setattr(apsw, "Connection", _busy)
        with pytest.raises(LaneOwned, match=f"by process {os.getpid()} on host"):
            look(lane)
        monkeypatch.undo()


def _busy(*_: object, **__: object) -> None:
    raise apsw.BusyError("database is locked")
