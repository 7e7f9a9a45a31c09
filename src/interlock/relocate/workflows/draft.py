"""The draft of arriving workflows in PostgreSQL: built beside the schema, moved there in one step, or removed.

There is one mover at a time. A mover that takes a draft over writes its own name into the mark, and every transaction
of a mover first checks that name. A mover that was replaced, or that wakes after a long pause, changes nothing any more
(G4). Written rows are read back before they are committed, so that all rows of a draft were compared.

Sections: staging of rows, draft, copy into a draft.
"""

# ruff: noqa: S608 -- the only name put into a statement is the schema's, which `address` has checked.

import contextlib
from collections import Counter
from collections.abc import AsyncGenerator, Collection, Iterable, Mapping, Sequence
from typing import NamedTuple, Protocol, cast

import msgspec

from interlock.errors import CorruptionError, UnavailableError
from interlock.postgres.errors import translate_errors
from interlock.postgres.pool import Driver, Record, driver_of
from interlock.relocate.workflows.canonical import Aside, Digests, LeaseRow, Note, Numbered, bytes_of, digest_of, key_of
from interlock.relocate.workflows.lane_source import SOURCE_ASIDE, Apart, Source, Span, Sums
from interlock.store.postgres import statement
from interlock.store.postgres.schema import ARRIVING, draft_of
from interlock.store.postgres.statement import EFFECTS, LETTERS, micros, moment, written
from interlock.store.records import HistoryRecord, Letter, OwedEffect
from interlock.urls import PostgresAddress

# --- Staging of rows -------------------------------------------------------------------------------------------------
# The second step is in SQL, with the same expressions that the store's own statements have: JSON is kept for people,
# and letter by letter where PostgreSQL would give it back otherwise; times are exact.

Values = tuple[object, ...]


class Staging(NamedTuple):
    """One table: what is copied, and how it is put in."""

    table: str
    columns: tuple[tuple[str, str], ...]
    """Of what is copied: names and types; times are microseconds, JSON is text."""
    json: tuple[str, ...] = ()
    """Columns that are also kept letter by letter."""
    plain_json: tuple[str, ...] = ()
    """Columns of JSON that PostgreSQL keeps as it was written."""

    @property
    def name(self) -> str:
        """Of the table of the transaction's own."""
        return f"staged_{self.table}"

    @property
    def names(self) -> list[str]:
        """Of what is copied."""
        return [name for name, _ in self.columns]

    def create(self) -> str:
        """Make the table; it goes with the transaction."""
        columns = ", ".join(f"{name} {kind}" for name, kind in self.columns)
        return f"CREATE TEMPORARY TABLE {self.name} ({columns}) ON COMMIT DROP"

    def insert(self, schema: str, *, replacing: str | None = None) -> str:
        """Put everything that was copied into the draft; `replacing` what has the same value in that column."""
        parsed = "".join(f", s.{name}::jsonb AS {name}_json" for name in self.json)
        into = [*self.names, *(f"{name}_written" for name in self.json)]
        values = [*map(self._value, self.columns), *(written(f"c.{name}") for name in self.json)]
        replaced = ""
        if replacing is not None:
            changed = ", ".join(f"{name} = excluded.{name}" for name in into if name != replacing)
            replaced = f" ON CONFLICT ({replacing}) DO UPDATE SET {changed}"
        return f"""INSERT INTO {schema}.{self.table} ({", ".join(into)})
SELECT {", ".join(values)} FROM (SELECT s.*{parsed} FROM {self.name} s OFFSET 0) c{replaced}"""

    def _value(self, column: tuple[str, str]) -> str:
        name, kind = column
        if name in self.json:
            return f"c.{name}_json"
        if name in self.plain_json:
            return f"c.{name}::json"
        return moment(f"c.{name}") if kind == "bigint" and name.endswith(("_at", "since", "until")) else f"c.{name}"


