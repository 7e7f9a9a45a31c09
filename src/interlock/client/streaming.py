"""What happens at a server, as it happens: server-sent events, taken up again where they were cut off.

Each event has an id; after a cut the client asks for what came behind the last one it has given away. A server that has
forgotten what lies between says `reset`, and so does the stream: whoever listens then looks at the whole again. What an
older client does not know is left out.
"""

import asyncio
import re
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from types import TracebackType
from typing import Self

import msgspec

from interlock.client.calling import Calling, Refusing
from interlock.client.messages import Garbage, Lost, NotSent
from interlock.client.pool import Attempt
from interlock.client.verdicts import Call, Failure
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
"""G6: of one event."""

SILENCE_S = 60.0
"""A server says that it is there far more often; after so long without a word the connection is taken for dead."""

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
    """The name of a signal in the stream: transition_applied for TransitionApplied."""
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "_", cls.__name__).lower()


KINDS: dict[str, type[Signal]] = {kind_of(cls): cls for cls in _SIGNALS}

_END_OF_LINE = re.compile(rb"\r\n|\n|\r")


class Streamed(msgspec.Struct, frozen=True):
    """One event of a stream."""

    id: str
    """Where the stream goes on: `client.stream(last_event_id=…)`."""
    kind: str
    """The name of the signal, or "reset": something was missed, look at the whole again."""
    signal: Signal | None = None


class Stream(AsyncIterator[Streamed]):
    """Events as they come: `async with client.stream() as events: async for event in events: …`."""

    def __init__(
        self,
        calling: Calling,
        target: str,
        last_event_id: str | None = None,
        opened: Callable[[], None] | None = None,
    ) -> None:
        self.last_event_id = last_event_id
        """Where the stream would go on."""
        self._opened = opened
        """Told whenever the server has begun to answer: nothing that happens from then on is missed."""
        self._events = self._all(calling, target)

    async def __anext__(self) -> Streamed:
        """The next event."""
        return await anext(self._events)

    async def aclose(self) -> None:
        """Leave the stream, and its connection."""
        await self._events.aclose()

    async def __aenter__(self) -> Self:
        """It begins with the first event that is asked for."""
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Leave it."""
        del kind, error, trace
        await self.aclose()

    async def _all(self, calling: Calling, target: str) -> AsyncGenerator[Streamed, None]:
        attempt = 0
        while True:
            headers = () if self.last_event_id is None else (("Last-Event-ID", self.last_event_id),)
            call = Call("GET", target, headers=headers, kind=SSE)
            attempt += 1
            calling.spend(retry=attempt > 1)
            parser = Parser(self.last_event_id or "")
            reached = Attempt()
            try:
                async with (
                    asyncio.timeout(calling.attempt_s) as silence,
                    calling.streamed(call, reached, apart=True) as sse,
                ):
                    if self._opened is not None:
                        self._opened()
                    loop = asyncio.get_running_loop()
                    silence.reschedule(loop.time() + SILENCE_S)
                    async for piece in sse.pieces():
                        silence.reschedule(loop.time() + SILENCE_S)
                        for event in parser.feed(piece):
                            attempt = 0
                            silence.reschedule(None)  # Whoever reads may take their time.
                            self.last_event_id = event.id
                            yield event
                            silence.reschedule(loop.time() + SILENCE_S)
                        if parser.blocks > 1:
                            attempt = 0  # It was open, and quiet: a mounted server ends each stream after a while.
                        self.last_event_id = parser.last or self.last_event_id
                failure = calling.verdicts.lost(call, "the stream has ended")
            except TimeoutError:
                failure = calling.verdicts.lost(call, "it has been silent for too long")
            except NotSent as error:
                failure = calling.verdicts.not_sent(call, str(error))
            except Lost as error:
                failure = calling.verdicts.lost(call, str(error))
            except Garbage as error:
                failure = calling.verdicts.garbage(call, str(error))
            except Refusing as refused:
                failure = refused.failure
            await _before_the_next(calling, call, failure, max(attempt, 1))


async def _before_the_next(calling: Calling, call: Call, failure: Failure, attempt: int) -> None:
    deadline_s = asyncio.get_running_loop().time() + calling.timeout_s
    if not await calling.paused(call, failure, attempt, deadline_s):
        raise failure.error


class Parser:
    """Makes events out of pieces of text/event-stream."""

    def __init__(self, last: str = "") -> None:
        self.last = last
        """The id of the last event that was whole."""
        self.blocks = 0
        """The number of whole blocks: the beginning of the stream, events, and comments of a quiet stream."""
        self._id = last
        self._rest = b""
        self._kind = ""
        self._data: list[bytes] = []
        self._size = 0

    def feed(self, piece: bytes) -> list[Streamed]:
        """The events that are complete with this piece. Raises Garbage for one that is too large."""
        text = self._rest + piece
        # A carriage return at the end may be the first half of a line's end.
        held = text.endswith(b"\r")
        *lines, self._rest = _END_OF_LINE.split(text[:-1] if held else text)
        if held:
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
        # Not before: of an event that was cut off in the middle nobody has heard yet.
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
