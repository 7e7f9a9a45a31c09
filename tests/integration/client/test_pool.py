"""One pool of connections to a real server: bounded, used again, closed with what used them (G6)."""

import asyncio
import contextlib
import socket
import ssl
from collections.abc import AsyncGenerator, Awaitable, Callable
from datetime import UTC, datetime
from pathlib import Path

import pytest
from fastapi import FastAPI
from starlette.applications import Starlette

from interlock import Client, Moved, Retry, Signal
from interlock.clock import SystemClock, SystemSecrets
from interlock.errors import NotAuthenticated, NotPermitted, UnavailableError
from interlock.server.asgi import AsgiApp
from interlock.server.security.guard import Guard
from interlock.server.security.keys import KeyBounds, KeyStore, Scope, make_key
from interlock.server.security.stores import MemoryDocument
from tests.integration.client.serving import Running, engine_like_any_other, running
from tests.integration.client.test_weather import weathered
from tests.unit.client.sockets import certificate
from tests.unit.server import shop
from tests.unit.server.shop import Order, Remark, State, Submit

PATIENCE_S = 60


async def everything(client: Client) -> None:
    """A call of each kind: with a body, with a query, as lines, as a long poll, as a stream."""
    await client.start(shop.order, "ö 1", Order())
    seen: asyncio.Queue[Signal] = asyncio.Queue()
    await client.subscribe(seen.put_nowait)
    assert await client.send_many([("ö 1", Remark("x"), "k")]) == [Moved(state=State.DRAFT, version=2)]
    await client.send("ö 1", Submit(5), key="l")
    assert (await client.wait("ö 1", State.CHARGING)).version == 3
    assert [each.id for each in (await client.find(shop.order)).items] == ["ö 1"]
    assert [getattr(await seen.get(), "version", None) for _ in range(2)] == [2, 3]


def test_connections_are_used_again_and_never_more_than_allowed() -> None:
    async def test() -> None:
        async with weathered() as (_, server, weather):
            async with Client(server.url) as client:
                for number in range(10):
                    await client.send("o-1", Remark(f"{number}"))
                    await client.get("o-1")
                assert len(weather.peers) == 1
            weather.peers.clear()
            async with Client(server.url, connections_max=4) as client:
                await asyncio.gather(*(client.get("o-1") for _ in range(200)))
                assert 1 <= len(weather.peers) <= 4
                assert len(server.connections) <= 4
            await none_open(server)

    asyncio.run(test())


async def until(condition: Callable[[], bool]) -> None:
    """Turn the loop until it is so: the system passes on an end when it does."""
    async with asyncio.timeout(PATIENCE_S):
        while not condition():  # noqa: ASYNC110 -- nobody tells.
            await asyncio.sleep(0)


async def none_open(server: Running) -> None:
    """The server has noticed that all connections are closed."""
    await until(lambda: not server.connections)


async def dead(client: Client) -> None:
    """The client has noticed that its idle connections were closed."""
    pool = client._remote.transport.pool()
    await until(lambda: all(each.dead for each in pool._idle))


def test_a_connection_that_the_server_has_closed_is_not_used() -> None:
    """Also for what may not be repeated: once the client knows, and before that with a key."""

    async def test() -> None:
        async with weathered() as (_, server, weather), Client(server.url) as client:
            for number in range(5):
                await client.get("o-1")
                for each in server.connections:
                    each.transport.close()
                if number % 2:
                    await client.send("o-1", Remark(f"{number}"), key=f"{number}")
                else:
                    await dead(client)
                    await client.send("o-1", Remark(f"{number}"))
            assert (await client.get("o-1")).version == 6
            assert weather.events >= 5

    asyncio.run(test())


def test_a_cancelled_call_closes_its_connection_and_the_server_lets_go() -> None:
    async def test() -> None:
        async with weathered() as (engine, server, _), Client(server.url) as client:
            begun = asyncio.Event()
            engine._inside.waiters.added = lambda _: begun.set()
            waiting = asyncio.ensure_future(client.wait("o-1"))
            await begun.wait()
            waiting.cancel()
            await asyncio.wait({waiting})
            await none_open(server)
            await until(lambda: not len(engine._inside.waiters))
            assert (await client.get("o-1")).version == 1

    asyncio.run(test())


