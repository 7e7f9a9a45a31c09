"""E8: a step's `per=` and `priority=` are computed when its state is entered, and its dependency limits each key."""

import asyncio
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any

import pytest

from interlock import Dependency, Event, Machine, StepContext, UserCodeError
from tests.conformance.engine.places import Place, run


class State(Enum):
    DRAFT = "draft"
    CALLING = "calling"
    DONE = "done"


@dataclass(frozen=True)
class Job:
    tenant: str = ""


class JobEvent(Event):
    pass


@dataclass(frozen=True)
class Begin(JobEvent):
    tenant: str = ""


@dataclass(frozen=True)
class Called(JobEvent):
    pass


class World:
    """Counts the calls of each tenant that run together."""

    def __init__(self) -> None:
        self.now = Counter[str]()
        self.most = Counter[str]()
        self.calls: list[str] = []

    async def call(self, job: Job, ctx: StepContext) -> Called:
        self.calls.append(ctx.workflow)
        self.now[job.tenant] += 1
        self.most[job.tenant] = max(self.most[job.tenant], self.now[job.tenant])
        for _ in range(20):
            await asyncio.sleep(0)
        self.now[job.tenant] -= 1
        return Called()


def machine(
    world: World, per: Callable[[Job], Any] | None = None, priority: Callable[[Job], Any] | None = None
) -> Machine[State, Job, JobEvent]:
    job = Machine("job", states=State, context=Job, events=JobEvent, initial=State.DRAFT, final={State.DONE})

    @job.on(Begin, State.DRAFT, to=State.CALLING)
    def begin(job: Job, event: Begin) -> Job:
        return replace(job, tenant=event.tenant)

    job.on(Called, State.CALLING, to=State.DONE)

    @job.step(State.CALLING, timeout_s=20, dependency="gateway", per=per, priority=priority)
    async def call(job: Job, ctx: StepContext) -> Called:
        return await world.call(job, ctx)

    return job


def test_a_tenant_has_at_most_its_places_and_all_are_done(place: Place) -> None:
    async def scenario() -> None:
        world = World()
        job = machine(world, per=lambda job: job.tenant, priority=lambda job: len(job.tenant))
        gateway = Dependency("gateway", 4, per_concurrency_max=2)
        async with place.engine(job, dependencies=[gateway]) as engine:
            names = [f"{tenant}-{number}" for tenant in ("ada", "bob", "eve") for number in range(8)]
            await engine.send_many([(name, Begin(name[:3]), None, (job, Job())) for name in names])
            for name in names:
                await engine.wait(name)
            assert Counter(world.calls) == Counter(names)
            assert max(world.most.values()) <= 2

    run(scenario)


def test_the_key_is_kept_for_the_next_life(kept: Place) -> None:
    async def scenario() -> None:
        world = World()
        job = machine(world, per=lambda job: job.tenant)
        async with kept.engine(job, worker=False) as engine:
            for number in range(6):
                await engine.send(f"w-{number}", Begin("ada"), start=(job, Job()))
        gateway = Dependency("gateway", 4, per_concurrency_max=1)
        async with kept.engine(job, dependencies=[gateway]) as engine:
            for number in range(6):
                await engine.wait(f"w-{number}")
            assert world.most["ada"] == 1

    run(scenario)


def wrong(_: Job) -> str:
    raise ZeroDivisionError("no tenant")


@pytest.mark.parametrize(
    ("per", "priority", "what"),
    [
        (wrong, None, r"per= of step 'call' for BEGIN in state 'calling' raised ZeroDivisionError: no tenant"),
        (lambda _: 7, None, r"per= of step 'call' for BEGIN in state 'calling' returned 7 \(int\)"),
        (lambda _: "x" * 201, None, r"per= of step 'call' .* \(str\)"),
        (None, lambda _: "high", r"priority= of step 'call' .* returned 'high' \(str\)"),
        (None, lambda _: True, r"priority= of step 'call' .* returned True \(bool\)"),
        (None, lambda _: 2**40, r"priority= of step 'call' .* \(int\)"),
    ],
)
def test_a_function_that_raises_or_returns_another_type_is_refused_and_changes_nothing(
    place: Place, per: Callable[[Job], Any] | None, priority: Callable[[Job], Any] | None, what: str
) -> None:
    async def scenario() -> None:
        world = World()
        job = machine(world, per=per, priority=priority)
        async with place.engine(job) as engine:
            await engine.start(job, "w-1", Job())
            with pytest.raises(UserCodeError, match=what) as raised:
                await engine.send("w-1", Begin("ada"))
            assert ("Return a str" in str(raised.value.fix)) == ("returned" in raised.value.what)
            assert ((await engine.get("w-1")).version, world.calls) == (1, [])

    run(scenario)
