"""The store in PostgreSQL, shared with any number of processes.

A change is lost when another writer has changed its workflow meanwhile, and also when another transaction has locked
its row: the statement never waits for a row. The engine loads it and decides again.

Reads go to the database each time: nothing is answered from memory (`shared`). Times of leases and claims are the
database's own; `now_us` follows its clock. A lost connection is opened again by itself: a read is repeated, a write
that never left is UnavailableError, and one that may have arrived is OutcomeUnknown, which `settle` resolves.

Sections: hints, queries, claims, unknown outcomes, transactions of the caller, order of groups, pruning, leases,
store, opening.
"""

# ruff: noqa: S608 -- the only name put into a statement is the schema's, which `address` has checked.

import asyncio
import hashlib
from collections.abc import AsyncGenerator, Awaitable, Callable, Collection, Coroutine, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, TypeVar, cast

from interlock.clock import Clock
from interlock.core.search import MachineSearch, Search
from interlock.errors import InterlockError, MovedElsewhere, TransactionError, UnavailableError
from interlock.lanes.lane_settings import LaneSettings
from interlock.postgres.pool import CLOSE_TIMEOUT_S, Link, Pool, PostgresRow, connected
from interlock.postgres.translate_errors import Blocked, closed, is_missing
from interlock.store.chart_store import PostgresCharts
from interlock.store.postgres import statement
from interlock.store.postgres.migrations import arrive, beside, marks_of, migrated, reader_of, refuse_marked
from interlock.store.postgres.search_indexes import PostgresIndexes, PostgresSearchSql
from interlock.store.postgres.statement import (
    CHILDREN,
    EFFECTS,
    HAPPENED,
    LETTERS,
    NO_HOLDER,
    ROW,
    GroupWriter,
    group_statement,
    micros,
    moment,
    row_of_table,
    values_of,
)
from interlock.store.protocol import (
    Batch,
    DueWork,
    Granted,
    Held,
    Holder,
    LockedWorkflow,
    Old,
    SharedStore,
    StatementGenerator,
    Stored,
)
from interlock.store.records import (
    KEEP,
    Change,
    ChildRecord,
    Cursor,
    DatabaseTime,
    Delivered,
    HistoryRecord,
    Letter,
    OwedEffect,
    Row,
    RowsPage,
    parse_cursor,
    refuse_twice,
)
from interlock.store.search_pages import SearchPlan, page_steps
from interlock.urls import PostgresAddress, parse_postgres_url

# --- Hints of due work -----------------------------------------------------------------------------------------------
# A hint is a NOTIFY from an engine that leaves work to others. It is optional: polling alone is correct. It is sent in
# a transaction of its own and not within a group, because a NOTIFY takes a lock over the whole server when its
# transaction commits. Listening needs a session, so no hints arrive through a pooler. The connection is opened by the
# first listener, and again when it was lost. It is never in a transaction, so it holds no locks.

LEFT = "left"
"""Payload when a workflow unwinds while an engine's attempt is running."""

AGAIN_S = 1.0
"""Seconds before a lost connection is opened again."""

CHANNEL_BYTES_MAX = 63
"""PostgreSQL's bound for the name of a channel."""

DIGEST_BYTES = 8


def channel(schema: str) -> str:
    """Return the channel of a schema's hints."""
    name = f"interlock_{schema}"
    if len(name) <= CHANNEL_BYTES_MAX:
        return name
    # Two long names may begin alike, so a digest of the whole takes the place of the end.
    digest = hashlib.blake2b(schema.encode(), digest_size=DIGEST_BYTES).hexdigest()
    return f"{name[: CHANNEL_BYTES_MAX - len(digest) - 1]}_{digest}"


class Hints:
    """The sender and listener of one store."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool
        self._channel = channel(pool.address.schema)
        self._hinted = asyncio.Event()
        self._left = False
        self._link: Link | None = None
        self._closed = False

    async def send(self, what: str = "") -> None:
        """Notify all listeners."""
        await self._pool.write("SELECT pg_notify($1::text, $2::text)", (self._channel, what))

    async def wait(self) -> bool:
        """Wait for a hint since the last call; return whether one was `LEFT`."""
        if self._pool.address.pgbouncer:
            await asyncio.get_running_loop().create_future()
        while not self._closed and (self._link is None or not self._link.usable):
            await self._listen()
        await self._hinted.wait()
        self._hinted.clear()
        left, self._left = self._left, False
        return left

    async def close(self) -> None:
        """Stop listening."""
        self._closed = True
        if self._link is not None and self._link.usable:
            try:
                await self._link.driver.close(timeout=CLOSE_TIMEOUT_S)
            except Exception:  # noqa: BLE001 -- whatever it says, it ends here.
                self._link.driver.terminate()

    async def _listen(self) -> None:
        try:
            link = await connected(self._pool.address)
        except InterlockError:
            await asyncio.sleep(AGAIN_S)
            return
        if self._closed:
            link.driver.terminate()
            return
        listener = cast("Any", link.driver)
        listener.add_termination_listener(self._notified)
        try:
            await listener.add_listener(self._channel, self._notified)
        except Exception:  # noqa: BLE001 -- lost again already: whatever the driver says, it is opened anew.
            link.driver.terminate()
            await asyncio.sleep(AGAIN_S)
            return
        except BaseException:
            link.driver.terminate()  # The listener was cancelled, and no other task has the connection.
            raise
        if self._closed:
            # `close` ran while the listener was being added, and did not see this connection.
            link.driver.terminate()
            return
        self._link = link
        self._left = True  # A hint that was missed meanwhile may have been LEFT.
        self._hinted.set()

    def _notified(self, *arguments: object) -> None:
        self._left = self._left or arguments[-1:] == (LEFT,)
        self._hinted.set()


# --- Queries ---------------------------------------------------------------------------------------------------------
# The texts are made once per schema, so that each is prepared once per connection.


class Queries:
    """The queries for one schema, each with the index that serves it."""

    def __init__(self, schema: str) -> None:
        self.time = f"SELECT {micros('clock_timestamp()')}"
        # By the primary key, however many ids there are.
        self.load = f"SELECT {ROW} FROM {schema}.workflows WHERE id = ANY($1::text[])"
        # By workflow_events_by_key.
        self.delivered = f"""
