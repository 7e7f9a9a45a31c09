"""Where the workflows of a home are: what its catalog says, and from there the end of a chain of tombstones.

The catalog is a short cut, and may be old: whoever opens a place that was left is told the next one. Epochs only grow,
also when workflows move back to where they were, so a chain that does not is no chain: following it could go in a
circle, and end at a place that others have left.
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
"""G6: moves that are followed in a row."""

OpenT = TypeVar("OpenT")


class Trail:
    """The places on the way, up to the one where the workflows are as far as is known."""

    def __init__(self, home: str, machines: Sequence[str] = ()) -> None:
        self._home = home
        self._machines = machines
        self._seen = [home]
        self._hops = 0
        self.epoch = 0
        """Of the move that ended at this place; 0 where nobody has told of one."""

    @property
    def url(self) -> str:
        """The place."""
        return self._seen[-1]

    @property
    def seen_epoch(self) -> int | None:
        """Whoever has seen the tombstone of a move may finish its arrival; None where none was seen."""
        return self.epoch or None

    @property
    def shown(self) -> str:
        """The place, as it may be shown."""
        return shown(self.url)

    async def begin(self) -> None:
        """Look into the catalog of the home. Raises BadUsage for machines that do not live together."""
        if self._is_home():
            self._seen = [self._home, await workflows_at(self._home, self._machines)]

    async def open(self, opens: "Callable[[Trail], Awaitable[OpenT]]") -> OpenT:
        """Open the place, or the one behind it. Raises CorruptionError for a chain that does not end."""
        while True:
            try:
                opened = await opens(self)
            except MovedElsewhere as moved:
                self.follow(moved)
            else:
                await self.arrive()
                return opened

    def follow(self, moved: MovedElsewhere) -> None:
        """Go to where the tombstone says. Raises CorruptionError for one that nobody can have left."""
        self._hops += 1
        if not moved.url or moved.epoch <= self.epoch or self._hops > HOPS_MAX:
            raise CorruptionError(
                f"the workflows at {self.shown} (epoch {self.epoch}) are said to have moved to "
                f"{shown(moved.url) or 'nowhere'} (epoch {moved.epoch}), after {self._hops} moves.",
                why=f"Every move has a higher epoch than the one before, and at most {HOPS_MAX} are followed in a row; "
                "a file or a table may have been put back from a copy that was made before a move.",
                fix="Put the copy that is too old away, and open the workflows at the last of these addresses.",
            ) from moved
        self._seen.append(with_secrets(moved.url, *reversed(self._seen)))
        self.epoch = moved.epoch

    async def arrive(self) -> None:
        """The place is open: moves from here on are counted anew, and the catalog knows the way if it can be told."""
        if self._hops and self._is_home():
            with contextlib.suppress(InterlockError):
                catalog = Catalog(self._home)
                known = await catalog.names("workflows")
                for name in {name if name in known else ALL for name in self._machines or (ALL,)}:
                    await catalog.enter(name, self.url, self.epoch, kind="workflows")
        self._hops = 0
        self._seen = self._seen[:1] + self._seen[-1:]

    def _is_home(self) -> bool:
        return self._home.startswith("lanes:///") or is_bucket(self._home) or is_postgres(self._home)
