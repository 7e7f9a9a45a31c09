"""The draft mark of a lane that a move is filling: it cannot be opened for use before the move has arrived.

The transaction that makes the lane also makes the mark, so no other process can take a draft for a database. The mover
opens its draft with a permission of its own. Once the source has committed its tombstone, the draft is the truth and
the mover removes the mark. If the mover died first, the next process that has read the tombstone removes it.
"""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# apsw's stubs leave the values of SQLite partly open; mypy --strict looks at what is ours.

from typing import NamedTuple

import apsw

from interlock.errors import UnavailableError
from interlock.lanes.redaction import redacted
from interlock.lanes.session import Session
from interlock.lanes.tombstone import Run, Tombstone, one_snapshot, tombstone_of, write_tombstone
from interlock.lanes.work import Work

_EXISTS = "SELECT 1 FROM sqlite_schema WHERE type = 'table' AND name = 'interlock_arriving'"
_FIND = "SELECT epoch, source FROM interlock_arriving"
_MAKE = """
CREATE TABLE interlock_arriving (
    id INTEGER PRIMARY KEY CHECK (id = 1), epoch INTEGER NOT NULL, source TEXT NOT NULL
)
"""
_WRITE = "INSERT INTO interlock_arriving (id, epoch, source) VALUES (1, ?1, ?2)"
_REMOVE = "DROP TABLE IF EXISTS interlock_arriving"
_REMOVE_TOMBSTONE = "DROP TABLE IF EXISTS interlock_moved"
_MAKE_ARRIVED = "CREATE TABLE IF NOT EXISTS interlock_arrived (epoch INTEGER PRIMARY KEY)"
_WRITE_ARRIVED = "INSERT OR IGNORE INTO interlock_arrived VALUES (?1)"
_EMPTY = "SELECT NOT EXISTS (SELECT 1 FROM sqlite_schema)"


class Draft(NamedTuple):
    """A mover's permission, and the content of the mark: the move of this epoch fills the lane from `source`."""

    epoch: int
    source: str


class Arrived(NamedTuple):
    """The permission of a process that has read a move's tombstone: with that epoch the draft is the truth."""

    epoch: int


Permission = Draft | Arrived | None
"""None is the permission of every other process: a draft is refused."""


def draft_of(connection: apsw.Connection) -> Draft | None:
    """Return the draft mark in the file of this connection; None when the file is not a draft."""
    run = connection.cursor().execute
    with one_snapshot(connection):
        if run(_EXISTS).get is None:
            return None
        for epoch, source in run(_FIND):
            return Draft(int(str(epoch)), str(source))
    return None


def left_for(connection: apsw.Connection, permission: Permission) -> Tombstone | None:
    """Return the tombstone that redirects a process opening this file, or None.

    A draft at a place that was left before keeps that tombstone until it arrives. A process that the end of the move
    sent here ignores it.
    """
    with one_snapshot(connection):
        mark = draft_of(connection)
        if mark is not None and isinstance(permission, Arrived) and permission.epoch == mark.epoch:
            return None
        return tombstone_of(connection)


def admit(connection: apsw.Connection, permission: Permission, what: object) -> None:
    """Check the permission to open this file, and make or remove its mark.

    Call it inside a write transaction if the permission changes the mark. Raises UnavailableError for another's draft.
    """
    run, mark = connection.cursor().execute, draft_of(connection)
    if isinstance(permission, Draft):
        if mark is None and run(_EMPTY).get:
            _make(run, permission)
        elif mark is None:
            raise _occupied(what, permission)
        elif mark != permission:
            raise _arriving(what, mark)
    elif mark is not None:
        if permission is None or permission.epoch != mark.epoch:
            raise _arriving(what, mark)
        run(_REMOVE)
        run(_REMOVE_TOMBSTONE)
        run(_MAKE_ARRIVED)  # So the next move gets a higher epoch, even if this mover has died.
        run(_WRITE_ARRIVED, (mark.epoch,))


def mark_again(connection: apsw.Connection, draft: Draft) -> None:
    """Mark this empty draft as filled by another move. Runs inside a transaction of the mover."""
    run = connection.cursor().execute
    run(_REMOVE)
    _make(run, draft)


def arrival() -> Work:
    """Return the transaction that turns a draft into the database. The mover runs it on the lane that it has filled."""
    return Work(_arrive)


def departure(url: str, epoch: int, time_us: int) -> Work:
    """Return the last transaction of a lane that its only user leaves. Nothing else may wait in the lane with it."""
    return Work(_depart, Tombstone(url, epoch, time_us))


def _make(run: Run, draft: Draft) -> None:
    run(_MAKE)
    run(_WRITE, draft)


def _arrive(session: Session) -> None:
    session.own(lambda run: run(_REMOVE))


def _depart(session: Session, stone: Tombstone) -> None:
    session.own(lambda run: write_tombstone(run, stone))


def _arriving(what: object, mark: Draft) -> UnavailableError:
    return UnavailableError(
        f"{what} is arriving: move {mark.epoch} from {redacted(mark.source)} is filling it.",
        why="Until the move is over everything lives at the place that it comes from; what is here is a draft.",
        fix="Open it by its name at the home, or at the address it comes from. If the mover has died, run the same "
        "`interlock route` again: it goes on.",
    )


def _occupied(what: object, draft: Draft) -> UnavailableError:
    return UnavailableError(
        f"{what} is a database already; move {draft.epoch} from {redacted(draft.source)} cannot fill it.",
        why="A move makes its target itself, so that nothing that is there is ever mixed with what comes.",
        fix="Name another address, or put the database that is there aside.",
    )
