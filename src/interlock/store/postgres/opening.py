"""Opening a store in PostgreSQL: migrate the schema, then read the database's clock.

Moved workflows raise MovedElsewhere, which the caller follows; arriving ones raise UnavailableError. A caller that
followed a tombstone may finish an arrival whose mover died.

One connection is opened, because an address that cannot be reached is best found now; the others come when they are
needed.
"""

from interlock.lanes.settings import LaneSettings
from interlock.seams import Clock
from interlock.sql.postgres.address import Address, parsed
from interlock.sql.postgres.link import Link, Record
from interlock.sql.postgres.pool import Pool
from interlock.store.postgres.arriving import arrive
from interlock.store.postgres.marks import marks_of, refuse_marked
from interlock.store.postgres.migrating import migrated
from interlock.store.postgres.store import PostgresStore
from interlock.store.shared import SharedStore


async def open_postgres(
    url: str, *, clock: Clock, lease_s: float = LaneSettings().lease_s, epoch: int | None = None
) -> SharedStore:
    """Open the store at an address; `epoch` is that of the tombstone which led here.

    Raises BadUsage for a wrong one, UnavailableError when the server cannot be reached or workflows are on their way to
    it, MovedElsewhere when they have left, and UnusableFile for a schema that a later version of Interlock has made.
    """
    pool = Pool(parsed(url))
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


async def _refuse_marked(link: Link, address: Address) -> None:
    async def read(sql: str, *values: object) -> list[Record]:
        return await link.read(sql, values)

    refuse_marked(await marks_of(read, address.schema), address.shown)
