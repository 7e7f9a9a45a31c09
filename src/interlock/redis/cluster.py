"""The cluster as one engine sees it: the link to Redis, the leases over it, and the shared limits and breakers.

The order of the listeners matters: leases first, because Redis may grant none before it has its epoch.
"""

from collections.abc import Callable

from interlock.clock import Chance, Clock, Ids
from interlock.redis.connection import Link
from interlock.redis.leases import Epochs, Notes, SharedLeases
from interlock.store.protocol import Leases
from interlock.urls import RedisAddress


class Cluster:
    """The processes that share a Redis and a prefix, as one engine takes part in them."""

    def __init__(
        self,
        address: RedisAddress,
        store: Leases,
        *,
        clock: Clock,
        chance: Chance,
        ids: Ids,
        notes: Notes,
        changed: Callable[[bool, str], None],
    ) -> None:
        self.address = address
        self._on_change = changed
        self.link = Link(address, chance, self._changed)
        self.epochs = Epochs(store, chance, ids, notes=notes)
        self.leases = SharedLeases(self.link, store, self.epochs, clock)
        self.link.listen(self.leases)

    async def begin(self, home: str, *, highest: int = 0, several: bool = False) -> None:
        """Connect. A Redis that does not answer does not stop the engine: the link retries until it does.

        `highest` and `several` come from the notes of an earlier process.
        """
        self.epochs.saw(highest)
        self.leases.home, self.leases.several = home, several
        await self.link.begin()

    async def close(self) -> None:
        """Close the link."""
        await self.link.close()

    def _changed(self, up: bool, reason: str) -> None:  # noqa: FBT001 -- the one thing that changes.
        if not up:
            self.leases.lost()
        self._on_change(up, reason)
