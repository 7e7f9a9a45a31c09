"""What is milder than an error: a finding of check(), never an obstacle."""

# mypy: ignore-errors
# Wrong programs, and values of every type, are what is tested here.

import pytest

from interlock.core.values import Finding, StepContext
from tests.unit.core.checks.test_soundness import Back, Context, Go, Graph, State, Stop, chain, graph, small, undo, work

CODES = {
    "unused-event": "warning",
    "timer-event-refused": "warning",
    "step-event-refused": "warning",
    "step-event-guarded": "warning",
    "step-without-undo": "warning",
    "step-result-stays": "warning",
    "catch-all-hides": "info",
    "guards-overlap": "info",
    "step-outcomes-unknown": "info",
    "no-dwell-limit": "info",
}


def found(machine: Graph, code: str) -> list[Finding]:
    return [finding for finding in machine.check() if finding.code == code]


def one(machine: Graph, code: str, *words: str) -> Finding:
    [finding] = found(machine, code)
    assert finding.severity == CODES[code]
    assert finding.why
    assert finding.fix
    assert finding.location.startswith(__file__.removesuffix("test_advice.py"))
    for word in words:
        assert word in finding.what
    machine.begin(Context())
    return finding


async def silent(context, ctx):  # noqa: ANN001, ANN201 -- that is the point.
    return Go()


async def stops(context: Context, ctx: StepContext) -> Go | Stop:
    return Stop()


def test_an_event_that_no_state_takes() -> None:
    machine = chain(graph())
    machine.on(Back, State.B, to=State.A)
    one(machine, "unused-event", "STOP")


def test_a_timer_whose_event_is_refused() -> None:
    machine = chain(graph())
    machine.after(State.A, after_s=1, send=Go())
    machine.after(State.B, after_s=1, send=Stop())
    one(machine, "timer-event-refused", "'b'", "STOP")


def test_a_step_whose_event_is_refused() -> None:
    machine = chain(graph())
    machine.step(State.A, timeout_s=1)(stops)
    one(machine, "step-event-refused", "stops", "STOP")


def guarded(*, fallback: bool) -> Graph:
    machine = graph()
    machine.on(Go, State.A, to=State.B, when=small)
    machine.on(Go, State.A, to=State.C, when=lambda context, event: context.n > 7)
    if fallback:
        machine.on(Go, State.A, to=State.END)
    machine.on(Go, State.B, State.C, to=State.END)
    return machine


def test_a_step_whose_event_only_guards_accept() -> None:
    """G5: refused, what it did would count as not done."""
    machine = guarded(fallback=False)
    machine.step(State.A, timeout_s=1)(work)
    one(machine, "step-event-guarded", "work", "GO", "'a'", "only if small or <lambda> agrees")


def test_a_guarded_event_with_a_way_out_or_without_effect_is_fine() -> None:
    with_fallback, read_only, irreversible = guarded(fallback=True), guarded(fallback=False), guarded(fallback=False)
    with_fallback.step(State.A, timeout_s=1)(work)
    read_only.step(State.A, timeout_s=1, read_only=True)(work)
    irreversible.step(State.A, timeout_s=1, irreversible=True)(work)
    for machine in (with_fallback, read_only, irreversible):
        assert found(machine, "step-event-guarded") == []


def test_a_step_whose_own_result_is_internal() -> None:
    machine = chain(graph())
    machine.on(Stop, State.A)
    machine.step(State.A, timeout_s=1)(stops)
    one(machine, "step-result-stays", "stops", "STOP", "'a'")


def unwinding() -> Graph:
    machine = graph(unwind={State.C: State.END})
    machine.on(Go, State.A, to=State.B)
    machine.on(Go, State.B, to=State.END)
    machine.on(Stop, State.B, to=State.C)
    return machine


def test_a_step_without_undo_before_an_unwinding() -> None:
    machine = unwinding()
    machine.step(State.A, timeout_s=1)(work)
    one(machine, "step-without-undo", "work")


def test_no_undo_is_missed_where_it_is_declared_or_not_needed() -> None:
    with_undo, read_only, no_unwinding = unwinding(), unwinding(), chain(graph())
    with_undo.step(State.A, timeout_s=1)(work).undo(Go)(undo)
    read_only.step(State.A, timeout_s=1, read_only=True)(work)
    no_unwinding.step(State.A, timeout_s=1)(work)
    for machine in (with_undo, read_only, no_unwinding):
        assert found(machine, "step-without-undo") == []


def test_a_catch_all_that_may_hide_a_forgotten_transition() -> None:
    machine = chain(graph())
    machine.on(Stop, State.A, to=State.B)
    machine.on(Stop, machine.any, to=State.END)
    one(machine, "catch-all-hides", "STOP", "transition from a,", "catch-all from b, c")


@pytest.mark.parametrize("event", [Go, Stop])
def test_a_catch_all_alone_or_never_used_hides_nothing(event: type[Go | Stop]) -> None:
    machine = chain(graph())
    machine.on(event, machine.any, to=State.END)
    assert found(machine, "catch-all-hides") == []


def test_guards_that_could_both_say_yes() -> None:
    def tiny(context: Context, event: Stop) -> bool:
        return context.n < 1

    machine = chain(graph())
    machine.on(Stop, State.A, to=State.END, when=small)
    machine.on(Stop, State.A, to=State.B, when=tiny)
    machine.on(Stop, State.B, to=State.END, when=small)
    machine.on(Stop, State.B, to=State.C)
    one(machine, "guards-overlap", "STOP", "'a'", "small, tiny")


def test_a_step_that_does_not_say_what_it_returns() -> None:
    machine = chain(graph())
    machine.step(State.A, timeout_s=1)(silent)
    one(machine, "step-outcomes-unknown", "silent")


def test_active_states_without_a_dwell_limit() -> None:
    machine = chain(graph(resting={State.B}))
    machine.dwell(State.A, max_s=1)
    finding = one(machine, "no-dwell-limit", "'c'")
    assert "State.C" in finding.fix


def test_findings_come_errors_first() -> None:
    machine = chain(graph())
    machine.on(Go, State.A, to=State.C)
    severities = [finding.severity for finding in machine.check()]
    assert severities == sorted(severities, key=["error", "warning", "info"].index)
    assert set(severities) == {"error", "warning", "info"}


def test_a_finding_reads_like_a_compilers_line() -> None:
    finding = Finding(code="c", severity="info", what="w", why="y", fix="f", location="a.py:3")
    assert str(finding).startswith("a.py:3: info [c] w")
    assert str(Finding(code="c", severity="info", what="w", why="y", fix="f")).startswith("info [c] w")
