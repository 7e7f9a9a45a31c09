"""Leases, limits and breakers that an engine shares through Redis, and alerts when Redis is lost and back.

Redis is optional. An engine with the address of a Redis that does not answer opens too, and raises an alert.

A home is a store, for all engines that open it. Its name is noted in the store at the first connection to a Redis, so
that the engines of one home recognise each other there.
"""

import asyncio
import contextlib
import math
from collections.abc import Iterable, Mapping

import msgspec

from interlock.clock import Chance, Clock, Ids
from interlock.core.policies import FIRST_WAVE, Circuit, TokenRate
from interlock.engine.alerts.alert import redis_alert
from interlock.engine.alerts.delivery import Alarms
from interlock.engine.dependencies.outlet import ClusterPeers, Forced, Outlet
from interlock.engine.leases import LeaseBook, Leasing
from interlock.errors import InterlockError
from interlock.redaction import logger_of
from interlock.redis.cluster_breakers import ClusterBreaker, SharedBreaker, SharedTokens
from interlock.redis.connection import RedisLink
from interlock.redis.shared_leases import Epochs, SharedLeases, read_highest
from interlock.signals import RedisChanged, Subscribers
from interlock.store.protocol import Leases, Store
from interlock.urls import RedisAddress

# --- Shared dependency -----------------------------------------------------------------------------------------------

KEYS_SHARED_MAX = 256
"""Keys of one dependency whose tokens a process holds; each is asked for with the beat of the link."""


class SharedDependency:
    """Connect an outlet with the cluster. The engine that uses it creates and closes it.

    The outlet still decides (0010). While Redis answers, the cluster opens and closes it, permits its probes, and
    limits the rate of all processes together.
    """

    def __init__(self, outlet: Outlet, link: RedisLink, clock: Clock, ids: Ids) -> None:
        self._outlet = outlet
        self._link = link
        self._clock = clock
        self._tokens: SharedTokens | None = None
        self._key_tokens: dict[str, SharedTokens] = {}
        """Of the keys that called last (E8)."""
        breaker = outlet.breaker
        self._breaker = SharedBreaker(
            link, outlet.declared.name, self, ids, probes=breaker.probes, reset_s=breaker.reset_s
        )
        # What the outlet asks and announces about its breaker is for the cluster's.
        shared = self._breaker
        self.may_probe, self.probed = shared.may_probe, shared.probed
        self.announce, self.forced = shared.announce, shared.forced
        self.before: ClusterPeers | None = outlet.others
        self.closed = False
        outlet.others = self
        self._limit()

    @property
    def up(self) -> bool:
        """Whether Redis can be reached."""
        return self._link.up

    async def close(self) -> None:
        """Return the outlet to this process alone, or to another engine's `SharedDependency`."""
        self.closed = True
        while isinstance(last := self._outlet.others, SharedDependency) and last.closed:
            self._outlet.others = last.before
        await self._breaker.close()
        await asyncio.gather(*(each.close() for each in (self._tokens, *self._key_tokens.values()) if each is not None))

    # --- from the outlet ---------------------------------------------------------------------------------------------

    def token(self, now_s: float, *, take: bool) -> float | None:
        """Take or preview a token of the shared rate. Returns None, for the outlet's own rate, while Redis is down."""
        del now_s
        self._limit()
        if self._tokens is None or not self._link.up:
            return None
        if take:
            return 0.0 if self._tokens.take() else math.inf
        return self._tokens.wait_s()

    def key_token(self, key: str, *, take: bool) -> float | None:
        """Take or preview a token of the shared rate of a key. Returns None, for this process's own, without Redis."""
        rate = self._outlet.keys.rate
        if rate is None or not self._link.up:
            return None
        tokens = self._key_tokens.pop(key, None)
        if tokens is None or tokens.rate != rate:
            if tokens is not None:
                tokens.retire()
            name = f"dependency:{self._outlet.declared.name}:key:{key}"
            tokens = SharedTokens(self._link, name, rate, self._clock, lambda: self._outlet.free_key(key))
        self._key_tokens[key] = tokens  # The last one of the dictionary called last.
        if len(self._key_tokens) > KEYS_SHARED_MAX:
            self._key_tokens.pop(next(iter(self._key_tokens))).retire()
        if take:
            return 0.0 if tokens.take() else math.inf
        return tokens.wait_s()

    def return_key_token(self, key: str) -> None:
        """Take back the token of a call of this key that was not made."""
        tokens = self._key_tokens.get(key)
        if tokens is not None:
            tokens.put_back()

    def _limit(self) -> None:
        """Follow the outlet's rate, which may change at any time."""
        rate = self._outlet.rate
        if rate == (None if self._tokens is None else self._tokens.rate):
            return
        if self._tokens is not None:
            self._tokens.retire()
        name = f"dependency:{self._outlet.declared.name}"
        self._tokens = None if rate is None else SharedTokens(self._link, name, rate, self._clock, self.stir)

    # --- from the cluster --------------------------------------------------------------------------------------------

    def follow(self, state: ClusterBreaker) -> None:
        """Adopt the state of the cluster's breaker. Calls under way here stay counted."""
        now_s = self._clock.monotonic_s()
        let_go = self._outlet.forced == "open" and state.forced is None

        def turned(before: Circuit) -> Circuit:
            if state.opened:
                retry_at_s = now_s + state.opens_in_s
                return msgspec.structs.replace(before, opened=True, retry_at_s=retry_at_s, wave=0, undos_failed=False)
            if before.opened or let_go:
                return Circuit(wave=FIRST_WAVE, closed_at_s=now_s, probes=before.probes, undos=before.undos)
            return before

        self._outlet.follow(turned, state.forced, state.reason, by_hand=state.forced_changed)

    def stir(self) -> None:
        """Notify the outlet's users that a refused call may be admitted now."""
        self._outlet.stir()

    def standing(self) -> tuple[bool, float, Forced | None, str]:
        """Return the breaker's state here: opened, seconds until probes, forced, reason."""
        outlet = self._outlet
        circuit = outlet.circuit
        opens_in_s = max(0.0, circuit.retry_at_s - self._clock.monotonic_s())
        return circuit.opened, opens_in_s, outlet.forced, outlet.reason


