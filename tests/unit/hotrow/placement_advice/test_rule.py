"""D10: each line of the placement rule, on one window; what decides is the dependency between writes."""

import pytest

from interlock.hotrow.contention_windows import Engine
from interlock.hotrow.placement_advice import CHOICES, WHY, Choice, Evidence, Measured, Target, advise
from interlock.hotrow.tool_declarations import Tool
from tests.unit.hotrow.placement_advice.windows import a_tool, row, window

STAY, TUNE, COUPLE = Choice("stay"), Choice("tune"), Choice("couple", "postgres")
SHARDED, MORE, EVENT_LOG = (Choice("helper", target) for target in ("sharded", "more_shards", "event_log"))
SEPARATE, UNCOUPLE = Choice("separate", "streams"), Choice("uncouple", "lane")
CRITICAL = a_tool(critical=True)
SLOW = 0.030
"""More than the budget."""


def there(target: Target, per_s: float, p99_s: float) -> dict[Target, Measured]:
    return {target: Measured(per_s=per_s, p99_s=p99_s)}


def crowd(writes: float) -> Evidence:
    return window(row(100, writes=writes), shards=4, p99_s=SLOW, engine="postgres")


def shard(key: object, *, writes: float) -> Evidence:
    hot = row(60, writes=writes, table="hotrow_counter_shard", key=key)
    return window(hot, engine="postgres", p99_s=SLOW)


