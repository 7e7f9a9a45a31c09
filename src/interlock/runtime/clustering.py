"""An engine in a cluster: what of it is shared through Redis, and who is told when Redis is gone and when it is back.

Redis is an option. An engine that has been given its address opens without it as well, and says so.

A home is a store, whoever has it open. Its name is noted in it when it first meets a Redis, so that the engines of one
home know each other there.
"""

import asyncio
import contextlib
from collections.abc import Iterable, Mapping

from interlock.coordination.addresses import Address
from interlock.coordination.cluster import Cluster
from interlock.coordination.fences import read_highest
from interlock.coordination.tokens import SharedTokens
from interlock.core.policies import TokenRate
from interlock.errors import InterlockError
from interlock.redaction import logger_of
from interlock.runtime.alerts.alert import redis_alert
from interlock.runtime.given import Given
from interlock.runtime.leases import LeaseBook, Leasing
from interlock.runtime.resilience.outlets import Outlet
from interlock.runtime.resilience.shared import Shared
from interlock.signals import RedisChanged
from interlock.store.leases import Granted, Held
from interlock.store.protocol import Store

log = logger_of("interlock.operators")

INGRESS = "ingress"

HOME = "redis:home"
"""The note with the name of the home."""

SEVERAL = "redis:several"
"""The note that tells whether other homes share the leases."""

GONE = "redis:gone"
"""The note that tells whether somebody was told that Redis is gone, and nobody that it is back."""

NAMING = "interlock.redis.home"
"""The lease under which a home is named, so that it is named once."""

NAMING_WAIT_S, NAMING_LEASE_S = 10.0, 5.0

LEARN_BEATS = 10
"""Every five seconds the store is asked whether somebody who is cut off from Redis has had leases from it."""

LEAVE_S = 2.0
"""How long saying goodbye may take."""


class Clustered:
    """The part of one engine that is shared with others. Lives in one event loop."""

    def __init__(self, store: Store, given: Given, address: Address) -> None:
        self._store = store
        self._given = given
        self._address = address
        self._noted_several = False
        self._beats = 0
        self._alerted = self._noted_gone = False
        self._noting: asyncio.Task[None] | None = None
        self._shared: list[Shared] = []
        self._ingress: SharedTokens | None = None
        self._cluster = Cluster(
            address,
            store.leases,
            clock=given.clock,
            chance=given.chance,
            ids=given.ids,
            notes=store,
            changed=self._changed,
        )
        self._cluster.link.listen(self)

    @property
    def up(self) -> bool:
        """Whether Redis answers."""
        return self._cluster.link.up

    @property
    def where(self) -> str:
        """The address of Redis, for people."""
        return self._address.shown

    @property
    def reason(self) -> str:
        """Why Redis is taken for gone, while it is."""
        return self._cluster.link.reason

    # --- leases ------------------------------------------------------------------------------------------------------

    async def acquire(self, name: str, owner: str, lease_s: float) -> Granted | Held:
        """A lease of the cluster; while Redis is gone, of the store."""
        return await self._cluster.leases.acquire(name, owner, lease_s)

    async def renew(self, name: str, token: int, lease_s: float) -> bool:
        """Have it for so long from now on."""
        return await self._cluster.leases.renew(name, token, lease_s)

    async def release(self, name: str, token: int) -> bool:
        """Give it up."""
        return await self._cluster.leases.release(name, token)

    # --- limits and breakers -----------------------------------------------------------------------------------------

    def share(self, outlets: Iterable[Outlet]) -> None:
        """Have these breakers and rates in common with the others."""
        given = self._given
        self._shared += [Shared(outlet, self._cluster.link, given.clock, given.ids) for outlet in outlets]

    def ingress(self, rate: TokenRate | None) -> SharedTokens | None:
        """The tokens for what the engine takes in."""
        if self._ingress is not None:
            self._ingress.retire()
        link, clock = self._cluster.link, self._given.clock
        self._ingress = None if rate is None else SharedTokens(link, INGRESS, rate, clock, _nobody)
        return self._ingress

    # --- beginning and end -------------------------------------------------------------------------------------------

    async def begin(self, noted: Mapping[str, str], leases: LeaseBook) -> None:
        """Connect, if Redis is there."""
        home = noted.get(HOME) or await self._named(leases)
        self._noted_several = noted.get(SEVERAL) == "yes"
        # What the last life has told is not told again; and if Redis is back by now, that is.
        self._alerted = self._noted_gone = noted.get(GONE) == "yes"
        await self._cluster.begin(home, highest=read_highest(noted), several=self._noted_several)

    async def _named(self, leases: LeaseBook) -> str:
        """Name the home, unless somebody was faster."""
        async with Leasing(leases, NAMING, wait_s=NAMING_WAIT_S, lease_s=NAMING_LEASE_S):
            home = (await self._store.noted()).get(HOME)
            if home is None:
                home = self._given.ids.text()
                await self._store.note(HOME, home)
        return home

    async def returned(self) -> None:
        """Redis is there."""

    async def beat(self) -> None:
        """Note what the next life needs to know, if it has changed, and see what others have noted."""
        several = self._cluster.leases.several
        self._beats += 1
        with contextlib.suppress(InterlockError):
            if self._beats % LEARN_BEATS == 0:
                await self._cluster.leases.learn()
            await self._cluster.epochs.save()
            if several != self._noted_several:
                await self._store.note(SEVERAL, "yes" if several else "no")
                self._noted_several = several

    async def close(self) -> None:
        """Leave the cluster: say what is owed to the others, unless that takes too long, and go."""
        leaving = [each.close() for each in self._shared]
        if self._ingress is not None:
            leaving.append(self._ingress.close())
        try:
            async with asyncio.timeout(LEAVE_S):
                await asyncio.gather(*leaving)
        except TimeoutError:
            log.warning(
                "Redis at %s did not take a leave in %g s; what is held there ends by itself.", self.where, LEAVE_S
            )
        finally:
            await self._cluster.close()
            if self._noting is not None and (await asyncio.wait([self._noting], timeout=LEAVE_S))[1]:
                self._noting.cancel()
                await asyncio.wait([self._noting])

    def _changed(self, up: bool, reason: str) -> None:  # noqa: FBT001 -- the one thing that changes.
        given = self._given
        given.subscribers.emit(RedisChanged(self.where, up=up, reason=reason))
        if up != self._alerted:
            return  # It was there from the beginning.
        self._alerted = not up
        given.alarms.tell(redis_alert(self.where, reason, int(given.clock.wall_s() * 1_000_000), resolved=up))
        if self._noting is None or self._noting.done():
            self._noting = asyncio.get_running_loop().create_task(self._note_gone())
        for shared in self._shared:
            shared.stir()  # What waits for a permit or a token of the others need not wait for them now.

    async def _note_gone(self) -> None:
        """For the next life. A store that cannot take it is no reason to stop."""
        with contextlib.suppress(InterlockError):
            while self._noted_gone != self._alerted:
                told = self._alerted
                await self._store.note(GONE, "yes" if told else "no")
                self._noted_gone = told


def clustered(store: Store, given: Given) -> Clustered | None:
    """The cluster of an engine; None without Redis."""
    return None if given.redis is None else Clustered(store, given, given.redis)


def _nobody() -> None:
    """Nobody waits at the ingress: whoever is refused comes back."""
