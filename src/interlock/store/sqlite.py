"""Workflows in a lane: one local file, or the same on a bucket.

A lane has one owner, so revisions are checked and never lost to another process. A change is lost only when its caller
was wrong about the revision, and then nothing of it is written.

`tables` has what is stored, `applying` the one transaction that changes it. Reads run beside the writer and are short:
what could be long is given in pages, each of which sees one moment.
"""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# apsw's stubs leave the values of SQLite partly open; mypy --strict looks at what is ours.

import asyncio
import contextlib
from collections.abc import Callable, Generator, Sequence
from typing import Any, TypeVar, cast

from interlock.catalog.opening import closing_thread
from interlock.errors import ConstraintViolation, InternalError, InvalidPayload, TransactionError, UnavailableError
from interlock.lanes.lane import Lane
from interlock.lanes.published import Rows
from interlock.lanes.session import Session
from interlock.lanes.work import Work
from interlock.seams import Clock
from interlock.store import columns, cursors
from interlock.store.applying import Applied, apply
from interlock.store.columns import delivered_of, happened_of, row_of
from interlock.store.lane_leases import LaneLeases
from interlock.store.lane_pruning import LanePruning
from interlock.store.storetime import StoreTime
from interlock.store.tables import make_tables, written_time_us
from interlock.store.values import Change, Delivered, Found, Happened, Letter, OwedEffect, Row, refuse_twice

ResultT = TypeVar("ResultT")
Run = Callable[..., Any]
"""Runs one statement; its rows are as SQLite has them, and `columns` gives them their types."""

NUMBERS_MAX = 200_000
"""Workflows whose numbers are remembered; the others are looked up by their id."""

COUNTED_AT_ONCE = 100_000
"""Workflows that one read of `living` counts: a tenth of a second."""

# A statement names its index: without statistics SQLite would guess, and a wrong guess reads every workflow.
LOAD = f"SELECT {columns.ROW} FROM workflows WHERE id = ?"  # noqa: S608
DELIVERED = """
SELECT version, to_state, key_digest FROM workflow_events
WHERE workflow = (SELECT number FROM workflows WHERE id = ?) AND key = ?"""
HISTORY = f"""
SELECT {columns.HAPPENED} FROM workflow_events
WHERE workflow = (SELECT number FROM workflows WHERE id = ?) AND version > ? ORDER BY version LIMIT ?"""  # noqa: S608
FIND = f"""
SELECT {columns.ROW}, number FROM workflows INDEXED BY workflows_by_type
WHERE workflow_type = ? AND number > ? ORDER BY number LIMIT ?"""  # noqa: S608
FIND_IN_STATE = f"""
SELECT {columns.ROW}, number FROM workflows INDEXED BY workflows_by_state WHERE workflow_type = ? AND state = ?"""  # noqa: S608
STALLED = f"""
SELECT {columns.ROW}, number FROM workflows INDEXED BY workflows_by_state
WHERE workflow_type = ? AND state = ? AND entered_at < ? AND active ORDER BY entered_at, number LIMIT ?"""  # noqa: S608
EFFECTS = """
SELECT * FROM workflow_effects INDEXED BY workflow_effects_to_wake
WHERE (wake_at, id) > (?, ?) ORDER BY wake_at, id LIMIT ?"""
LETTERS = """
SELECT * FROM dead_letters INDEXED BY dead_letters_by_age
WHERE (since, id) > (?1, ?2) AND (?3 IS NULL OR kind = ?3) ORDER BY since, id LIMIT ?4"""
LIVING = """
SELECT workflow_type, machine_version, state, count(*) FROM workflows
WHERE number > ? AND number <= ? GROUP BY workflow_type, machine_version, state"""
NOTE = "INSERT OR REPLACE INTO notes VALUES (?, ?)"

BEFORE_ALL = -(2**63)
"""A time before all others."""


