"""Streams, sharded counters, event logs and keyed calls move with their database, from every place to every place."""

import asyncio
import contextlib
import os
import uuid
from collections.abc import Callable
from pathlib import Path

import pytest

from interlock import Database
from interlock.cli.program import main
from interlock.clock import Clock
from interlock.database.database import Opening
from interlock.database.inventory import DatabasePart, address_of, marks_at
from interlock.lanes.handover import Tombstone
from interlock.relocate import bucket_lane
from interlock.relocate.mover import abandon_database, plan_database, shown_url
from interlock.relocate.stages import At
from tests.integration.objects.moving.buckets import another, without_key
from tests.integration.objects.servers import SeaweedFS
from tests.integration.postgres.moving.places import CLOCK, Died, Dying, Pair, moved

KINDS = ("lane", "bucket", "postgres")
PAIRS = [(source, target) for source in KINDS for target in KINDS]
FEW = [("lane", "postgres"), ("postgres", "lane")]
SHARE = max(1, 9 // int(os.environ.get("INTERLOCK_CRASHES") or "1"))
"""A pair takes this share of the points; together they take all of them. `make proof` takes all of them for each."""
STREAMS = ("north", "south-7", "Größe 9")
NAMES = ("views", "likes", "clicks", "plain")
Make = Callable[[str], str]


@pytest.fixture
def make(seaweedfs: SeaweedFS, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, postgres: str) -> Make:
    """Returns an address of a kind that no test has used."""
    without_key(seaweedfs, monkeypatch, str(tmp_path / "cache"))

    def address(kind: str) -> str:
        if kind == "bucket":
            return another(seaweedfs)
        name = uuid.uuid4().hex[:18]
        return f"lanes://{tmp_path}/{name}" if kind == "lane" else f"{postgres}&schema=p_{name}"

    return address


def open_parts(url: str) -> Opening:
    """Open it with streams, and with a short lease and few shards, so that a move is quick."""
    return Database.open(url, db_per_write_stream=True, lease_s=0.5, counter_shard_count=2)


async def counted(db: Database, rounds: int, begin: int = 0) -> None:
    """Add to counters of every kind with keys, and write to every stream."""
    for number in range(begin, begin + rounds):
        await db.counter("views").add(1, key=f"k-{number}")
        await db.counter("likes", kind="sharded").add(2)
        await db.counter("clicks", kind="event_log").add(3, key=f"c-{number}")
        await db.counter("plain", kind="exact").add(4, key=f"p-{number}")
        for key in STREAMS:
            stream = await db.stream(key)
            await stream.execute("CREATE TABLE IF NOT EXISTS n (id integer PRIMARY KEY, n integer NOT NULL)")
            await stream.execute(
                "INSERT INTO n VALUES (1, 1) ON CONFLICT (id) DO UPDATE SET n = n.n + 1", key=f"{key}-{number}"
            )


async def check(db: Database, rounds: int) -> None:
    """Everything is there once, also when every call with a key is repeated."""
    for _ in range(2):
        values = [await db.counter(name).value() for name in NAMES]
        assert values == [rounds, 2 * rounds, 3 * rounds, 4 * rounds]
        for key in STREAMS:
            [(n,)] = await (await db.stream(key)).query("SELECT n FROM n")
            assert n == rounds, key
        for number in range(rounds):
            await db.counter("views").add(1, key=f"k-{number}")
            await db.counter("clicks", kind="event_log").add(3, key=f"c-{number}")
            await db.counter("plain", kind="exact").add(4, key=f"p-{number}")
            for key in STREAMS:
                sql = "INSERT INTO n VALUES (1, 1) ON CONFLICT (id) DO UPDATE SET n = n.n + 1"
                await (await db.stream(key)).execute(sql, key=f"{key}-{number}")


async def move_apart(places: Pair, at: At | None = None) -> None:
    """Move it in another thread and event loop, as another process would."""
    await asyncio.to_thread(lambda: asyncio.run(moved(places, at)))


@pytest.mark.campaign
@pytest.mark.parametrize(
    ("source", "target"), [pytest.param(*each, marks=() if each in FEW else pytest.mark.slow) for each in PAIRS]
)
def test_everything_moves_and_comes_back_while_it_is_used(source: str, target: str, make: Make) -> None:
    places = Pair(make(source), make(target))

    async def scenario() -> None:
        async with open_parts(places.source) as db:
            await counted(db, 3)
            held = await db.stream("north")
            await move_apart(places)
            assert (await held.query("SELECT n FROM n"))[0][0] == 3
            await counted(db, 2, 3)
            assert db.url == shown_url(places.target)
            assert (await db.stream("north")).url.startswith(db.url.partition("?")[0])
            await check(db, 5)
            await move_apart(Pair(places.target, places.source))
            await counted(db, 2, 5)
            assert db.url == shown_url(places.source)
            await check(db, 7)
        async with open_parts(places.source) as again:
            await check(again, 7)

    asyncio.run(scenario())


@pytest.mark.slow
@pytest.mark.parametrize(("source", "target"), PAIRS)
def test_a_mover_that_dies_anywhere_is_followed_by_one_that_ends_the_move(source: str, target: str, make: Make) -> None:
    seen = Dying()

    async def once(point: str) -> None:
        fresh = Pair(make(source), make(target))
        async with open_parts(fresh.source) as db:
            await counted(db, 2)
            # Whether a numbered round comes again depends on how long the others take.
            is_round = any(part.isdigit() for part in point.split("/"))
            with contextlib.suppress(Died) if is_round else pytest.raises(Died):
                await move_apart(fresh, Dying(point))
            await counted(db, 1, 2)
            await check(db, 3)
            await move_apart(fresh)
            await counted(db, 1, 3)
            assert db.url == shown_url(fresh.target)
            await check(db, 4)

    async def scenario() -> None:
        places = Pair(make(source), make(target))
        async with open_parts(places.source) as db:
            await counted(db, 2)
        await move_apart(places, seen)
        points = [each for each in dict.fromkeys(seen.points) if "/" not in each or each.split("/")[1] != "0"]
        points = [each for each in points if not each.startswith("shards/1") and "copy/" not in each]
        for point in points[PAIRS.index((source, target)) % SHARE :: SHARE]:
            await once(point)

    asyncio.run(scenario())


@pytest.mark.parametrize("target", ["lane", "postgres"])
def test_one_stream_moves_alone_and_its_handles_follow(target: str, make: Make) -> None:
    source, there, beyond = make("lane"), make(target), make("lane")

    async def scenario() -> None:
        async with open_parts(source) as db:
            await counted(db, 2)
            held = await db.stream("south-7")
            words = ["route", source, "--stream", "south-7", "--to", there]
            assert await asyncio.to_thread(lambda: main(words)) == 0
            await counted(db, 1, 2)
            assert (held.url, db.url) == (shown_url(there), shown_url(source))
            assert await db.stream("south-7") is held
            await check(db, 3)
        async with open_parts(source) as again:
            assert (await again.stream("south-7")).url == shown_url(there)
            await check(again, 3)
            await move_apart(Pair(source, beyond))  # The stream comes along from where it is.
            await counted(again, 1, 3)
            assert (await again.stream("south-7")).url.startswith(shown_url(beyond))
            await check(again, 4)

    asyncio.run(scenario())


@pytest.mark.campaign
@pytest.mark.parametrize("again", [True, False], ids=["and comes again", "and is not missed"])
def test_the_mover_of_a_stream_that_dies_before_the_manifest_names_the_new_place(
    make: Make, monkeypatch: pytest.MonkeyPatch, *, again: bool
) -> None:
    source, there, beyond = make("bucket"), make("lane"), make("lane")
    alone = Pair(address_of(source, DatabasePart("streams", "north")), there)

    def dies(_url: str, _stone: Tombstone, *, clock: Clock) -> None:
        raise Died("note_left")

    async def scenario() -> None:
        async with open_parts(source) as db:
            await (await db.stream("north")).execute("CREATE TABLE n (id integer PRIMARY KEY)")
        with monkeypatch.context() as patched:
            patched.setattr(bucket_lane, "note_left", dies)
            with pytest.raises(Died):
                await moved(alone)
        assert (await marks_at(alone.source)).state == "unseen"
        if again:
            assert (await moved(alone)).resumed
            assert await marks_at(alone.source) == ("left", there, 1)
        await moved(Pair(source, beyond))
        async with open_parts(source) as db:
            north = await db.stream("north")
            assert (north.url, await north.query("SELECT id FROM n")) == (f"{beyond}.streams/north", [])

    asyncio.run(scenario())


@pytest.mark.campaign
@pytest.mark.parametrize(("source", "target"), FEW)
def test_a_move_that_is_given_up_brings_streams_and_shards_back(source: str, target: str, make: Make) -> None:
    places = Pair(make(source), make(target))

    async def scenario() -> None:
        async with open_parts(places.source) as db:
            await counted(db, 2)
            with pytest.raises(Died):
                await move_apart(places, Dying("seal/0"))
            await counted(db, 1, 2)
            await check(db, 3)  # A client that uses a part closes the lane that was left.
            ended = abandon_database(places.source, places.target, clock=CLOCK)
            assert await asyncio.to_thread(lambda: asyncio.run(ended))
            await counted(db, 1, 3)
            await check(db, 4)
            plan = await plan_database(places.source, places.target, name="it", clock=CLOCK)
            assert any(each.table == "streams/south-7" and each.rows for each in plan.amounts)
            await move_apart(places)
            await counted(db, 1, 4)
            await check(db, 5)

    asyncio.run(scenario())
