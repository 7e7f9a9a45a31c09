"""A database of every shape moves from every place to every place under sixteen writers, and its mover is killed.

A mover that is a process of its own is killed with SIGKILL at a named point, or at a random instant. Then the command
`interlock route` ends the move, the undo that it prints is run, and the writers go on all the while. Sums are exact,
and keys are known. Workflows move in the same way, while sixteen customers order.

Together the cases are killed at every point. With INTERLOCK_CRASHES of N there are all pairs and shapes, each with N
of the points and N random instants.
"""

import asyncio
import itertools
import os
import random
import uuid
from collections.abc import Awaitable, Callable, Generator
from pathlib import Path

import pytest

from interlock import Database, Engine
from interlock.database.transactions import Transaction
from interlock.engine import follow_moves, recovery
from interlock.errors import InterlockError
from interlock.relocate.mover import shown_url
from interlock.testing.faults import Process, Processes
from tests.crash.moving.commands import deaths, endless, run_route
from tests.crash.moving.workloads import POINTS, WORKFLOW_POINTS
from tests.integration.objects.moving.buckets import another, without_key
from tests.integration.objects.servers import BUCKET, Moto
from tests.integration.postgres.moving.places import Pair
from tests.integration.postgres.workflows_following.flowing import Flow, made, problems
from tests.unit.engine.follow_moves.shop import order

KINDS = ("lane", "bucket", "postgres")
PAIRS = [(source, target) for source in KINDS for target in KINDS]
CRASHES = int(os.environ.get("INTERLOCK_CRASHES") or "1")
WRITERS = 16
WRITES = 8
"""Of each writer between two moves, at least."""
AHEAD = 1_000
"""Orders that customers place at most while a mover comes to its end."""
REPEATED = 40
"""Keys that are repeated afterwards."""
RANDOM_S_MAX = 1.0

Write = Callable[[Database, int, str], Awaitable[object]]


async def _increment(tx: Transaction, number: int) -> None:
    [(n,)] = await tx.query("SELECT n FROM row WHERE id = $1", number % 3)
    await tx.execute("UPDATE row SET n = $1 WHERE id = $2", int(str(n)) + 1, number % 3)


async def _to_row(db: Database, number: int, key: str) -> None:
    del key
    await db.execute("UPDATE row SET n = n + 1 WHERE id = $1", number % 3)


async def _to_shards(db: Database, number: int, key: str) -> None:
    del number
    await db.counter("views", kind="sharded").add(1, key=key)


async def _to_log(db: Database, number: int, key: str) -> None:
    del number
    await db.counter("clicks", kind="event_log").add(1, key=key)


async def _with_key(db: Database, number: int, key: str) -> None:
    if number % 2:
        await db.transact(_increment, number, key=key)
    else:
        await db.execute("UPDATE row SET n = n + 1 WHERE id = $1", number % 3, key=key)


async def _to_stream(db: Database, number: int, key: str) -> None:
    stream = await db.stream(f"tenant {number % 3}")
    await stream.execute("UPDATE row SET n = n + 1 WHERE id = 0", key=key)


SHAPES: dict[str, Write] = {
    "plain": _to_row, "sharded": _to_shards, "event log": _to_log, "keyed": _with_key, "streams": _to_stream,
}  # fmt: skip


def cases() -> Generator[tuple[str, str, str, str]]:
    """Every second pair and shape, each with another point, so that all points are met; or all of them."""
    turn = endless(POINTS)
    for (source, target), shape in list(itertools.product(PAIRS, SHAPES))[:: 1 if CRASHES > 1 else 2]:
        for point in deaths(turn, POINTS, CRASHES):
            yield source, target, shape, point


