"""The stage of one scenario: its servers, workers, external services and orders.

Orders are placed before, during and after the disturbance. Every wait is for a condition and bounded: a recovery that
takes longer than `deadline_s` is a broken promise.
"""

import asyncio
import contextlib
import functools
import os
import shutil
import signal
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

import msgspec

from interlock.chaos.disk import SmallDisk
from interlock.chaos.messages import Life
from interlock.chaos.network import Wire
from interlock.chaos.servers import OwnPostgres, OwnRedis
from interlock.chaos.world import Broken, World
from interlock.testing.faults.processes import Process, Processes

# --- Workers ---------------------------------------------------------------------------------------------------------
# They are forked by a process that has imported everything already (`interlock.testing.faults.processes`), so that a
# scenario starts fast. A worker exits when the other end of its socket is closed. Its standard error goes to a file,
# which is shown when a worker ends unexpectedly.

PROGRAM = "interlock.chaos.worker"
COMPLAINT_LINES_MAX = 12


class Crew:
    """The workers of one scenario."""

    def __init__(self, processes: Processes, folder: Path) -> None:
        self._processes = processes
        self._folder = folder
        self._living: dict[int, Process] = {}

    def start(self, life: Life) -> None:
        """Start another worker."""
        complaints = str(self._log_path(life.worker))
        self._living[life.worker] = self._processes.start(
            f"{PROGRAM}:forked", msgspec.json.encode(life).decode(), complaints
        )

    def freeze(self, worker: int) -> None:
        """Freeze a worker with SIGSTOP, at any point of its work."""
        os.kill(self._living[worker].number, signal.SIGSTOP)

    def wake(self, worker: int) -> None:
        """Wake a frozen worker with SIGCONT."""
        os.kill(self._living[worker].number, signal.SIGCONT)

    def complaints(self, worker: int) -> str:
        """Return the last lines of a worker's standard error."""
        path = self._log_path(worker)
        lines = path.read_text(errors="replace").splitlines() if path.exists() else []
        return "\n".join(lines[-COMPLAINT_LINES_MAX:])

    def close(self) -> None:
        """Kill all workers with SIGKILL. Workers that received Stop have closed before, or never will."""
        for process in self._living.values():
            process.close()
        self._living.clear()

    def _log_path(self, worker: int) -> Path:
        return self._folder / f"worker-{worker}.log"


ResultT = TypeVar("ResultT")


async def in_thread(call: Callable[[], ResultT]) -> ResultT:
    """Run the call in a thread, and wait for its end also when cancelled.

    A half-started server must not be ended concurrently. Each of these calls has a bound of its own.
    """
    task = asyncio.ensure_future(asyncio.to_thread(call))
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        await asyncio.wait([task])
        raise


# --- Stage -----------------------------------------------------------------------------------------------------------

LEASE_S = 1.0
PREPARED_S = 60.0
"""Bound in seconds on preparations, which are not part of the promise: a busy machine is slow."""

SOCKET_BYTES_MAX = 100
"""Bound on the path of a socket: the smallest of any system is 104 bytes with the final NUL."""

SHORT_FOLDER = "/tmp"  # noqa: S108 -- a folder of our own is made in it.

CONNECTIONS_MAX = 6
STATEMENT_TIMEOUT_S = 2
CONNECT_TIMEOUT_S = 2
SAMPLES_MAX = 3


class Load(msgspec.Struct, frozen=True, kw_only=True):
    """Number of orders, durations, and seed of a scenario."""

    orders: int = 60
    seconds: float = 2.0
    """Minimum duration of a disturbance."""
    deadline_s: float = 30.0
    """Bound on each recovery."""
    seed: int = 1


class Servers(msgspec.Struct, frozen=True):
    """The servers of the whole run; None for one that is not needed."""

    postgres: OwnPostgres | None
    redis: OwnRedis | None


