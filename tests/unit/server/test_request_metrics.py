"""Counting the workflows of a store: once for all who ask together, afresh in a small store, seldom in a large one."""

import asyncio

import pytest

from interlock.server.service import KEPT_S_MAX, SHARE, SMALL, CachedCounts, Counted


class Store:
    """A store that is counted by hand, on a clock that is moved by hand."""

    def __init__(self, workflows: int = 1, took_s: float = 0.0) -> None:
        self.workflows, self.took_s = workflows, took_s
        self.now_s = 100.0
        self.counted = 0
        self.gate: asyncio.Event | None = None

    def wall_s(self) -> float:
        """Not asked for."""
        return self.now_s

    def monotonic_s(self) -> float:
        """The time."""
        return self.now_s

    async def count(self) -> Counted:
        """Look at every workflow."""
        self.counted += 1
        if self.gate is not None:
            await self.gate.wait()
        self.now_s += self.took_s
        return {("order", 1, "pending"): self.workflows}


def counts(store: Store) -> CachedCounts:
    return CachedCounts(store.count, store)


def test_a_small_store_is_counted_afresh_for_everyone() -> None:
    """However slow the machine is: whoever has just sent an event sees it counted."""

    async def run() -> None:
        store = Store(took_s=5.0)
        asked = counts(store)
        for workflows in (1, 2, SMALL):
            store.workflows = workflows
            store.now_s += 0.001
            assert sum((await asked.now()).values()) == workflows

    asyncio.run(run())


@pytest.mark.parametrize(("took_s", "kept_s"), [(0.1, 0.1 * SHARE), (60.0, KEPT_S_MAX)])
def test_a_large_store_spends_a_bounded_share_of_its_time_on_counting(took_s: float, kept_s: float) -> None:
    async def run() -> None:
        store = Store(workflows=SMALL + 1, took_s=took_s)
        asked = counts(store)
        await asked.now()
        store.now_s += kept_s * 0.99
        await asked.now()
        assert store.counted == 1
        store.now_s += kept_s * 0.02
        await asked.now()
        assert store.counted == 2

    asyncio.run(run())


def test_those_who_ask_while_a_count_is_under_way_share_the_next_one() -> None:
    """The one under way may have passed what they have just done."""

    async def run() -> None:
        store = Store()
        asked = counts(store)
        store.gate = asyncio.Event()
        first = asyncio.create_task(asked.now())
        await asyncio.sleep(0)
        store.now_s += 1
        others = [asyncio.create_task(asked.now()) for _ in range(10)]
        await asyncio.sleep(0)
        store.workflows = 2
        store.now_s += 1
        store.gate.set()
        await first
        assert [sum((await each).values()) for each in others] == [2] * 10
        assert store.counted == 2

    asyncio.run(run())


def test_a_count_that_failed_is_not_kept() -> None:
    async def run() -> None:
        store = Store(workflows=SMALL + 1)
        failures = [OSError("the disk is gone")]

        async def count() -> Counted:
            if failures:
                raise failures.pop()
            return await store.count()

        asked = CachedCounts(count, store)
        with pytest.raises(OSError, match="gone"):
            await asked.now()
        assert sum((await asked.now()).values()) == SMALL + 1

    asyncio.run(run())
