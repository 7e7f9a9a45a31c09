"""What `accepts` says about single changes: where, how certain, and how to fix it."""

import datetime
import decimal
import enum
import uuid
from typing import Annotated, Any, Literal, NamedTuple

import msgspec
import pydantic
import pytest
from msgspec import Meta

from interlock.core.codec import schema_of
from interlock.core.plan import accepts

Json = dict[str, Any]


def judged(old: Any, new: Any) -> list[tuple[str, str]]:  # noqa: ANN401 -- any type.
    """Path and severity of everything reported when `old` becomes `new`."""
    return [(problem.path, problem.severity) for problem in accepts(schema_of(new), schema_of(old))]


def judged_raw(old: Json, new: Json) -> list[str]:
    return [problem.severity for problem in accepts(new, old)]


class Colour(enum.Enum):
    RED = "red"
    GREEN = "green"


class FewerColours(enum.Enum):
    RED = "red"


class Plain(msgspec.Struct):
    amount: int


class WithNote(msgspec.Struct):
    amount: int
    note: str = ""


class WithDemand(msgspec.Struct):
    amount: int
    note: str


class Forbidding(msgspec.Struct, forbid_unknown_fields=True):
    amount: int


class Empty(msgspec.Struct):
    pass


class Tagged(msgspec.Struct, tag="plain"):
    amount: int


class Retagged(msgspec.Struct, tag="simple"):
    amount: int


class Card(msgspec.Struct, tag="card"):
    number: str


class Cash(msgspec.Struct, tag="cash"):
    coins: int


class NewCash(msgspec.Struct, tag="cash"):
    coins: float
    note: str


class Place(msgspec.Struct, array_like=True):
    x: int


class PlaceWithDefault(msgspec.Struct, array_like=True):
    x: int
    y: int = 0


class PlaceWithDemand(msgspec.Struct, array_like=True):
    x: int
    y: int


class Point(NamedTuple):
    x: int


class PointWithDefault(NamedTuple):
    x: int
    y: int = 0


class OmittingDefaults(msgspec.Struct, omit_defaults=True):
    count: int = 0


class OtherDefault(msgspec.Struct):
    count: int = 5


class OmittingNamed(msgspec.Struct, omit_defaults=True):
    name: str
    count: int = 0


class SameDefault(msgspec.Struct):
    name: str
    count: int = 0
    more: int = 1


