"""Values: encode Python's values as SQLite stores them, decode them, and the rows and statements that carry them.

    boolean 0 or 1 · integers as they are · double precision as a float · bytea as a blob
    text as it is, char(n) with its blanks
    numeric as text ("1.50": exact, its scale kept) · date as days since 1970 · time as microseconds
    timestamp and timestamptz as microseconds since 1970 in UTC · interval as the text "months days microseconds"
    uuid as 16 bytes · jsonb as the text that PostgreSQL writes, json as it was written
    a label of an enumeration as its place among the labels · an array as JSON of its stored elements

Values that PostgreSQL would refuse are refused here, because SQLite accepts nearly everything. NaN and infinity, which
PostgreSQL has, are refused too: SQLite cannot keep them.

Sections: encoders and decoders, arrays, rows with names, statements, protocols of a database.
"""

import json
import math
import re
import struct
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from functools import lru_cache
from operator import itemgetter
from typing import ClassVar, Final, Literal, NamedTuple, Protocol, TypeGuard, TypeVar, cast
from uuid import UUID

from interlock.errors import DialectError, TransactionError
from interlock.sql.types import INTEGER_RANGE, InvalidValue, Name, Type

# What SQLite stores.
StoredValue = int | float | str | bytes | None

# The encoder receives the place of the parameter, for its errors. Neither is called for None: NULL fits every type.
Encoder = Callable[[object, int], StoredValue]
Decoder = Callable[[StoredValue], object]

EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
MICROSECOND: Final = timedelta(microseconds=1)
TIME_MIN: Final = (datetime.min.replace(tzinfo=UTC) - EPOCH) // MICROSECOND
TIME_MAX: Final = (datetime.max.replace(tzinfo=UTC) - EPOCH) // MICROSECOND
NUMERIC_DIGITS_MAX: Final = 1000
JSON_DEPTH_MAX: Final = 200
ARRAY_ITEMS_MAX: Final = 100_000
Stored = tuple[StoredValue, ...]


def encoder(kind: Type) -> Encoder:
    """Return the encoder for parameters of that type."""
    if kind.is_integer:
        return _integer_encoder(kind)
    if kind.is_array:
        return _array_encoder(kind)
    return _label_encoder(kind) if kind.labels else _ENCODERS[kind.name]


def decoder(kind: Type, *, checked: bool) -> Decoder | None:
    """Return the decoder for results of that type; None if none is needed. `checked` verifies what SQLite computed."""
    if kind.is_array:
        return _array_decoder(kind)
    if kind.labels:
        return lambda value: kind.labels[cast("int", value)]
    if not checked:
        return _DECODERS.get(kind.name)
    if kind.is_integer:
        low, high = INTEGER_RANGE[kind.name]
        return lambda value: _checked_integer(value, kind, low, high)
    if kind.name == "float8":
        return _checked_float
    return _DECODERS.get(kind.name)


def is_integer(value: object) -> TypeGuard[int]:
    """An int that is not a bool."""
    return isinstance(value, int) and not isinstance(value, bool)


def _wrong(place: int, value: object, wanted: str, *, fix: str = "") -> InvalidValue:
    return InvalidValue(
        f"${place} must be {wanted}, not {_excerpt(value)}.",
        why="PostgreSQL would refuse it; a lane does, too.",
        fix=fix or "Pass a value of that type, or None for NULL.",
    )


def _excerpt(value: object) -> str:
    try:
        text = repr(value)
    except Exception:  # noqa: BLE001 -- an int of many thousand digits, or a user's class: the message is made anyway.
        text = "that cannot be shown"
    return f"{type(value).__name__} {text if len(text) <= 60 else text[:57] + '...'}"  # noqa: PLR2004 - a line's worth


def out_of_range(kind: Type) -> InvalidValue:
    """The error of a computation that leaves its type."""
    return InvalidValue(
        f"{kind} out of range.",
        why="The result does not fit into its type; PostgreSQL has the same limit.",
        fix="Use a wider type (bigint, numeric), or smaller values.",
    )


def _integer_encoder(kind: Type) -> Encoder:
    low, high = INTEGER_RANGE[kind.name]

    def encode(value: object, place: int) -> int:
        if type(value) is int and low <= value <= high:  # The hot path: nothing else is looked at.
            return value
        if not is_integer(value):
            raise _wrong(place, value, f"an int ({kind})")
        if not low <= value <= high:
            raise _wrong(place, value, f"an int between {low} and {high} ({kind})")
        return int(value)

    return encode


