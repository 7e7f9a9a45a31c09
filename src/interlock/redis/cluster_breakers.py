"""The breakers and rates of a cluster (C4, C7): what is open for one process is open for all.

Each process counts failures for itself. It reports the resulting state to Redis, with the generation that it knew. Of
two reports about one generation the first counts; the other process reads the result with its next beat. A probe needs
a permit. Permits are fetched in the background, so a process that wants to probe waits for one more round trip. A
process that dies with its permit delays the others for `reset_s`, as a probe that hangs does.

While Redis is gone every process has its own breaker, which continues from the cluster's state. When Redis is back, or
has lost its data, the process reports its own state, unless others have reported since. A state that a person has
forced meanwhile is reported in any case.
"""

import asyncio
import contextlib
import itertools
import math
import os
import socket
import threading
from collections import deque
from collections.abc import Callable, Coroutine
from typing import Literal, Protocol, cast

import msgspec

from interlock.clock import Clock, Ids
from interlock.core.policies import TokenBucket, TokenRate
from interlock.redis.connection import ABANDON, LOOK, PROBE, SAY, TAKE, Gone, RedisLink

MICRO = 1_000_000

Forced = Literal["open", "closed"]


class ClusterBreaker(msgspec.Struct, frozen=True):
    """The state of a breaker in the cluster."""

    opened: bool
    opens_in_s: float
    """Seconds until probes are admitted."""
    forced: Forced | None
    reason: str
    forced_changed: bool = False
    """Whether a person has forced or released it."""


class Here(Protocol):
    """The breaker of this process."""

    def follow(self, state: ClusterBreaker) -> None:
        """Take over the cluster's state."""
        ...

    def stir(self) -> None:
        """Try to probe: a permit has arrived, or it is time to request one."""
        ...

    def standing(self) -> tuple[bool, float, Forced | None, str]:
        """Return whether it is open, in how many seconds probes are admitted, how it is forced, and why."""
        ...


