"""A guard over keys in memory, whose clock and whose disk a test moves."""

from typing import Self

from interlock.errors import UnavailableError
from interlock.server.security.guard import Guard
from interlock.server.security.keys import CreatedKey, Edit, KeyStore
from interlock.server.security.stores import MemoryDocument
from tests.unit.server.security.homes import StandingClock

HERE = {b"host": b"127.0.0.1:8000"}
"""The headers of a request from this machine."""


class Broken(MemoryDocument):
    """A document that cannot be read while `broken`."""

    broken = False
    reads = 0

    async def read(self) -> bytes | None:
        self.reads += 1
        if self.broken:
            raise UnavailableError("the disk is away.")
        return await super().read()

    async def change(self, edit: Edit) -> None:
        if self.broken:
            raise UnavailableError("the disk is away.")
        await super().change(edit)


class Gate:
    """A guard over keys in memory, and everything a test needs to move it."""

    def __init__(self, *created: CreatedKey) -> None:
        self.clock = StandingClock()
        self.document = Broken()
        self.store = KeyStore(self.document, "memory:")
        self.guard = Guard(self.store, clock=self.clock)
        self._created = created

    async def __aenter__(self) -> Self:
        for each in self._created:
            await self.store.add(each.record)
        await self.guard.fresh()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.guard.close()

    async def after(self, seconds: float) -> None:
        """So much later, as a request finds it."""
        self.clock.passed_s += seconds
        await self.guard.fresh()
