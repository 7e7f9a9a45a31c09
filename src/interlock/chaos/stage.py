"""What a scenario acts upon: the servers, the workers, the world outside, and the orders that flow through them.

The orders come in three parts: before the disturbance, during it, and after it. Waiting is always for something, and
bounded: what has not come back by itself after `deadline_s` is a promise that was broken.
"""

import asyncio
import contextlib
import functools
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec

from interlock.chaos.crew import Crew
from interlock.chaos.disk import SmallDisk
from interlock.chaos.messages import Life
from interlock.chaos.servers import OwnPostgres, OwnRedis
from interlock.chaos.threads import in_thread
from interlock.chaos.wire import Wire
from interlock.chaos.world import Broken, World
from interlock.testing.faults.processes import Processes

LEASE_S = 1.0
PREPARED_S = 60.0
"""How long anything may take that is no promise: a busy machine takes its time."""

SOCKET_BYTES_MAX = 100
"""Of a path: systems differ, and the smallest bound is 104 with its end."""

SHORT_FOLDER = "/tmp"  # noqa: S108 -- a folder of our own is made in it.

CONNECTIONS_MAX = 6
STATEMENT_TIMEOUT_S = 2
CONNECT_TIMEOUT_S = 2
SAMPLES_MAX = 3


class Load(msgspec.Struct, frozen=True, kw_only=True):
    """How much, how long."""

    orders: int = 60
    seconds: float = 2.0
    """How long a disturbance lasts at least."""
    deadline_s: float = 30.0
    """How long anything may take that has to happen by itself."""
    seed: int = 1


class Servers(msgspec.Struct, frozen=True):
    """What was started for the whole run; None where it is not needed."""

    postgres: OwnPostgres | None
    redis: OwnRedis | None


class Stage:
    """One scenario's own."""

    def __init__(self, name: str, folder: Path, servers: Servers, load: Load, processes: Processes) -> None:
        self.name = name
        self.folder = folder
        self.servers = servers
        self.load = load
        self.world = World(load.seed)
        self.crew = Crew(processes, folder)
        self.doing = "starting"
        """For people: what is going on."""
        self.placed = False
        """Whether the orders that come during the disturbance were placed."""
        self.over_s = 0.0
        """When the disturbance was over."""
        self.held = contextlib.ExitStack()
        """What is given back in the end."""
        self._socket = self._short(folder / "world")

    def _short(self, path: Path) -> Path:
        """The path of a socket: the system takes no long one, and a temporary folder may have any name."""
        if len(os.fsencode(path)) <= SOCKET_BYTES_MAX:
            return path
        folder = tempfile.mkdtemp(prefix="interlock-chaos-", dir=SHORT_FOLDER)
        self.held.callback(shutil.rmtree, folder, ignore_errors=True)
        return Path(folder) / path.name

    # --- servers and workers -----------------------------------------------------------------------------------------

    @property
    def postgres(self) -> OwnPostgres:
        """The PostgreSQL of the run."""
        assert self.servers.postgres is not None
        return self.servers.postgres

    @property
    def redis(self) -> OwnRedis:
        """The Redis of the run."""
        assert self.servers.redis is not None
        return self.servers.redis

    @property
    def kept(self) -> str:
        """The address of the scenario's own schema for the audit, which disturbs nobody and may take its time."""
        return f"{self.postgres.url}?schema={self._schema}&connections_max={CONNECTIONS_MAX}"

    def schema(self, url: str | None = None) -> str:
        """The same for a worker, over whatever wire: it is told soon that nobody answers, and asks again."""
        return (
            f"{url or self.postgres.url}?{self.kept.partition('?')[2]}"
            f"&statement_timeout_s={STATEMENT_TIMEOUT_S}&connect_timeout_s={CONNECT_TIMEOUT_S}"
        )

    @property
    def _schema(self) -> str:
        return f"chaos_{self.name.replace('-', '_')}"

    def wire(self) -> Wire:
        """A new wire to PostgreSQL."""
        wire = Wire(self.postgres.address)
        self.held.callback(wire.close)
        return wire

    def life(self, worker: int, home: str, *, redis: str = "", disk: SmallDisk | None = None) -> Life:
        """What a worker is told."""
        life = Life(worker=worker, socket=str(self._socket), home=home, redis=redis, lease_s=LEASE_S)
        return life if disk is None else msgspec.structs.replace(life, disk=str(disk.folder), disk_kind=disk.kind)

    async def start(self, lives: list[Life]) -> None:
        """Start the workers, and wait until their engines are open."""
        await self.world.open(self._socket)
        for life in lives:
            await in_thread(functools.partial(self.crew.start, life))
        await self.prepared("the workers open their engines", lambda: len(self.world.ready) == len(lives))

    async def stop(self) -> None:
        """Ask the workers to close, and wait until they have."""
        workers = set(self.world.ready)
        self.world.stop()
        await self.until("the workers close", lambda: workers <= self.world.closed)

    async def close(self) -> None:
        """Leave no process and no connection behind."""
        self.crew.close()
        await self.world.close()
        await in_thread(self.held.close)

    # --- orders ------------------------------------------------------------------------------------------------------

    def place(self, count: int) -> list[str]:
        """So many orders at once."""
        placed = [self.world.customers.place() for _ in range(count)]
        self.world.changed()
        return placed

    async def place_over(self, count: int, seconds: float) -> None:
        """So many orders, spread over a time."""
        for _ in range(count):
            self.place(1)
            await asyncio.sleep(seconds / count)
        self.placed = True
        self.world.changed()

    # --- waiting -----------------------------------------------------------------------------------------------------

    async def until(self, what: str, happened: Callable[[], bool]) -> None:
        """Wait for something that was promised to happen by itself. Raises Broken when it does not."""
        await self._within(self.load.deadline_s, what, happened)

    async def prepared(self, what: str, happened: Callable[[], bool]) -> None:
        """Wait for what a disturbance needs before it can begin, which is no promise."""
        await self._within(max(PREPARED_S, self.load.deadline_s), what, happened)

    async def _within(self, bound_s: float, what: str, happened: Callable[[], bool]) -> None:
        try:
            async with asyncio.timeout(bound_s):
                await self.world.until(what, happened)
        except TimeoutError:
            stuck = "; ".join([f"it did not happen within {bound_s:g} s that {what}", *self._stuck()])
            raise Broken(stuck) from None

    async def hold(self) -> None:
        """Let a disturbance last as long as it is meant to."""
        await asyncio.sleep(self.load.seconds)

    def breakers(self) -> dict[tuple[int, str], str]:
        """The last that workers have told of their breakers, by worker and dependency."""
        prefix = "breaker-"
        return {
            (news.worker, news.subject): news.what.removeprefix(prefix)
            for news in self.world.news
            if news.what.startswith(prefix)
        }

    def _stuck(self) -> Iterator[str]:
        """What stands in the way, as far as anybody has told."""
        for (worker, dependency), state in sorted(self.breakers().items()):
            if state != "closed":
                yield f"the breaker of {dependency!r} is still {state.replace('_', '-')} at worker {worker}"
        still = self.world.customers.open
        if still:
            yield f"{len(still)} orders have not ended ({', '.join(still[:SAMPLES_MAX])})"
        if self.world.customers.repeated:
            codes = ", ".join(f"{count} {code}" for code, count in self.world.customers.repeated.items())
            yield f"operations were repeated: {codes}"
