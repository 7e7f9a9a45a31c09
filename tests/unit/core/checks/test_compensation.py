"""The proof of compensation (G5, C9): a machine without a finding never leaves anything behind when it fails.

The walk of `small_machines` plays what can happen with `decide` itself and keeps a book of what was done outside. It is
held against the checks in both directions, for every machine of a family and for drawn ones: no finding, nothing left
behind; a warning, something is. Each weakened check is caught by the same family.
"""

# mypy: ignore-errors
# Wrong programs, and values of every type, are what is tested here.

import itertools
from collections.abc import Callable, Iterator
from typing import NamedTuple

import pytest
from hypothesis import given

from interlock.core import checks
from interlock.core.checks import Move
from interlock.core.table import Table
from interlock.core.values import Finding, StepContext
from tests.unit.core.checks.small_machines import (
    SPECS,
    Good,
    Place,
    Spec,
    State,
    StepSpec,
    compiled,
    left_behind,
    undone_rounds,
)
from tests.unit.core.checks.small_machines import Stop as SmallStop
from tests.unit.core.checks.test_soundness import Context, Go, Graph, Stop, chain, graph, undo, work
from tests.unit.core.checks.test_soundness import State as Shape

# An undo that no unwinding can reach is of no use, and left behind only if something fails.
LEFT = {"step-without-undo", "undo-may-be-skipped"}

# It is about what is undone too much.
ROUNDS = "rounds-not-settled"


def family() -> Iterator[Spec]:
    """A is any step, B one that follows it, C one that ends or takes back; cancelling is specific or a catch-all."""
    first = itertools.product(
        ("read_only", "irreversible", "effect", "undo", "undone in c"),
        (None, State.UNDOING, State.FAILED),
        (None, State.FAILED),
        (None, State.UNDOING, State.DONE, State.C),
    )
    second = itertools.product((None, "read_only", "undo"), (State.C, State.DONE), (None, State.UNDOING, State.FAILED))
    rest = [
        (None, None, State.FAILED),
        (State.FAILED, None, State.FAILED),
        (None, State.DONE, State.FAILED),
        (None, None, State.C),
    ]
    for a, b, (c_failed, catch_all, unwinds_to) in itertools.product(first, second, rest):
        kind, failed, bad, stop = a
        b_kind, good, b_stop = b
        yield Spec(
            (
                Place(StepSpec(kind, bad is not None, failed), State.B, bad, stop),
                Place(b_kind and StepSpec(b_kind, both=False, failed=State.UNDOING), good, None, b_stop),
                Place(StepSpec("irreversible", both=False, failed=c_failed), State.DONE, None, None),
            ),
            catch_all,
            unwinds_to,
        )


def found(table: Table) -> set[str]:
    """What keeps the machine from being proved."""
    milder = {finding.code for finding in checks.compensation(table) if finding.severity == "warning"} - {ROUNDS}
    others = {finding.code for finding in [*checks.soundness(table), *checks.advice(table)]}
    return milder | others & {"failed-without-unwinding", "step-event-refused", "step-event-guarded"}


def hole() -> Spec | None:
    """The first machine of the family that is proved and leaves something behind."""
    tables = ((spec, compiled(spec)) for spec in family())
    return next((spec for spec, table in tables if not found(table) and left_behind(table)), None)


@pytest.mark.slow
def test_the_checks_say_exactly_of_which_machines_of_the_family_something_is_left_behind() -> None:
    """Both ways: a machine without a finding is compensable, and a warning is no false alarm."""
    proved = 0
    for spec in family():
        table = compiled(spec)
        codes, story = found(table), left_behind(table)
        if not codes:
            proved += 1
            assert story is None, f"{spec} is not compensable: {story}"
        elif codes <= LEFT:
            assert story is not None, f"{spec} is compensable, and yet: {codes}"
    assert proved > 1_000


