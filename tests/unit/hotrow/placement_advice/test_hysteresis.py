"""D10: what is shown changes once most of the latest windows agree, and belongs to one tool at one place."""

import msgspec

from interlock.hotrow.placement_advice import HELD_S, VOTES, WINDOWS, Advisor, Verdict, advise, fresh, step
from tests.unit.hotrow.placement_advice.windows import a_tool, row, window

TOOL = a_tool(critical=True)
HOT = advise(TOOL, window(row(400), p99_s=0.030, engine="object"))
CALM = advise(TOOL, window())
COLD = advise(TOOL, window(engine="postgres"))
COUPLED = advise(TOOL, window(row(400), engine="postgres"))


def stepped(*verdicts: Verdict, every_s: float = 10.0, state: Advisor | None = None) -> Advisor:
    state = state or Advisor()
    for number, verdict in enumerate(verdicts, start=1):
        state = step(state, verdict, number * every_s)
    return state


def test_the_first_window_may_say_that_all_is_well() -> None:
    state = stepped(CALM)
    assert state.verdict == CALM
    assert state.since_s == 10.0


def test_a_proposal_that_is_too_new_is_told_and_not_shown() -> None:
    state = stepped(*[HOT] * (VOTES - 1))
    assert state.verdict is not None
    assert state.verdict.action == "stay"
    assert f"couple, in {VOTES - 1} of the last {VOTES - 1}" in state.verdict.why
    assert state.verdict.evidence == HOT.evidence
    assert (state.verdict.command, state.verdict.undo) == ("", "")
    assert stepped(*[HOT] * VOTES).verdict == HOT


def test_five_of_six_windows_are_enough() -> None:
    assert stepped(HOT, HOT, CALM, HOT, HOT, HOT).verdict == HOT
    assert stepped(HOT, HOT, CALM, HOT, CALM, HOT).choice == CALM.choice


def test_what_is_shown_is_told_with_the_latest_figures() -> None:
    later = advise(TOOL, window(row(700), p99_s=0.060, engine="object"))
    state = stepped(*[HOT] * 6, later)
    assert state.verdict == later
    assert state.since_s == 50.0


def test_one_window_that_differs_changes_nothing() -> None:
    state = stepped(*[HOT] * 6, CALM)
    assert state.verdict == HOT
    assert (state.proposed, state.votes) == (CALM.choice, 1)
    assert stepped(*[HOT] * 6, *[CALM] * 5).verdict == CALM


def test_only_the_latest_windows_are_kept() -> None:
    assert len(stepped(*[HOT, CALM] * 50).recent) == WINDOWS


def test_going_back_needs_a_day_without_a_warm_window() -> None:
    hour_s = 3_600.0
    hours = int(HELD_S["uncouple"] / hour_s)
    assert stepped(*[COLD] * hours, every_s=hour_s).choice == COUPLED.choice
    assert stepped(*[COLD] * (hours + 1), every_s=hour_s).verdict == COLD
    interrupted = [*[COLD] * 12, COUPLED, *[COLD] * hours]
    assert stepped(*interrupted, every_s=hour_s).choice == COUPLED.choice


def test_a_clock_that_went_back_shows_nothing_early() -> None:
    state = stepped(*[COLD] * 6)
    assert step(state, COLD, -1e9).choice == COUPLED.choice


def test_the_state_belongs_to_one_tool_at_one_place() -> None:
    state = stepped(*[HOT] * 6, state=fresh(Advisor(), TOOL, "lane"))
    assert fresh(state, TOOL, "lane") is state
    assert fresh(state, msgspec.structs.replace(TOOL), "lane") is state
    assert fresh(state, TOOL, "postgres").verdict is None
    assert fresh(state, a_tool(critical=True, shardable=True), "lane").recent == ()


def test_before_the_first_window_nothing_is_known() -> None:
    assert (Advisor().choice, Advisor().proposed, Advisor().votes) == (None, None, 0)
