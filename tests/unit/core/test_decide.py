"""Deciding: refusals change nothing (A3), catch-alls (A4), order of guards, internal and self-targeted transitions."""

from dataclasses import replace

import pytest

from interlock.core import decide
from interlock.core.values import RunEffect, RunStep, Snapshot, StartTimer, StopStep, StopTimers
from interlock.errors import GuardRejected, InvalidTransition
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
    order_machine,
)


def no(order: Order, event: OrderEvent) -> bool:
    """Never."""
    return False


def yes(order: Order, event: OrderEvent) -> bool:
    return True


def cheap(order: Order, event: Submit) -> bool:
    """Below 10."""
    return event.cents < 10


def dear(order: Order, event: Submit) -> bool:
    return event.cents < 100


def draft_machine() -> OrderMachine:
    """Every state can be reached and left, so that a test may add what it is about."""
    order = blank_machine()
    order.on(Charged, State.DRAFT, to=State.CHARGING)
    order.on(Charged, State.CHARGING, to=State.RESERVING)
    order.on(Charged, State.RESERVING, to=State.DONE)
    order.on(Reserved, State.DRAFT, State.CHARGING, State.RESERVING, to=State.UNDOING)
    return order


# --- moving --------------------------------------------------------------------------------------------------------


def test_a_move_raises_the_version_and_begins_a_visit() -> None:
    order = order_machine()
    before = order.at(State.DRAFT, Order(), version=7)
    decision = order.decide(before, Submit(cents=9))
    assert decision.snapshot == Snapshot(State.CHARGING, Order(cents=9), 8, 8)
    [record] = decision.records
    assert (record.version, record.from_state, record.to_state) == (8, State.DRAFT, State.CHARGING)
    assert (record.event, record.payload, record.context) == ("SUBMIT", Submit(cents=9), Order(cents=9))
    assert before == order.at(State.DRAFT, Order(), version=7)


def test_commands_are_what_leaving_and_entering_owe() -> None:
    order = order_machine()
    assert order.start(Order()).commands == (StartTimer(Cancel(), 3_600, "deadline"),)
    assert order.decide(order.begin(Order()), Submit()).commands == (StopTimers(), RunStep("charge"))
    charging = order.at(State.CHARGING, Order())
    assert order.decide(charging, Charged()).commands == (StopStep("charge"), RunStep("reserve"))
    reserving = order.at(State.RESERVING, Order())
    assert order.decide(reserving, Reserved()).commands == (StopStep("reserve"), RunEffect("mail"))


def test_a_start_is_version_1_with_a_record_from_the_initial_state_to_itself() -> None:
    decision = order_machine().start(Order(cents=3))
    assert decision.snapshot == Snapshot(State.DRAFT, Order(cents=3), 1, 1)
    [record] = decision.records
    assert (record.version, record.event, record.payload) == (1, "STARTED", None)
    assert record.from_state is record.to_state is State.DRAFT
    assert record.context == Order(cents=3)


def test_apply_is_the_snapshot_of_decide() -> None:
    order = order_machine()
    assert order.apply(order.begin(Order()), Submit()) == order.decide(order.begin(Order()), Submit()).snapshot


def test_the_same_inputs_give_the_same_decision() -> None:
    """A5."""
    one, two = order_machine(), order_machine()
    assert one.decide(one.begin(Order()), Submit()) == two.decide(two.begin(Order()), Submit())


# --- refusing (A3) -------------------------------------------------------------------------------------------------


def test_an_event_without_transition_is_refused_with_everything_a_reader_needs() -> None:
    order = order_machine()
    before = order.at(State.DRAFT, Order(cents=3), version=4)
    with pytest.raises(InvalidTransition) as caught:
        order.decide(before, Charged())
    refused = caught.value
    assert (refused.machine, refused.state, refused.event) == ("order", "draft", "CHARGED")
    assert refused.allowed == ("SUBMIT", "NOTE", "CANCEL")
    assert before == order.at(State.DRAFT, Order(cents=3), version=4)


