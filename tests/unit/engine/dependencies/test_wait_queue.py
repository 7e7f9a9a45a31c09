"""C4, C5, C9, G6: who waits for a dependency costs nothing, keeps its turn, and is called when there is a place."""

import asyncio
import threading

import pytest

from interlock.core.policies import Breaker, Dependency
from interlock.engine.dependencies.outlet import BreakerTransition, Outlet
from interlock.engine.dependencies.wait_queue import HELD_MIN, PARKED_S, Line, Pass, Slots
from tests.unit.engine.dependencies.queues import Queue, clock_of_the_loop, fails, opened_slots, taken
from tests.unit.engine.shared.stores import Luck, passed, play

# --- turns -----------------------------------------------------------------------------------------------------------


def test_those_who_wait_are_called_in_order_one_for_each_place() -> None:
    async def scenario() -> None:
        queue = Queue(Dependency("gateway", 2))
        queue.wait(*"abcda")
        assert (queue.called, len(queue.line), queue.line.kept) == (["a", "b"], 2, 2)
        taken(queue, "b")
        assert queue.called == ["a", "b", "c"]
        assert queue.line.keeps("a", "first")
        taken(queue, "a", "c")
        assert (queue.called, len(queue.line), queue.outlet.under_way) == (["a", "b", "c", "d"], 0, 1)

    play(scenario)


def test_nobody_overtakes_those_who_wait() -> None:
    async def scenario() -> None:
        queue = Queue(Dependency("gateway", 1))
        first = queue.line.reserve(None, queue.steps, "first")
        assert first is not None
        queue.wait("a", "b")
        assert queue.line.reserve(None, queue.steps, "first") is None
        assert queue.line.reserve("b", queue.steps, "first") is None
        queue.outlet.leave("first", "call", "done")
        assert queue.called == ["a"]
        for name in (None, "b"):
            assert queue.line.reserve(name, queue.steps, "first") is None
        assert queue.line.reserve("a", queue.steps, "first") is not None

    play(scenario)


def test_undos_are_called_before_all_others_and_wait_only_for_undos() -> None:
    """C9."""

    async def scenario() -> None:
        loop = clock_of_the_loop()
        queue = Queue(Dependency("gateway", 1, 1.0), loop.clock)
        assert queue.line.reserve(None, queue.steps, "first") is not None
        queue.wait("step")
        queue.wait("undo", kind="undo")
        assert queue.line.reserve(None, queue.undos, "undo") is None
        queue.outlet.leave("first", "call", "done")
        await passed(1.01)
        assert (queue.called, queue.called_to_undo) == ([], ["undo"])
        await passed(1.01)
        assert (queue.called, queue.called_to_undo) == (["step"], ["undo"])

    play(scenario)


def test_a_pass_that_is_declined_goes_to_the_next() -> None:
    async def scenario() -> None:
        queue = Queue(Dependency("gateway", 1))
        queue.wait("a", "b")
        assert queue.called == ["a"]
        queue.line.decline("b")
        queue.line.decline("nobody")
        assert queue.called == ["a"]
        queue.line.decline("a")
        assert (queue.called, queue.outlet.under_way) == (["a", "b"], 1)

    play(scenario)


def test_a_probe_that_is_declined_leaves_the_circuit_to_the_next() -> None:
    async def scenario() -> None:
        queue = Queue(Dependency("gateway", 5))
        queue.outlet.remember("open", None, "")
        queue.wait("a", "b")
        assert (queue.called, queue.outlet.phase) == (["a"], "half_open")
        queue.line.decline("a")
        held = queue.line.reserve("b", queue.steps, "first")
        assert held is not None
        assert (queue.called, held.is_probe, held.admitted) == (["a", "b"], True, "probe")
        assert [(each.before, each.after) for each in queue.changes] == []

    play(scenario)


def test_a_pass_for_the_step_is_given_back_by_whoever_unwinds_by_then() -> None:
    async def scenario() -> None:
        queue = Queue(Dependency("gateway", 1))
        queue.wait("a")
        assert (queue.called, queue.outlet.under_way) == (["a"], 1)
        held = queue.line.reserve("a", queue.undos, "undo")
        assert held is not None
        assert (held.slots, held.kind, queue.line.kept) == (queue.undos, "undo", 0)
        assert (queue.outlet.under_way, queue.outlet.undos_under_way) == (0, 1)
        assert queue.undos.reserve("a")
        held.leave("done")
        assert (queue.outlet.undos_under_way, queue.undos.free) == (0, 100)

    play(scenario)


def test_a_pass_is_used_with_the_slots_that_are_asked_for_then() -> None:
    async def scenario() -> None:
        queue = Queue(Dependency("gateway", 1))
        queue.wait("a")
        assert queue.undos.reserve("a")
        held = queue.line.reserve("a", queue.undos, "retry")
        assert held is not None
        assert (held.slots, held.kind) == (queue.undos, "first")
        held.leave("done")
        assert (queue.outlet.under_way, queue.undos.free) == (0, 100)

    play(scenario)


