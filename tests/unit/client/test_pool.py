"""Connections are bounded, used again, and never leaked, whatever a call ends with (G6)."""

import asyncio
import contextlib
import ssl

import pytest

from interlock.client.http_connection import FRESH_S, IDLE_S_MAX, Connection
from interlock.errors import BadUsage, InterlockError, OutcomeUnknown, UnavailableError
from interlock.urls import ServerAddress
from tests.unit.client.server import Server
from tests.unit.client.shop import Note, Order, Submit, order
from tests.unit.client.test_retries import GARBAGE, begun
from tests.unit.client.wires import Reply, WiredClient, passed, run


def test_one_connection_serves_one_call_after_the_other() -> None:
    async def test() -> None:
        server, client = await begun()
        for at in range(20):
            await client.send("o-1", Note(f"{at}"))
        assert server.net.made == client.open_count == 1

    run(test)


def test_connections_are_bounded_and_whoever_comes_later_waits() -> None:
    async def test() -> None:
        server = Server()
        client = WiredClient(server.net, connections_max=3)
        await asyncio.gather(*(client.start(order, f"o-{at}", Order()) for at in range(30)))
        assert len(server.applied) == 30
        assert server.net.made == client.open_count == 3

    run(test)


def test_a_wait_for_a_connection_has_an_end_and_nothing_was_sent() -> None:
    async def test() -> None:
        server = Server()
        client = WiredClient(server.net, connections_max=1, timeout_s=5.0, attempt_s=2.0)
        await client.start(order, "o-1", Order())
        server.weather.append("silent")
        first = asyncio.ensure_future(client.send("o-1", Submit(5)))
        await asyncio.sleep(0)
        with pytest.raises(UnavailableError) as told:
            await client.send("o-1", Note("x"))
        assert type(told.value) in {UnavailableError, OutcomeUnknown}
        with pytest.raises(OutcomeUnknown):
            await first
        assert server.applied == [("o-1", "STARTED"), ("o-1", "SUBMIT")]

    run(test)


ENDS: list[str | Reply | bytes] = ["fine", "cut before", "cut after", "half", "busy", "moving", *GARBAGE.values()]


@pytest.mark.parametrize("end", ENDS, ids=str)
def test_no_end_of_a_call_leaves_a_connection_behind(end: str | Reply | bytes) -> None:
    async def test() -> None:
        server, client = await begun(*[end] * 6)
        for at in range(6):
            with contextlib.suppress(InterlockError):
                await client.send("o-1", Note(f"{at}"))
        assert client.open_count == len(server.net.wires) <= 1
        await client.close()
        assert client.open_count == len(server.net.wires) == 0

    run(test)


@pytest.mark.parametrize("turns", range(12))
def test_a_call_that_is_cancelled_anywhere_leaves_no_connection_and_no_place_behind(turns: int) -> None:
    async def test() -> None:
        server = Server()
        client = WiredClient(server.net, connections_max=1)
        await client.start(order, "o-1", Order())
        for _ in range(3):
            task = asyncio.ensure_future(client.send("o-1", Note("x"), key="k"))
            for _ in range(turns):
                await asyncio.sleep(0)
            task.cancel()
            await asyncio.wait([task])
        assert client.open_count == len(server.net.wires) <= 1
        assert (await client.get("o-1")).version == 1 + len(server.applied) - 1
        await client.close()
        assert not server.net.wires

    run(test)


def test_what_a_server_has_closed_is_not_used_again() -> None:
    async def test() -> None:
        server, client = await begun()
        server.net.wires[0].hang_up()
        await asyncio.sleep(0)
        assert (await client.send("o-1", Submit(5))).version == 2
        assert server.net.made == 2
        assert client.open_count == 1

    run(test)


def test_what_may_not_be_repeated_takes_no_connection_that_was_idle() -> None:
    """Its server may be closing it at this very moment."""

    async def test() -> None:
        server, client = await begun()
        await passed(FRESH_S + 0.05)
        await client.get("o-1")
        assert server.net.made == 1
        await passed(FRESH_S + 0.05)
        await client.send("o-1", Submit(5))
        assert server.net.made == 2

    run(test)


