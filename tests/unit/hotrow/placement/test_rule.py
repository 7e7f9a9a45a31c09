"""D10: each line of the placement rule, on one window; what decides is the dependency between writes."""

import pytest

from interlock.hotrow.hot_rows import Engine
from interlock.hotrow.placement import CHOICES, WHY, Choice, Evidence, advise
from interlock.hotrow.tools import Tool
from tests.unit.hotrow.placement.windows import a_tool, row, window

STAY, TUNE, COUPLE = Choice("stay"), Choice("tune"), Choice("couple", "postgres")
SHARDED, MORE, EVENT_LOG = (Choice("helper", target) for target in ("sharded", "more_shards", "event_log"))
SEPARATE, UNCOUPLE = Choice("separate", "streams"), Choice("uncouple", "lane")
CRITICAL = a_tool(critical=True)
SLOW = 0.030
"""More than the budget."""


@pytest.mark.parametrize(
    ("tool", "evidence", "choice"),
    [
        # Nothing depends on anything.
        (CRITICAL, window(), STAY),
        (CRITICAL, window(writes=1e6, distinct=10**6, plateau=None), STAY),
        (CRITICAL, window(row(40)), STAY),
        # Hot, and still within what was declared.
        (CRITICAL, window(row(400)), STAY),
        (CRITICAL, window(row(400), p99_s=0.020, plateau=500), STAY),
        # Hot, over the budget, and not spreadable.
        (CRITICAL, window(row(400), p99_s=SLOW), COUPLE),
        (CRITICAL, window(row(400), p99_s=SLOW, engine="object"), COUPLE),
        (a_tool(critical=True, shardable=False), window(row(400), p99_s=SLOW), COUPLE),
        (a_tool(shardable=False), window(row(400), p99_s=SLOW), TUNE),
        (a_tool(), window(row(400), p99_s=SLOW), TUNE),
        # The plateau is below what is needed, although nobody is slow yet.
        (CRITICAL, window(row(400), plateau=400), COUPLE),
        (a_tool(), window(row(400), plateau=400), TUNE),
        # PostgreSQL was measured: it must bear the rate, or at least more than here.
        (CRITICAL, window(row(400), plateau=400, coupled=300), TUNE),
        (CRITICAL, window(row(400), plateau=400, coupled=450), COUPLE),
        (CRITICAL, window(row(400), p99_s=SLOW, coupled=600), COUPLE),
        # A count can be spread, wherever it lives and whatever it costs today.
        (a_tool(shardable=True), window(row(400)), SHARDED),
        (a_tool(shardable=True, critical=True), window(row(400), p99_s=SLOW), SHARDED),
        (a_tool(shardable=True), window(row(400), engine="postgres"), SHARDED),
        (a_tool(shardable=True), window(row(40)), STAY),
        (a_tool(shardable=True), window(row(60, writes=31), shards=16, streams=16), MORE),
        (a_tool(shardable=True), window(row(60, writes=300), shards=16, streams=16), EVENT_LOG),
        # What is in a table of Interlock's counters is a count, unless somebody says otherwise.
        (CRITICAL, window(row(400, table="hotrow_counter")), SHARDED),
        (CRITICAL, window(row(400, table="shop.hotrow_counter"), engine="postgres"), SHARDED),
        (a_tool(shardable=False), window(row(400, table="hotrow_counter")), STAY),
        (CRITICAL, window(row(400, table="hotrow_counter", key=7)), STAY),
        (CRITICAL, window(row(60, writes=31, table="hotrow_counter_shard", key=("likes", 3))), MORE),
        (CRITICAL, window(row(60, writes=300, table="hotrow_counter_shard", key=["likes", 3])), EVENT_LOG),
        # A conflict is a dependency that was found too late.
        (CRITICAL, window(row(0, conflicts=400), p99_s=SLOW), COUPLE),
        # Writers of different rows wait in one lane.
        (CRITICAL, window(distinct=300, p99_s=SLOW), SEPARATE),
        (a_tool(), window(distinct=300, p99_s=SLOW, engine="object"), SEPARATE),
        (a_tool(rate=6_000), window(distinct=300), SEPARATE),
        (a_tool(rate=6_000), window(distinct=300, streams=8), STAY),
        (a_tool(), window(distinct=300, p99_s=SLOW, streams=8), STAY),
        (a_tool(), window(distinct=1, p99_s=SLOW), STAY),
        (a_tool(), window(distinct=300, p99_s=SLOW, engine="postgres", routed=False), STAY),
        (CRITICAL, window(row(100, writes=100), distinct=300, p99_s=SLOW), SEPARATE),
        (CRITICAL, window(row(100, writes=100), distinct=300, p99_s=SLOW, streams=8), COUPLE),
        # The log alone takes longer than the budget.
        (CRITICAL, window(distinct=300, p99_s=0.060, floor_s=0.025, engine="object"), COUPLE),
        (CRITICAL, window(distinct=300, p99_s=None, floor_s=0.025, engine="object"), COUPLE),
        (a_tool(), window(distinct=300, p99_s=0.060, floor_s=0.025, engine="object"), SEPARATE),
        (CRITICAL, window(distinct=300, p99_s=0.060, floor_s=0.025), SEPARATE),
        # In PostgreSQL already.
        (CRITICAL, window(row(400), engine="postgres"), STAY),
        (CRITICAL, window(row(400), engine="postgres", p99_s=SLOW), STAY),
        (CRITICAL, window(row(30), engine="postgres"), STAY),
        (CRITICAL, window(row(10), engine="postgres"), UNCOUPLE),
        (CRITICAL, window(engine="postgres", routed=True), UNCOUPLE),
        (CRITICAL, window(engine="postgres", routed=False), STAY),
        # What was not measured is no reason.
        (CRITICAL, window(row(400), p99_s=None, plateau=None), STAY),
        (CRITICAL, window(row(400, wait_s=SLOW), p99_s=None, plateau=None), COUPLE),
    ],
)
def test_the_rule_says_what_to_do_about_a_window(tool: Tool, evidence: Evidence, choice: Choice) -> None:
    assert advise(tool, evidence).choice == choice


