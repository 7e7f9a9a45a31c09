"""Workflows in a lane, in a folder or a bucket, as the source and as the target of a move.

As the source, the mover reads beside the engine that has the lane. In a folder triggers record the keys that the engine
writes. In a bucket nothing records them: after each step forward the copy of the lane is scanned, so the owner is
disturbed only by the seal. As the target the lane is a draft, and what is written is read back before it is committed.

Sections: reads, recorded changes, source, target.
"""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# apsw's stubs leave the values of SQLite partly open; mypy --strict looks at what is ours.
# ruff: noqa: S608 -- the names put into statements are those of the store's own tables and columns.

import tempfile
from collections.abc import AsyncGenerator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final, cast

import apsw
import msgspec

from interlock.catalog.catalog_entries import below
from interlock.clock import Clock
from interlock.errors import BadUsage, MovedElsewhere, TargetNotFound, UnavailableError
from interlock.lanes.handover import Draft as Mark
from interlock.lanes.handover import is_watched, is_watching, tombstone_of
from interlock.lanes.sqlite_connection import open_writer
from interlock.relocate.local_lane import DraftPlace, LeavingLane, SealedLane, first_write
from interlock.relocate.mover import opened_draft, opened_source, shown_url
from interlock.relocate.workflow_records import (
    ALL,
    NONE,
    TABLES_ASIDE,
    Aside,
    Clocks,
    Exchange,
    Exchanged,
    LeaseRow,
    Note,
    Noted,
    Numbered,
    Part,
    Span,
    Sums,
    Timed,
    arriving,
    digest_of,
    no_workflows,
    refuse_workflows,
)
from interlock.store import lane_store
from interlock.store.chart_store import INSERT as INSERT_CHART
from interlock.store.chart_store import ChartRecord
from interlock.store.lane_store import (
    FORMAT,
    GIVE,
    HELD,
    HELD_AT_BUCKET_US,
    HELD_US,
    NOTE,
    TABLES,
    arrival_report,
    arrived_epoch,
    record_arrival,
    record_of,
    row_of,
    written_time_us,
)
from interlock.store.open_store import NAME
from interlock.store.records import ChildRecord, HistoryRecord, Letter, OwedEffect
from interlock.urls import is_bucket_url

# --- Reads -----------------------------------------------------------------------------------------------------------

_KEYS = {table: "name" if table in {"leases", "notes"} else "id" for table in TABLES_ASIDE}
_MADE: Mapping[str, type[Aside]] = {
    "workflow_effects": OwedEffect,
    "workflow_children": ChildRecord,
    "workflow_charts": ChartRecord,
    "dead_letters": Letter,
    "leases": LeaseRow,
    "notes": Note,
}
_TABLE = "SELECT 1 FROM sqlite_schema WHERE type = 'table' AND name = ?"

_ROWS = f"SELECT number, {lane_store.ROW} FROM workflows"
_EVENTS = f"SELECT {lane_store.EVENT_COLUMNS} FROM workflow_events INDEXED BY workflow_events_by_version"
_SPAN = "SELECT count(*), coalesce(min(version), 0), coalesce(max(version), 0) FROM workflow_events WHERE workflow = ?"
_ALL_SPANS = """SELECT workflow, count(*), min(version), max(version)
FROM workflow_events INDEXED BY workflow_events_by_version GROUP BY workflow"""
_ROW = f"INSERT INTO workflows (number, {lane_store.ROW}) VALUES ({', '.join('?' * 19)})"


def _run(connection: apsw.Connection, sql: str, values: Sequence[object] = ()) -> list[tuple[Any, ...]]:
    found = connection.cursor().execute(sql, cast("tuple[str | int, ...]", tuple(values)))
    return cast("list[tuple[Any, ...]]", found.fetchall())


def _numbered(values: tuple[Any, ...]) -> Numbered:
    return arriving(values[0], row_of(values[1:]))


