"""Databases move out of a bucket while they are used: to a disk, to PostgreSQL and to another bucket, and back."""

import asyncio
import os
import uuid
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from interlock import Database
from interlock.cli.program import main
from interlock.errors import BadUsage, MovedElsewhere, UnavailableError
from interlock.lanes.handover import is_watched
from interlock.lanes.objectlog.log import bucket_of
from interlock.lanes.objectlog.manifest import read_manifest
from interlock.relocate.bucket_lane import BucketSource
from interlock.relocate.mover import abandon_database, shown_url
from interlock.relocate.source_and_target import Pending
from interlock.urls import parse_bucket_url
from tests.integration.objects.moving.buckets import another, without_key
from tests.integration.objects.servers import SeaweedFS
from tests.integration.postgres.moving.places import (
    CLOCK,
    SALES,
    Died,
    Dying,
    Pair,
    contents,
    filled,
    moved,
    stirred,
    whole,
)

TARGETS = ("lane", "postgres", "bucket")
LEFT = {"leave", "arrive/before", "arrive", "done"}
SHARE = max(1, 3 // int(os.environ.get("INTERLOCK_CRASHES") or "1"))
"""A target takes this share of the points; together they take all of them. `make proof` takes all of them for each."""
LEASE_S = 0.5
"""A short lease, so that a mover need not wait for a long one."""


@pytest.fixture(params=TARGETS)
def places(
    request: pytest.FixtureRequest, seaweedfs: SeaweedFS, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, postgres: str
) -> Pair:
    """An address in a bucket, and one of each kind."""
    source = without_key(seaweedfs, monkeypatch, str(tmp_path / "cache"))
    return Pair(source, place(str(request.param), seaweedfs, postgres, tmp_path))


def place(kind: str, seaweedfs: SeaweedFS, postgres: str, folder: Path) -> str:
    """An address of that kind that no test has used."""
    if kind == "bucket":
        return another(seaweedfs)
    return f"lanes://{folder}/{uuid.uuid4().hex}" if kind == "lane" else f"{postgres}&schema=m_{uuid.uuid4().hex[:20]}"


@pytest.mark.campaign
def test_everything_comes_along_and_back_and_clients_follow(places: Pair) -> None:
    async def scenario() -> None:
        await filled(places.source)
        async with Database.open(places.source, lease_s=LEASE_S) as db:
            await stirred(db, 3)
            done = await asyncio.to_thread(lambda: asyncio.run(moved(places)))
            assert {each.table: each.rows for each in done.amounts} == {"article": 30, "sale": 60, "interlock_keys": 4}
            await stirred(db)
            assert db.url == shown_url(places.target)
            back = Pair(places.target, places.source)
            again = await asyncio.to_thread(lambda: asyncio.run(moved(back)))
            assert again.epoch == done.epoch + 1
            await stirred(db)
            assert db.url == shown_url(places.source)
            expected = await contents(db)
        await whole(places.source, expected)

    asyncio.run(scenario())


@pytest.mark.campaign
def test_what_is_written_at_every_point_of_the_copy_comes_along(places: Pair) -> None:
    async def scenario() -> None:
        await filled(places.source)
        async with Database.open(places.source, lease_s=LEASE_S) as db:
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
    places: Pair, seaweedfs: SeaweedFS, postgres: str, tmp_path: Path
) -> None:
    seen = Dying()
    kind = {"lanes": "lane", "s3": "bucket"}.get(places.target.partition(":")[0], "postgres")

    async def once(point: str) -> None:
        fresh = Pair(another(seaweedfs), place(kind, seaweedfs, postgres, tmp_path))
        await filled(fresh.source)
        with pytest.raises(Died):
            await moved(fresh, Dying(point))
        async with Database.open(fresh.source) as db:
            await stirred(db)
            expected = await contents(db)
            left = db.url != shown_url(fresh.source)
        assert left == (point in LEFT), point
        await moved(fresh)
        await whole(fresh.target, expected)

    async def scenario() -> None:
        await filled(places.source)
        await moved(places, seen)
        points = list(dict.fromkeys(seen.points))
        for point in points[TARGETS.index(kind) % SHARE :: SHARE]:
            await once(point)

    asyncio.run(scenario())


@pytest.mark.campaign
def test_a_move_that_is_given_up_leaves_no_trigger_and_the_lease_as_it_was(places: Pair) -> None:
    async def scenario() -> None:
        await filled(places.source)
        async with Database.open(places.source, lease_s=LEASE_S) as db:
            with pytest.raises(Died):
                await asyncio.to_thread(lambda: asyncio.run(moved(places, Dying("seal/0"))))
            await stirred(db)
            gave_up = abandon_database(places.source, places.target, clock=CLOCK)
            assert await asyncio.to_thread(lambda: asyncio.run(gave_up))
            await stirred(db)
            assert db.url == shown_url(places.source)
            expected = await contents(db)
        found = read_manifest(bucket_of(parse_bucket_url(places.source)))
        assert found is not None
        assert (found[0].left, found[0].lease_s) == (None, LEASE_S)
        source = await BucketSource.opened(places.source, "it", clock=CLOCK)
        assert not is_watched(source.connection())
        await source.close()
        await whole(places.source, expected)

    asyncio.run(scenario())


