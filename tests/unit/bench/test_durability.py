"""Experiment 4: what counts as lost, as torn and as in doubt; what it refuses; what it leaves behind (D12)."""

import asyncio
from pathlib import Path

import pytest

from interlock.bench import durability
from interlock.bench.durability import (
    Cycle,
    DurabilityResult,
    LedgerState,
    Reports,
    check,
    check_bounds,
    judge,
    measure,
)
from interlock.bench.load import Ground
from interlock.bench.plots import durability_plot
from interlock.errors import BadUsage, CorruptionError, UnavailableError


def judged(
    acknowledged: dict[int, int],
    turns: dict[int, set[int]],
    *,
    known: dict[int, range] | None = None,
    before: dict[int, int] | None = None,
    torn: int = 0,
) -> Cycle:
    state = LedgerState(turns, before or {}, torn)
    return judge(9, Reports(acknowledged, []), state, {} if known is None else known, disk_lost=False, recovery_ms=1.0)


def result_of(*cycles: Cycle) -> DurabilityResult:
    return DurabilityResult(
        engine="lane",
        url="a temporary folder",
        seed=3,
        clients=2,
        acknowledged=sum(each.acknowledged for each in cycles),
        found=sum(each.found for each in cycles),
        in_doubt=sum(each.in_doubt for each in cycles),
        lost=sum(each.lost for each in cycles),
        torn=sum(each.torn for each in cycles),
        recovery_p50_ms=1.0,
        recovery_max_ms=2.0,
        cycles=list(cycles),
    )


def test_what_was_acknowledged_and_is_there_is_neither_lost_nor_in_doubt() -> None:
    cycle = judged({0: 2, 1: 1}, {0: {1, 2}, 1: {1}})
    assert (cycle.acknowledged, cycle.found, cycle.in_doubt, cycle.lost, cycle.torn) == (3, 3, 0, 0, 0)


def test_the_one_that_was_under_way_may_be_there() -> None:
    cycle = judged({0: 2, 1: 0}, {0: {1, 2, 3}, 1: {1}})
    assert (cycle.found, cycle.in_doubt, cycle.lost, cycle.torn) == (5 - 1, 2, 0, 0)


def test_an_acknowledged_turn_that_is_not_there_is_lost_wherever_it_is() -> None:
    assert judged({0: 3}, {0: {1, 2}}).lost == 1
    assert judged({0: 3}, {0: {1, 3}}).lost == 1
    assert judged({0: 3}, {}).lost == 3


def test_a_turn_that_nobody_can_have_asked_for_is_torn() -> None:
    assert judged({0: 1}, {0: {1, 3}}).torn == 1
    assert judged({}, {7: {2}}).torn == 1


def test_accounts_that_disagree_are_torn() -> None:
    assert judged({0: 1}, {0: {1}}, torn=2).torn == 2


def test_what_an_earlier_life_has_left_must_stay() -> None:
    known = {8: range(5, 8)}
    assert judged({0: 1}, {0: {1}}, known=known, before={8: 4}).lost == 1
    assert judged({0: 1}, {0: {1}}, known=known, before={8: 8}).torn == 1


def test_what_was_in_doubt_may_arrive_later_and_must_stay_then() -> None:
    known = {8: range(5, 8)}
    assert judged({0: 1}, {0: {1}}, known=known, before={8: 6}).lost == 0
    assert judged({0: 1}, {0: {1}}, known=known, before={8: 5, 9: 1}).lost == 1


def test_a_loss_is_an_error_that_names_its_cycle_and_its_seed() -> None:
    check(result_of(judged({0: 1}, {0: {1}})))
    with pytest.raises(CorruptionError, match=r"cycle 9 \(seed 3\): 1 acknowledged"):
        check(result_of(judged({0: 1}, {})))


def test_the_plot_has_both_lines_and_says_what_was_lost() -> None:
    drawing = durability_plot(result_of(*(judged({0: 3}, {0: {1, 2, 3}}) for _ in range(2))))
    assert "0 commits lost, 0 torn" in drawing
    assert {"acknowledged", "found afterwards"} <= {part.split("<")[0] for part in drawing.split(">")}


@pytest.mark.parametrize(
    ("url", "cycles", "clients", "told"),
    [
        ("memory:", 1, 1, "no durability"),
        (None, 0, 1, "0 cycles"),
        (None, 10_001, 1, "10,001 cycles"),
        (None, 1, 0, "0 clients"),
        (None, 1, 501, "501 clients"),
    ],
)
def test_what_would_not_end_or_shows_nothing_is_refused(url: str | None, cycles: int, clients: int, told: str) -> None:
    with pytest.raises(BadUsage, match=told):
        check_bounds(url, cycles=cycles, clients=clients)


def test_every_cycle_is_told_and_nothing_is_left_behind(tmp_path: Path) -> None:
    seen: list[Cycle] = []
    asyncio.run(measure(url=f"lanes://{tmp_path}/x", cycles=2, clients=2, seed=5, watch=seen.append))
    assert [each.cycle for each in seen] == [1, 2]
    assert list(tmp_path.iterdir()) == []


def test_a_life_that_cannot_write_is_told_with_its_reason(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The tables are made somewhere else, so that every life meets a database without them."""

    async def elsewhere(address: str, place: Ground, clients: int, lease_s: float) -> None:
        del address, place, clients, lease_s

    monkeypatch.setattr(durability, "_make_tables", elsewhere)
    with pytest.raises(UnavailableError, match=r"cycle 1 failed before it was killed: .*ledger"):
        asyncio.run(measure(url=f"lanes://{tmp_path}/x", cycles=1, clients=2, seed=5, watch=lambda _: None))
