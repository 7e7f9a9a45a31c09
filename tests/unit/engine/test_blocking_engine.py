"""`BlockingEngine`: the engine for code that is not async (C1). A portal must neither lose a call nor wait for ever."""

import asyncio
import inspect
import os
import signal
import subprocess
import sys
import threading
import traceback
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from enum import Enum
from pathlib import Path
from typing import assert_type

import pytest

from interlock import (
    BlockingEngine,
    BlockingWorkflows,
    DefinitionError,
    Engine,
    Event,
    InvalidTransition,
    LaneOwned,
    Machine,
    Page,
    Signal,
    StepContext,
    TransitionApplied,
    UnavailableError,
    UserCodeError,
    View,
    WaitTimeout,
    Workflows,
)
from interlock.engine.views import Waiter
from interlock.errors import BadUsage
from tests.interrupts import interrupts

SOURCE = Path(__file__).resolve().parents[3] / "src"


class State(Enum):
    OPEN = "open"
    WORKING = "working"
    DONE = "done"


@dataclass(frozen=True)
class Job:
    worth: int = 0


class JobEvent(Event):
    pass


@dataclass(frozen=True)
class Begin(JobEvent):
    worth: int


@dataclass(frozen=True)
class Add(JobEvent):
    worth: int


@dataclass(frozen=True)
class Finished(JobEvent):
    pass


job = Machine(
    "job", states=State, context=Job, events=JobEvent, initial=State.OPEN, final={State.DONE}, resting={State.OPEN}
)