def in_fastapi(app: AsgiApp) -> Callable[..., Awaitable[None]]:
    outer = FastAPI()
    outer.mount("/interlock", app)
    return outer


def in_starlette(app: AsgiApp) -> Callable[..., Awaitable[None]]:
    outer = Starlette()
    outer.mount("/deeply/interlock", app)
    return outer


@pytest.mark.parametrize(
    ("inside", "root"), [(None, "/"), (in_fastapi, "/interlock/"), (in_starlette, "/deeply/interlock")]
)
def test_a_server_may_be_mounted_anywhere(
    inside: Callable[[AsgiApp], Callable[..., Awaitable[None]]] | None, root: str
) -> None:
    async def test() -> None:
        async with (
            engine_like_any_other() as engine,
            running(engine, inside=inside) as server,
            Client(f"{server.url}{root}") as client,
        ):
            await everything(client)

    asyncio.run(test())


def has_ipv6() -> bool:
    with contextlib.suppress(OSError), socket.socket(socket.AF_INET6) as found:
        found.bind(("::1", 0))
        return True
    return False


@pytest.mark.skipif(not has_ipv6(), reason="this machine has no IPv6")
def test_a_server_may_have_an_address_of_version_6() -> None:
    async def test() -> None:
        async with (
            engine_like_any_other() as engine,
            running(engine, host="::1") as server,
            Client(server.url) as client,
        ):
            await everything(client)

    asyncio.run(test())


def test_https_is_verified(tmp_path: Path) -> None:
    async def test() -> None:
        _, public = certificate(tmp_path)
        tls = (public, tmp_path / "private.pem")
        async with engine_like_any_other() as engine, running(engine, tls=tls) as server:
            async with Client(server.url, tls=ssl.create_default_context(cafile=public)) as client:
                await everything(client)
            async with Client(server.url, retry=Retry(attempts=1)) as wary:
                with pytest.raises(UnavailableError, match="certificate"):
                    await wary.get("ö 1")

    asyncio.run(test())


@contextlib.asynccontextmanager
async def keyed() -> AsyncGenerator[tuple[Running, dict[Scope, str]]]:
    store = KeyStore(MemoryDocument(), "memory:")
    keys: dict[Scope, str] = {}
    for scope in Scope:
        created = make_key(SystemSecrets(), name="", scopes=(scope,), limits=KeyBounds(), now=datetime.now(UTC))
        await store.add(created.record)
        keys[scope] = created.key.reveal()
    guard = Guard(store, clock=SystemClock())
    async with engine_like_any_other() as engine, running(engine, guard=guard) as server:
        yield server, keys
    await guard.close()


def test_keys_are_asked_for_and_refusals_are_told_as_such() -> None:
    """401 is NotAuthenticated, 403 is NotPermitted; neither is tried again, and neither shows the key."""

    async def test() -> None:
        async with keyed() as (server, keys):
            for wrong in (None, "ilk_wrong", keys[Scope.READ][:-1] + "x"):
                async with Client(server.url, key=wrong) as client:
                    with pytest.raises(NotAuthenticated) as unknown:
                        await client.start(shop.order, "o-1", Order())
                    assert wrong is None or wrong not in str(unknown.value)
                    with pytest.raises(NotAuthenticated):
                        await client.subscribe(lambda _: None)
            async with Client(server.url, key=keys[Scope.SEND]) as client:
                await client.start(shop.order, "o-1", Order())
                assert (await client.stats("o-1")).applied == 0
                for call in (
                    client.prune(older_than_s=0),
                    client.set_limit("gateway", rate_per_s=5),
                    client.force_breaker("gateway", "open"),
                ):
                    with pytest.raises(NotPermitted):
                        await call
            async with Client(server.url, key=keys[Scope.READ]) as client:
                assert (await client.get("o-1")).version == 1
                with pytest.raises(NotPermitted):
                    await client.send("o-1", Remark("x"), key="k")
                with pytest.raises(NotPermitted):
                    await client.send_many([("o-1", Remark("x"), "k")])
            async with Client(server.url, key=keys[Scope.ADMIN]) as client:
                assert (await client.prune(older_than_s=0)).workflows == 0

    asyncio.run(test())