def _encode_float(value: object, place: int) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise _wrong(place, value, "a float (double precision)")
    try:
        number = float(value)
    except OverflowError:
        number = math.inf
    if not math.isfinite(number):
        raise _wrong(place, value, "a finite float", fix="A lane keeps neither NaN nor infinity; use None for unknown.")
    return number + 0.0  # SQLite has no negative zero.


def _encode_numeric(value: object, place: int) -> str:
    if isinstance(value, bool) or not isinstance(value, int | Decimal):
        raise _wrong(place, value, "a Decimal (numeric)", fix="Pass Decimal('1.50'): a float is not exact.")
    number = Decimal(value)
    if not number.is_finite():
        raise _wrong(place, value, "a finite Decimal", fix="A lane keeps neither NaN nor infinity.")
    return numeric_text(number)


def numeric_text(number: Decimal) -> str:
    """A decimal as it is stored: plain digits, its scale kept, no negative zero."""
    if number.adjusted() >= NUMERIC_DIGITS_MAX or -cast("int", number.as_tuple().exponent) >= NUMERIC_DIGITS_MAX:
        raise DialectError(
            f"a numeric has more than {NUMERIC_DIGITS_MAX} digits before or after the point.",
            why="Everything that can grow has a limit.",
            fix="Use smaller numbers.",
        )
    return format(abs(number) if number.is_zero() else number, "f")


def numeric_scaled(units: int, scale: int) -> str:
    """A whole number of units of the last digit as a numeric of that scale: 1500 and 3 are 1.500."""
    digits = str(abs(units)).rjust(scale + 1, "0")
    if scale == 0:
        return str(units)
    return f"{'-' if units < 0 else ''}{digits[:-scale]}.{digits[-scale:]}"


def _encode_text(value: object, place: int) -> str:
    if not isinstance(value, str):
        raise _wrong(place, value, "a str (text)")
    if not is_storable(value):
        raise _wrong(place, value, "text without NUL and lone surrogates")
    return str.__str__(value)


def _label_encoder(kind: Type) -> Encoder:
    places = {label: place for place, label in enumerate(kind.labels)}

    def encode(value: object, place: int) -> int:
        if not isinstance(value, str) or value not in places:
            raise _wrong(place, value, f"a label of {kind}: {', '.join(places)}")
        return places[str.__str__(value)]

    return encode


def is_storable(text: str) -> bool:
    """Return whether PostgreSQL can store the text: no NUL, no half of a surrogate pair."""
    if "\0" in text:
        return False
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _encode_bool(value: object, place: int) -> int:
    if not isinstance(value, bool):
        raise _wrong(place, value, "a bool (boolean)")
    return int(value)


def _encode_bytea(value: object, place: int) -> bytes:
    if not isinstance(value, bytes | bytearray | memoryview):
        raise _wrong(place, value, "bytes (bytea)")
    return bytes(cast("bytes", value))


def _encode_time(value: object, place: int) -> int:
    if not isinstance(value, datetime):
        raise _wrong(place, value, "an aware datetime (timestamptz)")
    if value.tzinfo is None or value.utcoffset() is None:
        raise _wrong(place, value, "an aware datetime", fix="Give it a time zone: datetime(…, tzinfo=UTC).")
    try:
        return microseconds(value)
    except ValueError as error:
        raise _wrong(place, value, "a moment of the years 1 to 9999 in UTC") from error


def microseconds(moment: datetime) -> int:
    """A moment as it is stored. Near the ends of the calendar its offset may lead out of it."""
    stored = (moment - EPOCH) // MICROSECOND
    if not TIME_MIN <= stored <= TIME_MAX:
        raise ValueError(f"{moment} is outside of the years 1 to 9999 in UTC")
    return stored


def _encode_timestamp(value: object, place: int) -> int:
    if not isinstance(value, datetime):
        raise _wrong(place, value, "a datetime without a time zone (timestamp)")
    if value.tzinfo is not None:
        raise _wrong(place, value, "a datetime without a time zone", fix="Leave out tzinfo, or use timestamptz.")
    return microseconds(value.replace(tzinfo=UTC))


