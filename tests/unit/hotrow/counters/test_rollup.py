"""When the log is rolled up, how much at once, and what happens when that fails (D6): in virtual time."""

import asyncio
import gc
import weakref
from collections import Counter as Tally
from collections.abc import Awaitable, Callable, Coroutine, Generator
from contextlib import contextmanager
from typing import Any, TypeVar, cast

import pytest

from interlock.errors import TransactionError
from interlock.hotrow import counters
from interlock.hotrow.counters import FAILURES_MAX, FOLDS_PER_TURN, Rollup
from interlock.sql.stored_values import Executor
from interlock.testing.virtual_time import VirtualLoop

ResultT = TypeVar("ResultT")


class Log:
    """A database of which only the log matters: entries by counter."""

    def __init__(self) -> None:
        self.entries: Tally[str] = Tally()
        self.folds: list[tuple[float, str]] = []
        self.error: Exception | None = None
        self.held: asyncio.Event | None = None

    async def transact(self, function: Callable[..., Awaitable[ResultT]], /, *args: object) -> ResultT:
        name, rows_max = cast("tuple[str, int]", args)
        assert function.__name__ == "fold"
        self.folds.append((asyncio.get_running_loop().time(), name))
        if self.held is not None:
            await self.held.wait()
        if self.error is not None:
            raise self.error
        taken = min(self.entries[name], rows_max)
        self.entries[name] -= taken
        return cast("ResultT", taken)


class World:
    def __init__(self, loop: VirtualLoop) -> None:
        self.loop = loop
        self.log = Log()
        self.rollup = Rollup(cast("Executor", self.log), rows_max=10)

    def append(self, name: str, count: int = 1) -> None:
        async def append() -> None:
            self.log.entries[name] += count
            self.rollup.appended(name)

        self.run(append())

    def run(self, coroutine: Coroutine[Any, Any, ResultT]) -> ResultT:
        return self.loop.run(coroutine)

    def at(self, time_s: float) -> int:
        """Let time pass; how many folds there were so far."""
        self.loop.pass_until(time_s)
        return len(self.log.folds)


@contextmanager
def world() -> Generator[World]:
    loop = VirtualLoop()
    try:
        yield World(loop)
    finally:
        loop.leave()


def test_a_turn_comes_one_cadence_after_the_first_append() -> None:
    with world() as here:
        here.append("n", 3)
        here.append("n", 2)
        assert here.at(0.9) == 0
        assert here.at(1.0) == 1
        assert here.log.entries["n"] == 0


def test_a_counter_that_nobody_appends_to_wakes_nobody() -> None:
    with world() as here:
        here.append("n")
        assert here.at(1.0) == 1
        assert here.loop.next_timer_s() is None
        assert here.at(1_000.0) == 1
        here.append("n")
        assert here.at(1_000.9) == 1
        assert here.at(1_001.0) == 2
        assert here.loop.next_timer_s() is None


def test_a_long_log_is_folded_in_bounded_transactions_and_turns() -> None:
    with world() as here:
        here.append("n", 10 * FOLDS_PER_TURN + 25)
        assert here.at(1.0) == FOLDS_PER_TURN
        assert here.log.entries["n"] == 25
        assert here.at(2.0) == FOLDS_PER_TURN + 3
        assert here.log.entries["n"] == 0
        assert here.loop.next_timer_s() is None


def test_no_counter_waits_for_another_that_has_more_to_fold() -> None:
    with world() as here:
        here.append("long", 10_000)
        here.append("short", 5)
        here.at(1.0)
        assert [name for _, name in here.log.folds[:3]] == ["long", "short", "long"]
        assert here.log.entries["short"] == 0


def test_what_is_appended_during_a_fold_is_folded_in_the_next_turn() -> None:
    with world() as here:
        here.append("n", 5)
        here.log.held = asyncio.Event()
        here.at(1.0)
        here.append("n", 2)
        here.log.held.set()
        here.log.held = None
        assert here.at(1.5) == 1
        here.log.entries["n"] += 2  # As many as the fold that was under way could not see.
        assert here.at(2.1) == 2
        assert here.log.entries["n"] == 0


def test_counters_that_wait_for_a_turn_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """G6: with new names faster than they can be folded the process does not grow; who was left out comes later."""
    monkeypatch.setattr(counters, "OWED_MAX", 3)
    with world() as here:
        for name in "abcd":
            here.append(name)
        assert here.at(1.0) == 3
        assert here.log.entries["d"] == 1
        here.append("d")
        assert here.at(2.0) == 4
        assert here.log.entries["d"] == 0


def test_a_fold_that_fails_is_counted_and_tried_again(caplog: pytest.LogCaptureFixture) -> None:
    with world() as here:
        here.append("n", 5)
        here.log.error = TransactionError("met another one.")
        assert here.at(1.0) == 1
        assert here.rollup.failures == 1
        assert "'n' could not be rolled up (1 in a row): met another one." in caplog.text
        here.log.error = None
        assert here.at(2.0) == 2
        assert here.log.entries["n"] == 0
        assert here.loop.next_timer_s() is None


def test_a_counter_that_always_fails_is_left_alone_until_its_next_append() -> None:
    with world() as here:
        here.append("n", 5)
        here.log.error = TransactionError("never.")
        assert here.at(100.0) == FAILURES_MAX
        assert here.loop.next_timer_s() is None
        here.log.error = None
        here.append("n", 4)
        assert here.at(200.0) == FAILURES_MAX + 1
        assert here.log.entries["n"] == 0


def test_closing_waits_for_the_fold_that_is_under_way_and_begins_no_other() -> None:
    with world() as here:
        here.append("long", 10_000)
        held = here.log.held = asyncio.Event()
        assert here.at(1.0) == 1

        closing = here.loop.create_task(here.rollup.close())
        here.at(6.0)
        assert not closing.done()
        held.set()
        here.at(7.0)
        assert closing.done()
        here.append("n")
        assert here.at(100.0) == 1
        assert here.loop.next_timer_s() is None


def test_closing_cancels_the_turn_that_waits() -> None:
    with world() as here:
        here.append("n")
        here.run(here.rollup.close())
        assert here.at(100.0) == 0


def test_a_database_that_is_dropped_is_not_kept_by_the_turn_that_waits() -> None:
    with world() as here:
        here.append("n")
        seen = weakref.ref(here.rollup)
        gc.disable()  # No cycle either: it must go by itself.
        try:
            del here.rollup
            assert seen() is None
        finally:
            gc.enable()
        assert here.at(100.0) == 0


@pytest.mark.parametrize("under_way", [False, True])
def test_an_event_loop_that_ended_before_the_turn_does_not_end_the_roll_up(under_way: bool) -> None:
    with world() as first:
        first.append("n", 5)
        if under_way:
            first.log.held = asyncio.Event()
            first.at(1.0)
    with world() as second:
        second.rollup, second.log = first.rollup, first.log
        second.log.held = None
        folds = len(first.log.folds)
        second.append("n", 1)
        assert second.at(1.0) == folds + 1
        assert second.log.entries["n"] == 0


def test_a_roll_up_by_hand_folds_everything_and_says_how_much() -> None:
    with world() as here:
        here.log.entries["n"] = 25
        assert here.run(here.rollup.run("n")) == 25
        assert len(here.log.folds) == 3
        assert here.run(here.rollup.run("n")) == 0
