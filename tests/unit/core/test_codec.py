"""Contexts and events as bytes and back: typed, bounded, strict where they come from outside."""

# mypy: ignore-errors
# Wrong programs, and values of every type, are what is tested here.

from collections.abc import Callable
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any, ClassVar

import pytest

from interlock.core.codec import CONTEXT_BYTES_MAX, DEPTH_MAX, Codec, _altered, not_storable
from interlock.core.events import Event
from interlock.core.values import StoredJson
from interlock.errors import DefinitionError, InvalidPayload, PayloadTooLarge

NAN, INFINITY = float("nan"), float("inf")
SURROGATE = "\ud800"


@dataclass(frozen=True)
class Item:
    sku: str = ""
    qty: int = 1


@dataclass(frozen=True)
class Cart:
    name: str = ""
    price: float = 0.0
    items: tuple[Item, ...] = ()
    stock: dict[str, Item] = field(default_factory=dict)
    shelves: dict[int, Item] = field(default_factory=dict)
    tree: Any = None
    maybe: Item | None = None


class CartEvent(Event):
    pass


@dataclass(frozen=True)
class AddItem(CartEvent):
    item: Item = Item()
    weight: float = 0.0


@dataclass(frozen=True)
class Picky(CartEvent):
    number: int = 1
    known: ClassVar[int] = 3

    def __post_init__(self) -> None:
        if self.number == 0:
            raise ValueError("number is zero")
        if self.number < 0:
            raise LookupError


CartCodec = Codec[Cart, CartEvent]
EVENTS: dict[str, type[CartEvent]] = {"ADD_ITEM": AddItem, "PICKY": Picky}


def codec(bytes_max: int = CONTEXT_BYTES_MAX) -> CartCodec:
    return Codec("cart", Cart, EVENTS, bytes_max=bytes_max)


def nested(levels: int) -> bytes:
    return b"[" * levels + b"]" * levels


def tree(levels: int) -> list[object]:
    value: list[object] = []
    for _ in range(levels - 1):
        value = [value]
    return value


# --- there and back ------------------------------------------------------------------------------------------------

FULL = Cart("ü \u2028 \U0001f600", 1.5, (Item("a", 2),), {"a": Item()}, {1: Item("b")}, {"x": [None]}, Item())


@pytest.mark.parametrize("context", [Cart(), FULL, Cart(name="null"), Cart(name="\\u0000")])
def test_a_context_comes_back_as_it_was(context: Cart) -> None:
    data = codec().encode_context(context)
    assert codec().decode_context(data) == context
    assert codec().decode_context(data, strict=True) == context
    assert codec().checked_context(context) == data


def test_an_event_comes_back_as_it_was() -> None:
    event = AddItem(Item("a", 3), 0.25)
    assert codec().decode_event("ADD_ITEM", codec().encode_event(event)) == event


def test_an_empty_payload_is_an_event_of_defaults() -> None:
    assert codec().decode_event("ADD_ITEM", b"") == AddItem()


def test_schemas_name_the_fields() -> None:
    assert "price" in str(codec().context_schema())
    assert "weight" in str(codec().event_schema("ADD_ITEM"))


# --- what cannot be written ----------------------------------------------------------------------------------------

UNSTORABLE = [
    Cart(price=NAN),
    Cart(price=INFINITY),
    Cart(price=-INFINITY),
    Cart(tree={"deep": [{"x": NAN}]}),
    Cart(tree=(1, NAN)),
    Cart(tree=frozenset({NAN})),
    Cart(name="a\x00b"),
    Cart(stock={"a\x00": Item()}),
    Cart(items=(Item(sku="\x00"),)),
    Cart(name=SURROGATE),
    Cart(stock={SURROGATE: Item()}),
    Cart(tree=object()),
    Cart(tree=tree(100_000)),
]


