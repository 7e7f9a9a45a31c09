"""Retention: which states are final, and what an engine removes (B4)."""

from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any

import msgspec
import pytest

from interlock import (
    BlockingEngine,
    Engine,
    Event,
    InvalidTransition,
    Machine,
    Pruned,
    WorkflowExists,
    WorkflowNotFound,
)
from interlock.core.describe import MachineDescription, StateDescription
from interlock.engine.check_definitions import PREFIX
from interlock.engine.open_engine import EngineOpening
from interlock.engine.operators.retention import final_states
from interlock.errors import BadUsage
from tests.conformance.engine.places import SetClock, run

DAY_S = 86_400.0


class State(Enum):
    OPEN, DONE, PARKED, UNPAID = "open", "done", "parked", "unpaid"


@dataclass(frozen=True)
class Ticket:
    title: str = ""


class TicketEvent(Event):
    pass


@dataclass(frozen=True)
class Close(TicketEvent):
    pass


@dataclass(frozen=True)
class Park(TicketEvent):
    pass


@dataclass(frozen=True)
class Refuse(TicketEvent):
    pass


def machine(name: str = "ticket", version: int = 1) -> Machine[State, Ticket, TicketEvent]:
    made = Machine(
        name,
        states=State,
        context=Ticket,
        events=TicketEvent,
        initial=State.OPEN,
        final={State.DONE, State.UNPAID},
        resting={State.PARKED},
        version=version,
    )
    made.on(Close, State.OPEN, State.PARKED, to=State.DONE)
    made.on(Park, State.OPEN, to=State.PARKED)
    made.on(Refuse, State.OPEN, to=State.UNPAID)
    return made


ticket = machine()
other = machine("other")


def described(version: int, *finals: str, states: tuple[str, ...], **renamed: str) -> MachineDescription:
    return MachineDescription(
        name="order",
        version=version,
        states=tuple(StateDescription(name=each, final=each in finals) for each in states),
        transitions=(),
        events=(),
        context_schema={},
        renamed=renamed,
    )


def finals(*descriptions: MachineDescription) -> set[str]:
    noted = {f"{PREFIX}{each.name}/{each.version}": each.to_json().decode() for each in descriptions}
    return final_states({**noted, "alive_us": "17"}).get("order", set())


def test_a_state_is_final_only_if_every_description_that_knows_it_says_so() -> None:
    first = described(1, "done", "lost", states=("open", "done", "lost"))
    assert finals(first) == {"done", "lost"}
    assert finals(first, described(2, "lost", states=("open", "done", "lost"))) == {"lost"}, "it may go on now"
    assert finals(first, described(2, "lost", states=("open", "lost"))) == {"done", "lost"}, "nobody can move it"
    assert finals() == set()


def test_a_state_that_was_renamed_is_judged_by_what_it_is_now() -> None:
    first = described(1, "done", states=("open", "done"))
    assert finals(first, described(2, "shipped", states=("open", "shipped"), done="shipped")) == {"done", "shipped"}
    assert finals(first, described(2, states=("open", "returnable"), done="returnable")) == set()


def test_a_machine_that_is_given_has_a_say_too() -> None:
    noted = {f"{PREFIX}ticket/1": ticket.describe().to_json().decode()}
    assert final_states(noted) == {"ticket": {"done", "unpaid"}}
    stays = msgspec.structs.replace(ticket.describe(), states=(StateDescription(name="done", resting=True),))
    assert final_states(noted, [stays]) == {"ticket": {"unpaid"}}


async def filled(engine: Engine) -> None:
    """One that ends, one that rests, one that is open, and one of another machine that ends; the last one is open."""
    for name, made in (("ended", ticket), ("resting", ticket), ("open", ticket), ("another", other), ("last", ticket)):
        await engine.start(made, name, Ticket(name))
    await engine.send("ended", Close(), key="click")
    await engine.send("another", Close())
    await engine.send("resting", Park())


@pytest.fixture(params=["memory:", "lanes"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return "memory:" if request.param == "memory:" else f"lanes://{tmp_path}/home"


def opened(url: str, clock: SetClock, *machines: Machine[Any, Any, Any]) -> EngineOpening[Engine]:
    return Engine.open(url, machines=machines or (ticket, other), clock=clock, stall_check_s=0)


def test_what_ended_long_enough_ago_is_removed_and_a_resting_workflow_never(url: str) -> None:
    async def scenario() -> None:
        clock = SetClock()
        async with opened(url, clock) as engine:
            await filled(engine)
            assert await engine.prune(older_than_s=DAY_S) == Pruned(workflows=0, events=0)
            clock.now_s += 400 * DAY_S
            assert await engine.prune(older_than_s=DAY_S, dry_run=True) == Pruned(workflows=2, events=4)
            assert await engine.prune(older_than_s=DAY_S, batch=1) == Pruned(workflows=2, events=4)
            assert (await engine.get("resting")).state is State.PARKED
            assert (await engine.get("open")).state is State.OPEN
            with pytest.raises(WorkflowNotFound):
                await engine.get("ended")

    run(scenario)


def test_what_is_gone_is_gone_from_memory_too(url: str) -> None:
    """An event that was refused has brought it into memory; a later start of the same id is a new workflow."""

    async def scenario() -> None:
        clock = SetClock()
        async with opened(url, clock) as engine:
            await filled(engine)
            with pytest.raises(InvalidTransition):
                await engine.send("ended", Close())
            clock.now_s += DAY_S
            await engine.prune(older_than_s=1)
            with pytest.raises(WorkflowNotFound):
                await engine.send("ended", Close(), key="click")
            again = await engine.start(ticket, "ended", Ticket("something else"))
            assert (again.version, again.context) == (1, Ticket("something else"))

    run(scenario)


def test_without_its_history_a_workflow_is_still_known_by_its_input(url: str) -> None:
    """B4: the digest is on the workflow."""

    async def scenario() -> None:
        clock = SetClock()
        async with opened(url, clock) as engine:
            await filled(engine)
            clock.now_s += DAY_S
            assert await engine.prune(older_than_s=1, history_only=True) == Pruned(workflows=2, events=4)
            assert await engine.history("ended") == []
            assert (await engine.start(ticket, "ended", Ticket("ended"))).state is State.DONE
            with pytest.raises(WorkflowExists):
                await engine.start(ticket, "ended", Ticket("other input"))

    run(scenario)


def test_an_engine_prunes_its_own_machines_alone(tmp_path: Path) -> None:
    async def scenario() -> None:
        clock, home = SetClock(), f"lanes://{tmp_path}/home"
        async with opened(home, clock) as engine:
            await filled(engine)
        clock.now_s += DAY_S
        async with opened(home, clock, ticket) as engine:
            assert (await engine.prune(older_than_s=1)).workflows == 1
        async with opened(home, clock) as engine:
            assert (await engine.get("another")).state is State.DONE

    run(scenario)


@pytest.mark.parametrize(
    "wrong", [{"older_than_s": -1}, {"older_than_s": 1, "batch": 0}, {"older_than_s": float("nan")}]
)
def test_what_cannot_be_meant_is_refused(wrong: dict[str, Any]) -> None:
    async def scenario() -> None:
        async with opened("memory:", SetClock()) as engine:
            with pytest.raises(BadUsage):
                await engine.prune(**wrong)

    run(scenario)


def test_a_blocking_engine_prunes_too() -> None:
    with BlockingEngine.open("memory:", machines=[ticket]) as engine:
        engine.start(ticket, "ended", Ticket())
        engine.send("ended", Close())
        assert engine.prune(older_than_s=3_600) == Pruned()