SELECT e.workflow_id, e.key, e.version, e.to_state, e.key_digest
FROM unnest($1::text[], $2::text[]) AS k(workflow_id, key)
JOIN {schema}.workflow_events e ON e.workflow_id = k.workflow_id AND e.key = k.key"""
        self.history = f"""
SELECT {HAPPENED} FROM {schema}.workflow_events
WHERE workflow_id = $1 AND version > $2 ORDER BY version LIMIT $3"""
        # By workflows_by_type.
        self.find = f"""
SELECT {ROW}, number FROM {schema}.workflows
WHERE workflow_type = $1 AND number > $2 ORDER BY number LIMIT $3"""
        # By workflows_by_state, and so is `stalled`: as many rows of each state as are wanted of all.
        self.find_in_state = f"""
SELECT {ROW}, number FROM {schema}.workflows
WHERE workflow_type = $1 AND state = $2 AND (entered_at, number) > ({moment("$3::bigint")}, $4)
ORDER BY entered_at, number LIMIT $5"""
        self.stalled = f"""
SELECT found.* FROM unnest($2::text[], $3::bigint[]) AS s(state, before_us)
CROSS JOIN LATERAL (
    SELECT {row_of_table("w")}, w.number, w.entered_at AS since FROM {schema}.workflows w
    WHERE w.workflow_type = $1 AND w.state = s.state AND w.active AND w.entered_at < {moment("s.before_us")}
    ORDER BY w.entered_at, w.number LIMIT $4
) found ORDER BY found.since, found.number LIMIT $4"""
        # By workflow_effects_to_wake and dead_letters_by_age.
        self.effects = f"""
SELECT {EFFECTS} FROM {schema}.workflow_effects
WHERE (wake_at, id) > ({moment("$1::bigint")}, $2) ORDER BY wake_at, id LIMIT $3"""
        self.letters = f"""
SELECT {LETTERS} FROM {schema}.dead_letters
WHERE (since, id) > ({moment("$1::bigint")}, $2) AND ($3::text IS NULL OR kind = $3)
AND ($5::text IS NULL OR workflow_id = $5) ORDER BY since, id LIMIT $4"""
        # A sample of 100 %, to read the table from the first page to the last. These connections disable sequential
        # scans, and an index scan would read pages in random order.
        self.living = f"""
SELECT workflow_type, machine_version, state, count(*) FROM {schema}.workflows TABLESAMPLE SYSTEM (100)
GROUP BY workflow_type, machine_version, state"""
        # By workflow_children_by_parent, and by workflow_children_to_count.
        children = f"""
SELECT {CHILDREN} FROM {schema}.workflow_children
WHERE parent = $1 AND ($2::bigint IS NULL OR visit = $2) AND (visit, position, id)"""
        self.children = f"{children} > ($3::bigint, $4::bigint, $5) ORDER BY visit, position, id LIMIT $6"
        self.newest_children = f"""{children} < ($3::bigint, $4::bigint, $5)
ORDER BY visit DESC, position DESC, id DESC LIMIT $6"""
        self.ended_children = f"""
SELECT {CHILDREN} FROM {schema}.workflow_children WHERE stage = 1 AND parent = $1 ORDER BY visit, position LIMIT $2"""
        self.parents_to_count = f"""
SELECT DISTINCT parent FROM {schema}.workflow_children WHERE stage = 1 AND parent > $1 ORDER BY parent LIMIT $2"""
        self.note = f"""
INSERT INTO {schema}.notes (name, text) VALUES ($1, $2)
ON CONFLICT (name) DO UPDATE SET text = excluded.text"""
        self.notes = f"SELECT name, text FROM {schema}.notes"


# --- Claims ----------------------------------------------------------------------------------------------------------
# A claim takes due rows without a lease, and skips rows that another claim has locked: two never get the same row. It
# raises the workflow's token and its revision, not its version: whatever an earlier holder decided upon is lost when it
# is committed (G4), however late it arrives. A holder that renews in time keeps the row; one that is silent past its
# lease is assumed dead, and the row is due again. A commit that leaves the state ends the lease.

CLAIMED_MAX = 1_000
"""The most that one claim takes."""


class ClaimQueries:
    """The statements about leases on rows of workflows, for one schema.

    In a claim `{}` stands for the condition on refused versions (`without_refused`).
    """

    def __init__(self, schema: str) -> None:
        due = "greatest(w.wake_at, w.lease_until)"
        free = "(w.lease_until > now()) IS NOT TRUE"
        # By workflows_to_wake, machine by machine: due workflows of a machine without an engine delay no others.
        self.claim = _claim(schema, f"w.wake_at IS NOT NULL AND {due} <= now()", due)
        # By workflows_by_state: undos do not wait for steps (C9).
        in_states = f"w.wake_at IS NOT NULL AND w.state = ANY($5::text[]) AND {due} <= now()"
        self.claim_in_states = _claim(schema, in_states, due)
        # By their key: what was parked is not due yet, and can go on.
        self.claim_by_id = _claim(schema, f"w.id = ANY($5::text[]) AND w.wake_at IS NOT NULL AND {free}", "w.id")
        # By workflows_by_timer.
        timers = f"w.timer_at IS NOT NULL AND w.timer_at <= now() AND {free}"
        self.claim_timers = _claim(schema, timers, "w.timer_at")
        # By workflow_effects_to_wake.
        self.claim_effects = f"""
