"""One HTTP POST with one deadline, from the standard library, in the thread that calls it.

Timeouts of sockets count from one byte to the next, so that a slow receiver could hold a thread for ever. Here every
wait gets the rest of the whole timeout, and only the head of the answer is read. Redirects are not followed: that would
carry the body, with its secrets, to an undeclared address.
"""

import http.client
import io
import re
import socket
import ssl
from dataclasses import dataclass

from interlock.runtime.alerts.receivers import Post
from interlock.seams import Clock

HEAD_BYTES_MAX = 64 * 1024
"""Bytes of an answer's head; a longer one is treated as no answer."""

USER_AGENT = "interlock-alerts"

_STATUS_LINE = re.compile(rb"HTTP/1\.[01] ([1-5]\d\d)(?: .*)?", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Answer:
    """The status of an answer, and its Retry-After."""

    status: int
    retry_after: str | None


def post(request: Post, *, timeout_s: float, tls: ssl.SSLContext | None, clock: Clock) -> Answer:
    """Send the request, read the head of the answer. Raises OSError or HTTPException without one in time."""
    deadline_s = clock.monotonic_s() + timeout_s
    host, secure = request.url.hostname or "", request.url.scheme == "https"
    port = request.url.port or (443 if secure else 80)
    plain = socket.create_connection((host, port), timeout_s)
    try:
        wire = plain
        if secure:
            assert tls is not None
            _set_timeout(plain, deadline_s, clock)
            wire = tls.wrap_socket(plain, server_hostname=host)
    except BaseException:
        plain.close()
        raise
    with wire:
        _set_timeout(wire, deadline_s, clock)
        connection = (http.client.HTTPSConnection if secure else http.client.HTTPConnection)(host, port)
        connection.sock = wire
        target = (request.url.path or "/") + (f"?{request.url.query}" if request.url.query else "")
        headers = {
            **request.headers,
            "Content-Type": "application/json",
            "User-Agent": USER_AGENT,
            "Connection": "close",
        }
        connection.request("POST", target, request.body, headers)
        return _answer(wire, deadline_s, clock)


def _answer(wire: socket.socket, deadline_s: float, clock: Clock) -> Answer:
    head = b""
    while True:
        while b"\r\n\r\n" not in head:
            _set_timeout(wire, deadline_s, clock)
            piece = wire.recv(4_096)
            head += piece
            if not piece or len(head) > HEAD_BYTES_MAX:
                raise http.client.RemoteDisconnected("The receiver closed the connection without an answer.")
        first, _, rest = head.partition(b"\r\n\r\n")
        # The real answer follows an interim one (1xx).
        if first[9:10] != b"1":
            break
        head = rest
    line, _, fields = first.partition(b"\r\n")
    status = _STATUS_LINE.fullmatch(line)
    if status is None:
        raise http.client.BadStatusLine("The receiver does not answer in HTTP/1.1.")
    return Answer(int(status[1]), http.client.parse_headers(io.BytesIO(fields + b"\r\n\r\n")).get("Retry-After"))


def _set_timeout(wire: socket.socket, deadline_s: float, clock: Clock) -> None:
    """Set the socket's timeout to the time left until the deadline."""
    left_s = deadline_s - clock.monotonic_s()
    if left_s <= 0:
        raise TimeoutError("timed out")
    wire.settimeout(left_s)
