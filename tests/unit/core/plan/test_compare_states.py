"""What a plan says about workflows parked in one state: stranded, changed, and why."""

from typing import Any

import msgspec
import pytest

from interlock.core.describe import MachineDescription, StateDescription, StepDescription, TimerDescription
from interlock.core.plan import Plan, plan
from interlock.core.plan.compare_states import undoable_states
from interlock.core.plan.findings import StateVerdict
from interlock.core.values import Finding
from tests.unit.core.plan.machines import (
    CHARGE,
    ORDER,
    TIMER,
    arrow,
    changed,
    with_arrows,
    with_state,
)


def verdict_of(made: Plan, state: str) -> StateVerdict:
    return next(verdict for verdict in made.states if verdict.state == state)


def after(new: MachineDescription, state: str, old: MachineDescription = ORDER) -> StateVerdict:
    return verdict_of(plan(old, changed(new)), state)


def findings(made: Plan, code: str) -> list[Finding]:
    return [finding for finding in made.findings if finding.code == code]


def replaced(**fields: Any) -> StepDescription:  # noqa: ANN401 - any field
    return msgspec.structs.replace(CHARGE, **fields)


# --- Stranded ---------------------------------------------------------------------------------------------------------


def test_a_state_without_a_way_out_strands() -> None:
    new = with_arrows(ORDER, without=(("draft", "SUBMIT"), ("draft", "CANCEL")))
    verdict = after(new, "draft")
    assert verdict.verdict == "stranded"
    assert verdict.reasons[0].startswith("`draft` is a dead end now")


def test_a_way_out_that_never_ends_strands() -> None:
    new = with_arrows(
        ORDER,
        arrow("charging", "CHARGED", "draft"),
        without=(("draft", "CANCEL"), ("charging", "CHARGED"), ("charging", "CANCEL"), ("charging", "STEP_FAILED")),
    )
    verdict = after(new, "draft")
    assert verdict.verdict == "stranded"
    assert verdict.reasons[0] == "no path leads from `draft` to a final or resting state any more"


def test_what_was_a_dead_end_already_is_not_blamed_on_the_change() -> None:
    stuck = with_arrows(ORDER, without=(("draft", "SUBMIT"), ("draft", "CANCEL")))
    assert after(with_state(stuck, "draft", timers=()), "draft", old=stuck).verdict == "changed"


def test_a_step_that_is_owed_and_gone_strands() -> None:
    only_charged = with_arrows(ORDER, without=(("charging", "CANCEL"),))
    new = with_state(only_charged, "charging", step=None)
    verdict = after(new, "charging", old=only_charged)
    assert verdict.verdict == "stranded"
    assert verdict.reasons[0] == (
        "a step `charge` that was owed here no longer exists: the workflow would stay for ever"
    )


def test_an_event_from_outside_saves_a_workflow_whose_step_is_gone() -> None:
    verdict = after(with_state(ORDER, "charging", step=None), "charging")
    assert verdict.verdict == "changed"
    assert "a step `charge` that was owed here no longer exists" in verdict.reasons


def test_a_step_that_does_not_say_what_it_returns_may_have_sent_every_event() -> None:
    silent = with_state(ORDER, "charging", step=replaced(returns=(), undoes=()))
    assert after(with_state(silent, "charging", step=None), "charging", old=silent).verdict == "stranded"


def test_timers_that_are_gone_strand_when_nothing_else_leads_out() -> None:
    waiting = with_arrows(ORDER, without=(("draft", "SUBMIT"),))
    verdict = after(with_state(waiting, "draft", timers=()), "draft", old=waiting)
    assert verdict.verdict == "stranded"
    assert verdict.reasons[0].startswith("the timers that led out of here are gone")


def test_unwinding_that_is_gone_strands_when_nothing_else_leads_out() -> None:
    new = with_state(ORDER, "undoing", unwinds_to=None)
    verdict = after(new, "undoing")
    assert verdict.verdict == "stranded"
    assert verdict.reasons[0].startswith("unwinding that was under way here is gone")


@pytest.mark.parametrize("kept", ["step", "timers"])
def test_one_mover_that_remains_is_enough(kept: str) -> None:
    old = with_state(with_arrows(ORDER, without=(("charging", "CANCEL"),)), "charging", timers=(TIMER,))
    lost = {"step": None, "timers": ()}
    del lost[kept]
    assert after(with_state(old, "charging", **lost), "charging", old=old).verdict == "changed"


