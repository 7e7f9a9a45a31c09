"""F4: which fields can be searched, and what a search may ask for: everything else is refused with a reason."""

import enum
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from decimal import Decimal
from enum import Enum
from typing import Annotated, Any
from uuid import UUID

import msgspec
import pytest

from interlock import DefinitionError, Event, InvalidPayload, Machine
from interlock.core.pipeline import pipeline, step
from interlock.core.search import (
    CONDITIONS_MAX,
    FIELDS_MAX,
    IN_MAX,
    TEXT_MAX,
    SearchField,
    condition_text,
    search_fields,
    search_from_json,
    search_of,
    search_to_json,
    split_condition,
    where_of,
)


class State(Enum):
    OPEN = "open"


class Color(Enum):
    RED = "red"
    BLUE = "blue"


class Level(enum.IntEnum):
    LOW = 1


@dataclass(frozen=True)
class Order:
    """One field of each kind, and some that cannot be searched."""

    customer: str = ""
    cents: int = 0
    ratio: float = 0.0
    paid: bool = False
    price: Decimal = Decimal(0)
    day: date | None = None
    renews_at: datetime | None = None
    ref: UUID | None = None
    color: Color = Color.RED
    level: Level = Level.LOW
    positive: Annotated[int, msgspec.Meta(ge=0)] = 0
    lines: list[str] = field(default_factory=list)
    either: int | str = 0
    updated_at: datetime | None = None


SEARCHED = ("customer", "cents", "ratio", "paid", "price", "day", "renews_at", "ref", "color", "level", "positive")


class OrderEvent(Event):
    pass


class Touch(OrderEvent):
    pass


def machine(search: Any, context: Any = Order) -> Machine[State, Any, OrderEvent]:  # noqa: ANN401 -- wrong ones too.
    made = Machine(
        "order",
        states=State,
        context=context,
        events=OrderEvent,
        initial=State.OPEN,
        resting={State.OPEN},
        version=3,
        search=search,
    )
    made.on(Touch, State.OPEN)
    return made


@dataclass(frozen=True)
class Referring:
    """Its field has a type that the module declares later."""

    number: "LaterNumber"  # type: ignore[name-defined]  # noqa: F821


def test_types_that_are_declared_later_are_read_at_the_first_search(monkeypatch: pytest.MonkeyPatch) -> None:
    made = machine(("number",), Referring)
    monkeypatch.setitem(globals(), "LaterNumber", int)
    assert [each.kind for each in made.search.fields or ()] == ["int"]


def test_a_machine_tells_what_it_declares_searchable() -> None:
    assert machine(None).search.fields is None
    assert machine(()).search.fields == ()
    found = machine(list(SEARCHED)).search
    assert (found.machine, found.version) == ("order", 3)
    assert [each.name for each in found.fields or ()] == list(SEARCHED)
    bases = {each.name: each.basis for each in found.fields or ()}
    assert bases == {
        "customer": "text",
        "cents": "number",
        "ratio": "number",
        "paid": "truth",
        "price": "decimal",
        "day": "text",
        "renews_at": "time",
        "ref": "text",
        "color": "text",
        "level": "number",
        "positive": "number",
    }


def test_what_is_declared_is_read_back_from_its_json() -> None:
    """Members of an Enum have their names and values, in a class of its own: a condition takes the values."""
    declared = machine(list(SEARCHED)).search
    found = search_from_json("order", search_to_json(declared))
    assert (found.machine, found.version) == ("order", 3)
    for one, other in zip(found.fields or (), declared.fields or (), strict=True):
        members = [None if each.members is None else {m.name: m.value for m in each.members} for each in (one, other)]
        assert members[0] == members[1]
        assert msgspec.structs.replace(one, members=None) == msgspec.structs.replace(other, members=None)
    assert where_of("order", found.fields, ["color=red", "level=1"]) == [("color", "=", "red"), ("level", "=", 1)]
    for search in (None, ()):
        assert search_from_json("order", search_to_json(machine(search).search)) == machine(search).search


def test_fields_have_their_stored_names_and_the_defaults_that_are_not_written() -> None:
    class Renamed(msgspec.Struct, rename="camel", omit_defaults=True):
        first_name: str = "ada"
        price: Decimal = Decimal("1.5")
        color: Color | None = Color.BLUE

    found = machine(("first_name", "price", "color"), Renamed).search.fields or ()
    assert [(each.stored, each.default) for each in found] == [
        ("firstName", "ada"),
        ("price", "1.5"),
        ("color", "blue"),
    ]


