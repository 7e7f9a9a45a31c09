"""What a disturbance acts upon: the server, the world outside, the processes, and the times it took to recover."""

import asyncio
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import asyncpg

from interlock.chaos.database_servers import OwnPostgres
from interlock.chaos.shop import Broken
from interlock.chaos.worker import LEASE_S
from interlock.chaos.worker_messages import WorkerOptions
from interlock.clock import SystemChance, SystemClock
from interlock.testing.faults import Process, Processes
from tests.chaos.postgres.audit import dump
from tests.chaos.postgres.world import World

WORKERS = 4
HOLD_S = 1.5 * LEASE_S
"""How long a disturbance lasts that lasts: longer than a lease."""

PATIENCE_S = 120.0
"""What has not come back after this time never will; it takes a second or two."""

BACK = 3
"""Operations that each process must have acknowledged before it counts as back."""


class Stuck(AssertionError):
    """Something that has to happen by itself did not."""


class Scene:
    """One store and everything around it."""

    def __init__(
        self,
        server: OwnPostgres,
        world: World,
        processes: Processes,
        *,
        folder: Path,
        schema: str,
        seed: int,
        sabotaged: str | None,
        takeover_s: float,
    ) -> None:
        self.world = world
        self.lives: dict[int, Process] = {}
        self.workers: list[int] = []
        self.chance = SystemChance(seed)
        self.times: dict[str, list[float]] = defaultdict(list)
        """How long it took, by what."""
        self.seen: Counter[str] = Counter()
        self.now_s = SystemClock().monotonic_s
        self.patience_s = PATIENCE_S
        self.takeover_s = takeover_s
        self.server = server
        self._processes = processes
        self._folder = folder
        self._schema = schema
        self._sabotaged = sabotaged

    def choice(self, count: int) -> int:
        """One of so many, by chance."""
        return int(self.chance.fraction() * count)

    def note(self, what: str, seconds: float) -> None:
        """Keep how long something took."""
        self.times[what].append(seconds)

    # --- processes ---------------------------------------------------------------------------------------------------

    async def start_worker(self) -> int:
        """Another worker."""
        life = await self.start(runs_steps=True)
        self.workers.append(life)
        return life

    async def start(self, *, runs_steps: bool) -> int:
        """Another process; returns the number of its life."""
        life = len(self.lives) + 1
        options = WorkerOptions(
            worker=life,
            home=f"{self.server.url}?schema={self._schema}&connections_max=6&statement_timeout_s=10",
            shop="tests.crash.engine.shop:SHARED_SHOP",
            runs_steps=runs_steps,
            sabotage="" if self._sabotaged is None else f"tests.chaos.postgres.sabotage:{self._sabotaged}",
        )
        self.lives[life] = await self.world.start(self._processes, options, self._log(life))
        return life

    def _log(self, life: int) -> Path:
        return self._folder / f"{life}.log"

    def kill(self, life: int) -> None:
        """Kill -9."""
        self.world.killed.add(life)
        self.workers.remove(life)
        self.lives[life].kill()

    async def busy_worker(self) -> int:
        """A worker that waits for an answer of the gateway at this moment."""
        chosen = self.workers[self.choice(len(self.workers))]
        gateway = self.world.gateway
        await self.until("a worker asks the gateway for something", lambda: bool(gateway.under_way_of(chosen)))
        return chosen

    def left_by(self, life: int) -> set[str]:
        """Orders on their way for which this life has asked last."""
        last = self.world.gateway.last
        return {workflow for workflow in self.world.customers.active if last.get(workflow) == life}

    async def taken_over(self, life: int, left: set[str], since: int) -> None:
        """Wait until others have gone on with what a life has left."""
        gateway, active = self.world.gateway, self.world.customers.active
        await self.until(
            f"others take over what {life} has left: {left}",
            lambda: not (left & active) - gateway.asked_by_others(life, since),
            self.takeover_s,
        )

    @property
    def living(self) -> list[int]:
        """Lives that nobody has killed."""
        return [life for life in self.lives if life not in self.world.killed]

    # --- the server --------------------------------------------------------------------------------------------------

    async def away(self, end: Callable[[], None]) -> None:
        """End the server, and start it again."""
        await asyncio.to_thread(end)
        await asyncio.to_thread(self.server.start)

    @asynccontextmanager
    async def administrator(self) -> AsyncIterator[asyncpg.Connection]:
        """A connection of somebody who may do everything."""
        connection = await asyncpg.connect(self.server.administrator)
        try:
            await connection.execute(f"SET search_path TO {self._schema}")
            yield connection
        finally:
            connection.terminate()

    # --- waiting -----------------------------------------------------------------------------------------------------

    async def held(self, since_s: float) -> None:
        """Let a disturbance last as long as it is meant to, by the clock that leases are counted by."""
        async with self.administrator() as connection:
            await connection.execute("SELECT pg_sleep($1)", max(0.0, HOLD_S - (self.now_s() - since_s)))

    async def flowing(self, when: str) -> None:
        """Wait until orders were acknowledged, by whomever."""
        acknowledged = self.world.customers.acknowledged
        before = acknowledged.total()
        await self.until(f"orders flow {when}", lambda: acknowledged.total() >= before + BACK * len(self.living))

    async def back(self, after: str) -> None:
        """Wait until every process acknowledges again, and every worker asks the gateway again."""
        world = self.world
        acknowledged, calls = world.customers.acknowledged.copy(), world.gateway.calls.copy()
        await self.until(
            f"everybody is back after {after}",
            lambda: (
                all(world.customers.acknowledged[life] >= acknowledged[life] + BACK for life in self.living)
                and all(world.gateway.calls[life] > calls[life] for life in self.workers)
            ),
        )

    async def until(self, what: str, happened: Callable[[], bool], within_s: float | None = None) -> None:
        """Wait for something that has to happen by itself; fails with everything that is stuck."""
        within_s = self.patience_s if within_s is None else within_s
        try:
            async with asyncio.timeout(within_s):
                await self.world.until(happened)
        except TimeoutError:
            raise Stuck(f"after {within_s:g} s: {what}\n{await self.stuck()}") from None
        except Broken as broken:
            raise Stuck(f"{broken}\n{await self.stuck()}") from None

    async def stuck(self) -> str:
        """What everybody is waiting for."""
        world = self.world
        lines = [
            f"acknowledged: {dict(world.customers.acknowledged)}, calls: {dict(world.gateway.calls)}",
            f"living: {self.living}, repeated: {dict(world.customers.repeated)}",
            f"active: {sorted(world.customers.active)}",
        ]
        for life in self.living:
            lines += [f"process {life}: {line}" for line in self.lives[life].lines_for(0.05)]
            lines += [f"process {life}: {line}" for line in self._log(life).read_text().splitlines()[-20:]]
        try:
            async with self.administrator() as connection:
                lines.append(await dump(connection))
        except (OSError, asyncpg.PostgresError) as error:
            lines.append(f"the server cannot be asked: {error!r}")
        return "\n".join(lines)