FITS: list[tuple[object, object]] = [
    (OmittingNamed, SameDefault),
    (Annotated[int, Meta(ge=-(2**53), le=2**53)], float),
    (int, Any),
    (int, int | None),
    (None, int | None),
    (bool, bool),
    (int, decimal.Decimal),
    (float, decimal.Decimal),
    (float, decimal.Decimal | None),
    (Colour, str),
    (Literal["red"], Colour),
    (Literal[1, 2], float),
    (Literal[2, 4], Annotated[int, Meta(multiple_of=2)]),
    (Literal["a", None], str | None),  # noqa: PYI061 - one enumeration, not a union
    (None, Literal["a", None]),  # noqa: PYI061 - one enumeration, not a union
    (bool, Literal[True, False]),
    (Literal[True], bool),
    (Literal["abc"], Annotated[str, Meta(min_length=3, max_length=3)]),
    (uuid.UUID, str),
    (Annotated[int, Meta(gt=4)], Annotated[int, Meta(ge=5)]),
    (Annotated[int, Meta(lt=4)], Annotated[int, Meta(le=3)]),
    (Annotated[int, Meta(ge=5, le=9)], Annotated[float, Meta(gt=4, lt=2.0**60)]),
    (Annotated[list[int], Meta(max_length=1)], set[int]),
    (Annotated[float, Meta(gt=0, lt=9)], Annotated[float, Meta(ge=0, le=9)]),
    (Annotated[float, Meta(gt=0, lt=9)], Annotated[float, Meta(gt=0, lt=9.5)]),
    (Annotated[int, Meta(multiple_of=6)], Annotated[int, Meta(multiple_of=3)]),
    (Annotated[str, Meta(max_length=3)], Annotated[str, Meta(max_length=4)]),
    (Annotated[str, Meta(pattern="^a", max_length=2)], Annotated[str, Meta(pattern="^a")]),
    (list[int], list[Any]),
    (set[int], list[int]),
    (set[tuple[int, int]], set[tuple[int, int]]),
    (tuple[int, int], list[int]),
    (tuple[int, int], tuple[int, ...]),
    (tuple[()], tuple[int, ...]),
    (Annotated[list[int], Meta(min_length=2, max_length=2)], tuple[int, int]),
    (Place, PlaceWithDefault),
    (PlaceWithDefault, Place),
    (Point, PointWithDefault),
    (Plain, WithNote),
    (WithNote, Plain),
    (Plain, Empty),
    (Plain, dict[str, int]),
    (Plain, Annotated[dict[str, int], Meta(min_length=1, max_length=1)]),
    (Plain, dict[Annotated[str, Meta(min_length=2)], int]),
    (dict[Annotated[str, Meta(min_length=3)], int], dict[Annotated[str, Meta(min_length=2)], int]),
    (dict[str, int], dict[str, decimal.Decimal]),
    (dict[int, str], dict[int, str]),
    (datetime.datetime, datetime.datetime | None),
    (Annotated[datetime.datetime, Meta(tz=True)], datetime.datetime),
    (Annotated[datetime.datetime, Meta(tz=False)], datetime.datetime),
    (datetime.datetime, str),
    (datetime.time, str),
    (OmittingDefaults, OmittingDefaults),
    (dict[str, int], dict),
    (Card, Card | Cash),
    (list[Card], list[Card | Cash | None]),
]


@pytest.mark.parametrize(("old", "new"), FITS, ids=[f"{old}-{new}" for old, new in FITS])
def test_a_wider_type_accepts_what_was_stored(old: object, new: object) -> None:
    assert judged(old, new) == []


BREAKS: list[tuple[object, object, str]] = [
    (float, int, "$"),
    (str, int, "$"),
    (int, str, "$"),
    (int | None, int, "$"),
    (str, Colour, "$"),
    (Colour, FewerColours, "$"),
    (bool, Literal[True], "$"),
    (str, uuid.UUID, "$"),
    (str, bytes, "$"),
    (datetime.date, uuid.UUID, "$"),
    (int, Annotated[int, Meta(ge=0)], "$"),
    (int, Annotated[int, Meta(le=0)], "$"),
    (Annotated[int, Meta(ge=0)], Annotated[int, Meta(ge=1)], "$"),
    (Annotated[float, Meta(ge=0)], Annotated[float, Meta(gt=0)], "$"),
    (Literal[3], Annotated[float, Meta(lt=3)], "$"),
    (int, Annotated[int, Meta(multiple_of=2)], "$"),
    (int, Annotated[int, Meta(ge=0)] | float, "$"),
    (str, Annotated[str, Meta(min_length=1)], "$"),
    (str, Annotated[str, Meta(max_length=9)], "$"),
    (Literal["ab"], Annotated[str, Meta(max_length=1)], "$"),
    (list[float], list[int], "$[*]"),
    (list[int], Annotated[list[int], Meta(min_length=1)], "$"),
    (list[int], Annotated[list[int], Meta(max_length=1)], "$"),
    (tuple[int, str], tuple[int, int], "$[1]"),
    (tuple[int, str], tuple[int], "$"),
    (Place, PlaceWithDemand, "$"),
    (PointWithDefault, Point, "$"),
    (Plain, WithDemand, "$.note"),
    (WithNote, Forbidding, "$.note"),
    (dict[str, int], Forbidding, "$.*"),
    (dict[str, int], Annotated[dict[str, int], Meta(min_length=1)], "$"),
    (dict[str, int], Annotated[dict[str, int], Meta(max_length=1)], "$"),
    (dict[str, int], dict[Annotated[str, Meta(min_length=2)], int], "$ (keys)"),
    (Plain, dict[Annotated[str, Meta(max_length=2)], int], "$ (keys)"),
    (dict[str, int], dict[str, str], "$.*"),
    (WithNote, dict[str, int], "$.note"),
    (Tagged, Retagged, "$.type"),
    (str, datetime.datetime, "$"),
    (str, datetime.time, "$"),
    (str, uuid.UUID, "$"),
    (datetime.date, datetime.datetime, "$"),
    (datetime.datetime, datetime.date, "$"),
    (Annotated[datetime.datetime, Meta(tz=True)], Annotated[datetime.datetime, Meta(tz=False)], "$"),
    (bytes, str, "$"),
    (datetime.timedelta, str, "$"),
    (dict[str, str], dict[int, str], "$"),
    (OmittingDefaults, OtherDefault, "$.count"),
]


