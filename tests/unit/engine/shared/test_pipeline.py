"""G1, B2: groups on a store that others write to as well, and what becomes of those who lose."""

import asyncio
from typing import Any

import pytest

from interlock import Moved, UnavailableError, VersionConflict
from interlock.engine.bound_machine import LoadedWorkflow
from interlock.engine.path.commit_pipeline import PARKED_S_MIN, _mark, _same
from interlock.engine.path.staged_group import Staged
from interlock.engine.shared.shared_store_policy import IDLE_S_MAX
from tests.conformance.engine.places import turns
from tests.conformance.engine.shop import (
    Charged,
    Held,
    Note,
    Outside,
    Submit,
    World,
    shop,
)
from tests.unit.engine.shared.stores import Fate, Luck, SharedMemory, engine_on, inside, now_s, passed, play, started


def test_what_was_decided_upon_an_old_row_is_decided_again_at_once() -> None:
    """B2: no time passes."""

    async def scenario() -> None:
        store, order = SharedMemory(), shop().machine
        async with engine_on(store, order, worker=False) as engine:
            await started(engine, order)
            store.touched_by_others("o-1")
            begun_s, before = now_s(), len(store.commits)
            assert (await engine.send("o-1", Note("x"))).version == 2
            assert now_s() == begun_s
            assert len(store.commits) - before == 2

    play(scenario)


@pytest.mark.parametrize("fraction", [0.0, 0.5, 0.9])
def test_what_is_lost_on_a_fresh_row_is_left_alone_for_a_short_random_while(fraction: float) -> None:
    async def scenario() -> None:
        store, order = SharedMemory(), shop().machine
        async with engine_on(store, order, worker=False, chance=Luck(fraction)) as engine:
            await started(engine, order)
            store.fates, begun_s = ["lost", "lost"], now_s()
            assert (await engine.send("o-1", Note("x"))).version == 2
            assert now_s() - begun_s == pytest.approx(2 * PARKED_S_MIN * (0.5 + fraction))

    play(scenario)


def test_a_parked_workflow_is_not_overtaken_by_what_comes_later_and_keeps_nobody_waiting() -> None:
    async def scenario() -> None:
        store, order = SharedMemory(), shop().machine
        async with engine_on(store, order, worker=False) as engine:
            await started(engine, order, "o-1", "o-2")
            store.fates, begun_s = ["lost", "lost"], now_s()
            sent = [asyncio.ensure_future(engine.send("o-1", Note("a")))]
            await turns()
            assert inside(engine).pipeline._parked
            sent += [asyncio.ensure_future(engine.send("o-1", Note(text))) for text in "bc"]
            assert (await engine.send("o-2", Note("other"))).version == 2
            assert now_s() == begun_s
            assert [moved.version for moved in await asyncio.gather(*sent)] == [2, 3, 4]
            assert (await engine.of(order).get("o-1")).context.note == "abc"

    play(scenario)


def test_an_event_that_never_gets_through_is_told_why() -> None:
    """B2: a bounded number of times; the text names the lock that may be the reason."""

    async def scenario() -> None:
        store, order = SharedMemory(), shop().machine
        async with engine_on(store, order, worker=False, conflicts_max=3) as engine:
            await started(engine, order)
            store.fates, before = ["lost"] * 50, len(store.commits)
            with pytest.raises(VersionConflict, match="kept moving, or was locked") as caught:
                await engine.send("o-1", Note("x"))
            assert "transaction" in caught.value.why
            assert "keep transactions that send events short" in caught.value.fix
            assert len(store.commits) - before == 3 + 2
            store.fates = []
            assert (await engine.send("o-1", Note("y"))).version == 2

    play(scenario)


def test_a_result_is_brought_again_however_often_it_is_lost() -> None:
    """G5: it is the only memory of what has happened outside."""

    async def scenario() -> None:
        store, held = SharedMemory(), Held(Charged("once"))
        order, world, _ = shop(World(charge=Outside(held)))
        async with engine_on(store, order, conflicts_max=1) as engine:
            await started(engine, order)
            await engine.send("o-1", Submit())
            await held.begun.wait()
            lost: list[Fate] = ["lost"]
            store.fates = [*lost * 30, UnavailableError("away."), *lost * 5]
            held.go.set()
            assert (await engine.of(order).wait("o-1")).context.receipt == "once"
            assert not store.fates
            assert world.charge.attempts == [1]

    play(scenario)


