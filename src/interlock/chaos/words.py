"""Counts in words, for the clauses that say what happened.

One of something is not `1 times`: a verdict is read by people, and a sentence that stumbles is not believed.
"""


def times(count: int) -> str:
    """`once`, `2 times`."""
    return "once" if count == 1 else f"{count:,} times"


def counted(count: int, noun: str) -> str:
    """`1 refund`, `2 refunds`."""
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"
