"""A database with somebody at work in it: cut off inside a transaction, or busy between any two calls of another."""

from collections.abc import Awaitable, Callable
from typing import TypeVar

from interlock.sql.stored_values import EngineName, Executor, Row, Statements

ResultT = TypeVar("ResultT")


class Meddled:
    """Passes everything on, until it is told what to do instead or in between."""

    def __init__(self, db: Executor) -> None:
        self._db = db
        self.fail_at: int | None = None
        """The first statement of a transaction is 1; it does not run, and nor does what follows."""
        self.between: Callable[[], Awaitable[object]] | None = None
        """What happens before each query."""

    @property
    def url(self) -> str:
        return self._db.url

    @property
    def engine(self) -> EngineName:
        return self._db.engine

    def execute(self, sql: str, /, *args: object, key: str | None = None) -> Awaitable[int]:
        return self._db.execute(sql, *args, key=key)

    async def query(self, sql: str, /, *args: object, key: str | None = None) -> list[Row]:
        if self.between is not None:
            await self.between()
        return await self._db.query(sql, *args, key=key)

    def transact(
        self, function: Callable[..., Awaitable[ResultT]], /, *args: object, key: str | None = None
    ) -> Awaitable[ResultT]:
        def failing(tx: Statements, *given: object) -> Awaitable[ResultT]:
            return function(_Transaction(tx, self.fail_at), *given)

        return self._db.transact(failing, *args, key=key)

    def shard(self, number: int) -> Awaitable[Executor]:
        return self._db.shard(number)


class _Transaction:
    def __init__(self, tx: Statements, fail_at: int | None) -> None:
        self._tx = tx
        self._fail_at = fail_at
        self._statements = 0

    def execute(self, sql: str, /, *args: object) -> Awaitable[int]:
        self._count()
        return self._tx.execute(sql, *args)

    def query(self, sql: str, /, *args: object) -> Awaitable[list[Row]]:
        self._count()
        return self._tx.query(sql, *args)

    def _count(self) -> None:
        self._statements += 1
        if self._statements == self._fail_at:
            raise ConnectionAbortedError("the test cuts the transaction here")
