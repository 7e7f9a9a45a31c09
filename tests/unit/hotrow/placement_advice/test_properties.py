"""D10, D13: what holds of every verdict, whatever was declared and measured."""

import re
from typing import get_args

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from interlock.hotrow.contention_windows import Engine
from interlock.hotrow.placement_advice import (
    CHOICES,
    Advisor,
    Choice,
    Evidence,
    Measured,
    Target,
    Verdict,
    advise,
    fresh,
    step,
)
from interlock.hotrow.tool_declarations import Tool
from interlock.lanes.hot_rows import HotRow

rates = st.floats(0.001, 1e6)
seconds = st.floats(1e-6, 100)
flags = st.none() | st.booleans()

tools = st.builds(
    Tool,
    name=st.just("stock"),
    write_latency_budget=seconds,
    aggregate_write_rate=st.just(0.0) | rates,
    latency_critical=st.booleans(),
    shardable=flags,
    counter_shard_count=st.none() | st.integers(1, 256),
    group_commit_window=st.none() | st.floats(0, 10),
    group_commit_max_batch=st.none() | st.integers(1, 10_000),
    contention_flag_threshold=st.none() | st.floats(0, 1e4),
    db_per_write_stream=flags,
)
rows = st.builds(
    HotRow,
    table=st.sampled_from(["stock", "hotrow_counter", "hotrow_counter_shard"]),
    key=st.sampled_from(["A-1", 7, ("A-1", 3)]),
    conflicts_per_s=st.just(0.0) | st.floats(0, 1e5),
    handoffs_per_s=st.floats(0, 1e5),
    writes_per_s=st.floats(0, 1e6),
    wait_s=st.floats(0, 100),
    flagged=st.booleans(),
)
windows = st.builds(
    Evidence,
    database=st.just("stock"),
    engine=st.sampled_from(get_args(Engine)),
    seconds=seconds,
    writes_per_s=st.floats(0, 1e6),
    groups_per_s=st.none() | st.floats(0, 1e5),
    measured=st.dictionaries(
        st.sampled_from(sorted(get_args(Target))), st.builds(Measured, per_s=rates, p99_s=st.just(0.0) | seconds)
    ),
    url=st.sampled_from(["", "s3://shop/stock"]),
    to=st.sampled_from(["", "postgresql://db/shop?schema=stock"]),
    distinct_rows=st.integers(0, 10**6),
    rows=st.lists(rows, max_size=3).map(tuple),
    p99_s=st.none() | st.floats(0, 100),
    floor_s=st.none() | st.floats(0, 100),
    plateau_per_s=st.none() | rates,
    coupled_plateau_per_s=st.none() | rates,
    streams=st.integers(1, 1_000),
    shards=st.integers(1, 64),
    flag_threshold=st.floats(0, 1e4),
    routed=flags,
)
choices = st.none() | st.sampled_from(sorted(set(CHOICES.values()), key=repr))


def told(verdict: Verdict) -> str:
    return " ".join([verdict.action, verdict.target, verdict.why, *verdict.evidence, verdict.command, verdict.undo])


@given(tool=tools, window=windows, current=choices)
def test_no_dedicated_primitive_is_ever_named(tool: Tool, window: Evidence, current: Choice | None) -> None:
    text = told(advise(tool, window, current))
    assert not re.search(r"redis|valkey|memcache|dynamo|cassandra", text, re.IGNORECASE)


@given(tool=tools, window=windows, current=choices)
def test_a_verdict_follows_from_its_inputs_alone(tool: Tool, window: Evidence, current: Choice | None) -> None:
    again = msgspec.convert(msgspec.to_builtins(window), Evidence, strict=False)
    first, second = advise(tool, window, current), advise(msgspec.structs.replace(tool), again, current)
    assert first.choice == second.choice
    assert first == advise(tool, window, current)


@given(tool=tools, window=windows, current=choices, factor=st.floats(1, 30))
def test_a_larger_budget_never_turns_staying_into_something_else(
    tool: Tool, window: Evidence, current: Choice | None, factor: float
) -> None:
    larger = msgspec.structs.replace(tool, write_latency_budget=tool.write_latency_budget * factor)
    # With a measured time a larger budget can make something else good enough.
    bare = {target: Measured(per_s=each.per_s) for target, each in window.measured.items()}
    window = msgspec.structs.replace(window, measured=bare)
    if advise(tool, window, current).action == "stay":
        assert advise(larger, window, current).action == "stay"


@given(tool=tools, window=windows, current=choices)
def test_what_nobody_waits_for_is_never_moved_out_of_its_lane(
    tool: Tool, window: Evidence, current: Choice | None
) -> None:
    patient = msgspec.structs.replace(tool, latency_critical=False)
    assert advise(patient, window, current).action != "couple"


@given(tool=tools, window=windows, current=choices, writes=st.floats(0, 1e9))
def test_without_handoffs_volume_is_no_reason_for_anything(
    tool: Tool, window: Evidence, current: Choice | None, writes: float
) -> None:
    calm = msgspec.structs.replace(window, rows=())
    louder = msgspec.structs.replace(calm, writes_per_s=calm.writes_per_s + writes)
    found = {advise(tool, each, current).choice for each in (calm, louder)}
    assert len(found) == 1 or advise(tool, louder, current).action == "stay"


@given(tool=tools, window=windows, current=choices)
def test_what_is_to_be_done_comes_with_a_command_and_its_undo(
    tool: Tool, window: Evidence, current: Choice | None
) -> None:
    verdict = advise(tool, window, current)
    unknown = verdict.action in {"couple", "uncouple"} and not (window.url and window.to)
    assert bool(verdict.command) == bool(verdict.undo) == (verdict.action != "stay" and not unknown)
    assert verdict.why
    assert len(verdict.evidence) >= 3


@pytest.mark.slow
@given(tool=tools, seen=st.lists(windows, max_size=12))
def test_the_state_of_the_advisor_survives_json_between_any_two_windows(tool: Tool, seen: list[Evidence]) -> None:
    state = kept = Advisor()
    for number, window in enumerate(seen):
        state = fresh(state, tool, window.engine)
        state = step(state, advise(tool, window, state.choice), float(number))
        kept = msgspec.json.decode(msgspec.json.encode(kept), type=Advisor)
        kept = fresh(kept, tool, window.engine)
        kept = step(kept, advise(tool, window, kept.choice), float(number))
        assert kept == state
