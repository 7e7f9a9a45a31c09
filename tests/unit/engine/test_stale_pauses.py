"""Pauses of a shared store: a process that has not read them for long begins nothing, and goes on after it has."""

import asyncio

import pytest

from interlock.clock import SystemClock
from interlock.engine import pauses as module
from interlock.engine.pauses import READ_S, STALE_S, Pauses, Pausing
from interlock.store.memory import MemoryStore
from interlock.store.protocol import Store


def test_what_was_held_while_the_pauses_were_old_is_taken_up_after_they_were_read() -> None:
    async def scenario() -> None:
        now_s = 100.0
        store = MemoryStore(SystemClock())
        pauses = Pauses(lambda: now_s)
        assert pauses.holds("order", "charging", "o-1")
        assert await pauses.read(store)
        assert not pauses.holds("order", "charging", "o-1")
        now_s += STALE_S
        assert not await pauses.read(store)
        now_s += STALE_S + 1
        assert pauses.holds("order", "charging", "o-1")
        assert await pauses.read(store)
        assert not pauses.holds("order", "charging", "o-1")

    asyncio.run(scenario())


def test_what_this_engine_pauses_and_resumes_during_a_read_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """The answer of the read may be older: the engine would begin steps after `pause` has returned."""

    async def scenario() -> None:
        now_s = 100.0
        pauses = Pauses(lambda: now_s)
        order, cart = Pausing(machine="order"), Pausing(machine="cart")
        asked, answer = asyncio.Event(), asyncio.Event()

        async def read(store: Store) -> list[Pausing]:
            asked.set()
            await answer.wait()
            return [cart]

        monkeypatch.setattr(module, "read_pauses", read)
        reading = asyncio.create_task(pauses.read(MemoryStore(SystemClock())))
        await asked.wait()
        now_s += READ_S
        assert not pauses.is_old  # One read at a time: a slow one would overwrite a later one.
        pauses.change(order, active=True)
        pauses.change(cart, active=False)
        answer.set()
        await reading
        assert pauses.names("order", "charging", "o-1")
        assert not pauses.names("cart", "open", "c-1")
        assert pauses.is_old
        await pauses.read(MemoryStore(SystemClock()))
        assert pauses.names("cart", "open", "c-1")

    asyncio.run(scenario())
