"""Taking up what another life has left: ways in which it was broken once."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from enum import Enum

import pytest

from interlock import Engine, Event, Machine, Retry, RetryAfter, StepContext
from interlock.engine.bound_machine import decode_owed
from interlock.testing import Harness
from tests.unit.engine.order_shop import Gated, gated, run, turns

HOUR_US = 3_600_000_000


class State(Enum):
    DRAFT = "draft"
    WORKING = "working"
    DONE = "done"


UNREADABLE: set[int] = set()


@dataclass(frozen=True)
class Job:
    number: int = 0

    def __post_init__(self) -> None:
        if self.number in UNREADABLE:
            raise ValueError("it cannot be read")


class JobEvent(Event): ...


@dataclass(frozen=True)
class Begin(JobEvent): ...


@dataclass(frozen=True)
class Worked(JobEvent): ...


@dataclass(frozen=True)
class Noticed(JobEvent): ...


Work = Callable[[StepContext], Awaitable[Worked]]


async def worked(ctx: StepContext) -> Worked:
    del ctx
    return Worked()


def jobs(
    work: Work | None = worked, *, mail: Callable[[StepContext], Awaitable[None]] | None = None
) -> Machine[State, Job, JobEvent]:
    machine = Machine("job", states=State, context=Job, events=JobEvent, initial=State.DRAFT, final={State.DONE})
    machine.on(Begin, State.DRAFT, to=State.WORKING)
    machine.on(Worked, State.WORKING, to=State.DONE)
    machine.on(Noticed, State.WORKING)
    if work is not None:

        @machine.step(State.WORKING, timeout_s=60, retry=Retry(attempts=3, first_s=0.001))
        async def working(job: Job, ctx: StepContext) -> Worked:
            del job
            return await work(ctx)

    if mail is not None:

        @machine.effect(State.DONE)
        async def mailing(job: Job, ctx: StepContext) -> None:
            del job
            await mail(ctx)

    return machine


async def begun(engine: Engine, machine: Machine[State, Job, JobEvent], workflow: str, job: Job) -> None:
    await engine.start(machine, workflow, job)
    await engine.send(workflow, Begin())
    await turns()


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch) -> Gated:
    UNREADABLE.clear()
    return gated(monkeypatch)


def later(store: Gated, monkeypatch: pytest.MonkeyPatch) -> None:
    """An hour passes."""
    now_us = store.now_us
    monkeypatch.setattr(store, "now_us", lambda: now_us() + HOUR_US)


async def for_ever(ctx: StepContext) -> None:
    del ctx
    await turns(1_000_000)


def test_a_workflow_that_cannot_be_read_does_not_keep_the_place_of_a_step(
    store: Gated, caplog: pytest.LogCaptureFixture
) -> None:
    """G5, G6: it is left as it is, the log says so, and all others go on."""
    del store

    async def never(ctx: StepContext) -> Worked:
        await for_ever(ctx)
        return Worked()

    async def test() -> None:
        machine = jobs(never)
        async with Engine.open("memory:", machines=[machine], drain_s=0) as engine:
            await begun(engine, machine, "w-1", Job(7))
        UNREADABLE.add(7)
        machine = jobs()
        async with Engine.open("memory:", machines=[machine], steps_max=1) as engine:
            await begun(engine, machine, "w-2", Job(8))
            assert (await engine.get("w-2")).state is State.DONE

    run(test())
    assert "workflow 'w-1' cannot be taken further" in caplog.text
    assert "workflow 'w-1' of 'job' is stored in a way that the machine cannot read" in caplog.text


def test_a_workflow_that_cannot_be_read_does_not_keep_the_place_of_an_effect(store: Gated) -> None:
    """B12, G6."""
    del store
    mailed: list[str] = []

    async def mail(ctx: StepContext) -> None:
        mailed.append(ctx.workflow)

    async def test() -> None:
        machine = jobs(mail=for_ever)
        async with Engine.open("memory:", machines=[machine], drain_s=0) as engine:
            await begun(engine, machine, "w-1", Job(7))
        UNREADABLE.add(7)
        machine = jobs(mail=mail)
        async with Engine.open("memory:", machines=[machine], effects_max=1) as engine:
            await begun(engine, machine, "w-2", Job(8))
        assert mailed == ["w-2"]

    run(test())


def test_a_retry_that_is_due_at_the_moment_of_a_dropped_timer_is_not_dropped_with_it() -> None:
    """B6, B9: a crash of just the length of a timer whose policy is "remaining"."""
    UNREADABLE.clear()
    machine = jobs(worked)
    machine.after(State.WORKING, after_s=60, send=Noticed(), policy="remaining")
    with Harness(machine) as h:
        h.hang("working")
        h.start("w-1", Job())
        h.send("w-1", Begin())
        h.crash(down_s=60)
        h.advance(seconds=30)
        assert h.view("w-1").state is State.DONE


def test_the_time_before_the_first_worker_does_not_count_for_a_timer_with_the_policy_remaining(
    store: Gated, monkeypatch: pytest.MonkeyPatch
) -> None:
    """B9: an engine that runs no steps has started it, and an hour later one that does is opened."""

    async def test() -> None:
        machine = jobs()
        machine.after(State.DRAFT, after_s=60, send=Begin(), policy="remaining")
        async with Engine.open("memory:", machines=[machine], worker=False) as engine:
            await engine.start(machine, "w-1", Job())
        later(store, monkeypatch)
        async with Engine.open("memory:", machines=[machine]):
            [timer] = decode_owed((await store.load(["w-1"]))["w-1"].owed).timers
            assert timer.at_us > store.now_us()

    run(test())


def test_what_a_replaced_definition_has_left_owed_is_taken_up_by_every_later_life(
    store: Gated, monkeypatch: pytest.MonkeyPatch
) -> None:
    """B6: the step is gone from the machine, its retry was not due yet when the new one was opened first."""

    async def not_now(ctx: StepContext) -> Worked:
        del ctx
        raise RetryAfter(60)

    async def test() -> None:
        old, new = jobs(not_now), jobs(None)
        async with Engine.open("memory:", machines=[old]) as engine:
            await begun(engine, old, "w-1", Job())
        async with Engine.open("memory:", machines=[new], accept_changes=True) as engine:
            assert not await engine.dead_letters()
        later(store, monkeypatch)
        async with Engine.open("memory:", machines=[new], accept_changes=True) as engine:
            await turns()
            assert [letter.workflow for letter in await engine.dead_letters("step")] == ["w-1"]

    run(test())
