"""Movers that meet each other, or what another one has left behind: nothing is lost, and the chain goes on."""

import asyncio
import uuid
from pathlib import Path

import pytest

from interlock import Database
from interlock.database import postgres_engine
from interlock.errors import BadUsage, UnavailableError
from interlock.postgres.handover_marks import Fetch, HandoverMarks, handover_marks
from interlock.relocate import local_lane, mover
from interlock.relocate.mover import abandon_database, shown_url
from interlock.relocate.postgres_rows import MoverConnections
from tests.integration.postgres.moving.places import (
    ARTICLES,
    CLOCK,
    DIRECTIONS,
    Died,
    Dying,
    Pair,
    contents,
    filled,
    moved,
    pair,
    stirred,
)


@pytest.fixture(params=DIRECTIONS)
def places(request: pytest.FixtureRequest, postgres: str, tmp_path: Path) -> Pair:
    """Where it is and where it goes."""
    return pair(request.param, postgres, tmp_path)


@pytest.mark.campaign
def test_two_movers_of_one_database_do_not_forget_each_others_notes(
    places: Pair, postgres: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each would forget what it has brought over, and the other one would leave without it."""
    monkeypatch.setattr(mover, "FULL_ROWS_MAX", 0)  # As a big one: the seal compares only what is left.
    elsewhere = places._replace(target=f"lanes://{tmp_path}/elsewhere")

    async def main() -> None:
        await filled(places.source)
        async with Database.open(places.source) as db:
            loop = asyncio.get_running_loop()
            expected: dict[str, list[tuple[object, ...]]] = {}

            async def interfere() -> None:
                await db.execute("UPDATE article SET n = n + 7 WHERE id = 3")
                expected.update(await contents(db))
                with pytest.raises(UnavailableError, match="another mover"):
                    await moved(elsewhere, Dying("seal/0/before"))
                with pytest.raises(UnavailableError, match="another mover"):
                    await abandon_database(elsewhere.source, elsewhere.target, clock=CLOCK)

            def at(point: str) -> None:
                if point == "seal/0/before":
                    asyncio.run_coroutine_threadsafe(interfere(), loop).result()

            await asyncio.to_thread(lambda: asyncio.run(moved(places, at)))
            assert await contents(db) == expected

    asyncio.run(main())


@pytest.mark.campaign
def test_a_place_where_a_follower_let_it_arrive_knows_its_epoch(places: Pair, tmp_path: Path) -> None:
    """Otherwise the next move would have the same one, and whoever follows the chain would take it for a circle."""
    further = Pair(places.target, f"lanes://{tmp_path}/further")

    async def main() -> None:
        await filled(places.source)
        with pytest.raises(Died):
            await moved(places, Dying("leave"))
        async with Database.open(places.source) as db:
            await stirred(db)
            expected = await contents(db)
        assert (await moved(further)).epoch == 2
        async with Database.open(places.source) as db:
            assert await contents(db) == expected

    asyncio.run(main())


@pytest.mark.campaign
def test_a_draft_that_was_overtaken_gets_a_new_epoch(places: Pair, tmp_path: Path) -> None:
    """The database went elsewhere and came back meanwhile: the chain must not lead back in time."""
    there = Pair(places.source, f"lanes://{tmp_path}/there")

    async def main() -> None:
        await filled(places.source)
        with pytest.raises(Died):
            await moved(places, Dying("copy/index"))
        await moved(there)
        assert (await moved(Pair(there.target, there.source))).epoch == 2
        async with Database.open(there.target) as db:
            await stirred(db)
            expected = await contents(db)
        assert (await moved(places)).epoch == 3
        async with Database.open(there.target) as db:
            assert db.url == shown_url(places.target)
            assert await contents(db) == expected

    asyncio.run(main())


@pytest.mark.campaign
def test_a_draft_that_was_overtaken_is_abandoned_from_where_the_database_lives(places: Pair, tmp_path: Path) -> None:
    """Its source has left to another place: nothing ends that move, and its target would be taken for ever."""
    there, other = f"lanes://{tmp_path}/there", f"lanes://{tmp_path}/other"

    async def main() -> None:
        await filled(places.source)
        await filled(other)
        with pytest.raises(Died):
            await moved(places, Dying("copy/index"))
        with pytest.raises(BadUsage, match="begun and not ended"):
            await abandon_database(other, places.target, clock=CLOCK)
        await moved(Pair(places.source, there))
        with pytest.raises(BadUsage, match="begun and not ended"):
            await moved(Pair(there, places.target))
        assert await abandon_database(there, places.target, clock=CLOCK)
        assert not await abandon_database(there, places.target, clock=CLOCK)
        await moved(Pair(there, places.target))
        async with Database.open(places.source) as db:
            assert db.url == shown_url(places.target)

    asyncio.run(main())


@pytest.mark.campaign
def test_a_draft_whose_source_has_left_for_it_is_not_removed_by_another_move(places: Pair, tmp_path: Path) -> None:
    """The mover died after the tombstone: the draft is the only copy."""
    other = f"lanes://{tmp_path}/other"

    async def main() -> None:
        await filled(places.source)
        await filled(other)
        with pytest.raises(Died):
            await moved(places, Dying("leave"))
        with pytest.raises(BadUsage, match="begun and not ended"):
            await abandon_database(other, places.target, clock=CLOCK)
        async with Database.open(places.source) as db:
            assert db.url == shown_url(places.target)
            await stirred(db)

    asyncio.run(main())


def test_a_draft_whose_source_has_left_for_it_is_kept_under_another_address_too(tmp_path: Path) -> None:
    """One place has several addresses; the tombstone has the one that its mover got."""
    (tmp_path / "link").symlink_to(tmp_path)
    source, target, same, other = (
        f"lanes://{tmp_path}/{name}" for name in ("source", "target", "link/target", "other")
    )

    async def main() -> None:
        await filled(source)
        await filled(other)
        with pytest.raises(Died):
            await moved(Pair(source, target), Dying("leave"))
        with pytest.raises(BadUsage, match="begun and not ended"):
            await abandon_database(other, same, clock=CLOCK)
        async with Database.open(source) as db:
            assert db.url == shown_url(target)
            await stirred(db)

    asyncio.run(main())


@pytest.mark.slow
@pytest.mark.parametrize("direction", ["lane-to-postgres", "lane-to-lane"])
def test_a_mover_that_dies_while_it_puts_a_tombstone_aside_opens_no_door(
    direction: str, postgres: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between the old file and the draft there is no instant without either: somebody would begin an empty database."""
    there = pair(direction, postgres, tmp_path)
    back = Pair(there.target, there.source)

    def die(*_: object) -> None:
        raise Died

    async def main() -> None:
        await filled(there.source)
        await moved(there)
        async with Database.open(there.target) as db:
            expected = await contents(db)
        with monkeypatch.context() as patch:
            patch.setattr(local_lane, "admit", die)
            with pytest.raises(Died):
                await moved(back)
        async with Database.open(there.source) as db:
            assert db.url == shown_url(there.target)
            assert await contents(db) == expected
        with pytest.raises(Died):
            await moved(back, Dying("copy/index"))
        assert await abandon_database(back.source, back.target, clock=CLOCK)
        async with Database.open(there.source) as db:
            assert await contents(db) == expected
        await moved(back)
        async with Database.open(there.target) as db:
            assert db.url == shown_url(there.source)
            assert await contents(db) == expected

    asyncio.run(main())


def test_a_mover_waits_for_its_commits_whatever_the_server_is_set_to(postgres: str) -> None:
    """A tombstone that a crash of the server takes back would let two places live."""

    async def main() -> None:
        url = f"{postgres}&schema=never"
        first = await MoverConnections(url, CLOCK).connected()
        try:
            await first.execute("ALTER ROLE CURRENT_USER SET synchronous_commit = off")
            second = await MoverConnections(url, CLOCK).connected()
            try:
                assert [tuple(row) for row in await second.fetch("SHOW synchronous_commit")] == [("on",)]
            finally:
                await second.end()
        finally:
            await first.execute("ALTER ROLE CURRENT_USER RESET synchronous_commit")
            await first.end()

    asyncio.run(main())


def test_schemas_whose_names_differ_at_the_end_have_drafts_of_their_own(postgres: str, tmp_path: Path) -> None:
    """PostgreSQL cuts names at 63 bytes: a move must not take the draft of another one for its own."""
    base = f"{postgres}&schema={f'm{uuid.uuid4().hex}':s<60}"
    one, other = (Pair(f"lanes://{tmp_path}/{end}", f"{base}{end}") for end in ("a", "b"))

    async def main() -> None:
        await filled(one.source)
        await filled(other.source)
        async with Database.open(one.source) as db:
            expected = await contents(db)
        with pytest.raises(Died):
            await moved(one, Dying("leave"))
        with pytest.raises(Died):
            await moved(other, Dying("draft"))
        async with Database.open(one.source) as db:
            assert await contents(db) == expected
        await moved(other)

    asyncio.run(main())


def test_a_schema_without_a_table_moves(postgres: str, tmp_path: Path) -> None:
    places = pair("postgres-to-lane", postgres, tmp_path)

    async def main() -> None:
        mine = MoverConnections(places.source, CLOCK)
        link = await mine.connected()
        await link.execute(f"CREATE SCHEMA {mine.address.schema}")
        await link.end()
        await moved(places)
        async with Database.open(places.source) as db:
            assert db.url == shown_url(places.target)

    asyncio.run(main())


@pytest.mark.slow
@pytest.mark.parametrize("ending", ["leave", "arrive"])
def test_whoever_comes_while_a_database_moves_back_is_sent_on(postgres: str, tmp_path: Path, ending: str) -> None:
    """The tombstone counts until the draft that replaces it has arrived, and not an instant longer."""
    there = pair("lane-to-postgres", postgres, tmp_path)
    back = Pair(there.target, there.source)

    async def main() -> None:
        await filled(there.source)
        await moved(there)
        loop, seen = asyncio.get_running_loop(), list[str]()

        async def come() -> None:
            async with Database.open(there.source) as db:
                seen.append(db.url)

        def at(point: str) -> None:
            if point == "seal/0/before":
                asyncio.run_coroutine_threadsafe(come(), loop).result()
            if point == ending:
                raise Died

        with pytest.raises(Died):
            await asyncio.to_thread(lambda: asyncio.run(moved(back, at)))
        await come()
        assert seen == [shown_url(there.target), shown_url(there.source)]
        await moved(back)

    asyncio.run(main())


def test_whoever_has_the_empty_target_open_makes_no_table_there(postgres: str, tmp_path: Path) -> None:
    """It would be in the way when the draft arrives, behind the tombstone, for ever."""
    places = pair("lane-to-postgres", postgres, tmp_path)

    async def main() -> None:
        await filled(places.source)
        async with Database.open(places.target) as early:
            with pytest.raises(Died):
                await moved(places, Dying("draft"))
            with pytest.raises(UnavailableError, match="arriving"):
                await early.execute("CREATE TABLE article (id integer PRIMARY KEY)")
            assert await abandon_database(places.source, places.target, clock=CLOCK)
            assert await early.execute("CREATE TABLE other (id integer PRIMARY KEY)", key="other") == 0
            with pytest.raises(BadUsage, match="other"):
                await moved(places)
            await early.execute("DROP TABLE other")
            await early.execute("DELETE FROM interlock_keys")
            await moved(places)
            assert len((await contents(early))["article"]) == ARTICLES

    asyncio.run(main())


def test_whoever_opens_a_place_in_the_instant_in_which_it_is_left_is_sent_on(
    postgres: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first look was before the tombstone; what opening makes would let tables be made at the old place."""
    places = pair("postgres-to-lane", postgres, tmp_path)
    looks = list[str]()

    async def looked(fetch: Fetch, schema: str) -> HandoverMarks:
        looks.append(schema)
        return HandoverMarks() if len(looks) == 1 else await handover_marks(fetch, schema)

    async def main() -> None:
        await filled(places.source)
        await moved(places)
        monkeypatch.setattr(postgres_engine, "handover_marks", looked)
        async with Database.open(places.source) as db:
            assert db.url == shown_url(places.target)

    asyncio.run(main())
