"""Leases as programs use them: wait for one, hold it while a block runs, give it up. Over any keeper of leases (C10).

Whoever finds a lease held asks again after 100 to 300 ms, by chance, so that those who wait do not ask in step. What is
held is renewed in the background, three times in the time it lasts. A lease is lost when its keeper says so, and also
when it could not be renewed in time: then somebody else may have it. How long it lasts is counted here from before each
request left, by this process's own monotonic clock, so that a holder gives up no later than its keeper does (C11).

A lost lease stays lost. The block is not interrupted, for nobody knows where that would be safe: it asks `check()`
before what must not happen twice, and hands `token` to whoever can refuse a lower one.
"""

import asyncio
import os
import socket
from collections.abc import Coroutine
from datetime import UTC, datetime
from types import TracebackType

from interlock.errors import (
    BadUsage,
    Fenced,
    InterlockError,
    LeaseHeld,
    MovedElsewhere,
    OutcomeUnknown,
    UnavailableError,
)
from interlock.redaction import logger_of
from interlock.runtime.envelopes import check_id
from interlock.seams import Chance, Ids
from interlock.store.leases import Granted, Held, Leases

log = logger_of("interlock.operators")

WAIT_S = 10.0
LEASE_S = 30.0

LEASE_S_MIN = 1.0
"""A shorter lease would be over before it could be renewed once or twice."""

PAUSE_S = 0.1
PAUSE_MORE_S = 0.2
"""Between two requests for what somebody else holds: 100 ms, and up to 200 ms more by chance."""

RENEWALS = 3
"""In the time that a lease lasts: one that fails leaves time for another."""

DAY_S = 86_400


class Lease:
    """A lease that was given. Made by `engine.lease(…)`, and given up when its block is left."""

    def __init__(self, leases: Leases, name: str, token: int, *, lease_s: float, until_s: float) -> None:
        self.name = name
        self.token = token
        """Higher than that of anybody who has held this name before."""
        self._leases = leases
        self._lease_s = lease_s
        self._until_s = until_s
        self._ended = False
        self._loop = asyncio.get_running_loop()

    @property
    def lost(self) -> bool:
        """Whether somebody else may have it by now, as far as is known here. Once lost it stays lost."""
        if self._loop.time() >= self._until_s:
            self._ended = True
        return self._ended

    def check(self) -> None:
        """Raise Fenced when it is lost. Asks nobody: cheap enough to stand before every write."""
        if self.lost:
            raise Fenced(
                f"lease {self.name!r} with token {self.token} is lost.",
                why="It was given to somebody else, or could not be renewed before its time was over.",
                fix="Stop what it was held for; somebody else may be doing it. Ask for the lease again to go on.",
            )

    async def held(self) -> bool:
        """Ask the keeper, and renew it if it is still held. Raises UnavailableError when the keeper does not answer."""
        if not self.lost:
            asked_s = self._loop.time()
            if not await self._leases.renew(self.name, self.token, self._lease_s):
                self.end()
            elif not self.lost:  # An answer that came too late does not bring it back.
                self._until_s = asked_s + self._lease_s
        return not self.lost

    def go_along(self, leases: Leases) -> None:
        """Another keeper has it from now on, under the same token."""
        self._leases = leases

    def end(self) -> None:
        """It is over, whatever its time."""
        self._ended = True


