"""A store in memory that fails when it is told to, and engines on it."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import pytest

from interlock import Engine
from interlock.clock import SystemClock
from interlock.engine import open_engine as engine_open
from interlock.store.memory import MemoryStore
from interlock.store.records import Change
from tests.conformance.engine.places import AnyMachine, NoDelay


class FailingStore(MemoryStore):
    """Raises the next of its errors at each commit; None lets one pass."""

    def __init__(self) -> None:
        super().__init__(SystemClock())
        self.errors: list[Exception | None] = []
        self.lose: int = 0
        """So many commits are lost altogether, as if somebody else had been quicker."""
        self.commits = 0
        self.hot: list[int] = []
        """The versions of the workflow `hot`, as they were committed."""
        self.gate: asyncio.Event | None = None
        """Commits wait for it."""

    async def commit(self, changes: Sequence[Change]) -> list[str]:
        self.commits += 1
        self.hot += [change.row.version for change in changes if change.row.id == "hot"]
        if self.gate is not None:
            await self.gate.wait()
        error = self.errors.pop(0) if self.errors else None
        if error is not None:
            raise error
        if self.lose:
            self.lose -= 1
            return [change.row.id for change in changes]
        return await super().commit(changes)


@asynccontextmanager
async def engine_on(
    store: MemoryStore, *machines: AnyMachine, patch: pytest.MonkeyPatch, **settings: float
) -> AsyncIterator[Engine]:
    """An engine on this very store."""

    async def given(_url: str, **_options: object) -> MemoryStore:
        return store

    patch.setattr(engine_open, "open_store", given)
    async with Engine.open("memory:", machines=machines, chance=NoDelay(), **settings) as engine:  # type: ignore[arg-type]
        yield engine
