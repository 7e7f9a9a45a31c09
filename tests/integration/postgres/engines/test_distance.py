"""One event can be followed through the code on PostgreSQL too (on a lane and over HTTP: tests/tidy)."""

import sys

import pytest

from interlock import Engine
from tests.conformance.engine.places import run
from tests.tidy.distance import Distance, Profiler, shortest
from tests.unit.server import shop

POSTGRES_MODULES_MAX = 22
"""A ratchet: lower it when the path becomes shorter."""


def test_an_event_on_postgresql_visits_few_modules(postgres_url: str, capsys: pytest.CaptureFixture[str]) -> None:
    profiler = Profiler()
    traces: list[Distance] = []

    async def scenario() -> None:
        async with Engine.open(postgres_url, machines=[shop.order], worker=False) as engine:
            await engine.start(shop.order, "o-1", shop.Order())
            traces.append(await shortest(profiler, lambda: engine.send("o-1", shop.Remark(note="x"))))

    with profiler.installed():
        run(scenario)
    [distance] = traces
    with capsys.disabled():
        sys.stdout.write(f"\nengine.send on PostgreSQL: {distance.count} modules, {distance.switches} switches\n")
    assert {"engine/engine", "engine/path/commit_pipeline", "store/postgres/store"} <= set(distance.modules)
    assert distance.count <= POSTGRES_MODULES_MAX, distance
