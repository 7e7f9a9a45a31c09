"""A8: pipelines: their states, their way, their unwinding, and the mistakes one can make."""

# mypy: ignore-errors
# Wrong programs, and values of every type, are what is tested here.

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, replace

import pytest

from interlock.core import decide
from interlock.core.pipeline import Pipeline, PipelineEvent, PipelineStep, pipeline, step
from interlock.core.policies import Retry
from interlock.core.values import Decision, Run, RunStep, RunUndos, Snapshot, StepContext, StepFailure, StopStep, Undo
from interlock.errors import DefinitionError, InvalidTransition, UserCodeError


@dataclass(frozen=True)
class Cart:
    done: tuple[str, ...] = ()


async def function(cart: Cart, ctx: StepContext) -> Cart:
    return replace(cart, done=(*cart.done, ctx.key))


def make(name: str, *, undoable: bool = False, read_only: bool = False) -> PipelineStep[Cart]:
    declared = step(timeout_s=1, name=name, read_only=read_only)(function)
    if undoable:
        declared.undo(undo)
    return declared


async def undo(cart: Cart, ctx: StepContext) -> None: ...


def checkout() -> Pipeline[Cart]:
    steps = [make("validate", read_only=True), make("charge", undoable=True), make("reserve", undoable=True)]
    return pipeline("check-out", context=Cart, steps=steps)


def result(machine: Pipeline[Cart], snapshot: Snapshot[object, Cart], cart: Cart) -> Decision[object, Cart]:
    node = decide.node_of(machine.compiled, snapshot.state)
    assert node.step is not None
    assert node.step.result is not None
    return decide.decide(machine.compiled, snapshot, node.step.result(cart), result=True)


def failed(
    machine: Pipeline[Cart], snapshot: Snapshot[object, Cart], *, unknown: bool, step: str = "x"
) -> Decision[object, Cart]:
    decision = decide.fail(machine.compiled, snapshot, StepFailure(step=step, error="e", unknown=unknown))
    assert decision is not None
    return decision


def test_its_states_are_pending_a_gerund_per_step_and_three_ends() -> None:
    machine = checkout()
    assert [state.name for state in machine.State] == [
        "PENDING",
        "VALIDATING",
        "CHARGING",
        "RESERVING",
        "COMPLETED",
        "UNDOING",
        "FAILED",
    ]
    assert all(state.value == state.name.lower() for state in machine.State)
    assert machine.check() == []


def test_it_begins_at_once_and_goes_through_every_state() -> None:
    machine = checkout()
    start = machine.start(Cart())
    assert start.snapshot.state is machine.State.PENDING
    assert machine.opening == machine.Begin()
    decision = machine.decide(start.snapshot, machine.opening)
    visited = [decision.snapshot.state]
    assert decision.commands == (RunStep("validate"),)
    for index in range(3):
        decision = result(machine, decision.snapshot, Cart((f"k{index}",)))
        visited.append(decision.snapshot.state)
    states = machine.State
    assert visited == [states.VALIDATING, states.CHARGING, states.RESERVING, states.COMPLETED]
    assert decision.snapshot.context == Cart(("k2",))
    assert decision.records[0].event == "RESERVE_DONE"
    assert decision.commands == (StopStep("reserve"),)
    assert decision.snapshot.undo_log == (), "nothing leaves a final state, so nothing will ever be undone"


def test_a_failure_with_nothing_to_undo_goes_straight_to_failed() -> None:
    machine = checkout()
    for state in (machine.State.VALIDATING, machine.State.CHARGING):
        decision = failed(machine, machine.at(state, Cart()), unknown=False)
        [record] = decision.records
        assert (record.from_state, record.to_state, record.event) == (state, machine.State.FAILED, "STEP_FAILED")
        assert decision.snapshot == Snapshot(machine.State.FAILED, Cart(), 2, 2)
        assert not any(isinstance(command, RunUndos) for command in decision.commands)


def test_a_failure_with_something_to_undo_goes_to_undoing_and_then_to_failed() -> None:
    machine = checkout()
    log = (Run("charge", 3, None),)
    decision = failed(machine, Snapshot(machine.State.RESERVING, Cart(), 4, 4, log), unknown=True)
    assert decision.snapshot.state is machine.State.UNDOING
    assert decision.commands == (
        StopStep("reserve"),
        RunUndos((Undo("reserve", "RESERVE_DONE", 4, None), Undo("charge", "CHARGE_DONE", 3, None))),
    )
    over = decide.unwound(machine.compiled, decision.snapshot)
    assert over.snapshot.state is machine.State.FAILED
    assert over.snapshot.undo_log == ()


