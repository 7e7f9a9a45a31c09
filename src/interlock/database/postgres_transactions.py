"""Transactions on PostgreSQL: one attempt, its turn after a conflict, its idempotency key, and the user's function.

The function follows the rules of a lane: it awaits only its `tx`, and its own code runs without a current event loop.
A task or timer that it started would outlive a rollback and run twice.

Sections: turns, keys, attempts, functions, interactive transactions.
"""

# ruff: noqa: S608 -- the only names in these texts are our own.

import asyncio
import contextlib
import contextvars
from asyncio import events
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Hashable, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from functools import lru_cache, partial
from typing import Final, TypeVar, cast
from weakref import WeakKeyDictionary

import apsw

from interlock.clock import Clock
from interlock.database.call_digest import KEYS_TABLE
from interlock.database.transactions import (
    Transaction,
    TransactionEnded,
    aborted_error,
    not_a_text,
    over_error,
    rolled_back_instead,
    timed_out_error,
)
from interlock.errors import BadUsage, KeyReused, TransactionError
from interlock.lanes.idempotency_keys import decode_result, encode_result
from interlock.lanes.lane_settings import LaneSettings
from interlock.lanes.sqlite_connection import copy_error
from interlock.lanes.transact import Requests, conversation, run_watched
from interlock.postgres.handover_marks import GATE, SHARE_GATE
from interlock.postgres.isolation import StatementPlan, plan_of
from interlock.postgres.statements import DENIED, Conflict, StatementLink, translate_user_errors
from interlock.postgres.translate_errors import state_of
from interlock.sql.parse import quoted_name
from interlock.sql.stored_values import Answer, Row, Statements, row_class

# --- Turns after a conflict ------------------------------------------------------------------------------------------
# SERIALIZABLE runs transactions concurrently and rolls conflicting ones back. That is fast while conflicts are rare.
# When all of them change the same row, most work is thrown away, and some transactions never succeed. So after the
# first conflict a transaction waits for its turn: in this process for a lock, and between processes for a lock on a
# small table, which the server grants in order of request. The lock is acquired before the transaction reads
# anything, so that it sees the changes of its predecessor. A recently conflicting transaction waits for its turn
# from the start.
#
# SERIALIZABLE still guarantees correctness: turns only make conflicts rare.

HOT_S: Final = 1.0
"""Seconds after a conflict in which the same call takes its turn without trying first."""

CALLS_MAX: Final = 1024
"""Calls that are remembered as hot; the one that conflicted longest ago is forgotten."""

ATTEMPTS_MAX: Final = 30
PAUSE_S_MAX: Final = 0.1


