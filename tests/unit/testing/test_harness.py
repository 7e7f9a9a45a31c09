"""`Harness`: the real engine in virtual time, with faults per step, crashes and assertions on history."""

import asyncio
import traceback
from dataclasses import dataclass, replace
from enum import Enum
from pathlib import Path

import pytest

from interlock.core.events import Event
from interlock.core.machine import Machine
from interlock.core.pipeline import pipeline, step
from interlock.core.policies import Retry
from interlock.core.values import StepContext
from interlock.errors import BadUsage, InvalidTransition, NonRetryable, OutcomeUnknown
from interlock.testing import Harness
from tests.conformance.engine import families
from tests.simulation.tracing import untraced


class State(Enum):
    DRAFT, CHARGING, RESERVING = "draft", "charging", "reserving"
    DONE, UNDOING, CANCELLED = "done", "undoing", "cancelled"


@dataclass(frozen=True)
class Order:
    cents: int = 0
    receipt: str = ""


class OrderEvent(Event): ...


@dataclass(frozen=True)
class Submit(OrderEvent):
    cents: int


@dataclass(frozen=True)
class Charged(OrderEvent):
    receipt: str


@dataclass(frozen=True)
class Reserved(OrderEvent): ...


@dataclass(frozen=True)
class Cancel(OrderEvent): ...


order = Machine(
    "order",
    states=State,
    context=Order,
    events=OrderEvent,
    initial=State.DRAFT,
    final={State.DONE, State.CANCELLED},
    unwind={State.UNDOING: State.CANCELLED},
)


@order.on(Submit, State.DRAFT, to=State.CHARGING)
def submit(order: Order, event: Submit) -> Order:
    return replace(order, cents=event.cents)


@order.on(Charged, State.CHARGING, to=State.RESERVING)
def charged(order: Order, event: Charged) -> Order:
    return replace(order, receipt=event.receipt)


order.on(Reserved, State.RESERVING, to=State.DONE)
order.on(Cancel, State.DRAFT, State.CHARGING, State.RESERVING, to=State.UNDOING)


@order.step(State.CHARGING, timeout_s=4, retry=Retry(attempts=4, first_s=1), failed=State.UNDOING)
async def charge(order: Order, ctx: StepContext) -> Charged:
    return Charged(f"r-{ctx.key}")


@charge.undo(Charged)
async def refund(order: Order, done: Charged | None, ctx: StepContext) -> None:
    pass


@order.step(State.RESERVING, timeout_s=4, retry=Retry(attempts=2), failed=State.UNDOING)
async def reserve(order: Order, ctx: StepContext) -> Reserved:
    return Reserved()


@order.effect(State.DONE)
async def mail(order: Order, ctx: StepContext) -> None:
    pass


order.after(State.DRAFT, after_s=3_600, send=Cancel())


def test_a_step_is_retried_with_one_key_and_time_skips_by_itself() -> None:
    """C2, C6: three attempts, one idempotency key."""
    with Harness(order) as h:
        h.fail(charge, OSError("net"), times=2)
        h.start("o-1", Order())
        assert h.send("o-1", Submit(cents=5)).state is State.CHARGING
        h.drain()
        h.assert_history("o-1", "STARTED", "SUBMIT", "CHARGED", "RESERVED")
        h.assert_history("o-1", State.DRAFT, State.CHARGING, State.RESERVING, State.DONE)
        assert h.view("o-1").state is State.DONE
        assert h.calls(charge) == 3
        assert len(h.keys(charge)) == 1
        assert [call.outcome for call in h.attempts(charge)] == ["OSError", "OSError", "done"]
        assert h.calls(mail) == 1


def test_an_order_is_refunded_when_reserving_fails() -> None:
    """B6, A8: the undo knows the key of what it undoes."""
    with Harness(order) as h:
        h.fail(reserve, NonRetryable("sold out"))
        h.start("o-1", Order())
        h.send("o-1", Submit(cents=5))
        h.drain()
        h.assert_history("o-1", "STARTED", Submit, Charged, "STEP_FAILED", "UNWOUND")
        [undo] = h.attempts(refund)
        assert [undo.undoes] == h.keys(charge)
        assert h.clock.now_s < 1


def test_a_hanging_step_ends_with_its_time() -> None:
    """C2: a timeout is an attempt that failed."""
    with Harness(order) as h:
        h.hang(charge, times=4)
        h.start("o-1", Order())
        h.send("o-1", Submit(cents=5))
        h.drain()
        assert h.calls(charge) == 4
        assert h.clock.now_s > 4 * 4
        assert h.view("o-1").state is State.CANCELLED
        assert h.calls(refund) == 1


