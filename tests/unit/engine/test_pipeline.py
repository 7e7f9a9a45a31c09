"""G2, G7, G9, B2: what the data path does when its store is slow, away, unsure, or somebody else's too."""

import asyncio

import msgspec
import pytest

from interlock import Engine, InvalidTransition, Moved, OutcomeUnknown, Refused, UnavailableError, VersionConflict
from interlock.engine.path import commit_pipeline
from tests.conformance.engine.places import run, settled
from tests.conformance.engine.shop import (
    Charged,
    Held,
    Note,
    Order,
    OrderMachine,
    Outside,
    Ship,
    State,
    Submit,
    World,
    shop,
)
from tests.unit.engine.stores import FailingStore, engine_on


def test_nobody_is_told_anything_before_the_group_is_durable(monkeypatch: pytest.MonkeyPatch) -> None:
    """G7: neither the event that applies, nor a read, nor a refusal that depends on it."""

    async def scenario() -> None:
        store, order = FailingStore(), shop(World(charge=Outside(Held()))).machine
        async with engine_on(store, order, patch=monkeypatch, drain_s=0) as engine:
            await engine.start(order, "o-1", Order())
            store.gate = asyncio.Event()
            sent = asyncio.create_task(engine.send("o-1", Submit()))
            refused = asyncio.create_task(engine.send("o-1", Submit()))
            waiting = asyncio.create_task(engine.wait("o-1", State.CHARGING))
            for _ in range(20):
                await asyncio.sleep(0)
            assert not sent.done()
            assert not refused.done()
            assert not waiting.done()
            assert (await engine.get("o-1")).version == 1
            store.gate.set()
            assert (await sent).version == 2
            assert (await waiting).version == 2
            with pytest.raises(InvalidTransition):
                await refused

    run(scenario)


