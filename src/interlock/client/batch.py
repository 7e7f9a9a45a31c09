"""`send_many`: events as lines (NDJSON), one answer per line, in order.

Lines are sent in pieces of a bounded size, one piece after another, so that lines of one workflow keep their order.
When the answers end early, those that arrived count. Of the remaining lines, those with a key are sent again; the
outcome of those without a key is OutcomeUnknown.

A refused line is not sent again: a later line of the same workflow may have been applied after it.
"""

import asyncio
from collections.abc import AsyncIterator, Iterable, Iterator
from enum import Enum
from typing import cast

import msgspec

from interlock.client.connection import Attempt, ExchangeError, Garbage, Lost
from interlock.client.retries import Call, Failure, error_of
from interlock.client.workflows import Remote, event_of
from interlock.core.events import Event
from interlock.engine.path.caller_commands import check_id
from interlock.engine.views import Moved, Refused
from interlock.errors import InterlockError, OutcomeUnknown
from interlock.wire import BatchLine, ShownMove, encode

NDJSON = "application/x-ndjson"

LINES_MAX = 1_000
"""Lines of one request."""

BYTES_MAX = 1024 * 1024
"""Bytes of one request, unless a single line is longer."""

ANSWER_LINE_BYTES_MAX = 1024 * 1024

Item = tuple[str, Event] | tuple[str, Event, str | None]
Result = Moved[Enum] | Refused


class Line:
    """One event of a batch, with its answer."""

    __slots__ = ("answer", "data", "doubt", "event", "key", "workflow")

    def __init__(self, workflow: str, event: Event, key: str | None = None) -> None:
        check_id(workflow, "the id of a workflow")
        if key is not None:
            check_id(key, "a delivery key", slash=True)
        name, payload = event_of(event, None)
        self.workflow = workflow
        self.event = event
        self.key = key
        self.data = encode(BatchLine(workflow, name, payload, key)) + b"\n"
        self.answer: Result | None = None
        self.doubt = False
        """Whether it was sent and may have been applied."""


class Batch:
    """One call of `send_many`."""

    def __init__(self, remote: Remote, items: Iterable[Item]) -> None:
        self._remote = remote
        self._transport = remote.transport
        self._slots: list[Line | Refused] = [_line(item) for item in items]

    async def send(self) -> list[Result]:
        """Send everything. Raises only when no line could be sent."""
        lines = [slot for slot in self._slots if isinstance(slot, Line)]
        deadline_s = asyncio.get_running_loop().time() + self._transport.timeout_s
        answered = len(lines) < len(self._slots)
        for piece in _pieces(lines):
            error = await self._piece(piece, deadline_s)
            answered = answered or any(line.answer is not None or line.doubt for line in piece)
            if error is not None:
                if not answered:
                    raise error
                self._give_up(lines, error)
                break
            # Each piece has the timeout of a call of its own: a long list takes longer without being stuck.
            deadline_s = asyncio.get_running_loop().time() + self._transport.timeout_s
        return [slot if isinstance(slot, Refused) else cast("Result", slot.answer) for slot in self._slots]

    async def _piece(self, lines: list[Line], deadline_s: float) -> InterlockError | None:
        """Send lines until all are answered; return the error that ended it earlier."""
        attempt = 0
        while waiting := [line for line in lines if line.answer is None]:
            attempt += 1
            call = _call(waiting)
            failure = await self._attempt(call, waiting, deadline_s)
            if failure is None:
                continue
            for line in waiting:
                if line.answer is None and line.doubt and line.key is None:
                    line.answer = self._unknown(line, failure.error)
            left = [line for line in waiting if line.answer is None]
            call = _call(left)
            if left and not await self._transport.pause(call, failure, attempt, deadline_s):
                return failure.error
        return None

    async def _attempt(self, call: Call, lines: list[Line], deadline_s: float) -> Failure | None:
        """Send the lines once; return the failure that came before the last answer."""
        transport = self._transport
        now_s = asyncio.get_running_loop().time
        attempt_s = max(0.0, min(transport.attempt_s, deadline_s - now_s()))
        transport.spend(retry=any(line.doubt for line in lines))
        attempt = Attempt()
        try:
            async with asyncio.timeout(attempt_s), transport.open_stream(call, attempt) as incoming:
                await self._answers(incoming.pieces(), lines)
        except TimeoutError:
            failure = transport.verdicts.failure(call, Lost(f"there was no whole answer within {attempt_s:.3g} s"))
        except ExchangeError as error:
            failure = transport.verdicts.failure(call, error)
        else:
            if lines[-1].answer is not None:
                return None
            failure = transport.verdicts.failure(call, Lost("the answer ended before its last line"))
        for line in lines:
            line.doubt = line.doubt or (failure.doubt and attempt.sent)
        return failure

    async def _answers(self, pieces: AsyncIterator[bytes], lines: list[Line]) -> None:
        waiting = iter(lines)
        rest = b""
        async for piece in pieces:
            *whole, rest = (rest + piece).split(b"\n")
            for data in whole:
                self._answer(waiting, data)
            if len(rest) > ANSWER_LINE_BYTES_MAX:
                raise Garbage(f"a line is longer than {ANSWER_LINE_BYTES_MAX:,} bytes")
        self._answer(waiting, rest)

    def _answer(self, waiting: Iterator[Line], data: bytes) -> None:
        """Set the answer of the next line. Raises Garbage."""
        if not data.strip():
            return
        line = next(waiting, None)
        if line is None:
            raise Garbage("it has more lines than were sent")
        try:
            document: object = msgspec.json.decode(data)
            if isinstance(document, dict) and "code" in document:
                problem = cast("dict[str, object]", document)
                status = problem.get("status")
                error = error_of(problem, status=status if isinstance(status, int) else 400)
                line.answer = Refused(self._transport.verdicts.clean(error))
            else:
                move = msgspec.convert(document, ShownMove)
                line.answer = self._remote.moved(line.workflow, line.event, move)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise Garbage(str(error)) from error

    def _unknown(self, line: Line, error: InterlockError) -> Refused:
        unknown = OutcomeUnknown(
            f"the event for workflow {line.workflow!r} has no known outcome: {error.what}",
            why="The line may have been applied before the connection, the server or the time failed.",
            fix="Get the workflow before you send it again; with a key the client repeats it safely."
            if line.key is None
            else "Send it again with the same key: it is applied at most once.",
        )
        unknown.__cause__ = error
        return Refused(unknown)

    def _give_up(self, lines: list[Line], error: InterlockError) -> None:
        """Set the outcome of every line that has no answer."""
        for line in lines:
            if line.answer is None:
                line.answer = self._unknown(line, error) if line.doubt else Refused(error)


def _line(item: Item) -> Line | Refused:
    workflow, event, *keys = item
    try:
        return Line(workflow, event, keys[0] if keys else None)
    except InterlockError as error:
        return Refused(error)


def _pieces(lines: list[Line]) -> Iterator[list[Line]]:
    piece: list[Line] = []
    size = 0
    for line in lines:
        if piece and (len(piece) >= LINES_MAX or size + len(line.data) > BYTES_MAX):
            yield piece
            piece, size = [], 0
        piece.append(line)
        size += len(line.data)
    if piece:
        yield piece


def _call(lines: list[Line]) -> Call:
    return Call(
        "POST",
        "/v1/events:batch",
        b"".join(line.data for line in lines),
        (("Content-Type", NDJSON),),
        repeatable=all(line.key is not None for line in lines),
        moves=True,
        kind=NDJSON,
    )
