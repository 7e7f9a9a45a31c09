"""From SQLite's exceptions to ours: a driver's exception never reaches a user."""

import apsw

from interlock.errors import ConstraintViolation, TransactionError


def translated(error: BaseException) -> Exception:
    """Our error for whatever ended a transaction; a user's own exception stays what it is."""
    if isinstance(error, apsw.ConstraintError):
        return ConstraintViolation(f"the transaction violates a constraint: {_told(error)}.")
    if isinstance(error, apsw.InterruptError):
        return TransactionError(
            "a statement ran longer than statement_timeout_s and was ended.",
            why="One writer serves everybody: a statement that does not end would stop the lane.",
            fix="Make it touch fewer rows, add an index, or raise statement_timeout_s.",
        )
    if isinstance(error, apsw.FullError):
        return TransactionError(
            "the disk is full; the transaction was rolled back.",
            why="SQLite could not write its log.",
            fix="Free space; nothing needs to be undone.",
        )
    if isinstance(error, apsw.AuthError):
        return TransactionError(
            f"the statement is not allowed in a lane: {_told(error)}.",
            why="Transaction control, ATTACH, temporary objects, pragmas and Interlock's own tables would break the "
            "isolation of the transactions that share a group.",
            fix="Use transact for several statements; everything else is not needed in a lane.",
        )
    if isinstance(error, apsw.Error):
        return TransactionError(f"a statement failed: {_told(error)}.")
    return error if isinstance(error, Exception) else _ended_by(error)


def _ended_by(error: BaseException) -> TransactionError:
    return TransactionError(f"the transaction was ended by {type(error).__name__}.")


def _told(error: BaseException) -> str:
    return str(error).removeprefix(f"{type(error).__name__}: ").rstrip(".") or type(error).__name__
