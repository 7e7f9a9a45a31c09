"""The attempts of a workflow: every attempt of a step, an undo or an effect, when, where and how it ended (B17).

An attempt costs no commit of its own. Its beginning stands with the workflow's row, in the commit that counts it; its
end too, in the commit of its result, its retry, its dead letter or its take-over by another process. The next move of
the workflow puts those that have ended into its row of history, where they stay until the history is pruned. So what
has happened since the last move is read from the row, and the rest from history.
"""

from datetime import datetime
from typing import Literal

import msgspec

from interlock.engine.bound_machine import AttemptOutcome, PastAttempt, StepRun, decode_attempts, decode_owed, named_in
from interlock.engine.views import moment
from interlock.store.protocol import Store
from interlock.store.records import Cursor, Row, parse_cursor

PAGE = 1_000

ROWS_LOOKED_MAX = 10_000
"""Rows of history that are read for one page, of which few may have attempts."""


class Attempt(msgspec.Struct, frozen=True, kw_only=True):
    """One attempt of a step, an undo or an effect."""

    kind: str
    """"step", "undo" or "effect"."""
    name: str
    """The name of the step or effect; of an undo, the step that it undoes."""
    number: int
    """1 for the first attempt of a run. One that was not counted is followed by another of its number."""
    begun_at: datetime
    ended_at: datetime | None
    """None while it is under way."""
    outcome: AttemptOutcome
    """"running", "completed", "failed", "timed_out", "crashed" (its process died), or "cancelled": the workflow moved
    on, or the engine stopped."""
    error: str = ""
    traceback: str = ""
    """Of the last failure that is not retried: bounded, with secrets masked."""
    worker: str = ""
    """The process that began it: its host and pid."""
    key: str
    """The idempotency key of the run: the same for all of its attempts."""


class AttemptPage(msgspec.Struct, frozen=True):
    """A page of attempts, and the cursor of the next."""

    items: tuple[Attempt, ...]
    cursor: str | None


async def read_attempts(store: Store, row: Row, *, after: int, limit: int, cursor: str | None) -> AttemptPage:
    """Return a page of a workflow's attempts in the order in which they ended; those under way are the last.

    With `after` only those that have ended after the move to that version.

    A page may be short where few moves have attempts; it is the last one only without a cursor. Raises InvalidPayload
    for a cursor that no page has given.
    """
    # The version of the row of history, and the place in it.
    begin = parse_cursor(cursor) or Cursor(after + 1, 0)
    after, looked = begin.entered_us - 1, 0
    found: list[tuple[Cursor, Attempt]] = []
    while after < row.version and len(found) <= limit:
        if looked >= ROWS_LOOKED_MAX:
            return _page(found, limit, str(Cursor(after + 1, 0)))
        records = await store.history(row.id, after=after, limit=PAGE)
        looked += len(records)
        for record in records:
            if record.attempts and record.version <= row.version:
                ended = [_attempt(each, record.created_us) for each in decode_attempts(record.attempts)]
                found += _placed(ended, record.version, begin)
        after = records[-1].version if len(records) == PAGE else row.version
    if len(found) <= limit:
        found += _placed(attempts_beside(row), row.version + 1, begin)
    return _page(found, limit, None)


def attempts_beside(row: Row) -> list[Attempt]:
    """Return the attempts since the last move of a workflow; those under way are the last."""
    owed = decode_owed(row.owed)
    ended = [_attempt(each, 0) for each in owed.tried if each.outcome != "running"]
    running = [_attempt(each, 0) for each in owed.tried if each.outcome == "running"]
    current = owed.current
    if current is not None and current.started:
        kind: Literal["step", "undo"] = "step" if isinstance(current, StepRun) else "undo"
        begun_us = current.begun_us or row.entered_us
        past = PastAttempt(current.key, begun_us, current.worker, current.attempts, "running", kind=kind)
        running.append(_attempt(past, 0))
    return [*ended, *running]


def _attempt(past: PastAttempt, row_us: int) -> Attempt:
    ended_us = past.ended_us or row_us
    return Attempt(
        kind=past.kind,
        name=named_in(past.key).removeprefix("undo-") if past.kind == "undo" else named_in(past.key),
        number=past.number,
        begun_at=moment(past.begun_us),
        ended_at=None if past.outcome == "running" else moment(ended_us),
        outcome=past.outcome,
        error=past.error,
        traceback=past.traceback,
        worker=past.worker,
        key=past.key,
    )


def _placed(attempts: list[Attempt], version: int, begin: Cursor) -> list[tuple[Cursor, Attempt]]:
    placed = [(Cursor(version, at), attempt) for at, attempt in enumerate(attempts)]
    return [each for each in placed if each[0] >= begin]


def _page(found: list[tuple[Cursor, Attempt]], limit: int, more: str | None) -> AttemptPage:
    items = tuple(attempt for _, attempt in found[:limit])
    return AttemptPage(items, str(found[limit][0]) if len(found) > limit else more)
