"""The route from a home to its workflows: the catalog's entry, then the chain of tombstones.

The catalog is a shortcut, and may be outdated: opening a place that was left raises MovedElsewhere with the next one.
Epochs only grow, also when workflows move back to an earlier place. A chain whose epochs do not grow is corrupt:
following it could loop, or end at a place that was left.
"""

import contextlib
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

from interlock.catalog.catalog import Catalog
from interlock.catalog.secrets import shown, with_secrets
from interlock.catalog.workflows import ALL, workflows_at
from interlock.errors import CorruptionError, InterlockError, MovedElsewhere
from interlock.lanes.objects.addresses import is_bucket
from interlock.sql.postgres.address import is_postgres

HOPS_MAX = 32
"""G6: moves followed in a row."""

OpenT = TypeVar("OpenT")


class Trail:
    """The places on the route, up to the last known one."""

    def __init__(self, home: str, machines: Sequence[str] = ()) -> None:
        self._home = home
        self._machines = machines
        self._route = [home]
        self._hops = 0
        self.epoch = 0
        """Epoch of the move that ended at this place; 0 if none is known."""

    @property
    def url(self) -> str:
        """The current place."""
        return self._route[-1]

    @property
    def seen_epoch(self) -> int | None:
        """Epoch of the tombstone that led here, which permits finishing its move; None without one."""
        return self.epoch or None

    @property
    def shown(self) -> str:
        """The current place, with secrets masked."""
        return shown(self.url)

    async def begin(self) -> None:
        """Read the catalog of the home. Raises BadUsage for machines that do not live together."""
        if self._is_home():
            self._route = [self._home, await workflows_at(self._home, self._machines)]

    async def open(self, opens: "Callable[[Trail], Awaitable[OpenT]]") -> OpenT:
        """Open the place, or follow its tombstones. Raises CorruptionError for a chain that does not end."""
        while True:
            try:
                opened = await opens(self)
            except MovedElsewhere as moved:
                self.follow(moved)
            else:
                await self.arrive()
                return opened

    def follow(self, moved: MovedElsewhere) -> None:
        """Go to the tombstone's target. Raises CorruptionError if its epoch is not higher or the chain is too long."""
        self._hops += 1
        if not moved.url or moved.epoch <= self.epoch or self._hops > HOPS_MAX:
            raise CorruptionError(
                f"the workflows at {self.shown} (epoch {self.epoch}) are said to have moved to "
                f"{shown(moved.url) or 'nowhere'} (epoch {moved.epoch}), after {self._hops} moves.",
                why=f"Every move has a higher epoch than the one before, and at most {HOPS_MAX} are followed in a row; "
                "a file or a table may have been put back from a copy that was made before a move.",
                fix="Put the copy that is too old away, and open the workflows at the last of these addresses.",
            ) from moved
        self._route.append(with_secrets(moved.url, *reversed(self._route)))
        self.epoch = moved.epoch

    async def arrive(self) -> None:
        """Reset the count of moves after the place is open, and update the catalog if possible."""
        if self._hops and self._is_home():
            with contextlib.suppress(InterlockError):
                catalog = Catalog(self._home)
                known = await catalog.names("workflows")
                for name in {name if name in known else ALL for name in self._machines or (ALL,)}:
                    await catalog.enter(name, self.url, self.epoch, kind="workflows")
        self._hops = 0
        self._route = self._route[:1] + self._route[-1:]

    def _is_home(self) -> bool:
        return self._home.startswith("lanes:///") or is_bucket(self._home) or is_postgres(self._home)
