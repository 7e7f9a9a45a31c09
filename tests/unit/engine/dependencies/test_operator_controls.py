"""C4, C7, C8: what an operator sees of breakers and limits, and changes while everything runs."""

import asyncio
import re
from typing import Literal, cast

import pytest

from interlock import Admission, BlockingEngine, Breaker, Dependency, Engine, Overloaded, StepContext, UnavailableError
from interlock.errors import BadUsage, DefinitionError
from interlock.testing import Harness
from tests.conformance.engine.places import settled
from tests.unit.engine.calls import Cancel, Go, Job, State, begun, engine_of, jobs, nothing
from tests.unit.engine.shared.stores import passed, play

TWO = Dependency("gateway", 2, breaker=Breaker(failures=1, reset_s=30))


async def forever(ctx: StepContext) -> None:
    """A call that hangs."""
    await asyncio.get_running_loop().create_future()


def waiting_of(engine: Engine) -> int:
    return engine.breakers()["gateway"].waiting


def test_breakers_are_those_of_everything_that_is_called() -> None:
    async def scenario() -> None:
        async with engine_of(jobs(nothing)) as engine:
            [breaker] = engine.breakers()
            assert (breaker.name, breaker.concurrency_max, breaker.state) == ("gateway", 50, "closed")

    play(scenario)


@pytest.mark.parametrize(("name", "guess"), [("gatway", " Did you mean 'gateway'?"), ("ledger", "")])
def test_a_dependency_that_no_step_names_is_refused_with_a_guess(name: str, guess: str) -> None:
    """C19: its limits would hold for nothing."""
    message = f"dependencies= has {name!r}, which no step or effect of these machines names.{guess} "
    with pytest.raises(DefinitionError, match=re.escape(message)):
        _ = Engine.open("memory:", machines=[jobs(nothing)], dependencies=[Dependency(name)])
    with pytest.raises(DefinitionError, match=re.escape(message)):
        Harness(jobs(nothing), dependencies=[Dependency(name)])


def test_a_breaker_that_is_held_open_stops_all_calls_and_lets_go_of_them() -> None:
    async def scenario() -> None:
        machine = jobs(nothing)
        async with engine_of(machine) as engine:
            engine.force_breaker("gateway", "open")
            await begun(engine, machine, "j-1", "j-2")
            await passed(1_000)
            view = await engine.get("j-1")
            assert (view.state, view.waiting) == (
                State.CALLING,
                "its step waits: the breaker of 'gateway' was opened by hand",
            )
            seen = engine.breakers()["gateway"]
            assert (seen.state, seen.forced, seen.waiting, seen.reason) == ("open", "open", 2, "held open by a person")
            engine.force_breaker("gateway", "auto")
            for workflow in ("j-1", "j-2"):
                assert (await engine.wait(workflow)).state is State.DONE
            seen = engine.breakers()["gateway"]
            assert (seen.state, seen.forced, seen.reason) == ("closed", None, "released by a person")

    play(scenario)


def test_a_breaker_that_is_held_closed_never_opens() -> None:
    async def scenario() -> None:
        async def call(ctx: StepContext) -> None:
            raise OSError("net")

        machine = jobs(call, attempts=1)
        async with engine_of(machine, dependencies=[TWO]) as engine:
            engine.force_breaker("gateway", "closed")
            await begun(engine, machine, "j-1", "j-2", "j-3")
            for workflow in ("j-1", "j-2", "j-3"):
                assert (await engine.wait(workflow)).state is State.FAILED
            assert engine.breakers()["gateway"].state == "closed"

    play(scenario)


def test_limits_change_while_everything_runs_and_what_is_not_given_stays() -> None:
    async def scenario() -> None:
        machine = jobs(forever)
        async with engine_of(machine, dependencies=[TWO]) as engine:
            await begun(engine, machine, *(f"j-{each}" for each in range(6)))
            assert (waiting_of(engine), engine.breakers()["gateway"].under_way) == (4, 2)
            view = await engine.get("j-5")
            assert view.waiting == "its step waits: all 2 places of 'gateway' are taken (concurrency_max)"
            engine.set_limit("gateway", concurrency_max=4)
            await settled(engine)
            assert (waiting_of(engine), engine.breakers()["gateway"].under_way) == (2, 4)
            engine.set_limit("gateway", rate_per_s=7.5)
            seen = engine.breakers()["gateway"]
            assert (seen.concurrency_max, seen.rate_per_s) == (4, 7.5)
            engine.set_limit("gateway", concurrency_max=5)
            assert engine.breakers()["gateway"].rate_per_s == 7.5
            engine.set_limit("gateway", rate_per_s=None)
            await settled(engine)
            seen = engine.breakers()["gateway"]
            assert (seen.concurrency_max, seen.rate_per_s, seen.under_way) == (5, None, 5)

    play(scenario)


def test_a_limit_that_is_none_is_refused_and_changes_nothing() -> None:
    async def scenario() -> None:
        async with engine_of(jobs(nothing)) as engine:
            for wrong in (0, -1):
                with pytest.raises(DefinitionError, match="concurrency_max"):
                    engine.set_limit("gateway", concurrency_max=wrong)
                with pytest.raises(DefinitionError, match="rate_per_s"):
                    engine.set_limit("gateway", concurrency_max=7, rate_per_s=wrong)
            assert engine.breakers()["gateway"].concurrency_max == 50

    play(scenario)


