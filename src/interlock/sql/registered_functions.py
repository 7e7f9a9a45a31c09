"""All entries in one table, and what a lane registers on each of its connections.

Functions of time or chance come from the lane as `Sources`, so that a simulation can repeat them.
"""

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cmp_to_key, partial
from typing import Final
from uuid import UUID

from msgspec.structs import replace

from interlock.sql import literals
from interlock.sql.functions import (
    accumulators,
    arrays,
    decimals,
    documents,
    guards,
    jsonpath,
    numbers,
    regular_expressions,
    sets,
    texts,
    times,
    to_char,
)
from interlock.sql.functions.sequence_positions import Positions
from interlock.sql.registry import (
    ANY_NUMBER,
    Aggregate,
    Build,
    Collation,
    Entry,
    Function,
    built,
    cast,
    strict,
)
from interlock.sql.scope import Term, call, combined
from interlock.sql.stored_values import StoredValue, microseconds
from interlock.sql.types import PLAIN_TYPES, Type, invalid, labels_of

# --- Casts from text, and functions of the lane's sources ------------------------------------------------------------

_READABLE: Final = (
    "int2", "int4", "int8", "numeric", "float8", "bool", "uuid", "date", "time", "timestamp", "timestamptz", "interval",
    "json", "jsonb",
)  # fmt: skip


def _reader(name: str) -> Callable[[str], StoredValue]:
    kind = PLAIN_TYPES[name]
    return lambda text: literals.read(text, kind)


def _source(name: str, gives: str, sqlite: str, *, volatile: bool = False) -> Entry:
    def build(_: Sequence[Term], kind: Type) -> Term:
        return replace(call(sqlite, kind), volatile=volatile, nullable=False)

    return built("function", name, "", gives, build)


_SOURCES: Final = (
    *(
        _source(name, "timestamptz", "interlock_now")
        for name in ("now", "transaction_timestamp", "statement_timestamp")
    ),
    _source("random", "float8", "interlock_random", volatile=True),
    _source("gen_random_uuid", "uuid", "interlock_uuid", volatile=True),
    _source("uuidv4", "uuid", "interlock_uuid", volatile=True),
    _source("uuidv7", "uuid", "interlock_uuid_7", volatile=True),
)
_ENTRIES: Final[tuple[Entry, ...]] = (
    *numbers.ENTRIES,
    *texts.ENTRIES,
    *regular_expressions.ENTRIES,
    *jsonpath.ENTRIES,
    *times.ENTRIES,
    *to_char.ENTRIES,
    *documents.ENTRIES,
    *arrays.ENTRIES,
    *accumulators.ENTRIES,
    *sets.ENTRIES,
    *_SOURCES,
    *(
        cast(source, name, _reader(name), sqlite=f"text_to_{name}")
        for name in _READABLE
        for source in ("text", "varchar")
    ),
    built(
        "cast", "", "any[]", "any[]", lambda terms, kind: combined(terms[0].text, kind, terms, atomic=terms[0].atomic)
    ),
)

FUNCTIONS: Final[dict[tuple[str, tuple[str, ...]], Entry]] = {
    (entry.name, entry.takes): entry for entry in _ENTRIES if entry.kind in {"function", "aggregate"}
}
OPERATORS: Final[dict[tuple[str, tuple[str, ...]], Entry]] = {
    (entry.name, entry.takes): entry for entry in _ENTRIES if entry.kind == "operator"
}
CASTS: Final[dict[tuple[str, str], Build]] = {
    (entry.takes[0], entry.gives): entry.build for entry in _ENTRIES if entry.kind == "cast"
}
FUNCTION_NAMES: Final = frozenset(name for name, _ in FUNCTIONS if not name.startswith("interlock "))


# --- Registration ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Sources:
    """The lane's sources: the transaction's time (fixed within one transaction), random numbers in [0, 1), new ids.

    And the positions of sequences.
    """

    now: Callable[[], datetime]
    random: Callable[[], float]
    uuid: Callable[[], UUID]
    positions: Positions


def scalar_functions(sources: Sources) -> tuple[Function, ...]:
    """Return everything to register as a scalar function."""
    return (
        *_PURE,
        *guards.upsert_guards(),
        *sources.positions.functions(),
        Function("interlock_now", lambda: microseconds(sources.now()), 0, deterministic=False),
        Function("interlock_random", sources.random, 0, deterministic=False),
        Function("interlock_uuid", lambda: sources.uuid().bytes, 0, deterministic=False),
        Function("interlock_uuid_7", _AscendingIds(sources), 0, deterministic=False),
    )


