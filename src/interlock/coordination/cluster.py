"""What an engine has of Redis: one link, the leases over it, and whatever limits and breakers are shared through it.

The order in which Redis is told matters: leases first, because nobody may be given one before it has its epoch.
"""

from collections.abc import Callable

from interlock.coordination.addresses import Address
from interlock.coordination.fences import Epochs, Notes
from interlock.coordination.leases import SharedLeases
from interlock.coordination.link import Link
from interlock.seams import Chance, Clock, Ids
from interlock.store.leases import Leases


class Cluster:
    """The processes that share a Redis and a prefix, as one engine takes part in them."""

    def __init__(
        self,
        address: Address,
        store: Leases,
        *,
        clock: Clock,
        chance: Chance,
        ids: Ids,
        notes: Notes,
        changed: Callable[[bool, str], None],
    ) -> None:
        self.address = address
        self._said = changed
        self.link = Link(address, chance, self._changed)
        self.epochs = Epochs(store, chance, ids, notes=notes)
        self.leases = SharedLeases(self.link, store, self.epochs, clock)
        self.link.listen(self.leases)

    async def begin(self, home: str, *, highest: int = 0, several: bool = False) -> None:
        """Connect. A Redis that is not there is no reason not to begin: it is looked for until it is.

        `highest` and `several` are what an earlier life has noted.
        """
        self.epochs.saw(highest)
        self.leases.home, self.leases.several = home, several
        await self.link.begin()

    async def close(self) -> None:
        """Leave it."""
        await self.link.close()

    def _changed(self, up: bool, reason: str) -> None:  # noqa: FBT001 -- the one thing that changes.
        if not up:
            self.leases.lost()
        self._said(up, reason)