def home_cases() -> Generator[tuple[str, str, str]]:
    """Every pair, each with another point."""
    turn = endless(WORKFLOW_POINTS)
    for source, target in PAIRS:
        for point in deaths(turn, WORKFLOW_POINTS, CRASHES):
            yield source, target, point


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of the databases of all cases."""
    return tmp_path_factory.mktemp("matrix")


@pytest.fixture(scope="module")
def processes(moto: Moto, folder: Path) -> Generator[Processes]:
    """The movers; they inherit the keys of the bucket."""
    with pytest.MonkeyPatch.context() as environment:
        without_key(moto, environment, str(folder / "cache"))
        with Processes() as processes:
            yield processes


class World:
    """A database with its writers, and what they were told."""

    def __init__(self, db: Database, write: Write) -> None:
        self._db = db
        self._write = write
        self.keys: list[str] = []
        """Of the writes that were acknowledged."""
        self.unknown = 0
        """Writes without a key whose outcome is unknown."""
        self._more = asyncio.Condition()

    async def write(self, writer: int) -> None:
        """Write one thing after the other; a call with a key is repeated until it is acknowledged."""
        for number in itertools.count():
            key = f"{writer}/{number}"
            while True:
                try:
                    await self._write(self._db, writer, key)
                except InterlockError as error:
                    if error.retry == "never":
                        raise
                    if self._write is _to_row:
                        self.unknown += error.code == "outcome-unknown"
                        continue
                else:
                    break
            self.keys.append(key)
            async with self._more:
                self._more.notify_all()

    async def more(self, count: int) -> None:
        """Wait until so many more writes were acknowledged."""
        wanted = len(self.keys) + count
        async with self._more:
            await self._more.wait_for(lambda: len(self.keys) >= wanted)

    async def check(self) -> None:
        """The sum is what was acknowledged, also after calls were repeated with their keys."""
        for key in [] if self._write is _to_row else random.Random(0).sample(self.keys, REPEATED):
            await self._write(self._db, int(key.partition("/")[0]), key)
        count = len(self.keys)
        assert count <= await self._sum() <= count + self.unknown

    async def _sum(self) -> int:
        if self._write is _to_shards:
            return await self._db.counter("views", kind="sharded").value()
        if self._write is _to_log:
            return await self._db.counter("clicks", kind="event_log").value()
        if self._write is _to_stream:
            streams = [await self._db.stream(f"tenant {number}") for number in range(3)]
            return sum([int(str((await each.query("SELECT n FROM row WHERE id = 0"))[0].n)) for each in streams])
        return int(str((await self._db.query("SELECT sum(n) AS n FROM row"))[0].n))


async def filled(db: Database, write: Write) -> None:
    databases = [await db.stream(f"tenant {number}") for number in range(3)] if write is _to_stream else [db]
    await db.execute("CREATE TABLE mark (id integer PRIMARY KEY)")
    await db.execute("INSERT INTO mark VALUES (1)")
    for each in databases:
        await each.execute("CREATE TABLE row (id integer PRIMARY KEY, n bigint NOT NULL)")
        await each.execute("INSERT INTO row VALUES (0, 0), (1, 0), (2, 0)")


def strike(mover: Process, point: str) -> None:
    """Wait until the mover has killed itself at its point, or kill it at a random instant."""
    if point.startswith("random"):
        lines = list(mover.lines_for(random.Random(point).uniform(0, RANDOM_S_MAX)))
        mover.kill()
    else:
        lines = []
    lines += list(mover.lines())
    mover.close()
    assert not [line for line in lines if line.startswith(("!", "failed never"))], lines


async def lives_at(db: Database) -> str:
    """The address after a call to the database itself: writers of its parts alone do not look there."""
    assert await db.query("SELECT id FROM mark") == [(1,)]
    return db.url


@pytest.mark.campaign
@pytest.mark.parametrize(("source", "target", "shape", "point"), list(cases()))
def test_every_shape_moves_between_every_two_places_although_its_mover_is_killed(
    source: str,
    target: str,
    shape: str,
    point: str,
    moto: Moto,
    postgres: str,
    processes: Processes,
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    without_key(moto, monkeypatch, str(folder / "cache"))

    def address(kind: str) -> str:
        name = uuid.uuid4().hex[:18]
        return {
            "lane": f"lanes://{folder}/{name}",
            "bucket": another(moto),
            "postgres": f"{postgres}&schema=x_{name}&connections_max=12",
        }[kind]

    places, write = Pair(address(source), address(target)), SHAPES[shape]

    async def scenario() -> None:
        opening = Database.open(places.source, db_per_write_stream=True, lease_s=0.5, counter_shard_count=2)
        async with opening as db, asyncio.TaskGroup() as group:
            await filled(db, write)
            world = World(db, write)
            writers = [group.create_task(world.write(writer)) for writer in range(WRITERS)]
            await world.more(WRITERS * WRITES)
            mover = processes.start(
                "tests.crash.moving.workloads:move", places.source, places.target, point, "mover", "unused"
            )
            await asyncio.to_thread(strike, mover, point)
            await world.more(WRITERS * WRITES)
            undo = await run_route(["route", places.source, "--to", places.target], folder)
            await world.more(WRITERS * WRITES)
            assert await lives_at(db) == shown_url(places.target)
            await run_route(undo, folder)
            await world.more(WRITERS * WRITES)
            assert await lives_at(db) == shown_url(places.source)
            for each in writers:
                each.cancel()
            await asyncio.wait(writers)
            world.unknown += WRITERS  # A write that was cancelled may have happened.
            await world.check()

    asyncio.run(scenario())


@pytest.mark.campaign
@pytest.mark.parametrize(("source", "target", "point"), list(home_cases()))
def test_workflows_move_between_every_two_places_although_their_mover_is_killed(
    source: str,
    target: str,
    point: str,
    moto: Moto,
    postgres: str,
    processes: Processes,
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    without_key(moto, monkeypatch, str(folder / "cache"))
    monkeypatch.setattr(follow_moves, "WAITED_S", 60.0)  # However slow the machine is, no customer is sent away.
    monkeypatch.setattr(recovery, "HELD_AT_BUCKET_US", 0)  # The gateway would see an attempt twice.

    def home(kind: str) -> str:
        name = uuid.uuid4().hex[:18]
        if kind == "bucket":
            return f"s3://{BUCKET}/homes/{name}?endpoint={moto.endpoint}"
        return f"lanes://{folder}/{name}" if kind == "lane" else f"{postgres}&schema=w_{name}&connections_max=12"

    here, there = home(source), home(target)

    async def scenario() -> None:
        gateway, machine = made()
        async with Engine.open(here, machines=[machine], drain_s=0) as engine:
            flow = Flow(lambda workflow: order(engine, machine, workflow, keyed=True), customers=WRITERS, ahead=AHEAD)
            async with flow.flowing():
                await flow.more(WRITERS)
                mover = processes.start("tests.crash.moving.workloads:move_home", here, there, 1, point)
                await asyncio.to_thread(strike, mover, point)
                await flow.more(WRITERS)
                words = ["route", "workflows", "--home", here, "--to"]
                undo = await run_route([*words, there], folder)
                await flow.more(WRITERS)
                await run_route(undo or [*words, here], folder)
                await flow.more(WRITERS)
            assert await problems(engine, flow, gateway) == []

    asyncio.run(scenario())
