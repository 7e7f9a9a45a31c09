"""From SQLite's exceptions to ours: a driver's exception never reaches a user.

A user's own exception stays what it is; what SQLite says is told in our three parts, with the setting that would help.
"""

import apsw

from interlock.errors import ConstraintViolation, TransactionError

TYPE_CHECK_PREFIX = "interlock_type_"
"""Constraints of this name stand for a column's type; breaking one is a wrong value, not a broken rule."""


def translated(error: BaseException) -> Exception:
    """Our error for whatever ended a transaction; a user's own exception stays what it is."""
    if isinstance(error, apsw.ConstraintError):
        return _constraint(error)
    for kind, made in _KINDS.items():
        if isinstance(error, kind):
            return made(_told(error))
    # A StopIteration cannot be handed to a waiting coroutine: to Python it means that one has ended.
    return error if isinstance(error, Exception) and not isinstance(error, StopIteration) else _ended_by(error)


def _constraint(error: apsw.ConstraintError) -> TransactionError:
    told = _told(error)
    if TYPE_CHECK_PREFIX not in told:
        return ConstraintViolation(f"the transaction violates a constraint: {told}.")
    return TransactionError(
        f"the value for column {told.rpartition(TYPE_CHECK_PREFIX)[2]!r} is of another type, or out of its range.",
        why="A column takes only values of its own type, as PostgreSQL does.",
        fix="Convert the value, or make the column wider.",
    )


def _overdue(_told: str) -> TransactionError:
    return TransactionError(
        "a statement ran longer than statement_timeout_s and was ended.",
        why="One writer serves everybody: a statement that does not end would stop the lane.",
        fix="Make it touch fewer rows, add an index, or raise statement_timeout_s.",
    )


def _full(_told: str) -> TransactionError:
    return TransactionError(
        "the disk is full; the transaction was rolled back.",
        why="SQLite could not write its log.",
        fix="Free space; nothing needs to be undone.",
    )


def _forbidden(told: str) -> TransactionError:
    return TransactionError(
        f"the statement is not allowed in a lane: {told}.",
        why="Transaction control, ATTACH, temporary objects, pragmas and Interlock's own tables would break the "
        "isolation of the transactions that share a group.",
        fix="Use transact for several statements; everything else is not needed in a lane.",
    )


def _failed(told: str) -> TransactionError:
    return TransactionError(f"a statement failed: {told}.")


_KINDS = {apsw.InterruptError: _overdue, apsw.FullError: _full, apsw.AuthError: _forbidden, apsw.Error: _failed}


def _ended_by(error: BaseException) -> TransactionError:
    return TransactionError(f"the transaction was ended by {type(error).__name__}.")


def _told(error: BaseException) -> str:
    return str(error).removeprefix(f"{type(error).__name__}: ").rstrip(".") or type(error).__name__
