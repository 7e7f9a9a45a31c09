"""D9: the owner of a lane tells beside its file who waits for whom: seldom, bounded, and in nobody's way."""

import os
from pathlib import Path

import msgspec
import pytest

from interlock.lanes import hot_rows
from interlock.lanes.hot_rows import (
    EVERY_S,
    FIRST_S,
    FORMAT,
    ROWS_MAX,
    STALE_S,
    TRANSACTIONS_MIN,
    Contention,
    HotReport,
    HotRow,
    Latencies,
    Publishing,
    hot_path,
    read_report,
)
from interlock.lanes.lane import Lane
from interlock.lanes.lane_settings import LaneSettings
from tests.unit.lanes.lanes import SetClock, group, increment, make_counter, opened, run, sql


def ended(publishing: Publishing, clock: SetClock, *, size: int = 1, latency_s: float = 0.001) -> None:
    publishing.count_group(size, clock.now_monotonic_s - latency_s)


def made(folder: Path, clock: SetClock) -> tuple[Publishing, Contention, Path]:
    contention = Contention(LaneSettings(contention_rows_max=1_000))
    path = folder / "stock.lane"
    return Publishing(path, contention, clock), contention, hot_path(path)


def heat(contention: Contention, clock: SetClock, key: object = 7, *, writes: int = 100) -> None:
    for _ in range(writes):
        contention.wrote(
            [("t", key)], waiting_since_s=clock.now_monotonic_s - 0.001, now_s=clock.now_monotonic_s, weight=1.0
        )


def test_a_lane_tells_after_a_second_and_then_every_five(tmp_path: Path) -> None:
    clock = SetClock()
    publishing, contention, file = made(tmp_path, clock)
    told: list[float] = []
    for tenth in range(200):
        clock.now_monotonic_s = tenth / 10
        clock.now_wall_s = 1_000.0 + tenth / 10
        heat(contention, clock)
        ended(publishing, clock)
        report = read_report(file, now_s=clock.now_wall_s)
        if report is not None and report.at_s - 1_000.0 not in told:
            told.append(report.at_s - 1_000.0)
    assert told == pytest.approx([FIRST_S, FIRST_S + EVERY_S, FIRST_S + 2 * EVERY_S, FIRST_S + 3 * EVERY_S])
    assert [each.name for each in tmp_path.iterdir()] == ["stock.lane.hot"], (
        "nothing is left of the file that became it"
    )


def test_a_report_has_the_rates_of_its_window(tmp_path: Path) -> None:
    clock = SetClock()
    publishing, contention, file = made(tmp_path, clock)
    for number in range(61):
        clock.now_monotonic_s = number / 10
        ended(publishing, clock, size=20, latency_s=0.010 if number % 10 else 0.5)
        heat(contention, clock, 7, writes=10)
    report = read_report(file, now_s=clock.now_wall_s)
    assert report is not None
    assert (report.pid, report.format, report.flag_threshold) == (os.getpid(), FORMAT, 50.0)
    assert report.window_s == pytest.approx(5.0)
    assert report.groups_per_s == pytest.approx(10.0)
    assert report.transactions_per_s == pytest.approx(200.0)
    assert report.rows_seen == 1
    assert report.latency_p99_s == pytest.approx(0.5, rel=0.2)
    [row] = report.rows
    assert (row.table, row.key, row.flagged) == ("t", 7, True)


