"""What is given to `Engine.open`: settings from everywhere, and mistakes that are told before anything is opened."""

import asyncio
import logging
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

import pytest

from interlock import BlockingEngine, Dependency, Engine, Event, Machine, Retry, StepContext
from interlock.errors import BadUsage, DefinitionError, InvalidPayload, UnavailableError, WaitTimeout
from tests.conformance.engine.places import settled


class State(Enum):
    """Two states."""

    WAITING = "waiting"
    DONE = "done"


@dataclass(frozen=True)
class Nothing:
    """The context."""


class Moving(Event):
    """The alphabet."""


@dataclass(frozen=True)
class Go(Moving):
    """The only event."""


def machine() -> Machine[State, Nothing, Moving]:
    made = Machine(
        "lift", states=State, context=Nothing, events=Moving, initial=State.WAITING, final={State.DONE}, version=1
    )
    made.on(Go, State.WAITING, to=State.DONE)
    return made


def test_settings_come_from_the_program_then_the_environment_then_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("interlock.toml").write_text("[engine]\nsteps_max = 3\ndrain_s = 1\ngroup_max = 4\n")
    monkeypatch.setenv("INTERLOCK_STEPS_MAX", "5")
    monkeypatch.setenv("INTERLOCK_DRAIN_S", "2.5")

    async def scenario() -> None:
        async with Engine.open("memory:", machines=[machine()], steps_max=7) as engine:
            settings = engine._inside._settings
            assert (settings.steps_max, settings.drain_s, settings.group_max) == (7, 2.5, 4)

    asyncio.run(scenario())


def test_a_setting_that_nobody_has_is_told_with_its_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("interlock.toml").write_text("[engine]\nstep_max = 3\n")
    with pytest.raises(BadUsage, match=r"\[engine\] has no setting 'step_max'. Did you mean steps_max"):
        _ = Engine.open("memory:", machines=[machine()])


def test_a_setting_out_of_its_range_says_what_is_allowed() -> None:
    with pytest.raises(DefinitionError, match="group_max is 0; it must be at least 1"):
        _ = Engine.open("memory:", machines=[machine()], group_max=0)
    with pytest.raises(DefinitionError, match=r"timers_saved_s is 11.0; it must be between 0.001 and 10"):
        _ = Engine.open("memory:", machines=[machine()], timers_saved_s=11.0)


def test_an_engine_is_not_entered_without_an_event_loop() -> None:
    with pytest.raises(BadUsage, match="async with"), Engine.open("memory:", machines=[machine()]):
        pass
    with BlockingEngine.open("memory:", machines=[(lift := machine())]) as engine:
        assert engine.start(lift, "w", Nothing()).version == 1


def test_what_is_no_machine_is_refused_by_name() -> None:
    async def scenario() -> None:
        async with Engine.open("memory:", machines=[machine()]) as engine:
            with pytest.raises(UnavailableError, match="'lift' is not a machine of this engine; it has lift"):
                await engine.start("lift", "w", Nothing())  # type: ignore[arg-type]
            with pytest.raises(InvalidPayload, match="'steps' is not a kind of dead letter"):
                await engine.dead_letters("steps")

    asyncio.run(scenario())


@pytest.mark.parametrize("given", [[Dependency("gateway"), Dependency("gateway", 7)], ["gateway"]])
def test_a_dependency_is_declared_once_and_as_one(given: list[Dependency]) -> None:
    with pytest.raises(DefinitionError, match="gateway"):
        _ = Engine.open("memory:", machines=[machine()], dependencies=given)


def test_many_events_need_no_keys() -> None:
    async def scenario() -> None:
        lift = machine()
        async with Engine.open("memory:", machines=[lift]) as engine:
            await engine.start(lift, "a", Nothing())
            await engine.start(lift, "b", Nothing())
            answers = await engine.send_many([("a", Go()), ("b", Go(), "k"), ("c", Go())])
            assert [getattr(each, "state", None) for each in answers] == [State.DONE, State.DONE, None]

    asyncio.run(scenario())


def test_a_step_that_gives_up_leaves_its_traceback_and_a_wait_says_why(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        lift = machine()
        told = asyncio.Event()

        @lift.step(State.WAITING, timeout_s=5, retry=Retry(attempts=1))
        async def climb(context: Nothing, ctx: StepContext) -> Go:
            del context, ctx
            told.set()
            raise ZeroDivisionError("a bug")

        async with Engine.open("memory:", machines=[lift]) as engine:
            await engine.start(lift, "w", Nothing())
            await told.wait()
            await settled(engine)
            with pytest.raises(WaitTimeout, match="its step gave up after 1 attempt: see dead letter") as over:
                await engine.wait("w", timeout_s=0.01)
            assert "`interlock dead-letters`" in over.value.fix

    with caplog.at_level(logging.WARNING, "interlock.steps"):
        asyncio.run(scenario())
    [record] = [each for each in caplog.records if each.name == "interlock.steps"]
    assert "step 'climb' of workflow 'w' failed in attempt 1: ZeroDivisionError: a bug" in record.getMessage()
    assert record.exc_info is not None
    assert record.exc_info[0] is ZeroDivisionError


def test_a_strategy_that_cannot_be_called_is_refused() -> None:
    lift = machine()

    @lift.step(State.WAITING, timeout_s=5, retry=Retry(attempts=1))
    async def climb(context: Nothing, ctx: StepContext) -> Go:
        return Go()

    async def scenario() -> None:
        with pytest.raises(DefinitionError, match=r"None for .*climb.*which cannot be called"):
            await Engine.open("memory:", machines=[lift], steps={climb: None})  # type: ignore[dict-item]

    asyncio.run(scenario())


def test_an_engine_that_was_not_awaited_says_how_to_open_it() -> None:
    closed = Engine.open("memory:", machines=[machine()])
    with pytest.raises(AttributeError, match=r"'start' cannot be used.*async with Engine\.open"):
        _ = closed.start  # type: ignore[attr-defined]
