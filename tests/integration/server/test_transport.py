"""What comes over a real socket and no client library sends: heads, bodies and connections without end (G6)."""

import math
import re
import socket
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from typing import Any

import msgspec
import pytest

from interlock import Admission
from interlock.server.limits import Limits
from tests.integration.server.running import Hands, in_hands

HERE = b"Host: localhost\r\n"
EVENT = b"POST /v1/workflows/o-1/events HTTP/1.1\r\n" + HERE
TIMEOUT_S = 60
LONG_S = 1_000.0
"""Nothing takes so long; the test lets it pass."""
PIECE = 65_536


class Talk:
    """One connection."""

    def __init__(self, url: str) -> None:
        host, _, port = url.rpartition("/")[2].partition(":")
        self.socket = socket.create_connection((host, int(port)), timeout=TIMEOUT_S)

    def say(self, *pieces: bytes) -> "Talk":
        with suppress(ConnectionError):  # The answer may be there before everything was said.
            for piece in pieces:
                self.socket.sendall(piece)
        return self

    def heard(self) -> bytes:
        """Everything until the other side closes."""
        data = b""
        with suppress(ConnectionError):
            while piece := self.socket.recv(PIECE):
                data += piece
        return data

    def until(self, end: bytes) -> bytes:
        data = b""
        while end not in data:
            piece = self.socket.recv(PIECE)
            assert piece, data
            data += piece
        return data


@contextmanager
def talking(
    *,
    admission: Admission | None = None,
    **limits: Any,  # noqa: ANN401 -- as Limits has them.
) -> Iterator[Callable[[], Talk]]:
    """A server with these bounds; gives what opens a connection to it."""
    with talking_in_hands(admission=admission, **limits) as (talk, _):
        yield talk


@contextmanager
def talking_in_hands(
    *,
    admission: Admission | None = None,
    **limits: Any,  # noqa: ANN401 -- as above.
) -> Iterator[tuple[Callable[[], Talk], Hands]]:
    """The same, with the time of the server: a bound is over when the test says so, not when the machine is slow."""
    with in_hands(limits=Limits(**limits), admission=admission) as (url, hands), ExitStack() as opened:

        def talk() -> Talk:
            found = Talk(url)
            opened.callback(found.socket.close)
            return found

        yield talk, hands


def problem(answer: bytes, status: int, code: str) -> dict[str, Any]:
    head, _, body = answer.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 %d " % status), answer
    assert b"content-type: application/problem+json" in head.lower()
    assert b"x-content-type-options: nosniff" in head.lower()
    document: dict[str, Any] = msgspec.json.decode(body)
    assert (document["status"], document["code"]) == (status, code)
    assert document["title"]
    assert document["detail"]
    assert document["fix"]
    return document


@pytest.mark.parametrize(
    "head",
    [
        [b"GET /healthz HTTP/1.1\r\n" + HERE, *[b"x-%d: %b\r\n" % (at, b"y" * 1_000) for at in range(2_000)]],
        [b"GET /v1/workflows/", *[b"x" * 10_000] * 100],
        [b"GET /healthz HTTP/1.1\r\nx: ", *[b"x" * 10_000] * 100],
        [b"\r\n" * 500_000],
        [EVENT + b"Transfer-Encoding: chunked\r\n\r\n0\r\n", *[b"x-%d: y\r\n" % at for at in range(100_000)]],
    ],
    ids=["headers", "an address", "one header", "empty lines", "trailers"],
)
def test_a_head_without_an_end_is_not_kept(head: list[bytes]) -> None:
    """Nobody knows yet who asks: what waits in memory is bounded."""
    with talking(head_bytes_max=20_000) as talk:
        answer = talk().say(*head).heard()
        # A reset may overtake the answer while more is being sent.
        assert not answer or answer.startswith((b"HTTP/1.1 431 ", b"HTTP/1.1 400 "))
        assert b"200 OK" in talk().say(b"GET /healthz HTTP/1.0\r\n" + HERE + b"\r\n").heard()


def test_a_head_that_is_a_little_too_large_is_told() -> None:
    with talking(head_bytes_max=1_000) as talk:
        answer = talk().say(b"GET /healthz HTTP/1.1\r\nx: " + b"x" * 1_200).heard()
        assert "1,000 bytes" in problem(answer, 431, "head-too-large")["title"]


