"""B11: the block commits what it has begun itself, and nothing else."""

import asyncio

import asyncpg
import psycopg
import pytest
from sqlalchemy import create_engine
from sqlalchemy.ext.asyncio import AsyncSession, async_scoped_session, async_sessionmaker, create_async_engine
from sqlalchemy.orm import Session, scoped_session, sessionmaker
from sqlalchemy.pool import NullPool

from interlock import GuardRejected
from interlock.errors import BadUsage
from interlock.urls import parse_postgres_url
from tests.conformance.store.samples import run
from tests.integration.postgres.transactions.callers import KINDS, bought, buy, called, lent, shop
from tests.integration.postgres.transactions.machine import Note, Order, State, Submit, order


def test_asyncpg_outside_of_a_transaction_gets_one_for_the_block(postgres_url: str) -> None:
    async def scenario() -> None:
        async with shop(postgres_url) as engine, called("asyncpg", postgres_url) as caller:
            async with lent(engine, caller) as tx:
                await buy(caller, postgres_url, "p-1")
                await tx.start("o-1", Order())
                assert await bought(postgres_url) == []
            assert await bought(postgres_url) == ["p-1"]
            assert (await engine.get("o-1")).version == 1
            with pytest.raises(GuardRejected):  # noqa: PT012 -- what comes before the refusal must be gone.
                async with lent(engine, caller) as tx:
                    await buy(caller, postgres_url, "p-2")
                    await tx.send("o-1", Note("gone"))
                    await tx.send("o-1", Submit(0))
            assert await bought(postgres_url) == ["p-1"]
            assert (await engine.get("o-1")).version == 1
            assert not caller.connection.is_in_transaction()

    run(scenario)


@pytest.mark.parametrize("kind", ["psycopg", "psycopg-async"])
def test_psycopg_that_commits_each_statement_gets_a_transaction_for_the_block(postgres_url: str, kind: str) -> None:
    async def scenario() -> None:
        async with shop(postgres_url) as engine, called(kind, postgres_url) as caller:
            if kind == "psycopg":
                caller.connection.autocommit = True
            else:
                await caller.connection.set_autocommit(True)
            async with lent(engine, caller) as tx:
                await tx.start("o-1", Order())
                await buy(caller, postgres_url, "p-1")
                assert await bought(postgres_url) == []
            assert await bought(postgres_url) == ["p-1"]
            with pytest.raises(GuardRejected):  # noqa: PT012 -- as above.
                async with lent(engine, caller) as tx:
                    await buy(caller, postgres_url, "p-2")
                    await tx.send("o-1", Submit(0))
            assert await bought(postgres_url) == ["p-1"]
            await caller.execute("BEGIN")
            async with lent(engine, caller) as tx:
                await tx.send("o-1", Submit(5))
            await caller.execute("ROLLBACK")
            assert (await engine.get("o-1")).state is State.DRAFT

    run(scenario)


@pytest.mark.parametrize("kind", [kind for kind in KINDS if not kind.startswith("asyncpg")])
def test_a_block_that_raises_leaves_the_callers_transaction_to_the_caller(postgres_url: str, kind: str) -> None:
    async def scenario() -> None:
        async with shop(postgres_url) as engine, called(kind, postgres_url) as caller:
            await engine.start(order, "o-1", Order())
            await buy(caller, postgres_url, "p-1")
            with pytest.raises(GuardRejected):
                async with lent(engine, caller) as tx:
                    await tx.send("o-1", Submit(0))
            await caller.commit()
            assert await bought(postgres_url) == ["p-1"]

    run(scenario)


def test_a_savepoint_that_is_rolled_back_takes_its_event_along(postgres_url: str) -> None:
    async def scenario() -> None:
        async with shop(postgres_url) as engine, called("asyncpg", postgres_url) as caller:
            await engine.start(order, "o-1", Order())
            async with lent(engine, caller) as tx:
                await caller.execute("SAVEPOINT s")
                await tx.send("o-1", Submit(5))
                await caller.execute("ROLLBACK TO s")
                moved = await tx.send("o-1", Note("kept"))
            assert moved.version == 2
            assert [row.event for row in await engine.history("o-1")] == ["STARTED", "NOTE"]

    run(scenario)