def machines_in(connection: apsw.Connection) -> dict[str, int]:
    """Count the workflows of each machine; none where no store was ever opened."""
    if written_time_us(connection) is None:
        return {}
    rows = _run(connection, "SELECT workflow_type, count(*) FROM workflows GROUP BY 1 ORDER BY 1")
    return {str(machine): int(count) for machine, count in rows}


def part_in(connection: apsw.Connection, sql: str, values: Sequence[object]) -> Part:
    """Return the workflows that a statement finds, with their histories."""
    rows = {each.row.id: each for each in map(_numbered, _run(connection, sql, values))}
    return Part(rows, {workflow: events_in(connection, each.number) for workflow, each in rows.items()})


def rows_in(connection: apsw.Connection, ids: Iterable[str]) -> dict[str, Numbered]:
    """Return these workflows; those that are gone are missing."""
    found = (values for each in ids for values in _run(connection, f"{_ROWS} WHERE id = ?", (each,)))
    return {each.row.id: each for each in map(_numbered, found)}


def span_in(connection: apsw.Connection, number: int) -> Span:
    """Return the span of history of a workflow."""
    return Span(*_run(connection, _SPAN, (number,))[0])


def events_in(connection: apsw.Connection, number: int, version: int = NONE) -> list[HistoryRecord]:
    """Return the history of a workflow after a version."""
    events = _EVENTS
    for column in lane_store.missing_columns(connection):
        events = events.replace(f", {column}", ", NULL")
    found = _run(connection, f"{events} WHERE workflow = ? AND version > ? ORDER BY version", (number, version))
    return [record_of(values) for values in found]


def aside_in(connection: apsw.Connection, table: str, keys: Sequence[str]) -> dict[str, Aside]:
    """Return the records of these keys."""
    made, sql = _MADE[table], f"SELECT * FROM {table} WHERE {_KEYS[table]} = ?"
    if not has_table(connection, table):
        return {}
    return {key: made(*values) for key in keys for values in _run(connection, sql, (key,))}


def keys_in(connection: apsw.Connection, table: str, after: str, limit: int) -> list[str]:
    """Return the next keys after one."""
    key = _KEYS[table]
    if not has_table(connection, table):
        return []
    sql = f"SELECT {key} FROM {table} WHERE {key} > ? ORDER BY {key} LIMIT ?"
    return [str(found) for (found,) in _run(connection, sql, (after, limit))]


def has_table(connection: apsw.Connection, table: str) -> bool:
    """Return whether the table exists: a store of an earlier release has no table of children."""
    return bool(_run(connection, _TABLE, (table,)))


def watched_in(connection: apsw.Connection) -> dict[str, Sequence[str]]:
    """Return the tables to watch that exist, with the column that identifies a change."""
    return {table: key for table, key in WATCHED.items() if has_table(connection, table)}


def sums_in(connection: apsw.Connection) -> Sums:
    """Return quick totals of all rows: it reads the workflows, and an index over history."""
    [rows] = _run(connection, "SELECT count(*), coalesce(sum(revision), 0) FROM workflows")
    index = "workflow_events INDEXED BY workflow_events_by_version"
    [events] = _run(connection, f"SELECT count(*), coalesce(sum(version), 0) FROM {index}")
    return Sums(*map(int, (*rows, *events)))


# --- Recorded changes ------------------------------------------------------------------------------------------------
# A lane in a folder has triggers. A note is not deleted before the end of the move: there are never more notes than
# rows, and a second mover needs those that the first has seen.
#
# A copy of a lane in a bucket is brought forward page by page, without a record of the written rows. But every write
# of a workflow increments its revision, and history is identified by its first and last version and its number of
# rows, which a pruning changes. The other tables are small and compared as a whole. So a scan reads all workflows
# and an index over history, a third of a second for a hundred thousand of them.

WATCHED: Final[Mapping[str, Sequence[str]]] = {
    "workflows": ("id",),
    "workflow_events": ("workflow_id",),
    **{table: (key,) for table, key in _KEYS.items()},
}
"""The moved tables, with the column that identifies a change."""

