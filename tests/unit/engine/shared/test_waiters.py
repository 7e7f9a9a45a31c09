"""Waiting for a workflow that another process moves, and for one that this process moves."""

import asyncio
import logging

import msgspec
import pytest

from interlock import UnavailableError, WaitTimeout
from interlock.engine.shared.shared_reads import EVERY_S_MAX, FIRST_S, MOVED_HERE_S
from tests.conformance.engine.places import turns
from tests.conformance.engine.shop import Note, Order, Pause, State, Submit, shop
from tests.unit.engine.shared.stores import SharedMemory, engine_on, now_s, passed, play, two_engines


def test_a_wait_ends_soon_after_another_process_has_moved_the_workflow() -> None:
    async def scenario() -> None:
        store, order = SharedMemory(), shop().machine
        async with two_engines(store, order) as (here, there):
            await here.start(order, "o-1", Order())
            waiting = asyncio.ensure_future(here.wait("o-1", State.CHARGING))
            await turns()
            begun_s = now_s()
            await there.send("o-1", Submit())
            assert (await waiting).version == 2
            assert now_s() - begun_s == pytest.approx(FIRST_S)

    play(scenario)


def test_the_store_is_asked_less_and_less_often_and_not_at_all_when_nobody_waits() -> None:
    async def scenario() -> None:
        store, order = SharedMemory(), shop().machine
        async with engine_on(store, order, worker=False) as engine:
            await engine.start(order, "o-1", Order())
            asked = [asyncio.ensure_future(engine.wait("o-1", timeout_s=10)) for _ in range(20)]
            await turns()
            assert store.loads == [], "it was started here a moment ago, and goes on here most likely"
            await passed(1.0)
            assert 3 <= len(store.loads) <= 6, "all of them ask together"
            first = len(store.loads)
            await passed(8.0)
            assert len(store.loads) - first <= 8.0 / EVERY_S_MAX + 1
            assert all(each == ["o-1"] for each in store.loads)
            for each in asked:
                with pytest.raises(WaitTimeout, match="it is in state 'draft' at version 1"):
                    await each
            await passed(2 * EVERY_S_MAX)
            last = len(store.loads)
            await passed(100)
            assert len(store.loads) == last

    play(scenario)


def test_what_moves_here_wakes_at_once_and_is_looked_for_later() -> None:
    async def scenario() -> None:
        store, order = SharedMemory(), shop().machine
        async with engine_on(store, order, worker=False) as engine:
            await engine.start(order, "o-1", Order())
            waiting = asyncio.ensure_future(engine.wait("o-1", State.PAUSED))
            await turns()
            before, begun_s = len(store.loads), now_s()
            await engine.send("o-1", Submit())
            await passed(MOVED_HERE_S - FIRST_S)
            assert len(store.loads) == before
            await engine.send("o-1", Note("x"))
            await engine.send("o-1", Pause())
            assert (await waiting).version == 4
            assert now_s() - begun_s == pytest.approx(MOVED_HERE_S - FIRST_S)

    play(scenario)


def test_a_store_that_is_away_is_asked_again() -> None:
    """Also when what it says is nothing that anybody has thought of: whoever waits would wait for ever."""

    async def scenario() -> None:
        store, order = SharedMemory(), shop().machine
        async with two_engines(store, order) as (here, there):
            await here.start(order, "o-1", Order())
            for error, event, state in (
                (UnavailableError("away."), Submit(), State.CHARGING),
                (OSError("odd"), Pause(), State.PAUSED),
            ):
                waiting = asyncio.ensure_future(here.wait("o-1", state))
                await turns()
                store.down["load"] = error
                await passed(5)
                del store.down["load"]
                await there.send("o-1", event)
                assert (await waiting).state is state

    play(scenario)


def test_a_workflow_that_cannot_be_read_is_told_to_the_log_and_harms_no_other(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def scenario() -> None:
        store, order = SharedMemory(), shop().machine
        async with two_engines(store, order) as (here, there):
            for each in ("o-1", "o-2"):
                await here.start(order, each, Order())
            waits = [asyncio.ensure_future(here.wait(each, timeout_s=5)) for each in ("o-1", "o-2")]
            await turns()
            good = store.row("o-1")
            store._kept.rows["o-1"] = msgspec.structs.replace(good, context=b"{not json")
            await there.send("o-2", Submit())
            await there.send("o-2", Pause())
            assert (await waits[1]).state is State.PAUSED
            with pytest.raises(WaitTimeout):
                await waits[0]

    with caplog.at_level(logging.ERROR, logger="interlock.operators"):
        play(scenario)
    assert "workflow 'o-1' is waited for and cannot be read" in caplog.text


def test_the_time_of_a_wait_is_over_although_the_store_is_away_or_the_workflow_is_gone() -> None:
    async def scenario() -> None:
        store, order = SharedMemory(), shop().machine
        async with engine_on(store, order, worker=False) as engine:
            for each in ("o-1", "o-2"):
                await engine.start(order, each, Order())
            waits = [asyncio.ensure_future(engine.wait(each, timeout_s=3)) for each in ("o-1", "o-2")]
            await turns()
            del store._kept.rows["o-2"]
            await passed(2.9)
            store.down["load"] = UnavailableError("away.")
            await passed(0.2)
            for waiting in waits:
                with pytest.raises(WaitTimeout, match=r"did not get there within 3 s\.\n"):
                    await waiting

    play(scenario)
