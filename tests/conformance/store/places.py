"""Where stores live, as the suite of stores sees it: it opens them at a place and knows nothing else of it.

The same tests run on the store in memory, which is the specification, on a local file, on a bucket in memory, on a real
PostgreSQL, and a few of them on a server with buckets. Another store joins by a name in `KINDS` and a place in
`conftest`.
"""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest

from interlock.clock import Clock, SystemClock
from interlock.store.protocol import Store

KINDS = ("memory", "local", "bucket", "postgres")
ITS_OWN_CLOCK = pytest.mark.parametrize("place", ["memory", "local", "bucket"], indirect=True)
"""For tests of a time that follows this process's clock; PostgreSQL's own is followed there, and tested there."""

KEPT_BY_ITS_OWN_CLOCK = pytest.mark.parametrize("place", ["local", "bucket"], indirect=True)
"""For those that open the same store again."""

ON_A_SERVER_TOO = pytest.mark.parametrize("place", [*KINDS, "seaweedfs"], indirect=True)
KEPT_ON_A_SERVER_TOO = pytest.mark.parametrize("place", ["local", "bucket", "postgres", "seaweedfs"], indirect=True)

LEASE_S = 600.0
"""No test is about the lease, and none may depend on how fast this machine is."""


class Place:
    """A place where nobody has been before. Opened again it is the same store, except in memory."""

    def __init__(self, open_it: Callable[[Clock], Awaitable[Store]]) -> None:
        self._open = open_it

    async def store(self, clock: Clock | None = None) -> Store:
        """Open the store."""
        return await self._open(clock or SystemClock())

    @asynccontextmanager
    async def opened(self, clock: Clock | None = None) -> AsyncIterator[Store]:
        """The store, closed at the end."""
        store = await self.store(clock)
        try:
            yield store
        finally:
            await store.close()
