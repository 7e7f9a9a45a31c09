"""A move that cannot be right is no move: what was lost on the way is found, and whoever cannot catch up says so."""

import asyncio
from pathlib import Path

import pytest

from interlock import Database
from interlock.errors import BadUsage, CorruptionError, UnavailableError
from interlock.relocate import local_lane, mover
from interlock.relocate.postgres import PostgresSource
from interlock.relocate.rows import StoredRow
from interlock.relocate.shape import Table
from interlock.relocate.source_and_target import Draft, Source
from tests.integration.postgres.moving.places import ARTICLES, Pair, contents, filled, moved, pair, whole

LINES = ("one", "one", "two", None)


@pytest.fixture(params=["lane-to-postgres", "postgres-to-lane"])
def places(request: pytest.FixtureRequest, postgres: str, tmp_path: Path) -> Pair:
    """Where it is and where it goes."""
    return pair(request.param, postgres, tmp_path)


async def _with_lines(url: str) -> None:
    await filled(url)
    async with Database.open(url) as db:
        await db.execute("CREATE TABLE line (words text)")
        for words in LINES:
            await db.execute("INSERT INTO line VALUES ($1)", words)


@pytest.mark.slow
def test_a_table_without_a_key_comes_as_a_whole(places: Pair) -> None:
    async def main() -> None:
        await _with_lines(places.source)
        done = await moved(places)
        assert {each.table: each.rows for each in done.amounts}["line"] == len(LINES)
        async with Database.open(places.target) as db:
            assert sorted(str(row[0]) for row in await db.query("SELECT words FROM line")) == sorted(map(str, LINES))

    asyncio.run(main())


def test_a_large_table_without_a_key_is_refused_before_anything_is_copied(
    places: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mover, "WHOLE_ROWS_MAX", len(LINES) - 1)

    async def main() -> None:
        await _with_lines(places.source)
        with pytest.raises(BadUsage, match="has no primary key and 4 rows"):
            await moved(places)
        async with Database.open(places.source) as db:
            await db.execute("INSERT INTO line VALUES ('it goes on')")

    asyncio.run(main())


@pytest.mark.slow
def test_who_cannot_catch_up_says_so_and_goes_on_later(places: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        await filled(places.source)
        with monkeypatch.context() as slow:
            slow.setattr(mover, "SEAL_KEYS_MAX", -1)  # However little is left, it is too much.
            slow.setattr(mover.RowUnit, "rounds_max", 3)
            with pytest.raises(UnavailableError, match="the move cannot catch up"):
                await moved(places)
        async with Database.open(places.source) as db:
            await db.execute("UPDATE article SET n = n + 1 WHERE id = 7")
            expected = await contents(db)
        done = await moved(places)
        assert done.resumed
        await whole(places.target, expected)

    asyncio.run(main())


def test_a_row_that_was_lost_on_the_way_is_found(
    postgres: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    places = pair("postgres-to-lane", postgres, tmp_path)
    copy = local_lane.LaneTarget.copy

    async def lossy(target: local_lane.LaneTarget, table: Table, rows: list[StoredRow], draft: Draft) -> None:
        await copy(target, table, rows[:-1], draft)

    async def main() -> None:
        await filled(places.source)
        async with Database.open(places.source) as db:
            expected = await contents(db)
        with monkeypatch.context() as broken:
            broken.setattr(local_lane.LaneTarget, "copy", lossy)
            with pytest.raises(CorruptionError, match="is not the same at both places"):
                await moved(places)
        async with Database.open(places.source) as db:
            assert await contents(db) == expected

    asyncio.run(main())


def test_a_note_is_read_once_while_both_places_are_compared(places: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mover, "ROWS_PER_PIECE", 5)
    source: type[Source] = local_lane.LaneSource if places.source.startswith("lanes:") else PostgresSource
    original = source.noted_keys
    read: list[StoredRow] = []

    async def counted(end: Source, table: Table, after: int) -> tuple[set[StoredRow], int]:
        found, last = await original(end, table, after)
        read.extend(found if table.name == "article" else ())
        return found, last

    async def main() -> None:
        await filled(places.source)
        async with Database.open(places.source) as db:
            watching = mover.RowUnit.compare

            async def while_written(unit: mover.RowUnit) -> None:
                await db.execute("UPDATE article SET n = n + 1")
                await watching(unit)

            monkeypatch.setattr(mover.RowUnit, "compare", while_written)
            monkeypatch.setattr(source, "noted_keys", counted)
            await moved(places)
            assert sorted(read) == [(number,) for number in range(ARTICLES)]

    asyncio.run(main())
