"""Relay between a client and a server that can pass on, throttle or silence their connections at any time.

    with closing(Wire(postgres.address)) as wire:
        engine = Engine.open(wire.url(postgres.url), …)
        wire.throttle(bytes_per_s=20_000, latency_s=0.05)
        wire.silence()      # nothing arrives, and no end sees an error
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
from collections.abc import Coroutine
from dataclasses import dataclass, field
from typing import Final, TypeVar
from urllib.parse import urlsplit, urlunsplit

from interlock.testing.faults.processes import stop_listening

LOOPBACK: Final = "127.0.0.1"
CHUNK_BYTES_MAX: Final = 65_536
PIECES_PER_S: Final = 20
"""Number of pieces per second on a throttled wire, so that data flows steadily."""

LINGER_RESET: Final = struct.pack("ii", 1, 0)
"""SO_LINGER: closing resets the connection and drops unsent data."""

Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class _Way:
    """One behaviour, and the event that ends it."""

    silent: bool = False
    bytes_per_s: float | None = None
    latency_s: float = 0.0
    changed: asyncio.Event = field(default_factory=asyncio.Event)

    async def pause(self, seconds: float) -> None:
        """Sleep, but not longer than this behaviour lasts."""
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self.changed.wait(), seconds)


class TcpProxy:
    """One wire. It passes on from the start."""

    def __init__(self, target: tuple[str, int]) -> None:
        self._target = target
        self._loop = asyncio.new_event_loop()
        self._listening: asyncio.Server | None = None
        self._way = _Way()
        self._ends: dict[asyncio.Task[None], list[asyncio.StreamWriter]] = {}
        self.bytes_back = 0
        """Bytes passed on from the server to its clients."""
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

    def pass_on(self) -> None:
        """Pass on everything immediately, also data that was held back."""
        self._change(_Way())

    def throttle(self, *, bytes_per_s: float | None = None, latency_s: float = 0.0) -> None:
        """Limit each direction of each connection to `bytes_per_s`, and delay each piece by `latency_s`."""
        assert bytes_per_s is None or bytes_per_s > 0, "a wire that passes on nothing is silent"
        self._change(_Way(bytes_per_s=bytes_per_s, latency_s=latency_s))

    def silence(self) -> None:
        """Pass on nothing: no data, no end, no reset. The connections stay open."""
        self._change(_Way(silent=True))

    def close(self) -> None:
        """Reset every connection, and stop listening. A second call does nothing."""
        if not self._loop.is_closed():
            self._call(self._end())
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()
            self._loop.close()

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_forever()

    def _call(self, do: Coroutine[None, None, Result]) -> Result:
        return asyncio.run_coroutine_threadsafe(do, self._loop).result()

    async def _listen(self) -> int:
        self._listening = await asyncio.start_server(self._accept, LOOPBACK, 0)
        port: int = self._listening.sockets[0].getsockname()[1]
        return port

    def _change(self, way: _Way) -> None:
        async def change() -> None:
            before, self._way = self._way, way
            before.changed.set()

        self._call(change())

    async def _end(self) -> None:
        assert self._listening is not None
        await stop_listening(self._listening)
        relays = list(self._ends)
        for relay in relays:
            for end in self._ends[relay]:
                _reset(end)
            relay.cancel()
        await asyncio.gather(*relays, return_exceptions=True)
        await self._listening.wait_closed()

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
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
            _reset(writer)
            return
        self._ends[relay].append(to_target)
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._pump(reader, to_target))
                group.create_task(self._pump(from_target, writer, back=True))
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

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, back: bool = False) -> None:
        """Copy one direction to its end, and pass the end on. A reset is passed on when the wire is not silent."""
        try:
            while data := await reader.read(CHUNK_BYTES_MAX):
                await self._deliver(data, writer, back=back)
        except OSError:
            await self._wait_for_flow()
            raise
        await self._wait_for_flow()
        writer.write_eof()

    async def _deliver(self, data: bytes, writer: asyncio.StreamWriter, *, back: bool) -> None:
        late = False
        while data:
            way = await self._wait_for_flow()
            if way.latency_s and not late:
                await way.pause(way.latency_s)
                late = True
                continue  # It may have fallen silent meanwhile.
            size = len(data) if way.bytes_per_s is None else max(1, int(way.bytes_per_s / PIECES_PER_S))
            piece, data = data[:size], data[size:]
            self.bytes_back += len(piece) if back else 0
            writer.write(piece)
            await writer.drain()
            if way.bytes_per_s is not None:
                await way.pause(len(piece) / way.bytes_per_s)

    async def _wait_for_flow(self) -> _Way:
        """Wait for the end of the silence; return the behaviour in force."""
        while self._way.silent:
            await self._way.changed.wait()
        return self._way


def _reset(end: asyncio.StreamWriter) -> None:
    if not end.transport.is_closing():
        end.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, LINGER_RESET)
    end.transport.abort()
