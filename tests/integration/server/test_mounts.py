"""The app inside other apps: FastAPI, Starlette, Litestar, and whatever calls ASGI apps by a prefix, as Django does."""

import asyncio
import re
import subprocess
import sys
from collections.abc import Awaitable, Callable
from typing import Any

import httpx
import pytest
from fastapi import FastAPI
from litestar import Litestar
from litestar import asgi as mounted
from starlette.applications import Starlette

import interlock
from interlock import Engine
from interlock.server.asgi import AsgiApp
from tests.integration.server.running import END_S, ROOT
from tests.unit.cli.running import plain_environment
from tests.unit.server import shop

Asgi = Callable[..., Awaitable[None]]


def in_fastapi(app: AsgiApp) -> Asgi:
    outer = FastAPI()
    outer.mount("/interlock", app)
    return outer


def in_starlette(app: AsgiApp) -> Asgi:
    outer = Starlette()
    outer.mount("/interlock", app)
    return outer


def in_litestar(app: AsgiApp) -> Asgi:
    @mounted("/interlock", is_mount=True, copy_scope=True)
    async def handler(scope: Any, receive: Any, send: Any) -> None:  # noqa: ANN401 -- as Litestar calls it.
        await app(scope, receive, send)

    return Litestar([handler], openapi_config=None)


def by_prefix(app: AsgiApp) -> Asgi:
    """As one writes it in Django's asgi.py."""

    async def outer(scope: dict[str, Any], receive: Any, send: Any) -> None:  # noqa: ANN401 -- ASGI.
        assert scope["path"].startswith("/interlock")
        await app({**scope, "root_path": "/interlock"}, receive, send)

    return outer


def by_cutting(app: AsgiApp) -> Asgi:
    async def outer(scope: dict[str, Any], receive: Any, send: Any) -> None:  # noqa: ANN401 -- ASGI.
        await app({**scope, "path": scope["path"].removeprefix("/interlock")}, receive, send)

    return outer


@pytest.mark.parametrize("mount", [in_fastapi, in_starlette, in_litestar, by_prefix, by_cutting])
def test_it_works_inside_another_app(mount: Callable[[AsgiApp], Asgi]) -> None:
    async def run() -> None:
        async with Engine.open("memory:", machines=[shop.order], worker=False) as engine:
            transport = httpx.ASGITransport(app=mount(interlock.asgi(engine)))
            async with httpx.AsyncClient(transport=transport, base_url="http://shop.test/interlock") as client:
                path = "/v1/machines/order/workflows"
                assert (await client.post(path, json={"id": "ö 1"})).status_code == 201
                assert (await client.get("/v1/workflows/%C3%B6%201")).json()["id"] == "ö 1"
                slash = await client.get("/v1/workflows/a%2Fb")
                assert slash.status_code == 400, slash.text
                sent = await client.post("/v1/workflows/%C3%B6%201/events", json={"event": "CANCEL"})
                assert sent.json()["version"] == 3
                lines = b'{"id": "\xc3\xb6 1", "event": "CANCEL"}\n'
                assert b"invalid-transition" in (await client.post("/v1/events:batch", content=lines)).content
                assert (await client.get("/readyz")).json() == {"status": "ok"}
                assert (await client.get("/docs")).status_code == 200
                described = (await client.get("/openapi.json")).json()
                assert described["servers"] == [{"url": "/interlock"}], "where its paths begin"
                assert (await client.get("/none")).json()["code"] == "not-found"

    asyncio.run(run())


def run_example(name: str) -> str:
    """What an example prints, run as the table of examples says."""
    words = [sys.executable, f"examples/{name}.py"]
    done = subprocess.run(words, cwd=ROOT, env=plain_environment(), capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, ""), done.stderr
    return done.stdout


@pytest.mark.parametrize("name", ["mounted", "mounted_django"])
def test_the_examples_run_as_they_are_documented(name: str) -> None:
    told = run_example(name)
    assert "machines: ['order']" in told
    assert "404 there is no workflow 'o-1'." in told
    assert f"python examples/{name}.py" in (ROOT / "examples/README.md").read_text()
    assert ("Hello from Django" in told) == (name == "mounted_django")


def test_a_real_server_serves_django_with_interlock_in_it() -> None:
    """With the documented command: the engine lives as long as the server."""
    words = [sys.executable, "-m", "uvicorn", "--app-dir", "examples", "mounted_django:application", "--port", "0"]
    process = subprocess.Popen(words, cwd=ROOT, env=plain_environment(), stderr=subprocess.PIPE, text=True)
    try:
        assert process.stderr is not None
        url = ""
        for line in process.stderr:
            if found := re.search(r"running on (http://[\d.:]+)", line):
                url = found[1]
                break
        with httpx.Client(base_url=url, timeout=END_S) as client:
            assert client.get("/").text == "Hello from Django at /"
            assert client.get("/interlockless").status_code == 404, "that path is Django's"
            start = client.post("/interlock/v1/machines/order/workflows", json={"id": "ö 1"})
            assert start.status_code == 201, start.text
            assert client.get("/interlock/v1/workflows/%C3%B6%201").json()["id"] == "ö 1"
            assert client.get("/interlock/v1/workflows/a%2Fb").status_code == 400
            assert client.get("/interlock/").status_code == 200
        process.terminate()
        _, said = process.communicate(timeout=END_S)
        assert "Application shutdown complete" in said, said
        assert "Traceback" not in said
    finally:
        if process.poll() is None:
            process.kill()
            process.communicate()
