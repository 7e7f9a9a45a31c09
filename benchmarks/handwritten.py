"""What a good engineer writes instead of an engine: orders by hand on PostgreSQL, with asyncpg.

The order's row has a version that guards against lost updates, and every transition leaves a row of history in the same
transaction. There are three forms. By the book: a transaction per transition with the statements that every
application has, on asyncpg's pool as its documentation shows it. Tuned: the same on prepared statements and connections
that are lent without the pool's reset, which is a round trip. And the same work as one statement, tuned too, which
saves four of five round trips. The number of connections is tried out, and the best one is kept.
"""

import asyncio
import itertools
from collections import deque
from collections.abc import Awaitable, Callable, Iterable
from contextlib import AsyncExitStack
from dataclasses import replace
from types import TracebackType
from typing import Any, Self

import asyncpg

from benchmarks.clients import run_clients
from benchmarks.postgres import Server
from benchmarks.report import Round

POOL_SIZES = (8, 16, 32)
MOVES = (
    ("received", "charged", "CHARGED"),
    ("charged", "reserved", "RESERVED"),
    ("reserved", "packed", "PACKED"),
    ("packed", "shipped", "SHIPPED"),
)
CONTEXT = '{"cents": 999}'
PAYLOAD = "{}"

SCHEMA = """
CREATE TABLE IF NOT EXISTS orders (
    id text PRIMARY KEY,
    state text NOT NULL,
    context jsonb NOT NULL,
    version bigint NOT NULL,
    created_at timestamptz NOT NULL DEFAULT now(),
    updated_at timestamptz NOT NULL DEFAULT now()
);
CREATE TABLE IF NOT EXISTS order_history (
    order_id text NOT NULL,
    version bigint NOT NULL,
    from_state text NOT NULL,
    to_state text NOT NULL,
    event text NOT NULL,
    payload jsonb NOT NULL,
    context jsonb NOT NULL,
    created_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (order_id, version)
);
"""
START = """
WITH started AS (
    INSERT INTO orders (id, state, context, version) VALUES ($1, 'received', $2, 1) RETURNING id, version, state
)
INSERT INTO order_history (order_id, version, from_state, to_state, event, payload, context)
SELECT id, version, state, state, 'STARTED', '{}', $2 FROM started
"""
READ = "SELECT state, context, version FROM orders WHERE id = $1 FOR UPDATE"
WRITE = """
UPDATE orders SET state = $3, context = $4, version = version + 1, updated_at = now() WHERE id = $1 AND version = $2
"""
RECORD = """
INSERT INTO order_history (order_id, version, from_state, to_state, event, payload, context)
VALUES ($1, $2, $3, $4, $5, $6, $7)
"""
MOVE = """
WITH moved AS (
    UPDATE orders SET state = $3, version = version + 1, updated_at = now()
    WHERE id = $1 AND state = $2 RETURNING id, version, context
)
INSERT INTO order_history (order_id, version, from_state, to_state, event, payload, context)
SELECT id, version, $2, $3, $4, $5, context FROM moved RETURNING version
"""
COUNT = """
WITH moved AS (
    UPDATE orders SET context = jsonb_build_object('n', (context->>'n')::bigint + 1), version = version + 1,
        updated_at = now()
    WHERE id = $1 AND state = $2 RETURNING id, version, context
)
INSERT INTO order_history (order_id, version, from_state, to_state, event, payload, context)
SELECT id, version, $2, $2, $3, $4, context FROM moved RETURNING version
"""
STATEMENTS = {"start": START, "read": READ, "write": WRITE, "record": RECORD, "move": MOVE, "count": COUNT}

Statement = Any
"""A prepared statement of asyncpg, which has no types."""


class Lent:
    """A connection with its prepared statements."""

    def __init__(self, connection: Any, statements: dict[str, Statement]) -> None:  # noqa: ANN401 -- asyncpg's own.
        self.connection = connection
        self.start = statements["start"]
        self.read = statements["read"]
        self.write = statements["write"]
        self.record = statements["record"]
        self.move = statements["move"]
        self.count = statements["count"]


class Pool:
    """Connections, lent in the order in which they were asked for: asyncpg's own pool does so too, but resets them."""

    def __init__(self, connections: Iterable[Lent]) -> None:
        self._free = list(connections)
        self._asking: deque[asyncio.Future[Lent]] = deque()

    async def get(self) -> Lent:
        """A connection, when there is one."""
        if self._free:
            return self._free.pop()
        asking: asyncio.Future[Lent] = asyncio.get_running_loop().create_future()
        self._asking.append(asking)
        return await asking

    def put(self, lent: Lent) -> None:
        """Give it back: to the one who has waited longest."""
        if self._asking:
            self._asking.popleft().set_result(lent)
        else:
            self._free.append(lent)


