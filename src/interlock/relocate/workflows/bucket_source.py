"""The source of a move in a bucket, read while an engine on any host serves its workflows.

The mover follows the log in a file of its own. Changes are not recorded, so after each step forward everything is
scanned (see `Scanning`). The seal is a takeover: the previous owner can never acknowledge again, and must open the lane
anew. When the mover dies before its tombstone is durable, that engine finds everything unchanged.
"""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# apsw's stubs leave the values of SQLite partly open; mypy --strict looks at what is ours.

import asyncio
import contextlib
import math
import tempfile
from collections.abc import AsyncGenerator, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

import apsw

from interlock.catalog.open_lane import closing_thread, open_in_thread
from interlock.clock import Clock
from interlock.errors import TargetNotFound
from interlock.lanes.handover import Tombstone, tombstone_of
from interlock.lanes.lane import Lane
from interlock.lanes.objectlog.log import bucket_of
from interlock.lanes.objectlog.manifest import read_manifest
from interlock.lanes.objectlog.mover_copy import BucketCopy, hurry, note_left, take_over, unhurry
from interlock.lanes.settings import LaneSettings
from interlock.relocate.workflows.canonical import digest_of
from interlock.relocate.workflows.lane_source import SOURCE_ASIDE, Apart, Left, Source, Touched, no_workflows
from interlock.urls import parse_bucket_url

# --- Scans -----------------------------------------------------------------------------------------------------------
# A copy of a lane in a bucket is brought forward page by page, without a record of the written rows. But every write
# of a workflow increments its revision, and history is identified by its first and last version and its number of
# rows, which a pruning changes. The other tables are small and compared as a whole. So a scan reads all workflows
# and an index over history, a third of a second for a hundred thousand of them.

KeyT = TypeVar("KeyT")

CHUNK = 1_000


class Scanning:
    """The state of a store at its last scan."""

    def __init__(self) -> None:
        self._workflows: dict[int, int] = {}
        self._aside: dict[str, dict[str, int]] = {table: {} for table in SOURCE_ASIDE}
        self._last_number = 0

    def look(self, source: Source) -> list[Touched]:
        """Return changed and removed rows as notes, numbered on from the last scan."""
        with source.moment():
            workflows = _workflows(source)
            changed: list[tuple[str, object]] = [("workflows", key) for key in _changed(self._workflows, workflows)]
            self._workflows = workflows
            for table in SOURCE_ASIDE:
                found = _aside(source, table)
                changed += [(table, key) for key in _changed(self._aside[table], found)]
                self._aside[table] = found
        notes: list[Touched] = [(self._last_number + at, table, (key,)) for at, (table, key) in enumerate(changed, 1)]
        self._last_number += len(notes)
        return notes


def _workflows(source: Source) -> dict[int, int]:
    spans = source.all_spans()
    return {number: hash((revision, spans.get(number))) for number, revision in source.revisions()}


def _aside(source: Source, table: str) -> dict[str, int]:
    found: dict[str, int] = {}
    after = ""
    while keys := source.keys_aside(table, after, CHUNK):
        found |= {key: digest_of(value) for key, value in source.aside(table, keys).items()}
        after = keys[-1]
    return found


def _changed(before: Mapping[KeyT, int], now: Mapping[KeyT, int]) -> list[KeyT]:
    return [
        *(key for key, value in now.items() if before.get(key) != value),
        *(key for key in before if key not in now),
    ]


# --- Source ----------------------------------------------------------------------------------------------------------

HELD_US = 11_000_000
"""An engine at a bucket looks every ten seconds whether its workflows are still there: each look costs a request."""


class BucketSeal:
    """The mover owns the lane."""

    def __init__(self, source: Source, lane: Lane, url: str, apart: Apart, clock: Clock) -> None:
        self.source = source
        self._lane = lane
        self._url = url
        self._apart = apart
        self._clock = clock

    async def leave(self, url: str, epoch: int) -> None:
        """Write the tombstone as the last transaction of the lane."""
        stone = Tombstone(url, epoch, int(self._clock.wall_s() * 1_000_000))
        await self._lane.leave(stone)
        await self._apart(lambda: note_left(self._url, stone, clock=self._clock))


