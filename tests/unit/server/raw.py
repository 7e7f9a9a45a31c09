"""An app that is asked with exactly the bytes that a test gives, as ASGI has them, and what it may have changed."""

import asyncio
from collections.abc import AsyncGenerator, MutableMapping
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import unquote

import msgspec

from interlock import Webhook
from interlock.server.security.guard import Audit
from interlock.server.security.stores import MemoryTrail
from tests.unit.server import shop
from tests.unit.server.asking import Asked
from tests.unit.server.security.homes import StandingClock
from tests.unit.server.serving import Served, serving

PARTS = ("type", "title", "status", "detail", "code", "fix")

Answered = tuple[int, dict[bytes, bytes], bytes]


class Home:
    """An app with one order, and a way to ask it as only a transport can."""

    def __init__(self, app: Served, audit: Audit) -> None:
        self.app, self.audit = app, audit

    async def ask(self, request: Asked, *more: tuple[bytes, bytes]) -> Answered:
        """Ask with exactly these bytes."""
        pairs = [(name.encode(), value.encode()) for name, value in request.headers.items()]
        scope = {
            "type": "http",
            "method": request.method,
            "path": unquote(request.path),
            "raw_path": request.path.encode(),
            "query_string": request.query.encode("latin-1"),
            "headers": [*pairs, *more],
        }
        sent: list[MutableMapping[str, Any]] = []
        waiting = [{"type": "http.request", "body": request.content, "more_body": False}]

        async def receive() -> dict[str, Any]:
            if not waiting:
                await asyncio.Event().wait()  # The client stays until it is answered.
            return waiting.pop(0)

        async def send(message: MutableMapping[str, Any]) -> None:
            sent.append(message)

        await self.app.app(scope, receive, send)
        assert sent, "nobody was answered"
        return sent[0]["status"], dict(sent[0]["headers"]), b"".join(each.get("body", b"") for each in sent[1:])

    async def everything(self) -> object:
        """Whatever a request could change."""
        engine, service = self.app.engine, self.app.app.service
        found = [(await engine.find(shop.order)).items, (await engine.find(shop.ticket)).items]
        return (
            found,
            await engine.stats("o-1"),
            await engine.dead_letters(),
            list(engine.breakers()),
            service.admission,
            [await database.query("SELECT 1") for database in service.databases.open_now().values()],
        )


@asynccontextmanager
async def home(**how: Any) -> AsyncGenerator[Home]:  # noqa: ANN401 -- as `serving` has them.
    audit = Audit(MemoryTrail(), clock=StandingClock())
    hooks = [Webhook("shop", secret="whsec_AAAA", map=lambda payload, delivery: None)]
    async with serving(audit=audit, webhooks=hooks, observers=["prometheus"], **how) as app:
        await app.engine.start(shop.order, "o-1", shop.Order())
        yield Home(app, audit)


def told(answered: Answered, *statuses: int) -> dict[str, Any]:
    """The problem document of an answer, which has to be whole."""
    status, headers, body = answered
    assert status in (statuses or range(400, 500)), (status, body[:500])
    assert headers[b"content-type"] == b"application/problem+json"
    assert headers[b"x-content-type-options"] == b"nosniff"
    document: dict[str, Any] = msgspec.json.decode(body)
    assert all(document[part] for part in PARTS), document
    assert document["status"] == status
    return document