@pytest.mark.campaign
def test_a_mover_that_died_on_the_way_back_leaves_clients_where_the_database_is(places: Pair) -> None:
    back = Pair(places.target, places.source)

    async def scenario() -> None:
        await filled(places.source)
        await moved(places)
        with pytest.raises(Died):
            await moved(back, Dying("verify"))
        async with Database.open(places.source) as db:
            await stirred(db)
            assert db.url == shown_url(places.target)
        with pytest.raises(Died):
            await moved(back, Dying("leave"))
        async with Database.open(places.source) as db:
            await stirred(db)
            assert db.url == shown_url(places.source)
            expected = await contents(db)
        done = await moved(back)
        assert done.resumed
        with pytest.raises(MovedElsewhere):
            await abandon_database(places.target, places.source, clock=CLOCK)
        await whole(places.source, expected)

    asyncio.run(scenario())


@pytest.mark.campaign
@pytest.mark.parametrize("point", ["seal/0", "leave/before"])
def test_of_two_movers_that_seal_one_wins_and_the_other_says_so(places: Pair, point: str, tmp_path: Path) -> None:
    """A bucket has no lock between movers: the second takes the lane over from the first, which cannot commit."""
    elsewhere = places._replace(target=f"lanes://{tmp_path}/elsewhere")

    async def scenario() -> None:
        await filled(places.source)
        async with Database.open(places.source) as db:
            expected = await contents(db)
        with ThreadPoolExecutor(1) as threads:

            def at(reached: str) -> None:
                if reached == point:
                    threads.submit(lambda: asyncio.run(moved(elsewhere))).result()

            with pytest.raises(UnavailableError, match="was taken over from this mover by another process") as refused:
                await moved(places, at)
        assert shown_url(places.source) in refused.value.what
        async with Database.open(places.source) as db:
            assert db.url == shown_url(elsewhere.target)
            assert await contents(db) == expected
        with pytest.raises(MovedElsewhere):
            await moved(places)

    asyncio.run(scenario())


@pytest.mark.campaign
def test_a_place_in_a_bucket_that_is_used_is_refused_and_left_alone(places: Pair, seaweedfs: SeaweedFS) -> None:
    other = another(seaweedfs)

    async def scenario() -> None:
        await filled(places.source)
        async with Database.open(other) as db:
            await db.execute("CREATE TABLE mine (id integer PRIMARY KEY)")
        with pytest.raises(BadUsage, match="already: mine"):
            await moved(Pair(places.source, other))

    asyncio.run(scenario())


@pytest.mark.campaign
def test_the_command_moves_it_and_the_printed_undo_moves_it_back(
    places: Pair, capsys: pytest.CaptureFixture[str]
) -> None:
    asyncio.run(filled(places.source))
    assert main(["route", places.source, "--to", places.target]) == 0
    printed = " ".join(capsys.readouterr().out.split())
    assert "91 rows, checksum" in printed
    words = printed.partition("To undo it: interlock ")[2].replace("'", "").split()
    assert main(words) == 0
    assert "91 rows, checksum" in " ".join(capsys.readouterr().out.split())
    assert main(words) == 0
    assert "It had arrived already" in capsys.readouterr().out

    async def check() -> None:
        async with Database.open(places.source) as db:
            assert db.url == shown_url(places.source)

    asyncio.run(check())


@pytest.mark.campaign
def test_a_number_of_a_table_that_was_dropped_elsewhere_is_given_again(places: Pair) -> None:
    """The bucket keeps the log of what was left there, and nothing of it is in what comes back."""

    async def scenario() -> None:
        await filled(places.source)
        await moved(places)
        async with Database.open(places.target) as db:
            await db.execute("DROP TABLE sale")
        await moved(Pair(places.target, places.source))
        async with Database.open(places.source) as db:
            await db.execute(SALES)
            assert await db.query("INSERT INTO sale (article) VALUES (3) RETURNING id") == [(1,)]

    asyncio.run(scenario())


@pytest.mark.campaign
def test_a_source_that_begins_to_note_anew_forgets_no_note(
    seaweedfs: SeaweedFS, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    url = without_key(seaweedfs, monkeypatch, str(tmp_path / "cache"))

    async def noted(source: BucketSource, times: int) -> Pending:
        async with Database.open(url, lease_s=LEASE_S) as db:
            for number in range(times):
                await db.execute("UPDATE article SET n = n + 1 WHERE id = $1", number)
        return await source.pending(await source.shape(), 1_000)

    async def scenario() -> None:
        await filled(url)
        source = await BucketSource.opened(url, "it", clock=CLOCK)
        try:
            await source.watch(await source.shape())
            pending = await noted(source, 3)
            assert len(pending.keys["article"]) == 3
            await source.forget(pending)
            await source.unwatch()
            await source.watch(await source.shape())
            assert len((await noted(source, 1)).keys["article"]) == 1
        finally:
            await source.close()

    asyncio.run(scenario())
