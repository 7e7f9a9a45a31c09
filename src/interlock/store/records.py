"""The values of a store: rows of workflows, rows of history, owed effects, dead letters; and its clocks.

A store sees text, numbers and bytes. Contexts and payloads come as JSON that the engine has encoded, and what the
engine owes a workflow (its running step, its timers, its undo log) comes as one opaque value, because a store never
acts on it. Only `wake_us` is a column: when an engine must process the workflow again.

Times are microseconds since the epoch, from the store's own clock where it has one (G8).
"""

import re
from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from interlock.clock import Clock
from interlock.errors import InternalError, InvalidPayload


class Row(msgspec.Struct, frozen=True, gc=False):
    """One workflow (B1: a row of `workflows`)."""

    id: str
    machine: str
    machine_version: int
    state: str
    context: bytes
    version: int
    visit: int
    """The version at which the current state was entered."""
    active: bool
    """Neither final nor resting: expected to move on."""
    created_us: int
    updated_us: int
    entered_us: int
    """When the current state was entered: how long it has stayed."""
    digest: bytes
    """Of the machine and the input it was started with (B4); pruning history cannot lose it."""
    owed: bytes = b""
    """The pending work that the engine owes it; empty without any."""
    wake_us: int | None = None
    """When an engine must process it again, at the latest."""
    counts: tuple[int, int, int] = (0, 0, 0)
    """Duplicates, ignored and refused events so far (B5)."""
    revision: int = 1
    """Counts every write of the row. Claims and retries change it and not the version, which belongs to history."""
    lease: int = 0
    """The fencing token of the last lease on it, where stores are shared; it only ever grows (G4)."""
    holder: str = ""
    """The owner of that lease when the row was read, unless it had expired; never written with a row."""
    timer_us: int | None = None
    """When its next timer fires, on shared stores: a timer needs no slot, and must not wait for work that does."""


class HistoryRecord(msgspec.Struct, frozen=True, gc=False):
    """One row of history (B1: a row of `workflow_events`)."""

    workflow: str
    version: int
    from_state: str
    to_state: str
    event: str
    payload: bytes
    """Empty when the event has none (STARTED, UNWOUND)."""
    context: bytes
    created_us: int
    key: str | None = None
    """The delivery key (B5): unique per workflow."""
    key_digest: bytes = b""
    """Of the event and payload that came with the key, to tell a repetition from a mistake."""
    by: str | None = None
    """The actor who caused it, where a caller has named one (F1)."""
    attempts: bytes = b""
    """Attempts that have ended since the row before, as JSON that the engine has encoded (B17); empty without any."""


class OwedEffect(msgspec.Struct, frozen=True):
    """A durable side message that is not done yet (B12)."""

    id: str
    """Its idempotency key."""
    workflow: str
    version: int
    """The version whose transition owes it."""
    name: str
    attempts: int
    """Attempts that were begun."""
    wake_us: int
    context: bytes
    """The workflow's context after that transition: the argument of the effect, however late it runs."""


TRACEBACK_MARK = "\x1e"
"""Stands between an error and its traceback in `Letter.error`. Letters of older versions do not have it."""


def letter_error(text: str, traceback: str) -> str:
    """Return the error of a letter as it is stored: its text, then its traceback if there is one."""
    text = text.replace(TRACEBACK_MARK, "\N{REPLACEMENT CHARACTER}")
    return f"{text}{TRACEBACK_MARK}{traceback}" if traceback else text


class Letter(msgspec.Struct, frozen=True):
    """A dead letter: a step, effect or undo that gave up and needs an operator."""

    id: str
    kind: str
    """"step", "effect" or "undo"."""
    workflow: str
    name: str
    attempts: int
    error: str
    """As `letter_error` makes it."""
    since_us: int
    version: int
    key: str
    """The idempotency key of what gave up."""
    context: bytes = b""
    """Of an effect: its argument when it is retried."""

    @property
    def message(self) -> str:
        """The text of the last error."""
        return self.error.partition(TRACEBACK_MARK)[0]

    @property
    def traceback(self) -> str:
        """The traceback of the last error; empty without one."""
        return self.error.partition(TRACEBACK_MARK)[2]


LIVING, ENDED, COUNTED = 0, 1, 2
"""Stages of a child: it has not ended; it has, and its parent does not know; its parent has counted it, or has left."""


class ChildRecord(msgspec.Struct, frozen=True, gc=False):
    """One child of a workflow, as its parent finds it. Written with the child's start and end, and by its parent."""

    id: str
    parent: str
    visit: int
    """The visit of the parent's state that started it."""
    position: int
    """Its place among the children of that visit, from 0."""
    state: str = ""
    """The state in which it ended; empty before."""
    stage: int = LIVING


STAYS, HOLD, FREE, KEEP = 0, 1, -1, 2
"""Lease actions of a change: STAYS with its holder until the visit ends; HOLD: goes to the committing engine; FREE:
ends; KEEP: outlives the visit, because its attempt must end before an undo begins."""