# --- Cluster of an engine --------------------------------------------------------------------------------------------

log = logger_of("interlock.operators")

INGRESS = "ingress"

HOME = "redis:home"
"""The note with the name of the home."""

SEVERAL = "redis:several"
"""The note that is "yes" if other homes share the leases."""

GONE = "redis:gone"
"""The note that is "yes" while an alert about a lost Redis is open."""

NAMING = "interlock.redis.home"
"""The lease under which a home is named, so that it is named once."""

NAMING_WAIT_S, NAMING_LEASE_S = 10.0, 5.0

LEARN_BEATS = 10
"""Every ten beats, five seconds, the store is asked for leases granted to engines that are cut off from Redis."""

LEAVE_S = 2.0
"""The longest time for leaving the cluster."""


class Clustered:
    """The part of one engine that is shared with others. Lives in one event loop."""

    def __init__(
        self,
        store: Store,
        address: RedisAddress,
        *,
        clock: Clock,
        chance: Chance,
        ids: Ids,
        subscribers: Subscribers,
        alarms: Alarms,
    ) -> None:
        self._store = store
        self._address = address
        self._clock = clock
        self._ids = ids
        self._subscribers = subscribers
        self._alarms = alarms
        self._noted_several = False
        self._beats = 0
        self._alerted = self._noted_alert = False
        self._noting: asyncio.Task[None] | None = None
        self._shared: list[SharedDependency] = []
        self._ingress: SharedTokens | None = None
        self._link = RedisLink(address, chance, self._changed)
        self._epochs = Epochs(store.leases, chance, ids, notes=store)
        self._leases = SharedLeases(self._link, store.leases, self._epochs, clock)
        self._link.listen(self._leases)  # The first: Redis may grant no lease before it has its epoch.
        self._link.listen(self)

    @property
    def up(self) -> bool:
        """Whether Redis answers."""
        return self._link.up

    @property
    def where(self) -> str:
        """The address of Redis, for people."""
        return self._address.redacted_url

    @property
    def leases(self) -> Leases:
        """The leases of the cluster; while Redis is lost, of the store."""
        return self._leases

    # --- limits and breakers -----------------------------------------------------------------------------------------

    def share(self, outlets: Iterable[Outlet]) -> None:
        """Share these breakers and rates with the other engines."""
        self._shared += [SharedDependency(outlet, self._link, self._clock, self._ids) for outlet in outlets]

    def ingress(self, rate: TokenRate | None) -> SharedTokens | None:
        """Return the shared tokens of the engine's admission rate; None without a rate."""
        if self._ingress is not None:
            self._ingress.retire()
        self._ingress = None
        if rate is not None:
            self._ingress = SharedTokens(self._link, INGRESS, rate, self._clock, _wake_no_caller)
        return self._ingress

    # --- beginning and end -------------------------------------------------------------------------------------------

    async def begin(self, notes: Mapping[str, str], leases: LeaseBook) -> None:
        """Connect. A Redis that does not answer does not stop the engine: the link retries until it does."""
        home = notes.get(HOME) or await self._name_home(leases)
        self._noted_several = notes.get(SEVERAL) == "yes"
        # An alert of the last engine is not repeated; if Redis is back by now, the alert is resolved.
        self._alerted = self._noted_alert = notes.get(GONE) == "yes"
        self._epochs.saw(read_highest(notes))
        self._leases.home, self._leases.several = home, self._noted_several
        await self._link.begin()

    async def _name_home(self, leases: LeaseBook) -> str:
        """Name the home, unless another engine was faster."""
        async with Leasing(leases, NAMING, wait_s=NAMING_WAIT_S, lease_s=NAMING_LEASE_S):
            home = (await self._store.notes()).get(HOME)
            if home is None:
                home = self._ids.text()
                await self._store.note(HOME, home)
        return home

    async def returned(self) -> None:
        """Do nothing when Redis is back: each part reacts by itself."""

    async def beat(self) -> None:
        """Note what the next engine needs, if it has changed, and read the notes of the others."""
        several = self._leases.several
        self._beats += 1
        with contextlib.suppress(InterlockError):
            if self._beats % LEARN_BEATS == 0:
                await self._leases.learn()
            await self._epochs.save()
            if several != self._noted_several:
                await self._store.note(SEVERAL, "yes" if several else "no")
                self._noted_several = several

    async def close(self) -> None:
        """Leave the cluster. Return permits and tokens to the others, for at most `LEAVE_S`."""
        leaving = [each.close() for each in self._shared]
        if self._ingress is not None:
            leaving.append(self._ingress.close())
        try:
            async with asyncio.timeout(LEAVE_S):
                await asyncio.gather(*leaving)
        except TimeoutError:
            log.warning(
                "Redis at %s did not answer within %g s while leaving; leases there expire by themselves.",
                self.where,
                LEAVE_S,
            )
        finally:
            await self._link.close()
            if self._noting is not None and (await asyncio.wait([self._noting], timeout=LEAVE_S))[1]:
                self._noting.cancel()
                await asyncio.wait([self._noting])

    def _changed(self, up: bool, reason: str) -> None:  # noqa: FBT001 -- the one thing that changes.
        if not up:
            self._leases.lost()
        self._subscribers.emit(RedisChanged(self.where, up=up, reason=reason))
        if up != self._alerted:
            return  # Redis was up from the beginning.
        self._alerted = not up
        self._alarms.tell(redis_alert(self.where, reason, int(self._clock.wall_s() * 1_000_000), resolved=up))
        if self._noting is None or self._noting.done():
            self._noting = asyncio.get_running_loop().create_task(self._note_alert())
        for shared in self._shared:
            shared.stir()  # Calls that wait for a permit or a token of the others can go on without them.

    async def _note_alert(self) -> None:
        """Note whether the alert is open, for the next engine. Errors of the store are ignored."""
        with contextlib.suppress(InterlockError):
            while self._noted_alert != self._alerted:
                alerted = self._alerted
                await self._store.note(GONE, "yes" if alerted else "no")
                self._noted_alert = alerted


def _wake_no_caller() -> None:
    """Do nothing: no call waits at the gate. Refused callers retry."""
