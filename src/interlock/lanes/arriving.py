"""The mark of a lane that is being filled by a move: nobody opens it for use before it has arrived.

The mark is made in the transaction that makes the lane, so there is no instant at which somebody could take a draft for
a database. The mover opens its draft by a permission of its own. When the source has committed its tombstone the draft
is the truth: the mover takes the mark away, or, when the mover died first, whoever has seen the tombstone does.
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
    """The permission of a mover, and what the mark says: this move, from there, is filling the lane."""

    epoch: int
    source: str


class Arrived(NamedTuple):
    """The permission of whoever has seen the tombstone of a move: with that epoch the draft is the truth."""

    epoch: int


Permission = Draft | Arrived | None
"""None is everybody's: a draft is refused."""


def draft_of(connection: apsw.Connection) -> Draft | None:
    """The mark in the file of this connection; None when it is no draft."""
    run = connection.cursor().execute
    with one_snapshot(connection):
        if run(_EXISTS).get is None:
            return None
        for epoch, source in run(_FIND):
            return Draft(int(str(epoch)), str(source))
    return None


def left_for(connection: apsw.Connection, permission: Permission) -> Tombstone | None:
    """The tombstone that sends whoever opens this file on.

    A draft at a place that was left before keeps that tombstone until it arrives: it is none for those who were sent
    here by the end of the move.
    """
    with one_snapshot(connection):
        mark = draft_of(connection)
        if mark is not None and isinstance(permission, Arrived) and permission.epoch == mark.epoch:
            return None
        return tombstone_of(connection)


def admit(connection: apsw.Connection, permission: Permission, what: object) -> None:
    """Let whoever opens this file in, and make or remove its mark; raises UnavailableError for a draft of others.

    Called inside a transaction that writes, when the permission is to change anything.
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
        run(_MAKE_ARRIVED)  # The next move has a higher epoch, whoever has let this one arrive.
        run(_WRITE_ARRIVED, (mark.epoch,))


def mark_again(connection: apsw.Connection, draft: Draft) -> None:
    """Another move fills this draft, which is empty. Inside a transaction of the mover's."""
    run = connection.cursor().execute
    run(_REMOVE)
    _make(run, draft)


def arrival() -> Work:
    """The transaction by which a draft becomes the database: run by the mover, on the lane that it has filled."""
    return Work(_arrive)


def departure(url: str, epoch: int, time_us: int) -> Work:
    """The last transaction of a lane that its only user leaves. Nothing else may wait in the lane with it."""
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
