"""Arguments of a keyed call are compared by value: what is equal is the same call, however it is written."""

import datetime
import functools
from collections.abc import Callable
from dataclasses import dataclass, field
from decimal import Decimal, localcontext

import pytest

from interlock.database.call_digest import NESTED_MAX, digest_of
from interlock.errors import InvalidPayload
from interlock.lanes.idempotency_keys import decode_result, encode_result

EAST = datetime.timezone(datetime.timedelta(hours=2))
NOON = datetime.datetime(2026, 3, 1, 12, tzinfo=datetime.UTC)


async def buy(_tx: object, *_args: object) -> None:
    """A function at module level."""


def digest(value: object) -> bytes:
    return digest_of("transact", buy, (value,))


EQUAL = [
    (Decimal("1.0"), Decimal("1.00")),
    (Decimal(100), Decimal("1E+2")),
    (Decimal(0), Decimal("-0.000")),
    (Decimal("-20.50"), Decimal("-20.5")),
    (0.0, -0.0),
    (NOON, NOON.astimezone(EAST)),
]
OTHER = [
    (Decimal(1), Decimal("1.1")),
    (Decimal(1), Decimal(-1)),
    (Decimal(1), Decimal(10)),
    (Decimal(0), Decimal("NaN")),
    (Decimal("Infinity"), Decimal("-Infinity")),
    (Decimal("1." + "0" * 40 + "1"), Decimal("1." + "0" * 40 + "2")),
    (1.0, -1.0),
    (Decimal(1), 1),
    (1, 1.0),
    (NOON, NOON.replace(tzinfo=EAST)),
    (NOON, NOON.replace(tzinfo=None)),
]
WRAPPED: list[Callable[[object], object]] = [
    lambda value: value,
    lambda value: [1, (value,), {"a": value}],
]


@pytest.mark.parametrize("wrap", WRAPPED, ids=["itself", "inside"])
@pytest.mark.parametrize(("one", "two"), EQUAL, ids=str)
def test_equal_values_are_the_same_call(one: object, two: object, wrap: Callable[[object], object]) -> None:
    assert one == two
    assert digest(wrap(one)) == digest(wrap(two))
    bound = [functools.partial(buy, wrap(value)) for value in (one, two)]
    assert digest_of("transact", bound[0], ()) == digest_of("transact", bound[1], ())


@pytest.mark.parametrize("wrap", WRAPPED, ids=["itself", "inside"])
@pytest.mark.parametrize(("one", "two"), OTHER, ids=str)
def test_other_values_and_types_are_another_call(one: object, two: object, wrap: Callable[[object], object]) -> None:
    assert digest(wrap(one)) != digest(wrap(two))


def test_the_precision_of_the_context_does_not_count() -> None:
    long = Decimal("1.23456789012345678901234567890123456789")
    before = digest(long)
    with localcontext() as context:
        context.prec = 3
        assert digest(long) == before


@pytest.mark.parametrize("year", [1, 9999])
def test_an_instant_at_the_end_of_time_is_itself(year: int) -> None:
    """In UTC it would be in a year that there is not."""
    zone = datetime.timezone(datetime.timedelta(hours=14 if year == 1 else -14))
    edge = datetime.datetime(year, 1 if year == 1 else 12, 1 if year == 1 else 31, 12, tzinfo=zone)
    assert digest(edge) == digest(edge)


@pytest.mark.parametrize("value", [Decimal("1.00"), Decimal("1E+2"), -0.0, NOON.astimezone(EAST)], ids=str)
def test_a_result_comes_back_as_it_was(value: object) -> None:
    assert repr(decode_result(encode_result(value))).replace("UTC+02:00", "") == repr(value).replace("UTC+02:00", "")


@dataclass(frozen=True)
class Node:
    """A frozen dataclass that can hold anything."""

    held: object = None
    unset: int = field(init=False, repr=False)

    def complete(self) -> "Node":
        object.__setattr__(self, "unset", 1)
        return self


def test_a_frozen_dataclass_with_a_field_that_was_never_set_is_told() -> None:
    with pytest.raises(InvalidPayload, match=r"Node .* has a field that was never set .*unset") as caught:
        _ = digest_of("transact", functools.partial(buy, Node()), ())
    assert "Set all of its fields" in caught.value.fix
    complete = functools.partial(buy, Node().complete())
    assert digest_of("transact", complete, ()) == digest_of("transact", complete, ())


def test_what_holds_itself_is_told() -> None:
    ring = Node().complete()
    object.__setattr__(ring, "held", ring)
    knot = functools.partial(buy)
    knot.__setstate__((buy, (knot,), {}, {}))  # type: ignore[attr-defined]  # Unpickling does the same.
    for function in (functools.partial(buy, ring), knot):
        with pytest.raises(InvalidPayload, match="or holds itself"):
            _ = digest_of("transact", function, ())


def test_deep_values_are_compared_up_to_a_limit() -> None:
    deep = Node().complete()
    for _ in range(NESTED_MAX - 2):
        deep = Node(deep).complete()
    assert digest_of("transact", functools.partial(buy, deep), ())
    with pytest.raises(InvalidPayload, match="nested deeper than 50 levels"):
        _ = digest_of("transact", functools.partial(buy, Node(deep).complete()), ())
