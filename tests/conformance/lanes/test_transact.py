"""The rules of `transact`: it awaits only tx, its first failed statement ends it, anything it raises rolls it back."""

import asyncio
import contextvars
from collections.abc import Generator
from itertools import product

import pytest

from interlock.database.database import Database
from interlock.database.transactions import Transaction
from interlock.errors import ConstraintViolation, DialectError, TransactionError
from tests.conformance.lanes.places import ON_LANES, Place, add, counted, lane_of, value
from tests.unit.lanes.lanes import rested, sql

TRACE: contextvars.ContextVar[str] = contextvars.ContextVar("trace", default="none")


def test_it_returns_what_the_function_returns(place: Place) -> None:
    async def scenario() -> None:
        async with counted(place) as db:
            assert await db.transact(add) == 1
            assert await db.transact(add, 41) == 42
            assert await value(db) == 42

    asyncio.run(scenario())


@pytest.mark.slow
def test_no_read_then_write_of_64_clients_is_lost(place: Place) -> None:
    async def scenario() -> None:
        async with counted(place) as db:
            for _ in range(5):
                await asyncio.gather(*(db.transact(add) for _ in range(64)))
            assert await value(db) == 5 * 64

    asyncio.run(scenario())


class Elsewhere:
    """Something that is awaitable, and is not tx."""

    def __await__(self) -> Generator[str, None, None]:
        yield "somewhere else"


async def sleeps(tx: Transaction) -> None:
    await add(tx)
    await asyncio.sleep(0.05)


async def fails_by_itself(tx: Transaction) -> None:
    await add(tx)
    raise RuntimeError("an error of its own")


async def awaits_something(tx: Transaction) -> None:
    await add(tx)
    await Elsewhere()


def test_it_awaits_only_tx(place: Place) -> None:
    async def scenario() -> None:
        async with counted(place) as db:
            with pytest.raises(TransactionError, match=r"may await only its tx, .* but it awaited str"):
                await db.transact(awaits_something)
            with pytest.raises(TransactionError, match=r"may await only its tx, .* needs an event loop"):
                await db.transact(sleeps)
            with pytest.raises(RuntimeError, match="of its own"):
                await db.transact(fails_by_itself)
            assert await value(db) == 0

    asyncio.run(scenario())


def test_a_function_that_is_not_async_is_refused(place: Place) -> None:
    async def scenario() -> None:
        async with counted(place) as db:
            with pytest.raises(TransactionError, match="not `async def`: it returned int"):
                await db.transact(lambda _tx: 7)  # type: ignore[arg-type,return-value]

    asyncio.run(scenario())


def test_the_first_failed_statement_ends_it_even_if_it_is_caught(place: Place) -> None:
    after: list[str] = []

    async def stubborn(tx: Transaction) -> str:
        await add(tx)
        try:
            await tx.execute("UPDATE counter SET n = -1 WHERE id = 1")
        except Exception:  # noqa: BLE001 -- the mistake under test.
            after.append("caught")
        finally:
            after.append("finally")
        await tx.execute("UPDATE counter SET n = 100 WHERE id = 1")
        after.append("never")
        return "fine"

    async def scenario() -> None:
        async with counted(place) as db:
            with pytest.raises(ConstraintViolation):
                await db.transact(stubborn)
            assert after == ["caught", "finally"]
            assert await value(db) == 0

    asyncio.run(scenario())


FAILING: dict[str, type[Exception] | tuple[type[Exception], ...]] = {
    "UPDATE counter SET n = -1 WHERE id = 1": ConstraintViolation,
    "UPDATE counter SET n = 1 / 0": TransactionError,
    "DROP INDEX nowhere": TransactionError,
    "UPDATE counter SET n = 1, WHERE id = 1": (DialectError, TransactionError),
}


def test_a_failed_statement_raises_our_error_inside_the_function_too(place: Place) -> None:
    caught: list[Exception] = []

    async def failing(tx: Transaction, call: str, statement: str) -> None:
        try:
            await getattr(tx, call)(statement)
        except Exception as error:
            caught.append(error)
            raise

    async def scenario() -> None:
        async with counted(place) as db:
            for call, (statement, kind) in product(("execute", "query"), FAILING.items()):
                with pytest.raises(kind):
                    await db.transact(failing, call, statement)
                assert isinstance(caught.pop(), kind), (call, statement)

    asyncio.run(scenario())


