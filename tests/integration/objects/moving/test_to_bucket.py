"""Databases move from a disk and from PostgreSQL into a bucket, over real HTTP, whatever dies on the way."""

import asyncio
import uuid
from pathlib import Path

import pytest

from interlock import Database
from interlock.cli.program import main
from interlock.database.lane_engine import Translators
from interlock.errors import BadUsage, UnavailableError
from interlock.lanes.handover import Tombstone
from interlock.lanes.lane_settings import LaneSettings
from interlock.lanes.objectlog.bucket_protocol import Environment
from interlock.lanes.objectlog.lease import claim
from interlock.lanes.objectlog.log import bucket_of
from interlock.lanes.objectlog.manifest import read_manifest
from interlock.relocate.bucket_lane import note_left, take_over
from interlock.relocate.mover import abandon_database, plan_database, shown_url
from interlock.urls import parse_bucket_url
from tests.integration.objects.moving.buckets import another, objects, without_key
from tests.integration.objects.servers import SeaweedFS
from tests.integration.postgres.moving import people
from tests.integration.postgres.moving.places import (
    CLOCK,
    Died,
    Dying,
    Pair,
    contents,
    filled,
    moved,
    pair,
    stirred,
    whole,
)


@pytest.fixture
def places(seaweedfs: SeaweedFS, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Pair:
    """A lane on a disk, and an address in a bucket."""
    target = without_key(seaweedfs, monkeypatch, str(tmp_path / "cache"))
    return Pair(f"lanes://{tmp_path}/{uuid.uuid4().hex}", target)


def test_everything_comes_along_from_a_lane_and_whoever_has_it_open_follows(places: Pair) -> None:
    async def scenario() -> None:
        await filled(places.source)
        async with Database.open(places.source) as db:
            await stirred(db, 3)
            done = await asyncio.to_thread(lambda: asyncio.run(moved(places)))
            assert {each.table: each.rows for each in done.amounts} == {"article": 30, "sale": 60, "interlock_keys": 4}
            await stirred(db)
            assert db.url == shown_url(places.target)
            expected = await contents(db)
        await whole(places.target, expected)

    asyncio.run(scenario())


def test_types_sequences_and_views_come_along_and_may_come_again(places: Pair) -> None:
    async def scenario() -> None:
        expected = await people.filled(places.source)
        for way in (places, Pair(places.target, places.source), places):
            await moved(way)
            async with Database.open(way.target) as db:
                assert await people.contents(db) == expected
                await people.check_rules(db)

    asyncio.run(scenario())


def test_everything_comes_along_from_postgres(places: Pair, postgres: str, tmp_path: Path) -> None:
    source = pair("postgres-to-lane", postgres, tmp_path).source

    async def scenario() -> None:
        await filled(source)
        async with Database.open(source) as db:
            await stirred(db, 3)
            expected = await contents(db)
        done = await moved(Pair(source, places.target))
        assert done.checksum
        await whole(places.target, expected)

    asyncio.run(scenario())


def test_what_is_written_at_every_point_of_the_copy_comes_along(places: Pair) -> None:
    async def scenario() -> None:
        await filled(places.source)
        async with Database.open(places.source) as db:
            loop = asyncio.get_running_loop()
            expected: dict[str, list[tuple[object, ...]]] = {}

            async def write() -> None:
                await stirred(db)
                expected.update(await contents(db))

            def at(point: str) -> None:
                if not point.startswith(("seal/0", "verify", "leave", "arrive", "done")) or point == "seal/0/before":
                    asyncio.run_coroutine_threadsafe(write(), loop).result()

            await asyncio.to_thread(lambda: asyncio.run(moved(places, at)))
        await whole(places.target, expected)

    asyncio.run(scenario())


@pytest.mark.slow
def test_a_mover_that_dies_anywhere_is_followed_by_one_that_ends_the_move(
    places: Pair, seaweedfs: SeaweedFS, tmp_path: Path
) -> None:
    seen = Dying()

    async def once(point: str) -> None:
        fresh = Pair(f"lanes://{tmp_path}/{uuid.uuid4().hex}", another(seaweedfs))
        await filled(fresh.source)
        with pytest.raises(Died):
            await moved(fresh, Dying(point))
        async with Database.open(fresh.source) as db:
            await stirred(db)
            expected = await contents(db)
            left = db.url != shown_url(fresh.source)
        assert left == (point in {"leave", "arrive/before", "arrive", "done"})
        await moved(fresh)
        await whole(fresh.target, expected)

    async def scenario() -> None:
        await filled(places.source)
        await moved(places, seen)
        for point in dict.fromkeys(seen.points):
            await once(point)

    asyncio.run(scenario())


def test_a_look_changes_nothing_in_the_bucket(places: Pair) -> None:
    async def look() -> None:
        plan = await plan_database(places.source, places.target, name="shop", clock=CLOCK)
        assert plan.rows == 91
        assert any("wait for the bucket" in note for note in plan.notes)

    async def scenario() -> None:
        await filled(places.source)
        await look()
        assert objects(places.target) == {}
        with pytest.raises(Died):
            await moved(places, Dying("copy/index"))
        before = objects(places.target)
        await look()
        assert objects(places.target) == before

    asyncio.run(scenario())


def test_a_draft_is_nobodys_and_after_its_end_another_move_can_come(places: Pair, tmp_path: Path) -> None:
    other = f"lanes://{tmp_path}/other"

    async def scenario() -> None:
        await filled(places.source)
        with pytest.raises(Died):
            await moved(places, Dying("seal/0"))
        with pytest.raises(UnavailableError, match="is arriving"):
            await Database.open(places.target)
        await filled(other)
        with pytest.raises(BadUsage, match="was begun and not ended"):
            await moved(Pair(other, places.target))
        assert await abandon_database(places.source, places.target, clock=CLOCK)
        assert not await abandon_database(places.source, places.target, clock=CLOCK)
        async with Database.open(places.source) as db:
            await stirred(db)
        async with Database.open(other) as db:
            expected = await contents(db)
        done = await moved(Pair(other, places.target))
        assert (done.epoch, done.resumed) == (2, False)
        await whole(places.target, expected)

    asyncio.run(scenario())


def test_a_database_that_lives_there_is_not_disturbed(places: Pair, tmp_path: Path) -> None:
    async def scenario() -> None:
        await filled(places.source)
        async with Database.open(places.target, cache=str(tmp_path / "elsewhere")) as there:
            await there.execute("CREATE TABLE mine (id integer PRIMARY KEY)")
            before = objects(places.target)
            for attempt in (moved(places), plan_database(places.source, places.target, name="shop", clock=CLOCK)):
                with pytest.raises(BadUsage, match="already: mine"):
                    await attempt
            assert objects(places.target) == before
            await there.execute("INSERT INTO mine VALUES (1)")
        async with Database.open(places.source) as db:
            await stirred(db)

    asyncio.run(scenario())


@pytest.mark.parametrize("notes", [True, False], ids=["and says so in the manifest", "and dies"])
def test_an_address_that_was_left_is_moved_to_with_a_higher_epoch(places: Pair, tmp_path: Path, *, notes: bool) -> None:
    def left() -> None:
        settings, prepare = LaneSettings(lease_s=0.5), Translators().prepare
        lane = take_over(places.target, tmp_path / "mover.lane", settings=settings, clock=CLOCK, prepare=prepare)
        asyncio.run(lane.leave(Tombstone("lanes:///elsewhere", 7, 0)))
        if notes:
            note_left(places.target, Tombstone("lanes:///elsewhere", 7, 0), clock=CLOCK)
        lane.close()

    async def scenario() -> None:
        await filled(places.source)
        async with Database.open(places.target, cache=str(tmp_path / "elsewhere"), lease_s=0.5) as there:
            await there.execute("CREATE TABLE mine (id integer PRIMARY KEY)")
        await asyncio.to_thread(left)
        with pytest.raises(Died):
            await moved(places, Dying("seal/0"))
        found = read_manifest(bucket_of(parse_bucket_url(places.target)))
        assert found is not None
        assert found[0].left is not None, "until the arrival the address leads on"
        assert found[0].left.epoch == 7
        done = await moved(places)
        assert done.epoch == 8
        async with Database.open(places.source) as db:
            expected = await contents(db)
        await whole(places.target, expected)

    asyncio.run(scenario())


@pytest.mark.slow
def test_a_mover_that_died_before_its_first_group_has_taken_nothing(places: Pair) -> None:
    async def scenario() -> None:
        await filled(places.source)
        settings = LaneSettings(lease_s=0.1)
        claim(bucket_of(parse_bucket_url(places.target)), Environment(), settings, "somebody who died")
        done = await moved(places)
        assert done.rows == 91

    asyncio.run(scenario())


@pytest.mark.slow
def test_the_command_prints_what_brings_it_back(
    places: Pair, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    home = f"lanes://{tmp_path}"
    asyncio.run(filled(f"{home}/shop"))
    words = ["route", "shop", "--home", home, "--to"]
    assert main([*words, places.target]) == 0
    said = capsys.readouterr().out
    assert "91 rows, checksum" in said
    assert f"To undo it: interlock route shop --home {home} --to {home}/shop" in " ".join(said.split())
    assert main([*words, places.target]) == 0
    assert "It had arrived already." in capsys.readouterr().out
    assert main([*words, f"{home}/shop"]) == 0
    assert "91 rows, checksum" in capsys.readouterr().out
    found = read_manifest(bucket_of(parse_bucket_url(places.target)))
    assert found is not None
    assert found[0].owner is None
    assert found[0].left is not None
