"""B7: of several processes on one PostgreSQL one tells; and servers and workers tell whom their environment names."""

import asyncio

import pytest

from interlock.cli import serve as working
from interlock.engine.alerts import Alarms
from interlock.engine.alerts.detector import StallDetector
from interlock.engine.engine import Engine
from interlock.errors import BadUsage
from interlock.server.app_declaration import App
from interlock.server.lifecycle import serve
from interlock.signals import AlertRaised, Signal, Subscribers
from interlock.store.records import Change, Row
from tests.integration.postgres.stores import several
from tests.unit.cli.slow_shop import job
from tests.unit.engine.alerts.test_detector import ORDER

HOUR_US = 3_600_000_000


def test_of_several_processes_on_postgresql_one_tells_and_the_next_tells_the_end(postgres_url: str) -> None:
    async def scenario() -> None:
        async with several(postgres_url, 2) as stores:
            told: list[list[Signal]] = [[], []]
            detectors: list[StallDetector] = []
            for store, seen in zip(stores, told, strict=True):
                subscribers = Subscribers()
                subscribers.subscribe(seen.append)
                detectors.append(StallDetector(store, {"order": ORDER}, Alarms(subscribers), every_s=30.0))
            entered_us = stores[0].now_us() - HOUR_US
            row = Row(
                "o-1", "order", 1, "charging", b"{}", 1, 1, True, entered_us, entered_us, entered_us, b"", revision=1
            )
            assert await stores[0].commit([Change(row, expected=0)]) == []
            for detector in (*detectors, *detectors):
                await detector.look()
            assert [len(seen) for seen in told] == [1, 0]
            with pytest.MonkeyPatch.context() as patched:
                patched.setattr(asyncio, "sleep", _ends)
                with pytest.raises(asyncio.CancelledError):
                    await detectors[0].run()  # It ends, and leaves its turn.
            moved = Row(
                "o-1", "order", 1, "packing", b"{}", 2, 2, True, entered_us, entered_us, entered_us, b"", revision=2
            )
            assert await stores[0].commit([Change(moved, expected=1)]) == []
            await detectors[1].look()
            [over] = told[1]
            assert isinstance(over, AlertRaised)
            assert (over.kind, over.subject, over.resolved) == ("stalled", "o-1", True)
            assert len(told[0]) == 1

    asyncio.run(scenario())


async def _ends(_: float) -> None:
    raise asyncio.CancelledError


@pytest.mark.parametrize("program", ["serve", "worker"])
def test_servers_and_workers_open_with_the_receivers_of_their_environment(
    program: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    given: list[object] = []

    def opened(*_: object, **options: object) -> None:
        given.append(options["alerts"])
        raise BadUsage("that is enough.")

    monkeypatch.setattr(Engine, "open", opened)
    monkeypatch.setenv("INTERLOCK_ALERT_URL", "https://alerts.example.com/in")
    app = App(machines=[job])
    running = serve(app, "memory:", port=0) if program == "serve" else working.work(app, "memory:")
    with pytest.raises(BadUsage, match="that is enough"):
        asyncio.run(running)
    assert repr(given) == "[[AlertWebhook('https://alerts.example.com')]]"