def _encode_date(value: object, place: int) -> int:
    if not isinstance(value, date) or isinstance(value, datetime):
        raise _wrong(place, value, "a date")
    return (value - EPOCH.date()).days


def _encode_clock(value: object, place: int) -> int:
    if not isinstance(value, time) or value.tzinfo is not None:
        raise _wrong(place, value, "a time without a time zone")
    return ((value.hour * 60 + value.minute) * 60 + value.second) * 1_000_000 + value.microsecond


def _encode_uuid(value: object, place: int) -> bytes:
    if isinstance(value, str) and _UUID.fullmatch(value):  # As every driver of PostgreSQL takes it.
        return bytes.fromhex(value.replace("-", ""))
    if not isinstance(value, UUID):
        raise _wrong(place, value, "a UUID (uuid)", fix="Pass uuid.UUID('…').")
    return value.bytes


def _encode_json(value: object, place: int) -> str:
    refuse_dumped(value, place)
    try:
        return json_text(value)
    except ValueError as error:
        raise _wrong(place, value, f"a JSON document (jsonb): {error}") from error


def refuse_dumped(value: object, place: int) -> None:
    """Raise TransactionError for the text of an object or an array where a document is wanted.

    It would be stored as one JSON string, in which no operator finds anything: `json.dumps` was one call too many.
    """
    if not isinstance(value, str) or value.lstrip(" \t\n\r")[:1] not in {"{", "["}:
        return
    try:
        found: object = json.loads(value)
    except (ValueError, RecursionError):
        return  # A text that only begins like a document is a text.
    kind = "an object" if isinstance(found, dict) else "an array"
    raise InvalidValue(
        f"${place} must be a JSON document (jsonb), not the text of {kind}.",
        why="A str is stored as one JSON string, and not as the document that is written in it.",
        fix="Pass the dict or list itself, without json.dumps; or let the database read the text: "
        f"${place}::text::jsonb. To store the text as a JSON string write to_jsonb(${place}::text).",
    )


def _encode_interval(value: object, place: int) -> str:
    if not isinstance(value, timedelta):
        raise _wrong(place, value, "a timedelta (interval)", fix="Or pass seconds: $1 * interval '1 second'.")
    return f"0 {value.days} {value.seconds * 1_000_000 + value.microseconds}"


def json_text(value: object, depth: int = 0) -> str:
    """A document as PostgreSQL's jsonb writes it: shorter keys first, numbers in digits alone."""
    match value:
        case None | bool() | int():
            return json.dumps(value)
        case str():
            if not is_storable(value):
                raise ValueError("text with NUL or a lone surrogate")
            return json.dumps(value, ensure_ascii=False)
        case float():
            if not math.isfinite(value):
                raise ValueError("NaN and infinity are not JSON")
            # Digits without exponent: jsonb keeps numbers as numeric, so 1e22 comes back as an integer.
            return numeric_text(Decimal(repr(float(value))))
        case JsonNumber():
            return numeric_text(value)
        case list() | dict() if depth >= JSON_DEPTH_MAX:
            raise ValueError(f"nested deeper than {JSON_DEPTH_MAX}")
        case list():
            return f"[{', '.join([json_text(item, depth + 1) for item in cast('list[object]', value)])}]"
        case dict():
            members = cast("dict[object, object]", value)
            keys = sorted(members, key=_json_key)
            return f"{{{', '.join([f'{json_text(key)}: {json_text(members[key], depth + 1)}' for key in keys])}}}"
        case _:
            raise ValueError(f"{type(value).__name__} is not a type of JSON")


def _json_key(key: object) -> tuple[int, bytes]:
    if not isinstance(key, str):
        raise ValueError("a key that is not text")  # noqa: TRY004 - one kind of error for everything that is not JSON.
    if not is_storable(key):
        raise ValueError("text with NUL or a lone surrogate")
    written = key.encode()
    return len(written), written


class JsonNumber(Decimal):
    """A number of a document that is decoded to be encoded again with every digit. A caller's Decimal is not JSON."""


# --- Arrays ----------------------------------------------------------------------------------------------------------


def array_text(values: Iterable[StoredValue]) -> str:
    """Stored values as a stored array. Bytes are written in hexadecimal digits."""
    listed = [value.hex() if isinstance(value, bytes) else value for value in values]
    return json.dumps(listed, ensure_ascii=False, separators=(",", ":"))


