"""What a store that several processes share can do beyond the protocol: leases, claims, resolving an unknown outcome.

Whoever works on a workflow holds a lease on its row, with a token that only ever grows. A lease is taken in the commit
that begins an attempt, or by a claim of what is due and nobody looks after. A claim changes the row's revision, so that
whatever anybody decided upon the row before is lost (G4). All times are the store's own (C11).
"""

from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple, Protocol, runtime_checkable

from interlock.store.protocol import Store
from interlock.store.values import Change, OwedEffect, Row


class Holder(NamedTuple):
    """Who commits a group."""

    owner: str
    """Random per start: no two lives of a process have the same."""
    lease_s: float
    envelope: str
    """A UUID that every row of history of the group carries: by it an unknown outcome is resolved (G9)."""
    urgent: bool = False
    """The group undoes something: it may have the connections that are kept for that (C16)."""


class Due(NamedTuple):
    """When the next thing is due, by the store's own time; None: nothing is."""

    now_us: int
    machines: dict[str, int]
    """By machine: the first workflow that nobody looks after."""
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
    """How long the holder of a lease may show no sign of life before others take over."""

    async def commit_as(self, changes: Sequence[Change], holder: Holder) -> list[str]:
        """As `commit`; what the changes say is to be held is leased to the holder in the same write."""
        ...

    async def settle(self, changes: Sequence[Change], envelope: str) -> set[str]:
        """Which changes of a group whose outcome is unknown have happened; the others never will (G9).

        Only a start may still happen after this has said that it has not: it is told by its digest.
        """
        ...

    async def due(self, machines: Sequence[str]) -> Due:
        """When there is something to claim. A look at the heads of two indexes."""
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
        """Take up to `limit` workflows of a machine that are due (`wake_us`) and that nobody looks after.

        With `timers` only those of which a timer is due, with `states` only those in one of them, whatever else waits
        before them. With `ids` only those, and although they are not due yet. Never one that is `refused`.

        Each is given to one claimer, with a token and a revision that are higher than before.
        """
        ...

    async def claim_effects(
        self, machines: Sequence[str], *, owner: str, limit: int, lease_s: float, refused: Collection[Stored] = ()
    ) -> list[OwedEffect]:
        """Take up to `limit` effects of workflows of these machines that are due and that nobody is trying.

        Effects of workflows that are `refused` are left to others.

        An effect that is done, or owed again, is free.
        """
        ...

    async def renew(self, leases: Mapping[str, int], *, owner: str, lease_s: float) -> set[str]:
        """Hold on to workflows, given with their tokens; returns those that this owner has lost."""
        ...

    async def renew_effects(self, effects: Collection[str], *, owner: str, lease_s: float) -> None:
        """Hold on to effects that are being tried; those of others stay theirs."""
        ...

    async def release(self, leases: Mapping[str, int], *, owner: str) -> set[str]:
        """Give workflows up before their lease is over; returns those that this owner had lost before."""
        ...

    async def release_effects(self, effects: Collection[str], *, owner: str) -> None:
        """Give effects up that this owner has claimed and not begun; those of others stay theirs."""
        ...

    async def hint(self, *, left: bool = False) -> None:
        """Tell those who listen that something is due. Only a hint: it may be lost, and polling finds everything.

        With `left`: that a workflow has left what somebody is just doing for it.
        """
        ...

    async def hinted(self) -> bool:
        """Wait for hints of anybody; whether one was about what was left. Never returns where none can be heard."""
        ...
