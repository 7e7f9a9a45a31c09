"""G5: nothing that may have happened outside is left without its undo, whatever way the workflow fails."""

from dataclasses import replace

import pytest

from interlock.core import decide
from interlock.core.decide import UNDO_LOG_MAX, undos_of
from interlock.core.values import (
    Decision,
    Run,
    RunEffect,
    RunStep,
    RunUndos,
    Snapshot,
    StepContext,
    StepFailure,
    StopStep,
    Undo,
)
from interlock.errors import InvalidPayload, LimitReached, UserCodeError
from tests.unit.core.machines import (
    Again,
    Cancel,
    Charged,
    Declined,
    Note,
    Order,
    OrderEvent,
    OrderMachine,
    Reserved,
    State,
    Submit,
    blank_machine,
    declare_charge,
    declare_undos,
    order_machine,
)

CHARGE = Run("charge", 3, Charged("r-1"))
LOST = StepFailure(step="reserve", error="timeout", attempts=5, unknown=True)
DECLINED = StepFailure(step="reserve", error="non-retryable", unknown=False)


def result(order: OrderMachine, snapshot: Snapshot[State, Order], event: OrderEvent) -> Decision[State, Order]:
    return decide.decide(order.compiled, snapshot, event, result=True)


def at(state: State, *log: Run, attempted: bool = False, version: int = 9) -> Snapshot[State, Order]:
    return Snapshot(state, Order(), version, version, log, attempted)


# --- what is logged ------------------------------------------------------------------------------------------------


def test_a_completed_run_is_logged_with_its_outcome() -> None:
    moved = result(order_machine(), at(State.CHARGING, attempted=True), Charged("r-2")).snapshot
    assert moved.state is State.RESERVING
    assert moved.undo_log == (Run("charge", 9, Charged("r-2")),)
    assert not moved.attempted


def test_an_outcome_without_handler_is_not_logged() -> None:
    decision = result(order_machine(), at(State.CHARGING, attempted=True), Declined())
    assert decision.snapshot.undo_log == ()
    assert decision.snapshot.state is State.CANCELLED


def test_an_interrupted_run_is_logged_as_unknown() -> None:
    order = order_machine()
    moved = order.decide(at(State.CHARGING, attempted=True), Again()).snapshot
    assert moved.undo_log == (Run("charge", 9, None),)


def test_an_outcome_that_came_from_outside_leaves_the_own_run_unknown() -> None:
    moved = order_machine().decide(at(State.CHARGING, attempted=True), Charged("by webhook")).snapshot
    assert moved.undo_log == (Run("charge", 9, None),)


def test_a_run_that_was_never_started_is_not_logged() -> None:
    assert order_machine().decide(at(State.CHARGING), Again()).snapshot.undo_log == ()


def test_a_result_that_stays_is_logged_once_and_ends_the_run() -> None:
    order = order_machine_with_internal_result()
    stayed = result(order, at(State.CHARGING, attempted=True), Charged("r-3")).snapshot
    assert stayed.undo_log == (Run("charge", 9, Charged("r-3")),)
    assert not stayed.attempted
    assert stayed.visit == 9
    left = order.decide(stayed, Reserved()).snapshot
    assert left.undo_log == stayed.undo_log


# --- what is settled (C21) -----------------------------------------------------------------------------------------


def settling_machine() -> OrderMachine:
    """Charge again and again; every receipt is final, and so is what was done before a note."""
    order = blank_machine(resting=frozenset({State.RESERVING}))
    order.on(Submit, State.DRAFT, State.RESERVING, to=State.CHARGING)
    order.on(Charged, State.CHARGING, to=State.RESERVING, settle=True)
    order.on(Declined, State.CHARGING, settle=True)
    order.on(Reserved, State.CHARGING, to=State.RESERVING, settle=True)
    order.on(Note, State.RESERVING, State.CHARGING, settle=True)
    order.on(Reserved, State.RESERVING, to=State.DRAFT, settle=True)
    order.on(Reserved, State.DRAFT, to=State.DONE)
    order.on(Cancel, order.any, to=State.UNDOING)
    charge = declare_charge(order)
    declare_undos(charge)
    return order


@pytest.mark.parametrize("by_step", [True, False])
def test_a_settling_outcome_leaves_nothing_to_undo_and_its_own_run_neither(by_step: bool) -> None:
    """Also when the outcome comes from outside, as by a webhook, while the step that caused it still runs."""
    before = at(State.CHARGING, CHARGE, attempted=True)
    moved = decide.decide(settling_machine().compiled, before, Charged("r-2"), result=by_step).snapshot
    assert (moved.state, moved.undo_log, moved.attempted) == (State.RESERVING, (), False)
    assert before.undo_log == (CHARGE,)