@given(SPECS)
def test_a_machine_without_a_finding_never_leaves_anything_behind(spec: Spec) -> None:
    table = compiled(spec)
    assert found(table) or left_behind(table) is None


@given(SPECS)
def test_finished_rounds_are_undone_together_only_where_a_finding_says_so(spec: Spec) -> None:
    table = compiled(spec)
    assert ROUNDS in {finding.code for finding in checks.compensation(table)} or undone_rounds(table) is None


Breaks = Callable[[Move, set], bool]


def without(condition: Callable[[Move, set], bool]) -> Breaks:
    whole = checks.breaks
    return lambda move, failures: whole(move, failures) and not condition(move, failures)


SABOTAGE = {
    "a step that gives up is no failure": lambda move, _: move.name == "STEP_FAILED",
    "a running step may be cut off": lambda move, _: move.cuts_off,
    "a catch-all may end the workflow": lambda move, _: move.transition and move.transition.declared.catch_all,
    "an unwinding needs no undo": lambda move, _: move.target.state is State.UNDOING,
    "an outcome may lead where failures end": lambda move, failures: move.by_step and move.target in failures,
    "only the step's own state counts": lambda move, _: move.source.state is State.B,
}


@pytest.mark.slow
@pytest.mark.parametrize("condition", SABOTAGE.values(), ids=SABOTAGE)
def test_a_break_that_is_not_seen_is_caught(condition: Breaks, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checks, "breaks", without(condition))
    assert hole() is not None


@pytest.mark.slow
def test_a_step_that_takes_back_and_fails_is_not_taken_for_done(monkeypatch: pytest.MonkeyPatch) -> None:
    careful = checks._saving
    monkeypatch.setattr(
        checks,
        "_saving",
        lambda step: careful(step) if step.undos else ((lambda move: move.source.state is State.C), careful(step)[1]),
    )
    assert hole() is not None


