"""Leases in Redis, and in the store while Redis is gone (C10). The same contract as a store's.

Tokens grow in every case; `fences` says how. That two have a lease at once is prevented beyond that as far as anybody
can know. When Redis falls silent, the store gives no name before the lease is over that Redis had given, as of the last
beat. When somebody comes back, Redis gives nothing for two seconds, so that others come back too and have the leases
written down that the store gave them. When it has forgotten everything, the names that were held stay so for their
time. Whoever asks in such a time is told that the lease is held, and asks again.

The leases of one store keep those apart who have that store. Where engines with several stores share the leases of one
Redis, none are given while it is gone.

What nobody can know here is whether Redis still answers others. Then two may have one lease for a time, each from
another keeper, and the token decides at the protected resource: that of the store is the higher one.
"""

import asyncio
import contextlib
from typing import cast

from interlock.coordination.fences import COUNT_BITS, Epochs, StoreLeases
from interlock.coordination.link import Gone, Link
from interlock.coordination.scripts import ACQUIRE, ADOPT, BEAT, RAISE, RELEASE, RENEW
from interlock.errors import UnavailableError
from interlock.redaction import logger_of
from interlock.seams import Clock
from interlock.store.leases import Granted, Held, Leases

log = logger_of("interlock.operators")

RETURN_S = 2.0
"""How long Redis gives nothing after a return: four beats, in which the others come back as well."""

UNKNOWN_S = 10.0
"""How long a Redis without data gives nothing, if who finds it so does not know what it had given."""

BACK_S = 2.0
"""How long a Redis that is gone is waited for by those who have nobody else to ask."""

NAMES_MAX = 1_000
"""So many leases are remembered by name for the case that Redis is gone; of others only how long they last at most."""

MOVING = "nobody who is known: Redis was away, and who had it from the store or before has a moment to say so"
SILENT = "whoever had it in Redis, which does not answer: it may be held there until its time is over"

MICRO = 1_000_000


