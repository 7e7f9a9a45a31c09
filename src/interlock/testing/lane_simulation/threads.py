"""Cooperative threads in virtual time: one strand runs at a time, and time passes only when all are parked.

The code under test is plain blocking code, so each simulated thread (a *strand*) is a real thread, parked on a lock of
its own. There is no scheduler thread: a parking strand takes the next events from a heap, runs those without a strand
(a request that lands in the bucket), and hands the baton to the strand that is due. The heap is ordered by virtual time
and then by the order of arrival, so a run is decided by its seed alone.

The invariant: every strand but one is parked, always inside `park`. A strand of a *life* (one run of one process) that
was killed leaves its `park` with `Killed`, which no code under test catches for good.
"""

import asyncio
import contextvars
import heapq
import threading
from collections import deque
from collections.abc import Callable, Coroutine
from typing import Any, cast

# --- Strands ---------------------------------------------------------------------------------------------------------

Action = Callable[[], None]

EVENTS_MAX = 30_000
"""The limit of events per story. A story has about a thousand; more of them mean an endless loop."""


class Killed(BaseException):
    """Raised in a strand whose process was killed."""


class StrandLife:
    """One run of one process: its strands are killed, and stand still, together."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.killed = False
        self.stalled_until_s = 0.0
        self.strands: list[Strand] = []


class Strand:
    """One simulated thread."""

    __slots__ = ("done", "life", "lock", "name", "ticket", "waiters", "work")

    def __init__(self, life: StrandLife, name: str, work: Action | None, lock: threading.Lock) -> None:
        self.life = life
        self.name = name
        self.work = work
        self.lock = lock
        self.ticket = 0
        """Raised by every park: a wake-up that was meant for an earlier one is void."""
        self.done = False
        self.waiters: list[Strand] = []


class _Worker:
    """A real thread, lent to one strand after the other, because starting one costs more than a hand-over."""

    idle: "list[_Worker]" = []  # noqa: RUF012 -- shared by all seeds of this process, on purpose.

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.lock.acquire()
        self.strand: Strand | None = None
        self.baton: Baton | None = None
        threading.Thread(target=self._run, name="interlock-strand", daemon=True).start()

    def _run(self) -> None:
        while True:
            self.lock.acquire()
            strand, baton = self.strand, self.baton
            assert strand is not None
            assert baton is not None
            self.strand = self.baton = None
            baton.run_strand(strand)
            strand.work = None
            _Worker.idle.append(self)
            baton.pass_on(None)
            del strand, baton


class Baton:
    """The one right to run, and virtual time."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self.crashes: list[tuple[Strand, BaseException]] = []
        """Strands that ended with an unexpected exception."""
        self._heap: list[tuple[float, int, Action | None, Strand | None, int]] = []
        self._pushed = self._popped = 0
        self._abandoned = False
        lock = threading.Lock()
        lock.acquire()
        self._main = Strand(StrandLife("main"), "main", None, lock)
        self.current = self._main
        self._parked: dict[Strand, None] = {}

    def run(self) -> None:
        """Run all strands until none has work left. Called by the thread that made the baton."""
        self.current = self._main
        self.pass_on(self._main)

    def at(self, time_s: float, action: Action) -> None:
        """Run the action at that time, outside of any strand. It must not park."""
        self._push(time_s, action, None, 0)

    def spawn(self, life: StrandLife, name: str, work: Action) -> Strand:
        """Begin a strand; it runs when the spawning strand parks."""
        worker = _Worker.idle.pop() if _Worker.idle else _Worker()
        strand = Strand(life, name, work, worker.lock)
        worker.strand, worker.baton = strand, self
        life.strands.append(strand)
        self._parked[strand] = None
        self._push(self.now_s, None, strand, 0)
        return strand

    def park(self, timeout_s: float | None = None) -> None:
        """Park the current strand until another one wakes it, or until the timeout. Raises Killed."""
        me = self.current
        if me.life.killed or self._abandoned:
            raise Killed
        me.ticket += 1
        self._parked[me] = None
        if timeout_s is not None:
            self._push(self.now_s + timeout_s, None, me, me.ticket)
        self.pass_on(me)
        if me.life.killed or self._abandoned:
            raise Killed

    def wake(self, strand: Strand) -> None:
        """Resume a parked strand now."""
        if not strand.done:
            self._push(self.now_s, None, strand, strand.ticket)

    def join(self, strand: Strand) -> None:
        """Wait for the end of a strand."""
        while not strand.done:
            strand.waiters.append(self.current)
            self.park()

    def kill(self, life: StrandLife) -> None:
        """Kill a life: each of its strands ends at the park in which it stands."""
        life.killed = True
        for strand in life.strands:
            self.wake(strand)

    @property
    def stuck(self) -> list[Strand]:
        """Parked strands when no event is left that could wake them."""
        return [] if self._heap else list(self._parked)

    # --- the hand-over -------------------------------------------------------------------------------------------

    def run_strand(self, strand: Strand) -> None:
        """Run a strand to its end, in the thread that was lent to it."""
        assert strand.work is not None
        try:
            if not strand.life.killed:
                strand.work()
        except Killed:
            pass
        except BaseException as error:  # noqa: BLE001 -- it is reported with the story of the seed.
            self.crashes.append((strand, error))
        strand.done = True
        for waiter in strand.waiters:
            self.wake(waiter)

    def pass_on(self, me: Strand | None) -> None:
        """Hand the baton to the next strand, and wait to get it back; without `me` the strand has ended."""
        target = self._next()
        self._parked.pop(target, None)
        if target is me:
            return
        self.current = target
        target.lock.release()
        if me is not None:
            me.lock.acquire()

    def _next(self) -> Strand:
        while self._heap:
            self._popped += 1
            if self._popped > EVENTS_MAX and not self._abandoned:
                self._abandon()
            time_s, _, action, strand, ticket = heapq.heappop(self._heap)
            self.now_s = max(self.now_s, time_s)
            if action is not None:
                self._carry_out(action)
                continue
            assert strand is not None
            if strand.done or strand.ticket != ticket or strand not in self._parked:
                continue
            life = strand.life
            if life.stalled_until_s > self.now_s and not life.killed:
                self._push(life.stalled_until_s, None, strand, ticket)
                continue
            return strand
        return self._main

    def _abandon(self) -> None:
        """Kill all strands after EVENTS_MAX events, so that the story ends and can be reported."""
        self.crashes.append((self._main, RuntimeError(f"the story does not end within {EVENTS_MAX:,} events")))
        self._abandoned = True
        for strand in self._parked:
            self.wake(strand)

    def _carry_out(self, action: Action) -> None:
        try:
            action()
        except Exception as error:  # noqa: BLE001 -- as above; the baton must go on.
            self.crashes.append((self._main, error))

    def _push(self, time_s: float, action: Action | None, strand: Strand | None, ticket: int) -> None:
        self._pushed += 1
        heapq.heappush(self._heap, (time_s, self._pushed, action, strand, ticket))


# --- Event loop and condition variable -------------------------------------------------------------------------------
# Clients of a lane are coroutines, so each simulated process has an event loop. This one has no selector and no
# clock of its own: when nothing is ready its strand parks, and time passes elsewhere. The condition stands in for
# the lane's own; waiting on it parks the strand instead of blocking the thread that holds the baton.


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
