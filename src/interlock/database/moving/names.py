"""The names that PostgreSQL gives to constraints without one.

A lane leaves them without; a shape has them always, because on PostgreSQL they are part of what users see. They follow
the rules of PostgreSQL's own `makeObjectName`: table, columns and a word for the kind, cut to what a name may have.
"""

from collections.abc import Collection, Sequence
from typing import Final

BYTES_MAX: Final = 63


def chosen(table: str, columns: Sequence[str], kind: str, taken: Collection[str] = ()) -> str:
    """The name that PostgreSQL would choose; a number behind it tells apart those that are `taken`."""
    number = 0
    while True:
        name = _made(table, "_".join(columns), f"{kind}{number or ''}")
        if name not in taken:
            return name
        number += 1


def _made(table: str, columns: str, kind: str) -> str:
    first, second = table.encode(), columns.encode()
    over = len(kind) + 1 + (len(second) + 1 if second else 0) + len(first) - BYTES_MAX
    while over > 0:
        # The longer one is cut, letter by letter, as PostgreSQL does.
        if len(first) > len(second):
            first = first[:-1]
        else:
            second = second[:-1]
        over -= 1
    parts = [first.decode(errors="ignore"), second.decode(errors="ignore"), kind]
    return "_".join(part for part in parts if part)
