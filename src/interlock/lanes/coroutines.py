"""The driver of a coroutine inside the writer: `transact(fn)` where `fn` awaits only its `tx`.

The coroutine never meets an event loop. Awaiting a `Request` hands it to this driver, which performs it on the writer's
session and sends the answer back, all within one transaction and without leaving the thread. Anything else it awaits
(a sleep, a socket) would stop the lane, so it ends the transaction with an error that says so. `conversation` is the
same for a driver that awaits the answers itself, as on PostgreSQL.

The first statement that fails ends the transaction, even if the coroutine catches the error: both engines behave so.
A request that was made and never awaited ends it too: to commit without it would acknowledge what did not happen (D2).
"""

import contextlib
import contextvars
import inspect
import reprlib
import threading
from collections.abc import Awaitable, Callable, Coroutine, Generator
from functools import partial
from types import TracebackType
from typing import Generic, Never, TypeVar, cast

from interlock.errors import TransactionError

AnswerT = TypeVar("AnswerT")

AWAITS_WHILE_ENDING_MAX = 100
"""How often a coroutine is closed again because its `finally` blocks, nested in each other, await something."""

_NO_LOOP = ("no running event loop", "There is no current event loop")


class Requests:
    """The requests of one run of a function, and which of them were not awaited."""

    __slots__ = ("_left", "abandoned", "over", "running", "thread")

    def __init__(self) -> None:
        self._left: dict[Request[object], None] = {}
        self.thread = threading.get_ident()
        self.running = False
        """Whether the function's own code runs at this moment: no other code may use its tx."""
        self.over = False
        self.abandoned = False
        """Whether the function would not end. Python closes it once more when it is collected, in any thread."""

    def ask(self, call: str, sql: str, perform: Callable[[], object]) -> "Request[AnswerT]":
        """Return a request that has to be awaited before the function ends; its driver performs it."""
        request: Request[AnswerT] = Request(self, f"tx.{call}", sql, perform)
        self.refuse_if_over(request)
        self._left[cast("Request[object]", request)] = None
        return request

    def awaited(self, request: "Request[object]") -> None:
        """Note that the request was awaited, and is going to be performed."""
        self._left.pop(request, None)

    def refuse_if_over(self, request: "Request[AnswerT]") -> None:
        """Raise TransactionError for a tx that is used when, or where, its function does not run."""
        if self.abandoned:
            # Raised here, the error would keep a function that catches everything in its loop for ever.
            request.perform = partial(self._refuse, request)
        elif not self.running or self.over or self.thread != threading.get_ident():
            self._refuse(request)

    @staticmethod
    def _refuse(request: "Request[AnswerT]") -> Never:
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


class Request(Generic[AnswerT]):
    """Something a transaction asks of the database: awaited by the user's function, performed by the driver."""

    __slots__ = ("_requests", "_sql", "call", "perform")

    def __init__(self, requests: Requests, call: str, sql: str, perform: Callable[[], object]) -> None:
        self._requests = requests
        self._sql = sql
        self.call = call
        self.perform = perform

    def __await__(self) -> Generator["Request[AnswerT]", AnswerT, AnswerT]:
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
    start: Callable[[Requests], Awaitable[object]],
    context: contextvars.Context,
    run: Run = lambda function: function(),
) -> Generator["Request[object]", object, object]:
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
            if not isinstance(request, Request):
                raise _not_only_tx("a bare sleep" if request is None else type(request).__name__)
            pending = cast("Request[object]", request)
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
