"""Workflows on their way: their canonical form, the same at source and target, its checksum, and parts of a store.

A workflow in a lane has no lease and no column for its next timer: a lane has one owner, who knows both by heart. The
form that is compared is therefore that of the store the workflow goes to, with the timer read from what it is owed.

The checksum of a set is the sum of the digests of its members modulo 2**128: it does not depend on their order, and is
kept up to date by taking away what a member was and adding what it is.

Sections: canonical form, checksum, parts of a store.
"""

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import msgspec

from interlock.errors import BadUsage, CorruptionError
from interlock.store.chart_store import ChartRecord
from interlock.store.records import ChildRecord, HistoryRecord, Letter, OwedEffect, Row
from interlock.urls import redact_url

# --- Canonical form --------------------------------------------------------------------------------------------------

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


Aside = OwedEffect | ChildRecord | ChartRecord | Letter | LeaseRow | Note
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


# --- Checksum --------------------------------------------------------------------------------------------------------


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
    if isinstance(value, ChildRecord):
        return 60 + len(value.id) + len(value.parent) + len(value.state)
    if isinstance(value, ChartRecord):
        return 140 + 2 * len(value.id)
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


# --- Parts of a store ------------------------------------------------------------------------------------------------
# The unit of a move is a workflow with its history, found by its id. History is identified by its first and last
# version: it is only appended to, and pruned from its beginning.

TABLES_ASIDE = ("workflow_effects", "workflow_children", "workflow_charts", "dead_letters", "leases", "notes")
"""What is stored beside workflows and their history; each record has a key of its own."""

ALL = 2**62
"""A version above all others."""

NONE = -1
"""A version below all others."""


class Span(NamedTuple):
    """The history of one workflow that a place has."""

    size: int = 0
    first: int = 0
    last: int = 0


class Sums(NamedTuple):
    """Quick totals of all rows, the same at both places."""

    workflows: int
    revisions: int
    events: int
    versions: int


class Part(NamedTuple):
    """Some workflows with their histories at one moment, by their ids."""

    rows: dict[str, Numbered]
    events: dict[str, list[HistoryRecord]]


class Noted(NamedTuple):
    """Changes that the source has recorded."""

    keys: dict[str, list[str]]
    """By table; for a workflow and its history its id, under `workflows`."""
    numbers: list[int]
    """Of the notes."""
    complete: bool
    """Whether these are all until now."""


class Clocks(NamedTuple):
    """The times of a source, in microseconds."""

    time_us: int
    """The last time that it has written (G8)."""
    now_us: int
    """By the clock that its leases run by."""
    held_us: int
    """How long an attempt may still run there that does not know of the move; 0 without a live engine."""


class Exchange(NamedTuple):
    """The changes of one transaction of a draft."""

    rows: Sequence[Numbered] = ()
    events: Mapping[str, Sequence[HistoryRecord]] = {}
    """By id: history that is added."""
    removed: Sequence[str] = ()
    """Workflows that are not there any more, with their history."""
    cuts: Mapping[str, int] = {}
    """Workflows whose history below that version is not there any more."""


class Exchanged(NamedTuple):
    """The content of the draft afterwards, as it was read back."""

    rows: list[Numbered]
    events: list[HistoryRecord]
    cut: list[HistoryRecord]
    """History that was taken out."""
    removed: list[int]
    """Numbers of workflows that were taken out."""


class Timed(NamedTuple):
    """Seconds that a target takes, measured with a sample that is not kept."""

    copied_s: float
    """For each workflow of the sample, with its history."""
    again_s: float
    """For each that is brought over a second time."""
    counted_s: float
    """For counting the sample."""
    made_s: float
    """For making the tables."""


def difference(source: Span, draft: Span) -> tuple[int, int]:
    """Return the first version of history that the draft may keep, and after which one it needs the source's."""
    whole = source.size == source.last - source.first + 1 and draft.size == draft.last - draft.first + 1
    if not source.size or not draft.size:
        return ALL, NONE
    if not whole or not draft.first <= source.first <= draft.last + 1 or draft.last > source.last:
        return ALL, NONE
    return source.first, draft.last


def compared(
    what: str, sent: Iterable[Numbered | HistoryRecord | Aside], found: Iterable[Numbered | HistoryRecord | Aside]
) -> list[int]:
    """Return the digests of the rows read back. Raises CorruptionError when they differ from those sent."""
    expected = {digest_of(each): each for each in sent}
    digests: list[int] = []
    for each in found:
        digest = digest_of(each)
        if expected.pop(digest, None) is None:
            raise _differs(what, each)
        digests.append(digest)
    for each in expected.values():
        raise _differs(what, each)
    return digests


def _differs(what: str, value: object) -> CorruptionError:
    name = getattr(value, "workflow", None) or getattr(getattr(value, "row", value), "id", None) or repr(value)
    return CorruptionError(
        f"a {what} did not arrive as it was sent: {name}.",
        why="What was written was read back before it was committed, and was another value. Nothing has moved.",
        fix="Please report it with the workflow's history; the workflows go on where they are.",
    )


def no_workflows(home: str) -> BadUsage:
    """Return the error for a home that has no workflows."""
    return BadUsage(
        f"there are no workflows at {redact_url(home)}.",
        why="They live in the database `workflows` of the home that an engine was opened with.",
        fix="Name the home as the engine does: lanes:///var/shop.",
    )


def refuse_workflows(machines: Mapping[str, int], place: str) -> None:
    """Raise BadUsage when a target has workflows of its own."""
    if machines:
        counts = ", ".join(f"{count:,} of {machine!r}" for machine, count in machines.items())
        raise BadUsage(
            f"{place} has workflows already: {counts}.",
            why="Two stores are not made one: each has notes, leases and keys of its own, and may have used the same "
            "ids.",
            fix="Name a home that has no workflows: --to lanes:///var/another.",
        )
