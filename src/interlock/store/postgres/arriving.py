"""The way into a schema: a place beside it is made ready, and becomes the store in one transaction, or goes again.

A store that is there already must be empty: two stores are not made one, for the notes, the leases and the keys of the
API of each are about itself. Its tables are put aside when the draft begins, so that whoever has it open can neither
start a workflow there that would be in the way, nor claim one that has not arrived; they stay where they were put.

An engine that is alive at the source learns within a second that its workflows have left. Meanwhile an attempt of its
may be under way, so the workflow is held for that long: nobody begins it again, and no undo overtakes it (G5).

G8: no time may go back for a workflow. The database's clock may be behind the time of the source; then the arrival
waits until it is not, which is milliseconds among clocks that are kept, and a bound away from an error otherwise.
"""

# ruff: noqa: S608 -- the only name put into a statement is the schema's, which `address` has checked.

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import NamedTuple

from interlock.errors import BadUsage, MovedElsewhere, UnavailableError
from interlock.sql.postgres.address import Address
from interlock.sql.postgres.failures import told
from interlock.sql.postgres.link import Driver, Link, Record
from interlock.store.postgres.marks import ARRIVING, MOVED, Arriving, Marks, beside, draft_of, marks_of, moving_tables
from interlock.store.postgres.migrating import LOCK, make_store
from interlock.store.postgres.statement import micros

CLOCK_BEHIND_S_MAX = 5.0
"""How far the database's clock may be behind the source's. Nobody serves the workflows while it catches up."""

BY_NUMBER = "arriving_by_number"
"""An index that only a draft has."""

_MARK = """CREATE TABLE IF NOT EXISTS {schema}.workflows_arriving (
    epoch bigint PRIMARY KEY, source text NOT NULL, mover text NOT NULL DEFAULT '', turns bigint NOT NULL DEFAULT 0,
    complete boolean NOT NULL DEFAULT false, arrived boolean NOT NULL DEFAULT false, report text NOT NULL DEFAULT '',
    time_us bigint NOT NULL DEFAULT 0, skew_us bigint NOT NULL DEFAULT 0, held_us bigint NOT NULL DEFAULT 0,
    aside text NOT NULL DEFAULT '',
    begun_at timestamptz NOT NULL DEFAULT now())"""


_HOLD = """UPDATE {schema}.workflows SET lease_owner = $2, lease_until = now() + $1 * interval '1 microsecond'
WHERE wake_at IS NOT NULL AND wake_at <= now() AND position('"started":true'::bytea IN owed) > 0"""
"""By what the runtime writes of an attempt that has begun; a payload is not written in letters there."""

LEFT_BEHIND = "left behind"
"""Who holds a workflow whose attempt may still run where it came from. It renews nothing, so that this ends soon."""


class Begun(NamedTuple):
    """A draft that is ready."""

    fresh: bool
    """Nothing is in it yet."""
    arrived: bool
    """It has arrived already, by a move with this number."""


async def begin(link: Link, address: Address, *, epoch: int, source: str) -> Begun:
    """Make the draft, or find the one that an earlier mover has left. Raises BadUsage where something is in the way."""
    schema, draft = address.schema, draft_of(address)
    async with _transaction(link, f"interlock {schema}") as driver:
        present = await driver.fetch("SELECT FROM pg_catalog.pg_namespace WHERE nspname = $1", schema)
        await driver.execute(("" if present else f"CREATE SCHEMA {schema};") + _MARK.format(schema=schema))
        marks = await marks_of(driver.fetch, schema)
        if marks.arriving is not None:
            found = _known(marks.arriving, address, epoch=epoch, source=source)
            if found is not None:
                return found
            await driver.execute(f"DELETE FROM {schema}.{ARRIVING}")
        await refuse_used(driver, address, marks, epoch)
        aside = await _put_aside(driver, address, epoch) if marks.present else ""
        await driver.execute(f"CREATE SCHEMA {draft}")
        await driver.fetch(
            f"INSERT INTO {schema}.{ARRIVING} (epoch, source, aside) VALUES ($1, $2, $3)", epoch, source, aside
        )
        await make_store(driver, draft)
        await driver.execute(f"CREATE INDEX {BY_NUMBER} ON {draft}.workflows (number)")
    return Begun(fresh=True, arrived=False)


