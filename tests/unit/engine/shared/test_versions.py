"""Workers of two versions of a machine on one store: neither takes what it may not decide on, and neither spins."""

from collections.abc import Mapping

import msgspec
import pytest

from interlock import MachineMismatch, UnavailableError, WaitTimeout
from interlock.engine.check_definitions import PREFIX
from tests.conformance.engine.places import settled
from tests.integration.postgres.engines.versions import (
    Note,
    Order,
    Pack,
    Packed,
    RichOrder,
    State,
    Warehouse,
    order,
)
from tests.unit.engine.shared.stores import LEASE_S, SharedMemory, engine_on, passed, play


def test_an_older_worker_claims_one_workflow_of_a_newer_version_and_no_more() -> None:
    """It gives that one back without waiting for the end of its lease, and looks for work as often as before."""

    async def scenario() -> None:
        store, world = SharedMemory(), Warehouse()
        first, second = order(1, world), order(2, world)
        async with engine_on(store, first, poll_s=1.0, steps_max=1):
            async with engine_on(store, second, worker=False, seed=2) as door:
                for each in ("o-1", "o-2"):
                    await door.start(second, each, RichOrder())
                    await door.send(each, Pack())
            await passed(2)
            rows = {each: store.row(each) for each in ("o-1", "o-2")}
            looks = store.calls("due"), store.calls("claim")
            await passed(100)
            assert {each: store.row(each) for each in rows} == rows
            assert store.held == {}
            assert store.calls("due") - looks[0] <= 112
            assert store.calls("claim") - looks[1] <= 112
            assert world.packed == []
        async with engine_on(store, second, seed=3) as new:
            for each in rows:
                assert (await new.wait(each)).state is State.DONE
        assert world.packed == [2, 2]

    play(scenario)


class Silent(SharedMemory):
    """A store that loses its connection when a worker reads notes, or gives workflows back, after it has claimed."""

    lost: str = ""

    async def notes(self) -> dict[str, str]:
        await self._lose("noted")
        return await super().notes()

    async def release(self, leases: Mapping[str, int], *, owner: str) -> set[str]:
        await self._lose("release")
        return await super().release(leases, owner=owner)

    async def _lose(self, name: str) -> None:
        if self.calls("claim") and self.lost == name:
            self.lost = ""
            raise UnavailableError("the connection was lost.")


@pytest.mark.parametrize("stops", [False, True])
def test_what_was_claimed_and_cannot_be_compared_is_given_back(*, stops: bool) -> None:
    """It does not wait for the end of its lease: it is claimed again as soon as the store answers."""

    async def scenario() -> None:
        store, world = Silent(), Warehouse()
        first, second = order(1, world), order(2, world)
        store.lost = "noted"
        async with engine_on(store, second, poll_s=1.0, seed=2) as worker:
            async with engine_on(store, first, worker=False) as door:
                await door.start(first, "o-1", Order())
                await door.send("o-1", Pack())
            while store.lost:
                await passed(0.1)
            assert set(store.held) == {"o-1"}
            begun_us = store.now_us()
            if not stops:
                assert (await worker.wait("o-1")).state is State.DONE
                assert store.now_us() - begun_us < 2_000_000
        assert store.held == {}
        assert world.packed == ([] if stops else [2])

    play(scenario)


@pytest.mark.parametrize("stops", [False, True])
def test_what_is_left_to_another_version_and_cannot_be_given_back_is_given_back_later(*, stops: bool) -> None:
    async def scenario() -> None:
        store, world = Silent(), Warehouse()
        first, second = order(1, world), order(2, world)
        store.lost = "release"
        async with engine_on(store, first, poll_s=1.0):
            async with engine_on(store, second, worker=False, seed=2) as door:
                await door.start(second, "o-1", RichOrder())
                await door.send("o-1", Pack())
            while store.lost:
                await passed(0.1)
            assert set(store.held) == {"o-1"}
            if not stops:
                await passed(2)
                assert store.held == {}
        assert store.held == {}
        assert world.packed == []

    play(scenario)


