"""Pruning on a lane: a batch is one transaction of its writer.

A workflow's number is never given to another: pages and the writer's memory go by it. SQLite gives the highest one
again when its row is gone, so the workflow that was started last of all stays until another one is started.
"""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# apsw's stubs leave the values of SQLite partly open; mypy --strict looks at what is ours.

from collections.abc import Awaitable, Callable
from typing import Any, cast

import apsw

from interlock.lanes.session import Session
from interlock.lanes.work import Work
from interlock.store.cursors import Cursor
from interlock.store.pruning import Batch, Old

Run = Callable[..., Any]
Read = Callable[[Callable[[Run], Any]], Awaitable[Any]]

BEFORE_ALL = Cursor(-(2**63), 0)

LOOK = """
SELECT number, id, entered_at, active OR wake_at IS NOT NULL FROM workflows INDEXED BY workflows_by_state
WHERE workflow_type = ?1 AND state = ?2 AND entered_at < ?3 AND (entered_at > ?4 OR (entered_at = ?4 AND number > ?5))
ORDER BY entered_at, number LIMIT ?6"""
LAST = "SELECT coalesce(max(number), 0) FROM workflows"
OWING = "SELECT workflow FROM workflow_effects UNION SELECT workflow FROM dead_letters"
EVENTS = "SELECT count(*) FROM workflow_events WHERE workflow = ?"
REMOVE_EVENTS = "DELETE FROM workflow_events WHERE workflow = ?"
REMOVE_ROW = "DELETE FROM workflows WHERE number = ?"
REMOVE_ASIDE = ("DELETE FROM workflow_effects WHERE workflow = ?", "DELETE FROM dead_letters WHERE workflow = ?")


class LanePruning:
    """Pruning of a store on a lane."""

    def __init__(self, read: Read, write: Callable[[Work], Awaitable[object]]) -> None:
        self._read = read
        self._write = write

    async def batch(self, old: Old, *, after: Cursor | None, limit: int, dry_run: bool = False) -> Batch:
        """Read the next workflows and remove those that match."""
        begin = after or BEFORE_ALL
        if dry_run:
            return cast("Batch", await self._read(lambda run: _looked(run, old, begin, limit)[0]))
        return cast("Batch", await self._write(Work(_prune, old, begin, limit)))


def _looked(run: Run, old: Old, begin: Cursor, limit: int) -> tuple[Batch, list[tuple[int, str]]]:
    found: list[tuple[int, str, int, int]] = run(
        LOOK, (old.machine, old.state, old.before_us, begin.entered_us, begin.number, limit)
    ).fetchall()
    [(last,)] = run(LAST).fetchall()
    owing: set[str] = set() if old.owing or not found else {workflow for (workflow,) in run(OWING)}
    chosen: list[tuple[int, str]] = []
    events = 0
    for number, workflow, _, busy in found:
        if busy or workflow in owing or (number == last and not old.history_only):
            continue
        [(count,)] = run(EVENTS, (number,)).fetchall()
        if count or not old.history_only:
            chosen.append((number, workflow))
            events += count
    end = Cursor(found[-1][2], found[-1][0]) if len(found) == limit else None
    return Batch(tuple(workflow for _, workflow in chosen), events, end), chosen


def _prune(session: Session, old: Old, begin: Cursor, limit: int) -> Batch:
    def prune(connection: apsw.Connection) -> Batch:
        connection.preupdate_hook(None)  # The signal for hot rows is about the tables of users.
        cursor = connection.cursor()
        batch, chosen = _looked(cursor.execute, old, begin, limit)
        numbers = [(number,) for number, _ in chosen]
        cursor.executemany(REMOVE_EVENTS, numbers)
        if not old.history_only:
            cursor.executemany(REMOVE_ROW, numbers)
            if old.owing:
                for sql in REMOVE_ASIDE:
                    cursor.executemany(sql, [(workflow,) for _, workflow in chosen])
        return batch

    return session.lend(prune)