def test_an_unknown_dependency_and_an_unknown_state_are_told_with_what_there_is() -> None:
    async def scenario() -> None:
        async with engine_of(jobs(nothing)) as engine:
            with pytest.raises(BadUsage, match="Did you mean 'gateway'") as refused:
                engine.force_breaker("gatway", "open")
            assert "'gateway'" in str(refused.value.why)
            with pytest.raises(BadUsage, match="nothing here calls a dependency 'till'"):
                engine.set_limit("till", concurrency_max=1)
            for wrong in ("half_open", "", "OPEN"):
                with pytest.raises(BadUsage, match=f"cannot be forced to be {wrong!r}"):
                    engine.force_breaker("gateway", cast("Literal['open']", wrong))
            assert engine.breakers()["gateway"].forced is None

    play(scenario)


def test_a_closed_engine_answers_none_of_these() -> None:
    async def scenario() -> None:
        async with engine_of(jobs(nothing)) as engine:
            pass
        for call in (
            engine.breakers,
            lambda: engine.force_breaker("gateway", "open"),
            lambda: engine.set_limit("gateway", concurrency_max=1),
            lambda: engine.set_admission(Admission()),
        ):
            with pytest.raises(UnavailableError):
                call()

    play(scenario)


def test_admission_changes_while_everything_runs_and_a_backlog_refuses_starts_alone() -> None:
    """C7: sends are still taken, cancels above all."""

    async def scenario() -> None:
        machine = jobs(forever)
        async with engine_of(machine, dependencies=[TWO]) as engine:
            await begun(engine, machine, *(f"j-{each}" for each in range(5)))
            await engine.start(machine, "new", Job())
            assert waiting_of(engine) == 3
            engine.set_admission(Admission(in_flight_max=3))
            with pytest.raises(Overloaded, match="3 workflows wait for a place already") as refused:
                await engine.start(machine, "j-9", Job())
            assert refused.value.retry_after_s > 0
            await engine.send("new", Go())
            await engine.send("j-4", Cancel())
            engine.set_admission(Admission(in_flight_max=100))
            await engine.start(machine, "j-9", Job())

    play(scenario)


def test_a_workflow_that_is_cancelled_while_it_waits_keeps_no_place() -> None:
    """Whatever it waited for when it was cancelled: its places and slots are all there in the end."""

    async def scenario() -> None:
        machine = jobs(forever)
        async with engine_of(machine, dependencies=[TWO], steps_max=3, undos_max=2) as engine:
            names = [f"j-{each}" for each in range(8)]
            await begun(engine, machine, *names)
            outlet, places = engine._inside.places.lines["gateway"].outlet, engine._inside.places
            # In one group with the calls to those who come next: some are called for a step that they have left.
            await engine.send_many([(name, Cancel(), None) for name in names])
            for name in names:
                assert (await engine.wait(name)).state is State.FAILED
            await settled(engine)
            assert (outlet.under_way, outlet.undos_under_way, len(places.lines["gateway"])) == (0, 0, 0)
            assert (places.steps.free, places.undos.free, places.lines["gateway"].kept) == (3, 2, 0)

    play(scenario)


@pytest.mark.parametrize("budget", [0.0, 0.2])
def test_waiting_says_that_the_budget_is_spent(budget: float) -> None:
    """C5."""

    async def scenario() -> None:
        async def call(ctx: StepContext) -> None:
            raise OSError("net")

        breaker = Breaker(failures=10**6)
        machine = jobs(call, attempts=10**6)
        async with engine_of(machine, dependencies=[Dependency("gateway", 50, None, breaker, budget)]) as engine:
            # Two of them, because the tenth wait of one is not nothing, whatever the luck.
            await begun(engine, machine, "j-1")
            await begun(engine, machine, "j-2")
            await settled(engine)
            await passed(0.5)
            view = await engine.get("j-1")
            assert view.waiting == "its step waits: the retry budget of 'gateway' is spent"
            attempts = engine._inside.places.lines["gateway"].outlet._spending
            assert (attempts.calls, attempts.retries) == (12, 10)

    play(scenario)


def test_waiting_says_that_an_undo_waits_for_its_dependency() -> None:
    """C9: until one has failed, undos try; then they wait like everybody."""

    async def scenario() -> None:
        async def back(ctx: StepContext) -> None:
            raise OSError("net")

        machine = jobs(back, undo=back, attempts=1)
        async with engine_of(machine, dependencies=[TWO]) as engine:
            await begun(engine, machine, "j-1")
            await settled(engine)
            await passed(1)
            view = await engine.get("j-1")
            assert view.state is State.UNDOING
            told = "the undo of 'calling' waits: the breaker of 'gateway' is open (1 failure, the last: OSError)"
            assert (view.waiting or "").startswith(told)
            [owed] = await engine.compensations()
            assert owed.attempts == 0

    play(scenario)


def test_a_blocking_engine_has_the_same() -> None:
    machine = jobs(nothing)
    with BlockingEngine.open("memory:", machines=[machine], dependencies=[TWO]) as engine:
        assert engine.breakers()["gateway"].state == "closed"
        engine.force_breaker("gateway", "open")
        assert engine.breakers()["gateway"].forced == "open"
        engine.start(machine, "j-1", Job())
        engine.send("j-1", Go())
        engine.set_limit("gateway", concurrency_max=1, rate_per_s=1_000.0)
        assert engine.breakers()["gateway"].rate_per_s == 1_000.0
        engine.force_breaker("gateway", "auto")
        assert engine.wait("j-1", timeout_s=30).state is State.DONE
        engine.set_admission(Admission(rate_per_s=0.001, burst=1))
        engine.start(machine, "j-2", Job())
        with pytest.raises(Overloaded):
            engine.start(machine, "j-3", Job())
        with pytest.raises(BadUsage):
            engine.force_breaker("till", "open")