class ConflictTurns:
    """The turns of one database in one process, shared by all its users in the process."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._hot: OrderedDict[Hashable, float] = OrderedDict()
        self._locks: WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Lock] = WeakKeyDictionary()
        self.conflicts = 0

    def is_hot(self, call: Hashable) -> bool:
        """Return whether this call conflicted a moment ago."""
        until_s = self._hot.get(call)
        if until_s is None:
            return False
        if until_s > self._clock.monotonic_s():
            return True
        self._hot.pop(call, None)
        return False

    def conflicted(self, call: Hashable) -> None:
        """Record that this call has just lost against another transaction."""
        self.conflicts += 1
        self._hot[call] = self._clock.monotonic_s() + HOT_S
        self._hot.move_to_end(call)
        if len(self._hot) > CALLS_MAX:
            self._hot.popitem(last=False)

    def lock(self) -> asyncio.Lock:
        """Return the lock of this event loop: one turn at a time."""
        loop = asyncio.get_running_loop()
        found = self._locks.get(loop)
        if found is None:
            found = self._locks[loop] = asyncio.Lock()
        return found


def pause_s(attempt: int, luck: float) -> float:
    """Return the seconds before the next attempt: full jitter, longer each time, up to a small bound."""
    return luck * min(PAUSE_S_MAX, 0.001 * 2.0**attempt)


_shared: OrderedDict[tuple[str, str], ConflictTurns] = OrderedDict()
_SHARED_MAX: Final = 256


def turns_of(url: str, schema: str, clock: Clock) -> ConflictTurns:
    """Return the turns of the schema at this address, shared by all its users in this process."""
    found = _shared.get((url, schema))
    if found is None:
        found = _shared[url, schema] = ConflictTurns(clock)
        if len(_shared) > _SHARED_MAX:
            _shared.popitem(last=False)
    else:
        _shared.move_to_end((url, schema))
    return found


# --- Keys ------------------------------------------------------------------------------------------------------------
# A transaction writes its key first, so that a repetition waits for it. Key, digest and result are a row of the same
# transaction (G3). A concurrent call with the same key waits at the unique index, and then reads the first result. Old
# keys are removed from time to time in a transaction of their own: a removal in every transaction would make all of
# them conflict.

REMOVE_EVERY: Final = 1_000
"""Number of transactions with keys between two removals; each removes at most twice as many keys."""

UNUSABLE_STATES: Final = ("42501", "42P01")
"""SQLSTATEs of a table that the user may not use, and of a missing table."""

CLAIM: Final = f"INSERT INTO {KEYS_TABLE} (key, digest) VALUES ($1, $2) ON CONFLICT (key) DO NOTHING"
FIND: Final = f"SELECT digest, result FROM {KEYS_TABLE} WHERE key = $1"
KEEP: Final = f"UPDATE {KEYS_TABLE} SET result = $2 WHERE key = $1"
REMOVE: Final = f"""
DELETE FROM {KEYS_TABLE} WHERE key IN (
    SELECT key FROM {KEYS_TABLE}
    WHERE at < now() - $1::double precision * interval '1 second'
       OR number <= (SELECT max(number) FROM {KEYS_TABLE}) - $2::bigint
    ORDER BY number LIMIT $3 FOR UPDATE SKIP LOCKED)"""


@lru_cache(maxsize=CALLS_MAX)
def keyed_statement(sql: str, arguments: int) -> str:
    """Return a statement that claims a key and changes one row; anything else fails, and nothing of it happens.

    Its further arguments are the key, the digest and the result. The key is claimed first: a repetition waits for it.
    """
    key, digest, result = (f"${arguments + number}" for number in (1, 2, 3))
    return f"""WITH claimed AS (
INSERT INTO {KEYS_TABLE} (key, digest, result) VALUES ({key}, {digest}, {result})
ON CONFLICT (key) DO NOTHING RETURNING 1
), done AS (
{sql}
RETURNING 1)
SELECT 1 / (SELECT count(*) FROM claimed), 1 / (SELECT count(*) FROM done)"""


class StoredKeys:
    """The keys of one database."""

    def __init__(self, settings: LaneSettings) -> None:
        self._settings = settings
        self._used = 0

    async def first_result(self, tx: Statements, key: str, digest: bytes) -> tuple[bool, object]:
        """Return (True, the first result) for a used key, or (False, None) for a new one. Raises KeyReused."""
        if await _claim_key(tx, key, digest):
            return False, None
        found = await tx.query(FIND, key)
        if not found:
            return await self.first_result(tx, key, digest)  # The old key was removed in between.
        [(before, result)] = found
        if before != digest:
            raise KeyReused(
                f"key {key!r} was used before, for another transaction.",
                why="A key stands for one call: the same method, the same SQL or function, the same arguments. The "
                "first result is not this one's, and giving it back would hide that this one never ran.",
                fix="Repeat a key only with the very same call, and use a new key for a new one.",
            )
        return True, decode_result(cast("bytes", result), _make_row)

    async def remember(self, tx: Statements, key: str, result: object) -> None:
        """Store the result with its key."""
        data = encode_result(result)
        if len(data) > self._settings.key_result_bytes_max:
            raise TransactionError(
                f"the result has {len(data):,} bytes; with a key at most {self._settings.key_result_bytes_max:,} "
                "are kept.",
                why="The same key again gives the first result back, so it is stored with the transaction.",
                fix="Return less, or raise key_result_bytes_max.",
            )
        _ = await tx.execute(KEEP, key, data)

    async def tidy(self, run: Callable[..., Awaitable[object]]) -> None:
        """Remove some keys that are too old or too many. Called after each transaction with a key."""
        self._used += 1
        if self._used % REMOVE_EVERY == 0:
            settings = self._settings
            _ = await run(REMOVE, settings.keys_retained_s, settings.keys_max, 2 * REMOVE_EVERY)


async def _claim_key(tx: Statements, key: str, digest: bytes) -> int:
    try:
        return await tx.execute(CLAIM, key, digest)
    except TransactionError as error:
        state: object = getattr(error.__cause__, "sqlstate", None)
        if state not in UNUSABLE_STATES:
            raise
        raise TransactionError(
            f"key {key!r} cannot be kept: {KEYS_TABLE} is missing, or this user may not write to it; nothing happened.",
            why="A key is stored in the same transaction as what it stands for. The table is made when the database is "
            "opened, by a user who may make tables in the schema.",
            fix=f"Open it once as such a user, and GRANT SELECT, INSERT, UPDATE, DELETE ON {KEYS_TABLE} to this one.",
        ) from error


def _make_row(names: tuple[str, ...], values: tuple[object, ...]) -> Row:
    return row_class(names)(values)


# --- Attempts --------------------------------------------------------------------------------------------------------

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
        client: StatementLink,
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

    async def run(self, body: Callable[[StatementLink], Awaitable[ResultT]]) -> ResultT:
        """Run the body and commit. An exception rolls back."""
        client = self._client
        try:
            await self.begin()
            result = await body(client)
        except Exception:
            await client.rollback()
            raise
        await client.commit()
        return result

    async def begin(self) -> None:
        """Begin the transaction, without its body. Raises NoGate."""
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
        body: Callable[[StatementLink], Awaitable[object]],
        keys: StoredKeys,
        key: str,
        digest: bytes,
        *,
        schema: str,
    ) -> object:
        """Run the body with a key: a repetition returns the first result."""

        async def keyed(client: StatementLink) -> object:
            tx = PostgresStatements(client, schema)
            known, result = await keys.first_result(tx, key, digest)
            if not known:
                result = await body(client)
                await keys.remember(tx, key, result)
            return result

        return await self.run(keyed)


class PostgresStatements:
    """Statements inside a transaction."""

    def __init__(self, client: StatementLink, schema: str) -> None:
        self._client = client
        self._schema = schema

    async def execute(self, sql: str, /, *args: object) -> int:
        """Run one statement; return the number of changed rows."""
        return (await self._client.run(sql, args, schema=self._schema, writing=False)).changed

    async def query(self, sql: str, /, *args: object) -> list[Row]:
        """Run one statement; return its rows."""
        return (await self._client.run(sql, args, schema=self._schema, writing=False)).rows


# --- Functions -------------------------------------------------------------------------------------------------------


async def run_function(
    function: Callable[..., object],
    args: tuple[object, ...],
    client: StatementLink,
    inside: contextvars.Context,
    *,
    schema: str,
    settings: LaneSettings,
    touched: Callable[[StatementPlan, tuple[object, ...]], None],
) -> object:
    """Run the user's function to its end on this connection; return its result."""
    statements = PostgresStatements(client, schema)

    async def query(sql: str, values: tuple[object, ...]) -> list[Row]:
        touched(_plan(sql), values)
        return await statements.query(sql, *values)

    async def execute(sql: str, values: tuple[object, ...]) -> int:
        touched(_plan(sql), values)
        return await statements.execute(sql, *values)

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