NOTES_MAX = 5_000
"""Notes that are looked at together."""

CHUNK = 1_000


class Scan:
    """The state of a store at its last scan."""

    def __init__(self) -> None:
        self._known: dict[str, dict[str, int]] = {}

    def look(self, connection: apsw.Connection) -> list[tuple[str, str]]:
        """Return the tables and keys that were changed or removed since the last look."""
        changed: list[tuple[str, str]] = []
        for table in ("workflows", *TABLES_ASIDE):
            before = self._known.get(table, {})
            now = _workflow_states(connection) if table == "workflows" else _aside_digests(connection, table)
            changed += [(table, key) for key, value in now.items() if before.get(key) != value]
            changed += [(table, key) for key in before if key not in now]
            self._known[table] = now
        return changed


def _workflow_states(connection: apsw.Connection) -> dict[str, int]:
    spans = {number: Span(*values) for number, *values in _run(connection, _ALL_SPANS)}
    rows = _run(connection, "SELECT id, number, revision FROM workflows")
    return {str(workflow): hash((number, revision, spans.get(number))) for workflow, number, revision in rows}


def _aside_digests(connection: apsw.Connection, table: str) -> dict[str, int]:
    found: dict[str, int] = {}
    after = ""
    while keys := keys_in(connection, table, after, CHUNK):
        found |= {key: digest_of(value) for key, value in aside_in(connection, table, keys).items()}
        after = keys[-1]
    return found


def _by_table(changes: Iterable[tuple[str, str]]) -> dict[str, list[str]]:
    keys: dict[str, dict[str, None]] = {}
    for table, key in changes:
        keys.setdefault("workflows" if table == "workflow_events" else table, {})[key] = None
    return {table: list(listed) for table, listed in keys.items()}


# --- Source ----------------------------------------------------------------------------------------------------------

SEAL_WAIT_S = 5.0
"""Longest wait of the mover for the group that is being written."""