def test_a_timer_far_away_does_not_fire_by_itself() -> None:
    """B9: `drain` skips the time of retries; hours pass only when the test says so."""
    with Harness(order) as h:
        h.start("o-1", Order())
        h.drain()
        assert h.view("o-1").state is State.DRAFT
        h.advance(minutes=59)
        assert h.view("o-1").state is State.DRAFT
        h.crash(down_s=30)
        h.advance(seconds=31)
        h.assert_history("o-1", "STARTED", "CANCEL", "UNWOUND")


def test_what_was_durable_survives_a_crash_and_nothing_else() -> None:
    """G2, G5: the attempt that took the process with it counts, and is tried again with the same key."""
    with Harness(order) as h:
        h.crash_in(charge)
        h.crash_in(reserve, after=True)
        h.start("o-1", Order())
        h.send("o-1", Submit(cents=5))
        h.drain()
        h.assert_history("o-1", "STARTED", "SUBMIT", "CHARGED", "RESERVED")
        assert [(call.attempt, call.outcome) for call in h.attempts(charge)] == [(1, "crashed"), (2, "done")]
        assert len(h.keys(charge)) == len(h.keys(reserve)) == 1
        assert [call.attempt for call in h.attempts(reserve)] == [1, 2]


def test_a_call_that_the_crash_interrupts_has_an_unknown_outcome() -> None:
    """G9: nobody can say whether it happened."""
    with Harness(order) as h:
        h.hang(charge)
        h.start("o-1", Order())
        h.send("o-1", Submit(cents=5))
        h.crash_in(charge)
        with pytest.raises(OutcomeUnknown):
            h.run(h.engine.wait("o-1"))
        h.drain()
        assert h.view("o-1").state is State.DONE


def test_a_clean_restart_does_not_count_the_attempt() -> None:
    """B6: an attempt that is cancelled because the engine stops is not counted."""
    with Harness(order, drain_s=1) as h:
        h.hang(charge)
        h.start("o-1", Order())
        h.send("o-1", Submit(cents=5))
        h.restart(down_s=60)
        h.drain()
        assert [call.attempt for call in h.attempts(charge)] == [1, 1]
        assert h.view("o-1").state is State.DONE


def test_a_slow_and_a_lost_answer_are_told_apart_by_what_was_done() -> None:
    with Harness(order) as h:
        h.slow(charge, by_s=3)
        h.lose(reserve)
        h.start("o-1", Order())
        h.send("o-1", Submit(cents=5))
        h.drain()
        assert [call.outcome for call in h.attempts(reserve)] == ["ConnectionError", "done"]
        assert 3 <= h.clock.now_s < 4


def test_strategies_are_swapped() -> None:
    """C1."""

    async def fake(order: Order, ctx: StepContext) -> Charged:
        return Charged("fake")

    with Harness(order, steps={charge: fake}) as h:
        h.start("o-1", Order())
        h.send("o-1", Submit(cents=5))
        h.drain()
        assert h.view("o-1").context.receipt == "fake"
        assert h.calls(charge) == 1


def test_a_wrong_history_is_shown_line_by_line() -> None:
    with Harness(order) as h:
        h.start("o-1", Order())
        with pytest.raises(AssertionError) as failure:
            h.assert_history("o-1", "STARTED", "SUBMIT")
        assert "≠ (nothing)" in str(failure.value)
        assert "expected SUBMIT" in str(failure.value)
        with pytest.raises(AssertionError) as failure:
            h.assert_history("o-1", State.DONE)
        assert "STARTED: draft → draft" in str(failure.value)
        assert "expected done" in str(failure.value)


def test_what_never_settles_is_told() -> None:
    with Harness(order) as h:
        h.slow(charge, by_s=3, times=2)
        h.start("o-1", Order())
        h.send("o-1", Submit(cents=5))
        with pytest.raises(AssertionError) as failure:
            h.drain(within_s=1)
        assert "o-1: in 'charging' at version 2" in str(failure.value)
        h.drain()


def test_a_refusal_is_raised_as_it_is() -> None:
    with Harness(order) as h:
        h.start("o-1", Order())
        with pytest.raises(InvalidTransition):
            h.send("o-1", Reserved())


def test_the_same_seed_gives_the_same_keys() -> None:
    def keys(seed: int) -> list[str]:
        with Harness(order, seed=seed) as h:
            h.start("o-1", Order())
            h.send("o-1", Submit(cents=5))
            h.drain()
            return h.keys(charge)

    assert keys(1) == keys(1)
    assert keys(1) != keys(2)


def test_it_works_inside_another_event_loop() -> None:
    async def test() -> State:
        async with Harness(order) as h:
            h.start("o-1", Order())
            h.send("o-1", Submit(cents=5))
            await asyncio.sleep(0)
            h.drain()
            return h.view("o-1").state

    assert asyncio.run(test()) is State.DONE


@dataclass(frozen=True)
class Parcel:
    weighed: bool = False


