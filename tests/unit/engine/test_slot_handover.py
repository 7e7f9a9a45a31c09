"""What waits for a slot gets one, also when the one before it has no use for it any more (B12, G6); and a duplicate is
answered as the first time also when its event passed through an unwinding state (B5)."""

import asyncio
from collections.abc import Coroutine
from dataclasses import dataclass
from enum import Enum

from interlock.core.events import Event
from interlock.core.machine import Machine
from interlock.core.values import StepContext
from interlock.engine.engine import Engine


class State(Enum):
    NEW = "new"
    WORKING = "working"
    DONE = "done"
    UNWINDING = "unwinding"
    CANCELLED = "cancelled"


@dataclass(frozen=True)
class Job:
    number: int = 0


class JobEvent(Event): ...


@dataclass(frozen=True)
class Go(JobEvent): ...


@dataclass(frozen=True)
class Worked(JobEvent): ...


@dataclass(frozen=True)
class Cancel(JobEvent): ...


job = Machine(
    "job",
    states=State,
    context=Job,
    events=JobEvent,
    initial=State.NEW,
    final={State.DONE, State.CANCELLED},
    unwind={State.UNWINDING: State.CANCELLED},
)
job.on(Go, State.NEW, to=State.WORKING)
job.on(Worked, State.WORKING, to=State.DONE)
job.on(Cancel, State.NEW, State.WORKING, to=State.UNWINDING)


@job.step(State.WORKING, timeout_s=60, failed=State.UNWINDING)
async def work(context: Job, ctx: StepContext) -> Worked:
    return Worked()


@work.undo(Worked)
async def unwork(context: Job, done: Worked | None, ctx: StepContext) -> None:
    return


@job.effect(State.DONE)
async def tell(context: Job, ctx: StepContext) -> None:
    return


STALLED_S = 300
"""A test that waits longer than this waits for ever."""


def run(story: Coroutine[object, object, None]) -> None:
    asyncio.run(asyncio.wait_for(story, STALLED_S))


def test_a_slot_that_a_cancelled_workflow_was_called_for_is_passed_on() -> None:
    async def story() -> None:
        begun, ready = asyncio.Event(), asyncio.Event()

        async def slow(context: Job, ctx: StepContext) -> Worked:
            begun.set()
            await ready.wait()
            return Worked()

        async with Engine.open("memory:", machines=[job], steps={work: slow}, steps_max=1) as engine:
            for workflow in ("a", "b", "c"):
                await engine.start(job, workflow, Job())
                await engine.send(workflow, Go())
            await begun.wait()
            await engine.send("b", Cancel())
            ready.set()
            assert (await engine.wait("c")).state is State.DONE

    run(story())


def test_an_effect_that_finds_its_slot_taken_waits_for_the_next() -> None:
    async def story() -> None:
        told: set[str] = set()
        everybody = asyncio.Event()
        ready = asyncio.Event()

        async def slow(context: Job, ctx: StepContext) -> None:
            await ready.wait()
            told.add(ctx.workflow)
            if len(told) == 20:
                everybody.set()

        async with Engine.open("memory:", machines=[job], steps={tell: slow}, effects_max=2) as engine:
            for number in range(20):
                await engine.start(job, f"j-{number}", Job())
            await engine.send_many([(f"j-{number}", Go(), None) for number in range(20)])
            for number in range(20):
                await engine.wait(f"j-{number}")
            ready.set()
            await everybody.wait()
            assert len(told) == 20

    run(story())


def test_a_duplicate_that_passed_through_an_unwinding_state_is_answered_as_the_first_time() -> None:
    async def story() -> None:
        async with Engine.open("memory:", machines=[job]) as engine:
            await engine.start(job, "a", Job())
            first = await engine.send("a", Cancel(), key="k")
            again = await engine.send("a", Cancel(), key="k")
            assert (first.state, first.version, first.duplicate) == (State.CANCELLED, 3, False)
            assert (again.state, again.version, again.duplicate) == (State.CANCELLED, 3, True)

    run(story())