def test_a_lane_that_does_little_and_where_nobody_waits_leaves_no_file(tmp_path: Path) -> None:
    clock = SetClock()
    publishing, _, file = made(tmp_path, clock)
    for second in range(60):
        clock.now_monotonic_s = float(second)
        ended(publishing, clock, size=TRANSACTIONS_MIN // 10)
        assert not file.exists()


def test_one_that_has_cooled_down_takes_its_file_away(tmp_path: Path) -> None:
    clock = SetClock()
    publishing, contention, file = made(tmp_path, clock)
    ended(publishing, clock)
    heat(contention, clock)
    clock.now_monotonic_s = FIRST_S
    ended(publishing, clock)
    assert file.exists()
    clock.now_monotonic_s = 1_000.0
    ended(publishing, clock)
    assert not file.exists()


def test_volume_without_hand_offs_is_told_as_volume(tmp_path: Path) -> None:
    clock = SetClock()
    publishing, _, file = made(tmp_path, clock)
    for second in range(3):
        clock.now_monotonic_s = float(second)
        ended(publishing, clock, size=TRANSACTIONS_MIN)
    report = read_report(file, now_s=clock.now_wall_s)
    assert report is not None
    assert report.rows == []
    assert report.transactions_per_s >= TRANSACTIONS_MIN


def test_what_is_told_is_bounded_whatever_the_keys_are(tmp_path: Path) -> None:
    """D9: 100,000 hot keys, long ones, and ones that no file can hold."""
    clock = SetClock()
    publishing, contention, file = made(tmp_path, clock)
    ended(publishing, clock)
    for number in range(100_000):
        heat(contention, clock, f"{number:06}{'x' * 1_000}", writes=2)
        assert number % 997 or len(contention._rows) <= 1_000
    heat(contention, clock, ("a" * 1_000, b"b" * 1_000, None))
    clock.now_monotonic_s = FIRST_S
    ended(publishing, clock)
    report = read_report(file, now_s=clock.now_wall_s)
    assert report is not None
    assert len(report.rows) == ROWS_MAX
    assert file.stat().st_size < 50_000
    assert report.rows[0].key == ("a" * 199 + "…", b"b" * 200, None)


@pytest.mark.parametrize("broken", ["a folder is in the way", "the folder is gone", "the key cannot be written"])
def test_a_file_that_cannot_be_written_stops_nobody(tmp_path: Path, broken: str) -> None:
    clock = SetClock()
    publishing, contention, file = made(tmp_path / "home", clock)
    if broken != "the folder is gone":
        (tmp_path / "home").mkdir()
    if broken == "a folder is in the way":
        file.mkdir()
    ended(publishing, clock)
    heat(contention, clock, "\ud800" if broken == "the key cannot be written" else 7)
    clock.now_monotonic_s = FIRST_S
    ended(publishing, clock)
    assert publishing.failed == 1
    assert read_report(file, now_s=clock.now_wall_s) is None
    publishing.close()


def test_a_second_close_and_a_child_of_a_fork_leave_the_file_of_the_owner(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = SetClock()
    publishing, _, file = made(tmp_path, clock)
    file.touch()
    publishing.close()
    assert not file.exists()
    file.touch()
    publishing.close()
    assert file.exists(), "it is the next owner's"
    child, _, _ = made(tmp_path, clock)
    monkeypatch.setattr(os, "getpid", lambda: -1)
    child.close()
    assert file.exists()


def test_what_the_layer_above_has_seen_is_told_with_it(tmp_path: Path) -> None:
    clock = SetClock()
    publishing, contention, file = made(tmp_path, clock)
    row = HotRow(
        source="workflow", table="order", key="o-1", handoffs_per_s=1e6, writes_per_s=1e6, wait_s=0.1, flagged=True
    )
    publishing.also = lambda: [row]
    ended(publishing, clock)
    heat(contention, clock)
    clock.now_monotonic_s = FIRST_S
    ended(publishing, clock)
    report = read_report(file, now_s=clock.now_wall_s)
    assert report is not None
    assert [each.source for each in report.rows] == ["workflow", "lane"]
    assert report.rows[0] == row


def test_what_is_old_or_no_report_is_ignored(tmp_path: Path) -> None:
    clock = SetClock()
    publishing, contention, file = made(tmp_path, clock)
    assert read_report(file, now_s=0.0) is None
    ended(publishing, clock)
    heat(contention, clock)
    clock.now_monotonic_s = FIRST_S
    ended(publishing, clock)
    at_s = clock.now_wall_s
    report = read_report(file, now_s=at_s)
    assert report is not None
    assert read_report(file, now_s=at_s + STALE_S) is not None
    assert read_report(file, now_s=at_s + STALE_S + 1) is None
    assert read_report(file, now_s=at_s - STALE_S - 1) is None, "a clock that was set back by more"
    file.write_bytes(msgspec.msgpack.encode(msgspec.structs.replace(report, format=FORMAT + 1)))
    assert read_report(file, now_s=at_s) is None
    for data in (b"", b"\xc1", msgspec.msgpack.encode({"format": 1}), b"{}"):
        file.write_bytes(data)
        assert read_report(file, now_s=at_s) is None


def test_latencies_are_known_to_within_a_fifth_and_fade() -> None:
    latencies = Latencies()
    assert latencies.quantile(0.99) is None
    latencies.add(0.001, 50)
    assert latencies.quantile(0.99) is None, "too few to tell"
    latencies.add(0.001, 937)
    latencies.add(2.0, 13)
    assert latencies.quantile(0.5) == pytest.approx(0.001, rel=0.2)
    assert latencies.quantile(0.99) == pytest.approx(2.0, rel=0.2)
    for extreme_s in (0.0, -1.0, 1e12):
        latencies.add(extreme_s, 1)
    for _ in range(12):
        latencies.fade()
    assert latencies.quantile(0.99) is None


def test_a_lane_in_a_storm_tells_and_one_that_is_closed_tells_nothing(tmp_path: Path) -> None:
    clock = SetClock()
    path = tmp_path / "stock.lane"

    def tick(*_values: object) -> int:
        clock.now_monotonic_s += 0.01
        return 1

    async def storm(lane: Lane) -> None:
        await make_counter(lane)
        for _ in range(20):
            await group(lane, *[sql("UPDATE counter SET n = n + tick() WHERE id = 1") for _ in range(4)])
        clock.now_monotonic_s += FIRST_S
        await lane.run(increment())
        # A group is told about after its clients were: the next one ends behind that.
        await lane.run(increment())

    async def scenario() -> None:
        with opened(
            path, clock=clock, prepare=lambda connection, _now: connection.create_scalar_function("tick", tick, 0)
        ) as lane:
            await storm(lane)
            report = read_report(hot_path(path), now_s=clock.now_wall_s)
            assert report is not None
            assert [(row.table, row.key, row.source) for row in report.rows] == [("counter", 1, "lane")]
            assert report.key_types == {"counter": ("INTEGER",)}
        assert not hot_path(path).exists()

    run(scenario)


def test_a_lane_in_memory_tells_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(hot_rows, "FIRST_S", 0.0)
    monkeypatch.setattr(hot_rows, "EVERY_S", 0.0)

    async def scenario() -> None:
        with opened(None) as lane:
            await make_counter(lane)
            for _ in range(5):
                await group(lane, *[increment() for _ in range(4)])

    run(scenario)
    assert list(tmp_path.iterdir()) == []


def test_a_report_survives_the_way_through_its_file(tmp_path: Path) -> None:
    row = HotRow(table="t", key=(1, b"\x00", "x", None, 0.5), handoffs_per_s=1, writes_per_s=1, wait_s=0, flagged=False)
    report = HotReport(
        at_s=1_000.0,
        pid=1,
        window_s=5.0,
        transactions_per_s=1.0,
        groups_per_s=1.0,
        latency_p99_s=None,
        rows_seen=1,
        flag_threshold=50.0,
        rows=[row],
        key_types={"t": ("bigint", "bytea", "text", "text", "real")},
    )
    file = tmp_path / "x.lane.hot"
    file.write_bytes(msgspec.msgpack.encode(report))
    assert read_report(file, now_s=1_000.0) == report
