"""Which new state an old one becomes, and what is said about a mapping that is wrong."""

from collections.abc import Mapping

import pytest

from interlock.core.plan import Plan, plan
from tests.unit.core.plan.machines import ORDER, changed, renaming, with_state, without_state


def codes(made: Plan) -> dict[str, str]:
    return {finding.code: finding.severity for finding in made.findings}


def test_a_renamed_state_moves_its_workflows() -> None:
    new = changed(renaming(ORDER, "charging", "paying"), renamed={"charging": "paying"})
    made = plan(ORDER, new)
    (moved,) = (verdict for verdict in made.states if verdict.verdict != "unchanged")
    assert (moved.state, moved.becomes, moved.verdict) == ("charging", "paying", "moves")
    assert moved.reasons == ("`charging` is called `paying` now",)
    assert made.states_renamed == {"charging": "paying"}
    assert (made.states_added, made.states_removed) == ((), ())
    assert made.safe


def test_renaming_an_unwinding_target_and_the_initial_state_changes_nothing_else() -> None:
    new = renaming(renaming(ORDER, "cancelled", "stopped"), "draft", "new")
    made = plan(ORDER, changed(new), renamed={"cancelled": "stopped", "draft": "new"})
    assert set(codes(made)) == {"state-moves"}


def test_a_given_mapping_beats_the_declared_one() -> None:
    declared = changed(renaming(ORDER, "charging", "paying"), renamed={"charging": "draft"})
    assert plan(ORDER, declared).states_renamed == {"charging": "draft"}
    assert plan(ORDER, declared, renamed={"charging": "paying"}).states_renamed == {"charging": "paying"}


@pytest.mark.parametrize(
    ("mapping", "code", "words"),
    [
        ({"chargin": "paying"}, "rename-unknown-old", "the old machine has no state `chargin`"),
        ({"charging": "payin"}, "rename-unknown-new", "the new machine has no state `payin`"),
    ],
)
def test_a_misspelt_mapping_is_an_error(mapping: Mapping[str, str], code: str, words: str) -> None:
    made = plan(ORDER, changed(renaming(ORDER, "charging", "paying")), renamed=mapping)
    (finding,) = (finding for finding in made.findings if finding.code == code)
    assert finding.severity == "error"
    assert words in finding.what
    assert finding.fix.startswith("use one of `cancelled`")
    assert made.states_removed == ("charging",)
    assert not made.safe


def test_a_mapping_wrong_on_both_sides_is_reported_twice() -> None:
    made = plan(ORDER, changed(), renamed={"nowhere": "neither"})
    assert [finding.code for finding in made.findings] == ["rename-unknown-new", "rename-unknown-old"]


def test_a_declaration_of_an_earlier_release_is_only_told() -> None:
    made = plan(ORDER, changed(renamed={"begun": "draft"}))
    assert codes(made) == {"rename-leftover": "info"}
    assert made.safe


def test_a_declaration_that_both_versions_carry_is_passed_over() -> None:
    carried = changed(renamed={"begun": "draft"})
    assert plan(carried, changed(carried)).findings == ()


def test_merging_two_states_is_noted() -> None:
    new = changed(without_state(ORDER, "cancelled"))
    made = plan(ORDER, with_state(new, "undoing", unwinds_to="done"), renamed={"cancelled": "done"})
    (finding,) = (finding for finding in made.findings if finding.code == "rename-merged")
    assert finding.what == "the states `cancelled`, `done` all become `done`"
    assert finding.severity == "info"


def test_mapping_a_state_that_still_exists_is_an_error() -> None:
    made = plan(ORDER, changed(), renamed={"draft": "charging", "done": "done"})
    assert codes(made)["rename-ambiguous"] == "error"
    assert made.states_renamed == {"draft": "charging"}
