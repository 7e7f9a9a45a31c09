"""Interactive transactions: driven by their caller, aborted by a failed statement, bounded in time."""

import asyncio
import contextlib
import contextvars
import threading

import pytest

from interlock.database.database import Database
from interlock.database.transactions import TransactionEnded
from interlock.errors import BadUsage, ConstraintViolation, Overloaded, TransactionError, UnavailableError
from tests.conformance.lanes.places import EVERYWHERE, ON_LANES, Place, counted, lane_of, value

SHORT_S = 0.05


async def read_counter(tx: object) -> int:
    [(n,)] = await tx.query("SELECT n FROM counter WHERE id = 1")  # type: ignore[attr-defined]
    assert isinstance(n, int)
    return n


async def until_waiting(db: Database, works: int) -> None:
    """Return when that many transactions wait: tasks that were started have submitted theirs in the next turns."""
    for _ in range(100):
        if lane_of(db).stats().waiting == works:
            return
        await asyncio.sleep(0)
    raise AssertionError(f"{lane_of(db).stats().waiting} transactions wait, not {works}")


async def outside(db: Database, sql: str) -> int:
    """Run a statement as another client would: not inside the block of this context."""
    task = asyncio.get_running_loop().create_task(db.execute(sql), context=contextvars.Context())
    return await task


def test_a_block_commits_and_returns_rows_and_columns(place: Place) -> None:
    async def scenario() -> None:
        async with counted(place) as db:
            async with db.transaction() as tx:
                assert await tx.execute("UPDATE counter SET n = n + 5 WHERE id = 1") == 1
                assert await read_counter(tx) == 5
                answer = await tx.run("SELECT id, n FROM counter WHERE id = $1", 7)
                assert answer.rows == []
                assert answer.columns == (("id", "int4"), ("n", "int4"))
            assert await value(db) == 5
            assert tx.is_over

    asyncio.run(scenario())


def test_an_error_in_the_block_rolls_back(place: Place) -> None:
    async def scenario() -> None:
        async with counted(place) as db:

            async def fail() -> None:
                async with db.transaction() as tx:
                    await tx.execute("UPDATE counter SET n = 5 WHERE id = 1")
                    raise ZeroDivisionError

            with pytest.raises(ZeroDivisionError):
                await fail()
            assert await value(db) == 0

    asyncio.run(scenario())


def test_a_failed_statement_aborts_until_the_rollback(place: Place) -> None:
    async def scenario() -> None:
        async with counted(place) as db:
            tx = db.transaction()
            await tx.execute("UPDATE counter SET n = 5 WHERE id = 1")
            with pytest.raises(ConstraintViolation):
                await tx.execute("UPDATE counter SET n = -1 WHERE id = 1")
            with pytest.raises(TransactionError, match="is aborted"):
                await tx.query("SELECT n FROM counter")
            with pytest.raises(TransactionError, match="rolled back instead of committed"):
                await tx.commit()
            assert await value(db) == 0
            await tx.rollback()
            with pytest.raises(TransactionEnded, match="has ended"):
                await tx.query("SELECT n FROM counter")

    asyncio.run(scenario())


def test_a_savepoint_takes_back_its_part_alone(place: Place) -> None:
    async def scenario() -> None:
        async with counted(place) as db:
            async with db.transaction() as tx:
                await tx.execute("UPDATE counter SET n = 1 WHERE id = 1")
                with contextlib.suppress(ConstraintViolation):
                    async with tx.savepoint():
                        await tx.execute("UPDATE counter SET n = 2 WHERE id = 1")
                        await tx.execute("UPDATE counter SET n = -1 WHERE id = 1")
                assert await read_counter(tx) == 1
                async with tx.savepoint():
                    await tx.execute("UPDATE counter SET n = n + 10 WHERE id = 1")
            assert await value(db) == 11

    asyncio.run(scenario())


def test_savepoints_of_one_name_hide_each_other(place: Place) -> None:
    async def scenario() -> None:
        async with counted(place) as db:
            async with db.transaction() as tx:
                await tx.define_savepoint("s")
                await tx.execute("UPDATE counter SET n = 1 WHERE id = 1")
                await tx.define_savepoint("s")
                await tx.execute("UPDATE counter SET n = 2 WHERE id = 1")
                await tx.rollback_to("s")
                assert await read_counter(tx) == 1
                await tx.release("s")
                await tx.rollback_to("s")
                assert await read_counter(tx) == 0
            with pytest.raises(TransactionError, match="does not exist"):
                async with db.transaction() as tx:
                    await tx.release("never")

    asyncio.run(scenario())