@pytest.mark.parametrize("context", UNSTORABLE, ids=range(len(UNSTORABLE)))
def test_what_no_store_could_give_back_is_refused(context: Cart) -> None:
    with pytest.raises(InvalidPayload) as caught:
        codec().encode_context(context)
    assert caught.value.what.startswith("cart: the context")


def test_an_event_is_held_to_the_same_rules() -> None:
    for event in (AddItem(weight=NAN), AddItem(Item(sku="\x00")), AddItem(Item(sku=SURROGATE))):
        with pytest.raises(InvalidPayload) as caught:
            codec().encode_event(event)
        assert "the payload of ADD_ITEM" in caught.value.what


def test_none_is_not_nan() -> None:
    assert codec().decode_context(codec().encode_context(Cart(tree=None))).tree is None


# --- what cannot be read -------------------------------------------------------------------------------------------

UNREADABLE = [
    b"",
    b"{",
    b"null",
    b"[]",
    b'{"price": "1"}',
    b'{"price": NaN}',
    b'{"price": 1e999}',
    b'{"name": 5}',
    b'{"name": null}',
    b'{"name": "\\u0000"}',
    b'{"stock": {"\\u0000": {}}}',
    b'{"name": "\x00"}',
    b'{"name": "\\ud800"}',
    b'{"name": "\xff"}',
    b'{"items": [{"qty": 1.5}]}',
    b'{"tree": ' + nested(100_000) + b"}",
    b'{"unknown": ' + nested(100_000) + b"}",
]


@pytest.mark.parametrize("strict", [True, False])
@pytest.mark.parametrize("data", UNREADABLE, ids=range(len(UNREADABLE)))
def test_what_does_not_fit_is_refused(data: bytes, strict: bool) -> None:
    with pytest.raises(InvalidPayload):
        codec().decode_context(data, strict=strict)


@pytest.mark.parametrize("number", [0, -1])
def test_whatever_a_users_own_check_raises_is_a_payload_that_does_not_fit(number: int) -> None:
    with pytest.raises(InvalidPayload) as caught:
        codec().decode_event("PICKY", b'{"number": %d}' % number)
    assert caught.value.__cause__ is not None
    assert ("number is zero" if number == 0 else "LookupError") in caught.value.what


# --- strict --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("data", "path"),
    [
        (b'{"nme": "x"}', "nme"),
        (b'{"items": [{}, {"sku": "a", "color": 1}]}', "items.1.color"),
        (b'{"stock": {"a": {"color": 1}}}', "stock.a.color"),
        (b'{"maybe": {"color": 1}}', "maybe.color"),
    ],
)
def test_an_unknown_field_is_refused_when_strict_and_dropped_when_not(data: bytes, path: str) -> None:
    with pytest.raises(InvalidPayload) as caught:
        codec().decode_context(data, strict=True)
    assert repr(path) in caught.value.what
    assert "name, price" in caught.value.what
    codec().decode_context(data)


def test_events_are_strict_unless_told_otherwise() -> None:
    with pytest.raises(InvalidPayload) as caught:
        codec().decode_event("PICKY", b'{"known": 4}')
    assert "'known'" in caught.value.what
    assert codec().decode_event("PICKY", b'{"known": 4}', strict=False) == Picky()


def test_a_free_form_value_may_have_any_field() -> None:
    data = b'{"tree": {"a": [{"b": 1}]}, "shelves": {"7": {"sku": "x"}}}'
    assert codec().decode_context(data, strict=True).tree == {"a": [{"b": 1}]}


def test_nesting_is_bounded_for_what_comes_from_outside() -> None:
    """G6."""
    fits, too_deep = b'{"tree": ' + nested(DEPTH_MAX) + b"}", b'{"tree": ' + nested(DEPTH_MAX + 1) + b"}"
    codec().decode_context(fits, strict=True)
    with pytest.raises(InvalidPayload) as caught:
        codec().decode_context(too_deep, strict=True)
    assert "deep" in caught.value.what
    codec().checked_context(Cart(tree=tree(DEPTH_MAX)))
    with pytest.raises(InvalidPayload):
        codec().checked_context(Cart(tree=tree(DEPTH_MAX + 1)))


