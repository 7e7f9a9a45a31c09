"""The connections of one client: a bounded number, kept open and reused, the latest first.

A server closes idle connections, and its FIN may be under way while a request is sent. A request that may not be
repeated therefore uses a connection that has just been used, or a new one; any other uses any idle connection.
"""

import asyncio
import ssl
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager

from interlock.client.addresses import Address
from interlock.client.connection import Connection, Incoming
from interlock.client.messages import NotSent

IDLE_S_MAX = 30.0
"""A connection that was idle for longer is closed instead of used."""

FRESH_S = 1.0
"""A connection that was idle for less may be used for requests that cannot be repeated."""

Connect = Callable[[Address, ssl.SSLContext | None], Awaitable[Connection]]


class Attempt:
    """The progress of one attempt."""

    __slots__ = ("sent",)

    def __init__(self) -> None:
        self.sent = False
        """Whether part of the request may have been sent."""


class Pool:
    """Connections to one address, of one event loop."""

    def __init__(self, address: Address, *, connections_max: int, tls: ssl.SSLContext | None, connect: Connect) -> None:
        self._address = address
        self._tls = tls
        self._connect = connect
        self._loop = asyncio.get_running_loop()
        self._connections_max = connections_max
        self._places = asyncio.Semaphore(connections_max)
        self._idle: list[Connection] = []
        self._open: set[Connection] = set()
        self.closed = False

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        """The event loop to which all connections belong."""
        return self._loop

    @property
    def open_count(self) -> int:
        """Number of open connections, in use or idle."""
        return len(self._open)

    @asynccontextmanager
    async def exchange(self, request: bytes, attempt: Attempt, *, repeatable: bool) -> AsyncGenerator[Incoming, None]:
        """Send a request; its answer is read in the block. Leaving the block early drops the connection only."""
        async with self._places:
            connection = self._take_idle(IDLE_S_MAX if repeatable else FRESH_S)
            if connection is None:
                # G6: idle connections count too.
                while self._idle and self.open_count >= self._connections_max:
                    self._drop(self._idle.pop(0))
                connection = await self._new()
            try:
                attempt.sent = True
                yield await connection.ask(request)
            finally:
                self._give_back(connection)

    @asynccontextmanager
    async def apart(self, request: bytes, attempt: Attempt) -> AsyncGenerator[Incoming, None]:
        """Exchange on a connection of its own, for an endless answer: it takes no slot from other requests."""
        connection = await self._new()
        try:
            attempt.sent = True
            yield await connection.ask(request)
        finally:
            self._drop(connection)

    async def close(self) -> None:
        """Close idle connections and abort those in use: their callers get Lost."""
        self.closed = True
        idle = set(self._idle)
        self._idle.clear()
        for connection in self._open - idle:
            connection.cut()
        for connection in idle:
            self._open.discard(connection)
            await connection.close()

    def abandon(self) -> None:
        """Forget connections whose event loop has ended; nothing can be awaited there any more."""
        self.closed = True
        self._idle.clear()
        self._open.clear()

    async def _new(self) -> Connection:
        if self.closed:
            raise NotSent("the client was closed")
        connection = await self._connect(self._address, self._tls)
        if self.closed:
            connection.cut()  # The client was closed meanwhile, and must not send anything.
            raise NotSent("the client was closed")
        self._open.add(connection)
        return connection

    def _take_idle(self, idle_s_max: float) -> Connection | None:
        now_s = self._loop.time()
        while self._idle:
            connection = self._idle[-1]
            if not connection.dead and now_s - connection.idle_since_s > idle_s_max:
                if idle_s_max < IDLE_S_MAX:
                    return None  # Kept for repeatable requests; the others have been idle for longer still.
                self._idle.pop()
                self._drop(connection)
                continue
            self._idle.pop()
            if not connection.dead:
                return connection
            self._drop(connection)
        return None

    def _give_back(self, connection: Connection) -> None:
        if self.closed or connection.dead:
            self._drop(connection)
            return
        connection.idle_since_s = self._loop.time()
        self._idle.append(connection)

    def _drop(self, connection: Connection) -> None:
        self._open.discard(connection)
        connection.cut()
