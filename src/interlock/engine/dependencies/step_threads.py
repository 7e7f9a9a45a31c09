"""Threads for functions declared with `blocking=True`: steps, undos and effects that block while they wait.

A thread cannot be cancelled. An attempt that times out is reported with an unknown outcome, while its thread goes on.
The thread's later result is dropped, and an undo waits for its end. The permit of its dependency and the slot of the
engine stay taken until then: threads that hang cannot pile up.

There is one thread per attempt, at most `threads_max` of them in an engine. They are daemons: a process can end while
one hangs. With a virtual clock the function is called in the event loop itself, so that a run repeats exactly.
"""

import asyncio
import contextlib
import threading
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from contextvars import copy_context
from typing import Protocol, cast

from interlock.core.values import StepContext
from interlock.engine.dependencies.wait_queue import Pass


class StepThread:
    """The thread of one attempt."""

    __slots__ = ("cancels", "kept_pass", "running")

    def __init__(self) -> None:
        self.running = True
        self.cancels = 0
        """Number of times the engine has cancelled the attempt: each is waited through, for the thread goes on."""
        self.kept_pass: Pass | None = None
        """The pass of an attempt that was reported before its thread had ended."""


class Threaded(Protocol):
    """An attempt that may run in a thread."""

    thread: StepThread | None


class StepThreads:
    """The threads of one engine. Lives in one event loop."""

    def __init__(self, attempts: Mapping[str, Threaded], threads_max: int) -> None:
        self._attempts = attempts
        self._free = threads_max
        self._queue: deque[asyncio.Future[None]] = deque()
        self._waiting: set[asyncio.Task[object]] = set()
        self._loop = asyncio.get_running_loop()

    async def run(self, function: Callable[..., object], *arguments: object, key: str) -> object:
        """Call the function in a thread, for the attempt with that idempotency key; return or raise its result."""
        attempt = self._attempts[key]
        await self._take()
        thread, result = StepThread(), self._loop.create_future()
        call = copy_context().run  # Log lines of the function have its workflow.
        body = threading.Thread(
            target=call, args=(self._work, thread, result, function, arguments), name=f"interlock {key}", daemon=True
        )
        try:
            body.start()
        except RuntimeError:  # The operating system has no thread left.
            self._give_back()
            raise
        attempt.thread = thread
        value, error = await self._ended_or_cancelled(thread, result)
        if error is not None:
            raise error
        return value

    async def give_up(self, limit_s: float) -> None:
        """Stop waiting for threads that hang, because the engine closes. They go on, and their results are dropped."""
        tasks = list(self._waiting)
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks, timeout=limit_s)

    async def _ended_or_cancelled(
        self, thread: StepThread, result: "asyncio.Future[tuple[object, BaseException | None]]"
    ) -> tuple[object, BaseException | None]:
        task = cast("asyncio.Task[object]", asyncio.current_task())
        self._waiting.add(task)
        try:
            while not result.done():
                try:
                    await asyncio.wait((result,))
                except asyncio.CancelledError:
                    if task.cancelling() > thread.cancels:
                        raise  # By the closing engine, or at the end of the program.
            return result.result()
        finally:
            self._waiting.discard(task)

    def _work(
        self,
        thread: StepThread,
        result: "asyncio.Future[tuple[object, BaseException | None]]",
        function: Callable[..., object],
        arguments: tuple[object, ...],
    ) -> None:
        """Run the function and pass on its result or error. In the thread."""
        value: object = None
        error: BaseException | None = None
        try:
            value = function(*arguments)
        except BaseException as raised:  # noqa: BLE001 -- whatever a step raises is its failure.
            error = raised
        try:
            self._loop.call_soon_threadsafe(self._end, thread, result, value, error)
        except RuntimeError:  # The event loop is closed; the permit belongs to the process, and is free now.
            if thread.kept_pass is not None:
                thread.kept_pass.vacate_place()

    def _end(
        self,
        thread: StepThread,
        result: "asyncio.Future[tuple[object, BaseException | None]]",
        value: object,
        error: BaseException | None,
    ) -> None:
        thread.running = False
        if thread.kept_pass is not None:
            thread.kept_pass.vacate()
        self._give_back()
        if not result.done():
            result.set_result((value, error))

    async def _take(self) -> None:
        if self._free > 0 and not self._queue:
            self._free -= 1
            return
        turn: asyncio.Future[None] = self._loop.create_future()
        self._queue.append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self._give_back()
            with contextlib.suppress(ValueError):
                self._queue.remove(turn)
            raise

    def _give_back(self) -> None:
        while self._queue:
            turn = self._queue.popleft()
            if not turn.done():
                turn.set_result(None)
                return
        self._free += 1


def threaded(
    function: Callable[..., object], threads: "Callable[[], StepThreads | None]"
) -> Callable[..., Awaitable[object]]:
    """Return the function as a strategy that runs in a thread; without threads, in the event loop itself."""

    async def run(*arguments: object) -> object:
        found = threads()
        if found is None:
            return function(*arguments)
        return await found.run(function, *arguments, key=cast("StepContext", arguments[-1]).key)

    return run
