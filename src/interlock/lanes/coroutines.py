"""Driving a coroutine inside the writer: `transact(fn)` where `fn` awaits only its `tx`.

The coroutine never meets an event loop. Awaiting a `Request` hands it to this driver, which performs it on the writer's
session and sends the answer back, all within one transaction and without leaving the thread. Anything else it awaits
(a sleep, a socket) would stop the lane, so it ends the transaction with an error that says so.

The first statement that fails ends the transaction, even if the coroutine catches the error: both engines behave so.
"""

import contextlib
import contextvars
import inspect
from collections.abc import Awaitable, Callable, Coroutine, Generator
from typing import Generic, TypeVar, cast

from interlock.errors import TransactionError
from interlock.lanes.session import Session

AnswerT = TypeVar("AnswerT")


class Request(Generic[AnswerT]):
    """Something a transaction asks of the database: awaited by the user's function, performed by the driver."""

    __slots__ = ("perform",)

    def __init__(self, perform: Callable[[Session], AnswerT]) -> None:
        self.perform = perform

    def __await__(self) -> Generator["Request[AnswerT]", AnswerT, AnswerT]:
        """Hand the request to the driver and wait for its answer."""
        answer = yield self
        return answer


def drive(start: Callable[[], Awaitable[object]], session: Session, context: contextvars.Context) -> object:
    """Run the coroutine that `start` makes to its end; returns what it returns."""
    coroutine = context.run(start)
    if not inspect.iscoroutine(coroutine):
        raise _not_only_tx(f"it returned {type(coroutine).__name__} instead of being `async def`")
    answer: object = None
    try:
        while True:
            try:
                request = context.run(coroutine.send, answer)
            except StopIteration as stop:
                return cast("object", stop.value)
            if not isinstance(request, Request):
                raise _not_only_tx(f"it awaited {type(request).__name__}")
            try:
                answer = cast("Request[object]", request).perform(session)
            except Exception as error:
                _unwind(coroutine, context, error)
                raise
    except RuntimeError as error:
        if str(error) != "no running event loop":
            raise
        raise _not_only_tx("it asked for an event loop") from error
    finally:
        coroutine.close()


def _unwind(coroutine: Coroutine[object, object, object], context: contextvars.Context, error: Exception) -> None:
    # Its `finally` blocks run; whatever it says afterwards, the transaction is over and this error is its end.
    with contextlib.suppress(BaseException):
        context.run(coroutine.throw, error)


def _not_only_tx(what: str) -> TransactionError:
    return TransactionError(
        f"a function given to transact may await only its tx, but {what}.",
        why="It runs inside the single writer of the lane: while it waited for anything else, nobody would be served.",
        fix="Do the other waiting before transact, and pass the result as an argument.",
    )
