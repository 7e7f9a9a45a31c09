"""A group of changes, written to the tables inside one transaction of a lane.

A move finds its row by the workflow's number, which spares it the index over all ids. Numbers are learned here and
remembered by the store only when the group is durable: what a group that was rolled back has learned may be wrong, for
its numbers are given again. A number that were wrong all the same would find a row of another id, and lose the change.

A change is either written as a whole or leaves nothing: its row is written first, because that is where it is lost, and
the history of all that were not lost goes in together at the end.
"""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# apsw's stubs leave the values of SQLite partly open; mypy --strict looks at what is ours.

from collections.abc import Mapping, Sequence
from typing import NamedTuple, cast

import apsw
import msgspec

from interlock.store import columns
from interlock.store.columns import happening, moving, starting
from interlock.store.values import Change

START = f"INSERT INTO workflows ({columns.ROW}) VALUES ({', '.join('?' * 18)}) ON CONFLICT (id) DO NOTHING"  # noqa: S608
MOVE = """
UPDATE workflows SET machine_version = ?, state = ?, context = ?, version = ?, visit = ?, active = ?, updated_at = ?,
entered_at = ?, owed = ?, wake_at = ?, duplicates = ?, ignored = ?, refused = ?, revision = ?
WHERE number = ? AND revision = ? AND id = ?"""
NUMBER = "SELECT number FROM workflows WHERE id = ?"
USED = "SELECT 1 FROM workflow_events WHERE workflow = ? AND key = ?"
HAPPENED = f"INSERT INTO workflow_events (workflow, {columns.HAPPENED}) VALUES ({', '.join('?' * 11)})"  # noqa: S608
EFFECT = "INSERT OR REPLACE INTO workflow_effects VALUES (?, ?, ?, ?, ?, ?, ?)"
EFFECT_AGAIN = "UPDATE workflow_effects SET attempts = ?, wake_at = ? WHERE id = ? AND attempts = ?"
EFFECT_DEAD = "DELETE FROM workflow_effects WHERE id = ? AND attempts = ?"
EFFECT_DONE = "DELETE FROM workflow_effects WHERE id = ?"
LETTER = "INSERT OR REPLACE INTO dead_letters VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
LETTER_GONE = "DELETE FROM dead_letters WHERE id = ?"
TIME = "UPDATE workflow_store SET time_us = max(time_us, ?) WHERE id = 1"


class Applied(NamedTuple):
    """The result of a group, valid once it is durable."""

    lost: list[str]
    numbers: dict[str, int]
    """Numbers of workflows that were not cached before."""


def apply(connection: apsw.Connection, changes: Sequence[Change], numbers: Mapping[str, int], time_us: int) -> Applied:
    """Write the changes that are not lost, and the latest time that the store has returned (G8)."""
    # The signal for hot rows is about the tables of users; here it would cost a twentieth of everything.
    connection.preupdate_hook(None)
    cursor = connection.cursor()
    lost: list[str] = []
    learned: dict[str, int] = {}
    events: list[tuple[object, ...]] = []
    for change in changes:
        workflow = change.row.id
        if change.expected:
            number = numbers.get(workflow)
            if number is None:
                number = _number(cursor, workflow, learned)
            kept = number is not None and _moved(connection, cursor, change, number)
        else:
            number = _started(connection, cursor, change, learned)
            kept = number is not None
        if not kept or number is None:
            lost.append(workflow)
            continue
        for happened in change.history:
            events.append(happening(number, happened))  # noqa: PERF401 -- mostly one: a loop costs less.
        if (
            change.effects
            or change.effects_again
            or change.effects_dead
            or change.effects_done
            or change.letters
            or change.letters_gone
        ):
            _aside(cursor, change)
    if events:
        cursor.executemany(HAPPENED, events)
    cursor.execute(TIME, (time_us,))
    return Applied(lost, learned)


def _started(connection: apsw.Connection, cursor: apsw.Cursor, change: Change, learned: dict[str, int]) -> int | None:
    cursor.execute(START, starting(change.row))
    if not connection.changes():
        return None
    number = learned[change.row.id] = connection.last_insert_rowid()
    return number


def _number(cursor: apsw.Cursor, workflow: str, learned: dict[str, int]) -> int | None:
    found = cursor.execute(NUMBER, (workflow,)).fetchone()
    if found is None:
        return None
    number = learned[workflow] = cast("int", found[0])
    return number


def _moved(connection: apsw.Connection, cursor: apsw.Cursor, change: Change, number: int) -> bool:
    for happened in change.history:
        if happened.key is not None and cursor.execute(USED, (number, happened.key)).fetchone() is not None:
            return False
    cursor.execute(MOVE, moving(change.row, number, change.expected))
    return connection.changes() > 0


def _aside(cursor: apsw.Cursor, change: Change) -> None:
    run = cursor.execute
    for effect in change.effects:
        run(EFFECT, msgspec.structs.astuple(effect))
    for again, known in change.effects_again:
        run(EFFECT_AGAIN, (again.attempts, again.wake_us, again.id, known))
    for dead in change.effects_dead:
        run(EFFECT_DEAD, (dead.id, dead.attempts))
    for done in change.effects_done:
        run(EFFECT_DONE, (done,))
    for letter in change.letters:
        run(LETTER, msgspec.structs.astuple(letter))
    for letter_id in change.letters_gone:
        run(LETTER_GONE, (letter_id,))