_ORDERS: Final[tuple[tuple[str, Callable[[str, str], int]], ...]] = (
    # No statement compares these two, but their columns are declared with them.
    ("interlock_array_interval", arrays.compare),
    ("interlock_array_jsonb", arrays.compare),
    ("interlock_numeric", decimals.compare),
    ("interlock_interval", times.compare_intervals),
    ("interlock_jsonb", documents.compare),
    ("interlock_bpchar", texts.compare_padded),
    ("interlock_array", arrays.compare),
    ("interlock_array_numeric", arrays.compare_numeric),
)
"""The collations, by name."""


def _key(compare: Callable[[str, str], int]) -> Callable[[StoredValue], object]:
    made = cmp_to_key(compare)

    def key(value: StoredValue) -> object:
        assert isinstance(value, str)
        return made(value)

    return key


def _label_at(place: int, labels: str) -> str:
    return labels_of(labels)[place]


def _place_of(label: str, labels: str) -> int:
    """Return the place of a label in an enumeration."""
    found = labels_of(labels)
    if label not in found:
        raise invalid(f"invalid input for an enumeration: {label[:40]!r}.", fix=f"Write one of {', '.join(found)}.")
    return found.index(label)


def _listed_texts() -> dict[str, Callable[..., object]]:
    """Return the functions that write an element of an array, by its type."""
    written: dict[str, Callable[..., object]] = {
        entry.takes[0]: entry.function.call
        for entry in _ENTRIES
        if entry.kind == "cast" and entry.gives == "text" and isinstance(entry.function, Function)
    }
    for name in ("bytea", "uuid"):
        written[name] = partial(_of_digits, written[name])
    return {**written, "bool": _truth_text}


def _truth_text(value: int) -> str:
    return "t" if value else "f"


def _of_digits(write: Callable[..., object], digits: str) -> object:
    return write(bytes.fromhex(digits))


_LISTED_TEXTS: Final = _listed_texts()


def _array_text(items: str, element: str) -> str:
    """Return an array as PostgreSQL writes it: {1,NULL,"a b"}."""
    labels = Type(element).labels
    write: Callable[..., object] = partial(_label_of, labels) if labels else _LISTED_TEXTS.get(element, str)
    values: list[StoredValue] = json.loads(items)
    return "{" + ",".join("NULL" if value is None else _array_item(str(write(value))) for value in values) + "}"


def _label_of(labels: Sequence[str], place: StoredValue) -> str:
    assert isinstance(place, int)
    return labels[place]


def _array_item(text: str) -> str:
    if text and text.lower() != "null" and not _SPECIAL.search(text):
        return text
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


_SPECIAL: Final = re.compile(r'[ \t\n\r\v\f{},"\\]')


class _AscendingIds:
    """uuidv7(): the time of the transaction in milliseconds and 4,096ths of one, each later than the one before."""

    def __init__(self, sources: Sources) -> None:
        self._sources = sources
        self._last = 0

    def __call__(self) -> bytes:
        ms, us = divmod(microseconds(self._sources.now()), 1_000)
        self._last = max((ms << 12) + us * 4_096 // 1_000, self._last + 1)
        ms, rest = divmod(self._last, 4_096)
        chance = self._sources.uuid().int & ((1 << 62) - 1)
        return (ms << 80 | 7 << 76 | rest << 64 | 2 << 62 | chance).to_bytes(16)


_PURE: Final = (
    Function("interlock_array_text", strict(_array_text), 2),
    Function("interlock_label_at", strict(_label_at), 2),
    Function("interlock_place_of", strict(_place_of), 2),
    *{
        (entry.function.name, entry.function.arguments): entry.function
        for entry in _ENTRIES
        if isinstance(entry.function, Function)
    }.values(),
    *guards.GUARDS,
    sets.FLOAT_OF_DIGITS,
    *(Function(name, body, ANY_NUMBER) for name, body in numbers.CHOICES),
    *(
        Function(f"{name}_{word}", numbers.choosing(best, _key(compare)), ANY_NUMBER)
        for name, compare in _ORDERS
        for word, best in (("greatest", max), ("least", min))
        if name != "interlock_numeric"
    ),
    Function("interlock_concat", texts.concat, ANY_NUMBER),
    Function("interlock_concat_ws", texts.concat_ws, ANY_NUMBER),
)


def aggregate_functions() -> tuple[Aggregate, ...]:
    """Return everything to register as an aggregate."""
    return (
        *{
            (entry.function.name, entry.function.arguments): entry.function
            for entry in _ENTRIES
            if isinstance(entry.function, Aggregate)
        }.values(),
        Aggregate("interlock_single", guards.SingleRow),
        sets.ROWS,
        Aggregate("interlock_same", guards.SameValue),
    )


def window_functions() -> tuple[accumulators.WindowFunction, ...]:
    """Return everything to register as a window function."""
    return accumulators.WINDOW_FUNCTIONS


def collations() -> tuple[Collation, ...]:
    """Return everything to register as a collation."""
    return tuple(Collation(name, compare) for name, compare in _ORDERS)