def test_a_run_that_a_settling_move_cuts_off_is_not_settled() -> None:
    order = settling_machine()
    assert order.apply(at(State.CHARGING, CHARGE, attempted=True), Reserved()).undo_log == (Run("charge", 9, None),)
    assert order.apply(at(State.CHARGING, CHARGE), Reserved()).undo_log == ()


def test_an_internal_transition_settles_what_is_done_and_not_what_still_runs() -> None:
    order = settling_machine()
    stayed = order.apply(at(State.CHARGING, CHARGE, attempted=True), Note())
    assert (stayed.undo_log, stayed.attempted, stayed.visit) == ((), True, 9)
    assert order.apply(stayed, Cancel()).undo_log == (Run("charge", 9, None),)
    ended = result(order, at(State.CHARGING, CHARGE, attempted=True), Declined()).snapshot
    assert (ended.undo_log, ended.attempted) == ((), False)


def test_a_move_between_states_without_undos_settles_too() -> None:
    order = settling_machine()
    assert order.apply(at(State.RESERVING, CHARGE), Reserved()).undo_log == ()
    unwound = order.decide(at(State.DRAFT), Cancel()).snapshot
    assert unwound.state is State.CANCELLED


def order_machine_with_internal_result() -> OrderMachine:
    order = blank_machine()
    order.on(Submit, State.DRAFT, to=State.CHARGING)
    order.on(Charged, State.CHARGING)
    order.on(Reserved, State.CHARGING, to=State.RESERVING)
    order.on(Reserved, State.RESERVING, to=State.DONE)
    order.on(Cancel, order.any, to=State.UNDOING)

    @order.step(State.CHARGING, timeout_s=1, failed=State.UNDOING)
    async def charge(order: Order, ctx: StepContext) -> Charged:
        return Charged()

    @charge.undo(Charged)
    async def refund(order: Order, done: Charged | None, ctx: StepContext) -> None: ...

    return order


def test_leaving_an_undoable_state_is_logged_wherever_it_leads() -> None:
    order = order_machine_with_internal_result()
    interrupted = order.decide(at(State.CHARGING, attempted=True), Reserved()).snapshot
    assert interrupted.undo_log == (Run("charge", 9, None),)
    no_handler = result(order, at(State.CHARGING, attempted=True), Reserved()).snapshot
    assert no_handler.undo_log == ()


def test_a_log_travels_through_states_that_have_nothing_to_undo_and_ends_with_the_workflow() -> None:
    order = order_machine_with_internal_result()
    order.on(Note, State.RESERVING, to=State.RESERVING)
    assert order.decide(at(State.RESERVING, CHARGE), Note()).snapshot.undo_log == (CHARGE,)
    assert order.decide(at(State.RESERVING, CHARGE), Reserved()).snapshot.undo_log == ()


# --- what is undone ------------------------------------------------------------------------------------------------


def test_undos_run_newest_first() -> None:
    order = order_machine()
    log = (Run("charge", 2, Charged("a")), Run("charge", 3, Again()), Run("reserve", 4, Reserved()))
    decision = order.decide(at(State.RESERVING, *log), Cancel())
    assert decision.commands[-1] == RunUndos(
        (
            Undo("reserve", "RESERVED", 4, Reserved()),
            Undo("charge", "AGAIN", 3, Again()),
            Undo("charge", "CHARGED", 2, Charged("a")),
        )
    )


def test_a_known_outcome_is_undone_by_its_own_handler_alone() -> None:
    owed = undos_of(order_machine().compiled, (Run("charge", 2, Charged("a")),))
    assert owed == (Undo("charge", "CHARGED", 2, Charged("a")),)


def test_an_unknown_outcome_is_undone_by_every_handler_with_none() -> None:
    owed = undos_of(order_machine().compiled, (Run("charge", 2, None),))
    assert owed == (Undo("charge", "AGAIN", 2, None), Undo("charge", "CHARGED", 2, None))


def test_a_step_the_machine_no_longer_has_is_skipped() -> None:
    assert undos_of(order_machine().compiled, (Run("gone", 2, None),)) == ()


def test_an_interrupted_run_is_undone_too() -> None:
    decision = order_machine().decide(at(State.RESERVING, CHARGE, attempted=True), Cancel())
    assert decision.snapshot.state is State.UNDOING
    assert decision.snapshot.undo_log == (CHARGE, Run("reserve", 9, None))
    [record] = decision.records
    assert (record.from_state, record.to_state, record.version) == (State.RESERVING, State.UNDOING, 10)
    assert decision.commands == (
        StopStep("reserve"),
        RunUndos((Undo("reserve", "RESERVED", 9, None), Undo("charge", "CHARGED", 3, Charged("r-1")))),
    )