# --- unknown names -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "hint"), [("ADD_ITM", True), ("add_item", False), ("", False), ("X" * 10**6, False)])
def test_an_unknown_event_is_refused_with_the_known_ones(name: str, hint: bool) -> None:
    with pytest.raises(InvalidPayload) as caught:
        codec().decode_event(name, b"{}")
    assert "ADD_ITEM, PICKY" in caught.value.what
    assert ("Did you mean ADD_ITEM" in caught.value.what) is hint
    assert len(caught.value.what) < 300


# --- size (G6) -----------------------------------------------------------------------------------------------------

Use = Callable[[CartCodec, bytes, Cart], object]


@pytest.mark.parametrize(
    "use",
    [
        lambda small, data, cart: small.encode_context(cart),
        lambda small, data, cart: small.checked_context(cart),
        lambda small, data, cart: small.decode_context(data),
        lambda small, data, cart: small.decode_event("ADD_ITEM", data),
    ],
)
def test_what_is_over_the_limit_is_refused_with_its_size(use: Use) -> None:
    cart = Cart(name="x" * 10_000_000)
    data = codec(10**8).encode_context(cart)
    with pytest.raises(PayloadTooLarge) as caught:
        use(codec(), data, cart)
    assert caught.value.size_bytes == len(data)
    assert caught.value.limit_bytes == CONTEXT_BYTES_MAX == 1024 * 1024


def test_the_limit_itself_is_allowed() -> None:
    data = codec().encode_context(Cart())
    assert codec(len(data)).decode_context(data) == Cart()
    assert codec(len(data)).encode_context(Cart()) == data
    with pytest.raises(PayloadTooLarge):
        codec(len(data) - 1).encode_context(Cart())
    with pytest.raises(PayloadTooLarge):
        codec(len(data) - 1).decode_context(data)


# --- the types themselves ------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class WithNumber(Cart):
    number: int = 0


def test_only_the_declared_class_is_a_context() -> None:
    for wrong in ({"name": "x"}, Item(), None):
        with pytest.raises(InvalidPayload) as caught:
            codec().checked_context(wrong)
        assert "the machine declares Cart" in caught.value.what


def test_a_field_that_would_be_lost_is_refused() -> None:
    with pytest.raises(InvalidPayload) as caught:
        codec().checked_context(WithNumber(number=3))
    assert "WithNumber" in caught.value.what
    assert "the machine declares Cart" in caught.value.what


@dataclass(frozen=True)
class Shouting:
    word: str = ""

    def __post_init__(self) -> None:
        object.__setattr__(self, "word", self.word + "!")


@dataclass(frozen=True)
class Loose:
    anything: Any = None


@pytest.mark.parametrize("context", [Shouting("hey"), Loose((1, 2)), Loose({1: 2}), Loose(b"x")])
def test_a_context_that_comes_back_as_another_is_refused(context: object) -> None:
    machine_codec = Codec("loose", type(context), {})
    with pytest.raises(InvalidPayload) as caught:
        machine_codec.checked_context(context)
    assert "comes back as" in caught.value.what


@dataclass(frozen=True, eq=False)
class Unequal:
    n: int = 0


def test_a_context_without_equality_is_taken_as_it_is() -> None:
    assert Codec("unequal", Unequal, {}).checked_context(Unequal(3)) == b'{"n":3}'


def test_a_field_of_the_wrong_type_is_refused_before_it_is_stored() -> None:
    with pytest.raises(InvalidPayload):
        codec().checked_context(Cart(name=5))


@dataclass(frozen=True)
class Unresolvable:
    item: "Nowhere"  # noqa: F821 -- that is the point.


@dataclass(frozen=True)
class Either(CartEvent):
    one: Item | Cart


