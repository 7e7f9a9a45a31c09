"""Protocols of the source and the target of a move, and the thread, throttle and retries that both use.

An end knows its engine; the stages know the order of the calls. Rows travel in the form in which a lane stores them
(`rows`). Rows of a serving source may be outdated when they are used: from `watch` on every write is noted, and
noted rows are fetched again.
"""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# apsw's stubs leave the values of SQLite partly open; mypy --strict looks at what is ours.

import asyncio
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractAsyncContextManager
from typing import Final, Protocol, TypeVar

import apsw
import msgspec

from interlock.clock import Clock
from interlock.errors import CorruptionError, UnavailableError
from interlock.relocate.rows import Page, StoredRow
from interlock.relocate.shape import Shape, Table
from interlock.relocate.stages import Amount


class Restart(Exception):
    """The schema of the source was changed since the copy began, or a table was truncated."""


class Pending(msgspec.Struct):
    """Noted keys that were not yet copied, with their rows at one instant."""

    notes: int
    keys: dict[str, list[StoredRow]]
    rows: dict[str, list[StoredRow]]
    """Rows by table; a key without a row was deleted."""
    complete: bool
    """Whether these are all keys noted by then: only then their rows cannot collide in unique values."""
    numbers: Sequence[int] = ()
    """Numbers of the notes, for the source."""

    @property
    def count(self) -> int:
        """Return the number of keys."""
        return sum(map(len, self.keys.values()))


class Draft(msgspec.Struct):
    """State of a running move, stored at the target."""

    epoch: int
    source: str
    """The source's address without secrets."""
    watched: str
    """Fingerprint of the source's schema when the copy began."""
    after: dict[str, bytes] = {}
    """The last copied key of each table, packed."""
    copied: tuple[str, ...] = ()
    """Tables that are copied completely."""
    indexed: bool = False
    amounts: tuple[Amount, ...] = ()
    checksum: str = ""
    """Set after both places were verified."""


class Reading(Protocol):
    """Reads of a source, while it serves or while it is sealed."""

    async def page(self, table: Table, after: StoredRow | None, limit: int) -> Page:
        """Return a page of rows in the order of the key."""
        ...

    async def pending(self, shape: Shape, limit: int) -> Pending:
        """Return the oldest notes and their rows. Raises Restart when the schema was changed or a table truncated."""
        ...

    async def count(self, table: Table) -> int:
        """Return the number of rows."""
        ...

    async def fingerprint(self) -> str:
        """Return a digest of the schema and its triggers: it changes with every change of the schema."""
        ...


class Sealed(Reading, Protocol):
    """A source whose writers are blocked, as long as the mover lives and stays in the block."""

    @property
    def since_s(self) -> float:
        """Start of the seal, by the monotonic clock."""
        ...

    async def positions(self, shape: Shape) -> Mapping[str, int]:
        """Return the last number of each numbered table."""
        ...

    async def leave(self, url: str, epoch: int) -> None:
        """Write the tombstone and commit: this decides. Raises when it has not happened or the outcome is unknown."""
        ...


class Source(Reading, Protocol):
    """The place that a database leaves."""

    @property
    def location(self) -> str:
        """Return its address without secrets."""
        ...

    async def take(self) -> None:
        """Become the only mover of this source, for any target: notes are deleted for all movers."""
        ...

    async def moved(self) -> tuple[str, int] | None:
        """Return its tombstone; None without one."""
        ...

    async def confirm_left(self) -> None:
        """Complete what a mover does after the tombstone, which may have died first."""
        ...

    async def last_epoch(self) -> int:
        """Return the epoch of the last move that ended or began here; 0 if there was none."""
        ...

    async def shape(self) -> Shape:
        """Return the shape of the database. Raises BadUsage or DialectError for what cannot be moved."""
        ...

    async def bytes_of(self, shape: Shape) -> Mapping[str, int]:
        """Estimate the bytes of each table."""
        ...

    async def watch(self, shape: Shape) -> float:
        """Note the key of every write from now on; return for how many seconds that made writers wait.

        A second call changes nothing.
        """
        ...

    async def noted_keys(self, table: Table, after: int) -> tuple[set[StoredRow], int]:
        """Return the keys of one table that were noted after a note, by its number, and the number of the last one."""
        ...

    async def forget(self, pending: Pending) -> None:
        """Delete these notes: their rows were copied."""
        ...

    async def unwatch(self) -> None:
        """Stop noting writes, and delete all notes."""
        ...

    def sealed(self, wait_s: float) -> AbstractAsyncContextManager[Sealed]:
        """Block writers. Leaving the block without `leave` lets them continue, and nothing has happened."""
        ...

    async def close(self) -> None:
        """Give everything up."""
        ...


class Sample(Protocol):
    """A place to try how fast rows are written and read, which is gone afterwards."""

    async def write(self, rows: Sequence[StoredRow]) -> None:
        """Add rows."""
        ...

    async def read(self, keys: Sequence[StoredRow]) -> list[StoredRow]:
        """Return the rows with these keys."""
        ...


