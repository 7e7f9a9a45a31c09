"""Connections without a network: what one side writes the other reads, in virtual time, and any of them can be cut.

The client's own reading and writing of HTTP is used as it stands; only the socket below it is missing.
"""

import asyncio
import ssl
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field
from urllib.parse import parse_qsl, unquote, urlsplit

from interlock.client.client import Client
from interlock.client.http_connection import HEAD_BYTES_MAX, Connect, Connection, NotSent
from interlock.core.policies import Retry
from interlock.engine.bound_machine import AnyMachine
from interlock.testing.virtual_time import VirtualLoop
from interlock.urls import ServerAddress


@dataclass
class Got:
    """A request as a server has read it."""

    method: str
    path: str
    query: dict[str, str]
    headers: dict[str, str]
    body: bytes
    connection: int


class Cut(Exception):
    """The server cuts the connection instead of answering; what was written before has left."""


@dataclass
class Reply:
    status: int = 200
    body: bytes = b"{}"
    kind: str = "application/json"
    headers: dict[str, str] = field(default_factory=dict[str, str])
    chunked: bool = False

    def written(self) -> bytes:
        headers = {"Content-Type": self.kind, **self.headers}
        if self.chunked:
            headers["Transfer-Encoding"] = "chunked"
        elif self.status not in {204, 304} and "Content-Length" not in headers:
            headers["Content-Length"] = str(len(self.body))
        lines = [f"HTTP/1.1 {self.status} X", *(f"{name}: {value}" for name, value in headers.items())]
        return "\r\n".join(lines).encode() + b"\r\n\r\n" + (chunks(self.body) if self.chunked else self.body)


def chunks(body: bytes, size: int = 7) -> bytes:
    pieces = [body[at : at + size] for at in range(0, len(body), size)]
    return b"".join(b"%x\r\n%b\r\n" % (len(piece), piece) for piece in [*pieces, b""])


Handler = Callable[[Got], Awaitable[Reply | bytes]]


class _Transport(asyncio.Transport):
    """The client's end."""

    def __init__(self, wire: "Wire") -> None:
        super().__init__()
        self._wire = wire
        self._closing = False

    def write(self, data: bytes | bytearray | memoryview) -> None:
        if not self._closing:
            self._wire.towards_server.feed_data(bytes(data))

    def is_closing(self) -> bool:
        return self._closing

    def close(self) -> None:
        if not self._closing:
            self._closing = True
            self._wire.ended()

    def abort(self) -> None:
        self.close()

    def lost(self) -> None:
        self._closing = True

    def get_write_buffer_size(self) -> int:
        return self._wire.unsent

    def pause_reading(self) -> None:
        pass

    def resume_reading(self) -> None:
        pass


class Wire:
    """One connection."""

    def __init__(self, number: int, ended: Callable[["Wire"], None]) -> None:
        loop = asyncio.get_running_loop()
        self.number = number
        self.towards_server = asyncio.StreamReader()
        self.reader = asyncio.StreamReader(limit=HEAD_BYTES_MAX)
        self._protocol = asyncio.StreamReaderProtocol(self.reader)
        self._transport = _Transport(self)
        self._ended = ended
        self.open = True
        self.unsent = 0
        self._protocol.connection_made(self._transport)
        self.connection = Connection(
            self.reader, asyncio.StreamWriter(self._transport, self._protocol, self.reader, loop)
        )

    def give(self, data: bytes) -> None:
        if self.open:
            self.reader.feed_data(data)

    def cut(self) -> None:
        if self.open:
            self._end()
            self._protocol.connection_lost(ConnectionResetError("cut"))

    def hang_up(self) -> None:
        """Close it politely, as a server does with what was idle for long."""
        if self.open:
            self.reader.feed_eof()

    def ended(self) -> None:
        if self.open:
            self._end()
            asyncio.get_running_loop().call_soon(self._protocol.connection_lost, None)

    def _end(self) -> None:
        self.open = False
        self._transport.lost()
        self.towards_server.feed_eof()
        self._ended(self)


class Net:
    """All connections of a test, and the server behind them."""

    def __init__(self, handler: Handler) -> None:
        self.handler = handler
        self.refused = 0
        """So many connections are refused before one is taken."""
        self.made = 0
        self.wires: list[Wire] = []
        self.got: list[Got] = []
        self._tasks: set[asyncio.Task[None]] = set()

    async def connect(self, address: ServerAddress, tls: ssl.SSLContext | None) -> Connection:
        if self.refused:
            self.refused -= 1
            raise NotSent("connection refused")
        self.made += 1
        wire = Wire(self.made, self.wires.remove)
        self.wires.append(wire)
        task = asyncio.get_running_loop().create_task(self._serve(wire))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return wire.connection

    async def _serve(self, wire: Wire) -> None:
        while True:
            try:
                got = await read_request(wire.towards_server, wire.number)
            except asyncio.IncompleteReadError:
                return
            self.got.append(got)
            try:
                reply = await self.handler(got)
            except Cut as cut:
                for piece in cut.args:
                    wire.give(piece)
                await asyncio.sleep(0)
                wire.cut()
                return
            wire.give(reply if isinstance(reply, bytes) else reply.written())


async def read_request(reader: asyncio.StreamReader, connection: int) -> Got:
    """The next request on a connection."""
    head = (await reader.readuntil(b"\r\n\r\n")).decode()
    first, *lines = head.strip().split("\r\n")
    method, target, _ = first.split(" ")
    headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    body = await reader.readexactly(int(headers.get("content-length", "0")))
    parts = urlsplit(target)
    return Got(method, unquote(parts.path), dict(parse_qsl(parts.query)), headers, body, connection)


class Luck:
    """Always the same fraction."""

    def __init__(self, fraction: float = 0.5) -> None:
        self._fraction = fraction

    def fraction(self) -> float:
        return self._fraction


_CLIENTS: list[Client] = []
"""Those of the test that runs; they are closed with it."""


class WiredClient(Client):
    """A client whose connections lead to a `Net`."""

    def __init__(
        self,
        net: Net,
        url: str = "http://shop.test",
        *,
        key: str | None = "ilk_secret",
        machines: Iterable[AnyMachine] = (),
        timeout_s: float = 30.0,
        attempt_s: float = 10.0,
        connections_max: int = 8,
        retry: Retry = Retry(attempts=5, first_s=0.1, max_s=5.0),  # noqa: B008 -- frozen.
    ) -> None:
        self._net = net
        _CLIENTS.append(self)
        super().__init__(
            url,
            key=key,
            machines=machines,
            timeout_s=timeout_s,
            attempt_s=attempt_s,
            connections_max=connections_max,
            retry=retry,
            chance=Luck(),
        )

    def _connect(self) -> Connect:
        return self._net.connect

    @property
    def open_count(self) -> int:
        pool = self._remote.transport._pool
        return 0 if pool is None else pool.open_count


async def passed(seconds: float) -> None:
    """Let virtual time pass."""
    loop = asyncio.get_running_loop()
    over: asyncio.Future[None] = loop.create_future()
    loop.call_later(seconds, over.set_result, None)
    await over


def run(test: Callable[[], Awaitable[None]]) -> float:
    """Run it in virtual time; how many seconds have passed there."""
    loop = VirtualLoop()

    async def whole() -> None:
        try:
            await test()
        finally:
            while _CLIENTS:
                await _CLIENTS.pop().close()

    try:
        loop.run(whole())
        return loop.time()
    finally:
        loop.leave()
