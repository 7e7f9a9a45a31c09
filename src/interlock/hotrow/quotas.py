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

USED = "SELECT starts_us, used FROM hotrow_quota WHERE name = $1"
USE = "UPDATE hotrow_quota SET starts_us = $2, used = $3 WHERE name = $1"
FIRST_USE = (
    "INSERT INTO hotrow_quota (name, starts_us, used) VALUES ($1, $2, $3) "
    "ON CONFLICT (name) DO UPDATE SET starts_us = excluded.starts_us, used = excluded.used"
)
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
        named = key_of("quota", self.name, key)
        return await self._db.transact(_take, self.name, amount, self.limit, self._window_us, key=named)

    async def left(self) -> int:
        """How many can be taken in the present window."""
        await ready(self._db, "hotrow_quota")
        starts_us, used = await self._db.transact(_present, self.name, self._window_us)
        del starts_us
        return max(0, self.limit - used)

    async def resets_at(self) -> datetime:
        """When the present window ends, by the database's clock."""
        [(now,)] = await self._db.query(NOW)
        return EPOCH + timedelta(microseconds=_start_us(now, self._window_us) + self._window_us)


async def _take(tx: Statements, name: str, amount: int, limit: int, window_us: int) -> bool:
    starts_us, used = await _present(tx, name, window_us)
    if amount > limit - used:
        return False
    if not await tx.execute(USE, name, starts_us, used + amount):
        await tx.execute(FIRST_USE, name, starts_us, used + amount)
    return True


async def _present(tx: Statements, name: str, window_us: int) -> tuple[int, int]:
    """The window of this transaction's time, and what is used of it."""
    [(now,)] = await tx.query(NOW)
    starts_us = _start_us(now, window_us)
    rows = await tx.query(USED, name)
    if not rows:
        return starts_us, 0
    before_us, used = rows[0]
    assert isinstance(before_us, int)
    assert isinstance(used, int)
    # A transaction that began before the one that opened the row's window counts in that window: it comes later.
    return (starts_us, 0) if before_us < starts_us else (before_us, used)


def _start_us(now: object, window_us: int) -> int:
    assert isinstance(now, datetime)
    return (now - EPOCH) // MICROSECOND // window_us * window_us
