"""A whole plan: safe or not, versions, names, events, payloads and the context."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from interlock.core.describe import MachineDescription, StateDescription
from interlock.core.plan import Plan, plan
from tests.unit.core.plan.machines import (
    CHARGE,
    ORDER,
    Charged,
    Order,
    arrow,
    changed,
    event,
    renaming,
    with_arrows,
    with_state,
    without_state,
)


class OrderWithNote(msgspec.Struct):
    cents: int = 0
    note: str = ""


class OrderRenamed(msgspec.Struct):
    amount: int = 0


class OrderWithDemand(msgspec.Struct):
    note: str
    cents: int = 0


class ChargedWithNoteRequired(msgspec.Struct):
    receipt: str
    note: str


class OrderRequired(msgspec.Struct):
    cents: int


class ChargedMore(msgspec.Struct):
    receipt: str
    bank: str


class ChargedLess(msgspec.Struct):
    pass


class ChargedWithNote(msgspec.Struct):
    receipt: str
    note: str = ""


def codes(made: Plan) -> dict[str, str]:
    return {finding.code: finding.severity for finding in made.findings}


def test_an_identical_machine_changes_nothing() -> None:
    made = plan(ORDER, ORDER)
    assert not made.changed
    assert made.safe
    assert made.findings == ()
    assert {verdict.verdict for verdict in made.states} == {"unchanged"}
    assert made.text() == "order, version 1 → 1: nothing changes\n"


def test_a_higher_version_alone_changes_nothing() -> None:
    assert plan(ORDER, changed()).text() == "order, version 1 → 2: nothing changes\n"


def test_cosmetic_changes_need_no_new_version() -> None:
    prose = msgspec.json.schema(msgspec.defstruct("Renamed", [("cents", int, 0)]))
    polished = msgspec.structs.replace(
        ORDER,
        states=tuple(reversed(ORDER.states)),
        events=tuple(reversed(ORDER.events)),
        transitions=tuple(
            msgspec.structs.replace(each, guard_reason="It costs money.", catch_all=True)
            for each in reversed(ORDER.transitions)
        ),
        context_schema={**prose, "description": "An order."},
    )
    made = plan(ORDER, polished)
    assert made.findings == ()
    assert made.safe


def test_a_change_needs_a_higher_version() -> None:
    made = plan(ORDER, changed(with_state(ORDER, "charging", dwell_max_s=60), version=1))
    assert codes(made) == {"version-same": "error", "dwell-changed": "info"}
    assert made.findings[0].fix == "raise version: `version=2`"
    assert not made.safe


def test_a_lower_version_is_the_plan_of_a_rollback() -> None:
    made = plan(changed(version=3), ORDER)
    assert codes(made) == {"version-lower": "warning"}
    assert made.safe
    assert made.text().startswith("order, version 3 → 1: nothing changes\n")


class Richer(msgspec.Struct):
    cents: int = 0
    currency: str = "EUR"


def test_a_new_field_is_safe_to_deploy_and_not_side_by_side_nor_to_roll_back() -> None:
    richer = changed(context_schema=msgspec.json.schema(Richer))
    made = plan(ORDER, richer)
    assert made.safe
    assert not made.side_by_side
    assert [(each.process, each.stored, each.code) for each in made.side_by_side_obstacles] == [
        (1, 2, "context-field-gone")
    ]
    assert "  no: a process of version 1 may not decide on workflows that version 2 has stored\n" in made.text()
    back = plan(richer, ORDER)
    assert not back.safe
    assert codes(back) == {"version-lower": "warning", "context-field-gone": "warning"}
    assert [(each.process, each.stored) for each in back.side_by_side_obstacles] == [(1, 2)]


def test_a_change_that_stores_the_same_is_side_by_side() -> None:
    made = plan(ORDER, changed(with_state(ORDER, "charging", dwell_max_s=60)))
    assert made.side_by_side
    assert made.side_by_side_obstacles == ()


def test_another_machine_is_an_error() -> None:
    made = plan(ORDER, changed(name="invoice"))
    assert codes(made) == {"machine-name": "error"}
    assert made.text().startswith("order → invoice, version 1 → 2: NOT SAFE")


def test_a_plan_survives_json() -> None:
    made = plan(ORDER, changed(without_state(ORDER, "charging"), events=(), context_schema={}))
    assert msgspec.json.decode(msgspec.json.encode(made), type=Plan) == made
    assert b'"safe":false' in msgspec.json.encode(made)


# --- States, events and data ------------------------------------------------------------------------------------------


def test_a_state_that_is_gone_strands_its_workflows() -> None:
    made = plan(ORDER, changed(without_state(ORDER, "charging")))
    verdict = made.states[1]
    assert (verdict.becomes, verdict.verdict) == (None, "stranded")
    assert made.states_removed == ("charging",)
    finding = next(finding for finding in made.findings if finding.code == "state-stranded")
    assert 'renamed={"charging": State.' in finding.fix
    assert "keep the state and a way into it until it is empty" in finding.fix
    assert codes(made)["undo-lost"] == "error"
    assert not made.safe


def test_a_final_state_that_is_gone_leaves_finished_workflows_unreadable() -> None:
    made = plan(ORDER, changed(without_state(ORDER, "done")))
    assert "workflows that finished there cannot be read" in made.states[2].reasons[0]


def test_a_new_state_is_told() -> None:
    new = changed(states=(*ORDER.states, StateDescription(name="archived", final=True)))
    made = plan(ORDER, new)
    assert made.states_added == ("archived",)
    assert codes(made) == {"state-added": "info"}
    assert made.safe


def test_another_initial_state_is_told() -> None:
    new = with_state(with_state(ORDER, "draft", initial=False), "charging", initial=True)
    made = plan(ORDER, changed(new))
    assert codes(made) == {"initial-changed": "info"}
    assert made.findings[0].what == "workflows begin in charging instead of draft"


def test_a_removed_initial_state_is_named_as_it_was() -> None:
    made = plan(ORDER, changed(without_state(ORDER, "draft")))
    assert any("instead of draft" in finding.what for finding in made.findings)


def test_events_added_and_removed_are_listed() -> None:
    kept = tuple(each for each in ORDER.events if each.name != "SUBMIT")
    new = with_arrows(
        changed(events=(*kept, event("SEND"))), arrow("draft", "SEND", "charging"), without=(("draft", "SUBMIT"),)
    )
    made = plan(ORDER, new)
    assert (made.events_added, made.events_removed) == (("SEND",), ("SUBMIT",))
    assert codes(made)["event-removed"] == "warning"
    assert [(each.state, each.event) for each in made.events_refused] == [("draft", "SUBMIT")]
    assert made.safe


def test_removing_an_event_that_a_timer_sends_is_an_error() -> None:
    kept = tuple(each for each in ORDER.events if each.name != "CANCEL")
    made = plan(ORDER, changed(events=kept))
    (finding,) = (finding for finding in made.findings if finding.code == "event-removed")
    assert finding.severity == "error"
    assert "timers already set may still send it" in finding.what


def test_a_refused_event_names_the_state_that_it_reaches() -> None:
    new = with_arrows(renaming(ORDER, "charging", "paying"), without=(("paying", "CANCEL"),))
    (refused,) = plan(ORDER, changed(new), renamed={"charging": "paying"}).events_refused
    assert (refused.state, refused.becomes, refused.event) == ("charging", "paying", "CANCEL")


def _with_payload(kind: type[msgspec.Struct]) -> MachineDescription:
    return changed(events=tuple(event("CHARGED", kind) if each.name == "CHARGED" else each for each in ORDER.events))


def test_a_payload_that_no_longer_decodes_is_reported() -> None:
    made = plan(ORDER, _with_payload(ChargedMore))
    (verdict,) = made.payloads
    assert (verdict.event, verdict.decoding) == ("CHARGED", "breaks")
    assert verdict.incompatibilities[0].path == "$.bank"


def _passing(machine: MachineDescription) -> MachineDescription:
    """The machine with a CHARGED that is nowhere stored: no timer sends it and no undo needs it."""
    return with_state(machine, "charging", step=msgspec.structs.replace(CHARGE, undoes=()))


def test_a_payload_that_is_only_on_its_way_is_a_warning() -> None:
    made = plan(_passing(ORDER), _passing(_with_payload(ChargedMore)))
    assert codes(made) == {"payload-breaks": "warning"}
    assert made.findings[0].why == "webhooks and commands on their way carry the old payload"
    assert made.safe


def test_a_payload_that_a_timer_carries_must_decode() -> None:
    timed = with_state(
        _passing(ORDER), "draft", timers=(msgspec.structs.replace(ORDER.states[0].timers[0], event="CHARGED"),)
    )
    made = plan(timed, with_state(_passing(_with_payload(ChargedMore)), "draft", timers=timed.states[0].timers))
    assert codes(made) == {"payload-breaks": "error"}
    assert made.findings[0].why == "timers already set may still send it"
    assert not made.safe


def test_a_payload_in_the_undo_log_must_decode() -> None:
    made = plan(ORDER, _with_payload(ChargedMore))
    assert codes(made) == {"payload-breaks": "error"}
    assert made.findings[0].why == (
        "as an outcome of the step `charge` it stays in the undo log until the workflow ends"
    )
    assert not made.safe


def test_a_payload_in_the_undo_log_must_be_proved_to_decode() -> None:
    old = _with_payload(ChargedWithNote)
    made = plan(old, changed(_with_payload(ChargedWithNoteRequired), version=3))
    assert codes(made) == {"payload-stored-unproven": "warning"}
    assert made.text().startswith("order, version 2 → 3: NOT PROVED SAFE (1 warning)\n")
    passing = plan(_passing(old), changed(_passing(_with_payload(ChargedWithNoteRequired)), version=3))
    assert codes(passing) == {"payload-unproven": "warning"}
    assert passing.safe


def test_removing_an_event_that_the_undo_log_keeps_is_an_error() -> None:
    made = plan(ORDER, changed(events=tuple(each for each in ORDER.events if each.name != "CHARGED")))
    (finding,) = (finding for finding in made.findings if finding.code == "event-removed")
    assert finding.severity == "error"
    assert finding.what == (
        "the event CHARGED is gone, and as an outcome of the step `charge` it stays in the undo log until the "
        "workflow ends"
    )
    assert not made.safe


def test_the_payloads_of_a_pipeline_carry_its_context() -> None:
    done = msgspec.structs.replace(CHARGE, returns=("CHARGE_DONE",), undoes=("CHARGE_DONE",))
    old = with_state(ORDER, "charging", step=done)
    carrying = [
        changed(old, events=(*ORDER.events, event("CHARGE_DONE", msgspec.defstruct("Done", [("context", kind)]))))
        for kind in (Order, OrderWithDemand)
    ]
    made = plan(carrying[0], changed(carrying[1]))
    (finding,) = made.findings
    assert (finding.code, finding.severity) == ("payload-breaks", "error")
    assert finding.why.endswith("(the *_DONE event of an undoable step of a pipeline carries the whole context)")


def test_a_payload_field_that_is_gone_is_refused_from_outside() -> None:
    made = plan(_passing(ORDER), _passing(_with_payload(ChargedLess)))
    assert codes(made) == {"payload-unproven": "warning"}
    assert made.payloads[0].decoding == "unproven"
    assert "unknown fields are refused" in made.findings[0].what
    assert made.safe


def test_a_payload_field_that_is_gone_from_the_undo_log_is_lost_to_the_undo() -> None:
    made = plan(ORDER, _with_payload(ChargedLess))
    assert codes(made) == {"payload-unproven": "warning", "payload-field-gone": "warning"}
    assert made.findings[1].what == (
        "payload of CHARGED at $.receipt: the field is gone, and with it every value that is stored there"
    )
    assert not made.safe


def test_a_payload_that_grew_by_a_default_is_only_told() -> None:
    made = plan(ORDER, _with_payload(ChargedWithNote))
    assert made.payloads == ()
    assert codes(made) == {"payload-changed": "info"}


def test_a_context_that_grew_by_a_default_is_only_told() -> None:
    made = plan(ORDER, changed(context_schema=msgspec.json.schema(OrderWithNote)))
    assert made.context == "decodes"
    assert codes(made) == {"context-fields-added": "info"}
    assert made.findings[0].what == "new fields of the context: $.note"
    assert made.safe


def test_a_context_with_another_default_is_only_told() -> None:
    free = msgspec.json.schema(msgspec.defstruct("Order", [("cents", int, 100)]))
    made = plan(ORDER, changed(context_schema=free))
    assert codes(made) == {"context-changed": "info"}
    assert made.safe


def test_a_context_field_that_is_renamed_loses_its_values() -> None:
    made = plan(ORDER, changed(context_schema=msgspec.json.schema(OrderRenamed)))
    assert made.context == "decodes"
    assert codes(made) == {"context-field-gone": "warning", "context-fields-added": "info"}
    finding = made.findings[0]
    assert finding.location == "$.cents"
    assert finding.what == (
        "context at $.cents: the field is gone, and with it every value that is stored there; "
        "probably a rename, since `amount` is new and of the same type"
    )
    assert finding.fix == ("keep the name `cents`, or keep `cents` beside `amount` in the new type and read both")
    assert not made.safe
    assert made.text().startswith("order, version 1 → 2: NOT PROVED SAFE (1 warning, 1 info)\n")


def test_a_context_that_no_longer_decodes_is_not_safe() -> None:
    made = plan(ORDER, changed(context_schema=msgspec.json.schema(OrderWithDemand)))
    assert made.context == "breaks"
    assert [problem.path for problem in made.context_incompatibilities] == ["$.note"]
    (finding,) = made.findings
    assert (finding.code, finding.severity, finding.location) == ("context-breaks", "error", "$.note")
    assert finding.fix == "give `note` a default in the new type"
    assert not made.safe


def test_a_context_that_cannot_be_proved_is_not_called_safe() -> None:
    made = plan(ORDER, changed(context_schema=msgspec.json.schema(OrderRequired)))
    assert made.context == "unproven"
    assert codes(made) == {"context-unproven": "warning"}
    assert not made.safe
    assert made.text().startswith("order, version 1 → 2: NOT PROVED SAFE (1 warning)\n")


# --- Nothing is overlooked --------------------------------------------------------------------------------------------

SCHEMAS = [msgspec.json.schema(kind) for kind in (Order, OrderWithNote, Charged, ChargedMore)]


@st.composite
def machines(draw: st.DrawFn) -> MachineDescription:
    """ORDER with a few attachments, arrows and schemas drawn."""
    machine = ORDER
    for name in ("draft", "charging"):
        machine = with_state(
            machine,
            name,
            effects=draw(st.sampled_from([(), ("mail",), ("mail", "bill")])),
            timers=draw(st.sampled_from([(), ORDER.states[0].timers])),
            dwell_max_s=draw(st.sampled_from([None, 5.0])),
            step=draw(st.sampled_from([None, ORDER.states[1].step])),
            resting=draw(st.booleans()),
        )
    added = draw(
        st.lists(
            st.builds(
                arrow,
                st.sampled_from(["draft", "charging"]),
                st.sampled_from(["SUBMIT", "CANCEL"]),
                st.sampled_from(["draft", "charging", "done"]),
                guard=st.sampled_from([None, "affordable"]),
                action=st.sampled_from([None, "submit"]),
                internal=st.booleans(),
            ),
            max_size=2,
        )
    )
    machine = with_arrows(machine, *added, without=draw(st.sampled_from([(), (("draft", "SUBMIT"),)])))
    return changed(machine, context_schema=draw(st.sampled_from(SCHEMAS)), version=1)


def _meaning(machine: MachineDescription) -> object:
    """What must not change without being told, computed in another way than the plan does."""
    ways: dict[tuple[str, str], list[object]] = {}
    for each in machine.transitions:
        ways.setdefault((each.source, each.event), []).append((each.target, each.internal, each.guard, each.action))
    states = {
        state.name: msgspec.structs.replace(state, effects=tuple(sorted(state.effects))) for state in machine.states
    }
    return ways, states, machine.context_schema


@pytest.mark.slow
@given(machines(), machines())
def test_every_difference_is_told(old: MachineDescription, new: MachineDescription) -> None:
    made = plan(old, new)
    assert made.changed == (_meaning(old) != _meaning(new))
    assert ("version-same" in codes(made)) == made.changed
    assert made.safe <= all(verdict.verdict != "stranded" for verdict in made.states)
    assert made.safe <= (made.context == "decodes")
    for verdict in made.states:
        assert bool(verdict.reasons) == (verdict.verdict != "unchanged")