@pytest.mark.parametrize(
    ("context", "events", "rule"),
    [
        (Unresolvable, {}, "unresolvable-annotation"),
        (Cart, {"EITHER": Either}, "event-not-storable"),
        (complex, {}, "event-not-storable"),
    ],
)
def test_a_type_that_cannot_be_read_back_is_a_mistake_of_the_definition(
    context: type[object], events: dict[str, type[CartEvent]], rule: str
) -> None:
    with pytest.raises(DefinitionError) as caught:
        Codec("cart", context, events, location="shop.py:3")
    assert caught.value.rule == rule
    assert caught.value.location == "shop.py:3"


@pytest.mark.parametrize(
    ("kind", "word"),
    [(Cart, ""), (Unresolvable, ""), (complex, "complex"), (list[complex], "complex"), (Item | Cart, "union")],
)
def test_why_a_type_cannot_be_stored(kind: object, word: str) -> None:
    told = not_storable(kind)
    assert bool(told) is bool(word)
    assert word in told


def test_what_is_stored_can_be_read_back() -> None:
    """G2: an action or a step may have put a text where a number belongs; it is refused before it is written."""
    made = codec()
    assert made.stored_context(Cart()) == (made.encode_context(Cart()), Cart())
    with pytest.raises(InvalidPayload, match="the context does not fit"):
        made.stored_context(Cart(items=17))  # type: ignore[arg-type]
    assert made.decode_event("ADD_ITEM", made.stored_event(AddItem(weight=2.0))) == AddItem(weight=2.0)
    with pytest.raises(InvalidPayload, match="the payload of ADD_ITEM does not fit"):
        made.stored_event(AddItem(weight="heavy"))  # type: ignore[arg-type]


class Tagged(Event):
    pass


@dataclass(frozen=True)
class Labelled(Tagged):
    labels: frozenset[str] = frozenset()
    price: Decimal | None = None
    share: float = 0.0
    parts: tuple[int, ...] = ()
    note: str = ""


LABELLED: Codec[Labelled, Tagged] = Codec("labelled", Labelled, {"LABELLED": Labelled})


@pytest.mark.parametrize(
    "stored",
    [
        b"{}",
        b'{"note":"x"}',
        b'{"labels":["b","a","c"]}',
        b'{"share":5,"price":12}',
        b'{"parts":[1,2],"share":0.5}',
    ],
    ids=str,
)
def test_what_an_earlier_version_stored_is_read_where_nothing_is_lost(stored: bytes) -> None:
    assert isinstance(LABELLED.read_context(stored), Labelled)
    assert isinstance(LABELLED.read_event("LABELLED", stored), Labelled)


@pytest.mark.parametrize(
    ("stored", "place"),
    [
        (b'{"cents":5}', "cents"),
        (b'{"labels":["a","a"]}', "labels"),
        (b'{"share":9007199254740993}', "share"),
        (b'{"price":"1.0","share":true}', "share"),
        (b'{"note":5}', "note"),
    ],
    ids=str,
)
def test_what_the_class_cannot_hold_is_shown_as_it_is_stored(stored: bytes, place: str) -> None:
    for read in (LABELLED.read_context(stored), LABELLED.read_event("LABELLED", stored)):
        assert isinstance(read, StoredJson)
        assert read.text == stored.decode()
        assert place in read.why


def test_an_event_that_the_machine_no_longer_has_is_shown_as_it_is_stored() -> None:
    read = LABELLED.read_event("GONE", b'{"cents":5}')
    assert isinstance(read, StoredJson)
    assert "GONE" in read.why


def test_a_set_that_was_stored_in_another_order_is_not_altered() -> None:
    """The order of a set depends on the process: it must not be taken for a change."""
    assert _altered([2, 1, 3], [1, 2, 3], "") == ""
    assert _altered({"tags": [2, 1]}, {"tags": [1, 4]}, "") == "tags."
