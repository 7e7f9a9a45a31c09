"""D9: which workflows events wait for each other on, told from the groups of the data path, bounded and for little."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import cast

import pytest

from interlock.engine.path.commit_pipeline import LOOK_S, ContentionTable
from interlock.engine.path.staged_group import Envelope, Staged
from interlock.lanes.hot_rows import DECAY_S
from interlock.lanes.lane_settings import LaneSettings


@dataclass
class Sent:
    workflow: str
    since_s: float
    look: bool = False


def staged(*workflows: str) -> list[Staged]:
    lives = [
        SimpleNamespace(live=SimpleNamespace(row=SimpleNamespace(id=each), bound=SimpleNamespace(name="order")))
        for each in dict.fromkeys(workflows)
    ]
    return cast("list[Staged]", lives)


def passed(
    table: ContentionTable,
    envelopes: Sequence[Sent],
    *,
    decided_s: float,
    now_s: float,
    lost: Sequence[str] = (),
    fresh: Sequence[str] = (),
) -> None:
    changed = staged(*(each.workflow for each in envelopes))
    sent = cast("Sequence[Envelope]", envelopes)
    table.passed(sent, changed, decided_s=decided_s, now_s=now_s, lost=lost, fresh=frozenset(fresh))


def test_events_of_one_workflow_in_one_group_are_hand_offs_but_for_the_first() -> None:
    table = ContentionTable()
    passed(table, [Sent("o-1", 0.5), Sent("o-1", 0.6), Sent("o-1", 0.7), Sent("o-2", 0.5)], decided_s=1.0, now_s=1.1)
    [hot] = table.worst(1.1)
    assert (hot.source, hot.table, hot.key) == ("workflow", "order", "o-1")
    assert hot.handoffs_per_s == pytest.approx(2.0)
    assert hot.writes_per_s == pytest.approx(3.0)
    assert hot.wait_s == pytest.approx(0.35), "the mean of 0.4 and 0.3"


def test_an_event_that_came_while_its_workflow_was_being_written_is_a_hand_off() -> None:
    table = ContentionTable()
    passed(table, [Sent("o-1", 0.0)], decided_s=1.0, now_s=2.0)
    passed(table, [Sent("o-1", 1.5)], decided_s=2.1, now_s=3.0)
    [hot] = table.worst(3.0)
    assert hot.wait_s == pytest.approx(0.6)


def test_one_client_that_waits_for_each_answer_hands_nothing_to_anybody() -> None:
    table = ContentionTable()
    for number in range(100):
        passed(table, [Sent("o-1", float(number))], decided_s=number + 0.1, now_s=number + 1.0)
    assert table.worst(100.0) == []


def test_what_nobody_sent_waits_for_nobody() -> None:
    """A step's result comes from inside: a workflow that runs its own steps is not contended."""
    table = ContentionTable()
    passed(table, [Sent("o-1", 0.0), Sent("o-1", math.inf)], decided_s=1.0, now_s=1.1)
    passed(table, [Sent("o-1", math.inf)], decided_s=2.0, now_s=2.1)
    assert table.worst(2.1) == []


def test_a_workflow_that_others_moved_is_a_conflict_and_one_that_is_lost_again_too() -> None:
    table = ContentionTable()
    passed(table, [Sent("o-1", 0.0, look=True)], decided_s=1.0, now_s=1.1, fresh=["o-1"])
    passed(table, [Sent("o-1", 0.0, look=True)], decided_s=2.0, now_s=2.1, fresh=["o-1"], lost=["o-1"])
    [hot] = table.worst(2.1)
    assert hot.handoffs_per_s == 0.0
    assert hot.conflicts_per_s == pytest.approx((1 + math.exp(-1.0 / DECAY_S)) / 1.0, rel=0.1)


def test_a_key_that_was_used_before_is_no_conflict() -> None:
    """Where nobody else writes a change is lost to its key alone, and memory is right."""
    table = ContentionTable()
    passed(table, [Sent("o-1", 0.0)], decided_s=1.0, now_s=1.1, lost=["o-1"])
    passed(table, [Sent("o-1", 0.0, look=True)], decided_s=2.0, now_s=2.1)
    assert all(row.conflicts_per_s == 0.0 for row in table.worst(2.1))


def test_groups_that_are_passed_over_are_counted_by_the_next_look() -> None:
    """D9, cheap: at many groups a second only some are looked at, and the rates are those of all."""
    table, now_s = ContentionTable(), 0.0
    for _ in range(20_000):
        passed(table, [Sent("hot", now_s), Sent("hot", now_s)], decided_s=now_s, now_s=now_s)
        now_s += LOOK_S / 7
    [hot] = table.worst(now_s)
    assert hot.handoffs_per_s == pytest.approx(7 / LOOK_S, rel=0.1)


@pytest.mark.slow
def test_a_hundred_thousand_workflows_are_volume_and_cost_no_room() -> None:
    table = ContentionTable(LaneSettings(contention_rows_max=100))
    for number in range(100_000):
        passed(table, [Sent(f"o-{number}", number / 100)], decided_s=number / 100, now_s=number / 100 + 0.01)
    assert not table.contention._rows
    for number in range(1_000):
        now_s = 1_000 + number / 100
        passed(table, [Sent(f"o-{number}", 0.0), Sent(f"o-{number}", 0.0)], decided_s=now_s, now_s=now_s)
        assert len(table.contention._rows) <= 100
