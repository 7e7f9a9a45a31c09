"""Batched reads of single workflows: reads that arrive during a query share the next one.

`get` and `wait` never answer from memory on a shared store, so each of them queries the database. One by one they would
take a connection each; together they are a few queries, for any number of callers.
"""

import asyncio

from interlock.store.shared import SharedStore
from interlock.store.values import Row

BATCH_MAX = 1_000
"""Workflows in one query."""


class Reads:
    """Batches the reads of rows."""

    def __init__(self, store: SharedStore) -> None:
        self._store = store
        self._loop = asyncio.get_running_loop()
        self._pending: dict[str, asyncio.Future[Row | None]] = {}
        self._task: asyncio.Task[None] | None = None

    async def row(self, workflow: str) -> Row | None:
        """Return the row as it is in the store at some moment after this call."""
        future = self._pending.get(workflow)
        if future is None:
            future = self._pending[workflow] = self._loop.create_future()
            if self._task is None:
                self._task = self._loop.create_task(self._run())
        return await asyncio.shield(future)

    async def _run(self) -> None:
        try:
            await asyncio.sleep(0)  # The reads of this turn of the event loop are one query.
            while self._pending:
                names = list(self._pending)[:BATCH_MAX]
                batch = {each: self._pending.pop(each) for each in names}
                try:
                    rows = await self._store.load(names)
                except BaseException as error:
                    _fail(batch, error)
                    if not isinstance(error, Exception):
                        raise
                else:
                    for workflow, future in batch.items():
                        future.set_result(rows.get(workflow))
        finally:
            self._task = None


def _fail(batch: dict[str, "asyncio.Future[Row | None]"], error: BaseException) -> None:
    for future in batch.values():
        if isinstance(error, Exception):
            future.set_exception(error)
            future.exception()  # The caller may have gone.
        else:
            future.cancel()
