"""Answers are read strictly: what is odd and allowed is understood, what could mean two things is refused."""

import asyncio

import pytest

from interlock import errors
from interlock.client.http_connection import INTERIM_MAX, Connection, Garbage, Head, Lost, NotSent, connect, parse_head
from interlock.urls import ServerAddress
from tests.unit.client.server import Server
from tests.unit.client.shop import Note
from tests.unit.client.test_retries import begun
from tests.unit.client.wires import Reply, Wire, run

OK = b"HTTP/1.1 200 OK\r\n"


async def asked(*said: bytes, cut: bool = False, hang_up: bool = False) -> tuple[Head, bytes, Connection]:
    """What a connection makes of these bytes, which come piece by piece."""
    wire = Wire(1, lambda _: None)
    for piece in said:
        asyncio.get_running_loop().call_soon(wire.give, piece)
    if cut:
        asyncio.get_running_loop().call_later(1, wire.cut)
    if hang_up:
        asyncio.get_running_loop().call_soon(wire.hang_up)
    try:
        incoming = await wire.connection.ask(b"GET / HTTP/1.1\r\n\r\n")
        return incoming.head, await incoming.read(1_000), wire.connection
    finally:
        wire.connection.cut()


def read(*said: bytes, cut: bool = False, hang_up: bool = False) -> tuple[Head, bytes]:
    found: list[tuple[Head, bytes]] = []

    async def test() -> None:
        head, body, _ = await asked(*said, cut=cut, hang_up=hang_up)
        found.append((head, body))

    run(test)
    return found[0]


def test_a_body_without_a_length_ends_with_the_connection() -> None:
    head, body = read(OK + b"\r\n", b"some", b" text", hang_up=True)
    assert body == b"some text"
    assert not head.reusable


def test_chunks_may_have_extensions_and_trailers() -> None:
    head, body = read(OK + b"Transfer-Encoding: chunked\r\n\r\n4;a=b\r\nsome\r", b"\n0\r\nX: y\r\nZ: w\r\n\r\n")
    assert body == b"some"
    assert head.reusable


def test_headers_that_come_twice_are_joined_and_names_have_no_case() -> None:
    head, _ = read(b"HTTP/1.0 200\r\nX-A: 1\r\nx-a:2\r\ncontent-LENGTH: 0\r\nConnection: Keep-Alive\r\n\r\n")
    assert head.headers["x-a"] == "1, 2"
    assert head.reusable


def test_an_answer_without_a_body_may_have_a_length() -> None:
    head, body = read(b"HTTP/1.1 304 Not Modified\r\nContent-Length: 900\r\n\r\n")
    assert (head.status, body) == (304, b"")


@pytest.mark.parametrize(
    "said",
    [
        b"HTTP/2 200 OK\r\n\r\n",
        b"HTTP/1.1 999 OK\r\n\r\n",
        OK + b"no header\r\n\r\n",
        OK + b" folded: yes\r\n\r\n",
        OK + b"Content-Length: 1\r\nContent-Length: 2\r\n\r\n",
        OK + b"Content-Length: 1, 2\r\n\r\n",
        OK + b"Content-Length: 1001\r\n\r\n",
        OK + b"Transfer-Encoding: gzip, chunked\r\n\r\n",
        OK + b"Transfer-Encoding: chunked\r\n\r\nxyz\r\n",
        OK + b"Transfer-Encoding: chunked\r\n\r\n-5\r\n",
        OK + b"Transfer-Encoding: chunked\r\n\r\n" + b"0" * 300 + b"\r\n",
        OK + b"Transfer-Encoding: chunked\r\n\r\n3E9\r\n" + b"x" * 1001 + b"\r\n0\r\n\r\n",
        OK + b"Transfer-Encoding: chunked\r\n\r\n1\r\n" + b"x" * 70_000,
        OK + b"Content-Encoding: br\r\nContent-Length: 0\r\n\r\n",
        b"HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n",
        b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: chat\r\n\r\n",
        b"HTTP/1.1 100 Continue\r\n\r\n" * (INTERIM_MAX + 1),
        b"SSH-2.0-OpenSSH_9.6\r\n",
    ],
    ids=lambda said: repr(said[:60]),
)
def test_what_is_no_answer_is_garbage(said: bytes) -> None:
    with pytest.raises(Garbage):
        read(said, hang_up=True)


@pytest.mark.parametrize(
    "said",
    [
        b"",
        b"HTTP/1.1 20",
        OK + b"Content-Len",
        OK + b"Content-Length: 5\r\n\r\nfour",
        OK + b"Transfer-Encoding: chunked\r\n\r\n5\r\nfour",
        OK + b"Transfer-Encoding: chunked\r\n\r\n4\r\nfour\r\n",
        OK + b"Transfer-Encoding: chunked\r\n\r\n4\r\nfour\r\n0\r\n",
    ],
)
@pytest.mark.parametrize("cut", [True, False])
def test_an_answer_that_stops_is_lost(said: bytes, cut: bool) -> None:
    with pytest.raises(Lost):
        read(said, cut=cut, hang_up=not cut)


def test_a_server_that_refuses_before_it_has_read_all_is_heard_and_its_connection_left() -> None:
    async def test() -> None:
        for unsent in (0, 5):
            wire = Wire(1, lambda _: None)
            wire.unsent = unsent
            wire.give(Reply(413, b"{}").written())
            incoming = await wire.connection.ask(b"POST / HTTP/1.1\r\n\r\n")
            assert (incoming.head.status, await incoming.read(10)) == (413, b"{}")
            assert wire.connection.dead is bool(unsent)
            wire.connection.cut()

    run(test)


def test_a_head_is_read_for_what_it_says() -> None:
    head = parse_head(OK + b"Content-Type: Application/JSON; charset=utf-8\r\nRetry-After: 3\r\n\r\n")
    assert head.kind == "application/json"


@pytest.mark.parametrize(
    ("status", "kind"),
    [(404, errors.BadUsage), (400, errors.BadUsage), (429, errors.Overloaded), (500, errors.UnavailableError)],
)
def test_what_something_in_between_says_is_told_as_such(status: int, kind: type[errors.InterlockError]) -> None:
    async def test() -> None:
        server: Server
        for page in (Reply(status, b"<html>", "text/html"), Reply(status, b"[]"), Reply(status, b"{")):
            server, client = await begun(page)
            with pytest.raises(kind) as told:
                await client.send("o-1", Note("x"))
            assert "between" in told.value.why or isinstance(told.value, errors.OutcomeUnknown)
            assert len(server.net.got) == 2

    run(test)


def test_a_name_that_no_name_server_takes_is_a_server_that_was_not_reached() -> None:
    async def test() -> None:
        with pytest.raises(NotSent):
            await connect(ServerAddress("http", "a" * 64 + ".test", 80), None)

    asyncio.run(test())
