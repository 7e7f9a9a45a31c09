"""C2-C4: what an attempt says about its dependency, and how one ends that gives no sign of life."""

import asyncio
import threading

import pytest

from interlock import Breaker, Dependency, NonRetryable, Retryable, StepContext
from interlock.engine.dependencies.classify_errors import Kind
from interlock.engine.dependencies.wait_queue import Pass
from interlock.engine.path.engine_commands import Failure
from interlock.engine.steps.attempt import RunningAttempt
from interlock.testing.virtual_time import VirtualClock
from tests.conformance.engine.places import settled
from tests.unit.engine.calls import State, begun, engine_of, jobs, virtual_loop
from tests.unit.engine.dependencies.queues import Queue, opened_slots
from tests.unit.engine.shared.stores import now_s, passed, play

ONE = Dependency("gateway", 50, breaker=Breaker(failures=1, reset_s=30))


# --- heartbeats ------------------------------------------------------------------------------------------------------


def test_a_silent_step_is_ended_as_a_timeout() -> None:
    """C2: long steps need no long silence to be noticed."""

    async def scenario() -> None:
        async def call(ctx: StepContext) -> None:
            await asyncio.get_running_loop().create_future()

        machine = jobs(call, attempts=1, timeout_s=3_600, heartbeat_s=30)
        async with engine_of(machine, dependencies=[ONE]) as engine:
            await begun(engine, machine, "j-1")
            assert (await engine.wait("j-1")).state is State.FAILED
            assert now_s() == pytest.approx(30, abs=0.1)
            assert engine.breakers()["gateway"].reason == "1 failure, the last: timeout: no sign of life for 30 s"

    play(scenario)


def test_a_step_that_beats_may_take_its_whole_time() -> None:
    async def scenario() -> None:
        async def call(ctx: StepContext) -> None:
            for _ in range(10):
                await passed(25)
                ctx.heartbeat()

        machine = jobs(call, attempts=1, timeout_s=3_600, heartbeat_s=30)
        async with engine_of(machine) as engine:
            await begun(engine, machine, "j-1")
            assert (await engine.wait("j-1")).state is State.DONE
            assert now_s() == pytest.approx(250, abs=0.1)

    play(scenario)


def test_a_step_that_beats_and_stops_is_ended_a_heartbeat_after_its_last_one() -> None:
    async def scenario() -> None:
        async def call(ctx: StepContext) -> None:
            await passed(20)
            ctx.heartbeat()
            await asyncio.get_running_loop().create_future()

        machine = jobs(call, attempts=1, timeout_s=3_600, heartbeat_s=30)
        async with engine_of(machine) as engine:
            await begun(engine, machine, "j-1")
            assert (await engine.wait("j-1")).state is State.FAILED
            assert now_s() == pytest.approx(50, abs=0.1)

    play(scenario)


def test_a_heartbeat_does_not_lengthen_the_time_limit() -> None:
    async def scenario() -> None:
        async def call(ctx: StepContext) -> None:
            while True:
                await passed(1)
                ctx.heartbeat()

        machine = jobs(call, attempts=1, timeout_s=10, heartbeat_s=5)
        async with engine_of(machine, dependencies=[ONE]) as engine:
            await begun(engine, machine, "j-1")
            assert (await engine.wait("j-1")).state is State.FAILED
            assert now_s() == pytest.approx(10, abs=0.1)
            assert "it took longer than 10 s" in engine.breakers()["gateway"].reason

    play(scenario)


def test_a_heartbeat_may_come_from_another_thread() -> None:
    async def scenario() -> None:
        async def call(ctx: StepContext) -> None:
            for _ in range(4):
                await passed(25)
                thread = threading.Thread(target=ctx.heartbeat)
                thread.start()
                thread.join()

        machine = jobs(call, attempts=1, timeout_s=3_600, heartbeat_s=30)
        async with engine_of(machine) as engine:
            await begun(engine, machine, "j-1")
            assert (await engine.wait("j-1")).state is State.DONE

    play(scenario)


def test_an_attempt_that_has_ended_leaves_no_timer_behind() -> None:
    """Memory and timers stay flat however many steps with a heartbeat are run."""

    async def scenario() -> None:
        async def call(ctx: StepContext) -> None:
            await passed(1)

        machine = jobs(call, attempts=1, timeout_s=3_600, heartbeat_s=1_000)
        async with engine_of(machine) as engine:
            await begun(engine, machine, *(f"j-{each}" for each in range(20)))
            for each in range(20):
                await engine.wait(f"j-{each}")
            await settled(engine)
            silent = [timer for timer in virtual_loop()._timers() if 900 < timer.when() < 1_100]
            assert all(timer.cancelled() for timer in silent)

    play(scenario)


def test_nobody_hears_a_heartbeat_before_the_attempt_runs() -> None:
    attempt = RunningAttempt("j-1", "k", 1.0, Pass(opened_slots(1)[0]))
    attempt.beat()
    assert attempt._beat_s == 0.0


