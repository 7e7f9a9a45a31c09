"""Epochs: what makes the tokens of leases grow although two keepers give them, and one of them forgets (G4).

The higher half of every token is an epoch, the lower half a count. Epochs come from the store alone, which forgets
nothing: they are the tokens of one reserved lease there. Redis is given an epoch when it has none, when it was
restarted or emptied, and when somebody comes back who was without it; it counts within that epoch. A lease that the
store gives while Redis is gone has an epoch of its own, and the count 0. It takes that epoch after it was given, so of
two leases of one name the later one has the higher token, whoever gave them.
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
"""The note in the store of the highest epoch that was seen."""

EPOCH_LEASE_S = 2.0
EPOCH_TRIES = 50
EPOCH_PAUSE_S = 0.02
"""Between two tries, and up to twice as much more by chance: it is held for two round trips."""


class Notes(Protocol):
    """The notes of a store."""

    async def note(self, name: str, text: str) -> None:
        """Note something, in place of what was noted under that name."""
        ...

    async def noted(self) -> dict[str, str]:
        """Everything that was noted."""
        ...


class Epochs:
    """Where epochs come from."""

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
        self._noted = highest
        self._chance = chance
        self._ids = ids
        self.highest = highest
        """The highest that was ever seen from here, in Redis too: homes that share a Redis have stores of their own."""

    def saw(self, epoch: int) -> None:
        """Redis has this one, or an earlier life had."""
        self.highest = max(self.highest, epoch)

    async def learn(self) -> int:
        """See how far others of this store have gone, and return the highest."""
        if self._notes is not None:
            self.saw(read_highest(await self._notes.noted()))
        return self.highest

    async def save(self) -> None:
        """Note the highest in the store: for the next life, and for one that is opened without Redis."""
        if self.highest > self._noted:
            await self._meet()

    async def _meet(self, *, more: int = 0) -> int:
        """Have the highest and the note in the store be the same, and higher than both were by so much.

        Others of this store may have gone further, while Redis is gone or in one that has other homes as well; the
        store's own tokens are behind there, and keep nobody apart.
        """
        noted = 0 if self._notes is None else read_highest(await self._notes.noted())
        highest = self.highest = max(self.highest, noted) + more
        if highest > noted and self._notes is not None:
            await self._notes.note(HIGHEST, str(highest))
        self._noted = highest
        return highest

    async def new(self) -> int:
        """An epoch that nobody has had. Raises UnavailableError when the store gives none."""
        async with self.held() as epoch:
            return epoch

    @contextlib.asynccontextmanager
    async def held(self) -> AsyncGenerator[int]:
        """The same, while nobody else is given a higher one: so that it arrives before that does."""
        owner = self._ids.text()
        for _ in range(EPOCH_TRIES):
            answer = await self._store.acquire(EPOCHS, owner, EPOCH_LEASE_S)
            if isinstance(answer, Granted):
                break
            await asyncio.sleep(EPOCH_PAUSE_S * (1 + 2 * self._chance.fraction()))
        else:
            raise UnavailableError(
                f"the store gave no epoch for a lease in {EPOCH_TRIES} tries.",
                why=f"Many ask for one at once, or the lease {EPOCHS!r} is held by somebody who does not live.",
                fix="Try again; such a lease ends by itself after two seconds.",
            )
        try:
            self.highest = max(self.highest, answer.token - 1)
            yield await self._meet(more=1)
        finally:
            await self._store.release(EPOCHS, answer.token)


class StoreLeases:
    """The leases of the store, with tokens that are higher than those that Redis has given."""

    def __init__(self, store: Leases, epochs: Epochs) -> None:
        self._store = store
        self._epochs = epochs
        self._granted: dict[tuple[str, int], int] = {}
        """By name and token: the store's own token."""
        self._tokens: dict[tuple[str, str, int], int] = {}
        """By name, owner and the store's own token: the one that was handed out for it."""

    def has(self, name: str, token: int) -> bool:
        """Whether it was given here."""
        return (name, token) in self._granted

    async def acquire(self, name: str, owner: str, lease_s: float) -> Granted | Held:
        """Give the lease to the owner, unless somebody else has it. An owner who asks again has the same token."""
        answer = await self._store.acquire(name, owner, lease_s)
        if isinstance(answer, Held):
            return answer
        asked = (name, owner, answer.token)
        if asked not in self._tokens:
            self._tokens[asked] = await self._epochs.new() << COUNT_BITS
            self._granted[name, self._tokens[asked]] = answer.token
        return Granted(self._tokens[asked])

    async def renew(self, name: str, token: int, lease_s: float) -> bool:
        """Have it for so long from now on."""
        given = self._granted.get((name, token))
        if given is None:
            return False
        held = await self._store.renew(name, given, lease_s)
        if not held:
            self._forget(name, token)
        return held

    async def release(self, name: str, token: int) -> bool:
        """Give it up."""
        given = self._granted.get((name, token))
        if given is None:
            return False
        released = await self._store.release(name, given)
        self._forget(name, token)
        return released

    def _forget(self, name: str, token: int) -> None:
        self._granted.pop((name, token), None)
        self._tokens = {asked: each for asked, each in self._tokens.items() if each != token}


def read_highest(noted: Mapping[str, str]) -> int:
    """The highest epoch that was seen, from the notes of a store; 0 without any."""
    text = noted.get(HIGHEST, "")
    return int(text) if text.isdecimal() else 0
