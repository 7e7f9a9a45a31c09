"""B2, B11: a transaction of the caller beside engines, workers and other transactions."""

import asyncio
import threading

import asyncpg
import psycopg
import pytest

from interlock import BlockingEngine, BlockingTransaction, Engine, UnavailableError, WorkflowExists
from interlock.store.postgres.store import channel
from interlock.urls import parse_postgres_url
from tests.conformance.store.samples import run
from tests.integration.postgres.transactions import machine
from tests.integration.postgres.transactions.callers import called, lent, shop
from tests.integration.postgres.transactions.machine import Note, Order, State, Submit, order


def test_an_open_transaction_blocks_no_event_of_another_workflow(postgres_url: str) -> None:
    """The engine's groups leave the locked workflow out, and it is decided upon the new state afterwards."""

    async def scenario() -> None:
        async with shop(postgres_url) as engine, called("asyncpg", postgres_url) as caller:
            for number in range(20):
                await engine.start(order, f"o-{number}", Order())
            await caller.begin()
            async with lent(engine, caller) as tx:
                await tx.send("o-7", Note("held"))
            others = [engine.send(f"o-{number}", Note("free")) for number in range(20) if number != 7]
            moved = await asyncio.gather(*others)
            assert {each.version for each in moved} == {2}
            await caller.commit()
            assert (await engine.send("o-7", Note("then"))).version == 3

    run(scenario)


def test_a_transaction_waits_for_another_and_decides_upon_what_it_left(postgres_url: str) -> None:
    """G1, B5: the key that the other one has used meanwhile is seen, and so is its version."""

    async def scenario() -> None:
        async with (
            shop(postgres_url) as engine,
            called("asyncpg", postgres_url) as one,
            called("asyncpg", postgres_url) as two,
        ):
            await engine.start(order, "o-1", Order())
            await one.begin()
            await two.begin()
            async with lent(engine, one) as first, lent(engine, two) as second:
                await first.send("o-1", Note("a"), key="k")
                waiting = asyncio.ensure_future(second.send("o-1", Note("a"), key="k"))
                await until_waiting(postgres_url)
                assert not waiting.done()
                await one.commit()
                moved = await waiting
                assert (moved.duplicate, moved.version) == (True, 2)
                assert (await second.send("o-1", Note("b"))).version == 3
            await two.commit()
            assert len(await engine.history("o-1")) == 3

    run(scenario)


def test_a_start_waits_for_another_and_finds_it(postgres_url: str) -> None:
    """B4: with the same input it is the same workflow, with other input it exists."""

    async def scenario() -> None:
        async with (
            shop(postgres_url) as engine,
            called("psycopg-async", postgres_url) as one,
            called("asyncpg", postgres_url) as two,
        ):
            await two.begin()
            async with lent(engine, one) as first, lent(engine, two) as second:
                for workflow, context in (("o-1", Order()), ("o-2", Order(cents=9))):
                    began = await first.start(workflow, Order())
                    waiting = asyncio.ensure_future(second.start(workflow, context))
                    await until_waiting(postgres_url)
                    assert not waiting.done()
                    await one.commit()
                    if workflow == "o-1":
                        assert await waiting == began
                    else:
                        with pytest.raises(WorkflowExists):
                            await waiting
            await two.commit()

    run(scenario)


def test_a_worker_runs_what_is_owed_after_the_commit_and_never_after_a_rollback(postgres_url: str) -> None:
    async def scenario() -> None:
        machine.paid.clear()
        machine.mailed.clear()
        async with shop(postgres_url) as engine, called("psycopg", postgres_url) as caller:
            async with lent(engine, caller) as tx:
                await tx.start("kept", Order())
                await tx.send("kept", Submit(5))
            await caller.commit()
            async with lent(engine, caller) as tx:
                await tx.start("gone", Order())
                await tx.send("gone", Submit(5))
            await caller.rollback()
            [row] = (await engine._store.load(["kept"])).values()
            assert row.wake_us is not None
            assert row.wake_us <= row.updated_us
        async with Engine.open(postgres_url, machines=[order]) as worker:
            view = await worker.wait("kept", State.PAID)
            assert view.version == 3
            while not machine.mailed:  # noqa: ASYNC110 -- the effect begins after the commit that owes it.
                await asyncio.sleep(0.01)
        assert (machine.paid, machine.mailed) == (["kept"], ["kept"])

    run(scenario)


