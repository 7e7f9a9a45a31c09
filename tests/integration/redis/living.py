"""Engines among others in one process: each has a clock of its own, and with it breakers of its own."""

import asyncio
import time
from collections.abc import Callable, Coroutine
from typing import Any

from interlock import Engine, StepContext
from interlock.engine.dependencies.outlet import Outlet
from interlock.engine.open_engine import EngineOpening
from interlock.engine.shared.shared_redis import Clustered
from tests.conformance.engine.shop import Order, OrderMachine, State, shop

PATIENCE_S = 60


class OwnClock:
    """The real time; not the process's clock, so that its breakers are those of another process. It may go wrong."""

    def __init__(self, wrong_by_s: float = 0.0) -> None:
        self._wrong_by_s = wrong_by_s

    def wall_s(self) -> float:
        return time.time() + self._wrong_by_s

    def monotonic_s(self) -> float:
        return time.monotonic()


def engine(redis: str, url: str = "memory:", **more: Any) -> EngineOpening[Engine]:  # noqa: ANN401 -- what Engine.open takes.
    """An engine that stands for a process of its own. Its machine has an effect for each of its dependencies."""
    more.setdefault("clock", OwnClock())

    def name_dependencies(order: OrderMachine) -> None:
        for number, each in enumerate(more.get("dependencies", ())):
            order.effect(State.PAUSED, dependency=each.name, name=f"call_{number}")(call)

    return Engine.open(url, machines=[shop(declare=name_dependencies).machine], redis=redis, **more)


async def call(order: Order, ctx: StepContext) -> None:
    """Stands for a call of a dependency."""


def cluster_of(engine: Engine) -> Clustered:
    cluster = engine._inside.cluster
    assert cluster is not None
    return cluster


def outlet_of(engine: Engine, name: str = "gateway") -> Outlet:
    return engine._inside.places.lines[name].outlet


async def until(condition: Callable[[], bool]) -> None:
    """Wait for what will be so."""
    async with asyncio.timeout(PATIENCE_S):
        while not condition():  # noqa: ASYNC110 -- what is waited for happens in another process.
            await asyncio.sleep(0.01)


def run(scenario: Callable[[], Coroutine[Any, Any, None]]) -> None:
    asyncio.run(scenario())
