"""The client over real sockets, from code that is not async: threads, TLS, and nothing left behind."""

import asyncio
import ssl
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from interlock import BlockingClient, Client, Retry
from interlock.errors import BadUsage, OutcomeUnknown, UnavailableError
from tests.unit.client.shop import Note, Order, State, Submit, order
from tests.unit.client.sockets import certificate, listening, listening_here

ONCE = Retry(attempts=1)


def test_the_calls_of_a_client_without_await() -> None:
    with listening() as (server, _), BlockingClient(f"http://127.0.0.1:{server.port}") as client:
        assert client.start(order, "o-1", Order()).state is State.DRAFT
        assert client.of(order).send("o-1", Submit(5), key="k").state is State.CHARGING
        assert client.get("o-1").state is State.CHARGING
        assert client.of("order").get("o-1").context == {"cents": 5, "note": ""}
        [moved, refused] = client.send_many([("o-1", Note("x"), "l"), ("o-1", Submit(5))])
        assert repr(client) == f"<BlockingClient of http://127.0.0.1:{server.port}>"
        assert (type(moved).__name__, type(refused).__name__) == ("Moved", "Refused")


def test_threads_share_the_connections_of_one_client_and_closing_it_closes_them() -> None:
    with listening() as (server, portal):
        with (
            BlockingClient(f"http://127.0.0.1:{server.port}", connections_max=4) as client,
            ThreadPoolExecutor(16) as pool,
        ):
            started = [pool.submit(client.start, order, f"o-{at}", Order()) for at in range(64)]
            views = [each.result() for each in started]
            assert len(views) == len(server.server.applied) == 64
            assert 1 <= server.made <= 4
        portal.call(server.none_open.wait)
        assert not server.open
        assert not [thread for thread in threading.enumerate() if thread.name == "interlock-client"]
        client.close()
        with pytest.raises(UnavailableError, match="the client is closed"):
            client.get("o-1")


def test_a_blocking_client_is_not_called_by_its_own_loop() -> None:
    with listening() as (server, _), BlockingClient(f"http://127.0.0.1:{server.port}") as client:

        async def inside() -> None:
            with pytest.raises(
                BadUsage, match=r"a blocking client was called by its own event loop[\s\S]*Use `Client`"
            ):
                client.get("o-1")

        client._portal.call(inside)


def test_a_connection_that_really_breaks_is_taken_up_again_with_a_key() -> None:
    with listening() as (server, _), BlockingClient(f"http://127.0.0.1:{server.port}") as client:
        client.start(order, "o-1", Order())
        server.server.weather.extend(["cut after", "half", "cut before"])
        assert client.send("o-1", Submit(5), key="k").duplicate
        assert [name for _, name in server.server.applied] == ["STARTED", "SUBMIT"]
        server.server.weather.append("cut before")
        with pytest.raises(OutcomeUnknown):
            client.send("o-1", Note("x"))


def test_a_server_that_is_not_there_is_told_as_such() -> None:
    with listening() as (server, _):
        port = server.port
    with BlockingClient(f"http://127.0.0.1:{port}", retry=ONCE) as client, pytest.raises(UnavailableError) as told:
        client.get("o-1")
    assert f"http://127.0.0.1:{port} was not reached" in told.value.what


def test_tls_is_verified_unless_a_context_says_whom_to_trust(tmp_path: Path) -> None:
    context, public = certificate(tmp_path)
    with listening(context) as (server, _):
        url = f"https://127.0.0.1:{server.port}"
        with BlockingClient(url, key="ilk_secret", retry=ONCE) as wary:
            with pytest.raises(UnavailableError) as told:
                wary.start(order, "o-1", Order())
            assert "certificate" in told.value.what
            assert type(told.value) is UnavailableError
        assert not server.server.applied
        with BlockingClient(url, tls=ssl.create_default_context(cafile=public)) as client:
            assert client.start(order, "o-1", Order()).version == 1
        trusting = ssl.create_default_context(cafile=public)
        with (
            BlockingClient(f"https://localhost:{server.port}", tls=trusting, retry=ONCE) as other,
            pytest.raises(UnavailableError, match="certificate"),
        ):
            other.get("o-1")


@pytest.mark.parametrize("name", ["HTTP_PROXY", "http_proxy", "ALL_PROXY", "INTERLOCK_KEY"])
def test_nothing_is_read_from_the_environment(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(name, "http://127.0.0.1:9")
    with listening() as (server, _), BlockingClient(f"http://127.0.0.1:{server.port}") as client:
        assert client.start(order, "o-1", Order()).version == 1
        assert not [got for got in server.got if "authorization" in got.headers]


def test_a_cancelled_call_closes_its_real_connection() -> None:
    """G6: no leak."""

    async def test() -> None:
        async with listening_here() as server:
            client = Client(f"http://127.0.0.1:{server.port}")
            await client.start(order, "o-1", Order())
            server.server.weather.extend(["silent"] * 5)
            server.server.silent_expected = 5
            calls = [asyncio.ensure_future(client.get("o-1")) for _ in range(5)]
            await server.server.silenced.wait()
            for call in calls:
                call.cancel()
            await asyncio.wait(calls)
            assert (await client.get("o-1")).version == 1
            assert client._remote.transport.pool().open_count == 1
            await client.close()

    asyncio.run(test())


def test_a_stream_without_await() -> None:
    head = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n"
    signal = b'{"machine":"order","workflow":"o-1","from_state":"draft","to_state":"draft","event":"NOTE","version":2}'
    with listening() as (server, portal):
        server.server.weather.append(head + b"id: a-1\nevent: transition_applied\ndata: " + signal + b"\n\n")
        with BlockingClient(f"http://127.0.0.1:{server.port}") as client, client.stream() as events:
            event = next(iter(events))
            assert (event.id, event.kind, event.signal is not None) == ("a-1", "transition_applied", True)
        events.close()
        portal.call(server.none_open.wait)


def test_an_async_client_is_closed_by_leaving_it() -> None:
    async def test() -> None:
        async with listening_here() as server, Client(f"http://127.0.0.1:{server.port}") as client:
            assert (await client.start(order, "o-1", Order())).version == 1

    asyncio.run(test())