@pytest.mark.parametrize("rule", ["_refused_results", "_guarded_results"])
def test_a_result_that_is_refused_is_caught(rule: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its effect is there, and the failure says that it is not."""
    monkeypatch.setattr(checks, rule, lambda table: [])
    step = StepSpec("undo", both=False, failed=State.UNDOING)
    refused = Place(step, good=None, bad=None, stop=State.UNDOING)
    guarded = Place(step, good=State.DONE, bad=None, stop=State.UNDOING, guarded=True)
    place = refused if rule == "_refused_results" else guarded
    table = compiled(Spec((place, WAITS, WAITS)))
    assert not found(table)
    assert left_behind(table)
    monkeypatch.undo()
    assert found(table)


def test_a_failure_past_an_undoable_step_is_needed_as_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checks, "_lost_undos", lambda table: [])
    assert hole() is not None


# --- the findings, one by one --------------------------------------------------------------------------------------


def only(machine: Graph, code: str) -> Finding:
    [finding] = [finding for finding in machine.check() if finding.code == code]
    assert finding.why
    assert finding.fix
    assert finding.location.startswith(__file__)
    return finding


def codes(machine: Graph) -> set[str]:
    return {finding.code for finding in machine.check() if finding.severity != "info"}


def unwinding() -> Graph:
    machine = graph(unwind={Shape.C: Shape.END})
    machine.on(Go, Shape.A, to=Shape.B)
    machine.on(Go, Shape.B, to=Shape.END)
    machine.on(Stop, Shape.B, to=Shape.C)
    return machine


def test_a_step_without_undo_and_a_failed_state_is_told_with_its_path() -> None:
    machine = chain(graph())
    machine.step(Shape.A, timeout_s=1, failed=Shape.END)(work)
    finding = only(machine, "step-without-undo")
    assert finding.severity == "warning"
    assert finding.what == (
        "step 'work' has no undo, and the workflow may fail after it: STEP_FAILED leads from 'a' to 'end'."
    )
    assert "@work.undo" in finding.fix


def test_a_step_that_stays_a_dead_letter_fails_into_nothing() -> None:
    machine = chain(graph())
    machine.step(Shape.A, timeout_s=1)(work)
    assert "step-without-undo" not in codes(machine)


@pytest.mark.parametrize("kind", ["read_only", "irreversible"])
def test_a_step_may_say_why_it_has_no_undo(kind: str) -> None:
    machine = unwinding()
    machine.step(Shape.A, timeout_s=1, **{kind: True})(work)
    assert "step-without-undo" not in codes(machine)


def test_an_irreversible_step_is_named_where_the_workflow_may_fail_after_it() -> None:
    machine = unwinding()
    machine.step(Shape.A, timeout_s=1, irreversible=True)(work)
    finding = only(machine, "step-irreversible")
    assert finding.severity == "info"
    assert "step 'work' cannot be undone" in finding.what
    assert "STOP leads from 'b' to 'c'" in finding.what
    calm = chain(graph())
    calm.step(Shape.A, timeout_s=1, irreversible=True)(work)
    assert not [finding for finding in calm.check() if finding.code == "step-irreversible"]


def test_what_a_later_step_takes_back_needs_no_undo() -> None:
    async def back(context: Context, ctx: StepContext) -> Go:
        return Go()

    def machine(**settings: object) -> Graph:
        made = chain(graph())
        made.step(Shape.A, timeout_s=1, failed=Shape.C, **settings)(work)
        made.step(Shape.C, timeout_s=1)(back)
        return made

    assert "step-without-undo" in codes(machine())
    assert "step-without-undo" in codes(machine(undone_in={Shape.B}))  # Nothing runs in B that could.
    assert "step-without-undo" not in codes(machine(undone_in={Shape.C}))


def test_a_cancellation_behind_an_undoable_step_must_unwind_wherever_it_comes() -> None:
    """The step has returned, nothing runs, and the event leads where the unwinding would have led."""
    paid = Place(StepSpec("undo", both=False, failed=State.UNDOING), good=State.B, bad=None, stop=None)
    waits = Place(None, good=State.DONE, bad=None, stop=State.FAILED)
    [finding] = checks.compensation(compiled(Spec((paid, waits, waits))))
    assert finding.code == "undo-may-be-skipped"
    assert finding.what == (
        "STOP leaves state 'b', before which step 'step a' with its undo may have run, for 'failed', "
        "which is not unwinding."
    )
    assert finding.fix == "Let it lead to an unwinding state."


PAID = Place(StepSpec("undo", both=False, failed=State.UNDOING), good=State.B, bad=None, stop=State.UNDOING)
WAITS = Place(None, good=State.DONE, bad=None, stop=None)


def told(spec: Spec) -> list[str]:
    return [finding.what for finding in checks.compensation(compiled(spec))]


def test_a_catch_all_that_holds_a_workflow_ends_nothing() -> None:
    """From B it leads to C, from where the workflow may go on to its end: nothing has failed."""
    assert told(Spec((PAID, WAITS, WAITS), catch_all=State.C)) == []


def test_a_place_to_rest_is_an_end_only_without_a_way_back() -> None:
    cut_off = PAID._replace(good=State.DONE, stop=State.B)
    for_ever, until_cancelled = WAITS._replace(good=None), WAITS._replace(good=None, stop=State.UNDOING)
    [what] = told(Spec((cut_off, for_ever, WAITS), resting=True))
    assert what.startswith("STOP leaves state 'a'")
    assert told(Spec((cut_off, until_cancelled, WAITS), resting=True)) == []


def test_an_end_that_is_the_only_one_says_nothing_about_failures() -> None:
    machine = unwinding()
    machine.step(Shape.A, timeout_s=1, failed=Shape.C)(work).undo(Go)(undo)
    assert not codes(machine) & LEFT


def test_an_event_that_cuts_an_undoable_step_off_must_unwind() -> None:
    machine = graph(final={Shape.END, Shape.B}, unwind={Shape.C: Shape.B})
    machine.on(Go, Shape.A, to=Shape.END)
    machine.on(Stop, Shape.A, to=Shape.END)
    machine.step(Shape.A, timeout_s=1, failed=Shape.C)(work).undo(Go)(undo)
    finding = only(machine, "undo-may-be-skipped")
    assert finding.severity == "warning"
    assert finding.what.startswith("STOP leaves state 'a', whose step 'work' has an undo, for 'end'")
    assert "annotate the step" in finding.fix


def test_an_event_that_is_unwound_later_skips_nothing() -> None:
    """To be held and then cancelled is as good as to be cancelled: what was cut off stays in the undo log."""
    machine = graph(unwind={Shape.C: Shape.END})
    machine.on(Go, Shape.A, to=Shape.END, when=lambda context, event: True)
    machine.on(Stop, Shape.A, to=Shape.B)
    machine.on(Stop, Shape.B, to=Shape.C)
    machine.step(Shape.A, timeout_s=1, failed=Shape.C)(work).undo(Go)(undo)
    assert not [finding for finding in machine.check() if finding.location and "STOP leaves" in finding.what]


def test_one_transition_is_told_once_however_many_steps_it_would_leave() -> None:
    machine = graph(final={Shape.END}, unwind={Shape.C: Shape.END})
    machine.on(Go, Shape.A, to=Shape.B)
    machine.on(Go, Shape.B, to=Shape.C)
    machine.on(Stop, Shape.B, to=Shape.END)
    machine.step(Shape.A, timeout_s=1, failed=Shape.C)(work).undo(Go)(undo)
    machine.step(Shape.B, timeout_s=1, failed=Shape.C, name="second")(work).undo(Go)(undo)
    assert "STOP leaves state 'b'" in only(machine, "undo-may-be-skipped").what


def test_an_undo_that_no_unwinding_can_reach_is_told() -> None:
    machine = chain(graph())
    machine.step(Shape.A, timeout_s=1)(work).undo(Go)(undo)
    finding = only(machine, "undo-never-runs")
    assert finding.severity == "warning"
    assert "'work'" in finding.what


# --- rounds of a cycle (C21) ----------------------------------------------------------------------------------------


class Rounds(NamedTuple):
    """A cycle A → B → A, with one undoable step or two, that fails into C and waits in B."""

    settle: bool | None = None
    second: bool = False
    resting: bool = False
    failed: Shape = Shape.C

    def machine(self) -> Graph:
        machine = graph(unwind={Shape.C: Shape.END}, resting={Shape.B} if self.resting else set())
        machine.on(Go, Shape.A, to=Shape.B, settle=None if self.second else self.settle)
        machine.on(Go, Shape.B, to=Shape.A, settle=self.settle if self.second else None)
        machine.on(Stop, Shape.B, to=Shape.C)
        machine.step(Shape.A, timeout_s=1, failed=self.failed)(work).undo(Go)(undo)
        if self.second:
            machine.step(Shape.B, timeout_s=1, failed=Shape.C, name="second")(work).undo(Go)(undo)
        return machine


@pytest.mark.parametrize(
    ("rounds", "end"),
    [
        (Rounds(), "from 'a' to 'b'"),
        (Rounds(resting=True), "from 'a' to 'b'"),
        (Rounds(second=True), "from 'b' to 'a'"),
        (Rounds(second=True, resting=True), "from 'a' to 'b'"),
    ],
)
def test_a_cycle_that_would_undo_finished_rounds_is_told_with_the_move_that_ends_one(rounds: Rounds, end: str) -> None:
    finding = only(rounds.machine(), ROUNDS)
    assert finding.severity == "warning"
    assert "undoes all earlier rounds too" in finding.why
    assert f"settle=True on the transition on GO {end}," in finding.fix
    for settle in (True, False):
        assert ROUNDS not in codes(rounds._replace(settle=settle).machine())


def test_a_round_that_ends_in_an_unwinding_is_settled_by_it() -> None:
    machine = graph(unwind={Shape.C: Shape.A})
    machine.on(Go, Shape.A, to=Shape.B)
    machine.on(Go, Shape.B, to=Shape.END)
    machine.on(Stop, Shape.B, to=Shape.C)
    machine.step(Shape.A, timeout_s=1, failed=Shape.C)(work).undo(Go)(undo)
    assert ROUNDS not in codes(machine)


def test_no_fix_leads_a_cycle_to_an_unwinding_before_its_rounds_are_settled() -> None:
    hint = "Settle finished rounds first (settle=True on GO from 'a')"
    assert hint in only(Rounds(failed=Shape.END).machine(), "failed-without-unwinding").fix
    assert hint not in only(Rounds(failed=Shape.END, settle=True).machine(), "failed-without-unwinding").fix
    machine = graph(final={Shape.END})
    machine.on(Go, Shape.A, to=Shape.B)
    machine.on(Go, Shape.B, to=Shape.A)
    machine.on(Stop, Shape.B, to=Shape.C)
    machine.on(Go, Shape.C, to=Shape.END)
    machine.step(Shape.A, timeout_s=1, failed=Shape.END)(work)
    assert hint in only(machine, "step-without-undo").fix


def test_a_settled_step_may_be_followed_by_a_failure_that_undoes_nothing() -> None:
    """After the settling move nothing is owed: a later step may fail into any state."""

    def machine(*, settle: bool | None) -> Graph:
        made = graph(unwind={Shape.C: Shape.END})
        made.on(Go, Shape.A, to=Shape.B, settle=settle)
        made.on(Go, Shape.B, to=Shape.END)
        made.on(Stop, Shape.A, to=Shape.C)
        made.step(Shape.A, timeout_s=1, failed=Shape.C)(work).undo(Go)(undo)
        made.step(Shape.B, timeout_s=1, failed=Shape.END, name="later", read_only=True)(work)
        return made

    assert "failed-without-unwinding" in codes(machine(settle=None))
    assert "failed-without-unwinding" not in codes(machine(settle=True))


def test_a_run_that_is_cut_off_and_taken_for_settled_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    step = StepSpec("undo", both=False, failed=State.UNDOING)
    cut = Place(step, good=State.DONE, bad=None, stop=State.DONE, settles=SmallStop)
    table = compiled(Spec((cut, WAITS, WAITS)))
    assert found(table) == {"undo-may-be-skipped"}
    monkeypatch.setattr(checks, "_settles_itself", lambda move: move.settles)
    assert not found(table)
    assert left_behind(table)


def test_a_cycle_that_is_not_seen_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    step = StepSpec("undo", both=False, failed=State.UNDOING)
    table = compiled(Spec((Place(step, State.B, None, State.UNDOING), WAITS._replace(good=State.A), WAITS)))
    assert [finding.code for finding in checks.compensation(table)] == [ROUNDS]
    monkeypatch.setattr(checks, "_goes_on", lambda move: False)
    assert checks.compensation(table) == []
    assert undone_rounds(table)


def test_what_was_settled_before_a_failure_is_not_left_behind() -> None:
    """By the outcome itself, or by a later move."""
    fails = WAITS._replace(stop=State.FAILED)
    assert told(Spec((PAID._replace(settles=Good), fails, WAITS))) == []
    assert told(Spec((PAID, WAITS._replace(good=State.C, settles=Good), fails))) == []
    assert told(Spec((PAID, WAITS._replace(good=State.C), fails))) != []
    effect = PAID._replace(step=StepSpec("effect", both=False, failed=None), stop=None)
    assert told(Spec((effect, WAITS._replace(good=State.C, settles=Good), fails))) == []