async def refuse_used(driver: Driver, address: Address, marks: Marks, epoch: int) -> None:
    """Raise BadUsage unless workflows may come here."""
    if marks.gone is not None and marks.gone.epoch >= epoch:
        raise MovedElsewhere(
            f"the workflows of {address.shown} have left with move {marks.gone.epoch}, which is later than move "
            f"{epoch}.",
            url=marks.gone.url,
            epoch=marks.gone.epoch,
        )
    if not marks.present:
        return
    rows = await driver.fetch(
        f"SELECT workflow_type, count(*) FROM {address.schema}.workflows GROUP BY 1 ORDER BY 1 LIMIT 10"
    )
    if rows:
        told_of = ", ".join(f"{count:,} of {machine!r}" for machine, count in rows)
        raise BadUsage(
            f"{address.shown} has workflows already: {told_of}.",
            why="Two stores are not made one: each has notes, leases and keys of its own, and may have used the same "
            "ids.",
            fix="Name an empty schema of the same database: ?schema=orders. One engine per schema may run beside "
            "another.",
        )


def _known(arriving: Arriving, address: Address, *, epoch: int, source: str) -> Begun | None:
    """What an earlier mover has left here; None when it is over and has nothing to do with this one."""
    if arriving.epoch == epoch and arriving.source == source:
        return Begun(fresh=False, arrived=arriving.arrived)
    if arriving.arrived:
        return None
    raise BadUsage(
        f"another move to {address.shown} is under way: number {arriving.epoch}, from {arriving.source}.",
        why="A schema is the target of one move at a time.",
        fix="Finish that one, or take it back with `interlock route --abandon`.",
    )


async def arrive(link: Link, address: Address, epoch: int) -> bool:
    """Let the draft of that move be the store. Only for who has seen the source's tombstone. False: it was before."""
    schema, draft = address.schema, draft_of(address)
    coming = _draft_in(await marks_of(_reading(link), schema), epoch)
    if coming is None:
        return False
    await _wait_for_clock(link, coming.time_us, address.shown)
    async with _transaction(link, f"interlock {schema}") as driver:
        marks = await marks_of(driver.fetch, schema)
        if _draft_in(marks, epoch) is None:  # Since the first look another process may have let it arrive.
            return False
        held = f"SELECT skew_us, held_us FROM {schema}.{ARRIVING} WHERE epoch = $1 FOR UPDATE"
        rows = await driver.fetch(held, epoch)
        await refuse_used(driver, address, marks._replace(gone=None), epoch)
        if marks.present:
            await _put_aside(driver, address, epoch, "made")
        # A lease ends by the clock of whoever keeps it: it is as long as it was promised, not as long ago.
        await driver.fetch(
            f"UPDATE {draft}.leases SET until = until + $1 * interval '1 microsecond' WHERE until IS NOT NULL",
            rows[0][0],
        )
        if rows[0][1]:
            await driver.fetch(_HOLD.format(schema=draft), rows[0][1], LEFT_BEHIND)
        await driver.execute(f"""
SELECT setval('{draft}.workflow_numbers', greatest(1, (SELECT max(number) FROM {draft}.workflows)));
DROP INDEX {draft}.{BY_NUMBER};
{moving_tables(draft, schema)}
DROP SCHEMA {draft};
DROP TABLE IF EXISTS {schema}.{MOVED};
UPDATE {schema}.{ARRIVING} SET arrived = true, mover = '' WHERE epoch = {epoch};""")
    return True


async def take_back(link: Link, address: Address, epoch: int, mover: str) -> bool:
    """Let nobody else go on with a draft. Whether it was complete: then its source may be leaving at this moment."""
    async with _transaction(link, f"interlock {address.schema}") as driver:
        if _draft_in(await marks_of(driver.fetch, address.schema), epoch) is None:
            return False
        taken = f"UPDATE {address.schema}.{ARRIVING} SET mover = $1 WHERE epoch = $2 AND NOT arrived RETURNING complete"
        return any(row[0] for row in await driver.fetch(taken, mover, epoch))


