"""Relay between a client and a server that can pass on, throttle, cut or silence their connections at any time.

    with Wire(postgres.address) as wire:
        engine = Engine.open(wire.url(postgres.url), …)
        wire.throttle(bytes_per_s=20_000, latency_s=0.05)
        wire.silence()      # nothing arrives, and no end sees an error
        wire.cut()          # every connection is reset, and so is each new one
        wire.pass_on()

It runs on the loopback in a thread of its own, so that any code can use it. When a call returns, the new behaviour is
in force. Data sent into silence arrives late, after `pass_on`, as TCP would send it again. A connection made into
silence is accepted by the system and receives nothing.
"""

import asyncio
import contextlib
import socket
import struct
import threading
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from types import TracebackType
from typing import Final, Literal, Self, TypeVar
from urllib.parse import urlsplit, urlunsplit

from interlock.testing.faults.processes import stop_listening

LOOPBACK: Final = "127.0.0.1"
CHUNK_BYTES_MAX: Final = 65_536
PIECES_PER_S: Final = 20
"""Number of pieces per second on a throttled wire, so that data flows steadily."""

LINGER_RESET: Final = struct.pack("ii", 1, 0)
"""SO_LINGER: closing resets the connection and drops unsent data."""

Manner = Literal["passing on", "throttled", "cut", "silent"]
Count = Callable[[int], None]
Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class Traffic:
    """Counters of a wire."""

    connections: int
    """Connections made to it, refused ones included."""
    refused: int
    """Connections reset on arrival, because the wire was cut or the server was not there."""
    open: int
    """Connections open now."""
    bytes_there: int
    """Bytes passed on to the server."""
    bytes_back: int


@dataclass(frozen=True, slots=True)
class _Way:
    """One behaviour, and the event that ends it."""

    manner: Manner
    changed: asyncio.Event
    bytes_per_s: float | None = None
    latency_s: float = 0.0

    async def pause(self, seconds: float) -> None:
        """Sleep, but not longer than this behaviour lasts."""
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self.changed.wait(), seconds)