def test_a_workflow_that_stays_locked_does_not_keep_an_engine_from_stopping() -> None:
    """What waits for it is told that the engine is gone; nobody waits for ever."""

    async def scenario() -> None:
        store, order = SharedMemory(), shop().machine
        async with engine_on(store, order, worker=False, conflicts_max=10**6) as engine:
            await started(engine, order)
            store.fates = ["lost"] * 10**4
            sent = asyncio.ensure_future(engine.send("o-1", Note("x")))
            await passed(1.0)
            begun_s = now_s()
            await engine.close()
            assert now_s() - begun_s < 3 * IDLE_S_MAX
            await passed(1.0)
            assert sent.done()
            with pytest.raises(UnavailableError):
                await sent

    play(scenario)


def test_two_groups_are_under_way_at_once_and_never_share_a_workflow() -> None:
    """G1."""

    async def scenario() -> None:
        store, order = SharedMemory(), shop().machine
        async with engine_on(store, order, worker=False, groups_max=2) as engine:
            await started(engine, order, "o-1", "o-2", "o-3")
            gate = store.gates["commit"] = asyncio.Event()
            del store.commits[:]
            sent = [asyncio.ensure_future(engine.send("o-1", Note("a")))]
            await turns()
            sent += [asyncio.ensure_future(engine.send(each, Note("b"))) for each in ("o-1", "o-2")]
            await turns()
            assert store.commits == [["o-1"], ["o-2"]]
            sent += [asyncio.ensure_future(engine.send("o-3", Note("c")))]
            await turns()
            assert store.commits == [["o-1"], ["o-2"]], "two groups are enough"
            gate.set()
            await asyncio.gather(*sent)
            assert sorted(store.commits[2]) == ["o-1", "o-3"]
            assert (await engine.of(order).get("o-1")).context.note == "ab"

    play(scenario)


def test_a_group_is_no_larger_than_it_may_be_although_some_of_it_is_busy() -> None:
    async def scenario() -> None:
        store, order = SharedMemory(), shop().machine
        async with engine_on(store, order, worker=False, group_max=2) as engine:
            ids = [f"o-{number}" for number in range(6)]
            await started(engine, order, *ids)
            gate = store.gates["commit"] = asyncio.Event()
            del store.commits[:]
            first = asyncio.ensure_future(engine.send("o-0", Note("a")))
            await turns()
            rest = asyncio.ensure_future(engine.send_many([(each, Note("b")) for each in ids]))
            await turns()
            assert store.commits == [["o-0"], ["o-1", "o-2"]]
            gate.set()
            await first
            assert all(isinstance(each, Moved) for each in await rest)

    play(scenario)


def test_a_mistake_of_ours_behind_a_commit_stops_the_engine_and_leaves_nobody_waiting() -> None:
    async def scenario() -> None:
        store, order = SharedMemory(), shop().machine
        async with engine_on(store, order, worker=False) as engine:
            await started(engine, order)

            def broken(_staged: object) -> None:
                raise ZeroDivisionError

            inside(engine).durable = broken  # type: ignore[method-assign, assignment]
            with pytest.raises(ZeroDivisionError):
                await engine.send("o-1", Note("x"))
            with pytest.raises(UnavailableError, match="the engine has stopped"):
                await engine.send("o-1", Note("x"))

    play(scenario)


def test_a_change_is_seen_although_the_workflow_was_replaced_twice() -> None:
    """G1: an object that is gone leaves its place in memory to the next; what was decided must not be decided again."""
    nothing: Any = None

    def another() -> LoadedWorkflow:
        return LoadedWorkflow(nothing, nothing, nothing, nothing)

    staged = Staged(another(), 1, nothing, touched=True)
    for _ in range(100):
        before = _mark(staged)
        assert _same(before, _mark(staged))
        staged.live = another()
        staged.live = another()
        assert not _same(before, _mark(staged))
