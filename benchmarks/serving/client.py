"""Lean clients on bare sockets: one request under way per connection, kept alive, and nothing parsed but what counts.

The client must cost less than what it measures: two cores are all there are, and one of them is the server's. An answer
is its status and its body; a body is measured by its length or, for a batch, by its chunks.
"""

import asyncio
import gc
import time
from collections import Counter, deque
from collections.abc import Callable, Sequence
from typing import cast

from benchmarks.report import Round

END_OF_HEADERS = b"\r\n\r\n"
END_OF_CHUNKS = b"\r\n0\r\n\r\n"
LENGTH = b"content-length: "
OK = 200
REFUSED = 429


class Connection(asyncio.Protocol):
    """One connection; whoever asks is called back with the status and the body."""

    def __init__(self) -> None:
        self._transport: asyncio.Transport | None = None
        self._told: Callable[[int, bytes], None] | None = None
        self._buffer = bytearray()
        self._chunked = False
        self.lost = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The way there is open."""
        self._transport = cast("asyncio.Transport", transport)  # That of uvloop is no subclass.

    def connection_lost(self, exc: Exception | None) -> None:
        """It is closed: an error unless nobody waits."""
        del exc
        self.lost = True
        if self._told is not None:
            told, self._told = self._told, None
            told(0, b"")

    def ask(self, request: bytes, told: Callable[[int, bytes], None]) -> None:
        """Send a request."""
        assert self._transport is not None
        assert self._told is None
        self._told = told
        self._transport.write(request)

    def data_received(self, data: bytes) -> None:
        """Take a part of an answer; most come in one."""
        if self._buffer:
            self._buffer += data
            if self._chunked and not self._buffer.endswith(END_OF_CHUNKS):
                return
            data = bytes(self._buffer)
        found = answered(data)
        if found is None:
            self._buffer[:] = data
            end = data.find(END_OF_HEADERS)
            self._chunked = end >= 0 and data.find(LENGTH, 0, end) < 0
            return
        self._buffer.clear()
        told, self._told = self._told, None
        assert told is not None
        told(int(data[9:12]), found)

    def close(self) -> None:
        """Hang up."""
        if self._transport is not None:
            self._transport.close()


def answered(data: bytes) -> bytes | None:
    """The body of an answer, raw; None while it is not complete."""
    end = data.find(END_OF_HEADERS)
    if end < 0:
        return None
    at = data.find(LENGTH, 0, end)
    if at < 0:
        return data[end:] if data.endswith(END_OF_CHUNKS) else None
    at += len(LENGTH)
    body = end + len(END_OF_HEADERS)
    return data[body:] if len(data) - body >= int(data[at : data.index(b"\r\n", at)]) else None


def request(path: str, body: bytes, headers: str = "") -> bytes:
    """A POST as it goes over the wire."""
    head = f"POST {path} HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: application/json\r\n{headers}"
    return f"{head}content-length: {len(body)}\r\n\r\n".encode() + body


async def connected(port: int, count: int) -> list[Connection]:
    """So many connections."""
    loop = asyncio.get_running_loop()
    made = [await loop.create_connection(Connection, "127.0.0.1", port) for _ in range(count)]
    return [protocol for _, protocol in made]


Cpu = Callable[[], float]


async def closed_loop(
    connections: Sequence[Connection],
    make: Callable[[], bytes],
    *,
    seconds: float,
    cpu_seconds: Cpu,
    each: int = 1,
    check: Callable[[bytes], bool] | None = None,
) -> Round:
    """Every connection asks as soon as it was answered, for so long; a request is worth `each` operations.

    Any answer but 200 is an error, and so is one that `check` refuses: what was refused would be fast.
    """
    loop = asyncio.get_running_loop()
    done: asyncio.Future[None] = loop.create_future()
    latencies: list[float] = []
    active = len(connections)
    gc.collect()
    own, cpu, begun = time.process_time(), cpu_seconds(), time.perf_counter()
    end = begun + seconds

    def client(connection: Connection) -> None:
        asked = 0.0

        def told(status: int, body: bytes) -> None:
            nonlocal asked, active
            now = time.perf_counter()
            latencies.append(now - asked)
            if status != OK or (check is not None and not check(body)):
                if not done.done():
                    done.set_exception(AssertionError(f"answered {status}: {body[:500]!r}"))
            elif now < end:
                asked = now
                connection.ask(make(), told)
            else:
                active -= 1
                if not active and not done.done():
                    done.set_result(None)

        asked = time.perf_counter()
        connection.ask(make(), told)

    for connection in connections:
        client(connection)
    await done
    elapsed = time.perf_counter() - begun
    counts = {"client_cpu_ms": 1e3 * (time.process_time() - own)}
    return Round(len(latencies) * each, elapsed, cpu_seconds() - cpu, latencies, counts)


class Paced:
    """An open loop: requests are due at an even pace, whoever was answered or not."""

    def __init__(self, connections: Sequence[Connection], make: Callable[[], bytes]) -> None:
        self._idle = list(connections)
        self._make = make
        self._due: deque[float] = deque()
        self.took_s: list[float] = []
        self.refused_s: list[float] = []
        self.others: Counter[int] = Counter()
        self._left = 0
        """Requests that will still be answered; below zero while they are offered."""
        self._done = asyncio.Event()

    async def offer(self, per_s: float, seconds: float) -> None:
        """Offer so many per second for so long, and wait for the answers. Latencies count from when they were due."""
        total, begun = int(per_s * seconds), time.perf_counter()
        for number in range(total):
            due = begun + number / per_s
            if (ahead := due - time.perf_counter()) > 0:
                await asyncio.sleep(ahead)
            if self._idle:
                self._ask(self._idle.pop(), due)
            else:
                self._due.append(due)
        self._left += total
        if self._left:
            await self._done.wait()

    def _ask(self, connection: Connection, due: float) -> None:
        def told(status: int, body: bytes) -> None:
            del body
            took = time.perf_counter() - due
            if status == OK:
                self.took_s.append(took)
            elif status == REFUSED:
                self.refused_s.append(took)
            else:
                self.others[status] += 1
            self._left -= 1
            if not self._left:
                self._done.set()
            if self._due:
                self._ask(connection, self._due.popleft())
            else:
                self._idle.append(connection)

        connection.ask(self._make(), told)
