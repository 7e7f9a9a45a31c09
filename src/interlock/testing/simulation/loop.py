"""The event loop and the condition variable of simulated lanes.

Clients of a lane are coroutines, so each simulated process has an event loop. This one has no selector and no clock
of its own: when nothing is ready its strand parks, and time passes elsewhere. The condition stands in for the lane's
own; waiting on it parks the strand instead of blocking the thread that holds the baton.
"""

import asyncio
import contextvars
import threading
from collections import deque
from collections.abc import Callable, Coroutine
from typing import Any, cast

from interlock.testing.simulation.baton import Baton, Strand


class BatonLoop:
    """An event loop that runs in one strand: as much of one as tasks, futures and a lane ask for."""

    def __init__(self, baton: Baton) -> None:
        self._baton = baton
        self._strand: Strand = baton.current
        self._self = cast("asyncio.AbstractEventLoop", self)
        self._ready: deque[tuple[Callable[..., object], tuple[object, ...], contextvars.Context | None]] = deque()
        self._waiting = False

    def run_all(self, coroutines: list[Coroutine[Any, Any, None]], cancelled: tuple[int, float] | None = None) -> None:
        """Run the coroutines concurrently until all are done. `cancelled` is an index and a delay in seconds."""
        asyncio.events._set_running_loop(self._self)  # noqa: SLF001 -- only event loops do this.
        try:
            tasks = [asyncio.Task(each, loop=self._self) for each in coroutines]
            if cancelled is not None:
                which, seconds = cancelled
                self._baton.at(self._baton.now_s + seconds, lambda: self.call_soon_threadsafe(tasks[which].cancel))
            while not all(task.done() for task in tasks):
                self._turn()
        finally:
            asyncio.events._set_running_loop(None)  # noqa: SLF001 -- as above.
        for task in tasks:
            if not task.cancelled():
                task.result()

    def _turn(self) -> None:
        while self._ready:
            callback, args, context = self._ready.popleft()
            if context is None:
                callback(*args)
            else:
                context.run(callback, *args)
            if not self._ready:
                return
        self._waiting = True
        try:
            self._baton.park()
        finally:
            self._waiting = False

    async def wait(self, seconds: float) -> None:
        """Wait for this much virtual time."""
        future = self.create_future()
        self._baton.at(self._baton.now_s + seconds, lambda: self.call_soon_threadsafe(_settle, future))
        await future

    def call_soon(
        self, callback: Callable[..., object], *args: object, context: contextvars.Context | None = None
    ) -> None:
        """Run it in the next turn."""
        self._ready.append((callback, args, context))

    def call_soon_threadsafe(
        self, callback: Callable[..., object], *args: object, context: contextvars.Context | None = None
    ) -> None:
        """Run it in the next turn, and let there be one."""
        self._ready.append((callback, args, context))
        if self._waiting:
            self._baton.wake(self._strand)

    def create_future(self) -> asyncio.Future[Any]:
        """A future of this loop."""
        return asyncio.Future(loop=self._self)

    def is_closed(self) -> bool:
        """Return False: the loop ends with its process."""
        return False

    def get_debug(self) -> bool:
        """Return False: debug mode is slow."""
        return False

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        """Ignore the error: tasks of a killed process end unfinished."""


class BatonCondition:
    """A replacement of `threading.Condition` in a lane: a waiting strand parks."""

    def __init__(self, baton: Baton, lock: threading.Lock) -> None:
        self._baton = baton
        self._lock = lock
        self._waiting: list[Strand] = []

    def wait(self, timeout: float | None = None) -> None:
        """Wait for a notification, up to the timeout. The caller holds the lock before and after."""
        strand = self._baton.current
        self._waiting.append(strand)
        self._lock.release()
        try:
            self._baton.park(timeout)
        finally:
            self._lock.acquire()
            if strand in self._waiting:
                self._waiting.remove(strand)

    def wait_for(self, predicate: Callable[[], bool], timeout: float | None = None) -> bool:
        """Wait until the predicate is true; return False after the timeout."""
        until_s = None if timeout is None else self._baton.now_s + timeout
        while not predicate():
            if until_s is not None and self._baton.now_s >= until_s:
                return False
            self.wait(None if until_s is None else until_s - self._baton.now_s)
        return True

    def notify(self) -> None:
        """Wake one."""
        if self._waiting:
            self._baton.wake(self._waiting.pop(0))

    def notify_all(self) -> None:
        """Wake all."""
        while self._waiting:
            self.notify()


def _settle(future: asyncio.Future[Any]) -> None:
    if not future.done():
        future.set_result(None)