def array_items(kind: Type, stored: str) -> list[StoredValue]:
    """The stored values of a stored array of that type."""
    items = cast("list[StoredValue]", json.loads(stored))
    if kind.element.name not in {"bytea", "uuid"}:
        return items
    return [None if item is None else bytes.fromhex(cast("str", item)) for item in items]


def _array_encoder(kind: Type) -> Encoder:
    element = encoder(kind.element)

    def encode(value: object, place: int) -> str:
        if not isinstance(value, list | tuple):
            raise _wrong(place, value, f"a list ({kind})")
        items = cast("Sequence[object]", value)
        if len(items) > ARRAY_ITEMS_MAX:
            raise _wrong(place, items, f"a list of at most {ARRAY_ITEMS_MAX:,} values ({kind})")
        return array_text([None if item is None else element(item, place) for item in items])

    return encode


def _array_decoder(kind: Type) -> Decoder:
    element = decoder(kind.element, checked=False)

    def decode(value: StoredValue) -> object:
        assert isinstance(value, str)
        items = array_items(kind, value)
        return items if element is None else [None if item is None else element(item) for item in items]

    return decode


_ENCODERS: Final[dict[Name, Encoder]] = {
    "numeric": _encode_numeric,
    "float8": _encode_float,
    "text": _encode_text,
    "varchar": _encode_text,
    "bpchar": _encode_text,
    "bool": _encode_bool,
    "bytea": _encode_bytea,
    "date": _encode_date,
    "time": _encode_clock,
    "timestamp": _encode_timestamp,
    "timestamptz": _encode_time,
    "uuid": _encode_uuid,
    "json": _encode_json,
    "jsonb": _encode_json,
    "interval": _encode_interval,
}


def _checked_integer(value: StoredValue, kind: Type, low: int, high: int) -> int:
    if type(value) is not int or not low <= value <= high:
        raise out_of_range(kind)
    return value


def _checked_float(value: StoredValue) -> float:
    if type(value) is not float or not math.isfinite(value):
        raise InvalidValue("double precision out of range.", fix="Use numeric, or smaller values.")
    return value + 0.0


def _decode_float(value: StoredValue) -> float:
    """The float with a zero that has no sign: SQLite loses it when it stores or negates one, and keeps it elsewhere."""
    assert isinstance(value, float)
    return value + 0.0


def _decode_numeric(value: StoredValue) -> Decimal:
    assert isinstance(value, str)
    return Decimal(value)


def decode_time(value: StoredValue) -> datetime:
    """A stored moment as an aware datetime in UTC."""
    assert isinstance(value, int)
    return EPOCH + timedelta(microseconds=value)


def _decode_timestamp(value: StoredValue) -> datetime:
    return decode_time(value).replace(tzinfo=None)


def _decode_date(value: StoredValue) -> date:
    assert isinstance(value, int)
    return EPOCH.date() + timedelta(days=value)


def _decode_clock(value: StoredValue) -> time:
    assert isinstance(value, int)
    return (EPOCH + timedelta(microseconds=value)).time()


def _decode_interval(value: StoredValue) -> timedelta:
    """Return an interval as asyncpg does: a year has 365 days, a month thirty."""
    assert isinstance(value, str)
    months, days, micros = map(int, value.split())
    years, rest = divmod(abs(months), 12)
    sign = -1 if months < 0 else 1
    try:
        return timedelta(days=days + sign * (years * 365 + rest * 30), microseconds=micros)
    except OverflowError as error:
        raise DialectError(
            "an interval beyond Python's timedelta.", why="That is about 2.7 million years.", fix="Cast it to text."
        ) from error


def _decode_uuid(value: StoredValue) -> UUID:
    assert isinstance(value, bytes)
    return UUID(bytes=value)


def _decode_json(value: StoredValue) -> object:
    assert isinstance(value, str)
    return json.loads(value)


_DECODERS: Final[dict[Name, Decoder]] = {
    "bool": bool,
    "float8": _decode_float,
    "numeric": _decode_numeric,
    "date": _decode_date,
    "time": _decode_clock,
    "timestamp": _decode_timestamp,
    "timestamptz": decode_time,
    "interval": _decode_interval,
    "uuid": _decode_uuid,
    "json": _decode_json,
    "jsonb": _decode_json,
}


