"""What a description says of a type beyond `msgspec.json.schema`, wherever in the type it stands."""

import datetime
from typing import Annotated, Any, NamedTuple

import msgspec
import pydantic
import pytest

from interlock.core.codec import ANNOTATED, KEYS, OMITS, TEXT, schema_of, without_annotations
from interlock.core.plan import plan
from tests.unit.core.plan.machines import ORDER, changed

NAIVE = Annotated[datetime.datetime, msgspec.Meta(tz=False)]
AWARE = Annotated[datetime.datetime, msgspec.Meta(tz=True)]


class Spot(NamedTuple):
    name: str
    at: datetime.datetime


class Row(msgspec.Struct, array_like=True, tag="row"):
    name: str
    at: datetime.datetime


class Node(msgspec.Struct, omit_defaults=True):
    at: datetime.datetime
    below: "list[Node] | None" = None


class Card(msgspec.Struct, tag="card"):
    at: datetime.time


class Cash(msgspec.Struct, tag="cash"):
    at: str


class Model(pydantic.BaseModel):
    at: datetime.datetime


def texts(kind: Any) -> list[object]:  # noqa: ANN401 -- any type.
    """The values of `TEXT` in the schema, in the order in which they stand there."""
    found: list[object] = []
    waiting: list[Any] = [schema_of(kind)]
    while waiting:
        node = waiting.pop(0)
        if isinstance(node, dict):
            found += [node[TEXT]] if TEXT in node else []
            waiting += node.values()
        elif isinstance(node, list):
            waiting += node
    return found


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        (datetime.datetime, ["any datetime"]),
        (NAIVE, ["naive datetime"]),
        (AWARE, []),
        (datetime.time, ["any time"]),
        (Annotated[datetime.time, msgspec.Meta(tz=False)], []),
        (str, []),
        (list[datetime.datetime], ["any datetime"]),
        (tuple[datetime.datetime, ...], ["any datetime"]),
        (frozenset[datetime.datetime], ["any datetime"]),
        (tuple[str, datetime.datetime], ["any datetime"]),
        (dict[str, datetime.datetime], ["any datetime"]),
        (int | datetime.datetime | None, ["any datetime"]),
        (Spot, ["any datetime"]),
        (Row, ["any datetime"]),
        (Node, ["any datetime"]),
        (list[Card | Cash], ["any time"]),
        (list[Any], []),
        (Model, []),
    ],
    ids=str,
)
def test_a_time_without_a_declared_timezone_is_told_from_text(kind: Any, expected: list[str]) -> None:  # noqa: ANN401
    assert texts(kind) == expected


@pytest.mark.parametrize(
    ("kind", "keys"),
    [
        (dict[str, int], None),
        (dict[int, int], "int"),
        (dict[datetime.date, int], "date"),
        (dict[datetime.datetime, int], "datetime None"),
        (dict, None),
    ],
    ids=str,
)
def test_keys_that_are_not_text_are_told(kind: Any, keys: str | None) -> None:  # noqa: ANN401
    assert schema_of(kind).get(KEYS) == keys


def test_a_struct_that_omits_defaults_says_so() -> None:
    schema: Any = schema_of(Node)
    assert schema["$defs"]["Node"][OMITS] is True
    assert without_annotations(schema) == msgspec.json.decode(msgspec.json.encode(msgspec.json.schema(Node)))


def test_a_description_of_an_earlier_release_is_the_same_machine() -> None:
    """It was saved without annotations: an upgrade of Interlock is not a change of the machine."""
    saved = changed(version=1, context_schema=msgspec.json.schema(Node))
    today = changed(version=1, context_schema=schema_of(Node))
    for old, new in ((saved, today), (today, saved), (today, today)):
        made = plan(old, new)
        assert made.findings == ()
        assert made.side_by_side
    assert ANNOTATED in today.context_schema
    assert ORDER.version == 1