WORKFLOWS = Staging(
    "workflows",
    (
        ("number", "bigint"), ("id", "text"), ("workflow_type", "text"), ("machine_version", "bigint"),
        ("state", "text"), ("context", "text"), ("version", "bigint"), ("visit", "bigint"), ("active", "boolean"),
        ("created_at", "bigint"), ("updated_at", "bigint"), ("entered_at", "bigint"), ("digest", "bytea"),
        ("owed", "bytea"), ("wake_at", "bigint"), ("duplicates", "bigint"), ("ignored", "bigint"),
        ("refused", "bigint"), ("revision", "bigint"), ("timer_at", "bigint"),
    ),
    json=("context",),
)  # fmt: skip
EVENTS = Staging(
    "workflow_events",
    (
        ("workflow_id", "text"), ("version", "bigint"), ("from_state", "text"), ("to_state", "text"),
        ("event", "text"), ("payload", "text"), ("context", "text"), ("created_at", "bigint"), ("key", "text"),
        ("key_digest", "bytea"),
    ),
    json=("payload", "context"),
)  # fmt: skip
ASIDE = {
    "workflow_effects": Staging(
        "workflow_effects",
        (
            ("id", "text"), ("workflow_id", "text"), ("version", "bigint"), ("name", "text"), ("attempts", "bigint"),
            ("wake_at", "bigint"), ("context", "text"),
        ),
        plain_json=("context",),
    ),
    "dead_letters": Staging(
        "dead_letters",
        (
            ("id", "text"), ("kind", "text"), ("workflow_id", "text"), ("name", "text"), ("attempts", "bigint"),
            ("error", "text"), ("since", "bigint"), ("version", "bigint"), ("key", "text"), ("context", "text"),
        ),
        plain_json=("context",),
    ),
    "leases": Staging(
        "leases",
        (("name", "text"), ("owner", "text"), ("token", "bigint"), ("since", "bigint"), ("until", "bigint")),
    ),
    "notes": Staging("notes", (("name", "text"), ("text", "text"))),
}  # fmt: skip
READING = {
    "workflow_effects": EFFECTS,
    "dead_letters": LETTERS,
    "leases": f"name, owner, token, {micros('since')}, {micros('until')}",
    "notes": "name, text",
}
"""The columns of what stands aside, as they are read back."""


def staged_rows(rows: Iterable[Numbered]) -> list[Values]:
    """Workflows as they are copied."""
    return [
        (
            number, row.id, row.machine, row.machine_version, row.state, row.context.decode(), row.version, row.visit,
            row.active, row.created_us, row.updated_us, row.entered_us, row.digest, row.owed, row.wake_us,
            *row.counts, row.revision, row.timer_us,
        )
        for number, row in rows
    ]  # fmt: skip


def staged_events(events: Sequence[HistoryRecord]) -> list[Values]:
    """History as it is copied."""
    return [
        (
            each.workflow, each.version, each.from_state, each.to_state, each.event, each.payload.decode() or None,
            each.context.decode(), each.created_us, each.key, each.key_digest or None,
        )
        for each in events
    ]  # fmt: skip


def staged_aside(value: Aside) -> Values:
    """Return a record beside workflows as a row for COPY."""
    if isinstance(value, (LeaseRow, Note)):
        return tuple(value)
    assert isinstance(value, (OwedEffect, Letter))
    *values, context = msgspec.structs.astuple(value)
    return (*values, context.decode() or None)


# --- Draft -----------------------------------------------------------------------------------------------------------

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
    events: Sequence[HistoryRecord] = ()
    removed: Sequence[int] = ()
    """Numbers of workflows that are not there any more, with their history."""
    cuts: Mapping[str, int] = {}
    """Workflows whose history below that version is not there any more."""


class Exchanged(NamedTuple):
    """The content of the draft afterwards, as it was read back."""

    rows: list[Numbered]
    events: list[HistoryRecord]
    cut: list[HistoryRecord]
    """History that was taken out."""
    removed: list[int]
    """Numbers that are not in the draft any more: those that were asked for, and those whose id has a new number."""


