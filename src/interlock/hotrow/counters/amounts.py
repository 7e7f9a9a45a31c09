"""What may be added to a counter, and numbers as the two engines give them back."""

from decimal import Decimal
from typing import Final

AMOUNT_MAX: Final = 2**63 - 1


def refuse_amount(amount: object) -> None:
    """Raise ValueError for what cannot be added."""
    if isinstance(amount, int) and not isinstance(amount, bool) and 1 <= amount <= AMOUNT_MAX:
        return
    raise ValueError(
        f"{amount!r} cannot be added to a counter; a whole number from 1 to {AMOUNT_MAX} can.\n"
        "  why: A counter only grows: what goes up and down, and may not fall below zero, is a stock.\n"
        "  fix: Add 1 or more; for what is taken and given back use db.stock(name)."
    )


def whole(stored: object) -> int:
    """A number of the database as an int: a sum of bigint is a numeric."""
    assert isinstance(stored, int | Decimal)
    return int(stored)