WITH due AS MATERIALIZED (
    SELECT e.id FROM {schema}.workflow_effects e
    WHERE e.wake_at <= now() AND (e.lease_until > now()) IS NOT TRUE AND EXISTS (
        SELECT FROM {schema}.workflows w WHERE w.id = e.workflow_id AND (w.workflow_type = ANY($4::text[])) IS TRUE
        {{}})
    ORDER BY e.wake_at, e.id LIMIT $2 FOR NO KEY UPDATE SKIP LOCKED)
UPDATE {schema}.workflow_effects e SET lease_owner = $1, lease_until = now() + $3 * interval '1 second'
FROM due WHERE e.id = due.id RETURNING {statement.effect_of_table("e")}"""
        self.due = f"""
SELECT {micros("clock_timestamp()")}, m.name, (
    SELECT {micros(due)} FROM {schema}.workflows w WHERE w.wake_at IS NOT NULL AND w.workflow_type = m.name
    ORDER BY {due} LIMIT 1),
    (SELECT {micros("e.wake_at")} FROM {schema}.workflow_effects e
     WHERE (e.lease_until > now()) IS NOT TRUE ORDER BY e.wake_at, e.id LIMIT 1)
FROM unnest($1::text[]) AS m(name)"""
        self.renew = _change_leases(schema, "now() + $4 * interval '1 second'")
        self.release = _change_leases(schema, "NULL")
        self.renew_effects = _change_effect_leases(schema, "now() + $3 * interval '1 second'")
        self.release_effects = _change_effect_leases(schema, "NULL")


def _claim(schema: str, condition: str, order: str) -> str:
    return f"""
WITH due AS MATERIALIZED (
    SELECT w.id FROM {schema}.workflows w
    WHERE w.workflow_type = $1 AND {condition}
    {{}}ORDER BY {order} LIMIT $3 FOR NO KEY UPDATE SKIP LOCKED)
UPDATE {schema}.workflows w
SET lease_owner = $2, lease_until = now() + $4 * interval '1 second', lease_token = w.lease_token + 1,
    revision = w.revision + 1
FROM due WHERE w.id = due.id
RETURNING {row_of_table("w")}, {micros("clock_timestamp()")}"""


def _change_leases(schema: str, until: str) -> str:
    """Return SQL that sets the end of the leases that their owner still has, and returns those that it has lost."""
    mine = "w.lease_token = h.token AND w.lease_owner = $3 AND w.lease_until IS NOT NULL"
    return f"""
WITH held AS MATERIALIZED (
    SELECT w.id FROM unnest($1::text[], $2::bigint[]) AS h(id, token) JOIN {schema}.workflows w ON w.id = h.id
    WHERE {mine} ORDER BY w.id FOR NO KEY UPDATE OF w SKIP LOCKED),
changed AS (UPDATE {schema}.workflows w SET lease_until = {until} FROM held WHERE w.id = held.id)
SELECT h.id FROM unnest($1::text[], $2::bigint[]) AS h(id, token)
LEFT JOIN {schema}.workflows w ON w.id = h.id WHERE ({mine}) IS NOT TRUE"""


def _change_effect_leases(schema: str, until: str) -> str:
    return f"""
WITH held AS MATERIALIZED (
    SELECT e.id FROM {schema}.workflow_effects e
    WHERE e.id = ANY($1::text[]) AND e.lease_owner = $2 AND e.lease_until IS NOT NULL
    ORDER BY e.id FOR NO KEY UPDATE SKIP LOCKED)
UPDATE {schema}.workflow_effects e SET lease_until = {until} FROM held WHERE e.id = held.id"""


def without_refused(refused: Collection[Stored], sql: str, values: Sequence[object]) -> tuple[str, tuple[object, ...]]:
    """Return a claim and its values; the condition on refused versions is added only if there are any."""
    if not refused:
        return sql.replace("{}", ""), (*values,)
    first = len(values) + 1
    besides = f"""AND NOT EXISTS (
        SELECT FROM unnest(${first}::text[], ${first + 1}::bigint[], ${first + 2}::text[], ${first + 3}::text[])
            AS r(machine, version, state, workflow)
        WHERE r.machine IN ('', w.workflow_type) AND coalesce(r.version, w.machine_version) = w.machine_version
            AND r.state IN ('', w.state) AND r.workflow IN ('', w.id))
    """
    return sql.replace("{}", besides), (*values, *map(list, zip(*refused, strict=True)))


# --- Unknown outcomes (G9) -------------------------------------------------------------------------------------------
# After a lost connection the statement may have been executed, may be waiting in a pooler, or may be running. A read
# alone is not enough: the first try could overtake a second decision. The rows that are still at the revision that was
# decided upon are written: their revision goes up, and the first try, however late it comes, finds another one and is
# lost. That waits for a row that the first try is just writing. Of the rows that have moved on, the envelope in
# history shows whether the group moved them, and so does the row itself until its next write. A change without history
# that was overwritten since counts as not committed: reports of attempts and effects name the attempt, so that
# deciding it again does nothing twice.

_HAPPENED = """
SELECT k.id FROM unnest($1::text[], $2::bigint[]) AS k(id, version)
LEFT JOIN {schema}.workflow_events e ON e.workflow_id = k.id AND e.version = k.version
LEFT JOIN {schema}.workflows w ON w.id = k.id
WHERE e.envelope = $3::uuid OR w.envelope = $3::uuid"""

LOCK_WAIT_MS = 2_000
"""Milliseconds that it waits for rows that another transaction is writing."""


class OutcomeResolver:
    """Resolves groups with an unknown outcome, for one schema. The answer is final."""

    def __init__(self, pool: Pool) -> None:
        schema = pool.address.schema
        self._pool = pool
        self._happened = _HAPPENED.format(schema=schema)
        self._fence = f"""
