"""Health and readiness when the store is really gone: a server that waits says so, one that is of no use too (G6)."""

import asyncio
import os
import shlex
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from interlock.clock import Clock
from interlock.engine import open_engine as engine_open
from interlock.lanes.lane import Lane
from interlock.lanes.lane_settings import LaneSettings
from interlock.store.lane_store import SqliteStore
from interlock.testing.faults import FaultyDisk
from tests.integration.postgres.test_restarts import OwnServer, own_server
from tests.unit.server.serving import serving

__all__ = ["own_server"]


@pytest.fixture
def disk() -> Iterator[FaultyDisk]:
    faulty = FaultyDisk("faulty-health")
    yield faulty
    faulty.close()


def control(server: OwnServer, *words: str) -> None:
    """Start or stop PostgreSQL."""
    data, program = server._data, server._control
    owner = data.stat().st_uid if os.geteuid() == 0 else None
    command = [str(program), "-D", str(data), "-w", "-l", str(data / "health.log"), *words]
    done = subprocess.run(command, check=False, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, user=owner)
    assert done.returncode == 0, (data / "health.log").read_text()


@pytest.mark.slow
def test_while_postgresql_is_stopped_a_server_is_alive_and_not_ready(own_server: OwnServer) -> None:
    """Requests should go elsewhere, and a restart would not help; it is ready again by itself."""

    async def scenario() -> None:
        async with serving(f"{own_server.url}&schema=health", home=None) as app:
            assert (await app.start()).status_code == 201
            assert (await app.get("/readyz")).json() == {"status": "ok"}
            options = shlex.join(shlex.split((own_server._data / "postmaster.opts").read_text())[1:])
            await asyncio.to_thread(control, own_server, "-m", "immediate", "stop")
            try:
                away = await app.get("/readyz")
                assert (away.status_code, away.json()["status"]) == (503, "unavailable")
                assert away.json()["reason"]
                assert "postgres:" not in away.text, "no address with a user in it"
                assert away.headers["retry-after"] == "1"
                assert (await app.get("/healthz")).json() == {"status": "ok"}
                refused = await app.send("REMARK", note="x", headers={"Idempotency-Key": "k"})
                assert refused.status_code == 503, refused.text
                assert refused.headers["retry-after"]
            finally:
                await asyncio.to_thread(control, own_server, "-o", options, "start")
            while (await app.get("/readyz")).status_code != 200:
                pass
            again = await app.send("REMARK", note="x", headers={"Idempotency-Key": "k"})
            assert (again.status_code, again.json()["version"]) == (200, 2)

    asyncio.run(scenario())


def test_a_lane_that_was_stopped_by_its_disk_says_so_everywhere(
    tmp_path: Path, disk: FaultyDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a failed sync nobody knows what is on the disk: only a restart helps, and both routes say so."""

    async def open_faulty(url: str, *, clock: Clock, **_settings: object) -> SqliteStore:
        del url
        lane = Lane(
            tmp_path / "w.lane",
            settings=LaneSettings(),
            clock=clock,
            prepare=lambda _connection, _now_us: None,
            vfs=disk.name,
        )
        store = SqliteStore(lane, clock)
        await store.begin()
        return store

    monkeypatch.setattr(engine_open, "open_store", open_faulty)

    async def scenario() -> None:
        async with serving(home=None) as app:
            assert (await app.start()).status_code == 201
            assert (await app.get("/readyz")).json() == {"status": "ok"}
            disk.fails_sync = lambda _number: True
            failed = await app.send("REMARK", note="x")
            assert failed.status_code == 503, failed.text
            for path in ("/healthz", "/readyz"):
                answer = await app.get(path)
                assert (answer.status_code, answer.json()["status"]) == (503, "unavailable"), path
                assert answer.json()["reason"], path
            assert (await app.send("REMARK", note="y")).status_code == 503

    asyncio.run(scenario())
