"""An engine inside a Django project: `python examples/mounted_django.py` sends itself requests and prints the answers.

What stands here in one file are `settings.py`, `urls.py` and `asgi.py` of a project. Django does not follow the life of
a server, so `asgi.py` does: the engine is opened when the server starts and closed when it stops, and paths below
/interlock go to Interlock before Django sees them.

    uvicorn --app-dir examples mounted_django:application
"""
# pyright: reportMissingTypeStubs=false, reportUnknownMemberType=false
# Django has no types of its own.

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, MutableMapping
from contextlib import asynccontextmanager
from typing import Any

import django
import httpx
from django.conf import settings
from django.core.asgi import get_asgi_application
from django.http import HttpRequest, HttpResponse
from django.urls import path

import interlock
from interlock import Engine
from interlock.examples.order import order
from interlock.server.asgi import AsgiApp

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Asgi = Callable[[Message, Receive, Send], Awaitable[None]]

MOUNTED = "/interlock"


async def hello(request: HttpRequest) -> HttpResponse:
    """A view of the project itself."""
    return HttpResponse(f"Hello from Django at {request.path}".encode())


urlpatterns = [path("", hello)]

if not settings.configured:
    settings.configure(ROOT_URLCONF=__name__, ALLOWED_HOSTS=["*"], SECRET_KEY="only-for-the-example")  # noqa: S106
    django.setup()


class Mounted:
    """Interlock below a prefix, Django everywhere else."""

    def __init__(self, outer: Asgi, home: str) -> None:
        self._outer = outer
        self._home = home
        self._inner: AsgiApp | None = None

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        """Answer one request, or follow the life of the server."""
        if scope["type"] == "lifespan":
            await self._live(receive, send)
        elif self._inner is not None and (scope["path"] + "/").startswith(MOUNTED + "/"):
            await self._inner({**scope, "root_path": MOUNTED}, receive, send)
        else:
            await self._outer(scope, receive, send)

    @asynccontextmanager
    async def opened(self) -> AsyncGenerator[None]:
        """Have the engine open inside the block."""
        async with Engine.open(self._home, machines=[order]) as engine:
            self._inner = interlock.asgi(engine)
            try:
                yield
            finally:
                await self._inner.close()
                self._inner = None

    async def _live(self, receive: Receive, send: Send) -> None:
        await receive()
        async with self.opened():
            await send({"type": "lifespan.startup.complete"})
            await receive()
        await send({"type": "lifespan.shutdown.complete"})


application = Mounted(get_asgi_application(), "memory:")


async def main() -> None:
    """Ask both of them, as a client would."""
    transport = httpx.ASGITransport(app=application)
    async with application.opened(), httpx.AsyncClient(transport=transport, base_url="http://shop.test") as client:
        print((await client.get("/")).text)
        machines = (await client.get("/interlock/v1/machines")).json()["items"]
        print("machines:", [machine["name"] for machine in machines])
        answer = await client.get("/interlock/v1/workflows/o-1")
        print(answer.status_code, answer.json()["what"])


if __name__ == "__main__":
    asyncio.run(main())
