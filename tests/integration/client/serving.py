"""A real server on a free port of this machine, in the event loop of the test: its engine is in the test's hands."""

import asyncio
import itertools
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator
from contextlib import asynccontextmanager, closing, contextmanager
from pathlib import Path
from typing import Any
from uuid import UUID

import uvicorn

from interlock import Admission, Engine, Machine
from interlock.clock import Clock
from interlock.server.app_declaration import Limits
from interlock.server.asgi import AsgiApp, asgi
from interlock.server.lifecycle import bound_socket
from interlock.server.security.guard import Guard
from tests.unit.server import shop
from tests.unit.server.security.homes import StandingClock

Asgi = Callable[..., Awaitable[None]]


class CountedIds:
    """The same in each engine."""

    def __init__(self) -> None:
        self._count = itertools.count(1)

    def new(self) -> UUID:
        return UUID(int=next(self._count))

    def text(self) -> str:
        return self.new().hex


@asynccontextmanager
async def engine_like_any_other(
    clock: Clock | None = None, *, worker: bool = False, admission: Admission | None = None
) -> AsyncGenerator[Engine]:
    """An engine whose times and ids are those of every other one that does the same."""
    machines: list[Machine[Any, Any, Any]] = [shop.order, shop.ticket]
    made = Engine.open(
        "memory:",
        machines=machines,
        clock=clock or StandingClock(),
        ids=CountedIds(),
        worker=worker,
        admission=admission,
    )
    async with made as engine:
        yield engine


class Server(uvicorn.Server):
    """uvicorn that leaves the signals of the test alone."""

    @contextmanager
    def capture_signals(self) -> Generator[None]:
        yield


class Running:
    """A server that listens."""

    def __init__(self, app: AsgiApp, server: uvicorn.Server, url: str) -> None:
        self.app = app
        self.server = server
        self.url = url

    @property
    def connections(self) -> list[Any]:
        """The connections that are open, with their transports."""
        return [each for each in self.server.server_state.connections if not each.transport.is_closing()]

    def cut(self) -> None:
        """Break all connections, as a network does."""
        for each in self.connections:
            each.transport.abort()


@asynccontextmanager
async def running(
    engine: Engine,
    *,
    host: str = "127.0.0.1",
    limits: Limits | None = None,
    guard: Guard | None = None,
    inside: Callable[[AsgiApp], Asgi] | None = None,
    idle_s: int = 60,
    tls: tuple[Path, Path] | None = None,
) -> AsyncGenerator[Running]:
    """Serve an engine over HTTP; `inside` puts the app into another one."""
    app = asgi(engine, limits=limits, guard=guard)
    with closing(bound_socket(host, 0)) as found:
        config = uvicorn.Config(
            app if inside is None else inside(app),
            lifespan="off",
            log_config=None,
            access_log=False,
            ws="none",
            timeout_keep_alive=idle_s,
            ssl_certfile=None if tls is None else tls[0],
            ssl_keyfile=None if tls is None else tls[1],
        )
        server = Server(config)
        port = int(found.getsockname()[1])
        shown = f"[{host}]" if ":" in host else host
        serving = asyncio.get_running_loop().create_task(server.serve(sockets=[found]))
        try:
            yield Running(app, server, f"{'https' if tls else 'http'}://{shown}:{port}")
        finally:
            app.leave()
            server.should_exit = True
            await serving
            await app.close()
