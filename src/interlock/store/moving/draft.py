"""The draft of arriving workflows in PostgreSQL: built beside the schema, moved there in one step, or removed.

There is one mover at a time. A mover that takes a draft over writes its own name into the mark, and every transaction
of a mover first checks that name. A mover that was replaced, or that wakes after a long pause, changes nothing any more
(G4). Written rows are read back before they are committed, so that all rows of a draft were compared.
"""

# ruff: noqa: S608 -- the only name put into a statement is the schema's, which `address` has checked.

import contextlib
from collections.abc import AsyncGenerator, Iterable, Mapping, Sequence
from typing import NamedTuple, Protocol, cast

from interlock.errors import UnavailableError
from interlock.sql.postgres.address import Address
from interlock.sql.postgres.failures import told
from interlock.sql.postgres.link import Driver, Record, driver_of
from interlock.store.moving import staging
from interlock.store.moving.canonical import Aside, LeaseRow, Note, Numbered
from interlock.store.moving.source import Span, Sums
from interlock.store.postgres import columns
from interlock.store.postgres.marks import ARRIVING, draft_of
from interlock.store.postgres.statement import micros
from interlock.store.values import Happened

PLANNING = "SET LOCAL enable_seqscan = off; SET LOCAL enable_hashjoin = off; SET LOCAL enable_mergejoin = off"
"""Every lookup uses an index: a table that is just being filled has no statistics."""


class Copier(Driver, Protocol):
    """As much of the driver's connection as a mover uses."""

    async def copy_records_to_table(
        self, table: str, /, *, records: Sequence[tuple[object, ...]], columns: Sequence[str]
    ) -> str:
        """Put rows into a table, the quickest way there is."""
        ...


class Exchange(NamedTuple):
    """The changes of one transaction of a draft."""

    rows: Sequence[Numbered] = ()
    events: Sequence[Happened] = ()
    gone: Sequence[int] = ()
    """Numbers of workflows that are not there any more, with their history."""
    cuts: Mapping[str, int] = {}
    """Workflows whose history below that version is not there any more."""


class Exchanged(NamedTuple):
    """The content of the draft afterwards, as it was read back."""

    rows: list[Numbered]
    events: list[Happened]
    cut: list[Happened]
    """History that was taken out."""
    gone: list[int]
    """Numbers that are not in the draft any more: those that were asked for, and those whose id has a new number."""


