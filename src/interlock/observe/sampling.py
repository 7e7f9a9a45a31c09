"""Sampling of what stands in the store, for exporters that ask when they like.

Counting workflows looks at all of them, so the answer is kept: at least for a moment, and at least twenty times as long
as counting took, which bounds its share of the store's time at a twentieth. One count is under way at a time.
Whoever asks waits for it for a bounded time and is given the last one otherwise. An engine that is closed is forgotten.
"""

import asyncio
import contextlib
import logging

from interlock.errors import UnavailableError
from interlock.redaction import logger_of
from interlock.runtime.figures import Depth, Figures
from interlock.runtime.resilience.views import Breakers

KEPT_S = 0.05
"""How long a sample is good for, at least: several who scrape at once cost one count."""

SHARE = 20
"""How many times longer than it took."""

COUNTED_S_MAX = 30.0
"""A count that takes longer is given up."""

WAIT_S = 2.0
"""How long an exporter waits for a count."""

log = logger_of("interlock.observe")


class Sampled:
    """The samples of one engine. Made in its event loop."""

    def __init__(self, figures: Figures) -> None:
        self.figures = figures
        self.depth: Depth | None = None
        """The last sample."""
        self.closed = False
        self._loop = asyncio.get_running_loop()
        self._counting: asyncio.Task[None] | None = None
        self._failing = False
        self._taken_s = self._loop.time()
        self._good_until_s = 0.0

    def breakers(self) -> Breakers | None:
        """The breakers; None when the engine is closed."""
        try:
            return self.figures.breakers()
        except UnavailableError:
            self.closed = True
            return None

    @property
    def age_s(self) -> float:
        """How old the sample is."""
        return max(0.0, self._loop.time() - self._taken_s)

    def begin(self) -> None:
        """Count once, unasked: who reads in the engine's own thread cannot wait, and is given this. It is not kept."""
        self._counting = self._loop.create_task(self._count(kept=False))

    def refresh(self) -> None:
        """Begin to count, if it is time. From any thread."""
        with contextlib.suppress(RuntimeError):  # The engine's loop is closed, and the engine with it.
            self._loop.call_soon_threadsafe(self._begin)

    async def fresh(self) -> None:
        """Wait, for a while, until the sample is good."""
        counting = self._begin()
        if counting is not None:
            await asyncio.wait([counting], timeout=WAIT_S)

    def fresh_from_outside(self) -> None:
        """The same from an exporter's thread. In the engine's own thread it only begins: waiting would be for ever."""
        try:
            inside = asyncio.get_running_loop() is self._loop
        except RuntimeError:
            inside = False
        if inside or not self._loop.is_running() or self.breakers() is None:
            if inside and self.breakers() is not None:
                self.depth = self.figures.depth_at_once() or self.depth
            self.refresh()
            return
        with contextlib.suppress(TimeoutError, RuntimeError):
            asyncio.run_coroutine_threadsafe(self.fresh(), self._loop).result(WAIT_S)

    def _begin(self) -> "asyncio.Task[None] | None":
        if self._counting is None and not self.closed and self._loop.time() >= self._good_until_s:
            self._counting = self._loop.create_task(self._count())
        return self._counting

    async def _count(self, *, kept: bool = True) -> None:
        begun_s = self._loop.time()
        try:
            async with asyncio.timeout(COUNTED_S_MAX):
                self.depth = await self.figures.depth()
            self._taken_s = self._loop.time()
            self._failing = False
        except TimeoutError:
            log.warning("counting workflows took longer than %g s, and was given up.", COUNTED_S_MAX)
        except Exception as error:  # noqa: BLE001 -- whatever a store raises, it is asked again.
            # Once for each time that it begins, and never of an engine that is closed.
            level = logging.WARNING if self.breakers() is not None and not self._failing else logging.DEBUG
            log.log(level, "workflows could not be counted, and it is tried again: %s", error)
            self._failing = True
        finally:
            ended_s = self._loop.time()
            if kept:
                self._good_until_s = ended_s + max(KEPT_S, SHARE * (ended_s - begun_s))
            self._counting = None
