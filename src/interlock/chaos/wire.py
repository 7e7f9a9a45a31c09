"""A wire between somebody and a server: it passes on, is slow, is cut, or is silent, from one moment to the next.

    with Wire(postgres.address) as wire:
        engine = Engine.open(wire.url(postgres.url), …)
        wire.throttle(bytes_per_s=20_000, latency_s=0.05)
        wire.silence()      # nothing arrives, and nobody is told
        wire.cut()          # every connection is reset, and so is each new one
        wire.pass_on()

A relay on the loopback in a thread of its own, so that code of any kind can use it; when a call returns, the new
behaviour is in force. What is sent into silence is not lost but late, as TCP would send it again: it arrives after
`pass_on`. A connection made into silence is taken by the system and hears nothing.
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

from interlock.testing.faults.listening import stop_listening

LOOPBACK: Final = "127.0.0.1"
CHUNK_BYTES_MAX: Final = 65_536
PIECES_PER_S: Final = 20
"""A throttled wire passes on a piece so often: what is slow comes steadily."""

AT_ONCE: Final = struct.pack("ii", 1, 0)
"""SO_LINGER: closing resets, whatever was still to be sent."""

Manner = Literal["passing on", "throttled", "cut", "silent"]
Count = Callable[[int], None]
Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class Traffic:
    """What a wire has seen so far."""

    connections: int
    """Made to it, refused ones included."""
    refused: int
    """Reset on arrival, because it was cut, or because the server was not there."""
    open: int
    """At the moment."""
    bytes_there: int
    """Passed on to the server."""
    bytes_back: int


@dataclass(frozen=True, slots=True)
class _Way:
    """How it behaves, until the next behaviour is in force."""

    manner: Manner
    changed: asyncio.Event
    bytes_per_s: float | None = None
    latency_s: float = 0.0

    async def pause(self, seconds: float) -> None:
        """Wait, but not longer than this behaviour lasts."""
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
        """Where it begins."""
        return LOOPBACK, self.port

    def url(self, of_target: str) -> str:
        """The address of the target, by way of this wire."""
        parts = urlsplit(of_target)
        who, at, _ = parts.netloc.rpartition("@")
        return urlunsplit(parts._replace(netloc=f"{who}{at}{LOOPBACK}:{self.port}"))

    @property
    def manner(self) -> Manner:
        """How it behaves at the moment."""
        return self._way.manner

    @property
    def traffic(self) -> Traffic:
        """What it has seen so far."""
        return Traffic(self._connections, self._refused, len(self._ends), self._there, self._back)

    def pass_on(self) -> None:
        """Pass on everything at once, also what was held back."""
        self._change("passing on")

    def throttle(self, *, bytes_per_s: float | None = None, latency_s: float = 0.0) -> None:
        """Pass on so many bytes per second, in each direction of each connection, each piece so much later."""
        assert bytes_per_s is None or bytes_per_s > 0, "a wire that passes on nothing is silent"
        self._change("throttled", bytes_per_s, latency_s)

    def cut(self) -> None:
        """Reset every connection, at both ends, and each that is made from now on."""
        self._change("cut")

    def silence(self) -> None:
        """Pass on nothing: no data, no end, no reset. The connections stay."""
        self._change("silent")

    def close(self) -> None:
        """Cut it for good. A second time does nothing."""
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
        self._listening = await asyncio.start_server(self._taken, LOOPBACK, 0)
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

    def _taken(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
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
        await self._flowing()
        try:
            from_target, to_target = await self._reached()
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

    async def _reached(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """A connection to the target. Who is at its end may know of it before we do, and is reset all the same."""
        link = socket.socket()
        link.settimeout(0)
        try:
            await self._loop.sock_connect(link, self._target)
            return await asyncio.open_connection(sock=link)
        except BaseException:
            if link.fileno() >= 0:
                link.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, AT_ONCE)
            link.close()
            raise

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, count: Count) -> None:
        """One direction, until its end, which is passed on too. A reset is told when the wire is not silent."""
        try:
            while data := await reader.read(CHUNK_BYTES_MAX):
                await self._deliver(data, writer, count)
        except OSError:
            await self._flowing()
            raise
        await self._flowing()
        writer.write_eof()

    async def _deliver(self, data: bytes, writer: asyncio.StreamWriter, count: Count) -> None:
        late = False
        while data:
            way = await self._flowing()
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

    async def _flowing(self) -> _Way:
        """Wait out the silence; returns the behaviour in force."""
        while self._way.manner == "silent":
            await self._way.changed.wait()
        return self._way

    def _count_there(self, size: int) -> None:
        self._there += size

    def _count_back(self, size: int) -> None:
        self._back += size


def _reset(end: asyncio.StreamWriter) -> None:
    if not end.transport.is_closing():
        end.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, AT_ONCE)
    end.transport.abort()