def test_a_pydantic_model_is_searched_by_its_fields() -> None:
    pydantic = pytest.importorskip("pydantic")
    model = pydantic.create_model(
        "Model", customer=(str, "ada"), at=(datetime | None, pydantic.Field(None, alias="when")), made=(int, ...)
    )
    found = machine(("customer", "at", "made"), model).search.fields or ()
    assert [(each.name, each.stored, each.basis, each.default) for each in found] == [
        ("customer", "customer", "text", "ada"),
        ("at", "when", "time", None),
        ("made", "made", "number", None),
    ]


def test_a_pipeline_can_be_searched_too() -> None:
    @step(timeout_s=1)
    async def pay(order: Order, _ctx: object) -> Order:
        return order

    made = pipeline("paying", context=Order, steps=[pay], search=("customer",))
    assert [each.name for each in made.search.fields or ()] == ["customer"]


@pytest.mark.parametrize(
    ("search", "match"),
    [
        ("customer", r"is not a sequence of field names"),
        (7, r"is not a sequence of field names"),
        (("custmer",), r"'custmer', which is not a field of Order.*"),
        ((5,), r"5, which is not a field of Order"),
        (("customer", "customer"), r"'customer' twice"),
        (("lines",), r"'lines', a field of type List, which cannot be searched"),
        (("either",), r"'either', a field of type Int \| Str, which cannot"),
        (("updated_at",), r"'updated_at', which is the workflow's own time"),
        (tuple(f"f{n}" for n in range(FIELDS_MAX + 1)), r"has 17 fields; at most 16"),
    ],
)
def test_what_cannot_be_searched_is_refused_where_the_machine_is_declared(search: object, match: str) -> None:
    with pytest.raises(DefinitionError, match=match) as refused:
        machine(search)
    assert refused.value.rule == "bad-search"
    assert __file__ in str(refused.value)
    assert refused.value.why
    assert refused.value.fix


def test_a_misspelt_field_comes_with_a_guess() -> None:
    with pytest.raises(DefinitionError) as refused:
        machine(("custmer",))
    assert "did you mean customer" in str(refused.value).replace("'", "").lower()


def test_a_context_without_fields_has_nothing_to_search() -> None:
    with pytest.raises(DefinitionError, match="it has none"):
        search_fields(dict[str, int], ("a",), "order", "here")


FIELDS: tuple[SearchField, ...] = machine(SEARCHED).search.fields or ()


def asked(**changes: Any) -> Any:  # noqa: ANN401 -- wrong ones too.
    whole: dict[str, Any] = {
        "where": (),
        "updated_after": None,
        "updated_before": None,
        "order": None,
        "states": (),
        "limit": 10,
        "cursor": None,
    }
    return search_of(machine(SEARCHED).search, **(whole | changes))


def test_values_have_a_plain_form_by_which_they_are_compared() -> None:
    at = datetime(2026, 1, 1, tzinfo=UTC)
    where = [
        ("customer", "prefix", "a"),
        ("cents", "in", [1, 1, 2]),
        ("price", "<", 5),
        ("day", ">=", date(2026, 1, 2)),
        ("renews_at", ">", at),
        ("ref", "=", UUID(int=1)),
        ("color", "=", Color.BLUE),
        ("color", "!=", "red"),
        ("level", "in", {Level.LOW}),
        ("paid", "=", True),
        ("ratio", "<=", 1),
        ("day", "!=", None),
    ]
    assert [each.values for each in asked(where=where).conditions] == [
        ("a",),
        (1, 2),
        (Decimal(5),),
        ("2026-01-02",),
        (1_767_225_600_000_000,),
        ("00000000-0000-0000-0000-000000000001",),
        ("blue",),
        ("red",),
        (1,),
        (True,),
        (1.0,),
        (None,),
    ]
    assert asked(order="-cents").order_text == "-cents"
    assert asked(order="-updated_at", updated_after=at).after_us == 1_767_225_600_000_000


