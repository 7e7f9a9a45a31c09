"""Claims of due workflows and effects by one process: leases on their rows.

A claim takes due rows without a lease, and skips rows that another claim has locked: two never get the same row. All
times are the database's. A claim raises the workflow's token and its revision, not its version: whatever an earlier
holder decided upon is lost when it is committed (G4), however late it arrives. A holder that renews in time keeps the
row; one that is silent past its lease is assumed dead, and the row is due again.

A lease belongs to one visit of a state: a commit that leaves the state ends it.
"""

# ruff: noqa: S608 -- the only name put into a statement is the schema's, which `address` has checked.

from collections.abc import Collection, Mapping, Sequence

from interlock.postgres.pool import Pool
from interlock.store.postgres import statement
from interlock.store.postgres.notify import DatabaseTime
from interlock.store.postgres.statement import micros
from interlock.store.protocol import Due, Stored
from interlock.store.values import OwedEffect, Row

CLAIMED_MAX = 1_000
"""The most that one claim takes."""

TIME = statement.ROW_WIDTH
"""Index of the database's time in the rows of a claim."""


class Claims:
    """Leases on rows of workflows."""

    def __init__(self, pool: Pool, time: DatabaseTime) -> None:
        schema = pool.address.schema
        self._pool = pool
        self._time = time
        due = "greatest(w.wake_at, w.lease_until)"
        taken = f"""ORDER BY {{}} LIMIT $3 FOR NO KEY UPDATE SKIP LOCKED)
UPDATE {schema}.workflows w
SET lease_owner = $2, lease_until = now() + $4 * interval '1 second', lease_token = w.lease_token + 1,
    revision = w.revision + 1
FROM due WHERE w.id = due.id
RETURNING {statement.row_of_table("w")}, {micros("clock_timestamp()")}"""
        # By workflows_to_wake, machine by machine: due workflows of a machine without an engine delay no others.
        self._claim = f"""
WITH due AS MATERIALIZED (
    SELECT w.id FROM {schema}.workflows w
    WHERE w.wake_at IS NOT NULL AND w.workflow_type = $1 AND {due} <= now()
    {{}}{taken.replace("{}", due)}"""
        # By workflows_by_state: undos do not wait for steps (C9).
        self._claim_in = f"""
WITH due AS MATERIALIZED (
    SELECT w.id FROM {schema}.workflows w
    WHERE w.wake_at IS NOT NULL AND w.workflow_type = $1 AND w.state = ANY($5::text[]) AND {due} <= now()
    {{}}{taken.replace("{}", due)}"""
        # By their key: what was parked is not due yet, and can go on.
        self._claim_named = f"""
WITH due AS MATERIALIZED (
    SELECT w.id FROM {schema}.workflows w
    WHERE w.id = ANY($5::text[]) AND w.wake_at IS NOT NULL AND w.workflow_type = $1
    AND (w.lease_until > now()) IS NOT TRUE
    {{}}{taken.replace("{}", "w.id")}"""
        # By workflows_by_timer.
        self._claim_timers = f"""
WITH due AS MATERIALIZED (
    SELECT w.id FROM {schema}.workflows w
    WHERE w.timer_at IS NOT NULL AND w.workflow_type = $1 AND w.timer_at <= now()
    AND (w.lease_until > now()) IS NOT TRUE
    {{}}{taken.replace("{}", "w.timer_at")}"""
        # By workflow_effects_to_wake.
        self._claim_effects = f"""
WITH due AS MATERIALIZED (
    SELECT e.id FROM {schema}.workflow_effects e
    WHERE e.wake_at <= now() AND (e.lease_until > now()) IS NOT TRUE AND EXISTS (
        SELECT FROM {schema}.workflows w WHERE w.id = e.workflow_id AND (w.workflow_type = ANY($4::text[])) IS TRUE
        {{}})
    ORDER BY e.wake_at, e.id LIMIT $2 FOR NO KEY UPDATE SKIP LOCKED)
UPDATE {schema}.workflow_effects e SET lease_owner = $1, lease_until = now() + $3 * interval '1 second'
FROM due WHERE e.id = due.id RETURNING {statement.effect_of_table("e")}"""
        self._due = f"""
SELECT {micros("clock_timestamp()")}, m.name, (
    SELECT {micros(due)} FROM {schema}.workflows w WHERE w.wake_at IS NOT NULL AND w.workflow_type = m.name
    ORDER BY {due} LIMIT 1),
    (SELECT {micros("e.wake_at")} FROM {schema}.workflow_effects e
     WHERE (e.lease_until > now()) IS NOT TRUE ORDER BY e.wake_at, e.id LIMIT 1)
FROM unnest($1::text[]) AS m(name)"""
        self._release_effects = f"""WITH {_held_effects(schema)}
UPDATE {schema}.workflow_effects e SET lease_until = NULL FROM held WHERE e.id = held.id"""
        self._renew_effects = f"""WITH {_held_effects(schema)}
UPDATE {schema}.workflow_effects e SET lease_until = now() + $3 * interval '1 second' FROM held WHERE e.id = held.id"""
        self._renew = f"""
WITH {_leased(schema)}, renewed AS (
    UPDATE {schema}.workflows w SET lease_until = now() + $4 * interval '1 second' FROM held WHERE w.id = held.id)
{_lost(schema)}"""
        self._release = f"""
WITH {_leased(schema)}, released AS (
    UPDATE {schema}.workflows w SET lease_until = NULL FROM held WHERE w.id = held.id)
{_lost(schema)}"""

    async def due(self, machines: Sequence[str]) -> Due:
        """Return when there is work to claim."""
        rows = await self._pool.read(self._due, list(machines))
        if not rows:
            return Due(self._time.now_us(), {}, None)
        self._time.heard(rows[-1][0])
        return Due(rows[-1][0], {row[1]: row[2] for row in rows if row[2] is not None}, rows[-1][3])

    async def claim(
        self,
        machine: str,
        *,
        owner: str,
        limit: int,
        lease_s: float,
        timers: bool = False,
        states: Sequence[str] = (),
        ids: Sequence[str] = (),
        refused: Collection[Stored] = (),
    ) -> list[Row]:
        """Claim up to `limit` due workflows without a lease, the longest due first."""
        values: list[object] = [machine, owner, min(limit, CLAIMED_MAX), lease_s]
        if ids:
            sql = self._claim_named
            values.append(list(ids))
        elif states:
            sql = self._claim_in
            values.append(list(states))
        else:
            sql = self._claim_timers if timers else self._claim
        rows = await self._pool.write(*_without(refused, sql, values))
        if rows:
            self._time.heard(rows[-1][TIME])
        claimed = [statement.row_of(row) for row in rows]
        return sorted(claimed, key=lambda row: (row.wake_us or 0, row.id))

    async def claim_effects(
        self, machines: Sequence[str], *, owner: str, limit: int, lease_s: float, refused: Collection[Stored] = ()
    ) -> list[OwedEffect]:
        """Claim up to `limit` due effects without a lease, soonest first."""
        values: list[object] = [owner, min(limit, CLAIMED_MAX), lease_s, list(machines)]
        rows = await self._pool.write(*_without(refused, self._claim_effects, values))
        return sorted(map(statement.effect_of, rows), key=lambda effect: (effect.wake_us, effect.id))

    async def renew(self, leases: Mapping[str, int], *, owner: str, lease_s: float) -> set[str]:
        """Renew the leases of workflows, by token; return those that this owner has lost.

        A row that is locked by a writer is neither renewed nor lost: no other engine can claim it meanwhile.
        """
        return await self._change(self._renew, leases, owner, lease_s)

    async def renew_effects(self, effects: Collection[str], *, owner: str, lease_s: float) -> None:
        """Renew the leases of this owner's running effects."""
        await self._pool.write(self._renew_effects, (list(effects), owner, lease_s))

    async def release_effects(self, effects: Collection[str], *, owner: str) -> None:
        """Release effects that this owner has claimed."""
        await self._pool.write(self._release_effects, (list(effects), owner))

    async def release(self, leases: Mapping[str, int], *, owner: str) -> set[str]:
        """Release the leases of workflows; return those that this owner had lost before."""
        return await self._change(self._release, leases, owner)

    async def _change(self, sql: str, leases: Mapping[str, int], *others: object) -> set[str]:
        if not leases:
            return set()
        rows = await self._pool.write(sql, (list(leases), list(leases.values()), *others))
        return {row[0] for row in rows}


