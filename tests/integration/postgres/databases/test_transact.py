"""`transact` on PostgreSQL: what a function may do, and that nothing is left on the server otherwise (D1, D17)."""

import asyncio
import contextvars
import gc
from collections.abc import Awaitable, Callable

import pytest

from interlock.database.database import Database
from interlock.database.transactions import Transaction
from interlock.errors import ConstraintViolation, DialectError, TransactionError
from tests.integration.postgres.databases.servers import counter, named, nothing_open, value

ADD = "UPDATE c SET n = n + 1 WHERE id = 1"
Function = Callable[[Transaction], Awaitable[object]]


async def gathers(tx: Transaction) -> None:
    await tx.execute(ADD)
    await asyncio.gather(tx.query("SELECT 1"), tx.query("SELECT 2"))


async def sleeps(tx: Transaction) -> None:
    await tx.execute(ADD)
    await asyncio.sleep(0)


async def sets_a_limit(tx: Transaction) -> None:
    async with asyncio.timeout(1):
        await tx.execute(ADD)


async def starts_a_task(tx: Transaction) -> None:
    await tx.execute(ADD)
    asyncio.get_running_loop().call_soon(print)


async def waits_for_another(tx: Transaction) -> None:
    await tx.execute(ADD)
    await asyncio.Event().wait()


async def forgets_to_await(tx: Transaction) -> None:
    await tx.execute(ADD)
    _ = tx.execute(ADD)


async def cancels_itself(tx: Transaction) -> None:
    await tx.execute(ADD)
    raise asyncio.CancelledError


async def catches_the_error(tx: Transaction) -> None:
    await tx.execute(ADD)
    try:
        await tx.query("SELECT 1 / 0")
    except TransactionError:
        await tx.execute(ADD)


async def catches_a_violation(tx: Transaction) -> None:
    await tx.execute(ADD)
    try:
        await tx.execute("INSERT INTO c VALUES (1, 1)")
    except ConstraintViolation:
        return


async def catches_a_refusal(tx: Transaction) -> None:
    await tx.execute(ADD)
    try:
        await tx.execute("COMMIT")
    except DialectError:
        return


# Since Python 3.12 asyncio.gather wraps each argument in a coroutine of its own, and drops it when there is no loop.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize(
    "function",
    [
        gathers,
        sleeps,
        sets_a_limit,
        starts_a_task,
        waits_for_another,
        forgets_to_await,
        cancels_itself,
        catches_the_error,
        catches_a_violation,
        catches_a_refusal,
    ],
)
def test_nothing_of_a_function_that_breaks_a_rule_remains(postgres_url: str, function: Function) -> None:
    async def scenario() -> None:
        async with counter(postgres_url) as db, Database.open(named(postgres_url, "ruled")) as other:
            with pytest.raises((TransactionError, DialectError)):
                await other.transact(function)
            await nothing_open(db, "ruled")
            assert await value(db) == 0
            assert await other.execute(ADD) == 1

    asyncio.run(scenario())
    gc.collect()  # Python's warning of the coroutine that gather dropped belongs to this test, and to no later one.


def test_another_database_and_itself_are_refused_inside(postgres_url: str) -> None:
    """D17: in the same words as on a lane."""

    async def scenario() -> None:
        async with counter(postgres_url) as db, Database.open(postgres_url) as other, Database.open("memory:") as lane:
            for used, words in ((db, "inside a transaction of its own"), (other, "span"), (lane, "span")):

                async def nests(tx: Transaction, used: Database = used) -> None:
                    await tx.execute(ADD)
                    await used.execute("SELECT 1")

                with pytest.raises(TransactionError, match=words):
                    await db.transact(nests)
            assert await value(db) == 0

    asyncio.run(scenario())


def test_errors_and_context_of_the_function_are_its_own(postgres_url: str) -> None:
    """Its TimeoutError is not ours, and what it sets in its context stays there."""
    variable = contextvars.ContextVar("variable", default="outside")

    async def times_out(tx: Transaction) -> None:
        await tx.execute(ADD)
        raise TimeoutError("mine")

    async def sets(tx: Transaction) -> str:
        await tx.execute(ADD)
        before = variable.get()
        variable.set("inside")
        return before

    async def scenario() -> None:
        async with counter(postgres_url) as db:
            with pytest.raises(TimeoutError, match=r"^mine$"):
                await db.transact(times_out)
            variable.set("caller")
            assert await db.transact(sets) == "caller"
            assert variable.get() == "caller"
            assert await value(db) == 1

    asyncio.run(scenario())


def test_a_function_that_waits_too_long_for_a_row_is_ended(postgres_url: str) -> None:
    async def scenario() -> None:
        address = named(postgres_url, "limited")
        async with counter(postgres_url) as db, Database.open(address, transaction_timeout_s=0.05) as other:

            async def adds(tx: Transaction) -> None:
                await tx.execute(ADD)

            async def holds(tx: Transaction) -> None:
                await tx.execute(ADD)
                # The row is locked now, and this is where somebody else wants it.
                with pytest.raises(TransactionError, match="transaction_timeout_s"):
                    await tx.query("SELECT pg_sleep(1)")

            with pytest.raises(TransactionError, match="transaction_timeout_s"):
                await other.transact(holds)
            await nothing_open(db, "limited")
            await db.transact(adds)
            assert await value(db) == 1

    asyncio.run(scenario())


async def reads_and_adds(tx: Transaction) -> None:
    await tx.query("SELECT n FROM c WHERE id = 1")
    await tx.execute(ADD)


@pytest.mark.parametrize("phase", range(12))
def test_a_caller_that_is_cancelled_leaves_no_transaction_open(postgres_url: str, phase: int) -> None:
    """Wherever it was: after so many steps of the event loop it is cancelled, and no lock may remain."""

    async def scenario() -> None:
        address = named(postgres_url, f"cancelled{phase}")
        async with counter(postgres_url) as db, Database.open(address) as other:
            await other.transact(reads_and_adds)
            task = asyncio.ensure_future(other.transact(reads_and_adds, key=f"k{phase}"))
            for _ in range(phase * 4):
                await asyncio.sleep(0)
            task.cancel()
            await asyncio.wait([task])
            await nothing_open(db, f"cancelled{phase}")
            assert await value(db) in {1, 2}
            await other.transact(reads_and_adds, key=f"k{phase}")
            assert await value(db) == 2, "the key has made it happen once"
            await other.transact(reads_and_adds)

    asyncio.run(scenario())


@pytest.mark.parametrize("wrong", [5, "soon", object()], ids=["int", "text", "object"])
def test_a_value_that_was_refused_leaves_nothing_open_on_its_connection(postgres_url: str, wrong: object) -> None:
    """The driver prepares and waits with the end of that for the run, which never comes."""

    async def add(tx: Transaction) -> int:
        return await tx.execute("UPDATE moment SET at = now() WHERE id = 1")

    async def scenario() -> None:
        async with Database.open(f"{postgres_url}&connections_max=1") as db:
            await db.execute("CREATE TABLE moment (id integer PRIMARY KEY, at timestamptz)")
            await db.execute("INSERT INTO moment VALUES (1, now())")
            for sql in ("SELECT at + $1::interval FROM moment", "UPDATE moment SET at = $1 WHERE id = 1"):
                with pytest.raises(TransactionError):
                    await db.query(sql, wrong)
                assert await db.transact(add) == 1

    asyncio.run(scenario())