class LaneWorkflows:
    """The workflows of a lane that they leave."""

    def __init__(self, home: str, source: LeavingLane, clock: Clock) -> None:
        self.location = source.location
        self._home = home
        self._source = source
        self._reading: LeavingLane | SealedLane = source
        self._clock = clock
        self._last_note = 0
        """Number of the last note that was brought over."""
        self._scan = Scan()
        self._scanned: list[tuple[str, str]] = []
        self._in_bucket = is_bucket_url(home)
        self._sealed: SealedLane | None = None
        self._held_us = 0

    @classmethod
    async def opened(cls, home: str, *, clock: Clock) -> "LaneWorkflows":
        """Connect to the workflows of a home. Raises BadUsage without any."""
        try:
            source = cast("LeavingLane", await opened_source(below(home, NAME), clock=clock))
        except TargetNotFound as error:
            raise no_workflows(home) from error
        try:
            time_us = await source.read(written_time_us)
        except BaseException:
            await source.close()
            raise
        if time_us is None:
            await source.close()
            raise no_workflows(home)
        return cls(home, source, clock)

    async def close(self) -> None:
        """Close the connection, or delete the copy."""
        await self._source.close()

    async def check(self) -> None:
        """Raise MovedElsewhere when they have left."""
        await self._source.read(self._refuse_left)

    def _refuse_left(self, connection: apsw.Connection) -> None:
        stone = tombstone_of(connection)
        if stone is not None:
            raise MovedElsewhere(
                f"the workflows of {shown_url(self._home)} live at {shown_url(stone.url)} since move {stone.epoch}.",
                url=stone.url,
                epoch=stone.epoch,
            )

    async def refuse_left(self) -> None:
        """Raise MovedElsewhere when they have left, after a mover that may be leaving has ended."""
        async with self.sealed():
            pass

    async def last_epoch(self) -> int:
        """Return the epoch of the move that brought them here; 0 without one."""
        return await self._source.read(arrived_epoch)

    async def machines(self) -> dict[str, int]:
        """Count the workflows of each machine."""
        return await self._source.read(machines_in)

    # --- reads -------------------------------------------------------------------------------------------------------

    async def page(self, after: str, limit: int) -> Part:
        """Return the next workflows after an id, with their histories."""
        sql = f"{_ROWS} WHERE id > ? ORDER BY id LIMIT ?"
        return await self._reading.read(lambda connection: part_in(connection, sql, (after, limit)))

    async def states(self, ids: Sequence[str]) -> tuple[dict[str, Numbered], dict[str, Span]]:
        """Return these workflows and the spans of their histories, at one moment."""

        def read(connection: apsw.Connection) -> tuple[dict[str, Numbered], dict[str, Span]]:
            rows = rows_in(connection, ids)
            return rows, {workflow: span_in(connection, each.number) for workflow, each in rows.items()}

        return await self._reading.read(read)

    async def events_after(self, versions: Mapping[str, int]) -> dict[str, list[HistoryRecord]]:
        """Return the history of these workflows, each after a version."""

        def read(connection: apsw.Connection) -> dict[str, list[HistoryRecord]]:
            rows = rows_in(connection, versions)
            return {workflow: events_in(connection, each.number, versions[workflow]) for workflow, each in rows.items()}

        return await self._reading.read(read)

    async def aside(self, table: str, keys: Sequence[str]) -> dict[str, Aside]:
        """Return the records of these keys."""
        return await self._reading.read(lambda connection: aside_in(connection, table, keys))

    async def keys_aside(self, table: str, after: str, limit: int) -> list[str]:
        """Return the next keys after one."""
        return await self._reading.read(lambda connection: keys_in(connection, table, after, limit))

    async def count(self, table: str) -> int:
        """Return the number of rows of a table."""

        def read(connection: apsw.Connection) -> int:
            if not has_table(connection, table):
                return 0
            [(count,)] = _run(connection, f"SELECT count(*) FROM {table}")
            return int(count)

        return await self._reading.read(read)

    async def sums(self) -> Sums:
        """Return quick totals of all rows."""
        return await self._reading.read(sums_in)

    async def clocks(self) -> Clocks:
        """Return the times of the store. A lane has one owner, and its leases run by the clock of that host."""
        time_us = await self._reading.read(written_time_us) or 0
        return Clocks(time_us, max(time_us, int(self._clock.wall_s() * 1_000_000)), self._held_us)

    # --- changes -----------------------------------------------------------------------------------------------------

    async def watch(self) -> None:
        """Record changes from now on."""
        if self._in_bucket:
            await self._source.forward()
            await self._source.read(self._scan.look)
            self._scanned = []
        else:
            await self._source.note_writes(await self._source.read(watched_in))

    async def load_notes(self) -> Noted:
        """Return recorded changes. Raises UnavailableError when the triggers were removed: some may be missing."""
        if not self._in_bucket:
            return await self._reading.read(self._load_notes)
        if not self._scanned:
            if self._sealed is None:
                await self._source.forward()
            self._scanned = await self._reading.read(self._scan.look)
        part, self._scanned = self._scanned[:NOTES_MAX], self._scanned[NOTES_MAX:]
        return Noted(_by_table(part), list(range(len(part))), complete=len(part) < NOTES_MAX)

    def _load_notes(self, connection: apsw.Connection) -> Noted:
        found = self._reading.notes(self._last_note, NOTES_MAX)
        if not is_watching(connection, watched_in(connection)):
            self._refuse_left(connection)  # Another mover was faster, and its tombstone says where it went.
            raise UnavailableError(
                f"nothing notes any more what is written to {self.location}.",
                why="Another process has taken the move back, or an engine of this release has added a table that an "
                "earlier one does not have. Nothing has moved.",
                fix="Run the same again if it shall go on: it compares everything that is there already.",
            )
        keys = _by_table((table, str(key[0])) for _, table, key in found)
        return Noted(keys, [number for number, _, _ in found], complete=len(found) < NOTES_MAX)

    async def forget(self, changes: Noted) -> None:
        """Do not return these changes again."""
        if not self._in_bucket:
            self._last_note = max(self._last_note, *changes.numbers, 0)

    async def forget_all(self) -> bool:
        """Record nothing any more: the move is given up. Return whether something was recorded."""
        watched = not self._in_bucket and await self._source.read(is_watched)
        await self._source.unwatch()
        return watched

    # --- the end -----------------------------------------------------------------------------------------------------

    @asynccontextmanager
    async def sealed(self) -> AsyncGenerator[float]:
        """Block all writers during the block; yield when that began. Without `leave` nothing has happened."""
        if await self._source.has_owner():
            self._held_us = HELD_AT_BUCKET_US if self._in_bucket else HELD_US
        async with self._source.sealed(SEAL_WAIT_S) as sealed:
            self._sealed = self._reading = sealed
            try:
                yield sealed.since_s
            finally:
                self._sealed, self._reading = None, self._source

    async def leave(self, url: str, epoch: int) -> None:
        """Write the tombstone, durably: from now on the workflows live there."""
        assert self._sealed is not None
        await self._sealed.leave(url, epoch)


