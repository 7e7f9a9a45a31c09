"""The source of a move on a local disk, read while an engine of this or another process serves its workflows.

The mover does not talk to that engine. Triggers in the file record its changes, and it waits for the seal as for any
other lock on the file.
"""

import contextlib
from collections.abc import AsyncGenerator, Mapping, Sequence
from pathlib import Path

from interlock.catalog.addresses import lane_path
from interlock.errors import UnavailableError
from interlock.lanes.leaving import Leaving, Seal, tombstone_of
from interlock.lanes.notes import watched
from interlock.lanes.ownership import owner_of
from interlock.seams import Clock
from interlock.store.holding import HELD_US
from interlock.store.moving.apart import Apart
from interlock.store.moving.origin import Left, Touched, no_workflows
from interlock.store.moving.source import Source

SEAL_WAIT_S = 5.0
"""Longest wait of the mover for the group that is being written."""


class LocalSeal:
    """The lane's writer waits."""

    def __init__(self, seal: Seal, apart: Apart) -> None:
        self.source = Source(seal.connection)
        self._seal = seal
        self._apart = apart

    async def leave(self, url: str, epoch: int) -> None:
        """Write the tombstone."""
        await self._apart(self._seal.leave, url, epoch)


class LocalOrigin:
    """A second connection to the lane's file."""

    def __init__(self, leaving: Leaving, apart: Apart) -> None:
        self.source = Source(leaving.connection)
        self._leaving = leaving
        self._apart = apart

    @staticmethod
    @contextlib.asynccontextmanager
    async def opened(home: str, apart: Apart, clock: Clock) -> AsyncGenerator["LocalOrigin"]:
        """Connect to the workflows of a home."""
        path = lane_path(f"{home.rstrip('/')}/workflows")
        if path is None or not path.exists():
            raise no_workflows(home)
        leaving = await apart(_leaving, path, clock)
        try:
            origin = LocalOrigin(leaving, apart)
            if await apart(origin.source.time_us) is None:
                raise no_workflows(home)
            yield origin
        finally:
            await apart(leaving.close)

    async def left(self) -> Left | None:
        """The tombstone of the lane."""
        stone = await self._apart(tombstone_of, self._leaving.connection)
        return None if stone is None else Left(stone.url, stone.epoch)

    async def watch(self, tables: Mapping[str, Sequence[str]]) -> None:
        """Have triggers note what is written."""
        await self._apart(self._leaving.watch, tables)

    async def touched(self, after: int, limit: int) -> list[Touched]:
        """Return the recorded changes. Raises UnavailableError when the triggers were removed: some may be missing."""
        return await self._apart(self._touched, after, limit)

    def _touched(self, after: int, limit: int) -> list[Touched]:
        found = self._leaving.touched(after, limit)
        if not found and not watched(self._leaving.connection):
            raise UnavailableError(
                f"nothing notes any more what is written to {self._leaving.path}.",
                why="Another process has taken the move back. Nothing has moved.",
                fix="Run the same again if it shall go on: it compares everything that is there already.",
            )
        return found

    async def forget(self, upto: int) -> None:
        """Notes up to this one are not needed any more."""
        await self._apart(self._leaving.forget, upto)

    async def forget_all(self) -> None:
        """Triggers and notes go."""
        await self._apart(self._leaving.unwatch)

    @contextlib.asynccontextmanager
    async def sealed(self) -> AsyncGenerator[LocalSeal]:
        """Hold SQLite's lock for writing."""
        sealed = self._leaving.sealed(SEAL_WAIT_S)
        seal = await self._apart(sealed.__enter__)
        try:
            yield LocalSeal(seal, self._apart)
        except BaseException as error:
            await self._apart(sealed.__exit__, type(error), error, error.__traceback__)
            raise
        await self._apart(sealed.__exit__, None, None, None)

    async def held_us(self) -> int:
        """Return how long an attempt of an engine that does not know of the move may still run, in microseconds."""
        return HELD_US if await self._apart(owner_of, self._leaving.path) is not None else 0


def _leaving(path: Path, clock: Clock) -> Leaving:
    return Leaving(path, clock=clock, prepare=lambda _connection, _now_us: None)
