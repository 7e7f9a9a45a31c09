"""Database engine on PostgreSQL: the calls and guarantees of a lane, with row locks instead of a single writer.

One statement on one table runs as it is, in one round trip (`postgres.isolation` has the rule). Everything else is a
SERIALIZABLE transaction. It is retried after a conflict, from the second attempt on in turn (`ConflictTurns`). A
transaction with a key writes the key first and the result last, so that a repetition waits for the first and then
reads its result. With a key, an unknown outcome is resolved by a retry.

Sections: connections, parts, engine.
"""

import asyncio
import contextlib
import contextvars
import threading
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Hashable, Sequence
from typing import Final, NamedTuple, Protocol, TypeVar, cast
from weakref import WeakKeyDictionary

import apsw

from interlock.clock import Chance, Clock, SystemChance
from interlock.database.call_digest import KEYS_SCHEMA as KEYS
from interlock.database.call_digest import digest_of
from interlock.database.postgres_transactions import (
    ATTEMPTS_MAX,
    Contended,
    NoGate,
    PostgresAttempt,
    PostgresInteractive,
    StoredKeys,
    keyed_statement,
    not_a_lane,
    pause_s,
    run_function,
    turns_of,
)
from interlock.database.transactions import inside_of, not_a_text, refuse_inside, refuse_no_function
from interlock.errors import (
    BadUsage,
    ConstraintViolation,
    InterlockError,
    OutcomeUnknown,
    Overloaded,
    TransactionError,
)
from interlock.hotrow.tables import check_key
from interlock.lanes import forks
from interlock.lanes.hot_rows import OPEN_SOURCES, Contention, HotRow
from interlock.lanes.idempotency_keys import encode_result
from interlock.lanes.lane import HandOff, LaneStats
from interlock.lanes.lane_settings import LaneSettings
from interlock.postgres.handover_marks import GATE, arrive, handover_marks, refuse_marked
from interlock.postgres.isolation import PlainTables, StatementParameter, StatementPlan, plan_of
from interlock.postgres.pool import Pool
from interlock.postgres.statements import DENIED, Conflict, StatementLink, opened
from interlock.postgres.translate_errors import LostConnection, closed, is_missing, state_of
from interlock.sql.stored_values import Answer, EngineName, Row
from interlock.urls import PartKind, PostgresAddress, parse_database_url, stream_name

# --- Connections -----------------------------------------------------------------------------------------------------
# One pool per event loop, because a connection belongs to its loop. A user without the right to create tables can
# still run statements; only calls with a key raise an error.

MAKE_ATTEMPTS: Final = 5
MISSING: Final = "SELECT to_regnamespace($1) IS NULL, to_regclass($2) IS NULL OR to_regclass($3) IS NULL"


