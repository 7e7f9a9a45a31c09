"""The naive chain: what a good engineer writes without an engine.

One task per order awaits one step after the other: validate, charge, reserve, complete. Every call to the gateway has a
timeout and is retried three times, with exponential backoff and jitter, under the order's id as its idempotency key.
Every step is one transaction on PostgreSQL that moves the order and leaves a row of history, over asyncpg's pool. When
a call has failed for good the order is marked as failed, and what may have happened outside is undone, with three
retries too.

So many orders are worked on at once as were found to be best, and the others wait in their tasks: in the storm, 64 to
512 at once were equally fast, 2,000 a third slower, and without a bound it came to a standstill. More at once also
means more that fail in an outage. The number of connections is tried out before every storm.
"""

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from http import HTTPStatus
from types import TracebackType
from typing import Any, Self

import asyncpg

from benchmarks.storming.client import Client
from benchmarks.storming.load import Outcome, order_name

log = logging.getLogger(__name__)

RETRIES = 3
BACKOFF_S = 0.1
CENTS = 999

SCHEMA = """
CREATE TABLE orders (
    id text PRIMARY KEY,
    status text NOT NULL,
    cents bigint NOT NULL,
    version bigint NOT NULL DEFAULT 1,
    created_at timestamptz NOT NULL DEFAULT now(),
    updated_at timestamptz NOT NULL DEFAULT now()
);
CREATE TABLE order_history (
    order_id text NOT NULL,
    version bigint NOT NULL,
    from_status text,
    to_status text NOT NULL,
    created_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (order_id, version)
);
"""
START = "INSERT INTO orders (id, status, cents) VALUES ($1, 'received', $2)"
MOVE = """
UPDATE orders SET status = $3, version = version + 1, updated_at = now() WHERE id = $1 AND status = $2 RETURNING version
"""
RECORD = "INSERT INTO order_history (order_id, version, from_status, to_status) VALUES ($1, $2, $3, $4)"

Call = Callable[[], Awaitable[int]]


class Unreachable(Exception):
    """The gateway did not answer usefully in any of the tries."""


class Naive:
    """The chain, on a database of its own."""

    def __init__(self, url: str, client: Client, *, in_flight: int, connections: int, timeout_s: float) -> None:
        self.ended: Callable[[int, Outcome], None] = lambda _number, _outcome: None
        self._url = url
        self._client = client
        self._places = asyncio.Semaphore(in_flight)
        self._connections = connections
        self._timeout_s = timeout_s
        self._tasks: set[asyncio.Task[None]] = set()
        self._stack = AsyncExitStack()
        self._pool: Any = None

    async def __aenter__(self) -> Self:
        self._pool = await asyncpg.create_pool(self._url, min_size=self._connections, max_size=self._connections)
        self._stack.push_async_callback(self._pool.close)
        await self._pool.execute(SCHEMA)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for task in list(self._tasks):
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)
        await self._stack.aclose()

    def place(self, number: int) -> None:
        """Take an order in."""
        task = asyncio.get_running_loop().create_task(self._worked_on(number))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _worked_on(self, number: int) -> None:
        async with self._places:
            self.ended(number, await self.run(order_name(number)))

    async def run(self, order: str) -> Outcome:
        """The chain."""
        client = self._client
        await self._start(order)
        assert CENTS > 0, "an order without a price is refused"
        await self._move(order, "received", "validated")
        try:
            status = await self._tried(lambda: client.charge(order, CENTS, key=order))
        except Unreachable:
            await self._move(order, "validated", "failed")
            await self._undone(lambda: client.refund(order, undoes=order, key=order))
            return Outcome.FAILED
        if status != HTTPStatus.OK:
            await self._move(order, "validated", "declined")
            return Outcome.DECLINED
        await self._move(order, "validated", "charged")
        try:
            status = await self._tried(lambda: client.reserve(order, key=order))
        except Unreachable:
            status = 0
        if status != HTTPStatus.OK:
            await self._move(order, "charged", "failed")
            await self._undone(lambda: client.release(order, undoes=order, key=order))
            await self._undone(lambda: client.refund(order, undoes=order, key=order))
            return Outcome.FAILED
        await self._move(order, "charged", "reserved")
        await self._move(order, "reserved", "completed")
        return Outcome.COMPLETED

    async def _tried(self, call: Call) -> int:
        for retry in range(RETRIES + 1):
            try:
                async with asyncio.timeout(self._timeout_s):
                    status = await call()
                if status < HTTPStatus.INTERNAL_SERVER_ERROR:
                    return status
            except OSError:  # A timeout is one too.
                pass
            if retry < RETRIES:
                await asyncio.sleep(BACKOFF_S * 2**retry * random.uniform(0.5, 1.5))
        raise Unreachable

    async def _undone(self, call: Call) -> None:
        try:
            await self._tried(call)
        except Unreachable:
            log.warning("an order has failed and could not be undone")

    async def _start(self, order: str) -> None:
        async with self._pool.acquire() as connection, connection.transaction():
            await connection.execute(START, order, CENTS)
            await connection.execute(RECORD, order, 1, None, "received")

    async def _move(self, order: str, before: str, after: str) -> None:
        async with self._pool.acquire() as connection, connection.transaction():
            version = await connection.fetchval(MOVE, order, before, after)
            assert version is not None, f"{order} is not {before}"
            await connection.execute(RECORD, order, version, before, after)
