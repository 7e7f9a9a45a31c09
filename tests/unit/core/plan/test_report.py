"""The text of a plan: verdict first, then findings by severity, then every state."""

from interlock.core.plan import plan
from tests.unit.core.plan.machines import ORDER, changed, with_state, without_state


def test_the_report_reads_like_a_newspaper() -> None:
    new = with_state(with_state(ORDER, "charging", dwell_max_s=60), "done", effects=())
    made = plan(ORDER, changed(new))
    assert made.text().splitlines() == [
        "order, version 1 → 2: safe (1 warning, 1 info)",
        "",
        "Findings",
        "  warning: its effect `mail` is gone: one that is still owed cannot be carried out [done] (effect-gone)",
        "      why: what is owed to a workflow is stored by name when it enters the state",
        "      fix: keep `mail` until none is owed",
        "  info: allowed dwell: 120 s → 60 s [charging] (dwell-changed)",
        "      why: workflows parked here become stalled at another time",
        "      fix: nothing, if that is meant",
        "",
        "Side by side",
        "  yes: processes of both versions may take events of the same workflows",
        "",
        "States",
        "  state      becomes    verdict    reasons",
        "  draft      draft      unchanged",
        "  charging   charging   changed    allowed dwell: 120 s → 60 s",
        "  done       done       changed    its effect `mail` is gone: one that is still owed cannot be carried out",
        "  undoing    undoing    unchanged",
        "  cancelled  cancelled  unchanged",
    ]


def test_the_report_counts_and_lists_every_reason_of_a_state() -> None:
    text = plan(ORDER, changed(with_state(ORDER, "charging", step=None, dwell_max_s=None))).text()
    assert text.startswith("order, version 1 → 2: NOT SAFE (1 error, 1 warning, 1 info)\n")
    assert "\n" + " " * 35 + "allowed dwell: 120 s → unlimited\n" in text


def test_the_report_shows_that_a_state_becomes_nothing() -> None:
    assert (
        "  done       (nothing)  stranded   the final state"
        in plan(ORDER, changed(without_state(ORDER, "done"))).text()
    )
