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
from interlock.server.app_declaration import Limits
from interlock.server.uvicorn_protocol import DRAIN_S
from tests.integration.server.running import Hands, in_hands

HERE = b"Host: localhost\r\n"
EVENT = b"POST /v1/workflows/o-1/events HTTP/1.1\r\n" + HERE
UPGRADE = b"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAA\r\n"
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


Connect = Callable[[], Talk]


@contextmanager
def talking(
    *,
    admission: Admission | None = None,
    **limits: Any,  # noqa: ANN401 -- as Limits has them.
) -> Iterator[Connect]:
    """A server with these bounds; gives what opens a connection to it."""
    with talking_in_hands(admission=admission, **limits) as (talk, _):
        yield talk


@contextmanager
def talking_in_hands(
    *,
    admission: Admission | None = None,
    **limits: Any,  # noqa: ANN401 -- as above.
) -> Iterator[tuple[Connect, Hands]]:
    """The same, with the time of the server: a bound is over when the test says so, not when the machine is slow."""
    with in_hands(limits=Limits(**limits), admission=admission) as (url, hands), ExitStack() as opened:

        def talk() -> Talk:
            found = Talk(url)
            opened.callback(found.socket.close)
            return found

        yield talk, hands


@pytest.fixture(scope="module")
def talk() -> Iterator[Connect]:
    """Opens connections to a server with the usual bounds, which many tests share."""
    with talking() as opened:
        yield opened


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
        assert "1,000 bytes" in problem(answer, 431, "head-too-large")["what"]


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


def test_a_body_that_comes_too_slowly_is_told_as_that() -> None:
    """Each piece is in time, and the whole is not: nothing was carried out, so the outcome is known."""
    with talking_in_hands(body_s=2 * LONG_S, request_s=LONG_S) as (talk, hands):
        slow = talk().say(EVENT + b"Content-Length: 100\r\n\r\n{")
        for _ in range(2):
            hands.let_pass(LONG_S / 2)
            slow.say(b" ")
        problem(slow.heard(), 408, "request-timeout")


@pytest.mark.parametrize(
    "said",
    [
        b"nonsense\r\n\r\n",
        b"GET / HTTP/9.9\r\n\r\n",
        b"GET /healthz\r\n\r\n",
        b"GET /healthz HTTP/0.9\r\n" + HERE + b"\r\n",
        b"GET /healthz HTTP/2.0\r\n" + HERE + b"\r\n",
        b"GET /healthz HTTP/1.1\r\n\r\n",
        b"GET /healthz HTTP/1.1\r\n" + HERE + HERE + b"\r\n",
        b"GET /healthz HTTP/1.1\r\n" + HERE + b"Host: evil.test\r\n\r\n",
        b"GET /healthz HTTP/1.1\r\nHost: local host\r\n\r\n",
        b"GET /healthz HTTP/1.1\r\nHost: me@localhost\r\n\r\n",
        b"GET http://evil.test/healthz HTTP/1.1\r\n" + HERE + b"\r\n",
        b"GET http://localhost HTTP/1.1\r\n" + HERE + b"\r\n",
        b"CONNECT localhost:80 HTTP/1.1\r\n" + HERE + b"\r\n",
        b"GET * HTTP/1.1\r\n" + HERE + b"\r\n",
        b"GET /healthz#top HTTP/1.1\r\n" + HERE + b"\r\n",
        b"GET /healthz HTTP/1.1\r\n" + HERE + b"X: a\r\n b\r\n\r\n",
        b"GET /healthz HTTP/1.1\r\nHost : localhost\r\n\r\n",
        EVENT + b"Content-Length: 2\r\nContent-Length: 2\r\n\r\n{}",
        EVENT + b"Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
        EVENT + UPGRADE + b"Content-Length: 2\r\n\r\n{}",
        EVENT + UPGRADE + b"Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        b"POST /v1/prune HTTP/1.0\r\n" + HERE + b"Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        b"GET /\xff HTTP/1.1\r\n" + HERE + b"\r\n",
        EVENT + b"Content-Length: x\r\n\r\n",
        EVENT + b"Content-Length: -5\r\n\r\n",
        EVENT + b"Content-Length: 5\r\nContent-Length: 6\r\n\r\nabcde",
        EVENT + b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        EVENT + b"Transfer-Encoding: chunked\r\n\r\nZZ\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
    ],
)
def test_what_is_no_http_is_answered_as_everything_else(talk: Connect, said: bytes) -> None:
    """Also what two readers could read in two ways: two lengths, or a length and chunks."""
    problem(talk().say(said).heard(), 400, "invalid-request")


