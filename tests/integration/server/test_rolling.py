"""Rolling restarts on PostgreSQL under load: a client with keys sees no failure, and every event applies once (B5, G9).

Two ways to restart without a pause are driven with the real client: two servers behind a balancer that looks at
`/readyz`, and the workers of one server. Both are stopped in order and killed while events come; in `make proof`
several times.
"""

import asyncio
import os
import signal
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import ExitStack, asynccontextmanager, suppress

import pytest

from interlock import Client
from interlock.testing.faults import stop_listening
from tests.integration.server.running import server
from tests.integration.server.test_workers import children, heard
from tests.unit.server.shop import Order, Remark, order

pytestmark = pytest.mark.slow

SENDERS = 6
ROUNDS = 1 if int(os.environ.get("INTERLOCK_CRASHES") or "1") == 1 else 3
PIECE = 65_536
LEAVING = ("--leave-s", "0.3")


class Balancer:
    """Passes connections on to a server that says it is ready; a round robin over those."""

    def __init__(self) -> None:
        self.ports: list[int] = []
        self.turn = 0
        self._under_way: set[asyncio.Task[None]] = set()

    @asynccontextmanager
    async def listen(self) -> AsyncGenerator[str]:
        listening = await asyncio.start_server(self._pass_on, "127.0.0.1", 0)
        try:
            yield f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}"
        finally:
            await stop_listening(listening)
            for task in self._under_way:
                task.cancel()
            await asyncio.gather(*self._under_way, return_exceptions=True)

    async def _pass_on(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._under_way.add(task)
        try:
            with suppress(OSError):
                port = await self._ready()
                if port is not None:
                    theirs, ours = await asyncio.open_connection("127.0.0.1", port)
                    try:
                        await asyncio.gather(_copy(reader, ours), _copy(theirs, writer))
                    finally:
                        ours.close()  # Whoever is cancelled before it has begun closes nothing.
        finally:
            self._under_way.discard(task)
            await _closed(writer)

    async def _ready(self) -> int | None:
        """The next server that says at /readyz that it is ready."""
        for _ in range(len(self.ports)):
            self.turn += 1
            port = self.ports[self.turn % len(self.ports)]
            with suppress(OSError):
                reader, writer = await asyncio.open_connection("127.0.0.1", port)
                try:
                    writer.write(b"GET /readyz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
                    answer = await reader.read()
                finally:
                    await _closed(writer)
                if answer.startswith(b"HTTP/1.1 200"):
                    return port
        return None


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Copy until one side ends, then end the other."""
    try:
        with suppress(OSError):
            while piece := await reader.read(PIECE):
                writer.write(piece)
                await writer.drain()
    finally:
        await _closed(writer)


async def _closed(writer: asyncio.StreamWriter) -> None:
    writer.close()
    with suppress(OSError):
        await writer.wait_closed()


async def loaded(url: str, restarts: Callable[[Callable[[], Awaitable[None]]], Awaitable[None]]) -> int:
    """Send events with keys while servers are restarted; each has to succeed, and to have been applied once."""
    done = asyncio.Event()
    moved = asyncio.Condition()
    counts = [0] * SENDERS

    async def send(client: Client, number: int) -> None:
        workflow = f"o-{number}"
        await client.start(order, workflow, Order())
        while not done.is_set():
            key = f"k-{counts[number]}"
            answer = await client.send(workflow, Remark(note=key), key=key)
            assert answer.version == counts[number] + 2, "an event was lost, or applied twice"
            async with moved:
                counts[number] += 1
                moved.notify_all()

    async def progress() -> None:
        """Wait until every sender has got on by some events: the load goes on over every restart."""
        wanted = [count + 3 for count in counts]
        async with moved:
            await moved.wait_for(lambda: all(have >= want for have, want in zip(counts, wanted, strict=True)))

    async with Client(url, timeout_s=60) as client, asyncio.TaskGroup() as group:
        for number in range(SENDERS):
            group.create_task(send(client, number))
        await progress()
        await restarts(progress)
        await progress()
        done.set()
    async with Client(url) as client:
        for number, count in enumerate(counts):
            rows = await client.of(order).history(f"o-{number}")
            assert [row.key for row in rows] == [None, *(f"k-{at}" for at in range(count))]
    return sum(counts)


@pytest.mark.slow
def test_two_servers_are_restarted_in_turn_and_no_client_sees_it(postgres_url: str) -> None:
    async def scenario() -> None:
        balancer = Balancer()
        with ExitStack() as running:
            places = [running.enter_context(server(postgres_url, *LEAVING)) for _ in range(2)]

            def spread() -> None:
                balancer.ports = [int(each.url.rpartition(":")[2]) for each in places]

            async def restart(place: int, number: int) -> None:
                code, said = await asyncio.to_thread(places[place].stop, number)
                assert "Traceback" not in said
                assert code == (0 if number == signal.SIGTERM else -number), said
                places[place] = await asyncio.to_thread(running.enter_context, server(postgres_url, *LEAVING))
                spread()

            async def restarts(progress: Callable[[], Awaitable[None]]) -> None:
                for number in [signal.SIGTERM] * ROUNDS + [signal.SIGKILL]:
                    for place in (0, 1):
                        await restart(place, number)
                        await progress()

            spread()
            async with balancer.listen() as url:
                assert await loaded(url, restarts) > 0

    asyncio.run(scenario())


@pytest.mark.slow
def test_the_workers_of_a_server_are_replaced_and_no_client_sees_it(postgres_url: str) -> None:
    with server(postgres_url, "--workers", "2") as running:

        async def restarts(progress: Callable[[], Awaitable[None]]) -> None:
            for _ in range(ROUNDS):
                running.process.send_signal(signal.SIGHUP)
                await asyncio.to_thread(heard, running, "All workers were replaced.")
                await progress()
                os.kill(min(children(running.process.pid)), signal.SIGKILL)
                await asyncio.to_thread(heard, running, "serves.")
                await progress()

        assert asyncio.run(loaded(running.url, restarts)) > 0
        code, said = running.stop()
        assert (code, "Traceback" in said) == (0, False), said
