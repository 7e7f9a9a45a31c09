"""Time as an input (A11) and timers of each workflow (B16), in pure use: the core reads no clock."""

# mypy: ignore-errors
# Wrong declarations are what is tested here.

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from enum import Enum
from functools import partial

import pytest

from interlock import Event, Machine, Retry, RetryAfter, Snapshot, StepContext, StepFailure, step
from interlock.core import decide
from interlock.core.plan import plan as planned
from interlock.core.policies import Breaker
from interlock.core.table import compile_table
from interlock.core.values import StartTimer
from interlock.errors import DefinitionError, GuardRejected, InvalidPayload, InvalidTransition, UserCodeError
from interlock.testing import assert_path, explore

AT = datetime(2026, 11, 18, 12, tzinfo=UTC)


class State(Enum):
    DRAFT = "draft"
    TRIAL = "trial"
    ACTIVE = "active"
    UNDOING = "undoing"
    DONE = "done"


@dataclass(frozen=True)
class Plan:
    days: float = 3
    renews_at: datetime | None = None
    begun_at: datetime | None = None
    tags: tuple[str, ...] = ()


class PlanEvent(Event): ...


class Begin(PlanEvent): ...


class Renew(PlanEvent): ...


class Ended(PlanEvent): ...


class Stop(PlanEvent): ...


PlanMachine = Machine[State, Plan, PlanEvent]


def machine(context: type[object] = Plan) -> PlanMachine:
    return Machine(
        "plan", states=State, context=context, events=PlanEvent, initial=State.DRAFT, final={State.DONE},
        resting={State.ACTIVE}, unwind={State.UNDOING: State.TRIAL},
    )  # fmt: skip


def in_time(plan: Plan, event: Begin, at: datetime) -> bool:
    """It is not later than noon."""
    return at <= AT


def timed() -> PlanMachine:
    plan = machine()

    @plan.on(Begin, State.DRAFT, to=State.TRIAL, when=in_time)
    def begin(plan: Plan, event: Begin, at: datetime) -> Plan:
        return replace(plan, begun_at=at)

    plan.on(Ended, State.TRIAL, to=State.DONE, when=lambda plan, event, at: at > AT)
    plan.on(Stop, State.TRIAL, to=State.DONE)
    plan.on(Stop, State.UNDOING)
    plan.on(Renew, State.TRIAL, to=State.ACTIVE)
    plan.on(Stop, State.ACTIVE, to=State.UNDOING)
    return plan


def test_guards_and_actions_get_the_time_of_the_move() -> None:
    plan = timed()
    moved = plan.apply(plan.begin(Plan()), Begin(), at=AT)
    assert moved.context.begun_at == AT
    assert plan.decide(plan.begin(Plan()), Begin(), at=AT) == plan.decide(plan.begin(Plan()), Begin(), at=AT)
    with pytest.raises(GuardRejected, match="not later than noon"):
        plan.apply(plan.begin(Plan()), Begin(), at=AT + timedelta(seconds=1))
    assert plan.apply(moved, Ended(), at=AT + timedelta(1)).state is State.DONE
    assert plan.apply(moved, Stop()).state is State.DONE  # It takes no time.


@pytest.mark.parametrize("at", [None, datetime(2026, 11, 18), "2026-11-18", 5])  # noqa: DTZ001 -- naive on purpose.
def test_a_time_that_is_needed_must_be_given_and_aware(at: object) -> None:
    plan = timed()
    for call in (plan.decide, plan.apply, plan.allowed):
        with pytest.raises(InvalidPayload, match=r"at, the time of the move,.* BEGIN in state 'draft'") as caught:
            call(plan.begin(Plan()), Begin(), at=at)
        assert "at=datetime.now(UTC)" in caught.value.fix


def test_an_event_without_transition_is_refused_with_a_time_too() -> None:
    plan = timed()
    with pytest.raises(InvalidTransition):
        plan.decide(plan.begin(Plan()), Stop(), at=AT)
    with pytest.raises(InvalidPayload, match="OTHER"):
        plan.decide(plan.begin(Plan()), type("Other", (Event,), {})(), at=AT)


def test_allowed_evaluates_guards_at_a_time() -> None:
    plan = timed()
    snapshot = plan.begin(Plan())
    assert [each.blocked_by for each in plan.allowed(snapshot, Begin(), at=AT)] == [None]
    assert [each.blocked_by for each in plan.allowed(snapshot, Begin(), at=AT + timedelta(1))] == ["in_time"]
    assert [each.event for each in plan.allowed(snapshot)] == ["BEGIN"]
    assert plan.allowed(snapshot, Stop(), at=AT) == []
    assert plan.can(State.DRAFT, Begin)