def test_a_change_of_the_schema_is_taken_back_with_its_savepoint(place: Place) -> None:
    async def scenario() -> None:
        async with counted(place) as db, db.transaction() as tx:
            await tx.define_savepoint("before")
            await tx.execute("CREATE TABLE added (id integer PRIMARY KEY)")
            await tx.execute("INSERT INTO added VALUES (1)")
            await tx.rollback_to("before")
            await tx.execute("CREATE TABLE added (name text PRIMARY KEY)")
            await tx.execute("INSERT INTO added VALUES ('x')")
            assert await tx.query("SELECT name FROM added") == [("x",)]

    asyncio.run(scenario())


def test_many_arguments_are_one_call(place: Place) -> None:
    async def scenario() -> None:
        async with counted(place) as db:
            async with db.transaction() as tx:
                assert await tx.run_many("INSERT INTO counter VALUES ($1, $2)", [(n, n) for n in range(2, 12)]) == 10
            assert await db.query("SELECT count(*), sum(n) FROM counter") == [(11, sum(range(2, 12)))]

    asyncio.run(scenario())


def test_the_database_itself_is_refused_inside_the_block(place: Place) -> None:
    async def scenario() -> None:
        async with counted(place) as db:
            async with db.transaction() as tx:
                await tx.execute("UPDATE counter SET n = 5 WHERE id = 1")
                with pytest.raises(TransactionError, match="inside the block of a transaction of its own"):
                    await db.execute("UPDATE counter SET n = 6 WHERE id = 1")
                left = asyncio.get_running_loop().create_task(asyncio.Event().wait())
            left.cancel()
            assert await value(db) == 5

    asyncio.run(scenario())


def test_a_task_that_was_started_in_the_block_may_use_the_database_after_it(place: Place) -> None:
    async def scenario() -> None:
        async with counted(place) as db:
            over = asyncio.Event()

            async def later() -> object:
                await over.wait()
                return await value(db)

            async with db.transaction() as tx:
                await tx.execute("UPDATE counter SET n = 5 WHERE id = 1")
                task = asyncio.ensure_future(later())
            over.set()
            assert await task == 5

    asyncio.run(scenario())


def test_a_read_only_transaction_changes_nothing(place: Place) -> None:
    async def scenario() -> None:
        async with counted(place) as db:
            async with db.transaction(read_only=True) as tx:
                assert await read_counter(tx) == 0
                with pytest.raises(TransactionError, match="read-only"):
                    await tx.execute("UPDATE counter SET n = 1 WHERE id = 1")
                await tx.rollback()
            assert await value(db) == 0

    asyncio.run(scenario())


def test_a_read_only_transaction_sees_one_snapshot_and_stops_no_writer(place: Place) -> None:
    async def scenario() -> None:
        async with counted(place) as db:
            async with db.transaction(read_only=True) as tx:
                assert await read_counter(tx) == 0
                assert await outside(db, "UPDATE counter SET n = 1 WHERE id = 1") == 1
                assert await read_counter(tx) == 0
            assert await value(db) == 1

    asyncio.run(scenario())


def test_what_takes_too_long_is_rolled_back_and_the_database_goes_on(place: Place) -> None:
    async def scenario() -> None:
        async with counted(place, transaction_timeout_s=0.5) as db:
            tx = db.transaction()  # Its client does nothing more after this statement, which a slow machine completes.
            await tx.execute("UPDATE counter SET n = 5 WHERE id = 1")
            await db.execute("UPDATE counter SET n = n + 1 WHERE id = 1")
            with pytest.raises(TransactionEnded, match=r"more than 0\.5 s \(transaction_timeout_s\)") as caught:
                await tx.query("SELECT n FROM counter")
            assert caught.value.retry == "now"
            assert await value(db) == 1

    asyncio.run(scenario())


