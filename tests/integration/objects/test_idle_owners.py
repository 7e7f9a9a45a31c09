"""An owner of a lane in a bucket that was idle for longer than its lease: what its next call finds (G4).

Nobody took the lane over: it goes on. Another process took it over and has left it: it is opened again, with what the
other one wrote. Another process took it over and holds it, however idle: the call says so, and nobody loses the lane.
"""

import asyncio
import logging
import uuid
from pathlib import Path

import pytest

from interlock import Database, Engine, Fenced, UnavailableError
from interlock.catalog.catalog_entries import below
from interlock.clock import SystemClock
from interlock.engine import follow_moves
from interlock.lanes.objectlog.log import bucket_of
from interlock.lanes.objectlog.manifest import Manifest, read_manifest
from interlock.urls import parse_bucket_url
from tests.integration.objects.servers import SeaweedFS
from tests.unit.engine.follow_moves.shop import Gateway, Noted, Order, shop

LEASE_S = 0.5
ADD = "UPDATE c SET n = n + 1 WHERE id = 1"
READ = "SELECT n FROM c WHERE id = 1"


class Clock(SystemClock):
    """A clock that can be set forward."""

    ahead_s = 0.0

    def monotonic_s(self) -> float:
        return super().monotonic_s() + self.ahead_s


@pytest.fixture
def url(seaweedfs: SeaweedFS) -> str:
    return seaweedfs.url(f"idle-owners/{uuid.uuid4().hex}/stock")


def manifest_at(url: str) -> Manifest:
    found = read_manifest(bucket_of(parse_bucket_url(url)))
    assert found is not None
    return found[0]


async def filled(db: Database) -> None:
    await db.execute("CREATE TABLE c (id bigint PRIMARY KEY, n bigint NOT NULL)")
    await db.execute("INSERT INTO c VALUES (1, 0)")


async def value(db: Database) -> object:
    [(n,)] = await db.query(READ)
    return n


@pytest.mark.parametrize("call", ["write", "read"])
def test_nobody_took_it_over(tmp_path: Path, url: str, call: str) -> None:
    """It renews its lease in the same epoch, and has missed nothing."""
    clock = Clock()

    async def use() -> None:
        async with Database.open(url, cache=str(tmp_path), clock=clock, lease_s=60.0) as db:
            await filled(db)
            before = manifest_at(url)
            clock.ahead_s = 3_600.0
            if call == "write":
                await db.execute(ADD)
            assert await value(db) == (call == "write")
            after = manifest_at(url)
            assert (after.epoch, after.owner) == (before.epoch, before.owner)
            assert after.revision > before.revision

    asyncio.run(use())


@pytest.mark.parametrize("call", ["write", "read"])
def test_another_process_took_it_over_and_has_left_it(
    tmp_path: Path, url: str, call: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Opened again in a later epoch: what is read is what the other process left, and the log says so."""

    async def use() -> None:
        async with Database.open(url, cache=str(tmp_path / "mine"), lease_s=LEASE_S) as db:
            await filled(db)
            async with Database.open(url, cache=str(tmp_path / "theirs"), lease_s=60.0) as other:
                for _ in range(5):
                    await other.execute(ADD)
            if call == "write":
                await db.execute(ADD)
            assert await value(db) == 5 + (call == "write")
            assert manifest_at(url).epoch == 3

    with caplog.at_level(logging.WARNING, "interlock.operators"):
        asyncio.run(use())
    assert ["is opened again" in record.getMessage() for record in caplog.records] == [True]


@pytest.mark.slow
def test_a_stream_that_another_process_took_over_and_has_left(tmp_path: Path, url: str) -> None:
    """A stream is a lane of its own, and its handles recover as those of a database do: fenced while the other process
    holds it, opened again once for all handles when the other process has left it.
    """

    async def use() -> None:
        async with Database.open(url, cache=str(tmp_path / "mine"), lease_s=LEASE_S, db_per_write_stream=True) as db:
            stream = await db.stream("eu")
            await filled(stream)
            async with Database.open(
                url, cache=str(tmp_path / "theirs"), lease_s=60.0, db_per_write_stream=True
            ) as two:
                await (await two.stream("eu")).execute(ADD)
                with pytest.raises(Fenced):
                    await stream.execute(ADD)
            await stream.execute(ADD)
            again = await db.stream("eu")
            await again.execute(ADD)
            assert await value(again) == await value(stream) == 3

    asyncio.run(use())


@pytest.mark.parametrize("lease_s", [0.1, 60.0])
def test_another_process_took_it_over_and_holds_it(tmp_path: Path, url: str, lease_s: float) -> None:
    """It is idle too, so its lease has run out: that is no reason to take the lane back and forth."""

    async def use() -> None:
        async with Database.open(url, cache=str(tmp_path / "mine"), lease_s=LEASE_S) as db:
            await filled(db)
            async with Database.open(url, cache=str(tmp_path / "theirs"), lease_s=lease_s) as other:
                await other.execute(ADD)
                for _ in range(2):
                    with pytest.raises(Fenced):
                        await db.execute(ADD)
                    with pytest.raises(Fenced):
                        await value(db)
                assert await value(other) == 1
                assert manifest_at(url).epoch == 2
            assert await db.execute(ADD) == 1
            assert await value(db) == 2

    asyncio.run(use())


@pytest.mark.slow
def test_an_engine_shows_what_another_one_did_before_it_left(tmp_path: Path, url: str) -> None:
    """What it remembers of workflows is dropped: views, refusals and decisions are those of the log."""

    async def use() -> None:
        machine = shop(Gateway())
        async with Engine.open(url, machines=[machine], cache=str(tmp_path / "one"), lease_s=LEASE_S) as one:
            for number in range(3):
                await one.start(machine, f"o-{number}", Order())
            async with Engine.open(url, machines=[machine], cache=str(tmp_path / "two"), lease_s=60.0) as two:
                for number in range(3):
                    await two.send(f"o-{number}", Noted())
            assert (await one.get("o-0")).version == 2
            assert (await one.send("o-1", Noted())).version == 3
            assert len(await one.history("o-2")) == 2

    asyncio.run(use())


def test_an_engine_does_not_take_the_lane_from_one_that_is_idle(
    tmp_path: Path, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(follow_moves, "RETAKEN_S", 0.0)

    async def use() -> None:
        machine = shop(Gateway())
        async with Engine.open(url, machines=[machine], cache=str(tmp_path / "one"), lease_s=LEASE_S) as one:
            await one.start(machine, "o-1", Order())
            async with Engine.open(url, machines=[machine], cache=str(tmp_path / "two"), lease_s=LEASE_S) as two:
                await two.send("o-1", Noted())
                epoch = manifest_at(below(url, "workflows")).epoch
                with pytest.raises(UnavailableError, match="has stopped: the lane was taken over"):
                    await one.send("o-1", Noted())
                assert manifest_at(below(url, "workflows")).epoch == epoch
                assert (await two.send("o-1", Noted())).version == 3

    asyncio.run(use())
