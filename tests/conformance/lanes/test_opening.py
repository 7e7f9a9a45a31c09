"""A database is there again after it was closed, its schema grows, and each stream has a database of its own."""

import asyncio

from tests.conformance.lanes.places import Place

TABLE = "CREATE TABLE IF NOT EXISTS counter (id bigint PRIMARY KEY, n bigint NOT NULL)"


def test_a_database_is_there_again_after_it_was_closed(place: Place) -> None:
    async def scenario() -> None:
        async with place.database() as db:
            await db.execute(TABLE)
            await db.execute("INSERT INTO counter VALUES ($1, $2)", 1, 7)
        again = await place.database()
        assert await again.query("SELECT n FROM counter WHERE id = $1", 1) == [(7,)]
        await again.close()

    asyncio.run(scenario())


def test_each_stream_has_a_database_of_its_own(place: Place) -> None:
    async def scenario() -> None:
        async with place.database(db_per_write_stream=True) as db:
            one, other, same = await asyncio.gather(db.stream("sku-1"), db.stream("a/b"), db.stream("sku-1"))
            assert one is same
            assert one is not other
            await one.execute(TABLE)
            await other.execute(TABLE)
            await one.execute("INSERT INTO counter VALUES (1, 5)")
            assert await other.query("SELECT count(*) FROM counter") == [(0,)]
        async with place.database(db_per_write_stream=True) as db:
            assert await (await db.stream("sku-1")).query("SELECT n FROM counter") == [(5,)]

    asyncio.run(scenario())


def test_a_column_can_be_added_and_a_default_may_be_the_time(place: Place) -> None:
    async def scenario() -> None:
        async with place.database() as db:
            await db.execute("CREATE TABLE entry (id bigint PRIMARY KEY, at timestamptz NOT NULL DEFAULT now())")
            await db.execute("ALTER TABLE entry ADD COLUMN note text")
            await db.execute("INSERT INTO entry (id, note) VALUES ($1, $2)", 1, "x")
            [(at, note)] = await db.query("SELECT at, note FROM entry")
            assert at is not None
            assert note == "x"

    asyncio.run(scenario())
