"""A10: which contexts can be changed in place, and that user code changes only what it returns."""

# mypy: ignore-errors
# Values of every type, and functions that change what they receive, are what is tested here.

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime, timedelta
from decimal import Decimal
from enum import Enum
from typing import Annotated, Any, Generic, Literal, NamedTuple, NewType, Optional, TypedDict, TypeVar
from uuid import UUID

import msgspec
import pydantic
import pytest

from interlock import Event, GuardRejected, Machine, StepContext, StepFailure, UserCodeError
from interlock.core import decide
from interlock.core.codec import changeable_parts

T = TypeVar("T")
Cents = NewType("Cents", int)
Names = NewType("Names", list[str])


class State(Enum):
    OPEN, CLOSED = "open", "closed"


class Point(NamedTuple):
    x: int
    y: tuple[float, ...]


@dataclass(frozen=True)
class Value:
    number: int
    price: Decimal
    at: datetime | None
    day: date
    wait: timedelta
    id: UUID
    state: State
    kind: Literal["a", "b"]
    cents: Cents
    names: tuple[str, ...]
    tags: frozenset[str]
    where: Point
    short: Annotated[bytes, msgspec.Meta(max_length=3)]
    parent: Optional["Value"] = None


class Record(msgspec.Struct, frozen=True):
    value: Value


class FrozenModel(pydantic.BaseModel, frozen=True):
    points: tuple[Point, ...]


class OpenModel(pydantic.BaseModel, frozen=True, extra="allow"):
    n: int = 0


class Loose(msgspec.Struct):
    n: int = 0


class LooseModel(pydantic.BaseModel):
    n: int = 0


class Sheet(TypedDict):
    n: int


@dataclass
class Plain:
    items: list[int] = field(default_factory=list)


@dataclass(frozen=True)
class Nested:
    plain: Plain
    sheet: Sheet
    names: Names
    pairs: tuple[dict[str, int], ...]
    both: "set[int] | bytearray"


@dataclass(frozen=True)
class Box(Generic[T]):
    inside: T


@dataclass(frozen=True)
class Unclear:
    anything: Any
    some: Sequence[int]
    by_name: Mapping[str, int]
    box: Box[int]


@dataclass(frozen=True)
class Unresolved:
    value: "NowhereToBeFound"  # noqa: F821


@pytest.mark.parametrize("kind", [Value, Record, FrozenModel, Point, int, Enum])
def test_a_value_that_never_changes_has_no_changeable_part(kind: type) -> None:
    assert changeable_parts(kind) == []


@pytest.mark.parametrize(
    ("kind", "parts"),
    [
        (Loose, ["Loose is not frozen"]),
        (LooseModel, ["LooseModel is not frozen"]),
        (Sheet, ["Sheet is a dict"]),
        (Plain, ["Plain is not frozen", "Plain.items is a list"]),
        (list[int], ["list[int] is a list"]),
        (
            Nested,
            [
                "Nested.plain is of class Plain, which is not frozen",
                "Plain.items is a list",
                "Nested.sheet is a dict",
                "Nested.names is a list",
                "Nested.pairs is a dict",
                "Nested.both is a set",
                "Nested.both is a bytearray",
            ],
        ),
    ],
)
def test_what_can_be_changed_in_place_is_named(kind: type, parts: list[str]) -> None:
    found = changeable_parts(kind)
    assert [part.what for part in found] == parts
    assert all(part.certain for part in found)


@pytest.mark.parametrize(("kind", "count"), [(Unclear, 4), (Unresolved, 1), (Box, 1), (OpenModel, 1)])
def test_what_an_annotation_does_not_tell_is_copied_and_not_reported(kind: type, count: int) -> None:
    assert [part.certain for part in changeable_parts(kind)] == [False] * count


class BasketEvent(Event): ...


@dataclass(frozen=True)
class Add(BasketEvent):
    numbers: list[int]


@dataclass(frozen=True)
class Reject(BasketEvent): ...


@dataclass(frozen=True)
class Break(BasketEvent): ...


@dataclass(frozen=True)
class Stop(BasketEvent): ...


def basket() -> Machine:
    machine = Machine(
        "basket", states=State, context=Plain, events=BasketEvent, initial=State.OPEN, final={State.CLOSED}
    )

    def add(value: Plain, event: Add) -> Plain:
        value.items.extend(event.numbers)
        event.numbers.append(77)
        return value

    def refuses(value: Plain, event: Reject) -> bool:
        """Never."""
        value.items.append(1)
        return False

    def breaks(value: Plain, event: Break) -> Plain:
        value.items.append(1)
        raise ZeroDivisionError

    machine.on(Add, State.OPEN)(add)
    machine.on(Reject, State.OPEN, to=State.CLOSED, when=refuses)
    machine.on(Break, State.OPEN)(breaks)
    machine.on(Stop, State.OPEN, to=State.CLOSED)

    @machine.step(State.OPEN, timeout_s=1, failed=State.CLOSED, read_only=True)
    async def work(value: Plain, ctx: StepContext) -> Stop: ...

    @work.failed
    def note(value: Plain, failure: StepFailure) -> Plain:
        value.items.append(4)
        return value

    return machine


def test_a_mutable_context_is_an_error_that_does_not_stop_the_first_use() -> None:
    machine = basket()
    [finding] = [each for each in machine.check() if each.severity == "error"]
    assert finding.code == "mutable-context"
    assert "Plain is not frozen; Plain.items is a list" in finding.what
    assert "tuple instead of list" in finding.fix
    assert machine.apply(machine.begin(Plain()), Add([1])).context == Plain([1])


def test_a_snapshot_stays_as_it_was_whatever_is_decided_on_it() -> None:
    machine = basket()
    snapshot, event = machine.begin(Plain([0])), Add([1])
    after = machine.decide(snapshot, event)
    with pytest.raises(GuardRejected, match="refuses"):
        machine.decide(snapshot, Reject())
    with pytest.raises(UserCodeError, match=r"action breaks .* raised ZeroDivisionError"):
        machine.decide(snapshot, Break())
    [blocked] = machine.allowed(snapshot, Reject())
    assert (blocked.blocked_by or "").endswith("refuses")
    assert blocked.reason == "Never."
    failed = decide.fail(machine.compiled, snapshot, StepFailure(step="work", error="e"))
    assert failed.snapshot.context == Plain([0, 4])
    assert (snapshot.context, event) == (Plain([0]), Add([1]))
    assert (after.snapshot.context, after.records[0].payload) == (Plain([0, 1]), Add([1]))


def test_nothing_is_copied_of_a_context_that_cannot_change() -> None:
    seen = []
    machine = Machine("seen", states=State, context=Value, events=BasketEvent, initial=State.OPEN, final={State.CLOSED})

    def look(value: Value, event: Add) -> bool:
        seen.append((value, event))
        event.numbers.append(1)
        return True

    def stop(value: Value, event: Stop) -> Value:
        seen.append((value, event))
        return value

    machine.on(Add, State.OPEN, when=look)
    machine.on(Stop, State.OPEN, to=State.CLOSED)(stop)
    value = Value(
        1,
        Decimal(1),
        None,
        date(2026, 1, 1),
        timedelta(1),
        UUID(int=1),
        State.OPEN,
        "a",
        Cents(1),
        (),
        frozenset(),
        Point(1, ()),
        b"",
    )
    event, end = Add([]), Stop()
    after = machine.apply(machine.apply(machine.begin(value), event), end)
    assert after.context is value
    assert [each is value for each, _ in seen] == [True, True]
    assert event == Add([])
    assert seen[1][1] is end
