"""Amounts of counters: the check of an argument, and numbers as the two engines return them."""

from decimal import Decimal
from typing import Final

AMOUNT_MAX: Final = 2**63 - 1


def refuse_amount(amount: object) -> None:
    """Raise ValueError for an amount that is not a whole number, is 0, or is more than a `bigint` holds."""
    if isinstance(amount, int) and not isinstance(amount, bool) and amount and abs(amount) <= AMOUNT_MAX:
        return
    raise ValueError(
        f"{amount!r} cannot be added to a counter; a whole number from 1 to {AMOUNT_MAX} can, or its negative.\n"
        "  why: A counter is the exact sum of what was added, in a column of 64 bits. Nothing is added by 0.\n"
        "  fix: Add a whole number, and leave the call out when there is nothing to add."
    )


def whole(stored: object) -> int:
    """Return a number of the database as an int: a sum of bigint is a numeric."""
    assert isinstance(stored, int | Decimal)
    return int(stored)
