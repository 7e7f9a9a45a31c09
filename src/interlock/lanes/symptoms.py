"""The findings of the doctor of a lane: what can be wrong, why it matters, and what to do.

Every symptom is a finding. An error means that data is damaged or cannot be read; a warning means that the lane works,
but something will get in its way; an info is worth knowing. Lists are bounded: a damaged file has no end of symptoms.
"""

# The type stubs of apsw know less than apsw does.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

import apsw

from interlock.core.values import Finding
from interlock.errors import UnusableFile
from interlock.lanes.arriving import draft_of
from interlock.lanes.notes import watched
from interlock.lanes.ownership import lock_path
from interlock.lanes.redaction import redacted
from interlock.lanes.settings import LaneSettings
from interlock.lanes.tombstone import tombstone_of

SYMPTOMS_MAX = 20
LOG_BYTES_EXPECTED = 4 * LaneSettings().wal_bytes_max
FREE_PAGES_MIN = 10_000
AHEAD_US = 60_000_000


def contents(
    connection: apsw.Connection, *, is_lane: bool, pages: int, pages_free: int, time_us: int, now_us: int
) -> list[Finding]:
    """Return the findings in the pages, the keys and the lane's own table."""
    found = [*_damage(connection), *_orphans(connection), *_moves(connection)]
    if not is_lane:
        found.append(
            Finding(
                code="not-a-lane",
                severity="error",
                what="the file is a SQLite database, but not a lane: it has no table interlock_lane.",
                why="Every lane gets that table when it is opened for the first time.",
                fix="Check the address. To make a lane of it, open it with Database.open.",
            )
        )
    if time_us > now_us + AHEAD_US:
        found.append(
            Finding(
                code="time-ahead",
                severity="warning",
                what=f"the lane's time is {(time_us - now_us) / 1_000_000:,.0f} s ahead of this machine's clock.",
                why="A lane's time never goes back, so now() stands still until the clock has caught up.",
                fix="Set the clock right. Was the lane written on another machine, compare the two clocks.",
            )
        )
    if pages_free > max(FREE_PAGES_MIN, pages // 2):
        found.append(
            Finding(
                code="much-free",
                severity="info",
                what=f"{pages_free:,} of {pages:,} pages are free.",
                why="Deleted rows leave pages that new rows fill again; the file does not shrink by itself.",
                fix="Nothing needs to be done; the space is used again.",
            )
        )
    return found


def _moves(connection: apsw.Connection) -> Iterator[Finding]:
    stone, draft = tombstone_of(connection), draft_of(connection)
    if stone is not None:
        yield Finding(
            code="moved",
            severity="info",
            what=f"move {stone.epoch} has left: everything lives at {redacted(stone.url)} now.",
            why="What is here is the state at the end of the move; no process reads or writes it any more.",
            fix="Look there. When this file is not wanted any more, delete it; to come back, route it here again.",
        )
    if draft is not None:
        yield Finding(
            code="arriving",
            severity="warning",
            what=f"it is a draft of move {draft.epoch} from {redacted(draft.source)}, and cannot be opened yet.",
            why="Until a move is over everything lives at the place that it comes from.",
            fix="Wait for the move. If its mover has died, run the same `interlock route` again: it goes on.",
        )
    if watched(connection):
        yield Finding(
            code="leaving",
            severity="info",
            what="a move is under way: the keys of rows that are written are noted for its mover.",
            why="The mover copies while the lane is used, and then catches up; every write costs a little more.",
            fix="Wait for the move. If its mover has died, run the same `interlock route` again, or abandon the move.",
        )


def _damage(connection: apsw.Connection) -> Iterator[Finding]:
    for (message,) in connection.execute(f"PRAGMA integrity_check({SYMPTOMS_MAX})"):
        if message != "ok":
            yield Finding(
                code="damaged",
                severity="error",
                what=f"integrity_check says: {message}.",
                why="Stored bytes contradict themselves or the schema; going on could spread the damage.",
                fix="Stop the owner, keep a copy of all the files of the lane, and restore a backup.",
            )


def _orphans(connection: apsw.Connection) -> Iterator[Finding]:
    for place, (table, row, parent, _key) in enumerate(connection.execute("PRAGMA foreign_key_check")):
        if place == SYMPTOMS_MAX:
            return
        yield Finding(
            code="foreign-key",
            severity="error",
            what=f"row {row} of {table} refers to a row of {parent} that is not there.",
            why="A lane enforces foreign keys; something else has written into the file.",
            fix=f"Insert the missing row into {parent}, or delete the row of {table}.",
        )


def log_and_owner(path: Path, log_bytes: int, *, owned: bool) -> list[Finding]:
    """Return the findings in the log and the lock file."""
    found: list[Finding] = []
    if log_bytes > LOG_BYTES_EXPECTED:
        found.append(
            Finding(
                code="log-large",
                severity="warning",
                what=f"the log has {log_bytes:,} bytes; it is usually folded at {LaneSettings().wal_bytes_max:,}.",
                why="A read that does not end keeps the log from being folded, or wal_bytes_max was raised.",
                fix="Look for long reads; the log is folded after the last of them, and when the lane is closed.",
            )
        )
    lock = lock_path(path)
    if not owned and (log_bytes or (lock.exists() and lock.stat().st_size)):
        found.append(
            Finding(
                code="not-closed",
                severity="info",
                what="the last owner ended without closing the lane.",
                why="It was killed, or the machine stopped. What it acknowledged is in the file or in its log.",
                fix="Nothing needs to be done: the next owner folds the log when it opens the lane.",
            )
        )
    return found


def permissions(path: Path) -> list[Finding]:
    """Return the findings in the permissions of the files, as far as this process can see them."""
    found: list[Finding] = []
    for each in (path.with_name(path.name + end) for end in ("", "-wal", "-shm", ".lock")):
        if not each.exists():
            continue
        if not os.access(each, os.R_OK | os.W_OK):
            found.append(_refused(f"{each} cannot be read and written by this user", "error"))
        elif each.stat().st_uid != path.stat().st_uid:
            found.append(_refused(f"{each} belongs to another user than {path.name}", "warning"))
        if each.stat().st_mode & stat.S_IWOTH:
            found.append(_refused(f"{each} can be written by every user of this machine", "warning"))
    if not os.access(path.parent, os.W_OK | os.X_OK):
        found.append(_refused(f"the folder {path.parent} cannot be written by this user", "error"))
    return found


def _refused(what: str, severity: Literal["error", "warning"]) -> Finding:
    return Finding(
        code="permissions",
        severity=severity,
        what=f"{what}.",
        why="The owner reads and writes the file, its log, its index and its lock, and makes them in the folder.",
        fix="Give the files to the user that runs the owner, and to no other user (chown, chmod).",
    )


def unreadable(path: Path, error: Exception) -> Finding:
    """Return the finding for a lane that could not be read at all."""
    if isinstance(error, UnusableFile):
        return Finding(code="unread-log", severity="warning", what=error.what, why=error.why, fix=error.fix)
    return Finding(
        code="unreadable",
        severity="error",
        what=f"{path} could not be read: {error}.",
        why="It is not a lane, it is damaged, or this user may not read it.",
        fix="Check the address and the permissions. If it is the lane: keep its files, and restore a backup.",
    )
