"""Enumerations, generated columns, sequences, views and circular references move between the engines, and back."""

import asyncio
from pathlib import Path

import pytest

from interlock import Database
from tests.integration.postgres.moving.people import check_rules, contents, filled
from tests.integration.postgres.moving.places import DIRECTIONS, Pair, moved, pair


@pytest.mark.parametrize("direction", DIRECTIONS)
def test_types_generated_columns_sequences_and_views_come_along(direction: str, postgres: str, tmp_path: Path) -> None:
    places = pair(direction, postgres, tmp_path)

    async def main() -> None:
        expected = await filled(places.source)
        await moved(places)
        async with Database.open(places.target) as db:
            assert await contents(db) == expected
            await check_rules(db)
            [(following,)] = await db.query("INSERT INTO person (name) VALUES ('Cid') RETURNING id")
            assert following == 30
            [(first,)] = await db.query("SELECT nextval('unused')")
            assert first == 5
        # And back, to the address that it came from, with what was written since.
        async with Database.open(places.target) as db:
            expected = await contents(db)
        await moved(Pair(places.target, places.source))
        async with Database.open(places.source) as db:
            assert await contents(db) == expected
            await check_rules(db)
            [(following, second)] = await db.query("SELECT nextval('tens'), nextval('unused')")
            assert (following, second) == (10, 6)

    asyncio.run(main())


@pytest.mark.parametrize("direction", ["lane-to-postgres", "postgres-to-lane"])
def test_what_is_written_during_the_copy_has_its_labels_and_generated_values(
    direction: str, postgres: str, tmp_path: Path
) -> None:
    places = pair(direction, postgres, tmp_path)

    async def main() -> None:
        await filled(places.source)
        async with Database.open(places.source) as db:
            loop = asyncio.get_running_loop()

            async def write() -> None:
                await db.execute("UPDATE person SET name = name || 'x', mood = 'happy', moods = '{happy}'")
                await db.execute("DELETE FROM kept WHERE mood = 'sad' AND n = 2")
                await db.execute("INSERT INTO kept VALUES ('happy', 7)")

            def at(point: str) -> None:
                if point == "copy/index":
                    asyncio.run_coroutine_threadsafe(write(), loop).result()

            await asyncio.to_thread(lambda: asyncio.run(moved(places, at)))
        async with Database.open(places.target) as db:
            people, kept, *_ = await contents(db)
        assert [row[2:4] for row in people] == [("happy", ["happy"])] * 2
        assert [row[-2:] for row in people] == [("ANNX!", 4), ("BOBX!", 4)]
        assert kept == [("sad", 1), ("happy", 1), ("happy", 7)]

    asyncio.run(main())
