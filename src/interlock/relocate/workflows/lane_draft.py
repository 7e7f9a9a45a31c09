"""The draft of workflows that arrive in a lane: a file at its final path, with a mark that prevents opening it.

The mover owns the lane meanwhile, and writes without opening it: in big transactions that no caller waits for, up to
the last, whose sync makes all of them durable. An earlier file, with its tombstone, is put aside first, and kept.
Written rows are read back before they are committed.
"""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# apsw's stubs leave the values of SQLite partly open; mypy --strict looks at what is ours.
# ruff: noqa: S608 -- the names put into statements are those of the store's own tables and columns.

import contextlib
from collections.abc import Generator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import apsw
import msgspec

from interlock.clock import Clock
from interlock.errors import BadUsage, MovedElsewhere
from interlock.lanes.connection import open_writer, opening
from interlock.lanes.file import Ownership, make_folder, sync_folder
from interlock.lanes.handover import Arrived, admit, draft_of, tombstone_of
from interlock.lanes.handover import Draft as Mark
from interlock.relocate.workflows.canonical import Aside, LeaseRow, Note, Numbered
from interlock.relocate.workflows.lane_source import SOURCE_ASIDE, Source, Sums
from interlock.store import lane
from interlock.store.lane import (
    FORMAT,
    GIVE,
    NOTE,
    TABLES,
    arrival_report,
    open_snapshot,
    record_arrival,
    written_time_us,
)
from interlock.store.records import HistoryRecord, Letter, OwedEffect

FOLDED_PAGES = 4_000
"""Pages in the log after which it is folded into the file."""

ENDINGS = ("", "-wal", "-shm")
ALL = 2**62

_ROW = f"INSERT INTO workflows (number, {lane.ROW}) VALUES ({', '.join('?' * 19)})"
_KEYS = {"workflow_effects": "id", "dead_letters": "id", "leases": "name", "notes": "name"}


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


