"""The HTTP protocol of `interlock serve`, with bounds that only a transport can keep: heads and connections (G6).

uvicorn reads a head of any size for any time, and answers invalid HTTP with a line of text. Here the size and the time
of a head are bounded, and so are bytes outside of bodies (trailers, empty lines). Errors are problem documents. The
app bounds bodies. A client that reads nothing of its answer is disconnected: a client that sends everything before it
reads could otherwise wait for the server while the server waits for it.

Requests that `AsgiApp.refusal` refuses are answered here, before a task is created; the connection stays open.

A request may be answered before its body has arrived. A small rest is read and dropped, and the connection stays open.
After a large one the connection ends: the server closes its own side, and reads a bounded rest for a bounded time. A
connection that is closed with unread bytes would be reset, and the client could lose the answer.
"""

import asyncio
import re
from collections.abc import Callable
from typing import TYPE_CHECKING, ClassVar, cast

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from interlock.errors import InterlockError, Overloaded
from interlock.server.app_declaration import Limits
from interlock.server.asgi import AsgiApp
from interlock.server.http_messages import API_HEADERS, CLOSE, HttpAnswer, answer_to, headers_of, is_rest_large
from interlock.server.problems import Headers, HttpProblem, phrase

if TYPE_CHECKING:
    from uvicorn._types import ASGI3Application

    from interlock.server.http_messages import AsgiScope

BUSY_S = 5.0
"""Seconds after which to retry at a server whose connections are all in use."""

DRAIN_BYTES = 262_144
DRAIN_S = 2.0
"""How many bytes of a body are read and dropped after the answer, and for how long."""


