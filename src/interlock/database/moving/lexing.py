"""Lexer for definitions in PostgreSQL's text and in SQLite's catalog.

Both are read the same way: names, texts, words and signs, of which parentheses and commas at the outermost level
matter and everything else is kept unchanged. Results are proposals: the reader of a shape translates them again and
compares.
"""

import re
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

_WORDS: Final = re.compile(
    r"""(?P<space>\s+|--[^\n]*|/\*.*?\*/)
      | (?P<name>"(?:[^"]|"")*")
      | (?P<text>[xX]?'(?:[^']|'')*')
      | (?P<number>\d[\w.]*)
      | (?P<word>[^\W\d][\w$]*)
      | (?P<sign>.)""",
    re.VERBOSE | re.DOTALL,
)


class Word(NamedTuple):
    """One word: its kind, its text and its position."""

    kind: str
    text: str
    begin: int
    end: int

    @property
    def name(self) -> str | None:
        """Return the identifier as PostgreSQL reads it; None if it cannot be one."""
        if self.kind == "name":
            return self.text[1:-1].replace('""', '"')
        return self.text.lower() if self.kind == "word" else None

    def says(self, *words: str) -> bool:
        """Return whether it is one of these key words or signs."""
        return self.kind != "name" and self.text.upper() in words


def words_of(text: str) -> list[Word]:
    """Return the words of a text without spaces and comments."""
    return [
        Word(found.lastgroup or "", found.group(), found.start(), found.end())
        for found in _WORDS.finditer(text)
        if found.lastgroup != "space"
    ]


def source(words: Sequence[Word]) -> str:
    """Return the original text of the words, without comments."""
    if not words:
        return ""
    parts: list[str] = []
    end = words[0].begin
    for word in words:
        parts.append(" " if word.begin > end else "")
        parts.append(word.text)
        end = word.end
    return "".join(parts).strip()


def inside(words: Sequence[Word], begin: int) -> int:
    """Return the index of the parenthesis that closes the one at `begin`."""
    depth = 0
    for place in range(begin, len(words)):
        if words[place].says("("):
            depth += 1
        elif words[place].says(")"):
            depth -= 1
            if depth == 0:
                return place
    return len(words)


def parted(words: Sequence[Word]) -> Iterator[list[Word]]:
    """Yield the words between the commas of the outermost level."""
    part: list[Word] = []
    depth = 0
    for word in words:
        depth += word.says("(", "[") - word.says(")", "]")
        if depth == 0 and word.says(","):
            yield part
            part = []
        else:
            part.append(word)
    if part:
        yield part


def find(words: Sequence[Word], *wanted: str, begin: int = 0) -> int | None:
    """Return the first index of one of these key words at the outermost level."""
    depth = 0
    for place in range(begin, len(words)):
        word = words[place]
        if depth == 0 and word.says(*wanted):
            return place
        depth += word.says("(", "[") - word.says(")", "]")
    return None


def names_of(words: Sequence[Word]) -> tuple[str, ...]:
    """Return the names in a list of columns."""
    return tuple(name for part in parted(words) if part and (name := part[0].name) is not None)
