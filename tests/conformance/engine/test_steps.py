"""B10, C1, C2, C3, C6: steps have one key, are retried, timed out and judged, and a result is applied at most once."""

import asyncio
import uuid

import pytest

from interlock import (
    Classification,
    Event,
    NonRetryable,
    Retryable,
    RetryAfter,
    Signal,
    StepAttempted,
    StepContext,
    StepFailure,
)
from tests.conformance.engine.places import Place, crash, run, settled
from tests.conformance.engine.shop import (
    Cancel,
    Charged,
    Declined,
    Held,
    Order,
    Outside,
    State,
    Submit,
    World,
    shop,
)


def test_entering_a_state_runs_its_step_whose_result_is_the_next_event(place: Place) -> None:
    """B10: through the same guarded path; every state that is passed is in history."""

    async def scenario() -> None:
        order, world, _ = shop()
        async with place.engine(order) as engine:
            await engine.start(order, "o-1", Order())
            await engine.send("o-1", Submit())
            view = await engine.of(order).wait("o-1")
            assert (view.state, view.context.receipt) == (State.DONE, "r")
            rows = await engine.history("o-1")
            assert [row.event for row in rows] == ["STARTED", "SUBMIT", "CHARGED", "RESERVED"]
            assert [row.to_state for row in rows] == [State.DRAFT, State.CHARGING, State.RESERVING, State.DONE]
            assert [row.version for row in rows] == [1, 2, 3, 4]
            assert rows[2].payload == Charged("r")
            assert world.charge.calls[0].context == Order(cents=5)

    run(scenario)


def test_a_key_is_a_uuid_with_the_name_of_the_step_in_front(place: Place) -> None:
    """C6."""

    async def scenario() -> None:
        order, world, _ = shop()
        async with place.engine(order) as engine:
            for each in ("o-1", "o-2"):
                await engine.start(order, each, Order())
                await engine.send(each, Submit())
                await engine.wait(each)
            assert len({*world.charge.keys, *world.reserve.keys}) == 4
            for key in world.charge.keys:
                assert key.startswith("charge-")
                assert uuid.UUID(key.removeprefix("charge-")).version == 4
            ctx = world.charge.calls[0].ctx
            assert (ctx.workflow, ctx.attempt, ctx.visit, ctx.undoes) == ("o-1", 1, 2, None)

    run(scenario)


def test_retries_keep_the_key_and_count_up(place: Place) -> None:
    async def scenario() -> None:
        order, world, _ = shop(World(charge=Outside(OSError("net"), Retryable("busy"), Charged())))
        async with place.engine(order) as engine:
            await engine.start(order, "o-1", Order())
            await engine.send("o-1", Submit())
            assert (await engine.wait("o-1")).state is State.DONE
            assert world.charge.attempts == [1, 2, 3]
            assert len(set(world.charge.keys)) == 1

    run(scenario)


def test_out_of_attempts_goes_where_failed_says_with_the_failure_for_the_action(place: Place) -> None:
    async def scenario() -> None:
        order, world, _ = shop(World(charge=Outside(OSError("net"))))
        async with place.engine(order) as engine:
            await engine.start(order, "o-1", Order())
            await engine.send("o-1", Submit())
            view = await engine.of(order).wait("o-1")
            assert (view.state, view.context.note) == (State.CANCELLED, "OSError after 3")
            assert world.charge.attempts == [1, 2, 3]
            failed = (await engine.history("o-1"))[2]
            assert (failed.event, failed.to_state) == ("STEP_FAILED", State.UNDOING)
            assert failed.payload == StepFailure(
                step="charge", error="OSError", message="net", attempts=3, unknown=True
            )

    run(scenario)


def test_attempts_are_durable_over_a_crash_and_the_key_stays(kept: Place) -> None:
    """B6, C6, and the poison item: an attempt that takes the process with it counts."""

    async def scenario() -> None:
        world = World(charge=Outside(Held()))
        keys: list[str] = []
        for life in (1, 2, 3):
            order = shop(world).machine
            engine = await kept.engine(order)
            if life == 1:
                await engine.start(order, "o-1", Order())
                await engine.send("o-1", Submit())
            held = world.charge.answers[0]
            assert isinstance(held, Held)
            await held.begun.wait()
            await crash(engine)
            world.charge.answers = [Held()]
            keys = world.charge.keys
        assert world.charge.attempts == [1, 2, 3]
        assert len(set(keys)) == 1
        async with kept.engine(shop(world).machine) as engine:
            assert (await engine.wait("o-1")).state is State.CANCELLED
            failed = (await engine.history("o-1"))[2].payload
            assert isinstance(failed, StepFailure)
            assert (failed.error, failed.attempts, failed.unknown) == ("crashed", 3, True)
            assert [call.done for call in world.refund.calls] == [None]
            assert world.refund.calls[0].ctx.undoes == keys[0]
        assert len(world.charge.calls) == 3

    run(scenario)