@pytest.mark.parametrize("engine", ["lane", "object"])
def test_volume_alone_never_makes_contention(engine: Engine) -> None:
    for writes in (1.0, 1e3, 1e6, 1e9):
        assert advise(CRITICAL, window(engine=engine, writes=writes, distinct=int(writes))).choice == STAY


def test_a_few_dependent_writes_count_more_than_many_independent_ones() -> None:
    few = window(row(60, writes=61), writes=61, p99_s=SLOW)
    many = window(row(1, writes=5), writes=100_000, distinct=50_000, p99_s=0.001, plateau=None)
    assert (advise(CRITICAL, few).choice, advise(CRITICAL, many).choice) == (COUPLE, STAY)


def test_a_tool_has_its_own_idea_of_hot() -> None:
    evidence = window(row(60), p99_s=SLOW)
    assert advise(a_tool(critical=True, threshold=100), evidence).choice == STAY
    assert advise(a_tool(critical=True, threshold=0), window(row(0.5), p99_s=SLOW)).choice == COUPLE


def test_the_worst_row_is_the_one_with_most_handoffs() -> None:
    evidence = window(row(1, writes=400, key="busy"), row(300, writes=300, key="hot"), p99_s=SLOW)
    told = " ".join(advise(CRITICAL, evidence).evidence)
    assert "'hot'" in told
    assert "'busy'" not in told


def test_what_is_shown_is_kept_near_its_thresholds() -> None:
    near = window(row(30), p99_s=0.012)
    assert advise(CRITICAL, near).choice == STAY
    assert advise(CRITICAL, near, COUPLE).choice == COUPLE
    assert advise(CRITICAL, window(row(24), p99_s=0.012), COUPLE).choice == STAY
    assert advise(CRITICAL, window(row(30), p99_s=0.009), COUPLE).choice == STAY
    assert advise(CRITICAL, window(row(20), engine="postgres"), UNCOUPLE).choice == UNCOUPLE
    assert advise(CRITICAL, window(row(26), engine="postgres"), UNCOUPLE).choice == STAY


@pytest.mark.parametrize(
    ("tool", "evidence", "strict", "kept"),
    [
        (CRITICAL, window(row(100, writes=150), distinct=300, p99_s=SLOW), SEPARATE, COUPLE),
        (CRITICAL, window(row(100, writes=470), distinct=300, p99_s=SLOW), COUPLE, SEPARATE),
        (a_tool(shardable=True), window(row(100, writes=150), shards=4), MORE, EVENT_LOG),
        (a_tool(shardable=True), window(row(100, writes=450), shards=4), EVENT_LOG, MORE),
        (CRITICAL, window(distinct=300, p99_s=SLOW, floor_s=0.012, engine="object"), SEPARATE, COUPLE),
    ],
)
def test_thresholds_between_two_remedies_have_margins_on_both_sides(
    tool: Tool, evidence: Evidence, strict: Choice, kept: Choice
) -> None:
    assert advise(tool, evidence).choice == strict
    assert advise(tool, evidence, kept).choice == kept


def test_a_commit_is_never_taken_to_be_faster_than_the_log_below_it() -> None:
    """Figures that contradict each other do not let a larger budget turn staying into something else."""
    evidence = window(distinct=300, p99_s=0.015, floor_s=0.025, engine="object")
    assert advise(CRITICAL, evidence, SEPARATE).choice == SEPARATE
    assert advise(a_tool(critical=True, budget_s=0.027), evidence, SEPARATE).choice == SEPARATE


def test_what_is_shown_is_not_kept_against_the_evidence() -> None:
    for shown in CHOICES.values():
        assert advise(CRITICAL, window(), shown).choice == STAY
        assert advise(a_tool(shardable=True), window(row(400)), shown).choice == SHARDED


def test_every_case_has_words_and_a_choice() -> None:
    assert set(WHY) == set(CHOICES)
