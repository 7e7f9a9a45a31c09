"""Arrival of workflows in a schema: a draft beside it becomes the store in one transaction, or is removed.

A store that is there already must be empty: two stores are not made one, for the notes, the leases and the keys of the
API of each are its own. Its tables are put aside when the draft begins, so that an engine that has it open can neither
start a conflicting workflow there, nor claim one that has not arrived. They are kept aside.

An engine that is alive at the source learns within a second that its workflows have left. Meanwhile an attempt of its
may be running, so the workflow is leased for that long: no engine begins it again, and no undo overtakes it (G5).

G8: no time may go back for a workflow. If the database's clock is earlier than the source's, the arrival waits for it:
milliseconds with synchronised clocks. Above a bound it raises an error.
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
"""Seconds that the database's clock may lag the source's. No engine serves the workflows while it catches up."""

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
"""Matches the bytes that the runtime writes for a started attempt; a payload cannot contain them as plain text."""

LEFT_BEHIND = "left behind"
"""Lease owner of a workflow whose attempt may still run at the source. It never renews, so the lease ends soon."""


class Begun(NamedTuple):
    """A draft that is ready."""

    fresh: bool
    """It is still empty."""
    arrived: bool
    """It has arrived already, by a move with this number."""


async def begin(link: Link, address: Address, *, epoch: int, source: str) -> Begun:
    """Create the draft, or find the one of an earlier mover. Raises BadUsage where the target is in use."""
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
    """Return the draft of an earlier mover; None for a completed move of another number."""
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
    """Make the draft of that move the store; return False if it was before. Requires the source's tombstone."""
    schema, draft = address.schema, draft_of(address)
    coming = _draft_in(await marks_of(_reading(link), schema), epoch)
    if coming is None:
        return False
    await _wait_for_clock(link, coming.time_us, address.shown)
    async with _transaction(link, f"interlock {schema}") as driver:
        marks = await marks_of(driver.fetch, schema)
        if _draft_in(marks, epoch) is None:  # Since the first look another process may have let it arrive.
            return False
        lock_mark = f"SELECT skew_us, held_us FROM {schema}.{ARRIVING} WHERE epoch = $1 FOR UPDATE"
        rows = await driver.fetch(lock_mark, epoch)
        await refuse_used(driver, address, marks._replace(gone=None), epoch)
        if marks.present:
            await _put_aside(driver, address, epoch, "made")
        # A lease ends by the clock of its keeper: shift it, so that it keeps its remaining time.
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
    """Take a draft over from other movers. Return whether it was complete: then its source may be leaving."""
    async with _transaction(link, f"interlock {address.schema}") as driver:
        if _draft_in(await marks_of(driver.fetch, address.schema), epoch) is None:
            return False
        taken = f"UPDATE {address.schema}.{ARRIVING} SET mover = $1 WHERE epoch = $2 AND NOT arrived RETURNING complete"
        return any(row[0] for row in await driver.fetch(taken, mover, epoch))


async def throw_away(link: Link, address: Address, epoch: int, mover: str) -> bool:
    """Remove a draft, and restore the previous store. Return False without a draft.

    Only after `take_back`, and after a check that the source has not left.
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
                fix="Look for the other mover; take the move back again when no mover runs.",
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
    """Create a schema with the tables of a draft, to measure in; it is never committed."""
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
    """Move the tables of an empty store aside; they are kept."""
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
    """Raise UnavailableError when the database's clock lags more than `CLOCK_BEHIND_S_MAX`."""
    if behind_s > CLOCK_BEHIND_S_MAX:
        raise UnavailableError(
            f"the clock of {shown} is {behind_s:.1f} s before the time of the workflows.",
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
            with contextlib.suppress(Exception):  # The error that is being raised is the cause.
                await driver.execute("ROLLBACK")
        raise
    with told(writing=True):
        await driver.execute("COMMIT")