def test_a_timeout_cancels_the_work_and_counts_as_retryable(place: Place) -> None:
    """C2."""

    async def scenario() -> None:
        held = Held()
        order, world, _ = shop(World(charge=Outside(held, Charged())), timeout_s=0.05)
        seen: list[Signal] = []
        async with place.engine(order, observers=[seen.append]) as engine:
            await engine.start(order, "o-1", Order())
            await engine.send("o-1", Submit())
            assert (await engine.wait("o-1")).state is State.DONE
            assert held.cancelled.is_set()
            assert world.charge.attempts == [1, 2]
            outcomes = [each.outcome for each in seen if isinstance(each, StepAttempted) and each.step == "charge"]
            assert outcomes == ["timeout", "done"]

    run(scenario)


def test_a_step_that_answers_its_cancellation_has_answered(place: Place) -> None:
    """C2: it knows what it did, which is better than trying again; as with `asyncio.timeout`."""

    async def scenario() -> None:
        order, _, charge = shop(timeout_s=0.05)

        async def swallows(order: Order, ctx: StepContext) -> Event:
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                return Charged("first")
            raise AssertionError

        async with place.engine(order, steps={charge: swallows}) as engine:
            await engine.start(order, "o-1", Order())
            await engine.send("o-1", Submit())
            assert (await engine.of(order).wait("o-1")).context.receipt == "first"

    run(scenario)


@pytest.mark.parametrize("attempts", [1, 3])
def test_non_retryable_is_final_and_known_without_effect(place: Place, attempts: int) -> None:
    """Outcomes: not tried again and not undone."""

    async def scenario() -> None:
        order, world, _ = shop(World(charge=Outside(NonRetryable("no such card"))), attempts=attempts)
        async with place.engine(order) as engine:
            await engine.start(order, "o-1", Order())
            await engine.send("o-1", Submit())
            assert (await engine.wait("o-1")).state is State.CANCELLED
            assert world.charge.attempts == [1]
            assert world.refund.calls == []

    run(scenario)


def test_non_retryable_after_an_unknown_attempt_is_undone(place: Place) -> None:
    """Outcomes: the first attempt may have happened, whatever the second one says of itself."""

    async def scenario() -> None:
        order, world, _ = shop(World(charge=Outside(OSError("net"), NonRetryable("no"))))
        async with place.engine(order) as engine:
            await engine.start(order, "o-1", Order())
            await engine.send("o-1", Submit())
            assert (await engine.wait("o-1")).state is State.CANCELLED
            assert [call.done for call in world.refund.calls] == [None]

    run(scenario)


def test_retry_after_waits_at_least_so_long(place: Place) -> None:
    async def scenario() -> None:
        order, world, _ = shop(World(charge=Outside(RetryAfter(3600.0), Charged())))
        async with place.engine(order) as engine:
            await engine.start(order, "o-1", Order())
            await engine.send("o-1", Submit())
            await settled(engine)
            waiting = (await engine.get("o-1")).waiting
            assert waiting is not None
            assert "failed in 1 attempt" in waiting
            wake_us = (await engine._store.load(["o-1"]))["o-1"].wake_us
            assert wake_us is not None
            assert wake_us - engine._store.now_us() > 3_500_000_000
            assert world.charge.attempts == [1]

    run(scenario)


def test_classify_says_what_an_error_means(place: Place) -> None:
    async def scenario() -> None:
        def classify(error: BaseException) -> Classification | None:
            if isinstance(error, KeyError):
                return Classification.NON_RETRYABLE
            return Classification.RETRYABLE if isinstance(error, NonRetryable) else None

        answers = Outside(NonRetryable("says itself"), OSError("no opinion"), KeyError("final"))
        order, world, _ = shop(World(charge=answers), attempts=5, classify=classify)
        async with place.engine(order) as engine:
            await engine.start(order, "o-1", Order())
            await engine.send("o-1", Submit())
            assert (await engine.wait("o-1")).state is State.CANCELLED
            assert world.charge.attempts == [1, 2, 3]

    run(scenario)


MISTAKES = [TypeError("a"), AttributeError("b"), KeyError("c"), NameError("d"), AssertionError("e"), ValueError("f")]


@pytest.mark.parametrize("error", MISTAKES, ids=repr)
def test_a_mistake_of_the_program_is_a_dead_letter_and_does_not_take_the_way_of_the_business(
    place: Place, error: Exception
) -> None:
    """C18: one attempt, no `failed=`. When the program is fixed it is tried again, with the same key."""

    async def scenario() -> None:
        order, world, _ = shop(World(charge=Outside(error, Charged())), attempts=5)
        async with place.engine(order) as engine:
            await engine.start(order, "o-1", Order())
            await engine.send("o-1", Submit())
            await settled(engine)
            view = await engine.get("o-1")
            assert (view.state, view.context) == (State.CHARGING, Order(cents=Submit().cents))
            [letter] = await engine.dead_letters()
            assert (letter.kind, letter.workflow, letter.attempts) == ("step", "o-1", 1)
            assert letter.error.startswith(type(error).__name__)
            await engine.retry_dead_letter(letter.id)
            assert (await engine.wait("o-1", State.DONE)).state is State.DONE
            assert len(world.charge.calls) == 2
            assert len(set(world.charge.keys)) == 1

    run(scenario)


