"""The `asgi.py` that the page on mounting has for Django works: opened with the server, beside Django's own answers.

In a process of its own, because Django can be configured once in each.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.docs.blocks import read_blocks

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "mount-in-your-app.md"

SERVER = """
import asyncio
import httpx
from asgi import application

async def main():
    to_app, from_app = asyncio.Queue(), asyncio.Queue()
    life = asyncio.create_task(application({"type": "lifespan"}, to_app.get, from_app.put))
    await to_app.put({"type": "lifespan.startup"})
    print((await from_app.get())["type"])
    transport = httpx.ASGITransport(app=application)
    async with httpx.AsyncClient(transport=transport, base_url="http://shop.test") as client:
        started = await client.post("/interlock/v1/machines/order/workflows", json={"id": "o-1"})
        print(started.status_code, (await client.get("/interlock/v1/workflows/o-1")).json()["state"])
        print(await page(client, "/interlock/"), await page(client, "/elsewhere"))
    await to_app.put({"type": "lifespan.shutdown"})
    print((await from_app.get())["type"])
    await life

async def page(client, path):
    return (await client.get(path)).status_code

asyncio.run(main())
"""


@pytest.mark.slow
def test_interlock_and_django_answer_side_by_side(tmp_path: Path) -> None:
    [block] = [block for block in read_blocks(PAGE.read_text(encoding="utf-8")) if block.saved_as == "asgi.py"]
    (tmp_path / "asgi.py").write_text(block.text, encoding="utf-8")
    (tmp_path / "server.py").write_text(SERVER, encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "server.py"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(map(os.path.abspath, sys.path))},
        capture_output=True,
        encoding="utf-8",
        check=False,
    )
    assert done.stdout.split("\n") == [
        "lifespan.startup.complete",
        "201 pending",
        "200 404",
        "lifespan.shutdown.complete",
        "",
    ], done.stderr
