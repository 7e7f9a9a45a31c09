"""Opening and closing in threads, which go on to their end whatever becomes of those who wait.

A thread cannot be cancelled, and an event loop may be closed while one is still at work. So nothing that must happen is
left to the loop: the thread that opens a lane looks itself, when it is done, whether anybody still wants the lane, and
closes it if nobody does. Otherwise the lane would stay owned until the process ends.
"""

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

from interlock.errors import UnavailableError
from interlock.lanes.lane import Lane

ResultT = TypeVar("ResultT")


def in_thread(function: Callable[[], ResultT]) -> Future[ResultT]:
    """Run it in a thread of the running event loop's. It cannot be cancelled, and any event loop may wait for it."""
    done: Future[ResultT] = Future()
    done.set_running_or_notify_cancel()

    def run() -> None:
        try:
            done.set_result(function())
        except BaseException as error:  # noqa: BLE001 -- whatever it is, it belongs to those who wait.
            done.set_exception(error)

    try:
        _ = asyncio.get_running_loop().run_in_executor(None, run)
    except RuntimeError as error:
        raise UnavailableError(
            f"no thread could be had to open or close a database: {error}.",
            why="The system allows no more threads, or the program is ending.",
            fix="Close databases before the program ends; raise the limit of threads.",
        ) from error
    return done


async def opened_lane(make: Callable[[], Lane]) -> Lane:
    """Make a lane in a thread. Given up before it is there, it is closed again."""
    handover = _Handover(make)
    try:
        return await asyncio.wrap_future(in_thread(handover.open))
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
            lane.close()  # Nobody has used it: this takes no time.
