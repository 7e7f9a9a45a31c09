"""Case and classes of characters as PostgreSQL's builtin locale C.UTF-8 has them.

That locale maps each character alone, by Unicode's simple mappings, so it is the same on every machine. The mappings
and classes of PostgreSQL 18 are in `letters.json`, written and compared by the conformance tests: Python's own tables
follow another version of Unicode, and its mappings may give several characters.
"""

import unicodedata
from bisect import bisect_right
from collections.abc import Iterable
from functools import cache
from importlib.resources import files
from typing import Final, Literal

import msgspec

CLASSES: Final = frozenset({"alnum", "alpha", "blank", "digit", "lower", "punct", "space", "upper", "word", "xdigit"})
_WIDER: Final[dict[str, tuple[str, str]]] = {"alnum": ("alpha", "0123456789"), "word": ("alpha", "0123456789_")}
_LISTED: Final = {"blank": " \t", "digit": "0123456789", "xdigit": "0123456789abcdefABCDEF"}


class _Table(msgspec.Struct):
    """Mappings as first character, last, distance between two of them, and difference; classes as first and last."""

    mappings: dict[str, list[tuple[int, int, int, int]]]
    classes: dict[str, list[tuple[int, int]]]


@cache
def _table() -> _Table:
    return msgspec.json.decode(files("interlock.sql").joinpath("letters.json").read_bytes(), type=_Table)


@cache
def _mapping(name: Literal["lower", "upper"]) -> dict[int, int]:
    return {
        code: code + difference
        for first, last, step, difference in _table().mappings[name]
        for code in range(first, last + 1, step)
    }


def lower(text: str) -> str:
    """Return the text in small letters."""
    return text.lower() if text.isascii() else text.translate(_mapping("lower"))


def upper(text: str) -> str:
    """Return the text in capital letters."""
    return text.upper() if text.isascii() else text.translate(_mapping("upper"))


_FOLDED: Final = {"\u0130": "\u0130", "\u1fd3": "\u0390", "\u1fe3": "\u03b0", "\ufb05": "\ufb06"}
"""Letters whose folding Python writes as several letters, or does not know yet."""


def fold(text: str) -> str:
    """Return the text for comparisons without regard to case: each letter by its simple folding."""
    return text.lower() if text.isascii() else "".join(_FOLDED.get(each) or _folded(each) for each in text)


def _folded(letter: str) -> str:
    folded = letter.casefold()
    # What Python does not know is folded to its small letter, and so is what it folds to several.
    return lower(letter) if len(folded) > 1 or unicodedata.category(letter) == "Cn" else folded


def initcap(text: str) -> str:
    """Return the text with a capital letter at the beginning of each word; a word is letters and digits."""
    small, large = lower(text), upper(text)
    words = [in_class("alnum", letter) for letter in text]
    inside = [False, *words]
    return "".join(
        large[place] if is_word != before else small[place]
        for place, (before, is_word) in enumerate(zip(inside, words, strict=False))
    )


def in_class(name: str, letter: str) -> bool:
    """Return whether a character belongs to a class of regular expressions."""
    if name in _LISTED:
        return letter in _LISTED[name]
    if name in _WIDER:
        wider, more = _WIDER[name]
        return letter in more or in_class(wider, letter)
    ranges = _table().classes[name]
    place = bisect_right(ranges, (ord(letter), 0x110000)) - 1
    return place >= 0 and ord(letter) <= ranges[place][1]


def cases(letter: str) -> frozenset[str]:
    """Return the characters that a character of a pattern stands for without regard to case."""
    return frozenset({lower(letter), upper(letter)})


def cases_of_range(low: str, high: str) -> Iterable[str]:
    """Return the other cases of the characters in a range."""
    for mapping in (_mapping("lower"), _mapping("upper")):
        for code, other in mapping.items():
            if ord(low) <= code <= ord(high):
                yield chr(other)