class SharedLeases:
    """The leases of a cluster. Lives in one event loop."""

    def __init__(self, link: Link, store: Leases, epochs: Epochs, clock: Clock) -> None:
        self._link = link
        self.home = ""
        """The store that this process has, by a name."""
        self.several = False
        """Other homes have the same leases: without Redis nobody keeps them apart."""
        self._epochs = epochs
        self._clock = clock
        self._local = StoreLeases(store, epochs)
        self._carried: dict[tuple[str, int], tuple[str, float, float]] = {}
        """Leases of the store, by name and token: the owner, since when, and for how long each time."""
        self._known: dict[str, float] = {}
        """The leases that Redis has given, each with the time when it is over if nobody renews it."""
        self._others_s = 0.0
        """When all are over that are not known by name."""
        self._seen = 0
        """The epoch that Redis had when it was last asked."""
        self._least = 0
        """The highest that was ever in use: with a lower one Redis gives nothing. One on its way to it does not count,
        or all who ask meanwhile would have another one given."""
        self._was_up = self._was_without = False
        self._returning = False
        """Redis has come back, or is about to: it has its epoch, and whatever the store gives now has a higher one."""
        self._raising = asyncio.Lock()
        root = link.address.key("leases")
        self._fence, self._held, self._unsure = f"{root}:fence", f"{root}:held", f"{root}:unsure"
        self._homes = f"{root}:homes"
        self._root = f"{root}:of:"

    # --- the contract ------------------------------------------------------------------------------------------------

    async def acquire(self, name: str, owner: str, lease_s: float) -> Granted | Held:
        """Give the lease to the owner for so long, unless somebody else has it."""
        try:
            return await self._acquire(name, owner, lease_s)
        except Gone as error:
            # One who was frozen itself takes Redis for gone too, until the next beat: what it knows of who holds what
            # is over by then, and the store would give what others have. And of several homes nobody can take over.
            if (self.several or self._link.still) and await self._link.back(BACK_S):
                with contextlib.suppress(Gone):
                    return await self._acquire(name, owner, lease_s)
            if self.several:
                raise _no_keeper(name, self._link.reason) from error
            return await self._acquire_local(name, owner, lease_s)

    async def renew(self, name: str, token: int, lease_s: float) -> bool:
        """Have it for so long from now on. Raises UnavailableError when the one who gave it does not answer."""
        if self._local.has(name, token):
            return await self._renew_local(name, token, lease_s)
        try:
            answer = await self._link.call(RENEW, (self._root + name, self._held), name, *_parts(token), _us(lease_s))
        except Gone as error:
            raise _no_answer(name, token, error) from error
        if answer == 1:
            self._known[name] = _now_s() + lease_s
        return answer == 1

    async def release(self, name: str, token: int) -> bool:
        """Give it up."""
        released = False
        if self._local.has(name, token):
            self._carried.pop((name, token), None)
            released = await self._local.release(name, token)
        self._known.pop(name, None)  # Also if Redis cannot be told: nobody acts on it any more.
        keys = (self._root + name, self._held, self._unsure)
        try:
            answer = await self._link.call(RELEASE, keys, name, *_parts(token))
        except Gone as error:
            if released:
                return True
            raise _no_answer(name, token, error) from error
        return released or answer == 1

    # --- what becomes of Redis ---------------------------------------------------------------------------------------

    async def returned(self) -> None:
        """Redis is there: what the store gave meanwhile is written down in it, and its epoch is above all others."""
        self._returning = True
        epoch = await self._look()  # Before the store is troubled for one who is not there.
        if self._was_without or 0 < epoch < self._epochs.highest:
            try:
                await self._raise(pause_s=RETURN_S)
            except UnavailableError as error:
                raise Gone(f"the store gives no epoch for its leases: {error.what}") from error
        for name, token in list(self._carried):
            await self._write_down(name, token)
        self._was_up, self._was_without = True, False

    async def beat(self) -> None:
        """Remember what is held: it is needed when Redis is gone."""
        self._saw(await self._look())

    async def learn(self) -> None:
        """One who is cut off from Redis has leases of the store, with epochs of which Redis knows nothing."""
        self._least = max(self._least, await self._epochs.learn())

    def lost(self) -> None:
        """Redis is gone from now on."""
        self._was_without, self._returning = True, False

    async def _look(self) -> int:
        """See what is held, and whether other homes are there; returns the epoch, 0 for none."""
        keys = (self._held, self._homes, self._fence)
        homes, epoch, *found = cast("list[str]", await self._link.ask(BEAT, keys, str(NAMES_MAX), self.home))
        self.several = int(homes) > 1
        now_s = _now_s()
        left = [int(left_us) / MICRO for left_us in found[1::2]]
        known = {name: now_s + left_s for name, left_s in zip(found[::2], left, strict=True)}
        if self._was_without or int(epoch) != self._seen:
            # It may have forgotten some of what was held, or all of it.
            known = {**{name: end_s for name, end_s in self._known.items() if end_s > now_s}, **known}
        self._known, self._seen = known, int(epoch)
        self._others_s = now_s + left[-1] if len(left) >= NAMES_MAX else 0.0
        return int(epoch)

    # --- in Redis ----------------------------------------------------------------------------------------------------

    async def _acquire(self, name: str, owner: str, lease_s: float) -> Granted | Held:
        keys = (self._root + name, self._fence, self._held, self._unsure)
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
        """Give Redis a new epoch. Those of one process who find that it needs one do so one after the other.

        It pauses for those who come back with leases of the store; one who is cut off does not.
        """
        async with self._raising, self._epochs.held() as epoch:
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
        """Have a lease of the store in Redis as well, so that Redis gives it to nobody else."""
        owner, since_s, lease_s = self._carried[name, token]
        values = (name, owner, *_parts(token), _us(_now_s() - since_s), _us(lease_s))
        if not await self._link.ask(ADOPT, (self._root + name, self._held), *values):
            log.warning("lease %r with token %d of the store is held in Redis by somebody else too.", name, token)

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
        """Redis came back while the store was asked: its next lease must have a higher token than this one."""
        try:
            await self._raise()
            await self._write_down(name, token)
        except Gone:
            self._returning = False  # It is gone again, and is given an epoch when it returns.

    async def _renew_local(self, name: str, token: int, lease_s: float) -> bool:
        held = await self._local.renew(name, token, lease_s)
        if not held:
            self._carried.pop((name, token), None)
        elif self._link.up:
            try:
                await self._write_down(name, token)
            except Gone:
                log.debug("lease %r of the store cannot be written down in Redis now.", name)
        return held


def _now_s() -> float:
    return asyncio.get_running_loop().time()


def _parts(token: int) -> tuple[str, str]:
    return str(token >> COUNT_BITS), str(token & ((1 << COUNT_BITS) - 1))


def _us(seconds: float) -> str:
    return str(round(seconds * MICRO))


def _no_keeper(name: str, reason: str) -> UnavailableError:
    return UnavailableError(
        f"lease {name!r} cannot be had: Redis does not answer ({reason}).",
        why="Engines with other stores share its leases, and the store of this one does not keep them apart.",
        fix="Start Redis again. Engines that should go on without it have one store, or each a prefix of its own: "
        "redis://…?prefix=shop.",
    )


def _no_answer(name: str, token: int, error: Gone) -> UnavailableError:
    return UnavailableError(
        f"Redis does not answer, and lease {name!r} with token {token} is there: {error}",
        why="Only who gave a lease can renew it.",
        fix="Nothing to do: it is lost when its time is over, and can then be had from the store.",
    )