class SharedBreaker:
    """One breaker of the cluster, as this process knows it. Probes and changes may come from any thread."""

    def __init__(self, link: RedisLink, name: str, here: Here, ids: Ids, *, probes: int, reset_s: float) -> None:
        self._link = link
        self._here = here
        root = link.address.key("breaker", name)
        self._keys = (f"{root}:state", f"{root}:probes")
        self._me = f"{socket.gethostname()}:{os.getpid()}/{ids.text()[:8]}"
        self._probes = probes
        self._reset_s = reset_s
        self._ids = ids
        self._life: str = ""
        self._generation = 0
        self._lock = threading.Lock()
        self._permit: Literal["none", "asked", "here"] = "none"
        self._fresh = False
        """Whether the permit has come since the last beat."""
        self._permits = itertools.count(1)
        self._mine = ""
        """The name of the permit that was requested last."""
        self._used: deque[str] = deque()
        """The permits of the probes under way."""
        self._forced_unsent: tuple[Forced | None, str] | None = None
        """A state that a person has forced here, and Redis has not received yet."""
        self._tasks: set[asyncio.Task[None]] = set()
        self._reporting = asyncio.Lock()
        link.listen(self)

    @property
    def up(self) -> bool:
        """Whether Redis answers: only then the cluster decides."""
        return self._link.up

    # --- events of this process --------------------------------------------------------------------------------------

    def may_probe(self) -> bool:
        """Use the permit for a probe, if there is one; otherwise request one, and call `stir` when it arrives."""
        with self._lock:
            if not self._link.up:
                return True
            if self._permit == "here":
                self._permit = "none"
                self._used.append(self._mine)
                return True
            if self._permit == "asked":
                return False
            self._permit = "asked"
        if not self._start(self._ask_permit):
            self._permit = "none"
        return False

    def announce(self, *, opened: bool, reset_s: float, reason: str) -> None:
        """Report that it has opened here, or again because a probe has failed; or that a probe has closed it."""
        if opened:
            self._reset_s = reset_s
        self._start(lambda: self._report("open" if opened else "closed", reason))

    def forced(self, forced: Forced | None, reason: str) -> None:
        """Report that a person has forced it, or released it."""
        self._forced_unsent = (forced, reason)
        self._start(self._report_forced)

    def probed(self, *, announced: bool) -> None:
        """End a probe. One that reported nothing gives its permit back."""
        with self._lock:
            used = self._used.popleft() if self._used else ""
        if used and not announced:
            self._start(lambda: self._abandon(used))

    # --- events of the cluster ---------------------------------------------------------------------------------------

    async def returned(self) -> None:
        """Take over the cluster's state after Redis has come back."""
        with self._lock:
            self._permit = "none"
        await self._look()

    async def beat(self) -> None:
        """Read the reports of others, return an unused permit, and stir a probe that is due."""
        await self._look()
        unused = self._unused()
        if unused:
            await self._abandon(unused)
        opened, probes_in_s, forced, _ = self._here.standing()
        if opened and probes_in_s <= 0 and forced is None:
            self._here.stir()  # The process with the permit may have died.

    def _unused(self) -> str:
        """Take back a permit that was not used since the previous beat: others may need it."""
        with self._lock:
            if self._permit != "here":
                return ""
            if self._fresh:
                self._fresh = False
                return ""
            self._permit = "none"
            return self._mine

    async def close(self) -> None:
        """Stop reporting. Reports under way are completed, unless Redis does not answer."""
        self._link.ignore(self)
        if self._permit == "here":
            self._start(lambda: self._abandon(self._mine))
        await asyncio.sleep(0)  # A report of this moment has begun by then.
        if self._tasks:
            await asyncio.wait(self._tasks)

    async def _look(self) -> None:
        async with self._reporting:
            # Before reading: an automatic report of others does not undo what a person has forced.
            await self._send_forced()
            opened, forced_there = await self._read_cluster()
            opened_here, opens_in_s, forced, reason = self._here.standing()
            # A difference has come about since: while Redis was gone, or by its loss of data, or in this moment.
            if (forced or "") != forced_there:
                await self._send("force", reason, 0.0, forced)
            elif opened_here and not opened:
                await self._send("open", reason, opens_in_s)
            elif opened and not opened_here:
                await self._send("closed", reason, 0.0)

    async def _read_cluster(self) -> tuple[bool, str]:
        """Take over the cluster's state if it is new; return whether it is open there, and how it is forced."""
        answer = cast("list[str]", await self._link.ask(LOOK, self._keys[:1]))
        generation, state, opens_us, forced_there, reason, by, life = answer
        opened = state == "open"
        if int(generation) > self._generation or (life and life != self._life):
            self._life, self._generation = life, int(generation)
            forced = cast("Forced | None", forced_there or None)
            opened_here, _, forced_here, _ = self._here.standing()
            if by == self._me and (opened, forced) == (opened_here, forced_here):
                return opened, forced_there  # It was reported from here.
            full_reason = reason if by == self._me else f"{reason} (said by {by})"
            with self._lock:
                self._permit = "none"
            self._here.follow(ClusterBreaker(opened, int(opens_us) / MICRO, forced, full_reason, forced != forced_here))
        return opened, forced_there

    async def _report(self, what: str, reason: str) -> None:
        async with self._reporting:
            # Many reports may wait here. When one of them has found Redis gone, the others need not try one by one:
            # this process reports its state when Redis is back.
            if self._link.up:
                await self._send(what, reason, self._reset_s)

    async def _report_forced(self) -> None:
        async with self._reporting:
            if self._link.up:
                await self._send_forced()

    async def _send_forced(self) -> None:
        while (owed := self._forced_unsent) is not None:
            forced, reason = owed
            await self._send("force", reason, 0.0, forced)
            if self._forced_unsent is owed:
                self._forced_unsent = None

    async def _send(self, what: str, reason: str, reset_s: float, forced: Forced | None = None) -> None:
        """Report the state, and read the result: others may have been first."""
        how_long, new = str(round(reset_s * MICRO)), self._ids.text()
        values = (what, str(self._generation), how_long, forced or "", reason, self._me, self._life, new)
        await self._link.ask(SAY, self._keys, *values)
        await self._read_cluster()

    async def _ask_permit(self) -> None:
        self._mine = f"{self._me}/{next(self._permits)}"
        values = (str(self._generation), str(self._probes), self._mine, str(round(self._reset_s * MICRO)))
        granted: object = 0
        try:
            granted = await self._link.call(PROBE, self._keys, *values)
        finally:
            with self._lock:
                here = self._permit == "asked" and bool(granted)
                if self._permit == "asked":
                    self._permit, self._fresh = "here" if granted else "none", True
        if here:
            self._here.stir()

    async def _abandon(self, permit: str) -> None:
        await self._link.call(ABANDON, self._keys[1:], permit)

    def _start(self, work: Callable[[], Coroutine[object, object, None]]) -> bool:
        """Run it in the background, in the event loop of the link; return False when Redis is gone."""
        if self._link.up:
            with contextlib.suppress(RuntimeError):  # The loop may have ended since.
                self._link.loop.call_soon_threadsafe(self._begin, work)
                return True
        return False

    def _begin(self, work: Callable[[], Coroutine[object, object, None]]) -> None:
        task = self._link.loop.create_task(self._done(work))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _done(self, work: Callable[[], Coroutine[object, object, None]]) -> None:
        with contextlib.suppress(Gone):
            await work()