def test_a_statement_outside_the_dialect_ends_it_too(place: Place) -> None:
    async def wrong(tx: Transaction) -> None:
        await add(tx)
        await tx.execute("VACUUM")

    async def scenario() -> None:
        async with counted(place) as db:
            with pytest.raises(DialectError):
                await db.transact(wrong)
            assert await value(db) == 0

    asyncio.run(scenario())


class Stop(BaseException):
    """Like KeyboardInterrupt: not an Exception."""


@pytest.mark.parametrize(
    "error", [ValueError("sold out"), KeyboardInterrupt(), Stop(), asyncio.CancelledError()], ids=repr
)
def test_anything_it_raises_rolls_it_back_and_harms_nobody(place: Place, error: BaseException) -> None:
    async def fails(tx: Transaction) -> None:
        await add(tx, 100)
        raise error

    async def scenario() -> None:
        async with counted(place) as db:
            answers = await asyncio.gather(
                db.transact(add), db.transact(fails), db.transact(add), return_exceptions=True
            )
            assert {answers[0], answers[2]} == {1, 2}
            expected = ValueError if isinstance(error, ValueError) else TransactionError
            assert isinstance(answers[1], expected)
            assert await value(db) == 2

    asyncio.run(scenario())


@ON_LANES
def test_it_runs_again_when_the_group_vanished_and_starts_afresh(place: Place) -> None:
    runs: list[str] = []

    async def first(tx: Transaction) -> int:
        runs.append(TRACE.get())
        TRACE.set("changed by the first run")
        return await add(tx)

    async def scenario() -> None:
        TRACE.set("caller")
        async with counted(place, idle_s=0.0) as db:
            await rested(lane_of(db))  # So that they are one group.
            # Not a statement of the dialect: given to the lane below, it takes the whole group with it.
            culprit = lane_of(db).run(sql("INSERT OR ROLLBACK INTO counter VALUES (1, 7)"))
            answers = await asyncio.gather(db.transact(first), culprit, db.transact(add), return_exceptions=True)
            assert {answers[0], answers[2]} == {1, 2}
            assert isinstance(answers[1], TransactionError)
            assert await value(db) == 2
        assert runs == ["caller", "caller"]
        assert TRACE.get() == "caller"

    asyncio.run(scenario())


def test_a_function_that_does_not_come_back_is_ended(place: Place) -> None:
    async def holds(tx: Transaction) -> None:
        await add(tx, 100)
        while True:
            pass

    async def scenario() -> None:
        async with counted(place, transaction_timeout_s=0.2) as db:
            with pytest.raises(TransactionError, match="transaction_timeout_s"):
                await db.transact(holds)
            assert await value(db) == 0

    asyncio.run(scenario())


@ON_LANES
def test_a_function_that_holds_the_lane_is_ended(place: Place) -> None:
    async def holds(tx: Transaction) -> None:
        await add(tx, 100)
        while True:
            pass

    async def scenario() -> None:
        async with counted(place, transaction_timeout_s=1.0) as db:  # A slow machine runs `add` in it.
            answers = await asyncio.gather(
                db.transact(add), db.transact(holds), db.transact(add), return_exceptions=True
            )
            assert {answers[0], answers[2]} == {1, 2}
            assert "held the lane" in str(answers[1])
            assert await value(db) == 2

    asyncio.run(scenario())


@pytest.mark.parametrize("call", ["execute", "query", "transact", "open"])
def test_another_database_inside_is_refused_with_the_reason(place: Place, call: str) -> None:
    """D17."""

    async def scenario() -> None:
        async with counted(place, "one") as one, counted(place, "two") as two:

            async def across(tx: Transaction) -> object:
                await add(tx)
                if call == "open":
                    return await Database.open("memory:")
                if call == "transact":
                    return await two.transact(add)
                sql = "SELECT n FROM counter" if call == "query" else "UPDATE counter SET n = 7"
                return await getattr(two, call)(sql)

            with pytest.raises(TransactionError, match="cannot span databases") as caught:
                await one.transact(across)
            assert "could have happened without the other" in caught.value.why
            assert (await value(one), await value(two)) == (0, 0)
            assert await two.transact(add) == 1, "outside it is used as ever"

    asyncio.run(scenario())


def test_the_database_itself_inside_its_own_transaction_is_refused(place: Place) -> None:
    async def scenario() -> None:
        async with counted(place) as db:

            async def inside(tx: Transaction) -> None:
                await add(tx)
                await db.execute("UPDATE counter SET n = 7")

            with pytest.raises(TransactionError, match="transaction of its own") as caught:
                await db.transact(inside)
            assert "tx.execute" in caught.value.fix
            assert await value(db) == 0

    asyncio.run(scenario())
