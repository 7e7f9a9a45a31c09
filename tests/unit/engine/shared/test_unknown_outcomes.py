"""G9: an outcome that is unknown is settled for ever before anything is decided again."""

import asyncio
from collections.abc import Sequence

import pytest

from interlock import OutcomeUnknown, UnavailableError
from interlock.engine.path.commit_pipeline import AGAIN_S
from interlock.store.memory import MemoryStore
from interlock.store.protocol import Holder
from interlock.store.records import Change
from tests.conformance.engine.shop import (
    Charged,
    Held,
    Note,
    Order,
    Outside,
    Submit,
    World,
    shop,
)
from tests.unit.engine.shared.stores import SharedMemory, engine_on, now_s, passed, play, started


@pytest.mark.parametrize("fate", ["done", "gone"])
def test_an_unknown_outcome_is_settled_and_the_caller_is_told_what_happened(fate: str) -> None:
    """G9: whether the group was written or not, the event applies once."""

    async def scenario() -> None:
        store, order = SharedMemory(), shop().machine
        async with engine_on(store, order, worker=False) as engine:
            await started(engine, order)
            store.fates = [fate]  # type: ignore[list-item]
            del store.commits[:]
            assert (await engine.send("o-1", Note("x"))).version == 2
            assert (await engine.of(order).get("o-1")).context.note == "x"
            assert store.calls("settle") == 1
            assert len(store.commits) == (1 if fate == "done" else 2)

    play(scenario)


@pytest.mark.parametrize("fate", ["done", "gone"])
def test_the_start_of_a_workflow_is_settled_too(fate: str) -> None:
    async def scenario() -> None:
        store, order = SharedMemory(), shop().machine
        async with engine_on(store, order, worker=False) as engine:
            store.fates = [fate]  # type: ignore[list-item]
            assert (await engine.start(order, "o-1", Order())).version == 1
            assert [each.version for each in await engine.history("o-1")] == [1]

    play(scenario)


def test_an_event_that_starts_applies_once_though_its_first_try_comes_late() -> None:
    """A start has no row that could be fenced: the first try arrives after it was settled as not written."""

    class Late(SharedMemory):
        late: tuple[Change, ...] = ()

        async def commit_as(self, changes: Sequence[Change], holder: Holder) -> list[str]:
            if self.fates:
                self.late = tuple(changes)
            elif self.late:
                late, self.late = self.late, ()
                assert await MemoryStore.commit(self, late) == []
            return await super().commit_as(changes, holder)

    async def scenario() -> None:
        store, order = Late(), shop().machine
        async with engine_on(store, order, worker=False) as engine:
            store.fates = ["gone"]
            assert (await engine.send("o-1", Note("x"), start=(order, Order()))).version == 2
            assert [each.event for each in await engine.history("o-1")] == ["STARTED", "NOTE"]

    play(scenario)


def test_what_became_of_a_group_is_asked_until_the_store_answers() -> None:
    async def scenario() -> None:
        store, order = SharedMemory(), shop().machine
        async with engine_on(store, order, worker=False, settle_s=60) as engine:
            await started(engine, order)
            store.fates, store.down["settle"] = ["done"], UnavailableError("away.")
            sent = asyncio.ensure_future(engine.send("o-1", Note("x")))
            await passed(20)
            assert not sent.done()
            del store.down["settle"]
            assert (await sent).version == 2
            assert store.row("o-1").version == 2

    play(scenario)


def test_an_outcome_that_cannot_be_settled_is_told_and_the_engine_goes_on() -> None:
    """G9: the caller may ask again with its key."""

    async def scenario() -> None:
        store, order = SharedMemory(), shop().machine
        async with engine_on(store, order, worker=False, settle_s=5) as engine:
            await started(engine, order)
            store.fates, store.down["settle"], begun_s = ["done"], OutcomeUnknown("away."), now_s()
            with pytest.raises(OutcomeUnknown, match="after it was written"):
                await engine.send("o-1", Note("x"), key="k")
            assert 5 <= now_s() - begun_s < 6
            del store.down["settle"]
            again = await engine.send("o-1", Note("x"), key="k")
            assert (again.duplicate, again.version) == (True, 2)
            assert (await engine.send("o-1", Note("y"))).version == 3

    play(scenario)


@pytest.mark.parametrize("fate", ["done", "gone"])
def test_a_result_whose_outcome_stays_unknown_is_brought_again_and_applies_once(fate: str) -> None:
    async def scenario() -> None:
        store, held = SharedMemory(), Held(Charged("once"))
        order, world, _ = shop(World(charge=Outside(held)))
        async with engine_on(store, order, settle_s=1) as engine:
            await started(engine, order)
            await engine.send("o-1", Submit())
            await held.begun.wait()
            store.fates, store.down["settle"] = [fate], UnavailableError("away.")  # type: ignore[list-item]
            held.go.set()
            await passed(1 + AGAIN_S)
            del store.down["settle"]
            assert (await engine.of(order).wait("o-1")).context.receipt == "once"
            happened = [each.event for each in await engine.history("o-1")]
            assert happened.count("CHARGED") == 1
            assert world.charge.attempts == [1]

    play(scenario)