def test_the_third_argument_counts_by_arity_or_by_its_name() -> None:
    plan = machine()
    seen: list[object] = []

    def with_default(plan: Plan, event: Begin, limit: int = 5) -> bool:
        seen.append(limit)
        return True

    def named(plan: Plan, event: Begin, at: datetime | None = None) -> Plan:
        seen.append(at)
        return plan

    class TimedGuard:
        def __call__(self, plan: Plan, event: Stop, at: datetime) -> bool:
            seen.append(at)
            return True

    plan.on(Begin, State.DRAFT, when=with_default)(named)
    plan.on(Stop, State.DRAFT, to=State.DONE, when=TimedGuard())
    plan.on(Renew, State.DRAFT, when=partial(lambda more, plan, event, at: bool(seen.append(more)) or True, "more"))
    plan.on(Ended, State.DRAFT, when=lambda *arguments: bool(seen.append(len(arguments))) or True)
    plan.on(Begin, State.TRIAL, to=State.ACTIVE)
    plan.on(Begin, State.UNDOING)
    plan.on(Begin, State.ACTIVE, to=State.TRIAL)
    node = compile_table(plan._declared).nodes["DRAFT"]
    assert {each.event: each.takes_time for moves in node.moves.values() for each in moves} == {
        "BEGIN": True, "STOP": True, "RENEW": True, "ENDED": False,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("function", "text"),
    [
        (lambda plan, event, at, more: True, "cannot be called with 2 arguments"),
        (lambda plan: True, "cannot be called with 2 arguments"),
    ],
)
def test_other_numbers_of_arguments_are_refused(function: Callable[..., bool], text: str) -> None:
    with pytest.raises(DefinitionError, match=text):
        machine().on(Begin, State.DRAFT, when=function)


def test_the_type_of_the_time_is_checked() -> None:
    def guard(plan: Plan, event: Begin, at: int) -> bool:
        return True

    with pytest.raises(DefinitionError, match="takes at: int, but receives a datetime"):
        machine().on(Begin, State.DRAFT, when=guard)
    with pytest.raises(DefinitionError, match="cannot be called with 2 arguments"):
        step_of(machine()).failed(lambda plan, failure, at: plan)


def step_of(plan: PlanMachine) -> object:
    @plan.step(State.TRIAL, timeout_s=5, failed=State.DONE)
    async def work(plan: Plan, ctx: StepContext) -> Ended:
        return Ended()

    return work


def test_a_timed_function_that_raises_or_returns_nonsense_is_named() -> None:
    plan = machine()
    plan.on(Begin, State.DRAFT, to=State.DONE, when=lambda plan, event, at: "yes")
    plan.on(Stop, State.DRAFT, to=State.DONE)(lambda plan, event, at: 1 / 0)
    for name in (State.TRIAL, State.ACTIVE):
        plan.on(Begin, name, to=State.DONE)
    plan.on(Renew, State.DRAFT, to=State.TRIAL)
    plan.on(Renew, State.TRIAL, to=State.ACTIVE)
    plan.on(Ended, State.TRIAL, to=State.UNDOING)
    with pytest.raises(UserCodeError, match="guard <lambda>"):
        plan.decide(plan.begin(Plan()), Begin(), at=AT)
    with pytest.raises(UserCodeError, match="ZeroDivisionError"):
        plan.decide(plan.begin(Plan()), Stop(), at=AT)


@dataclass
class Loose:
    tags: list[str] = field(default_factory=list)


def test_copies_are_lent_to_timed_functions_too() -> None:
    plan: Machine[State, Loose, PlanEvent] = machine(Loose)

    def spoil(loose: Loose, event: Begin, at: datetime) -> bool:
        loose.tags.append("spoilt")
        return True

    plan.on(Begin, State.DRAFT, to=State.TRIAL, when=spoil)
    plan.on(Stop, State.TRIAL, to=State.ACTIVE)
    plan.on(Stop, State.ACTIVE, to=State.UNDOING)
    plan.on(Stop, State.DRAFT, to=State.DONE)
    plan.after(State.TRIAL, lambda loose: loose.tags.append("spoilt"), send=Stop())
    context = Loose(["a"])
    decision = plan.decide(plan.begin(context), Begin(), at=AT)
    assert context.tags == ["a"] == decision.snapshot.context.tags


def test_walks_and_paths_have_a_time() -> None:
    plan = timed()
    assert_path(plan, Plan(), Begin(), Stop(), ends_in=State.DONE, at=AT)
    with pytest.raises(AssertionError, match="noon"):
        assert_path(plan, Plan(), Begin())  # The time of a new harness is later.
    assert explore(plan).depth


# --- Timers of each workflow -----------------------------------------------------------------------------------------


