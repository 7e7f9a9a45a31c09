"""From an address to a store in PostgreSQL: the schema is brought up to date, the clock is heard, nothing else is kept.

One connection is opened, because an address that cannot be reached is best found now; the others come when they are
needed.
"""

from interlock.lanes.settings import LaneSettings
from interlock.seams import Clock
from interlock.sql.postgres.address import parsed
from interlock.sql.postgres.pool import Pool
from interlock.store.postgres.migrating import migrated
from interlock.store.postgres.store import PostgresStore
from interlock.store.shared import SharedStore


async def open_postgres(url: str, *, clock: Clock, lease_s: float = LaneSettings().lease_s) -> SharedStore:
    """Open the store at an address.

    Raises BadUsage for a wrong one, UnavailableError when the server cannot be reached, and UnusableFile for a schema
    that a later version of Interlock has made.
    """
    pool = Pool(parsed(url))
    store = PostgresStore(pool, clock, lease_s)
    try:
        async with pool.link() as link:
            await migrated(link, pool.address)
        await store.begin()
    except BaseException:
        await pool.close()
        raise
    return store