def test_what_a_mistake_of_the_program_may_have_done_is_undone(place: Place) -> None:
    """G5: nothing is known of its outcome."""

    async def scenario() -> None:
        order, world, _ = shop(World(charge=Outside(TypeError("after the call"))))
        async with place.engine(order) as engine:
            await engine.start(order, "o-1", Order())
            await engine.send("o-1", Submit())
            await settled(engine)
            await engine.send("o-1", Cancel())
            assert (await engine.wait("o-1")).state is State.CANCELLED
            assert [call.done for call in world.refund.calls] == [None]

    run(scenario)


@pytest.mark.parametrize("kind", ["undo", "effect"])
def test_a_mistake_in_an_undo_or_an_effect_is_a_dead_letter_after_one_attempt(place: Place, kind: str) -> None:
    async def scenario() -> None:
        wrong = Outside(TypeError("a mistake"))
        order, *_ = shop(World(refund=wrong, charge=Outside(Charged()), reserve=Outside(NonRetryable("no"))))
        if kind == "effect":
            order, *_ = shop(World(mail=wrong))
        async with place.engine(order) as engine:
            await engine.start(order, "o-1", Order())
            await engine.send("o-1", Submit())
            while not (letters := await engine.dead_letters()):
                await settled(engine)
            assert [(letter.kind, letter.attempts) for letter in letters] == [(kind, 1)]
            assert len(wrong.calls) == 1

    run(scenario)


def test_what_is_unexpected_is_tried_again_and_then_a_dead_letter(place: Place) -> None:
    """C18: an answer that cannot be read, or a file that is not there, is no word of the business either."""

    async def scenario() -> None:
        order, world, _ = shop(World(charge=Outside(FileNotFoundError("the certificate"))), attempts=3)
        async with place.engine(order) as engine:
            await engine.start(order, "o-1", Order())
            await engine.send("o-1", Submit())
            while not (letters := await engine.dead_letters()):
                await settled(engine)
            assert [(letter.kind, letter.attempts) for letter in letters] == [("step", 3)]
            assert (await engine.get("o-1")).state is State.CHARGING
            assert world.charge.attempts == [1, 2, 3]

    run(scenario)


def test_a_business_outcome_is_an_event_and_no_failure(place: Place) -> None:
    async def scenario() -> None:
        order, world, _ = shop(World(charge=Outside(Declined())))
        async with place.engine(order) as engine:
            await engine.start(order, "o-1", Order())
            await engine.send("o-1", Submit())
            assert (await engine.wait("o-1")).state is State.CANCELLED
            assert world.refund.calls == []
            assert [row.event for row in await engine.history("o-1")][-1] == "DECLINED"

    run(scenario)


def test_a_step_without_failed_becomes_a_dead_letter_and_the_workflow_says_so(place: Place) -> None:
    async def scenario() -> None:
        order, world, _ = shop(World(charge=Outside(OSError("net"))), failed=None)
        async with place.engine(order) as engine:
            await engine.start(order, "o-1", Order())
            await engine.send("o-1", Submit())
            while not (letters := await engine.dead_letters()):
                await settled(engine)
            [letter] = letters
            assert (letter.kind, letter.workflow, letter.name, letter.attempts) == ("step", "o-1", "charge", 3)
            assert "net" in letter.error
            assert letter.key == world.charge.keys[0]
            view = await engine.get("o-1")
            assert view.state is State.CHARGING
            assert view.waiting is not None
            assert letter.id in view.waiting
            await engine.send("o-1", Cancel())
            assert (await engine.wait("o-1")).state is State.CANCELLED
            assert [call.done for call in world.refund.calls] == [None]
            assert await engine.dead_letters() == []

    run(scenario)


def test_steps_beyond_steps_max_wait_for_a_slot_and_all_run(place: Place) -> None:
    """G6."""

    async def scenario() -> None:
        under_way = most = 0
        order, _, charge = shop()

        async def one_at_a_time(order: Order, ctx: StepContext) -> Event:
            nonlocal under_way, most
            under_way += 1
            most = max(most, under_way)
            await asyncio.sleep(0)
            under_way -= 1
            return Charged()

        async with place.engine(order, steps={charge: one_at_a_time}, steps_max=2) as engine:
            ids = [f"o-{number}" for number in range(20)]
            await asyncio.gather(*(engine.start(order, each, Order()) for each in ids))
            await engine.send_many([(each, Submit(), None) for each in ids])
            await asyncio.gather(*(engine.wait(each) for each in ids))
            assert most <= 2

    run(scenario)
