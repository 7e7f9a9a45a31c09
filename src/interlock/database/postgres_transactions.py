"""One attempt of a transaction on PostgreSQL, and the driver of a user's function inside it.

The function follows the rules of a lane: it awaits only its `tx`, and its own code runs without a current event loop.
A task or timer that it started would outlive a rollback and run twice.
"""

import asyncio
import contextvars
from asyncio import events
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Final, TypeVar, cast

from interlock.database.postgres_keys import StoredKeys
from interlock.database.transactions import Transaction
from interlock.errors import DialectError, TransactionError
from interlock.lanes.settings import LaneSettings
from interlock.lanes.transact import Requests, conversation, watched
from interlock.postgres.errors import state_of
from interlock.postgres.handover import SHARE_GATE
from interlock.postgres.isolation import GATE, Plan, plan_of
from interlock.postgres.statements import DENIED, Client
from interlock.sql.values import Row

ResultT = TypeVar("ResultT")

NO_GATE_STATES: Final = (DENIED, "42P01")
TAKE_TURN: Final = f"LOCK TABLE {GATE} IN EXCLUSIVE MODE"


class Contended(TransactionError):
    """The transaction conflicted with others at every attempt, and was rolled back each time."""

    retry = "now"

    def __init__(self, attempts: int) -> None:
        super().__init__(
            f"the transaction was run {attempts} times and met another one each time; nothing of it remains.",
            why="Other transactions change the rows that it reads, and PostgreSQL lets only one of them win.",
            fix="Repeat it. If it stays so, `interlock hot` shows the row; a smaller transaction meets fewer others.",
        )


class NoGate(Exception):
    """The gate table is missing, or this user may not lock it: turns are taken within this process only."""


class PostgresAttempt:
    """One atomic transaction on one connection."""

    def __init__(
        self,
        client: Client,
        schema: str,
        *,
        serializable: bool = False,
        read_only: bool = False,
        gated: bool = False,
        shares: bool = False,
    ) -> None:
        self._client = client
        self._schema = schema
        self._serializable = serializable
        self._read_only = read_only
        self._first = TAKE_TURN if gated else SHARE_GATE if shares else ""

    async def run(self, body: Callable[[Client], Awaitable[ResultT]]) -> ResultT:
        """Run the body and commit. An exception rolls back."""
        client = self._client
        try:
            await self._begin()
            result = await body(client)
        except Exception:
            await client.rollback()
            raise
        await client.commit()
        return result

    async def _begin(self) -> None:
        try:
            await self._client.begin(
                "SERIALIZABLE" if self._serializable else "READ COMMITTED",
                first=self._first,
                read_only=self._read_only,
                schema=self._schema,
            )
        except TransactionError as error:
            cause = error.__cause__
            if self._first and cause is not None and state_of(cause) in NO_GATE_STATES:
                raise NoGate from error
            raise

    async def run_once(
        self,
        body: Callable[[Client], Awaitable[object]],
        keys: StoredKeys,
        key: str,
        digest: bytes,
        *,
        schema: str,
    ) -> object:
        """Run the body with a key: a repetition returns the first result."""

        async def keyed(client: Client) -> object:
            tx = PostgresStatements(client, schema)
            known, result = await keys.first_result(tx, key, digest)
            if not known:
                result = await body(client)
                await keys.remember(tx, key, result)
            return result

        return await self.run(keyed)


class PostgresStatements:
    """Statements inside a transaction."""

    def __init__(self, client: Client, schema: str) -> None:
        self._client = client
        self._schema = schema

    async def execute(self, sql: str, /, *args: object) -> int:
        """Run one statement; return the number of changed rows."""
        return (await self._client.run(sql, args, schema=self._schema, writing=False)).changed

    async def query(self, sql: str, /, *args: object) -> list[Row]:
        """Run one statement; return its rows."""
        return (await self._client.run(sql, args, schema=self._schema, writing=False)).rows


async def run_function(
    function: Callable[..., object],
    args: tuple[object, ...],
    client: Client,
    inside: contextvars.Context,
    *,
    schema: str,
    settings: LaneSettings,
    touched: Callable[[Plan, tuple[object, ...]], None],
) -> object:
    """Run the user's function to its end on this connection; return its result."""
    statements = PostgresStatements(client, schema)

    async def query(sql: str, values: tuple[object, ...]) -> list[Row]:
        text, plan = _check_statement(sql)
        touched(plan, values)
        return await statements.query(text, *values)

    async def execute(sql: str, values: tuple[object, ...]) -> int:
        text, plan = _check_statement(sql)
        touched(plan, values)
        return await statements.execute(text, *values)

    def begin(requests: Requests) -> Awaitable[object]:
        tx = Transaction(
            requests,
            query=lambda sql, values: lambda: query(sql, values),
            execute=lambda sql, values: lambda: execute(sql, values),
        )
        return cast("Awaitable[object]", function(tx, *args))

    talk = conversation(begin, inside, partial(_run_step, settings.transaction_timeout_s))
    answer: object = None
    limit = asyncio.timeout(settings.transaction_timeout_s)
    try:
        async with limit:
            while True:
                try:
                    request = talk.send(answer)
                except StopIteration as stop:
                    return cast("object", stop.value)
                except Exception:
                    raise
                except BaseException as error:
                    # The function itself raised it: the caller was not cancelled, and the program must continue.
                    raise TransactionError(f"the transaction was ended by {type(error).__name__}.") from error
                try:
                    answer = await cast("Awaitable[object]", request.perform())
                except Exception as error:
                    # Its `finally` blocks run; the transaction ends here, whatever the function does with the error.
                    _ = talk.throw(error)
                    raise
    except TimeoutError as error:
        if not limit.expired():
            raise  # A timeout of the function itself.
        client.spent = True  # A statement may still be under way on it.
        raise TransactionError(
            f"the function given to transact ran longer than transaction_timeout_s ({settings.transaction_timeout_s:g})"
            " and was ended.",
            why="It holds rows that others wait for.",
            fix="Do less in one transaction, or raise transaction_timeout_s.",
        ) from error
    finally:
        talk.close()


def _check_statement(sql: object) -> tuple[str, Plan]:
    if not isinstance(sql, str):
        raise DialectError(
            f"the statement is {type(sql).__name__}, not a text.",
            why="A statement is SQL as text; its values are passed beside it.",
            fix='Write tx.execute("UPDATE counter SET n = $1", n).',
        )
    return sql, plan_of(sql)


def _run_step(limit_s: float, function: Callable[[], object]) -> object:
    """Run a piece of the user's code without a current event loop; end it after `limit_s`."""
    loop = events._get_running_loop()  # noqa: SLF001 -- documented for implementers of event loops.
    events._set_running_loop(None)  # noqa: SLF001
    try:
        return watched(limit_s, _interrupt_nothing, function)
    finally:
        events._set_running_loop(loop)  # noqa: SLF001


def _interrupt_nothing() -> None:
    """Interrupt nothing: no statement runs while the user's code does."""