class Draft:
    """A draft, over one connection."""

    def __init__(self, address: PostgresAddress, driver: Copier, mover: str, schema: str | None = None) -> None:
        self.address = address
        self.schema = schema or draft_of(address)
        self.driver = driver
        self._mover = mover
        self._within = False
        """A transaction is under way."""

    @staticmethod
    async def connected(address: PostgresAddress, mover: str) -> "Draft":
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
        with translate_errors(writing=False):
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
            _refuse_taken_over(await self.read(mark, self._mover), self.address.redacted_url)
            yield

    @contextlib.asynccontextmanager
    async def transaction(self, begin: str, end: str) -> AsyncGenerator[None]:
        """Begin one, and end it like that unless something fails."""
        try:
            with translate_errors(writing=False):
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
        with translate_errors(writing=True):
            await self.driver.execute(end)

    async def exchange(self, change: Exchange) -> Exchanged:
        """Change the draft, in one transaction, and read back what it has now."""
        async with self.turn():
            return await self.exchange_within(change)

    async def exchange_within(self, change: Exchange) -> Exchanged:
        """Exchange inside a transaction that the caller has begun."""
        removed, cut = await self._taken_out(change)
        await self._stage(WORKFLOWS, staged_rows(change.rows), replacing="id")
        await self._stage(EVENTS, staged_events(change.events))
        rows = await self.rows([number for number, _ in change.rows])
        staged = f"SELECT workflow_id, version FROM {EVENTS.name}"
        sql = f"{self._events} WHERE (workflow_id, version) IN ({staged})"
        events = [statement.record_of(each) for each in await self.read(sql)] if change.events else []
        return Exchanged(rows, events, cut, removed)

    async def _taken_out(self, change: Exchange) -> tuple[list[int], list[HistoryRecord]]:
        schema, cuts = self.schema, dict(change.cuts)
        # An id whose workflow was pruned and started anew: what the draft has of the old one goes first.
        renumbered = f"""SELECT w.id, w.number FROM unnest($1::text[], $2::bigint[]) AS n(id, number)
JOIN {schema}.workflows w ON w.id = n.id AND w.number <> n.number"""
        again = await self.read(renumbered, [row.id for _, row in change.rows], [number for number, _ in change.rows])
        removed = await self.read(
            f"DELETE FROM {schema}.workflows WHERE number = ANY($1::bigint[]) RETURNING id", list(change.removed)
        )
        for record in (*again, *removed):
            cuts[record[0]] = 2**62
        cut = f"""DELETE FROM {schema}.workflow_events USING unnest($1::text[], $2::bigint[]) AS c(cut_id, below)
WHERE workflow_id = cut_id AND version < below RETURNING {statement.HAPPENED}"""
        taken = await self.read(cut, list(cuts), list(cuts.values())) if cuts else []
        return [*change.removed, *(record[1] for record in again)], [statement.record_of(each) for each in taken]

    async def _stage(
        self, table: Staging, records: Sequence[tuple[object, ...]], *, replacing: str | None = None
    ) -> None:
        if not records:
            return
        with translate_errors(writing=False):
            await self.driver.execute(table.create())
            await self.driver.copy_records_to_table(table.name, records=records, columns=table.names)
            await self.driver.execute(table.insert(self.schema, replacing=replacing))

    @property
    def _events(self) -> str:
        return f"SELECT {statement.HAPPENED} FROM {self.schema}.workflow_events"

    @property
    def _rows(self) -> str:
        return f"SELECT number, {statement.ROW} FROM {self.schema}.workflows"

    async def rows(self, numbers: Sequence[int]) -> list[Numbered]:
        """These workflows, as the draft has them."""
        return _numbered(await self.read(f"{self._rows} WHERE number = ANY($1::bigint[])", list(numbers)))

    async def rows_between(self, after: int, last: int) -> list[Numbered]:
        """The workflows with these numbers, as the draft has them."""
        return _numbered(await self.read(f"{self._rows} WHERE number > $1 AND number <= $2", after, last))

    async def events_of(self, ids: Sequence[str]) -> dict[str, list[HistoryRecord]]:
        """Return the draft's history of these workflows."""
        found: dict[str, list[HistoryRecord]] = {}
        for record in await self.read(f"{self._events} WHERE workflow_id = ANY($1::text[])", list(ids)):
            each = statement.record_of(record)
            found.setdefault(each.workflow, []).append(each)
        return found

    async def spans(self, rows: Iterable[Numbered]) -> dict[str, Span]:
        """Return the draft's span of history of these workflows."""
        sql = f"""SELECT e.workflow_id, count(*), min(e.version), max(e.version)
FROM unnest($1::text[], $2::bigint[]) AS n(id, number)
JOIN {self.schema}.workflows w ON w.id = n.id AND w.number = n.number
JOIN {self.schema}.workflow_events e ON e.workflow_id = w.id GROUP BY 1"""
        listed = list(rows)
        found = await self.read(sql, [row.id for _, row in listed], [number for number, _ in listed])
        return {record[0]: Span(record[1], record[2], record[3]) for record in found}

    async def put_aside(self, table: str, keys: Sequence[str], values: Mapping[str, Aside]) -> list[Aside]:
        """Replace the records of these keys; return them as the draft has them."""
        staged = ASIDE[table]
        key = staged.names[0]
        async with self.turn():
            await self.read(f"DELETE FROM {self.schema}.{table} WHERE {key} = ANY($1::text[])", list(keys))
            await self._stage(staged, [staged_aside(value) for value in values.values()])
            found = await self.read(
                f"SELECT {READING[table]} FROM {self.schema}.{table} WHERE {key} = ANY($1::text[])", list(keys)
            )
        return [_aside(table, record) for record in found]

    async def clear_aside(self) -> None:
        """Nothing stands aside yet."""
        tables = ", ".join(f"{self.schema}.{table}" for table in ASIDE)
        async with self.turn():
            with translate_errors(writing=False):
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
        with translate_errors(writing=False):
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