def test_events_that_come_while_a_group_is_written_are_the_next_group(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario() -> None:
        store, order = FailingStore(), shop().machine
        async with engine_on(store, order, patch=monkeypatch) as engine:
            await engine.start(order, "o-1", Order())
            store.gate, before = asyncio.Event(), store.commits
            sent = [asyncio.create_task(engine.send("o-1", Note("a")))]
            for _ in range(5):
                await asyncio.sleep(0)
            sent += [asyncio.create_task(engine.send("o-1", Note("b"))) for _ in range(50)]
            await asyncio.sleep(0)
            store.gate.set()
            await asyncio.gather(*sent)
            assert store.commits - before == 2

    run(scenario)


def test_events_of_turns_that_follow_each_other_are_one_group_but_not_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    """The requests of many connections are read in a few turns. G6: none waits for ever while others come."""

    async def scenario() -> None:
        store, order = FailingStore(), shop().machine
        async with engine_on(store, order, patch=monkeypatch) as engine:
            ids = [f"o-{number}" for number in range(40)]
            await asyncio.gather(*(engine.start(order, each, Order()) for each in ids))
            before, counts = store.commits, list[int]()
            sent: list[asyncio.Task[object]] = []
            for each in ids:
                sent.append(asyncio.create_task(engine.send(each, Note("a"))))
                await asyncio.sleep(0)
                counts.append(store.commits - before)
            await asyncio.gather(*sent)
            assert counts.index(1) >= commit_pipeline.TURNS_MAX - 1, "the first turns are one group"
            assert counts.index(1) <= 2 * commit_pipeline.TURNS_MAX, "and it does not wait for all that comes"

    run(scenario)


def test_a_caller_goes_on_before_the_next_group_although_no_commit_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    """An event loop that writes groups itself would otherwise do nothing else until the queue is empty."""

    async def scenario() -> None:
        store, order = FailingStore(), shop().machine
        async with engine_on(store, order, patch=monkeypatch, group_max=1) as engine:
            ids = [f"o-{number}" for number in range(5)]
            await asyncio.gather(*(engine.start(order, each, Order()) for each in ids))
            before = store.commits

            async def sent(workflow: str) -> int:
                await engine.send(workflow, Note("a"))
                return store.commits - before

            assert await asyncio.gather(*map(sent, ids)) == [1, 2, 3, 4, 5]

    run(scenario)


def test_neighbours_of_a_hot_workflow_wait_for_a_share_of_it_only(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario() -> None:
        store, order = FailingStore(), shop().machine
        async with engine_on(store, order, patch=monkeypatch) as engine:
            await asyncio.gather(*(engine.start(order, each, Order()) for each in ("hot", "o-1")))

            async def versions_at(count: int, *, beside: bool) -> list[int]:
                """The versions of the hot workflow as its groups commit them, relative to the first."""
                begun, before = len(store.hot), (await engine.get("hot")).version
                sent = [asyncio.create_task(engine.send("hot", Note("a"))) for _ in range(count)]
                if beside:
                    sent.append(asyncio.create_task(engine.send("o-1", Note("b"))))
                moved = await asyncio.gather(*sent)
                assert [each.version - before for each in moved[:count]] == [*range(1, count + 1)], "in their order"
                return [version - before for version in store.hot[begun:]]

            share = commit_pipeline.HOT_MAX
            assert await versions_at(3 * share, beside=False) == [3 * share], "alone it takes all"
            # The neighbour is in the first group. The next is bounded as well, because others came lately.
            assert await versions_at(4 * share, beside=True) == [share, 2 * share, 4 * share]
            # G6: all of the queue is looked through for each group, so a long one is done in few groups.
            monkeypatch.setattr(commit_pipeline, "HOT_MAX", 4)
            assert await versions_at(99, beside=True) == [25, 43, 99]

    run(scenario)


def test_a_store_that_is_away_for_a_moment_is_told_to_callers_and_loses_no_result(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The result of a step is the only memory of what happened outside: it is brought again."""

    async def scenario() -> None:
        monkeypatch.setattr(commit_pipeline, "AGAIN_S", 0.001)
        held = Held(Charged("once"))
        store, (order, world, _) = FailingStore(), shop(World(charge=Outside(held)))
        async with engine_on(store, order, patch=monkeypatch) as engine:
            await engine.start(order, "o-1", Order())
            await engine.send("o-1", Submit())
            await held.begun.wait()
            store.errors = [UnavailableError("the disk is full.")]
            with pytest.raises(UnavailableError, match="disk is full"):
                await engine.send("o-1", Note("x"))
            assert (await engine.get("o-1")).version == 2
            store.errors = [UnavailableError("the disk is full.")] * 3
            held.go.set()
            view = await engine.of(order).wait("o-1")
            assert (view.state, view.context.receipt) == (State.DONE, "once")
            assert world.charge.attempts == [1]

    run(scenario)


def test_places_that_were_kept_for_a_lost_group_are_free_again(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario() -> None:
        store, order = FailingStore(), shop().machine
        async with engine_on(store, order, patch=monkeypatch, steps_max=1) as engine:
            await engine.start(order, "o-1", Order())
            for _ in range(3):
                store.errors = [UnavailableError("away.")]
                with pytest.raises(UnavailableError):
                    await engine.send("o-1", Submit())
            await engine.send("o-1", Submit())
            assert (await engine.wait("o-1")).state is State.DONE
            await settled(engine)
            assert engine._inside.runner.slots.free == 1

    run(scenario)


@pytest.mark.parametrize("error", [OutcomeUnknown("nobody knows."), OSError("disk")])
def test_an_engine_that_cannot_know_stops_and_says_so_to_everybody(
    monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    """G9: going on could do things twice. Whoever waits is told too."""

    async def scenario() -> None:
        store, order = FailingStore(), shop().machine
        async with engine_on(store, order, patch=monkeypatch) as engine:
            await engine.start(order, "o-1", Order())
            waiting = asyncio.create_task(engine.wait("o-1"))
            await settled(engine)
            store.errors = [error]
            with pytest.raises(type(error)):
                await engine.send("o-1", Note("x"))
            for call in (engine.get, engine.wait):
                with pytest.raises(UnavailableError, match="the engine has stopped"):
                    await call("o-1")
            with pytest.raises(UnavailableError, match="the engine has stopped"):
                await engine.send("o-1", Note("x"))
            with pytest.raises(UnavailableError, match="the engine has stopped"):
                await waiting

    run(scenario)


async def _started(engine: Engine, order: OrderMachine, store: FailingStore) -> None:
    await engine.start(order, "o-1", Order())
    store.shared = True


def test_what_somebody_else_was_quicker_with_is_decided_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """B2: on the new state, a bounded number of times."""

    async def scenario() -> None:
        store, order = FailingStore(), shop().machine
        async with engine_on(store, order, patch=monkeypatch, conflicts_max=3, drain_s=0) as engine:
            await _started(engine, order, store)
            store.lose = 3
            assert (await engine.send("o-1", Note("x"))).version == 2
            store.lose = 50
            with pytest.raises(VersionConflict, match="kept moving"):
                await engine.send("o-1", Note("y"))
            assert (await engine.of(order).get("o-1")).context.note == "x"
            assert 50 - store.lose <= 5
            store.lose = 1
            moved, refused = await engine.send_many([("o-1", Note("z"), "k"), ("o-1", Ship(), None)])
            assert isinstance(moved, Moved)
            assert isinstance(refused, Refused)
            assert (await engine.stats("o-1")).applied == 2

    run(scenario)


def test_a_workflow_that_cannot_be_read_harms_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario() -> None:
        store, order = FailingStore(), shop().machine
        async with engine_on(store, order, patch=monkeypatch) as engine:
            for each in ("o-1", "o-2"):
                await engine.start(order, each, Order())
            kept = store._kept.rows
            kept["o-1"] = msgspec.structs.replace(kept["o-1"], context=b"{not json")
            engine._pipeline._live.clear()
            bad, good = await engine.send_many([("o-1", Note("x"), None), ("o-2", Note("x"), None)])
            assert isinstance(bad, Refused)
            assert isinstance(good, Moved)

    run(scenario)
