"""G3, C6: what is owed survives its encoding exactly, says when to look again, and keys come from no clock."""

import uuid
from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from interlock.clock import RandomIds, SeededIds
from interlock.core.values import TimerPolicy
from interlock.engine.bound_machine import (
    NOTHING,
    Owed,
    PastRun,
    StepRun,
    TimerRun,
    UndoRun,
    decode_owed,
    encode_owed,
    fresh_key,
    named_in,
)

texts = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=10)
times = st.integers(0, 2**53)
counts = st.integers(0, 10)
step_runs = st.builds(StepRun, texts, counts, counts, st.booleans(), st.none() | times, st.booleans())
timers = st.builds(TimerRun, texts, st.binary(max_size=9), st.sampled_from(get_args(TimerPolicy)), times, times, times)
past = st.builds(PastRun, texts, counts, texts, st.none() | texts, st.binary(max_size=9))
undos = st.builds(
    UndoRun, texts, texts, counts, texts, texts, st.none() | texts, st.binary(max_size=9), counts, counts,
    st.booleans(), st.none() | times,
)  # fmt: skip
owed = st.builds(
    Owed,
    st.none() | step_runs,
    st.lists(timers, max_size=3).map(tuple),
    st.lists(past, max_size=3).map(tuple),
    st.lists(undos, max_size=3).map(tuple),
    st.sampled_from([None, "step", "undo", "settled"]),
    texts,
)


@pytest.mark.slow
@given(owed)
def test_what_is_owed_is_read_as_it_was_written(each: Owed) -> None:
    assert decode_owed(encode_owed(each)) == each


def test_nothing_is_empty() -> None:
    assert encode_owed(NOTHING) == b""
    assert decode_owed(b"") is NOTHING


@given(owed, times)
def test_somebody_looks_again_no_later_than_at_the_soonest(each: Owed, now_us: int) -> None:
    wake_us = each.wake_us(now_us)
    moments = [timer.at_us for timer in each.timers]
    if each.current is not None:
        moments.append(each.current.retry_us or now_us)
    assert wake_us == min(moments, default=None)


def test_nothing_that_has_given_up_is_looked_at() -> None:
    dead = Owed(run=StepRun("k"), dead="step")
    assert dead.current is None
    assert dead.wake_us(5) is None


def test_the_step_comes_before_the_undos_and_the_newest_undo_first() -> None:
    first, second = UndoRun("a", "A", 1, "k1", "u1"), UndoRun("b", "B", 1, "k2", "u2")
    assert Owed(undos=(first, second)).current is first
    run = StepRun("k")
    assert Owed(run=run, undos=(first,)).current is run


def test_keys_have_the_name_in_front_and_are_new_each_time() -> None:
    keys = {fresh_key("charge", RandomIds()) for _ in range(100)}
    assert len(keys) == 100
    assert {uuid.UUID(key.removeprefix("charge-")).version for key in keys} == {4}
    assert {named_in(key) for key in keys} == {"charge"}
    assert fresh_key("charge", SeededIds(7)) == fresh_key("charge", SeededIds(7))


@pytest.mark.parametrize(
    ("run", "is_retry"),
    [
        (StepRun("k"), False),
        (StepRun("k", retry_us=9, parked=True), False),
        (StepRun("k", 2), False),
        (StepRun("k", 2, retry_us=9), True),
        (StepRun("k", 2, retry_us=9, crashed=True), False),
    ],
)
def test_only_an_attempt_that_has_failed_is_repeated_at_the_cost_of_the_retry_budget(
    run: StepRun, *, is_retry: bool
) -> None:
    """What a crash has ended says nothing about its dependency, also while it backs off and in the next life."""
    found = decode_owed(encode_owed(Owed(run))).run
    assert found is not None
    assert found.is_retry is is_retry


def test_a_run_that_has_not_crashed_is_written_as_before() -> None:
    written = encode_owed(Owed(StepRun("k", 2, 2, retry_us=9)))
    assert written == b'{"run":{"key":"k","attempts":2,"token":2,"retry_us":9}}'
