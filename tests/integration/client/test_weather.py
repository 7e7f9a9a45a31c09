"""What a client sends again to a real server, and what never (B5): cut connections, 429, 503, a server that stops."""

import asyncio
import threading
from collections.abc import AsyncGenerator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from interlock import Admission, BlockingClient, Client, Engine
from interlock.errors import OutcomeUnknown, Overloaded, UnavailableError
from interlock.server.asgi import AsgiApp
from interlock.server.http_messages import answer_to
from tests.integration.client.serving import Running, engine_like_any_other, running
from tests.integration.ports import HeldPorts
from tests.integration.server.running import server as program
from tests.unit.server import shop
from tests.unit.server.shop import Order, Remark, TicketState


class Weather:
    """Stands between the server and the app, and spoils the answers to the next events."""

    def __init__(self, app: AsgiApp) -> None:
        self._app = app
        self.moods: list[str] = []
        self.cut: Callable[[], None] = lambda: None
        """Breaks all connections, as a network does."""
        self.events = 0
        self.keys: set[bytes | None] = set()
        self.peers: set[object] = set()

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:  # noqa: ANN401 -- ASGI.
        self.peers.add(tuple(scope["client"]))
        if not scope["path"].endswith(("/events", ":batch")):
            await self._app(scope, receive, send)
            return
        self.events += 1
        self.keys.add(dict(scope["headers"]).get(b"idempotency-key"))
        mood = self.moods.pop(0) if self.moods else "fine"
        if mood == "gone before":
            self.cut()
            return
        if mood == "fine":
            await self._app(scope, receive, send)
            return

        async def spoiled(message: Any) -> None:  # noqa: ANN401 -- ASGI.
            if mood == "half":
                if message["type"] == "http.response.start":
                    await send(message)
                elif message.get("body"):
                    await send({**message, "body": message["body"][:9], "more_body": True})

        await self._app(scope, receive, spoiled)
        if mood == "gone after":
            self.cut()
        if mood == "unknown":
            answer = answer_to(OutcomeUnknown("the disk has failed."))
            await send({"type": "http.response.start", "status": answer.status, "headers": [*answer.headers]})
            await send({"type": "http.response.body", "body": answer.body})


@asynccontextmanager
async def weathered(admission: Admission | None = None) -> AsyncGenerator[tuple[Engine, Running, Weather]]:
    found: list[Weather] = []

    def inside(app: AsgiApp) -> Weather:
        found.append(Weather(app))
        return found[0]

    async with engine_like_any_other(admission=admission) as engine, running(engine, inside=inside) as server:
        await engine.start(shop.order, "o-1", Order())
        found[0].cut = server.cut
        yield engine, server, found[0]


ACTED = ["gone after", "half", "unknown"]
NOT_ACTED = ["gone before"]


@pytest.mark.campaign
@pytest.mark.parametrize("mood", ACTED + NOT_ACTED)
def test_an_event_with_a_key_is_applied_once_whatever_becomes_of_its_answer(mood: str) -> None:
    async def test() -> None:
        async with weathered() as (engine, server, weather), Client(server.url) as client:
            weather.moods = [mood, mood]
            moved = await client.send("o-1", Remark("x"), key="k")
            assert (moved.version, moved.duplicate) == (2, mood in ACTED)
            assert (weather.events, weather.keys) == (3, {b"k"})
            assert (await engine.stats("o-1")).applied == 1
            weather.moods = [mood]
            [first, second] = await client.send_many([("o-1", Remark("a"), "l"), ("o-1", Remark("b"), "m")])
            assert {type(first).__name__, type(second).__name__} == {"Moved"}
            assert (await engine.get("o-1")).version == 4

    asyncio.run(test())


@pytest.mark.parametrize("mood", ACTED + NOT_ACTED)
def test_an_event_without_a_key_is_sent_once_and_nobody_guesses(mood: str) -> None:
    async def test() -> None:
        async with weathered() as (engine, server, weather), Client(server.url) as client:
            weather.moods = [mood]
            with pytest.raises(OutcomeUnknown):
                await client.send("o-1", Remark("x"))
            assert weather.events == 1
            assert (await engine.stats("o-1")).applied == (mood in ACTED)

    asyncio.run(test())


