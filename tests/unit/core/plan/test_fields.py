"""Which fields `compare_fields` finds gone or new: single changes, and the property that nothing is lost unseen."""

import json
import re
from typing import Any, NamedTuple, TypedDict

import msgspec
import pytest
from hypothesis import HealthCheck, Phase, assume, event, find, given, settings

from interlock.core.plan import accepts
from interlock.core.plan.schema_compatibility import compare_fields
from tests.unit.core.plan.schema_pairs import Spec, pairs

Json = dict[str, Any]


class Money(msgspec.Struct):
    cents: int = 0
    currency: str = "EUR"


class MoneyRenamed(msgspec.Struct):
    amount: int = 0
    currency: str = "EUR"


class Order(msgspec.Struct):
    total: Money
    lines: list[Money] = []
    by_name: dict[str, Money | None] = {}


class OrderRenamed(msgspec.Struct):
    total: MoneyRenamed
    lines: list[MoneyRenamed] = []
    by_name: dict[str, MoneyRenamed | None] = {}


class Required(msgspec.Struct):
    amount: int
    total: float
    currency: str = "EUR"


class Nullable(msgspec.Struct):
    amount: int | None = None
    other: int = 0
    currency: str = "EUR"


class Nothing(msgspec.Struct):
    pass


class NothingTyped(TypedDict):
    pass


class Owner(msgspec.Struct):
    money: Money | None = None


class OwnerRenamed(msgspec.Struct):
    purse: Money | None = None


class Place(msgspec.Struct, array_like=True):
    x: int
    y: int = 0


class PlaceShort(msgspec.Struct, array_like=True):
    x: int


class PointLong(NamedTuple):
    x: int
    y: int
    z: int = 0


class Tagged(msgspec.Struct, tag="money"):
    cents: int = 0


class Card(msgspec.Struct, tag="card"):
    number: str
    note: str = ""


class Cash(msgspec.Struct, tag="cash"):
    coins: int
    note: str = ""


class CardWithoutNote(msgspec.Struct, tag="card"):
    number: str


class CashWithoutNote(msgspec.Struct, tag="cash"):
    coins: int


class Untagged(msgspec.Struct):
    coins: int = 0
    number: str = ""
    note: str = ""


class Tree(msgspec.Struct):
    value: int
    label: str = ""
    children: "list[Tree]" = []


class TreeWithoutLabel(msgspec.Struct):
    value: int
    children: "list[TreeWithoutLabel]" = []


CHANGES: list[tuple[object, object, list[str], list[str]]] = [
    (Money, Money, [], []),
    (Money, MoneyRenamed, ["$.cents"], ["$.amount"]),
    (Money, Nothing, ["$.cents", "$.currency"], []),
    (Money, NothingTyped, ["$.cents", "$.currency"], []),
    (Money, dict[str, int | str], [], []),
    (Money, dict, [], []),
    (Money, Any, [], []),
    (Money, int, [], []),
    (
        Order,
        OrderRenamed,
        ["$.total.cents", "$.lines[*].cents", "$.by_name.*.cents"],
        ["$.total.amount", "$.lines[*].amount", "$.by_name.*.amount"],
    ),
    (Money, Required, ["$.cents"], []),
    (dict[str, int], Nothing, ["$.*"], []),
    (dict[str, int], MoneyRenamed, ["$.*"], []),
    (Place, PlaceShort, ["$[1]"], []),
    (PlaceShort, Place, [], ["$[1]"]),
    (list[int], PlaceShort, ["$[*]"], []),
    (PlaceShort, PointLong, [], ["$[2]"]),
    (Place, list[int], [], []),
    (Tagged, Nothing, ["$.cents"], []),
    (Card | Cash, Card | Cash, [], []),
    (Card | Cash, CardWithoutNote | CashWithoutNote, ["$.note"], []),
    (Card | Cash, Card | CashWithoutNote, ["$.note"], []),
    (Card | Cash, Untagged, ["$.type"], ["$.coins", "$.number"]),
    (Tree, TreeWithoutLabel, ["$.label", "$.children[*].label"], []),
]


@pytest.mark.parametrize(("old", "new", "gone", "added"), CHANGES, ids=[f"{old}-{new}" for old, new, _, _ in CHANGES])
def test_gone_and_new_fields_are_found_where_they_are(
    old: object, new: object, gone: list[str], added: list[str]
) -> None:
    changes = compare_fields(msgspec.json.schema(new), msgspec.json.schema(old))
    assert [field.path for field in changes.removed] == gone
    assert list(changes.added) == added


