"""The transactions of simulated clients: each change increments a counter and adds a row with its number and name.

So the rows are the order of all changes, and every observed state can be checked against it: a counter of 7 must come
with the name of row 7.
"""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# apsw's stubs leave the values of SQLite partly open; mypy --strict looks at what is ours.

from collections.abc import Callable

import apsw

from interlock.lanes.session import Session

SCHEMA = (
    "CREATE TABLE IF NOT EXISTS counter (id INTEGER PRIMARY KEY, n INTEGER NOT NULL)",
    "INSERT OR IGNORE INTO counter VALUES (1, 0)",
    "CREATE TABLE IF NOT EXISTS entries (number INTEGER, id TEXT)",
    "CREATE TABLE IF NOT EXISTS junk (data BLOB)",
)
STATE = "SELECT n, (SELECT id FROM entries WHERE number = n) FROM counter WHERE id = 1"
KINDS = ("plain", "plain", "plain", "keyed", "keyed", "refusing", "spilling", "nothing", "read", "read")
JUNK_ROWS = 12
JUNK_BYTES = 900


class Refused(Exception):
    """A transaction that says no because of what it read."""

    def __init__(self, number: int, name: str | None) -> None:
        super().__init__(f"refused at {number}")
        self.number = number
        self.name = name


class RolledBack(Exception):
    """A large transaction that changed its mind."""


def make_tables(session: Session) -> object:
    """Make the tables, unless they are there."""
    for statement in SCHEMA:
        session.execute(statement)
    return None


def increment(name: str) -> Callable[[Session], object]:
    """The transaction of that name; its result is its number."""

    def work(session: Session) -> object:
        session.execute("UPDATE counter SET n = n + 1 WHERE id = 1")
        [(number,)] = session.query("SELECT n FROM counter WHERE id = 1")
        session.execute("INSERT INTO entries (number, id) VALUES (?1, ?2)", (number, name))
        return number

    return work


def read_state(connection: apsw.Connection) -> object:
    """The counter, and the transaction that made it so."""
    return connection.execute(STATE).fetchall()


def _refusing(session: Session) -> object:
    [(number, name)] = session.query(STATE)
    raise Refused(int(str(number)), None if name is None else str(name))


def _spilling(session: Session) -> object:
    # The rows after the updates push the changed pages out of memory, so they stay in SQLite's log.
    insert = "INSERT INTO junk VALUES (zeroblob(?1))"
    for _ in range(JUNK_ROWS):
        session.execute(insert, (JUNK_BYTES,))
    session.execute("UPDATE counter SET n = n + 1000000")
    session.execute("UPDATE entries SET id = 'junk'")
    for _ in range(JUNK_ROWS):
        session.execute(insert, (JUNK_BYTES,))
    raise RolledBack


def _nothing(session: Session) -> object:
    return session.query(STATE)


NO_EFFECT: dict[str, Callable[[Session], object]] = {"refusing": _refusing, "spilling": _spilling, "nothing": _nothing}
