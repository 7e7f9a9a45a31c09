"""A10: what user code returns is stored and shown, whatever it changes in place; a refusal leaves no trace."""

from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Protocol

import msgspec
import pydantic
import pytest

from interlock import (
    Engine,
    Event,
    GuardRejected,
    Machine,
    NonRetryable,
    Refused,
    Retry,
    Retryable,
    StepContext,
    StepFailure,
    UserCodeError,
    pipeline,
    step,
)
from tests.conformance.engine.places import Place, crash, run, settled


@dataclass
class Plain:
    items: list[int] = field(default_factory=list)


@dataclass(frozen=True)
class Frozen:
    items: list[int] = field(default_factory=list)


class Struct(msgspec.Struct):
    items: list[int] = []


class Model(pydantic.BaseModel):
    items: list[int] = []


class Holder(Protocol):
    """Any of them."""

    @property
    def items(self) -> list[int]: ...


class State(Enum):
    OPEN, HOLDING, WORKING, UNDOING, CANCELLED = "open", "holding", "working", "undoing", "cancelled"


class BasketEvent(Event): ...


@dataclass(frozen=True)
class Add(BasketEvent):
    numbers: list[int]


@dataclass(frozen=True)
class Reject(BasketEvent): ...


@dataclass(frozen=True)
class Break(BasketEvent): ...


@dataclass(frozen=True)
class Work(BasketEvent): ...


@dataclass(frozen=True)
class Held(BasketEvent): ...


@dataclass(frozen=True)
class Worked(BasketEvent): ...


Basket = Machine[State, Any, BasketEvent]


def basket(context: type) -> tuple[Basket, list[tuple[str, list[int]]]]:
    """A machine all of whose functions change what they receive, and what each of them received."""
    received: list[tuple[str, list[int]]] = []
    machine: Basket = Machine(
        "basket",
        states=State,
        context=context,
        events=BasketEvent,
        initial=State.OPEN,
        final={State.CANCELLED},
        unwind={State.UNDOING: State.CANCELLED},
    )

    def change(name: str, value: Holder) -> Holder:
        received.append((name, [*value.items]))
        value.items.append(1_000 + len(received))
        return value

    def add(value: Holder, event: Add) -> Holder:
        value.items.extend(event.numbers)
        event.numbers.append(77)
        return value

    def refuses(value: Holder, event: Reject) -> bool:
        change("guard", value)
        return False

    def agrees(value: Holder, event: Add) -> bool:
        change("guard", value)
        event.numbers.append(88)
        return True

    def breaks(value: Holder, event: Break) -> Holder:
        change("action", value)
        raise ZeroDivisionError

    machine.on(Add, State.OPEN, when=agrees)(add)
    machine.on(Reject, State.OPEN, to=State.CANCELLED, when=refuses)
    machine.on(Break, State.OPEN)(breaks)
    machine.on(Work, State.OPEN, to=State.HOLDING)
    machine.on(Held, State.HOLDING, to=State.WORKING)
    machine.on(Worked, State.WORKING, to=State.CANCELLED)

    @machine.step(State.HOLDING, timeout_s=20, retry=Retry(attempts=2), failed=State.UNDOING)
    async def hold(value: Holder, ctx: StepContext) -> Held:
        change("step", value)
        if ctx.attempt == 1:
            raise Retryable("once more")
        return Held()

    @hold.undo(Held)
    async def release(value: Holder, done: Held | None, ctx: StepContext) -> None:
        change("undo", value)

    @machine.step(State.WORKING, timeout_s=20, failed=State.UNDOING)
    async def work(value: Holder, ctx: StepContext) -> Worked:
        change("step", value)
        raise NonRetryable("no")

    @work.failed
    def note(value: Holder, failure: StepFailure) -> Holder:
        value.items.append(4)
        return value

    @machine.effect(State.CANCELLED)
    async def mail(value: Holder, ctx: StepContext) -> None:
        change("effect", value)

    return machine, received


async def shown(engine: Engine) -> list[int]:
    """The items, as `get` and the last row of history agree on them."""
    view: Any = await engine.get("b-1")
    rows: Any = await engine.history("b-1")
    assert view.version == rows[-1].version
    assert view.context.items == rows[-1].context.items
    return list(view.context.items)