async def throw_away(link: Link, address: Address, epoch: int, mover: str) -> bool:
    """Take a draft back, and put the store that was there before in its place again. False: there is none.

    Only for who has made it theirs (`take_back`), and knows since then that the source has not left.
    """
    schema, draft = address.schema, draft_of(address)
    async with _transaction(link, f"interlock {schema}") as driver:
        if _draft_in(await marks_of(driver.fetch, schema), epoch) is None:
            return False
        rows = await driver.fetch(f"SELECT aside, mover FROM {schema}.{ARRIVING} WHERE epoch = $1 FOR UPDATE", epoch)
        if rows[0][1] != mover:
            raise UnavailableError(
                f"another mover has taken over the move to {address.shown}.",
                why="It goes on with the draft, and the workflows may have left by now: nothing was thrown away.",
                fix="Look for the other mover; take the move back again when there is none.",
            )
        await driver.execute(f"DROP SCHEMA IF EXISTS {draft} CASCADE; DROP TABLE {schema}.{ARRIVING};")
        if rows[0][0]:
            await driver.execute(f"{moving_tables(rows[0][0], schema)} DROP SCHEMA {rows[0][0]};")
    return True


def _draft_in(marks: Marks, epoch: int) -> Arriving | None:
    arriving = marks.arriving
    return None if arriving is None or arriving.epoch != epoch or arriving.arrived else arriving


@contextlib.asynccontextmanager
async def trial(link: Link, address: Address) -> AsyncGenerator[str]:
    """A schema with the tables of a draft, to measure in: it is never committed."""
    schema, driver = beside(address, "trial"), link.driver
    with told(writing=False):
        await driver.execute("BEGIN")
        try:
            await driver.execute(f"CREATE SCHEMA {schema}")
            await make_store(driver, schema)
            await driver.execute(f"CREATE INDEX {BY_NUMBER} ON {schema}.workflows (number)")
            yield schema
        finally:
            if link.usable:
                await driver.execute("ROLLBACK")


async def _put_aside(driver: Driver, address: Address, epoch: int, what: str = "before") -> str:
    """Take the tables of an empty store out of the way; they are kept."""
    aside = beside(address, f"{what}_{epoch}")
    await driver.execute(f"CREATE SCHEMA {aside}; {moving_tables(address.schema, aside)}")
    return aside


async def _wait_for_clock(link: Link, time_us: int, shown: str) -> None:
    [(now_us,)] = await link.read(f"SELECT {micros('clock_timestamp()')}", ())
    behind_s = (time_us - int(now_us)) / 1_000_000
    refuse_behind(behind_s, shown)
    if behind_s > 0:
        await asyncio.sleep(behind_s)


def refuse_behind(behind_s: float, shown: str) -> None:
    """Raise UnavailableError when the database's clock is so far behind that nobody would wait for it."""
    if behind_s > CLOCK_BEHIND_S_MAX:
        raise UnavailableError(
            f"the clock of {shown} is {behind_s:.1f} s behind the time of the workflows.",
            why="Times in a history never go back, so the workflows would have to wait until it has caught up.",
            fix=f"Set the clocks right (NTP), or come again when they are less than {CLOCK_BEHIND_S_MAX:g} s apart.",
        )


def _reading(link: Link) -> Callable[..., Awaitable[list[Record]]]:
    async def read(sql: str, *values: object) -> list[Record]:
        return await link.read(sql, values)

    return read


@contextlib.asynccontextmanager
async def _transaction(link: Link, lock: str) -> AsyncGenerator[Driver]:
    """A transaction that no migration of the schema, and no other step of a move, runs beside."""
    driver = link.driver
    with told(writing=False):
        await driver.execute("BEGIN")
    try:
        with told(writing=False):
            await driver.fetch(LOCK, lock)
            yield driver
    except BaseException:
        if link.usable:
            with contextlib.suppress(Exception):  # What it was about is told by the error that is on its way.
                await driver.execute("ROLLBACK")
        raise
    with told(writing=True):
        await driver.execute("COMMIT")
