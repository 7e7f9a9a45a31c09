"""The watchdog: ends a function that holds the lane for too long.

A function given to `transact` runs inside the single writer. While it runs no other one does, so it is watched:
when its time is over, SQLite is interrupted and `HeldTooLong` is raised inside the function, wherever it is, and again
until the function is over. One thread watches for the whole process, and it exists only once a function was watched.

The odd choice is raising into another thread (the interpreter's asynchronous exception). It arrives when the
interpreter looks for it: after a call, at a jump backwards, at the start of a function. So a function that blocks
inside C (a long sleep, a socket) ends only when that call returns; nothing in Python can do more. And a line of this
module that does none of the three cannot be hit: what must not be interrupted here is written so.

The first time is polite: `except BaseException` keeps it. From the second time on the exception sends itself again
whenever it is caught, so that it arrives once more while the handler runs, outside of the `try` that has caught it:
no loop around a `try` lives on, and no number of them around each other.
"""

import contextlib
import ctypes
import functools
import heapq
import itertools
import os
import threading
from collections.abc import Callable
from typing import TypeVar, cast

from interlock.errors import TransactionError, UnavailableError
from interlock.seams import SystemClock

ResultT = TypeVar("ResultT")

BARK_EVERY_S = 0.05
"""The pause in seconds before a function that does not end is interrupted again."""


class HeldTooLong(BaseException):
    """Raised inside a function that holds the lane too long. Not an Exception: `except Exception` must not keep it."""


_send = ctypes.PYFUNCTYPE(None, ctypes.c_ulong, ctypes.py_object)(("PyThreadState_SetAsyncExc", ctypes.pythonapi))
"""Raise the class in the thread, replacing one that is still on its way there."""


class _Watch:
    __slots__ = ("barked", "barking", "insists", "interrupt", "over", "running", "sent", "thread")

    def __init__(self, interrupt: Callable[[], None]) -> None:
        self.interrupt = interrupt
        self.thread = threading.get_ident()
        self.running = False
        self.over = False
        """The function is over. Set by its own thread, read by the watchdog while `barking` is set, and never both
        missed: either the watchdog sees this and keeps still, or the function's thread sees it bark and waits."""
        self.barking = False
        self.barked = False
        self.insists = HeldTooLong
        self.sent = False

    def bark(self) -> None:
        """Interrupt the function, unless it is over. Nothing arrives that was not sent while `barking` was set."""
        self.barking = True
        if self.running and not self.over:
            with contextlib.suppress(Exception):  # One watchdog serves all: it must not end.
                self.interrupt()
            if self.barked:
                _send(self.thread, self.insists)
            else:
                self.insists = _insistent(self.thread)  # Made now: the second time it can be taken back at any moment.
                self.barked = True
                _send(self.thread, HeldTooLong)
        self.barking = False


def _insistent(thread: int) -> type[HeldTooLong]:
    """Return a HeldTooLong that sends the next one when it is made, which is when a handler catches it."""

    class HeldFarTooLong(HeldTooLong):
        pass

    # No line of Python runs in there, or the next one would arrive before this one is made.
    sends = staticmethod(functools.partial(_send, thread, HeldFarTooLong))
    HeldFarTooLong.__init__ = sends  # type: ignore[method-assign]
    return HeldFarTooLong


