"""Reads of single workflows, gathered: whoever asks while a question is under way is part of the next one.

`get` and `wait` never answer from memory on a shared store, so each of them asks the database. One by one they would
take a connection each; together they are a few questions, however many ask.
"""

import asyncio

from interlock.store.shared import SharedStore
from interlock.store.values import Row

ASKED_MAX = 1_000
"""Workflows in one question."""


class Reads:
    """Asks for rows."""

    def __init__(self, store: SharedStore) -> None:
        self._store = store
        self._loop = asyncio.get_running_loop()
        self._asked: dict[str, asyncio.Future[Row | None]] = {}
        self._task: asyncio.Task[None] | None = None

    async def row(self, workflow: str) -> Row | None:
        """The row as it is in the store at some moment after this was asked."""
        future = self._asked.get(workflow)
        if future is None:
            future = self._asked[workflow] = self._loop.create_future()
            if self._task is None:
                self._task = self._loop.create_task(self._run())
        return await asyncio.shield(future)

    async def _run(self) -> None:
        try:
            await asyncio.sleep(0)  # Whatever this turn of the event loop asks is one question.
            while self._asked:
                names = list(self._asked)[:ASKED_MAX]
                asked = {each: self._asked.pop(each) for each in names}
                try:
                    rows = await self._store.load(names)
                except BaseException as error:
                    _fail(asked, error)
                    if not isinstance(error, Exception):
                        raise
                else:
                    for workflow, future in asked.items():
                        future.set_result(rows.get(workflow))
        finally:
            self._task = None


def _fail(asked: dict[str, "asyncio.Future[Row | None]"], error: BaseException) -> None:
    for future in asked.values():
        if isinstance(error, Exception):
            future.set_exception(error)
            future.exception()  # Whoever asked may be gone.
        else:
            future.cancel()