WITH asked AS MATERIALIZED (
    SELECT k.*, set_config('lock_timeout', '{LOCK_WAIT_MS}ms', true)
    FROM unnest($1::text[], $2::bigint[], $3::bigint[]) AS k(id, expected, created_us)),
locked AS MATERIALIZED (
    SELECT w.id, k.expected FROM asked k JOIN {schema}.workflows w ON w.id = k.id
    WHERE k.expected > 0 AND w.created_at = {moment("k.created_us")} ORDER BY w.id FOR NO KEY UPDATE OF w)
UPDATE {schema}.workflows w SET revision = w.revision + 1 FROM locked l WHERE w.id = l.id AND w.revision = l.expected
RETURNING w.id"""

    async def settle(self, changes: Sequence[Change], envelope: str) -> set[str]:
        """Return the changes that have happened."""
        ids = [change.row.id for change in changes]
        try:
            created = [change.row.created_us for change in changes]
            rows = await self._pool.write(self._fence, (ids, [change.expected for change in changes], created))
        except Blocked as blocked:
            raise UnavailableError(
                "another transaction has locked a workflow of a group whose outcome is unknown.",
                why="The outcome can be read only after that transaction has ended.",
                fix="It is tried again; keep transactions that send events short.",
            ) from blocked
        fenced = {row[0] for row in rows}
        left = [change for change in changes if change.row.id not in fenced]
        return await self._found(self._happened, left, envelope)

    async def look_aside(self, changes: Sequence[Change], envelope: str, epoch: int) -> set[str]:
        """Resolve a group of workflows that have left with a move, from the tables that were put aside unchanged."""
        aside = beside(self._pool.address, f"moved_{epoch}")
        return await self._found(_HAPPENED.format(schema=aside), changes, envelope)

    async def _found(self, sql: str, changes: Sequence[Change], envelope: str) -> set[str]:
        if not changes:
            return set()
        found = await self._pool.read(
            sql,
            [change.row.id for change in changes],
            [change.history[-1].version if change.history else None for change in changes],
            envelope,
        )
        return {row[0] for row in found}


# --- Transactions of the caller --------------------------------------------------------------------------------------
# The row is locked first, and waited for: in the caller's own transaction it is the caller who waits, by the
# caller's own `lock_timeout`. The key is looked up in a later statement of its own, because a statement sees what
# was committed when it began, which is before the wait. Then the group of one change is written as any other, by the
# same statement, but without its bound on waiting: that is a setting, and would stay for the rest of the caller's
# transaction.


class PostgresTransactions:
    """The statements inside a transaction of the caller, for one schema."""

    def __init__(self, schema: str) -> None:
        self._schema = schema
        row = row_of_table("w")
        workflow = f"SELECT {{}} FROM {schema}.workflows w WHERE w.id = $1::text"
        # The time is taken when the row is locked, and is there when the row is not.
        time = f"SELECT {micros('clock_timestamp()')}, l.* FROM (VALUES (1)) AS one LEFT JOIN l ON true"
        self._load = f"WITH l AS MATERIALIZED ({workflow.format(row)}) {time}"
        self._lock = f"WITH l AS MATERIALIZED ({workflow.format(row)} FOR NO KEY UPDATE) {time}"
        self._delivered = f"""SELECT e.version, e.to_state, e.key_digest FROM {schema}.workflow_events e
