"""Polls for workflows with waiters that another process may move.

A workflow that moves here wakes its waiters immediately. The others are polled together, soon after the wait began and
then less and less often.
"""

import asyncio

from interlock.errors import MovedElsewhere, UnavailableError
from interlock.redaction import logger_of
from interlock.runtime.inside import Inside
from interlock.runtime.waiters import Waiters
from interlock.store.shared import SharedStore

log = logger_of("interlock.operators")

FIRST_S = 0.05
EVERY_S_MAX = 1.0
"""Seconds until the first look, and the longest time between two looks."""

MOVED_HERE_S = 0.5
"""Seconds until a workflow that this process has just moved is polled: it mostly goes on moving here."""

PAGE = 1_000


class WaitPolls:
    """Polls the workflows that have waiters."""

    def __init__(self, store: SharedStore, waiters: Waiters, inside: Inside) -> None:
        self._store = store
        self._waiters = waiters
        self._inside = inside
        self._loop = asyncio.get_running_loop()
        self._looks: dict[str, tuple[float, float]] = {}
        """By workflow: when to look next, and the interval after that."""
        self._added = asyncio.Event()

    def added(self, workflow: str) -> None:
        """Poll a workflow that has a new waiter."""
        when_s = self._loop.time() + FIRST_S
        self._looks[workflow] = (min(when_s, self._looks.get(workflow, (when_s, 0.0))[0]), FIRST_S)
        self._added.set()

    def moved_here(self, workflow: str) -> None:
        """Poll later a workflow that this process has moved: its waiters are awake."""
        if workflow in self._looks:
            self._looks[workflow] = (self._loop.time() + MOVED_HERE_S, MOVED_HERE_S)

    async def run(self) -> None:
        """Look until the engine closes."""
        while True:
            self._looks = {each: look for each, look in self._looks.items() if self._waiters.waits_for(each)}
            if not self._looks:
                self._added.clear()
                await self._added.wait()
            await asyncio.sleep(FIRST_S)  # New waiters may come at any time, and are polled soon.
            try:
                await self._look()
            except MovedElsewhere as error:
                self._inside.elsewhere(error)
            except UnavailableError as error:
                log.debug("workflows that are waited for could not be looked at: %s", error)
            except Exception:
                log.exception("workflows that are waited for could not be looked at; it is tried again.")

    async def _look(self) -> None:
        now_s = self._loop.time()
        wanted = [
            each for each, (when_s, _) in self._looks.items() if when_s <= now_s and self._waiters.waits_for(each)
        ]
        for workflow in wanted:
            every_s = min(EVERY_S_MAX, 2 * self._looks[workflow][1])
            self._looks[workflow] = (now_s + every_s, every_s)
        for begin in range(0, len(wanted), PAGE):
            for row in (await self._store.load(wanted[begin : begin + PAGE])).values():
                try:
                    self._waiters.moved(self._inside.read(row))
                except Exception as error:  # noqa: BLE001 -- whatever is wrong with one, the others are woken.
                    log.error("workflow %r is waited for and cannot be read: %s", row.id, error)  # noqa: TRY400
