"""A machine of one step that calls a dependency, and engines for it in virtual time."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from enum import Enum

from interlock import Admission, Dependency, Engine, Event, Machine, Retry, StepContext
from interlock.clock import SeededIds
from interlock.testing.virtual_time import VirtualLoop
from tests.unit.engine.shared.stores import Luck


class State(Enum):
    NEW = "new"
    CALLING = "calling"
    PLAIN = "plain"
    DONE = "done"
    UNDOING = "undoing"
    FAILED = "failed"


@dataclass(frozen=True)
class Job:
    note: str = ""


class JobEvent(Event):
    pass


@dataclass(frozen=True)
class Go(JobEvent):
    pass


@dataclass(frozen=True)
class Plain(JobEvent):
    pass


@dataclass(frozen=True)
class Called(JobEvent):
    pass


@dataclass(frozen=True)
class Cancel(JobEvent):
    pass


JobMachine = Machine[State, Job, JobEvent]
Call = Callable[[StepContext], Awaitable[None]]


async def nothing(ctx: StepContext) -> None:
    """A call that works at once."""


def jobs(
    call: Call,
    *,
    undo: Call = nothing,
    attempts: int = 5,
    timeout_s: float = 60.0,
    heartbeat_s: float | None = None,
    name: str = "job",
) -> JobMachine:
    """New, calling (a step at "gateway", or a plain one), done; cancel unwinds."""
    machine: JobMachine = Machine(
        name,
        states=State,
        context=Job,
        events=JobEvent,
        initial=State.NEW,
        final={State.DONE, State.FAILED},
        unwind={State.UNDOING: State.FAILED},
    )
    retry = Retry(attempts=attempts)
    machine.on(Go, State.NEW, to=State.CALLING)
    machine.on(Plain, State.NEW, to=State.PLAIN)
    machine.on(Called, State.CALLING, to=State.DONE)
    machine.on(Called, State.PLAIN, to=State.DONE)
    machine.on(Cancel, State.NEW, State.CALLING, State.PLAIN, to=State.UNDOING)

    @machine.step(
        State.CALLING,
        timeout_s=timeout_s,
        retry=retry,
        failed=State.UNDOING,
        dependency="gateway",
        heartbeat_s=heartbeat_s,
    )
    async def calling(job: Job, ctx: StepContext) -> Called:
        await call(ctx)
        return Called()

    @calling.undo(Called)
    async def back(job: Job, done: Called | None, ctx: StepContext) -> None:
        await undo(ctx)

    @machine.step(State.PLAIN, timeout_s=60, retry=retry, failed=State.UNDOING)
    async def plain(job: Job, ctx: StepContext) -> Called:
        return Called()

    return machine


def virtual_loop() -> VirtualLoop:
    """The loop of this scenario."""
    loop = asyncio.get_running_loop()
    assert isinstance(loop, VirtualLoop)
    return loop


@asynccontextmanager
async def engine_of(
    *machines: JobMachine, dependencies: Sequence[Dependency] = (), admission: Admission | None = None, **settings: int
) -> AsyncIterator[Engine]:
    """An engine in memory and in virtual time, whose retries come at once and whose stop waits for no step."""
    async with Engine.open(
        "memory:",
        machines=machines,
        dependencies=dependencies,
        admission=admission or Admission(),
        clock=virtual_loop().clock,
        chance=Luck(),
        ids=SeededIds(1),
        drain_s=0.0,
        stall_check_s=0.0,
        **settings,  # type: ignore[arg-type]  # Nothing but settings.
    ) as engine:
        yield engine


async def begun(engine: Engine, machine: JobMachine, *workflows: str) -> None:
    """Start these, and have them call."""
    for workflow in workflows:
        await engine.start(machine, workflow, Job())
        await engine.send(workflow, Go())
