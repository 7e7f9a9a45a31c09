"""A8: a pipeline begins at once, carries its context from step to step, and undoes what was done, newest first."""

from dataclasses import dataclass, replace

import pytest

from interlock import NonRetryable, Pipeline, PipelineStep, Retry, StepContext, pipeline, step
from interlock.examples import checkout as example
from interlock.examples.world import World, world
from tests.conformance.engine.places import Place, crash, run
from tests.conformance.engine.shop import Held


@dataclass(frozen=True)
class Trip:
    seats: int = 0
    booked: tuple[str, ...] = ()


class Travel:
    """A pipeline of three steps, and what was asked of the world."""

    def __init__(self, *, fail: str = "", hold: Held | None = None) -> None:
        self.calls: list[tuple[str, StepContext]] = []
        self.fail = fail
        self.hold = hold
        self.steps = [self._step(name) for name in ("book", "pay", "confirm")]
        self.machine: Pipeline[Trip] = pipeline("trip", context=Trip, steps=self.steps)

    def _step(self, name: str) -> PipelineStep[Trip]:
        async def work(trip: Trip, ctx: StepContext) -> Trip:
            self.calls.append((name, ctx))
            if self.hold is not None and name == "pay":
                await self.hold.wait()
            if self.fail == name:
                raise NonRetryable("no")
            return replace(trip, booked=(*trip.booked, name))

        work.__name__ = name
        made = step(timeout_s=20, retry=Retry(attempts=2))(work)

        @made.undo
        async def undo(trip: Trip, ctx: StepContext) -> None:
            self.calls.append((f"undo {name}", ctx))

        return made

    @property
    def names(self) -> list[str]:
        return [name for name, _ in self.calls]


def test_a_started_pipeline_begins_at_once_and_runs_to_its_end(place: Place) -> None:
    async def scenario() -> None:
        travel = Travel()
        trip = travel.machine
        async with place.engine(trip) as engine:
            view = await engine.start(trip, "t-1", Trip(seats=2))
            assert view.state is trip.State.BOOKING
            assert view.version == 2
            done = await engine.wait("t-1")
            assert done.state is trip.State.COMPLETED
            assert done.context == Trip(seats=2, booked=("book", "pay", "confirm"))
            assert travel.names == ["book", "pay", "confirm"]
            rows = await engine.history("t-1")
            assert [row.to_state.value for row in rows] == [
                "pending", "booking", "paying", "confirming", "completed",
            ]  # fmt: skip

    run(scenario)


def test_the_same_start_again_does_not_begin_again(place: Place) -> None:
    async def scenario() -> None:
        travel = Travel()
        async with place.engine(travel.machine) as engine:
            for _ in range(3):
                await engine.start(travel.machine, "t-1", Trip())
            await engine.wait("t-1")
            await engine.start(travel.machine, "t-1", Trip())
            assert travel.names == ["book", "pay", "confirm"]

    run(scenario)


def test_a_failed_step_undoes_what_was_done_newest_first(place: Place) -> None:
    async def scenario() -> None:
        travel = Travel(fail="confirm")
        trip = travel.machine
        async with place.engine(trip) as engine:
            await engine.start(trip, "t-1", Trip())
            assert (await engine.wait("t-1")).state is trip.State.FAILED
            assert travel.names == ["book", "pay", "confirm", "undo pay", "undo book"]
            done = dict(travel.calls)
            assert done["undo pay"].undoes == done["pay"].key

    run(scenario)


def test_a_first_step_that_fails_without_effect_goes_straight_to_failed(place: Place) -> None:
    async def scenario() -> None:
        travel = Travel(fail="book")
        trip = travel.machine
        async with place.engine(trip) as engine:
            await engine.start(trip, "t-1", Trip())
            assert (await engine.wait("t-1")).state is trip.State.FAILED
            assert travel.names == ["book"]
            assert "undoing" not in [row.to_state.value for row in await engine.history("t-1")]

    run(scenario)


def test_a_pipeline_goes_on_after_a_crash_with_the_key_of_its_step(kept: Place) -> None:
    async def scenario() -> None:
        held = Held()
        travel = Travel(hold=held)
        engine = await kept.engine(travel.machine)
        await engine.start(travel.machine, "t-1", Trip())
        await held.begun.wait()
        await crash(engine)
        travel.hold = None
        async with kept.engine(travel.machine) as engine:
            assert (await engine.wait("t-1")).context.booked == ("book", "pay", "confirm")
        assert travel.names == ["book", "pay", "pay", "confirm"]
        assert travel.calls[1][1].key == travel.calls[2][1].key

    run(scenario)


def test_a_pipeline_can_be_cancelled_on_its_way(place: Place) -> None:
    async def scenario() -> None:
        held = Held()
        travel = Travel(hold=held)
        trip = travel.machine
        async with place.engine(trip) as engine:
            await engine.start(trip, "t-1", Trip())
            await held.begun.wait()
            await engine.send("t-1", trip.Cancel(reason="too dear"))
            assert (await engine.wait("t-1")).state is trip.State.FAILED
            assert travel.names == ["book", "pay", "undo pay", "undo book"]

    run(scenario)


def test_a_step_of_a_pipeline_is_swapped(place: Place) -> None:
    """C1."""

    async def scenario() -> None:
        travel = Travel()

        async def fake(trip: Trip, ctx: StepContext) -> Trip:
            return replace(trip, booked=(*trip.booked, "fake"))

        async with place.engine(travel.machine, steps={travel.steps[1]: fake}) as engine:
            await engine.start(travel.machine, "t-1", Trip())
            assert (await engine.wait("t-1")).context.booked == ("book", "fake", "confirm")

    run(scenario)


@pytest.mark.parametrize("cents", [5, 0])
def test_the_checkout_of_the_examples_runs_and_fails_as_it_says(place: Place, cents: int) -> None:
    async def scenario() -> None:
        machine = example.checkout
        context = example.Checkout(order_id="o-1", items={"sku": 1}, cents=cents)
        async with place.engine(machine) as engine:
            await engine.start(machine, "o-1", context)
            view = await engine.wait("o-1")
            expected = machine.State.COMPLETED if cents else machine.State.FAILED
            assert view.state is expected
            assert view.context.reserved == bool(cents)
        assert isinstance(world, World)

    run(scenario)
