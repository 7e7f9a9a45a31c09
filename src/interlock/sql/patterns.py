"""LIKE patterns: % is any text, _ is any character, other characters match themselves, with their case.

A pattern becomes a regular expression in which each piece between two % is taken at its first occurrence and never
tried again, so that no pattern takes long. The odd case is a pattern that ends with a lone escape character: it matches
nothing, and PostgreSQL raises only when it gets there with text left, so that is what happens here.
"""

import re
from functools import lru_cache
from typing import Final, NamedTuple

from interlock.errors import TransactionError
from interlock.sql.refusal import refuse

PATTERNS_MAX: Final = 256


class _Pattern(NamedTuple):
    regex: re.Pattern[str]
    # Set when the pattern ends with a lone escape: how much text must be left after the match to get there.
    left_min: int | None = None


def like(text: str, pattern: str, escape: str) -> int:
    """Return whether the text is like the pattern."""
    regex, left_min = _pattern(pattern, escape)
    if left_min is None:
        return regex.fullmatch(text) is not None
    begun = regex.match(text)
    if begun is not None and len(text) - begun.end() >= left_min:
        raise TransactionError("a LIKE pattern ends with its escape character.", fix="Double it.")
    return False


def ilike(text: str, pattern: str, escape: str) -> int:
    """The same without regard to case, as far as that does not depend on a locale."""
    if not (text.isascii() and pattern.isascii()):
        raise refuse(
            "ILIKE on text beyond ASCII.",
            why="PostgreSQL's answer depends on the locale of the database.",
            fix="Compare in Python, or use LIKE.",
        )
    return like(text.lower(), pattern.lower(), escape.lower())


@lru_cache(maxsize=PATTERNS_MAX)
def _pattern(pattern: str, escape: str) -> _Pattern:
    segments: list[list[str]] = [[]]
    letters = iter(pattern)
    for letter in letters:
        if letter == escape:
            following = next(letters, None)
            if following is None:
                return _unfinished(segments)
            segments[-1].append(re.escape(following))
        elif letter == "%":
            segments.append([])
        else:
            segments[-1].append("." if letter == "_" else re.escape(letter))
    first, *rest = map("".join, segments)
    if not rest:
        return _Pattern(re.compile(first, re.DOTALL))
    *middle, last = rest
    return _Pattern(re.compile(f"{first}{_skipping(middle)}.*{last}", re.DOTALL))


def _skipping(segments: list[str]) -> str:
    return "".join(f"(?>.*?{segment})" for segment in segments if segment)


def _unfinished(segments: list[list[str]]) -> _Pattern:
    # After a %, the escape is evaluated as soon as there is any text, and enough of it for each _ between the two.
    skipped = 0
    after_any = False
    while len(segments) > 1 and set(segments[-1]) <= {"."}:
        skipped += len(segments.pop())
        after_any = True
    first, *rest = map("".join, segments)
    left_min = max(1, skipped) if after_any else 1
    return _Pattern(re.compile(first + _skipping(rest), re.DOTALL), left_min)
