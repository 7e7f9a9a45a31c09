"""What has changed the schema is noted as it was written, with the change itself: both are there, or none of them."""

import asyncio

import pytest

from interlock.database import lane_engine
from interlock.database.database import Database
from interlock.database.transactions import Transaction
from interlock.errors import InterlockError, TransactionError
from interlock.lanes.writer import Session, Work
from tests.conformance.lanes.places import Place, lane_of
from tests.unit.lanes.lanes import run

HERE = pytest.mark.parametrize("place", ["memory", "local", "bucket"], indirect=True)

MADE = "CREATE TABLE note (id serial PRIMARY KEY, said varchar(20) -- in a word\n)"


async def noted(db: Database) -> list[str]:
    """The notes in their order."""

    def read(session: Session) -> list[str]:
        exists = "SELECT 1 FROM sqlite_schema WHERE name = 'interlock_definitions'"
        if session.own(lambda run: run(exists).get) is None:
            return []
        return session.own(
            lambda run: [str(sql) for (sql,) in run("SELECT sql FROM interlock_definitions ORDER BY number")]
        )

    found = await lane_of(db).run(Work(read))
    assert isinstance(found, list)
    return found


@HERE
def test_what_changes_the_schema_is_noted_word_for_word(place: Place) -> None:
    async def main() -> None:
        async with place.database() as db:
            await db.execute(MADE)
            await db.query("CREATE INDEX said_first ON note (said)")
            await db.execute("INSERT INTO note (said) VALUES ($1)", "x")
            await db.execute("ALTER TABLE note ADD COLUMN at timestamptz")
            assert await noted(db) == [
                MADE,
                "CREATE INDEX said_first ON note (said)",
                "ALTER TABLE note ADD COLUMN at timestamptz",
            ]

    run(main)


@HERE
def test_what_changes_nothing_is_not_noted(place: Place) -> None:
    async def main() -> None:
        async with place.database() as db:
            for _ in range(3):
                await db.execute("CREATE TABLE IF NOT EXISTS note (id integer PRIMARY KEY)")
                await db.execute("DROP TABLE IF EXISTS nothing")
            with pytest.raises(TransactionError):
                await db.execute("CREATE TABLE note (id integer PRIMARY KEY)")
            assert await noted(db) == ["CREATE TABLE IF NOT EXISTS note (id integer PRIMARY KEY)"]

    run(main)


@HERE
def test_what_is_taken_back_is_not_noted(place: Place) -> None:
    async def main() -> None:
        async def fail(tx: Transaction) -> None:
            await tx.execute(MADE)
            raise ValueError("taken back")

        async with place.database() as db:
            with pytest.raises(ValueError, match="taken back"):
                await db.transact(fail)
            assert await noted(db) == []
            await db.execute(MADE)
            assert await noted(db) == [MADE]

    run(main)


@HERE
def test_users_cannot_see_or_change_the_notes(place: Place) -> None:
    async def main() -> None:
        async with place.database() as db:
            await db.execute(MADE)
            for statement in ("SELECT sql FROM interlock_definitions", "DELETE FROM interlock_definitions"):
                with pytest.raises(InterlockError):
                    await db.execute(statement)
            assert await noted(db) == [MADE]

    run(main)


@HERE
def test_a_change_that_cannot_be_noted_does_not_happen(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        async with place.database() as db:
            await db.execute("CREATE TABLE kept (id integer PRIMARY KEY)")
            with monkeypatch.context() as patch:
                patch.setattr(lane_engine, "_STORE", "INSERT INTO nowhere VALUES (?1)")
                answers = await asyncio.gather(
                    db.execute("INSERT INTO kept (id) VALUES (1)"), db.execute(MADE), return_exceptions=True
                )
            assert answers[0] == 1
            assert isinstance(answers[1], TransactionError)
            assert await noted(db) == ["CREATE TABLE kept (id integer PRIMARY KEY)"]
            await db.execute(MADE)
            assert [tuple(row) for row in await db.query("SELECT id FROM kept")] == [(1,)]

    run(main)


@HERE
def test_the_notes_are_bounded(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        monkeypatch.setattr(lane_engine, "DEFINITIONS_MAX", 2)
        async with place.database() as db:
            for name in ("a", "b", "c"):
                await db.execute(f"CREATE TABLE {name} (id integer PRIMARY KEY)")
            assert await noted(db) == [f"CREATE TABLE {name} (id integer PRIMARY KEY)" for name in ("b", "c")]

    run(main)