def test_cancel_works_from_every_state_but_the_ends() -> None:
    machine = checkout()
    for state in machine.State:
        before = machine.at(state, Cart(), attempted=True)
        if state.name in {"COMPLETED", "UNDOING", "FAILED"}:
            with pytest.raises(InvalidTransition):
                machine.decide(before, machine.Cancel())
        else:
            after = machine.decide(before, machine.Cancel(reason="changed my mind")).snapshot.state
            expected = "UNDOING" if state.name in {"CHARGING", "RESERVING"} else "FAILED"
            assert after is machine.State[expected]


def test_two_pipelines_do_not_share_states_or_events() -> None:
    one, two = checkout(), checkout()
    assert one.State is not two.State
    assert one.Begin is not two.Begin
    assert issubclass(one.Begin, PipelineEvent)


def test_a_step_may_be_part_of_two_pipelines() -> None:
    charge = make("charge", undoable=True)
    one = pipeline("one", context=Cart, steps=[charge])
    two = pipeline("two", context=Cart, steps=[make("validate"), charge])
    for machine in (one, two):
        moved = result(machine, machine.at(machine.State.CHARGING, Cart()), Cart(("x",))).snapshot
        assert moved.state is machine.State.COMPLETED
        failure = StepFailure(step="charge", error="timeout")
        undone = decide.fail(machine.compiled, machine.at(machine.State.CHARGING, Cart()), failure)
        assert undone is not None
        assert undone.snapshot.undo_log[0].step == "charge"


def test_a_step_is_a_function_that_can_be_tested_alone() -> None:
    assert asyncio.run(make("charge")(Cart(), StepContext(key="k"))) == Cart(("k",))


def test_an_undo_is_given_the_context_alone() -> None:
    seen: list[object] = []

    async def watched(cart: Cart, ctx: StepContext) -> None:
        seen.append((cart, ctx.undoes))

    charge = make("charge")
    assert charge.undo(watched) is watched
    machine = pipeline("p", context=Cart, steps=[charge])
    declared = machine.compiled.steps["charge"].step
    assert declared is not None
    asyncio.run(declared.undos[0].function(Cart(("x",)), None, StepContext(key="u", undoes="k")))
    assert seen == [(Cart(("x",)), "k")]


def test_a_step_that_returns_something_else_is_named_as_a_step() -> None:
    """The action that stores its context is Interlock's own, and means nothing to its author."""
    machine = checkout()
    begun = machine.apply(machine.begin(Cart()), machine.Begin())
    for wrong in (None, "paid"):
        with pytest.raises(UserCodeError) as caught:
            result(machine, begun, wrong)  # type: ignore[arg-type]
        assert f"step validate returned {wrong!r} ({type(wrong).__name__}), not a Cart." in caught.value.what
        assert "next step" in caught.value.why
        assert caught.value.event == "VALIDATE_DONE"


def test_a_failed_action_sees_the_failure() -> None:
    charge = make("charge")

    @charge.failed
    def remember(cart: Cart, failure: StepFailure) -> Cart:
        return replace(cart, done=(failure.error,))

    machine = pipeline("p", context=Cart, steps=[charge])
    decision = failed(machine, machine.at(machine.State.CHARGING, Cart()), unknown=False)
    assert decision.snapshot.context == Cart(("e",))


def test_state_overrides_the_gerund_and_names_may_be_private() -> None:
    async def _hidden(cart: Cart, ctx: StepContext) -> Cart:
        return cart

    steps = [step(timeout_s=1, name="seed", state="planting")(function), step(timeout_s=1)(_hidden)]
    assert [each.state for each in steps] == ["PLANTING", "HIDDENING"]
    machine = pipeline("p", context=Cart, steps=iter(steps))
    assert machine.State.PLANTING.value == "planting"


def test_a_dwell_limit_follows_from_timeout_and_retries() -> None:
    charge = step(timeout_s=4, retry=Retry(attempts=3, first_s=1, max_s=10))(function)
    assert charge.dwell_max_s == pytest.approx(2 * (3 * 4 + 1 + 2))
    for_ever = step(timeout_s=4, retry=Retry(attempts=10**9))(function)
    machine = pipeline("p", context=Cart, steps=[for_ever])
    assert machine.describe().states[1].dwell_max_s == for_ever.dwell_max_s


def test_the_settings_of_a_step_reach_the_machine() -> None:
    retry = Retry(attempts=2)
    charge = step(timeout_s=4, heartbeat_s=1, retry=retry, dependency="bank", read_only=True, name="charge")(function)
    declared = pipeline("p", context=Cart, steps=[charge], version=3).compiled.steps["charge"].step
    assert declared is not None
    assert (declared.timeout_s, declared.retry, declared.dependency, declared.read_only) == (4, retry, "bank", True)
    assert (charge.heartbeat_s, declared.heartbeat_s) == (1, 1)
    launch = step(timeout_s=4, irreversible=True)(function)
    assert [finding.code for finding in pipeline("p", context=Cart, steps=[launch]).check()] == ["step-irreversible"]
    assert pipeline("p", context=Cart, steps=[make("a")], version=3).version == 3