class Connections:
    """All connections to one address."""

    def __init__(self, address: PostgresAddress) -> None:
        self.address = address
        self._pools: WeakKeyDictionary[asyncio.AbstractEventLoop, _Kept] = WeakKeyDictionary()
        self._lock = threading.Lock()
        self._closed = False
        forks.watch(self)

    @contextlib.asynccontextmanager
    async def client(self) -> AsyncGenerator[StatementLink]:
        """Acquire a connection for the duration of the block."""
        pool = self._pool() or await self._open_pool()
        async with pool.link() as link:
            yield cast("StatementLink", link)

    async def pause(self, seconds: float) -> None:
        """Sleep before the next attempt; raises if the connections were closed meanwhile."""
        if self._closed:
            raise closed()
        await asyncio.sleep(seconds)

    async def make(self, schema: str, *, local: str, tombstone_epoch: int = 0) -> None:
        """Create what is missing, unless the database has moved or is arriving. Processes may do so concurrently."""
        async with self.client() as client:
            marks = await handover_marks(client.read, schema)
            if marks.arriving and marks.arriving == tombstone_epoch:
                await _complete_arrival(client, schema, tombstone_epoch)
                marks = await handover_marks(client.read, schema)
            refuse_marked(marks, self.address.redacted_url)
        for attempt in range(1, MAKE_ATTEMPTS + 1):
            try:
                async with self.client() as client:
                    if await self._create_missing(client, schema, local):
                        # A move may have left, or begun to arrive, since the first check.
                        refuse_marked(await handover_marks(client.read, schema), self.address.redacted_url)
            except (ConstraintViolation, TransactionError, Conflict) as error:
                cause = error.__cause__
                if cause is not None and state_of(cause) == DENIED:
                    return  # Calls with a key will raise; everything else works without these tables.
                if attempt == MAKE_ATTEMPTS:
                    raise (Contended(attempt) if isinstance(error, Conflict) else error) from cause
                await self.pause(0.01 * attempt)
            else:
                return

    async def has_schema(self, schema: str, *, local: str) -> bool:
        """Return whether the server has a schema of that name."""
        return await self._ask("SELECT to_regnamespace($1) IS NOT NULL", f'"{schema}"', local)

    async def has_comment(self, begin: str, *, local: str) -> bool:
        """Return whether the comment of a schema begins with this text."""
        sql = "SELECT EXISTS (SELECT FROM pg_namespace WHERE starts_with(obj_description(oid, 'pg_namespace'), $1))"
        return await self._ask(sql, begin, local)

    async def describe(self, schema: str, comment: str, *, local: str) -> None:
        """Write the comment of a schema, unless it is there. Its owner may; for others the part cannot be moved."""
        if await self.has_comment(comment, local=local):
            return
        text = "'" + comment.replace("'", "''") + "'"

        async def write(client: StatementLink) -> object:
            return await client.run(f'COMMENT ON SCHEMA "{schema}" IS {text}', (), schema=local, writing=False)

        with contextlib.suppress(TransactionError, Conflict):
            async with self.client() as client:
                _ = await PostgresAttempt(client, "").run(write)

    async def _ask(self, sql: str, value: str, local: str) -> bool:
        async with self.client() as client:
            [(found,)] = (await client.run(sql, (value,), schema=local, writing=False)).rows
        return bool(found)

    async def close(self) -> None:
        """Close all pools; each in its own event loop, if that still runs."""
        with self._lock:
            self._closed = True
            pools = list(self._pools.items())
        here = asyncio.get_running_loop()
        for loop, kept in pools:
            if loop is here:
                await kept.guard.aclose()
            elif loop.is_running():
                _ = asyncio.run_coroutine_threadsafe(kept.pool.close(), loop)

    def forked(self) -> None:
        """Drop the connections in the child of a fork: they belong to the parent."""
        self._lock = threading.Lock()
        self._closed = True
        self._pools = WeakKeyDictionary()

    def _pool(self) -> Pool | None:
        if self._closed:
            raise closed()
        kept = self._pools.get(asyncio.get_running_loop())
        return None if kept is None else kept.pool

    async def _open_pool(self) -> Pool:
        pool = Pool(self.address, opened)
        guard = _closed_with_loop(pool)
        with self._lock:
            if self._closed:
                raise closed()
            # Nothing is awaited since the lookup, so each loop gets one pool.
            self._pools[asyncio.get_running_loop()] = _Kept(pool, guard)
        await anext(guard)
        return pool

    async def _create_missing(self, client: StatementLink, schema: str, local: str) -> bool:
        names = (schema, f"{schema}.interlock_keys", f"{schema}.{GATE}")

        async def create(client: StatementLink) -> bool:
            [(no_schema, no_tables)] = (await client.run(MISSING, names, schema=local, writing=False)).rows
            wanted = [f'CREATE SCHEMA IF NOT EXISTS "{schema}"'] if no_schema else []
            if no_tables:
                wanted += [f'SET LOCAL search_path = "{schema}"', KEYS, f"CREATE TABLE IF NOT EXISTS {GATE} ()"]
            for sql in wanted:
                _ = await client.run(sql, (), schema=local, writing=False)
            return bool(wanted)

        return await PostgresAttempt(client, "").run(create)


