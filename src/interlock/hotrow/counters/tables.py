"""The tables of counters: created when they are first needed, and not checked again while the database is open.

They are looked for first: CREATE needs rights that reading does not, and on PostgreSQL takes a lock that stops all
writers. Of two processes that create the same table concurrently on PostgreSQL, one can fail although it says IF NOT
EXISTS: that one looks again.
"""

from collections.abc import Sequence
from functools import partial
from typing import Final, Literal
from weakref import WeakSet

from interlock.errors import TransactionError
from interlock.hotrow.counters import statements
from interlock.hotrow.counters.once import Once
from interlock.sql.executor import Executor, Statements

Part = Literal["counter", "shard"]

ATTEMPTS_MAX: Final = 5
"""Each failed attempt means that another process has succeeded, or that none ever will."""

_TABLES: Final[dict[Part, Sequence[str]]] = {
    "counter": statements.COUNTER_TABLES,
    "shard": statements.SHARD_TABLES,
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