@pytest.mark.parametrize(
    ("old", "new", "twins"),
    [
        (Money, MoneyRenamed, "`amount` is new"),
        (Money, Required, "`amount` is new"),
        (Money, Nullable, "`amount` or `other` is new"),
        (Owner, OwnerRenamed, "`purse` is new"),
        (Money, Nothing, None),
        (Money, msgspec.defstruct("Retyped", [("amount", float, 0.0)]), None),
    ],
)
def test_a_new_field_of_the_same_type_is_probably_the_new_name(old: object, new: object, twins: str | None) -> None:
    field = compare_fields(msgspec.json.schema(new), msgspec.json.schema(old)).removed[0]
    assert ("probably a rename" in field.why) == (twins is not None)
    assert twins is None or twins in field.why
    assert field.fix.startswith("keep `$." if twins is None else "keep the name `")


def test_a_model_that_keeps_what_it_does_not_know_loses_nothing() -> None:
    old: Json = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}
    new: Json = {"type": "object", "properties": {"b": {"type": "integer", "default": 0}}, "additionalProperties": True}
    assert compare_fields(new, old) == ((), ("$.b",))


def test_a_struct_written_as_an_array_that_has_no_field_left_loses_all() -> None:
    class Pair(msgspec.Struct, array_like=True):
        a: int = 0
        b: int = 0

    class Nothing(msgspec.Struct, array_like=True):
        pass

    gone = compare_fields(msgspec.json.schema(Nothing), msgspec.json.schema(Pair)).removed
    assert [field.path for field in gone] == ["$[0]", "$[1]"]


# --- Nothing is lost unseen -------------------------------------------------------------------------------------------


def _holds(value: object, stored: Any) -> bool:  # noqa: ANN401 - JSON
    """Whether a decoded value has a place for everything in the JSON that it was decoded from."""
    if isinstance(value, msgspec.Struct):
        config = value.__struct_config__
        fields = value.__struct_fields__
        if config.array_like:
            parts = stored[1:] if config.tag else stored
            held = [_holds(getattr(value, name), part) for name, part in zip(fields, parts, strict=False)]
            return len(parts) <= len(fields) and all(held)
        return all(
            name == config.tag_field or (name in fields and _holds(getattr(value, name), part))
            for name, part in stored.items()
        )
    if isinstance(value, dict):
        # Keys that are no text are written as text.
        value = dict(zip(msgspec.to_builtins(value, str_keys=True), value.values(), strict=True))
        return all(name in value and _holds(value[name], part) for name, part in stored.items())
    if isinstance(value, list | tuple):
        return all(_holds(inner, part) for inner, part in zip(value, stored, strict=True))
    return True


def _loses(case: tuple[Spec, Spec, bytes]) -> bool:
    """Whether a value that decodes under both types has lost something."""
    old, new, stored = case
    try:
        msgspec.json.decode(stored, type=old.type)
        value = msgspec.json.decode(stored, type=new.type)
    except (msgspec.ValidationError, TypeError):
        return False
    return not _holds(value, msgspec.json.decode(stored))


ONE_VALUE = re.compile(r'"enum": \[[^,\]]*\]')

CASES = pairs().flatmap(lambda pair: pair[0].values.map(lambda value: (*pair, msgspec.json.encode(value))))


@pytest.mark.slow
@settings(suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much])
@given(CASES)
def test_what_is_not_found_gone_is_kept(case: tuple[Spec, Spec, bytes]) -> None:
    schemas = msgspec.json.schema(case[1].type), msgspec.json.schema(case[0].type)
    assume(not accepts(*schemas))
    # A field that could only ever hold one value tells nothing, as a tag does: without it nothing is lost.
    assume(not ONE_VALUE.search(json.dumps(schemas[1])))
    lossless = not compare_fields(*schemas).removed
    event("lossless" if lossless else "gone")
    assert not (lossless and _loses(case))


@pytest.mark.slow
def test_a_comparison_that_sees_no_loss_would_be_caught() -> None:
    tried = settings(
        max_examples=4000,
        database=None,
        derandomize=True,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    assert find(CASES, _loses, settings=tried)
