"""Where engines keep their workflows, as this suite sees it: a test opens engines at a place and knows nothing else.

A store joins the suite by one more kind in `conftest.py`. Kinds that keep nothing after closing are left out where a
test opens twice: those tests ask for `kept` instead of `place`.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from interlock import Admission, Dependency, Engine, Machine, Observer, UnavailableError
from interlock.clock import Chance, Clock
from interlock.engine.bound_machine import Strategy
from interlock.engine.open_engine import EngineOpening
from interlock.engine.schedules import Schedule
from interlock.engine.shared.shared_store_policy import SharedStorePolicy
from interlock.store.postgres.store import PostgresStore

AnyMachine = Machine[Any, Any, Any]

LEASE_S = 600.0
"""No test is about the lease of a bucket, and none may depend on how fast this machine is."""

PATIENCE_S = 600.0
"""A test that waits longer than this hangs: it fails instead. No test is meant to come near it."""


class NoDelay:
    """Luck that makes every retry come at once: full jitter of nothing."""

    def fraction(self) -> float:
        return 0.0


class SetClock:
    """A clock that says what it is told. Both of its hands move together."""

    def __init__(self, wall_s: float = 1_800_000_000.0) -> None:
        self.now_s = wall_s

    def wall_s(self) -> float:
        return self.now_s

    def monotonic_s(self) -> float:
        return self.now_s


class Place(NamedTuple):
    """An address, and a folder for the local files of a bucket."""

    folder: Path
    url: str

    def engine(
        self,
        *machines: AnyMachine,
        steps: Mapping[object, Strategy] | None = None,
        provide: Sequence[object] = (),
        worker: bool = True,
        admission: Admission | None = None,
        observers: Iterable[Observer] = (),
        clock: Clock | None = None,
        chance: Chance | None = None,
        dependencies: Sequence[Dependency] = (),
        schedules: Sequence[Schedule] = (),
        accept_changes: bool = False,
        **settings: float,
    ) -> EngineOpening[Engine]:
        """Open an engine here. Retries come at once, unless a step asks for more."""
        chosen = {"lease_s": LEASE_S} | settings
        return Engine.open(
            self.url,
            machines=machines,
            steps=steps,
            provide=provide,
            worker=worker,
            admission=admission,
            observers=observers,
            clock=clock,
            chance=chance or NoDelay(),
            dependencies=dependencies,
            schedules=schedules,
            accept_changes=accept_changes,
            cache=str(self.folder),
            **chosen,  # type: ignore[arg-type]  # Nothing but settings.
        )


async def crash(engine: Engine) -> None:
    """The process is gone, as far as the store can tell: nothing is written from now on, and nobody reports."""
    inside = engine._inside
    inside.pipeline.dead = UnavailableError("this engine was crashed by its test.")
    await inside.runner.drain(0)
    if isinstance(inside.store, PostgresStore):
        # Others find out when its leases are over; no test is about how long that takes.
        for table in ("workflows", "workflow_effects"):
            sql = f"UPDATE {inside.store._schema}.{table} SET lease_until = lease_until - interval '1 day'"
            await inside.store._pool.write(sql, ())
    await engine.close()


def run(scenario: Callable[[], Awaitable[None]]) -> None:
    """Run an async scenario to its end."""

    async def main() -> None:
        async with asyncio.timeout(PATIENCE_S):
            await scenario()

    asyncio.run(main())


async def turns(count: int = 20) -> None:
    """Let everything that can happen without waiting happen."""
    for _ in range(count):
        await asyncio.sleep(0)


async def settled(engine: Engine) -> None:
    """Wait until the engine has nothing on its way to the store."""
    await turns()
    await engine._pipeline.idle()
    await turns()
    policy = engine._inside.policy
    if isinstance(policy, SharedStorePolicy) and engine._inside.runner.working:
        for _ in range(2):  # What is due is claimed from the store, and what that leaves due as well.
            while policy.claiming.looking:
                await turns(1)
            await policy.claiming._poll()
            await turns()
            await engine._pipeline.idle()
            await turns()


def names(found: Sequence[Any]) -> list[str]:
    """The ids of views."""
    return [view.id for view in found]