def test_a_guard_that_says_no_is_named_with_its_reason() -> None:
    order = order_machine()
    before = order.at(State.DRAFT, Order(cents=3), version=4)
    with pytest.raises(GuardRejected) as caught:
        order.decide(before, Submit(cents=10_001))
    refused = caught.value
    assert (refused.machine, refused.state, refused.event, refused.guard) == ("order", "draft", "SUBMIT", "affordable")
    assert refused.reasons == ("The amount is between 1 cent and 100 euros.",)
    assert refused.allowed == ("SUBMIT", "NOTE", "CANCEL")
    assert before == order.at(State.DRAFT, Order(cents=3), version=4)


@pytest.mark.parametrize("final", [State.DONE, State.CANCELLED])
@pytest.mark.parametrize("event", [Submit(), Note(), Cancel()])
def test_a_final_state_refuses_everything(final: State, event: OrderEvent) -> None:
    order = order_machine()
    with pytest.raises(InvalidTransition) as caught:
        order.decide(order.at(final, Order()), event)
    assert caught.value.allowed == ()


def test_an_action_is_not_asked_when_the_guard_says_no() -> None:
    order, asked = draft_machine(), []

    @order.on(Submit, State.DRAFT, to=State.DONE, when=no)
    def note(order: Order, event: Submit) -> Order:
        asked.append(event)
        return order

    with pytest.raises(GuardRejected):
        order.apply(order.begin(Order()), Submit())
    assert asked == []


# --- several transitions -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("cents", "to"), [(5, State.CHARGING), (50, State.RESERVING), (500, State.DONE)])
def test_the_first_guard_that_says_yes_wins_in_declared_order(cents: int, to: State) -> None:
    order = draft_machine()
    order.on(Submit, State.DRAFT, to=State.CHARGING, when=cheap)
    order.on(Submit, State.DRAFT, to=State.RESERVING, when=dear)
    order.on(Submit, State.DRAFT, to=State.DONE)
    assert order.apply(order.begin(Order()), Submit(cents=cents)).state is to


def test_when_all_guards_say_no_all_are_named() -> None:
    order = draft_machine()
    order.on(Submit, State.DRAFT, to=State.CHARGING, when=cheap)
    order.on(Submit, State.DRAFT, to=State.RESERVING, when=dear)
    with pytest.raises(GuardRejected) as caught:
        order.apply(order.begin(Order()), Submit(cents=500))
    assert caught.value.guards == ("cheap", "dear")
    assert caught.value.reasons == ("Below 10.",)


# --- the catch-all (A4) --------------------------------------------------------------------------------------------


def test_a_catch_all_applies_where_the_state_has_other_transitions_of_its_own() -> None:
    order = order_machine()
    decision = order.decide(order.at(State.RESERVING, Order()), Cancel())
    assert decision.records[0].to_state is State.UNDOING


def test_the_recorded_from_is_the_state_before_the_move() -> None:
    order = draft_machine()
    order.on(Cancel, order.any, to=State.CANCELLED)
    for state in (State.DRAFT, State.CHARGING, State.RESERVING):
        [record] = order.decide(order.at(state, Order()), Cancel()).records
        assert (record.from_state, record.to_state) == (state, State.CANCELLED)


@pytest.mark.parametrize("catch_all_first", [True, False])
def test_the_specific_transition_beats_the_catch_all_whatever_the_order(catch_all_first: bool) -> None:
    order = draft_machine()
    if catch_all_first:
        order.on(Cancel, order.any, to=State.CANCELLED)
    order.on(Cancel, State.CHARGING, to=State.DONE)
    if not catch_all_first:
        order.on(Cancel, order.any, to=State.CANCELLED)
    assert order.apply(order.at(State.CHARGING, Order()), Cancel()).state is State.DONE
    assert order.apply(order.at(State.DRAFT, Order()), Cancel()).state is State.CANCELLED