def test_a_result_that_unwinds_is_undone_itself() -> None:
    order = blank_machine()
    order.on(Submit, State.DRAFT, to=State.CHARGING)
    order.on(Charged, State.CHARGING, to=State.UNDOING)
    order.on(Reserved, State.CHARGING, to=State.RESERVING)
    order.on(Reserved, State.RESERVING, to=State.DONE)

    @order.step(State.CHARGING, timeout_s=1, failed=State.UNDOING)
    async def charge(order: Order, ctx: StepContext) -> Charged:
        return Charged()

    @charge.undo(Charged)
    async def refund(order: Order, done: Charged | None, ctx: StepContext) -> None: ...

    decision = result(order, at(State.CHARGING, attempted=True), Charged("x"))
    assert decision.commands[-1] == RunUndos((Undo("charge", "CHARGED", 9, Charged("x")),))


def test_nothing_to_undo_passes_the_unwinding_state_in_one_decision() -> None:
    decision = order_machine().decide(at(State.DRAFT), Cancel())
    first, second = decision.records
    assert (first.version, first.from_state, first.to_state, first.event) == (
        10,
        State.DRAFT,
        State.UNDOING,
        "CANCEL",
    )
    assert (second.version, second.from_state, second.to_state, second.event, second.payload) == (
        11,
        State.UNDOING,
        State.CANCELLED,
        "UNWOUND",
        None,
    )
    assert decision.snapshot == Snapshot(State.CANCELLED, Order(), 11, 11)
    assert decision.commands[-1] == RunEffect("mail")


def test_events_may_be_noted_while_it_unwinds_and_owe_nothing_new() -> None:
    order = order_machine()
    decision = order.decide(at(State.UNDOING, CHARGE), Note("customer called"))
    assert decision.snapshot.undo_log == (CHARGE,)
    assert decision.snapshot.visit == 9
    assert decision.commands == ()


def test_unwound_goes_on_with_an_empty_log() -> None:
    decision = decide.unwound(order_machine().compiled, at(State.UNDOING, CHARGE))
    assert decision.snapshot == Snapshot(State.CANCELLED, Order(), 10, 10)
    [record] = decision.records
    assert (record.version, record.from_state, record.to_state, record.event) == (
        10,
        State.UNDOING,
        State.CANCELLED,
        "UNWOUND",
    )
    assert decision.commands == (RunEffect("mail"),)


def test_only_an_unwinding_state_can_be_unwound() -> None:
    with pytest.raises(InvalidPayload) as caught:
        decide.unwound(order_machine().compiled, at(State.DRAFT))
    assert "not unwinding" in caught.value.what


def test_only_a_state_with_a_step_can_fail() -> None:
    with pytest.raises(InvalidPayload) as caught:
        decide.fail(order_machine().compiled, at(State.DRAFT), StepFailure(step="charge", error="x"))
    assert "has no step" in caught.value.what


# --- failing -------------------------------------------------------------------------------------------------------


def failed(order: OrderMachine, snapshot: Snapshot[State, Order], failure: StepFailure) -> Decision[State, Order]:
    decision = decide.fail(order.compiled, snapshot, failure)
    assert decision is not None
    return decision


def test_a_step_that_may_have_happened_is_undone_when_it_gives_up() -> None:
    decision = failed(order_machine(), at(State.RESERVING, CHARGE, attempted=True), LOST)
    assert decision.snapshot.undo_log == (CHARGE, Run("reserve", 9, None))
    assert decision.commands == (
        StopStep("reserve"),
        RunUndos((Undo("reserve", "RESERVED", 9, None), Undo("charge", "CHARGED", 3, Charged("r-1")))),
    )
    [record] = decision.records
    assert (record.event, record.payload) == ("STEP_FAILED", LOST)
    assert (record.from_state, record.to_state) == (State.RESERVING, State.UNDOING)


def test_a_step_that_is_known_not_to_have_happened_is_not_undone() -> None:
    decision = failed(order_machine(), at(State.RESERVING, CHARGE, attempted=True), DECLINED)
    assert decision.snapshot.undo_log == (CHARGE,)
    assert decision.commands[-1] == RunUndos((Undo("charge", "CHARGED", 3, Charged("r-1")),))


def test_a_failure_with_nothing_to_undo_unwinds_in_one_decision() -> None:
    decision = failed(order_machine(), at(State.RESERVING), DECLINED)
    assert [record.event for record in decision.records] == ["STEP_FAILED", "UNWOUND"]
    assert decision.snapshot.state is State.CANCELLED
    assert decision.snapshot.undo_log == ()


