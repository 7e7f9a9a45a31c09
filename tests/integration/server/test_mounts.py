"""The app inside other apps: FastAPI, Starlette, Litestar, and whatever calls ASGI apps by a prefix, as Django does."""

import asyncio
import os
import re
import signal
import subprocess
import sys
from collections.abc import Awaitable, Callable, Generator, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
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


@pytest.mark.slow
@pytest.mark.parametrize("name", ["mounted", "mounted_django"])
def test_the_examples_run_as_they_are_documented(name: str) -> None:
    told = run_example(name)
    assert "machines: ['order']" in told
    assert "404 there is no workflow 'o-1'." in told
    assert f"python examples/{name}.py" in (ROOT / "examples/README.md").read_text()
    assert ("Hello from Django" in told) == (name == "mounted_django")


RUNNING = re.compile(r"running on (http://[\d.:]+)")
STARTED = "Application startup complete"
APPS = "tests.integration.server.mounted_apps"


class Foreign:
    """A uvicorn that serves an app with Interlock in it."""

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        self.process = process
        self.url = ""

    def read_until(self, pattern: str) -> str:
        """The next line of its log that has this."""
        assert self.process.stderr is not None
        for line in self.process.stderr:
            if found := RUNNING.search(line):
                self.url = found[1]
            if re.search(pattern, line):
                return line
        raise AssertionError(f"it has ended without {pattern!r}")

    def stop(self, number: int = signal.SIGTERM) -> str:
        """Ask it to stop, and wait for its end; returns the rest of its log."""
        self.process.send_signal(number)
        _, said = self.process.communicate(timeout=END_S)
        return said


@contextmanager
def uvicorn(*words: str) -> Generator[Foreign]:
    """Run the command uvicorn until it listens, and end it whatever happens."""
    command = [sys.executable, "-m", "uvicorn", *words, "--port", "0"]
    environment = plain_environment()
    environment["PYTHONPATH"] += os.pathsep + str(ROOT)
    process = subprocess.Popen(
        command, cwd=ROOT, env=environment, stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    try:
        found = Foreign(process)
        found.read_until(RUNNING.pattern)
        yield found
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)  # With the process that it reloads.
        process.communicate()


@pytest.mark.slow
def test_a_real_server_serves_django_with_interlock_in_it() -> None:
    """With the documented command: the engine lives as long as the server."""
    with uvicorn("--app-dir", "examples", "mounted_django:application") as server:
        with httpx.Client(base_url=server.url, timeout=END_S) as client:
            assert client.get("/").text == "Hello from Django at /"
            assert client.get("/interlockless").status_code == 404, "that path is Django's"
            start = client.post("/interlock/v1/machines/order/workflows", json={"id": "ö 1"})
            assert start.status_code == 201, start.text
            assert client.get("/interlock/v1/workflows/%C3%B6%201").json()["id"] == "ö 1"
            assert client.get("/interlock/v1/workflows/a%2Fb").status_code == 400
            assert client.get("/interlock/").status_code == 200
        said = server.stop()
        assert "Application shutdown complete" in said, said
        assert "Traceback" not in said


@contextmanager
def open_stream(url: str) -> Generator[Iterator[bytes]]:
    """A tab of the dashboard, as far as the server sees it."""
    with httpx.stream("GET", f"{url}/interlock/v1/stream", timeout=END_S) as tab:
        assert tab.status_code == 200
        pieces = tab.iter_bytes()
        assert next(pieces).startswith(b"retry: ")
        yield pieces


@pytest.mark.campaign
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT], ids=["SIGTERM", "Ctrl-C"])
@pytest.mark.parametrize(
    "app",
    [
        (f"{APPS}:in_fastapi",),
        (f"{APPS}:in_starlette", "--loop", "asyncio", "--http", "h11"),
        (f"{APPS}:in_litestar",),
        ("--app-dir", "examples", "mounted_django:application"),
    ],
    ids=["FastAPI", "Starlette", "Litestar", "Django"],
)
def test_a_server_with_an_open_stream_stops_when_it_is_asked_to(app: tuple[str, ...], number: int) -> None:
    """uvicorn closes the outer app after the last connection: a stream has to end before its engine is closed."""
    with uvicorn(*app) as server, open_stream(server.url) as pieces:
        said = server.stop(number)
        assert "Application shutdown complete" in said, said
        assert "Traceback" not in said
        assert list(pieces) == [], "it ended in order, and was not cut off"


@pytest.mark.slow
def test_a_server_with_an_open_stream_reloads_when_a_file_changes(tmp_path: Path) -> None:
    source = tmp_path / "reloaded.py"
    source.write_text(f"from {APPS} import in_fastapi as app\n")
    with uvicorn("--app-dir", str(tmp_path), "--reload", "--reload-dir", str(tmp_path), "reloaded:app") as server:
        server.read_until(STARTED)
        with open_stream(server.url) as pieces:
            source.write_text(f"from {APPS} import in_starlette as app\n")
            server.read_until(STARTED)
            assert list(pieces) == []
        server.process.terminate()
        server.process.wait(timeout=END_S)
