"""The gateway: an HTTP/1.1 server in a process of its own that charges, reserves, and has weather.

It is written by hand on asyncio's protocols, because it must never be what a contestant waits for: it answers many
thousand requests per second and does nothing else. `POST /script` begins a storm with empty books, `GET /books` shows
them. Only what is executed is in the books; what hangs, is refused or reset before is not. A call is executed when it
arrives and answered after its latency, so whoever gives up in between was charged all the same.

While it is down its socket stays bound and does not listen: clients are refused, and nobody else can take the port.
"""

import asyncio
import signal
import socket
import struct
from collections.abc import Callable
from contextlib import suppress
from http import HTTPStatus
from typing import Any, cast

import msgspec

from benchmarks.peers.processes import free_port
from benchmarks.storming.books import ENDPOINTS, Books
from benchmarks.storming.weather import Fate, Script, Segment, declined, luck_of

CALM = Script(seed=0, segments=[Segment(name="calm", seconds=0, rate_per_s=0)], declined=0.0)
BACKLOG = 4_096
RESETTING = struct.pack("ii", 1, 0)
"""Linger for no time at all: closing resets the connection."""

BODIES = {
    status: f"HTTP/1.1 {status.value} {status.phrase}\r\nContent-Length: 2\r\n\r\n{{}}".encode()
    for status in HTTPStatus
}
read_body = msgspec.json.Decoder(dict[str, Any]).decode


class Gateway:
    """The weather and the books."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self.connections: set[Connection] = set()
        self._socket = socket.socket()
        # A port that the kernel chose by itself would be given up by a socket that stops listening.
        self.port = free_port()
        # Connections that have not quite ended must not keep it from listening again.
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self._socket.bind(("127.0.0.1", self.port))
        self._server: asyncio.Server | None = None
        self._timers: list[asyncio.TimerHandle] = []
        self._opening: asyncio.Task[None] | None = None
        self._script = CALM
        self._segment = CALM.segments[0]
        self.books = Books(lambda _order: False)

    async def listen(self) -> None:
        """Take connections."""
        if self._server is None:
            # A copy of the descriptor: closing the server leaves ours, and with it the port.
            self._server = await self._loop.create_server(
                lambda: Connection(self), sock=self._socket.dup(), backlog=BACKLOG
            )

    def go_down(self) -> None:
        """Refuse new connections and reset those that are open."""
        if self._server is not None:
            self._server.close()
            self._server = None
            with suppress(OSError):
                self._socket.shutdown(socket.SHUT_RDWR)  # The socket stops listening and stays bound.
        for connection in list(self.connections):
            connection.reset()

    def forget(self, connection: "Connection") -> None:
        """A connection is gone."""
        self.connections.discard(connection)

    def close(self) -> None:
        """End."""
        for timer in self._timers:
            timer.cancel()
        self.go_down()
        self._socket.close()

    def begin(self, script: Script) -> None:
        """A storm begins, with empty books."""
        self._script = script
        self.books = Books(lambda order: declined(script, order))
        for timer in self._timers:
            timer.cancel()
        begins_s = [0.0, *script.ends_s()[:-1]]
        self._enter(script.segments[0])
        self._timers = [
            self._loop.call_later(begin_s, self._enter, segment)
            for begin_s, segment in zip(begins_s[1:], script.segments[1:], strict=True)
        ]

    def _enter(self, segment: Segment) -> None:
        self._segment = segment
        if segment.weather.down:
            self.go_down()
        else:
            self._opening = self._loop.create_task(self.listen())
            self._opening.add_done_callback(lambda task: task.result())

    def called(self, endpoint: str, key: str, body: bytes, answer: Callable[[HTTPStatus], None]) -> Fate:
        """One call: decide its fate, write the books, answer in time. Returns what is left to do."""
        books, segment = self.books, self._segment
        books.calls[endpoint] += 1
        books.calls_by_segment[segment.name] += 1
        asked = read_body(body)
        weather = segment.at(endpoint)
        luck = luck_of(self._script.seed, endpoint, asked.get("order", key), books.tries(endpoint, key))
        fate = weather.fate(luck.fate)
        books.fates[fate] += 1
        match fate:
            case "refuse":
                answer(HTTPStatus.SERVICE_UNAVAILABLE)
            case "error":
                self._loop.call_later(weather.latency_s(luck.latency), answer, HTTPStatus.INTERNAL_SERVER_ERROR)
            case "answer":
                status = books.execute(endpoint, key, asked)
                self._loop.call_later(weather.latency_s(luck.latency), answer, status)
            case "lose":
                books.execute(endpoint, key, asked)
                return "hang" if luck.other < 0.5 else "reset"
            case "hang" | "reset":
                pass
        return fate


class Connection(asyncio.Protocol):
    """One connection: requests one after the other, as keep-alive has them."""

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway
        self._transport: asyncio.Transport | None = None
        self._received = b""
        self._books: Books | None = None
        """The books in which the request under way is counted as concurrent."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """It is open."""
        self._transport = cast("asyncio.Transport", transport)
        self._gateway.connections.add(self)

    def connection_lost(self, exc: Exception | None) -> None:
        """It is gone: whoever was hanging on it has given up."""
        del exc
        self._leave()
        self._transport = None
        self._gateway.forget(self)

    def data_received(self, data: bytes) -> None:
        """A piece of a request, which is nearly always all of it."""
        self._received += data
        head, mark, rest = self._received.partition(b"\r\n\r\n")
        if not mark:
            return
        first, *lines = head.decode("latin-1").split("\r\n")
        method, path, _ = first.split(" ", 2)
        key, length = "", 0
        for line in lines:
            name, _, value = line.partition(": ")
            if name == "Idempotency-Key":
                key = value
            elif name == "Content-Length":
                length = int(value)
        if len(rest) < length:
            return
        self._received = rest[length:]
        self._asked(method, path, key, rest[:length])

    def _asked(self, method: str, path: str, key: str, body: bytes) -> None:
        gateway = self._gateway
        if path in ENDPOINTS and method == "POST" and key:
            books = self._books = gateway.books
            books.concurrent += 1
            books.concurrent_max = max(books.concurrent_max, books.concurrent)
            if gateway.called(path, key, body, self._answer) == "reset":
                self.reset()
        elif path == "/books" and method == "GET":
            self._write(msgspec.json.encode(gateway.books.as_json()))
        elif path == "/script" and method == "POST":
            gateway.begin(msgspec.json.decode(body, type=Script))
            self._answer(HTTPStatus.OK)
        else:
            self._answer(HTTPStatus.BAD_REQUEST)

    def _answer(self, status: HTTPStatus) -> None:
        self._leave()
        if self._transport is not None:
            self._transport.write(BODIES[status])

    def _write(self, body: bytes) -> None:
        if self._transport is not None:
            self._transport.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(body) + body)

    def _leave(self) -> None:
        if self._books is not None:
            self._books.concurrent -= 1
            self._books = None

    def reset(self) -> None:
        """Close so that the client is told of a reset."""
        if self._transport is not None:
            with suppress(OSError):
                self._transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESETTING)
            self._transport.abort()


async def serve() -> None:
    """Say the port, and serve until somebody ends the process."""
    gateway = Gateway()
    await gateway.listen()
    print(msgspec.json.encode({"port": gateway.port}).decode(), flush=True)
    ended = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, ended.set)
    await ended.wait()
    gateway.close()


if __name__ == "__main__":
    asyncio.run(serve())