@pytest.mark.parametrize("head", [b"GET /%b HTTP/1.1\r\n", b"GET /healthz HTTP/1.1\r\nx: %b\r\n"])
def test_a_head_that_comes_in_one_piece_with_its_end_is_bounded_too(head: bytes) -> None:
    with talking(head_bytes_max=1_000) as talk:
        answer = talk().say(head % (b"x" * 1_200) + HERE + b"\r\n").heard()
        problem(answer, 431, "head-too-large")
        body = b'{"event": "REMARK", "data": {"note": "%b"}}' % (b"x" * 2_000)
        asked = EVENT + b"Connection: close\r\nContent-Length: %d\r\n\r\n" % len(body)
        problem(talk().say(asked + body).heard(), 404, "workflow-not-found")  # A body is no part of it.


def test_a_head_that_does_not_come_is_not_waited_for() -> None:
    with talking_in_hands(head_s=LONG_S) as (talk, hands):
        with hands.held():
            half, silent = talk().say(b"GET /healthz HTT"), talk()
        later = talk().say(b"GET /healthz HTTP/1.1\r\n" + HERE + b"\r\n")
        assert later.until(b"}").startswith(b"HTTP/1.1 200")
        with hands.held():
            later.say(b"GET /he")
        hands.let_pass(LONG_S)
        problem(half.heard(), 408, "request-timeout")
        assert silent.heard() == b"", "a connection that says nothing is closed"
        problem(later.heard(), 408, "request-timeout")


def test_a_body_that_does_not_come_is_not_waited_for() -> None:
    with talking(body_s=0.05) as talk:
        answer = talk().say(EVENT + b"Content-Length: 100\r\n\r\n{").heard()
        problem(answer, 408, "request-timeout")
        chunks = talk().say(EVENT + b"Transfer-Encoding: chunked\r\n\r\n5\r\n{\r\n").heard()
        problem(chunks, 408, "request-timeout")


@pytest.mark.parametrize(
    "said",
    [
        b"nonsense\r\n\r\n",
        b"GET / HTTP/9.9\r\n\r\n",
        b"GET /\xff HTTP/1.1\r\n" + HERE + b"\r\n",
        EVENT + b"Content-Length: x\r\n\r\n",
        EVENT + b"Content-Length: -5\r\n\r\n",
        EVENT + b"Content-Length: 5\r\nContent-Length: 6\r\n\r\nabcde",
        EVENT + b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        EVENT + b"Transfer-Encoding: chunked\r\n\r\nZZ\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
    ],
)
def test_what_is_no_http_is_answered_as_everything_else(said: bytes) -> None:
    """Also what two readers could read in two ways: two lengths, or a length and chunks."""
    with talking() as talk:
        problem(talk().say(said).heard(), 400, "invalid-request")


def test_a_client_that_reads_nothing_is_cut_off() -> None:
    """Whoever sends on and never reads would keep its answers in memory for ever; a slow reader is waited for."""
    lines = b"x\n" * 60_000
    head = b"POST /v1/events:batch HTTP/1.1\r\n" + HERE + b"Content-Length: "
    with talking_in_hands(unread_s=LONG_S, body_s=math.inf, request_s=math.inf) as (talk, hands):
        deaf = talk()
        deaf.socket.sendall(head + b"%d\r\n\r\n" % 10**12)
        slow = talk().say(head + b"%d\r\n\r\n" % len(lines), lines)
        tail, answers = b"", 0
        while not tail.endswith(b"\r\n0\r\n\r\n"):
            piece = slow.socket.recv(PIECE)
            assert piece, "whoever reads is not cut off"
            answers += piece.count(b"{")
            tail = (tail + piece)[-7:]
        assert answers == 60_000
        with pytest.raises(ConnectionError):  # And not a time-out: the server has ended it.
            flood(deaf, hands)


def flood(deaf: Talk, hands: Hands) -> None:
    """Send as much as goes, and whenever nothing does, let the time pass that one has who reads nothing."""
    deaf.socket.settimeout(0.05)
    for _ in range(1_000):
        with suppress(TimeoutError):
            deaf.socket.sendall(b"x\n" * 5_000_000)
        hands.let_pass(LONG_S)


