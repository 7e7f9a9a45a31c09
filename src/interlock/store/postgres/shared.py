"""What a store that several processes share can do beyond the protocol: claims, and resolving an unknown outcome."""

from collections.abc import Collection, Mapping, Sequence
from typing import Protocol

from interlock.store.postgres.claims import Claimed, Committed
from interlock.store.protocol import Store
from interlock.store.values import Change, OwedEffect


class SharedStore(Store, Protocol):
    """A store with `shared = True`. Times are its own; tokens of one workflow only ever grow."""

    async def happened(self, envelopes: Sequence[tuple[str, str]]) -> set[str]:
        """Which of these envelopes, as (workflow, envelope), led to a row of history (G9)."""
        ...

    async def claim(self, machines: Sequence[str], *, owner: str, limit: int, lease_s: float) -> list[Claimed]:
        """Take up to `limit` workflows of these machines that are due (`wake_us`) and that nobody looks after.

        Each is given to one claimer, with a token and a revision that are higher than before: what anybody decided
        upon the row earlier is lost when it is committed.
        """
        ...

    async def commit_held(
        self, changes: Sequence[Change], hold: Collection[str], *, owner: str, lease_s: float
    ) -> Committed:
        """Commit, and lease the workflows and effects whose ids are in `hold` to the owner in the same write.

        A commit that leaves the state ends the lease of its visit. One that stays in it leaves the workflow to whoever
        looks after it; the leases that are returned say which ones the owner has. An effect that is put in again, with
        another count and time, is free unless it is held again.
        """
        ...

    async def claim_effects(self, *, owner: str, limit: int, lease_s: float) -> list[OwedEffect]:
        """Take up to `limit` effects that are due and that nobody is trying, soonest first.

        There is nothing to renew: a lease covers one attempt. An effect that is done, or owed again, is free.
        """
        ...

    async def renew(self, leases: Mapping[str, int], *, owner: str, lease_s: float) -> set[str]:
        """Hold on to workflows, given with their tokens; returns those that this owner has lost."""
        ...

    async def release(self, leases: Mapping[str, int], *, owner: str) -> set[str]:
        """Give workflows up before their lease is over; returns those that this owner had lost before."""
        ...
