"""A function given to `transact` awaits its tx, all of it, one call at a time; mistakes are told."""

import asyncio
import gc
from collections.abc import Awaitable, Callable, Coroutine
from pathlib import Path

import pytest

from interlock.database.database import Database
from interlock.database.transactions import Transaction
from interlock.errors import BadUsage, ConstraintViolation, TransactionError
from tests.conformance.lanes.places import Place, add, counted, value

Function = Callable[[Transaction], Awaitable[object]]


def refused(place: Place, function: Function, wrong: type[Exception] = TransactionError) -> TransactionError:
    """The error of the function, which has left nothing behind."""
    caught: list[BaseException] = []

    async def scenario() -> None:
        async with counted(place) as db:
            before, failed, after = await asyncio.gather(
                db.transact(add), db.transact(function), db.transact(add), return_exceptions=True
            )
            assert {before, after} == {1, 2}, "the neighbours are not harmed"
            assert await value(db) == 2
            assert isinstance(failed, BaseException)
            caught.append(failed)

    asyncio.run(scenario())
    assert type(caught[0]) is wrong, caught[0]
    assert isinstance(caught[0], TransactionError)
    return caught[0]


@pytest.mark.parametrize("call", ["execute", "query"])
def test_a_forgotten_await_is_never_acknowledged(place: Place, call: str) -> None:
    """D2."""

    async def forgets(tx: Transaction) -> str:
        await add(tx)
        getattr(tx, call)("UPDATE counter SET n = 100 WHERE id = 1")
        await add(tx)
        return "done"

    error = refused(place, forgets)
    assert f"tx.{call}('UPDATE" in error.what
    assert "not awaited" in error.what
    assert f"await tx.{call}(" in error.fix


def test_an_error_of_the_function_counts_more_than_a_forgotten_await(place: Place) -> None:
    async def forgets(tx: Transaction) -> None:
        _ = tx.execute("UPDATE counter SET n = 100 WHERE id = 1")
        await tx.execute("UPDATE counter SET n = -1 WHERE id = 1")

    refused(place, forgets, ConstraintViolation)


def test_a_call_may_be_awaited_later(place: Place) -> None:
    async def late(tx: Transaction) -> int:
        first, second = tx.execute("UPDATE counter SET n = n * 3 WHERE id = 1"), add(tx)
        await second
        return await first

    async def scenario() -> None:
        async with counted(place) as db:
            assert await db.transact(late) == 1
            assert await value(db) == 3

    asyncio.run(scenario())


async def gathers(tx: Transaction) -> None:
    await asyncio.gather(tx.execute("UPDATE counter SET n = 7"), tx.execute("UPDATE counter SET n = 8"))


async def waits_for_an_event(_tx: Transaction) -> None:
    await asyncio.Event().wait()


async def sleeps_for_a_turn(_tx: Transaction) -> None:
    await asyncio.sleep(0)


async def starts_a_task(tx: Transaction) -> None:
    adding = add(tx)
    try:
        await asyncio.create_task(adding)
    finally:
        adding.close()


async def has_a_timeout(tx: Transaction) -> None:
    async with asyncio.timeout(1):
        await add(tx)


# Since Python 3.12 asyncio.gather wraps each argument in a coroutine of its own, and drops it when there is no loop.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("function", [gathers, waits_for_an_event, sleeps_for_a_turn, starts_a_task, has_a_timeout])
def test_whatever_needs_an_event_loop_is_told_what_to_await(place: Place, function: Function) -> None:
    error = refused(place, function)
    assert "may await only its tx, one call at a time" in error.what
    assert "one after the other" in error.fix
    del error
    gc.collect()  # Python's warning of the coroutine that gather dropped belongs to this test, and to no later one.


@pytest.mark.parametrize("kind", [AttributeError, RuntimeError])
def test_errors_of_the_same_kind_stay_what_they_are(place: Place, kind: type[Exception]) -> None:
    async def fails(_tx: Transaction) -> None:
        raise kind("mine")

    async def scenario() -> None:
        async with counted(place) as db:
            with pytest.raises(kind, match="mine"):
                await db.transact(fails)

    asyncio.run(scenario())


def plain(tx: Transaction) -> None:
    _ = tx.execute("UPDATE counter SET n = 7")


@pytest.mark.parametrize("function", [plain, lambda tx: tx.execute("UPDATE counter SET n = 7")])
def test_a_plain_function_is_told_to_become_async(place: Place, function: Function) -> None:
    error = refused(place, function)
    assert "is not `async def`" in error.what
    assert "Make it `async def" in error.fix