class _Watchdog:
    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._clock = SystemClock()
        self._watches: list[tuple[float, int, _Watch]] = []
        self._numbers = itertools.count()
        self._thread: threading.Thread | None = None
        self._wakes_s = float("inf")
        """When the thread looks next. Limits are mostly alike, so it is seldom woken earlier."""

    def begin(self, limit_s: float, interrupt: Callable[[], None]) -> _Watch:
        watch = _Watch(interrupt)
        with self._changed:
            while self._watches and self._watches[0][2].over:
                heapq.heappop(self._watches)  # G6: what is over does not wait for its deadline.
            if self._thread is None:
                self._thread = self._started()
            deadline_s = self._clock.monotonic_s() + limit_s
            heapq.heappush(self._watches, (deadline_s, next(self._numbers), watch))
            if deadline_s < self._wakes_s:
                self._changed.notify()
        return watch

    def _started(self) -> threading.Thread:
        thread = threading.Thread(target=self._guard, name="interlock-watchdog", daemon=True)
        try:
            thread.start()
        except RuntimeError as error:
            # Unwatched no function may run: it could hold the lane for ever. The next one tries again.
            raise UnavailableError(
                f"the thread that watches functions could not be started: {error}; this did not happen.",
                why="The system allows no more threads, or the program is ending.",
                fix="Repeat the transaction when there are fewer threads, or raise their limit.",
            ) from error
        return thread

    def _guard(self) -> None:
        with self._changed:
            while True:
                now_s = self._clock.monotonic_s()
                self._wakes_s = self._step(now_s)
                self._changed.wait(None if self._wakes_s == float("inf") else self._wakes_s - now_s)

    def _step(self, now_s: float) -> float:
        """Interrupt the functions that are late; return when to look again."""
        while self._watches and (self._watches[0][2].over or self._watches[0][0] <= now_s):
            _, _, watch = heapq.heappop(self._watches)
            watch.bark()
            if not watch.over:
                heapq.heappush(self._watches, (now_s + BARK_EVERY_S, next(self._numbers), watch))
        return self._watches[0][0] if self._watches else float("inf")


_watchdog = _Watchdog()


def _in_child() -> None:
    # Threads do not come through a fork: the child's first function gets a watchdog of its own.
    global _watchdog  # noqa: PLW0603 -- one per process.
    _watchdog = _Watchdog()


os.register_at_fork(after_in_child=_in_child)


def watched(limit_s: float, interrupt: Callable[[], None], function: Callable[[], ResultT]) -> ResultT:
    """Run the function for at most `limit_s` seconds; raises TransactionError when it was ended.

    Whatever the function does, nothing arrives any more once this has returned or raised.
    """
    watch = _watchdog.begin(limit_s, interrupt)
    value: ResultT | None = None
    raised: BaseException | None = None
    try:
        try:
            try:
                watch.running = True
                value = function()
                watch.over = True
            except BaseException as error:  # noqa: BLE001 -- raised again below, where nothing can arrive any more.
                watch.over = True
                raised = error
            # Up to here nothing could arrive since the function ended. From here on two may: the one on its way when
            # it ended, and the one of a bark that had begun by then.
            if watch.barked:
                watch.insists.__init__ = HeldTooLong.__init__  # type: ignore[method-assign]
            _meet_the_last(watch)
        except HeldTooLong:
            if not watch.sent:
                _meet_the_last(watch)
    except HeldTooLong:
        pass  # The second of the two, or the one that was sent to meet it.
    if watch.barked:
        raise _held_too_long(limit_s) from raised
    try:
        if raised is not None:
            raise raised
    finally:
        del raised  # Or the error and this frame would keep each other alive.
    return cast("ResultT", value)


def _meet_the_last(watch: _Watch) -> None:
    """Return when it never barked; otherwise wait until nothing is on its way any more, which raises HeldTooLong."""
    while watch.barking:
        os.sched_yield()
    if not watch.barked:
        return
    # Whether one is still on its way cannot be known. Sent again it takes the place of that one and arrives here.
    # (Taking it back instead leaves a flag of CPython 3.11 set, and under a tracer, such as coverage's, the interpreter
    # then never ends.)
    watch.sent = True
    _send(watch.thread, HeldTooLong)
    while True:
        os.sched_yield()


def _held_too_long(limit_s: float) -> TransactionError:
    return TransactionError(
        f"a function held the lane for more than {limit_s:g} s (transaction_timeout_s) and was ended.",
        why="Inside the single writer no other transaction runs meanwhile.",
        fix="Await only tx in it, do slow work before or after, or raise transaction_timeout_s.",
    )
