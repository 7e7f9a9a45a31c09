"""The client of the gateway that all contestants use: HTTP/1.1 with keep-alive, and a bounded pool of connections.

It does what an HTTP library does and no more, so that chains are compared and not libraries. A call returns the status
of its answer, whatever it is. Whatever goes wrong with the connection is an OSError. It has no timeout: the caller
cancels, and a connection whose call was cancelled is closed, because its answer may still come.
"""

import asyncio
from typing import cast

import msgspec


class Wire(asyncio.Protocol):
    """One connection with one call at a time."""

    def __init__(self) -> None:
        self.transport: asyncio.Transport | None = None
        self._answer: asyncio.Future[int] | None = None
        self._received = b""

    @property
    def usable(self) -> bool:
        """Whether a call can be made on it."""
        return self.transport is not None and not self.transport.is_closing()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """It is open."""
        self.transport = cast("asyncio.Transport", transport)

    def connection_lost(self, exc: Exception | None) -> None:
        """It is gone, and with it the answer that somebody waits for."""
        self.transport = None
        if self._answer is not None and not self._answer.done():
            self._answer.set_exception(exc or ConnectionResetError("the gateway closed the connection"))

    def data_received(self, data: bytes) -> None:
        """A piece of an answer, which is nearly always all of it."""
        self._received += data
        head, mark, body = self._received.partition(b"\r\n\r\n")
        length = head.rpartition(b"Content-Length: ")[2].partition(b"\r\n")[0]
        if mark and len(body) >= int(length):
            self._received = b""
            if self._answer is not None and not self._answer.done():
                self._answer.set_result(int(head[9:12]))

    def ask(self, request: bytes, loop: asyncio.AbstractEventLoop) -> asyncio.Future[int]:
        """Send a request; its status comes."""
        assert self.transport is not None
        self._answer = loop.create_future()
        self.transport.write(request)
        return self._answer

    def abort(self) -> None:
        """Close at once."""
        if self.transport is not None:
            self.transport.abort()


class Client:
    """Calls the gateway over at most so many connections; whoever finds none free waits for one."""

    def __init__(self, port: int, *, connections_max: int = 512) -> None:
        self._port = port
        self._loop = asyncio.get_running_loop()
        self._idle: list[Wire] = []
        self._places = asyncio.Semaphore(connections_max)
        self.calls = 0

    async def charge(self, order: str, cents: int, *, key: str) -> int:
        """Take the money."""
        return await self._call("/charge", key, {"order": order, "cents": cents})

    async def refund(self, order: str, *, undoes: str, key: str) -> int:
        """Give it back."""
        return await self._call("/refund", key, {"order": order, "undoes": undoes})

    async def reserve(self, order: str, *, key: str) -> int:
        """Put the goods aside."""
        return await self._call("/reserve", key, {"order": order})

    async def release(self, order: str, *, undoes: str, key: str) -> int:
        """Put them back."""
        return await self._call("/release", key, {"order": order, "undoes": undoes})

    def close(self) -> None:
        """Close the connections that are idle."""
        for wire in self._idle:
            wire.abort()
        self._idle.clear()

    async def _call(self, path: str, key: str, asked: dict[str, object]) -> int:
        body = msgspec.json.encode(asked)
        head = f"POST {path} HTTP/1.1\r\nHost: gateway\r\nIdempotency-Key: {key}\r\nContent-Length: {len(body)}\r\n\r\n"
        async with self._places:
            wire = await self._wire()
            try:
                self.calls += 1
                status = await wire.ask(head.encode() + body, self._loop)
            except BaseException:
                wire.abort()
                raise
            self._idle.append(wire)
            return status

    async def _wire(self) -> Wire:
        while self._idle:
            wire = self._idle.pop()
            if wire.usable:
                return wire
        _, wire = await self._loop.create_connection(Wire, "127.0.0.1", self._port)
        return wire