# --- Target ----------------------------------------------------------------------------------------------------------


class LaneArrival:
    """A lane in a folder or a bucket that workflows arrive in."""

    seal_factor = 0.0
    """The share of the time for making tables that the seal takes."""

    def __init__(self, home: str, *, clock: Clock) -> None:
        self._place: DraftPlace = opened_draft(below(home, NAME), clock=clock)
        self.location = self._place.location
        self._clock = clock
        self._sampled_in_bucket = is_bucket_url(home)

    async def close(self) -> None:
        """Release the draft."""
        await self._place.close()

    async def check(self, epoch: int = ALL, source: str = "") -> None:
        """Raise BadUsage or MovedElsewhere unless workflows may come here."""
        state = await self._place.state()
        if state.mark is not None and (state.draft is not None or state.names):
            if state.mark != Mark(epoch, source) and epoch < ALL:
                raise BadUsage(
                    f"another move to {self.location} is under way: number {state.mark.epoch}, "
                    f"from {state.mark.source}.",
                    why="A lane is the target of one move at a time.",
                    fix="Finish that one, or take it back with `interlock route --abandon`.",
                )
        elif state.mark is None and state.left is not None:
            if state.left.epoch >= epoch:
                raise MovedElsewhere(
                    f"the workflows of {self.location} have left with move {state.left.epoch}, "
                    f"which is later than {epoch}.",
                    url=state.left.url,
                    epoch=state.left.epoch,
                )
        elif state.mark is None:
            await self._place.look(self._refuse_workflows)

    def _refuse_workflows(self, connection: apsw.Connection | None) -> None:
        if connection is not None and tombstone_of(connection) is None:
            refuse_workflows(machines_in(connection), self.location)

    async def begin(self, epoch: int, source: str) -> bool:
        """Make the draft, or acquire that of an earlier mover; return whether it is fresh.

        Raises LaneOwned when an engine or another mover has the lane.
        """
        await self.check(epoch, source)
        mark = Mark(epoch, source)
        state = await self._place.state()
        if state.mark == mark and state.names:
            await self._place.resume()
            return False
        await self._place.begin(mark, _make_tables, self._refuse_workflows)
        return True

    async def between(self, after: str, last: str | None) -> Part:
        """Return the workflows after an id, up to another, with their histories."""
        sql = f"{_ROWS} WHERE id > ?1 AND (?2 IS NULL OR id <= ?2) ORDER BY id"
        return await self._place.read(lambda connection: part_in(connection, sql, (after, last)))

    async def spans(self, rows: Iterable[Numbered]) -> dict[str, Span]:
        """Return the spans of history of the workflows that are here with these numbers."""
        listed = list(rows)

        def read(connection: apsw.Connection) -> dict[str, Span]:
            known = rows_in(connection, [each.row.id for each in listed])
            return {
                each.row.id: span_in(connection, each.number)
                for each in listed
                if each.row.id in known and known[each.row.id].number == each.number
            }

        return await self._place.read(read)

    async def exchange(self, change: Exchange) -> Exchanged:
        """Change the draft, in one transaction, and read back what it has now."""
        return await self._place.run(lambda connection: exchange_in(connection, change))

    async def put_aside(self, table: str, keys: Sequence[str], values: Mapping[str, Aside]) -> list[Aside]:
        """Replace the records of these keys; return them as the draft has them."""
        return await self._place.run(lambda connection: _put_aside(connection, table, keys, values))

    async def clear_aside(self) -> None:
        """Remove everything that is stored beside workflows."""

        def clear(connection: apsw.Connection) -> None:
            lane_store.add_missing(connection)  # The draft may be one of an earlier release.
            for table in TABLES_ASIDE:
                connection.execute(f"DELETE FROM {table}")

        await self._place.run(clear)

    async def sums(self) -> Sums:
        """Return quick totals of all rows."""
        return await self._place.read(sums_in)

    async def settle(self) -> None:
        """Put what is in the log into the file, so that the end has little to sync."""
        await self._place.fold()

    async def now_us(self) -> int:
        """Return the time of this host."""
        return int(self._clock.wall_s() * 1_000_000)

    async def complete(self, epoch: int, report: str, clocks: Clocks, now_us: int) -> None:
        """Mark the draft complete, durably, with its report. From now on only the source's tombstone is missing.

        A lease is as long as it was promised: it is shifted by as much as this host's clock is ahead.
        """
        later_us = max(0, now_us - clocks.now_us)

        def end(connection: apsw.Connection) -> None:
            run = connection.cursor().execute
            run(lane_store.TIME, (clocks.time_us,))
            run("UPDATE leases SET until = until + ? WHERE until IS NOT NULL", (later_us,))
            if clocks.held_us:
                run(NOTE, (HELD, str(max(clocks.time_us, now_us) + clocks.held_us)))
            record_arrival(connection, epoch, report)

        await self._place.run(end, durable=True)

    async def arrive(self, epoch: int) -> str | None:
        """Take the mark away, and give the lane up; return what was moved, if it is known.

        Requires the source's tombstone. Without the mark, an engine that followed the tombstone has done so.
        """
        mark = (await self._place.state()).mark
        if mark is not None and mark.epoch == epoch:
            await self._place.arrive(epoch)
        return await self._place.look(lambda found: None if found is None else arrival_report(found, epoch))

    async def reached(self) -> float | None:
        """Wait for the first write of the engine that follows. There may be none on this host."""
        return await first_write(self._place.is_used, self._clock)

    async def draft(self) -> tuple[int, str] | None:
        """Return the epoch and the source of the draft; None without one."""
        state = await self._place.state()
        return None if state.mark is None or not state.names else (state.mark.epoch, state.mark.source)

    async def take_back(self, epoch: int) -> bool | None:
        """Take the draft over; return whether it was complete, None without one. Raises LaneOwned for a live mover."""
        state = await self._place.state()
        if state.mark is None or state.mark.epoch != epoch or not state.names:
            return None
        await self._place.resume()
        return await self._place.read(lambda connection: arrival_report(connection, epoch)) is not None

    async def throw_away(self, epoch: int) -> None:
        """Remove the draft, and restore the previous file."""
        mark = (await self._place.state()).mark
        if mark is not None and mark.epoch == epoch:
            await self._place.drop()

    async def timed(self, part: Part) -> Timed:
        """Measure with a file in a temporary folder: what is written to a bucket would stay there."""
        return await self._place.thread.run(lambda: _timed(part, self._clock))

    async def clock_notes(self, clocks: Clocks) -> tuple[str, ...]:
        """Return nothing: a lane goes on from the source's time."""
        del clocks
        return ()

    @property
    def notes(self) -> tuple[str, ...]:
        """Return remarks for people."""
        owner = "A lane has one owner: the first engine there goes on, the others get LaneOwned until it ends."
        if self._sampled_in_bucket:
            return (owner, "The times were tried on this disk; in the bucket every transaction waits for its answer.")
        return (owner, "The lane is on the disk of this host: engines on other hosts cannot follow.")