# --- what is said of the dependency ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "outcome"),
    [(Kind.INFRASTRUCTURE, "failed"), (Kind.BUSINESS, "refused"), (Kind.UNEXPECTED, "abandoned")],
)
def test_the_kind_of_a_failure_is_what_the_breaker_is_told(kind: Kind, outcome: str) -> None:
    """C3: only the infrastructure counts; a mistake of the program says nothing."""
    attempt = RunningAttempt("j-1", "k", 1.0, Pass(opened_slots(1)[0]))
    assert attempt.outcome == "abandoned"
    failure = Failure("x", "y", retryable=True, kind=kind)
    assert attempt.judged(failure) is failure
    assert attempt.outcome == outcome


def test_what_was_cancelled_because_its_workflow_moved_on_says_nothing() -> None:
    attempt = RunningAttempt("j-1", "k", 1.0, Pass(opened_slots(1)[0]))
    attempt.cancel("moved_on")
    attempt.judged(Failure("x", "y", retryable=True))
    assert attempt.outcome == "abandoned"


def test_an_attempt_gives_its_place_back_with_its_outcome_its_time_and_its_error() -> None:
    async def scenario() -> None:
        queue = Queue(Dependency("gateway", 1, breaker=Breaker(failures=2, slow_s=5)), VirtualClock())
        for outcome, born_s in (("failed", 9.0), ("done", 4.0)):
            assert queue.steps.reserve()
            held = queue.line.reserve(None, queue.steps, "first")
            assert held is not None
            attempt = RunningAttempt("j-1", "k", 1.0, held)
            attempt.born_s = born_s
            if outcome == "done":
                attempt.outcome = "done"
            else:
                attempt.judged(Failure("OSError", "net", retryable=True))
            attempt.leave(lambda: 10.0)
        assert (queue.outlet.phase, queue.outlet.reason) == ("open", "calls are too slow")
        assert (queue.outlet.under_way, queue.steps.free) == (0, 100)

    play(scenario)


@pytest.mark.parametrize("admitted", ["probe", "undo"])
def test_a_probe_that_finds_its_dependency_down_costs_no_attempt(admitted: str) -> None:
    """C4."""

    async def scenario() -> None:
        queue = Queue(ONE)
        held = Pass(queue.steps, queue.line, "first", "probe" if admitted == "probe" else "undo")
        attempt = RunningAttempt("j-1", "k", 1.0, held)
        assert not attempt.judged(Failure("OSError", "net", retryable=True)).counted
        declined = Failure("no", "", retryable=False, kind=Kind.BUSINESS)
        assert attempt.judged(declined).counted
        assert attempt.judged(Failure("KeyError", "", retryable=True, kind=Kind.UNEXPECTED)).counted

    play(scenario)


def test_attempts_are_not_burnt_while_the_breaker_is_open_or_probed() -> None:
    """C4: with one attempt left, a workflow survives any number of failed probes."""

    async def scenario() -> None:
        attempts = list[tuple[float, int]]()

        async def call(ctx: StepContext) -> None:
            attempts.append((now_s(), ctx.attempt))
            if now_s() < 100:
                raise Retryable("the gateway is down")

        machine = jobs(call, attempts=2)
        async with engine_of(machine, dependencies=[ONE]) as engine:
            await begun(engine, machine, "j-1")
            await passed(1)
            view = await engine.get("j-1")
            assert view.state is State.CALLING
            assert "the breaker of 'gateway' is open" in (view.waiting or "")
            assert (await engine.wait("j-1")).state is State.DONE
        assert [attempt for _, attempt in attempts] == [1, 2, 2, 2, 2]
        assert [time_s for time_s, _ in attempts] == pytest.approx([0, 30, 60, 90, 120], abs=1)

    play(scenario)


@pytest.mark.parametrize("error", [NonRetryable("declined"), MemoryError("a machine that is too small"), KeyError("x")])
def test_what_is_no_failure_of_the_infrastructure_opens_no_breaker(error: Exception) -> None:
    async def scenario() -> None:
        async def call(ctx: StepContext) -> None:
            raise error

        machine = jobs(call, attempts=1)
        async with engine_of(machine, dependencies=[ONE]) as engine:
            await begun(engine, machine, "j-1", "j-2", "j-3")
            await settled(engine)
            given_up = {letter.workflow for letter in await engine.dead_letters("step")}
            assert given_up == (set() if isinstance(error, NonRetryable) else {"j-1", "j-2", "j-3"})
            for workflow in ("j-1", "j-2", "j-3"):
                state = State.CALLING if workflow in given_up else State.FAILED
                assert (await engine.get(workflow)).state is state
            assert engine.breakers()["gateway"].state == "closed"

    play(scenario)


def test_what_a_stopping_engine_cancels_says_nothing_about_the_dependency() -> None:
    async def scenario() -> None:
        async def call(ctx: StepContext) -> None:
            await asyncio.get_running_loop().create_future()

        machine = jobs(call)
        async with engine_of(machine, dependencies=[ONE]) as engine:
            await begun(engine, machine, "j-1")
            outlet = engine._inside.places.lines["gateway"].outlet
            assert outlet.under_way == 1
        assert (outlet.under_way, outlet.phase, outlet.unused) == (0, "closed", True)

    play(scenario)