def trial(after: object = None, until: object = None, **options: object) -> PlanMachine:
    plan = machine()
    plan.on(Begin, State.DRAFT, to=State.TRIAL)
    plan.on(Ended, State.TRIAL, to=State.ACTIVE)
    plan.on(Renew, State.ACTIVE, to=State.ACTIVE)
    plan.on(Stop, State.TRIAL)
    plan.on(Stop, State.ACTIVE, to=State.UNDOING)
    plan.on(Stop, State.DRAFT, to=State.DONE)
    if after is not None or options:
        plan.after(State.TRIAL, after, send=Ended(), **options)
    if until is not None:
        plan.until(State.ACTIVE, until, send=Renew())
    return plan


def timers(plan: PlanMachine, snapshot: Snapshot[State, Plan], event: PlanEvent) -> list[StartTimer]:
    return [each for each in plan.decide(snapshot, event).commands if isinstance(each, StartTimer)]


@pytest.mark.parametrize(
    ("after", "seconds"),
    [
        (lambda plan: timedelta(days=plan.days), 3 * 86_400.0),
        (lambda plan: plan.days, 3.0),
        (lambda plan: 0, 0.0),
        (lambda plan: timedelta(days=-1), 0.0),
        (timedelta(hours=2), 7_200.0),
        (5, 5),
    ],
)
def test_the_time_of_a_timer_is_computed_or_fixed(after: object, seconds: float) -> None:
    plan = trial(after)
    assert timers(plan, plan.begin(Plan()), Begin()) == [StartTimer(Ended(), seconds, "deadline")]


def test_every_spelling_declares_the_same_timer() -> None:
    def days(plan: Plan) -> timedelta:
        return timedelta(days=plan.days)

    wanted = [StartTimer(Ended(), 3 * 86_400.0, "restart")]
    for options in ({"after": days}, {"after": timedelta(3)}, {"after_s": timedelta(3)}, {"after_s": 3 * 86_400}):
        plan = trial(**options, policy="restart")
        assert timers(plan, plan.begin(Plan()), Begin()) == wanted


def test_until_is_an_aware_time_or_no_timer() -> None:
    plan = trial(until=lambda plan: plan.renews_at)
    assert timers(plan, plan.at(State.TRIAL, Plan(renews_at=AT)), Ended()) == [StartTimer(Renew(), 0.0, "deadline", AT)]
    assert timers(plan, plan.at(State.TRIAL, Plan()), Ended()) == []
    none = trial(lambda plan: None)
    assert timers(none, none.begin(Plan()), Begin()) == []


def test_timers_are_computed_from_the_new_context_and_only_on_entering() -> None:
    plan = trial(until=lambda plan: plan.renews_at)
    late = AT + timedelta(30)

    @plan.on(Begin, State.ACTIVE, to=State.ACTIVE)
    def postpone(plan: Plan, event: Begin) -> Plan:
        return replace(plan, renews_at=late)

    @plan.on(Ended, State.ACTIVE)
    def stay(plan: Plan, event: Ended) -> Plan:
        return replace(plan, days=1)

    active = plan.at(State.ACTIVE, Plan(renews_at=AT))
    assert timers(plan, active, Begin()) == [StartTimer(Renew(), 0.0, "deadline", late)]
    assert plan.decide(active, Ended()).commands == ()  # Internal: the timer goes on.


def test_the_initial_state_and_the_state_after_an_unwinding_have_computed_timers() -> None:
    plan = trial(lambda plan: plan.days)
    plan.after(State.DRAFT, lambda plan: 2 * plan.days, send=Stop())
    assert [each for each in plan.start(Plan()).commands if isinstance(each, StartTimer)] == [
        StartTimer(Stop(), 6.0, "deadline")
    ]
    # Nothing to undo: UNDOING leads to TRIAL in the same decision.
    assert timers(plan, plan.at(State.ACTIVE, Plan()), Stop()) == [StartTimer(Ended(), 3.0, "deadline")]


@pytest.mark.parametrize(
    ("after", "until", "text"),
    [
        (lambda plan: 1 / 0, None, "timer ENDED for BEGIN in state 'trial' raised ZeroDivisionError"),
        (lambda plan: "3 days", None, "returned '3 days' (str), not a timedelta or a number of seconds"),
        (lambda plan: True, None, "returned True (bool)"),
        (lambda plan: float("nan"), None, "returned nan"),
        (lambda plan: float("inf"), None, "returned inf"),
        (lambda plan: timedelta.max, None, "up to 1,000 years"),
        (None, lambda plan: plan.renews_at.year, "timer RENEW for ENDED in state 'active' raised AttributeError"),
        (None, lambda plan: datetime(2026, 1, 1), "not an aware datetime or None"),  # noqa: DTZ001 -- naive on purpose.
        (None, lambda plan: timedelta(1), "not an aware datetime or None"),
    ],
)
def test_a_timer_that_cannot_be_computed_is_named_and_changes_nothing(after: object, until: object, text: str) -> None:
    plan = trial(after, until)
    snapshot, event = (plan.begin(Plan()), Begin()) if after else (plan.at(State.TRIAL, Plan()), Ended())
    with pytest.raises(UserCodeError) as caught:
        plan.decide(snapshot, event)
    assert text in str(caught.value)
    assert "None" in caught.value.fix or "raised" in text