class Handwritten:
    """Orders over a number of connections; whoever finds none free waits for one."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._stack = AsyncExitStack()
        self._connections: list[Lent] = []
        self._free = Pool(())
        self._pools: dict[int, Any] = {}
        self._pool: Any = None
        self._counting = itertools.count()

    async def __aenter__(self) -> Self:
        await self._server.check_durable()
        connection = await asyncpg.connect(self._server.url)
        await connection.execute(SCHEMA)
        await connection.close()
        for _ in range(max(POOL_SIZES)):
            connection = await asyncpg.connect(self._server.url)
            self._stack.push_async_callback(connection.close)
            prepared = {name: await connection.prepare(statement) for name, statement in STATEMENTS.items()}
            self._connections.append(Lent(connection, prepared))
        for size in POOL_SIZES:
            pool = await asyncpg.create_pool(self._server.url, min_size=size, max_size=size)
            self._pools[size] = pool
        self.use(len(self._connections))
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for pool in self._pools.values():
            await pool.close()
        await self._stack.aclose()

    def use(self, size: int) -> None:
        """Use so many of the connections, the same ones each time. Only between rounds, when all of them are free."""
        self._free = Pool(self._connections[:size])
        self._pool = self._pools.get(size)

    async def by_the_book(self) -> None:
        """One order, one transaction per transition, as the documentation of asyncpg writes it."""
        number = f"order-{next(self._counting)}"
        async with self._pool.acquire() as connection:
            await connection.execute(START, number, CONTEXT)
        for from_state, to_state, event in MOVES:
            async with self._pool.acquire() as connection, connection.transaction():
                state, context, version = await connection.fetchrow(READ, number)
                assert state == from_state
                changed = await connection.execute(WRITE, number, version, to_state, context)
                assert changed == "UPDATE 1"
                await connection.execute(RECORD, number, version + 1, from_state, to_state, event, PAYLOAD, context)

    async def by_transactions(self) -> None:
        """One order, one transaction per transition, tuned."""
        number = await self._started()
        for from_state, to_state, event in MOVES:
            lent = await self._free.get()
            try:
                async with lent.connection.transaction():
                    state, context, version = await lent.read.fetchrow(number)
                    assert state == from_state
                    await lent.write.fetch(number, version, to_state, context)
                    assert lent.write.get_statusmsg() == "UPDATE 1"
                    await lent.record.fetch(number, version + 1, from_state, to_state, event, PAYLOAD, context)
            finally:
                self._free.put(lent)

    async def by_statements(self) -> None:
        """One order, one statement per transition."""
        number = await self._started()
        for from_state, to_state, event in MOVES:
            lent = await self._free.get()
            try:
                version = await lent.move.fetchval(number, from_state, to_state, event, PAYLOAD)
            finally:
                self._free.put(lent)
            assert version is not None

    async def count_one(self) -> None:
        """One event on the order that everybody writes, as one statement."""
        lent = await self._free.get()
        try:
            version = await lent.count.fetchval("hot", "received", "COUNT", PAYLOAD)
        finally:
            self._free.put(lent)
        assert version is not None

    async def heat(self) -> None:
        """Start the order that everybody will write."""
        lent = await self._free.get()
        await lent.start.fetch("hot", '{"n": 0}')
        self._free.put(lent)

    async def counted(self) -> tuple[int, int]:
        """What the hot order has counted, and how many rows of history say so."""
        connection = await asyncpg.connect(self._server.url)
        counted = await connection.fetchval("SELECT (context->>'n')::bigint FROM orders WHERE id = 'hot'")
        rows = await connection.fetchval("SELECT count(*) FROM order_history WHERE order_id = 'hot' AND version > 1")
        await connection.close()
        return int(counted), int(rows)

    async def check(self) -> None:
        """Every order but the hot one has arrived, with its five rows of history."""
        connection = await asyncpg.connect(self._server.url)
        arrived = await connection.fetchval("SELECT count(*) FROM orders WHERE state = 'shipped' AND version = 5")
        rows = await connection.fetchval("SELECT count(*) FROM order_history WHERE order_id <> 'hot'")
        await connection.close()
        placed = next(self._counting)
        assert arrived == placed, f"{arrived:,} of {placed:,} orders arrived"
        assert rows == 5 * placed, f"{rows:,} rows of history for {placed:,} orders"

    async def best_size(self, work: Callable[[], Awaitable[None]], *, in_flight: int, seconds: float) -> int:
        """The number of connections with which the work is done fastest."""
        rates: dict[int, float] = {}
        for size in POOL_SIZES:
            self.use(size)
            await run_clients([work] * in_flight, seconds=seconds / 2)  # Until the server keeps its plans.
            found = await run_clients([work] * in_flight, seconds=seconds)
            rates[size] = found.operations / found.seconds
        best = max(rates, key=lambda size: rates[size])
        if work == self.by_the_book:
            # The server allows a hundred connections, to all contestants together.
            for size in POOL_SIZES:
                if size != best:
                    await self._pools.pop(size).close()
        return best

    async def round(
        self, work: Callable[[], Awaitable[None]], *, size: int, in_flight: int, seconds: float, operations: int
    ) -> Round:
        """One turn; every unit of work counts for so many operations."""
        self.use(size)
        result = await run_clients([work] * in_flight, seconds=seconds, cpu_seconds=self._server.cpu_seconds)
        return replace(result, operations=operations * result.operations)

    async def _started(self) -> str:
        number = f"order-{next(self._counting)}"
        lent = await self._free.get()
        try:
            await lent.start.fetch(number, CONTEXT)
        finally:
            self._free.put(lent)
        return number