def test_closing_the_database_ends_what_is_open(place: Place) -> None:
    async def scenario() -> None:
        async with counted(place, transaction_timeout_s=3_600.0) as db:
            tx = db.transaction()
            await tx.execute("UPDATE counter SET n = 5 WHERE id = 1")
        with pytest.raises(TransactionEnded):
            await tx.query("SELECT n FROM counter")
        async with place.database() as db:
            assert await value(db) == 0

    asyncio.run(scenario())


@ON_LANES
def test_a_client_whose_event_loop_is_closed_does_not_hold_the_lane(place: Place) -> None:
    def vanish(db: Database) -> None:
        async def begin() -> None:
            await db.transaction().execute("UPDATE counter SET n = 5 WHERE id = 1")

        asyncio.run(begin())

    async def scenario() -> None:
        async with counted(place, transaction_timeout_s=SHORT_S) as db:
            await asyncio.to_thread(vanish, db)
            await db.execute("UPDATE counter SET n = n + 1 WHERE id = 1")
            assert await value(db) == 1

    asyncio.run(scenario())


@EVERYWHERE
def test_a_read_that_takes_too_long_ends_its_transaction(place: Place) -> None:
    async def scenario() -> None:
        async with counted(place, transaction_timeout_s=SHORT_S) as db:
            with pytest.raises(TransactionEnded, match=r"more than 0\.05 s \(transaction_timeout_s\)"):
                await db.transaction(read_only=True).query(
                    "WITH RECURSIVE r (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM r WHERE n < 90000000) "
                    "SELECT count(*) FROM r"
                )
            await db.execute("UPDATE counter SET n = n + 1 WHERE id = 1")

    asyncio.run(scenario())


def test_a_block_may_be_left_by_another_task(place: Place) -> None:
    async def scenario() -> None:
        async with counted(place) as db:
            tx = db.transaction()
            await asyncio.create_task(tx.__aenter__())
            await tx.execute("UPDATE counter SET n = 5 WHERE id = 1")
            await asyncio.create_task(tx.__aexit__(None, None, None))
            assert await value(db) == 5

    asyncio.run(scenario())


@ON_LANES
def test_an_error_in_a_savepoint_is_raised_also_after_the_end_of_the_transaction(place: Place) -> None:
    async def scenario() -> None:
        async with counted(place, transaction_timeout_s=3_600.0) as db:

            async def fail() -> None:
                async with db.transaction() as tx:
                    await tx.execute("UPDATE counter SET n = 5 WHERE id = 1")
                    async with tx.savepoint():
                        tx.abandon()
                        raise ZeroDivisionError

            with pytest.raises(ZeroDivisionError):
                await fail()
            assert await value(db) == 0

    asyncio.run(scenario())


@ON_LANES
def test_a_first_statement_that_cannot_run_ends_the_transaction(place: Place) -> None:
    async def scenario() -> None:
        async with counted(place, transaction_timeout_s=3_600.0, queue_max=1) as db:
            other, tx = db.transaction(), db.transaction()
            await other.execute("UPDATE counter SET n = 3 WHERE id = 1")
            waiting = asyncio.ensure_future(db.execute("UPDATE counter SET n = n + 1 WHERE id = 1"))
            await until_waiting(db, 1)
            with pytest.raises(Overloaded):
                await tx.execute("UPDATE counter SET n = n + 10 WHERE id = 1")
            await other.commit()
            await waiting
            with pytest.raises(TransactionEnded):
                await tx.execute("UPDATE counter SET n = n + 100 WHERE id = 1")
            with pytest.raises(TransactionEnded):
                await tx.commit()
            assert await value(db) == 4

    asyncio.run(scenario())


@ON_LANES
def test_a_transaction_is_refused_in_another_event_loop(place: Place) -> None:
    async def scenario() -> None:
        async with counted(place, transaction_timeout_s=3_600.0) as db:
            tx = db.transaction()
            await tx.execute("UPDATE counter SET n = 5 WHERE id = 1")
            with pytest.raises(BadUsage, match="another event loop"):
                await asyncio.to_thread(asyncio.run, tx.execute("UPDATE counter SET n = 6 WHERE id = 1"))
            await tx.commit()
            assert await value(db) == 5

    asyncio.run(scenario())