class Draft:
    """A draft, over one connection."""

    def __init__(self, address: Address, driver: Copier, mover: str, schema: str | None = None) -> None:
        self.address = address
        self.schema = schema or draft_of(address)
        self.driver = driver
        self._mover = mover
        self._within = False
        """A transaction is under way."""

    @staticmethod
    async def connected(address: Address, mover: str) -> "Draft":
        """Connect to the target under a unique mover name."""
        return Draft(address, cast("Copier", await driver_of(address, {"jit": "off"})), mover)

    async def close(self) -> None:
        """End the connection, and with it whatever is not committed."""
        with contextlib.suppress(Exception):  # Whatever it says, it ends here.
            await self.driver.close(timeout=5.0)
        if not self.driver.is_closed():
            self.driver.terminate()

    async def read(self, sql: str, *values: object) -> list[Record]:
        """Run a query. Through a pooler a query and its answer share a session only within a transaction."""
        with told(writing=False):
            if self._within or not self.address.pgbouncer:
                return await self.driver.fetch(sql, *values)
            await self.driver.execute("BEGIN")
            try:
                return await self.driver.fetch(sql, *values)
            finally:
                if not self.driver.is_closed():
                    await self.driver.execute("COMMIT")  # Of what has failed it is a ROLLBACK.

    async def take(self, epoch: int) -> None:
        """Take the draft over as its mover."""
        await self.read(f"UPDATE {self.address.schema}.{ARRIVING} SET mover = $1 WHERE epoch = $2", self._mover, epoch)

    @contextlib.asynccontextmanager
    async def turn(self) -> AsyncGenerator[None]:
        """A transaction of this mover, if it still is the mover."""
        async with self.transaction(f"BEGIN; {PLANNING}", "COMMIT"):
            mark = f"UPDATE {self.address.schema}.{ARRIVING} SET turns = turns + 1 WHERE mover = $1 RETURNING turns"
            _refuse_taken_over(await self.read(mark, self._mover), self.address.shown)
            yield

    @contextlib.asynccontextmanager
    async def transaction(self, begin: str, end: str) -> AsyncGenerator[None]:
        """Begin one, and end it like that unless something fails."""
        try:
            with told(writing=False):
                await self.driver.execute(begin)
            self._within = True
            yield
        except BaseException:
            if not self.driver.is_closed():
                with contextlib.suppress(Exception):  # The error that is being raised is the cause.
                    await self.driver.execute("ROLLBACK")
            raise
        finally:
            self._within = False
        with told(writing=True):
            await self.driver.execute(end)

    async def exchange(self, change: Exchange) -> Exchanged:
        """Change the draft, in one transaction, and read back what it has now."""
        async with self.turn():
            return await self.exchange_within(change)

    async def exchange_within(self, change: Exchange) -> Exchanged:
        """Exchange inside a transaction that the caller has begun."""
        gone, cut = await self._taken_out(change)
        await self._stage(staging.WORKFLOWS, staging.staged_rows(change.rows), replacing="id")
        await self._stage(staging.EVENTS, staging.staged_events(change.events))
        rows = await self.rows([number for number, _ in change.rows])
        staged = f"SELECT workflow_id, version FROM {staging.EVENTS.name}"
        sql = f"{self._events} WHERE (workflow_id, version) IN ({staged})"
        events = [columns.happened_of(each) for each in await self.read(sql)] if change.events else []
        return Exchanged(rows, events, cut, gone)

    async def _taken_out(self, change: Exchange) -> tuple[list[int], list[Happened]]:
        schema, cuts = self.schema, dict(change.cuts)
        # An id whose workflow was pruned and started anew: what the draft has of the old one goes first.
        renumbered = f"""SELECT w.id, w.number FROM unnest($1::text[], $2::bigint[]) AS n(id, number)
JOIN {schema}.workflows w ON w.id = n.id AND w.number <> n.number"""
        again = await self.read(renumbered, [row.id for _, row in change.rows], [number for number, _ in change.rows])
        removed = await self.read(
            f"DELETE FROM {schema}.workflows WHERE number = ANY($1::bigint[]) RETURNING id", list(change.gone)
        )
        for record in (*again, *removed):
            cuts[record[0]] = 2**62
        cut = f"""DELETE FROM {schema}.workflow_events USING unnest($1::text[], $2::bigint[]) AS c(cut_id, below)
WHERE workflow_id = cut_id AND version < below RETURNING {columns.HAPPENED}"""
        taken = await self.read(cut, list(cuts), list(cuts.values())) if cuts else []
        return [*change.gone, *(record[1] for record in again)], [columns.happened_of(each) for each in taken]

    async def _stage(
        self, table: staging.Staging, records: Sequence[tuple[object, ...]], *, replacing: str | None = None
    ) -> None:
        if not records:
            return
        with told(writing=False):
            await self.driver.execute(table.create())
            await self.driver.copy_records_to_table(table.name, records=records, columns=table.names)
            await self.driver.execute(table.insert(self.schema, replacing=replacing))

    @property
    def _events(self) -> str:
        return f"SELECT {columns.HAPPENED} FROM {self.schema}.workflow_events"

    @property
    def _rows(self) -> str:
        return f"SELECT number, {columns.ROW} FROM {self.schema}.workflows"

    async def rows(self, numbers: Sequence[int]) -> list[Numbered]:
        """These workflows, as the draft has them."""
        return _numbered(await self.read(f"{self._rows} WHERE number = ANY($1::bigint[])", list(numbers)))

    async def rows_between(self, after: int, last: int) -> list[Numbered]:
        """The workflows with these numbers, as the draft has them."""
        return _numbered(await self.read(f"{self._rows} WHERE number > $1 AND number <= $2", after, last))

    async def events_of(self, ids: Sequence[str]) -> dict[str, list[Happened]]:
        """Return the draft's history of these workflows."""
        found: dict[str, list[Happened]] = {}
        for record in await self.read(f"{self._events} WHERE workflow_id = ANY($1::text[])", list(ids)):
            each = columns.happened_of(record)
            found.setdefault(each.workflow, []).append(each)
        return found

    async def spans(self, rows: Iterable[Numbered]) -> dict[str, Span]:
        """Return the draft's span of history of these workflows."""
        sql = f"""SELECT e.workflow_id, count(*), min(e.version), max(e.version)
FROM unnest($1::text[], $2::bigint[]) AS n(id, number)
JOIN {self.schema}.workflows w ON w.id = n.id AND w.number = n.number
JOIN {self.schema}.workflow_events e ON e.workflow_id = w.id GROUP BY 1"""
        asked = list(rows)
        found = await self.read(sql, [row.id for _, row in asked], [number for number, _ in asked])
        return {record[0]: Span(record[1], record[2], record[3]) for record in found}

    async def put_aside(self, table: str, keys: Sequence[str], values: Mapping[str, Aside]) -> list[Aside]:
        """Replace the records of these keys; return them as the draft has them."""
        staged = staging.ASIDE[table]
        key = staged.names[0]
        async with self.turn():
            await self.read(f"DELETE FROM {self.schema}.{table} WHERE {key} = ANY($1::text[])", list(keys))
            await self._stage(staged, [staging.staged_aside(value) for value in values.values()])
            found = await self.read(
                f"SELECT {staging.READING[table]} FROM {self.schema}.{table} WHERE {key} = ANY($1::text[])", list(keys)
            )
        return [_aside(table, record) for record in found]

    async def clear_aside(self) -> None:
        """Nothing stands aside yet."""
        tables = ", ".join(f"{self.schema}.{table}" for table in staging.ASIDE)
        async with self.turn():
            with told(writing=False):
                await self.driver.execute(f"TRUNCATE {tables}")

    async def last_number(self) -> int:
        """The highest number of a workflow."""
        [(last,)] = await self.read(f"SELECT coalesce(max(number), 0) FROM {self.schema}.workflows")
        return int(last)

    async def sums(self) -> Sums:
        """Return quick totals of all rows."""
        [rows] = await self.read(f"SELECT count(*), coalesce(sum(revision), 0)::bigint FROM {self.schema}.workflows")
        [events] = await self.read(
            f"SELECT count(*), coalesce(sum(version), 0)::bigint FROM {self.schema}.workflow_events"
        )
        return Sums(*rows, *events)

    async def time_us(self) -> int:
        """Return the database's time."""
        [(time_us,)] = await self.read(f"SELECT {micros('clock_timestamp()')}")
        return int(time_us)

    async def analyze(self) -> None:
        """Run ANALYZE on the tables of the draft."""
        with told(writing=False):
            await self.driver.execute(f"ANALYZE {self.schema}.workflows; ANALYZE {self.schema}.workflow_events")

    async def complete(self, *, report: str, time_us: int, skew_us: int, held_us: int) -> None:
        """Mark the draft complete, with its report. From now on only the source's tombstone is missing.

        `held_us` is how long no engine here takes up work that may still run at the source.
        """
        async with self.turn():
            await self.read(
                f"UPDATE {self.address.schema}.{ARRIVING} SET complete = true, report = $1, "
                "time_us = $2, skew_us = $3, held_us = $4",
                report,
                time_us,
                skew_us,
                held_us,
            )


def _refuse_taken_over(marked: Sequence[Record], shown: str) -> None:
    if not marked:
        raise UnavailableError(
            f"another mover has taken over the move to {shown}, or it was taken back.",
            why="Two movers would write over each other; the later one goes on with what the earlier one has done.",
            fix="Look for the other mover; run the command again if no mover runs.",
        )


def _numbered(records: Iterable[Record]) -> list[Numbered]:
    return [Numbered(each[0], columns.row_of(tuple(each)[1:])) for each in map(tuple, records)]


def _aside(table: str, record: Record) -> Aside:
    if table == "workflow_effects":
        return columns.effect_of(record)
    if table == "dead_letters":
        return columns.letter_of(record)
    return LeaseRow(*record) if table == "leases" else Note(*record)
