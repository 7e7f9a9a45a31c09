"""The benchmark of databases in buckets, on sizes that say nothing about speed: it counts right, and it ends."""

import asyncio
from pathlib import Path

import pytest

from benchmarks import buckets
from benchmarks.buckets import local, slow
from benchmarks.objects import CLIENTS, PUT_MS, commits, contestant, default_lease, ratios_of
from benchmarks.recovery import Times, plot, recovery, takeover, written
from benchmarks.report import Figure, Round
from benchmarks.weights import weigh
from interlock.testing.lane_simulation.bucket import MemoryBucket


@pytest.mark.slow
def test_every_place_counts_what_it_acknowledged(tmp_path: Path) -> None:
    places = [local(), slow("bucket", put_s=0.001)]
    figures = commits(tmp_path, places, (1, 4), seconds=0.02, rounds=3)
    assert list(figures) == [contestant(place, count) for place in places for count in (1, 4)]
    assert all(figure.per_second > 0 and len(figure.rounds) == 3 for figure in figures.values())


def test_a_group_shares_the_weight_of_its_page(tmp_path: Path) -> None:
    one, among_others, at_random = weigh(tmp_path, rows=1_000, sizes=(1, 16), groups=2).values()
    assert one[16] < one[1]
    assert one[1] < among_others[1]
    assert among_others[16] < at_random[16]


@pytest.mark.slow
def test_a_log_is_recovered_from_every_place(tmp_path: Path) -> None:
    async def run() -> None:
        logs = [await written(tmp_path / f"{short}", 30, snapshots=short) for short in (False, True)]
        assert [log.replayed for log in logs] == [30, 30]
        places = [slow("one"), slow("other", get_s=0.001)]
        times = await recovery(tmp_path, places, logs, rounds=1)
        assert len(times) == 4
        drawn = plot(times, logs, places)
        assert all(f"{place.name}, no snapshot" in drawn for place in places)

    asyncio.run(run())


def test_a_lane_changes_hands_in_three_ways(tmp_path: Path) -> None:
    times = asyncio.run(takeover(tmp_path, slow("bucket"), rounds=1, lease_s=0.2))
    assert list(times) == [
        "takeover, bucket, closed cleanly, same machine",
        "takeover, bucket, crashed, same machine",
        "takeover, bucket, another machine, lease 0.2 s",
    ]


def test_a_lease_that_was_not_waited_for_is_computed() -> None:
    short = Times([1.5], [0.1])
    name = "takeover, x, another machine, lease {} s"
    assert default_lease({name.format(1): short}) == {name.format(10) + " (computed)": 10_500.0}
    assert default_lease({name.format(1): short, name.format(10): short}) == {}


def test_ratios_compare_with_the_local_lane() -> None:
    figures = {
        f"{place}, {clients}": Figure([Round(rate, 1.0, 1.0)])
        for place, rate in {"local disk": 400, **{f"bucket, {put_ms} ms": 100 for put_ms in PUT_MS}}.items()
        for clients in CLIENTS
    }
    ratios = ratios_of(figures)
    assert ratios["bucket_10_ms_1000_vs_local"] == 0.25
    assert ratios["many_clients_share_10_ms"] == 1.0


def test_a_slow_bucket_sleeps_before_it_answers_and_is_a_bucket(monkeypatch: pytest.MonkeyPatch) -> None:
    waits: list[float] = []
    monkeypatch.setattr(buckets, "sleep", waits.append)
    bucket = buckets.SlowBucket(MemoryBucket(), get_s=1.0, put_s=2.0)
    tag = bucket.create("a", b"1")
    bucket.replace("a", b"2", tag)
    bucket.put("b", b"3")
    assert waits == [2.0] * 3
    target = MemoryBucket()
    buckets.copy(bucket, target)
    assert target.get_many(["a", "b"]) == bucket.get_many(["a", "b"]) == [b"2", b"3"]
    assert waits[3:] == [1.0] * 4, "one listing, two reads of one, one read of several at once"
    bucket.delete(["a", "b"])
    assert bucket.keys("") == []
    assert waits[7:] == [2.0, 1.0]
