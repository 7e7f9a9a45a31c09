"""The benchmark of orders, on sizes that say nothing about speed: it counts right, compares right, and ends."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from benchmarks import hot_workflow, orders
from benchmarks.orders import Arena, Plan, parsed, ratios_of
from benchmarks.peers.environment import Absent
from benchmarks.peers.processes import Peer
from benchmarks.report import Figure, Round

SMALL = Plan(
    rounds=3,
    in_flight=(1, 4),
    by_hand_in_flight=(1, 4),
    postgres_in_flight=(1, 4),
    interlock_s=0.01,
    postgres_s=0.01,
    by_hand_s=0.01,
    trying_s=0.01,
)


def figure(per_second: int, *latencies_s: float) -> Figure:
    return Figure([Round(per_second, 1.0, 0.5, latencies_s)] * 3)


@pytest.mark.slow
def test_both_forms_and_the_hot_workflow_count_what_they_acknowledged(tmp_path: Path) -> None:
    figures, notes = orders.run(tmp_path, SMALL, ("interlock", "hot"), tmp_path / "peers")
    assert [name for name in figures if name.startswith("Interlock")] == [
        f"{form}, {count}" for form in (orders.STEPS, orders.EVENTS) for count in (1, 4)
    ]
    assert hot_workflow.BESIDE in figures
    assert all(figure.per_second > 0 and len(figure.rounds) == 3 for figure in figures.values())
    assert "postgres_version" not in notes


def test_ratios_are_of_contestants_that_ran_with_as_many_in_flight() -> None:
    figures = {"Interlock, steps, 256": figure(60), "by hand, transactions, 256": figure(5), "DBOS, 64": figure(1)}
    assert ratios_of(figures) == {"embedded_256_vs_handwritten": 12.0, "embedded_256_vs_handwritten_in_cpu": 12.0}


def test_the_p99_of_neighbours_is_compared_with_the_idle_one() -> None:
    figures = {hot_workflow.ALONE: figure(1, 0.001), hot_workflow.BESIDE: figure(1, 0.003)}
    assert ratios_of(figures) == {"unrelated_p99_vs_idle": pytest.approx(3.0)}


def test_a_peer_that_is_absent_is_skipped_with_the_reason(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    @contextmanager
    def opening() -> Iterator[Peer]:
        raise Absent("there is no npm")
        yield

    with asyncio.Runner() as runner:
        arena = Arena(runner, tmp_path, SMALL, ("restate",))
        arena.peer("Restate", opening(), (1, 64), 1.0)
    assert not arena.contestants
    assert arena.notes == {"skipped, Restate": "there is no npm"}
    assert "Restate is skipped: there is no npm" in capsys.readouterr().err


def test_an_unknown_kind_is_refused_with_the_known_ones(capsys: pytest.CaptureFixture[str]) -> None:
    assert parsed(["--only", "hot,dbos"]).only == ("hot", "dbos")
    with pytest.raises(SystemExit):
        parsed(["--only", "temporal"])
    assert (
        "temporal is not among interlock, handwritten, dbos, restate, hot, postgres, processes"
        in capsys.readouterr().err
    )