async def _complete_arrival(client: StatementLink, schema: str, epoch: int) -> None:
    await client.begin("READ COMMITTED")
    try:
        arrived = await arrive(client, schema, epoch)
    except BaseException:
        await client.rollback()
        raise
    await (client.commit() if arrived else client.rollback())


class _Kept(NamedTuple):
    pool: Pool
    guard: AsyncGenerator[None]


async def _closed_with_loop(pool: Pool) -> AsyncGenerator[None]:
    """Close the pool when its event loop shuts down its asynchronous generators."""
    try:
        yield
    finally:
        await pool.close()


# --- Parts -----------------------------------------------------------------------------------------------------------
# A stream or shard is a schema, named after its parent and the name that it has in a lane. Where that is too long or
# would mean another one, the name is a digest, and a comment of the schema has what it stands for: a move to a lane
# needs the name.

PART_BYTES_MAX: Final = 63


def part_of(key: str) -> tuple[PartKind, str]:
    """Return the kind and the name of the part with this key: `stream:customer` or `shard:3`."""
    kind, _, rest = key.partition(":")
    return ("streams", stream_name(rest)) if kind == "stream" else ("shards", rest)


def part_schema(schema: str, kind: PartKind, name: str) -> str:
    """Return the schema of a part of the database in this schema."""
    plain = f"{schema}__{name}"
    # Two underscores in the name would mean a stream of a stream; PostgreSQL truncates names at its limit.
    if (
        kind == "streams"
        and "__" not in f"_{name}"
        and name[0] != "="
        and "-" not in name
        and len(plain) <= PART_BYTES_MAX
    ):
        return plain
    return f"{schema[:20]}__{digest_of(kind.removesuffix('s'), schema, (name,)).hex()}"


def part_comment(schema: str, kind: PartKind, name: str = "") -> str:
    """Return the comment of the schema of a part; without a name the beginning that all of its kind share."""
    begin = f"interlock {kind} of {schema}: "
    return begin + name


# --- Engine ----------------------------------------------------------------------------------------------------------

LOST_MAX: Final = 3
"""Number of retries after a lost connection, for a transaction that cannot have happened."""

ResultT = TypeVar("ResultT")
Body = Callable[[StatementLink], Awaitable[object]]


class RunAttempt(Protocol):
    """One attempt; with `gated` it waits for its turn."""

    def __call__(self, *, gated: bool) -> Awaitable[object]:
        """Run it."""
        ...


