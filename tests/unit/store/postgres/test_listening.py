"""Hints are heard as long as there is a connection for it, and a lost one is opened again without a hurry."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from interlock.errors import UnavailableError
from interlock.postgres.pool import Link, Pool
from interlock.store.postgres import store
from interlock.store.postgres.store import AGAIN_S, Hints
from interlock.testing.virtual_time import VirtualLoop
from interlock.urls import PostgresAddress
from tests.unit.postgres.test_pool import Server, Wire, passed


class Ear(Wire):
    """A connection that listens, or cannot."""

    def __init__(self, odd: BaseException | None = None) -> None:
        super().__init__()
        self.odd = odd
        self.told: Callable[..., None] | None = None
        self.lost: Callable[..., None] | None = None

    async def add_listener(self, _channel: str, callback: Callable[..., None], /) -> None:
        if self.odd is not None:
            raise self.odd
        self.told = callback

    def add_termination_listener(self, callback: Callable[..., None], /) -> None:
        self.lost = callback

    async def close(self, *, timeout: float | None = None) -> None:  # noqa: ASYNC109 -- the driver's.
        if self.odd is not None:
            raise self.odd
        await super().close(timeout=timeout)


Ears = list["Ear | Exception"]


def play(
    ears: Ears,
    scenario: Callable[[Hints, Ears], Coroutine[Any, Any, None]],
    patch: pytest.MonkeyPatch,
    *,
    pgbouncer: bool = False,
) -> None:
    """In virtual time, with the connections that are opened one after the other."""
    left = list(ears)

    async def connected(address: PostgresAddress) -> Link:
        ear = left.pop(0)
        if isinstance(ear, Exception):
            raise ear
        return Link(ear, address)

    patch.setattr(store, "connected", connected)
    address = PostgresAddress("postgresql://h/d", "postgresql://h/d", connections_max=2, pgbouncer=pgbouncer)
    loop = VirtualLoop()
    try:
        loop.run(scenario(Hints(Pool(address, Server().connect)), ears))
    finally:
        loop.leave()


def test_a_hint_is_heard_once_and_what_was_said_before_counts_as_one(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario(heard: Hints, ears: Ears) -> None:
        (ear,) = ears
        assert isinstance(ear, Ear)
        await heard.wait()
        waiting = asyncio.ensure_future(heard.wait())
        await passed(100)
        assert not waiting.done()
        assert ear.told is not None
        ear.told("connection", 1, "channel", "")
        await waiting
        await heard.close()
        assert ear.is_closed()

    play([Ear()], scenario, monkeypatch)


def test_a_lost_connection_counts_as_a_hint_and_is_opened_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever was said meanwhile is looked for."""

    async def scenario(heard: Hints, ears: Ears) -> None:
        first, *_, last = ears
        assert isinstance(first, Ear)
        assert isinstance(last, Ear)
        await heard.wait()
        waiting = asyncio.ensure_future(heard.wait())
        await passed(1)
        assert first.lost is not None
        first.terminate()
        first.lost()
        await waiting
        begun_s = asyncio.get_running_loop().time()
        await heard.wait()
        assert asyncio.get_running_loop().time() - begun_s == pytest.approx(2 * AGAIN_S)
        assert last.told is not None

    play([Ear(), UnavailableError("away."), Ear(OSError("lost again")), Ear()], scenario, monkeypatch)


def test_a_listener_that_is_given_up_leaves_no_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario(heard: Hints, ears: Ears) -> None:
        (ear,) = ears
        assert isinstance(ear, Ear)
        with pytest.raises(asyncio.CancelledError):
            await heard.wait()
        assert ear.is_closed()

    play([Ear(asyncio.CancelledError())], scenario, monkeypatch)


def test_a_connection_that_comes_after_the_end_or_does_not_close_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario(heard: Hints, ears: Ears) -> None:
        first, second = ears
        assert isinstance(first, Ear)
        assert isinstance(second, Ear)
        await heard.wait()
        first.odd = OSError("it says no")
        await heard.close()
        assert first.is_closed()
        await heard._listen()
        assert second.is_closed()

    play([Ear(), Ear()], scenario, monkeypatch)


def test_a_listener_that_is_added_while_the_store_closes_leaves_no_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario(heard: Hints, ears: Ears) -> None:
        (ear,) = ears
        assert isinstance(ear, Ear)
        close = heard.close

        async def add_listener(_channel: str, _callback: Callable[..., None], /) -> None:
            await close()

        monkeypatch.setattr(ear, "add_listener", add_listener)
        await heard._listen()
        assert ear.is_closed()

    play([Ear()], scenario, monkeypatch)


def test_behind_a_pooler_nothing_is_heard_and_nothing_is_opened(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario(heard: Hints, ears: Ears) -> None:
        waiting = asyncio.ensure_future(heard.wait())
        await passed(1_000)
        assert not waiting.done()
        waiting.cancel()
        await heard.close()

    play([], scenario, monkeypatch, pgbouncer=True)


def test_what_was_left_before_anybody_listened_is_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    """G5: a worker that has just opened hears nothing of a cancellation that was told before it listened."""

    async def scenario(listening: Hints, ears: Ears) -> None:
        del ears
        assert await listening.wait() is True
        again = asyncio.ensure_future(listening.wait())
        await passed(5)
        assert not again.done()
        again.cancel()

    play([Ear()], scenario, monkeypatch)