def test_sessions_of_a_scope_and_classes_of_ones_own_are_known(postgres_url: str) -> None:
    class MySession(Session): ...

    class MyConnection(asyncpg.Connection):  # type: ignore[misc]
        __slots__ = ()

    async def scenario() -> None:
        url = parse_postgres_url(postgres_url).url
        async with shop(postgres_url) as engine:
            made = create_engine("postgresql+psycopg://", creator=lambda: psycopg.connect(url), poolclass=NullPool)
            scoped = scoped_session(sessionmaker(made, class_=MySession))
            with engine.transaction(scoped) as tx:
                tx.start(order, "o-1", Order())
            scoped.commit()
            scoped.remove()
            with MySession(made) as session, session.begin(), engine.transaction(session) as tx:
                tx.start(order, "o-2", Order())
            awaited = create_async_engine(
                "postgresql+asyncpg://", async_creator=lambda: asyncpg.connect(url), poolclass=NullPool
            )
            several = async_scoped_session(async_sessionmaker(awaited), scopefunc=asyncio.current_task)
            async with engine.transaction(several) as atx:
                await atx.start(order, "o-3", Order())
            await several.commit()
            await several.remove()

            def inside(session: Session) -> None:
                with engine.transaction(session) as tx:
                    tx.start(order, "o-4", Order())

            async with AsyncSession(awaited) as asession, asession.begin():
                await asession.run_sync(inside)
            await awaited.dispose()
            mine = await asyncpg.connect(url, connection_class=MyConnection)
            async with engine.transaction(mine) as atx:
                await atx.start(order, "o-5", Order())
            await mine.close()
            assert [view.id for view in (await engine.find(order)).items] == ["o-1", "o-2", "o-3", "o-4", "o-5"]

    run(scenario)


@pytest.mark.parametrize("kind", ["psycopg", "psycopg-async"])
def test_rows_and_cursors_of_the_callers_own_do_not_matter(postgres_url: str, kind: str) -> None:
    async def scenario() -> None:
        async with shop(postgres_url) as engine, called(kind, postgres_url) as caller:
            caller.connection.row_factory = psycopg.rows.dict_row
            raw = psycopg.RawCursor if kind == "psycopg" else psycopg.AsyncRawCursor
            caller.connection.cursor_factory = raw
            async with lent(engine, caller) as tx:
                await tx.start("o-1", Order())
                await tx.send("o-1", Submit(5), key="k")
            await caller.commit()
            assert (await engine.get("o-1")).state is State.PAYING

    run(scenario)


@pytest.mark.parametrize("driver", ["asyncpg", "psycopg"])
def test_sqlalchemy_that_commits_each_statement_is_refused(postgres_url: str, driver: str) -> None:
    async def scenario() -> None:
        url = parse_postgres_url(postgres_url).url
        connect = asyncpg.connect if driver == "asyncpg" else psycopg.AsyncConnection.connect
        made = create_async_engine(
            f"postgresql+{driver}://",
            async_creator=lambda: connect(url),
            poolclass=NullPool,
            isolation_level="AUTOCOMMIT",
        )
        async with shop(postgres_url) as engine, made.connect() as connection, engine.transaction(connection) as tx:
            with pytest.raises(BadUsage, match="AUTOCOMMIT"):
                await tx.start(order, "o-1", Order())
        sync = create_engine(
            "postgresql+psycopg://",
            creator=lambda: psycopg.connect(url),
            poolclass=NullPool,
            isolation_level="AUTOCOMMIT",
        )
        async with shop(f"{postgres_url}2") as engine:
            with sync.connect() as direct, engine.transaction(direct) as blocking, pytest.raises(BadUsage):
                blocking.start(order, "o-1", Order())
        await made.dispose()

    run(scenario)