@pytest.mark.parametrize(("old", "new", "path"), BREAKS, ids=[f"{old}-{new}" for old, new, _ in BREAKS])
def test_a_narrower_type_is_reported_where_it_breaks(old: object, new: object, path: str) -> None:
    assert (path, "error") in judged(old, new)


UNPROVEN: list[tuple[object, object, str]] = [
    (Any, int, "$"),
    (list, list[int], "$[*]"),
    (dict, dict[str, int], "$.*"),
    (WithNote, WithDemand, "$.note"),
    (PlaceWithDefault, PlaceWithDemand, "$"),
    (Plain, Tagged, "$.type"),
    (str, Annotated[datetime.datetime, Meta(tz=True)], "$"),
    (str, Annotated[str, Meta(pattern="^a")], "$"),
    (Literal["ab"], Annotated[str, Meta(pattern="^a")], "$"),
    (Literal["2020-01-01"], datetime.date, "$"),
    (uuid.UUID, Annotated[str, Meta(max_length=36)], "$"),
    (Annotated[int, Meta(ge=1, le=2)], Literal[1, 2], "$"),
    (Annotated[int, Meta(ge=0)], Annotated[int, Meta(multiple_of=2)], "$"),
    (Annotated[int, Meta(multiple_of=2)], Annotated[float, Meta(multiple_of=2)], "$"),
    (Annotated[int, Meta(ge=0)], Annotated[float, Meta(lt=2.0**60)], "$"),
    (list[list[int]], set[tuple[int, ...]], "$"),
    (tuple[int, int], set[int], "$"),
    (list[int], Annotated[set[int], Meta(min_length=2)], "$"),
    (int, float, "$"),
    (list[int], list[float], "$[*]"),
    (Annotated[int, Meta(ge=0, le=2**53 + 1)], float, "$"),
    (Literal[2**60 + 1], float, "$"),
    (list[int], set[int], "$"),
    (tuple[str, ...], frozenset[str], "$"),
    (datetime.datetime, Annotated[datetime.datetime, Meta(tz=True)], "$"),
    (datetime.datetime, Annotated[datetime.datetime, Meta(tz=False)], "$"),
    (dict[int, str], dict[str, str], "$"),
    (dict[int, str], dict[float, str], "$"),
    (dict[datetime.datetime, str], dict[datetime.date, str], "$"),
]


@pytest.mark.parametrize(("old", "new", "path"), UNPROVEN, ids=[f"{old}-{new}" for old, new, _ in UNPROVEN])
def test_what_cannot_be_proved_is_said_to_be_so(old: Any, new: Any, path: str) -> None:  # noqa: ANN401 -- any type.
    problems = accepts(schema_of(new), schema_of(old))
    assert {problem.path for problem in problems if problem.severity == "warning"} == {path}
    assert all("cannot prove" in problem.why for problem in problems if problem.severity == "warning")


