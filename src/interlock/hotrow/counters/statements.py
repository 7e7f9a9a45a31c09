"""The tables of counters and their SQL: ordinary tables in the user's own database, created when first needed.

A counter is one row of `hotrow_counter`, up to `shard_count` rows of `hotrow_counter_shard`, the rows of
`hotrow_counter_event` that were not rolled up yet, and one row of `hotrow_counter_snapshot` for those that were. Its
value is always the sum of them, so every add may choose its form by itself. Every add is one statement that changes
exactly one row. Roll-ups have a row of their own, because concurrent adds to the counter's row would starve them.
"""

import asyncio
from collections.abc import Callable, Coroutine, Hashable, Sequence
from decimal import Decimal
from functools import partial
from typing import Any, Final, Generic, Literal, TypeVar
from weakref import WeakSet

from interlock.errors import TransactionError
from interlock.sql.values import Executor, Statements

# --- SQL -------------------------------------------------------------------------------------------------------------

COUNTER_TABLES: Final = (
    # `n` counts exact adds. `shard_count` is 0 until the first shard is written. `keyed` and
    # `keyed_shard_count` say where adds with a key go; they never change, or a retry could count twice (D5).
    """CREATE TABLE IF NOT EXISTS hotrow_counter (
        name text PRIMARY KEY,
        n bigint NOT NULL DEFAULT 0,
        shard_count integer NOT NULL DEFAULT 0,
        keyed text NOT NULL DEFAULT 'sharded',
        keyed_shard_count integer NOT NULL DEFAULT 16
    )""",
    """CREATE TABLE IF NOT EXISTS hotrow_counter_event (
        id bigserial PRIMARY KEY,
        name text NOT NULL,
        delta bigint NOT NULL
    )""",
    """CREATE TABLE IF NOT EXISTS hotrow_counter_snapshot (
        name text PRIMARY KEY,
        n bigint NOT NULL
    )""",
    "CREATE INDEX IF NOT EXISTS hotrow_counter_event_name ON hotrow_counter_event (name, id)",
)

SHARD_TABLES: Final = (
    """CREATE TABLE IF NOT EXISTS hotrow_counter_shard (
        name text NOT NULL,
        shard integer NOT NULL,
        n bigint NOT NULL,
        PRIMARY KEY (name, shard)
    )""",
)

# The header of a counter; no row when it does not exist.
HEADER: Final = "SELECT keyed, keyed_shard_count, shard_count FROM hotrow_counter WHERE name = $1"

# Create it. Of several concurrent calls, the first decides.
MAKE: Final = (
    "INSERT INTO hotrow_counter (name, keyed, keyed_shard_count) VALUES ($1, $2, $3) ON CONFLICT (name) DO NOTHING"
)

# Shards up to this one may hold something from now on. Committed before the first of them is written.
WIDEN: Final = "UPDATE hotrow_counter SET shard_count = $2 WHERE name = $1 AND shard_count < $2"

# Add to the row itself.
ADD: Final = (
    "INSERT INTO hotrow_counter (name, n) VALUES ($1, $2) "
    "ON CONFLICT (name) DO UPDATE SET n = hotrow_counter.n + excluded.n"
)

# Add to one shard, which the caller has chosen: a random() in WHERE would be another one for every row (D5).
ADD_SHARD: Final = (
    "INSERT INTO hotrow_counter_shard (name, shard, n) VALUES ($1, $2, $3) "
    "ON CONFLICT (name, shard) DO UPDATE SET n = hotrow_counter_shard.n + excluded.n"
)

# Add to the log.
APPEND: Final = "INSERT INTO hotrow_counter_event (name, delta) VALUES ($1, $2)"

# Take the oldest entries out of the log. It returns exactly the rows that it deletes: ids are not committed in their
# order on PostgreSQL, so "all up to the largest" may delete an entry that was not read.
TAKE: Final = (
    "DELETE FROM hotrow_counter_event WHERE id IN "
    "(SELECT id FROM hotrow_counter_event WHERE name = $1 ORDER BY id LIMIT $2) RETURNING delta"
)

# Keep what was taken out of the log, in the same transaction.
SNAP: Final = (
    "INSERT INTO hotrow_counter_snapshot (name, n) VALUES ($1, $2) "
    "ON CONFLICT (name) DO UPDATE SET n = hotrow_counter_snapshot.n + excluded.n"
)

