"""Counts in words for verdicts, with singular and plural."""


def times(count: int) -> str:
    """Return `once`, `2 times`."""
    return "once" if count == 1 else f"{count:,} times"


def counted(count: int, noun: str) -> str:
    """Return `1 refund`, `2 refunds`."""
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"