def test_arrows_are_drawn_to_where_the_workflow_really_goes() -> None:
    arrows = {(each.source, each.event, each.target) for each in checkout().describe().transitions}
    assert ("validating", "STEP_FAILED", "failed") in arrows
    assert ("validating", "STEP_FAILED", "undoing") not in arrows
    assert {("charging", "CANCEL", "failed"), ("charging", "CANCEL", "undoing")} <= arrows
    assert ("reserving", "CANCEL", "undoing") in arrows
    assert ("undoing", "UNWOUND", "failed") in arrows


# --- mistakes ------------------------------------------------------------------------------------------------------


def blocking(cart: Cart, ctx: StepContext) -> Cart:
    return cart


def on_failure(cart: Cart, failure: StepFailure) -> Cart:
    return cart


async def async_failure(cart: Cart, failure: StepFailure) -> Cart:
    return cart


def in_state(state: str) -> PipelineStep[Cart]:
    return step(timeout_s=1, state=state)(function)


def late(declare: Callable[[PipelineStep[Cart]], object]) -> None:
    charge = make("charge")
    pipeline("p", context=Cart, steps=[charge])
    declare(charge)


def twice(declare: Callable[[PipelineStep[Cart]], object]) -> None:
    charge = make("charge")
    declare(charge)
    declare(charge)


def test_step_without_its_settings_is_refused_at_its_line() -> None:
    for wrong, what in [
        (lambda: step(function), "step has no timeout_s."),  # type: ignore[call-overload]
        (step, "step has no timeout_s."),  # type: ignore[call-overload]
        (lambda: step(function, timeout_s=1), "step takes arguments by name only."),  # type: ignore[call-overload]
    ]:
        with pytest.raises(DefinitionError) as refused:
            wrong()
        assert refused.value.what == what
        assert "@step(timeout_s=10)" in refused.value.fix
        assert "test_pipeline.py" in refused.value.location


@pytest.mark.parametrize(
    ("rule", "word", "build"),
    [
        ("bad-pipeline", "no steps", lambda: pipeline("p", context=Cart, steps=[])),
        ("bad-pipeline", "takes steps= as a list", lambda: pipeline("p", context=Cart, steps=make("a"))),
        ("bad-pipeline", "function", lambda: pipeline("p", context=Cart, steps=[function])),
        ("bad-pipeline", "CHARGING", lambda: pipeline("p", context=Cart, steps=[make("charge"), make("charge")])),
        ("bad-pipeline", "FAILED", lambda: pipeline("p", context=Cart, steps=[in_state("failed")])),
        ("bad-pipeline", "_X_", lambda: pipeline("p", context=Cart, steps=[in_state("_x_")])),
        ("duplicate-name", "function", lambda: pipeline("p", context=Cart, steps=[in_state("a"), in_state("b")])),
        ("value-out-of-range", "''", lambda: pipeline("", context=Cart, steps=[make("a")])),
        ("value-out-of-range", "5", lambda: pipeline(5, context=Cart, steps=[make("a")])),
        ("value-out-of-range", "timeout_s", lambda: step(timeout_s=0)(function)),
        ("value-out-of-range", "heartbeat_s", lambda: step(timeout_s=1, heartbeat_s=1)(function)),
        ("value-out-of-range", "name", lambda: step(timeout_s=1, name="\n")(function)),
        ("wrong-signature", "blocking", lambda: step(timeout_s=1)(blocking)),
        ("wrong-signature", "blocking", lambda: make("a").undo(blocking)),
        ("impure-function", "async_failure", lambda: make("a").failed(async_failure)),
        ("contradiction", "read_only", lambda: make("a", read_only=True).undo(undo)),
        ("contradiction", "irreversible", lambda: step(timeout_s=1, irreversible=True)(function).undo(undo)),
        (
            "contradiction",
            "read_only and irreversible",
            lambda: pipeline("p", context=Cart, steps=[step(timeout_s=1, irreversible=True, read_only=True)(function)]),
        ),
        ("contradiction", "already has an undo", lambda: twice(lambda each: each.undo(undo))),
        ("contradiction", "failed action", lambda: twice(lambda each: each.failed(on_failure))),
        ("declared-after-first-use", "undo", lambda: late(lambda each: each.undo(undo))),
        ("declared-after-first-use", "failed action", lambda: late(lambda each: each.failed(on_failure))),
        ("context-not-storable", "complex", lambda: pipeline("p", context=complex, steps=[make("a")])),
    ],
)
def test_a_mistake_is_refused_at_its_line(rule: str, word: str, build: Callable[[], object]) -> None:
    with pytest.raises(DefinitionError) as caught:
        build()
    assert caught.value.rule == rule
    assert word in caught.value.what
    assert caught.value.why
    assert caught.value.fix
    assert caught.value.location.startswith(__file__)
