"""`BlockingEngine`: the engine for code that is not async, with the same calls.

with BlockingEngine.open("lanes:///var/shop", machines=[order]) as engine:
    engine.start(order, "o-1", Order())
    engine.send("o-1", Submit(cents=999), key="click-7")
    view = engine.wait("o-1", timeout_s=60)

One event loop in one thread per engine; any number of threads may call. Steps, effects and observers run in that
thread, and may not call the engine from there.
"""

import asyncio
import contextvars
import functools
import os
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import CancelledError, Future
from contextlib import AbstractContextManager
from datetime import datetime
from types import TracebackType
from typing import Concatenate, Generic, ParamSpec, Self, TypeVar

from interlock.core.events import Event
from interlock.core.machine import Machine
from interlock.core.policies import Seconds
from interlock.core.search import Where
from interlock.core.values import ContextT, StateT
from interlock.engine.caller_transactions import BlockingTransaction
from interlock.engine.engine import Engine, Workflows
from interlock.engine.leases import LEASE_S, WAIT_S, Lease, Leasing
from interlock.engine.open_engine import Closing, EngineOpening
from interlock.engine.operators.bulk import Bulk
from interlock.engine.operators.bulk_runs import BulkRuns
from interlock.engine.schedules import Schedules
from interlock.errors import BadUsage, UnavailableError

# --- Event loop in a thread ------------------------------------------------------------------------------------------
# Any number of threads may call; each call is a task in the loop, and its caller blocks until the task ends.
# Interrupting a caller cancels its task. Calls that would block for ever raise instead: from the loop's own thread,
# and in a forked child, which has no loop. The thread is a daemon: a program that forgets to stop it still ends, and
# durable changes are kept.

P = ParamSpec("P")
ResultT = TypeVar("ResultT")
InsideT = TypeVar("InsideT")
InsideT_co = TypeVar("InsideT_co", covariant=True)
ClosingT_co = TypeVar("ClosingT_co", bound=Closing, covariant=True)


FROM_WITHIN = "In a step, await asyncio.to_thread(engine.send, …). In an observer, hand it to another thread."
"""What to write where an engine's own loop runs the code of its user."""