# The snapshot and the log in one statement: in two of them a roll-up in between would count twice, or not at all.
VALUE: Final = (
    "SELECT c.shard_count, c.n, "
    "(SELECT coalesce(sum(s.n), 0) FROM hotrow_counter_snapshot s WHERE s.name = $1) AS snapshot, "
    "(SELECT coalesce(sum(e.delta), 0) FROM hotrow_counter_event e WHERE e.name = $1) AS tail "
    "FROM hotrow_counter c WHERE c.name = $1"
)

# The shards that live in this database.
SHARDS: Final = "SELECT shard, n FROM hotrow_counter_shard WHERE name = $1"


# --- Deduplication of concurrent calls -------------------------------------------------------------------------------
# A burst on a new counter would otherwise create its tables a hundred times. A cancelled caller does not cancel the
# work.

ResultT = TypeVar("ResultT")


class Once(Generic[ResultT]):
    """The running calls of this process, by event loop and key."""

    def __init__(self) -> None:
        self._under_way: dict[tuple[asyncio.AbstractEventLoop, Hashable], asyncio.Task[ResultT]] = {}

    async def do(self, what: Hashable, function: Callable[[], Coroutine[Any, Any, ResultT]]) -> ResultT:
        """Return the function's result, called by this caller or by a concurrent one in the same event loop."""
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            # A function passed to `transact` runs outside of any loop; the statement that it calls raises the error.
            return await function()
        # A task can only be awaited in its own event loop, and a database may be used from several.
        place = loop, what
        task = self._under_way.get(place)
        if task is None:
            task = self._under_way[place] = asyncio.create_task(function())
            task.add_done_callback(lambda _: self._under_way.pop(place, None))
        return await asyncio.shield(task)


# --- Creation of the tables ------------------------------------------------------------------------------------------
# They are looked for first: CREATE needs rights that reading does not, and on PostgreSQL takes a lock that stops all
# writers. Of two processes that create the same table concurrently on PostgreSQL, one can fail although it says IF
# NOT EXISTS: that one looks again.

Part = Literal["counter", "shard"]

ATTEMPTS_MAX: Final = 5
"""Each failed attempt means that another process has succeeded, or that none ever will."""

_TABLES: Final[dict[Part, Sequence[str]]] = {
    "counter": COUNTER_TABLES,
    "shard": SHARD_TABLES,
}

_LOOK: Final[dict[Part, str]] = {
    # The tables of a part are made in one transaction: one of them stands for all.
    "counter": "SELECT 1 FROM hotrow_counter LIMIT 1",
    "shard": "SELECT 1 FROM hotrow_counter_shard LIMIT 1",
}


class Tables:
    """The databases that are known to have the tables."""

    def __init__(self) -> None:
        self._ready: dict[Part, WeakSet[Executor]] = {"counter": WeakSet(), "shard": WeakSet()}
        self._making: Once[None] = Once()

    async def need(self, executor: Executor, part: Part) -> None:
        """Create the tables of this part in this database, if they are missing."""
        ready = self._ready[part]
        if executor not in ready:
            await self._making.do((part, id(executor)), partial(_make, executor, part))
            ready.add(executor)


async def _make(executor: Executor, part: Part) -> None:
    for attempt in range(1, ATTEMPTS_MAX + 1):
        if await _is_there(executor, part):
            return
        try:
            await executor.transact(_define, _TABLES[part])
        except TransactionError:
            if attempt == ATTEMPTS_MAX:
                raise
        else:
            return


async def _is_there(executor: Executor, part: Part) -> bool:
    try:
        await executor.query(_LOOK[part])
    except TransactionError:
        return False
    return True


async def _define(tx: Statements, tables: Sequence[str]) -> None:
    for sql in tables:
        await tx.execute(sql)


# --- Amounts ---------------------------------------------------------------------------------------------------------

AMOUNT_MAX: Final = 2**63 - 1


def refuse_amount(amount: object) -> None:
    """Raise ValueError for an amount that is not a whole number, is 0, or is more than a `bigint` holds."""
    if isinstance(amount, int) and not isinstance(amount, bool) and amount and abs(amount) <= AMOUNT_MAX:
        return
    raise ValueError(
        f"{amount!r} cannot be added to a counter; a whole number from 1 to {AMOUNT_MAX} can, or its negative.\n"
        "  why: A counter is the exact sum of what was added, in a column of 64 bits. Nothing is added by 0.\n"
        "  fix: Add a whole number, and leave the call out when there is nothing to add."
    )


def whole(stored: object) -> int:
    """Return a number of the database as an int: a sum of bigint is a numeric."""
    assert isinstance(stored, int | Decimal)
    return int(stored)
