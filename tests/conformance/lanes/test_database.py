"""`Database`: keys, statements with rows, time, two event loops, the end, at every place."""

import asyncio
import threading
from datetime import datetime
from decimal import Decimal

import pytest

from interlock.database.database import Database
from interlock.database.transactions import Transaction
from interlock.errors import InvalidPayload, KeyReused, TransactionError, UnavailableError
from interlock.sql.stored_values import Row
from tests.conformance.lanes.places import EVERYWHERE, ON_LANES, Place, add, counted, value
from tests.unit.lanes.lanes import SetClock

ADD = "UPDATE counter SET n = n + $1 WHERE id = 1"


async def rows_inside(tx: Transaction) -> list[Row]:
    await add(tx)
    return await tx.query("SELECT id, n FROM counter")


def test_the_same_key_gives_the_same_result_and_happens_once(place: Place) -> None:
    async def scenario() -> None:
        async with counted(place) as db:
            for _ in range(2):
                assert await db.execute(ADD, 1, key="a") == 1
                assert await db.transact(add, 10, key="b") == 11
                [row] = await db.query("UPDATE counter SET n = n + 100 RETURNING id, n, 1.50 AS price", key="c")
                assert row == (1, 111, Decimal("1.50"))
                assert isinstance(row, Row)
                assert (row.n, row._fields) == (111, ("id", "n", "price"))
                [inside] = await db.transact(rows_inside, key="d")
                assert inside.n == 112
            assert await value(db) == 112
        async with place.database() as db:
            assert await db.transact(add, 10, key="b") == 11
            assert await value(db) == 112

    asyncio.run(scenario())


async def add_too(tx: Transaction, amount: int) -> int:
    return await add(tx, amount)


def test_a_key_belongs_to_what_was_asked_first(place: Place) -> None:
    async def scenario() -> None:
        async with counted(place) as db:
            await db.execute(ADD, 1, key="k")
            await db.transact(add, 10, key="t")
            for asked in (
                db.execute(ADD, 2, key="k"),
                db.execute(ADD, True, key="k"),
                db.execute(f"{ADD} ", 1, key="k"),
                db.query(ADD, 1, key="k"),
                db.transact(add, 10, key="k"),
                db.transact(add, 11, key="t"),
                db.transact(add_too, 10, key="t"),
                db.execute(ADD, 1, key="t"),
            ):
                with pytest.raises(KeyReused):
                    await asked
            assert await value(db) == 11

    asyncio.run(scenario())


@pytest.mark.parametrize("key", ["", "x" * 501, "a\x00b"])
def test_a_key_that_is_none_is_refused(place: Place, key: str) -> None:
    async def scenario() -> None:
        async with counted(place) as db:
            with pytest.raises(InvalidPayload):
                await db.execute(ADD, 1, key=key)
            assert await value(db) == 0

    asyncio.run(scenario())


def test_a_failed_transaction_leaves_its_key_free(place: Place) -> None:
    async def scenario() -> None:
        async with counted(place) as db:
            with pytest.raises(TransactionError):
                await db.execute(ADD, -5, key="k")
            assert await db.execute(ADD, 5, key="k") == 1
            assert await value(db) == 5

    asyncio.run(scenario())


@EVERYWHERE
def test_a_write_with_rows_is_one_durable_transaction(place: Place) -> None:
    async def scenario() -> None:
        async with place.database() as db:
            await db.execute("CREATE TABLE t (id integer PRIMARY KEY, n integer)")
            await db.execute("INSERT INTO t VALUES (1, 0), (2, 0), (3, 0)")
            assert await db.execute("UPDATE t SET n = n + 1 RETURNING n") == 3
            assert await db.query("WITH x AS (SELECT 1 AS a) SELECT a FROM x") == [(1,)]
            assert await db.query("UPDATE t SET n = n + 1 RETURNING n") == [(2,), (2,), (2,)]
            assert await db.execute("SELECT * FROM t") == 3
            assert await db.query("SELECT sum(n) FROM t") == [(6,)]

    asyncio.run(scenario())


@ON_LANES
def test_now_never_goes_back_in_reads_and_writes(place: Place) -> None:
    clock = SetClock(1_000.0)

    async def scenario() -> list[object]:
        times: list[object] = []
        async with place.database(clock=clock) as db:
            await db.execute("CREATE TABLE t (at timestamptz)")
            for wall_s in (1_000.0, 500.0, 2_000.0, 1_500.0):
                clock.now_wall_s = wall_s
                await db.execute("INSERT INTO t VALUES (now())")
                times += [row[0] for row in await db.query("SELECT max(at) FROM t")]
                times += [row[0] for row in await db.query("SELECT now()")]
        return times

    times = [moment.timestamp() for moment in asyncio.run(scenario()) if isinstance(moment, datetime)]
    assert times == [1_000.0, 1_000.0, 1_000.0, 1_000.0, 2_000.0, 2_000.0, 2_000.0, 2_000.0]


def test_two_event_loops_in_two_threads_share_a_database(place: Place) -> None:
    async def opened() -> Database:
        db = await place.database()
        await db.execute("CREATE TABLE counter (id integer PRIMARY KEY, n integer NOT NULL)")
        await db.execute("INSERT INTO counter VALUES (1, 0)")
        return db

    db = asyncio.run(opened())

    async def clients() -> None:
        for _ in range(5):
            await asyncio.gather(*(db.transact(add) for _ in range(10)), *(value(db) for _ in range(10)))

    threads = [threading.Thread(target=asyncio.run, args=(clients(),)) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert asyncio.run(value(db)) == 2 * 5 * 10
    asyncio.run(db.close())


def test_after_close_every_call_is_refused(place: Place) -> None:
    async def scenario() -> None:
        async with counted(place) as db:
            pass
        for call in (db.execute(ADD, 1), db.query("SELECT 1"), db.transact(add)):
            with pytest.raises(UnavailableError, match="closed"):
                await call
        await db.close()

    asyncio.run(scenario())


def test_the_hot_row_is_told_by_its_key(place: Place) -> None:
    async def scenario() -> None:
        async with counted(place, contention_flag_threshold=0.0) as db:
            for _ in range(20):
                await asyncio.gather(*(db.transact(add) for _ in range(5)))
            [hot] = await db.contention()
            assert (hot.table, hot.key, hot.flagged) == ("counter", 1, True)
            assert db.stats().transactions == 102

    asyncio.run(scenario())
