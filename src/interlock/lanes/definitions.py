"""The schema statements of a lane as its users wrote them, word for word, in order.

A lane stores its tables as SQLite understands them; the original statement, in PostgreSQL's dialect, says more. So
every statement that has changed the schema is noted in the same transaction. One that changed nothing, such as CREATE
TABLE IF NOT EXISTS at every start, is not: the notes grow with the schema's changes, not with time. They are bounded.
"""

from collections.abc import Callable

import apsw

from interlock.lanes.session import Session

DEFINITIONS_MAX = 100_000
"""Statements that are kept; the oldest go first. The very first has the number 1, so a gap is visible."""

_VERSION = "PRAGMA schema_version"
_MAKE = """
CREATE TABLE IF NOT EXISTS interlock_definitions (number INTEGER PRIMARY KEY AUTOINCREMENT, sql TEXT NOT NULL)
"""
_NOTE = "INSERT INTO interlock_definitions (sql) VALUES (?1)"
_BOUND = "DELETE FROM interlock_definitions WHERE number <= (SELECT max(number) FROM interlock_definitions) - ?1"


def define(session: Session, text: str, *, written: str) -> None:
    """Run a statement on the schema, and note it as it was written if it has changed anything."""
    before = session.query(_VERSION)
    session.execute(text)
    if session.query(_VERSION) == before:
        return
    session.defined = True  # If a later statement fails, more than that one must be undone.
    session.own(lambda run: _note(run, written))


def _note(run: Callable[..., apsw.Cursor], written: str) -> None:
    run(_MAKE)
    run(_NOTE, (written,))
    run(_BOUND, (DEFINITIONS_MAX,))
