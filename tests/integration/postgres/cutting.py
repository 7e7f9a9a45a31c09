"""A TCP proxy in front of PostgreSQL that cuts a connection where the test says: before a message, or after its effect.

What a client says after its greeting are messages of a letter and a length. A cut is given by the letter and by a text
that the message has in it.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import NamedTuple
from urllib.parse import parse_qs, urlsplit

from interlock.testing.faults import stop_listening
from interlock.urls import parse_postgres_url


class Cut(NamedTuple):
    """Where to cut, once."""

    letter: bytes
    text: bytes = b""
    delivered: bool = False
    """Whether the server gets the message, and answers to nobody."""


class Cutting:
    """The proxy. `cut` is taken back when it was made."""

    def __init__(self, url: str) -> None:
        address = parse_postgres_url(url)
        [self._folder] = parse_qs(urlsplit(address.url).query)["host"]
        self._path = urlsplit(address.url).path
        self._schema = address.schema
        self.cut: Cut | None = None
        self.cuts = 0
        self.said: list[bytes] = []
        """The letters of the messages, as the clients sent them."""
        self.connections = 0
        self.port = 0

    @property
    def url(self) -> str:
        """The address of the schema through the proxy."""
        return f"postgresql://postgres:@127.0.0.1:{self.port}{self._path}?sslmode=disable&schema={self._schema}"

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection, until one side ends it or it is cut."""
        self.connections += 1
        with contextlib.closing(writer):  # Also when nobody waits for PostgreSQL any more.
            from_server, to_server = await asyncio.open_unix_connection(f"{self._folder}/.s.PGSQL.5432")
            with contextlib.closing(to_server):
                async with asyncio.TaskGroup() as group:
                    back = group.create_task(_copied(from_server, writer))
                    group.create_task(self._said(reader, from_server, to_server, back))

    async def _said(
        self,
        reader: asyncio.StreamReader,
        from_server: asyncio.StreamReader,
        to_server: asyncio.StreamWriter,
        back: asyncio.Task[None],
    ) -> None:
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            length = await reader.readexactly(4)
            to_server.write(length + await reader.readexactly(int.from_bytes(length) - 4))
            while True:
                head = await reader.readexactly(5)
                body = await reader.readexactly(int.from_bytes(head[1:]) - 4)
                self.said.append(head[:1])
                cut = self.cut
                if cut is not None and head[:1] == cut.letter and cut.text in body:
                    self.cut = None
                    self.cuts += 1
                    if cut.delivered:
                        await self._deliver(head + body, reader, from_server, to_server, back)
                    break
                to_server.write(head + body)
        back.cancel()

    async def _deliver(
        self,
        message: bytes,
        reader: asyncio.StreamReader,
        from_server: asyncio.StreamReader,
        to_server: asyncio.StreamWriter,
        back: asyncio.Task[None],
    ) -> None:
        """Hand it on with everything up to its end, and hear that it was done, without telling anybody."""
        back.cancel()
        await asyncio.wait([back])
        to_server.write(message)
        letter = message[:1]
        while letter not in b"QSH":  # A query, or what tells the server to answer in the extended protocol.
            head = await reader.readexactly(5)
            to_server.write(head + await reader.readexactly(int.from_bytes(head[1:]) - 4))
            letter = head[:1]
        last = b"Tn" if letter == b"H" else b"Z"  # What a statement returns, or ready for the next one.
        while letter not in last:
            head = await from_server.readexactly(5)
            await from_server.readexactly(int.from_bytes(head[1:]) - 4)
            letter = head[:1]


async def _copied(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(ConnectionError):
        while data := await reader.read(65_536):
            writer.write(data)
            await writer.drain()
        writer.close()


@contextlib.asynccontextmanager
async def cutting(url: str) -> AsyncIterator[Cutting]:
    """A proxy in front of the address."""
    proxy = Cutting(url)
    server = await asyncio.start_server(proxy.serve, "127.0.0.1", 0)
    proxy.port = server.sockets[0].getsockname()[1]
    try:
        yield proxy
    finally:
        await stop_listening(server)