def _refuse_taken_over(marked: Sequence[Record], location: str) -> None:
    if not marked:
        raise UnavailableError(
            f"another mover has taken over the move to {location}, or it was taken back.",
            why="Two movers would write over each other; the later one goes on with what the earlier one has done.",
            fix="Look for the other mover; run the command again if no mover runs.",
        )


def _numbered(records: Iterable[Record]) -> list[Numbered]:
    return [Numbered(each[0], statement.row_of(tuple(each)[1:])) for each in map(tuple, records)]


def _aside(table: str, record: Record) -> Aside:
    if table == "workflow_effects":
        return statement.effect_of(record)
    if table == "dead_letters":
        return statement.letter_of(record)
    return LeaseRow(*record) if table == "leases" else Note(*record)


# --- Copy into a draft -----------------------------------------------------------------------------------------------
# The state of workflows is transferred, never the operations on them. History is identified by its first and last
# version: it is only appended to and pruned from its beginning. All written rows are read back and compared, so that
# the checksum of the draft is that of the source as it was read. Later changes are recorded at the source and copied
# again.

CHUNK = 1_000
"""Workflows per copy step: their histories are in memory together."""

ALL = 2**62
"""A version above all others."""


class Read(NamedTuple):
    """A part of the source at one moment."""

    rows: list[Numbered]
    events: dict[int, list[HistoryRecord]]