def test_what_was_idle_for_long_is_closed_instead_of_used() -> None:
    async def test() -> None:
        server, client = await begun()
        await passed(IDLE_S_MAX + 1)
        await client.get("o-1")
        assert server.net.made == 2
        assert client.open_count == 1

    run(test)


def test_idle_connections_count_for_the_bound() -> None:
    async def test() -> None:
        server = Server()
        client = WiredClient(server.net, connections_max=2)
        await asyncio.gather(*(client.start(order, f"o-{at}", Order()) for at in range(2)))
        await passed(FRESH_S + 1)
        await asyncio.gather(client.send("o-0", Submit(5)), client.send("o-1", Submit(5)))
        assert client.open_count == 2
        assert server.net.made == 4

    run(test)


def test_an_answer_that_ends_the_connection_is_believed() -> None:
    async def test() -> None:
        server, client = await begun(
            Reply(body=b'{"id":"o-1","state":"draft","version":1}', headers={"Connection": "close"})
        )
        await client.send("o-1", Note("x"))
        assert client.open_count == 0
        assert (await client.get("o-1")).version == 1
        assert server.net.made == 2

    run(test)


def test_a_body_may_come_in_chunks_and_after_interim_answers() -> None:
    async def test() -> None:
        moved = Reply(body=b'{"id":"o-1","state":"charging","version":2}', chunked=True)
        server, client = await begun(b"HTTP/1.1 102 Processing\r\n\r\n" + moved.written())
        assert (await client.send("o-1", Submit(5))).version == 2
        assert (await client.get("o-1")).version == 1
        assert server.net.made == 1

    run(test)


def test_calls_under_way_end_when_the_client_is_closed_and_later_ones_say_so() -> None:
    async def test() -> None:
        server, client = await begun("silent")
        under_way = asyncio.ensure_future(client.send("o-1", Submit(5), key="k"))
        await server.silenced.wait()
        await client.close()
        with pytest.raises(OutcomeUnknown):
            await under_way
        with pytest.raises(UnavailableError, match="closed"):
            await client.get("o-1")
        await client.close()
        assert not server.net.wires

    run(test)


def test_a_client_outlives_its_event_loop_but_is_not_shared_by_two() -> None:
    server = Server()
    client = WiredClient(server.net)

    async def begin() -> None:
        await client.start(order, "o-1", Order())
        elsewhere = asyncio.new_event_loop()
        try:
            await asyncio.get_running_loop().run_in_executor(None, _in_another, elsewhere, client)
        finally:
            elsewhere.close()
        for wire in [*server.net.wires]:
            wire.cut()

    with asyncio.Runner() as runner:
        runner.run(begin())
    with asyncio.Runner() as runner:
        assert runner.run(client.get("o-1")).version == 1
        runner.run(client.close())


def _in_another(loop: asyncio.AbstractEventLoop, client: WiredClient) -> None:
    with pytest.raises(BadUsage, match="two event loops"):
        loop.run_until_complete(client.get("o-1"))


def test_a_connection_that_comes_after_the_client_was_closed_carries_nothing() -> None:
    async def test() -> None:
        server = Server()
        opened, let = asyncio.Event(), asyncio.Event()
        connect = server.net.connect

        async def slowly(address: ServerAddress, tls: ssl.SSLContext | None) -> Connection:
            opened.set()
            await let.wait()
            return await connect(address, tls)

        server.net.connect = slowly  # type: ignore[method-assign]
        client = WiredClient(server.net)
        starting = asyncio.ensure_future(client.start(order, "o-1", Order()))
        await opened.wait()
        await client.close()
        let.set()
        with pytest.raises(UnavailableError, match="closed"):
            await starting
        assert (server.applied, client.open_count, server.net.wires) == ([], 0, [])

    run(test)