def rows_text(rows: Sequence[object]) -> str:
    """Return stored values, or rows of them, as one JSON array: what SQLite's json_each() makes rows of."""
    return json.dumps(rows, ensure_ascii=False, separators=(",", ":"))


def portable(value: StoredValue) -> StoredValue:
    """Return a stored value for JSON: bytes as digits, and floats as those of their bytes, which none can round."""
    if isinstance(value, bytes):
        return value.hex()
    return struct.pack(">d", value).hex() if isinstance(value, float) else value


# --- Rows with names -------------------------------------------------------------------------------------------------
# Each statement makes its class once; a row is then as cheap as a tuple and equal to one. A class made at run time
# cannot be pickled by name, so a row is rebuilt from its names and values. A name that is not an identifier, or that
# occurs twice, is reachable by position alone.

ROW_CLASSES_MAX: Final = 512


class Row(tuple[object, ...]):
    """One row of a result: a tuple, with the columns' names as attributes."""

    __slots__ = ()
    _fields: ClassVar[tuple[str, ...]] = ()

    def _asdict(self) -> dict[str, object]:
        return dict(zip(self._fields, self, strict=True))

    def __getattr__(self, name: str) -> object:
        # Only reached when no column has the name; the columns themselves are properties of the subclass.
        raise AttributeError(f"no column {name!r} in this row; it has {', '.join(self._fields) or 'none'}")

    def __repr__(self) -> str:
        return f"Row({', '.join(f'{name}={value!r}' for name, value in zip(self._fields, self, strict=True))})"

    def __reduce__(self) -> tuple[object, ...]:
        return _revive, (self._fields, tuple(self))


@lru_cache(maxsize=ROW_CLASSES_MAX)
def row_class(names: tuple[str, ...]) -> type[Row]:
    """The class of rows with these column names."""
    attributes: dict[str, object] = {"__slots__": (), "_fields": names}
    for place, name in enumerate(names):
        if name.isidentifier() and not name.startswith("_") and names.count(name) == 1:
            attributes[name] = property(itemgetter(place))
    return type("Row", (Row,), attributes)


def _revive(names: tuple[str, ...], values: Sequence[object]) -> Row:
    return row_class(names)(values)


# --- Statement: SQLite's text, with encoders and decoders ------------------------------------------------------------
# It is immutable and shared by everything that runs the same SQL at the same version of the schema. `encode` is the
# only way in for values, so nothing a caller passes is ever part of the text. The odd choice: some results are
# checked when they are decoded, because SQLite answers an overflow with a float where PostgreSQL answers with an
# error.

# A query that asks for locks is no "read": it must run in the writer, where it has them all.
Kind = Literal["read", "lock", "write", "schema"]


@dataclass(frozen=True, slots=True)
class ResultColumn:
    """A column of the result: its name and type. `checked` asks decode() to verify the range, too."""

    name: str
    type: Type
    checked: bool = False


@dataclass(frozen=True, slots=True)
class StatementStep:
    """One part of a statement whose WITH changes data. Its rows become the parameter `place` of the parts after it."""

    text: str
    parameters: int
    """The highest ?n in the text."""
    place: int = 0
    """The last step, which gives the result, has 0."""


_UUID: Final = re.compile(r"[0-9a-fA-F]{8}(-?)[0-9a-fA-F]{4}(?:\1[0-9a-fA-F]{4}){2}\1[0-9a-fA-F]{12}")
_PARAMETERS: Final = re.compile(r"""'[^']*'|"[^"]*"|\?([0-9]+)""")


def step(text: str, place: int = 0) -> StatementStep:
    """Return a step; its parameters are counted in the text, because SQLite takes no more values than it names."""
    return StatementStep(text, max((int(number) for number in _PARAMETERS.findall(text) if number), default=0), place)