@pytest.mark.parametrize(("returns", "verdict"), [(("SUBMIT", "CANCEL"), "stranded"), (("SUBMIT",), "changed")])
def test_a_new_step_is_not_owed_by_those_already_there(returns: tuple[str, ...], verdict: str) -> None:
    waiting = with_state(ORDER, "draft", timers=())
    new = with_state(waiting, "draft", step=replaced(name="submit", returns=returns, undoes=()))
    assert after(new, "draft", old=waiting).verdict == verdict


def test_a_new_step_that_says_nothing_leaves_the_events_of_before() -> None:
    waiting = with_state(ORDER, "draft", timers=())
    silent = replaced(name="submit", returns=(), undoes=())
    new = with_state(waiting, "draft", step=silent)
    assert after(new, "draft", old=waiting).verdict == "changed"
    other = with_arrows(new, arrow("draft", "SENT", "done"), without=(("draft", "SUBMIT"), ("draft", "CANCEL")))
    assert after(other, "draft", old=waiting).verdict == "stranded"


def test_a_resting_state_that_becomes_a_dead_end_strands() -> None:
    resting = with_state(ORDER, "done", final=False, resting=True)
    new = with_state(resting, "done", resting=False)
    verdict = after(new, "done", old=resting)
    assert verdict.verdict == "stranded"
    assert "was resting, is active now" in verdict.reasons


def test_finished_workflows_are_never_stranded_by_a_state_that_stays() -> None:
    verdict = after(with_state(ORDER, "done", final=False), "done")
    assert (verdict.verdict, verdict.reasons) == ("changed", ("was final, is active now",))


# --- Changed ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("state", "fields", "reason"),
    [
        ("draft", {"final": True}, "was active, is final now"),
        ("draft", {"resting": True}, "was active, is resting now"),
        ("draft", {"timers": ()}, "its timer 3600 s → CANCEL is gone: timers already set would send an undeclared"),
        (
            "draft",
            {"timers": (TimerDescription(event="CANCEL", after_s=60, policy="restart"),)},
            "its timer 3600 s → CANCEL is 60 s → CANCEL (restart) now",
        ),
        (
            "draft",
            {"timers": (TIMER, TimerDescription(event="SUBMIT", after_s=60, policy="deadline"))},
            "a timer 60 s → SUBMIT was added",
        ),
        ("draft", {"step": replaced(returns=("SUBMIT",))}, "a step `charge` was added: a workflow already here"),
        ("draft", {"unwinds_to": "cancelled"}, "was not unwinding, unwinds to `cancelled` now"),
        ("draft", {"effects": ("mail",)}, "an effect `mail` was added"),
        ("done", {"effects": ()}, "its effect `mail` is gone"),
        ("undoing", {"unwinds_to": "done"}, "unwinds to `done` instead of `cancelled`"),
        ("charging", {"dwell_max_s": None}, "allowed dwell: 120 s → unlimited"),
        ("charging", {"step": replaced(timeout_s=9.5)}, "timeout of step `charge`: 4 s → 9.5 s"),
        ("charging", {"step": replaced(heartbeat_s=0.5)}, "heartbeat of step `charge`: none → 0.5 s"),
        ("charging", {"step": replaced(attempts=1)}, "attempts of step `charge`: 5 → 1"),
        ("charging", {"step": replaced(dependency=None)}, "dependency of step `charge`: gateway → None"),
        ("charging", {"step": replaced(returns=())}, "returned events of step `charge`: CHARGED → (not declared)"),
        (
            "charging",
            {"step": replaced(undoes=("CHARGED", "DECLINED"))},
            "undone outcomes of step `charge`: CHARGED → CHARGED, DECLINED",
        ),
        ("charging", {"step": replaced(name="pay")}, "step `charge` renamed: it is `pay` now"),
        ("charging", {"step": replaced(name="pay", returns=("PAID",))}, "step `charge` replaced: it is `pay` now"),
    ],
)
def test_what_is_attached_to_a_state_changes_it(state: str, fields: dict[str, Any], reason: str) -> None:
    verdict = after(with_state(ORDER, state, **fields), state)
    assert verdict.verdict == "changed"
    assert any(given.startswith(reason) for given in verdict.reasons)


def test_a_heartbeat_is_no_loss_for_the_workflows_that_are_stored() -> None:
    for old, new in [(CHARGE, replaced(heartbeat_s=0.5)), (replaced(heartbeat_s=0.5), CHARGE)]:
        made = plan(with_state(ORDER, "charging", step=old), changed(with_state(ORDER, "charging", step=new)))
        assert made.safe
        assert [(finding.severity, finding.location) for finding in findings(made, "step-settings")] == [
            ("info", "charging")
        ]