RULE = [
    # Nothing depends on anything.
    (CRITICAL, window(), STAY),
    (CRITICAL, window(writes=1e6, distinct=10**6, plateau=None), STAY),
    (CRITICAL, window(row(40)), STAY),
    # Hot, and still within what was declared.
    (CRITICAL, window(row(400)), STAY),
    (CRITICAL, window(row(400), p99_s=0.020, plateau=500), STAY),
    # Hot, over the budget, and not spreadable: an append to a bucket takes longer than a commit beside the program.
    (CRITICAL, window(row(400), p99_s=SLOW, engine="object"), COUPLE),
    (a_tool(critical=True, shardable=False), window(row(400), p99_s=SLOW, engine="object"), COUPLE),
    (a_tool(critical=True, rate=2_000), window(row(400), p99_s=SLOW, engine="object"), STAY),
    # A lane on a local disk is left only for a PostgreSQL that was measured to be better.
    (CRITICAL, window(row(400), p99_s=SLOW), STAY),
    (CRITICAL, window(row(400), p99_s=SLOW, coupled=600), COUPLE),
    (CRITICAL, window(row(400), p99_s=SLOW, measured=there("postgres", 600, 0.010)), COUPLE),
    (CRITICAL, window(row(400), p99_s=SLOW, measured=there("postgres", 600, 0.050)), STAY),
    (CRITICAL, window(row(400), p99_s=SLOW, measured=there("postgres", 200, 0.001)), STAY),
    # Slow, and nothing that is known would be faster: whatever waits is in one group already.
    (a_tool(shardable=False), window(row(400), p99_s=SLOW), STAY),
    (a_tool(), window(row(400), p99_s=SLOW), STAY),
    # The plateau is below what is needed, although no commit is slow yet.
    (CRITICAL, window(row(70, writes=80), plateau=400, writes=80, coupled=600), COUPLE),
    (CRITICAL, window(row(70, writes=80), plateau=400, writes=80), TUNE),
    (a_tool(), window(row(70, writes=80), plateau=400, writes=80), TUNE),
    # PostgreSQL was measured: it must bear the rate, or at least more than here.
    (CRITICAL, window(row(70, writes=80), plateau=400, writes=80, coupled=300), TUNE),
    (CRITICAL, window(row(70, writes=80), plateau=400, writes=80, coupled=450), COUPLE),
    # What is reached is no problem, whatever an experiment on another day said.
    (CRITICAL, window(row(400), plateau=400), STAY),
    # A count can be spread, and on PostgreSQL two of its writers wait less often.
    (a_tool(shardable=True), window(row(400), engine="postgres", p99_s=SLOW), SHARDED),
    (a_tool(shardable=True, critical=True), window(row(400), engine="postgres", p99_s=SLOW), SHARDED),
    (a_tool(shardable=True), window(row(60, writes=31), shards=16, engine="postgres", p99_s=SLOW), MORE),
    (a_tool(shardable=True), window(row(60, writes=300), shards=16, engine="postgres", p99_s=SLOW), EVENT_LOG),
    # Within its budget and at its rate it stays, wherever it lives.
    (a_tool(shardable=True), window(row(400)), STAY),
    (a_tool(shardable=True), window(row(400), engine="postgres"), STAY),
    (a_tool(shardable=True), window(row(60, writes=31), shards=16, streams=16), STAY),
    # In a lane whose groups have room, shards need several commits where there was one.
    (a_tool(shardable=True), window(row(400), p99_s=SLOW), STAY),
    (a_tool(shardable=True), window(row(400), p99_s=SLOW, groups=25), STAY),
    (a_tool(shardable=True), window(row(400, wait_s=2.0), p99_s=3.0), SHARDED),
    (a_tool(shardable=True, batch=1), window(row(400), p99_s=SLOW, groups=500), SHARDED),
    (a_tool(shardable=True, batch=1), window(row(60, writes=31), shards=16, p99_s=SLOW, groups=500), MORE),
    (a_tool(batch=1), window(row(400), p99_s=SLOW, groups=500), TUNE),
    # Unless it was measured.
    (a_tool(shardable=True), window(row(400), p99_s=SLOW, measured=there("sharded", 5_000, 0.015)), SHARDED),
    (a_tool(shardable=True), window(row(400), p99_s=SLOW, measured=there("sharded", 5_000, 0.040)), STAY),
    (a_tool(shardable=True, batch=1), window(row(400), p99_s=SLOW, measured=there("sharded", 300, 0.01)), TUNE),
    # What is in a table of Interlock's counters is a count, unless the tool says otherwise.
    (CRITICAL, window(row(400, table="hotrow_counter"), engine="postgres", p99_s=SLOW), SHARDED),
    (CRITICAL, window(row(400, table="shop.hotrow_counter"), engine="postgres", p99_s=SLOW), SHARDED),
    (a_tool(shardable=False), window(row(400, table="hotrow_counter"), engine="postgres", p99_s=SLOW), STAY),
    (CRITICAL, window(row(400, table="hotrow_counter", key=7), engine="postgres", p99_s=SLOW), STAY),
    (CRITICAL, shard(("likes", 3), writes=31), MORE),
    (CRITICAL, shard(["likes", 3], writes=300), EVENT_LOG),
    # A conflict is a dependency that was found too late.
    (CRITICAL, window(row(0, conflicts=400), p99_s=SLOW, engine="object"), COUPLE),
    # Writers of different rows wait in one lane.
    (CRITICAL, window(distinct=300, p99_s=SLOW), SEPARATE),
    (a_tool(), window(distinct=300, p99_s=SLOW, engine="object"), SEPARATE),
    (a_tool(rate=6_000), window(distinct=300), SEPARATE),
    (a_tool(rate=6_000), window(distinct=300, streams=8), STAY),
    (a_tool(), window(distinct=300, p99_s=SLOW, streams=8), STAY),
    (a_tool(), window(distinct=1, p99_s=SLOW), STAY),
    (a_tool(), window(distinct=300, p99_s=SLOW, engine="postgres", routed=False), STAY),
    (CRITICAL, window(row(100, writes=100), distinct=300, p99_s=SLOW), SEPARATE),
    (CRITICAL, window(row(100, writes=100), distinct=300, p99_s=SLOW, streams=8, engine="object"), COUPLE),
    (CRITICAL, window(distinct=300, p99_s=SLOW, floor_s=0.029), STAY),
    (CRITICAL, window(distinct=300, p99_s=SLOW, measured=there("streams", 9_000, 0.008)), SEPARATE),
    (CRITICAL, window(distinct=300, p99_s=SLOW, measured=there("streams", 9_000, 0.040)), STAY),
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
    (CRITICAL, window(engine="postgres", measured=there("lane", 5_000, 0.002)), UNCOUPLE),
    (CRITICAL, window(engine="postgres", measured=there("lane", 300, 0.002)), STAY),
    # What was not measured is no reason.
    (CRITICAL, window(row(400), p99_s=None, plateau=None), STAY),
    (CRITICAL, window(row(400, wait_s=SLOW), p99_s=None, plateau=None, engine="object"), COUPLE),
]