@ON_LANES
def test_without_a_thread_every_waiting_transaction_fails(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    start = threading.Thread.start

    def refuse(thread: threading.Thread) -> None:
        if thread.name == "interlock-lane":
            raise RuntimeError("can't start new thread")
        start(thread)

    async def scenario() -> None:
        async with place.database() as db:
            monkeypatch.setattr(threading.Thread, "start", refuse)
            calls = [db.transaction().query("SELECT 1"), *(db.execute("CREATE TABLE t (n int)") for _ in range(3))]
            failed = await asyncio.gather(*calls, return_exceptions=True)
            assert [type(error) for error in failed] == [UnavailableError] * 4
            monkeypatch.undo()
            await db.execute("CREATE TABLE t (n int)")

    asyncio.run(scenario())


@ON_LANES
def test_a_cancelled_statement_ends_the_transaction(place: Place) -> None:
    async def scenario() -> None:
        async with counted(place, transaction_timeout_s=3_600.0) as db:
            tx, other = db.transaction(), db.transaction()
            await other.execute("UPDATE counter SET n = 3 WHERE id = 1")
            waiting = asyncio.ensure_future(tx.execute("UPDATE counter SET n = 5 WHERE id = 1"))
            await until_waiting(db, 1)
            waiting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await waiting
            await other.commit()
            with pytest.raises(TransactionEnded):
                await tx.commit()
            assert await value(db) == 3

    asyncio.run(scenario())


@EVERYWHERE
def test_a_statement_that_runs_too_long_ends_the_transaction(place: Place) -> None:
    async def scenario() -> None:
        async with counted(place, statement_timeout_s=SHORT_S) as db:
            await db.execute("INSERT INTO counter SELECT n, n FROM generate_series(2, 300) AS n")
            tx = db.transaction()
            with pytest.raises(TransactionError):
                await tx.execute("INSERT INTO counter SELECT a.n, b.n FROM counter a, counter b, counter c, counter d")
            with pytest.raises(TransactionError):
                await tx.execute("UPDATE counter SET n = 5 WHERE id = 1")
            await tx.rollback()
            assert await value(db) == 0

    asyncio.run(scenario())


@EVERYWHERE
def test_no_read_then_write_of_contending_transactions_is_lost(place: Place) -> None:
    async def add(db: Database) -> None:
        for _ in range(5):
            async with db.transaction() as tx:
                n = await read_counter(tx)
                await tx.execute("UPDATE counter SET n = $1 WHERE id = 1", n + 1)

    async def scenario() -> None:
        async with counted(place) as db:
            await asyncio.gather(*(add(db) for _ in range(8)))
            assert await value(db) == 40

    asyncio.run(scenario())


@EVERYWHERE
def test_groups_and_interactive_transactions_take_turns(place: Place) -> None:
    """However many interactive transactions wait, a single statement waits for one of them."""

    async def scenario() -> None:
        async with counted(place) as db:
            order: list[str] = []
            first = db.transaction()
            await first.execute("UPDATE counter SET n = 0 WHERE id = 1")

            async def interactive(number: int) -> None:
                tx = db.transaction()
                await tx.execute("UPDATE counter SET n = n + 1 WHERE id = 1")
                order.append(f"interactive {number}")
                await tx.commit()

            async def single() -> None:
                await db.execute("UPDATE counter SET n = n + 1 WHERE id = 1")
                order.append("single")

            waiting = [asyncio.ensure_future(interactive(number)) for number in range(3)]
            await until_waiting(db, 3)
            waiting.extend(asyncio.ensure_future(single()) for _ in range(4))
            await until_waiting(db, 7)
            await first.commit()
            await asyncio.gather(*waiting)
            assert order.index("interactive 1") > max(n for n, each in enumerate(order) if each == "single")
            assert await value(db) == 7

    asyncio.run(scenario())


@pytest.mark.parametrize("place", ["postgres"], indirect=True)
def test_a_conflict_on_postgresql_ends_one_of_two(place: Place) -> None:
    async def scenario() -> None:
        async with counted(place) as db:
            one, two = db.transaction(), db.transaction()
            assert await read_counter(one) == await read_counter(two) == 0
            await one.execute("UPDATE counter SET n = 1 WHERE id = 1")
            await one.commit()
            with pytest.raises(TransactionEnded, match="met another one") as caught:
                await two.execute("UPDATE counter SET n = 1 WHERE id = 1")
            assert caught.value.retry == "now"
            await two.rollback()
            assert await value(db) == 1

    asyncio.run(scenario())