def test_the_same_timers_in_another_order_are_the_same() -> None:
    second = TimerDescription(event="CANCEL", after_s=60, policy="deadline")
    old = with_state(ORDER, "draft", timers=(TIMER, second))
    assert after(with_state(ORDER, "draft", timers=(second, TIMER)), "draft", old=old).verdict == "unchanged"
    third = TimerDescription(event="CANCEL", after_s=9, policy="deadline")
    (reason,) = after(with_state(ORDER, "draft", timers=(second, third)), "draft", old=old).reasons
    assert reason.startswith("its timer 3600 s → CANCEL is 9 s → CANCEL now")


def test_lost_unwinding_is_an_error_even_when_events_lead_out() -> None:
    old = with_arrows(ORDER, arrow("undoing", "SUBMIT", "draft"))
    made = plan(old, changed(with_state(old, "undoing", unwinds_to=None)))
    assert verdict_of(made, "undoing").verdict == "changed"
    (finding,) = findings(made, "unwinding-lost")
    assert finding.severity == "error"
    assert "undos that are still owed here would never run" in finding.what
    assert not made.safe


@pytest.mark.parametrize("step", [None, replaced(undoes=()), replaced(name="pay")])
def test_a_lost_undo_is_an_error(step: StepDescription | None) -> None:
    made = plan(ORDER, changed(with_state(ORDER, "charging", step=step)))
    (finding,) = findings(made, "undo-lost")
    assert finding.severity == "error"
    assert finding.what == "`charge` had an undo for CHARGED; completed runs can no longer be undone"
    assert finding.what in verdict_of(made, "charging").reasons


def test_an_undo_may_move_to_another_state_with_its_step() -> None:
    capturing = StateDescription(name="capturing", step=CHARGE)
    new = changed(with_state(ORDER, "charging", step=None), states=(*ORDER.states, capturing))
    assert findings(plan(ORDER, new), "undo-lost") == []


# --- Transitions ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("new", "code", "reason"),
    [
        (
            with_arrows(ORDER, without=(("charging", "CANCEL"),)),
            "event-refused",
            "CANCEL is not handled here any more",
        ),
        (
            with_arrows(ORDER, without=(("charging", "STEP_FAILED"),)),
            "event-refused",
            "STEP_FAILED is not handled here any more",
        ),
        (with_arrows(ORDER, arrow("charging", "SUBMIT", "done")), "event-accepted", "SUBMIT is handled here now"),
        (
            with_arrows(ORDER, arrow("charging", "CHARGED", "cancelled"), without=(("charging", "CHARGED"),)),
            "event-target",
            "CHARGED leads to `cancelled` instead of `done`",
        ),
        (
            with_arrows(ORDER, arrow("charging", "CANCEL", "done"), without=(("charging", "CANCEL"),)),
            "unwinding-bypassed",
            "CANCEL led to the unwinding `undoing` and may lead to `done` now: what was done may stay done",
        ),
        (
            with_arrows(
                ORDER, arrow("charging", "CANCEL", "undoing", guard="early"), without=(("charging", "CANCEL"),)
            ),
            "event-guard",
            "guard of CANCEL: none → `early`",
        ),
        (
            with_arrows(
                ORDER, arrow("charging", "CANCEL", "undoing", action="stop"), without=(("charging", "CANCEL"),)
            ),
            "event-action",
            "action of CANCEL: none → `stop`",
        ),
        (
            with_arrows(ORDER, arrow("charging", "CHARGED", "done", settle=True), without=(("charging", "CHARGED"),)),
            "event-settles",
            "CHARGED settles now",
        ),
    ],
)
def test_a_changed_arrow_changes_the_state(new: MachineDescription, code: str, reason: str) -> None:
    made = plan(ORDER, changed(new))
    verdict = verdict_of(made, "charging")
    assert (verdict.verdict, verdict.reasons) == ("changed", (reason,))
    assert [finding.location for finding in findings(made, code)] == ["charging"]


def test_staying_and_entering_again_are_not_the_same() -> None:
    staying = with_arrows(ORDER, arrow("charging", "SUBMIT", "charging", internal=True))
    entering = with_arrows(ORDER, arrow("charging", "SUBMIT", "charging"))
    (reason,) = after(entering, "charging", old=staying).reasons
    assert reason.startswith("SUBMIT changed between staying")


def test_a_move_that_no_longer_settles_is_told() -> None:
    settling = with_arrows(ORDER, arrow("charging", "CHARGED", "done", settle=True), without=(("charging", "CHARGED"),))
    assert after(ORDER, "charging", old=settling).reasons == ("CHARGED does not settle any more",)


