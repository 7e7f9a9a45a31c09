"""Quotas: a limit of takes in each window of time, over all processes together (D15).

    quota = db.quota("api:alice", limit=100, window_s=60)
    if not await quota.take():
        raise Overloaded(...)                         # until `await quota.resets_at()`

Windows are fixed and aligned to the epoch by the database's clock (G8): with 60 seconds they begin at each full minute.
One row per name holds the present window; the first taker of the next one replaces it. Around the border of two windows
twice the limit can pass within one window's time, as with every fixed window.

A name may never be used again, so old rows must be removed: one take in some hundreds, chosen at random, deletes a few
whose window ended long ago. Such a row means the same as a missing one.
"""

import contextlib
from datetime import UTC, datetime, timedelta

from interlock.clock import Chance, SystemChance
from interlock.errors import InterlockError
from interlock.hotrow.tables import checked_amount, checked_name, checked_seconds, key_of, ready
from interlock.sql.stored_values import Executor, Statements

WINDOW_S_MAX = 366 * 24 * 3600.0
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MICROSECOND = timedelta(microseconds=1)

TAKES_PER_SWEEP = 250
"""Average number of takes per sweep."""

SWEPT_MAX = 1_000
"""G6: rows that one sweep removes, four times as many as are created meanwhile."""

SWEPT_AFTER_US = 3_600 * 1_000_000
"""Time since the end of a window before it is removed: longer than any call, or a late one could open it again."""

TAKE = """
INSERT INTO hotrow_quota (name, starts_us, ends_us, used) VALUES ($1, $2, $3, $4)
ON CONFLICT (name) DO UPDATE SET
  starts_us = CASE WHEN hotrow_quota.starts_us < excluded.starts_us
    THEN excluded.starts_us ELSE hotrow_quota.starts_us END,
  ends_us = CASE WHEN hotrow_quota.starts_us < excluded.starts_us
    THEN excluded.ends_us ELSE hotrow_quota.ends_us END,
  used = CASE WHEN hotrow_quota.starts_us < excluded.starts_us
    THEN excluded.used ELSE hotrow_quota.used + excluded.used END
WHERE hotrow_quota.starts_us < excluded.starts_us OR hotrow_quota.used <= $5
"""
SWEEP = (
    "DELETE FROM hotrow_quota WHERE ends_us < $1 "
    "AND name IN (SELECT name FROM hotrow_quota WHERE ends_us < $1 ORDER BY ends_us LIMIT $2)"
)
USED = "SELECT starts_us, used, now() FROM hotrow_quota WHERE name = $1"
NOW = "SELECT now()"


class Quota:
    """One quota in a database. All callers of a name must pass the same limit and window."""

    def __init__(self, db: Executor, name: str, *, limit: int, window_s: float, chance: Chance | None = None) -> None:
        self.name = checked_name("quota", name)
        """The primary key of its row."""
        self.limit = checked_amount("quota(limit=)", limit, least=0)
        """Takes per window."""
        self.window_s = checked_seconds("quota(window_s=)", window_s, WINDOW_S_MAX)
        """Length of a window in seconds."""
        self._window_us = max(1, round(self.window_s * 1_000_000))
        self._db = db
        self._chance = chance or SystemChance()

    async def take(self, amount: int = 1, *, key: str | None = None) -> bool:
        """Take the whole amount from this window; return False when less is left. A key repeats its answer."""
        checked_amount("quota.take", amount)
        await ready(self._db, "hotrow_quota")
        arguments = (self.name, amount, self.limit, self._window_us)
        if key is None:
            taken = await _take(self._db, *arguments)
        else:
            taken = await self._db.transact(_take, *arguments, key=key_of("quota", self.name, key))
        if self._chance.fraction() * TAKES_PER_SWEEP < 1:
            # The take is committed. A sweep that fails has removed nothing, and the next one does its work.
            with contextlib.suppress(InterlockError):
                await self.sweep()
        return taken

    async def left(self) -> int:
        """Return how many can be taken in the current window."""
        await ready(self._db, "hotrow_quota")
        rows = await self._db.query(USED, self.name)
        if not rows:
            return self.limit
        starts_us, used, now = rows[0]
        assert isinstance(starts_us, int)
        assert isinstance(used, int)
        return self.limit if starts_us < _start_us(now, self._window_us) else max(0, self.limit - used)

    async def resets_at(self) -> datetime:
        """Return the end of the current window by the database's clock."""
        [(now,)] = await self._db.query(NOW)
        return EPOCH + timedelta(microseconds=_start_us(now, self._window_us) + self._window_us)

    async def sweep(self) -> int:
        """Remove up to `SWEPT_MAX` quotas of any name whose window ended over an hour ago; return their number."""
        await ready(self._db, "hotrow_quota")
        [(now,)] = await self._db.query(NOW)
        return await self._db.execute(SWEEP, _start_us(now, 1) - SWEPT_AFTER_US, SWEPT_MAX)


async def _take(on: Statements, name: str, amount: int, limit: int, window_us: int) -> bool:
    """Read the database's time, then take the amount from the window of that time.

    The one statement that takes is exact by itself. A call that is overtaken by the opening of a later window counts
    in that one: no window is ever opened again.
    """
    if amount > limit:
        return False
    [(now,)] = await on.query(NOW)
    starts_us = _start_us(now, window_us)
    return bool(await on.execute(TAKE, name, starts_us, starts_us + window_us, amount, limit - amount))


def _start_us(now: object, window_us: int) -> int:
    assert isinstance(now, datetime)
    return (now - EPOCH) // MICROSECOND // window_us * window_us
