"""Leases in Redis, and in the store while Redis is gone (C10). The same contract as a store's.

Tokens grow in every case (see `Epochs`). Beyond that, two simultaneous holders of one lease are prevented as far as
possible. When Redis falls silent, the store grants no name before the end of the lease that Redis had granted, as of
the last beat. When a process comes back, Redis grants nothing for two seconds: the others come back too, and record the
leases that the store granted them. When Redis has lost its data, the names that were held stay so for their time. A
caller that asks in such a time gets `Held`, and asks again.

The leases of one store keep only the users of that store apart. Where engines with several stores share the leases of
one Redis, none are granted while it is gone.

Whether Redis still answers others cannot be known here. Then two processes may hold one lease for a time, each from
another keeper, and the token decides at the protected resource: that of the store is the higher one.
"""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Mapping
from typing import Protocol, cast

from interlock.clock import Chance, Clock, Ids
from interlock.errors import UnavailableError
from interlock.redaction import logger_of
from interlock.redis.connection import ACQUIRE, ADOPT, BEAT, RAISE, RELEASE, RENEW, Gone, RedisLink
from interlock.store.protocol import Granted, Held, Leases

# --- Epochs and the leases of the store ------------------------------------------------------------------------------
# Epochs make the tokens of leases grow although two keepers grant them, and one may lose its data (G4). The higher half
# of every token is an epoch, the lower half a count. Epochs come from the store alone, which loses nothing: they are
# the tokens of one reserved lease there. Redis gets an epoch when it has none, when it was restarted or emptied, and
# when a process comes back that was without it; it counts within that epoch. A lease that the store grants while Redis
# is gone has an epoch of its own, and the count 0. It takes that epoch after it was granted, so of two leases of one
# name the later one has the higher token, whichever keeper granted them.

COUNT_BITS = 32

EPOCHS = "interlock.redis.epochs"
"""The lease in the store whose tokens are the epochs."""

HIGHEST = "redis:epoch"
"""The note in the store of the highest epoch seen."""

EPOCH_LEASE_S = 2.0
EPOCH_TRIES = 50
EPOCH_PAUSE_S = 0.02
"""Between two tries, and up to twice as much more by chance: it is held for two round trips."""


class StoreNotes(Protocol):
    """The notes of a store."""

    async def note(self, name: str, text: str) -> None:
        """Write a note, replacing the one of that name."""
        ...

    async def notes(self) -> dict[str, str]:
        """Return all notes by name."""
        ...