def divide(job: Job, event: Add) -> Job:
    return replace(job, worth=job.worth + 1 // event.worth)


job.on(Begin, State.OPEN, to=State.WORKING)(lambda job, event: replace(job, worth=event.worth))
job.on(Add, State.OPEN)(divide)
job.on(Finished, State.WORKING, to=State.DONE)


@job.step(State.WORKING, timeout_s=30)
async def work(job: Job, ctx: StepContext) -> Finished:
    return Finished()


@pytest.fixture
def engine() -> Iterator[BlockingEngine]:
    with BlockingEngine.open("memory:", machines=[job]) as opened:
        yield opened


def portals() -> int:
    """The threads of engines; those that open, read and close lanes are shared by all of them, and stay."""
    return sum(thread.name == "interlock-engine" for thread in threading.enumerate())


def public(cls: type) -> set[str]:
    return {name for name in dir(cls) if not name.startswith("_")}


# --- the same surface -------------------------------------------------------------------------------------------------


def test_a_synchronous_program_has_the_whole_life_of_a_workflow(engine: BlockingEngine) -> None:
    assert_type(engine.start(job, "j-1", Job()), View[State, Job])
    moved = engine.send("j-1", Begin(worth=3), key="click-1")
    assert (moved.state, moved.version) == (State.WORKING, 2)
    assert engine.wait("j-1", State.DONE, timeout_s=60).context == Job(3)
    assert engine.send("j-1", Begin(worth=3), key="click-1").duplicate
    assert [row.event for row in engine.history("j-1")] == ["STARTED", "BEGIN", "FINISHED"]
    page = engine.find(job, state=State.DONE)
    assert_type(page, Page[State, Job])
    assert [view.id for view in page.items] == ["j-1"]
    assert engine.get("j-1").version == 3
    assert engine.stats("j-1").duplicate == 1
    assert engine.stalled(job, older_than_s=0) == []
    assert engine.allowed("j-1") == []
    assert engine.compensations() == []
    assert engine.dead_letters() == []
    assert len(engine.send_many([("j-1", Finished(), None), ("j-2", Finished(), None)])) == 2


def test_the_calls_of_one_machine_are_typed_by_it(engine: BlockingEngine) -> None:
    jobs = engine.of(job)
    assert_type(jobs, BlockingWorkflows[State, Job, JobEvent])
    assert_type(jobs.start("j-1", Job(7)), View[State, Job])
    assert_type(jobs.get("j-1").context, Job)
    assert jobs.send("j-1", Begin(worth=1)).state is State.WORKING
    assert jobs.wait("j-1", State.DONE).state is State.DONE
    assert len(jobs.history("j-1")) == 3
    assert len(jobs.find().items) == 1
    assert jobs.stalled() == []
    assert jobs.allowed("j-1") == []


@pytest.mark.parametrize(("there", "here"), [(Engine, BlockingEngine), (Workflows, BlockingWorkflows)])
def test_every_call_of_the_engine_is_there_with_the_same_parameters(there: type, here: type) -> None:
    """A method that the engine gets is missed here at once."""
    assert public(there) == public(here)
    for name in public(there) - {
        "of",
        "transaction",
        "close",
        "schedules",
        "bulk",
        "bulk_runs",
    }:  # What these give back is another class here.
        mine, theirs = inspect.signature(getattr(here, name)), inspect.signature(getattr(there, name))
        assert mine.parameters == theirs.parameters
        assert mine == theirs or name == "lease", "the block of a lease is another one, without async"
        assert not inspect.iscoroutinefunction(getattr(here, name))
        assert getattr(here, name).__doc__


def test_a_mistake_in_the_arguments_is_told_before_there_is_a_thread() -> None:
    before = portals()
    with pytest.raises(DefinitionError, match="Did you mean drain_s"):
        BlockingEngine.open("memory:", machines=[job], drian_s=1)
    assert portals() == before


def test_what_keeps_an_engine_from_opening_is_raised_and_leaves_no_thread(tmp_path: Path) -> None:
    url = f"lanes://{tmp_path}"
    with BlockingEngine.open(url, machines=[job]):
        before = portals()
        with pytest.raises(LaneOwned):
            BlockingEngine.open(url, machines=[job])
        assert portals() == before


def test_workflows_outlive_the_engine(tmp_path: Path) -> None:
    url = f"lanes://{tmp_path}"
    with BlockingEngine.open(url, machines=[job]) as first:
        first.start(job, "j-1", Job(5))
    with BlockingEngine.open(url, machines=[job]) as second:
        assert second.of(job).get("j-1").context == Job(5)


# --- threads ----------------------------------------------------------------------------------------------------------


def test_any_number_of_threads_may_call(engine: BlockingEngine) -> None:
    def walk(number: int) -> State:
        engine.start(job, f"j-{number}", Job())
        engine.send(f"j-{number}", Begin(worth=number))
        return engine.of(job).wait(f"j-{number}", State.DONE).state

    with ThreadPoolExecutor(16) as threads:
        assert list(threads.map(walk, range(200))) == [State.DONE] * 200
    assert len(engine.find(job, limit=1_000).items) == 200


def test_a_program_with_an_event_loop_of_its_own_may_call(engine: BlockingEngine) -> None:
    async def program() -> View[State, Job]:
        return engine.start(job, "j-1", Job())

    assert asyncio.run(program()).id == "j-1"


def test_an_observer_that_calls_the_engine_is_refused_instead_of_waiting_for_ever(engine: BlockingEngine) -> None:
    refused: list[BadUsage] = []

    def observer(signal: Signal) -> None:
        for call in (lambda: engine.get("j-1"), engine.close):
            with pytest.raises(BadUsage) as told:
                call()
            refused.append(told.value)

    engine.subscribe(observer)
    engine.start(job, "j-1", Job())
    engine.unsubscribe(observer)
    assert len(refused) == 2
    assert "its own event loop" in refused[0].what
    assert "asyncio.to_thread" in refused[0].fix
    assert engine.get("j-1").version == 1


def test_an_observer_may_unsubscribe_itself(engine: BlockingEngine) -> None:
    seen: list[Signal] = []

    def once(signal: Signal) -> None:
        seen.append(signal)
        engine.unsubscribe(once)

    engine.subscribe(once)
    engine.start(job, "j-1", Job())
    engine.start(job, "j-2", Job())
    assert [type(each) for each in seen] == [TransitionApplied]


def test_a_step_calls_the_engine_from_another_thread() -> None:
    async def asking(job: Job, ctx: StepContext) -> Finished:
        await asyncio.to_thread(opened[0].start, other, "of a step", Job())
        return Finished()

    other = job
    opened: list[BlockingEngine] = []
    with BlockingEngine.open("memory:", machines=[job], steps={work: asking}) as engine:
        opened.append(engine)
        engine.start(job, "j-1", Job())
        engine.send("j-1", Begin(worth=1))
        assert engine.wait("j-1", State.DONE).state is State.DONE
        assert engine.get("of a step").version == 1


# --- errors and interruptions -----------------------------------------------------------------------------------------


def test_an_error_keeps_its_class_its_cause_and_a_readable_traceback(engine: BlockingEngine) -> None:
    engine.start(job, "j-1", Job())
    with pytest.raises(InvalidTransition):
        engine.send("j-1", Finished())
    with pytest.raises(UserCodeError) as told:
        engine.send("j-1", Add(worth=0))
    assert isinstance(told.value.__cause__, ZeroDivisionError)
    text = "".join(traceback.format_exception(told.value))
    assert "in test_an_error_keeps_its_class" in text
    assert "in divide" in text
    with pytest.raises(TypeError, match="unexpected keyword"):
        engine.send("j-1", Finished(), kye="k")  # type: ignore[call-arg]


def test_the_time_of_a_wait_is_kept(engine: BlockingEngine) -> None:
    engine.start(job, "j-1", Job())
    with pytest.raises(WaitTimeout):
        engine.wait("j-1", State.DONE, timeout_s=0.01)


def test_an_interrupted_wait_leaves_the_engine_usable(engine: BlockingEngine) -> None:
    """The interruption comes out of the loop, once the wait is known there."""
    engine.start(job, "j-1", Job())
    main = threading.main_thread().ident
    assert main is not None
    waiters = engine._inside._inside.waiters
    add = waiters.add

    def interrupting(workflow: str, waiter: Waiter) -> None:
        add(workflow, waiter)
        signal.pthread_kill(main, signal.SIGINT)

    waiters.add = interrupting  # type: ignore[method-assign]
    with interrupts(), pytest.raises(KeyboardInterrupt):
        engine.wait("j-1", State.DONE)
    waiters.add = add  # type: ignore[method-assign]
    engine.send("j-1", Begin(worth=1))
    assert engine.wait("j-1", State.DONE).state is State.DONE


# --- the end ----------------------------------------------------------------------------------------------------------


def test_closing_twice_is_once_and_ends_the_thread(tmp_path: Path) -> None:
    before = portals()
    engine = BlockingEngine.open(f"lanes://{tmp_path}", machines=[job])
    with ThreadPoolExecutor(4) as threads:
        list(threads.map(lambda _: engine.close(), range(4)))
    engine.close()
    assert portals() == before
    with pytest.raises(UnavailableError, match="closed"):
        engine.get("j-1")
    with pytest.raises(UnavailableError, match="closed"):
        engine.subscribe(lambda _: None)
    BlockingEngine.open(f"lanes://{tmp_path}", machines=[job]).close()


def test_who_waits_when_the_engine_closes_is_told(engine: BlockingEngine) -> None:
    engine.start(job, "j-1", Job())
    waiters = engine._inside._inside.waiters
    waiting = threading.Event()
    add = waiters.add

    def noticing(workflow: str, waiter: Waiter) -> None:
        add(workflow, waiter)
        waiting.set()

    waiters.add = noticing  # type: ignore[method-assign]
    with ThreadPoolExecutor(1) as threads:
        wait = threads.submit(engine.wait, "j-1", State.DONE)
        assert waiting.wait(60)
        engine.close()
        assert isinstance(wait.exception(60), UnavailableError)


def in_child(do: Callable[[], None]) -> int:
    """Fork; the child does it and leaves with 0, or with 1 when anything was raised."""
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            do()
            code = 0
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


@pytest.mark.filterwarnings("ignore:.*multi-threaded.*:DeprecationWarning")
def test_a_forked_child_is_told_that_the_engine_is_its_parents(engine: BlockingEngine) -> None:
    def child() -> None:
        with engine, pytest.raises(UnavailableError, match="the engine belongs to process"):
            engine.get("j-1")
        with pytest.raises(UnavailableError, match="forked child"):
            engine.close()

    assert in_child(child) == 0
    assert engine.start(job, "j-1", Job()).version == 1


FORGETFUL = """
import sys
from interlock import BlockingEngine
from interlock.examples.order import Order, order

engine = BlockingEngine.open("lanes://" + sys.argv[1], machines=[order])
engine.start(order, "o-1", Order())
print("durable", flush=True)
"""


def test_a_program_that_forgets_to_close_ends_all_the_same(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", FORGETFUL, str(tmp_path)],
        env={**os.environ, "PYTHONPATH": str(SOURCE)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "durable\n", "")
