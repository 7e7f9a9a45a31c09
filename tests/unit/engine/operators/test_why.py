"""`explain` is pure: what is said of each row, also of rare ones (F8)."""

from collections.abc import Sequence

import pytest

from interlock.engine.bound_machine import BoundMachine, FamilyRun, Owed, StepRun, UndoRun, encode_owed
from interlock.engine.operators.why import Why, explain
from interlock.engine.views import moment
from interlock.store.records import HistoryRecord, Letter, Row
from tests.conformance.engine.shop import shop

NOW_US = 1_800_000_000_000_000
KEY = f"charge-{'0' * 36}"


def why(state: str, owed: Owed, event: str = "SUBMIT", letters: Sequence[Letter] = (), came_from: str = "draft") -> Why:
    """What is said of a workflow in that state, which it has entered by that event."""
    context = b'{"cents":5,"receipt":"","note":""}'
    row = Row("o-1", "order", 1, state, context, 2, 2, True, 0, NOW_US, NOW_US, b"", encode_owed(owed))
    last = HistoryRecord("o-1", 2, came_from, state, event, b"", context, NOW_US)
    live = BoundMachine(shop().machine).live(row)
    return explain(live, last, pauses=(), living=(), letters=letters, now=moment(NOW_US))


@pytest.mark.parametrize(
    ("event", "cause"),
    [
        ("STEP_FAILED", ", because its step gave up"),
        ("CHILDREN_JOINED", ", the join of its children"),
        ("UNWOUND", ", after everything was undone"),
    ],
)
def test_the_moves_of_the_machine_itself_have_a_cause(event: str, cause: str) -> None:
    assert f"by {event} at 2027-01-15 08:00:00 UTC{cause} (version 2)." in why("draft", Owed(), event).text


def test_a_parked_step_is_looked_at_again() -> None:
    found = why("charging", Owed(run=StepRun(KEY, retry_us=NOW_US + 5_000_000, parked=True)))
    assert found.waits_for == "dependency"
    assert found.next_at == moment(NOW_US + 5_000_000)
    assert "It is looked at again at 2027-01-15 08:00:05 UTC." in found.text


def test_a_result_that_was_stored_before_attempts_were_kept_may_be_that_of_the_step() -> None:
    found = why("reserving", Owed(), "CHARGED", came_from="charging")
    assert "by CHARGED at 2027-01-15 08:00:00 UTC, from step 'charge' or from a caller without a name" in found.text
    found = why("undoing", Owed(), "CANCEL", came_from="charging")
    assert "by CANCEL at 2027-01-15 08:00:00 UTC, from a timer or from a caller without a name" in found.text


def test_a_letter_that_was_written_before_attempts_were_kept_has_its_own_time_and_error() -> None:
    letter = Letter("l-1", "step", "o-1", "charge", 3, "OSError: away", NOW_US + 9_000_000, 2, KEY)
    found = why("charging", Owed(run=StepRun(KEY, attempts=3), dead="step", letter="l-1"), letters=[letter])
    assert found.since == moment(NOW_US + 9_000_000)
    assert "gave up after 3 attempts, the last at 2027-01-15 08:00:09 UTC (OSError: away)." in found.text


def test_the_first_effects_that_gave_up_are_named_and_the_others_counted() -> None:
    letters = [Letter(f"l-{n}", "effect", "o-1", "mail", 1, "away", NOW_US + n, 2, f"mail-{n}") for n in range(5)]
    found = why("shipped", Owed(), letters=letters)
    assert (found.waits_for, found.since) == ("operator", moment(NOW_US))
    assert found.text.count("Effect 'mail' gave up after 1 attempt") == 3
    assert "`interlock dead-letters retry l-2`" in found.text
    assert found.text.endswith("2 more effects gave up: `interlock dead-letters list`.")


def test_children_that_have_ended_without_a_join() -> None:
    found = why("charging", Owed(run=StepRun(KEY, family=FamilyRun(1, 1, {"done": 1}))))
    assert found.waits_for == "children"
    assert "Its children have ended (1), and no join holds." in found.text


def test_a_step_that_the_machine_has_lost_and_an_undo_that_waits() -> None:
    assert "an operator decides" in why("draft", Owed(run=StepRun(KEY))).text
    undo = UndoRun("charge", "CHARGED", 1, f"undo-charge-{'1' * 36}", KEY)
    found = why("undoing", Owed(undos=(undo,)))
    assert found.waits_for == "undos"
    assert "The undo of step 'charge' waits for a free slot" in found.text
    assert "After 1 undo it moves to 'cancelled'." in found.text
