"""Attempts of steps that do not suspend share a task; none sees another, and one that suspends has it for itself."""

import asyncio
from contextvars import ContextVar
from typing import cast

import pytest

from interlock import Engine, StepContext
from interlock.engine.internals import EngineParts
from interlock.engine.path.staged_group import Staged
from tests.unit.engine.calls import Go, Job, JobMachine, State, engine_of, jobs
from tests.unit.engine.shared.stores import now_s, play

IDS = [f"j-{number}" for number in range(8)]
SEEN: ContextVar[str] = ContextVar("seen", default="nothing")


class Tasks:
    """The tasks in which attempts ran, and what each found in its context."""

    def __init__(self) -> None:
        self.tasks: list[asyncio.Task[object]] = []
        self.found: list[str] = []

    def note(self, ctx: StepContext, *, sets: bool = False) -> asyncio.Task[object]:
        task = asyncio.current_task()
        assert task is not None
        self.tasks.append(task)
        self.found.append(SEEN.get())
        if sets:
            SEEN.set(ctx.workflow)
        return task


async def all_begun(engine: Engine, machine: JobMachine) -> None:
    """Their steps begin with one group."""
    await asyncio.gather(*(engine.start(machine, each, Job()) for each in IDS))
    await engine.send_many([(each, Go()) for each in IDS])


async def all_done(engine: Engine) -> list[object]:
    return [view.state for view in await asyncio.gather(*(engine.wait(each) for each in IDS))]


def test_attempts_that_do_not_suspend_run_in_one_task() -> None:
    async def scenario() -> None:
        ran = Tasks()

        async def call(ctx: StepContext) -> None:
            _ = ran.note(ctx)

        machine = jobs(call)
        async with engine_of(machine) as engine:
            await all_begun(engine, machine)
            assert await all_done(engine) == [State.DONE] * len(IDS)
        assert len(ran.tasks) == len(IDS)
        assert len(set(ran.tasks)) == 1

    play(scenario)


def test_what_an_attempt_sets_in_its_context_is_not_seen_by_others() -> None:
    async def scenario() -> None:
        ran = Tasks()

        async def call(ctx: StepContext) -> None:
            _ = ran.note(ctx, sets=True)

        machine = jobs(call)
        async with engine_of(machine) as engine:
            await all_begun(engine, machine)
            assert await all_done(engine) == [State.DONE] * len(IDS)
        assert ran.found == ["nothing"] * len(IDS)
        assert len(set(ran.tasks)) == len(IDS)

    play(scenario)


def test_an_attempt_that_cancels_its_task_cancels_no_other() -> None:
    async def scenario() -> None:
        ran = Tasks()

        async def call(ctx: StepContext) -> None:
            task = ran.note(ctx)
            if ctx.workflow == IDS[0]:
                task.cancel()

        machine = jobs(call)
        async with engine_of(machine) as engine:
            await all_begun(engine, machine)
            assert await all_done(engine) == [State.DONE] * len(IDS)
        assert ran.tasks.count(ran.tasks[0]) == 1

    play(scenario)


def test_one_that_suspends_holds_up_nobody_and_has_its_timeout() -> None:
    async def scenario() -> None:
        ran, gate = Tasks(), asyncio.Event()

        async def call(ctx: StepContext) -> None:
            _ = ran.note(ctx)
            if ctx.workflow == IDS[2]:
                await gate.wait()

        machine = jobs(call, timeout_s=30, attempts=1)
        async with engine_of(machine) as engine:
            await all_begun(engine, machine)
            others = [each for each in IDS if each != IDS[2]]
            assert {(await engine.wait(each)).state for each in others} == {State.DONE}
            assert now_s() < 1
            assert (await engine.wait(IDS[2])).state is State.FAILED
            assert now_s() == pytest.approx(30, abs=0.1)
            assert len(set(ran.tasks[:3])) == 1, "until then they shared it"
            assert len(set(ran.tasks)) == len(IDS) - 2, "then each has its own"

    play(scenario)


def test_those_that_have_not_begun_when_the_engine_stops_are_cancelled(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario() -> None:
        called: list[str] = []

        async def call(ctx: StepContext) -> None:
            called.append(ctx.workflow)

        machine = jobs(call)
        async with engine_of(machine) as engine:
            runner = cast("EngineParts", engine._pipeline._listener).runner
            act = runner.act
            tasks: list[asyncio.Task[None]] = []

            def stopping(staged: Staged) -> None:
                act(staged)
                if len(runner._ready) == len(IDS):
                    tasks.extend(runner.abort())

            monkeypatch.setattr(runner, "act", stopping)
            await all_begun(engine, machine)
            assert len(tasks) == len(IDS), "each has a task, which reports its end"
            await asyncio.wait(tasks)
            assert called == []
            views = [await engine.get(each) for each in IDS]
            assert {view.state for view in views} == {State.CALLING}

    play(scenario)
