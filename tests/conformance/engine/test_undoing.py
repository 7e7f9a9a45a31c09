"""G5, Outcomes of a run: what may have happened is undone, newest first, with a key of its own; nothing else is."""

import pytest

from interlock import Engine, NonRetryable, WorkflowNotFound
from tests.conformance.engine.places import Place, crash, run, settled
from tests.conformance.engine.shop import (
    Call,
    Cancel,
    Charged,
    Held,
    Note,
    Order,
    OrderMachine,
    Outside,
    Pause,
    Reserved,
    Ship,
    State,
    Submit,
    World,
    shop,
)


async def submitted(engine: Engine, order: OrderMachine, workflow: str = "o-1") -> None:
    await engine.start(order, workflow, Order())
    await engine.send(workflow, Submit())


async def letters(engine: Engine, count: int = 1) -> list[str]:
    """The ids of the dead letters, as soon as there are so many."""
    while len(found := await engine.dead_letters()) < count:
        await settled(engine)
    return [letter.id for letter in found]


def test_undos_run_newest_first_with_the_outcome_and_the_key_of_what_they_undo(place: Place) -> None:
    async def scenario() -> None:
        order, world, _ = shop()
        undone: list[str] = []
        async with place.engine(order) as engine:
            await submitted(engine, order)
            await engine.wait("o-1", State.DONE)
            await engine.send("o-1", Cancel())
            assert (await engine.wait("o-1")).state is State.CANCELLED
            [released], [refunded] = world.release.calls, world.refund.calls
            assert (released.done, refunded.done) == (Reserved(), Charged("r"))
            assert (released.ctx.undoes, refunded.ctx.undoes) == (world.reserve.keys[0], world.charge.keys[0])
            keys = {released.ctx.key, refunded.ctx.key, *world.reserve.keys, *world.charge.keys}
            assert len(keys) == 4
            assert refunded.context.receipt == "r"
            rows = await engine.history("o-1")
            assert [row.event for row in rows[-2:]] == ["CANCEL", "UNWOUND"]
            assert rows[-1].payload is None
            assert undone == []

    run(scenario)


def test_an_older_undo_does_not_begin_before_the_newer_one_is_done(place: Place) -> None:
    async def scenario() -> None:
        held = Held()
        order, world, _ = shop(World(release=Outside(held)))
        async with place.engine(order) as engine:
            await submitted(engine, order)
            await engine.wait("o-1", State.DONE)
            await engine.send("o-1", Cancel())
            await held.begun.wait()
            owed = await engine.compensations()
            assert [(each.step, each.state) for each in owed] == [("reserve", "running"), ("charge", "waiting")]
            assert [each.undoes for each in owed] == [world.reserve.keys[0], world.charge.keys[0]]
            assert {each.workflow for each in owed} == {"o-1"}
            assert world.refund.calls == []
            held.go.set()
            await engine.wait("o-1", State.CANCELLED)
            assert len(world.refund.calls) == 1
            assert await engine.compensations() == []

    run(scenario)


@pytest.mark.parametrize("cause", ["retryable", "timeout", "left"])
def test_an_unknown_outcome_is_undone_with_none(place: Place, cause: str) -> None:
    """Outcomes: a failure, a timeout, and a step that its workflow has left."""

    async def scenario() -> None:
        held = Held()
        answer = OSError("net") if cause == "retryable" else held
        timeout_s = 0.05 if cause == "timeout" else 20.0
        order, world, _ = shop(World(charge=Outside(answer)), attempts=1, timeout_s=timeout_s)
        async with place.engine(order) as engine:
            await submitted(engine, order)
            if cause == "left":
                await held.begun.wait()
                await engine.send("o-1", Cancel())
            assert (await engine.wait("o-1")).state is State.CANCELLED
            [refunded] = world.refund.calls
            assert (refunded.done, refunded.ctx.undoes) == (None, world.charge.keys[0])

    run(scenario)


