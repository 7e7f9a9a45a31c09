"""The watchdog: ends a function that holds the lane for too long.

A function given to `transact` runs inside the single writer. While it runs nobody else is served, so it is watched:
when its time is over, SQLite is interrupted and `HeldTooLong` is raised inside the function, wherever it is. One thread
watches for the whole process, and it exists only once a function has been watched.

The odd choice is raising into another thread (the interpreter's asynchronous exception). It works between two
bytecodes, so a function that blocks inside C (a long sleep, a socket) ends only when that call returns; nothing in
Python can do more.
"""

import contextlib
import ctypes
import heapq
import itertools
import os
import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager

from interlock.errors import TransactionError
from interlock.seams import SystemClock


class HeldTooLong(BaseException):
    """Raised inside a function that holds the lane too long. Not an Exception: `except Exception` must not keep it."""


class _Watch:
    __slots__ = ("barked", "deadline_s", "interrupt", "right", "thread")

    def __init__(self, deadline_s: float, interrupt: Callable[[], None]) -> None:
        self.deadline_s = deadline_s
        self.interrupt = interrupt
        self.thread = threading.get_ident()
        self.right = [True]
        """Who takes it out has the right to end the function: itself by returning, or the watchdog."""
        self.barked = False


class _Watchdog:
    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._clock = SystemClock()
        self._watches: list[tuple[float, int, _Watch]] = []
        self._numbers = itertools.count()
        self._thread: threading.Thread | None = None

    def begin(self, limit_s: float, interrupt: Callable[[], None]) -> _Watch:
        watch = _Watch(self._clock.monotonic_s() + limit_s, interrupt)
        with self._changed:
            while self._watches and not self._watches[0][2].right:
                heapq.heappop(self._watches)  # G6: what is over does not wait for its deadline.
            soonest = self._watches[0][0] if self._watches else float("inf")
            heapq.heappush(self._watches, (watch.deadline_s, next(self._numbers), watch))
            if self._thread is None:
                self._thread = threading.Thread(target=self._guard, name="interlock-watchdog", daemon=True)
                self._thread.start()
            elif watch.deadline_s < soonest:
                self._changed.notify()
        return watch

    def end(self, watch: _Watch) -> bool:
        """The function is over; True when it was ended by us. No exception arrives after this."""
        # No lock in here: the exception may arrive at any line, even while a lock is being taken, which would then stay
        # locked for ever. Taking the right out of a list is one step, and everything else can be repeated.
        sent = False
        while True:
            try:
                if _taken(watch.right):
                    return False
                while not watch.barked:
                    os.sched_yield()
                # It has arrived inside the function, or it is on its way: nobody can tell. Sent again it takes the
                # place of the one on its way and arrives here. (Taking it back instead leaves a flag of CPython 3.11
                # set, and under a tracer, such as coverage's, the interpreter then never ends.)
                sent = True
                _raise_in(watch.thread)
                while True:
                    os.sched_yield()
            except HeldTooLong:
                if sent:
                    return True

    def _guard(self) -> None:
        with self._changed:
            while True:
                while self._watches and (
                    not self._watches[0][2].right or self._watches[0][0] <= self._clock.monotonic_s()
                ):
                    _, _, watch = heapq.heappop(self._watches)
                    if _taken(watch.right):
                        with contextlib.suppress(Exception):  # One watchdog serves all: it must not end.
                            watch.interrupt()
                        _raise_in(watch.thread)
                        watch.barked = True
                self._changed.wait(max(0.0, self._watches[0][0] - self._clock.monotonic_s()) if self._watches else None)


def _taken(right: list[bool]) -> bool:
    try:
        right.pop()
    except IndexError:
        return False
    return True


def _raise_in(thread: int) -> None:
    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread), ctypes.py_object(HeldTooLong))


_watchdog = _Watchdog()


@contextmanager
def watched(limit_s: float, interrupt: Callable[[], None]) -> Generator[None]:
    """Run the block for at most `limit_s` seconds; raises TransactionError when it was ended."""
    watch = _watchdog.begin(limit_s, interrupt)
    late: BaseException | None = None
    try:
        yield
    except BaseException as error:
        if not _watchdog.end(watch):
            raise
        late = error
    else:
        if not _watchdog.end(watch):
            return
    raise TransactionError(
        f"a function held the lane for more than {limit_s:g} s (transaction_timeout_s) and was ended.",
        why="Inside the single writer nobody else is served while it runs.",
        fix="Await only tx in it, do slow work before or after, or raise transaction_timeout_s.",
    ) from late