WHERE e.workflow_id = $1::text AND e.key = $2::text"""
        self._hint = f", pg_notify('{channel(schema)}', '{{}}')::text"

    def load(self, workflow: str, *, lock: bool) -> StatementGenerator[LockedWorkflow]:
        """Load the workflow; with `lock` its row is locked until the transaction ends."""
        [(now_us, *values)] = yield self._lock if lock else self._load, (workflow,)
        row = None if values[0] is None else statement.row_of(values)
        return LockedWorkflow(now_us, row)

    def delivered(self, workflow: str, key: str) -> StatementGenerator[Delivered | None]:
        """Load the recorded use of the key."""
        rows = yield self._delivered, (workflow, key)
        return statement.delivered_of(*rows[0]) if rows else None

    def notes(self) -> StatementGenerator[dict[str, str]]:
        """Load the notes of the store, by name."""
        rows = yield f"SELECT n.name, n.text FROM {self._schema}.notes n", ()
        return {row[0]: row[1] for row in rows}

    def write(self, change: Change, *, hint: bool) -> StatementGenerator[bool]:
        """Write the change; return False when another writer was faster, and nothing was written."""
        parts = statement.parts_of([change])
        sql = group_statement(self._schema, parts, bounded=False)
        hint_sql = self._hint.format(LEFT if change.hold == KEEP else "") if hint else ""
        [row] = yield sql + hint_sql, values_of([change], parts, NO_HOLDER)
        return not row[1]


# --- Order of groups -------------------------------------------------------------------------------------------------
# A group of another process is skipped and decided again. Within one process that would be waste, and a change that
# builds upon another one under way would be lost without need (G1).


class GroupTurns:
    """The queue of groups for each workflow. Groups without a common workflow run concurrently."""

    def __init__(self) -> None:
        self._last: dict[str, asyncio.Future[None]] = {}

    @asynccontextmanager
    async def turn(self, workflows: Iterable[str]) -> AsyncGenerator[None]:
        """Wait for all earlier groups with one of these workflows. The place in the queue is taken immediately."""
        mine: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        before: set[asyncio.Future[None]] = set()
        names = list(workflows)
        for each in names:
            earlier = self._last.get(each)
            if earlier is not None:
                before.add(earlier)
            self._last[each] = mine
        try:
            if before:
                await asyncio.wait(before)
            yield
        finally:
            mine.set_result(None)
            for each in names:
                if self._last.get(each) is mine:
                    del self._last[each]


# --- Pruning ---------------------------------------------------------------------------------------------------------
# A batch is one statement, and safe beside any number of engines. It reads `limit` rows by `workflows_by_state`, locks
# those that match and are not locked, and deletes them with their history. A final workflow gets no further history,
# so none is left over. Plain deletes in the order of age are followed by autovacuum; decision 0008 has the figures,
# and why there are no partitions.

BEFORE_ALL_US = -(2**52)
"""A time before all others that PostgreSQL can hold: the year 1827."""

FIRST_CURSOR = Cursor(BEFORE_ALL_US, 0)

Write = Callable[[str, Sequence[object]], Awaitable[list[PostgresRow]]]


def prune_statement(schema: str, old: Old, *, dry_run: bool) -> str:
    """Return the statement of a batch."""
    conditions = ["w.state = $2", "NOT w.active", "w.wake_at IS NULL"]
    if not old.owing:
        # Hashed: effects have no index by workflow, and only owed ones exist.
        conditions += [
            f"(w.id IN (SELECT workflow_id FROM {schema}.workflow_effects)) IS NOT TRUE",
            f"NOT EXISTS (SELECT FROM {schema}.dead_letters d WHERE d.workflow_id = w.id)",
        ]
    if not (old.owing and old.history_only):
        uncounted = f"SELECT FROM {schema}.workflow_children k WHERE k.parent = w.id AND k.stage < 2"
        conditions.append(f"NOT EXISTS ({uncounted})")
    if not old.history_only:
        awaited = f"{schema}.workflow_children k JOIN {schema}.workflows p ON p.id = k.parent"
        conditions.append(f"NOT EXISTS (SELECT FROM {awaited} WHERE k.id = w.id AND p.visit = k.visit)")
    else:
        conditions.append(f"EXISTS (SELECT FROM {schema}.workflow_events e WHERE e.workflow_id = w.id)")
    lock = "" if dry_run else "FOR UPDATE OF w SKIP LOCKED"
    history = f"FROM {schema}.workflow_events e"
    parts = [
        f"""looked AS MATERIALIZED (
    SELECT w.id, w.entered_at, w.number FROM {schema}.workflows w
    WHERE w.workflow_type = $1 AND w.state = $2 AND w.entered_at < {moment("$5::bigint")}
    AND (w.entered_at, w.number) > ({moment("$3::bigint")}, $4) ORDER BY w.entered_at, w.number LIMIT $6)""",
        f"""chosen AS MATERIALIZED (
    SELECT w.id FROM looked l JOIN {schema}.workflows w ON w.id = l.id
    WHERE {" AND ".join(conditions)} {lock})""",
        f"events AS (SELECT 1 {history} JOIN chosen c ON e.workflow_id = c.id)"
        if dry_run
        else f"events AS (DELETE {history} USING chosen c WHERE e.workflow_id = c.id RETURNING 1)",
    ]
    if not dry_run and not old.history_only:
        parts.append(f"gone AS (DELETE FROM {schema}.workflows w USING chosen c WHERE w.id = c.id)")
        parts.append(f"children AS (DELETE FROM {schema}.workflow_children k USING chosen c WHERE k.parent = c.id)")
        if old.owing:
            parts += [
                f"{table}_gone AS (DELETE FROM {schema}.{table} o USING chosen c WHERE o.workflow_id = c.id)"
                for table in ("workflow_effects", "dead_letters")
            ]
    return f"""WITH {", ".join(parts)}
SELECT ARRAY(SELECT id FROM chosen), (SELECT count(*) FROM events), count(*), {micros("max(entered_at)")},
    (array_agg(number ORDER BY entered_at DESC, number DESC))[1] FROM looked"""


# --- Leases ----------------------------------------------------------------------------------------------------------
# One statement for each operation, by the database's clock, with no state in the connection.
#
# An acquisition first reads whether another owner has the lease, and then writes nothing: a waiting caller costs one
# read per attempt. The insert decides between concurrent callers that find it free; they queue at the row for one
# statement. A caller that lost that race saw the row as it was before, and repeats the statement to get the winner.

ASKED_MAX = 20
"""Attempts of an acquisition to read the winner, before it raises UnavailableError."""


class PostgresLeases:
    """The leases of one schema."""

    def __init__(self, schema: str, write: Write) -> None:
        self._write = write
        table, clock = f"{schema}.leases", "clock_timestamp()"
        mine = "(l.owner = excluded.owner AND l.until IS NOT NULL)"
        end = f"{clock} + $3 * interval '1 second'"
        self._acquire = f"""
WITH taken AS (
    INSERT INTO {table} AS l (name, owner, token, since, until)
    SELECT $1, $2, 1, {clock}, {end}
    WHERE NOT EXISTS (SELECT FROM {table} h WHERE h.name = $1 AND h.until > {clock} AND h.owner <> $2)
    ON CONFLICT (name) DO UPDATE SET owner = excluded.owner, until = excluded.until,
        token = CASE WHEN {mine} THEN l.token ELSE l.token + 1 END,
        since = CASE WHEN {mine} THEN l.since ELSE excluded.since END
    WHERE (l.until > {clock} AND l.owner <> excluded.owner) IS NOT TRUE
    RETURNING l.token)
