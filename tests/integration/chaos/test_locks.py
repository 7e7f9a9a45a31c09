"""Fifty who want one lease, in five processes, one of them frozen with it and woken (C10, C14, G4)."""

import logging
from collections import Counter
from collections.abc import Generator
from pathlib import Path

import pytest

from interlock.chaos.database_servers import OwnRedis
from interlock.chaos.locks import Attempt, fairness, run_locks, violations
from interlock.errors import BadUsage

log = logging.getLogger(__name__)

pytestmark = pytest.mark.skipif(OwnRedis.installed() is not None, reason=str(OwnRedis.installed()))


@pytest.fixture(scope="module")
def redis(tmp_path_factory: pytest.TempPathFactory) -> Generator[OwnRedis]:
    with OwnRedis(tmp_path_factory.mktemp("redis")) as server:
        yield server


@pytest.mark.slow
def test_fifty_contenders_write_one_after_the_other_and_the_frozen_holder_is_refused(
    redis: OwnRedis, tmp_path: Path
) -> None:
    """C10, G4: also with one clock that is an hour ahead."""
    result = run_locks(redis.url, tmp_path, seconds=3, lease_s=1.0)
    log.info("%s", result)
    assert (result.contenders, result.processes) == (50, 5)
    assert result.violations == 0
    assert result.holder_frozen
    assert result.frozen_write_refused
    assert result.refused_late_writes >= 1
    assert result.holder_knew
    assert result.wrong_clock_acquisitions > 0
    assert result.acquisitions >= result.wrong_clock_acquisitions
    assert 0 <= result.fairness.least <= result.fairness.median <= result.fairness.most
    assert 0.2 <= result.fairness.busiest_process_share <= 1


@pytest.mark.slow
def test_a_resource_that_checks_no_token_is_caught(redis: OwnRedis, tmp_path: Path) -> None:
    """Sabotage: the proof can fail."""
    result = run_locks(redis.url, tmp_path, contenders=4, processes=2, seconds=2, lease_s=1.0, fenced=False)
    assert result.holder_frozen
    assert result.violations >= 1
    assert result.refused_late_writes == 0


def test_one_token_for_two_and_a_lower_token_are_violations() -> None:
    fine: list[Attempt] = [(0, 0, 1, "enter", True), (1, 0, 2, "enter", True), (0, 0, 1, "leave", False)]
    assert violations(fine) == 0
    assert violations([*fine, (0, 0, 1, "leave", True)]) == 1
    assert violations([*fine, (2, 0, 2, "leave", True)]) == 1


def test_whoever_had_no_turn_counts_for_fairness() -> None:
    found = fairness(Counter({(0, 0): 6, (0, 1): 2, (1, 0): 2}), 4)
    assert (found.least, found.median, found.most, found.busiest_process_share) == (0, 2, 6, 0.8)


@pytest.mark.parametrize(
    ("contenders", "processes", "seconds"), [(50, 1, 6), (501, 5, 6), (4, 5, 6), (50, 5, 2.9), (50, 5, 31)]
)
def test_what_would_not_end_or_show_nothing_is_refused(
    tmp_path: Path, contenders: int, processes: int, seconds: float
) -> None:
    with pytest.raises(BadUsage, match="the proof of locks cannot have"):
        run_locks("redis://127.0.0.1:1", tmp_path, contenders=contenders, processes=processes, seconds=seconds)
