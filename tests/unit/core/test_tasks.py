"""F2: what a task declares is checked at its line, and its title evaluates nothing."""

import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from enum import Enum
from typing import Any, TypedDict

import msgspec
import pytest

from interlock import DefinitionError, Event, Machine
from interlock.core.declarations import TITLE_CHARACTERS_MAX
from interlock.core.describe import TaskDescription, description_from_json


class State(Enum):
    REVIEW = "review"
    RESTING = "resting"
    DONE = "done"
    UNDOING = "undoing"
    FAILED = "failed"


class Size(Enum):
    LARGE = "large"


@dataclass(frozen=True)
class Base:
    customer: str = ""


@dataclass(frozen=True)
class Refund(Base):
    cents: int = 0
    size: Size = Size.LARGE
    note: str | None = None


class RefundEvent(Event): ...


class Approve(RefundEvent):
    note: str = ""


class Reject(RefundEvent): ...


class Comment(RefundEvent): ...


class Rest(RefundEvent): ...


@dataclass(frozen=True)
class Unused(RefundEvent): ...


class Foreign(Event): ...


AnyMachine = Machine[State, Any, RefundEvent]


def refunds(context: type[Any] = Refund) -> AnyMachine:
    machine: AnyMachine = Machine(
        "refund",
        states=State,
        context=context,
        events=RefundEvent,
        initial=State.REVIEW,
        final={State.DONE, State.FAILED},
        resting={State.RESTING},
        unwind={State.UNDOING: State.FAILED},
    )
    machine.on(Approve, State.REVIEW, State.RESTING, to=State.DONE)
    machine.on(Reject, machine.any, to=State.UNDOING)
    machine.on(Comment, State.REVIEW)
    machine.on(Rest, State.REVIEW, to=State.RESTING)
    return machine


def declare(machine: AnyMachine, state: State = State.REVIEW, **changes: Any) -> None:  # noqa: ANN401 -- wrong ones too.
    given: dict[str, Any] = {"role": "clerk", "title": "Refund {cents}", "events": (Approve, Reject), **changes}
    machine.task(state, **given)


def title_of(machine: AnyMachine, context: object) -> str:
    return machine.declarations.tasks[State.REVIEW].title_of(context)


def test_a_task_is_described_and_its_due_time_is_the_dwell() -> None:
    machine = refunds()
    declare(machine, title="Refund {cents} {{now}} of {customer}", due=timedelta(hours=1))
    declare(machine, State.RESTING, events=[Approve], due=60)
    described = machine.describe()
    state, resting = described.state("review"), described.state("resting")
    assert state is not None
    assert state.task == TaskDescription(
        role="clerk", title="Refund {cents} {{now}} of {customer}", events=("APPROVE", "REJECT"), due_s=3_600.0
    )
    assert state.dwell_max_s == 3_600.0
    assert resting is not None
    assert resting.dwell_max_s is None
    assert description_from_json(described.to_json()) == described
    assert b'"task"' not in msgspec.json.encode(refunds().describe())


def test_a_dwell_of_its_own_goes_before_the_due_time() -> None:
    machine = refunds()
    declare(machine, due=60)
    machine.dwell(State.REVIEW, max_s=5)
    assert machine.compiled.nodes["REVIEW"].dwell_max_s == 5


def test_a_title_is_filled_with_fields_and_evaluates_nothing() -> None:
    machine = refunds()
    declare(machine, title="{customer}: {cents}, {size}{note} {{customer}}")
    assert title_of(machine, Refund("{cents.real} {0}", 5)) == "{cents.real} {0}: 5, large {customer}"
    assert len(title_of(machine, Refund("x" * 1_000))) == TITLE_CHARACTERS_MAX


class Plain(TypedDict, total=False):
    cents: int


class Struct(msgspec.Struct, frozen=True):
    cents: int = 0


@pytest.mark.parametrize(
    ("context", "value", "title"), [(Plain, {"cents": 5}, "5"), (Plain, {}, ""), (Struct, Struct(5), "5")]
)
def test_contexts_of_other_kinds_have_titles(context: type[Any], value: object, title: str) -> None:
    machine = refunds(context)
    declare(machine, title="{cents}")
    assert title_of(machine, value) == title