@pytest.mark.parametrize("target", [b"/healthz", b"http://localhost/healthz", b"http://LOCALHOST/healthz?"])
@pytest.mark.parametrize(
    "head",
    [b" HTTP/1.1\r\nHost: localhost\r\n", b" HTTP/1.1\r\nHost: localhost \t\r\n", b" HTTP/1.0\r\nHost: localhost\r\n"],
)
def test_every_form_of_a_good_head_is_read(talk: Connect, target: bytes, head: bytes) -> None:
    assert b"200 OK" in talk().say(b"GET " + target + head + b"Connection: close\r\n\r\n").heard()
    assert b"200 OK" in talk().say(b"GET /healthz HTTP/1.0\r\n\r\n").heard(), "which had no Host"


def test_another_protocol_is_not_spoken_and_nothing_after_it_is_read_as_a_request(talk: Connect) -> None:
    asked = talk().say(b"GET /healthz HTTP/1.1\r\n" + HERE + UPGRADE + b"\r\n", b"GET /readyz HTTP/1.1\r\n" + HERE)
    answer = asked.say(b"\r\n").heard()
    assert re.findall(rb"HTTP/1.1 \d+", answer) == [b"HTTP/1.1 200"]
    assert b"connection: close" in answer


def test_what_is_no_http_is_not_answered_in_the_place_of_another_request() -> None:
    """The first request may have been carried out: the client must not read a 400 as its answer."""
    with talking_in_hands() as (talk, hands):
        start = b"POST /v1/machines/ticket/workflows HTTP/1.1\r\n" + HERE + b"Content-Length: 13\r\n\r\n"
        with hands.held():
            both = talk().say(start + b'{"id": "t-1"}' + b"nonsense\r\n\r\n")
        assert b"HTTP/1.1 400" not in both.heard()
        batch = b"POST /v1/events:batch HTTP/1.1\r\n" + HERE + b"Transfer-Encoding: chunked\r\n\r\n"
        begun = talk().say(batch + b"3\r\n{}\n\r\n")
        first = begun.until(b"}")
        assert first.startswith(b"HTTP/1.1 200")
        assert b"HTTP/1.1 400" not in begun.say(b"ZZ\r\n").heard()


@pytest.mark.slow
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


REFUSED = {
    "no such path": b"POST /v1/nothing HTTP/1.1\r\n" + HERE,
    "another type": EVENT + b"Content-Type: text/html\r\n",
    "a foreign page": EVENT + b"Origin: http://evil.test\r\n",
    "refused at the door": b"POST /v1/machines/ticket/workflows HTTP/1.1\r\n" + HERE,
}
HUGE_BYTES = 10**12
MUCH_BYTES = 256 * 1024 * 1024
"""More than sockets hold on both sides."""


