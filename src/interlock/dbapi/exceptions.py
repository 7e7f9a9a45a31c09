"""PEP 249's exceptions, and which of them stands for each of Interlock's errors.

    Error
    ├── InterfaceError
    └── DatabaseError
        ├── DataError  IntegrityError  InternalError  NotSupportedError
        └── OperationalError  ProgrammingError

The text is that of Interlock's error, which is the cause (`__cause__`).
"""

import contextlib
from collections.abc import Generator
from typing import Final

from interlock import errors
from interlock.database.transactions import TransactionEnded


class Warning(Exception):  # noqa: A001 -- PEP 249's name.
    """An important warning. Interlock raises none."""


class Error(Exception):
    """Any error of the module."""


class InterfaceError(Error):
    """The module is used wrongly: a closed connection or cursor."""


class DatabaseError(Error):
    """An error of the database."""


class DataError(DatabaseError):
    """A value cannot be processed."""


class OperationalError(DatabaseError):
    """The database is not available, or has ended the transaction; it may work later."""


class IntegrityError(DatabaseError):
    """A constraint refused a change."""


class InternalError(DatabaseError):
    """A bug of Interlock."""


class ProgrammingError(DatabaseError):
    """The statement, its values or the address are wrong."""


class NotSupportedError(DatabaseError):
    """PostgreSQL has it, and a lane has not."""


EXCEPTIONS: Final[tuple[type[Exception], ...]] = (
    Warning,
    Error,
    InterfaceError,
    DatabaseError,
    DataError,
    OperationalError,
    IntegrityError,
    InternalError,
    ProgrammingError,
    NotSupportedError,
)
"""All of PEP 249's."""

_BY_ERROR: Final[tuple[tuple[type[errors.InterlockError], type[DatabaseError]], ...]] = (
    (errors.ConstraintViolation, IntegrityError),
    (TransactionEnded, OperationalError),
    (errors.TransactionError, ProgrammingError),
    (errors.DialectError, NotSupportedError),
    (errors.MissingExtra, NotSupportedError),
    (errors.UnavailableError, OperationalError),
    (errors.CorruptionError, OperationalError),
    (errors.InternalError, InternalError),
    (errors.DefinitionError, ProgrammingError),
    (errors.RequestError, ProgrammingError),
)
"""The first that matches counts."""


@contextlib.contextmanager
def translate_errors() -> Generator[None]:
    """Raise PEP 249's exception for an error of Interlock, from that error."""
    try:
        yield
    except errors.InterlockError as error:
        found = next((kind for known, kind in _BY_ERROR if isinstance(error, known)), DatabaseError)
        raise found(str(error)) from error
