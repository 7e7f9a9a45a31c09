"""The third engine of the dialect's conformance suite: a `Database`, as a user has it, in memory or in a file.

Nothing here knows of translation, so the lane's authorizer, its readers and its errors are all in the way. A statement
runs twice: once by `tx.execute` in a transaction that is taken back, which tells how many rows it changed or found, and
once by `query`, which tells its rows. Both must end the same way.
"""

import asyncio
from collections.abc import Sequence
from types import TracebackType
from typing import Self

from interlock import Database
from interlock.database.transactions import Transaction
from interlock.errors import ConstraintViolation, DialectError, TransactionError
from tests.conformance.engines import Outcome


class _TakenBack(Exception):  # noqa: N818 - it is how a transaction is ended, not something that went wrong
    pass


class Public:
    """An open database, driven from synchronous tests."""

    def __init__(self, loop: asyncio.AbstractEventLoop, url: str) -> None:
        self.loop = loop
        self.database = loop.run_until_complete(Database.open(url).opened())

    def run(self, sql: str, args: Sequence[object] = ()) -> Outcome:
        """Run one statement; only the errors that are promised count as outcomes, every other one is raised."""
        return self.loop.run_until_complete(self._run(sql, args))

    async def _run(self, sql: str, args: Sequence[object]) -> Outcome:
        count, first = await self._counted(sql, args)
        try:
            rows = await self.database.query(sql, *args)
        except (TransactionError, DialectError) as error:
            assert type(first) is type(error), f"execute: {first!r}, query: {error!r}"
            return Outcome(
                failed=True,
                error=str(error),
                refused=isinstance(error, DialectError),
                violated=isinstance(error, ConstraintViolation),
            )
        assert first is None, f"execute: {first!r}, query: {rows!r}"
        names = rows[0]._fields if rows else ()
        return Outcome(tuple(map(tuple, rows)), names, changed=count)

    async def _counted(self, sql: str, args: Sequence[object]) -> tuple[int, Exception | None]:
        count = -1

        async def work(tx: Transaction) -> None:
            nonlocal count
            count = await tx.execute(sql, *args)
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