def test_a_new_field_without_a_default_is_explained() -> None:
    (problem,) = accepts(msgspec.json.schema(WithDemand), msgspec.json.schema(Plain))
    assert problem.path == "$.note"
    assert problem.why == "the new field `note` has no default and stored data lack it"
    assert problem.fix == "give `note` a default in the new type"


def test_a_mapping_may_lack_what_a_struct_requires() -> None:
    (problem,) = accepts(msgspec.json.schema(Plain), msgspec.json.schema(dict[str, int]))
    assert "may lack the key `amount`" in problem.why


def test_a_change_of_kind_names_both_sides() -> None:
    (problem,) = accepts(msgspec.json.schema(datetime.date | Literal[1, 2]), msgspec.json.schema(bool))
    assert problem.why == "the old machine stored boolean here, the new one expects string (date) or one of 1, 2"


def test_a_tagged_union_is_compared_variant_by_variant() -> None:
    assert judged(list[Card | Cash], list[Card | NewCash]) == [
        ("$[*].note", "error"),
        ("$[*].coins", "warning"),
    ]


def test_a_variant_that_is_gone_is_reported_by_its_tag() -> None:
    (problem,) = accepts(msgspec.json.schema(Card | Tagged), msgspec.json.schema(Card | Cash))
    assert problem.severity == "error"
    assert problem.why == 'no variant of the new union has the tag "cash"'


def test_unknown_fields_can_be_refused() -> None:
    old, new = msgspec.json.schema(WithNote), msgspec.json.schema(Plain)
    assert accepts(new, old) == []
    assert [problem.path for problem in accepts(new, old, unknown_fields="refused")] == ["$.note"]
    assert accepts(msgspec.json.schema(dict[str, int | str]), old, unknown_fields="refused") == []


def test_prose_and_class_names_do_not_matter() -> None:
    renamed = msgspec.defstruct("Renamed", [("amount", Annotated[int, Meta(title="Amount", description="in cents")])])
    assert judged(Plain, renamed) == []


class Inner(pydantic.BaseModel):
    count: int


class Model(pydantic.BaseModel):
    inner: Inner
    mode: Literal["fast"] = "fast"


class BiggerModel(pydantic.BaseModel):
    inner: Inner
    mode: Literal["fast", "slow"] = "fast"
    note: str = ""


def _schema_of(kind: type[pydantic.BaseModel]) -> Json:
    return kind.model_json_schema()


def test_models_of_pydantic_bring_their_own_definitions() -> None:
    old = msgspec.json.schema(msgspec.defstruct("Holder", [("model", Model)]), schema_hook=_schema_of)
    new = msgspec.json.schema(msgspec.defstruct("Holder", [("model", BiggerModel)]), schema_hook=_schema_of)
    assert accepts(new, old) == []
    assert [problem.path for problem in accepts(old, new)] == ["$.model.mode"]


AMBIGUOUS: Json = {
    "type": "object",
    "properties": {
        "one": {"$ref": "#/$defs/Part", "$defs": {"Part": {"type": "integer"}}},
        "two": {"$ref": "#/$defs/Part", "$defs": {"Part": {"type": "string"}}},
    },
    "required": ["one", "two"],
}

