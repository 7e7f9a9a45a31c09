"""Streams of a server's signals: server-sent events, resumed after a broken connection.

Each event has an id; after a reconnect the client requests the events after the last one it has yielded. If the server
no longer has them it sends `reset`, and the stream yields it: the reader has to load everything again. Unknown kinds
of events are skipped.
"""

import asyncio
import re
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from types import TracebackType
from typing import Self

import msgspec

from interlock.client.connection import Attempt, Garbage, Lost, NotSent
from interlock.client.retries import Call, Failure, StreamRefused, Transport
from interlock.signals import (
    AlertRaised,
    BreakerChanged,
    LoopBlocked,
    RedisChanged,
    ResultLate,
    Signal,
    StepAttempted,
    TransitionApplied,
    TransitionRejected,
)

SSE = "text/event-stream"

EVENT_BYTES_MAX = 1024 * 1024
"""G6: size of one event."""

SILENCE_S = 60.0
"""A server sends a sign of life far more often; after this silence the connection is considered broken."""

RESET = "reset"

_SIGNALS: tuple[type[Signal], ...] = (
    TransitionApplied,
    TransitionRejected,
    StepAttempted,
    ResultLate,
    BreakerChanged,
    RedisChanged,
    AlertRaised,
    LoopBlocked,
)


def kind_of(cls: type[Signal]) -> str:
    """Return the name of a signal in the stream: transition_applied for TransitionApplied."""
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "_", cls.__name__).lower()


KINDS: dict[str, type[Signal]] = {kind_of(cls): cls for cls in _SIGNALS}

_END_OF_LINE = re.compile(rb"\r\n|\n|\r")


class Streamed(msgspec.Struct, frozen=True):
    """One event of a stream."""

    id: str
    """The position at which to resume: `client.stream(last_event_id=…)`."""
    kind: str
    """The name of the signal, or "reset": events were missed, load everything again."""
    signal: Signal | None = None


class Stream(AsyncIterator[Streamed]):
    """Events as they arrive: `async with client.stream() as events: async for event in events: …`."""

    def __init__(
        self,
        transport: Transport,
        target: str,
        last_event_id: str | None = None,
        opened: Callable[[], None] | None = None,
    ) -> None:
        self.last_event_id = last_event_id
        """The position at which the stream would resume."""
        self._opened = opened
        """Called whenever the server has begun to answer: no later signal is missed."""
        self._events = self._all(transport, target)

    async def __anext__(self) -> Streamed:
        """Wait for the next event and return it."""
        return await anext(self._events)

    async def aclose(self) -> None:
        """Close the stream and its connection."""
        await self._events.aclose()

    async def __aenter__(self) -> Self:
        """Return the stream; it connects when the first event is requested."""
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close the stream."""
        del kind, error, trace
        await self.aclose()

    async def _all(self, transport: Transport, target: str) -> AsyncGenerator[Streamed, None]:
        attempt = 0
        while True:
            headers = () if self.last_event_id is None else (("Last-Event-ID", self.last_event_id),)
            call = Call("GET", target, headers=headers, kind=SSE)
            attempt += 1
            transport.spend(retry=attempt > 1)
            parser = Parser(self.last_event_id or "")
            reached = Attempt()
            try:
                async with (
                    asyncio.timeout(transport.attempt_s) as silence,
                    transport.streamed(call, reached, apart=True) as sse,
                ):
                    if self._opened is not None:
                        self._opened()
                    loop = asyncio.get_running_loop()
                    silence.reschedule(loop.time() + SILENCE_S)
                    async for piece in sse.pieces():
                        silence.reschedule(loop.time() + SILENCE_S)
                        for event in parser.feed(piece):
                            attempt = 0
                            silence.reschedule(None)  # The reader's own time does not count as silence.
                            self.last_event_id = event.id
                            yield event
                            silence.reschedule(loop.time() + SILENCE_S)
                        if parser.blocks > 1:
                            attempt = 0  # It was open, but quiet: a mounted server ends each stream after a while.
                        self.last_event_id = parser.last or self.last_event_id
                failure = transport.verdicts.lost(call, "the stream has ended")
            except TimeoutError:
                failure = transport.verdicts.lost(call, "it was silent for too long")
            except NotSent as error:
                failure = transport.verdicts.not_sent(call, str(error))
            except Lost as error:
                failure = transport.verdicts.lost(call, str(error))
            except Garbage as error:
                failure = transport.verdicts.garbage(call, str(error))
            except StreamRefused as refused:
                failure = refused.failure
            await _pause_or_raise(transport, call, failure, max(attempt, 1))


async def _pause_or_raise(transport: Transport, call: Call, failure: Failure, attempt: int) -> None:
    deadline_s = asyncio.get_running_loop().time() + transport.timeout_s
    if not await transport.paused(call, failure, attempt, deadline_s):
        raise failure.error


class Parser:
    """Parses text/event-stream incrementally."""

    def __init__(self, last: str = "") -> None:
        self.last = last
        """The id of the last complete event."""
        self.blocks = 0
        """The number of complete blocks: the beginning of the stream, events, and comments of a quiet stream."""
        self._id = last
        self._rest = b""
        self._kind = ""
        self._data: list[bytes] = []
        self._size = 0

    def feed(self, piece: bytes) -> list[Streamed]:
        """Return the events that this piece completes. Raises Garbage for one that is too large."""
        text = self._rest + piece
        # A carriage return at the end may be the first half of a line ending.
        half = text.endswith(b"\r")
        *lines, self._rest = _END_OF_LINE.split(text[:-1] if half else text)
        if half:
            self._rest += b"\r"
        found = [event for line in lines if (event := self._line(line)) is not None]
        if self._size + len(self._rest) > EVENT_BYTES_MAX:
            raise Garbage(f"an event is longer than {EVENT_BYTES_MAX:,} bytes")
        return found

    def _line(self, line: bytes) -> Streamed | None:
        if not line:
            return self._dispatch()
        name, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        if name == b"id" and b"\0" not in value:
            self._id = value.decode("utf-8", "replace")
        elif name == b"event":
            self._kind = value.decode("utf-8", "replace")
        elif name == b"data":
            self._data.append(value)
            self._size += len(value)
        return None

    def _dispatch(self) -> Streamed | None:
        self.blocks += 1
        kind, data = self._kind, b"\n".join(self._data)
        # Set only now: an event that was cut off in the middle has not been yielded.
        self.last = self._id
        self._kind, self._data, self._size = "", [], 0
        if kind == RESET:
            return Streamed(self.last, RESET)
        cls = KINDS.get(kind)
        if cls is None:
            return None
        try:
            return Streamed(self.last, kind, msgspec.json.decode(data, type=cls))
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise Garbage(f"an event {kind!r} cannot be read: {error}") from error
