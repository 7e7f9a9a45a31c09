"""Types of PEP 249: the type codes of a cursor's description, its type objects, and its constructors.

A type code is the object id that PostgreSQL has for the type in every installation, so that tools which know those of
PostgreSQL understand them. An enumeration, which has none, has that of text.
"""

from datetime import UTC, date, datetime, time
from typing import Final

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