def _make_tables(connection: apsw.Connection) -> None:
    connection.execute(f"{TABLES}{lane_store.LATER_TABLES}")
    connection.execute("INSERT INTO workflow_store VALUES (1, ?, 0)", (FORMAT,))


def exchange_in(connection: apsw.Connection, change: Exchange) -> Exchanged:
    """Change the tables of a store, inside the caller's transaction, and read back what they have now."""
    run = connection.cursor().execute
    coming = {each.row.id: each.number for each in change.rows}
    # Numbers of pruned workflows are given again, and an id may begin anew: what was under either one goes.
    known = {*_known(connection, "id", (*change.removed, *coming)), *_known(connection, "number", coming.values())}
    removed: list[int] = []
    cut: list[HistoryRecord] = []
    for number, workflow in known:
        stays = coming.get(workflow) == number
        below_version = change.cuts.get(workflow, 0) if stays else ALL
        run("DELETE FROM workflows WHERE number = ?", (number,))
        if not stays:
            removed.append(number)
        if below_version:
            cut += [each for each in events_in(connection, number) if each.version < below_version]
            run("DELETE FROM workflow_events WHERE workflow = ? AND version < ?", (number, below_version))
    events: list[HistoryRecord] = []
    for number, row in change.rows:
        run(_ROW, (number, *lane_store.start_columns(row)))
        added = change.events.get(row.id, ())
        if added:
            lane_store.insert_events(connection.cursor(), [lane_store.event_columns(number, each) for each in added])
            events += events_in(connection, number, added[0].version - 1)
    return Exchanged(list(rows_in(connection, coming).values()), events, cut, removed)