@dataclass(frozen=True, slots=True)
class Statement:
    """One statement of PostgreSQL as SQLite runs it."""

    text: str
    kind: Kind
    parameters: tuple[Type, ...] = ()
    columns: tuple[ResultColumn, ...] = ()
    several: bool = False
    """Whether the text is several statements of SQLite, which happen together or not at all."""
    rebuilds: str = ""
    """The table that the text makes anew: foreign keys are off meanwhile, and checked afterwards."""
    steps: tuple[StatementStep, ...] = ()
    """What runs before the text: WITH queries that change data, and those that must not see the changes."""
    explains: bool = False
    """Whether its rows are a plan of SQLite, of which the last column is the text."""
    _encoders: tuple[tuple[int, Encoder], ...] = field(init=False, repr=False, compare=False)
    _decoders: tuple[Decoder | None, ...] | None = field(init=False, repr=False, compare=False)
    _row: Callable[[Sequence[object]], Row] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        decoders = tuple(decoder(column.type, checked=column.checked) for column in self.columns)
        object.__setattr__(self, "_encoders", tuple(enumerate(map(encoder, self.parameters))))
        object.__setattr__(self, "_decoders", decoders if any(decoders) else None)
        made = row_class(tuple(column.name for column in self.columns))

        def last_column(row: Sequence[object]) -> Row:
            return made(row[-1:])

        object.__setattr__(self, "_row", last_column if self.explains else made)

    @property
    def returns_rows(self) -> bool:
        """Return whether running it gives rows: a query, or a change with RETURNING."""
        return bool(self.columns)

    def encode(self, args: Sequence[object]) -> tuple[StoredValue, ...]:
        """The arguments as SQLite stores them, checked against the parameters' number and types."""
        if len(args) != len(self._encoders):
            raise TransactionError(
                f"the statement has {len(self._encoders)} parameters and was given {len(args)} values.",
                why="Every $n needs exactly one value.",
                fix="Pass as many values as the highest $n.",
            )
        return tuple(
            [None if (value := args[index]) is None else encode(value, index + 1) for index, encode in self._encoders]
        )

    def run_steps(
        self, values: tuple[StoredValue, ...], query: Callable[[str, tuple[StoredValue, ...]], Iterable[Stored]]
    ) -> tuple[StoredValue, ...]:
        """Run the steps; return the values for the text: the caller's and the rows of the steps."""
        known = list(values) + [None] * len(self.steps)
        for each in self.steps:
            rows = query(each.text, tuple(known[: each.parameters]))
            known[each.place - 1] = rows_text([[portable(value) for value in row] for row in rows])
        return tuple(known[: step(self.text).parameters])

    def decode(self, row: Sequence[StoredValue]) -> Row:
        """One row of SQLite's as Python values, with names."""
        if self._decoders is None:
            return self._row(row)
        return self._row(
            [
                value if decode is None or value is None else decode(value)
                for decode, value in zip(self._decoders, row, strict=True)
            ]
        )


class Answer(NamedTuple):
    """The result of a statement."""

    rows: list[Row]
    changed: int
    """Rows that it changed, or found."""
    columns: tuple[tuple[str, str], ...] = ()
    """Name and type of each column; a type by PostgreSQL's internal name. Empty for a statement without a result."""


# --- Protocols of a database for the code above it -------------------------------------------------------------------
# `Database` is one, on every engine. The helpers for hot rows (counters, stock and the like) are written against
# this and nothing else, so each of them is one piece of SQL that is exact wherever the database lives.

ResultT = TypeVar("ResultT")

EngineName = Literal["lane", "postgres"]


class Statements(Protocol):
    """A transaction under way, in which statements run."""

    def execute(self, sql: str, /, *args: object) -> Awaitable[int]:
        """Run one statement; the number of rows it changed."""
        ...

    def query(self, sql: str, /, *args: object) -> Awaitable[list[Row]]:
        """Run one statement; its rows."""
        ...


class Executor(Protocol):
    """A database, as much of it as the helpers see."""

    @property
    def url(self) -> str:
        """The address, without secrets."""
        ...

    @property
    def engine(self) -> EngineName:
        """The engine that stores the rows: a lane executes one write after the other, PostgreSQL locks row by row."""
        ...

    def execute(self, sql: str, /, *args: object, key: str | None = None) -> Awaitable[int]:
        """Run one statement as one durable transaction; the number of rows it changed."""
        ...

    def query(self, sql: str, /, *args: object, key: str | None = None) -> Awaitable[list[Row]]:
        """Run one statement; its rows."""
        ...

    def transact(
        self, function: Callable[..., Awaitable[ResultT]], /, *args: object, key: str | None = None
    ) -> Awaitable[ResultT]:
        """Run `async def function(tx, *args)` as one serialized durable transaction; what it returns."""
        ...

    def shard(self, number: int) -> "Awaitable[Executor]":
        """The database for one of several parts that should run in parallel: on a lane one of its own (D5)."""
        ...
