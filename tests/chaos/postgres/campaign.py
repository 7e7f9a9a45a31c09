"""Orders flow through four workers and a node that only takes events, while everything around them is disturbed.

The script of disturbances follows from the seed; how they meet the orders does not. After each one everybody has to be
back by itself, and the time until then is kept. At the end every order has ended, nothing is owed, and what is in the
tables agrees with what the customers were told and with the books of the gateway.
"""

import asyncio
import statistics
import tempfile
from collections import Counter
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from interlock.chaos.database_servers import OwnPostgres
from interlock.clock import SystemChance
from interlock.testing.faults import Processes
from tests.chaos.postgres.audit import EFFECTS, LEFT, ChaosAudit
from tests.chaos.postgres.disturbances import DISTURBANCES
from tests.chaos.postgres.scene import PATIENCE_S, WORKERS, Scene
from tests.chaos.postgres.world import World

BETWEEN = 60
"""Operations that are acknowledged between two disturbances, at most."""


@contextmanager
def own_postgres() -> Generator[OwnPostgres]:
    """A server that nobody else uses, gone at the end."""
    with tempfile.TemporaryDirectory(prefix="interlock-chaos-") as folder, OwnPostgres(Path(folder)) as server:
        yield server


def script(seed: int, count: int) -> list[str]:
    """The names of disturbances, each kind once before any comes again."""
    chance = SystemChance(seed)
    names: list[str] = []
    while len(names) < count:
        left = list(DISTURBANCES)
        while left and len(names) < count:
            names.append(left.pop(int(chance.fraction() * len(left))))
    return names


class Campaign:
    """One store, from its first order to its last."""

    def __init__(
        self,
        server: OwnPostgres,
        processes: Processes,
        *,
        seed: int,
        sabotaged: str | None = None,
        takeover_s: float = PATIENCE_S,
    ) -> None:
        self.seen: Counter[str] = Counter()
        """How often something happened that the campaign is there for."""
        self.times: Mapping[str, Sequence[float]] = {}
        self._seed = seed
        self._world = World(seed)
        self._folder = tempfile.TemporaryDirectory(prefix="chaos-")
        schema = f"chaos_{seed}_{sabotaged or 'sound'}"
        self._scene = Scene(
            server,
            self._world,
            processes,
            folder=Path(self._folder.name),
            schema=schema,
            seed=seed,
            sabotaged=sabotaged,
            takeover_s=takeover_s,
        )

    def run(self, names: Sequence[str]) -> None:
        """Everything, and the audit at its end."""
        try:
            asyncio.run(self._run(names))
        except AssertionError as error:
            raise AssertionError(f"seed {self._seed}, {list(names)}: {error}") from error
        finally:
            for life in self._scene.lives.values():
                life.close()
            self._folder.cleanup()

    async def _run(self, names: Sequence[str]) -> None:
        scene, world = self._scene, self._world
        try:
            for _ in range(WORKERS):
                await scene.start_worker()
            await scene.start(runs_steps=False)
            await scene.back("the start")
            for name in names:
                await self._disturbed(name)
            await self._finish()
        finally:
            for life in scene.lives.values():
                life.kill()
            await world.close()
        self.times = scene.times
        self.seen.update(world.customers.seen + world.gateway.seen + world.customers.repeated + scene.seen)

    async def _disturbed(self, name: str) -> None:
        scene, world = self._scene, self._world
        acknowledged = world.customers.acknowledged
        wanted = acknowledged.total() + scene.choice(BETWEEN)
        await scene.until(f"orders flow before {name}", lambda: acknowledged.total() >= wanted)
        await DISTURBANCES[name](scene)
        over_s = scene.now_s()
        await scene.back(name)
        scene.note(f"{name}: all are back", scene.now_s() - over_s)
        self.seen[name] += 1

    async def _finish(self) -> None:
        """No further orders: everything that there is comes to its end, and the processes are closed."""
        scene, world = self._scene, self._world
        world.customers.enough = True
        await scene.until("every order ends, and everything is answered", lambda: world.customers.quiet)
        await self._at_rest()
        world.stop()
        await scene.until("every process closes", lambda: world.closed.issuperset(scene.living))
        for life in scene.living:
            assert scene.lives[life].end() == 0
        async with scene.administrator() as connection:
            audit = await ChaosAudit.of(connection, world.gateway.lines, world.customers.answers)
        problems = [*world.customers.problems, *audit.everything()]
        assert not problems, f"{len(problems)} problems: {problems[:20]}"
        self.seen["taken back"] += audit.books.taken_back
        self.seen["workflows"] += len(audit.workflows)
        self.seen.update(kept.state for kept in audit.workflows.values())

    async def _at_rest(self) -> None:
        """The gateway has heard of every end; wait until the engines have written that down, too."""
        scene = self._scene
        until_s = scene.now_s() + scene.patience_s
        async with scene.administrator() as connection:
            while await connection.fetchval(f"SELECT ({LEFT}) + ({EFFECTS})"):
                assert scene.now_s() < until_s, f"something is still owed\n{await scene.stuck()}"
                await asyncio.sleep(0.05)

    def report(self) -> str:
        """How long everything took, in seconds: the median and the worst."""
        lines = [f"{'seconds until':55} {'times':>5} {'median':>7} {'worst':>7}"]
        for what, times in sorted(self.times.items()):
            lines.append(f"{what:55} {len(times):5} {statistics.median(times):7.2f} {max(times):7.2f}")
        return "\n".join([*lines, ", ".join(f"{what}: {count}" for what, count in sorted(self.seen.items()))])
