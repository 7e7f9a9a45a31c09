"""Hints that something is due: NOTIFY, said by whoever leaves work that it does not do itself.

A hint carries nothing and is only a hint: polling alone is correct. That is why it is said in a transaction of its own
and not within a group: a NOTIFY takes a lock over the whole server when its transaction commits. Listening needs a
session, so behind a pooler nothing is heard; the connection for it is opened when somebody first listens, and again
when it was lost. It never is in a transaction, so it holds nothing back.
"""

import asyncio
import hashlib
from collections.abc import Callable
from typing import Protocol, cast

from interlock.errors import InterlockError
from interlock.sql.postgres.link import Link, connected
from interlock.sql.postgres.pool import CLOSE_TIMEOUT_S, Pool

LEFT = "left"
"""Said when a workflow unwinds while somebody's attempt is under way."""

AGAIN_S = 1.0
"""How long a lost connection stays lost before it is opened again."""


CHANNEL_BYTES_MAX = 63
"""PostgreSQL's bound for the name of a channel."""

DIGEST_BYTES = 8


def channel(schema: str) -> str:
    """The channel of a schema's hints."""
    name = f"interlock_{schema}"
    if len(name) <= CHANNEL_BYTES_MAX:
        return name
    # Two long names may begin alike, so a digest of the whole takes the place of the end.
    digest = hashlib.blake2b(schema.encode(), digest_size=DIGEST_BYTES).hexdigest()
    return f"{name[: CHANNEL_BYTES_MAX - len(digest) - 1]}_{digest}"


class Listening(Protocol):
    """What the driver's connection can do beyond statements."""

    async def add_listener(self, channel: str, callback: Callable[..., None], /) -> None:
        """Call back with every notification of the channel."""
        ...

    def add_termination_listener(self, callback: Callable[..., None], /) -> None:
        """Call back when the connection is lost."""
        ...


class Hints:
    """Saying and hearing, for one store."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool
        self._channel = channel(pool.address.schema)
        self._heard = asyncio.Event()
        self._left = False
        self._link: Link | None = None
        self._closed = False

    async def say(self, what: str = "") -> None:
        """Tell everybody who listens."""
        await self._pool.write("SELECT pg_notify($1::text, $2::text)", (self._channel, what))

    async def heard(self) -> bool:
        """Wait until somebody has said something since this was last asked; whether it was about what was left."""
        if self._pool.address.pgbouncer:
            await asyncio.get_running_loop().create_future()
        while not self._closed and (self._link is None or not self._link.usable):
            await self._listen()
        await self._heard.wait()
        self._heard.clear()
        left, self._left = self._left, False
        return left

    async def close(self) -> None:
        """Listen no more."""
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
        ears = cast("Listening", link.driver)
        ears.add_termination_listener(self._told)
        try:
            await ears.add_listener(self._channel, self._told)
        except Exception:  # noqa: BLE001 -- lost again already: whatever the driver says, it is opened anew.
            link.driver.terminate()
            await asyncio.sleep(AGAIN_S)
            return
        except BaseException:
            link.driver.terminate()  # Nobody listens any more, and nobody else knows the connection.
            raise
        self._link = link
        self._left = True  # Whatever was said while nobody listened: it may have been about what was left.
        self._heard.set()

    def _told(self, *told: object) -> None:
        self._left = self._left or told[-1:] == (LEFT,)
        self._heard.set()
