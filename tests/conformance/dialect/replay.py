"""Reads the scripts of other projects for `campaign --scripts FOLDER`, and says what their outcomes are compared by.

Scripts are plain SQL, with or without the commands of psql and the data of COPY, which are left out (.sql), or records
of sqllogictest without their results (.slt, .test, .part). Nothing of them is kept here: the folder is the user's.

Sections: reading, what is compared.
"""

import re
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from interlock.errors import InterlockError
from interlock.sql.parse import Body, kind_of, names_of, parse, quoted_name, split
from tests.conformance.engines import Outcome

SUFFIXES: Final = frozenset({".sql", ".slt", ".test", ".part"})

_TOKENS: Final = re.compile(
    r"(?P<space>\s+|--[^\n]*)|(?P<comment>/\*)|(?P<end>;)|(?P<command>\\[^\n]*)|(?P<dollar>\$(?:[^\W\d]\w*)?\$)"
    r"|(?P<text>[eE]'(?:[^'\\]|\\.|'')*(?:'|$)|'(?:[^']|'')*(?:'|$)|\"(?:[^\"]|\"\")*(?:\"|$))|(?P<word>\w[\w$]*)|.",
    re.DOTALL,
)
_COPY: Final = re.compile(r"\s*COPY\b.*\bFROM\s+stdin\b", re.IGNORECASE | re.DOTALL)
_RESULTS: Final = re.compile(r"^----.*$")
_CONDITION: Final = re.compile(r"^(?P<how>skipif|onlyif)\s+(?P<engine>\S+)")


# --- Reading ----------------------------------------------------------------------------------------------------------


def script_files(folder: Path) -> list[Path]:
    """The scripts below a folder, by name."""
    return sorted(path for path in folder.rglob("*") if path.suffix in SUFFIXES and path.is_file())


def read_statements(path: Path) -> Iterator[str]:
    """The statements of a script, without the commands of psql and the data of COPY."""
    text = path.read_text(encoding="utf-8", errors="replace")
    if path.suffix == ".sql":
        yield from split_statements(text)
        return
    for record in _records(text):
        yield from split_statements(record)


def split_statements(text: str) -> Iterator[str]:
    """Split a text at its semicolons, as psql does: not in quotes, comments and bodies between dollars."""
    start = place = 0
    filled = False
    while matched := _TOKENS.match(text, place):
        place = matched.end()
        if matched["comment"]:
            place = _comment_end(text, place)
        elif matched["dollar"]:
            end = text.find(matched[0], place)
            place = len(text) if end < 0 else end + len(matched[0])
            filled = True
        elif matched["end"] or matched["command"]:
            statement = text[start : matched.start()]
            if filled:
                yield statement.strip()
            if filled and _COPY.match(statement):
                end = text.find("\n\\.", place)
                place = len(text) if end < 0 else end + 3
            start, filled = place, False
        elif not matched["space"]:
            filled = True
    if filled:
        yield text[start:].strip()


def _comment_end(text: str, place: int) -> int:
    depth = 1
    for matched in re.compile(r"/\*|\*/").finditer(text, place):
        depth += 1 if matched[0] == "/*" else -1
        if depth == 0:
            return matched.end()
    return len(text)


def _records(text: str) -> Iterator[str]:
    """The statements of a file of sqllogictest, without those for other engines and without the results."""
    for block in re.split(r"\n\s*\n", text.replace("\r\n", "\n")):
        lines = [line for line in block.strip("\n").split("\n") if not line.startswith("#")]
        skipped = False
        while lines and (condition := _CONDITION.match(lines[0])):
            named = condition["engine"].startswith("postgres")
            skipped |= named if condition["how"] == "skipif" else not named
            lines.pop(0)
        if skipped or not lines or lines[0].split(" ")[0] not in {"statement", "query"}:
            continue
        end = next((number for number, line in enumerate(lines) if _RESULTS.match(line)), len(lines))
        yield "\n".join(lines[1:end])


# --- What is compared -------------------------------------------------------------------------------------------------


def parsed(sql: str) -> tuple[str, Body]:
    """The kind and the fields of a statement; empty if PostgreSQL cannot parse it."""
    try:
        return split(parse(sql))
    except InterlockError:
        return "", {}


def sort_columns(body: Body, names: tuple[str, ...]) -> list[int]:
    """The columns of the result by which ORDER BY sorts first; after an expression that is none of them nothing is."""
    found: list[int] = []
    for item in body.get("sortClause", ()):
        kind, node = split(item["SortBy"]["node"])
        if kind == "A_Const" and "ival" in node:
            place = node["ival"].get("ival", 0) - 1
        elif kind == "ColumnRef" and len(node["fields"]) == 1 and kind_of(node["fields"][0]) == "String":
            [name] = names_of(node["fields"])
            place = names.index(name) if names.count(name) == 1 else -1
        else:
            break
        if not 0 <= place < len(names):
            break
        found.append(place)
    return found


def table_query(kind: str, body: Body) -> str | None:
    """A query for the table that a statement has changed."""
    name = body.get("relation", {}).get("relname")
    return f"SELECT * FROM {quoted_name(name)}" if kind in {"InsertStmt", "UpdateStmt", "DeleteStmt"} and name else None


def agree(here: Outcome, there: Outcome, columns: list[int]) -> bool:
    """Whether both are the same, and the rows in the same order as far as these columns fix it."""
    # SQLite has no negative zero, so its text has no sign either.
    there = replace(there, rows=tuple(tuple("0" if cell == "-0" else cell for cell in row) for row in there.rows))
    if here.comparable(ordered=False) != there.comparable(ordered=False):
        return False
    left, right = (each.comparable(ordered=True).rows for each in (here, there))
    return [[row[place] for place in columns] for row in left] == [[row[place] for place in columns] for row in right]


@contextmanager
def time_limit(seconds: int) -> Iterator[None]:
    """Raise TimeoutError in the main thread after so many seconds."""

    def end(*_: object) -> None:
        raise TimeoutError(f"not done after {seconds} s")

    before: Any = signal.signal(signal.SIGALRM, end)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)
