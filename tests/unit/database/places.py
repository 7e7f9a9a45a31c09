"""Places that a database may live at, without any of them: each is left, away or slow when a test says so."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

import apsw
import pytest

from interlock.clock import Clock, SystemClock
from interlock.database.database import Database, FoundDatabase, Hop, Opening
from interlock.database.lane_engine import OnLane
from interlock.database.transactions import EngineTransaction
from interlock.errors import InterlockError, MovedElsewhere, UnavailableError
from interlock.lanes.hot_rows import HotRow
from interlock.lanes.lane import LaneStats
from interlock.lanes.lane_settings import LaneSettings
from interlock.sql.stored_values import Answer, EngineName, Row


@dataclass
class Gate:
    """Holds up whoever opens a place. Of the event loop that opens it."""

    asked: asyncio.Event = field(default_factory=asyncio.Event)
    open: asyncio.Event = field(default_factory=asyncio.Event)


@dataclass(eq=False)
class Here:
    """An engine at one place, and the databases below it: none."""

    url: str
    name: EngineName = "postgres"
    settings: LaneSettings = field(default_factory=LaneSettings)
    clock: Clock = field(default_factory=SystemClock)
    error: InterlockError | None = None
    """What every call raises."""
    opening: InterlockError | None = None
    """What opening it raises."""
    first: list[InterlockError] = field(default_factory=list)
    """What the first openings raise instead."""
    gate: "Gate | None" = None
    """What opening it waits for."""
    hops: list[Hop] = field(default_factory=list)
    """How it was opened, each time."""
    calls: list[tuple[str, object, tuple[object, ...], str | None]] = field(default_factory=list)
    closed: int = 0

    def leave(self, url: str, epoch: int) -> None:
        """From now on everything lives elsewhere."""
        self.error = self.opening = left_for(url, epoch)

    async def execute(self, sql: str, args: tuple[object, ...], key: str | None) -> int:
        return await self._called("execute", sql, args, key)

    async def query(self, sql: str, args: tuple[object, ...], key: str | None) -> list[Row]:
        await self._called("query", sql, args, key)
        return []

    async def transact(self, function: Callable[..., object], args: tuple[object, ...], key: str | None) -> object:
        return await self._called("transact", function, args, key)

    async def run(self, sql: str, args: tuple[object, ...]) -> Answer:
        return Answer([], await self._called("run", sql, args, None))

    async def inspect(self, look: Callable[[apsw.Connection], object]) -> object:
        return await self._called("inspect", look, (), None)

    def begin(self, *, read_only: bool) -> EngineTransaction:
        raise AssertionError("no transaction is asked for")

    def hot_rows(self) -> list[HotRow]:
        return []

    async def has_shards_beside(self) -> bool:
        return False

    def stats(self) -> LaneStats:
        done = len(self.calls)
        return LaneStats(
            groups=done, transactions=done, failed=0, waiting=0, largest_group=1, log_bytes=0, folds_failed=0
        )

    async def get(self, key: str) -> Database:
        raise AssertionError(f"no stream is asked for, but {key}")

    def at(self, engine: OnLane) -> "Here":
        raise AssertionError(f"no lane is opened again, but {engine.url}")

    async def close(self) -> None:
        self.closed += 1
        self.error = self.error or UnavailableError("the store or database is closed.")

    async def _called(self, call: str, what: object, args: tuple[object, ...], key: str | None) -> int:
        await asyncio.sleep(0)
        if self.error is not None:
            raise self.error
        self.calls.append((call, what, args, key))
        return len(self.calls)


def left_for(url: str, epoch: int) -> MovedElsewhere:
    """What a place says that was left."""
    return MovedElsewhere(f"it lives at {url} since move {epoch}.", url=url, epoch=epoch)


class Places:
    """All of them, by address. Opening takes the place of that of a lane or PostgreSQL."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.known: dict[str, Here] = {}
        patch.setattr(Opening, "_open", self._opener())

    def __getitem__(self, url: str) -> Here:
        return self.known.setdefault(url, Here(url))

    def _opener(self) -> Callable[[Opening, Hop], Awaitable[FoundDatabase]]:
        async def opened(opening: Opening, hop: Hop) -> FoundDatabase:
            here = self[hop.url]
            here.hops.append(hop)
            if here.gate is not None:
                here.gate.asked.set()
                await here.gate.open.wait()
            await asyncio.sleep(0)
            refused = here.first.pop(0) if here.first else here.opening
            if refused is not None:
                raise refused
            return FoundDatabase(here, here, hop, opening)

        return opened
