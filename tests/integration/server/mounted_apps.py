"""Apps with Interlock mounted in them, for a server that is not ours: uvicorn, with this module and one of its apps.

They are opened and closed as the page on mounting shows it: the engine lives in the lifespan of the outer app.
"""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

from fastapi import FastAPI
from litestar import Litestar
from litestar import asgi as mounted
from starlette.applications import Starlette

import interlock
from interlock import Engine
from tests.unit.server import shop


@asynccontextmanager
async def lifespan(app: Starlette) -> AsyncGenerator[None]:
    async with Engine.open("memory:", machines=[shop.order], worker=False) as engine:
        app.mount("/interlock", interlock.asgi(engine))
        yield


in_fastapi = FastAPI(lifespan=lifespan)
in_starlette = Starlette(lifespan=lifespan)


@mounted("/interlock", is_mount=True, copy_scope=True)
async def workflows(scope: Any, receive: Any, send: Any) -> None:  # noqa: ANN401 -- as Litestar calls it.
    await in_litestar.state.interlock(scope, receive, send)


@asynccontextmanager
async def opened(app: Litestar) -> AsyncGenerator[None]:
    async with Engine.open("memory:", machines=[shop.order], worker=False) as engine:
        app.state.interlock = interlock.asgi(engine)
        yield


in_litestar = Litestar([workflows], lifespan=[opened], openapi_config=None)
