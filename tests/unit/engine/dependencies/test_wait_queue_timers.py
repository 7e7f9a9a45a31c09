"""C4, C5: who waits for the time, the budget or a recovery is called by the time alone, and costs nothing meanwhile."""

import asyncio

import pytest

from interlock.core.policies import Breaker, Dependency
from interlock.engine.dependencies.outlet import Kind
from tests.unit.engine.dependencies.queues import HairEarly, Queue, clock_of_the_loop, fails, taken
from tests.unit.engine.shared.stores import now_s, passed, play

# --- the budget ------------------------------------------------------------------------------------------------------


def test_retries_beyond_the_budget_step_aside_and_hold_up_nobody() -> None:
    """C5: an exhausted budget delays a retry, never fails it."""

    async def scenario() -> None:
        loop = clock_of_the_loop()
        queue = Queue(Dependency("gateway", 50), loop.clock)
        for _ in range(10):
            assert queue.line.reserve(None, queue.steps, "retry") is not None
        queue.wait("again-1", "again-2", kind="retry")
        queue.wait("again-1", kind="retry")
        queue.wait("first")
        assert (queue.called, len(queue.line)) == (["first"], 2)
        assert queue.line.reserve(None, queue.steps, "first") is not None
        assert queue.line.reserve(None, queue.steps, "retry") is None
        await passed(9.5)
        assert queue.called == ["first"]
        await passed(1)
        assert (queue.called, len(queue.line)) == (["first", "again-1", "again-2"], 0)
        assert now_s() < 11

    play(scenario)


def test_retries_come_back_as_soon_as_calls_of_others_allow_them() -> None:
    async def scenario() -> None:
        loop = clock_of_the_loop()
        queue = Queue(Dependency("gateway", 100), loop.clock)
        for _ in range(10):
            assert queue.line.reserve(None, queue.steps, "retry") is not None
        queue.wait("again", kind="retry")
        for _ in range(43):
            assert queue.line.reserve(None, queue.steps, "first") is not None
            queue.outlet.leave("first", "call", "done")
        assert queue.called == []
        assert queue.line.reserve(None, queue.steps, "first") is not None
        assert queue.line.reserve(None, queue.steps, "retry") is None
        queue.outlet.leave("first", "call", "done")
        assert queue.called == ["again"]

    play(scenario)


def test_retries_that_stepped_aside_do_not_starve_behind_calls_that_always_wait() -> None:
    """When the budget allows one it is the next, however many have come for the first time meanwhile."""

    async def scenario() -> None:
        loop = clock_of_the_loop()
        queue = Queue(Dependency("gateway", 1), loop.clock)
        queue.outlet._spending.retries = queue.outlet._spending.calls = 10
        queue.outlet._spending._parts[0] = (10, 10)
        queue.wait("again", kind="retry")
        queue.wait(*(f"first-{each}" for each in range(20)))
        assert queue.called == ["first-0"]
        await passed(10.5)
        assert queue.called == ["first-0"]
        taken(queue, "first-0")
        assert queue.called == ["first-0", "again"]

    play(scenario)


def test_those_who_stand_aside_cost_no_timer_while_only_the_end_of_another_can_help() -> None:
    async def scenario() -> None:
        loop = clock_of_the_loop()
        queue = Queue(Dependency("gateway", 1), loop.clock)
        queue.outlet._spending.retries = queue.outlet._spending.calls = 10
        queue.outlet._spending._parts[0] = (10, 10)
        queue.wait("again", kind="retry")
        queue.wait("a", "b")
        assert queue.called == ["a"]
        await passed(11)
        assert queue.line._timer is None
        assert len(queue.line) == 2

    play(scenario)


# --- time ------------------------------------------------------------------------------------------------------------


def test_an_open_breaker_is_probed_when_its_on_timer_and_by_one_alone() -> None:
    """The time alone wakes them: nobody calls, nobody leaves."""

    async def scenario() -> None:
        loop = clock_of_the_loop()
        queue = Queue(Dependency("gateway", 50, breaker=Breaker(failures=1, reset_s=30)), loop.clock)
        fails(queue.outlet)
        queue.wait("a", "b", "c")
        await passed(29.9)
        assert queue.called == []
        await passed(0.2)
        assert queue.called == ["a"]
        held = queue.line.reserve("a", queue.steps, "first")
        assert held is not None
        queue.outlet.leave("first", held.admitted, "failed", 0.0, "x")
        await passed(29.8)
        assert queue.called == ["a"]
        await passed(0.5)
        assert queue.called == ["a", "b"]
        held = queue.line.reserve("b", queue.steps, "first")
        assert held is not None
        queue.outlet.leave("first", held.admitted, "done")
        assert queue.called == ["a", "b", "c"]
        assert [each.after for each in queue.changes] == ["open", "half_open", "open", "half_open", "closed"]

    play(scenario)


