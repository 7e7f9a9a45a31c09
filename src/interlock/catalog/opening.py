"""Threads that open and close lanes. The work completes even if the awaiting task is cancelled.

A thread cannot be cancelled, and an event loop may be closed while one still runs. So no cleanup is left to the loop:
the thread that opened a lane checks whether its caller still waits, and closes the lane otherwise. Without this the
lane would stay owned until the process ends.

The pools are private, and closing has its own: opening a lane in a bucket may wait for another owner's lease, which
must block neither the program's threads nor the closing that it waits for.
"""

import asyncio
import os
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Generic, NamedTuple, TypeVar

from interlock.errors import UnavailableError
from interlock.lanes.lane import Lane

ResultT = TypeVar("ResultT")


OPENING_AT_ONCE = 64
CLOSING_MAX = 16


class _Threads(NamedTuple):
    opening: ThreadPoolExecutor
    closing: ThreadPoolExecutor


def _fresh_threads() -> _Threads:
    return _Threads(
        ThreadPoolExecutor(OPENING_AT_ONCE, thread_name_prefix="interlock-open"),
        ThreadPoolExecutor(CLOSING_MAX, thread_name_prefix="interlock-close"),
    )


_threads = _fresh_threads()
"""For all databases of the process. Threads start on first use."""


def _in_child() -> None:
    # Threads do not come through a fork.
    global _threads  # noqa: PLW0603 -- one pair of pools per process.
    _threads = _fresh_threads()


os.register_at_fork(after_in_child=_in_child)


def opening_thread(function: Callable[[], ResultT]) -> Future[ResultT]:
    """Run the function in an opening thread. It cannot be cancelled, and any event loop may await it.

    Raises UnavailableError without a thread; then it is not run.
    """
    call = _Call(function)
    try:
        _ = _threads.opening.submit(call.run)
    except RuntimeError as error:
        if not call.withdraw():
            return call.done
        raise UnavailableError(
            f"no thread could be had to open a database: {error}.",
            why="The system allows no more threads, or the program is ending.",
            fix="Close databases before the program ends; raise the limit of threads.",
        ) from error
    return call.done


def closing_thread(function: Callable[[], ResultT]) -> Future[ResultT]:
    """Run the function in a closing thread; without a thread it runs here, and blocks the caller.

    A lane that is not closed stays owned until the process ends, and cannot be opened again.
    """
    call = _Call(function)
    try:
        _ = _threads.closing.submit(call.run)
    except RuntimeError:
        call.run()
    return call.done


class _Call(Generic[ResultT]):
    """A function that runs once. An executor that starts no thread raises, and keeps the function in its queue."""

    def __init__(self, function: Callable[[], ResultT]) -> None:
        self._function = function
        self._once = threading.Lock()
        self.done: Future[ResultT] = Future()
        self.done.set_running_or_notify_cancel()

    def run(self) -> None:
        if not self._once.acquire(blocking=False):
            return
        try:
            self.done.set_result(self._function())
        except BaseException as error:  # noqa: BLE001 -- the waiting caller receives it.
            self.done.set_exception(error)

    def withdraw(self) -> bool:
        """Keep the executor from running the function later; return False when a thread runs it already."""
        return self._once.acquire(blocking=False)


async def opened_lane(make: Callable[[], Lane]) -> Lane:
    """Open a lane in a thread. If the caller is cancelled before, the lane is closed again."""
    handover = _Handover(make)
    try:
        return await asyncio.wrap_future(opening_thread(handover.open))
    except BaseException:  # Also when the event loop is thrown away with this in it.
        handover.give_up()
        raise


class _Handover:
    """A lane on its way from the thread that opens it to the coroutine that waits: one of the two closes it."""

    def __init__(self, make: Callable[[], Lane]) -> None:
        self._make = make
        self._lock = threading.Lock()
        self._wanted = True
        self._lane: Lane | None = None

    def open(self) -> Lane:
        lane = self._make()
        with self._lock:
            self._lane = lane
            wanted = self._wanted
        if not wanted:
            lane.close()
        return lane

    def give_up(self) -> None:
        with self._lock:
            self._wanted = False
            lane = self._lane
        if lane is not None:
            lane.close()  # Unused, so closing takes no time.