def test_finally_blocks_that_await_do_not_hide_what_failed(place: Place) -> None:
    ended: list[int] = []

    async def cleans_up(tx: Transaction) -> None:
        try:
            try:
                try:
                    await tx.execute("UPDATE counter SET n = -1 WHERE id = 1")
                finally:
                    ended.append(1)
                    await add(tx)
            finally:
                ended.append(2)
                await add(tx)
        finally:
            ended.append(3)
            await add(tx)

    refused(place, cleans_up, ConstraintViolation)
    assert ended == [1, 2, 3]


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # Python tries once more, in vain.
def test_one_that_will_not_end_is_left_alone_in_whatever_thread_it_is_collected(place: Place) -> None:
    """Python collects it in any thread. A request that raised there would be caught, and made again, without end."""
    made: list[Coroutine[object, object, None]] = []
    caught = 0

    async def stubborn(tx: Transaction) -> None:
        nonlocal caught
        while caught < 1_000:
            try:
                await tx.execute("UPDATE counter SET n = -1 WHERE id = 1")
            except BaseException:  # noqa: BLE001 -- the mistake under test.
                caught += 1

    def start(tx: Transaction) -> Coroutine[object, object, None]:
        made.append(stubborn(tx))
        return made[0]

    refused(place, start, ConstraintViolation)
    with pytest.raises(RuntimeError, match="ignored GeneratorExit"):
        made[0].close()
    assert caught < 1_000
    made.clear()
    gc.collect()  # Python's last attempt belongs to this test, and to no later one.


def test_a_tx_means_nothing_outside_its_function(place: Place) -> None:
    async def scenario() -> None:
        async with counted(place) as db:
            leaked: list[Transaction] = []

            async def leaks(tx: Transaction) -> None:
                leaked.append(tx)
                await add(tx)

            async def uses_another(tx: Transaction) -> None:
                await add(tx)
                await leaked[0].execute("UPDATE counter SET n = 7")

            await db.transact(leaks)
            with pytest.raises(TransactionError, match="outside of its transaction"):
                await leaked[0].execute("UPDATE counter SET n = 7")
            with pytest.raises(TransactionError, match="outside of its transaction"):
                await db.transact(uses_another)
            assert await value(db) == 1

    asyncio.run(scenario())


def test_a_call_that_is_awaited_after_its_function_is_refused(place: Place) -> None:
    async def scenario() -> None:
        async with counted(place) as db:
            made: list[Awaitable[int]] = []

            async def makes(tx: Transaction) -> None:
                made.append(tx.execute("UPDATE counter SET n = 7"))

            with pytest.raises(TransactionError, match="not awaited"):
                await db.transact(makes)
            with pytest.raises(TransactionError, match="outside of its transaction"):
                await made[0]

    asyncio.run(scenario())


def test_a_database_is_not_closed_inside_its_transaction(place: Place) -> None:
    async def scenario() -> None:
        async with counted(place) as db:

            async def closes(tx: Transaction) -> None:
                await add(tx)
                await db.close()

            with pytest.raises(TransactionError, match="transaction of its own"):
                await db.transact(closes)
            assert await db.transact(add) == 1

    asyncio.run(scenario())


@pytest.mark.parametrize("address", [Path("/var/shop"), None, 7, b"memory:"], ids=repr)
def test_an_address_is_a_text(address: object) -> None:
    with pytest.raises(BadUsage, match="must be a text") as caught:
        _ = Database.open(address)  # type: ignore[arg-type]  # The mistake under test.
    assert "lanes:///" in caught.value.fix
    if address is not None:
        with pytest.raises(BadUsage, match="not the home"):
            _ = Database.open("stock", home=address)  # type: ignore[arg-type]  # The mistake under test.


@pytest.mark.parametrize("where", ["beside", "memory"])
def test_an_overdue_read_is_told_in_its_own_words(tmp_path: Path, where: str) -> None:
    async def scenario() -> None:
        url = "memory:" if where == "memory" else f"lanes://{tmp_path}/x"
        async with Database.open(url, statement_timeout_s=0.01) as db:
            await db.execute("CREATE TABLE one (n bigint PRIMARY KEY)")
            for n in range(60):
                await db.execute("INSERT INTO one VALUES ($1)", n)
            tables = " CROSS JOIN ".join(f"one AS t{number}" for number in range(8))
            with pytest.raises(TransactionError, match="longer than statement_timeout_s") as caught:
                await db.query(f"SELECT count(*) FROM {tables}")
            told = "readers_max" if where == "beside" else "One writer"
            assert told in caught.value.why

    asyncio.run(scenario())