class OnPostgres:
    """One schema of a PostgreSQL, as a database."""

    def __init__(
        self,
        connections: Connections,
        schema: str,
        *,
        settings: LaneSettings,
        clock: Clock,
        local: bool = False,
        comment: str = "",
    ) -> None:
        self.name: EngineName = "postgres"
        self.url = connections.address.redacted_url
        self.settings = settings
        self.clock = clock
        self.schema = schema
        self._connections = connections
        self._is_stream = local
        """Whether this is a stream, which uses its parent's connections."""
        self._comment = comment
        """What the schema's name does not tell: of which database it is which part."""
        self._closed = False
        self._local = schema if local or connections.address.pgbouncer else ""
        """The schema that each transaction must set as search_path; empty if the connection has it."""
        self._tables = PlainTables(clock)
        self._turns = turns_of(connections.address.url, schema, clock)
        self._has_gate = True
        self._keys = StoredKeys(settings)
        self._chance: Chance = SystemChance()
        self._contention = Contention(settings, source="postgres")
        OPEN_SOURCES.add(self)
        self._done = self._failed = self._waiting = 0

    def execute(self, sql: str, args: tuple[object, ...], key: str | None) -> Awaitable[int]:
        """Run one statement as one durable transaction; return the number of changed rows."""
        call = self._run_counted(lambda: self._single("execute", sql, args, key, "changed"))
        return cast("Awaitable[int]", call)

    def query(self, sql: str, args: tuple[object, ...], key: str | None) -> Awaitable[list[Row]]:
        """Run one statement and return its rows."""
        return cast("Awaitable[list[Row]]", self._run_counted(lambda: self._single("query", sql, args, key, "rows")))

    def transact(self, function: Callable[..., object], args: tuple[object, ...], key: str | None) -> Awaitable[object]:
        """Run `async def function(tx, *args)` as one SERIALIZABLE transaction."""
        return self._run_counted(lambda: self._transact(function, args, key))

    def run(self, sql: str, args: tuple[object, ...]) -> Awaitable[Answer]:
        """Run one statement; return its rows, the number of changed rows, and its columns."""

        async def statement() -> Answer:
            return await self._statement(self._plan_call(sql, None), sql, args)

        return self._run_counted(statement)

    async def inspect(self, look: Callable[[apsw.Connection], object]) -> object:
        """Raise BadUsage: the catalog of PostgreSQL is read with SQL."""
        del look
        raise not_a_lane()

    def begin(self, *, read_only: bool) -> PostgresInteractive:
        """Return an interactive SERIALIZABLE transaction, which acquires its connection with the first call."""

        async def begin(client: StatementLink) -> None:
            if self._closed:
                raise closed()
            attempt = PostgresAttempt(
                client,
                self._local,
                serializable=True,
                read_only=read_only,
                shares=self._has_gate and not read_only,
            )
            try:
                await attempt.begin()
            except NoGate:
                await client.rollback()
                await self._refuse_moved()
                self._has_gate = False
                await begin(client)

        def touched(plan: StatementPlan) -> None:
            if plan.kind == "schema":
                self._tables.forget()

        limit_s = self.settings.transaction_timeout_s
        return PostgresInteractive(
            self._connections.client, begin, schema=self._local, limit_s=limit_s, touched=touched
        )

    def hot_rows(self) -> list[HotRow]:
        """Return the rows with the most contention between writers of this process, worst first (D9)."""
        return self._contention.worst(self.clock.monotonic_s())

    def stats(self) -> LaneStats:
        """Return the statistics since it was opened. Each transaction counts as a group."""
        return LaneStats(
            groups=self._done,
            transactions=self._done,
            failed=self._failed,
            waiting=self._waiting,
            largest_group=min(1, self._done),
            log_bytes=0,
            folds_failed=0,
        )

    async def part(self, key: str) -> "OnPostgres":
        """Return the database of a stream or shard: a schema of its own, on the same connections."""
        kind, name = part_of(key)
        schema = part_schema(self.schema, kind, name)
        if key.partition(":")[2] != name:
            # The first previews named it otherwise: with a sign that no address has, or after the key itself.
            earlier = f"{self.schema}__{name}"
            if len(earlier) > PART_BYTES_MAX:
                earlier = f"{self.schema[:20]}__{digest_of('stream', self.schema, (key.partition(':')[2],)).hex()}"
            schema = earlier if await self._connections.has_schema(earlier, local=self._local) else schema
        comment = "" if schema == f"{self.schema}__{name}" else part_comment(self.schema, kind, name)
        return OnPostgres(
            self._connections, schema, settings=self.settings, clock=self.clock, local=True, comment=comment
        )

    async def has_shards_beside(self) -> bool:
        """Return whether the shards of counters are databases of their own, as in the lane that it came from."""
        return await self._connections.has_comment(part_comment(self.schema, "shards"), local=self._local)

    async def create_missing(self, *, tombstone_epoch: int = 0) -> "OnPostgres":
        """Create what is missing on the server: the schema, and the tables of keys and turns.

        Raises MovedElsewhere for a tombstone. `tombstone_epoch` is that of one elsewhere that names this place: a mover
        that died after writing it has left only the arrival to be completed.
        """
        await self._connections.make(self.schema, local=self._local, tombstone_epoch=tombstone_epoch)
        if self._comment:
            await self._connections.describe(self.schema, self._comment, local=self._local)
        return self

    async def close(self) -> None:
        """Close the connections; a stream leaves those of its parent open."""
        refuse_inside(self.url, self)
        self._closed = True
        if not self._is_stream:
            await self._connections.close()

    @property
    def is_closed(self) -> bool:
        """Return whether it was closed."""
        return self._closed

    async def _run_counted(self, call: Callable[[], Coroutine[object, object, ResultT]]) -> ResultT:
        if self._waiting >= self.settings.queue_max:
            raise Overloaded(1.0, f"{self._waiting:,} calls wait for this database already (queue_max).")
        self._waiting += 1
        try:
            result = await call()
        except BaseException as error:
            self._failed += 1
            if isinstance(error, TransactionError) and is_missing(error):
                await self._refuse_moved()
            raise
        finally:
            self._waiting -= 1
        self._done += 1
        return result

    async def _refuse_moved(self) -> None:
        """Raise MovedElsewhere if a move is the reason for a missing table. Nothing of the call has happened then."""
        async with self._connections.client() as client:
            refuse_marked(await handover_marks(client.read, self.schema), self.url)

    async def _single(self, how: str, sql: str, args: tuple[object, ...], key: str | None, part: str) -> object:
        """Run one statement and return a part of its answer; with a key that part is stored as its result."""
        plan = self._plan_call(sql, key)
        if key is None:
            return getattr(await self._statement(plan, sql, args), part)

        async def body(client: StatementLink) -> object:
            return getattr(await client.run(sql, args, schema=self._local, writing=False), part)

        digest = digest_of(how, sql, args)
        if (
            plan.adds_row_of == len(args)  # Parameters beyond the arguments would be the key's own.
            and part == "changed"
            and not self._local
            and await self._add_row(plan, sql, args, key, digest)
        ):
            return 1
        return await self._transaction(sql, body, plan=plan, rows=_rows_of(plan, args), key=(key, digest))

    async def _add_row(self, plan: StatementPlan, sql: str, args: tuple[object, ...], key: str, digest: bytes) -> bool:
        """Claim the key and change one row, in one round trip. Return False if nothing happened, for whatever reason.

        Then the call is run as a transaction, which finds the first result, or the error.
        """
        if await self._is_serializable(plan):
            return False
        values = (*args, key, digest, encode_result(1))

        async def once(*, gated: bool) -> Answer:
            del gated  # It waits for the server's row lock only.
            async with self._connections.client() as client:
                return await client.run(keyed_statement(sql, len(args)), values, schema="", writing=True)

        try:
            _ = await self._retry(sql, _rows_of(plan, args), once, keyed=True)
        except TransactionError:
            return False
        await self._keys.tidy(self._remove_old_keys)
        return True

    async def _transact(self, function: Callable[..., object], args: tuple[object, ...], key: str | None) -> object:
        refuse_no_function(function)
        self._refuse()
        context = contextvars.copy_context()

        rows: list[tuple[str, object]] = []
        changes = False

        def touched(plan: StatementPlan, values: tuple[object, ...]) -> None:
            nonlocal changes
            changes = changes or plan.kind == "schema"
            rows.extend(_rows_of(plan, values))

        async def body(client: StatementLink) -> object:
            rows.clear()
            inside = inside_of(context, (self.url, self))
            return await run_function(
                function, args, client, inside, schema=self._local, settings=self.settings, touched=touched
            )

        found = None
        if key is not None:
            check_key(key)
            found = (key, digest_of("transact", function, args))
        plan = StatementPlan("write", serializable=True)
        try:
            return await self._transaction(_function_name(function), body, plan=plan, rows=rows, key=found)
        finally:
            if changes:
                self._tables.forget()

    def _plan_call(self, sql: object, key: str | None) -> StatementPlan:
        self._refuse()
        if key is not None:
            check_key(key)
        if not isinstance(sql, str):
            raise not_a_text(sql, "db")
        return plan_of(sql)

    def _refuse(self) -> None:
        refuse_inside(self.url, self)
        if self._closed:
            raise closed()

    async def _statement(self, plan: StatementPlan, sql: str, args: tuple[object, ...]) -> Answer:
        """Run one statement without a key."""
        if plan.kind == "schema":
            self._tables.forget()

        async def body(client: StatementLink) -> object:
            return await client.run(sql, args, schema=self._local, writing=False)

        if self._local or plan.kind == "schema" or await self._is_serializable(plan):
            try:
                return cast(
                    "Answer", await self._transaction(sql, body, plan=plan, rows=_rows_of(plan, args), key=None)
                )
            finally:
                if plan.kind == "schema":
                    self._tables.forget()

        async def once(*, gated: bool) -> Answer:
            del gated  # It waits for the server's row lock only.
            async with self._connections.client() as client:
                return await client.run(sql, args, schema="", writing=plan.kind != "read")

        answer = cast("Answer", await self._retry(sql, _rows_of(plan, args), once))
        if plan.seeks and answer.changed == 0:
            plan = plan._replace(serializable=True)  # See _NothingChanged; the first transaction has changed nothing.
            return cast("Answer", await self._transaction(sql, body, plan=plan, rows=_rows_of(plan, args), key=None))
        return answer

    async def _is_serializable(self, plan: StatementPlan) -> bool:
        if plan.serializable:
            return True
        if plan.table is None:
            return False
        plain = self._tables.known(plan.table)
        if plain is None:
            plain = await self._tables.look_up(plan.table, self._read_row)
        return not plain

    async def _read_row(self, sql: str, args: Sequence[object]) -> Answer:
        async def once(*, gated: bool) -> Answer:
            del gated  # It cannot conflict.
            async with self._connections.client() as client:
                if not self._local:
                    return await client.run(sql, args, schema="", writing=False)
                attempt = PostgresAttempt(client, self._local, read_only=True)
                return await attempt.run(lambda _: client.run(sql, args, schema=self._local, writing=False))

        return cast("Answer", await self._retry(sql, [], once))

    async def _transaction(
        self,
        call: str,
        body: Body,
        *,
        plan: StatementPlan,
        rows: list[tuple[str, object]],
        key: tuple[str, bytes] | None,
    ) -> object:
        """Run the body as a transaction, and retry it after a conflict. With a key it happens once."""
        serializable = plan.kind != "schema" and await self._is_serializable(plan)
        only_reads = plan.kind == "read" and key is None
        changes = plan.kind == "schema" or (plan.kind == "write" and plan.table is None)
        checked = _require_change(body) if plan.seeks and not serializable else body

        async def once(*, gated: bool) -> object:
            async with self._connections.client() as client:
                attempt = PostgresAttempt(
                    client,
                    self._local,
                    serializable=serializable,
                    read_only=only_reads,
                    gated=gated and serializable and self._has_gate,
                    shares=changes and self._has_gate,
                )
                if key is None:
                    return await attempt.run(checked)
                return await attempt.run_once(checked, self._keys, *key, schema=self._local)

        gate = serializable and not only_reads
        try:
            result = await self._retry(call, rows, once, gate=gate, keyed=key is not None)
        except _NothingChanged:
            plan = plan._replace(serializable=True)
            return await self._transaction(call, body, plan=plan, rows=rows, key=key)
        if key is not None:
            await self._keys.tidy(self._remove_old_keys)
        return result

    async def _remove_old_keys(self, sql: str, *args: object) -> None:
        # The call itself has happened; a later call removes the old keys.
        with contextlib.suppress(InterlockError, Conflict):
            async with self._connections.client() as client:
                attempt = PostgresAttempt(client, self._local)
                _ = await attempt.run(lambda _: client.run(sql, args, schema=self._local, writing=False))

    async def _retry(
        self,
        call: Hashable,
        rows: list[tuple[str, object]],
        once: RunAttempt,
        *,
        gate: bool = False,
        keyed: bool = False,
    ) -> object:
        """Retry until it has happened or cannot: after a conflict in turn, after a lost connection on another one."""
        since_s, lost = self.clock.monotonic_s(), 0
        conflict: Conflict | None = None
        for attempt in range(ATTEMPTS_MAX):
            try:
                if gate and (attempt > 0 or self._turns.is_hot(call)):
                    async with self._turns.lock():
                        result = await once(gated=True)
                else:
                    result = await once(gated=False)
            except NoGate:
                await self._refuse_moved()
                self._has_gate = False
                continue
            except Conflict as met:
                conflict = met
                self._turns.conflicted(call)
                self._contention.conflicted(set(rows), now_s=self.clock.monotonic_s())
            except (LostConnection, OutcomeUnknown) as error:
                # With a key every attempt is retried; without one only an attempt that cannot have happened.
                lost += 1
                if lost >= LOST_MAX or (isinstance(error, OutcomeUnknown) and not keyed):
                    raise
            else:
                if rows:
                    self._contention.wrote(set(rows), waiting_since_s=since_s, now_s=self.clock.monotonic_s())
                return result
            await self._connections.pause(pause_s(attempt, self._chance.fraction()))
        raise Contended(ATTEMPTS_MAX) from conflict