def _known(connection: apsw.Connection, column: str, values: Iterable[object]) -> list[tuple[int, str]]:
    sql = f"SELECT number, id FROM workflows WHERE {column} = ?"
    return [(int(number), str(workflow)) for value in values for number, workflow in _run(connection, sql, (value,))]


def _put_aside(
    connection: apsw.Connection, table: str, keys: Sequence[str], values: Mapping[str, Aside]
) -> list[Aside]:
    run = connection.cursor().execute
    if table in {"workflow_children", "workflow_charts"}:
        run(lane_store.LATER_TABLES)
    for key in keys:
        run(f"DELETE FROM {table} WHERE {_KEYS[table]} = ?", (key,))
    for value in values.values():
        if isinstance(value, (LeaseRow, Note)):
            run(GIVE if isinstance(value, LeaseRow) else NOTE, tuple(value))
        else:
            sql = lane_store.LETTER
            if isinstance(value, OwedEffect):
                sql = lane_store.EFFECT
            elif isinstance(value, ChildRecord):
                sql = lane_store.CHILD
            elif isinstance(value, ChartRecord):
                sql = INSERT_CHART
            run(sql, msgspec.structs.astuple(value))
    return list(aside_in(connection, table, keys).values())


def _timed(part: Part, clock: Clock) -> Timed:
    with tempfile.TemporaryDirectory(prefix="interlock-route-") as folder:
        connection = open_writer(Path(folder) / "sample.lane")
        try:
            connection.execute("PRAGMA synchronous = NORMAL")
            connection.execute(f"{TABLES}{lane_store.LATER_TABLES}")
            began_s = clock.monotonic_s()
            connection.execute("BEGIN")
            done = exchange_in(connection, Exchange(list(part.rows.values()), part.events))
            connection.execute("COMMIT")
            sum(map(digest_of, [*part.rows.values(), *done.rows]))
            sum(map(digest_of, [*done.events, *done.events]))
            copied_s = (clock.monotonic_s() - began_s) / max(1, len(part.rows))
            began_s = clock.monotonic_s()
            sums_in(connection)
            return Timed(copied_s, copied_s, clock.monotonic_s() - began_s, 0.0)
        finally:
            connection.close()
