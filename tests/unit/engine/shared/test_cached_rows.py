"""G5, G7: memory makes an engine quick and never refuses: what changes nothing is decided on the row of the store."""

import pytest

from interlock import InvalidTransition, Moved, Refused, VersionConflict
from interlock.signals import ResultLate, Signal
from tests.conformance.engine.shop import (
    Cancel,
    Charged,
    Held,
    Note,
    Outside,
    Pause,
    Ship,
    State,
    Submit,
    World,
    shop,
)
from tests.unit.engine.shared.stores import SharedMemory, engine_on, inside, play, started, two_engines


def test_an_event_that_memory_would_refuse_is_decided_on_the_row_of_the_store() -> None:
    """G7: another process has moved the workflow to where the event is allowed."""

    async def scenario() -> None:
        store, order = SharedMemory(), shop().machine
        async with two_engines(store, order) as (here, there):
            await started(here, order)
            await there.send("o-1", Submit())
            assert (await here.send("o-1", Pause())).state is State.PAUSED

    play(scenario)


def test_a_refusal_is_told_after_a_look_at_the_store() -> None:
    async def scenario() -> None:
        store, order = SharedMemory(), shop().machine
        async with engine_on(store, order, worker=False) as engine:
            await started(engine, order)
            assert not store.loads
            with pytest.raises(InvalidTransition):
                await engine.send("o-1", Ship())
            assert store.loads == [["o-1"]]

    play(scenario)


def test_an_event_that_memory_would_ignore_applies_when_the_store_says_so() -> None:
    async def scenario() -> None:
        store, order = SharedMemory(), shop().machine
        async with two_engines(store, order) as (here, there):
            await started(here, order)
            await there.send("o-1", Submit())
            moved = await here.send("o-1", Pause(), if_allowed=True)
            assert (moved.state, moved.ignored) == (State.PAUSED, False)

    play(scenario)


def test_a_key_that_another_process_has_used_is_a_duplicate_here() -> None:
    """B5: although memory knows nothing of it."""

    async def scenario() -> None:
        store, order = SharedMemory(), shop().machine
        async with two_engines(store, order) as (here, there):
            await started(here, order)
            first = await there.send("o-1", Note("a"), key="k")
            again = await here.send("o-1", Note("a"), key="k")
            assert (again.duplicate, again.version) == (True, first.version)
            assert store.row("o-1").version == 2

    play(scenario)


def test_a_version_that_memory_does_not_have_is_looked_for_before_it_is_refused() -> None:
    async def scenario() -> None:
        store, order = SharedMemory(), shop().machine
        async with two_engines(store, order) as (here, there):
            await started(here, order)
            await there.send("o-1", Note("a"))
            assert (await here.send("o-1", Note("b"), expect_version=2)).version == 3
            with pytest.raises(VersionConflict, match="at version 3, not 2"):
                await here.send("o-1", Note("c"), expect_version=2)

    play(scenario)


def test_a_result_that_memory_takes_for_late_is_applied_when_the_store_says_so() -> None:
    """G5: what has happened outside must not be dropped because of what this process remembers."""

    async def scenario() -> None:
        store, held = SharedMemory(), Held(Charged("once"))
        order, world, _ = shop(World(charge=Outside(held)))
        told: list[Signal] = []
        async with engine_on(store, order, observers=[told.append]) as engine:
            await started(engine, order)
            before = inside(engine).pipeline._live["o-1"]
            await engine.send("o-1", Submit())
            await held.begun.wait()
            inside(engine).pipeline._live["o-1"] = before
            held.go.set()
            assert (await engine.of(order).wait("o-1")).context.receipt == "once"
            assert world.charge.attempts == [1]
            assert not [each for each in told if isinstance(each, ResultLate)]

    play(scenario)


def test_an_attempt_whose_workflow_another_process_has_moved_on_is_ended_before_it_is_undone() -> None:
    """G5: the process that runs it hears of it, and cancels it; its result is never applied."""

    async def scenario() -> None:
        store, held = SharedMemory(), Held(Charged("too late"), stubborn=True)
        order, world, _ = shop(World(charge=Outside(held)))
        told: list[Signal] = []
        async with engine_on(store, order, observers=[told.append]) as here:
            async with engine_on(store, order, worker=False, seed=2) as there:
                await started(here, order)
                await here.send("o-1", Submit())
                await held.begun.wait()
                await there.send("o-1", Cancel())
            held.go.set()
            view = await here.of(order).wait("o-1")
            assert (view.state, view.context.receipt) == (State.CANCELLED, "")
            assert not [each for each in told if isinstance(each, ResultLate)]
            assert world.refund.attempts == [1], "what may have been charged is refunded"

    play(scenario)


def test_those_behind_an_event_that_looks_first_do_not_overtake_it() -> None:
    async def scenario() -> None:
        store, order = SharedMemory(), shop().machine
        async with two_engines(store, order) as (here, there):
            await started(here, order)
            await there.send("o-1", Submit())
            pausing, noting = await here.send_many([("o-1", Pause()), ("o-1", Note("behind"))])
            assert isinstance(pausing, Moved)
            assert isinstance(noting, Refused), "it is decided where the first one has got to"

    play(scenario)