class Portal:
    """One event loop in one thread, running from construction until `stop`.

    `of` is what has it, and `instead` what to write in code of that loop: both are for the texts of errors.
    """

    def __init__(self, name: str, *, of: str = "engine", instead: str = FROM_WITHIN) -> None:
        self._of = of
        self._instead = instead
        self._process = os.getpid()
        self._submitting = threading.Lock()
        self._stopped = False
        self._exit_error: BaseException | None = None
        ready: Future[tuple[asyncio.AbstractEventLoop, asyncio.Event]] = Future()
        self._thread = threading.Thread(target=self._run_loop, args=(ready,), name=name, daemon=True)
        self._thread.start()
        self._loop, self._end = ready.result()

    @property
    def is_here(self) -> bool:
        """Whether this is the loop's own thread."""
        return threading.current_thread() is self._thread

    @property
    def is_forked(self) -> bool:
        """Whether this is a child of the process that has the loop."""
        return os.getpid() != self._process

    @property
    def is_stopped(self) -> bool:
        """Whether it takes no more calls."""
        return self._stopped

    def call(
        self, function: Callable[P, Coroutine[object, object, ResultT]], *args: P.args, **kwargs: P.kwargs
    ) -> ResultT:
        """Run the function in the loop; return its result or raise its error."""
        self.refuse_for_ever()
        answer: Future[ResultT] = Future()
        context = contextvars.copy_context()

        async def entered() -> ResultT:
            return await function(*args, **kwargs)

        def begin() -> None:
            if self._stopped:
                answer.cancel()
            if not answer.cancelled():
                task = self._loop.create_task(entered(), context=context)
                task.add_done_callback(functools.partial(_copy_result, answer))
                answer.add_done_callback(functools.partial(self._forget, task))

        try:
            with self._submitting:
                if self._stopped:
                    raise self._stopped_error() from self._exit_error
                self._loop.call_soon_threadsafe(begin)
            return answer.result()
        except CancelledError:
            raise self._stopped_error() from self._exit_error
        finally:
            # No effect on an ended call. After an interruption it cancels the task, which has no caller any more.
            answer.cancel()

    def stop(self) -> None:
        """Cancel running calls, then end the loop and its thread. Idempotent."""
        self.refuse_for_ever()
        with self._submitting:
            if not self._stopped:
                self._stopped = True
                self._loop.call_soon_threadsafe(self._end.set)
        self._thread.join()

    def refuse_for_ever(self) -> None:
        """Raise if a call from this thread or process would block for ever."""
        if self.is_forked:
            raise UnavailableError(
                f"the {self._of} belongs to process {self._process}, and this is a forked child of it: {os.getpid()}.",
                why="A fork copies neither threads nor event loops; nothing in the child would ever answer.",
                fix='Make another one in the child, after the fork, or start it with the method "spawn".',
            )
        if self.is_here:
            raise BadUsage(
                f"a blocking {self._of} was called by its own event loop.",
                why="The loop would wait for an answer that only the loop can give: for ever.",
                fix=self._instead,
            )

    def _stopped_error(self) -> UnavailableError:
        if self._exit_error is not None:
            return UnavailableError(
                f"the {self._of} has stopped: {type(self._exit_error).__name__} has left its event loop.",
                why="User code raised it in a step, an effect, an undo or an observer, and it ends an event loop.",
                fix=f"Raise an ordinary exception there; make a new {self._of}, in a new process when a lane is owned.",
            )
        return UnavailableError(
            f"the {self._of} is closed.",
            why="It was closed before the call was answered.",
            fix="Use it inside `with`, or make another one.",
        )

    def _forget(self, task: "asyncio.Task[ResultT]", answer: "Future[ResultT]") -> None:
        if answer.cancelled() and not task.done():
            self._loop.call_soon_threadsafe(task.cancel)

    def _run_loop(self, ready: "Future[tuple[asyncio.AbstractEventLoop, asyncio.Event]]") -> None:
        async def until_the_end() -> None:
            end = asyncio.Event()
            ready.set_result((asyncio.get_running_loop(), end))
            await end.wait()

        # A runner cancels what is left when it closes, and waits for it.
        with asyncio.Runner() as runner:
            try:
                runner.run(until_the_end())
            except (SystemExit, KeyboardInterrupt) as left:
                # User code raised one of these two, which end an event loop even if they are caught.
                self._exit_error = left
            finally:
                with self._submitting:
                    self._stopped = True


class BlockingProxy(Generic[InsideT_co]):
    """A blocking counterpart of an async object, whose methods run in a portal."""

    def __init__(self, portal: Portal, inside: InsideT_co) -> None:
        self._portal = portal
        self._inside = inside


def blocking(
    method: Callable[Concatenate[InsideT, P], Coroutine[object, object, ResultT]],
) -> Callable[Concatenate[BlockingProxy[InsideT], P], ResultT]:
    """Turn an async method into one that blocks until its result is there."""

    @functools.wraps(method)
    def call(self: BlockingProxy[InsideT], /, *args: P.args, **kwargs: P.kwargs) -> ResultT:
        return self._portal.call(method, self._inside, *args, **kwargs)

    return call


def plain(
    method: Callable[Concatenate[InsideT, P], ResultT],
) -> Callable[Concatenate[BlockingProxy[InsideT], P], ResultT]:
    """Run a method that is not async in the loop's thread. Observers in that thread may call it too."""

    async def later(inside: InsideT, /, *args: P.args, **kwargs: P.kwargs) -> ResultT:
        return method(inside, *args, **kwargs)

    @functools.wraps(method)
    def call(self: BlockingProxy[InsideT], /, *args: P.args, **kwargs: P.kwargs) -> ResultT:
        if self._portal.is_here:
            return method(self._inside, *args, **kwargs)
        return self._portal.call(later, self._inside, *args, **kwargs)

    return call


def _copy_result(answer: "Future[ResultT]", task: "asyncio.Task[ResultT]") -> None:
    if task.cancelled():
        answer.cancel()
        return
    error = task.exception()
    # False when the caller was interrupted and has cancelled the future.
    if answer.set_running_or_notify_cancel():
        if error is not None:
            answer.set_exception(error)
        else:
            answer.set_result(task.result())


