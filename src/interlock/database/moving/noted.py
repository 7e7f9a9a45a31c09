"""Definitions as users wrote them, from the lane's stored statements, where SQLite's catalog is not enough.

The catalog lacks the PostgreSQL text of expressions, and the declaration and name of a numbered key. Both are found
here, followed through renames. An expression is accepted only if it is translated to the text of the catalog.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from interlock.database.moving.lexing import Word, find, inside, parted, source, words_of
from interlock.database.moving.shape import Numbered
from interlock.sql.syntax import quoted

_ENDS: Final = (
    "NOT", "NULL", "CHECK", "UNIQUE", "PRIMARY", "REFERENCES", "CONSTRAINT", "GENERATED", "COLLATE", "DEFAULT",
)  # fmt: skip
"""Key words that may follow a default."""


@dataclass(slots=True)
class Written:
    """Definitions of one table."""

    expressions: list[str] = field(default_factory=list[str])
    defaults: dict[str, str] = field(default_factory=dict[str, str])
    """Defaults by column; also among the expressions."""
    checks: dict[str, str] = field(default_factory=dict[str, str])
    """Named checks; also among the expressions."""
    numbered: dict[str, Numbered] = field(default_factory=dict[str, Numbered])
    key_name: str = ""


def written(definitions: Iterable[str]) -> dict[str, Written]:
    """Return the definitions of each table, by its final name."""
    found: dict[str, Written] = {}
    for text in definitions:
        words = [word for word in words_of(text) if not word.says(";")]
        if len(words) < 3:  # noqa: PLR2004 -- the shortest of all: DROP TABLE name
            continue
        if words[0].says("CREATE") and words[1].says("TABLE"):
            _create_table(words, found)
        elif words[0].says("CREATE"):
            _create_index(words, found)
        elif words[0].says("ALTER"):
            _alter(words, found)
        elif words[0].says("DROP") and words[1].says("TABLE"):
            found.pop(words[4 if words[2].says("IF") else 2].name or "", None)
    return found


def _of(found: dict[str, Written], word: Word) -> Written:
    return found.setdefault(word.name or "", Written())


def _create_table(words: list[Word], found: dict[str, Written]) -> None:
    begin = find(words, "(")
    if begin is None:
        return
    table = _of(found, words[begin - 1])
    for part in parted(words[begin + 1 : inside(words, begin)]):
        _read(part, table)


def _create_index(words: list[Word], found: dict[str, Written]) -> None:
    on, where = find(words, "ON"), find(words, "WHERE")
    if on is not None and where is not None:
        _of(found, words[on + 1]).expressions.append(source(words[where + 1 :]))


def _alter(words: list[Word], found: dict[str, Written]) -> None:
    table = _of(found, words[2])
    if words[3].says("ADD"):
        _read(words[5 if words[4].says("COLUMN") else 4 :], table)
    elif words[3].says("RENAME") and words[4].says("TO"):
        new = words[5].name or ""
        found[new] = found.pop(words[2].name or "")
        for other in found.values():
            _rename(other, words[2].name or "", new)
    elif words[3].says("RENAME"):
        old, new = words[-3].name or "", words[-1].name or ""
        _rename(table, old, new)
        if old in table.numbered:
            table.numbered[new] = table.numbered.pop(old)
        if old in table.defaults:
            table.defaults[new] = table.defaults.pop(old)


def _rename(table: Written, old: str, new: str) -> None:
    table.expressions = [_renamed(text, old, new) for text in table.expressions]
    table.checks = {name: _renamed(text, old, new) for name, text in table.checks.items()}


def _renamed(text: str, old: str, new: str) -> str:
    words = [word._replace(text=quoted(new), kind="name") if word.name == old else word for word in words_of(text)]
    return source(words)


def _read(part: list[Word], table: Written) -> None:
    """Read a column or a constraint: its expressions, and whether it is an identity."""
    for place, word in enumerate(part):
        following = place + 1
        if word.says("CHECK") and following < len(part) and part[following].says("("):
            text = source(part[following + 1 : inside(part, following)])
            table.expressions.append(text)
            if part[place - 2].says("CONSTRAINT"):
                table.checks[part[place - 1].name or ""] = text
        elif word.says("DEFAULT") and not part[place - 1].says("BY"):
            text = source(part[following : find(part, *_ENDS, begin=following)])
            table.expressions.append(text)
            table.defaults[part[0].name or ""] = text
        elif word.says("PRIMARY") and part[place - 2].says("CONSTRAINT"):
            table.key_name = part[place - 1].name or ""
        elif word.says("IDENTITY"):
            name = part[0].name or ""
            table.numbered[name] = "always" if any(each.says("ALWAYS") for each in part) else "by default"