def test_the_failed_action_changes_the_context() -> None:
    decision = failed(order_machine(), at(State.RESERVING), LOST)
    assert decision.snapshot.context == Order(note="timeout")
    assert decision.records[0].context == Order(note="timeout")


def test_without_failed_there_is_no_decision() -> None:
    order = order_machine_without_failed()
    assert decide.fail(order.compiled, at(State.CHARGING, attempted=True), LOST) is None


def order_machine_without_failed() -> OrderMachine:
    order = blank_machine()
    order.on(Submit, State.DRAFT, to=State.CHARGING)
    order.on(Charged, State.CHARGING, to=State.RESERVING)
    order.on(Reserved, State.RESERVING, to=State.DONE)
    order.on(Cancel, order.any, to=State.UNDOING)

    @order.step(State.CHARGING, timeout_s=1)
    async def charge(order: Order, ctx: StepContext) -> Charged:
        return Charged()

    @order.step(State.RESERVING, timeout_s=1, failed=State.CANCELLED, read_only=True)
    async def look(order: Order, ctx: StepContext) -> Reserved:
        return Reserved()

    return order


def test_failed_may_be_an_ordinary_state_when_nothing_can_be_owed() -> None:
    decision = failed(order_machine_without_failed(), at(State.RESERVING, attempted=True), LOST)
    assert decision.snapshot == Snapshot(State.CANCELLED, Order(), 10, 10)
    assert decision.commands == (StopStep("look"),)


def test_a_read_only_step_is_never_undone() -> None:
    decision = order_machine_without_failed().decide(at(State.RESERVING, attempted=True), Cancel())
    assert decision.snapshot.state is State.CANCELLED
    assert decision.snapshot.undo_log == ()


@pytest.mark.parametrize("wrong", ["raises", "returns"])
def test_a_failed_action_that_is_wrong_is_user_code(wrong: str) -> None:
    order = order_machine_without_failed()
    step = order.compiled.steps["look"].step
    assert step is not None

    def action(order: object, failure: StepFailure) -> object:
        if wrong == "raises":
            raise KeyError("x")
        return None

    step.failed_action = action
    before = at(State.RESERVING)
    with pytest.raises(UserCodeError) as caught:
        decide.fail(order.compiled, before, LOST)
    assert isinstance(caught.value.__cause__, KeyError) is (wrong == "raises")
    assert "STEP_FAILED" in caught.value.what
    assert before == at(State.RESERVING)


# --- the bound (G6) ------------------------------------------------------------------------------------------------

FULL = tuple(Run("charge", visit, Charged()) for visit in range(UNDO_LOG_MAX))


def test_a_full_log_refuses_a_new_run_before_it_starts() -> None:
    order = order_machine()
    before = at(State.DRAFT, *FULL)
    with pytest.raises(LimitReached) as caught:
        order.decide(before, Submit())
    assert "charging" in caught.value.what
    assert f"{UNDO_LOG_MAX:,}" in caught.value.what
    assert before == at(State.DRAFT, *FULL)
    room = at(State.DRAFT, *FULL[1:])
    assert order.decide(room, Submit()).snapshot.state is State.CHARGING


def test_a_full_log_refuses_to_enter_the_same_state_again() -> None:
    with pytest.raises(LimitReached):
        result(order_machine(), at(State.CHARGING, *FULL[1:], attempted=True), Again())


def test_a_full_log_can_always_be_unwound_and_ended() -> None:
    order = order_machine()
    decision = order.decide(at(State.RESERVING, *FULL, attempted=True), Cancel())
    assert len(decision.snapshot.undo_log) == UNDO_LOG_MAX + 1
    [undos] = [command for command in decision.commands if isinstance(command, RunUndos)]
    assert len(undos.undos) == UNDO_LOG_MAX + 1
    assert result(order, at(State.RESERVING, *FULL, attempted=True), Reserved()).snapshot.state is State.DONE


def test_after_unwinding_there_is_room_again() -> None:
    unwound = decide.unwound(order_machine().compiled, at(State.UNDOING, *FULL)).snapshot
    assert unwound.undo_log == ()


def test_entering_an_undoable_state_keeps_the_log_and_owes_the_step() -> None:
    decision = order_machine().decide(at(State.DRAFT, CHARGE), Submit(cents=7))
    assert decision.snapshot == Snapshot(State.CHARGING, replace(Order(), cents=7), 10, 10, (CHARGE,))
    assert RunStep("charge") in decision.commands