def test_an_undo_that_always_fails_does_not_make_every_probe() -> None:
    """C9: undos come first, and a call may close what one undo would keep open for ever."""

    async def scenario() -> None:
        loop = clock_of_the_loop()
        queue = Queue(Dependency("gateway", 50, breaker=Breaker(failures=1, reset_s=30)), loop.clock)
        fails(queue.outlet)
        fails(queue.outlet, kind="undo")
        queue.wait("step")
        queue.wait("undo-1", kind="undo")
        await passed(30.1)
        held = queue.line.reserve("undo-1", queue.undos, "undo")
        assert held is not None
        assert (queue.called, queue.called_to_undo) == ([], ["undo-1"])
        queue.outlet.leave("undo", held.admitted, "failed", 0.0, "x")
        fails(queue.outlet, kind="undo")
        queue.wait("undo-2", kind="undo")
        await passed(30.1)
        assert (queue.called, queue.called_to_undo) == (["step"], ["undo-1"])
        held = queue.line.reserve("step", queue.steps, "first")
        assert held is not None
        queue.outlet.leave("first", held.admitted, "done")
        assert queue.outlet.phase == "closed"

    play(scenario)


def test_calls_are_released_in_growing_waves() -> None:
    """C4: never more at once than the wave allows, and all are called in the end."""

    async def scenario() -> None:
        loop = clock_of_the_loop()
        queue = Queue(Dependency("gateway", 50, breaker=Breaker(failures=1, reset_s=30)), loop.clock)
        fails(queue.outlet)
        queue.wait(*(f"o-{each}" for each in range(100)))
        await passed(31)
        sizes, done = list[int](), 0
        while done < 100:
            wave, done = queue.called[done:], len(queue.called)
            sizes.append(len(wave))
            passes = [queue.line.reserve(name, queue.steps, "first") for name in wave]
            for held in passes:
                assert held is not None
                queue.outlet.leave(held.kind, held.admitted, "done")
        assert sizes == [1, 2, 4, 8, 16, 32, 37]

    play(scenario)


def test_a_rate_calls_one_after_the_other_by_time_alone() -> None:
    async def scenario() -> None:
        loop = clock_of_the_loop()
        queue = Queue(Dependency("gateway", 50, 2.0), loop.clock)
        queue.wait(*"abcd")
        assert queue.called == ["a"]
        for seconds, expected in ((0.4, 1), (0.2, 2), (0.5, 3), (0.5, 4), (5, 4)):
            await passed(seconds)
            assert len(queue.called) == expected

    play(scenario)


def test_those_whom_only_the_end_of_another_can_help_cost_no_timer() -> None:
    async def scenario() -> None:
        queue = Queue(Dependency("gateway", 1), clock_of_the_loop().clock)
        queue.wait(*(f"o-{each}" for each in range(1_000)))
        assert clock_of_the_loop().next_timer_s() == pytest.approx(3_000)
        assert len(asyncio.all_tasks()) == 1

    play(scenario)


@pytest.mark.parametrize(
    ("dependency", "kind"),
    [
        (Dependency("gateway", 5, breaker=Breaker(failures=1, reset_s=30)), "first"),
        (Dependency("gateway", 5, rate_per_s=1), "first"),
        (Dependency("gateway", 5, budget=0), "retry"),
    ],
    ids=["breaker", "rate", "budget"],
)
def test_whose_time_comes_between_two_looks_at_the_clock_is_called_all_the_same(
    dependency: Dependency, kind: Kind
) -> None:
    """C4: it was refused a hair before its time, and found due when asked how long to wait: nobody else calls it."""

    async def scenario() -> None:
        queue = Queue(dependency, HairEarly(clock_of_the_loop().clock))
        if kind == "retry":
            for _ in range(10):  # The first ten are free.
                queue.outlet.leave("retry", queue.outlet.ask("retry"), "done")
        else:
            fails(queue.outlet)
        queue.wait("a", kind=kind)
        assert queue.called == []
        await passed(31)
        assert queue.called == ["a"]

    play(scenario)
