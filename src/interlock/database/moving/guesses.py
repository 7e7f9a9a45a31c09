"""Guesses of PostgreSQL's text from SQLite's catalog, for lanes without stored definitions.

A constant is read and written again; a few functions and collations are given their names back. These are guesses, and
one counts only if it is translated to the very text that it was made from.
"""

import ast
import re
from collections.abc import Iterator
from typing import Final

from interlock.database.moving.values import text_of
from interlock.sql.datatypes import Type

_RENAMED: Final = (
    (re.compile(r" COLLATE interlock_numeric\b"), ""),
    (re.compile(r"\binterlock_int[248]\("), "("),
    (re.compile(r"\binterlock_now\(\)"), "now()"),
    (re.compile(r"\binterlock_uuid\(\)"), "gen_random_uuid()"),
    (re.compile(r"\binterlock_jsonb_member_text\(([^,()]+), ([^,()]+)\)"), r"(\1 ->> \2)"),
    (re.compile(r"\binterlock_jsonb_member\(([^,()]+), ([^,()]+)\)"), r"(\1 -> \2)"),
    (re.compile(r"\binterlock_like\((.+), ('(?:[^']|'')*'), '\\'\)"), r"(\1 LIKE \2)"),
    (re.compile(r"\binterlock_([a-z]+)\("), r"\1("),
)
_NUMBER: Final = re.compile(r"'(-?\d+(?:\.\d+)?)'")
_CONSTANT: Final = re.compile(r"-?\d[\d.e+-]*|[xX]?'(?:[^']|'')*'")


def guessed_default(kind: Type, stored: str) -> Iterator[str]:
    """Yield possible texts of a default."""
    if _CONSTANT.fullmatch(stored):
        value = _constant(stored)
        if not kind.is_integer and not (kind.name == "float8" and isinstance(value, int)):
            yield _literal(text_of(kind)(value))
        else:
            yield str(value)
    yield from guessed_condition(stored)


def guessed_condition(stored: str) -> Iterator[str]:
    """Yield possible texts of a check or of the condition of an index."""
    yield stored
    for pattern, replacement in _RENAMED:
        stored = pattern.sub(replacement, stored)
    yield stored
    # A number that is compared with a numeric is a text in SQLite.
    yield _NUMBER.sub(r"\1", stored)


def _constant(stored: str) -> int | float | str | bytes:
    if stored[0] in "xX":
        return bytes.fromhex(stored[2:-1])
    if stored[0] == "'":
        return stored[1:-1].replace("''", "'")
    number: int | float = ast.literal_eval(stored)
    return number


def _literal(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"