class BoundedProtocol(HttpToolsProtocol):
    """One connection with bounds on heads, idle time and unread answers."""

    limits: ClassVar[Limits]
    asgi_app: ClassVar[AsgiApp]
    _late: asyncio.TimerHandle | None = None
    _unread: asyncio.TimerHandle | None = None
    _left_bytes = 0
    """Bytes that were written and not read by the client at the last check."""
    _in_head = False
    _uncounted = 0
    """Bytes received since the last head, piece of a body, or end of a message."""
    _in_body = False
    _is_last = False
    """The request asks for another protocol: the parser reads no more, so the connection ends with it."""
    _ends = False
    """The last answer is written: only the rest of its request's body is still read."""
    _drain: asyncio.TimerHandle | None = None
    _drained_bytes = 0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Accept a connection, or refuse it when all are in use."""
        super().connection_made(transport)
        self._closing = cast("asyncio.Transport", _ClosedInOrder(transport, self.close_in_order))
        if len(self.connections) > self.limits.connections_max:
            self._refuse(_too_many(self.limits))
        else:
            self._late = self.loop.call_later(self.limits.head_s, self._too_late)

    def connection_lost(self, exc: Exception | None) -> None:
        """Cancel the timers of the connection."""
        self._stop_late()
        self._stop_watch()
        self._stop_drain()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Parse received bytes, and count those that are not bounded elsewhere."""
        if self._is_last:
            return
        self._uncounted += len(data)
        super().data_received(data)
        if self._in_body and self.cycle.response_complete:
            self._drop(len(data))
        if self._uncounted > self.limits.head_bytes_max:
            self._refuse(_too_large(self.limits))
        elif self._in_head and self._late is None:
            self._late = self.loop.call_later(self.limits.head_s, self._too_late)

    def pause_writing(self) -> None:
        """Start a timer: the client reads more slowly than the server writes."""
        super().pause_writing()
        self._stop_watch()
        self._watch()

    def resume_writing(self) -> None:
        """Stop the timer: the client has caught up."""
        self._stop_watch()
        super().resume_writing()

    def on_message_begin(self) -> None:
        """Note that a head begins."""
        self._in_head = True
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        """Check a complete head, and pass the request to the app."""
        received, self._uncounted = self._uncounted, 0
        self._in_head = False
        self._stop_late()
        if received > self.limits.head_bytes_max and self._head_bytes() > self.limits.head_bytes_max:
            self._refuse(_too_large(self.limits))
            raise ValueError  # The head came in one piece. The parser stops, and the answer is already written.
        parser = self.parser
        assert parser is not None
        self._is_last = parser.should_upgrade()
        fault = _fault(parser.get_http_version(), parser.get_method(), self.url, self.headers)
        if fault is None and self._is_last and is_rest_large(headers_of(self.headers), 0, most_bytes=0):
            # The parser would drop the body, or read it as the next request.
            fault = "The request has a body and the header Upgrade; the server speaks no other protocol."
        if fault is not None:
            self._refuse(_invalid_http(fault))
            raise ValueError  # As above.
        self._in_body = True
        try:
            super().on_headers_complete()
        except Exception:
            self._in_body = False
            raise
        if self._is_last:
            self.cycle.keep_alive = False

    def _unsupported_upgrade_warning(self) -> None:
        """Log nothing: a client could fill the log."""

    def on_body(self, body: bytes) -> None:
        """Pass a piece of a body to the app, which counts it."""
        self._uncounted = 0
        super().on_body(body)

    def on_message_complete(self) -> None:
        """Note that the request is complete."""
        self._uncounted = 0
        self._in_body = False
        super().on_message_complete()
        if self._drain is not None:
            self._stop_drain()
            if self._ends:
                self.transport.close()

    def close_in_order(self) -> None:
        """Close the connection after an answer; a client that is still sending can read the answer first."""
        if not (self._in_body and self.cycle.response_complete) or self.transport.is_closing():
            self.transport.close()
            return
        self._ends = True
        self.transport.write_eof()
        self._drop(0)

    def send_400_response(self, msg: str) -> None:
        """Answer invalid HTTP with a problem document."""
        self._refuse(_invalid_http(msg))

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: "ASGI3Application") -> None:
        """Refuse the request, or pass it to the app."""
        # Pipelined requests are passed to the app, one turn of the event loop each: here they would recurse.
        cycle.transport = self._closing
        refused = None
        if not self.pipeline and not self.flow.write_paused:
            refused = self.asgi_app.refusal(cast("AsgiScope", cycle.scope))
        if refused is None:
            super()._start_asgi_task(cycle, app)
            return
        keeps = cycle.keep_alive and not is_rest_large(headers_of(self.headers), 0)
        closing = () if keeps else CLOSE
        self.transport.write(_encode_answer(refused, (*cycle.default_headers, *refused.headers), closing))
        cycle.response_started = cycle.response_complete = True  # The rest of its body is read and dropped.
        if closing:
            self.close_in_order()
        cycle.on_response()

    def _drop(self, size_bytes: int) -> None:
        """Count bytes that came after the answer, and bound the time that the rest may take."""
        if self._drain is None:
            self._drained_bytes = 0
            self._drain = self.loop.call_later(DRAIN_S, self.transport.close)
        self._drained_bytes += size_bytes
        if self._drained_bytes > DRAIN_BYTES and not self.transport.is_closing():
            self.flow.pause_reading()  # The client can read its answer until the timer closes the connection.

    def _stop_drain(self) -> None:
        if self._drain is not None:
            self._drain.cancel()
            self._drain = None

    def _head_bytes(self) -> int:
        return len(self.url) + sum(len(name) + len(value) for name, value in self.headers)

    def _stop_late(self) -> None:
        if self._late is not None:
            self._late.cancel()
            self._late = None

    def _watch(self) -> None:
        self._left_bytes = self.transport.get_write_buffer_size()
        self._unread = self.loop.call_later(self.limits.unread_s, self._check_read)

    def _stop_watch(self) -> None:
        if self._unread is not None:
            self._unread.cancel()
            self._unread = None

    def _check_read(self) -> None:
        if self.transport.get_write_buffer_size() < self._left_bytes:
            self._watch()  # The client reads slowly, but it reads.
        else:
            self.transport.abort()  # Closing would wait until it has read everything.

    def _too_late(self) -> None:
        self._late = None
        if self._in_head:
            self._refuse(_too_slow(self.limits))
        else:
            self.transport.close()  # No request has begun, so there is nothing to answer.

    def _refuse(self, error: InterlockError) -> None:
        self._uncounted = 0
        if not self.transport.is_closing():
            # At any other position it would be read as the answer to another request, or as a part of one.
            if self._is_next():
                answer = answer_to(error)
                self.transport.write(_encode_answer(answer, answer.headers, CLOSE))
            self.transport.close()

    def _is_next(self) -> bool:
        """Return whether an answer written now belongs to the request that is being read."""
        cycle = cast("RequestResponseCycle | None", self.cycle)
        if cycle is None:
            return True
        return not (cycle.response_started or self.pipeline) if self._in_body else cycle.response_complete