class Leasing:
    """A lease that is about to be held: `async with engine.lease(…) as lease`."""

    def __init__(self, book: "LeaseBook", name: str, *, wait_s: float, lease_s: float) -> None:
        check_id(name, "the name of a lease")
        if not wait_s >= 0:
            raise _out_of_range("wait_s", wait_s, "0 or more; 0 asks once")
        if not LEASE_S_MIN <= lease_s < float("inf"):
            raise _out_of_range("lease_s", lease_s, f"{LEASE_S_MIN:g} or more, and not for ever")
        self._book = book
        self._name = name
        self._wait_s = wait_s
        self._lease_s = lease_s
        self._lease: Lease | None = None

    async def __aenter__(self) -> Lease:
        """Wait for it. Raises LeaseHeld when the time is over."""
        self._lease = await self._book.take(self._name, wait_s=self._wait_s, lease_s=self._lease_s)
        return self._lease

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Give it up, whatever happened inside. Raises nothing of its own."""
        del kind, error, trace
        assert self._lease is not None
        await self._book.give_up(self._lease)


class LeaseBook:
    """The leases that one engine holds. Lives in one event loop."""

    def __init__(self, leases: Leases, *, chance: Chance, ids: Ids) -> None:
        self._leases = leases
        self._chance = chance
        self._ids = ids
        self._held: dict[Lease, asyncio.Task[None]] = {}
        """With what renews it."""
        self._beside: set[asyncio.Task[None]] = set()
        self.between = False
        """Whether its keeper is gone, and another is on its way."""
        self._loop = asyncio.get_running_loop()

    @property
    def keeper(self) -> Leases:
        """Who gives them."""
        return self._leases

    def go_along(self, leases: Leases) -> None:
        """Another keeper has them from now on. One that does not know of a lease that is held here ends it."""
        self._leases, self.between = leases, False
        for lease in self._held:
            lease.go_along(leases)

    async def take(self, name: str, *, wait_s: float, lease_s: float) -> Lease:
        """Wait for the lease and hold it. Raises LeaseHeld when the time is over."""
        # Its own for each request: tasks of one process are kept apart, and a request of which nobody knows whether it
        # was granted is granted when it is repeated.
        owner = f"{socket.gethostname()}:{os.getpid()}/{self._ids.text()[:8]}"
        end_s = self._loop.time() + wait_s
        while True:
            asked_s = self._loop.time()
            answer = await self._ask(name, owner, lease_s)
            now_s = self._loop.time()
            if isinstance(answer, Granted) and now_s < asked_s + lease_s:
                lease = Lease(self._leases, name, answer.token, lease_s=lease_s, until_s=asked_s + lease_s)
                self._held[lease] = self._loop.create_task(self._renew(lease, lease_s / RENEWALS))
                return lease
            if now_s >= end_s:
                raise _not_given(name, answer, wait_s)
            await asyncio.sleep(min(end_s - now_s, self._pause_s()))

    async def give_up(self, lease: Lease) -> None:
        """Release it, unless it was given up before. What goes wrong is told to the log: it ends by itself."""
        renewing = self._held.pop(lease, None)
        if renewing is None:
            return
        renewing.cancel()
        if lease.lost:
            log.warning(
                "the block of lease %r with token %d has ended after the lease was lost.", lease.name, lease.token
            )
        lease.end()
        await asyncio.shield(self._start(self._release(lease.name, lease.token)))

    async def close(self) -> None:
        """Give everything up that is still held: nobody renews it any more."""
        await asyncio.gather(*map(self.give_up, list(self._held)))
        while self._beside:
            await asyncio.wait(self._beside)

    async def _ask(self, name: str, owner: str, lease_s: float) -> Granted | Held | UnavailableError:
        asking = asyncio.ensure_future(self._leases.acquire(name, owner, lease_s))
        try:
            return await asyncio.shield(asking)
        except OutcomeUnknown as error:
            return error
        except UnavailableError as error:
            if self.between or isinstance(error, MovedElsewhere):
                return error  # Asked again, there is another keeper.
            raise
        except asyncio.CancelledError:
            # It may be granted all the same, and nobody would give it up.
            _ = self._start(self._disown(name, asking))
            raise

    async def _disown(self, name: str, asking: "asyncio.Future[Granted | Held]") -> None:
        try:
            answer = await asking
        except InterlockError:
            return
        if isinstance(answer, Granted):
            await self._release(name, answer.token)

    async def _release(self, name: str, token: int) -> None:
        try:
            await self._leases.release(name, token)
        except UnavailableError as error:
            log.warning("lease %r with token %d could not be released and ends by itself: %s", name, token, error.what)

    async def _renew(self, lease: Lease, every_s: float) -> None:
        """Renew it until it is lost or given up."""
        pause_s, problem = every_s, "it was given to somebody else"
        while not lease.lost:
            await asyncio.sleep(pause_s)
            pause_s = every_s
            try:
                await lease.held()
            except UnavailableError as error:
                pause_s, problem = self._pause_s(), f"it could not be renewed: {error.what}"
        log.warning("lease %r with token %d is lost while its block runs: %s.", lease.name, lease.token, problem)

    def _pause_s(self) -> float:
        return PAUSE_S + PAUSE_MORE_S * self._chance.fraction()

    def _start(self, work: Coroutine[object, object, None]) -> "asyncio.Task[None]":
        task = self._loop.create_task(work)
        self._beside.add(task)
        task.add_done_callback(self._beside.discard)
        return task


def _not_given(name: str, answer: Granted | Held | UnavailableError, wait_s: float) -> InterlockError:
    match answer:
        case UnavailableError():
            return answer
        case Granted():
            return UnavailableError(
                f"lease {name!r} was given, and was over before the answer was here.",
                why="The store took longer to answer than the lease lasts.",
                fix="Ask for a longer lease (lease_s), and look at why the store is slow.",
            )
        case Held(owner, since_us, now_us):
            since, for_s = datetime.fromtimestamp(since_us / 1_000_000, UTC), (now_us - since_us) / 1_000_000
            day = f"{since:%Y-%m-%d} " if for_s >= DAY_S else ""
            waited = f" It was waited for {wait_s:g} s." if wait_s else ""
            return LeaseHeld(
                f"lease {name!r} is held by {owner} since {day}{since:%H:%M:%S} UTC (for {for_s:,.0f} s).{waited}",
                lease=name,
                owner=owner,
                since=since,
            )


def _out_of_range(name: str, given: float, allowed: str) -> BadUsage:
    return BadUsage(
        f"{name} of a lease is {given!r}; it must be {allowed}.",
        why="A lease is waited for, and lasts, for a number of seconds.",
        fix=f"Give {name} a value that is allowed.",
    )
