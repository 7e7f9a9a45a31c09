"""Translate the driver's exceptions into ours: a user never gets an exception of asyncpg.

The caller has to know whether the statement can have happened. A server that answers with an error has rolled the
transaction back. A connection that breaks while a statement is on its way gives no answer: for a read that is
UnavailableError, for a write OutcomeUnknown (G9), for any last message: a backend that is terminated while it waits for
its replicas has committed, and sends no answer.

A connection that cannot be opened has its own errors: a server that is full, starting or away may take the next one.
"""

# pyright: reportMissingTypeStubs=false, reportUnknownMemberType=false, reportUnknownVariableType=false
# asyncpg has no types of its own; mypy --strict looks at what is ours.

import contextlib
from collections.abc import Generator
from typing import TypeGuard

from interlock.errors import (
    BadUsage,
    ConstraintViolation,
    CorruptionError,
    InterlockError,
    InvalidPayload,
    MissingExtra,
    OutcomeUnknown,
    TransactionError,
    UnavailableError,
)

__all__ = ["asyncpg"]


try:
    import asyncpg
except ImportError as error:
    raise MissingExtra("PostgreSQL needs asyncpg, which is not installed.", extra="postgres") from error


CONNECTION_STATES = ("08", "57P")
"""Classes of SQLSTATE after which the connection is gone: connection exceptions, and a server that shuts down."""

TRANSIENT_STATES = ("40", "53", "55", "58")
"""A retry may succeed: serialization and deadlock, no resources, locks, the server's disk."""

FULL_STATES = ("53300", "57P")
"""Of a server that takes no connection now: too many clients, starting up, shutting down, recovering from a crash."""

POOLER_IS_FULL = (
    "no more connections allowed",
    "server login",
    "cannot connect",
    "shutting down",
    "query_wait_timeout",
)
"""Messages of PgBouncer, which gives all its errors the state of a broken protocol."""

UNPREPARED_STATES = ("26000", "42P05")
"""A prepared statement is missing, or existed before: another session answers than the one that prepared it."""

UNSTORABLE_STATES = ("22", "54")
"""A value that PostgreSQL cannot keep: NUL and lone surrogates, no JSON, a number or time out of range, too long."""

MISSING_STATES = ("42P01", "3F000")
"""No such table, no such schema."""

ADD_THE_OPTION = "Add ?pgbouncer=true to the address (&pgbouncer=true after another option)."


class Blocked(TransactionError):
    """Another transaction held a lock for longer than this one was to wait; nothing happened."""


class LostConnection(UnavailableError):
    """The connection broke and nothing happened: it was a read, or a write that never left. Another one may do it."""


class Overdue(UnavailableError):
    """A read took longer than it may. Its connection is still in the middle of it."""


class NotNow(UnavailableError):
    """The server takes no connection at the moment: it is full, starting or shutting down."""


class Away(NotNow):
    """No server answers at the address. The address may be wrong, unless a server has answered there before."""


@contextlib.contextmanager
def translate_errors(*, writing: bool) -> Generator[None]:
    """Raise our error for every error that the driver raises while a statement is on its way."""
    try:
        yield
    except InterlockError:
        raise
    except (asyncpg.PostgresError, asyncpg.InterfaceError, asyncpg.InternalClientError) as error:
        raise translated(error, writing=writing) from error
    except TimeoutError as error:
        raise _overdue(writing=writing) from error
    except (OSError, EOFError) as error:
        raise _broken(error, writing=writing) from error
    except (UnicodeError, OverflowError, ValueError, TypeError) as error:
        raise _unstorable(error) from error


def translated(error: Exception, *, writing: bool) -> InterlockError:
    """Return our error for one of the driver's."""
    state = state_of(error)
    if state is None or state.startswith(CONNECTION_STATES):
        return _broken(error, writing=writing)
    if state.startswith(UNSTORABLE_STATES):
        return _unstorable(error)
    if state in UNPREPARED_STATES:
        return _pooled(error)
    for begin, (kind, what, why, fix) in _KINDS.items():
        if state.startswith(begin):
            return kind(what.format(_first_line(error)), why=why, fix=fix)
    return TransactionError(f"PostgreSQL refuses a statement: {_first_line(error)}.")


def state_of(error: BaseException) -> str | None:
    """Return the SQLSTATE that the server gave; None when the error is not the server's."""
    state: object = getattr(error, "sqlstate", None)
    return state if isinstance(state, str) else None


def is_missing(error: BaseException | None) -> bool:
    """Return whether a statement failed because its tables are missing: they may be arriving, or have left."""
    while error is not None:
        if state_of(error) in MISSING_STATES:
            return True
        error = error.__cause__
    return False


def is_stale(error: BaseException) -> bool:
    """Return whether a prepared statement is older than the schema; it was not executed, and can be prepared again."""
    return isinstance(error, (asyncpg.InvalidCachedStatementError, asyncpg.InvalidSQLStatementNameError))


