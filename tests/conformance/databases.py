"""The third engine of the dialect's conformance suite: a `Database`, as a user has it, in memory or in a file.

Nothing here knows of translation, so the lane's authorizer, its readers and its errors are all in the way. A statement
runs twice: once by `tx.execute` in a transaction that is taken back, which tells how many rows it changed or found, and
once by `query`, which tells its rows. Both must end the same way. A statement that may move a sequence runs once.
"""

import asyncio
import re
from collections.abc import Sequence
from types import TracebackType
from typing import Self

from interlock import Database
from interlock.database.transactions import Transaction
from interlock.errors import ConstraintViolation, DialectError, TransactionError
from interlock.sql.stored_values import Row
from tests.conformance.engines import Outcome

_MOVES_SEQUENCES = re.compile(r"^\s*INSERT\b|\b(next|set)val\(|= DEFAULT\b|^ALTER TABLE .* serial\b", re.IGNORECASE)


class _TakenBack(Exception):
    """How the first run of a statement is ended."""


class Public:
    """An open database, driven from synchronous tests."""

    def __init__(self, loop: asyncio.AbstractEventLoop, url: str) -> None:
        self.loop = loop
        self.database = loop.run_until_complete(Database.open(url).opened())

    def run(self, sql: str, args: Sequence[object] = ()) -> Outcome:
        """Run one statement; only the errors that are promised count as outcomes, every other one is raised."""
        return self.loop.run_until_complete(self._run(sql, args))

    async def _run(self, sql: str, args: Sequence[object]) -> Outcome:
        count: int | None
        rows: list[Row]
        if _MOVES_SEQUENCES.search(sql):
            # What is taken back keeps the numbers that a sequence gave, so this runs once.
            if sql.lstrip().upper().startswith("INSERT") and "RETURNING" not in sql.upper():
                rows, (count, second) = [], await self._executed(sql, args)
            else:
                (rows, second), count = await self._queried(sql, args), None
        else:
            count, first = await self._counted(sql, args)
            rows, second = await self._queried(sql, args)
            assert type(first) is type(second), f"execute: {first!r}, query: {second!r}"
        if second is None:
            names = rows[0]._fields if rows else ()
            return Outcome(tuple(map(tuple, rows)), names, changed=count)
        return Outcome(
            failed=True,
            error=str(second),
            refused=isinstance(second, DialectError),
            violated=isinstance(second, ConstraintViolation),
        )

    async def _executed(self, sql: str, args: Sequence[object]) -> tuple[int, Exception | None]:
        try:
            return await self.database.execute(sql, *args), None
        except (TransactionError, DialectError) as error:
            return -1, error

    async def _queried(self, sql: str, args: Sequence[object]) -> tuple[list[Row], Exception | None]:
        try:
            return await self.database.query(sql, *args), None
        except (TransactionError, DialectError) as error:
            return [], error

    async def _counted(self, sql: str, args: Sequence[object]) -> tuple[int, Exception | None]:
        count = -1

        async def work(tx: Transaction) -> None:
            nonlocal count
            try:
                count = await tx.execute(sql, *args)
            except (TransactionError, DialectError):
                raise
            except Exception as error:
                raise AssertionError(f"a foreign exception inside transact: {error!r}") from error
            raise _TakenBack

        try:
            await self.database.transact(work)
        except _TakenBack:
            return count, None
        except (TransactionError, DialectError) as error:
            return count, error
        raise AssertionError("a transaction that raised was kept")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.loop.run_until_complete(self.database.close())


def public_view(outcome: Outcome, sql: str) -> Outcome:
    """What of an outcome on PostgreSQL a user of `Database` can see: no declared types, no names without rows."""
    changes_nothing = sql.lstrip().upper().startswith(("CREATE", "ALTER", "DROP"))
    changed = outcome.changed if outcome.failed or not changes_nothing else 0
    if outcome.changed is None and not outcome.failed and not changes_nothing:
        changed = len(outcome.rows)
    return Outcome(
        outcome.rows,
        outcome.names if outcome.rows else (),
        changed=changed,
        failed=outcome.failed,
        error=outcome.error,
        violated=outcome.violated,
    )