def test_a_server_that_is_full_is_asked_again_after_its_time_and_only_with_a_key() -> None:
    """C7: 429 with Retry-After."""

    async def test() -> None:
        async with weathered() as (engine, server, weather), Client(server.url) as client:
            engine.set_admission(Admission(rate_per_s=0.001, burst=1))
            await client.send("o-1", Remark("x"), key="k")
            with pytest.raises(Overloaded) as full:
                await client.send("o-1", Remark("y"))
            assert (weather.events, full.value.retry_after_s) == (2, 1000.0)
            async with Client(server.url, timeout_s=3_000) as patient:
                sending = asyncio.ensure_future(patient.send("o-1", Remark("y"), key="l"))
                while weather.events < 3:
                    await client.get("o-1")
                # It has been told to come back in a quarter of an hour, and does not come before.
                await client.get("o-1")
                assert not sending.done()
                sending.cancel()
                await asyncio.wait({sending})
            assert weather.events == 3
            engine.set_admission(Admission(rate_per_s=20, burst=1))
            engine_clock(engine).passed_s += 1
            await client.send("o-1", Remark("z"), key="m")
            later = asyncio.ensure_future(client.send("o-1", Remark("w"), key="n"))
            while weather.events < 5:
                await client.get("o-1")
            engine_clock(engine).passed_s += 1
            assert (await later).version == 4

    asyncio.run(test())


def engine_clock(engine: Engine) -> Any:  # noqa: ANN401 -- the clock that stands still.
    return engine._inside.gate._clock


def test_nobody_is_asked_twice_where_nobody_listens() -> None:
    async def test() -> None:
        async with weathered() as (_, server, _):
            url = server.url
        async with Client(url) as client:
            with pytest.raises(UnavailableError, match="nothing was sent"):
                await client.send("o-1", Remark("x"))

    asyncio.run(test())


@pytest.mark.slow
def test_a_wait_survives_the_end_of_one_server_and_goes_on_at_the_next(tmp_path: Path) -> None:
    """The server ends its waits when it leaves, and the client asks again."""
    home = f"lanes://{tmp_path}"
    with (
        HeldPorts() as held,
        program(home, "--port", str(held.numbers[0])) as first,
        BlockingClient(first.url) as client,
        ThreadPoolExecutor(1) as pool,
    ):
        client.start(shop.ticket, "t-1", shop.Ticket())
        waiting = pool.submit(client.of(shop.ticket).wait, "t-1", timeout_s=60)
        assert first.stop()[0] == 0
        with program(home, "--port", str(held.numbers[0])):
            client.send("t-1", shop.Close(), key="k")
            assert waiting.result().state is TicketState.CLOSED


def test_threads_of_a_blocking_client_go_on_after_a_cut() -> None:
    loop_runs, ends = threading.Event(), threading.Event()
    found: list[tuple[Running, asyncio.AbstractEventLoop]] = []

    async def serve() -> None:
        async with weathered() as (_, server, _):
            found.append((server, asyncio.get_running_loop()))
            loop_runs.set()
            await asyncio.to_thread(ends.wait)

    thread = threading.Thread(target=asyncio.run, args=(serve(),))
    thread.start()
    loop_runs.wait()
    [(server, loop)] = found
    try:
        with BlockingClient(server.url) as client, ThreadPoolExecutor(4) as pool:
            sends = [pool.submit(client.send, "o-1", Remark(f"{at}"), key=f"{at}") for at in range(40)]
            loop.call_soon_threadsafe(server.cut)
            versions = sorted(each.result().version for each in sends)
            assert versions == [*range(2, 42)]
    finally:
        ends.set()
        thread.join()


def test_a_wait_at_one_server_ends_when_another_one_moves_the_workflow(postgres_url: str) -> None:
    """Several processes share a store, and a client waits wherever it happened to ask."""

    async def test() -> None:
        machines = [shop.ticket]
        async with (
            Engine.open(postgres_url, machines=machines) as one,
            Engine.open(postgres_url, machines=machines) as other,
            running(one) as first,
            running(other) as second,
            Client(first.url) as here,
            Client(second.url) as there,
        ):
            await there.start(shop.ticket, "t-1", shop.Ticket())
            begun = asyncio.Event()
            added = one._inside.waiters.added

            def told(workflow: str) -> None:
                begun.set()
                if added is not None:
                    added(workflow)

            one._inside.waiters.added = told
            waiting = asyncio.ensure_future(here.of(shop.ticket).wait("t-1", timeout_s=60))
            await begun.wait()
            await there.send("t-1", shop.Close(), key="k")
            assert (await waiting).state is TicketState.CLOSED

    asyncio.run(test())
