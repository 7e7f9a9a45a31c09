"""Guards: functions that raise where PostgreSQL raises, or where its result would be arbitrary.

A subquery as a value may give one row; an upsert may touch a row once; a row that UPDATE … FROM finds twice must be
given the same values twice. SQLite would go on silently in all three. A series does not stand still, and a negative
LIMIT is an error.
"""

from typing import Final

from interlock.errors import DialectError, TransactionError
from interlock.sql.registry import ANY_NUMBER, Function, strict
from interlock.sql.stored_values import StoredValue
from interlock.sql.types import InvalidValue


class SingleRow:
    """The value of a subquery that must not give a second row; NULL without any."""

    def __init__(self) -> None:
        self._value: StoredValue = None
        self._count = 0

    def step(self, *values: StoredValue) -> None:
        """Take one row."""
        self._count += 1
        if self._count > 1:
            raise TransactionError(
                "a subquery as a value gave more than one row.",
                why="A value is one row of one column; PostgreSQL refuses it, too.",
                fix="Ask for the whole primary key, use an aggregate, or add LIMIT 1.",
            )
        [self._value] = values

    def final(self) -> StoredValue:
        """The value."""
        return self._value


class SameValue:
    """The value that all source rows of one target row must agree on."""

    def __init__(self) -> None:
        self._value: StoredValue = None
        self._count = 0

    def step(self, *values: StoredValue) -> None:
        """Take one row."""
        [value] = values
        self._count += 1
        if self._count > 1 and (type(value) is not type(self._value) or value != self._value):
            raise DialectError(
                f"UPDATE … FROM found several rows for one row, with different values: {self._value!r} and {value!r}.",
                why="PostgreSQL would take any of them.",
                fix="Join by a key, or take one of them in a subquery: SET a = (SELECT … ORDER BY … LIMIT 1).",
            )
        self._value = value

    def final(self) -> StoredValue:
        """The value."""
        return self._value


class Upserts:
    """The keys that one INSERT … ON CONFLICT DO UPDATE has proposed so far. One statement runs at a time."""

    def __init__(self) -> None:
        self._number = 0
        self._proposed: set[tuple[StoredValue, ...]] = set()

    def begin(self) -> StoredValue:
        """Called once per statement."""
        self._number += 1
        self._proposed = set()
        return self._number

    def propose(
        self, number: StoredValue, conditional: StoredValue, kinds: StoredValue, *key: StoredValue
    ) -> StoredValue:
        """Note the key of one row and give its first column back; a key that was proposed before raises."""
        assert number == self._number
        if None not in key:
            assert isinstance(kinds, str)
            compared = tuple(
                _decimal_key(str(value)) if kind == "n" else value for kind, value in zip(kinds, key, strict=True)
            )
            if compared in self._proposed:
                raise _second_time(key, conditional=bool(conditional))
            self._proposed.add(compared)
        return key[0]


def _decimal_key(text: str) -> str:
    """The same text for equal numbers, whatever zeros they end in."""
    return text.rstrip("0").rstrip(".") if "." in text else text


def _second_time(key: tuple[StoredValue, ...], *, conditional: bool) -> Exception:
    listed = ", ".join(map(repr, key))
    if conditional:
        return DialectError(
            f"ON CONFLICT DO UPDATE … WHERE was given two rows with the key {listed}.",
            why="Whether PostgreSQL refuses the second one depends on whether the first one changed anything.",
            fix="Give each key once per statement.",
        )
    return TransactionError(
        f"ON CONFLICT DO UPDATE was given two rows with the key {listed}.",
        why="A statement changes a row once; PostgreSQL refuses it, too.",
        fix="Give each key once per statement.",
    )


def step(value: StoredValue) -> StoredValue:
    """The step of a series, which must not be zero."""
    if value == 0:
        raise InvalidValue("generate_series() by steps of zero.", why="It would never end.", fix="Use 1 or -1.")
    return value


def limit(value: int | None) -> int:
    """Return the bound of LIMIT: NULL means unlimited."""
    return -1 if value is None else _not_negative(value, "LIMIT")


def offset(value: int | None) -> int:
    """Return the bound of OFFSET: NULL means 0."""
    return 0 if value is None else _not_negative(value, "OFFSET")


def place(value: int | None, least: int) -> int:
    """Return the place or number of parts that a parameter gives to a window function."""
    if value is None or (value < 0 and not least):
        raise DialectError(
            "a window function whose place is NULL or negative.",
            why="PostgreSQL gives NULL, or looks in the other direction; SQLite does neither.",
            fix="Pass zero or more; use lead() for rows after this one, and lag() for rows before it.",
        )
    if value < least:
        raise InvalidValue(f"a window function with the argument {value}.", fix="Pass one or more.")
    return value


def _not_negative(value: int, word: str) -> int:
    if value < 0:
        raise InvalidValue(f"{word} must not be negative.", fix="Pass zero or more.")
    return value


def upsert_guards() -> tuple[Function, ...]:
    """Return the functions of one connection. They count, so none is deterministic."""
    upserts = Upserts()
    return (
        Function("interlock_begin_upsert", upserts.begin, 0, deterministic=False),
        Function("interlock_propose", upserts.propose, ANY_NUMBER, deterministic=False),
    )


GUARDS: Final = (
    Function("interlock_step", strict(step), 1),
    Function("interlock_limit", limit, 1),
    Function("interlock_offset", offset, 1),
    Function("interlock_place", place, 2),
)
