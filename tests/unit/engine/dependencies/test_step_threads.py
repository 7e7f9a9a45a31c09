"""C20: a step, an undo or an effect that blocks runs in a thread, which is counted until it truly ends."""

import asyncio
import threading
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum

import pytest

from interlock import (
    DefinitionError,
    Dependency,
    Engine,
    Event,
    Machine,
    NonRetryable,
    Retry,
    StepContext,
    pipeline,
    step,
)
from interlock.signals import ResultLate, Signal, StepAttempted
from interlock.testing import Harness


class State(Enum):
    CALLING = "calling"
    DONE = "done"
    UNDOING = "undoing"
    GONE = "gone"


@dataclass(frozen=True)
class Call:
    pass


class CallEvent(Event):
    pass


@dataclass(frozen=True)
class Answered(CallEvent):
    pass


@dataclass(frozen=True)
class Cancel(CallEvent):
    pass


CallMachine = Machine[State, Call, CallEvent]


class World:
    """What the functions of a machine do, and in which threads."""

    def __init__(self) -> None:
        self.threads: list[str] = []
        self.begun = threading.Semaphore(0)
        self.go = threading.Event()
        self.undone = asyncio.Event()
        self.done: list[CallEvent | None] = []
        self.loop = asyncio.get_running_loop()

    def hang(self) -> None:
        self.go.wait()

    async def wait_for_begin(self) -> None:
        await asyncio.to_thread(self.begun.acquire)


def machine(
    call: Callable[[StepContext], None], world: World, *, timeout_s: float = 60.0, attempts: int = 1
) -> CallMachine:
    calls: CallMachine = Machine(
        "call",
        states=State,
        context=Call,
        events=CallEvent,
        initial=State.CALLING,
        final={State.DONE, State.GONE},
        unwind={State.UNDOING: State.GONE},
    )
    calls.on(Answered, State.CALLING, to=State.DONE)
    calls.on(Cancel, State.CALLING, to=State.UNDOING)
    retry = Retry(attempts=attempts)

    @calls.step(State.CALLING, timeout_s=timeout_s, retry=retry, dependency="bank", failed=State.UNDOING, blocking=True)
    def ring(context: Call, ctx: StepContext) -> Answered:
        world.threads.append(threading.current_thread().name)
        call(ctx)
        return Answered()

    @ring.undo(Answered, blocking=True)
    def hang_up(context: Call, done: Answered | None, ctx: StepContext) -> None:
        world.threads.append(threading.current_thread().name)
        world.done.append(done)
        world.loop.call_soon_threadsafe(world.undone.set)

    return calls


def under_way(engine: Engine) -> int:
    return engine.breakers()["bank"].under_way


def test_a_blocking_step_runs_in_a_thread_and_its_result_is_applied() -> None:
    async def scenario() -> None:
        world = World()

        def call(ctx: StepContext) -> None:
            world.begun.release()
            world.go.wait()

        calls = machine(call, world)
        async with Engine.open("memory:", machines=[calls]) as engine:
            await engine.start(calls, "c-1", Call())
            await world.wait_for_begin()  # The event loop turns while the step blocks its thread.
            assert under_way(engine) == 1
            world.go.set()
            assert (await engine.wait("c-1")).state is State.DONE
            assert under_way(engine) == 0
        assert [name.startswith("interlock ring-") for name in world.threads] == [True]
        assert not [each for each in threading.enumerate() if each.name.startswith("interlock ring-")]

    asyncio.run(scenario())


def test_an_error_in_the_thread_is_the_failure_of_the_step_with_its_traceback() -> None:
    async def scenario() -> None:
        def call(ctx: StepContext) -> None:
            raise StopIteration("no more")

        world = World()
        calls = machine(call, world)
        async with Engine.open("memory:", machines=[calls]) as engine:
            await engine.start(calls, "c-1", Call())
            assert (await engine.wait("c-1")).state is State.GONE
            [failed] = [row for row in await engine.history("c-1") if row.event == "STEP_FAILED"]
            assert "StopIteration" in str(failed.payload)
        assert world.done == [None]

    asyncio.run(scenario())


def test_a_thread_that_hangs_is_a_timeout_keeps_its_place_and_is_undone_when_it_has_ended() -> None:
    async def scenario() -> None:
        world, signals = World(), list[Signal]()
        timed_out, late = asyncio.Event(), asyncio.Event()

        def notice(signal: Signal) -> None:
            signals.append(signal)
            if isinstance(signal, StepAttempted) and signal.outcome == "timeout":
                timed_out.set()
            if isinstance(signal, ResultLate):
                late.set()

        calls = machine(lambda _: world.hang(), world, timeout_s=0.02)
        async with Engine.open("memory:", machines=[calls], observers=[notice]) as engine:
            await engine.start(calls, "c-1", Call())
            await timed_out.wait()
            view = await engine.wait("c-1", State.UNDOING)
            assert view.state is State.UNDOING
            assert under_way(engine) == 1  # The thread; the undo that waits for its end has stepped aside.
            assert world.done == []
            world.go.set()
            assert (await engine.wait("c-1")).state is State.GONE
            await late.wait()
            assert world.done == [None]
            assert under_way(engine) == 0

    asyncio.run(scenario())