def test_workers_are_told_when_the_transaction_commits_and_only_then(postgres_url: str) -> None:
    async def scenario() -> None:
        told: asyncio.Queue[str] = asyncio.Queue()
        async with (
            shop(postgres_url) as engine,
            called("asyncpg", postgres_url) as caller,
            called("asyncpg", postgres_url) as worker,
        ):
            name = channel(parse_postgres_url(postgres_url).schema)
            await worker.connection.add_listener(name, lambda *_: told.put_nowait("due"))
            await worker.connection.add_listener("end", lambda *_: told.put_nowait("end"))
            for workflow in ("kept", "gone", "waits"):
                await engine.start(order, workflow, Order())
            await caller.begin()
            async with lent(engine, caller) as tx:
                await tx.send("gone", Submit(5))
            await caller.rollback()
            async with lent(engine, caller) as tx:
                await tx.send("waits", Note("owes a timer, which is not due"))
            await caller.execute('NOTIFY "end"')
            async with lent(engine, caller) as tx:
                await tx.send("kept", Submit(5))
                await tx.start("another", Order())
            assert [await told.get(), await told.get()] == ["end", "due"]
            await worker.connection.reset()

    run(scenario)


def test_a_thread_without_an_event_loop_sends_through_a_blocking_engine(postgres_url: str) -> None:
    async def prepared() -> None:
        async with shop(postgres_url):
            pass

    run(prepared)
    answers: list[int] = []
    with BlockingEngine.open(postgres_url, machines=[order], worker=False) as engine:
        engine.start(order, "o-1", Order())

        def sends(number: int) -> None:
            with (
                psycopg.connect(parse_postgres_url(postgres_url).url) as connection,
                engine.transaction(connection) as tx,
            ):
                assert isinstance(tx, BlockingTransaction)
                answers.append(tx.send("o-1", Note(str(number))).version)

        threads = [threading.Thread(target=sends, args=(number,)) for number in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert sorted(answers) == list(range(2, 10))
        assert engine.get("o-1").version == 9
    with (
        psycopg.connect(parse_postgres_url(postgres_url).url) as connection,
        engine.transaction(connection) as tx,
        pytest.raises(UnavailableError, match="closed"),
    ):
        tx.send("o-1", Note("late"))


def test_a_deadlock_is_told_by_the_driver_itself(postgres_url: str) -> None:
    async def scenario() -> None:
        async with (
            shop(postgres_url) as engine,
            called("asyncpg", postgres_url) as one,
            called("asyncpg", postgres_url) as two,
        ):
            await engine.start(order, "o-1", Order())
            await engine.start(order, "o-2", Order())
            await one.begin()
            await two.begin()
            async with lent(engine, one) as first, lent(engine, two) as second:
                await first.send("o-1", Note("a"))
                await second.send("o-2", Note("b"))
                crossed = await asyncio.gather(
                    first.send("o-2", Note("c")), second.send("o-1", Note("d")), return_exceptions=True
                )
            assert [type(each) for each in crossed].count(asyncpg.DeadlockDetectedError) == 1
            for each, answer in zip((one, two), crossed, strict=True):
                await (each.rollback() if isinstance(answer, Exception) else each.commit())
            assert {(await engine.get(each)).version for each in ("o-1", "o-2")} == {2}

    run(scenario)


async def until_waiting(url: str) -> None:
    """Until somebody waits for a lock in this database."""
    connection = await asyncpg.connect(parse_postgres_url(url).url)
    waiting = (
        "SELECT count(*) FROM pg_locks l JOIN pg_stat_activity a USING (pid) WHERE NOT l.granted"
        " AND a.datname = current_database()"
    )
    try:
        while not await connection.fetchval(waiting):
            pass
    finally:
        await connection.close()


def test_a_snapshot_of_the_callers_own_is_not_decided_upon_when_it_is_old(postgres_url: str) -> None:
    """G1: REPEATABLE READ sees what was, so PostgreSQL itself refuses to write upon it."""

    async def scenario() -> None:
        async with shop(postgres_url) as engine, called("asyncpg", postgres_url) as caller:
            await engine.start(order, "o-1", Order())
            await caller.execute("BEGIN ISOLATION LEVEL REPEATABLE READ")
            await caller.execute("SELECT 1")
            await engine.send("o-1", Note("meanwhile"))
            async with lent(engine, caller) as tx:
                with pytest.raises(asyncpg.SerializationError):
                    await tx.send("o-1", Note("old"))
            await caller.execute("ROLLBACK")
            await caller.execute("BEGIN ISOLATION LEVEL SERIALIZABLE")
            async with lent(engine, caller) as tx:
                assert (await tx.send("o-1", Note("new"), expect_version=2)).version == 3
                assert (await tx.send("o-1", Submit(5))).version == 4
            await caller.execute("COMMIT")

    run(scenario)
