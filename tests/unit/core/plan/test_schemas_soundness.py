"""The property that matters: what `accepts` lets through really decodes, and to the same value.

Types, pairs and values are generated; whenever no incompatibility is reported, the encoded old value is decoded with
the new type by msgspec itself. A comparison that lets everything through must be caught by the same property.
"""

import datetime
import decimal
from collections.abc import Callable
from typing import Annotated, Any, Literal

import msgspec
import pytest
from hypothesis import HealthCheck, Phase, assume, event, find, given, settings
from hypothesis import strategies as st

from interlock.core.codec import schema_of
from interlock.core.plan import accepts
from interlock.core.plan.findings import Incompatibility
from tests.unit.core.plan.schema_pairs import Spec, pairs

Accepts = Callable[[dict[str, Any], dict[str, Any]], list[Incompatibility]]


class Case(msgspec.Struct):
    """A drawn pair with its schemas and one stored value."""

    old: Any
    new: Any
    stored: bytes

    def decodes(self) -> bool:
        """Whether the new type reads what is stored, and reads the same: written again it is what it was."""
        try:
            value = msgspec.json.decode(self.stored, type=self.new)
        except (msgspec.ValidationError, TypeError):
            return False
        return _same(msgspec.json.decode(self.stored), msgspec.json.decode(msgspec.json.encode(value)))

    def judged_by(self, judge: Accepts) -> list[Incompatibility]:
        return judge(schema_of(self.new), schema_of(self.old))


def _same(stored: Any, again: Any) -> bool:  # noqa: ANN401 -- any JSON.
    """Whether two documents hold the same values. A field that only one has is for `compare_fields`."""
    if isinstance(stored, dict) and isinstance(again, dict):
        return all(_same(stored[name], again[name]) for name in stored.keys() & again.keys())
    if isinstance(stored, list) and isinstance(again, list):
        if all(map(_same, stored, again)):  # An array-like struct may have more positions, or fewer.
            return True
        # A set is written in any order.
        return len(stored) == len(again) and all(any(_same(each, other) for other in again) for each in stored)
    if isinstance(again, str) and isinstance(stored, int | float):
        return _same_decimal(stored, again)
    return (type(stored) is type(again) and stored == again) or _same_number(stored, again)


def _same_decimal(stored: float, again: str) -> bool:
    try:
        return decimal.Decimal(again) == decimal.Decimal(str(stored))
    except decimal.InvalidOperation:  # Another item of a set, which is not a number.
        return False


def _same_number(stored: object, again: object) -> bool:
    numbers = (int, float)
    return type(stored) in numbers and type(again) in numbers and stored == again


def _case(pair: tuple[Spec, Spec]) -> st.SearchStrategy[Case]:
    old, new = pair
    return old.values.map(lambda value: Case(old.type, new.type, msgspec.json.encode(value)))


CASES = pairs().flatmap(_case)


def _readable(case: Case) -> bool:
    """Whether the old type itself reads what it wrote; a few generated unions do not, and prove nothing."""
    return Case(case.old, case.old, case.stored).decodes()


def _case_of(old: Any, new: Any, value: object) -> Case:  # noqa: ANN401 -- any type.
    return Case(old, new, msgspec.json.encode(value))


class OneField(msgspec.Struct):
    alpha: int = 0


class TwoFields(msgspec.Struct):
    alpha: int
    beta: int


WITNESSES = {
    "required fields": _case_of(OneField, TwoFields, OneField(1)),
    "bounds": _case_of(int, Annotated[int, msgspec.Meta(ge=5)], 4),
    "kinds": _case_of(int, str, 1),
    "enumerations": _case_of(Literal["red", "blue"], Literal["red"], "blue"),
    "rounded floats": _case_of(int, float, 2**53 + 1),
    "sets": _case_of(list[int], set[int], [2, 1, 2]),
    "text": _case_of(str, datetime.datetime, "red"),
    "keys": _case_of(dict[str, int], dict[int, int], {"red": 1}),
}
"""Values that the new type does not read, or not as the same: one for every reason that `accepts` has to know."""


def _holds(judge: Accepts, case: Case) -> bool:
    """The property: a value that the judge lets through decodes, to the same value."""
    return bool(case.judged_by(judge)) or case.decodes()