def test_there_is_no_fall_through_when_the_specific_guard_says_no() -> None:
    order = draft_machine()
    order.on(Cancel, State.DRAFT, to=State.DONE, when=no)
    order.on(Cancel, order.any, to=State.CANCELLED)
    with pytest.raises(GuardRejected) as caught:
        order.apply(order.begin(Order()), Cancel())
    assert caught.value.guards == ("no",)


def test_any_is_neither_final_nor_unwinding_but_resting() -> None:
    order = blank_machine(resting=frozenset({State.RESERVING}))
    order.on(Charged, State.DRAFT, to=State.CHARGING)
    order.on(Charged, State.CHARGING, to=State.RESERVING)
    order.on(Reserved, State.RESERVING, to=State.UNDOING)
    order.on(Submit, State.RESERVING, to=State.DONE)
    order.on(Cancel, order.any, to=State.CANCELLED)
    open_to_cancel = {state for state in State if order.can(state, Cancel)}
    assert open_to_cancel == {State.DRAFT, State.CHARGING, State.RESERVING}


def test_several_guarded_catch_alls_are_asked_in_declared_order() -> None:
    order = draft_machine()
    order.on(Submit, order.any, to=State.CHARGING, when=cheap)
    order.on(Submit, order.any, to=State.RESERVING, when=yes)
    assert order.apply(order.begin(Order()), Submit(cents=1)).state is State.CHARGING
    assert order.apply(order.begin(Order()), Submit(cents=10)).state is State.RESERVING


# --- internal and self-targeted ------------------------------------------------------------------------------------


def test_an_internal_transition_keeps_the_visit_the_step_and_the_timers() -> None:
    order = order_machine()
    before = order.at(State.CHARGING, Order(), version=5, attempted=True)
    decision = order.decide(before, Note("hello"))
    assert decision.snapshot == replace_struct(before, context=Order(note="hello"), version=6)
    assert decision.snapshot.visit == 5
    assert decision.snapshot.attempted
    assert decision.commands == ()
    [record] = decision.records
    assert (record.version, record.from_state, record.to_state) == (6, State.CHARGING, State.CHARGING)


def test_a_self_target_leaves_and_enters_again() -> None:
    order = order_machine()
    before = order.at(State.CHARGING, Order(), version=5)
    decision = order.decide(before, Again())
    assert (decision.snapshot.version, decision.snapshot.visit) == (6, 6)
    assert decision.commands == (StopStep("charge"), RunStep("charge"))


def test_an_internal_catch_all_stays_wherever_it_is() -> None:
    order = draft_machine()

    @order.on(Note, order.any)
    def note(order: Order, event: Note) -> Order:
        return replace(order, note=event.text)

    for state in (State.DRAFT, State.CHARGING, State.RESERVING):
        assert order.apply(order.at(state, Order()), Note("x")) == Snapshot(state, Order(note="x"), 2, 1)


def test_a_transition_without_action_keeps_the_context() -> None:
    order, context = order_machine(), Order(cents=3)
    assert order.apply(order.at(State.CHARGING, context), Declined()).context is context


def replace_struct(snapshot: Snapshot[State, Order], **changes: object) -> Snapshot[State, Order]:
    fields = {name: getattr(snapshot, name) for name in snapshot.__struct_fields__}
    return Snapshot(**{**fields, **changes})


# --- can (A6) ------------------------------------------------------------------------------------------------------


def test_can_ignores_guards_and_takes_a_class_or_an_instance() -> None:
    order = order_machine()
    assert order.can(State.DRAFT, Submit)
    assert order.can(State.DRAFT, Submit(cents=10**9))
    assert not order.can(State.DRAFT, Charged)
    assert not order.can(State.DONE, Cancel)


def test_a_stranger_of_a_state_has_no_node() -> None:
    table = order_machine().compiled
    assert decide.node_of(table, State.DRAFT).state is State.DRAFT
