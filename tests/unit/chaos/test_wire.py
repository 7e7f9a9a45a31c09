"""A wire on real sockets: what each of its behaviours does to those at its ends (C14)."""

import contextlib
import socket
import threading
from collections.abc import Generator

import pytest

from interlock.chaos.scenario import TcpProxy

PATIENCE_S = 60.0
MOMENT_S = 0.05
"""How long somebody listens who expects to hear nothing."""


class Far:
    """The server at the far end: gives the connections made to it."""

    def __init__(self) -> None:
        self._listening = socket.create_server(("127.0.0.1", 0))
        self._listening.settimeout(PATIENCE_S)
        self.taken: list[socket.socket] = []

    @property
    def address(self) -> tuple[str, int]:
        return "127.0.0.1", self._listening.getsockname()[1]

    def take(self) -> socket.socket:
        connection, _ = self._listening.accept()
        connection.settimeout(PATIENCE_S)
        self.taken.append(connection)
        return connection

    def close(self) -> None:
        for each in (self._listening, *self.taken):
            each.close()


@pytest.fixture
def far() -> Generator[Far]:
    with contextlib.closing(Far()) as made:
        yield made


@pytest.fixture
def wire(far: Far) -> Generator[TcpProxy]:
    with contextlib.closing(TcpProxy(far.address)) as made:
        yield made


@pytest.fixture
def near(wire: TcpProxy) -> Generator[socket.socket]:
    with socket.create_connection(wire.address, timeout=PATIENCE_S) as made:
        yield made


def heard(connection: socket.socket, size: int) -> bytes:
    got = b""
    while len(got) < size:
        data = connection.recv(size - len(got))
        assert data, "ended early"
        got += data
    return got


def hears_nothing(connection: socket.socket) -> bool:
    connection.settimeout(MOMENT_S)
    try:
        connection.recv(1)
    except TimeoutError:
        return True
    finally:
        connection.settimeout(PATIENCE_S)
    return False


def speak(wire: TcpProxy) -> None:
    with socket.create_connection(wire.address, timeout=PATIENCE_S) as late:
        late.sendall(b"x")
        assert late.recv(1), "an end in order is no reset"


def test_it_passes_on_both_ways_and_counts(wire: TcpProxy, far: Far, near: socket.socket) -> None:
    end = far.take()
    near.sendall(b"x" * 200_000)
    assert heard(end, 200_000) == b"x" * 200_000
    end.sendall(b"thanks")
    assert heard(near, 6) == b"thanks"
    assert wire.bytes_back == 6


def test_an_end_is_passed_on_and_the_other_direction_goes_on(wire: TcpProxy, far: Far, near: socket.socket) -> None:
    end = far.take()
    near.shutdown(socket.SHUT_WR)
    assert not end.recv(1)
    end.sendall(b"last")
    end.close()
    assert heard(near, 4) == b"last"
    assert not near.recv(1)


def test_what_is_sent_into_silence_arrives_after_it_and_the_connection_stays(
    wire: TcpProxy, far: Far, near: socket.socket
) -> None:
    end = far.take()
    near.sendall(b"before")
    assert heard(end, 6) == b"before"
    wire.silence()
    near.sendall(b"into silence")
    end.sendall(b"answer")
    assert hears_nothing(end)
    assert hears_nothing(near)
    wire.pass_on()
    assert heard(end, 12) == b"into silence"
    assert heard(near, 6) == b"answer"


def test_neither_an_end_nor_a_reset_is_told_in_silence(wire: TcpProxy, far: Far, near: socket.socket) -> None:
    end = far.take()
    wire.silence()
    end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\0\0\0\0\0\0\0")
    end.close()
    assert hears_nothing(near)
    wire.pass_on()
    with pytest.raises(ConnectionResetError):
        near.recv(1)


def test_a_connection_made_into_silence_reaches_the_server_after_it(wire: TcpProxy, far: Far) -> None:
    wire.silence()
    with socket.create_connection(wire.address, timeout=PATIENCE_S) as near:
        near.sendall(b"hello")
        assert hears_nothing(near)
        wire.pass_on()
        assert heard(far.take(), 5) == b"hello"


def test_a_throttled_wire_passes_on_piece_by_piece_and_loses_none(
    wire: TcpProxy, far: Far, near: socket.socket
) -> None:
    """The second byte would come after an hour; mended, the wire passes on the rest at once."""
    end = far.take()
    wire.throttle(bytes_per_s=1 / 3_600, latency_s=0.001)
    near.sendall(b"x" * 500)
    assert heard(end, 1) == b"x"
    assert hears_nothing(end)
    wire.pass_on()
    assert heard(end, 499) == b"x" * 499


def test_mending_a_throttled_wire_ends_the_waiting(wire: TcpProxy, far: Far, near: socket.socket) -> None:
    """An hour of latency is not waited out."""
    end = far.take()
    wire.throttle(latency_s=3_600)
    near.sendall(b"late")
    assert hears_nothing(end)
    wire.pass_on()
    assert heard(end, 4) == b"late"


def test_a_server_that_is_not_there_is_a_reset(far: Far) -> None:
    address = far.address
    far.close()
    with contextlib.closing(TcpProxy(address)) as wire, pytest.raises(ConnectionError):
        speak(wire)


def test_closing_resets_and_leaves_no_thread(far: Far) -> None:
    before = set(threading.enumerate())
    wire = TcpProxy(far.address)
    with socket.create_connection(wire.address, timeout=PATIENCE_S) as near:
        far.take()
        wire.close()
        with pytest.raises(ConnectionResetError):
            near.recv(1)
    wire.close()
    assert set(threading.enumerate()) <= before
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(wire.address, timeout=PATIENCE_S)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (
            "postgresql://shop:secret@127.0.0.1:5432/chaos?schema=a",
            "postgresql://shop:secret@127.0.0.1:{}/chaos?schema=a",
        ),
        ("redis://:secret@127.0.0.1:6379/0", "redis://:secret@127.0.0.1:{}/0"),
        ("http://127.0.0.1:80", "http://127.0.0.1:{}"),
    ],
)
def test_an_address_leads_through_the_wire(wire: TcpProxy, before: str, after: str) -> None:
    assert wire.url(before) == after.format(wire.port)
