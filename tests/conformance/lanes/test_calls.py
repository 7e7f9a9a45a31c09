"""What is handed to a database: functions, statements and values of any kind are taken or refused, and never crash."""

import asyncio
from itertools import product
from typing import cast

import pytest

from interlock.database.database import Database
from interlock.database.transactions import Transaction
from interlock.errors import DialectError, InvalidPayload, KeyReused, TransactionError
from tests.conformance.lanes.places import Place, add, counted, value

ADD = "UPDATE counter SET n = n + $1 WHERE id = 1"
HUGE = 10**5_000
"""Python writes no int of more than 4,300 digits as text."""


async def add_one_and_tell(tx: Transaction, told: dict[str, object]) -> list[str]:
    await add(tx)
    return list(told)


def test_lambdas_of_one_place_are_told_apart(place: Place) -> None:
    async def scenario() -> None:
        async with counted(place) as db:
            one, two = (lambda tx: add(tx, 1)), (lambda tx: add(tx, 2))
            assert await db.transact(one, key="k") == 1
            assert await db.transact(one, key="k") == 1
            with pytest.raises(KeyReused, match="'k' was used before, for another transaction") as caught:
                await db.transact(two, key="k")
            assert "never ran" in caught.value.why
            assert await value(db) == 1

    asyncio.run(scenario())


def test_a_function_made_again_after_a_restart_is_recognised(place: Place) -> None:
    async def buy(folder: Place, amount: int) -> object:
        async def bought(tx: Transaction) -> int:
            return await add(tx, amount)

        async with folder.database() as db:
            return await db.transact(bought, key="order-7")

    async def scenario() -> None:
        async with counted(place):
            pass
        assert await buy(place, 5) == 5
        assert await buy(place, 5) == 5
        async with place.database() as db:
            assert await value(db) == 5

    asyncio.run(scenario())


def test_a_dictionary_filled_in_another_order_is_the_same_argument(place: Place) -> None:
    async def scenario() -> None:
        async with counted(place) as db:
            assert await db.transact(add_one_and_tell, {"a": 1, "b": 2}, key="k") == ["a", "b"]
            assert await db.transact(add_one_and_tell, {"b": 2, "a": 1}, key="k") == ["a", "b"], "the first result"
            with pytest.raises(KeyReused):
                await db.transact(add_one_and_tell, {"a": 2, "b": 1}, key="k")
            assert await value(db) == 1

    asyncio.run(scenario())


def test_what_is_no_key_is_refused_before_anything_happens(place: Place) -> None:
    async def scenario() -> None:
        async with counted(place) as db:
            for wrong in (7, b"k", "", "x" * 501, "a\x00b", "\ud800"):
                key = cast("str", wrong)
                with pytest.raises(InvalidPayload, match="idempotency key"):
                    await db.execute(ADD, 1, key=key)
                with pytest.raises(InvalidPayload, match="idempotency key"):
                    await db.query("SELECT 1", key=key)
                with pytest.raises(InvalidPayload, match="idempotency key"):
                    await db.transact(add, key=key)
            assert await value(db) == 0

    asyncio.run(scenario())


@pytest.mark.parametrize("key", [None, "k"])
@pytest.mark.parametrize("column", ["i integer", "n numeric", "f double precision", "j jsonb", "s text", "b bytea"])
def test_a_number_of_any_length_is_refused_like_any_other(column: str, key: str | None) -> None:
    async def scenario() -> None:
        async with Database.open("memory:") as db:
            await db.execute(f"CREATE TABLE t (id integer PRIMARY KEY, {column})")
            for number in (HUGE, -HUGE, [HUGE], {"a": HUGE}):
                # PostgreSQL keeps longer numbers, so a numeric of a lane is a refusal.
                longer = column == "n numeric" and isinstance(number, int)
                expected = DialectError if longer else TransactionError
                with pytest.raises(expected, match=r"\$1 must be|more than 1000 digits"):
                    await db.execute("INSERT INTO t VALUES (1, $1)", number, key=key)

    asyncio.run(scenario())


def test_a_long_number_goes_into_a_function_and_comes_back(place: Place) -> None:
    async def twice(tx: Transaction, number: int) -> int:
        await add(tx)
        return number * 2

    async def scenario() -> None:
        async with counted(place) as db:
            for _ in range(2):
                assert await db.transact(twice, HUGE, key="k") == HUGE * 2
                assert await db.transact(twice, -(2**63), key="l") == -(2**64)
            assert await value(db) == 2

    asyncio.run(scenario())


def test_a_statement_that_is_no_text_is_refused(place: Place) -> None:
    async def scenario() -> None:
        async with counted(place) as db:
            for wrong, call, key in product((7, None, b"SELECT 1", ["SELECT 1"]), (db.execute, db.query), (None, "k")):
                with pytest.raises((DialectError, InvalidPayload)) as caught:
                    await call(cast("str", wrong), key=key)
                assert "text" in str(caught.value), (wrong, call, key)

    asyncio.run(scenario())


def test_what_cannot_be_called_is_no_function(place: Place) -> None:
    async def scenario() -> None:
        async with counted(place) as db:
            for wrong in (7, None, "add"):
                with pytest.raises(TransactionError, match="which cannot be called") as caught:
                    await db.transact(wrong)  # type: ignore[arg-type]
                assert "async def" in caught.value.fix, wrong

    asyncio.run(scenario())