WRONG: list[tuple[Any, str]] = [
    ("customer=ada", "is not a list of conditions"),
    (5, "is not a list of conditions"),
    ([5], "is not a list of conditions"),
    ([("customer", "=")], "is not a list of conditions"),
    (["abc"], "is not a list of conditions"),
    ([("cents", "=", 1)] * (CONDITIONS_MAX + 1), "has 17 conditions; at most 16"),
    ([("lines", "=", 1)], "'lines' is not a searchable field of machine 'order'"),
    ([("cents", "~", 1)], "the operator '~' does not fit a field of type int"),
    ([("cents", "prefix", "1")], "'prefix' does not fit a field of type int"),
    ([("paid", "<", True)], "'<' does not fit a field of type bool"),
    ([("color", ">", Color.RED)], "'>' does not fit a field of type Enum"),
    ([("cents", "=", "5")], "'5' is not an int"),
    ([("cents", "=", True)], "True is not an int"),
    ([("cents", "=", 1.0)], "1.0 is not an int"),
    ([("cents", "=", 2**63)], "is not an int of at most 64 bits"),
    ([("paid", "=", 1)], "1 is not True or False"),
    ([("ratio", "=", float("nan"))], "nan is not a finite float"),
    ([("ratio", "=", "1")], "'1' is not a finite float"),
    ([("ratio", "=", 10**400)], "is not a finite float"),
    ([("level", "=", True)], "True is not a member of Level"),
    ([("level", "in", [1.0])], "1.0 is not a member of Level"),
    ([("price", "=", 0.1)], "0.1 is not an int or a finite Decimal"),
    ([("price", "=", Decimal("NaN"))], "is not an int or a finite Decimal"),
    ([("price", "=", Decimal("1E+10000"))], "exponent of at most four digits"),
    ([("day", "=", datetime(2026, 1, 1, tzinfo=UTC))], "is not a date"),
    ([("renews_at", "=", datetime(2026, 1, 1))], "is not an aware datetime"),  # noqa: DTZ001 -- what is wrong.
    ([("renews_at", "=", "2026-01-01")], "is not an aware datetime"),
    ([("ref", "=", "x")], "'x' is not a UUID"),
    ([("color", "=", "green")], "'green' is not a member of Color: 'red', 'blue'"),
    ([("color", "=", State.OPEN)], "is not a member of Color"),
    ([("customer", "=", Color.RED)], "is not a str"),
    ([("customer", "=", "x" * TEXT_MAX)], "is not a str of less than 500 characters"),
    ([("customer", "=", "a\0")], "without NUL"),
    ([("customer", "=", "\ud800")], "without NUL and lone surrogates"),
    ([("cents", "<", None)], "None has no order"),
    ([("cents", "in", 5)], "5 is not a list of values"),
    ([("customer", "in", "ada")], "'ada' is not a list of values"),
    ([("cents", "in", [])], "is not a list of values, with at least one"),
    ([("cents", "in", list(range(IN_MAX + 1)))], "`in` has 101 values; at most 100"),
    ([("cents", "in", ["5"])], "'5' is not an int"),
]


@pytest.mark.parametrize(("where", "match"), WRONG)
def test_a_condition_that_does_not_fit_is_refused(where: object, match: str) -> None:
    with pytest.raises(InvalidPayload, match=match) as refused:
        asked(where=where)
    assert refused.value.why
    assert refused.value.fix


@pytest.mark.parametrize(
    ("changes", "match"),
    [
        ({"order": "custmer"}, r"order='custmer' is not an order of machine 'order'.*customer"),
        ({"order": 5}, "order=5 is not an order"),
        ({"order": ""}, "order='' is not an order"),
        ({"updated_after": datetime(2026, 1, 1)}, "updated_after=.* is not an aware datetime"),  # noqa: DTZ001
        ({"updated_before": "2026-01-01"}, "updated_before='2026-01-01' is not an aware datetime"),
    ],
)
def test_an_order_or_a_time_that_does_not_fit_is_refused(changes: dict[str, Any], match: str) -> None:
    with pytest.raises(InvalidPayload, match=match):
        asked(**changes)


def test_a_machine_without_search_says_how_to_declare_it() -> None:
    with pytest.raises(InvalidPayload, match="not searchable") as refused:
        search_of(
            machine(None).search,
            where=(),
            updated_after=None,
            updated_before=None,
            order="-updated_at",
            states=(),
            limit=1,
            cursor=None,
        )
    assert "search=()" in refused.value.fix


