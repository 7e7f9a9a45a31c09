"""Functions on text as PostgreSQL has them, counted in characters.

Each takes stored values and gives a stored value. None of them sees NULL but `concat` and its kin, which leave it out.
"""

import hashlib
import math
import re
from collections.abc import Callable, Sequence
from decimal import Context, Decimal, localcontext
from functools import lru_cache
from typing import Final, NamedTuple

from interlock.errors import TransactionError
from interlock.sql.types import refuse
from interlock.sql.values import StoredValue

TEXT_LENGTH_MAX: Final = 10_000_000
_FIXED_DIGITS: Final = 15  # PostgreSQL writes a float with an exponent from here on.
_FIXED_ZEROS: Final = -4
_DIGITS_MAX: Final = 17
_EXACT: Final = Context(prec=1200)  # The middle of two floats has no more digits than that.
_INT4_MIN: Final = -(2**31)


def position(text: str, sought: str) -> int:
    """Return the position of one text in the other, counted from one; zero if absent."""
    return text.find(sought) + 1


def substring(text: str, start: int, length: int | None = None) -> str:
    """Return the characters from a position on; positions before the first count towards the length, and are empty."""
    if length is None:
        return text[max(start - 1, 0) :]
    if length < 0:
        raise TransactionError(f"negative substring length {length}.", fix="Pass zero or more.")
    end = start + length - 1
    return text[max(start - 1, 0) : end] if end > 0 else ""


def left(text: str, count: int) -> str:
    """The first characters, or all but the last ones."""
    return text[:count]


def right(text: str, count: int) -> str:
    """The last characters, or all but the first ones."""
    if count < 0:
        return text[-count:] if count > _INT4_MIN else text  # PostgreSQL's minus overflows there.
    return text[max(len(text) - count, 0) :]


def trim(text: str, letters: str = " ") -> str:
    """The text without those characters at either end."""
    return text.strip(letters) if letters else text


def trim_left(text: str, letters: str = " ") -> str:
    """The text without those characters at its beginning."""
    return text.lstrip(letters) if letters else text


def trim_right(text: str, letters: str = " ") -> str:
    """The text without those characters at its end."""
    return text.rstrip(letters) if letters else text


def replace(text: str, old: str, new: str) -> str:
    """The text with each occurrence of the one replaced by the other."""
    return _bounded(len(text) + text.count(old) * len(new), lambda: text.replace(old, new)) if old else text


def repeat(text: str, count: int) -> str:
    """Return the text repeated."""
    return _bounded(len(text) * max(count, 0), lambda: text * max(count, 0))


def _bounded(length: int, build: Callable[[], str]) -> str:
    if length > TEXT_LENGTH_MAX:
        raise TransactionError(f"a text of {length:,} characters; the limit is {TEXT_LENGTH_MAX:,}.", fix="Use less.")
    return build()


def pad_left(text: str, length: int, fill: str = " ") -> str:
    """The text filled up at its beginning, or cut off, to that length."""
    return _filling(text, length, fill) + text[: max(length, 0)]


def pad_right(text: str, length: int, fill: str = " ") -> str:
    """The text filled up at its end, or cut off, to that length."""
    return text[: max(length, 0)] + _filling(text, length, fill)


def _filling(text: str, length: int, fill: str) -> str:
    missing = length - len(text)
    return _bounded(missing, lambda: (fill * (missing // len(fill) + 1))[:missing]) if missing > 0 and fill else ""


def reverse(text: str) -> str:
    """The characters in the other order."""
    return text[::-1]


def split_part(text: str, delimiter: str, place: int) -> str:
    """The part at that place between two delimiters; a negative place counts from the end."""
    if place == 0:
        raise TransactionError("split_part() of field 0.", fix="Fields are counted from 1, or from -1 at the end.")
    parts = text.split(delimiter) if delimiter else [text]
    if not text or abs(place) > len(parts):
        return ""
    return parts[place - 1 if place > 0 else place]


def starts_with(text: str, prefix: str) -> int:
    """Return whether the text begins with the prefix."""
    return text.startswith(prefix)


def octet_length(value: str | bytes) -> int:
    """Return the number of bytes."""
    return len(value.encode() if isinstance(value, str) else value)


def md5(text: str) -> str:
    """The digest in hexadecimal digits."""
    return hashlib.md5(text.encode(), usedforsecurity=False).hexdigest()


def concat(*texts: StoredValue) -> str:
    """The texts one after the other; NULL is nothing."""
    return "".join(_given(texts))


def concat_ws(separator: StoredValue, *texts: StoredValue) -> str | None:
    """The texts with a separator between each two; NULL is left out."""
    return separator.join(_given(texts)) if isinstance(separator, str) else None


def _given(texts: Sequence[StoredValue]) -> list[str]:
    return [text for text in texts if isinstance(text, str)]


def from_bytes(value: bytes) -> str:
    """Bytes as PostgreSQL writes them."""
    return f"\\x{value.hex()}"


def from_float(value: float) -> str:
    """A float as PostgreSQL writes it: the fewest digits that tell it from its neighbours."""
    sign, digits, exponent = _shortest(value).normalize().as_tuple()
    assert isinstance(exponent, int)
    written = "".join(map(str, digits))
    first = len(written) + exponent - 1
    if value == 0 or _FIXED_ZEROS <= first < _FIXED_DIGITS:
        return f"{Decimal((sign if value else 0, digits, exponent)):f}"
    fraction = f".{written[1:]}" if len(written) > 1 else ""
    return f"{'-' if sign else ''}{written[0]}{fraction}e{'-' if first < 0 else '+'}{abs(first):02}"


def _shortest(value: float) -> Decimal:
    """The fewest digits that are nearer to the value than to its neighbours.

    Python also takes those right in the middle, which read as the even one of both; PostgreSQL does not rely on that.
    """
    written = Decimal(repr(value))
    with localcontext(_EXACT):
        exact = Decimal(value)
        middles = {(exact + Decimal(math.nextafter(value, end))) / 2 for end in (-math.inf, math.inf)}
        digits = len(written.as_tuple().digits)
        while written in middles and digits < _DIGITS_MAX:
            digits += 1
            written = Decimal(f"{value:.{digits - 1}e}")
    return written


# --- LIKE patterns ---------------------------------------------------------------------------------------------------
# A pattern becomes a regular expression in which each piece between two % is taken at its first occurrence and never
# tried again, so that no pattern takes long. The odd case is a pattern that ends with a lone escape character: it
# matches nothing, and PostgreSQL raises only when it gets there with text left, so that is what happens here.

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