SELECT token, NULL, NULL, NULL FROM taken
UNION ALL
SELECT NULL, h.owner, {micros("h.since")}, {micros(clock)} FROM {table} h
WHERE h.name = $1 AND h.until > {clock} AND h.owner <> $2 AND NOT EXISTS (SELECT FROM taken)"""
        self._renew = f"""
UPDATE {table} SET until = {end} WHERE name = $1 AND token = $2 AND until IS NOT NULL RETURNING token"""
        self._release = f"""
UPDATE {table} SET until = NULL WHERE name = $1 AND token = $2 AND until IS NOT NULL RETURNING token"""

    async def acquire(self, name: str, owner: str, lease_s: float) -> Granted | Held:
        """Grant the lease to the owner, unless another owner has it."""
        for _ in range(ASKED_MAX):
            for token, holder, since_us, now_us in await self._write(self._acquire, (name, owner, lease_s)):
                return Granted(token) if token is not None else Held(holder, since_us, now_us)
        raise UnavailableError(
            f"lease {name!r} changed hands {ASKED_MAX} times while it was asked for.",
            why="Each time another owner acquired it first, and had released it before its name could be read.",
            fix="Try again; reduce the number of concurrent callers.",
        )

    async def renew(self, name: str, token: int, lease_s: float) -> bool:
        """Extend the lease to `lease_s` from now."""
        return bool(await self._write(self._renew, (name, token, lease_s)))

    async def release(self, name: str, token: int) -> bool:
        """Release the lease."""
        return bool(await self._write(self._release, (name, token)))


# --- Store -----------------------------------------------------------------------------------------------------------

ResultT = TypeVar("ResultT")


class PostgresStore:
    """A store on PostgreSQL. Made by `open_postgres`."""

    shared = True

    def __init__(self, pool: Pool, clock: Clock, lease_s: float = 10.0) -> None:
        self.lease_s = lease_s
        self._pool = pool
        self._schema = pool.address.schema
        self._queries = Queries(self._schema)
        self._time = DatabaseTime(clock)
        self._turns = GroupTurns()
        self._indexes = PostgresIndexes(pool)
        self._search_sql = PostgresSearchSql(self._schema)
        self._under_way: set[asyncio.Task[Any]] = set()
        self._closed = False
        self._claims = ClaimQueries(self._schema)
        self._hints = Hints(pool)
        self._settling = OutcomeResolver(pool)
        self.leases = PostgresLeases(self._schema, self._safely)
        self.charts = PostgresCharts(self._schema, self._read, self._safely, moment, micros)

    async def begin(self) -> None:
        """Read the database's time."""
        [(server_us,)] = await self._pool.read(self._queries.time)
        self._time.record(int(server_us))

    async def commit(self, changes: Sequence[Change]) -> list[str]:
        """Commit the whole group in one statement."""
        return await self.commit_as(changes, NO_HOLDER)

    async def commit_as(self, changes: Sequence[Change], holder: Holder) -> list[str]:
        """Commit the group, and lease the workflows that it holds to the holder (see `statement`)."""
        self._refuse_closed()
        refuse_twice(changes)
        return await self._finished(self._commit(list(changes), holder)) if changes else []

    async def load(self, ids: Sequence[str]) -> dict[str, Row]:
        """Return the rows of these workflows."""
        rows = await self._read(self._queries.load, list(ids))
        return {row.id: row for row in map(statement.row_of, rows)}

    async def delivered(self, keys: Sequence[tuple[str, str]]) -> dict[tuple[str, str], Delivered]:
        """Return the recorded uses of these delivery keys."""
        workflows, names = [workflow for workflow, _ in keys], [key for _, key in keys]
        rows = await self._read(self._queries.delivered, workflows, names)
        return {(row[0], row[1]): statement.delivered_of(row[2], row[3], row[4]) for row in rows}

    async def settle(self, changes: Sequence[Change], envelope: str) -> set[str]:
        """Return which changes of a group with an unknown outcome were committed.

        After a move they are read from the tables that were put aside and never change again. Raises MovedElsewhere
        when those are not available.
        """
        self._refuse_closed()
        try:
            return await self._finished(self._settling.settle(changes, envelope))
        except MovedElsewhere as moved:
            try:
                return await self._settling.look_aside(changes, envelope, moved.epoch)
            except TransactionError:
                raise moved from None

    async def history(self, workflow: str, *, after: int = 0, limit: int = 1_000) -> list[HistoryRecord]:
        """Return the history after a version."""
        return [statement.record_of(row) for row in await self._read(self._queries.history, workflow, after, limit)]

    async def find(self, machine: str, state: str | None, *, after: str | None, limit: int) -> RowsPage:
        """Return the workflows of a machine in the order of creation, or of one state in the order of entry."""
        begin = parse_cursor(after) or FIRST_CURSOR
        if state is None:
            found = await self._read(self._queries.find, machine, begin.number, limit + 1)
        else:
            found = await self._read(self._queries.find_in_state, machine, state, *begin, limit + 1)
        page = found[:limit]
        end = None
        if len(found) > limit:
            end = str(Cursor(page[-1][statement.ENTERED_AT], page[-1][statement.ROW_WIDTH]))
        numbers = tuple(values[statement.ROW_WIDTH] for values in page)
        return RowsPage(tuple(map(statement.row_of, page)), end, numbers)

    async def declare_search(self, searches: Sequence[MachineSearch]) -> bool:
        """Create the indexes of a small table; `fill_search` creates those of a large one."""
        self._refuse_closed()
        return await self._explained(self._indexes.declare(searches))

    async def fill_search(self) -> bool:
        """Create or drop one index without blocking writers."""
        self._refuse_closed()
        return await self._explained(self._indexes.fill())

    async def search(self, search: Search) -> RowsPage:
        """Return the workflows that match, in the order of the search."""
        self._refuse_closed()
        plan = SearchPlan(self._search_sql, search)
        await self._explained(self._indexes.refuse_incomplete(search.machine, plan.indexes))
        steps = page_steps(plan, search.limit)
        rows: list[PostgresRow] | None = None
        while True:
            try:
                each = next(steps) if rows is None else steps.send(rows)
            except StopIteration as done:
                found, cursor = cast("tuple[Sequence[PostgresRow], str | None]", done.value)
                return RowsPage(tuple(map(statement.row_of, found)), cursor)
            rows = await self._read(each.sql, *each.values)

    async def stalled(self, machine: str, before_us: dict[str, int], *, limit: int) -> list[Row]:
        """Return the active workflows that have been in their state for too long."""
        rows = await self._read(self._queries.stalled, machine, list(before_us), list(before_us.values()), limit)
        return [statement.row_of(row) for row in rows]

    async def effects(self, *, after: OwedEffect | None = None, limit: int) -> list[OwedEffect]:
        """Return the owed effects, soonest first."""
        begin = (BEFORE_ALL_US, "") if after is None else (after.wake_us, after.id)
        return [statement.effect_of(row) for row in await self._read(self._queries.effects, *begin, limit)]

    async def letters(
        self,
        kind: str | None = None,
        *,
        workflow: str | None = None,
        after: Letter | None = None,
        limit: int = 1_000,
    ) -> list[Letter]:
        """Return the dead letters, of all workflows or of one, oldest first."""
        begin = (BEFORE_ALL_US, "") if after is None else (after.since_us, after.id)
        rows = await self._read(self._queries.letters, *begin, kind, limit, workflow)
        return [statement.letter_of(row) for row in rows]

    async def children(
        self,
        parent: str,
        *,
        visit: int | None = None,
        after: ChildRecord | None = None,
        limit: int,
        newest_first: bool = False,
    ) -> list[ChildRecord]:
        """Return the children of a workflow by visit, position and id."""
        begin = (-1, -1, "") if after is None else (after.visit, after.position, after.id)
        if newest_first and after is None:
            begin = (2**62, 0, "")
        sql = self._queries.newest_children if newest_first else self._queries.children
        return [statement.child_of(row) for row in await self._read(sql, parent, visit, *begin, limit)]

    async def ended_children(self, parent: str, *, limit: int) -> list[ChildRecord]:
        """Return children that have ended and that their parent has not counted."""
        return [statement.child_of(row) for row in await self._read(self._queries.ended_children, parent, limit)]

    async def parents_to_count(self, *, after: str = "", limit: int) -> list[str]:
        """Return the ids of workflows with such children."""
        return [row[0] for row in await self._read(self._queries.parents_to_count, after, limit)]

    async def living(self) -> dict[tuple[str, int, str], int]:
        """Count the workflows by machine, version and state."""
        return {(row[0], row[1], row[2]): row[3] for row in await self._read(self._queries.living)}

    async def note(self, name: str, text: str) -> None:
        """Keep a short text under a name."""
        self._refuse_closed()
        await self._finished(self._note(name, text))

    async def notes(self) -> dict[str, str]:
        """Return all notes by name."""
        return {row[0]: row[1] for row in await self._read(self._queries.notes)}

    async def prune(self, old: Old, *, after: Cursor | None, limit: int, dry_run: bool = False) -> Batch:
        """Read the next workflows and remove those that match."""
        values = (old.machine, old.state, *(after or FIRST_CURSOR), old.before_us, limit)
        [found] = await self._safely(prune_statement(self._schema, old, dry_run=dry_run), values)
        ids, events, looked, entered_us, number = found
        return Batch(tuple(ids), events, Cursor(entered_us, number) if looked == limit else None)

    async def due(self, machines: Sequence[str]) -> DueWork:
        """Return when there is work to claim."""
        self._refuse_closed()
        rows = await self._explained(self._pool.read(self._claims.due, list(machines)))
        if not rows:
            return DueWork(self._time.now_us(), {}, None)
        self._time.record(rows[-1][0])
        return DueWork(rows[-1][0], {row[1]: row[2] for row in rows if row[2] is not None}, rows[-1][3])

    async def claim(
        self,
        machine: str,
        *,
        owner: str,
        limit: int,
        lease_s: float,
        timers: bool = False,
        states: Sequence[str] = (),
        ids: Sequence[str] = (),
        refused: Collection[Stored] = (),
    ) -> list[Row]:
        """Claim up to `limit` due workflows without a lease, the longest due first."""
        values: list[object] = [machine, owner, min(limit, CLAIMED_MAX), lease_s]
        if ids:
            sql = self._claims.claim_by_id
            values.append(list(ids))
        elif states:
            sql = self._claims.claim_in_states
            values.append(list(states))
        else:
            sql = self._claims.claim_timers if timers else self._claims.claim
        rows = await self._safely(*without_refused(refused, sql, values))
        if rows:
            self._time.record(rows[-1][statement.ROW_WIDTH])
        return sorted(map(statement.row_of, rows), key=lambda row: (row.wake_us or 0, row.id))

    async def claim_effects(
        self, machines: Sequence[str], *, owner: str, limit: int, lease_s: float, refused: Collection[Stored] = ()
    ) -> list[OwedEffect]:
        """Claim up to `limit` due effects without a lease, soonest first."""
        values = (owner, min(limit, CLAIMED_MAX), lease_s, list(machines))
        rows = await self._safely(*without_refused(refused, self._claims.claim_effects, values))
        return sorted(map(statement.effect_of, rows), key=lambda effect: (effect.wake_us, effect.id))

    async def renew(self, leases: Mapping[str, int], *, owner: str, lease_s: float) -> set[str]:
        """Renew the leases of workflows, by token; return those that this owner has lost.

        A row that is locked by a writer is neither renewed nor lost: no other engine can claim it meanwhile.
        """
        return await self._change_leases(self._claims.renew, leases, owner, lease_s)

    async def release(self, leases: Mapping[str, int], *, owner: str) -> set[str]:
        """Release the leases of workflows; return those that this owner had lost before."""
        return await self._change_leases(self._claims.release, leases, owner)

    async def _change_leases(self, sql: str, leases: Mapping[str, int], *values: object) -> set[str]:
        if not leases:
            self._refuse_closed()
            return set()
        return {row[0] for row in await self._safely(sql, (list(leases), list(leases.values()), *values))}

    async def renew_effects(self, effects: Collection[str], *, owner: str, lease_s: float) -> None:
        """Renew the leases of this owner's running effects."""
        await self._safely(self._claims.renew_effects, (list(effects), owner, lease_s))

    async def release_effects(self, effects: Collection[str], *, owner: str) -> None:
        """Release effects that this owner claimed and did not begin."""
        await self._safely(self._claims.release_effects, (list(effects), owner))

    async def hint(self, *, left: bool = False) -> None:
        """Notify listening engines of due work, or that a workflow left its state."""
        self._refuse_closed()
        await self._finished(self._hints.send(LEFT if left else ""))

    async def hinted(self) -> bool:
        """Wait for a hint; return whether one had `left`."""
        return await self._hints.wait()

    def now_us(self) -> int:
        """Return the database's time, which never goes back."""
        return self._time.now_us()

    async def close(self) -> None:
        """Finish running calls and close the connections."""
        self._closed = True
        while self._under_way:
            await asyncio.wait(self._under_way)
        await self._hints.close()
        await self._pool.close()

    async def _commit(self, changes: list[Change], holder: Holder) -> list[str]:
        writer = GroupWriter(self._pool, self._time, holder)
        async with self._turns.turn([change.row.id for change in changes]):
            try:
                await writer.write(changes)
            except TransactionError as error:
                raise _unusable(error) from error
        return [change.row.id for change in changes if change.row.id in writer.lost]

    async def _safely(self, sql: str, values: Sequence[object]) -> list[PostgresRow]:
        self._refuse_closed()
        return await self._finished(self._written(sql, values))

    async def _note(self, name: str, text: str) -> None:
        async with self._turns.turn([f"/{name}"]):  # In the order given; the id of a workflow has no slash.
            await self._written(self._queries.note, (name, text))

    async def _written(self, sql: str, values: Sequence[object]) -> list[PostgresRow]:
        try:
            return await self._pool.write(sql, values)
        except TransactionError as error:
            raise _unusable(error) from error

    async def _read(self, sql: str, *values: object) -> list[PostgresRow]:
        self._refuse_closed()
        return await self._explained(self._query(sql, values))

    async def _query(self, sql: str, values: Sequence[object]) -> list[PostgresRow]:
        try:
            if self._time.stale:
                await self.begin()
            return await self._pool.read(sql, *values)
        except TransactionError as error:
            raise _unusable(error) from error

    async def _explained(self, work: Coroutine[Any, Any, ResultT]) -> ResultT:
        """Run work; where the tables are missing, raise the error of workflows that have left or are arriving."""
        try:
            return await work
        except InterlockError as error:
            if is_missing(error):
                refuse_marked(await marks_of(self._pool.read, self._schema), self._pool.address.redacted_url)
            raise

    async def _finished(self, work: Coroutine[Any, Any, ResultT]) -> ResultT:
        """Finish the work even if the caller is cancelled, so that later calls keep their order."""
        task = asyncio.ensure_future(self._explained(work))
        self._under_way.add(task)
        task.add_done_callback(self._under_way.discard)
        return await asyncio.shield(task)

    def _refuse_closed(self) -> None:
        if self._closed:
            raise closed()

    def transactions(self) -> PostgresTransactions:
        """Return the statements for a transaction of the caller (B11)."""
        return PostgresTransactions(self._schema)


