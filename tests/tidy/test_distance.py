"""One event can be followed through the code: the number of modules that it visits is bounded."""

import asyncio
import importlib.util
import itertools
import sys
import threading
from pathlib import Path

import pytest

from interlock import Engine
from tests.tidy.distance import Distance, Profiler, shortest
from tests.unit.server import shop
from tests.unit.server.serving import serving

LANE_MODULES_MAX = 19
HTTP_MODULES_MAX = 26
"""Ratchets: lower them when the path becomes shorter. On PostgreSQL: tests/integration/postgres/engines."""


def test_an_event_on_a_lane_visits_few_modules(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    profiler = Profiler()

    async def scenario() -> Distance:
        async with Engine.open(f"lanes://{tmp_path}/shop", machines=[shop.order], worker=False) as engine:
            await engine.start(shop.order, "o-1", shop.Order())
            return await shortest(profiler, lambda: engine.send("o-1", shop.Remark(note="x")))

    with profiler.installed():
        distance = asyncio.run(scenario())
    with capsys.disabled():
        sys.stdout.write(f"\nengine.send on a lane: {distance.count} modules, {distance.switches} switches\n")
    assert {"engine/engine", "engine/path/commit_pipeline", "lanes/writer"} <= set(distance.modules)
    assert distance.count <= LANE_MODULES_MAX, distance


def test_an_event_over_http_visits_few_modules(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    profiler = Profiler()
    keys = itertools.count()

    async def scenario() -> Distance:
        async with serving(f"lanes://{tmp_path}/shop") as app:
            await app.start()

            async def call() -> None:
                response = await app.send("REMARK", note="x", headers={"Idempotency-Key": f"k-{next(keys)}"})
                assert response.status_code == 200, response.text

            return await shortest(profiler, call)

    with profiler.installed():
        distance = asyncio.run(scenario())
    with capsys.disabled():
        sys.stdout.write(f"\nan event over HTTP, on a lane: {distance.count} modules, {distance.switches} switches\n")
    assert {"server/asgi", "engine/engine", "lanes/writer"} <= set(distance.modules)
    assert distance.count <= HTTP_MODULES_MAX, distance


def test_modules_and_switches_are_counted_in_all_threads(tmp_path: Path) -> None:
    first, second = tmp_path / "first.py", tmp_path / "second.py"
    first.write_text("def outer(inner):\n    own()\n    inner()\n    own()\n\ndef own():\n    pass\n")
    second.write_text("def inner():\n    pass\n")
    loaded = []
    for path in (first, second):
        spec = importlib.util.spec_from_file_location(path.stem, path)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        loaded.append(module)
    outer, inner = loaded[0].outer, loaded[1].inner
    profiler = Profiler(tmp_path)
    with profiler.installed():
        outer(inner)
        with profiler.recording():
            outer(inner)
            thread = threading.Thread(target=inner)
            thread.start()
            thread.join()
    assert profiler.distance() == Distance(2, 2, ("first", "second"))
