"""What a move refuses, leaves alone or takes back: late writers, dry runs, moves that are given up, other schemas."""

import asyncio
import hashlib
from collections.abc import Awaitable, Callable
from pathlib import Path

import asyncpg
import pytest

from interlock import Database
from interlock.database.postgres_engine import opener
from interlock.database.transactions import Transaction
from interlock.errors import BadUsage, MovedElsewhere, OutcomeUnknown, TargetNotFound, UnavailableError
from interlock.lanes.lane_settings import LaneSettings
from interlock.postgres.handover_marks import MOVED
from interlock.relocate.mover import abandon_database, move_database, plan_database
from interlock.relocate.postgres_link import MoverLink
from interlock.urls import parse_postgres_url
from tests.integration.postgres.moving.places import (
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

EVERYTHING = """
SELECT n.nspname, c.relname, c.relkind::text, c.relfilenode::text, pg_get_triggerdef(t.oid)
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace LEFT JOIN pg_trigger t ON t.tgrelid = c.oid
WHERE n.nspname LIKE $1 || '%' ORDER BY 1, 2, 5"""


@pytest.fixture(params=DIRECTIONS[:2])
def places(request: pytest.FixtureRequest, postgres: str, tmp_path: Path) -> Pair:
    """Where it is and where it goes."""
    return pair(request.param, postgres, tmp_path)


async def _looks(url: str) -> object:
    """Everything that can be seen of a place from outside, to its last byte."""
    if url.startswith("lanes://"):
        folder = Path(url.removeprefix("lanes://")).parent
        return {
            path.name: hashlib.sha256(path.read_bytes()).hexdigest()
            for path in sorted(folder.iterdir())
            if not path.name.endswith((".lock", "-shm", "-wal"))
        }
    address = parse_postgres_url(url)
    connection = await asyncpg.connect(address.url)
    try:
        return [tuple(row) for row in await connection.fetch(EVERYTHING, address.schema)]
    finally:
        await connection.close()


def test_a_dry_run_changes_nothing_and_tells_everything(places: Pair) -> None:
    async def main() -> None:
        await filled(places.source)
        before = [await _looks(each) for each in places]
        plan = await plan_database(places.source, places.target, name="shop", clock=CLOCK)
        assert [await _looks(each) for each in places] == before
        assert {each.table: each.rows for each in plan.amounts} == {"article": 30, "sale": 60, "interlock_keys": 1}
        assert plan.epoch == 1
        assert plan.copy_s > 0 < plan.seal_ms
        assert all(each.bytes > 0 for each in plan.amounts)
        async with Database.open(places.source) as db:  # It serves, and nothing notes what it writes.
            await stirred(db)

    asyncio.run(main())


def test_a_move_that_was_given_up_leaves_nothing_behind(places: Pair) -> None:
    async def main() -> None:
        await filled(places.source)
        async with Database.open(places.source) as db:
            expected = await contents(db)
        before = [await _looks(places.target), len(str(await _looks(places.source)))]
        with pytest.raises(Died):
            await moved(places, Dying("catch up/0"))
        assert await abandon_database(places.source, places.target, clock=CLOCK)
        after = [await _looks(places.target), len(str(await _looks(places.source)))]
        if places.source.startswith("lanes://"):
            # The schema of the target was made for the draft, and is empty.
            assert after[0] == before[0] == []
        else:
            assert after[1] == before[1]
        assert not await abandon_database(places.source, places.target, clock=CLOCK)
        async with Database.open(places.source) as db:
            assert await contents(db) == expected
            await stirred(db)
        await moved(places)  # It can be begun again.
        with pytest.raises(MovedElsewhere):
            await abandon_database(places.source, places.target, clock=CLOCK)

    asyncio.run(main())


def test_a_draft_is_opened_by_nobody(places: Pair) -> None:
    async def main() -> None:
        await filled(places.source)
        with pytest.raises(Died):
            await moved(places, Dying("catch up/0"))
        with pytest.raises(UnavailableError, match="is arriving"):
            await Database.open(places.target)

    asyncio.run(main())


@pytest.mark.slow
def test_a_move_back_has_a_higher_epoch_and_keeps_what_was_there(places: Pair) -> None:
    async def main() -> None:
        await filled(places.source)
        async with Database.open(places.source) as db:
            expected = await contents(db)
        assert (await moved(places)).epoch == 1
        back = Pair(places.target, places.source)
        done = await moved(back)
        assert done.epoch == 2
        assert (await moved(places)).epoch == 3
        async with Database.open(places.source) as db:
            assert await contents(db) == expected
            assert db.url != places.source
        if places.source.startswith("lanes://"):
            path = Path(places.source.removeprefix("lanes://"))
            assert path.with_name(f"{path.name}.lane.before-2").exists()

    asyncio.run(main())


@pytest.mark.campaign
@pytest.mark.parametrize("change", ["ALTER TABLE article ADD COLUMN more text", "DROP TABLE sale", "TRUNCATE sale"])
@pytest.mark.parametrize("point", ["copy/index", "seal/0/before"])
def test_a_schema_that_changes_meanwhile_begins_the_copy_anew(places: Pair, change: str, point: str) -> None:
    if change.startswith("TRUNCATE") and places.source.startswith("lanes://"):
        change = "DELETE FROM sale"

    async def main() -> None:
        await filled(places.source)
        async with Database.open(places.source) as db:
            loop = asyncio.get_running_loop()
            done = Dying()

            def at(here: str) -> None:
                if here == point and here not in done.points:
                    asyncio.run_coroutine_threadsafe(db.execute(change), loop).result()
                done(here)

            result = await asyncio.to_thread(lambda: asyncio.run(moved(places, at)))
            if not change.startswith("DELETE"):
                assert done.points.count("watch") == 2
        rows = {each.table: each.rows for each in result.amounts}
        async with Database.open(places.target) as db:
            assert (await db.query("SELECT count(*) FROM article")) == [(30,)]
            if change.startswith("ALTER"):
                assert (await db.query("SELECT DISTINCT more FROM article")) == [(None,)]
            elif change.startswith("DROP"):
                assert "sale" not in rows
            else:
                assert rows["sale"] == 0

    asyncio.run(main())


def test_late_writers_of_postgresql_learn_where_it_is(postgres: str, tmp_path: Path) -> None:
    """On connections from before, with statements prepared before; in every form that a call has."""
    places = pair("postgres-to-lane", postgres, tmp_path)

    async def main() -> None:
        await filled(places.source)
        # Not through the façade, which would follow.
        late = await opener(places.source, hand_off=None, settings=LaneSettings(), clock=CLOCK)()
        increment = "UPDATE article SET n = n + 1 WHERE id = 1"
        calls: dict[str, Callable[[], Awaitable[object]]] = {
            "execute": lambda: late.execute(increment, (), None),
            "keyed": lambda: late.execute(increment, (), "late"),
            "query": lambda: late.query("SELECT n FROM article WHERE id = 1", (), None),
            "transact": lambda: late.transact(_late, (), None),
            "keyed transact": lambda: late.transact(_late, (), "late too"),
            "make": lambda: late.execute("CREATE TABLE IF NOT EXISTS article (id integer PRIMARY KEY)", (), None),
            "make another": lambda: late.transact(_make, (), None),
        }
        for name in ("execute", "query", "transact"):
            await calls[name]()
        await moved(places)
        before = await _looks(places.source)
        for name, call in calls.items():
            with pytest.raises(MovedElsewhere) as caught:
                await call()
            assert (caught.value.url, caught.value.epoch) == (places.target, 1), name
        assert await _looks(places.source) == before
        with pytest.raises(MovedElsewhere):
            await opener(places.source, hand_off=None, settings=LaneSettings(), clock=CLOCK)()
        await late.close()
        connection = await asyncpg.connect(parse_postgres_url(places.source).url)
        aside = f"{parse_postgres_url(places.source).schema}__moved_1"
        with pytest.raises(asyncpg.PostgresError, match="has moved"):  # Nor by the name that the tables have now.
            await connection.execute(f"UPDATE {aside}.article SET n = 0")
        await connection.close()

    asyncio.run(main())


async def _late(tx: Transaction) -> None:
    await tx.execute("UPDATE article SET n = n + 1 WHERE id = 1")


async def _make(tx: Transaction) -> None:
    await tx.execute("CREATE TABLE another (id integer PRIMARY KEY)")


def test_what_is_there_already_is_not_mixed_with_what_comes(places: Pair) -> None:
    async def main() -> None:
        await filled(places.source)
        async with Database.open(places.target) as db:
            await db.execute("CREATE TABLE mine (id integer PRIMARY KEY)")
        with pytest.raises(BadUsage, match="mine"):
            await moved(places)
        with pytest.raises(BadUsage, match="mine"):
            await plan_database(places.source, places.target, name="shop", clock=CLOCK)
        with pytest.raises(BadUsage, match="already"):
            await move_database(places.source, places.source, name="shop", clock=CLOCK)

    asyncio.run(main())


def test_a_database_that_is_not_there_is_not_made(postgres: str, tmp_path: Path) -> None:
    async def main() -> None:
        for direction in DIRECTIONS[:2]:
            places = pair(direction, postgres, tmp_path)
            with pytest.raises(TargetNotFound):
                await moved(places)

    asyncio.run(main())


@pytest.mark.campaign
def test_a_draft_of_another_move_is_left_alone(places: Pair, postgres: str, tmp_path: Path) -> None:
    async def main() -> None:
        await filled(places.source)
        with pytest.raises(Died):
            await moved(places, Dying("copy/index"))
        other = pair("lane-to-postgres", postgres, tmp_path).source
        await filled(other)
        for call in (moved(Pair(other, places.target)), abandon_database(other, places.target, clock=CLOCK)):
            with pytest.raises(BadUsage, match="was begun and not ended"):
                await call
        assert (await moved(places)).resumed

    asyncio.run(main())


@pytest.mark.campaign
@pytest.mark.parametrize("happened", [True, False])
def test_a_commit_of_the_seal_that_nobody_answers_is_looked_for(
    happened: bool, postgres: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    places = pair("postgres-to-lane", postgres, tmp_path)
    commit = MoverLink.commit
    answers: list[MoverLink] = []

    async def lost(link: MoverLink) -> None:
        [row] = await link.fetch(
            "SELECT to_regclass($1) IS NOT NULL", f"{parse_postgres_url(places.source).schema}.{MOVED}"
        )
        if not row[0] or answers:
            await commit(link)
            return
        answers.append(link)
        if happened:
            await commit(link)
        link.driver.terminate()
        raise OutcomeUnknown("the connection was lost")

    async def main() -> None:
        await filled(places.source)
        with monkeypatch.context() as patched:
            patched.setattr(MoverLink, "commit", lost)
            if happened:
                assert (await moved(places)).seal_ms > 0
            else:
                with pytest.raises(UnavailableError, match="has not moved"):
                    await moved(places)
        async with Database.open(places.source) as db:
            assert (db.engine == "lane") == happened
            await stirred(db)
            expected = await contents(db)
        await moved(places)
        async with Database.open(places.target) as db:
            assert await contents(db) == expected

    asyncio.run(main())


@pytest.mark.campaign
@pytest.mark.parametrize("name", ["archive", "eu__archive"])
def test_a_schema_of_others_that_is_named_like_a_stream_is_refused_and_left_alone(
    postgres: str, tmp_path: Path, name: str
) -> None:
    places = pair("postgres-to-lane", postgres, tmp_path)
    schema = f"{parse_postgres_url(places.source).schema}__{name}"

    async def run(sql: str) -> None:
        connection = await asyncpg.connect(parse_postgres_url(postgres).url)
        try:
            await connection.execute(sql)
        finally:
            await connection.close()

    async def main() -> None:
        await filled(places.source)
        async with Database.open(places.source, db_per_write_stream=True) as db:
            await (await db.stream("eu")).execute("CREATE TABLE t (n bigint)")
        with pytest.raises(Died):
            await moved(places, Dying("draft"))
        await run(f"CREATE SCHEMA {schema}; CREATE TABLE {schema}.mine (id int PRIMARY KEY)")
        before = [await _looks(each) for each in places]
        for attempt in (moved(places), plan_database(places.source, places.target, name="shop", clock=CLOCK)):
            with pytest.raises(BadUsage, match=f"^{schema}: named like"):
                await attempt
        assert [await _looks(each) for each in places] == before
        assert await abandon_database(places.source, places.target, clock=CLOCK), "the begun move can be given up"
        await run(f"ALTER SCHEMA {schema} RENAME TO mine_{schema}")
        assert [each.table for each in (await moved(places)).amounts if "/" in each.table] == ["streams/eu"]
        await run(f"DROP TABLE mine_{schema}.mine; DROP SCHEMA mine_{schema}")

    asyncio.run(main())