# --- Token bucket ----------------------------------------------------------------------------------------------------
# One bucket in Redis, and a batch of its tokens in every process (C7). A caller takes a token that is here already, so
# no caller waits for Redis. When half of a batch is spent, another one is fetched in the background: as many as were
# used lately, at least what the rate gives in 20 ms. A sudden burst borrows, up to what the bucket had when it was last
# asked, and pays with the next request. The bucket may then be in debt, and grants nothing before that is made up. So
# the cluster as a whole admits what the rate says, and each process that saw the bucket full may have one burst. Unused
# tokens go back. While Redis is gone each process has the whole rate to itself, without a burst, as of the last answer.

LEAST_S = 0.02
"""A request fetches at least what the rate gives in this time."""

PACE_S = 0.01
"""The pause between two requests of one process for one bucket: an empty one is not asked for every call."""

FRESH_S = 1.0
"""After this time the bucket's last level says nothing about what can be borrowed now."""

WAIT_S_MAX = 1.0


class SharedTokens:
    """One process's share of a bucket. May be used from any thread; fetching runs in the event loop of the link."""

    def __init__(self, link: RedisLink, key: str, rate: TokenRate, clock: Clock, stir: Callable[[], None]) -> None:
        self.rate = rate
        self._link = link
        self._key = link.address.key("limit", key)
        self._clock = clock
        self._stir = stir
        self._lock = threading.Lock()
        self._here = 0
        """Tokens of this process; a negative number is borrowed."""
        self._credit = 0
        """How many may still be borrowed."""
        self._asked_s = -math.inf
        self._begun_s = clock.monotonic_s()
        self._spent = self._spent_before = 0
        self._least = max(1, math.ceil(rate.rate_per_s * LEAST_S))
        self._wait_s = 0.0
        """Seconds until there is another token, as of the last answer."""
        self._fetching: asyncio.Task[None] | None = None
        self._fetched = True
        self._refused = self._closed = False
        self._bucket = rate.full(self._begun_s)
        """The bucket of this process, while Redis is gone."""
        self._shared = link.up
        link.listen(self)

    @property
    def is_shared(self) -> bool:
        """Whether the tokens are the cluster's; while Redis is gone they are this process's own."""
        return self._link.up

    def wait_s(self) -> float:
        """Return 0.0 when there is a token, otherwise the seconds until there is one; take nothing."""
        with self._lock:
            if not self._is_shared():
                return self.rate.take(self._bucket, self._clock.monotonic_s())[1]
            if self._has():
                return 0.0
            self._refused = True
        self._fetch_soon()
        return max(self._wait_s, PACE_S)

    def take(self) -> bool:
        """Take a token if there is one."""
        with self._lock:
            if not self._is_shared():
                self._bucket, wait_s = self.rate.take(self._bucket, self._clock.monotonic_s())
                return not wait_s
            taken = self._has()
            if taken:
                self._credit -= self._here < 1
                self._here -= 1
                self._spent += 1
            else:
                self._refused = True
            enough = self._here > self._least // 2
        if not enough:
            self._fetch_soon()
        return taken

    def put_back(self) -> None:
        """Take back the token of a call that was not made."""
        with self._lock:
            if self._is_shared():
                self._here += 1

    def _has(self) -> bool:
        if self._here >= 1:
            return True
        return self._credit >= 1 and self._clock.monotonic_s() - self._asked_s < FRESH_S

    async def returned(self) -> None:
        """Start again from the bucket's level: tokens from before the outage count for nothing."""
        with self._lock:
            self._here = self._credit = 0
        await self._ask(self._least)

    async def beat(self) -> None:
        """Return surplus tokens while none are taken, and read what a burst could borrow."""
        with self._lock:
            idle = self._spent == self._spent_before
            self._spent_before = self._spent
        if idle:
            await self._ask(0, keep=self._least)

    def retire(self) -> None:
        """Stop using this rate: another one has replaced it."""
        self._closed = True
        self._link.ignore(self)

    async def close(self) -> None:
        """Return all tokens to the bucket."""
        self.retire()
        if self._fetching is not None:
            self._fetching.cancel()
            await asyncio.wait([self._fetching])
        if self._link.up:
            try:
                await self._ask(0, keep=0)
            except Gone:
                return

    def _is_shared(self) -> bool:
        """Whether Redis is there; without it the rate begins with an empty bucket, not with a burst of each process.

        It fills from the last answer on, and not from the first call without Redis: that one may come hours later.
        """
        if self._shared and not self._link.up:
            self._bucket = TokenBucket(0.0, max(self._asked_s, self._begun_s))
        self._shared = self._link.up
        return self._shared

    def _fetch_soon(self) -> None:
        with self._lock:
            if not self._fetched or self._closed:
                return
            self._fetched = False
        if _running_loop() is self._link.loop:
            self._fetch_now()
        else:
            with contextlib.suppress(RuntimeError):  # The loop may have ended, and with it the need for tokens.
                self._link.loop.call_soon_threadsafe(self._fetch_now)

    def _fetch_now(self) -> None:
        self._fetching = self._link.loop.create_task(self._fetch())

    async def _fetch(self) -> None:
        """Fetch batches at a pace while they are needed; after each, stir the callers that were refused."""
        try:
            while not self._closed and self._link.up:
                with self._lock:
                    want = max(self._least, 2 * (self._spent - self._spent_before))
                granted = await self._ask(want)
                with self._lock:
                    # Also callers that were refused while the request was under way.
                    refused = self._refused and granted > 0
                    self._refused = self._refused and not refused
                if refused:
                    self._stir()
                await asyncio.sleep(PACE_S if granted else min(WAIT_S_MAX, max(PACE_S, self._wait_s)))
                with self._lock:
                    if self._here > self._least // 2 or (self._here >= 0 and not self._refused):
                        return
        except Gone:
            return
        finally:
            with self._lock:
                self._fetched = True

    async def _ask(self, want: int, *, keep: int | None = None) -> int:
        """Pay borrowed tokens, return those beyond `keep`, request more; return how many were granted."""
        with self._lock:
            back = self._here if self._here < 0 else 0 if keep is None else max(0, self._here - keep)
            self._here -= back
        rate = self.rate
        values = (repr(float(rate.rate_per_s)), repr(float(rate.burst)), str(want), str(back))
        asked_s = self._clock.monotonic_s()
        granted, level = cast("tuple[int, str]", await self._link.ask(TAKE, (self._key,), *values))
        with self._lock:
            self._here += granted
            self._credit = math.floor(float(level)) + min(0, self._here)
            self._asked_s = asked_s
            self._wait_s = 0.0 if granted else max(0.0, (1 - float(level)) / rate.rate_per_s)
        return granted


def _running_loop() -> asyncio.AbstractEventLoop | None:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None