class Epochs:
    """The source of new epochs."""

    def __init__(
        self, store: Leases, chance: Chance, ids: Ids, *, highest: int = 0, notes: StoreNotes | None = None
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
            self.saw(read_highest(await self._notes.notes()))
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
        saved = 0 if self._notes is None else read_highest(await self._notes.notes())
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


# --- Leases of the cluster -------------------------------------------------------------------------------------------

log = logger_of("interlock.operators")

RETURN_S = 2.0
"""How long Redis grants nothing after a return: four beats, in which the others come back as well."""

UNKNOWN_S = 10.0
"""How long a Redis without data grants nothing, if the process that finds it does not know its grants."""

BACK_S = 2.0
"""How long a caller without another keeper waits for a Redis that is gone."""

NAMES_MAX = 1_000
"""Leases that are remembered by name in case Redis goes away; of others only how long they last at most."""

MOVING = "an unknown owner: Redis was away, and earlier holders have a moment to report their leases"
SILENT = "the last owner in Redis, which does not answer: it may be held there until its time is over"

MICRO = 1_000_000


class SharedLeases:
    """The leases of a cluster. Lives in one event loop."""

    def __init__(self, link: RedisLink, store: Leases, epochs: Epochs, clock: Clock) -> None:
        self._link = link
        self.home = ""
        """The name of this process's store."""
        self.several = False
        """Whether other homes share the leases: without Redis nothing keeps them apart."""
        self._epochs = epochs
        self._clock = clock
        self._local = StoreLeases(store, epochs)
        self._carried: dict[tuple[str, int], tuple[str, float, float]] = {}
        """Leases of the store, by name and token: the owner, since when, and for how long each time."""
        self._known: dict[str, float] = {}
        """The leases that Redis has granted, each with the time at which it ends unless it is renewed."""
        self._others_s = 0.0
        """When all leases end that are not known by name."""
        self._epoch_seen = 0
        """The epoch that Redis had when it was last asked."""
        self._least = 0
        """The highest epoch that was ever in use: with a lower one Redis grants nothing. An epoch on its way to Redis
        does not count, or every concurrent caller would have another one assigned."""
        self._was_up = self._was_without = False
        self._returning = False
        """Whether Redis has come back, or is about to: it has its epoch, and the store's next grants get a higher."""
        self._raising = asyncio.Lock()
        root = link.address.key("leases")
        self._fence, self._holds, self._unsure = f"{root}:fence", f"{root}:held", f"{root}:unsure"
        self._homes = f"{root}:homes"
        self._root = f"{root}:of:"

    # --- the contract ------------------------------------------------------------------------------------------------

    async def acquire(self, name: str, owner: str, lease_s: float) -> Granted | Held:
        """Grant the lease to the owner for `lease_s`, unless another one holds it."""
        try:
            return await self._acquire(name, owner, lease_s)
        except Gone as error:
            # A process that was frozen takes Redis for gone too, until the next beat: what it knows of the holders is
            # outdated, and the store would grant what others hold. And with several homes no store can take over.
            if (self.several or self._link.still) and await self._link.back(BACK_S):
                with contextlib.suppress(Gone):
                    return await self._acquire(name, owner, lease_s)
            if self.several:
                raise _no_keeper(name, self._link.reason) from error
            return await self._acquire_local(name, owner, lease_s)

    async def renew(self, name: str, token: int, lease_s: float) -> bool:
        """Renew it for `lease_s` from now on. Raises UnavailableError when the keeper that granted it is silent."""
        if self._local.has(name, token):
            return await self._renew_local(name, token, lease_s)
        try:
            answer = await self._link.call(RENEW, (self._root + name, self._holds), name, *_parts(token), _us(lease_s))
        except Gone as error:
            raise _no_answer(name, token, error) from error
        if answer == 1:
            self._known[name] = _now_s() + lease_s
        return answer == 1

    async def release(self, name: str, token: int) -> bool:
        """Release the lease."""
        released = False
        if self._local.has(name, token):
            self._carried.pop((name, token), None)
            released = await self._local.release(name, token)
        self._known.pop(name, None)  # Also if Redis cannot be reached: the holder has given it up.
        keys = (self._root + name, self._holds, self._unsure)
        try:
            answer = await self._link.call(RELEASE, keys, name, *_parts(token))
        except Gone as error:
            if released:
                return True
            raise _no_answer(name, token, error) from error
        return released or answer == 1

    # --- when Redis comes and goes -----------------------------------------------------------------------------------

    async def returned(self) -> None:
        """Record the store's grants in Redis after it has come back, with an epoch above all others."""
        self._returning = True
        epoch = await self._look()  # Before the store is asked on behalf of a Redis that is gone.
        if self._was_without or 0 < epoch < self._epochs.highest:
            try:
                await self._raise(pause_s=RETURN_S)
            except UnavailableError as error:
                raise Gone(f"the store gives no epoch for its leases: {error.what}") from error
        for name, token in list(self._carried):
            await self._write_down(name, token)
        self._was_up, self._was_without = True, False

    async def beat(self) -> None:
        """Remember the held leases, for the time when Redis is gone."""
        self._saw(await self._look())

    async def learn(self) -> None:
        """Learn the store's highest epoch: processes cut off from Redis have leases with epochs unknown to it."""
        self._least = max(self._least, await self._epochs.learn())

    def lost(self) -> None:
        """Note that Redis is gone from now on."""
        self._was_without, self._returning = True, False

    async def _look(self) -> int:
        """Read the held leases, and whether other homes are there; return the epoch, 0 without one."""
        keys = (self._holds, self._homes, self._fence)
        homes, epoch, *found = cast("list[str]", await self._link.ask(BEAT, keys, str(NAMES_MAX), self.home))
        self.several = int(homes) > 1
        now_s = _now_s()
        left = [int(left_us) / MICRO for left_us in found[1::2]]
        known = {name: now_s + left_s for name, left_s in zip(found[::2], left, strict=True)}
        if self._was_without or int(epoch) != self._epoch_seen:
            # It may have forgotten some of what was held, or all of it.
            known = {**{name: end_s for name, end_s in self._known.items() if end_s > now_s}, **known}
        self._known, self._epoch_seen = known, int(epoch)
        self._others_s = now_s + left[-1] if len(left) >= NAMES_MAX else 0.0
        return int(epoch)

    # --- in Redis ----------------------------------------------------------------------------------------------------

    async def _acquire(self, name: str, owner: str, lease_s: float) -> Granted | Held:
        keys = (self._root + name, self._fence, self._holds, self._unsure)
        while True:
            values = (name, owner, _us(lease_s), str(self._least))
            match cast("list[str]", await self._link.call(ACQUIRE, keys, *values)):
                case ["granted", epoch, count]:
                    self._known[name] = _now_s() + lease_s
                    self._saw(int(epoch))
                    return Granted((int(epoch) << COUNT_BITS) + int(count))
                case ["held", holder, since_us, now_us]:
                    return Held(holder, int(since_us), int(now_us))
                case ["quiet", now_us]:
                    return Held(MOVING, int(now_us), int(now_us))
                case _:
                    await self._raise()  # It has no epoch, has forgotten it, or was restarted.

    async def _raise(self, *, pause_s: float = 0.0) -> None:
        """Give Redis a new epoch. Concurrent callers of one process do so one after the other.

        With `pause_s` Redis grants nothing for that time, so that others come back with their leases of the store.
        """
        async with self._raising, self._epochs.hold_new() as epoch:
            quiet_s = RETURN_S if self._was_up and epoch > 1 else 0.0 if epoch == 1 else UNKNOWN_S
            now_s = _now_s()
            quiet_s = max(quiet_s, self._others_s - now_s)
            known = [
                each for name, end_s in self._known.items() if end_s > now_s for each in (name, _us(end_s - now_s))
            ]
            values = (str(epoch), _us(quiet_s), _us(pause_s), *known)
            self._saw(cast("int", await self._link.ask(RAISE, (self._fence, self._unsure), *values)))

    def _saw(self, epoch: int) -> None:
        self._epochs.saw(epoch)
        self._least = max(self._least, epoch)

    async def _write_down(self, name: str, token: int) -> None:
        """Record a lease of the store in Redis as well, so that Redis grants it to no other owner."""
        owner, since_s, lease_s = self._carried[name, token]
        values = (name, owner, *_parts(token), _us(_now_s() - since_s), _us(lease_s))
        if not await self._link.ask(ADOPT, (self._root + name, self._holds), *values):
            log.warning("lease %r with token %d of the store is held in Redis by another owner too.", name, token)

    # --- in the store ------------------------------------------------------------------------------------------------

    async def _acquire_local(self, name: str, owner: str, lease_s: float) -> Granted | Held:
        now_s = _now_s()
        end_s = self._known.get(name, self._others_s)
        if now_s < end_s:
            wall_us = round(self._clock.wall_s() * MICRO)
            return Held(f"{SILENT}, in {end_s - now_s:.0f} s", wall_us, wall_us)
        granted = await self._local.acquire(name, owner, lease_s)
        if isinstance(granted, Granted):
            self._carried.setdefault((name, granted.token), (owner, now_s, lease_s))
            if self._returning:
                await self._overtake(name, granted.token)
        return granted

    async def _overtake(self, name: str, token: int) -> None:
        """Raise the epoch when Redis came back while the store was asked: its next lease must have a higher token."""
        try:
            await self._raise()
            await self._write_down(name, token)
        except Gone:
            self._returning = False  # It is gone again, and is given an epoch when it returns.

    async def _renew_local(self, name: str, token: int, lease_s: float) -> bool:
        renewed = await self._local.renew(name, token, lease_s)
        if not renewed:
            self._carried.pop((name, token), None)
        elif self._link.up:
            try:
                await self._write_down(name, token)
            except Gone:
                log.debug("lease %r of the store cannot be written down in Redis now.", name)
        return renewed


def _now_s() -> float:
    return asyncio.get_running_loop().time()


def _parts(token: int) -> tuple[str, str]:
    return str(token >> COUNT_BITS), str(token & ((1 << COUNT_BITS) - 1))


def _us(seconds: float) -> str:
    return str(round(seconds * MICRO))


def _no_keeper(name: str, reason: str) -> UnavailableError:
    return UnavailableError(
        f"lease {name!r} cannot be acquired: Redis does not answer ({reason}).",
        why="Engines with other stores share its leases, and the store of this one does not keep them apart.",
        fix="Start Redis again. Engines that should go on without it have one store, or each a prefix of its own: "
        "redis://…?prefix=shop.",
    )


def _no_answer(name: str, token: int, error: Gone) -> UnavailableError:
    return UnavailableError(
        f"Redis does not answer, and lease {name!r} with token {token} is there: {error}",
        why="Only the keeper that granted a lease can renew it.",
        fix="Nothing to do: it is lost when its time is over, and can then be acquired from the store.",
    )