def test_effects_of_a_newer_version_are_left_to_it() -> None:
    async def scenario() -> None:
        store, world = SharedMemory(), Warehouse()
        first, second = order(1, world), order(2, world)
        async with engine_on(store, first, poll_s=1.0):
            async with engine_on(store, second, worker=False, seed=2) as door:
                await door.start(second, "o-1", RichOrder())
                await door.send("o-1", Pack())
                await door.send("o-1", Packed())
            await passed(3 * LEASE_S)
            assert world.told == []
            assert all(lease.until_us <= store.now_us() for lease in store.held_effects.values())
            claims = store.calls("claim_effects")
            await passed(10)
            assert store.calls("claim_effects") - claims <= 12
        async with engine_on(store, second, seed=3) as new:
            await settled(new)
            assert world.told == [2]

    play(scenario)


def test_a_version_that_appears_after_an_engine_was_opened_is_compared_with_its_first_workflow() -> None:

    async def scenario() -> None:
        store = SharedMemory()
        first, second = order(1), order(2)
        async with engine_on(store, second, seed=2) as new, engine_on(store, first, worker=False) as old:
            await old.start(first, "o-1", Order())
            await new.send("o-1", Note())
            assert (await new.get("o-1")).context == RichOrder(1, "USD")
            await new.start(second, "o-2", RichOrder())
            with pytest.raises(MachineMismatch):
                await old.send("o-2", Note())
            with pytest.raises(MachineMismatch):
                await old.start(first, "o-2", Order())  # Whether it is the same start cannot be told here.
            assert [view.id for view in (await old.find(first)).items] == ["o-1", "o-2"]

    play(scenario)


def test_a_newer_version_without_a_description_is_refused() -> None:
    async def scenario() -> None:
        store = SharedMemory()
        first, second = order(1), order(2)
        async with engine_on(store, first) as old:
            async with engine_on(store, second, seed=2) as new:
                await new.start(second, "o-1", RichOrder())
            del store._kept.notes[f"{PREFIX}order/2"]
            with pytest.raises(MachineMismatch, match="version 2") as refused:
                await old.send("o-1", Note())
            assert "no description" in refused.value.why

    play(scenario)


def test_a_description_that_cannot_be_read_concerns_its_own_workflows_alone() -> None:
    """A later release may describe machines in a way that this one does not know."""

    async def scenario() -> None:
        store = SharedMemory()
        first, second = order(1), order(2)
        async with engine_on(store, first) as old:
            await old.start(first, "o-1", Order())
            async with engine_on(store, second, seed=2) as new:
                await new.start(second, "o-2", RichOrder())
            store._kept.notes[f"{PREFIX}order/2"] = '{"name": ["of", "a", "later", "release"]}'
            with pytest.raises(MachineMismatch, match="version 2") as refused:
                await old.send("o-2", Note())
            assert "cannot be read" in refused.value.why
            await old.send("o-1", Note())

    play(scenario)


def test_an_older_process_reads_a_newer_workflow_and_says_so_when_it_cannot() -> None:
    async def scenario() -> None:
        store = SharedMemory()
        first, second = order(1), order(2)
        async with engine_on(store, first, worker=False) as old:
            async with engine_on(store, second, worker=False, seed=2) as new:
                await new.start(second, "o-1", RichOrder())
                await new.start(second, "o-2", RichOrder())
            assert (await old.get("o-1")).context == Order()
            store._kept.rows["o-1"] = msgspec.structs.replace(store.row("o-1"), state="elsewhere")
            with pytest.raises(MachineMismatch, match="version 2"):
                await old.get("o-1")
            assert [view.id for view in (await old.find(first)).items] == ["o-2"]
            with pytest.raises(WaitTimeout):
                await old.wait("o-2", timeout_s=1)

    play(scenario)
