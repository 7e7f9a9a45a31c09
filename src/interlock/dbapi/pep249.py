"""What PEP 249 names: its exceptions, type codes, type objects and constructors.

    Error
    ├── InterfaceError
    └── DatabaseError
        ├── DataError  IntegrityError  InternalError  NotSupportedError
        └── OperationalError  ProgrammingError

The text of an exception is that of Interlock's error, which is the cause (`__cause__`). A type code is the object id
that PostgreSQL has for the type in every installation, so that tools which know those of PostgreSQL understand them. An
enumeration, which has none, has that of text.

Sections: exceptions, types.
"""

import contextlib
from collections.abc import Generator
from datetime import UTC, date, datetime, time
from typing import Final

from interlock import errors
from interlock.database.transactions import TransactionEnded
from interlock.sql.types import InvalidValue

# --- Exceptions ------------------------------------------------------------------------------------------------------


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
    (InvalidValue, DataError),
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


# --- Types -----------------------------------------------------------------------------------------------------------

OIDS: Final[dict[str, int]] = {
    "bool": 16,
    "bytea": 17,
    "int8": 20,
    "int2": 21,
    "int4": 23,
    "text": 25,
    "json": 114,
    "float4": 700,
    "float8": 701,
    "unknown": 705,
    "bpchar": 1042,
    "varchar": 1043,
    "date": 1082,
    "time": 1083,
    "timestamp": 1114,
    "timestamptz": 1184,
    "interval": 1186,
    "numeric": 1700,
    "uuid": 2950,
    "jsonb": 3802,
    "json[]": 199,
    "bool[]": 1000,
    "bytea[]": 1001,
    "int2[]": 1005,
    "int4[]": 1007,
    "text[]": 1009,
    "varchar[]": 1015,
    "int8[]": 1016,
    "float4[]": 1021,
    "float8[]": 1022,
    "timestamp[]": 1115,
    "date[]": 1182,
    "time[]": 1183,
    "timestamptz[]": 1185,
    "interval[]": 1187,
    "numeric[]": 1231,
    "uuid[]": 2951,
    "jsonb[]": 3807,
}


def type_code(name: str) -> int:
    """Return PostgreSQL's object id of the type with this internal name."""
    return OIDS.get(name, OIDS["text[]" if name.endswith("[]") else "text"])


class TypeObject(frozenset[int]):
    """A set of types, which is equal to the type code of each of them."""

    __slots__ = ()

    def __eq__(self, other: object) -> bool:
        return other in self if isinstance(other, int) else super().__eq__(other)

    __hash__ = frozenset[int].__hash__


def _type_object(*names: str) -> TypeObject:
    return TypeObject(OIDS[name] for name in names)


STRING: Final = _type_object("text", "varchar", "bpchar", "json", "jsonb", "uuid", "unknown")
BINARY: Final = _type_object("bytea")
NUMBER: Final = _type_object("int2", "int4", "int8", "float4", "float8", "numeric")
DATETIME: Final = _type_object("date", "time", "timestamp", "timestamptz", "interval")
ROWID: Final = _type_object()

Date = date
Time = time
Timestamp = datetime
Binary = bytes


def DateFromTicks(ticks: float) -> date:  # noqa: N802 -- PEP 249's name.
    """Return the date in UTC of a time in seconds since the epoch."""
    return TimestampFromTicks(ticks).date()


def TimeFromTicks(ticks: float) -> time:  # noqa: N802 -- PEP 249's name.
    """Return the time of day in UTC of a time in seconds since the epoch."""
    return TimestampFromTicks(ticks).time()


def TimestampFromTicks(ticks: float) -> datetime:  # noqa: N802 -- PEP 249's name.
    """Return the moment, in UTC, of a time in seconds since the epoch."""
    return datetime.fromtimestamp(ticks, UTC)
