"""C7: twice as much as can be done, for a minute: what is taken in is quick as ever, and the rest is refused at once.

In virtual time, where "at once" means that no time passes at all. `benchmarks/overload.py` measures the same for real.
"""

import asyncio
from dataclasses import dataclass

import pytest

from interlock import Admission, Dependency, Overloaded, StepContext, pipeline, step
from interlock.clock import SeededIds, SystemChance
from interlock.engine.bound_machine import BoundMachine
from interlock.engine.engine import Engine
from interlock.engine.engine_settings import EngineSettings
from interlock.store.memory import MemoryStore
from interlock.testing.campaigns import Luck
from interlock.testing.virtual_time import VirtualClock, VirtualLoop, open_on
from tests.simulation.passing import passing

PLACES = 10
TAKES_S = 0.1
CAPACITY = PLACES / TAKES_S
MINUTE_S = 60.0
luck = Luck(1)


@dataclass(frozen=True)
class Parcel:
    pass


@step(timeout_s=5, dependency="carrier", read_only=True)
async def carry(parcel: Parcel, ctx: StepContext) -> Parcel:
    await passing(luck.between(0.5, 1.5) * TAKES_S)
    return parcel


parcels = pipeline("parcels", context=Parcel, steps=[carry])


class Load:
    """A minute of one load: how long what was taken in took, what was refused, and how long the line got."""

    def __init__(self) -> None:
        self.took_s: list[float] = []
        self.refused: list[Overloaded] = []
        self.refused_late = 0
        self.waiting_max = 0

    @property
    def p95_s(self) -> float:
        return sorted(self.took_s)[int(0.95 * len(self.took_s))]


async def one(engine: Engine, loop: VirtualLoop, load: Load, name: str) -> None:
    began_s = loop.time()
    try:
        await engine.start(parcels, name, Parcel())
    except Overloaded as error:
        load.refused.append(error)
        load.refused_late += loop.time() > began_s
        return
    await engine.wait(name)
    load.took_s.append(loop.time() - began_s)


def minute(per_s: float, admission: Admission) -> Load:
    """So many parcels per second for a minute, evenly."""
    clock = VirtualClock()
    loop = VirtualLoop(clock)
    load = Load()

    async def scenario() -> None:
        engine, inside = await open_on(
            MemoryStore(clock),
            {"parcels": BoundMachine(parcels)},
            clock=clock,
            chance=SystemChance(1),
            ids=SeededIds(1),
            settings=EngineSettings(stall_check_s=0.0),
            admission=admission,
            dependencies=[Dependency("carrier", concurrency_max=PLACES)],
        )
        async with asyncio.TaskGroup() as group:
            for number in range(int(per_s * MINUTE_S)):
                group.create_task(one(engine, loop, load, f"p{number}"))
                load.waiting_max = max(load.waiting_max, inside.places.waiting)
                await passing(1 / per_s)
        await engine.close()

    try:
        loop.run(scenario())
    finally:
        loop.leave()
    return load


@pytest.mark.slow
def test_at_twice_the_capacity_what_is_taken_in_keeps_its_pace_and_the_rest_is_refused_at_once() -> None:
    """With a rate: nothing is taken in that could not be done."""
    admission = Admission(rate_per_s=0.9 * CAPACITY, burst=PLACES / 4)
    normal, overload = minute(0.7 * CAPACITY, admission), minute(2 * CAPACITY, admission)
    assert not normal.refused
    assert overload.p95_s < 1.1 * normal.p95_s
    assert len(overload.took_s) > 0.85 * CAPACITY * MINUTE_S
    assert len(overload.took_s) + len(overload.refused) == int(2 * CAPACITY * MINUTE_S)
    assert overload.refused_late == 0
    assert all(0 < error.retry_after_s < 1 for error in overload.refused)


@pytest.mark.slow
def test_a_bound_on_the_backlog_alone_bounds_the_wait() -> None:
    """Without a rate: as much is taken in as may wait, and the longest wait follows from that."""
    backlog = PLACES
    overload = minute(2 * CAPACITY, Admission(in_flight_max=backlog))
    assert overload.refused_late == 0
    assert overload.waiting_max <= backlog
    assert len(overload.took_s) > 0.95 * CAPACITY * MINUTE_S
    assert overload.p95_s < 1.5 * TAKES_S + 1.5 * backlog / CAPACITY


@pytest.mark.slow
def test_without_admission_the_line_grows_and_grows() -> None:
    """The load of these tests is one under which an engine that takes everything in does not keep its pace."""
    overload = minute(2 * CAPACITY, Admission())
    assert overload.waiting_max > 0.9 * CAPACITY * MINUTE_S
    assert overload.p95_s > MINUTE_S / 2