# Old schema, new schema, severities: schemas written by hand, in ways that msgspec does not write them.
BY_HAND: list[tuple[Json, Json, list[str]]] = [
    ({"type": "integer"}, {"oneOf": [{"type": "integer"}]}, ["warning"]),
    ({"oneOf": [{"type": "integer"}]}, {"type": "integer"}, ["warning"]),
    ({"oneOf": [{"type": "integer"}]}, {"oneOf": [{"type": "integer"}]}, []),
    ({"type": "integer"}, {"anyOf": [{"type": "integer"}], "not": {}}, ["warning"]),
    ({"type": "integer"}, {"type": ["integer", "null"]}, []),
    ({"type": ["integer", "null"]}, {"type": "integer"}, ["error"]),
    ({"type": "integer"}, {"type": "integer", "format": "int32"}, ["warning"]),
    ({"type": "integer", "format": "int32", "minimum": 1}, {"type": "integer", "format": "int32"}, []),
    ({"type": "integer", "format": "int64"}, {"type": "integer", "format": "int32"}, ["warning"]),
    ({"type": "integer", "allOf": [{}], "minimum": 1}, {"type": "integer", "allOf": [{}]}, ["warning"]),
    ({"type": "integer"}, {"$ref": "#/$defs/Missing"}, ["warning"]),
    ({"type": "integer"}, {"$ref": "#/$defs/A", "$defs": {"A": {"$ref": "#/$defs/A"}}}, ["warning"]),
    ({"$ref": "#/$defs/Missing"}, {"$ref": "#/$defs/Missing"}, []),
    ({"$ref": "#/$defs/Missing"}, {"$ref": "#/$defs/Missing", "$defs": {"Missing": {"type": "null"}}}, ["warning"]),
    ({"enum": []}, {"type": "integer"}, []),
    ({"type": "integer"}, {"enum": []}, ["warning"]),
    ({"const": "a"}, {"type": "integer", "enum": [1, "a"]}, ["error"]),
    ({"const": "a"}, {"const": "a", "enum": ["a", "b"]}, ["warning"]),
    ({"const": [1]}, {"type": "array"}, ["warning"]),
    ({"const": 1.5}, {"type": "number", "minimum": 1}, []),
    ({"const": True}, {"enum": [1]}, ["error"]),
    ({"type": "number"}, {"type": "string", "format": "decimal", "minLength": 1}, ["warning"]),
    ({"type": "array", "items": {"type": "integer"}}, {"type": "array", "items": False}, ["error"]),
    ({"type": "array", "prefixItems": [{}], "items": {}}, {"type": "array", "prefixItems": [{}]}, []),
    ({"type": "array", "maxItems": 1}, {"type": "array", "prefixItems": [{}, {"type": "null"}]}, []),
    ({"type": "object"}, {"type": "object", "propertyNames": False}, ["warning"]),
    (
        {"type": "object", "properties": {"a": {"type": "integer"}}, "additionalProperties": {"type": "string"}},
        {"type": "object", "properties": {"b": {"type": "string"}}, "additionalProperties": {"type": "integer"}},
        ["error"],
    ),
    ({"type": "object", "properties": {}}, {"type": "object", "required": ["a"]}, ["error"]),
    (AMBIGUOUS, AMBIGUOUS, []),
    ({"type": "integer", "minimum": 3, "exclusiveMinimum": 3}, {"type": "integer", "minimum": 4}, []),
]


@pytest.mark.parametrize(("old", "new", "severities"), BY_HAND)
def test_unusual_schemas_are_never_silently_accepted(old: Json, new: Json, severities: list[str]) -> None:
    assert judged_raw(old, new) == severities


def test_references_that_mean_two_things_are_not_trusted() -> None:
    changed = msgspec.json.decode(msgspec.json.encode(AMBIGUOUS))
    changed["properties"]["two"]["$defs"]["Part"] = {"type": "boolean"}
    assert judged_raw(AMBIGUOUS, changed) == ["warning", "warning"]


def test_a_schema_does_not_tell_some_types_apart() -> None:
    """The known blind spots, kept here so that a future msgspec that says more is noticed."""
    plain: Any = msgspec.json.schema  # A schema that an earlier release has saved.
    assert accepts(plain(datetime.datetime), plain(str)) == []
    assert accepts(plain(dict[int, int]), plain(dict[str, int])) == []
    assert judged(Annotated[bytes, Meta(min_length=1)], Annotated[bytes, Meta(min_length=3)]) == []