@pytest.mark.parametrize(
    ("changes", "rule", "what"),
    [
        ({"title": "{cents.real}"}, "bad-title", "has {cents.real}, which is not the name of a field"),
        ({"title": "{cents[0]}"}, "bad-title", "{cents[0]}"),
        ({"title": "{cents!r}"}, "bad-title", "{cents!r}"),
        ({"title": "{cents:>9}"}, "bad-title", "{cents:>9}"),
        ({"title": "{__class__}"}, "bad-title", "{__class__}, which is not a field of Refund"),
        ({"title": "{cent}"}, "bad-title", "Did you mean cents?"),
        ({"title": "{}"}, "bad-title", "has {}, which"),
        ({"title": "{0}"}, "bad-title", "has {0}, which"),
        ({"title": "{cents"}, "bad-title", "cannot be read"),
        ({"title": "cents}"}, "bad-title", "cannot be read"),
        ({"title": " "}, "value-out-of-range", "title is ' '"),
        ({"title": 5}, "value-out-of-range", "title is 5"),
        ({"role": ""}, "value-out-of-range", "the role's name is ''"),
        ({"role": None}, "value-out-of-range", "the role's name is None"),
        ({"events": ()}, "value-out-of-range", "events is ()"),
        ({"events": Approve}, "value-out-of-range", "events is <class"),
        ({"events": (Approve, Approve)}, "contradiction", "names an event twice"),
        ({"events": (Foreign,)}, "unknown-event", "not an event of this machine"),
        ({"events": (Approve(),)}, "unknown-event", "an instance"),
        ({"events": (Unused,)}, "task-event-refused", "UNUSED has no transition from state 'review'"),
        ({"state": State.RESTING, "events": (Comment,)}, "task-event-refused", "COMMENT has no transition"),
        ({"state": State.DONE}, "contradiction", "state 'done' is final"),
        ({"state": State.UNDOING}, "contradiction", "state 'undoing' is unwinding"),
        ({"state": "review"}, "unknown-state", "Did you mean State.REVIEW?"),
        ({"due": 0}, "value-out-of-range", "due is 0"),
        ({"due": timedelta(seconds=-1)}, "value-out-of-range", "due is -1.0"),
        ({"due": "1d"}, "value-out-of-range", "due is '1d'"),
        ({"due": lambda: 5}, "wrong-signature", "due time <lambda>"),
    ],
)
def test_a_wrong_task_is_refused_at_its_line(changes: dict[str, Any], rule: str, what: str) -> None:
    machine = refunds()
    with pytest.raises(DefinitionError, match=re.escape(what)) as refused:
        declare(machine, **changes)
    assert refused.value.rule == rule
    assert "test_tasks.py:" in refused.value.location
    assert refused.value.why
    assert refused.value.fix
    assert machine.declarations.tasks == {}


def test_a_state_has_one_task() -> None:
    machine = refunds()
    declare(machine)
    with pytest.raises(DefinitionError, match="already has a task"):
        declare(machine)
    machine.compiled  # noqa: B018 -- the first use.
    with pytest.raises(DefinitionError) as late:
        declare(machine, State.RESTING)
    assert late.value.rule == "declared-after-first-use"


def test_a_task_that_never_ends_is_a_warning() -> None:
    machine = refunds()
    declare(machine, events=(Comment,))
    found = [each for each in machine.check() if each.code.startswith("task")]
    assert [(each.code, each.severity) for each in found] == [("task-without-end", "warning")]


def test_a_due_time_that_no_alert_notices_is_a_remark() -> None:
    machine = refunds()
    declare(machine, due=60)
    declare(machine, State.RESTING, due=60)
    found = [each for each in machine.check() if each.code.startswith("task")]
    assert [(each.code, each.severity) for each in found] == [("task-due-unnoticed", "info")]
    assert "'resting'" in found[0].what


@pytest.mark.parametrize(
    ("due", "length_s"),
    [
        (lambda refund: timedelta(minutes=refund.cents), 300.0),
        (lambda refund: refund.cents, 5.0),
        (lambda refund: None, None),
        (lambda refund: -1, -1.0),
        (lambda refund: True, TypeError),
        (lambda refund: "5", TypeError),
        (lambda refund: float("inf"), TypeError),
        (lambda refund: refund.missing, AttributeError),
    ],
)
def test_a_computed_due_time(due: Callable[[Any], Any], length_s: float | type[Exception] | None) -> None:
    machine = refunds()
    declare(machine, due=due)
    task = machine.declarations.tasks[State.REVIEW]
    if isinstance(length_s, type):
        with pytest.raises(length_s):
            task.length_s(Refund("", 5))
    else:
        assert task.length_s(Refund("", 5)) == length_s
    assert machine.describe().states[0].dwell_max_s is None
