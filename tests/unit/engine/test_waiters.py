"""Those who wait are woken when the workflow is there, and when it never will be."""

import asyncio

import pytest

from interlock import Snapshot, WaitFailed
from interlock.engine.bound_machine import NOTHING, BoundMachine, LoadedWorkflow
from interlock.engine.views import Waiter, Waiters, too_long
from interlock.store.records import Row
from tests.conformance.engine.shop import Order, State, shop


def live(state: State, version: int = 1) -> LoadedWorkflow:
    bound = BoundMachine(shop().machine)
    row = Row("o-1", "order", 1, str(state.value), b"{}", version, 1, True, 0, 0, 0, b"")
    return LoadedWorkflow(bound, row, Snapshot(state, Order(), version, 1), NOTHING)


def test_only_those_who_are_there_are_woken() -> None:
    async def scenario() -> None:
        waiters = Waiters()
        done, charging, anywhere = Waiter([State.DONE]), Waiter([State.CHARGING, State.PAUSED]), Waiter([])
        for each in (done, charging, anywhere):
            waiters.add("o-1", each)
        waiters.moved(live(State.CHARGING))
        assert [each.future.done() for each in (done, charging, anywhere)] == [False, True, False]
        waiters.moved(live(State.DONE))
        assert [each.future.done() for each in (done, charging, anywhere)] == [True, True, True]
        assert (await charging.future).snapshot.state is State.CHARGING
        for each in (done, charging, anywhere, anywhere):
            waiters.remove("o-1", each)
        assert len(waiters) == 0
        assert not waiters.by_workflow

    asyncio.run(scenario())


def test_another_final_state_fails_those_who_asked_for_states() -> None:
    async def scenario() -> None:
        waiters = Waiters()
        done, anywhere = Waiter([State.DONE]), Waiter([])
        waiters.add("o-1", done)
        waiters.add("o-1", anywhere)
        waiters.moved(live(State.CANCELLED))
        with pytest.raises(WaitFailed, match="ended in state 'cancelled', not in 'done'"):
            await done.future
        assert (await anywhere.future).snapshot.state is State.CANCELLED

    asyncio.run(scenario())


def test_closing_tells_everybody_who_has_no_answer() -> None:
    async def scenario() -> None:
        waiters = Waiters()
        there, not_there = Waiter([State.DRAFT]), Waiter([State.DONE])
        for each in (there, not_there):
            waiters.add("o-1", each)
        waiters.moved(live(State.DRAFT))
        waiters.close(KeyError("closed"))
        assert (await there.future).snapshot.state is State.DRAFT
        with pytest.raises(KeyError):
            await not_there.future

    asyncio.run(scenario())


def test_a_time_that_is_over_says_where_the_workflow_stands() -> None:
    assert "'charging' at version 7" in str(too_long("o-1", live(State.CHARGING, 7), 0.5))
    assert "within 0.5 s" in str(too_long("o-1", None, 0.5))
