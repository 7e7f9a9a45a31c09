"""A gate with a few places: who comes when all are taken waits in an orderly queue, in its own event loop.

No thread waits here, because the threads that read are shared by all lanes, and one busy lane must not keep them from
the others (D4). The gate can also be held shut for a while: nobody enters until it is let go.
"""

import asyncio
import contextlib
import threading
from collections import deque

from interlock.errors import Overloaded


class _Waiter:
    __slots__ = ("future", "gone", "granted", "loop")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self.future: asyncio.Future[None] = loop.create_future()
        self.granted = False
        self.gone = False


class Gate:
    """Lets at most `places` in at a time, from any number of event loops and threads."""

    def __init__(self, places: int, *, waiting_max: int) -> None:
        self.inside = 0
        self.held = False
        self._places = places
        self._waiting_max = waiting_max
        self._waiting: deque[_Waiter] = deque()
        self._lock = threading.Lock()

    async def enter(self) -> None:
        """Wait for a place. Whoever has entered must leave."""
        with self._lock:
            if self.inside < self._places and not self.held:
                self.inside += 1
                return
            if len(self._waiting) >= self._waiting_max:
                raise Overloaded(1.0, f"{len(self._waiting):,} reads wait in this lane already (queue_max).")
            waiter = _Waiter(asyncio.get_running_loop())
            self._waiting.append(waiter)
        try:
            await waiter.future
        except asyncio.CancelledError:
            with self._lock:
                waiter.gone = True
                if waiter.granted:
                    self.inside -= 1
                    self._admit()
            raise

    def leave(self) -> None:
        """Give the place to the next."""
        with self._lock:
            self.inside -= 1
            self._admit()

    def hold(self) -> None:
        """Let nobody in any more."""
        self.held = True

    def let_go(self) -> None:
        """Let them in again."""
        with self._lock:
            self.held = False
            self._admit()

    def _admit(self) -> None:
        while self._waiting and self.inside < self._places and not self.held:
            waiter = self._waiting.popleft()
            # A waiter that was cancelled, or whose loop is closed, takes no place.
            with contextlib.suppress(RuntimeError):
                if not waiter.gone:
                    waiter.loop.call_soon_threadsafe(_open, waiter.future)
                    waiter.granted = True
                    self.inside += 1


def _open(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)