def test_an_undo_does_not_overtake_the_attempt_that_it_undoes(place: Place) -> None:
    """A refund that arrives before its charge gives nothing back."""

    async def scenario() -> None:
        held = Held(stubborn=True)
        order, world, _ = shop(World(charge=Outside(held)))
        async with place.engine(order) as engine:
            await submitted(engine, order)
            await held.begun.wait()
            await engine.send("o-1", Cancel())
            await held.cancelled.wait()
            await settled(engine)
            assert world.refund.calls == []
            held.go.set()
            assert (await engine.wait("o-1")).state is State.CANCELLED
            assert len(world.refund.calls) == 1

    run(scenario)


def test_an_undo_does_not_overtake_an_attempt_of_an_earlier_visit(place: Place) -> None:
    async def scenario() -> None:
        held = Held(stubborn=True)
        order, world, _ = shop(World(charge=Outside(held)))
        async with place.engine(order) as engine:
            await submitted(engine, order)
            await held.begun.wait()
            await engine.send("o-1", Pause())
            await held.cancelled.wait()
            await engine.send("o-1", Cancel())
            await settled(engine)
            assert world.refund.calls == []
            held.go.set()
            await engine.wait("o-1", State.CANCELLED)

    run(scenario)


def test_a_step_that_never_began_is_not_undone(place: Place) -> None:
    async def scenario() -> None:
        order, world, _ = shop()
        async with place.engine(order, worker=False) as engine:
            await submitted(engine, order)
            moved = await engine.send("o-1", Cancel())
            assert moved.state is State.CANCELLED
            assert world.charge.calls == world.refund.calls == []

    run(scenario)


def test_a_failing_undo_is_tried_with_the_same_key_and_then_a_dead_letter(place: Place) -> None:
    """C9: older undos wait, and the workflow stays in its unwinding state."""

    async def scenario() -> None:
        order, world, _ = shop(World(release=Outside(OSError("net"))))
        async with place.engine(order, undo_attempts=2) as engine:
            await submitted(engine, order)
            await engine.wait("o-1", State.DONE)
            await engine.send("o-1", Cancel())
            [letter_id] = await letters(engine)
            [letter] = await engine.dead_letters("undo")
            assert (letter.id, letter.kind, letter.workflow, letter.name) == (letter_id, "undo", "o-1", "reserve")
            assert (letter.attempts, letter.key) == (2, world.release.keys[0])
            assert world.release.attempts == [1, 2]
            assert len(set(world.release.keys)) == 1
            view = await engine.get("o-1")
            assert view.state is State.UNDOING
            assert view.waiting is not None
            assert letter.id in view.waiting
            assert world.refund.calls == []
            assert await engine.dead_letters("step") == []

    run(scenario)


def test_a_non_retryable_undo_is_a_dead_letter_at_once(place: Place) -> None:
    async def scenario() -> None:
        order, world, _ = shop(World(release=Outside(NonRetryable("closed account"))))
        async with place.engine(order) as engine:
            await submitted(engine, order)
            await engine.wait("o-1", State.DONE)
            await engine.send("o-1", Cancel())
            await letters(engine)
            assert world.release.attempts == [1]

    run(scenario)


def test_a_retried_undo_goes_on_with_its_key_and_then_the_older_ones(place: Place) -> None:
    async def scenario() -> None:
        order, world, _ = shop(World(release=Outside(OSError("net"), OSError("net"), None)))
        async with place.engine(order, undo_attempts=2) as engine:
            await submitted(engine, order)
            await engine.wait("o-1", State.DONE)
            await engine.send("o-1", Cancel())
            [letter] = await letters(engine)
            await engine.retry_dead_letter(letter)
            assert (await engine.wait("o-1")).state is State.CANCELLED
            assert len(set(world.release.keys)) == 1
            assert world.release.attempts == [1, 2, 1]
            assert len(world.refund.calls) == 1
            assert await engine.dead_letters() == []
            with pytest.raises(WorkflowNotFound):
                await engine.retry_dead_letter(letter)

    run(scenario)


