"""C3: what real clients raise for a real gateway and a real database is of its kind."""

import asyncio
import contextlib
import socket
from collections.abc import Callable

import httpx
import pytest
import sqlalchemy
import sqlalchemy.exc

from interlock.engine.dependencies.classify_errors import Kind, kind_of
from interlock.testing.faults import stop_listening

INFRASTRUCTURE, BUSINESS, UNEXPECTED = Kind.INFRASTRUCTURE, Kind.BUSINESS, Kind.UNEXPECTED

Answer = Callable[[asyncio.StreamWriter], None]


def say(raw: str) -> Answer:
    return lambda writer: writer.write(raw.encode())


def hang(writer: asyncio.StreamWriter) -> None:
    pass


def cut(writer: asyncio.StreamWriter) -> None:
    writer.close()


def reset(writer: asyncio.StreamWriter) -> None:
    writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
    writer.transport.abort()


async def charged(answer: Answer | None, *, scheme: str = "http") -> BaseException:
    """The error of one real charge at a gateway that answers so, or (None) is not there any more."""
    gone = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.closing(writer), contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            # To the end of its body: what was sent and never read would make a reset of every end.
            await reader.readuntil(b"}")
            assert answer is not None
            answer(writer)
            await gone.wait()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    if answer is None:
        await stop_listening(server)
    timeout = httpx.Timeout(60, read=0.05 if answer is hang else 60)
    async with httpx.AsyncClient(timeout=timeout, trust_env=False, follow_redirects=True) as client:
        try:
            response = await client.post(f"{scheme}://127.0.0.1:{port}/charges", json={"cents": 5})
            response.raise_for_status()
        except httpx.HTTPError as error:
            return error
        finally:
            gone.set()
            if answer is not None:
                await stop_listening(server)
    raise AssertionError("it was charged")


@pytest.mark.parametrize(
    ("answer", "raised", "verdict"),
    [
        (None, httpx.ConnectError, (INFRASTRUCTURE, None)),
        (hang, httpx.ReadTimeout, (INFRASTRUCTURE, None)),
        (cut, httpx.RemoteProtocolError, (INFRASTRUCTURE, None)),
        (reset, httpx.ReadError, (INFRASTRUCTURE, None)),
        (say("nonsense\r\n\r\n"), httpx.RemoteProtocolError, (INFRASTRUCTURE, None)),
        (say("HTTP/1.1 500 no\r\ncontent-length: 0\r\n\r\n"), httpx.HTTPStatusError, (INFRASTRUCTURE, None)),
        (
            say("HTTP/1.1 503 later\r\nRetry-After: 17\r\ncontent-length: 0\r\n\r\n"),
            httpx.HTTPStatusError,
            (INFRASTRUCTURE, 17.0),
        ),
        (say("HTTP/1.1 402 declined\r\ncontent-length: 0\r\n\r\n"), httpx.HTTPStatusError, (BUSINESS, None)),
        (say("HTTP/1.1 409 conflict\r\ncontent-length: 0\r\n\r\n"), httpx.HTTPStatusError, (BUSINESS, None)),
        (
            say("HTTP/1.1 307 again\r\nlocation: /charges\r\nconnection: close\r\ncontent-length: 0\r\n\r\n"),
            httpx.TooManyRedirects,
            (UNEXPECTED, None),
        ),
        (say("HTTP/1.1 304 same\r\n\r\n"), httpx.HTTPStatusError, (UNEXPECTED, None)),
    ],
)
def test_what_httpx_raises_for_a_real_gateway_is_of_its_kind(
    answer: Answer | None, raised: type[Exception], verdict: tuple[Kind, float | None]
) -> None:
    error = asyncio.run(charged(answer))
    assert type(error) is raised
    assert kind_of(error) == verdict


def test_a_charge_that_is_never_sent_has_had_no_effect() -> None:
    error = asyncio.run(charged(None, scheme="ftp"))
    assert type(error) is httpx.UnsupportedProtocol
    assert kind_of(error)[0] is BUSINESS


@pytest.mark.parametrize(
    ("statement", "kind"),
    [("INSERT INTO orders VALUES (1)", BUSINESS), ("SELECT * FROM nowhere", Kind.MISTAKE), ("SELEKT", Kind.MISTAKE)],
)
def test_what_sqlalchemy_raises_for_a_real_database_is_of_its_kind(statement: str, kind: Kind) -> None:
    engine = sqlalchemy.create_engine("sqlite://")
    try:
        with engine.connect() as connection:
            connection.execute(sqlalchemy.text("CREATE TABLE orders (id INTEGER PRIMARY KEY)"))
            connection.execute(sqlalchemy.text("INSERT INTO orders VALUES (1)"))
            with pytest.raises(sqlalchemy.exc.DBAPIError) as caught:
                connection.execute(sqlalchemy.text(statement))
    finally:
        engine.dispose()
    assert kind_of(caught.value)[0] is kind
