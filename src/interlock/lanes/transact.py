"""Functions given to `transact`, which await only their `tx`: their driver inside the writer, and their watchdog.

The coroutine never meets an event loop. Awaiting a `PendingRequest` hands it to this driver, which performs it on the
writer's session and sends the answer back, all within one transaction and without leaving the thread. Anything else it
awaits (a sleep, a socket) would stop the lane, so it ends the transaction with an error that says so. `conversation` is
the same for a driver that awaits the answers itself, as on PostgreSQL.

The first statement that fails ends the transaction, even if the coroutine catches the error: both engines behave so.
A request that was made and never awaited ends it too: to commit without it would acknowledge what did not happen (D2).
"""

import contextlib
import contextvars
import ctypes
import functools
import heapq
import inspect
import itertools
import os
import reprlib
import threading
from collections.abc import Awaitable, Callable, Coroutine, Generator
from functools import partial
from types import TracebackType
from typing import Generic, Never, TypeVar, cast

from interlock.clock import SystemClock
from interlock.errors import TransactionError, UnavailableError

AnswerT = TypeVar("AnswerT")

AWAITS_WHILE_ENDING_MAX = 100
"""How often a coroutine is closed again because its `finally` blocks, nested in each other, await something."""

_NO_LOOP = ("no running event loop", "There is no current event loop")


class Requests:
    """The requests of one run of a function, and which of them were not awaited."""

    __slots__ = ("_left", "abandoned", "over", "running", "thread")

    def __init__(self) -> None:
        self._left: dict[PendingRequest[object], None] = {}
        self.thread = threading.get_ident()
        self.running = False
        """Whether the function's own code runs at this moment: no other code may use its tx."""
        self.over = False
        self.abandoned = False
        """Whether the function would not end. Python closes it once more when it is collected, in any thread."""

    def ask(self, call: str, sql: str, perform: Callable[[], object]) -> "PendingRequest[AnswerT]":
        """Return a request that has to be awaited before the function ends; its driver performs it."""
        request: PendingRequest[AnswerT] = PendingRequest(self, f"tx.{call}", sql, perform)
        self.refuse_if_over(request)
        self._left[cast("PendingRequest[object]", request)] = None
        return request

    def awaited(self, request: "PendingRequest[object]") -> None:
        """Note that the request was awaited, and is going to be performed."""
        self._left.pop(request, None)

    def refuse_if_over(self, request: "PendingRequest[AnswerT]") -> None:
        """Raise TransactionError for a tx that is used when, or where, its function does not run."""
        if self.abandoned:
            # An error that is raised here would keep a function that catches everything in its loop for ever.
            request.perform = partial(self._refuse, request)
        elif not self.running or self.over or self.thread != threading.get_ident():
            self._refuse(request)

    @staticmethod
    def _refuse(request: "PendingRequest[AnswerT]") -> Never:
        raise TransactionError(
            f"{request} was used outside of its transaction.",
            why="A tx means nothing once the function it was given to has ended, nor in another task or thread.",
            fix="Use tx only inside that function, and do not keep or return it.",
        )

    def refuse_left(self) -> None:
        """Raise TransactionError for a request that was never awaited."""
        for request in self._left:
            raise TransactionError(
                f"{request} was called and not awaited, so it did not run; the transaction was rolled back.",
                why="A statement runs when it is awaited. Without it the transaction would be another than the one "
                "that was written.",
                fix=f"Write `await {request.call}(...)`.",
            )


class PendingRequest(Generic[AnswerT]):
    """Something a transaction asks of the database: awaited by the user's function, performed by the driver."""

    __slots__ = ("_requests", "_sql", "call", "perform")

    def __init__(self, requests: Requests, call: str, sql: str, perform: Callable[[], object]) -> None:
        self._requests = requests
        self._sql = sql
        self.call = call
        self.perform = perform

    def __await__(self) -> Generator["PendingRequest[AnswerT]", AnswerT, AnswerT]:
        """Hand the request to the driver and wait for its answer."""
        self._requests.refuse_if_over(self)
        answer = yield self
        return answer

    def __str__(self) -> str:
        return f"{self.call}({reprlib.repr(self._sql)})"


Run = Callable[[Callable[[], object]], object]
"""Runs a piece of the coroutine with the world around it that its engine promises."""


def drive(start: Callable[[Requests], Awaitable[object]], context: contextvars.Context) -> object:
    """Run the coroutine that `start` makes to its end; return its value."""
    talk = conversation(start, context)
    answer: object = None
    try:
        while True:
            request = talk.send(answer)
            try:
                answer = request.perform()
            except Exception as error:
                # Its `finally` blocks run; whatever it says afterwards, the transaction is over and this is its end.
                _ = talk.throw(error)
                raise
    except StopIteration as stop:
        return cast("object", stop.value)
    finally:
        talk.close()