@pytest.mark.parametrize(("tool", "evidence", "choice"), RULE)
def test_the_rule_says_what_to_do_about_a_window(tool: Tool, evidence: Evidence, choice: Choice) -> None:
    assert advise(tool, evidence).choice == choice


@pytest.mark.parametrize("p99_s", [0.013, 0.030])
@pytest.mark.parametrize("measured", [{}, there("sharded", 2_800, 0.110)])
def test_a_healthy_counter_in_a_lane_is_not_spread(p99_s: float, measured: dict[Target, Measured]) -> None:
    """One with 20,000 adds per second was, and fell to 2,800: each shard has to commit by itself."""
    counter = row(19_900, writes=20_000, wait_s=0.006, key="likes", table="hotrow_counter")
    seen = window(counter, writes=20_000, p99_s=p99_s, plateau=None, groups=90, measured=measured)
    for tool in (a_tool(shardable=True, rate=20_000), a_tool(rate=20_000, critical=True), a_tool(rate=1_000)):
        assert advise(tool, seen).choice == STAY


@pytest.mark.parametrize("engine", ["lane", "object"])
def test_volume_alone_never_makes_contention(engine: Engine) -> None:
    for writes in (1.0, 1e3, 1e6, 1e9):
        assert advise(CRITICAL, window(engine=engine, writes=writes, distinct=int(writes))).choice == STAY


def test_a_few_dependent_writes_count_more_than_many_independent_ones() -> None:
    few = window(row(60, writes=61), writes=61, p99_s=SLOW, engine="object")
    many = window(row(1, writes=5), writes=100_000, distinct=50_000, p99_s=0.001, plateau=None)
    assert (advise(CRITICAL, few).choice, advise(CRITICAL, many).choice) == (COUPLE, STAY)


def test_a_tool_has_its_own_idea_of_hot() -> None:
    evidence = window(row(60), p99_s=SLOW, engine="object")
    assert advise(a_tool(critical=True, threshold=100), evidence).choice == STAY
    assert advise(a_tool(critical=True, threshold=0), window(row(0.5), p99_s=SLOW, engine="object")).choice == COUPLE


def test_the_worst_row_is_the_one_with_most_handoffs() -> None:
    evidence = window(row(1, writes=400, key="busy"), row(300, writes=300, key="hot"), p99_s=SLOW)
    told = " ".join(advise(CRITICAL, evidence).evidence)
    assert "'hot'" in told
    assert "'busy'" not in told


def test_what_is_shown_is_kept_near_its_thresholds() -> None:
    near = window(row(30), p99_s=0.012, engine="object")
    assert advise(CRITICAL, near).choice == STAY
    assert advise(CRITICAL, near, COUPLE).choice == COUPLE
    assert advise(CRITICAL, window(row(24), p99_s=0.012, engine="object"), COUPLE).choice == STAY
    assert advise(CRITICAL, window(row(30), p99_s=0.009, engine="object"), COUPLE).choice == STAY
    assert advise(CRITICAL, window(row(20), engine="postgres"), UNCOUPLE).choice == UNCOUPLE
    assert advise(CRITICAL, window(row(26), engine="postgres"), UNCOUPLE).choice == STAY


@pytest.mark.parametrize(
    ("tool", "evidence", "strict", "kept"),
    [
        (CRITICAL, window(row(100, writes=150), distinct=300, p99_s=SLOW, engine="object"), SEPARATE, COUPLE),
        (CRITICAL, window(row(100, writes=470), distinct=300, p99_s=SLOW, engine="object"), COUPLE, SEPARATE),
        (a_tool(shardable=True), crowd(150), MORE, EVENT_LOG),
        (a_tool(shardable=True), crowd(450), EVENT_LOG, MORE),
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
        hot = window(row(400), engine="postgres", p99_s=SLOW)
        assert advise(a_tool(shardable=True), hot, shown).choice == SHARDED


def test_every_case_has_words_and_a_choice() -> None:
    assert set(WHY) == set(CHOICES)