def not_reached(error: Exception, place: str) -> InterlockError:
    """Return our error for a connection that could not be opened."""
    state = state_of(error) or ""
    if state.startswith("28"):
        return UnavailableError(
            f"{place} does not let this user in: {_first_line(error)}.",
            why="The user, the password, or the server's pg_hba.conf is another one than expected.",
            fix="Correct the user and password in the address, or allow the user on the server.",
        )
    if state == "3D000":
        return UnavailableError(
            f"there is no such database at {place}: {_first_line(error)}.",
            why="A schema is made by Interlock, a database is not.",
            fix="Make it with createdb, or correct the address.",
        )
    if isinstance(error, (ValueError, asyncpg.ClientConfigurationError)):
        return BadUsage(f"{place} cannot be used: {_first_line(error)}.", fix="Correct the address.")
    if state == "08P01" and "startup parameter" in str(error):
        return BadUsage(
            f"{place} is a pooler that refuses a setting: {_first_line(error)}.",
            why="PgBouncer gives one connection to many clients, and lets none of them change it for the others.",
            fix=ADD_THE_OPTION,
        )
    return _may_try_again(error, state)(
        f"PostgreSQL cannot be reached at {place}: {_first_line(error)}.",
        why="The server is down, starting, full, or at another address.",
        fix="Check the address and the server; connections are opened again by themselves.",
    )


def waited_too_long(error: NotNow, waited_s: float) -> UnavailableError:
    """Return our error for a server that took no connection within the timeout."""
    return UnavailableError(
        f"{error.what.removesuffix('.')}. It was tried again and again for {waited_s:g} s.",
        why=f"{error.why} Nothing was sent, so nothing happened.",
        fix="Give the server room or time: raise max_connections there or lower connections_max here, "
        "or wait longer with connect_timeout_s.",
    )


def can_fail_to_connect(error: BaseException) -> TypeGuard[Exception]:
    """Return whether the error is one of those that opening a connection raises."""
    return isinstance(
        error,
        (asyncpg.PostgresError, asyncpg.InterfaceError, asyncpg.InternalClientError, OSError, TimeoutError, ValueError),
    )


def closed() -> UnavailableError:
    """Return the error for using a closed store or database."""
    return UnavailableError("the store or database is closed.", fix="Open it again.")


def _may_try_again(error: Exception, state: str) -> type[UnavailableError]:
    if state.startswith(FULL_STATES) or (state == "08P01" and any(text in str(error) for text in POOLER_IS_FULL)):
        return NotNow
    if (state.startswith("08") and state != "08P01") or isinstance(error, (OSError, TimeoutError)):
        return Away
    return UnavailableError


def _pooled(error: BaseException) -> UnavailableError:
    return UnavailableError(
        f"a prepared statement was not where it was prepared: {_first_line(error)}.",
        why="A pooler in transaction mode gave this connection another session. Nothing was changed.",
        fix=ADD_THE_OPTION,
    )


def _broken(error: BaseException, *, writing: bool) -> UnavailableError:
    if writing:
        return OutcomeUnknown(
            f"the connection to PostgreSQL was lost while a commit was on its way: {_first_line(error)}.",
            why="The server may have committed before the connection broke; the client cannot know.",
        )
    return LostConnection(
        f"the connection to PostgreSQL was lost: {_first_line(error)}.",
        why="The server was restarted, or ended the connection.",
        fix="Repeat it; connections are opened again by themselves. Nothing was changed.",
    )


def _overdue(*, writing: bool) -> OutcomeUnknown | Overdue:
    if writing:
        return OutcomeUnknown(
            "PostgreSQL did not answer a commit within statement_timeout_s.",
            why="It was asked to end the statement, and may have committed before it heard of that.",
        )
    # Not a lost connection: another one would be as slow.
    return Overdue(
        "PostgreSQL did not answer within statement_timeout_s.",
        why="The server is busy, or another session holds a lock on the tables. Nothing was changed.",
        fix="Look at pg_stat_activity, or raise statement_timeout_s in the address.",
    )


def _unstorable(error: BaseException) -> InvalidPayload:
    return InvalidPayload(
        f"a value cannot be stored in PostgreSQL: {_first_line(error)}.",
        why="Texts are Unicode without NUL and lone surrogates, JSON is valid, and numbers have 64 bits.",
    )


def _first_line(error: BaseException) -> str:
    first = str(error).partition("\n")[0].rstrip(".")
    return first or type(error).__name__


_KINDS: dict[str | tuple[str, ...], tuple[type[InterlockError], str, str, str]] = {
    "57014": (
        UnavailableError,
        "PostgreSQL ended a statement: {}.",
        "The server's statement_timeout is over, or another session has cancelled it. It did not happen.",
        "Raise the server's statement_timeout for this user, or look at what else the server is doing.",
    ),
    "55P03": (
        Blocked,
        "another transaction holds a lock for too long: {}.",
        "Waiting for it would block all statements that wait after this one.",
        "Repeat it; if it stays so, look for idle transactions in pg_stat_activity.",
    ),
    # Such as currval before nextval, or RESTART of a column that is not numbered: waiting does not help.
    "55000": (TransactionError, "PostgreSQL refuses a statement: {}.", "", ""),
    "23": (ConstraintViolation, "PostgreSQL refuses the change: {}.", "", ""),
    "XX": (CorruptionError, "PostgreSQL has found damage: {}.", "", "Look at the server's log."),
    TRANSIENT_STATES: (
        UnavailableError,
        "PostgreSQL could not do it now: {}.",
        "Nothing of it happened.",
        "Repeat it later.",
    ),
}
"""By the beginning of the SQLSTATE: the error with its text, why and fix. The first that fits counts."""