@pytest.mark.parametrize("context", [Plain, Frozen, Struct, Model])
def test_what_is_returned_is_stored_and_shown_and_nothing_else(place: Place, context: type[Holder]) -> None:
    async def scenario() -> None:
        machine, received = basket(context)
        async with place.engine(machine) as engine:
            mine = context()
            begun: Any = await engine.start(machine, "b-1", mine)
            for held in (mine, begun.context):
                held.items.append(99)
            sent = Add([1])
            await engine.send("b-1", sent)
            assert (await shown(engine), sent) == ([1], Add([1]))
            assert (await engine.history("b-1"))[-1].payload == sent

            with pytest.raises(GuardRejected):
                await engine.send("b-1", Reject())
            with pytest.raises(UserCodeError):
                await engine.send("b-1", Break())
            await engine.allowed("b-1", Reject())
            looked: Any = await engine.get("b-1")
            looked.context.items.append(99)
            assert await shown(engine) == [1]

            answers = await engine.send_many([("b-1", Add([2]), "k1"), ("b-1", Break(), "k2"), ("b-1", Add([3]), "k3")])
            assert [isinstance(each, Refused) for each in answers] == [False, True, False]
            assert await shown(engine) == [1, 2, 3]

            received.clear()
            await engine.send("b-1", Work())
            await engine.wait("b-1")
            while len(received) < 5:
                await settled(engine)
            assert await shown(engine) == [1, 2, 3, 4]
            # Attempts, undos and effects each begin with what is stored.
            assert received[:3] == [("step", [1, 2, 3])] * 3
            assert sorted(received[3:]) == [("effect", [1, 2, 3, 4]), ("undo", [1, 2, 3, 4])]
            rows: Any = await engine.history("b-1")
            if place.url != "memory:":
                await crash(engine)
        if place.url != "memory:":
            async with place.engine(machine) as engine:
                assert await shown(engine) == [1, 2, 3, 4]
                assert await engine.history("b-1") == rows

    run(scenario)


class Single(Enum):
    OPEN = "open"


@dataclass(frozen=True)
class Tupled:
    items: tuple[int, ...] = ()


def test_a_list_where_a_tuple_was_declared_is_shown_as_it_is_stored(place: Place) -> None:
    """By its annotations the class cannot be changed, so it is not copied; what an action made of it can be."""
    machine: Machine[Single, Tupled, BasketEvent] = Machine(
        "basket", states=Single, context=Tupled, events=BasketEvent, initial=Single.OPEN, resting={Single.OPEN}
    )

    @machine.on(Add, Single.OPEN)
    def add(value: Tupled, event: Add) -> Tupled:
        items: Any = value.items
        if isinstance(items, list):
            items.extend(event.numbers)
            return value
        made: Any = [*items, *event.numbers]
        return Tupled(made)

    async def scenario() -> None:
        async with place.engine(machine) as engine:
            await engine.start(machine, "b-1", Tupled())
            await engine.send("b-1", Add([1]))
            await engine.send("b-1", Add([2]))
            assert (await engine.get("b-1")).context == Tupled((1, 2))
            assert await shown(engine) == [1, 2]

    run(scenario)


def test_a_pipeline_stores_what_its_steps_return_and_not_what_failed_attempts_changed(place: Place) -> None:
    @step(timeout_s=20, retry=Retry(attempts=2))
    async def pack(value: Plain, ctx: StepContext) -> Plain:
        value.items.append(ctx.attempt)
        if ctx.attempt == 1:
            raise Retryable("once more")
        return value

    @step(timeout_s=20, read_only=True)
    async def weigh(value: Plain, ctx: StepContext) -> Plain:
        value.items.append(3)
        return value

    async def scenario() -> None:
        machine = pipeline("packing", context=Plain, steps=[pack, weigh])
        async with place.engine(machine) as engine:
            await engine.start(machine, "b-1", Plain())
            assert (await engine.wait("b-1", machine.State.COMPLETED)).context == Plain([2, 3])
            rows = await engine.history("b-1")
            assert [row.context for row in rows] == [Plain(), Plain(), Plain([2]), Plain([2, 3])]

    run(scenario)