def _plan(sql: object) -> StatementPlan:
    if not isinstance(sql, str):
        raise not_a_text(sql, "tx")
    return plan_of(sql)


def _run_step(limit_s: float, function: Callable[[], object]) -> object:
    """Run a piece of the user's code without a current event loop; end it after `limit_s`."""
    loop = events._get_running_loop()  # noqa: SLF001 -- documented for implementers of event loops.
    events._set_running_loop(None)  # noqa: SLF001
    try:
        return run_watched(limit_s, _interrupt_nothing, function)
    finally:
        events._set_running_loop(loop)  # noqa: SLF001


def _interrupt_nothing() -> None:
    """Interrupt nothing: no statement runs while the user's code does."""


# --- Interactive transactions ----------------------------------------------------------------------------------------
# The caller drives it on a connection of its own. There is no second attempt: the caller has seen the first one's rows.


class PostgresInteractive:
    """An interactive SERIALIZABLE transaction on one connection, which it acquires with its first call."""

    def __init__(
        self,
        connect: Callable[[], AbstractAsyncContextManager[StatementLink]],
        begin: Callable[[StatementLink], Awaitable[None]],
        *,
        schema: str,
        limit_s: float,
        touched: Callable[[StatementPlan], None],
    ) -> None:
        self._connect = connect
        self._begin = begin
        self._schema = schema
        self._limit_s = limit_s
        self._touched = touched
        self._calls = asyncio.Lock()
        self._stack = AsyncExitStack()
        self._client: StatementLink | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._end_error: TransactionError | None = None
        self._is_aborted = self._is_abandoned = False
        self._timer: asyncio.TimerHandle | None = None

    async def run(self, sql: str, args: tuple[object, ...]) -> Answer:
        """Run one statement."""
        self._touched(_plan(sql))
        return await self._call(lambda client: client.run(sql, args, schema=self._schema, writing=False))

    async def run_many(self, sql: str, many: Sequence[Sequence[object]]) -> int:
        """Run one statement with each of several arguments; return the number of changed rows."""
        changed = 0
        for args in many:
            changed += (await self.run(sql, tuple(args))).changed
        return changed

    async def inspect(self, look: Callable[[apsw.Connection], ResultT]) -> ResultT:
        """Raise BadUsage: the catalog of PostgreSQL is read with SQL."""
        del look
        raise not_a_lane()

    async def savepoint(self, name: str) -> None:
        """Define a savepoint."""
        await self._control(f"SAVEPOINT {quoted_name(name)}")

    async def rollback_to(self, name: str) -> None:
        """Undo everything since the savepoint."""
        await self._control(f"ROLLBACK TO SAVEPOINT {quoted_name(name)}")

    async def release(self, name: str) -> None:
        """Forget the savepoint, and keep its changes."""
        await self._control(f"RELEASE SAVEPOINT {quoted_name(name)}")

    async def commit(self) -> None:
        """Commit. Raises TransactionEnded after a conflict, and TransactionError for an aborted transaction."""
        async with self._calls:
            self._refuse_over()
            try:
                if self._is_aborted:
                    raise rolled_back_instead()
                if self._client is not None:
                    self._client.spent = True  # Until it is known to have committed.
                    await self._client.commit()
                    self._client.spent = False
                    self._client = None
            except Conflict as error:
                raise conflict_error() from error
            finally:
                await self._close(over_error())

    async def rollback(self) -> None:
        """Undo everything."""
        async with self._calls:
            await self._close(over_error())

    def abandon(self) -> None:
        """Roll it back soon, in its own event loop."""
        self._is_abandoned = True
        if self._loop is not None:
            with contextlib.suppress(RuntimeError):  # A closed loop has closed its connections.
                self._loop.call_soon_threadsafe(self._expire, over_error())

    async def _control(self, sql: str) -> None:
        async def run(client: StatementLink) -> None:
            with translate_user_errors(writing=False):
                await client.driver.execute(sql, timeout=self._limit_s)

        await self._call(run, ends_abort=sql.startswith("ROLLBACK"))

    async def _call(self, call: Callable[[StatementLink], Awaitable[ResultT]], *, ends_abort: bool = False) -> ResultT:
        async with self._calls:
            self._refuse_over()
            if self._is_aborted and not ends_abort:
                raise aborted_error()
            client = self._client or await self._opened()
            try:
                answer = await call(client)
            except Conflict as error:
                await self._close(conflict_error())
                raise conflict_error() from error
            except TransactionError:
                self._is_aborted = True
                raise
            except BaseException:
                client.spent = True  # The statement may still be under way.
                await self._close(over_error())
                raise
            self._is_aborted = False
            return answer

    async def _opened(self) -> StatementLink:
        client = await self._stack.enter_async_context(self._connect())
        try:
            await self._begin(client)
        except BaseException:
            await client.rollback()
            await self._stack.aclose()
            raise
        self._client, self._loop = client, asyncio.get_running_loop()
        self._timer = self._loop.call_later(self._limit_s, self._expire, timed_out_error(self._limit_s))
        return client

    def _refuse_over(self) -> None:
        if self._end_error is not None:
            raise copy_error(self._end_error)
        if self._is_abandoned:
            raise over_error()

    def _expire(self, error: TransactionError) -> None:
        async def expire() -> None:
            async with self._calls:
                await self._close(error)

        task = asyncio.ensure_future(expire())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _close(self, error: TransactionError) -> None:
        if self._end_error is not None:
            return
        self._end_error = error
        if self._timer is not None:
            self._timer.cancel()
        client, self._client = self._client, None
        if client is not None and not client.spent:
            await client.rollback()
        await self._stack.aclose()


def conflict_error() -> TransactionEnded:
    """Return the error for an interactive transaction that PostgreSQL has undone because of another one."""
    return TransactionEnded(
        "the transaction met another one and was rolled back by PostgreSQL.",
        why="It is SERIALIZABLE: of two that read and change the same rows only one can win.",
        fix="Repeat the transaction; `transact` does so by itself.",
    )


def not_a_lane() -> BadUsage:
    """Return the error for a look at the catalog of a database that is not on a lane."""
    return BadUsage(
        "the database is on PostgreSQL, whose catalog Interlock does not describe.",
        fix="Read information_schema or pg_catalog, or connect with PostgreSQL's own driver.",
    )