class Wire:
    """One wire. It passes on from the start; leaving the block cuts it for good."""

    def __init__(self, target: tuple[str, int]) -> None:
        self._target = target
        self._loop = asyncio.new_event_loop()
        self._listening: asyncio.Server | None = None
        self._way = _Way("passing on", asyncio.Event())
        self._ends: dict[asyncio.Task[None], list[asyncio.StreamWriter]] = {}
        self._connections = self._refused = self._there = self._back = 0
        self._thread = threading.Thread(target=self._run, name="interlock-chaos-wire", daemon=True)
        self._thread.start()
        self.port = self._call(self._listen())

    @property
    def address(self) -> tuple[str, int]:
        """The address at which clients connect."""
        return LOOPBACK, self.port

    def url(self, of_target: str) -> str:
        """Return the target's URL with this wire's address."""
        parts = urlsplit(of_target)
        who, at, _ = parts.netloc.rpartition("@")
        return urlunsplit(parts._replace(netloc=f"{who}{at}{LOOPBACK}:{self.port}"))

    @property
    def manner(self) -> Manner:
        """The current behaviour."""
        return self._way.manner

    @property
    def traffic(self) -> Traffic:
        """A copy of the counters."""
        return Traffic(self._connections, self._refused, len(self._ends), self._there, self._back)

    def pass_on(self) -> None:
        """Pass on everything immediately, also data that was held back."""
        self._change("passing on")

    def throttle(self, *, bytes_per_s: float | None = None, latency_s: float = 0.0) -> None:
        """Limit each direction of each connection to `bytes_per_s`, and delay each piece by `latency_s`."""
        assert bytes_per_s is None or bytes_per_s > 0, "a wire that passes on nothing is silent"
        self._change("throttled", bytes_per_s, latency_s)

    def cut(self) -> None:
        """Reset every connection, at both ends, and each that is made from now on."""
        self._change("cut")

    def silence(self) -> None:
        """Pass on nothing: no data, no end, no reset. The connections stay open."""
        self._change("silent")

    def close(self) -> None:
        """Cut it for good. A second call does nothing."""
        if not self._loop.is_closed():
            self._call(self._end())
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()
            self._loop.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_forever()

    def _call(self, do: Coroutine[None, None, Result]) -> Result:
        return asyncio.run_coroutine_threadsafe(do, self._loop).result()

    async def _listen(self) -> int:
        self._listening = await asyncio.start_server(self._accept, LOOPBACK, 0)
        port: int = self._listening.sockets[0].getsockname()[1]
        return port

    def _change(self, manner: Manner, bytes_per_s: float | None = None, latency_s: float = 0.0) -> None:
        self._call(self._changed(_Way(manner, asyncio.Event(), bytes_per_s, latency_s)))

    async def _changed(self, way: _Way) -> None:
        before, self._way = self._way, way
        before.changed.set()
        if way.manner == "cut":
            relays = list(self._ends)
            for relay in relays:
                for end in self._ends[relay]:
                    _reset(end)
                relay.cancel()
            await asyncio.gather(*relays, return_exceptions=True)

    async def _end(self) -> None:
        assert self._listening is not None
        await stop_listening(self._listening)
        await self._changed(_Way("cut", asyncio.Event()))
        await self._listening.wait_closed()

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._connections += 1
        if self._way.manner == "cut":
            self._refused += 1
            _reset(writer)
            return
        relay = self._loop.create_task(self._relay(reader, writer))
        self._ends[relay] = [writer]
        relay.add_done_callback(self._ends.__delitem__)

    async def _relay(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        relay = asyncio.current_task()
        assert relay is not None
        await self._wait_for_flow()
        try:
            from_target, to_target = await self._connect_target()
        except OSError:
            self._refused += 1
            _reset(writer)
            return
        self._ends[relay].append(to_target)
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._pump(reader, to_target, self._count_there))
                group.create_task(self._pump(from_target, writer, self._count_back))
        except* OSError:
            _reset(writer)
            _reset(to_target)
        finally:
            writer.close()
            to_target.close()

    async def _connect_target(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """Connect to the target. The target may see the connection earlier than we do, and is reset all the same."""
        link = socket.socket()
        link.settimeout(0)
        try:
            await self._loop.sock_connect(link, self._target)
            return await asyncio.open_connection(sock=link)
        except BaseException:
            if link.fileno() >= 0:
                link.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, LINGER_RESET)
            link.close()
            raise

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, count: Count) -> None:
        """Copy one direction to its end, and pass the end on. A reset is passed on when the wire is not silent."""
        try:
            while data := await reader.read(CHUNK_BYTES_MAX):
                await self._deliver(data, writer, count)
        except OSError:
            await self._wait_for_flow()
            raise
        await self._wait_for_flow()
        writer.write_eof()

    async def _deliver(self, data: bytes, writer: asyncio.StreamWriter, count: Count) -> None:
        late = False
        while data:
            way = await self._wait_for_flow()
            if way.latency_s and not late:
                await way.pause(way.latency_s)
                late = True
                continue  # It may have fallen silent meanwhile.
            size = len(data) if way.bytes_per_s is None else max(1, int(way.bytes_per_s / PIECES_PER_S))
            piece, data = data[:size], data[size:]
            count(len(piece))
            writer.write(piece)
            await writer.drain()
            if way.bytes_per_s is not None:
                await way.pause(len(piece) / way.bytes_per_s)

    async def _wait_for_flow(self) -> _Way:
        """Wait for the end of the silence; return the behaviour in force."""
        while self._way.manner == "silent":
            await self._way.changed.wait()
        return self._way

    def _count_there(self, size: int) -> None:
        self._there += size

    def _count_back(self, size: int) -> None:
        self._back += size


def _reset(end: asyncio.StreamWriter) -> None:
    if not end.transport.is_closing():
        end.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, LINGER_RESET)
    end.transport.abort()
