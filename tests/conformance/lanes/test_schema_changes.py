"""Statements are translated with the schema that is there: after a change, and after a change that was taken back."""

import asyncio
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import datetime

import pytest

from interlock.database.database import Database
from interlock.database.lane_engine import Translator, execute_in
from interlock.database.transactions import Transaction
from interlock.errors import TransactionError
from interlock.lanes.writer import Session, Work
from interlock.sql.stored_values import Statement
from tests.conformance.lanes.places import Place, engine_of, lane_of

ADD = "INSERT INTO note (id, said) VALUES ($1, $2)"
CHANGE = ("DROP TABLE note", "CREATE TABLE note (id integer PRIMARY KEY, said integer)")
"""Now numbers, so that a text is refused; and the other way round when the change is taken back."""


@asynccontextmanager
async def noted(folder: Place) -> AsyncIterator[Database]:
    async with folder.database() as db:
        await db.execute("CREATE TABLE note (id integer PRIMARY KEY, said text)")
        await db.execute(ADD, 1, "a text")
        yield db


async def change(tx: Transaction) -> None:
    for statement in CHANGE:
        await tx.execute(statement)
    await tx.execute(ADD, 1, 42)


async def change_and_fail(tx: Transaction) -> None:
    await change(tx)
    raise ValueError("taken back")


def _rolled_back(db: Database) -> asyncio.Future[object]:
    return asyncio.ensure_future(db.transact(change_and_fail))


def _vanished(db: Database) -> asyncio.Future[object]:
    def function(session: Session) -> object:
        translator = engine_of(db)._translators.of(session.connection)
        for statement in CHANGE:
            execute_in(session, translator, statement, ())
        execute_in(session, translator, ADD, (1, 42))
        # Not a statement of the dialect: it takes the whole group with it.
        return session.execute("INSERT OR ROLLBACK INTO note VALUES (1, 7)")

    return asyncio.ensure_future(lane_of(db).run(Work(function)))


TAKEN_BACK = {"rolled back alone": _rolled_back, "gone with its group": _vanished}


@pytest.mark.parametrize("begin", TAKEN_BACK.values(), ids=TAKEN_BACK)
def test_a_change_that_was_taken_back_is_forgotten(
    place: Place, begin: Callable[[Database], asyncio.Future[object]]
) -> None:
    async def scenario() -> None:
        async with noted(place) as db:
            answers = await asyncio.gather(
                db.execute(ADD, 2, "before"), begin(db), db.execute(ADD, 3, "behind"), return_exceptions=True
            )
            assert (answers[0], answers[2]) == (1, 1)
            assert isinstance(answers[1], Exception)
            assert await db.execute(ADD, 4, "in the next group") == 1
            assert len(await db.query("SELECT said FROM note")) == 4

    asyncio.run(scenario())


def test_a_change_is_known_to_the_next_statement_and_to_readers(place: Place) -> None:
    async def scenario() -> None:
        async with noted(place) as db:
            assert await db.query("SELECT said FROM note") == [("a text",)]
            answers = await asyncio.gather(db.transact(change), db.execute(ADD, 2, "no number"), return_exceptions=True)
            assert answers[0] is None
            assert isinstance(answers[1], TransactionError)
            assert await db.query("SELECT said + 1 FROM note") == [(43,)]

    asyncio.run(scenario())


def test_a_read_is_decoded_by_the_schema_that_it_has_read(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """The table is made anew, of another type, between the look at the schema and the reading."""
    looked, go = threading.Event(), threading.Event()
    look = Translator.statement

    def paused(translator: Translator, sql: str, undone: int | None = None) -> Statement:
        statement = look(translator, sql, undone)
        if undone is None:
            looked.set()
            go.wait()
        return statement

    async def anew(tx: Transaction) -> None:
        await tx.execute("DROP TABLE note")
        await tx.execute("CREATE TABLE note (id integer PRIMARY KEY, said timestamptz)")
        await tx.execute("INSERT INTO note VALUES (1, now())")

    async def scenario() -> None:
        async with noted(place) as db:
            monkeypatch.setattr(Translator, "statement", paused)
            reading = asyncio.ensure_future(db.query("SELECT said FROM note"))
            await asyncio.to_thread(looked.wait)
            await db.transact(anew)
            go.set()
            assert await reading == [("a text",)]
            [[said]] = await db.query("SELECT said FROM note")
            assert isinstance(said, datetime)

    asyncio.run(scenario())
