"""Names that PostgreSQL gives to unnamed constraints.

A lane allows unnamed constraints. A shape always has names, because on PostgreSQL users see them. They follow the
rules of PostgreSQL's `makeObjectName`: table, columns and a word for the kind, truncated to the limit.
"""

from collections.abc import Collection, Sequence
from typing import Final

BYTES_MAX: Final = 63


def chosen(table: str, columns: Sequence[str], kind: str, taken: Collection[str] = ()) -> str:
    """Return the name that PostgreSQL would choose, with a number appended if it is `taken`."""
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