def test_a_body_in_chunks_is_read_and_bounded() -> None:
    with talking(body_bytes_max=1_000) as talk:
        start = b"POST /v1/machines/ticket/workflows HTTP/1.1\r\n" + HERE + b"Transfer-Encoding: chunked\r\n"
        made = talk().say(start + b'Connection: close\r\n\r\n6\r\n{"id":\r\n6\r\n"t-1"}\r\n0\r\n\r\n')
        assert made.heard().startswith(b"HTTP/1.1 201")
        much = talk().say(start + b"\r\n", *[b"a\r\n0123456789\r\n"] * 200)
        assert much.until(b"limit_bytes").startswith(b"HTTP/1.1 413")
        announced = talk().say(b"POST /v1/prune HTTP/1.1\r\n" + HERE + b"Content-Length: 999999999999\r\n\r\n")
        assert announced.until(b"limit_bytes").startswith(b"HTTP/1.1 413"), "before anything of it is read"


def test_requests_that_come_together_are_answered_in_order() -> None:
    with talking() as talk:
        ask = b"GET /v1/workflows/%b HTTP/1.1\r\n" + HERE + b"%b\r\n"
        both = talk().say(ask % (b"a", b"") + ask % (b"b", b"Connection: close\r\n")).heard()
        assert re.findall(rb"there is no workflow '(\w)'", both) == [b"a", b"b"]


def test_connections_are_bounded() -> None:
    with talking(connections_max=1) as talk:
        first = talk().say(b"GET /healthz HTTP/1.1\r\n" + HERE + b"\r\n")
        assert first.until(b"}").startswith(b"HTTP/1.1 200")
        second = talk().heard()
        problem(second, 429, "overloaded")
        assert b"retry-after: 5" in second
        first.socket.close()


def test_a_client_that_asks_first_is_told_to_go_on() -> None:
    with talking() as talk:
        start = b"POST /v1/machines/ticket/workflows HTTP/1.1\r\n" + HERE + b"Content-Length: 12\r\n"
        asked = talk().say(start + b"Expect: 100-continue\r\nConnection: close\r\n\r\n")
        assert asked.until(b"\r\n\r\n").startswith(b"HTTP/1.1 100")
        assert b" 201 " in asked.say(b'{"id": "t1"}').heard()


@pytest.mark.parametrize("path", [b"/v1/workflows/o-1/events", b"/v1/machines/ticket/workflows"])
def test_whoever_is_refused_keeps_the_connection_and_its_body_is_let_be(path: bytes) -> None:
    """C7: an answer by the head alone; what follows on the connection is read as if nothing had been."""
    with talking(admission=Admission(rate_per_s=0.001, burst=1)) as talk:
        start = b"POST /v1/machines/ticket/workflows HTTP/1.1\r\n" + HERE + b"Content-Length: 13\r\n\r\n"
        assert talk().say(start + b'{"id": "t-1"}').until(b"}").startswith(b"HTTP/1.1 201")
        ask = b"POST " + path + b" HTTP/1.1\r\n" + HERE + b"%bContent-Length: 9\r\n\r\n"
        same = talk()
        for _ in range(3):
            refused = same.say(ask % b"").until(b"}")
            problem(refused, 429, "overloaded")
            assert re.search(rb"\r\ndate: .*\r\nretry-after: \d+\r\n", refused, re.DOTALL)
            assert b"\r\ncache-control: no-store\r\n" in refused
            assert b"connection: close" not in refused
            same.say(b"POST / HT")  # A body, whatever it looks like.
        assert same.say(b"GET /healthz HTTP/1.1\r\n" + HERE + b"\r\n").until(b"ok").startswith(b"HTTP/1.1 200")
        last = talk().say(ask % b"Connection: close\r\n").heard()
        problem(last, 429, "overloaded")
        assert b"connection: close" in last


def test_refused_requests_that_come_together_are_all_answered_in_order() -> None:
    with talking(admission=Admission(rate_per_s=0.001, burst=1)) as talk:
        start = b"POST /v1/machines/ticket/workflows HTTP/1.1\r\n" + HERE + b"Content-Length: 13\r\n\r\n"
        assert talk().say(start + b'{"id": "t-1"}').until(b"}").startswith(b"HTTP/1.1 201")
        event = EVENT + b"Content-Length: 2\r\n\r\n{}"
        look = b"GET /v1/workflows/t-1 HTTP/1.1\r\n" + HERE
        many = talk().say(event * 2_000 + look + b"\r\n" + event * 2_000 + look + b"Connection: close\r\n\r\n").heard()
        statuses = [int(found) for found in re.findall(rb"HTTP/1\.1 (\d+) ", many)]
        assert statuses == [429] * 2_000 + [200] + [429] * 2_000 + [200]
