"""The dashboard below a path of another program: FastAPI has the server at /interlock/."""

import asyncio
import threading
from collections.abc import Generator
from concurrent.futures import Future
from urllib.parse import urlsplit

import pytest
import uvicorn
from fastapi import FastAPI

import interlock
from interlock.examples.order import Order, order
from tests.browser.conftest import Open


class Program(threading.Thread):
    """Another program that serves a page of its own, in a thread with its own event loop."""

    def __init__(self) -> None:
        super().__init__(name="another-program")
        self.url: Future[str] = Future()
        self._server: uvicorn.Server | None = None

    def run(self) -> None:
        """Serve until it is told to stop."""
        try:
            asyncio.run(self._serve())
        except BaseException as error:
            self.url.set_exception(error)
            raise

    def stop(self) -> None:
        """End it."""
        assert self._server is not None
        self._server.should_exit = True
        self.join()

    async def _serve(self) -> None:
        async with interlock.Engine.open("memory:", machines=[order]) as engine:
            await engine.start(order, "mounted-1", Order())
            outer = FastAPI()
            inner = interlock.asgi(engine)
            outer.mount("/interlock", inner)
            config = uvicorn.Config(outer, port=0, lifespan="off", log_config=None, timeout_graceful_shutdown=60)
            self._server = Announcing(config, self.url, inner.leave)
            await self._server.serve()
            await inner.close()


class Announcing(uvicorn.Server):
    """A server that says where it listens, and lets the streams end before it goes."""

    def __init__(self, config: uvicorn.Config, url: "Future[str]", leave: object) -> None:
        super().__init__(config)
        self._url = url
        self._leave = leave

    async def startup(self, sockets: object = None) -> None:
        """As every server, and then tell."""
        await super().startup()
        self._url.set_result(f"http://127.0.0.1:{self.servers[0].sockets[0].getsockname()[1]}")

    async def shutdown(self, sockets: object = None) -> None:
        """First the streams."""
        assert callable(self._leave)
        self._leave()
        await super().shutdown()


@pytest.fixture
def program() -> Generator[str]:
    """Where the other program listens."""
    running = Program()
    running.start()
    yield running.url.result(60)
    running.stop()


def test_it_works_below_a_path_of_another_program(tabs: Open, program: str) -> None:
    """Every file and every call lies below that path."""
    tab = tabs(f"{program}/interlock/").open("#/machines/order")
    tab.shows("mounted-1")
    tab.page.goto(f"{tab.url}#/workflows/mounted-1")
    tab.shows("STARTED")
    asked = {urlsplit(each.url).path for each in tab.requests}
    assert {"/interlock/", "/interlock/ui/app.js", "/interlock/v1/machines/order", "/interlock/v1/stream"} <= asked
    assert all(path.startswith("/interlock/") for path in asked)
    tab.page.goto("about:blank")
