"""Translation of SQLite's exceptions into Interlock's: a driver's exception never reaches a user.

A user's own exception stays unchanged. An error of SQLite gets our three parts, with the setting that would help.
"""

import contextlib
import copy
from collections.abc import Generator
from pathlib import Path
from typing import TypeVar

import apsw

from interlock.errors import (
    BadUsage,
    ConstraintViolation,
    CorruptionError,
    Fenced,
    InterlockError,
    LaneOwned,
    MovedElsewhere,
    TransactionError,
    UnavailableError,
)

ErrorT = TypeVar("ErrorT", bound=InterlockError)

TYPE_CHECK_PREFIX = "interlock_type_"
"""Constraints of this name stand for a column's type; breaking one is a wrong value, not a broken rule."""


_DAMAGES = (apsw.CorruptError, apsw.NotADBError)


def translated(error: BaseException) -> Exception:
    """Return our error for the exception that ended a transaction; a user's own exception is returned unchanged."""
    if isinstance(error, apsw.ConstraintError):
        return _constraint(error)
    for kind, made in _KINDS.items():
        if isinstance(error, kind):
            return made(_error_text(error))
    # A StopIteration cannot be handed to a waiting coroutine: to Python it means that one has ended.
    return error if isinstance(error, Exception) and not isinstance(error, StopIteration) else _ended_by(error)


@contextlib.contextmanager
def opening(what: Path | str | None) -> Generator[None]:
    """Raise our error for whatever keeps a lane, or something that it needs, from being opened."""
    try:
        yield
    except InterlockError:
        raise
    except (apsw.Error, OSError, ValueError) as error:
        raise _unopened(error, what) from error


def not_executed(error: Exception) -> InterlockError:
    """Return our error for one work of a group that could not be executed; each work gets its own."""
    if isinstance(error, InterlockError):
        return again(error)
    if isinstance(error, _DAMAGES):
        return _damaged(_error_text(error))
    return UnavailableError(
        f"the group could not be executed: {error}.",
        why="The disk or the file failed before the commit.",
        fix="Repeat the transaction; it did not happen.",
    )


def overdue_read() -> TransactionError:
    """The error for a read beside the writer that ran too long."""
    return TransactionError(
        "a read ran longer than statement_timeout_s and was ended.",
        why="Only a few reads run at a time (readers_max), and the log cannot be folded while one of them needs it.",
        fix="Make it touch fewer rows, add an index, or raise statement_timeout_s. Nothing was changed.",
    )


def closed() -> UnavailableError:
    """The error for using a lane that was closed."""
    return UnavailableError("the lane is closed.", fix="Open the database again.")


def stopped(error: InterlockError) -> UnavailableError:
    """The error for using a lane that this one has killed."""
    if isinstance(error, Fenced | MovedElsewhere):
        return error
    return UnavailableError(
        f"this lane has stopped: {error.what}",
        why="After a failed commit it cannot know what is on the disk, and does not guess.",
        fix="Open the database again; what was acknowledged is there.",
    )


def again(error: ErrorT) -> ErrorT:
    """The same error for one more caller: raised twice, one object would collect the frames of every caller."""
    fresh = copy.copy(error)
    fresh.__cause__ = error.__cause__
    return fresh


def _unopened(error: Exception, what: Path | str | None) -> InterlockError:
    text = _error_text(error)
    if isinstance(error, UnicodeError) or "null" in text:
        return BadUsage(
            f"{str(what)!r} cannot be opened: {text}.",
            why="No file can have such a name.",
            fix="Use a name without NUL characters and lone surrogates.",
        )
    if isinstance(error, (*_DAMAGES, apsw.SQLError, ValueError)):
        return CorruptionError(
            f"{what} is not a lane, or it is damaged: {text}.",
            why="Its bytes are not those that a lane writes; going on could spread the damage.",
            fix="Check the address. If it is the lane: keep its files, run `interlock doctor`, and restore a backup.",
        )
    if isinstance(error, apsw.BusyError):
        return LaneOwned(
            f"{what} stayed locked by a program that is not the owner of the lane.",
            why="Something that is not Interlock has the file open, and writes.",
            fix="Find out what else has the file open, and end it.",
        )
    return UnavailableError(
        f"{what} cannot be opened: {getattr(error, 'strerror', None) or text}.",
        why="The system refused: the folder, its permissions, the length of the name, or the disk.",
        fix="Check that the folder can be made and written by this user, and that no part of the path is a file.",
    )


def _constraint(error: apsw.ConstraintError) -> TransactionError:
    text = _error_text(error)
    if TYPE_CHECK_PREFIX not in text:
        return ConstraintViolation(f"the transaction violates a constraint: {text}.")
    return TransactionError(
        f"the value for column {text.rpartition(TYPE_CHECK_PREFIX)[2]!r} is of another type, or out of its range.",
        why="A column takes only values of its own type, as PostgreSQL does.",
        fix="Convert the value, or make the column wider.",
    )


def _overdue(_text: str) -> TransactionError:
    return TransactionError(
        "a statement ran longer than statement_timeout_s and was ended.",
        why="One writer serves all clients: a statement that does not end would stop the lane.",
        fix="Make it touch fewer rows, add an index, or raise statement_timeout_s.",
    )


def _full(_text: str) -> TransactionError:
    return TransactionError(
        "the disk is full; the transaction was rolled back.",
        why="SQLite could not write its log.",
        fix="Free space; nothing needs to be undone.",
    )


def _forbidden(text: str) -> TransactionError:
    return TransactionError(
        f"the statement is not allowed in a lane: {text}.",
        why="Transaction control, ATTACH, temporary objects, pragmas and Interlock's own tables would break the "
        "isolation of the transactions that share a group.",
        fix="Use transact for several statements; everything else is not needed in a lane.",
    )


def _failed(text: str) -> TransactionError:
    return TransactionError(f"a statement failed: {text}.")


def _unreadable(text: str) -> UnavailableError:
    return UnavailableError(
        f"a file of the lane could not be read or written: {text}.",
        why="The disk failed, or another program removed the file.",
        fix="Look at the disk and the folder; the transaction did not happen.",
    )


def _damaged(text: str) -> CorruptionError:
    return CorruptionError(f"the lane's file is damaged: {text}.")


_KINDS = {
    apsw.InterruptError: _overdue,
    apsw.FullError: _full,
    apsw.AuthError: _forbidden,
    apsw.CorruptError: _damaged,
    apsw.NotADBError: _damaged,
    apsw.IOError: _unreadable,
    apsw.CantOpenError: _unreadable,
    apsw.Error: _failed,
}


def _ended_by(error: BaseException) -> TransactionError:
    return TransactionError(f"the transaction was ended by {type(error).__name__}.")


def _error_text(error: BaseException) -> str:
    return str(error).removeprefix(f"{type(error).__name__}: ").rstrip(".") or type(error).__name__
