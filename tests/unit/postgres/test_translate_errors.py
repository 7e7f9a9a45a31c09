"""What the driver raises, in our words: whether it happened is what counts (G9)."""

import asyncpg
import pytest

from interlock.errors import (
    BadUsage,
    ConstraintViolation,
    CorruptionError,
    InterlockError,
    InternalError,
    InvalidPayload,
    OutcomeUnknown,
    TransactionError,
    UnavailableError,
)
from interlock.postgres.translate_errors import (
    Away,
    Blocked,
    LostConnection,
    NotNow,
    Overdue,
    not_reached,
    translate_errors,
)

CASES: list[tuple[Exception, type[InterlockError], type[InterlockError]]] = [
    (asyncpg.ConnectionDoesNotExistError("gone"), LostConnection, OutcomeUnknown),
    (asyncpg.AdminShutdownError("shut down"), LostConnection, OutcomeUnknown),
    (asyncpg.CrashShutdownError("crashed"), LostConnection, OutcomeUnknown),
    (asyncpg.InterfaceError("closed"), LostConnection, OutcomeUnknown),
    (ConnectionResetError("reset"), LostConnection, OutcomeUnknown),
    (TimeoutError(), Overdue, OutcomeUnknown),
    (asyncpg.QueryCanceledError("timeout"), UnavailableError, UnavailableError),
    (asyncpg.DeadlockDetectedError("deadlock"), UnavailableError, UnavailableError),
    (asyncpg.SerializationError("conflict"), UnavailableError, UnavailableError),
    (asyncpg.DiskFullError("full"), UnavailableError, UnavailableError),
    (asyncpg.LockNotAvailableError("locked"), Blocked, Blocked),
    (asyncpg.UniqueViolationError("twice"), ConstraintViolation, ConstraintViolation),
    (asyncpg.CharacterNotInRepertoireError("0x00"), InvalidPayload, InvalidPayload),
    (asyncpg.InvalidTextRepresentationError("no JSON"), InvalidPayload, InvalidPayload),
    (UnicodeEncodeError("utf-8", "\ud800", 0, 1, "surrogates"), InvalidPayload, InvalidPayload),
    (OverflowError("too large"), InvalidPayload, InvalidPayload),
    (asyncpg.DataCorruptedError("page 7"), CorruptionError, CorruptionError),
    (asyncpg.InvalidSQLStatementNameError("does not exist"), UnavailableError, UnavailableError),
    (asyncpg.DuplicatePreparedStatementError("already exists"), UnavailableError, UnavailableError),
    (asyncpg.UndefinedTableError("workflows"), TransactionError, TransactionError),
    (asyncpg.ReadOnlySQLTransactionError("a replica"), TransactionError, TransactionError),
    (InternalError("ours"), InternalError, InternalError),
]


@pytest.mark.parametrize(("raised", "read", "write"), CASES, ids=[type(case[0]).__name__ for case in CASES])
def test_no_error_of_the_driver_escapes(
    raised: Exception, read: type[InterlockError], write: type[InterlockError]
) -> None:
    """A server that answers with an error has rolled back; one that says nothing may have committed."""
    for writing, wanted in ((False, read), (True, write)):
        with pytest.raises(InterlockError) as caught, translate_errors(writing=writing):
            raise raised
        assert type(caught.value) is wanted
        assert caught.value.why
        assert caught.value.fix
        assert caught.value.__cause__ is (None if wanted is InternalError else raised)


NOT_REACHED: list[tuple[Exception, type[InterlockError], str]] = [
    (asyncpg.InvalidPasswordError("no"), UnavailableError, "does not let this user in"),
    (asyncpg.InvalidCatalogNameError("no"), UnavailableError, "no such database"),
    (asyncpg.TooManyConnectionsError("full"), NotNow, "cannot be reached"),
    (asyncpg.CannotConnectNowError("starting up"), NotNow, "cannot be reached"),
    (asyncpg.AdminShutdownError("shutting down"), NotNow, "cannot be reached"),
    (asyncpg.ProtocolViolationError("no more connections allowed (max_client_conn)"), NotNow, "cannot be reached"),
    (asyncpg.ProtocolViolationError("no such user"), UnavailableError, "cannot be reached"),
    (asyncpg.ProtocolViolationError("unsupported startup parameter: jit"), BadUsage, "a pooler that refuses a setting"),
    (ConnectionRefusedError("refused"), Away, "cannot be reached"),
    (asyncpg.ConnectionDoesNotExistError("closed in the middle"), Away, "cannot be reached"),
    (ValueError("port"), BadUsage, "cannot be used"),
]


@pytest.mark.parametrize(("raised", "wanted", "text"), NOT_REACHED)
def test_why_nobody_could_be_reached_is_told(raised: Exception, wanted: type[InterlockError], text: str) -> None:
    error = not_reached(raised, "postgresql://host/shop")
    assert type(error) is wanted
    assert text in error.what
    assert "postgresql://host/shop" in error.what