@pytest.mark.parametrize("length", [b"Content-Length: %d\r\n" % HUGE_BYTES, b"Transfer-Encoding: chunked\r\n"])
@pytest.mark.parametrize("head", REFUSED.values(), ids=list(REFUSED))
def test_the_body_of_a_refused_request_is_not_read_to_its_end(head: bytes, length: bytes) -> None:
    """The answer is there, the connection ends with it, and what a client sends on is not read for ever."""
    with talking_in_hands(admission=Admission(rate_per_s=0.001, burst=1)) as (talk, hands):
        start = b"POST /v1/machines/ticket/workflows HTTP/1.1\r\n" + HERE + b"Content-Length: 13\r\n\r\n"
        assert talk().say(start + b'{"id": "t-1"}').until(b"}").startswith(b"HTTP/1.1 201")
        refused = talk().say(head + length + b"\r\n" + b"ffffffff\r\n" + b"x" * 1_000)
        answer = refused.heard()
        assert re.match(rb"HTTP/1.1 4\d\d ", answer), answer
        assert b"\r\nconnection: close\r\n" in answer
        assert answer.endswith(b"}"), "as a whole"
        assert unread(refused, hands) < MUCH_BYTES


def test_a_batch_that_is_over_before_its_body_is_not_read_to_its_end() -> None:
    head = b"POST /v1/events:batch HTTP/1.1\r\n" + HERE + b"Content-Length: %d\r\n\r\n" % HUGE_BYTES
    with talking_in_hands(batch_lines_max=1) as (talk, hands):
        over = talk().say(head + b"{}\n" * 3)
        assert b"batch_lines_max" in over.until(b"0\r\n\r\n")
        assert unread(over, hands) < MUCH_BYTES


def unread(talk: Talk, hands: Hands) -> int:
    """Send on until the server has closed the connection; returns how much it has taken."""
    talk.socket.settimeout(0.05)
    taken = 0
    with suppress(ConnectionError):
        while taken < MUCH_BYTES:
            try:
                taken += talk.socket.send(b"x" * PIECE)
            except TimeoutError:
                hands.let_pass(DRAIN_S)
    return taken


def test_a_small_body_that_nobody_reads_keeps_its_connection_if_it_comes_soon() -> None:
    ask = b"POST /v1/nothing HTTP/1.1\r\n" + HERE + b"Content-Length: 9\r\n\r\n"
    with talking_in_hands() as (talk, hands):
        soon, slow = talk(), talk()
        for _ in range(3):
            assert b"connection: close" not in soon.say(ask).until(b"}")
            soon.say(b"POST / HT")
        slow.say(ask).until(b"}")
        slow.say(b"P")
        hands.let_pass(DRAIN_S)
        assert slow.heard() == b""
        assert soon.say(b"GET /healthz HTTP/1.1\r\n" + HERE + b"\r\n").until(b"ok").startswith(b"HTTP/1.1 200")


def test_a_client_that_waits_to_be_asked_for_its_body_is_not_left_in_doubt(talk: Connect) -> None:
    """After an answer without 100 it may send the body or another request: only a new connection is clear."""
    ask = b"POST /v1/nothing HTTP/1.1\r\n" + HERE + b"Content-Length: 9\r\nExpect: 100-continue\r\n\r\n"
    answer = talk().say(ask).heard()
    problem(answer, 404, "not-found")
    assert b"connection: close" in answer


def test_requests_that_come_together_are_answered_in_order(talk: Connect) -> None:
    ask = b"GET /v1/workflows/%b HTTP/1.1\r\n" + HERE + b"%b\r\n"
    both = talk().say(ask % (b"a", b"") + ask % (b"b", b"Connection: close\r\n")).heard()
    assert re.findall(rb"\"what\":\"there is no workflow '(\w)'", both) == [b"a", b"b"]


def test_connections_are_bounded() -> None:
    with talking(connections_max=1) as talk:
        first = talk().say(b"GET /healthz HTTP/1.1\r\n" + HERE + b"\r\n")
        assert first.until(b"}").startswith(b"HTTP/1.1 200")
        second = talk().heard()
        problem(second, 429, "overloaded")
        assert b"retry-after: 5" in second
        first.socket.close()


def test_a_client_that_asks_first_is_told_to_go_on(talk: Connect) -> None:
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
