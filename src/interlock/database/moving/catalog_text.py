"""Parser of the definitions of tables and indexes in SQLite's catalog.

The text is the dialect's own (`sql.definitions`), or SQLite's change of it after ALTER TABLE, so its form is known:
columns with their defaults, then constraints. Columns that were added later come after the constraints.
"""

from dataclasses import dataclass, field
from typing import Final

from interlock.database.moving.lexing import Word, find, inside, names_of, parted, source, words_of
from interlock.database.moving.shape import Action, Reference, Unique

_CONSTRAINTS: Final = ("CONSTRAINT", "PRIMARY", "UNIQUE", "CHECK", "FOREIGN")
_ACTIONS: Final[dict[str, Action]] = {
    "NO ACTION": "NO ACTION",
    "RESTRICT": "RESTRICT",
    "CASCADE": "CASCADE",
    "SET NULL": "SET NULL",
}


@dataclass(slots=True)
class CatalogTable:
    """A table of SQLite's catalog; conditions and defaults are SQLite's text. A constraint may have no name."""

    defaults: dict[str, str] = field(default_factory=dict[str, str])
    checks: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])
    uniques: list[Unique] = field(default_factory=list[Unique])
    references: list[Reference] = field(default_factory=list[Reference])
    key_name: str = ""


def table_of(text: str) -> CatalogTable:
    """Parse CREATE TABLE."""
    found = CatalogTable()
    words = words_of(text)
    begin = find(words, "(")
    assert begin is not None
    for part in parted(words[begin + 1 : inside(words, begin)]):
        if part[0].says(*_CONSTRAINTS):
            _constraint(part, found)
        else:
            _default(part, found)
    return found


def where_of(text: str) -> str | None:
    """Return the condition of CREATE INDEX; None without one."""
    words = words_of(text)
    place = find(words, "WHERE")
    return None if place is None else source(words[place + 1 :])


def _default(part: list[Word], found: CatalogTable) -> None:
    place, name = find(part, "DEFAULT"), part[0].name
    if place is None or name is None:
        return
    if part[place + 1].says("("):
        value = part[place + 2 : inside(part, place + 1)]
    else:
        value = part[place + 1 : find(part, "CONSTRAINT", begin=place)]
    found.defaults[name] = source(value)


def _constraint(part: list[Word], found: CatalogTable) -> None:
    label = ""
    if part[0].says("CONSTRAINT"):
        label = part[1].name or ""
        part = part[2:]
    begin = find(part, "(")
    assert begin is not None
    end = inside(part, begin)
    between = part[begin + 1 : end]
    match part[0].text.upper():
        case "CHECK":
            found.checks.append((label, source(between)))
        case "UNIQUE":
            found.uniques.append(Unique(label, names_of(between)))
        case "PRIMARY":
            found.key_name = label
        case _:
            found.references.append(_reference(label, names_of(between), part[end + 1 :]))


def _reference(label: str, columns: tuple[str, ...], rest: list[Word]) -> Reference:
    """REFERENCES "table" ("key") ON DELETE … ON UPDATE …."""
    close = inside(rest, 2)
    reactions: dict[str, Action] = {}
    said = " ".join(word.text.upper() for word in rest[close + 1 :])
    for reaction in said.split("ON ")[1:]:
        event, _, action = reaction.strip().partition(" ")
        reactions[event] = _ACTIONS[action]
    return Reference(
        label,
        columns,
        rest[1].name or "",
        names_of(rest[3:close]),
        on_delete=reactions.get("DELETE", "NO ACTION"),
        on_update=reactions.get("UPDATE", "NO ACTION"),
    )
