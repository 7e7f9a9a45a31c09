"""The property that matters: what `accepts` lets through really decodes.

Types, pairs and values are generated; whenever no incompatibility is reported, the encoded old value is decoded with
the new type by msgspec itself. A comparison that lets everything through must be caught by the same property.
"""

from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, Phase, assume, event, find, given, settings
from hypothesis import strategies as st
from hypothesis.errors import NoSuchExample

from interlock.core.plan import Incompatibility, accepts
from tests.unit.core.plan.schema_pairs import Spec, pairs

Accepts = Callable[[dict[str, Any], dict[str, Any]], list[Incompatibility]]


class Case(msgspec.Struct):
    """A drawn pair with its schemas and one stored value."""

    old: Any
    new: Any
    stored: bytes

    def decodes(self) -> bool:
        try:
            msgspec.json.decode(self.stored, type=self.new)
        except (msgspec.ValidationError, TypeError):
            return False
        return True

    def judged_by(self, judge: Accepts) -> list[Incompatibility]:
        return judge(msgspec.json.schema(self.new), msgspec.json.schema(self.old))


def _case(pair: tuple[Spec, Spec]) -> st.SearchStrategy[Case]:
    old, new = pair
    return old.values.map(lambda value: Case(old.type, new.type, msgspec.json.encode(value)))


CASES = pairs().flatmap(_case)


def _readable(case: Case) -> bool:
    """Whether the old type itself reads what it wrote; a few generated unions do not, and prove nothing."""
    return Case(case.old, case.old, case.stored).decodes()


@settings(suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much])
@given(CASES)
def test_what_is_accepted_decodes(case: Case) -> None:
    assume(_readable(case))
    problems = case.judged_by(accepts)
    event("accepted" if not problems else "reported")
    if not problems:
        assert case.decodes(), (msgspec.json.schema(case.old), msgspec.json.schema(case.new), case.stored)


@settings(suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much])
@given(CASES)
def test_every_type_accepts_itself(case: Case) -> None:
    schema = msgspec.json.schema(case.old)
    assert accepts(schema, msgspec.json.decode(msgspec.json.encode(schema))) == []


def _breaks(judge: Accepts) -> Callable[[Case], bool]:
    return lambda case: _readable(case) and not case.judged_by(judge) and not case.decodes()


def _blind_to(*phrases: str) -> Accepts:
    def judge(new: dict[str, Any], old: dict[str, Any]) -> list[Incompatibility]:
        return [problem for problem in accepts(new, old) if not any(words in problem.why for words in phrases)]

    return judge


SABOTAGED = {
    "lets everything through": lambda new, old: [],
    "forgets required fields": _blind_to("has no default", "required now"),
    "forgets bounds": _blind_to("stored numbers may be"),
    "forgets the kind": _blind_to("the new one expects"),
    "forgets enumerations": _blind_to("no longer among", "accepts only"),
}


@pytest.mark.parametrize("judge", SABOTAGED.values(), ids=SABOTAGED.keys())
def test_a_sabotaged_comparison_is_caught(judge: Accepts) -> None:
    tried = settings(
        max_examples=4000,
        database=None,
        derandomize=True,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    try:
        find(CASES, _breaks(judge), settings=tried)
    except NoSuchExample:
        pytest.fail("the property would not notice")


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
        ("Plain", "Wider"),
        ("Plain", "Twisted"),
        ("Plain", "Other"),
        ("Narrower", "Plain"),
        ("Narrower", "Wider"),
        ("Narrower", "Twisted"),
        ("Narrower", "Other"),
        ("Leaf", "Plain"),
        ("Leaf", "Wider"),
        ("Leaf", "Narrower"),
        ("Leaf", "Twisted"),
        ("Leaf", "Other"),
        ("Leaf", "Many"),
    }
