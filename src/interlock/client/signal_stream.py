"""Streams of a server's signals: server-sent events, resumed after a broken connection.

Each event has an id; after a reconnect the client requests the events after the last one it has yielded. If the server
no longer has them it sends `reset`, and the stream yields it: the reader has to load everything again. Unknown kinds
of events are skipped.
"""

import asyncio
import re
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from typing import Self

import msgspec

from interlock.client.http_connection import ExchangeError, Garbage, Lost, RequestProgress
from interlock.client.retries import HttpCall, Transport
from interlock.errors import InterlockError, UnavailableError
from interlock.redaction import logger_of
from interlock.signals import Observer, Signal, Subscribers
from interlock.wire import KINDS

SSE = "text/event-stream"

EVENT_BYTES_MAX = 1024 * 1024
"""G6: size of one event."""

SILENCE_S = 60.0
"""A server sends a sign of life far more often; after this silence the connection is considered broken."""

RESET = "reset"

log = logger_of("interlock.client")

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

    async def __aexit__(self, *_: object) -> None:
        """Close the stream."""
        await self.aclose()

    async def _all(self, transport: Transport, target: str) -> AsyncGenerator[Streamed, None]:
        attempt = 0
        while True:
            headers = () if self.last_event_id is None else (("Last-Event-ID", self.last_event_id),)
            call = HttpCall("GET", target, headers=headers, kind=SSE)
            attempt += 1
            transport.spend(retry=attempt > 1)
            parser = Parser(self.last_event_id or "")
            reached = RequestProgress()
            try:
                async with (
                    asyncio.timeout(transport.attempt_s) as silence,
                    transport.open_stream(call, reached, apart=True) as sse,
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
                failure = transport.verdicts.failure(call, Lost("the stream has ended"))
            except TimeoutError:
                failure = transport.verdicts.failure(call, Lost("it was silent for too long"))
            except ExchangeError as error:
                failure = transport.verdicts.failure(call, error)
            deadline_s = asyncio.get_running_loop().time() + transport.timeout_s
            if not await transport.pause(call, failure, max(attempt, 1), deadline_s):
                raise failure.error


class Subscription:
    """The observers of one client, and the stream that they share while there are any.

    The stream has all kinds of signals of the answering process that the key may see. A broken stream resumes after
    the last signal. If the server no longer has the signals in between, that is only logged, because an observer
    cannot receive it. Use `client.stream` to notice it in code.
    """

    def __init__(self, transport: Transport, target: str) -> None:
        self._transport = transport
        self._target = target
        self._subscribers = Subscribers()
        self._task: asyncio.Task[None] | None = None
        self._begun: asyncio.Future[None] | None = None

    async def subscribe(self, observer: Observer) -> None:
        """Call the observer with every signal from now on. Raises the error that prevents the stream."""
        self._subscribers.subscribe(observer)
        if self._task is None or self._task.done():
            loop = asyncio.get_running_loop()
            self._begun = loop.create_future()
            self._task = loop.create_task(self._follow(self._begun))
        assert self._begun is not None
        try:
            await asyncio.shield(self._begun)
        except BaseException:
            self.unsubscribe(observer)
            raise

    def unsubscribe(self, observer: Observer) -> None:
        """Stop calling the observer; the stream ends with the last one."""
        self._subscribers.unsubscribe(observer)
        if not self._subscribers:
            self._cancel()

    async def close(self) -> None:
        """End the stream."""
        task = self._task
        self._cancel()
        if task is not None and task is not asyncio.current_task() and task.get_loop() is asyncio.get_running_loop():
            await asyncio.wait({task})

    def _cancel(self) -> None:
        if self._task is not None and not self._task.get_loop().is_closed():
            self._task.cancel()
        self._task = None

    async def _follow(self, begun: "asyncio.Future[None]") -> None:
        last: str | None = None

        def opened() -> None:
            if not begun.done():
                begun.set_result(None)

        try:
            while True:
                stream = Stream(self._transport, self._target, last, opened)
                try:
                    await self._emit_all(stream)
                except UnavailableError as error:
                    if not begun.done() or self._transport.verdicts.closed:
                        raise
                    log.warning("the stream of %s reconnects: %s", self._transport.address, error.what)
                last = stream.last_event_id
                await asyncio.sleep(self._transport.retry.max_s)
        except InterlockError as error:
            if begun.done():
                log.error("the stream of %s has ended: %s", self._transport.address, error.what)  # noqa: TRY400 -- a known error.
            else:
                begun.set_exception(error)
        finally:
            begun.cancel()  # Does nothing when it is done.

    async def _emit_all(self, stream: Stream) -> None:
        async with stream:
            async for event in stream:
                if event.signal is None:
                    log.warning("signals of %s were missed: the server no longer has them.", self._transport.address)
                else:
                    self._subscribers.emit(event.signal)


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