class Target(Protocol):
    """The place to which a database moves."""

    @property
    def location(self) -> str:
        """Return its address without secrets."""
        ...

    async def last_epoch(self) -> int:
        """Return the epoch of the last move that ended or began here; 0 if there was none."""
        ...

    async def draft(self) -> Draft | None:
        """Return the draft that exists here; None without one."""
        ...

    async def refuse_taken(self) -> None:
        """Raise BadUsage when the place has data that is neither our draft nor left by a move."""
        ...

    async def begin(self, draft: Draft, shape: Shape) -> None:
        """Create a draft; an existing one is replaced."""
        ...

    async def resume(self, shape: Shape) -> None:
        """Continue with the existing draft."""
        ...

    async def copy(self, table: Table, rows: Sequence[StoredRow], draft: Draft) -> None:
        """Add new rows, and record the position, in one transaction."""
        ...

    async def put(self, shape: Shape, pending: Pending) -> None:
        """Write pending rows, replacing those with the same keys. In its own transaction, or in that of `last`."""
        ...

    async def replace(self, table: Table, rows: Sequence[StoredRow], *, first: bool) -> None:
        """Replace all rows with these if `first`, else add them to those of the previous call."""
        ...

    async def rows_of(self, table: Table, keys: Sequence[StoredRow]) -> list[StoredRow]:
        """Return the rows with these keys."""
        ...

    async def page(self, table: Table, after: StoredRow | None, limit: int) -> Page:
        """Return a page of rows in the order of the key."""
        ...

    async def count(self, table: Table) -> int:
        """Return the number of rows."""
        ...

    async def index(self, shape: Shape, draft: Draft) -> None:
        """Create indexes and constraints after the rows, while the source still serves."""
        ...

    def last(self) -> AbstractAsyncContextManager[None]:
        """Open the last transaction: when the block ends, the draft is durable."""
        ...

    async def complete(self, shape: Shape, positions: Mapping[str, int], draft: Draft) -> None:
        """Create the rest inside `last`, set the numbering, and record the checksum."""
        ...

    async def arrive(self, epoch: int) -> None:
        """Make the draft the database, after the source has left. A second call changes nothing."""
        ...

    async def reached(self) -> float:
        """Return when a program that follows has it open, by the monotonic clock, or when one could have."""
        ...

    async def finish(self) -> None:
        """Validate the constraints that were not checked during the seal."""
        ...

    def sample(self, table: Table) -> AbstractAsyncContextManager[Sample]:
        """Create a temporary copy of the table for measurements."""
        ...

    async def drop(self) -> None:
        """Remove the draft only."""
        ...

    async def close(self) -> None:
        """Give everything up."""
        ...


# --- Thread for the files of one end ---------------------------------------------------------------------------------

ResultT = TypeVar("ResultT")


class FileThread:
    """Runs one function after the other in a thread of its own: SQLite blocks on the disk."""

    def __init__(self, location: str) -> None:
        self._location = location
        self._threads = ThreadPoolExecutor(1, thread_name_prefix="interlock-move")

    async def run(self, function: Callable[[], ResultT]) -> ResultT:
        """Run the function in the thread, and wait for its end even if cancelled."""
        future = asyncio.get_running_loop().run_in_executor(self._threads, self._translate_errors, function)
        try:
            return await asyncio.shield(future)
        except asyncio.CancelledError:
            # The next call may use or close the same connection.
            _ = await asyncio.wait([future])
            raise

    def _translate_errors(self, function: Callable[[], ResultT]) -> ResultT:
        try:
            return function()
        except (apsw.CorruptError, apsw.NotADBError) as error:
            raise CorruptionError(f"the file of {self._location} is damaged: {error}.") from error
        except apsw.FullError as error:
            raise UnavailableError(
                f"the file of {self._location} could not grow: {error}.",
                why="There is no room left on its disk. Nothing has moved by this; the source goes on as it was.",
                fix="Make room there, for a bucket in the temporary folder, and run the same command again.",
            ) from error
        except (apsw.Error, OSError) as error:
            raise UnavailableError(
                f"the file of {self._location} could not be used: {error}.",
                why="The disk failed, or another process keeps the file locked. Nothing has moved by this.",
                fix="Run the same command again: it goes on where it ended.",
            ) from error

    def close(self) -> None:
        """End the thread."""
        self._threads.shutdown(wait=True)


# --- Throttle of a copy ----------------------------------------------------------------------------------------------
# A pause is a share of the time of the piece before it, so a busy machine gets longer pauses. When a piece takes
# much longer than the fastest one, other clients are waiting, and the pause grows.

ROWS_PER_PIECE: Final = 1_000
RESTS: Final = 0.35
"""Pause as a share of the time of the piece."""

RESTS_MAX: Final = 1.0
SLOW: Final = 4.0
"""A piece is slow when it takes this multiple of the best time."""

PAUSE_S_MAX: Final = 0.1


class Pace:
    """The pauses of one mover."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._best_s: dict[str, float] = {}
        self._since_s = clock.monotonic_s()

    def begin(self) -> None:
        """Mark the begin of a piece."""
        self._since_s = self._clock.monotonic_s()

    async def rest(self, kind: str, rows: int) -> None:
        """Mark the end of a piece of `rows` rows, and pause."""
        took_s = self._clock.monotonic_s() - self._since_s
        each_s = took_s / max(rows, 1)
        best_s = self._best_s.get(kind, each_s)
        self._best_s[kind] = min(best_s, each_s) if rows >= ROWS_PER_PIECE else best_s
        part = RESTS_MAX if each_s > SLOW * best_s else RESTS
        await asyncio.sleep(min(took_s * part, PAUSE_S_MAX))
        self.begin()


# --- Other movers ----------------------------------------------------------------------------------------------------


def another_mover(location: str) -> UnavailableError:
    """Return the error for a place with another mover, which may be suspended."""
    return UnavailableError(
        f"another mover is at work at {location}.",
        why="Two of them would write into the same draft, or forget for each other what is still to be brought over.",
        fix="Wait for it, or end it: the move goes on with the same command.",
    )