class ClosingProxy(BlockingProxy[ClosingT_co]):
    """A blocking counterpart that is closed, and whose portal ends with it. Use it in `with`, or close it."""

    def __init__(self, portal: Portal, inside: ClosingT_co) -> None:
        super().__init__(portal, inside)
        self._closing = threading.Lock()

    def close(self) -> None:
        """Close it as its async counterpart; then the thread ends. Idempotent: a second call waits for the first."""
        self._portal.refuse_for_ever()
        with self._closing:
            try:
                if not self._portal.is_stopped:
                    self._portal.call(self._inside.close)
            finally:
                # Also when Ctrl-C has interrupted the closing: it is closed in the loop before that ends.
                self._portal.stop()

    def __enter__(self) -> Self:
        """Return it; leaving the block closes it."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close it, also after an error in the block. In a forked child there is nothing to close."""
        if not self._portal.is_forked:
            self.close()


# --- Blocking engine -------------------------------------------------------------------------------------------------

EventT = TypeVar("EventT", bound=Event)


class BlockingWorkflows(BlockingProxy[Workflows[StateT, ContextT, EventT]], Generic[StateT, ContextT, EventT]):
    """The workflows of one machine. Made by `engine.of(machine)`."""

    start = blocking(Workflows[StateT, ContextT, EventT].start)
    send = blocking(Workflows[StateT, ContextT, EventT].send)
    get = blocking(Workflows[StateT, ContextT, EventT].get)
    wait = blocking(Workflows[StateT, ContextT, EventT].wait)
    history = blocking(Workflows[StateT, ContextT, EventT].history)
    children = blocking(Workflows[StateT, ContextT, EventT].children)
    attempts = blocking(Workflows[StateT, ContextT, EventT].attempts)
    find = blocking(Workflows[StateT, ContextT, EventT].find)
    stalled = blocking(Workflows[StateT, ContextT, EventT].stalled)
    allowed = blocking(Workflows[StateT, ContextT, EventT].allowed)


class BlockingSchedules(BlockingProxy[Schedules]):
    """The schedules of a home. A blocking engine has them as `engine.schedules`."""

    put = blocking(Schedules.put)
    get = blocking(Schedules.get)
    list = blocking(Schedules.list)
    pause = blocking(Schedules.pause)
    resume = blocking(Schedules.resume)
    trigger = blocking(Schedules.trigger)
    backfill = blocking(Schedules.backfill)
    delete = blocking(Schedules.delete)


class BlockingBulk(BlockingProxy[Bulk[EventT]], Generic[EventT]):
    """The workflows of a filter. Made by `engine.bulk(machine, …)`."""

    dry_run = blocking(Bulk[EventT].dry_run)
    send = blocking(Bulk[EventT].send)
    retry_dead_letters = blocking(Bulk[EventT].retry_dead_letters)
    pause = blocking(Bulk[EventT].pause)
    resume = blocking(Bulk[EventT].resume)
    run = blocking(Bulk[EventT].run)


class BlockingBulkRuns(BlockingProxy[BulkRuns]):
    """The bulk runs of a home. A blocking engine has them as `engine.bulk_runs`."""

    list = blocking(BulkRuns.list)
    get = blocking(BulkRuns.get)
    stop = blocking(BulkRuns.stop)


class BlockingLease(BlockingProxy[Lease]):
    """A granted lease. Made by `engine.lease(…)`, and released when its block is left."""

    @property
    def name(self) -> str:
        """The name of the lease."""
        return self._inside.name

    @property
    def token(self) -> int:
        """Higher than the token of every earlier holder of this name."""
        return self._inside.token

    @property
    def lost(self) -> bool:
        """Whether another owner may have it by now, as far as this process knows."""
        return self._inside.lost

    def check(self) -> None:
        """Raise Fenced when it is lost."""
        self._inside.check()

    held = blocking(Lease.held)


