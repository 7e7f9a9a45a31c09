"""The contract of a store that several processes share: leases, claims, and resolving an unknown outcome.

An engine that works on a workflow has a lease on its row, with a token that only ever grows. A lease is taken in the
commit that begins an attempt, or by a claim of a due workflow without a lease. A claim changes the row's revision, so
that every earlier decision about the row is lost (G4). All times are the store's own (C11).
"""

from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple, Protocol, runtime_checkable

from interlock.store.protocol import Store
from interlock.store.values import Change, OwedEffect, Row


class Holder(NamedTuple):
    """The engine that commits a group."""

    owner: str
    """Random per start: no two lives of a process have the same."""
    lease_s: float
    envelope: str
    """A UUID that every row of history of the group carries: by it an unknown outcome is resolved (G9)."""
    urgent: bool = False
    """The group undoes something: it may have the connections that are kept for that (C16)."""


class Due(NamedTuple):
    """The times of the next due work, by the store's own clock; None: no work."""

    now_us: int
    machines: dict[str, int]
    """By machine: the first due workflow without a lease."""
    effects_us: int | None


class Stored(NamedTuple):
    """Workflows of a machine that one of its versions has stored in one state."""

    machine: str
    version: int
    state: str


@runtime_checkable
class SharedStore(Store, Protocol):
    """A store with `shared = True`."""

    lease_s: float
    """Seconds after which a lease that is not renewed may be taken over."""

    async def commit_as(self, changes: Sequence[Change], holder: Holder) -> list[str]:
        """Commit like `commit`; workflows that a change holds are leased to the holder in the same write."""
        ...

    async def settle(self, changes: Sequence[Change], envelope: str) -> set[str]:
        """Return which changes of a group with an unknown outcome were committed; the others never will be (G9).

        Only a start may still be committed later: it is recognised by its digest.
        """
        ...

    async def due(self, machines: Sequence[str]) -> Due:
        """Return when there is work to claim. Reads the heads of two indexes."""
        ...

    async def claim(
        self,
        machine: str,
        *,
        owner: str,
        limit: int,
        lease_s: float,
        timers: bool = False,
        states: Sequence[str] = (),
        ids: Sequence[str] = (),
        refused: Collection[Stored] = (),
    ) -> list[Row]:
        """Claim up to `limit` workflows of a machine that are due (`wake_us`) and have no lease.

        With `timers` only those with a due timer, with `states` only those in one of them, also if others wait longer.
        With `ids` only those, even before they are due. Never one that is `refused`.

        Each is given to one claimer, with a token and a revision that are higher than before.
        """
        ...

    async def claim_effects(
        self, machines: Sequence[str], *, owner: str, limit: int, lease_s: float, refused: Collection[Stored] = ()
    ) -> list[OwedEffect]:
        """Claim up to `limit` due effects of these machines' workflows that have no lease.

        Effects of workflows that are `refused` are left to others.

        An effect that is done, or owed again, is free.
        """
        ...

    async def renew(self, leases: Mapping[str, int], *, owner: str, lease_s: float) -> set[str]:
        """Renew the leases of workflows, by token; return those that this owner has lost."""
        ...

    async def renew_effects(self, effects: Collection[str], *, owner: str, lease_s: float) -> None:
        """Renew the leases of running effects; those of other owners are not changed."""
        ...

    async def release(self, leases: Mapping[str, int], *, owner: str) -> set[str]:
        """Release the leases of workflows; return those that this owner had lost before."""
        ...

    async def release_effects(self, effects: Collection[str], *, owner: str) -> None:
        """Release effects that this owner claimed and did not begin; those of other owners are not changed."""
        ...

    async def hint(self, *, left: bool = False) -> None:
        """Notify listening engines of due work. Only a hint: it may be lost, and polling finds everything.

        With `left`: that a workflow has left the state whose attempt is running.
        """
        ...

    async def hinted(self) -> bool:
        """Wait for a hint; return whether one had `left`. Never returns where hints cannot be received."""
        ...
