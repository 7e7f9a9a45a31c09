"""An engine inside a web app of your own: `python examples/mounted.py` sends itself a request and prints the answer.

The engine is opened with the app and closed with it; Interlock's routes are mounted below /interlock, beside yours. In
Starlette it is the same call. In Litestar a handler `@asgi("/interlock", is_mount=True)` passes the call on, and in
Django it stands in `asgi.py`, before Django's own application, for paths below /interlock.
"""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import httpx
from fastapi import FastAPI

import interlock
from interlock import Engine
from interlock.examples.order import order


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncGenerator[None]:
    """Open the engine, mount it, and close it when the app stops."""
    async with Engine.open("memory:", machines=[order]) as engine:
        app.mount("/interlock", interlock.asgi(engine))
        yield


shop = FastAPI(lifespan=lifespan)


async def main() -> None:
    """Start a workflow by HTTP, as a client would."""
    transport = httpx.ASGITransport(app=shop)
    async with (
        shop.router.lifespan_context(shop),
        httpx.AsyncClient(transport=transport, base_url="http://shop.test/interlock") as client,
    ):
        machines = (await client.get("/v1/machines")).json()["items"]
        print("machines:", [machine["name"] for machine in machines])
        answer = await client.get("/v1/workflows/o-1")
        print(answer.status_code, answer.json()["what"])


if __name__ == "__main__":
    asyncio.run(main())
