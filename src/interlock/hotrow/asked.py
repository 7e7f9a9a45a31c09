"""Argument checks of stock, balances, quotas and parents: names, amounts, seconds and idempotency keys.

Amounts are whole numbers that a `bigint` holds. A wrong one is a ValueError before anything is sent. Keys of callers
become keys of the database below the kind and the name of what they are used on, so that "order-7" may take from one
stock and withdraw from a balance.
"""

import hashlib

from interlock.errors import InvalidPayload

AMOUNT_MAX = 2**63 - 1
"""The largest `bigint`."""

NAME_CHARACTERS_MAX = 500
KEY_CHARACTERS_MAX = 500
"""The database's limit; a longer key is replaced by its digest."""

_SURROGATES = ("\ud800", "\udfff")


def checked_name(kind: str, name: object) -> str:
    """Return the name. Raises InvalidPayload."""
    if not isinstance(name, str):
        wrong = f"a {kind} was asked for by a {type(name).__name__}"
    elif not 0 < len(name) <= NAME_CHARACTERS_MAX:
        wrong = f"the name of a {kind} has {len(name):,} characters"
    elif "\x00" in name or any(_SURROGATES[0] <= character <= _SURROGATES[1] for character in name):
        wrong = f"the name {name!a} of a {kind} holds NUL or half of a surrogate pair"
    else:
        return name
    raise InvalidPayload(
        f"{wrong}; it must be a text of 1 to {NAME_CHARACTERS_MAX} characters that UTF-8 can write.",
        why="The name is the primary key of its row.",
        fix=f'Name it by what it counts: db.{kind}("sku-1").',
    )


def checked_amount(call: str, amount: object, least: int = 1) -> int:
    """Return the amount. Raises ValueError unless it is a whole number from `least` that fits into a bigint."""
    if isinstance(amount, bool) or not isinstance(amount, int) or not least <= amount <= AMOUNT_MAX:
        raise ValueError(
            f"{call} was given {amount!r}; it takes a whole number from {least} to {AMOUNT_MAX}. Nothing was changed.\n"
            "  why: Units, cents and calls are counted exactly, in a column of 64 bits; there is no half of one.\n"
            "  fix: Count in the smallest unit there is, and check what comes from outside before it gets here."
        )
    return amount


def checked_seconds(call: str, seconds: object, longest_s: float) -> float:
    """Return the seconds. Raises ValueError unless they are more than 0 and at most `longest_s`."""
    if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not 0 < seconds <= longest_s:
        raise ValueError(
            f"{call} was given {seconds!r}; it takes more than 0 and at most {longest_s:,.0f} seconds.\n"
            "  why: A reservation must expire, and a window must end.\n"
            "  fix: Pass seconds as a number."
        )
    return float(seconds)


def key_of(kind: str, name: str, key: str | None, part: str = "") -> str | None:
    """Return the database's key for a caller's key; `part` distinguishes the statements of one call."""
    if key is None:
        return None
    if not isinstance(key, str) or not key:
        raise InvalidPayload(
            f"the idempotency key of a {kind} is {key!r}; it must be a text that is not empty.",
            why="The key is stored with the change and found again by its text.",
            fix='Pass a text that names the call, the same at every attempt: key=f"order-{order_id}".',
        )
    # Written so that no two pairs of name and key read the same.
    escaped = name.replace("%", "%25").replace(":", "%3A")
    whole = f"{kind}{part}:{escaped}:{key}"
    if len(whole) <= KEY_CHARACTERS_MAX:
        return whole
    return f"{kind}{part}:sha256:{hashlib.sha256(whole.encode('utf-8', 'surrogatepass')).hexdigest()}"