@pytest.mark.parametrize(("settling", "owing"), [("CHARGED", {"charging"}), ("CANCEL", {"charging", "parked"})])
def test_nothing_is_owed_after_a_move_that_settles_unless_it_cuts_the_step_off(settling: str, owing: set[str]) -> None:
    parked = StateDescription(name="parked", resting=True)
    machine = msgspec.structs.replace(
        with_arrows(ORDER, arrow("charging", settling, "parked", settle=True), without=(("charging", settling),)),
        states=(*ORDER.states, parked),
    )
    assert undoable_states(machine) - {"done"} == owing


def test_a_refused_failure_of_a_step_is_not_an_event() -> None:
    new = with_arrows(ORDER, without=(("charging", "STEP_FAILED"),))
    assert plan(ORDER, changed(new)).events_refused == ()


# --- Undos that would never be asked for ------------------------------------------------------------------------------


def bypassing(new: MachineDescription, old: MachineDescription = ORDER) -> list[tuple[str, bool]]:
    """Where unwinding is bypassed, and whether that is called safe."""
    made = plan(old, changed(new))
    return [(finding.location, made.safe) for finding in findings(made, "unwinding-bypassed")]


def cancelling(source: str, *targets: tuple[str, str | None]) -> MachineDescription:
    """ORDER, where CANCEL leads from `source` to the targets, each with its guard."""
    ways = [arrow(source, "CANCEL", target, guard=guard) for target, guard in targets]
    return with_arrows(ORDER, *ways, without=((source, "CANCEL"),))


@pytest.mark.parametrize(
    ("before", "after", "bypassed"),
    [
        ([("undoing", None)], [("cancelled", None)], True),
        ([("undoing", None)], [("undoing", "late"), ("cancelled", None)], True),
        ([("undoing", None)], [("undoing", "late")], False),
        ([("undoing", None)], [("charging", None)], True),
        ([("undoing", "late"), ("cancelled", None)], [("cancelled", None)], True),
        ([("undoing", "late"), ("cancelled", None)], [("undoing", "later"), ("cancelled", None)], True),
        ([("undoing", "late"), ("cancelled", None)], [("undoing", None)], False),
        ([("undoing", "late"), ("cancelled", None)], [("undoing", "late"), ("cancelled", None)], False),
        ([("cancelled", None)], [("done", None)], False),
    ],
)
def test_an_event_that_no_longer_unwinds_leaves_what_was_done(
    before: list[tuple[str, str | None]], after: list[tuple[str, str | None]], bypassed: bool
) -> None:
    expected = [("charging", False)] if bypassed else []
    assert bypassing(cancelling("charging", *after), old=cancelling("charging", *before)) == expected


def test_a_failure_that_no_longer_unwinds_leaves_what_was_done() -> None:
    failing = arrow("charging", "STEP_FAILED", "cancelled", kind="failed")
    assert bypassing(with_arrows(ORDER, failing, without=(("charging", "STEP_FAILED"),))) == [("charging", False)]


def test_undos_are_owed_after_their_step_too() -> None:
    shipping = StateDescription(name="shipping")
    packing = StateDescription(name="packing")
    old = with_arrows(
        msgspec.structs.replace(ORDER, states=(*ORDER.states, packing, shipping)),
        arrow("charging", "CHARGED", "packing"),
        arrow("packing", "SUBMIT", "shipping"),
        arrow("shipping", "SUBMIT", "done"),
        arrow("shipping", "CANCEL", "undoing"),
        without=(("charging", "CHARGED"),),
    )
    new = with_arrows(old, arrow("shipping", "CANCEL", "cancelled"), without=(("shipping", "CANCEL"),))
    assert bypassing(new, old=old) == [("shipping", False)]
    retreating = StateDescription(name="retreating", unwinds_to="cancelled")
    to_another = with_arrows(
        msgspec.structs.replace(old, states=(*old.states, retreating)),
        arrow("shipping", "CANCEL", "retreating"),
        without=(("shipping", "CANCEL"),),
    )
    assert bypassing(to_another, old=old) == []


def test_nothing_is_owed_before_an_undoable_step() -> None:
    old = cancelling("draft", ("undoing", None))
    made = plan(old, changed(cancelling("draft", ("cancelled", None))))
    assert [finding.code for finding in made.findings] == ["event-target"]
    assert made.safe


def test_a_target_that_ceases_to_unwind_is_told_by_the_arrows_that_relied_on_it() -> None:
    assert bypassing(with_state(ORDER, "undoing", unwinds_to=None)) == [("charging", False), ("charging", False)]