def _unusable(error: TransactionError) -> UnavailableError:
    return UnavailableError(
        f"the store could not do it: {error.what}",
        why="The schema is not what it was, or this user may not use it. Nothing was changed.",
        fix="Look at the tables and the rights of the user; `interlock migrate` says what is missing.",
    )


# --- Opening ---------------------------------------------------------------------------------------------------------
# Moved workflows raise MovedElsewhere, which the caller follows; arriving ones raise UnavailableError. A caller that
# followed a tombstone may finish an arrival whose mover died. One connection is opened, because an address that cannot
# be reached is best found now; the others come when they are needed.


async def open_postgres(
    url: str, *, clock: Clock, lease_s: float = LaneSettings().lease_s, epoch: int | None = None
) -> SharedStore:
    """Open the store at an address; `epoch` is that of the tombstone which led here.

    Raises BadUsage for a wrong one, UnavailableError when the server cannot be reached or workflows are on their way to
    it, MovedElsewhere when they have left, and UnusableFile for a schema that a later version of Interlock has made.
    """
    pool = Pool(parse_postgres_url(url))
    store = PostgresStore(pool, clock, lease_s)
    try:
        async with pool.link() as link:
            if epoch is not None:
                await arrive(link, pool.address, epoch)
            await _refuse_marked(link, pool.address)
            await migrated(link, pool.address)
            # Again: a move to here may have begun meanwhile.
            await _refuse_marked(link, pool.address)
        await store.begin()
    except BaseException:
        await pool.close()
        raise
    return store


async def _refuse_marked(link: Link, address: PostgresAddress) -> None:
    refuse_marked(await marks_of(reader_of(link), address.schema), address.redacted_url)
