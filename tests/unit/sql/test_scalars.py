"""The functions behind the statements, on values that matter. The conformance suite has the rest."""

from decimal import Decimal
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from interlock.errors import DialectError, TransactionError
from interlock.sql.functions import decimals
from interlock.sql.functions import numbers as whole_numbers
from interlock.sql.registered_functions import scalar_functions
from interlock.sql.registry import Function
from tests.unit.sql.lane import SOURCES

numbers = st.decimals(min_value=-(10**30), max_value=10**30, allow_nan=False, places=6).map(lambda n: format(n, "f"))


@given(numbers, numbers)
def test_sums_and_products_are_exact(left: str, right: str) -> None:
    assert Fraction(decimals.add(left, right)) == Fraction(left) + Fraction(right)
    assert Fraction(decimals.subtract(left, right)) == Fraction(left) - Fraction(right)
    assert Fraction(decimals.multiply(left, right)) == Fraction(left) * Fraction(right)


@given(numbers, numbers.filter(lambda text: Decimal(text) != 0))
def test_a_quotient_is_the_nearest_of_its_scale(left: str, right: str) -> None:
    quotient = decimals.divide(left, right)
    unit = Fraction(1, 10 ** decimals.scale_of(Decimal(quotient)))
    assert abs(Fraction(quotient) - Fraction(left) / Fraction(right)) * 2 <= unit


@given(st.integers(-(2**63), 2**63 - 1), st.integers(-(2**63), 2**63 - 1).filter(bool))
def test_division_of_whole_numbers_goes_towards_zero(left: int, right: int) -> None:
    if (left, right) == (-(2**63), -1):
        with pytest.raises(TransactionError):
            whole_numbers.divide(left, right)
        return
    assert whole_numbers.divide(left, right) == int(Fraction(left, right))
    assert whole_numbers.divide(left, right) * right + whole_numbers.modulo(left, right) == left


def test_functions_give_null_for_null() -> None:
    # These make something of it: no bound, an array of one element, a text that leaves it out.
    bounds = {f"interlock_{name}" for name in ("limit", "offset", "array_append", "array_prepend", "array_fill")}
    bounds |= {"interlock_quote_nullable", "interlock_rows_jsonb_record"}
    # And a sequence always has a name, a key a value, a place a number.
    bounds |= {"interlock_currval", "interlock_explicit_key", "interlock_place"}
    strict = [
        function for function in scalar_functions(SOURCES) if function.arguments > 0 and function.name not in bounds
    ]
    assert strict
    assert all(nothing(function) for function in strict)


def nothing(function: Function) -> bool:
    return function.call(*[None] * function.arguments) is None


def test_what_depends_on_luck_is_not_deterministic() -> None:
    wavering = {function.name for function in scalar_functions(SOURCES) if not function.deterministic}
    counting = {"interlock_begin_upsert", "interlock_propose"}
    sequences = {f"interlock_{name}" for name in ("nextval", "setval", "currval", "lastval", "explicit_key")}
    assert (
        wavering == {"interlock_now", "interlock_random", "interlock_uuid", "interlock_uuid_7"} | counting | sequences
    )


def test_a_logarithm_whose_last_digit_is_in_doubt_is_refused() -> None:
    with pytest.raises(DialectError, match="last digit is in doubt"):
        decimals.exponential("0.00000001")
    with pytest.raises(DialectError, match="2000 digits"):
        decimals.exponential("-9000")
    assert decimals.power("0.0", "0.5") == "0.0000000000000000"
    assert decimals.logarithm("1.0") == "0.0000000000000000"