@step(timeout_s=1)
async def weigh(parcel: Parcel, ctx: StepContext) -> Parcel:
    return replace(parcel, weighed=True)


@weigh.undo
async def forget(parcel: Parcel, ctx: StepContext) -> None:
    pass


@step(timeout_s=1)
async def ship(parcel: Parcel, ctx: StepContext) -> Parcel:
    return parcel


parcels = pipeline("parcels", context=Parcel, steps=[weigh, ship])


def test_a_pipeline_begins_by_itself_and_its_undos_are_known_by_their_function() -> None:
    with Harness(parcels) as h:
        h.fail(ship, NonRetryable("no van"))
        h.start("p-1", Parcel())
        h.drain()
        assert h.view("p-1").state is parcels.State.FAILED
        assert h.calls(forget) == 1
        assert h.calls("weigh") == 1


def test_another_machine_has_its_own_calls() -> None:
    with Harness(order, parcels) as h:
        parcel = h.of(parcels)
        assert not parcel.start("p-1", Parcel()).context.weighed
        h.drain()
        assert parcel.view("p-1").state is parcels.State.COMPLETED
        assert [row.event for row in parcel.history("p-1")] == ["STARTED", "BEGIN", "WEIGH_DONE", "SHIP_DONE"]
        with pytest.raises(InvalidTransition):
            parcel.send("p-1", parcels.Cancel())


def test_a_step_of_nobody_is_refused() -> None:
    with Harness(parcels) as h, pytest.raises(BadUsage) as refused:
        h.fail(charge, OSError())
    assert "step 'weigh' of 'parcels'" in str(refused.value)


def test_a_lane_is_killed_and_opened_again(tmp_path: Path) -> None:
    """A store with threads: time stands still while it works."""
    with Harness(order, url=f"lanes://{tmp_path}/home") as h:
        h.crash_in(charge)
        h.start("o-1", Order())
        h.send("o-1", Submit(cents=5))
        h.drain()
        h.crash()
        h.assert_history("o-1", "STARTED", "SUBMIT", "CHARGED", "RESERVED")
        assert len(h.keys(charge)) == 1


def test_a_year_passes_in_a_few_turns() -> None:
    with untraced(), Harness(order) as h:
        h.start("o-1", Order())
        h.advance(days=365)
        assert h.view("o-1").state is State.CANCELLED
        assert (h.now - h.history("o-1")[0].created_at).days == 365


def test_an_engine_that_is_killed_while_it_stops_is_followed_by_the_next() -> None:
    with Harness(order) as h:
        h.start("o-1", Order())
        h.send("o-1", Submit(cents=5))
        h.crash_in(charge, times=2)
        h.restart()
        h.drain()
        assert h.view("o-1").state is State.DONE
        h.start("o-2", Order())
        h.crash_in(charge)
        h.send("o-2", Submit(cents=5))


def test_a_harness_is_entered_once_and_used_inside() -> None:
    h = Harness(order)
    with pytest.raises(BadUsage) as refused:
        h.start("o-1", Order())
    assert "not open" in str(refused.value)
    with h, pytest.raises(BadUsage):
        h.__enter__()


def fails() -> None:
    with Harness(order) as h:
        h.hang(charge)
        h.start("o-1", Order())
        h.send("o-1", Submit(cents=5))
        raise ZeroDivisionError


def test_a_failing_test_shows_its_own_failure() -> None:
    with pytest.raises(ZeroDivisionError):
        fails()


def test_after_its_block_a_harness_is_closed() -> None:
    with Harness(order) as h:
        h.start("o-1", Order())
    with pytest.raises(BadUsage):
        h.view("o-1")


def test_an_error_that_is_raised_again_and_again_has_the_traceback_of_one_time() -> None:
    """One error serves all of its times; what the log shows of the last must not show all of the others too."""
    error = OSError("net")
    with Harness(order) as h:
        h.fail(charge, error, times=4)
        h.start("o-1", Order())
        h.send("o-1", Submit(cents=5))
        h.drain()
    names = [frame.name for frame in traceback.extract_tb(error.__traceback__)]
    assert names.count("_apply_fault") == 1


def test_children_start_end_and_survive_a_crash() -> None:
    parcel = families.parcels()
    order = families.orders(parcel)
    with Harness(order, parcel) as h:
        h.start("o", families.Order(("a", "b")))
        h.send("o", families.Pay())
        h.drain()
        h.of(parcel).send("o.a", families.Packed())
        h.crash()
        h.of(parcel).send("o.b", families.Packed())
        h.drain()
        assert h.view("o").state is families.OrderState.SHIPPED
        assert [each.id for each in h.run(h.engine.children("o")).items] == ["o.a", "o.b"]
        h.assert_history("o", "STARTED", "PAY", "CHILDREN_JOINED")