def test_one_who_waits_for_its_step_and_then_for_its_undo_loses_no_pass() -> None:
    """A cancelled workflow may stand in both queues of one line."""

    async def scenario() -> None:
        queue = Queue(Dependency("gateway", 1))
        queue.outlet.force("open", "by hand")
        queue.wait("a", "b")
        queue.wait("a", kind="undo")
        assert len(queue.line) == 3
        queue.outlet.force(None, "auto")
        assert (queue.called_to_undo, queue.called, queue.line.kept) == (["a"], ["a"], 2)
        held = queue.line.reserve("a", queue.undos, "undo")
        assert held is not None
        assert queue.called == ["a", "b"]
        held.leave("done")
        taken(queue, "b")
        assert (queue.outlet.under_way, queue.outlet.undos_under_way, len(queue.line)) == (0, 0, 0)
        queue.wait("a")
        assert queue.line.keeps("a", "first")

    play(scenario)


def test_a_retry_that_stands_aside_and_is_called_otherwise_has_one_pass() -> None:
    """A probe that failed counts no attempt: the next attempt of its workflow is the first again."""

    async def scenario() -> None:
        queue = Queue(Dependency("gateway", 50))
        for _ in range(10):
            assert queue.line.reserve(None, queue.steps, "retry") is not None
        queue.wait("a", kind="retry")
        held = queue.line.reserve("a", queue.steps, "first")
        assert held is not None
        queue.line.keep("a", held)
        for _ in range(60):
            assert queue.line.reserve(None, queue.steps, "first") is not None
            queue.outlet.leave("first", "call", "done")
        assert (len(queue.line), queue.called, queue.outlet.under_way) == (0, [], 11)

    play(scenario)


def test_a_call_that_waited_for_a_slot_while_the_breaker_opened_is_not_made() -> None:
    """C4: while it is open nothing is called."""

    async def scenario() -> None:
        loop = clock_of_the_loop()
        queue = Queue(Dependency("gateway", 5, breaker=Breaker(failures=1, reset_s=30)), loop.clock)
        queue.wait("a")
        queue.wait("b", kind="undo")
        fails(queue.outlet)
        assert queue.line.kept == 2
        assert queue.line.reserve("a", queue.steps, "first") is None
        undo = queue.line.reserve("b", queue.undos, "undo")
        assert undo is not None
        assert (undo.admitted, queue.line.kept) == ("undo", 0)
        undo.leave("done")
        assert (queue.outlet.under_way, queue.outlet.undos_under_way, queue.outlet.circuit.undos) == (0, 0, 0)

    play(scenario)


def test_a_probe_that_waited_for_a_slot_is_made() -> None:
    async def scenario() -> None:
        queue = Queue(Dependency("gateway", 5), clock_of_the_loop().clock)
        queue.outlet.remember("open", None, "")
        queue.wait("a")
        held = queue.line.reserve("a", queue.steps, "first")
        assert held is not None
        assert held.is_probe

    play(scenario)


def test_a_line_knows_who_waits_and_who_was_called() -> None:
    async def scenario() -> None:
        queue = Queue(Dependency("gateway", 1))
        queue.wait("a", "b")
        assert [queue.line.knows(each, "retry") for each in "abc"] == [True, True, False]
        assert [queue.line.knows(each, "undo") for each in "abc"] == [False] * 3

    play(scenario)


def test_nothing_begins_before_it_is_open() -> None:
    async def scenario() -> None:
        queue = Queue(Dependency("gateway", 1), opened=False)
        queue.wait("a")
        queue.outlet.limit(concurrency_max=5, rate_per_s=None)
        assert queue.line.reserve(None, queue.steps, "undo") is None
        assert (queue.called, queue.outlet.under_way) == ([], 0)
        queue.line.open()
        assert queue.called == ["a"]

    play(scenario)


def test_nobody_waits_where_nothing_runs() -> None:
    async def scenario() -> None:
        queue = Queue(Dependency("gateway", 1))
        queue.line.wait("a", Slots(0), "first")
        assert len(queue.line) == 0

    play(scenario)


# --- other threads ---------------------------------------------------------------------------------------------------


