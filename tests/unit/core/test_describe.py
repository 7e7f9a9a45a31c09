"""A machine as plain data."""

import msgspec

from interlock.core.describe import StepDescription, description_from_json
from interlock.core.events import wire_name
from interlock.core.machine import Machine
from tests.unit.core.machines import Cancel, Order, OrderEvent, State, Submit, blank_machine, order_machine


def test_states_carry_everything_attached_to_them() -> None:
    order = order_machine().describe()
    by_name = {state.name: state for state in order.states}
    assert list(by_name) == [state.value for state in State]
    assert by_name["draft"].initial
    assert [timer.event for timer in by_name["draft"].timers] == ["CANCEL"]
    assert by_name["draft"].dwell_max_s == 60
    assert by_name["undoing"].unwinds_to == "cancelled"
    assert by_name["done"].final
    assert by_name["done"].effects == ("mail",)
    charge = by_name["charging"].step
    assert charge is not None
    assert (charge.name, charge.timeout_s, charge.attempts, charge.dependency) == ("charge", 4, 60, "gateway")
    assert (charge.returns, charge.undoes) == (("CHARGED", "AGAIN"), ("CHARGED", "AGAIN"))
    assert by_name["draft"].step is None
    assert order.state("charging") is by_name["charging"]
    assert order.state("nowhere") is None


def test_the_initial_state_comes_first() -> None:
    machine = Machine(
        "m", states=State, context=Order, events=OrderEvent, initial=State.DONE, resting=set(State) - {State.DONE}
    )
    for state in set(State) - {State.DONE}:
        machine.on(Submit, State.DONE, to=state, when=lambda order, event: True)
    assert machine.describe().states[0].name == "done"


def test_transitions_tell_guard_action_kind_and_catch_all() -> None:
    arrows = {(each.source, each.event): each for each in order_machine().describe().transitions}
    submit = arrows["draft", "SUBMIT"]
    assert (submit.target, submit.guard, submit.action, submit.internal) == ("charging", "affordable", "submit", False)
    assert submit.guard_reason == "The amount is between 1 cent and 100 euros."
    note = arrows["charging", "NOTE"]
    assert (note.target, note.internal, note.guard, note.guard_reason) == ("charging", True, None, None)
    assert arrows["charging", "AGAIN"].internal is False
    assert arrows["charging", "CHARGED"].action is None
    assert arrows["reserving", "CANCEL"].catch_all
    assert not arrows["draft", "SUBMIT"].catch_all
    failed = arrows["charging", "STEP_FAILED"]
    assert (failed.target, failed.kind) == ("undoing", "failed")
    unwound = arrows["undoing", "UNWOUND"]
    assert (unwound.target, unwound.kind) == ("cancelled", "unwound")
    assert not any(source in {"done", "cancelled"} for source, _ in arrows)


def test_events_and_context_have_schemas() -> None:
    order = order_machine()
    described = order.describe()
    names = [event.name for event in described.events]
    assert set(names) == {wire_name(event) for event in order.compiled.events.values()}
    assert "Submit" in str(described.events[names.index("SUBMIT")].schema)
    assert "cents" in str(described.context_schema)


def test_old_names_are_told() -> None:
    machine = Machine(
        "m",
        states=State,
        context=Order,
        events=OrderEvent,
        initial=State.DRAFT,
        resting=set(State),
        renamed={"new": State.DRAFT},
    )
    for state in set(State) - {State.DRAFT}:
        machine.on(Submit, State.DRAFT, to=state, when=lambda order, event: True)
    assert machine.describe().renamed == {"new": "draft"}


def test_a_description_survives_json() -> None:
    described = order_machine().describe()
    assert description_from_json(described.to_json()) == described


def test_only_a_transition_that_settles_says_so() -> None:
    """C21: the text of a description saved before there was `settle` stays the same."""
    assert b"settle" not in order_machine().describe().to_json()
    order = blank_machine()
    order.on(Submit, State.DRAFT, to=State.DONE, settle=True)
    order.on(Cancel, order.any, to=State.UNDOING, settle=False)
    described = order.describe()
    assert {each.event: each.settle for each in described.transitions if each.event != "UNWOUND"} == {
        "SUBMIT": True,
        "CANCEL": msgspec.UNSET,
    }
    assert description_from_json(described.to_json()) == described
    for picture in (order.table(), order.mermaid(), order.dot(), order.svg()):
        assert picture.count("settles") >= 1


def test_a_step_without_a_heartbeat_is_written_as_before_there_were_heartbeats() -> None:
    """B10: the text of a saved description stays the same, and is read without the field."""
    described = order_machine().describe()
    assert b"heartbeat" not in described.to_json()
    charge = StepDescription(name="charge", timeout_s=4, attempts=1, heartbeat_s=0.5)
    beating = msgspec.structs.replace(described, states=(msgspec.structs.replace(described.states[1], step=charge),))
    assert b'"heartbeat_s": 0.5' in beating.to_json()
    assert description_from_json(beating.to_json()) == beating
