"""An app and a client for it, in one event loop and without a socket."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any

import httpx

from interlock import Admission, Engine, Machine, Observer
from interlock.clock import Clock
from interlock.server.app_declaration import Limits, Webhook
from interlock.server.asgi import AsgiApp, asgi
from interlock.server.security.guard import Audit, Guard
from tests.unit.server import shop

BASE = "http://shop.test"


class Served:
    """What a test has in its hands."""

    def __init__(self, app: AsgiApp, engine: Engine, client: httpx.AsyncClient) -> None:
        self.app = app
        self.engine = engine
        self.client = client
        self.get = client.get
        self.post = client.post
        self.put = client.put

    async def start(self, workflow: str = "o-1", machine: str = "order", **context: object) -> httpx.Response:
        return await self.client.post(f"/v1/machines/{machine}/workflows", json={"id": workflow, "context": context})

    async def send(
        self,
        event: str,
        workflow: str = "o-1",
        *,
        query: str = "",
        headers: dict[str, str] | None = None,
        **data: object,
    ) -> httpx.Response:
        return await self.client.post(
            f"/v1/workflows/{workflow}/events{query}", json={"event": event, "data": data}, headers=headers
        )


@asynccontextmanager
async def serving(
    url: str = "memory:",
    *,
    machines: Sequence[Machine[Any, Any, Any]] = (shop.order, shop.ticket),
    home: str | None = "memory:",
    webhooks: Sequence[Webhook] = (),
    limits: Limits | None = None,
    guard: Guard | None = None,
    audit: Audit | None = None,
    clock: Clock | None = None,
    admission: Admission | None = None,
    worker: bool = False,
    headers: dict[str, str] | None = None,
    observers: Sequence[Observer | str] = (),
) -> AsyncGenerator[Served]:
    """Serve machines to a client. Without a worker nothing moves but by the test's own events."""
    async with Engine.open(
        url, machines=machines, worker=worker, admission=admission, observers=observers, clock=clock
    ) as engine:
        app = asgi(engine, home=home, webhooks=webhooks, limits=limits, guard=guard, audit=audit, clock=clock)
        transport = httpx.ASGITransport(app=app)
        try:
            async with httpx.AsyncClient(transport=transport, base_url=BASE, headers=headers) as client:
                yield Served(app, engine, client)
        finally:
            await app.close()


def served(test: Callable[[Served], Awaitable[None]], **how: Any) -> None:  # noqa: ANN401 -- as `serving` has them.
    """Run a test with an app of its own."""

    async def run() -> None:
        async with serving(**how) as each:
            await test(each)

    asyncio.run(run())


def problem(response: httpx.Response, status: int, code: str) -> dict[str, Any]:
    """The problem document of an answer, which has to have all its parts."""
    assert response.status_code == status, response.text
    assert response.headers["content-type"] == "application/problem+json"
    document: dict[str, Any] = response.json()
    assert document["status"] == status
    assert document["code"] == code, document
    assert document["type"] == f"urn:interlock:{code}"
    assert document["title"]
    assert document["detail"]
    assert document["fix"]
    return document
