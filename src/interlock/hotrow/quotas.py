"""Quotas: at most so many in each window of time, over all processes together (D15).

    quota = db.quota("api:alice", limit=100, window_s=60)
    if not await quota.take():
        raise Overloaded(...)                         # until `await quota.resets_at()`

Windows are fixed and aligned to the epoch by the database's clock (G8): with 60 seconds they begin at each full minute.
One row holds the present window; the first taker of the next one replaces it, so that nothing grows. Around the border
of two windows twice the limit can pass within one window's time; that is what a fixed window means.
"""

from datetime import UTC, datetime, timedelta

from interlock.hotrow.asked import checked_amount, checked_name, checked_seconds, key_of
from interlock.hotrow.tables import ready
from interlock.sql.executor import Executor, Statements

WINDOW_S_MAX = 366 * 24 * 3600.0
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MICROSECOND = timedelta(microseconds=1)

TAKE = (
    "INSERT INTO hotrow_quota (name, starts_us, used) VALUES ($1, $2, $3) ON CONFLICT (name) DO UPDATE SET "
    "starts_us = CASE WHEN hotrow_quota.starts_us < excluded.starts_us "
    "THEN excluded.starts_us ELSE hotrow_quota.starts_us END, "
    "used = CASE WHEN hotrow_quota.starts_us < excluded.starts_us "
    "THEN excluded.used ELSE hotrow_quota.used + excluded.used END "
    "WHERE hotrow_quota.starts_us < excluded.starts_us OR hotrow_quota.used <= $4"
)
USED = "SELECT starts_us, used, now() FROM hotrow_quota WHERE name = $1"
NOW = "SELECT now()"


class Quota:
    """One quota in a database. Everybody who uses the name gives the same limit and window."""

    def __init__(self, db: Executor, name: str, *, limit: int, window_s: float) -> None:
        self.name = checked_name("quota", name)
        """Whose it is."""
        self.limit = checked_amount("quota(limit=)", limit, least=0)
        """How many may be taken in one window."""
        self.window_s = checked_seconds("quota(window_s=)", window_s, WINDOW_S_MAX)
        """How long a window is."""
        self._window_us = max(1, round(self.window_s * 1_000_000))
        self._db = db

    async def take(self, amount: int = 1, *, key: str | None = None) -> bool:
        """Use so many of this window's, all or none; False when they are used up. The same key, the same answer."""
        checked_amount("quota.take", amount)
        await ready(self._db, "hotrow_quota")
        asked = (self.name, amount, self.limit, self._window_us)
        if key is None:
            return await _take(self._db, *asked)
        return await self._db.transact(_take, *asked, key=key_of("quota", self.name, key))

    async def left(self) -> int:
        """How many can be taken in the present window."""
        await ready(self._db, "hotrow_quota")
        rows = await self._db.query(USED, self.name)
        if not rows:
            return self.limit
        starts_us, used, now = rows[0]
        assert isinstance(starts_us, int)
        assert isinstance(used, int)
        return self.limit if starts_us < _start_us(now, self._window_us) else max(0, self.limit - used)

    async def resets_at(self) -> datetime:
        """When the present window ends, by the database's clock."""
        [(now,)] = await self._db.query(NOW)
        return EPOCH + timedelta(microseconds=_start_us(now, self._window_us) + self._window_us)


async def _take(on: Statements, name: str, amount: int, limit: int, window_us: int) -> bool:
    """Ask the database for the time, then for the amount in the window of that time.

    The one statement that takes is exact by itself; the time before it says when this call happened. Who is overtaken
    by the opening of a later window counts in that one: no window is ever opened again.
    """
    if amount > limit:
        return False
    [(now,)] = await on.query(NOW)
    return bool(await on.execute(TAKE, name, _start_us(now, window_us), amount, limit - amount))


def _start_us(now: object, window_us: int) -> int:
    assert isinstance(now, datetime)
    return (now - EPOCH) // MICROSECOND // window_us * window_us