def conversation(
    start: Callable[[Requests], Awaitable[object]], context: contextvars.Context, run: Run = lambda function: function()
) -> Generator["PendingRequest[object]", object, object]:
    """Yield the coroutine's requests one after the other; receive the answers, and return its value.

    A request that fails is thrown in, and ends it.
    """
    requests = Requests()
    requests.running = True
    try:
        coroutine = run(lambda: context.run(start, requests))
    finally:
        requests.running = False
    if not inspect.iscoroutine(coroutine):
        requests.over = True
        raise _not_async(coroutine)

    def step(answer: object) -> object:
        requests.running = True
        try:
            return run(lambda: context.run(coroutine.send, answer))
        finally:
            requests.running = False

    answer: object = None
    returned: object = None
    try:
        while True:
            try:
                request = step(answer)
            except StopIteration as stop:
                returned = cast("object", stop.value)
                break
            if not isinstance(request, PendingRequest):
                raise _not_only_tx("a bare sleep" if request is None else type(request).__name__)
            pending = cast("PendingRequest[object]", request)
            requests.awaited(pending)
            try:
                answer = yield pending
            except Exception as error:
                requests.running = True
                _throw(coroutine, context, error)
                raise
    except (RuntimeError, AttributeError) as error:
        if not _wants_a_loop(error):
            raise
        raise _not_only_tx("something that needs an event loop") from error
    else:
        requests.refuse_left()
        return returned
    finally:
        requests.running = True  # What is left of its code: `finally` blocks.
        requests.over = _end(coroutine, context)
        requests.abandoned = not requests.over


def _throw(coroutine: Coroutine[object, object, object], context: contextvars.Context, error: Exception) -> None:
    # Its `finally` blocks run; whatever it says afterwards, the transaction is over and this error is its end.
    with contextlib.suppress(BaseException):
        context.run(coroutine.throw, error)


def _end(coroutine: Coroutine[object, object, object], context: contextvars.Context) -> bool:
    """Close the coroutine, again whenever a `finally` of it awaits; return False when it does not end."""
    for _ in range(AWAITS_WHILE_ENDING_MAX):
        if inspect.getcoroutinestate(coroutine) == inspect.CORO_CLOSED:
            return True
        with contextlib.suppress(BaseException):  # What ended the transaction is known already.
            context.run(coroutine.close)
    return False


def _wants_a_loop(error: Exception) -> bool:
    """Whether asyncio has failed because no event loop runs here; not all of it says so."""
    if str(error).startswith(_NO_LOOP):
        return True
    trace: TracebackType | None = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    return trace is not None and str(trace.tb_frame.f_globals.get("__name__")).startswith("asyncio.")


def _not_only_tx(what: str) -> TransactionError:
    return TransactionError(
        f"a function given to transact may await only its tx, one call at a time, but it awaited {what}.",
        why="It runs inside the single writer of the lane, without an event loop: while it waited for anything else, "
        "no other transaction would run.",
        fix="Write `await tx.execute(...)`, one after the other, without gather, tasks or timeouts. Do other waiting "
        "before transact, and pass the result as an argument.",
    )


def _not_async(returned: object) -> TransactionError:
    return TransactionError(
        f"the function given to transact is not `async def`: it returned {type(returned).__name__}.",
        why="It awaits its tx, which only an `async def` can; a lambda or a plain function runs no statement.",
        fix="Make it `async def function(tx, ...)`, and await every call of tx in it.",
    )


# --- Watchdog --------------------------------------------------------------------------------------------------------
# A function given to `transact` runs inside the single writer. While it runs no other one does, so it is watched:
# when its time is over, SQLite is interrupted and `HeldTooLong` is raised inside the function, wherever it is, and
# again until the function is over. One thread watches for the whole process, and it exists only once a function was
# watched.
#
# The odd choice is raising into another thread (the interpreter's asynchronous exception). It arrives when the
# interpreter looks for it: after a call, at a jump backwards, at the start of a function. So a function that blocks
# inside C (a long sleep, a socket) ends only when that call returns; nothing in Python can do more. And a line of
# this module that does none of the three cannot be hit: what must not be interrupted here is written so.
#
# The first time is polite: `except BaseException` keeps it. From the second time on the exception sends itself again
# whenever it is caught, so that it arrives once more while the handler runs, outside of the `try` that has caught
# it: no loop around a `try` lives on, and no number of them around each other.

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
    """Return a class of HeldTooLong whose creation sends the next one to the thread.

    CPython makes the object when a handler catches the class, so code that catches one gets another.
    """

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
            # A function without a watchdog could hold the lane for ever. The next call tries to start one again.
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


def run_watched(limit_s: float, interrupt: Callable[[], None], function: Callable[[], ResultT]) -> ResultT:
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
    """Return if the watchdog never barked. Otherwise wait for the last HeldTooLong on its way, and let it raise."""
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
