"""What cannot be meant is refused before anything is written, with what, why and fix."""

import sqlite3
import subprocess
import sys
from enum import Enum

import asyncpg
import psycopg
import pytest
import sqlalchemy
from sqlalchemy.orm import Session

from interlock import Engine, Event, InvalidPayload, Machine, PayloadTooLarge, UnavailableError
from interlock.errors import BadUsage
from interlock.urls import parse_postgres_url
from tests.conformance.store.samples import run
from tests.integration.postgres.transactions.callers import called, lent, shop
from tests.integration.postgres.transactions.machine import Note, Order, order


class Only(Enum):
    DONE = "done"


class OtherEvent(Event): ...


other = Machine("other", states=Only, context=Order, events=OtherEvent, initial=Only.DONE, final={Only.DONE})


def test_another_store_has_no_transactions_of_the_caller() -> None:
    async def scenario() -> None:
        async with Engine.open("memory:", machines=[order]) as engine:
            with pytest.raises(BadUsage, match="not PostgreSQL"):
                engine.transaction(object())

    run(scenario)


def test_what_is_no_connection_of_a_known_driver_is_refused(postgres_url: str) -> None:
    class Pool: ...

    async def scenario() -> None:
        async with shop(postgres_url) as engine:
            for given in (object(), None, "postgresql://", sqlite3.connect(":memory:"), Pool()):
                with pytest.raises(BadUsage, match="is not a connection"):
                    engine.transaction(given)
                if isinstance(given, sqlite3.Connection):
                    given.close()
            made = sqlalchemy.create_engine("sqlite://")
            with pytest.raises(BadUsage) as caught:
                engine.transaction(made)
            assert "Take a connection out of it" in caught.value.fix
            with Session(made) as session, engine.transaction(session) as tx, pytest.raises(BadUsage, match="sqlite"):
                tx.start(order, "o-1", Order())
            made.dispose()

    run(scenario)


def test_a_connection_is_entered_as_it_is(postgres_url: str) -> None:
    async def scenario() -> None:
        url = parse_postgres_url(postgres_url).url
        async with shop(postgres_url) as engine:
            with psycopg.connect(url) as direct, pytest.raises(BadUsage, match="without an event loop"):
                async with engine.transaction(direct):
                    raise AssertionError
            connection = await asyncpg.connect(url)
            with pytest.raises(BadUsage, match="of an event loop"), engine.transaction(connection):
                raise AssertionError
            await connection.close()

    run(scenario)


def test_a_block_is_over_when_it_is_left(postgres_url: str) -> None:
    async def scenario() -> None:
        async with shop(postgres_url) as engine, called("asyncpg", postgres_url) as caller:
            block = engine.transaction(caller.connection)
            async with block as tx:
                await tx.start(order, "o-1", Order())
            with pytest.raises(BadUsage, match="after the end"):
                await tx.send("o-1", Note("late"))
            with pytest.raises(BadUsage, match="a second time"):
                async with block:
                    raise AssertionError
            with (
                psycopg.connect(parse_postgres_url(postgres_url).url) as direct,
                engine.transaction(direct) as blocking,
            ):
                blocking.send("o-1", Note("in time"))
            with pytest.raises(BadUsage, match="after the end"):
                blocking.send("o-1", Note("late"))

    run(scenario)


def test_the_answers_are_those_of_the_engine(postgres_url: str) -> None:
    """An id that is none, an event that is too large, a machine that this engine was not given."""

    async def scenario() -> None:
        async with (
            shop(postgres_url) as engine,
            Engine.open(postgres_url, machines=[other], worker=False) as second,
            called("asyncpg", postgres_url) as caller,
        ):
            await engine.start(order, "o-1", Order())
            async with engine.transaction(caller.connection) as tx:
                with pytest.raises(InvalidPayload, match="not the id"):
                    await tx.send("a/b", Note(""))
                with pytest.raises(PayloadTooLarge):
                    await tx.send("o-1", Note("x" * 10_000_000))
                with pytest.raises(PayloadTooLarge):
                    await tx.start(order, "o-2", Order(note="x" * 10_000_000))
                with pytest.raises(UnavailableError, match="was not given"):
                    await tx.start(other, "o-2", Order())
            async with lent(second, caller) as another:
                with pytest.raises(UnavailableError, match="was not given"):
                    await another.send("o-1", Note(""))

    run(scenario)


@pytest.mark.slow
def test_no_driver_is_imported_that_the_program_does_not_use() -> None:
    program = (
        "import sys, interlock; interlock.Engine, interlock.Transaction\n"
        "assert not {'asyncpg', 'psycopg', 'sqlalchemy'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", program], check=True, env={"PYTHONPATH": ":".join(sys.path)})