class _ClosedInOrder:
    """The transport as uvicorn uses it for one answer."""

    __slots__ = ("close", "is_closing", "write")

    def __init__(self, transport: asyncio.Transport, close: Callable[[], None]) -> None:
        self.write, self.is_closing, self.close = transport.write, transport.is_closing, close


def bounded_protocol(app: AsgiApp) -> type[BoundedProtocol]:
    """Return a protocol class with the bounds and the overload check of an app."""

    class Limited(BoundedProtocol):
        limits = app.service.limits
        asgi_app = app

    return Limited


def _encode_answer(answer: HttpAnswer, headers: Headers, last: Headers) -> bytes:
    status, length = phrase(answer.status).encode(), len(answer.body)
    before, after = _lines(headers), _lines(last)
    return b"HTTP/1.1 %d %b\r\n%bcontent-length: %d\r\n%b%b\r\n%b" % (
        answer.status,
        status,
        before,
        length,
        _API_LINES,
        after,
        answer.body,
    )


def _lines(headers: Headers) -> bytes:
    return b"".join([b"%b: %b\r\n" % header for header in headers])


_API_LINES = _lines(API_HEADERS)


def _fault(version: str, method: bytes, target: bytes, headers: list[tuple[bytes, bytes]]) -> str | None:
    """Describe what is wrong with a head that the parser accepts (RFC 9112); None for a valid one."""
    if version not in {"1.1", "1.0"}:
        return f"The version of the request line is HTTP/{version}; the server speaks HTTP/1.1 and HTTP/1.0."
    hosts = [
        value.rstrip(b" \t") for name, value in headers if name == b"host"
    ]  # The parser keeps trailing whitespace.
    if len(hosts) > 1 or (not hosts and version == "1.1"):
        return f"The request has {len(hosts) or 'no'} Host headers; it must have exactly one."
    if hosts and _HOST.fullmatch(hosts[0]) is None:
        return "The header Host is not a name or an address with an optional port."
    codings = [value.strip().lower() for name, value in headers if name == b"transfer-encoding"]
    if codings and (version == "1.0" or codings != [b"chunked"]):
        return "The header Transfer-Encoding may be chunked, in HTTP/1.1, and nothing else."
    return _wrong_target(method, target, hosts)


def _wrong_target(method: bytes, target: bytes, hosts: list[bytes]) -> str | None:
    if target.startswith(b"/"):
        return "The address has a fragment, which is for clients alone." if b"#" in target else None
    if target == b"*":
        return None if method == b"OPTIONS" else "The address * is for OPTIONS alone."
    authority = target.partition(b"://")[2].partition(b"/")[0]
    if hosts and authority.lower() == hosts[0].lower():
        return None
    return "The address is not a path, and does not name the same server as the header Host."


_HOST = re.compile(rb"(?:[A-Za-z0-9._~!$&'()*+;=%-]*|\[[0-9A-Fa-f:.]+\])(?::[0-9]{0,5})?")


def _too_many(limits: Limits) -> Overloaded:
    return Overloaded(BUSY_S, f"{limits.connections_max:,} connections are open already (connections_max).")


def _too_large(limits: Limits) -> HttpProblem:
    return HttpProblem(
        "head-too-large",
        f"the head of the request is larger than {limits.head_bytes_max:,} bytes (head_bytes_max).",
        why="It is kept in memory before the client is authenticated.",
        fix="Send less in the address and in headers; put large values into the body.",
    )


def _too_slow(limits: Limits) -> HttpProblem:
    return HttpProblem(
        "request-timeout",
        f"the head of the request was not here within {limits.head_s:g} s (head_s).",
        why="A silent connection would occupy a slot for ever.",
        fix="Send the request again; one with an idempotency key applies once.",
    )


def _invalid_http(reason: str) -> HttpProblem:
    return HttpProblem(
        "invalid-request",
        "the request is not valid HTTP/1.1.",
        why=reason,
        fix="Use an HTTP client, and check that no proxy changes what it sends.",
    )