def test_a_place_that_is_freed_in_another_thread_is_given_in_the_loop_of_the_line() -> None:
    async def scenario() -> None:
        outlet, changes = (
            Outlet(Dependency("gateway", 1, breaker=Breaker(failures=1)), RealTime()),
            list[BreakerTransition](),
        )
        line, (slots, called) = Line(outlet, Luck(), changes.append), opened_slots()
        threads, woken = list[int](), asyncio.Event()

        def calls(name: str) -> None:
            threads.append(threading.get_ident())
            called.append(name)
            woken.set()

        slots.called = calls
        line.open()
        assert outlet.ask("first") == "call"
        line.wait("a", slots, "first")
        thread = threading.Thread(target=outlet.leave, args=("first", "call", "done"))
        thread.start()
        await woken.wait()
        thread.join()
        assert (called, threads) == (["a"], [threading.get_ident()])
        thread = threading.Thread(target=outlet.leave, args=("first", "call", "failed", 0.0, "x"))
        thread.start()
        thread.join()
        assert changes == []
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert [each.after for each in changes] == ["open"]
        line.close()

    asyncio.run(scenario())


class RealTime:
    """A clock of its own that stands still."""

    def wall_s(self) -> float:
        return 0.0

    def monotonic_s(self) -> float:
        return 0.0


def test_an_engine_whose_loop_has_ended_without_a_word_is_in_nobodys_way() -> None:
    """Its passes are given back, and others go on."""
    clock = RealTime()
    outlet = Outlet(Dependency("gateway", 2), clock)

    async def ends() -> None:
        line, (slots, _) = Line(outlet, Luck(), print), opened_slots()
        line.open()
        line.wait("a", slots, "first")
        line.wait("b", slots, "first")
        line.wait("c", slots, "first")

    async def goes_on() -> None:
        assert outlet.under_way == 2
        outlet.limit(concurrency_max=2, rate_per_s=None)
        assert (outlet.under_way, outlet.unused) == (0, True)
        outlet.force("open", "by hand")

    asyncio.run(ends())
    asyncio.run(goes_on())


# --- the end ---------------------------------------------------------------------------------------------------------


def test_closing_gives_all_passes_back_and_nobody_waits_any_more() -> None:
    async def scenario() -> None:
        loop = clock_of_the_loop()
        queue = Queue(Dependency("gateway", 2, 1.0), loop.clock)
        queue.wait("a", "b", "c")
        queue.wait("d", kind="undo")
        assert queue.line._timer is not None
        queue.line.close()
        assert (queue.outlet.under_way, len(queue.line), queue.line.kept, queue.outlet.unused) == (0, 0, 0, True)
        queue.wait("e")
        queue.line.stir()
        queue.line.changed(BreakerTransition("gateway", "closed", "open", "", None))
        await passed(10)
        assert (queue.called, len(queue.line), queue.changes) == (["a"], 0, [])
        assert queue.line.reserve(None, queue.steps, "first") is None

    play(scenario)


def test_closing_wakes_those_of_other_engines() -> None:
    async def scenario() -> None:
        loop = clock_of_the_loop()
        queue = Queue(Dependency("gateway", 1), loop.clock)
        other, (slots, called) = Line(queue.outlet, Luck(), queue.changes.append), opened_slots()
        other.open()
        queue.wait("a")
        other.wait("b", slots, "first")
        assert (queue.called, called) == (["a"], [])
        queue.line.close()
        assert called == ["b"]

    play(scenario)


def test_a_pass_without_a_line_only_gives_its_slot_back() -> None:
    slots, _ = opened_slots(1)
    assert slots.reserve()
    held = Pass(slots)
    assert not held.is_probe
    held.leave("failed", 1.0, "x")
    assert slots.free == 1


# --- shared stores ---------------------------------------------------------------------------------------------------


def test_who_waits_in_the_store_looks_again_when_it_may_have_helped() -> None:
    """B6: a few wait in memory; what is beyond waits in the store, spread over the time."""

    async def scenario() -> None:
        loop = clock_of_the_loop()
        dependency = Dependency("gateway", 2, breaker=Breaker(failures=1, reset_s=30))
        for luck in (0.0, 0.5):
            queue = Queue(dependency, loop.clock, chance=Luck(luck))
            fails(queue.outlet)
            queue.wait(*(f"o-{each}" for each in range(HELD_MIN + 3)))
            assert queue.line.parks_s("first", 0) is None
            queue.line.parked.put(("older", "m"), 3)
            assert queue.line.parks_s("first", 3) is None
            assert queue.line.parks_s("first", 4) is not None  # It would overtake one who waits in the store.
            queue.wait("last")
            assert queue.line.parks_s("first", 0) == pytest.approx(30 + PARKED_S * (0.5 + luck))
            queue.outlet.force("open", "by hand")
            assert queue.line.parks_s("first", 0) == PARKED_S * (0.5 + luck)
            loop.clock.now_s += 30
            queue.outlet.force(None, "auto")
            queue.wait(*(f"p-{each}" for each in range(20)))
            assert queue.line.parks_s("retry", 0) == PARKED_S * (0.5 + luck)
            queue.line.close()

    play(scenario)
