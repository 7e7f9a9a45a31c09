"""The canonical form of moved data, the same at source and target, and its checksum.

A workflow in a lane has no lease and no column for its next timer: a lane has one owner, who knows both by heart. The
form that is compared is therefore that of the store the workflow goes to, with the timer read from what it is owed.

The checksum of a set is the sum of the digests of its members modulo 2**128: it does not depend on their order, and is
kept up to date by taking away what a member was and adding what it is.
"""

import hashlib
from typing import NamedTuple

import msgspec

from interlock.store.records import HistoryRecord, Letter, OwedEffect, Row

MODULUS = 2**128

BLOCK = 1_024
"""Workflows whose digests are kept together: numbers are mostly dense, and what was pruned long ago costs nothing."""

_encode = msgspec.msgpack.Encoder().encode


class Numbered(NamedTuple):
    """A workflow with its place in the order of creation, which pages and cursors go by."""

    number: int
    row: Row


class LeaseRow(NamedTuple):
    """A lease as it is stored: also one that is over, because its token must only ever grow (G4)."""

    name: str
    owner: str
    token: int
    since_us: int
    until_us: int | None


class Note(NamedTuple):
    """A text under a name: descriptions of machines, keys of the API, what was alerted."""

    name: str
    text: str


Aside = OwedEffect | Letter | LeaseRow | Note
"""The tables beside workflows and history, with the key of each."""


class _Timer(msgspec.Struct):
    at_us: int


class _Timers(msgspec.Struct):
    timers: tuple[_Timer, ...] = ()


_decode_timers = msgspec.json.Decoder(_Timers).decode


def arriving(number: int, row: Row) -> Numbered:
    """Return a workflow of a lane as a shared store keeps it: without a lease, and with the time of its next timer."""
    timer_us = min((timer.at_us for timer in _timers_of(row.owed)), default=None)
    return Numbered(number, msgspec.structs.replace(row, timer_us=timer_us, lease=0, holder=""))


def _timers_of(owed: bytes) -> tuple[_Timer, ...]:
    try:
        return _decode_timers(owed).timers if owed else ()
    except msgspec.DecodeError:  # Not the runtime's: a store keeps whatever it is given.
        return ()


def digest_of(value: Numbered | HistoryRecord | Aside) -> int:
    """The digest of one member, always above 0."""
    if isinstance(value, Numbered):
        data = _encode((value.number, msgspec.structs.astuple(value.row)))
    elif isinstance(value, (LeaseRow, Note)):
        data = _encode((type(value).__name__, tuple(value)))
    else:
        data = _encode((type(value).__name__, msgspec.structs.astuple(value)))
    return int.from_bytes(hashlib.blake2b(data, digest_size=16).digest()) or 1


def bytes_of(value: Numbered | HistoryRecord | Aside) -> int:
    """About how much of it was read: its texts and bytes, and eight for each number."""
    if isinstance(value, Numbered):
        return 140 + len(value.row.id) + len(value.row.context) + len(value.row.owed)
    if isinstance(value, HistoryRecord):
        return 60 + 2 * len(value.workflow) + len(value.event) + len(value.payload) + len(value.context)
    if isinstance(value, (OwedEffect, Letter)):
        return 60 + len(value.id) + len(value.workflow) + len(value.context)
    return 40 + sum(len(each) for each in value if isinstance(each, str))


def key_of(value: Aside) -> str:
    """Return its key."""
    return value.name if isinstance(value, (LeaseRow, Note)) else value.id


class Digests:
    """The running checksum of the copied rows. Workflows cost 16 bytes each, and history nothing."""

    def __init__(self) -> None:
        self.workflows = 0
        self.events = 0
        self._rows: dict[int, bytearray] = {}
        self._rows_sum = 0
        self._events_sum = 0
        self._aside: dict[str, dict[str, int]] = {}

    def put_row(self, number: int, digest: int) -> None:
        """Set the digest of a workflow; 0 removes it."""
        block = self._rows.setdefault(number // BLOCK, bytearray(16 * BLOCK))
        begin = 16 * (number % BLOCK)
        before = int.from_bytes(block[begin : begin + 16])
        block[begin : begin + 16] = digest.to_bytes(16)
        self._rows_sum = (self._rows_sum + digest - before) % MODULUS
        self.workflows += (digest > 0) - (before > 0)

    def add_events(self, count: int, total: int) -> None:
        """Count added rows of history; a negative count for removed ones."""
        self.events += count
        self._events_sum = (self._events_sum + total) % MODULUS

    def put_aside(self, table: str, key: str, digest: int) -> None:
        """Something beside them is as it is now; 0: it is gone."""
        known = self._aside.setdefault(table, {})
        if digest:
            known[key] = digest
        else:
            known.pop(key, None)

    def aside(self, table: str) -> int:
        """How many there are."""
        return len(self._aside.get(table, ()))

    @property
    def checksum(self) -> str:
        """Of everything."""
        beside = sum(sum(known.values()) for known in self._aside.values())
        return f"{(self._rows_sum + self._events_sum + beside) % MODULUS:032x}"