class BucketOrigin:
    """A copy that follows the log."""

    def __init__(self, url: str, folder: Path, apart: Apart, clock: Clock) -> None:
        self._url = url
        self._apart = apart
        self._clock = clock
        self._copy = BucketCopy(url, folder, clock=clock, prepare=_as_it_is)
        self._copy.forward()
        self.source = Source(self._copy.connection())
        self._scanning = Scanning()
        self._notes: list[Touched] = []
        self._short_s = math.inf
        self._sealed = False

    @staticmethod
    @contextlib.asynccontextmanager
    async def opened(home: str, apart: Apart, clock: Clock) -> AsyncGenerator["BucketOrigin"]:
        """Copy the workflows of a home, and throw the copy away at the end."""
        folder, mark, options = home.partition("?")
        url = f"{folder.rstrip('/')}/workflows{mark}{options}"
        with tempfile.TemporaryDirectory(prefix="interlock-move-") as place:
            try:
                origin = await apart(BucketOrigin, url, Path(place), apart, clock)
            except TargetNotFound as error:
                raise no_workflows(home) from error
            try:
                if await apart(origin.source.time_us) is None:
                    raise no_workflows(home)
                yield origin
            finally:
                await origin.close()

    async def left(self) -> Left | None:
        """The tombstone in the log."""
        stone = await self._apart(lambda: tombstone_of(self._copy.connection()))
        return None if stone is None else Left(stone.url, stone.epoch)

    async def watch(self, tables: Mapping[str, Sequence[str]]) -> None:
        """Remember what there is; have the owner renew a short lease, so that the seal need not wait for a long one."""
        del tables
        await self._apart(self._scanning.look, self.source)
        self._short_s = (await self._apart(lambda: hurry(self._url, clock=self._clock))).short_s

    async def touched(self, after: int, limit: int) -> list[Touched]:
        """Return the changes since the last scan."""
        self._notes = [note for note in self._notes if note[0] > after]
        if not self._notes:
            self._notes = await self._apart(self._looked)
        return self._notes[:limit]

    def _looked(self) -> list[Touched]:
        if not self._sealed:
            self._copy.forward()
            self.source.use(self._copy.connection())
        return self._scanning.look(self.source)

    async def forget(self, upto: int) -> None:
        """Nothing was written down."""

    async def forget_all(self) -> None:
        """The lease is what it was."""
        await self._apart(lambda: unhurry(self._url, clock=self._clock))

    @contextlib.asynccontextmanager
    async def sealed(self) -> AsyncGenerator[BucketSeal]:
        """Take the lane over. It is given back at the end, left or not."""
        path = await self._apart(self._copy.keep)
        lane = await open_in_thread(
            lambda: take_over(
                self._url,
                path,
                settings=LaneSettings(),
                clock=self._clock,
                prepare=_as_it_is,
                short_s=self._short_s,
            )
        )
        try:
            connection = await self._apart(_beside, path)
            try:
                self._sealed = True
                self.source.use(connection)
                yield BucketSeal(self.source, lane, self._url, self._apart, self._clock)
            finally:
                await self._apart(connection.close)
        finally:
            await asyncio.wrap_future(closing_thread(lane.close))

    async def close(self) -> None:
        """Throw the copy away."""
        await self._apart(self._copy.close)

    async def held_us(self) -> int:
        """Return how long an attempt of an engine that does not know of the move may still run, in microseconds."""
        found = await self._apart(lambda: read_manifest(bucket_of(parse_bucket_url(self._url))))
        return 0 if found is None or found[0].owner is None else HELD_US


def _as_it_is(_connection: apsw.Connection, _now_us: object) -> None:
    """A store has no functions of its own."""


def _beside(path: Path) -> apsw.Connection:
    connection = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READWRITE)
    connection.execute("PRAGMA query_only = ON")
    return connection
