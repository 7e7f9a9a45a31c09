"""Where lanes and databases live, as the suite of lanes sees it: it opens them at a place and knows nothing else of it.

The same tests run on local files, on a bucket in memory, and on buckets behind real HTTP.
"""

from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import NamedTuple

import pytest

from interlock.catalog.open_lane import place_of
from interlock.clock import Clock, SystemClock
from interlock.database.database import Database, Opening
from interlock.database.lane_engine import OnLane
from interlock.database.transactions import Transaction
from interlock.lanes.handover import Permission
from interlock.lanes.lane import Lane
from interlock.lanes.lane_settings import LaneSettings
from interlock.lanes.sqlite_connection import Prepare
from tests.unit.lanes import lanes

HTTP = ("seaweedfs", *(pytest.param(name, marks=pytest.mark.second_server) for name in ("moto", "azurite")))
KINDS = ("local", "bucket", *HTTP)
"""Local files, a bucket in memory, and servers."""

EVERYWHERE = pytest.mark.parametrize("place", ["memory", *KINDS], indirect=True)
"""For tests that never open the same database twice: also where nothing is kept."""

ON_LANES = pytest.mark.parametrize("place", KINDS, indirect=True)
"""For tests of a lane's own clock or writer, in files that are about `Database` everywhere."""

LEASE_S = 600.0
"""No test is about the lease, and none may depend on how fast this machine is."""


class Place(NamedTuple):
    """Gives every name in a test an address of its own, and buckets a folder for local files."""

    folder: Path
    url: Callable[[str], str]

    def path(self, name: str = "x") -> Path | None:
        """The local file of a lane; None for one in memory."""
        return place_of(self.url(name), settings=LaneSettings(), clock=SystemClock(), cache=str(self.folder)).path

    def database(self, name: str = "x", *, clock: Clock | None = None, **settings: float) -> Opening:
        """Open a database here."""
        chosen = {"lease_s": LEASE_S} | settings
        return Database.open(
            self.url(name), home=None, clock=clock, hand_off=None, cache=str(self.folder), tool=None, **chosen
        )


@contextmanager
def opened(
    place: Place,
    name: str = "x",
    *,
    clock: Clock | None = None,
    prepare: Prepare = lambda _connection, _now: None,
    permission: Permission = None,
    **knobs: float,
) -> Iterator[Lane]:
    """A lane at the place, without a `Database` around it."""
    clock, chosen = clock or SystemClock(), {"lease_s": LEASE_S} | knobs
    settings = LaneSettings(**chosen)  # type: ignore[arg-type]  # LaneSettings checks them itself.
    found = place_of(place.url(name), settings=settings, clock=clock, cache=str(place.folder))
    with lanes.opened(
        found.path,
        clock=clock,
        hand_off=None,
        open_log=found.open_log,
        vfs=None,
        prepare=prepare,
        permission=permission,
        **chosen,
    ) as lane:
        yield lane


@asynccontextmanager
async def counted(place: Place, name: str = "x", **settings: float) -> AsyncIterator[Database]:
    """A database with a counter at zero."""
    async with place.database(name, **settings) as db:  # type: ignore[arg-type]  # No clock among them.
        await db.execute("CREATE TABLE counter (id integer PRIMARY KEY, n integer NOT NULL CHECK (n >= 0))")
        await db.execute("INSERT INTO counter (id, n) VALUES (1, 0)")
        yield db


async def value(db: Database) -> object:
    """What the counter says."""
    [(n,)] = await db.query("SELECT n FROM counter WHERE id = 1")
    return n


async def add(tx: Transaction, amount: int = 1) -> int:
    """Count up the naive way: read, add, write."""
    [(n,)] = await tx.query("SELECT n FROM counter WHERE id = 1")
    assert isinstance(n, int)
    await tx.execute("UPDATE counter SET n = $1 WHERE id = 1", n + amount)
    return n + amount


def engine_of(db: Database) -> OnLane:
    """What is below the database."""
    engine = db._engine
    assert isinstance(engine, OnLane)
    return engine


def lane_of(db: Database) -> Lane:
    """The lane of the database."""
    return engine_of(db).lane