class LaneDraft:
    """The file of a lane. For one thread at a time; close it."""

    def __init__(self, path: Path, clock: Clock) -> None:
        self.path = path
        self._clock = clock
        self._ownership: Ownership | None = None
        self._connection: apsw.Connection | None = None

    def close(self) -> None:
        """Close the file and give it up."""
        self._close_file()
        ownership, self._ownership = self._ownership, None
        if ownership is not None:
            ownership.release()

    # --- before ------------------------------------------------------------------------------------------------------

    def mark(self) -> Mark | None:
        """Return the move that fills it; None if it is missing or not a draft."""
        with open_snapshot(self.path) as connection:
            return None if connection is None else draft_of(connection)

    def refuse_used(self, epoch: int, source: str) -> None:
        """Raise BadUsage unless workflows may come here."""
        with open_snapshot(self.path) as connection:
            if connection is None:
                return
            mark, stone = draft_of(connection), tombstone_of(connection)
            if mark is not None:
                if mark != Mark(epoch, source) and epoch < ALL:
                    raise BadUsage(
                        f"another move to {self.path} is under way: number {mark.epoch}, from {mark.source}.",
                        why="A lane is the target of one move at a time.",
                        fix="Finish that one, or take it back with `interlock route --abandon`.",
                    )
            elif stone is not None:
                if stone.epoch >= epoch:
                    raise MovedElsewhere(
                        f"the workflows of {self.path} have left with move {stone.epoch}, which is later than {epoch}.",
                        url=stone.url,
                        epoch=stone.epoch,
                    )
            elif written_time_us(connection) is not None:
                _refuse_workflows(Source(connection).machines(), self.path)

    def begin(self, epoch: int, source: str) -> bool:
        """Make the draft, or find the one that an earlier mover has left; whether it is fresh.

        Raises LaneOwned when an engine or another mover has the lane.
        """
        self.refuse_used(epoch, source)
        self._take()
        self.refuse_used(epoch, source)  # Again: until now another one may have owned it.
        mark = Mark(epoch, source)
        fresh = self.mark() != mark
        if fresh:
            self._put_aside(epoch)
        connection = self._open()
        if fresh:
            with self._transaction():
                admit(connection, mark, f"lane {self.path}")
                connection.execute(TABLES)
                connection.execute("INSERT INTO workflow_store VALUES (1, ?, 0)", (FORMAT,))
            sync_folder(self.path.parent)
        return fresh

    def trial(self) -> None:
        """Open a temporary draft, to measure in."""
        connection = self._open()
        with self._transaction():
            connection.execute(TABLES)

    def _take(self) -> None:
        if self._ownership is None:
            make_folder(self.path.parent)
            self._ownership = Ownership.take(self.path, self._clock)

    def _open(self) -> apsw.Connection:
        if self._connection is None:
            with opening(self.path):
                connection = open_writer(self.path)
                # The last transaction is synced, and everything before it in the log with it.
                for pragma in ("synchronous = NORMAL", f"wal_autocheckpoint = {FOLDED_PAGES}"):
                    connection.execute(f"PRAGMA {pragma}")
            self._connection = connection
        return self._connection

    def _close_file(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def _put_aside(self, epoch: int) -> None:
        if self.path.exists():
            # Opened to write and closed by the last one, its log is folded into it.
            with opening(self.path):
                open_writer(self.path).close()
            self._rename(self.path, self._aside(epoch))

    def _aside(self, epoch: int) -> Path:
        return self.path.with_name(f"{self.path.name}.before-{epoch}")

    def _rename(self, old: Path, new: Path) -> None:
        for ending in reversed(ENDINGS):
            each = old.with_name(old.name + ending)
            if each.exists():
                each.rename(new.with_name(new.name + ending))
        sync_folder(self.path.parent)

    # --- what is written ---------------------------------------------------------------------------------------------

    @property
    def source(self) -> Source:
        """The draft's tables, for reading."""
        return Source(self._open())

    def between(self, after: str, last: str | None) -> dict[str, tuple[Numbered, list[HistoryRecord]]]:
        """Return the workflows after an id, up to another, with their history."""
        run, found = self._open().cursor().execute, {}
        sql = "SELECT number FROM workflows WHERE id > ?1 AND (?2 IS NULL OR id <= ?2) ORDER BY id"
        numbers = [int(str(number)) for (number,) in run(sql, (after, last)).fetchall()]
        for number, each in self.source.rows(numbers).items():
            found[each.row.id] = (each, self.source.events_behind(number, 0))
        return found

    def exchange(self, change: Exchange) -> Exchanged:
        """Change the draft, in one transaction, and read back what it has now."""
        with self._transaction():
            run, source = self._open().cursor().execute, self.source
            removed, cut = [], []
            numbers = {each.row.id: each.number for each in change.rows}
            for workflow in (*change.removed, *numbers):
                known = run("SELECT number FROM workflows WHERE id = ?", (workflow,)).get
                if known is None:
                    continue
                number = int(str(known))
                run("DELETE FROM workflows WHERE number = ?", (number,))
                if numbers.get(workflow) != number:
                    removed.append(number)
                below = change.cuts.get(workflow, 0) if numbers.get(workflow) == number else ALL
                if below:
                    cut += [each for each in source.events_behind(number, 0) if each.version < below]
                    run("DELETE FROM workflow_events WHERE workflow = ? AND version < ?", (number, below))
            events: list[HistoryRecord] = []
            for number, row in change.rows:
                run(_ROW, (number, *lane.start_columns(row)))
                added = change.events.get(row.id, ())
                if added:
                    for each in added:
                        run(lane.INSERT_EVENT, lane.event_columns(number, each))
                    events += source.events_behind(number, added[0].version - 1)
            rows = list(source.rows(numbers.values()).values())
        return Exchanged(rows, events, cut, removed)

    def put_aside(self, table: str, keys: Sequence[str], values: Mapping[str, Aside]) -> list[Aside]:
        """Replace the records of these keys; return them as the draft has them."""
        with self._transaction():
            run = self._open().cursor().execute
            for key in keys:
                run(f"DELETE FROM {table} WHERE {_KEYS[table]} = ?", (key,))
            for value in values.values():
                if isinstance(value, (LeaseRow, Note)):
                    run(GIVE if isinstance(value, LeaseRow) else NOTE, tuple(value))
                else:
                    assert isinstance(value, (OwedEffect, Letter))
                    sql = lane.EFFECT if isinstance(value, OwedEffect) else lane.LETTER
                    run(sql, msgspec.structs.astuple(value))
            return list(self.source.aside(table, keys).values())

    def clear_aside(self) -> None:
        """Nothing stands aside yet."""
        with self._transaction():
            for table in SOURCE_ASIDE:
                self._open().execute(f"DELETE FROM {table}")

    def sums(self) -> Sums:
        """Return quick totals of all rows."""
        return self.source.sums()

    def fold(self) -> None:
        """Put what is in the log into the file, so that the end has little to sync."""
        self._open().wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)

    def complete(self, epoch: int, report: str, *, time_us: int, later_us: int, notes: Mapping[str, str]) -> None:
        """Mark the draft complete, durably, with its report. From now on only the source's tombstone is missing.

        `later_us` is by how much this host's clock is ahead: a lease is as long as it was promised, not as long ago.
        """
        connection = self._open()
        connection.execute("PRAGMA synchronous = FULL")
        with self._transaction():
            run = connection.cursor().execute
            run(lane.TIME, (time_us,))
            run("UPDATE leases SET until = until + ? WHERE until IS NOT NULL", (later_us,))
            for note in notes.items():
                run(NOTE, note)
            record_arrival(connection, epoch, report)

    def arrive(self, epoch: int) -> str | None:
        """Take the mark away, and give the lane up; returns what was moved, if it is known.

        Requires the source's tombstone. Without the mark, an engine that followed the tombstone has done so.
        """
        mark = self.mark()
        if mark is not None and mark.epoch == epoch:
            self._take()
            connection = self._open()
            connection.execute("PRAGMA synchronous = FULL")
            with self._transaction():
                admit(connection, Arrived(epoch), f"lane {self.path}")
            self.close()
        with open_snapshot(self.path) as found:
            return None if found is None else arrival_report(found, epoch)

    def take_back(self, epoch: int) -> bool:
        """Take the draft over; return False without one. Raises LaneOwned while another mover is alive."""
        mark = self.mark()
        if mark is None or mark.epoch != epoch:
            return False
        self._take()
        return True

    def throw_away(self, epoch: int) -> bool:
        """Remove the draft, and restore the previous file. Return False without a draft."""
        mark = self.mark()
        if mark is None or mark.epoch != epoch:
            return False
        self._take()
        self._close_file()
        if self.mark() != mark:
            return False
        for ending in ENDINGS:
            self.path.with_name(self.path.name + ending).unlink(missing_ok=True)
        aside = self._aside(epoch)
        if aside.exists():
            self._rename(aside, self.path)
        sync_folder(self.path.parent)
        return True

    @contextlib.contextmanager
    def _transaction(self) -> Generator[None]:
        connection = self._open()
        with opening(self.path):
            connection.execute("BEGIN IMMEDIATE")
            try:
                yield
                connection.execute("COMMIT")
            finally:
                if connection.in_transaction:
                    connection.execute("ROLLBACK")


def _refuse_workflows(machines: Mapping[str, int], path: Path) -> None:
    if machines:
        told_of = ", ".join(f"{count:,} of {machine!r}" for machine, count in machines.items())
        raise BadUsage(
            f"the lane {path} has workflows already: {told_of}.",
            why="Two stores are not made one: each has notes, leases and keys of its own, and may have used the same "
            "ids.",
            fix="Name a home that has no workflows: --to lanes:///var/another.",
        )
