"""The token bucket of the whole cluster (C7): one bucket in Redis, and a batch of its tokens in every process.

A caller takes a token that is here already, so no caller waits for Redis. When half of a batch is spent, another one is
fetched in the background: as many as were used lately, at least what the rate gives in 20 ms. A sudden burst borrows,
up to what the bucket had when it was last asked, and pays with the next request. The bucket may then be in debt, and
grants nothing before that is made up. So the cluster as a whole admits what the rate says, and each process that saw
the bucket full may have one burst. Unused tokens go back.

While Redis is gone each process has the whole rate to itself; it begins without a burst, as of the last answer.
"""

import asyncio
import contextlib
import math
import threading
from collections.abc import Callable
from typing import cast

from interlock.clock import Clock
from interlock.core.policies import Bucket, TokenRate
from interlock.redis.connection import Gone, Link
from interlock.redis.scripts import TAKE

LEAST_S = 0.02
"""A request fetches at least what the rate gives in this time."""

PACE_S = 0.01
"""The pause between two requests of one process for one bucket: an empty one is not asked for every call."""

FRESH_S = 1.0
"""After this time the bucket's last level says nothing about what can be borrowed now."""

WAIT_S_MAX = 1.0


class SharedTokens:
    """One process's share of a bucket. May be used from any thread; fetching runs in the event loop of the link."""

    def __init__(self, link: Link, key: str, rate: TokenRate, clock: Clock, stir: Callable[[], None]) -> None:
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
            self._bucket = Bucket(0.0, max(self._asked_s, self._begun_s))
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
