"""A server whose workflows are moved: clients see nothing of it, and whoever looks is told the truth."""

import asyncio
import itertools
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager

import httpx
import pytest

from interlock import Client, Engine, MovedElsewhere, UnavailableError
from interlock.client.signal_stream import Streamed
from interlock.engine import follow_moves
from tests.integration.client.serving import Running, running
from tests.unit.engine.follow_moves.places import World
from tests.unit.engine.follow_moves.shop import Gateway, Noted, Order, Shop, Submit, problems_of, shop

ORDERS = 6


@asynccontextmanager
async def served(world: World, gateway: Gateway) -> AsyncGenerator[tuple[Engine, Shop, Running, Client]]:
    machine = shop(gateway)
    async with (
        Engine.open("a", machines=[machine], stall_check_s=0, drain_s=0) as engine,
        running(engine) as server,
        Client(server.url, machines=[machine]) as client,
    ):
        world.place("a").looks = 0
        yield engine, machine, server, client


@pytest.mark.parametrize("moves_at", [2, 5, 9])
def test_a_client_with_keys_sees_no_failed_request(monkeypatch: pytest.MonkeyPatch, moves_at: int) -> None:
    async def test() -> None:
        world, gateway = World(monkeypatch), Gateway()
        async with served(world, gateway) as (engine, machine, _, client):
            first = world.place("a")
            first.moves_at, first.leaves = moves_at, ("b", 1)

            async def order(workflow: str) -> None:
                await client.start(machine, workflow, Order())
                await client.send(workflow, Noted(), key=f"{workflow}/note")
                moved = await client.send(workflow, Submit(), key=f"{workflow}/submit")
                assert moved.version == 3
                await client.of(machine).wait(workflow, timeout_s=60)

            ids = [f"o-{number}" for number in range(ORDERS)]

            async def customer(mine: Sequence[str]) -> None:
                for each in mine:
                    await order(each)

            await asyncio.gather(customer(ids[::2]), customer(ids[1::2]))
            assert first.tombstone is not None
            page = await client.find(machine, limit=100)
            assert sorted(view.id for view in page.items) == sorted(ids)
            problems = [
                problem
                for each in ids
                for problem in problems_of(await engine.get(each), await engine.history(each), gateway, notes=1)
            ]
            assert problems + gateway.problems() == []
            assert first.untouched()

    asyncio.run(test())


def test_while_the_new_place_cannot_be_had_requests_are_told_to_come_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """503 with Retry-After and a problem that may be repeated; the process is alive, and not ready."""
    monkeypatch.setattr(follow_moves, "WAITED_S", 0.02)

    async def test() -> None:
        world, gateway = World(monkeypatch), Gateway()
        async with (
            served(world, gateway) as (engine, machine, server, client),
            httpx.AsyncClient(timeout=60) as plain,
        ):
            await client.start(machine, "o-1", Order())
            entered = asyncio.Event()
            assert engine._follower is not None
            engine._follower.entered.append(lambda _: entered.set())
            world.refuses = [UnavailableError("the database does not answer.")] * 1_000
            world.move("a", "b", 1)
            url = f"{server.url}/v1/workflows/o-1"
            for answer in (
                await plain.post(f"{url}/events", json={"event": "NOTED", "data": {}}),
                await plain.get(f"{url}/history"),
                await plain.post(f"{server.url}/v1/machines/shop/workflows", json={"id": "o-2", "context": {}}),
            ):
                assert answer.status_code == 503, answer.text
                assert answer.headers["retry-after"] == "1"
                assert answer.headers["content-type"] == "application/problem+json"
                assert (answer.json()["code"], answer.json()["retry"]) == ("moved-elsewhere", "now")
            ready = await plain.get(f"{server.url}/readyz")
            assert (ready.status_code, ready.json()["status"]) == (503, "unavailable")
            assert (await plain.get(f"{server.url}/healthz")).status_code == 200
            with pytest.raises(MovedElsewhere):
                await client.send("o-1", Noted())  # Without a key nobody repeats it.
            keyed = asyncio.ensure_future(client.send("o-1", Noted(), key="k"))
            world.refuses.clear()
            await entered.wait()
            assert (await keyed).version == 2  # It was tried until it worked, and applied once.
            assert (await plain.get(f"{server.url}/readyz")).status_code == 200
            assert (await client.get("o-1")).version == 2

    asyncio.run(test())


def test_a_stream_goes_on_and_one_that_was_cut_off_takes_up_behind_its_last_event(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def test() -> None:
        world, gateway = World(monkeypatch), Gateway()
        async with served(world, gateway) as (engine, machine, server, client):
            seen: list[Streamed] = []
            async with client.stream(machine="shop", kinds=["transition_applied"]) as events:

                async def next_event() -> str:
                    event = await anext(events)
                    seen.append(event)
                    return event.kind

                first = asyncio.ensure_future(next_event())
                await client.start(machine, "o-1", Order())
                for turn in itertools.count():
                    if first.done():
                        break
                    await client.send("o-1", Noted(), key=f"n-0/{turn}")  # The stream may begin behind any of them.
                    await asyncio.wait([first], timeout=0.05)
                world.move("a", "b", 1)
                server.cut()  # The stream comes back by itself, with the id of the last event it has given.
                moved = await client.send("o-1", Noted(), key="n-1")
                while seen[-1].signal is None or getattr(seen[-1].signal, "version", 0) < moved.version:
                    assert await next_event() == "transition_applied", "nothing was missed"
            versions = [getattr(event.signal, "version", 0) for event in seen]
            assert versions == sorted(set(versions))
            assert engine._inside.store is world.place("b")

    asyncio.run(test())