@pytest.mark.slow
@settings(suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much])
@given(CASES)
def test_what_is_accepted_decodes(case: Case) -> None:
    assume(_readable(case))
    event("accepted" if not case.judged_by(accepts) else "reported")
    assert _holds(accepts, case), (msgspec.json.schema(case.old), msgspec.json.schema(case.new), case.stored)


@pytest.mark.parametrize("case", WITNESSES.values(), ids=WITNESSES.keys())
def test_what_does_not_decode_is_reported(case: Case) -> None:
    assert _readable(case)
    assert not case.decodes()
    assert _holds(accepts, case)


@pytest.mark.slow
@settings(suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much])
@given(CASES)
def test_every_type_accepts_itself(case: Case) -> None:
    schema = msgspec.json.schema(case.old)
    assert accepts(schema, msgspec.json.decode(msgspec.json.encode(schema))) == []


def _blind_to(*phrases: str) -> Accepts:
    def judge(new: dict[str, Any], old: dict[str, Any]) -> list[Incompatibility]:
        return [problem for problem in accepts(new, old) if not any(words in problem.why for words in phrases)]

    return judge


SABOTAGED = {
    "required fields": _blind_to("has no default", "required now"),
    "bounds": _blind_to("stored numbers may be"),
    "kinds": _blind_to("the new one expects"),
    "enumerations": _blind_to("is not among", "accepts only"),
    "rounded floats": _blind_to("are rounded"),
    "sets": _blind_to("no order and no equal items"),
    "text": _blind_to("the new one reads"),
    "keys": _blind_to("the keys that are stored"),
}


@pytest.mark.parametrize("forgotten", SABOTAGED)
def test_a_comparison_that_forgets_one_reason_is_caught_by_its_witness(forgotten: str) -> None:
    caught = {name for name, case in WITNESSES.items() if not _holds(SABOTAGED[forgotten], case)}
    assert caught == {forgotten}, "the property would not notice"


def test_a_comparison_that_lets_everything_through_is_caught_by_generated_types() -> None:
    tried = settings(
        max_examples=4000,
        database=None,
        derandomize=True,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    find(CASES, lambda case: _readable(case) and not _holds(lambda new, old: [], case), settings=tried)


class Plain(msgspec.Struct):
    value: int
    following: "Plain | None" = None


class Wider(msgspec.Struct):
    value: float
    following: "Wider | None" = None
    note: str = ""


class Narrower(msgspec.Struct):
    value: int
    following: "Leaf | None" = None


class Leaf(msgspec.Struct):
    value: int
    following: None = None


class Twisted(msgspec.Struct):
    value: int
    following: "Other | None" = None


class Other(msgspec.Struct):
    value: int | str
    following: "Twisted | None" = None


class Unending(msgspec.Struct):
    value: int
    following: "Unending"


class Many(msgspec.Struct):
    value: int
    following: "list[Many] | None" = None


RECURSIVE: list[Any] = [Plain, Wider, Narrower, Leaf, Twisted, Other, Many]


@pytest.mark.slow
@pytest.mark.parametrize("new", [*RECURSIVE, Unending], ids=lambda kind: f"to-{kind.__name__}")
@pytest.mark.parametrize("old", RECURSIVE, ids=lambda kind: f"from-{kind.__name__}")
@settings(max_examples=25, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_recursive_types_are_compared_soundly(old: Any, new: Any, data: st.DataObject) -> None:  # noqa: ANN401
    problems = accepts(msgspec.json.schema(new), msgspec.json.schema(old))
    if not problems:
        case = Case(old, new, msgspec.json.encode(data.draw(st.from_type(old))))
        assume(_readable(case))
        assert case.decodes()


def test_recursive_types_that_fit_are_recognized() -> None:
    fitting = {
        (old.__name__, new.__name__)
        for old in RECURSIVE
        for new in RECURSIVE
        if old is not new and not accepts(msgspec.json.schema(new), msgspec.json.schema(old))
    }
    assert fitting == {
        ("Plain", "Twisted"),
        ("Plain", "Other"),
        ("Narrower", "Plain"),
        ("Narrower", "Twisted"),
        ("Narrower", "Other"),
        ("Leaf", "Plain"),
        ("Leaf", "Narrower"),
        ("Leaf", "Twisted"),
        ("Leaf", "Other"),
        ("Leaf", "Many"),
    }