class SqliteStore:
    """A store on a lane. Made by `opening.open_store`."""

    shared = False

    def __init__(self, lane: Lane, clock: Clock) -> None:
        self._lane = lane
        self._clock = clock
        self._time = StoreTime(clock)
        self._numbers: dict[str, int] = {}
        self.leases = LaneLeases(self._read, self._submit, self.now_us)
        self.pruning = LanePruning(self._read, self._submit)

    async def begin(self) -> None:
        """Create missing tables, and continue from the last written time (G8)."""
        with _translated_errors():
            time_us = cast("int | None", await self._lane.read(written_time_us))
            if time_us is None:
                await self._lane.submit(Work(make_tables))
        self._time = StoreTime(self._clock, time_us or 0)

    def here(self) -> bool:
        """Return whether cached workflows are current; False: read them again. Raises MovedElsewhere."""
        return self._lane.here()

    def publish(self, rows: Rows) -> None:
        """Have the lane publish these hot rows with its own, for other processes (D9)."""
        self._lane.publishing.also = rows

    async def commit(self, changes: Sequence[Change]) -> list[str]:
        """Commit the whole group in one transaction of the lane."""
        refuse_twice(changes)
        done = await self._submit(Work(self._write, changes, self._time.last_us))
        # Only now: the numbers of a group that is not durable may be given to other workflows.
        lost, learned = cast("Applied", done)
        if len(self._numbers) + len(learned) > NUMBERS_MAX:
            self._numbers = {}
        self._numbers.update(learned)
        return lost

    def _write(self, session: Session, changes: Sequence[Change], time_us: int) -> Applied:
        return session.lend(lambda connection: apply(connection, changes, self._numbers, time_us))

    async def load(self, ids: Sequence[str]) -> dict[str, Row]:
        """Return the rows of these workflows."""
        rows = await self._read(
            lambda run: [found for each in ids if (found := run(LOAD, (each,)).fetchone()) is not None]
        )
        return {row.id: row for row in map(row_of, rows)}

    async def delivered(self, keys: Sequence[tuple[str, str]]) -> dict[tuple[str, str], Delivered]:
        """Return the recorded uses of these delivery keys."""
        found = await self._read(lambda run: [(key, run(DELIVERED, key).fetchone()) for key in keys])
        return {key: delivered_of(values) for key, values in found if values is not None}

    async def history(self, workflow: str, *, after: int = 0, limit: int = 1_000) -> list[Happened]:
        """Return the history after a version."""
        return [happened_of(values) for values in await self._all(HISTORY, workflow, after, limit)]

    async def find(self, machine: str, state: str | None, *, after: str | None, limit: int) -> Found:
        """Return the workflows of a machine in the order of creation, or of one state in the order of entry."""
        begin = cursors.parsed(after) or cursors.Cursor(BEFORE_ALL, 0)
        if state is None:
            found = await self._all(FIND, machine, begin.number, limit + 1)
        else:
            found = await self._by_time(FIND_IN_STATE, (machine, state), "entered_at", begin, limit + 1)
        page = found[:limit]
        end = cursors.Cursor(page[-1][columns.ENTERED_AT], page[-1][-1]) if len(found) > limit else None
        return Found(tuple(map(row_of, page)), None if end is None else str(end))

    async def stalled(self, machine: str, before_us: dict[str, int], *, limit: int) -> list[Row]:
        """Return the active workflows that have been in their state for too long."""
        found = await self._read(
            lambda run: [
                values
                for state, time_us in before_us.items()
                for values in run(STALLED, (machine, state, time_us, limit)).fetchall()
            ]
        )
        found.sort(key=lambda values: (values[columns.ENTERED_AT], values[-1]))
        return [row_of(values) for values in found[:limit]]

    async def effects(self, *, after: OwedEffect | None = None, limit: int) -> list[OwedEffect]:
        """Return the owed effects, soonest first."""
        begin = (BEFORE_ALL, "") if after is None else (after.wake_us, after.id)
        return [OwedEffect(*values) for values in await self._all(EFFECTS, *begin, limit)]

    async def letters(
        self, kind: str | None = None, *, after: Letter | None = None, limit: int = 1_000
    ) -> list[Letter]:
        """Return the dead letters, oldest first."""
        begin = (BEFORE_ALL, "") if after is None else (after.since_us, after.id)
        return [Letter(*values) for values in await self._all(LETTERS, *begin, kind, limit)]

    async def living(self) -> dict[tuple[str, int, str], int]:
        """Count the workflows by machine, version and state."""
        counts: dict[tuple[str, int, str], int] = {}
        [(last,)] = await self._all("SELECT coalesce(max(number), 0) FROM workflows")
        # A workflow keeps its number, so that each is counted once, whatever moves meanwhile.
        for begin in range(0, last, COUNTED_AT_ONCE):
            for *place, count in await self._all(LIVING, begin, begin + COUNTED_AT_ONCE):
                where = cast("tuple[str, int, str]", tuple(place))
                counts[where] = counts.get(where, 0) + count
        return counts

    async def note(self, name: str, text: str) -> None:
        """Keep a short text under a name."""
        await self._submit(Work(_note, (name, text)))

    async def noted(self) -> dict[str, str]:
        """Return all notes by name."""
        return dict(await self._all("SELECT name, text FROM notes"))

    def now_us(self) -> int:
        """The time, which never goes back."""
        return self._time.now_us()

    async def close(self) -> None:
        """Give the lane up. Cancelled, it is closed all the same."""
        await asyncio.wrap_future(closing_thread(self._lane.close))

    async def _by_time(
        self, sql: str, values: tuple[object, ...], column: str, begin: cursors.Cursor, limit: int
    ) -> list[tuple[Any, ...]]:
        """A page in the order of a time. Any number may have the same one, so those are searched by number first."""
        tied = f"{sql} AND {column} = ? AND number > ? ORDER BY number LIMIT ?"
        later = f"{sql} AND {column} > ? ORDER BY {column}, number LIMIT ?"
        time_us, number = begin

        def read(run: Run) -> list[tuple[Any, ...]]:
            found: list[tuple[Any, ...]] = run(tied, (*values, time_us, number, limit)).fetchall()
            found.extend(run(later, (*values, time_us, limit - len(found))).fetchall())
            return found

        return await self._read(read)

    async def _submit(self, work: Work) -> object:
        with _translated_errors():
            return await self._lane.submit(work)

    async def _all(self, sql: str, *values: object) -> list[tuple[Any, ...]]:
        return await self._read(lambda run: run(sql, values).fetchall())

    async def _read(self, read: Callable[[Run], ResultT]) -> ResultT:
        with _translated_errors():
            return cast("ResultT", await self._lane.read(lambda connection: read(connection.cursor().execute)))


def _note(session: Session, note: tuple[str, str]) -> None:
    session.lend(lambda connection: connection.cursor().execute(NOTE, note))


@contextlib.contextmanager
def _translated_errors() -> Generator[None]:
    """What a lane says of a transaction that it did not make, in the words of a store."""
    try:
        yield
    except ConstraintViolation as error:
        raise InternalError(
            f"a group of changes contradicts the history that is stored: {error.what}",
            why="A version or a delivery key stands in history once; what was decided upon was something else.",
        ) from error
    except TransactionError as error:
        raise UnavailableError(f"the store could not do it: {error.what}", why=error.why, fix=error.fix) from error
    except (UnicodeError, OverflowError) as error:
        raise InvalidPayload(
            f"a value cannot be stored: {error}.",
            why="Texts are Unicode without lone surrogates, and numbers have 64 bits.",
        ) from error