class Copying:
    """From one source into one draft."""

    def __init__(self, source: Source, draft: Draft, apart: Apart) -> None:
        self.digests = Digests()
        self.bytes: Counter[str] = Counter()
        """Amounts read, by table."""
        self.source = source
        self._draft = draft
        self._apart = apart

    async def chunk(self, after: int, *, fresh: bool) -> int | None:
        """Copy the next workflows after a number; return the last one's number, None at the end.

        Unless the draft is fresh it is compared with what an earlier mover has left there.
        """
        read = await self._apart(self._read_chunk, after)
        if not read.rows:
            if not fresh:
                found, _ = await self._found(after, ALL)
                await self._exchange([], [], removed=list(found), cuts={})
            return None
        last = read.rows[-1].number
        left = read if fresh else await self._compared(read, after, last)
        if left.rows:
            events = [each for number, _ in left.rows for each in read.events.get(number, ())]
            cuts = {} if fresh else {row.id: ALL for _, row in left.rows}
            await self._exchange(left.rows, events, removed=(), cuts=cuts)
        return last

    def _read_chunk(self, after: int) -> Read:
        with self.source.moment():
            rows = self.source.rows_between(after, CHUNK)
            return Read(rows, self.source.events_between(after, rows[-1].number) if rows else {})

    async def _compared(self, read: Read, after: int, last: int) -> Read:
        """What the draft has otherwise, or not at all; what it has beyond that is taken out."""
        found, histories = await self._found(after, last)
        numbers = {each.number for each in read.rows}
        await self._exchange([], [], removed=[number for number in found if number not in numbers], cuts={})
        left = [
            each
            for each in read.rows
            if found.get(each.number) != each or histories.get(each.row.id, []) != read.events.get(each.number, [])
        ]
        return Read(left, read.events)

    async def _found(self, after: int, last: int) -> tuple[dict[int, Numbered], dict[str, list[HistoryRecord]]]:
        """Rows of an earlier mover with these numbers; they count until they are removed."""
        found = {each.number: each for each in await self._draft.rows_between(after, last)}
        histories = await self._draft.events_of([each.row.id for each in found.values()])
        for number, each in found.items():
            self.digests.put_row(number, digest_of(each))
        for history in histories.values():
            history.sort(key=lambda happened: happened.version)
            self.digests.add_events(len(history), sum(map(digest_of, history)))
        return found, histories

    async def touched(self, numbers: Collection[int]) -> None:
        """Bring over what has become of these workflows."""
        rows, spans = await self._apart(self._read_rows, numbers)
        here = await self._draft.spans(rows.values())
        cuts: dict[str, int] = {}
        after_versions: dict[int, int] = {}
        for number, each in rows.items():
            span, known = spans[number], here.get(each.row.id, Span())
            keep_from, add_behind = difference(span, known)
            if keep_from > known.first and known.size:
                cuts[each.row.id] = keep_from
            if add_behind < span.last:
                after_versions[number] = add_behind
        events = await self._apart(self._read_events, after_versions)
        removed = [number for number in numbers if number not in rows]
        await self._exchange(list(rows.values()), events, removed=removed, cuts=cuts)

    def _read_rows(self, numbers: Collection[int]) -> tuple[dict[int, Numbered], dict[int, Span]]:
        with self.source.moment():
            rows = self.source.rows(sorted(numbers))
            return rows, self.source.spans(rows)

    def _read_events(self, after_versions: dict[int, int]) -> list[HistoryRecord]:
        with self.source.moment():
            return [
                each
                for number, version in after_versions.items()
                for each in self.source.events_behind(number, version)
            ]

    async def _exchange(
        self,
        rows: Sequence[Numbered],
        events: Sequence[HistoryRecord],
        *,
        removed: Sequence[int],
        cuts: dict[str, int],
    ) -> None:
        if not rows and not removed:
            return
        done = await self._draft.exchange(Exchange(rows, events, removed, cuts))
        digests = compared("workflow", rows, done.rows)
        history = compared("history", events, done.events)
        self.digests.add_events(-len(done.cut), -sum(map(digest_of, done.cut)))
        for number in done.removed:
            self.digests.put_row(number, 0)
        for each, digest in zip(done.rows, digests, strict=True):
            self.digests.put_row(each.number, digest)
        self.digests.add_events(len(history), sum(history))
        self.bytes["workflows"] += sum(map(bytes_of, rows))
        self.bytes["workflow_events"] += sum(map(bytes_of, events))

    async def all_aside(self) -> None:
        """Bring over everything that is stored beside workflows and their history."""
        await self._draft.clear_aside()
        for table in SOURCE_ASIDE:
            after = ""
            while keys := await self._apart(self.source.keys_aside, table, after, CHUNK):
                await self.aside(table, keys)
                after = keys[-1]

    async def aside(self, table: str, keys: Sequence[str]) -> None:
        """Bring over what has become of what stands under these keys."""
        values = await self._apart(self.source.aside, table, keys)
        found = await self._draft.put_aside(table, keys, values)
        digests = compared(table, values.values(), found)
        for key in keys:
            self.digests.put_aside(table, key, 0)
        for each, digest in zip(found, digests, strict=True):
            self.digests.put_aside(table, key_of(each), digest)
        self.bytes[table] += sum(map(bytes_of, values.values()))


def difference(source: Span, draft: Span) -> tuple[int, int]:
    """Return the first version of history that the draft may keep, and after which one it needs the source's."""
    whole = source.size == source.last - source.first + 1 and draft.size == draft.last - draft.first + 1
    if not source.size or not draft.size:
        return ALL, 0
    if not whole or not draft.first <= source.first <= draft.last + 1 or draft.last > source.last:
        return ALL, 0
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
