"""Simplification of PostgreSQL's text of an expression for a lane.

The server shows an expression with every cast and with internal names: `name IN ('a')` of a varchar is
`((name)::text = ANY ((ARRAY['a'::character varying])::text[]))`, LIKE is `~~`. Each rewriting here removes what
changes nothing: a cast of a text to a text, a constant's cast to its own type, the other name of an operator. The
dialect decides whether a lane supports the result.

Constants and quoted names are replaced by marks first, so that their content is never rewritten.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Final

from interlock.database.moving.lexing import source, words_of
from interlock.sql.datatypes import Type
from interlock.sql.syntax import quoted

_TEXT: Final = r"\[t\d+\]"
_ASIDE: Final = re.compile(r"\[[tn](\d+)\]")
_ANY_TEXT: Final = r"(?:text|character varying)"

# Rewritings that are safe in any expression.
_PLAINER: Final = (
    (re.compile(r"\btimestamp with time zone\b"), "timestamptz"),
    (re.compile(r"!~~\*"), "NOT ILIKE"),
    (re.compile(r"~~\*"), "ILIKE"),
    (re.compile(r"!~~"), "NOT LIKE"),
    (re.compile(r"~~"), "LIKE"),
    (re.compile(rf"({_TEXT})::{_ANY_TEXT}(?![\w(\[])"), r"\1"),
    (re.compile(rf"= ANY \(\(ARRAY\[({_TEXT}(?:, {_TEXT})*)\]\)::text\[\]\)"), r"IN (\1)"),
    (re.compile(rf"<> ALL \(\(ARRAY\[({_TEXT}(?:, {_TEXT})*)\]\)::text\[\]\)"), r"NOT IN (\1)"),
    (re.compile(rf"\((ARRAY\[{_TEXT}(?:, {_TEXT})*\])\)::{_ANY_TEXT}\[\]"), r"\1"),
    (re.compile(r"\bPOSITION\(\(([^()]*)\) IN \(([^()]*)\)\)"), r"position(\1 IN \2)"),
    (re.compile(r"\bTRIM\(BOTH FROM ([^()]*)\)"), r"trim(\1)"),
    (re.compile(r"\bROW\("), "("),
)
# Rewritings that are safe because the other side of the operator has the type.
_PLAINEST: Final = (
    (re.compile(r"\((-?\d+)\)::(?:bigint|smallint|integer|numeric)\b(?!\()"), r"\1"),
    (re.compile(r"= ANY \(ARRAY\[((?:[^\[\]]|\[[tn]\d+\])*)\]\)"), r"IN (\1)"),
    (re.compile(r"<> ALL \(ARRAY\[((?:[^\[\]]|\[[tn]\d+\])*)\]\)"), r"NOT IN (\1)"),
)


def undressed(shown: str, columns: Mapping[str, Type]) -> Iterator[str]:
    """Yield equivalent forms of the server's text, each simpler than the one before."""
    yield source(words_of(shown))
    text, aside = _put_aside(shown, columns)
    for pattern, replacement in _PLAINER:
        text = pattern.sub(replacement, text)
    yield _put_back(text, aside)
    for pattern, replacement in _PLAINEST:
        text = pattern.sub(replacement, text)
    yield _put_back(text, aside)


def _put_aside(shown: str, columns: Mapping[str, Type]) -> tuple[str, list[str]]:
    """Return the text with marks instead of constants and column names, and the marked texts.

    The cast of a text column to text is removed here, because the types of columns are known.
    """
    aside: list[str] = []
    parts: list[str] = []
    words = words_of(shown)
    end = 0
    for place, word in enumerate(words):
        parts.append(" " if word.begin > end else "")
        end = word.end
        called = place + 1 < len(words) and words[place + 1].says("(")
        if word.kind == "name" and called and re.fullmatch(r'"[a-z_]+"', word.text):
            parts.append(word.text[1:-1])  # A function whose name is a key word.
        elif word.kind in {"text", "name"} or (word.name in columns and not called):
            kind = "t" if word.kind == "text" else "n"
            parts.append(f"[{kind}{len(aside)}]")
            aside.append(word.text)
        else:
            parts.append(word.text)
    text = "".join(parts).strip()
    for number, written in enumerate(aside):
        [word] = words_of(written)
        known = columns.get(word.name or "") if word.kind != "text" else None
        if known is not None and known.is_text:
            text = re.sub(rf"\((\[n{number}\])\)::text(?![\w\[])", r"\1", text)
            aside[number] = quoted(word.name or "")
    return text, aside


def _put_back(text: str, aside: list[str]) -> str:
    return _ASIDE.sub(lambda found: aside[int(found.group(1))], text)
