"""A shop whose workflows move to PostgreSQL while it is open, with movers and lives that are killed on the way.

The home says where the workflows are: with a tombstone they are at the target, arrived or not, and that is what is
audited. The parent takes everything that a life has said meanwhile, and forgets nothing of it when it goes on at the
target.
"""

import asyncio
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import apsw
import asyncpg

from interlock.clock import SystemClock
from interlock.faultpoints import reach
from interlock.lanes.handover import draft_of as draft_of_lane
from interlock.lanes.handover import tombstone_of
from interlock.relocate import workflow_lanes
from interlock.relocate.workflow_move import move_workflows
from interlock.store import lane_store as lane_columns
from interlock.store.lane_store import EFFECT, FORMAT, LETTER, TABLES, event_columns, start_columns
from interlock.store.postgres import statement
from interlock.store.postgres.migrations import draft_of
from interlock.testing.faults import At, Process, Processes
from interlock.urls import parse_postgres_url
from tests.crash.engine.campaign import Campaign
from tests.crash.engine.workload import SEAL_WAIT_S
from tests.crash.sites import Site

POINTS = (
    "watch",
    "copy/aside",
    "copy/1",
    "catch up/0",
    "seal/0/before",
    "seal/0",
    "verify",
    "leave/before",
    "leave",
    "arrive",
)
EPOCH = 7

OTHERS = """
SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND application_name LIKE 'interlock%'
"""
"""The connections of lives and movers. What a killed one has sent is executed before the server finds it gone."""

Say = Callable[[str], None]


def mover(say: Say, source: str, target: str, epoch: int) -> None:
    """Move, and say how far it is."""

    def at(point: str) -> None:
        say(point)
        reach(f"move.{point}")

    workflow_lanes.SEAL_WAIT_S = SEAL_WAIT_S
    asyncio.run(
        move_workflows(source, target, epoch=epoch, clock=SystemClock(), watch=lambda _what, _done, _total: None, at=at)
    )
    say("moved")


class MovingHome:
    """A home whose workflows may have left, or be on their way."""

    def __init__(self, site: Site, target: str) -> None:
        self.url = self.home = site.url
        self.cache = site.cache
        self.target = target
        self._site = site

    def copy(self, folder: Path) -> Path:
        """What is true: at the target when the home has its tombstone, or is a draft of what comes back from there."""
        path = self._site.copy(folder)
        if not path.exists():
            return path
        connection = apsw.Connection(str(path))
        try:
            left = tombstone_of(connection) is not None or draft_of_lane(connection) is not None
        finally:
            connection.close()
        return asyncio.run(copied(self.target, folder / "target")) if left else path

    def crashed(self) -> None:
        """What else a crash does, where the home still is."""
        if self.url == self.home:
            self._site.crashed()


async def copied(url: str, path: Path) -> Path:
    """What PostgreSQL has, in the form of a lane, for the auditor. Of a draft, if nobody has let it arrive yet."""
    address = parse_postgres_url(url)
    connection = await asyncpg.connect(address.url)
    try:
        while await connection.fetchval(OTHERS):
            pass
        draft = await connection.fetchval("SELECT count(*) FROM pg_namespace WHERE nspname = $1", draft_of(address))
        await connection.execute(f"SET search_path TO {draft_of(address) if draft else address.schema}")
        rows = await connection.fetch(f"SELECT number, {statement.ROW} FROM workflows")
        events = await connection.fetch(f"SELECT {statement.HAPPENED} FROM workflow_events")
        effects = await connection.fetch(f"SELECT {statement.EFFECTS} FROM workflow_effects")
        letters = await connection.fetch(f"SELECT {statement.LETTERS} FROM dead_letters")
    finally:
        await connection.close()
    lane = apsw.Connection(str(path))
    with lane:
        lane.execute(TABLES)
        lane.execute("INSERT INTO workflow_store VALUES (1, ?, 0)", (FORMAT,))
        numbers = {row[1]: row[0] for row in rows}
        put: Any = lane.cursor().executemany
        names = f"number, {lane_columns.ROW}"
        put(
            f"INSERT INTO workflows ({names}) VALUES ({', '.join('?' * 19)})",
            [(row[0], *start_columns(statement.row_of(tuple(row)[1:]))) for row in rows],
        )
        happened = map(statement.record_of, events)
        columns = [event_columns(numbers[each.workflow], each) for each in happened]
        lane_columns.insert_events(lane.cursor(), columns)
        put(EFFECT, [(*tuple(row)[:6], (row[6] or "").encode()) for row in effects])
        put(LETTER, [(*tuple(row)[:9], (row[9] or "").encode()) for row in letters])
    lane.close()
    return path


class MovingCampaign(Campaign):
    """The lives of one store before, while and after it moves."""

    def __init__(self, processes: Processes, folder: Path, site: MovingHome, *, seed: int) -> None:
        super().__init__(processes, folder, site, seed=seed)
        self._home = site
        self._way: tuple[str, str, int] = (site.home, site.target, EPOCH)

    def move(
        self,
        *,
        die_at: str | None = None,
        strike: Callable[[str, Process], None] | None = None,
        along: int = 0,
    ) -> list[str]:
        """A mover beside a life that takes orders, and is killed when the mover has ended. Returns what it has said.

        `strike` is called with each point that the mover comes to, and the life. So many lines the life says `along`,
        at the target, before it is killed.
        """
        life = self._start()
        heard = list(life.lines(40))
        told = self._moved(die_at, lambda point: strike(point, life) if strike else None, life.lines_for, heard)
        later = list(life.lines(along))
        assert len(later) == along, (self._told, later[-3:])
        life.kill()
        self._crashed(life, [*heard, *later])
        return told

    def move_alone(self) -> list[str]:
        """A mover while nobody serves the home."""
        return self._moved(None, lambda _point: None, lambda _seconds: iter(()), [])

    def arrive(self) -> None:
        """From now on lives are at the target; the next move is back to where they came from."""
        source, target, epoch = self._way
        self._home.url = target
        self._way = (target, source, epoch + 1)

    def _moved(
        self,
        die_at: str | None,
        strike: Callable[[str], None],
        lines_for: Callable[[float], Iterator[str]],
        heard: list[str],
    ) -> list[str]:
        told: list[str] = []
        moving = self._processes.start(
            "tests.crash.engine.moving:mover",
            *self._way,
            die_at=None if die_at is None else At(f"move.{die_at}"),
        )

        def listen() -> None:
            for line in moving.lines():
                told.append(line)
                strike(line)

        listening = threading.Thread(target=listen)
        listening.start()
        while listening.is_alive():
            heard += lines_for(0.01)
            listening.join(0.001)
        failed = [line for line in told if line.startswith("!")]
        assert not failed, "\n".join([self._told, *failed])
        assert moving.end() == (0 if die_at is None else -9), (self._told, told)
        moving.close()
        return told

    def _heard(self, line: str) -> list[str]:
        return [] if line == "left" else super()._heard(line)