@pytest.mark.parametrize(
    ("text", "condition"),
    [
        ("customer=ada", ("customer", "=", "ada")),
        (" customer = ada lovelace ", ("customer", "=", "ada lovelace")),
        ("customer=a=b", ("customer", "=", "a=b")),
        ('customer="null"', ("customer", "=", "null")),
        ('customer="a', ("customer", "=", '"a')),
        ("customer=", ("customer", "=", "")),
        ("customer prefix ad", ("customer", "prefix", "ad")),
        ("cents>100", ("cents", ">", 100)),
        ("cents>=-1", ("cents", ">=", -1)),
        ("cents!=x", ("cents", "!=", "x")),
        ("cents in 1, 2", ("cents", "in", [1, 2])),
        ('customer in ["a,b", "c"]', ("customer", "in", ["a,b", "c"])),
        ("customer in [a", ("customer", "in", ["[a"])),
        ("cents in null", ("cents", "in", ["null"])),
        ('cents="5"', ("cents", "=", "5")),
        ('cents in ["5", 6]', ("cents", "in", ["5", 6])),
        ("price=[1.50]", ("price", "=", "[1.50]")),
        ("price<1.50", ("price", "<", Decimal("1.50"))),
        ("price in [1.5]", ("price", "in", [Decimal("1.5")])),
        ("ratio=0.1", ("ratio", "=", 0.1)),
        ("paid=true", ("paid", "=", True)),
        ("paid=yes", ("paid", "=", "yes")),
        ("day=null", ("day", "=", None)),
        ("day=2026-01-02", ("day", "=", date(2026, 1, 2))),
        ("renews_at<2026-01-02T00:00:00Z", ("renews_at", "<", datetime(2026, 1, 2, tzinfo=UTC))),
        ("ref=00000000-0000-0000-0000-000000000001", ("ref", "=", str(UUID(int=1)))),
        ("color=blue", ("color", "=", "blue")),
        ("level=1", ("level", "=", 1)),
    ],
)
def test_a_condition_is_written_as_text_with_values_of_the_fields_types(text: str, condition: object) -> None:
    assert where_of("order", FIELDS, [text]) == [condition]


def test_what_is_sent_as_text_comes_back_as_it_was() -> None:
    at = datetime(2026, 1, 2, 3, 4, 5, 6, tzinfo=UTC)
    where: list[tuple[str, str, object]] = [
        ("customer", "=", 'a "b" >= c'),
        ("customer", "in", ["null", "x,y"]),
        ("cents", ">", -5),
        ("price", "=", Decimal("1E+5")),
        ("ratio", "=", 0.1),
        ("renews_at", "=", at),
        ("day", "=", None),
        ("color", "=", Color.BLUE),
        ("paid", "=", True),
        ("ref", "in", [UUID(int=3)]),
    ]
    texts = [condition_text(each) for each in where]
    again = where_of("order", FIELDS, texts)
    assert asked(where=again).conditions == asked(where=where).conditions
    with pytest.raises(InvalidPayload, match="cannot be sent"):
        condition_text(("customer", "=", object()))
    for value in (float("nan"), float("inf"), "\ud800"):
        with pytest.raises(InvalidPayload, match="cannot be sent"):
            condition_text(("ratio", "=", value))


@pytest.mark.parametrize(
    "condition",
    [
        ("customer != zzz", "=", "bob"),
        ("customer", "!= zzz", "bob"),
        ("customer", "in x", 5),
        ("customer", "="),
        5,
        ("", "=", 1),
    ],
)
def test_no_name_and_no_operator_becomes_another_condition_as_text(condition: object) -> None:
    with pytest.raises(InvalidPayload, match="is not a"):
        condition_text(condition)


def test_a_text_that_is_no_condition_is_refused() -> None:
    for text in ("customer", "", "=5", "customer ~ 5"):
        with pytest.raises(InvalidPayload, match="is not a condition"):
            split_condition(text)
    with pytest.raises(InvalidPayload, match="'nope' is not a searchable field"):
        where_of("order", FIELDS, ["nope=5"])
    assert where_of("order", None, ["nope=5"]) == [("nope", "=", "5")]
