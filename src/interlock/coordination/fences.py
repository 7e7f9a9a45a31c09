"""Epochs: they make the tokens of leases grow although two keepers grant them, and one may lose its data (G4).

The higher half of every token is an epoch, the lower half a count. Epochs come from the store alone, which loses
nothing: they are the tokens of one reserved lease there. Redis gets an epoch when it has none, when it was restarted or
emptied, and when a process comes back that was without it; it counts within that epoch. A lease that the store grants
while Redis is gone has an epoch of its own, and the count 0. It takes that epoch after it was granted, so of two leases
of one name the later one has the higher token, whichever keeper granted them.
"""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Mapping
from typing import Protocol

from interlock.errors import UnavailableError
from interlock.seams import Chance, Ids
from interlock.store.leases import Granted, Held, Leases

COUNT_BITS = 32

EPOCHS = "interlock.redis.epochs"
"""The lease in the store whose tokens are the epochs."""

HIGHEST = "redis:epoch"
"""The note in the store of the highest epoch seen."""

EPOCH_LEASE_S = 2.0
EPOCH_TRIES = 50
EPOCH_PAUSE_S = 0.02
"""Between two tries, and up to twice as much more by chance: it is held for two round trips."""


class Notes(Protocol):
    """The notes of a store."""

    async def note(self, name: str, text: str) -> None:
        """Write a note, replacing the one of that name."""
        ...

    async def noted(self) -> dict[str, str]:
        """Return all notes by name."""
        ...


class Epochs:
    """The source of new epochs."""

    def __init__(
        self,
        store: Leases,
        chance: Chance,
        ids: Ids,
        *,
        highest: int = 0,
        notes: Notes | None = None,
    ) -> None:
        self._store = store
        self._notes = notes
        self._saved = highest
        self._chance = chance
        self._ids = ids
        self.highest = highest
        """The highest that was ever seen from here, in Redis too: homes that share a Redis have stores of their own."""

    def saw(self, epoch: int) -> None:
        """Record an epoch that Redis has, or that an earlier process has noted."""
        self.highest = max(self.highest, epoch)

    async def learn(self) -> int:
        """Read how far other processes of this store have gone; return the highest epoch."""
        if self._notes is not None:
            self.saw(read_highest(await self._notes.noted()))
        return self.highest

    async def save(self) -> None:
        """Note the highest epoch in the store: for the next process, and for one that is opened without Redis."""
        if self.highest > self._saved:
            await self._meet()

    async def _meet(self, *, more: int = 0) -> int:
        """Raise the highest epoch and the note in the store to one value, `more` above both.

        Others of this store may have gone further, while Redis is gone or in one that has other homes as well; the
        store's own tokens are lower there, and keep no two holders apart.
        """
        saved = 0 if self._notes is None else read_highest(await self._notes.noted())
        highest = self.highest = max(self.highest, saved) + more
        if highest > saved and self._notes is not None:
            await self._notes.note(HIGHEST, str(highest))
        self._saved = highest
        return highest

    async def new(self) -> int:
        """Return an epoch that was never used before. Raises UnavailableError when the store grants none."""
        async with self.hold_new() as epoch:
            return epoch

    @contextlib.asynccontextmanager
    async def hold_new(self) -> AsyncGenerator[int]:
        """Yield a new epoch while no other process can get a higher one, so that it reaches Redis first."""
        owner = self._ids.text()
        for _ in range(EPOCH_TRIES):
            answer = await self._store.acquire(EPOCHS, owner, EPOCH_LEASE_S)
            if isinstance(answer, Granted):
                break
            await asyncio.sleep(EPOCH_PAUSE_S * (1 + 2 * self._chance.fraction()))
        else:
            raise UnavailableError(
                f"the store gave no epoch for a lease in {EPOCH_TRIES} tries.",
                why=f"Many processes ask for one simultaneously, or a dead process holds the lease {EPOCHS!r}.",
                fix="Try again; such a lease ends by itself after two seconds.",
            )
        try:
            self.highest = max(self.highest, answer.token - 1)
            yield await self._meet(more=1)
        finally:
            await self._store.release(EPOCHS, answer.token)


class StoreLeases:
    """The leases of the store, with tokens higher than those that Redis has granted."""

    def __init__(self, store: Leases, epochs: Epochs) -> None:
        self._store = store
        self._epochs = epochs
        self._granted: dict[tuple[str, int], int] = {}
        """By name and token: the store's own token."""
        self._tokens: dict[tuple[str, str, int], int] = {}
        """By name, owner and the store's own token: the token that was issued for it."""

    def has(self, name: str, token: int) -> bool:
        """Whether the lease was granted here."""
        return (name, token) in self._granted

    async def acquire(self, name: str, owner: str, lease_s: float) -> Granted | Held:
        """Grant the lease to the owner, unless another one holds it. An owner that asks again gets the same token."""
        answer = await self._store.acquire(name, owner, lease_s)
        if isinstance(answer, Held):
            return answer
        grant = (name, owner, answer.token)
        if grant not in self._tokens:
            self._tokens[grant] = await self._epochs.new() << COUNT_BITS
            self._granted[name, self._tokens[grant]] = answer.token
        return Granted(self._tokens[grant])

    async def renew(self, name: str, token: int, lease_s: float) -> bool:
        """Renew the lease for `lease_s` from now on."""
        store_token = self._granted.get((name, token))
        if store_token is None:
            return False
        renewed = await self._store.renew(name, store_token, lease_s)
        if not renewed:
            self._forget(name, token)
        return renewed

    async def release(self, name: str, token: int) -> bool:
        """Release the lease."""
        store_token = self._granted.get((name, token))
        if store_token is None:
            return False
        released = await self._store.release(name, store_token)
        self._forget(name, token)
        return released

    def _forget(self, name: str, token: int) -> None:
        self._granted.pop((name, token), None)
        self._tokens = {grant: each for grant, each in self._tokens.items() if each != token}


def read_highest(notes: Mapping[str, str]) -> int:
    """Return the highest epoch in the notes of a store; 0 without any."""
    text = notes.get(HIGHEST, "")
    return int(text) if text.isdecimal() else 0
