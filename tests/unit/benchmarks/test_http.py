"""The benchmark of the server, on sizes that say nothing about speed: it counts right, and it ends."""

import asyncio
from pathlib import Path

import pytest

from benchmarks import http
from benchmarks.report import Figure, Round
from benchmarks.serving.client import END_OF_CHUNKS, Connection, Paced, answered, request
from benchmarks.serving.server import parcels

ANSWER = b"HTTP/1.1 200 OK\r\ncontent-length: 4\r\netag: 1\r\n\r\nbody"
CHUNKED = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n4\r\nbody" + END_OF_CHUNKS


def figure(rate: int, cpu_seconds: float = 1.0) -> Figure:
    return Figure([Round(rate, 1.0, cpu_seconds)])


def test_events_are_compared_with_no_ops_on_as_many_connections_and_batches_with_the_best_single_ones() -> None:
    """B5: the names are those that reports are read by."""
    figures = {f"no-op, {count}": figure(1_000) for count in http.CONNECTIONS}
    figures |= {"single, 16": figure(400), "single, 64": figure(500), "single, 256": figure(800)}
    figures |= {"batch of 1,000, 4": figure(4_000), "memory: no-op, 64": figure(10), "memory: single, 64": figure(9)}
    ratios = http.ratios_of(figures)
    assert ratios["single_vs_noop_post_64"] == 0.5
    assert ratios["single_vs_noop_post_16"] == 0.4
    assert ratios["batch_vs_single"] == 5.0
    assert ratios["single_vs_noop_post_cpu"] == 0.5
    assert set(http.AT_MOST) < set(http.GOALS)


@pytest.mark.parametrize("whole", [ANSWER, CHUNKED])
def test_an_answer_may_come_in_any_pieces(whole: bytes) -> None:
    for at in range(1, len(whole)):
        assert answered(whole[:at]) is None
        told: list[tuple[int, bytes]] = []
        connection = Connection()
        connection._told = lambda status, body, told=told: told.append((status, body))
        connection.data_received(whole[:at])
        connection.data_received(whole[at:])
        assert [status for status, _ in told] == [200]
        assert b"body" in told[0][1]


def test_what_is_offered_late_counts_from_when_it_was_due() -> None:
    """C7: a server that is slow does not slow the load down."""

    class Slow(Connection):
        def ask(self, request: bytes, told: object) -> None:
            del request
            asyncio.get_running_loop().call_soon(told, 429 if load.took_s else 200, b"")  # type: ignore[arg-type]

    load = Paced([Slow()], lambda: b"")
    asyncio.run(load.offer(1e6, 1e-5))
    assert len(load.took_s) == 1
    assert len(load.refused_s) == 9
    assert load.refused_s == sorted(load.refused_s)


def test_the_load_is_what_the_machine_of_the_server_takes() -> None:
    made = http.batches(3, 2)
    assert [made().partition(b"\r\n\r\n")[2].count(b"\n") for _ in range(3)] == [2, 2, 2]
    assert made() != made()
    assert http.singles(2)().endswith(http.BODY)
    assert http.noops()().endswith(http.BODY)
    with_key = http.keyed(2, "run")
    assert b"idempotency-key: run-0\r\n" in with_key()
    assert b"idempotency-key: run-1\r\n" in with_key()
    assert request("/", b"{}").endswith(b"content-length: 2\r\n\r\n{}")
    assert parcels.name == "parcel"
    assert http.all_applied(b'{"version":1}\n{"version":2}', 2)
    assert not http.all_applied(b'{"version":1}\n{"status":429}', 2)


@pytest.mark.slow
def test_whatever_is_offered_to_a_server_is_answered(tmp_path: Path) -> None:
    """C7: a real server for a moment; the figures of a moment mean nothing."""
    with http.clients_loop() as runner:
        figures = http.throughput(runner, tmp_path, seconds=0.02, rounds=3, workflows=50)
        assert set(http.ratios_of(figures)) > {"single_vs_noop_post_64", "batch_vs_single"}
        load = http.overloaded(runner, tmp_path, 100.0, workflows=50, turns_s=(0.3, 0.3))
    assert load.p95_ratio > 0
    assert [len(turn.took_s) + len(turn.refused_s) for turn, _ in load.normal] == [27, 27, 27]
    assert [len(turn.took_s) + len(turn.refused_s) for turn, _ in load.over] == [60, 60, 60]
    assert len(load.rss_bytes) == http.OVERLOAD_ROUNDS + 1
    assert load.refused_ms(0.5) <= load.refused_ms(0.99)
    assert {"rss_growth_mb", "refused_p95_ms"} <= set(load.extra())
