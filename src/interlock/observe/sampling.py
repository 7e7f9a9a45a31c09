"""Sampling of the store's counts, for exporters that may ask at any time.

A count reads all workflows, so its result is kept: for KEPT_S, and for twenty times as long as it took, which bounds
its share of the store's time to a twentieth. One count runs at a time. A caller waits for it for a bounded time, and
otherwise gets the last one. A closed engine is dropped.
"""

import asyncio
import contextlib
import logging

from interlock.errors import UnavailableError
from interlock.redaction import logger_of
from interlock.runtime.figures import Depth, Figures
from interlock.runtime.resilience.views import Breakers

KEPT_S = 0.05
"""Minimum lifetime of a sample: several concurrent scrapes cost one count."""

SHARE = 20
"""Lifetime of a sample, as a multiple of the time it took."""

COUNTED_S_MAX = 30.0
"""A count that takes longer is aborted."""

WAIT_S = 2.0
"""How long an exporter waits for a count."""

log = logger_of("interlock.observe")


class Sampled:
    """The samples of one engine. Created in its event loop."""

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
        """Return the breakers; None when the engine is closed."""
        try:
            return self.figures.breakers()
        except UnavailableError:
            self.closed = True
            return None

    @property
    def age_s(self) -> float:
        """The age of the sample, in seconds."""
        return max(0.0, self._loop.time() - self._taken_s)

    def begin(self) -> None:
        """Count once, for a reader in the engine's own thread, which cannot wait. The next call counts again."""
        self._counting = self._loop.create_task(self._count(kept=False))

    def refresh(self) -> None:
        """Start a count if it is due. From any thread."""
        with contextlib.suppress(RuntimeError):  # The engine's loop is closed, and the engine with it.
            self._loop.call_soon_threadsafe(self._begin)

    async def fresh(self) -> None:
        """Wait for a bounded time until the sample is fresh."""
        counting = self._begin()
        if counting is not None:
            await asyncio.wait([counting], timeout=WAIT_S)

    def fresh_from_outside(self) -> None:
        """Wait in an exporter's thread until the sample is fresh. In the engine's thread, only start it."""
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
            log.warning("counting workflows took longer than %g s and was aborted.", COUNTED_S_MAX)
        except Exception as error:  # noqa: BLE001 -- the next scrape counts again, whatever the store raised.
            # One warning per outage, and none for a closed engine.
            level = logging.WARNING if self.breakers() is not None and not self._failing else logging.DEBUG
            log.log(level, "workflows could not be counted; the next scrape tries again: %s", error)
            self._failing = True
        finally:
            ended_s = self._loop.time()
            if kept:
                self._good_until_s = ended_s + max(KEPT_S, SHARE * (ended_s - begun_s))
            self._counting = None
