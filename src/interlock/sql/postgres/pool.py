"""The connections of one node: opened when they are needed, never more than the cap, opened again when they were lost.

A connection carries no state from one user to the next, so nothing is reset between them. When one is found dead the
idle ones are thrown away too: they went to the same server, and each would cost its user a failure of its own. The
share for compensation is a second, smaller cap: the last connections are given only to those who ask for the reserve
(C16), so that undoing goes on when ordinary work has taken everything else.
"""

import asyncio
import contextlib
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence

from interlock.errors import OutcomeUnknown
from interlock.sql.postgres.address import Address
from interlock.sql.postgres.failures import LostConnection, closed
from interlock.sql.postgres.link import Link, Record, connected

RESERVED_SHARE = 0.1
"""Of the connections; none when there are fewer than ten."""

READ_ATTEMPTS = 3
"""A read changes nothing, so it is repeated on another connection when its own was lost."""

CLOSE_TIMEOUT_S = 5.0


class Pool:
    """Connections to one address."""

    def __init__(self, address: Address, connect: Callable[[Address], Awaitable[Link]] = connected) -> None:
        self.address = address
        self.open = 0
        """Connections there are, idle or in use or being opened."""
        self._connect = connect
        self._idle: list[Link] = []
        self._waiting: deque[tuple[bool, asyncio.Future[None]]] = deque()
        self._closed = False
        self._reserved = int(address.connections_max * RESERVED_SHARE)

    async def read(self, sql: str, *values: object) -> list[Record]:
        """Run a statement that changes nothing; repeated when the connection was lost."""
        for attempt in range(1, READ_ATTEMPTS + 1):
            async with self.link() as link:
                try:
                    return await link.read(sql, values)
                except LostConnection:
                    self._lost(link)
                    if attempt == READ_ATTEMPTS:
                        raise
        raise AssertionError("the last attempt has returned or raised")

    async def write(self, sql: str, values: Sequence[object], *, reserve: bool = False) -> list[Record]:
        """Run a statement that is a whole transaction.

        Raises OutcomeUnknown when it may have happened, and UnavailableError when it has not.
        """
        async with self.link(reserve=reserve) as link:
            return await link.write(sql, values)

    @contextlib.asynccontextmanager
    async def link(self, *, reserve: bool = False) -> AsyncGenerator[Link]:
        """A connection of one's own for a while."""
        link = await self._take(reserve=reserve)
        try:
            yield link
        except BaseException as error:
            if isinstance(error, (LostConnection, OutcomeUnknown)) or not link.usable:
                self._lost(link)
            elif isinstance(error, asyncio.CancelledError):
                # It may be in the middle of something: nobody else may get it. The others are as good as before.
                link.driver.terminate()
            raise
        finally:
            self._give_back(link)

    async def close(self) -> None:
        """Close the connections that nobody uses, and each of the others when it is given back."""
        self._closed = True
        for _, waiting in self._waiting:
            if not waiting.done():
                waiting.set_result(None)
        self._waiting.clear()
        idle, self._idle = self._idle, []
        self.open -= len(idle)
        for link in idle:
            try:
                await link.driver.close(timeout=CLOSE_TIMEOUT_S)
            except Exception:  # noqa: BLE001 -- whatever it says, it ends here, and the others must end too.
                link.driver.terminate()

    async def _take(self, *, reserve: bool) -> Link:
        while True:
            if self._closed:
                raise closed()
            while self._idle and self._may_take(reserve=reserve):
                link = self._idle.pop()
                if link.usable:
                    return link
                self.open -= 1
            if self.open < self._most(reserve=reserve):
                return await self._opened()
            await self._turn(reserve=reserve)

    def _may_take(self, *, reserve: bool) -> bool:
        return self.open - len(self._idle) < self._most(reserve=reserve)

    def _most(self, *, reserve: bool) -> int:
        return self.address.connections_max - (0 if reserve else self._reserved)

    async def _opened(self) -> Link:
        self.open += 1
        try:
            return await self._connect(self.address)
        except BaseException:
            self.open -= 1
            self._wake()
            raise

    async def _turn(self, *, reserve: bool) -> None:
        waiting = asyncio.get_running_loop().create_future()
        self._waiting.append((reserve, waiting))
        try:
            await waiting
        except asyncio.CancelledError:
            if waiting.done() and not waiting.cancelled():
                self._wake()  # It was this one's turn, and it does not take it.
            else:
                self._waiting = deque(each for each in self._waiting if each[1] is not waiting)
            raise

    def _give_back(self, link: Link) -> None:
        if self._closed or not link.usable:
            if link.usable:
                link.driver.terminate()
            self.open -= 1
        else:
            self._idle.append(link)
        self._wake()

    def _lost(self, link: Link) -> None:
        link.driver.terminate()
        idle, self._idle = self._idle, []
        self.open -= len(idle)
        for each in idle:
            each.driver.terminate()

    def _wake(self) -> None:
        """Let the first one go on who may have a connection: those who undo before the others."""
        for wanted in (True, False):
            for place, (reserve, waiting) in enumerate(self._waiting):
                if reserve is wanted and not waiting.done():
                    del self._waiting[place]
                    waiting.set_result(None)
                    return
