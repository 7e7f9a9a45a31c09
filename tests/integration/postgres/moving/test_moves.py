"""A database moves, with everything in it; a mover that dies anywhere is followed by one that ends the move."""

import asyncio
from pathlib import Path

import pytest

from interlock import Database
from interlock.relocate.database.mover import shown_url
from tests.integration.postgres.moving.places import (
    DIRECTIONS,
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


@pytest.fixture(params=DIRECTIONS)
def places(request: pytest.FixtureRequest, postgres: str, tmp_path: Path) -> Pair:
    """Where it is and where it goes."""
    return pair(request.param, postgres, tmp_path)


def test_everything_comes_along(places: Pair) -> None:
    async def main() -> None:
        await filled(places.source)
        async with Database.open(places.source) as db:
            await stirred(db, 3)
            expected = await contents(db)
        done = await moved(places)
        assert {each.table: each.rows for each in done.amounts} == {"article": 30, "sale": 60, "interlock_keys": 4}
        assert done.epoch == 1
        assert done.checksum
        await whole(places.target, expected)

    asyncio.run(main())


def test_what_is_written_meanwhile_comes_along(places: Pair) -> None:
    """At every point of the copy something is written at the source, in every way that there is."""

    async def main() -> None:
        await filled(places.source)
        async with Database.open(places.source) as db:
            loop = asyncio.get_running_loop()
            expected: dict[str, list[tuple[object, ...]]] = {}

            async def write() -> None:
                await stirred(db)
                expected.update(await contents(db))

            def at(point: str) -> None:
                # The mover runs in a thread of its own, and waits here until it was written.
                if not point.startswith(("seal/0", "verify", "leave", "arrive", "done")) or point == "seal/0/before":
                    asyncio.run_coroutine_threadsafe(write(), loop).result()

            done = await asyncio.to_thread(lambda: asyncio.run(moved(places, at)))
        assert done.rows > 0
        await whole(places.target, expected)

    asyncio.run(main())


@pytest.mark.slow
def test_a_mover_that_dies_anywhere_is_followed_by_one_that_ends_the_move(
    places: Pair, postgres: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    direction = request.node.callspec.params["places"]
    seen = Dying()

    async def once(places: Pair, point: str) -> None:
        await filled(places.source)
        with pytest.raises(Died):
            await moved(places, Dying(point))
        async with Database.open(places.source) as db:
            # Through the façade: before the tombstone this is the source, behind it the target.
            await stirred(db)
            expected = await contents(db)
            left = db.url != shown_url(places.source)
        assert (left == point.startswith(("leave", "arrive", "done")) and point != "leave/before") or not left
        await moved(places)
        await whole(places.target, expected)

    async def main() -> None:
        await filled(places.source)
        await moved(places, seen)
        assert {"watch", "draft", "copy/index", "catch up/0", "seal/0", "verify", "leave/before", "leave", "done"} <= {
            *seen.points
        }
        for point in dict.fromkeys(seen.points):
            await once(pair(direction, postgres, tmp_path), point)

    asyncio.run(main())
