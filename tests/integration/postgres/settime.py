"""A database whose clock is set by the test, for suites that move time by hand.

The clock of the test says which time it is; besides, time goes on while the test runs, so that leases end. Only the
store's own time is exactly what the test says.
"""

import time
from collections.abc import Sequence
from datetime import UTC, datetime

import pytest

from interlock.clock import Clock
from interlock.postgres.pool import Pool, PostgresRow
from interlock.store.postgres import store


class SetDatabaseTime:
    """The database's time is what the clock of the test says, and what the server says is not believed."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._last_us = 0

    @property
    def stale(self) -> bool:
        """Nobody has to ask."""
        return False

    def record(self, server_us: int) -> None:
        """The server's clock is another one than the test's."""

    def now_us(self) -> int:
        """The time, which never goes back."""
        self._last_us = max(self._last_us, int(self._clock.wall_s() * 1_000_000))
        return self._last_us


def set_by_the_test(patch: pytest.MonkeyPatch) -> None:
    """From now on stores that are opened have such a time, and so has the server."""
    begun_s = time.monotonic()
    clocks: list[Clock] = []

    def made(clock: Clock) -> SetDatabaseTime:
        clocks.append(clock)
        return SetDatabaseTime(clock)

    def told(sql: str) -> str:
        if not clocks:
            return sql
        now = datetime.fromtimestamp(clocks[-1].wall_s() + time.monotonic() - begun_s, UTC)
        moment = f"timestamptz '{now.isoformat()}'"
        return sql.replace("clock_timestamp()", moment).replace("now()", moment)

    read, write = Pool.read, Pool.write

    async def read_then(self: Pool, sql: str, *values: object) -> list[PostgresRow]:
        return await read(self, told(sql), *values)

    async def write_then(self: Pool, sql: str, values: Sequence[object], *, reserve: bool = False) -> list[PostgresRow]:
        return await write(self, told(sql), values, reserve=reserve)

    patch.setattr(store, "DatabaseTime", made)
    patch.setattr(Pool, "read", read_then)
    patch.setattr(Pool, "write", write_then)