def test_threads_that_hang_do_not_pile_up_beyond_the_places_of_their_dependency() -> None:
    async def scenario() -> None:
        world, timeouts = World(), asyncio.Semaphore(0)

        def notice(signal: Signal) -> None:
            if isinstance(signal, StepAttempted) and signal.outcome == "timeout":
                timeouts.release()

        calls = machine(lambda _: world.hang(), world, timeout_s=0.01, attempts=1)
        bank = Dependency("bank", concurrency_max=2)
        async with Engine.open("memory:", machines=[calls], observers=[notice], dependencies=[bank]) as engine:
            for number in range(6):
                await engine.start(calls, f"c-{number}", Call())
            await timeouts.acquire()
            await timeouts.acquire()
            view = await engine.get("c-5")
            assert "all 2 places of 'bank' are taken" in (view.waiting or "")
            assert len(world.threads) == 2
            world.go.set()
            for number in range(6):
                await engine.wait(f"c-{number}")
            assert under_way(engine) == 0

    asyncio.run(scenario())


def test_no_more_threads_run_than_the_engine_may_have() -> None:
    async def scenario() -> None:
        world = World()
        most = running = 0
        lock = threading.Lock()

        def call(ctx: StepContext) -> None:
            nonlocal most, running
            with lock:
                running += 1
                most = max(most, running)
            world.begun.release()
            world.go.wait()
            with lock:
                running -= 1

        calls = machine(call, world)
        async with Engine.open("memory:", machines=[calls], threads_max=2) as engine:
            for number in range(5):
                await engine.start(calls, f"c-{number}", Call())
            await world.wait_for_begin()
            await world.wait_for_begin()
            world.go.set()
            for number in range(5):
                assert (await engine.wait(f"c-{number}")).state is State.DONE
        assert most == 2

    asyncio.run(scenario())


def test_an_engine_closes_although_a_thread_hangs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("interlock.engine.steps.runner.CANCEL_S", 0.05)

    async def scenario() -> World:
        world = World()

        def call(ctx: StepContext) -> None:
            world.begun.release()
            world.go.wait()

        calls = machine(call, world)
        async with Engine.open("memory:", machines=[calls], drain_s=0) as engine:
            await engine.start(calls, "c-1", Call())
            await world.wait_for_begin()
        return world

    world = asyncio.run(scenario())
    [thread] = [each for each in threading.enumerate() if each.name.startswith("interlock ring-")]
    world.go.set()
    thread.join()


def test_in_virtual_time_a_blocking_step_is_called_in_the_event_loop() -> None:
    names: list[str] = []

    @step(timeout_s=5, blocking=True)
    def ring(context: Call, ctx: StepContext) -> Call:
        names.append(threading.current_thread().name)
        return context

    @ring.undo
    def hang_up(context: Call, ctx: StepContext) -> None:
        names.append("undone")

    @step(timeout_s=5, blocking=True)
    def fail(context: Call, ctx: StepContext) -> Call:
        raise NonRetryable("wrong")

    calls = pipeline("call", context=Call, steps=[ring, fail])
    with Harness(calls) as harness:
        harness.start("c-1", Call())
        harness.advance(minutes=10)
        assert harness.view("c-1").state.name == "FAILED"
    assert names == [threading.current_thread().name, "undone"]


def test_a_plain_function_names_blocking_and_an_async_one_cannot_block() -> None:
    calls: CallMachine = Machine(
        "call", states=State, context=Call, events=CallEvent, initial=State.CALLING, final={State.DONE}
    )

    def plain(context: Call, ctx: StepContext) -> Answered:
        return Answered()

    async def waits(context: Call, ctx: StepContext) -> Answered:
        return Answered()

    with pytest.raises(DefinitionError, match="blocking=True: it runs in a thread"):
        calls.step(State.CALLING, timeout_s=1)(plain)  # type: ignore[arg-type]
    with pytest.raises(DefinitionError, match="is async and declared blocking=True"):
        calls.step(State.CALLING, timeout_s=1, blocking=True)(waits)  # type: ignore[arg-type]
    with pytest.raises(DefinitionError, match="is async and declared blocking=True"):
        calls.effect(State.DONE, blocking=True)(waits)  # type: ignore[arg-type]
    ring = calls.step(State.CALLING, timeout_s=1, blocking=True)(plain)
    with pytest.raises(DefinitionError, match="is not async"):
        ring.undo(Answered)(lambda context, done, ctx: None)  # type: ignore[arg-type, return-value]
    assert asyncio.run(ring(Call(), StepContext(key="k", workflow="w", attempt=1, visit=1))) == Answered()
