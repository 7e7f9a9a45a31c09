"""Where databases live, as the suite of hot rows sees it: a test opens one at a place and knows nothing else of it.

The same tests run in memory, on local files, on a bucket in memory and on a real PostgreSQL. Kinds that keep nothing
after closing are left out where a test opens twice: those tests ask for `kept` instead of `place`.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from interlock.clock import Clock
from interlock.database.database import Database

ResultT = TypeVar("ResultT")

KEPT = ("local", "bucket", "postgres")
KINDS = ("memory", *KEPT)

LEASE_S = 600.0
"""No test is about the lease of a bucket, and none may depend on how fast this machine is."""

PATIENCE_S = 600.0
"""A test that waits longer than this hangs: it fails instead. No test is meant to come near it."""


class Place(NamedTuple):
    """Gives every name in a test an address of its own, and buckets a folder for local files."""

    kind: str
    folder: Path
    url: Callable[[str], str]

    @asynccontextmanager
    async def opened(
        self, name: str = "x", *, clock: Clock | None = None, **settings: float
    ) -> AsyncIterator[Database]:
        """An open database here."""
        chosen = {"lease_s": LEASE_S} | settings
        opening = Database.open(
            self.url(name), home=None, clock=clock, hand_off=None, cache=str(self.folder), tool=None, **chosen
        )
        async with opening as db:
            yield db


def run(scenario: Callable[[], Coroutine[Any, Any, ResultT]]) -> ResultT:
    """Run an async scenario to its end."""

    async def main() -> ResultT:
        async with asyncio.timeout(PATIENCE_S):
            return await scenario()

    return asyncio.run(main())
