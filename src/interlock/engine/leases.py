"""Leases for programs: wait for one, hold it while a block runs, release it. Over any keeper of leases (C10).

A caller that finds a lease held retries after 100 to 300 ms, at random, so that waiters do not retry in step. A held
lease is renewed in the background, three times in its duration. A lease is lost when its keeper refuses the renewal, or
when it was not renewed in time: then another owner may have it. Its duration is counted from before each request,
by this process's monotonic clock. So the holder stops no later than the keeper expires it (C11).

A lost lease stays lost. The block is not interrupted, because no point in it is known to be safe: it calls `check()`
before each write that must not happen twice, and passes `token` to systems that refuse lower tokens.
"""

import asyncio
import os
import socket
from collections.abc import Coroutine
from datetime import UTC, datetime
from types import TracebackType

from interlock.clock import Chance, Ids
from interlock.engine.path.caller_commands import check_id
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
from interlock.store.protocol import Granted, Held, Leases

log = logger_of("interlock.operators")

WAIT_S = 10.0
LEASE_S = 30.0

LEASE_S_MIN = 1.0
"""A shorter lease would be over before it could be renewed once or twice."""

PAUSE_S = 0.1
PAUSE_MORE_S = 0.2
"""Pause between two requests for a lease of another owner: 100 ms, plus up to 200 ms at random."""

RENEWALS = 3
"""Renewals in the duration of a lease: a failed one leaves time for another."""

DAY_S = 86_400


class Lease:
    """A granted lease. Made by `engine.lease(…)`, and released when its block is left."""

    def __init__(self, leases: Leases, name: str, token: int, *, lease_s: float, until_s: float) -> None:
        self.name = name
        self.token = token
        """Higher than the token of every earlier holder of this name."""
        self._leases = leases
        self._lease_s = lease_s
        self._until_s = until_s
        self._ended = False
        self._loop = asyncio.get_running_loop()

    @property
    def lost(self) -> bool:
        """Whether another owner may have it by now, as far as this process knows. Once lost it stays lost."""
        if self._loop.time() >= self._until_s:
            self._ended = True
        return self._ended

    def check(self) -> None:
        """Raise Fenced when it is lost. Sends no request: cheap enough to call before every write."""
        if self.lost:
            raise Fenced(
                f"lease {self.name!r} with token {self.token} is lost.",
                why="It was granted to another owner, or could not be renewed before it expired.",
                fix="Stop the work that it protects; another owner may be doing it. Acquire the lease again to go on.",
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
        """Use another keeper from now on, with the same token."""
        self._leases = leases

    def end(self) -> None:
        """Mark it as lost before it expires."""
        self._ended = True


class Leasing:
    """Context manager that acquires a lease: `async with engine.lease(…) as lease`."""

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
        """Acquire the lease. Raises LeaseHeld after `wait_s`."""
        self._lease = await self._book.take(self._name, wait_s=self._wait_s, lease_s=self._lease_s)
        return self._lease

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Release the lease, also after an error in the block. Raises nothing of its own."""
        del kind, error, trace
        assert self._lease is not None
        await self._book.give_up(self._lease)


class LeaseBook:
    """The leases that one engine holds. Lives in one event loop."""

    def __init__(self, leases: Leases, *, chance: Chance, ids: Ids) -> None:
        self._leases = leases
        self._chance = chance
        self._ids = ids
        self._renewals: dict[Lease, asyncio.Task[None]] = {}
        """Held leases, each with the task that renews it."""
        self._tasks: set[asyncio.Task[None]] = set()
        self.between = False
        """Whether the keeper is being replaced: the workflows were moved."""
        self._loop = asyncio.get_running_loop()

    @property
    def keeper(self) -> Leases:
        """The store or cluster that grants the leases."""
        return self._leases

    def go_along(self, leases: Leases) -> None:
        """Use another keeper from now on. A lease that the new keeper does not know is lost at its next renewal."""
        self._leases, self.between = leases, False
        for lease in self._renewals:
            lease.go_along(leases)

    async def take(self, name: str, *, wait_s: float, lease_s: float) -> Lease:
        """Acquire the lease and keep it renewed. Raises LeaseHeld after `wait_s`."""
        # An owner for each request keeps tasks of one process apart. A repeated request with an unknown outcome is
        # granted, because its owner is the same.
        owner = f"{socket.gethostname()}:{os.getpid()}/{self._ids.text()[:8]}"
        end_s = self._loop.time() + wait_s
        while True:
            asked_s = self._loop.time()
            answer = await self._acquire(name, owner, lease_s)
            now_s = self._loop.time()
            if isinstance(answer, Granted) and now_s < asked_s + lease_s:
                lease = Lease(self._leases, name, answer.token, lease_s=lease_s, until_s=asked_s + lease_s)
                self._renewals[lease] = self._loop.create_task(self._renew(lease, lease_s / RENEWALS))
                return lease
            if now_s >= end_s:
                raise _not_granted(name, answer, wait_s)
            await asyncio.sleep(min(end_s - now_s, self._pause_s()))

    async def give_up(self, lease: Lease) -> None:
        """Release it, unless it was released before. A failure is only logged: the lease expires by itself."""
        renewing = self._renewals.pop(lease, None)
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
        """Release all leases that are still held, and stop renewing them."""
        await asyncio.gather(*map(self.give_up, list(self._renewals)))
        while self._tasks:
            await asyncio.wait(self._tasks)

    async def _acquire(self, name: str, owner: str, lease_s: float) -> Granted | Held | UnavailableError:
        asking = asyncio.ensure_future(self._leases.acquire(name, owner, lease_s))
        try:
            return await asyncio.shield(asking)
        except OutcomeUnknown as error:
            return error
        except UnavailableError as error:
            if self.between or isinstance(error, MovedElsewhere):
                return error  # The next request goes to the new keeper.
            raise
        except asyncio.CancelledError:
            # It may still be granted, and must then be released.
            _ = self._start(self._release_if_granted(name, asking))
            raise

    async def _release_if_granted(self, name: str, asking: "asyncio.Future[Granted | Held]") -> None:
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
        """Renew it until it is lost or released."""
        pause_s, problem = every_s, "it was granted to another owner"
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
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task


def _not_granted(name: str, answer: Granted | Held | UnavailableError, wait_s: float) -> InterlockError:
    match answer:
        case UnavailableError():
            return answer
        case Granted():
            return UnavailableError(
                f"lease {name!r} was granted, and expired before the answer arrived.",
                why="The store took longer to answer than the lease lasts.",
                fix="Pass a longer lease_s, and find out why the store is slow.",
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


def _out_of_range(name: str, value: float, allowed: str) -> BadUsage:
    return BadUsage(
        f"{name} of a lease is {value!r}; it must be {allowed}.",
        why="The wait for a lease and its duration are numbers of seconds.",
        fix=f"Pass an allowed value for {name}.",
    )