def opener(
    url: str, *, hand_off: HandOff | None, settings: LaneSettings, clock: Clock, tombstone_epoch: int = 0
) -> Callable[[], Coroutine[object, object, OnPostgres]]:
    """Return a function that opens the database at this address. Raises BadUsage for an invalid address.

    `tombstone_epoch` is that of the tombstone that named this place, or 0.
    """
    address = parse_database_url(url)
    if hand_off is not None:
        raise BadUsage(
            f"{address.redacted_url} was given a hand_off, which only a lane has.",
            why="A hand-off stands between a lane's group and its acknowledgement; PostgreSQL commits by itself.",
            fix="Leave it out.",
        )

    async def open_engine() -> OnPostgres:
        engine = OnPostgres(Connections(address), address.schema, settings=settings, clock=clock)
        try:
            return await engine.create_missing(tombstone_epoch=tombstone_epoch)
        except BaseException:
            await engine.close()  # A place that was left keeps no connection after its tombstone was read.
            raise

    return open_engine


class _NothingChanged(Exception):
    """A statement under READ COMMITTED has found no row to change; it must be repeated under SERIALIZABLE.

    A statement that waited for a row does not find it if another transaction deleted it and inserted it again, although
    such a row existed at any time.
    """


def _require_change(body: Body) -> Body:
    """Wrap the body so that it raises _NothingChanged when it has changed no row."""

    async def run(client: StatementLink) -> object:
        result = await body(client)
        if not (result.changed if isinstance(result, Answer) else result):
            raise _NothingChanged
        return result

    return run


def _rows_of(plan: StatementPlan, args: tuple[object, ...]) -> list[tuple[str, object]]:
    """Return the rows that a statement names by their keys; an empty list if the plan does not show them."""
    if plan.kind != "write" or plan.table is None or not plan.key:
        return []
    if any(isinstance(each, StatementParameter) and each.place >= len(args) for each in plan.key):
        return []
    chosen = tuple([args[each.place] if isinstance(each, StatementParameter) else each for each in plan.key])
    key: object = chosen[0] if len(chosen) == 1 else chosen
    try:
        _ = hash(key)
    except TypeError:
        return []  # A list for ANY, or a document, names several rows.
    return [(plan.table, key)]


def _function_name(function: Callable[..., object]) -> str:
    """Return the name of a function for the contention report."""
    return f"{getattr(function, '__module__', '')}.{getattr(function, '__qualname__', type(function).__qualname__)}"
