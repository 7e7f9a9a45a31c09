"""Observers at a client are told what happens at the server, as those of an engine are (A9)."""

import asyncio
import logging
import threading
from typing import Any

import pytest

from interlock import BlockingClient, Signal
from interlock.errors import DefinitionError, NotPermitted, UnavailableError
from tests.unit.client.sockets import listening
from tests.unit.client.test_signal_stream import HEAD, Source, applied, told
from tests.unit.client.wires import Net, Reply, WiredClient, passed, run

FIRST = b"retry: 1000\nid: life-0\n: interlock\n\n"


class Noted:
    """Keeps what it is told, until there is enough of it."""

    def __init__(self, count: int) -> None:
        self.signals: list[Signal] = []
        self.enough = asyncio.Event()
        self._count = count

    def __call__(self, signal: Signal) -> None:
        self.signals.append(signal)
        if len(self.signals) >= self._count:
            self.enough.set()


def test_observers_share_one_stream_which_ends_with_the_last_of_them() -> None:
    async def test() -> None:
        source = Source(FIRST + told(1, applied(2)) + told(2, applied(3)))
        client = WiredClient(source.net)
        first, second = Noted(2), Noted(2)
        await asyncio.gather(client.subscribe(first), client.subscribe(second))
        await first.enough.wait()
        assert first.signals == second.signals == [applied(2), applied(3)]
        client.unsubscribe(first)
        client.unsubscribe(first)
        assert len(source.net.wires) == 1
        client.unsubscribe(second)
        await passed(1)
        assert not source.net.wires
        assert len(source.net.got) == 1

    run(test)


def test_a_stream_that_is_cut_off_is_taken_up_again_and_nothing_is_told_twice() -> None:
    async def test() -> None:
        source = Source(FIRST, told(1, applied(2)), told(2, applied(3)))
        client = WiredClient(source.net)
        seen = Noted(2)
        await client.subscribe(seen)
        await seen.enough.wait()
        assert seen.signals == [applied(2), applied(3)]
        assert [got.headers.get("last-event-id") for got in source.net.got] == [None, "life-0", "life-1"]

    run(test)


def test_signals_that_were_missed_are_logged(caplog: pytest.LogCaptureFixture) -> None:
    async def test() -> None:
        source = Source(FIRST + b"event: reset\nid: life-9\ndata: {}\n\n" + told(10, applied(2)))
        client = WiredClient(source.net)
        seen = Noted(1)
        await client.subscribe(seen)
        await seen.enough.wait()

    run(test)
    assert "signals of http://shop.test were missed" in caplog.text


def test_a_server_that_is_away_for_long_is_found_again(caplog: pytest.LogCaptureFixture) -> None:
    async def test() -> None:
        source = Source(FIRST + told(1, applied(2)), told(2, applied(3)))
        client = WiredClient(source.net)
        seen = Noted(2)
        await client.subscribe(seen)
        source.net.refused = 20
        await seen.enough.wait()
        assert seen.signals == [applied(2), applied(3)]
        assert source.net.got[-1].headers["last-event-id"] == "life-1"

    run(test)
    assert "reconnects" in caplog.text


PERMISSION = Reply(403, b'{"code":"not-permitted","title":"No."}', "application/problem+json")


def test_a_stream_that_is_not_to_be_had_is_told_to_whoever_subscribes() -> None:
    async def test() -> None:
        source = Source(PERMISSION, FIRST + told(1, applied(2)))
        client = WiredClient(source.net)
        refused, seen = Noted(1), Noted(1)
        with pytest.raises(NotPermitted):
            await client.subscribe(refused)
        await client.subscribe(seen)
        await seen.enough.wait()
        assert not refused.signals
        nowhere = Source(FIRST)
        nowhere.net.refused = 99
        with pytest.raises(UnavailableError):
            await WiredClient(nowhere.net).subscribe(seen)

    run(test)


def test_a_key_that_was_taken_back_ends_the_stream_and_that_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    async def test() -> None:
        source = Source(FIRST + told(1, applied(2)), PERMISSION)
        client = WiredClient(source.net)
        await client.subscribe(Noted(1))
        await passed(10)
        assert len(source.net.got) == 2

    run(test)
    assert "has ended: No." in caplog.text
    assert caplog.records[-1].levelno == logging.ERROR


def test_an_observer_that_fails_harms_nobody_and_one_that_is_async_is_refused() -> None:
    async def test() -> None:
        source = Source(FIRST + told(1, applied(2)))
        client = WiredClient(source.net)
        seen = Noted(1)

        def fails(signal: Signal) -> None:
            raise ValueError(signal)

        async def nobody_awaits(signal: Signal) -> None:
            del signal

        bad: Any = nobody_awaits
        with pytest.raises(DefinitionError):
            await client.subscribe(bad)
        assert not source.net.got
        await asyncio.gather(client.subscribe(fails), client.subscribe(seen))
        await seen.enough.wait()

    run(test)


def test_whoever_gives_up_subscribing_is_not_told_and_leaves_nothing_behind() -> None:
    async def test() -> None:
        async def never(got: object) -> Reply:
            del got
            await asyncio.Event().wait()
            raise AssertionError

        net = Net(never)
        client = WiredClient(net)
        task = asyncio.ensure_future(client.subscribe(Noted(1)))
        await passed(1)
        task.cancel()
        await asyncio.wait({task})
        await passed(1)
        assert not net.wires
        client.unsubscribe(Noted(1))

    run(test)


def test_an_observer_may_end_its_own_subscription() -> None:
    async def test() -> None:
        source = Source(FIRST + told(1, applied(2)) + told(2, applied(3)))
        client = WiredClient(source.net)
        seen: list[Signal] = []

        def once(signal: Signal) -> None:
            seen.append(signal)
            client.unsubscribe(once)

        await client.subscribe(once)
        await passed(5)
        assert seen == [applied(2)]
        assert not source.net.wires

    run(test)


def test_a_blocking_client_tells_observers_too() -> None:
    with listening() as (server, portal):
        server.server.weather.append(HEAD.replace(b"Transfer-Encoding: chunked\r\n", b"") + told(1, applied(2)))
        seen: list[Signal] = []
        with BlockingClient(f"http://127.0.0.1:{server.port}") as client:
            there = threading.Event()

            def note(signal: Signal) -> None:
                seen.append(signal)
                client.unsubscribe(note)
                there.set()

            client.subscribe(note)
            there.wait()
        assert seen == [applied(2)]
        portal.call(server.none_open.wait)
