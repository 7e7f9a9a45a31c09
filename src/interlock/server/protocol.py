"""HTTP below the app, with the bounds that only a transport can keep: heads, their time, connections (G6).

uvicorn reads a head of any size for any time, and answers what is no HTTP with a line of text. Here a head is bounded
in both, so is whatever else comes without being a piece of a body (trailers, empty lines), and the answer is a problem
document like any other. Bodies are bounded by the app, which knows what they are for. A client that takes nothing of
what was written to it is cut off: one that sends everything before it reads may wait for us as we wait for it.

What is refused at the door is answered here, before anything is made for it; the connection goes on.
"""

import asyncio
from typing import TYPE_CHECKING, ClassVar, cast

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from interlock.errors import Overloaded
from interlock.server.answers import ALWAYS, Answer, Headers
from interlock.server.door import Door
from interlock.server.limits import Limits
from interlock.server.problems import HttpProblem, answer_to, phrase

if TYPE_CHECKING:
    from uvicorn._types import ASGI3Application

    from interlock.server.requests import AsgiScope

BUSY_S = 5.0
"""When it is worth coming back to a server that has all the connections it may have."""

CLOSE: Headers = ((b"connection", b"close"),)


class Bounded(HttpToolsProtocol):
    """One connection."""

    limits: ClassVar[Limits] = Limits()
    door: ClassVar[Door | None] = None
    _late: asyncio.TimerHandle | None = None
    _unread: asyncio.TimerHandle | None = None
    _left_bytes = 0
    """Written, and not taken by the client when that was looked at."""
    _in_head = False
    _uncounted = 0
    """Bytes that have come since the last head, piece of a body, or end of a message."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Take a connection, if there is a place for it."""
        super().connection_made(transport)
        if len(self.connections) > self.limits.connections_max:
            self._refuse(answer_to(_too_many(self.limits)))
        else:
            self._late = self.loop.call_later(self.limits.head_s, self._too_late)

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the connection, and the time that it had."""
        self._on_time()
        self._taken()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Read some bytes, and count those that belong to nothing that is bounded elsewhere."""
        self._uncounted += len(data)
        super().data_received(data)
        if self._uncounted > self.limits.head_bytes_max:
            self._refuse(answer_to(_too_large(self.limits)))
        elif self._in_head and self._late is None:
            self._late = self.loop.call_later(self.limits.head_s, self._too_late)

    def pause_writing(self) -> None:
        """The client takes less than is written to it: it is given time."""
        super().pause_writing()
        self._taken()
        self._watch()

    def resume_writing(self) -> None:
        """It has caught up."""
        self._taken()
        super().resume_writing()

    def on_message_begin(self) -> None:
        """A head begins."""
        self._in_head = True
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        """It ends: the app has the request from now on."""
        come, self._uncounted = self._uncounted, 0
        self._in_head = False
        self._on_time()
        if come > self.limits.head_bytes_max and self._head_bytes() > self.limits.head_bytes_max:
            self._refuse(answer_to(_too_large(self.limits)))
            raise ValueError  # It came in one piece with its end. The parser stops, and the answer is written already.
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        """A piece of a body, which the app counts."""
        self._uncounted = 0
        super().on_body(body)

    def on_message_complete(self) -> None:
        """The request is here as a whole."""
        self._uncounted = 0
        super().on_message_complete()

    def send_400_response(self, msg: str) -> None:
        """Answer what is no HTTP."""
        self._refuse(answer_to(_no_http(msg)))

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: "ASGI3Application") -> None:
        """Refuse the request, or let the app have it."""
        # Behind one another they are left to the app, one turn of the event loop each: here they would nest.
        refused = None
        if self.door is not None and not self.pipeline and not self.flow.write_paused:
            refused = self.door.refusal(cast("AsgiScope", cycle.scope))
        if refused is None:
            super()._start_asgi_task(cycle, app)
            return
        closing = () if cycle.keep_alive else CLOSE
        self.transport.write(_written(refused, (*cycle.default_headers, *refused.headers), closing))
        cycle.response_started = cycle.response_complete = True  # What comes of its body is read and let be.
        if closing:
            self.transport.close()
        cycle.on_response()

    def _head_bytes(self) -> int:
        return len(self.url) + sum(len(name) + len(value) for name, value in self.headers)

    def _on_time(self) -> None:
        if self._late is not None:
            self._late.cancel()
            self._late = None

    def _watch(self) -> None:
        self._left_bytes = self.transport.get_write_buffer_size()
        self._unread = self.loop.call_later(self.limits.unread_s, self._not_taken)

    def _taken(self) -> None:
        if self._unread is not None:
            self._unread.cancel()
            self._unread = None

    def _not_taken(self) -> None:
        if self.transport.get_write_buffer_size() < self._left_bytes:
            self._watch()  # Slowly, and yet.
        else:
            self.transport.abort()  # Closing would wait until it has read everything.

    def _too_late(self) -> None:
        self._late = None
        if self._in_head:
            self._refuse(answer_to(_too_slow(self.limits)))
        else:
            self.transport.close()  # It was opened for nothing: there is no request to answer.

    def _refuse(self, answer: Answer) -> None:
        self._uncounted = 0
        if not self.transport.is_closing():
            self.transport.write(_written(answer, answer.headers, CLOSE))
            self.transport.close()


def bounded_protocol(given: Limits, at: Door | None = None) -> type[Bounded]:
    """The protocol with these bounds, and with a door."""

    class Limited(Bounded):
        limits = given
        door = at

    return Limited


def _written(answer: Answer, headers: Headers, last: Headers) -> bytes:
    status, length = phrase(answer.status).encode(), len(answer.body)
    before, behind = _lines(headers), _lines(last)
    return b"HTTP/1.1 %d %b\r\n%bcontent-length: %d\r\n%b%b\r\n%b" % (
        answer.status,
        status,
        before,
        length,
        _ALWAYS,
        behind,
        answer.body,
    )


def _lines(headers: Headers) -> bytes:
    return b"".join([b"%b: %b\r\n" % header for header in headers])


_ALWAYS = _lines(ALWAYS)


def _too_many(limits: Limits) -> Overloaded:
    return Overloaded(BUSY_S, f"{limits.connections_max:,} connections are open already (connections_max).")


def _too_large(limits: Limits) -> HttpProblem:
    return HttpProblem(
        431,
        f"the head of the request is larger than {limits.head_bytes_max:,} bytes (head_bytes_max).",
        code="head-too-large",
        why="It is kept in memory before anybody knows who asks.",
        fix="Send less in the address and in headers; what is large belongs into the body.",
    )


def _too_slow(limits: Limits) -> HttpProblem:
    return HttpProblem(
        408,
        f"the head of the request was not here within {limits.head_s:g} s (head_s).",
        code="request-timeout",
        why="A connection that says nothing would keep a place for ever.",
        fix="Send the request again; one with an idempotency key applies once.",
    )


def _no_http(told: str) -> HttpProblem:
    return HttpProblem(
        400,
        "what was sent is no request of HTTP/1.1.",
        code="invalid-request",
        why=told,
        fix="Use a client for HTTP, and check that nothing in between changes what it sends.",
    )
