"""Hints of due work, and the time of the database: what an engine on PostgreSQL learns without a query.

A hint is a NOTIFY from an engine that leaves work to others. It is optional: polling alone is correct. It is sent in a
transaction of its own and not within a group, because a NOTIFY takes a lock over the whole server when its transaction
commits. Listening needs a session, so no hints arrive through a pooler. The connection is opened by the first listener,
and again when it was lost. It is never in a transaction, so it holds no locks.
"""

import asyncio
import hashlib
from collections.abc import Callable
from typing import Protocol, cast

from interlock.clock import Clock
from interlock.errors import InterlockError
from interlock.postgres.connection import Link, connected
from interlock.postgres.pool import CLOSE_TIMEOUT_S, Pool

LEFT = "left"
"""Payload when a workflow unwinds while an engine's attempt is running."""

AGAIN_S = 1.0
"""Seconds before a lost connection is opened again."""


CHANNEL_BYTES_MAX = 63
"""PostgreSQL's bound for the name of a channel."""

DIGEST_BYTES = 8


def channel(schema: str) -> str:
    """Return the channel of a schema's hints."""
    name = f"interlock_{schema}"
    if len(name) <= CHANNEL_BYTES_MAX:
        return name
    # Two long names may begin alike, so a digest of the whole takes the place of the end.
    digest = hashlib.blake2b(schema.encode(), digest_size=DIGEST_BYTES).hexdigest()
    return f"{name[: CHANNEL_BYTES_MAX - len(digest) - 1]}_{digest}"


class Listening(Protocol):
    """The driver's methods for notifications."""

    async def add_listener(self, channel: str, callback: Callable[..., None], /) -> None:
        """Call back with every notification of the channel."""
        ...

    def add_termination_listener(self, callback: Callable[..., None], /) -> None:
        """Call back when the connection is lost."""
        ...


class Hints:
    """The sender and listener of one store."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool
        self._channel = channel(pool.address.schema)
        self._hinted = asyncio.Event()
        self._left = False
        self._link: Link | None = None
        self._closed = False

    async def say(self, what: str = "") -> None:
        """Notify all listeners."""
        await self._pool.write("SELECT pg_notify($1::text, $2::text)", (self._channel, what))

    async def heard(self) -> bool:
        """Wait for a hint since the last call; return whether one was `LEFT`."""
        if self._pool.address.pgbouncer:
            await asyncio.get_running_loop().create_future()
        while not self._closed and (self._link is None or not self._link.usable):
            await self._listen()
        await self._hinted.wait()
        self._hinted.clear()
        left, self._left = self._left, False
        return left

    async def close(self) -> None:
        """Stop listening."""
        self._closed = True
        if self._link is not None and self._link.usable:
            try:
                await self._link.driver.close(timeout=CLOSE_TIMEOUT_S)
            except Exception:  # noqa: BLE001 -- whatever it says, it ends here.
                self._link.driver.terminate()

    async def _listen(self) -> None:
        try:
            link = await connected(self._pool.address)
        except InterlockError:
            await asyncio.sleep(AGAIN_S)
            return
        if self._closed:
            link.driver.terminate()
            return
        listener = cast("Listening", link.driver)
        listener.add_termination_listener(self._notified)
        try:
            await listener.add_listener(self._channel, self._notified)
        except Exception:  # noqa: BLE001 -- lost again already: whatever the driver says, it is opened anew.
            link.driver.terminate()
            await asyncio.sleep(AGAIN_S)
            return
        except BaseException:
            link.driver.terminate()  # The listener was cancelled, and no other task has the connection.
            raise
        self._link = link
        self._left = True  # A hint that was missed meanwhile may have been LEFT.
        self._hinted.set()

    def _notified(self, *arguments: object) -> None:
        self._left = self._left or arguments[-1:] == (LEFT,)
        self._hinted.set()


# --- Time of the database (G8) ---------------------------------------------------------------------------------------
# Each commit returns the server's time; an engine that only reads queries it every few seconds. From then on the
# process's monotonic clock counts on. The answer took one network trip, so this time lags the database's clock by
# that and never leads it: no process that reads a written time later sees time go back.

MICROSECONDS = 1_000_000

HEARD_US = 5 * MICROSECONDS
"""Longest time to count on. In five seconds two clocks drift apart by less than one network trip."""


class DatabaseTime:
    """The database's time, counted on from its last known value."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._offset_us: int | None = None
        self._last_us = 0
        self._heard_us = 0

    def heard(self, server_us: int) -> None:
        """Record a time that the database has just returned."""
        # Always the newest one: two clocks drift apart, and the best answer of an hour ago is worse than any of now.
        self._heard_us = self._monotonic_us()
        self._offset_us = server_us - self._heard_us

    @property
    def stale(self) -> bool:
        """Return whether the time must be read again."""
        return self._monotonic_us() - self._heard_us > HEARD_US

    def now_us(self) -> int:
        """Return the time, which never goes back."""
        assert self._offset_us is not None, "the database was asked for its time when it was opened"
        self._last_us = max(self._last_us, self._monotonic_us() + self._offset_us)
        return self._last_us

    def _monotonic_us(self) -> int:
        return int(self._clock.monotonic_s() * MICROSECONDS)