def test_a_resolved_undo_is_not_tried_again_and_the_older_ones_go_on(kept: Place) -> None:
    """Also in another life."""

    async def scenario() -> None:
        order, world, _ = shop(World(release=Outside(OSError("net"))))
        async with kept.engine(order, undo_attempts=1) as engine:
            await submitted(engine, order)
            await engine.wait("o-1", State.DONE)
            await engine.send("o-1", Cancel())
            await letters(engine)
        async with kept.engine(order, undo_attempts=1) as engine:
            [letter] = await letters(engine)
            await settled(engine)
            assert world.refund.calls == []
            await engine.resolve_dead_letter(letter, note="given back by hand")
            assert (await engine.wait("o-1")).state is State.CANCELLED
            assert len(world.refund.calls) == 1
            assert world.release.attempts == [1]
            with pytest.raises(WorkflowNotFound):
                await engine.resolve_dead_letter(letter, note="again")

    run(scenario)


def test_a_retried_step_keeps_its_key_and_has_all_its_attempts(place: Place) -> None:
    async def scenario() -> None:
        failing = [OSError("net")] * 3
        order, world, _ = shop(World(charge=Outside(*failing, OSError("net"), Charged())), failed=None)
        async with place.engine(order) as engine:
            await submitted(engine, order)
            [letter] = await letters(engine)
            await engine.retry_dead_letter(letter)
            assert (await engine.wait("o-1")).state is State.DONE
            assert world.charge.attempts == [1, 2, 3, 1, 2]
            assert len(set(world.charge.keys)) == 1
            assert await engine.dead_letters() == []

    run(scenario)


def test_a_resolved_step_waits_for_an_event_and_what_it_may_have_done_is_undone(kept: Place) -> None:
    async def scenario() -> None:
        order, world, _ = shop(World(charge=Outside(OSError("net"))), failed=None)
        async with kept.engine(order) as engine:
            await submitted(engine, order)
            [letter] = await letters(engine)
            await engine.resolve_dead_letter(letter, note="looked into it")
        async with kept.engine(order) as engine:
            await settled(engine)
            view = await engine.get("o-1")
            assert view.state is State.CHARGING
            assert view.waiting is not None
            assert await engine.dead_letters() == []
            assert world.charge.attempts == [1, 2, 3]
            await engine.send("o-1", Cancel())
            await engine.wait("o-1", State.CANCELLED)
            assert [call.done for call in world.refund.calls] == [None]

    run(scenario)


def test_a_letter_that_nobody_has_written_is_not_found(place: Place) -> None:
    async def scenario() -> None:
        order = shop().machine
        async with place.engine(order) as engine:
            with pytest.raises(WorkflowNotFound):
                await engine.retry_dead_letter("nobody")
            with pytest.raises(WorkflowNotFound):
                await engine.resolve_dead_letter("nobody", note="")

    run(scenario)


def test_an_undo_is_taken_up_after_a_crash_with_the_same_key(kept: Place) -> None:
    """B6."""

    async def scenario() -> None:
        held = Held()
        order, world, _ = shop(World(release=Outside(held, None)))
        engine = await kept.engine(order)
        await submitted(engine, order)
        await engine.wait("o-1", State.DONE)
        await engine.send("o-1", Cancel())
        await held.begun.wait()
        await crash(engine)
        async with kept.engine(order) as engine:
            assert (await engine.wait("o-1")).state is State.CANCELLED
        assert world.release.attempts == [1, 2]
        assert len(set(world.release.keys)) == 1
        calls: list[Call] = world.refund.calls
        assert [call.ctx.undoes for call in calls] == world.charge.keys

    run(scenario)


def test_an_event_in_an_unwinding_state_lets_the_undos_go_on(place: Place) -> None:
    async def scenario() -> None:
        held = Held()
        order, world, _ = shop(World(release=Outside(held)))
        async with place.engine(order) as engine:
            await submitted(engine, order)
            await engine.wait("o-1", State.DONE)
            await engine.send("o-1", Cancel())
            await held.begun.wait()
            await engine.send("o-1", Note("please"))
            held.go.set()
            assert (await engine.wait("o-1")).context.note == "please"
            assert len(world.release.calls) == 1

    run(scenario)


def test_what_ended_well_is_not_undone(place: Place) -> None:
    async def scenario() -> None:
        order, world, _ = shop()
        async with place.engine(order) as engine:
            await submitted(engine, order)
            await engine.wait("o-1", State.DONE)
            await engine.send("o-1", Ship())
            await settled(engine)
            assert world.refund.calls == world.release.calls == []
            assert await engine.compensations() == []

    run(scenario)