def _without(refused: Collection[Stored], sql: str, values: Sequence[object]) -> tuple[str, tuple[object, ...]]:
    """Return a claim and its values; the condition on refused versions is added only if there are any."""
    if not refused:
        return sql.replace("{}", ""), (*values,)
    first = len(values) + 1
    besides = f"""AND NOT EXISTS (
        SELECT FROM unnest(${first}::text[], ${first + 1}::bigint[], ${first + 2}::text[]) AS r(machine, version, state)
        WHERE r.machine = w.workflow_type AND r.version = w.machine_version AND r.state = w.state)
    """
    return sql.replace("{}", besides), (*values, *map(list, zip(*refused, strict=True)))


def _leased(schema: str) -> str:
    return f"""held AS MATERIALIZED (
    SELECT w.id FROM unnest($1::text[], $2::bigint[]) AS h(id, token) JOIN {schema}.workflows w ON w.id = h.id
    WHERE w.lease_token = h.token AND w.lease_owner = $3 AND w.lease_until IS NOT NULL
    ORDER BY w.id FOR NO KEY UPDATE OF w SKIP LOCKED)"""


def _held_effects(schema: str) -> str:
    return f"""held AS MATERIALIZED (
    SELECT e.id FROM {schema}.workflow_effects e
    WHERE e.id = ANY($1::text[]) AND e.lease_owner = $2 AND e.lease_until IS NOT NULL
    ORDER BY e.id FOR NO KEY UPDATE SKIP LOCKED)"""


def _lost(schema: str) -> str:
    return f"""SELECT h.id FROM unnest($1::text[], $2::bigint[]) AS h(id, token)
LEFT JOIN {schema}.workflows w ON w.id = h.id
WHERE (w.lease_token = h.token AND w.lease_owner = $3 AND w.lease_until IS NOT NULL) IS NOT TRUE"""