def test_a_step_that_gives_up_into_a_state_with_a_broken_timer_is_user_code_error() -> None:
    plan = machine()
    plan.on(Begin, State.DRAFT, to=State.TRIAL)
    plan.on(Ended, State.TRIAL, to=State.ACTIVE)
    plan.on(Stop, State.ACTIVE, to=State.UNDOING)
    plan.on(Stop, State.DRAFT, to=State.DONE)

    @plan.step(State.TRIAL, timeout_s=timedelta(seconds=5), failed=State.ACTIVE)
    async def work(plan: Plan, ctx: StepContext) -> Ended:
        return Ended()

    plan.after(State.ACTIVE, lambda plan: 1 / 0, send=Stop())
    with pytest.raises(UserCodeError, match="STEP_FAILED in state 'active'"):
        decide.fail(plan.compiled, plan.at(State.TRIAL, Plan()), StepFailure(step="work", error="x"))


@pytest.mark.parametrize(
    "declare",
    [
        lambda plan: plan.after(State.TRIAL, send=Ended()),
        lambda plan: plan.after(State.TRIAL, 5, after_s=5, send=Ended()),
        lambda plan: plan.after(State.TRIAL, lambda: 5, send=Ended()),
        lambda plan: plan.after(State.TRIAL, "5", send=Ended()),
        lambda plan: plan.after(State.TRIAL, timedelta(0), send=Ended()),
        lambda plan: plan.until(State.TRIAL, AT, send=Ended()),
        lambda plan: plan.until(State.DONE, lambda plan: AT, send=Ended()),
        lambda plan: plan.until(State.TRIAL, ended_later, send=Ended()),
    ],
)
def test_wrong_timers_are_refused_where_they_are_declared(declare: Callable[[PlanMachine], None]) -> None:
    with pytest.raises(DefinitionError) as caught:
        declare(machine())
    assert "test_times.py" in caught.value.location


async def ended_later(plan: Plan) -> datetime:
    return AT


def test_pictures_and_descriptions_say_that_a_timer_is_computed() -> None:
    plan = trial(lambda plan: plan.days, lambda plan: plan.renews_at)
    described = {state.name: state.timers for state in plan.describe().states}
    assert [each.computed for each in described["trial"]] == ["after"]
    assert [each.computed for each in described["active"]] == ["until"]
    for picture in (plan.mermaid(), plan.dot(), plan.table(), plan.svg()):
        assert "computed time" in picture
        assert "ENDED" in picture
    assert [each.code for each in plan.check() if each.severity != "info"] == []
    changes = str(planned(trial(after_s=60).describe(), plan.describe()))
    assert "60 s → ENDED is computed (after) → ENDED now" in changes
    assert "a timer computed (until) → RENEW was added" in changes


# --- Lengths of time -------------------------------------------------------------------------------------------------


def test_lengths_of_time_may_be_timedeltas() -> None:
    assert Retry(first_s=timedelta(seconds=1), max_s=timedelta(minutes=1)) == Retry(first_s=1.0, max_s=60.0)
    assert Breaker(reset_s=timedelta(minutes=1), slow_s=timedelta(seconds=2)) == Breaker(reset_s=60.0, slow_s=2.0)
    assert RetryAfter(timedelta(minutes=2)).seconds == 120.0
    plan = trial(after_s=5)
    plan.dwell(State.TRIAL, max_s=timedelta(hours=1))

    @plan.step(State.TRIAL, timeout_s=timedelta(seconds=4), heartbeat_s=timedelta(seconds=2))
    async def work(plan: Plan, ctx: StepContext) -> Ended:
        return Ended()

    @plan.effect(State.ACTIVE, timeout_s=timedelta(seconds=7))
    async def mail(plan: Plan, ctx: StepContext) -> None: ...

    states = {state.name: state for state in plan.describe().states}
    assert states["trial"].dwell_max_s == 3_600
    assert states["trial"].step.timeout_s == 4
    assert states["trial"].step.heartbeat_s == 2
    assert plan.compiled.declared.effects[0].timeout_s == 7

    @step(timeout_s=timedelta(seconds=4), heartbeat_s=timedelta(seconds=2), dwell_s=timedelta(seconds=9))
    async def pay(plan: Plan, ctx: StepContext) -> Plan:
        return plan

    assert (pay.timeout_s, pay.heartbeat_s, pay.dwell_max_s) == (4, 2, 9)