class Stage:
    """Everything that one scenario uses."""

    def __init__(self, name: str, folder: Path, servers: Servers, load: Load, processes: Processes) -> None:
        self.name = name
        self.folder = folder
        self.servers = servers
        self.load = load
        self.world = World(load.seed)
        self.crew = Crew(processes, folder)
        self.doing = "starting"
        """The current activity, for people."""
        self.placed = False
        """Whether all orders of the disturbance were placed."""
        self.over_s = 0.0
        """End of the disturbance, by the world's clock."""
        self.resources = contextlib.ExitStack()
        """Callbacks that release resources at the end."""
        self._socket = self._short_path(folder / "world")

    def _short_path(self, path: Path) -> Path:
        """Return a path that is short enough for a socket, in another folder if necessary."""
        if len(os.fsencode(path)) <= SOCKET_BYTES_MAX:
            return path
        folder = tempfile.mkdtemp(prefix="interlock-chaos-", dir=SHORT_FOLDER)
        self.resources.callback(shutil.rmtree, folder, ignore_errors=True)
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
        """The address of the scenario's own schema for the audit, without timeouts."""
        return f"{self.postgres.url}?schema={self._schema}&connections_max={CONNECTIONS_MAX}"

    def schema(self, url: str | None = None) -> str:
        """Return the schema's address for a worker, through any wire, with short timeouts so that it retries soon."""
        return (
            f"{url or self.postgres.url}?{self.kept.partition('?')[2]}"
            f"&statement_timeout_s={STATEMENT_TIMEOUT_S}&connect_timeout_s={CONNECT_TIMEOUT_S}"
        )

    @property
    def _schema(self) -> str:
        return f"chaos_{self.name.replace('-', '_')}"

    def wire(self) -> Wire:
        """Make a new wire to PostgreSQL."""
        wire = Wire(self.postgres.address)
        self.resources.callback(wire.close)
        return wire

    def life(self, worker: int, home: str, *, redis: str = "", disk: SmallDisk | None = None) -> Life:
        """Return the start parameters of a worker."""
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
        """End all processes and connections of this scenario."""
        self.crew.close()
        await self.world.close()
        await in_thread(self.resources.close)

    # --- orders ------------------------------------------------------------------------------------------------------

    def place(self, count: int) -> list[str]:
        """Place `count` orders; return their ids."""
        placed = [self.world.customers.place() for _ in range(count)]
        self.world.changed()
        return placed

    async def place_over(self, count: int, seconds: float) -> None:
        """Place `count` orders, spread over `seconds`."""
        for _ in range(count):
            self.place(1)
            await asyncio.sleep(seconds / count)
        self.placed = True
        self.world.changed()

    # --- waiting -----------------------------------------------------------------------------------------------------

    async def until(self, what: str, happened: Callable[[], bool]) -> None:
        """Wait for a promised condition. Raises Broken after `deadline_s`."""
        await self._within(self.load.deadline_s, what, happened)

    async def prepared(self, what: str, happened: Callable[[], bool]) -> None:
        """Wait for a precondition of the disturbance, which is not promised. Raises Broken after a longer bound."""
        await self._within(max(PREPARED_S, self.load.deadline_s), what, happened)

    async def _within(self, bound_s: float, what: str, happened: Callable[[], bool]) -> None:
        try:
            async with asyncio.timeout(bound_s):
                await self.world.until(what, happened)
        except TimeoutError:
            stuck = "; ".join([f"it did not happen within {bound_s:g} s that {what}", *self._obstacles()])
            raise Broken(stuck) from None

    async def hold(self) -> None:
        """Wait for the minimum duration of a disturbance."""
        await asyncio.sleep(self.load.seconds)

    def breakers(self) -> dict[tuple[int, str], str]:
        """Return the last reported state of each breaker, by worker and dependency."""
        prefix = "breaker-"
        return {
            (news.worker, news.subject): news.what.removeprefix(prefix)
            for news in self.world.news
            if news.what.startswith(prefix)
        }

    def _obstacles(self) -> Iterator[str]:
        """Yield the known obstacles: breakers that are not closed, and orders that have not ended."""
        for (worker, dependency), state in sorted(self.breakers().items()):
            if state != "closed":
                yield f"the breaker of {dependency!r} is still {state.replace('_', '-')} at worker {worker}"
        still = self.world.customers.open
        if still:
            yield f"{len(still)} orders have not ended ({', '.join(still[:SAMPLES_MAX])})"
        if self.world.customers.repeated:
            codes = ", ".join(f"{count} {code}" for code, count in self.world.customers.repeated.items())
            yield f"operations were repeated: {codes}"