class Change(msgspec.Struct, frozen=True, gc=False):
    """The change of one workflow in a group: its final row, and the history, effects and letters that lead there.

    A workflow keeps its id, machine, digest and time of creation, and within a visit the time of its entering; a store
    need not write them again.
    """

    row: Row
    expected: int
    """The revision that must be there; 0: the workflow must not exist yet. The row's own is one more."""
    history: tuple[HistoryRecord, ...] = ()
    effects: tuple[OwedEffect, ...] = ()
    """Owed from now on."""
    effects_done: tuple[str, ...] = ()
    letters: tuple[Letter, ...] = ()
    letters_gone: tuple[str, ...] = ()
    effects_again: tuple[tuple[OwedEffect, int], ...] = ()
    """Still owed, with another count and time; and the count that was decided upon. If it has another one by now, or is
    done, another engine has tried it, and this is too late (G4)."""
    effects_dead: tuple[OwedEffect, ...] = ()
    """Given up, with the count that was decided upon; too late, as above, it leaves no letter of its key either."""
    hold: int = STAYS
    """On a shared store: the lease action, one of the constants above."""
    effects_held: tuple[str, ...] = ()
    """On a shared store: the effects whose attempt begins where this is committed."""
    counted: bool = True
    """Whether the row's counts may have changed; a store need not write them otherwise."""
    children: tuple[ChildRecord, ...] = ()
    """Written over what is stored of these children. A stage never goes back."""


class RowsPage(msgspec.Struct, frozen=True):
    """A page of rows, and the cursor of the next page."""

    rows: tuple[Row, ...]
    cursor: str | None
    numbers: tuple[int, ...] = ()
    """Of `find`: the number of each row. With its time of entry it is the cursor after the row, within one state."""


class Delivered(msgspec.Struct, frozen=True):
    """The recorded use of a delivery key."""

    version: int
    to_state: str
    key_digest: bytes


def refuse_twice(changes: Sequence[Change]) -> None:
    """Raise InternalError when two changes of one group are about one workflow: their order would decide."""
    if len({change.row.id for change in changes}) != len(changes):
        ids = [change.row.id for change in changes]
        twice = next(each for each in ids if ids.count(each) > 1)
        raise InternalError(
            f"a group has two changes of workflow {twice!r}.",
            why="A group has at most one change of a workflow; both were decided upon the same revision.",
        )


class Cursor(NamedTuple):
    """The end of a page of workflows: the last one's time of entry and number.

    Pages are cut by these two and not by a count, so that workflows which come or go between two pages neither hide
    others nor show them twice.
    """

    entered_us: int
    number: int

    def __str__(self) -> str:
        return f"{self.entered_us}.{self.number}"


def parse_cursor(text: str | None) -> Cursor | None:
    """Parse a cursor. Raises InvalidPayload for a text that is not a cursor."""
    if text is None:
        return None
    found = re.fullmatch(r"(-?[0-9]{1,18})\.([0-9]{1,18})", text)
    if found is None:
        raise InvalidPayload(
            f"{text!r} is not a cursor.",
            why="A cursor says where the page before has ended; it is made by that page.",
            fix="Pass the cursor of the page before, as it is.",
        )
    return Cursor(int(found[1]), int(found[2]))


def child_cursor(last: ChildRecord) -> str:
    """Return the cursor of a page of children that ends with this one."""
    return f"{Cursor(last.visit, last.position)}.{last.id}"


def parse_child_cursor(text: str | None, parent: str) -> ChildRecord | None:
    """Return the place of the child that a page has ended with. Raises InvalidPayload."""
    if text is None:
        return None
    visit, position, child = (*text.split(".", 2), "", "")[:3]
    begin = parse_cursor(f"{visit}.{position}" if position else text)
    return None if begin is None else ChildRecord(child, parent, begin.entered_us, begin.number)


# --- Clocks ----------------------------------------------------------------------------------------------------------

TIME_STALE_US = 5_000_000
"""Longest time to count on. In five seconds two clocks drift apart by less than one network trip."""


class StoreTime:
    """The time of a store in microseconds since the epoch. It never goes back, and it never stands still (G8).

    It is the greater of what was written last and the wall clock. A wall clock that is set back would hold up every
    timer and retry until it has caught up, so the time also goes on by the monotonic clock from where it was when the
    store was opened.
    """

    def __init__(self, clock: Clock, written_us: int = 0) -> None:
        self._clock = clock
        self._begun_s = clock.monotonic_s()
        self._begun_us = self.last_us = max(written_us, int(clock.wall_s() * 1_000_000))

    def now_us(self) -> int:
        """Return the time in microseconds since the epoch."""
        passed_us = int((self._clock.monotonic_s() - self._begun_s) * 1_000_000)
        self.last_us = max(self.last_us, int(self._clock.wall_s() * 1_000_000), self._begun_us + passed_us)
        return self.last_us


class DatabaseTime:
    """The time of a database server in microseconds since the epoch, counted on from its last known value (G8).

    Each commit returns the server's time; an engine that only reads queries it every few seconds. From then on the
    process's monotonic clock counts on. The answer took one network trip, so this time lags the database's clock by
    that and never leads it: no process that reads a written time later sees time go back.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._offset_us: int | None = None
        self._last_us = 0
        self._read_us = 0

    def record(self, server_us: int) -> None:
        """Record a time that the database has just returned."""
        # Always the newest one: two clocks drift apart, and the best answer of an hour ago is worse than any of now.
        self._read_us = self._monotonic_us()
        self._offset_us = server_us - self._read_us

    @property
    def stale(self) -> bool:
        """Return whether the time must be read again."""
        return self._monotonic_us() - self._read_us > TIME_STALE_US

    def now_us(self) -> int:
        """Return the time, which never goes back."""
        assert self._offset_us is not None, "the database was asked for its time when it was opened"
        self._last_us = max(self._last_us, self._monotonic_us() + self._offset_us)
        return self._last_us

    def _monotonic_us(self) -> int:
        return int(self._clock.monotonic_s() * 1_000_000)