class BlockingLeasing(BlockingProxy[Leasing]):
    """Context manager that acquires a lease: `with engine.lease(…) as lease`."""

    def __enter__(self) -> BlockingLease:
        """Acquire the lease. Raises LeaseHeld after `wait_s`."""
        return BlockingLease(self._portal, self._portal.call(self._inside.__aenter__))

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Release the lease, also after an error in the block. A closed engine has released it already."""
        if not self._portal.is_forked and not self._portal.is_stopped:
            self._portal.call(self._inside.__aexit__, kind, error, trace)


def _blocking_open(open_engine: Callable[P, EngineOpening[Engine]]) -> Callable[P, "BlockingEngine"]:
    @functools.wraps(open_engine)
    def opened(*args: P.args, **kwargs: P.kwargs) -> "BlockingEngine":
        # Invalid arguments raise here, before a thread is started.
        opening = open_engine(*args, **kwargs)
        portal = Portal("interlock-engine")
        try:
            return BlockingEngine(portal, portal.call(_await_engine, opening))
        except BaseException:
            portal.stop()
            raise

    opened.__doc__ = "Open an engine: `with BlockingEngine.open(…) as engine`. It takes what `Engine.open` takes."
    return opened


async def _await_engine(opening: EngineOpening[Engine]) -> Engine:
    return await opening


class BlockingEngine(ClosingProxy[Engine]):
    """An open engine for code that is not async. Make one with `BlockingEngine.open`."""

    open = staticmethod(_blocking_open(Engine.open))

    start = blocking(Engine.start)
    send = blocking(Engine.send)
    send_many = blocking(Engine.send_many)

    get = blocking(Engine.get)
    wait = blocking(Engine.wait)
    history = blocking(Engine.history)
    children = blocking(Engine.children)
    attempts = blocking(Engine.attempts)
    why = blocking(Engine.why)
    charts = blocking(Engine.charts)
    fork = blocking(Engine.fork)
    rewind = blocking(Engine.rewind)
    find = blocking(Engine.find)
    stalled = blocking(Engine.stalled)
    allowed = blocking(Engine.allowed)
    stats = blocking(Engine.stats)

    subscribe = plain(Engine.subscribe)
    unsubscribe = plain(Engine.unsubscribe)

    tasks = blocking(Engine.tasks)
    task = blocking(Engine.task)
    claim_task = blocking(Engine.claim_task)
    release_task = blocking(Engine.release_task)

    compensations = blocking(Engine.compensations)
    dead_letters = blocking(Engine.dead_letters)
    retry_dead_letter = blocking(Engine.retry_dead_letter)
    resolve_dead_letter = blocking(Engine.resolve_dead_letter)
    prune = blocking(Engine.prune)

    pause = blocking(Engine.pause)
    resume = blocking(Engine.resume)
    pauses = blocking(Engine.pauses)

    contention = blocking(Engine.contention)

    breakers = plain(Engine.breakers)
    force_breaker = plain(Engine.force_breaker)
    set_limit = plain(Engine.set_limit)
    set_admission = plain(Engine.set_admission)

    @property
    def schedules(self) -> BlockingSchedules:
        """The schedules of this home."""
        return BlockingSchedules(self._portal, self._inside.schedules)

    @property
    def bulk_runs(self) -> BlockingBulkRuns:
        """The bulk runs of this home."""
        return BlockingBulkRuns(self._portal, self._inside.bulk_runs)

    def bulk(
        self,
        machine: Machine[StateT, ContextT, EventT],
        *,
        state: StateT | None = None,
        where: Where = (),
        updated_after: datetime | None = None,
        updated_before: datetime | None = None,
    ) -> BlockingBulk[EventT]:
        """As `Engine.bulk`: `engine.bulk(order, state=State.CHARGING).dry_run(Cancel())`."""
        inside = self._inside.bulk(
            machine, state=state, where=where, updated_after=updated_after, updated_before=updated_before
        )
        return BlockingBulk(self._portal, inside)

    def lease(self, name: str, *, wait_s: Seconds = WAIT_S, lease_s: Seconds = LEASE_S) -> BlockingLeasing:
        """As `Engine.lease`: `with engine.lease("nightly-report") as lease`."""
        return BlockingLeasing(self._portal, self._inside.lease(name, wait_s=wait_s, lease_s=lease_s))

    def of(self, machine: Machine[StateT, ContextT, EventT]) -> BlockingWorkflows[StateT, ContextT, EventT]:
        """Return the same calls, typed by the machine."""
        return BlockingWorkflows(self._portal, self._inside.of(machine))

    def transaction(self, connection: object) -> AbstractContextManager[BlockingTransaction]:
        """As `Engine.transaction`, for connections without an event loop. It does not run in the engine's loop."""
        return self._inside.transaction(connection)
