"""Resolution of a group whose outcome is unknown (G9). The answer is final.

The connection was lost, and the statement may have been carried out, may be waiting in a pooler, or may be running at
this moment. A read alone is not enough: the first try could overtake a second decision. The rows that are
still at the revision that was decided upon are written: their revision goes up, and the first try, however late it
comes, finds another one and is lost. That waits for a row that the first try is just writing. Of the rows that have
moved on, the envelope in history shows whether the group moved them, and so does the row itself until its next write. A
change without history that was overwritten since counts as not committed: reports of attempts and effects name the
attempt, so that deciding it again does nothing twice.
"""

# ruff: noqa: S608 -- the only name put into a statement is the schema's, which `address` has checked.

from collections.abc import Sequence

from interlock.errors import UnavailableError
from interlock.sql.postgres.failures import Blocked
from interlock.sql.postgres.pool import Pool
from interlock.store.postgres.marks import beside
from interlock.store.postgres.statement import moment
from interlock.store.values import Change

_HAPPENED = """
SELECT k.id FROM unnest($1::text[], $2::bigint[]) AS k(id, version)
LEFT JOIN {schema}.workflow_events e ON e.workflow_id = k.id AND e.version = k.version
LEFT JOIN {schema}.workflows w ON w.id = k.id
WHERE e.envelope = $3::uuid OR w.envelope = $3::uuid"""

LOCK_WAIT_MS = 2_000
"""Milliseconds that it waits for rows that another transaction is writing."""


class Settling:
    """Asks, for one schema."""

    def __init__(self, pool: Pool) -> None:
        schema = pool.address.schema
        self._pool = pool
        self._happened = _HAPPENED.format(schema=schema)
        self._fence = f"""
WITH asked AS MATERIALIZED (
    SELECT k.*, set_config('lock_timeout', '{LOCK_WAIT_MS}ms', true)
    FROM unnest($1::text[], $2::bigint[], $3::bigint[]) AS k(id, expected, created_us)),
locked AS MATERIALIZED (
    SELECT w.id, k.expected FROM asked k JOIN {schema}.workflows w ON w.id = k.id
    WHERE k.expected > 0 AND w.created_at = {moment("k.created_us")} ORDER BY w.id FOR NO KEY UPDATE OF w)
UPDATE {schema}.workflows w SET revision = w.revision + 1 FROM locked l WHERE w.id = l.id AND w.revision = l.expected
RETURNING w.id"""

    async def settle(self, changes: Sequence[Change], envelope: str) -> set[str]:
        """Which of the changes have happened."""
        ids = [change.row.id for change in changes]
        try:
            created = [change.row.created_us for change in changes]
            rows = await self._pool.write(self._fence, (ids, [change.expected for change in changes], created))
        except Blocked as blocked:
            raise UnavailableError(
                "another transaction has locked a workflow of a group whose outcome is unknown.",
                why="The outcome can be read only after that transaction has ended.",
                fix="It is tried again; keep transactions that send events short.",
            ) from blocked
        fenced = {row[0] for row in rows}
        left = [change for change in changes if change.row.id not in fenced]
        return await self._found(self._happened, left, envelope)

    async def look_aside(self, changes: Sequence[Change], envelope: str, epoch: int) -> set[str]:
        """Resolve a group of workflows that have left with a move, from the tables that were put aside unchanged."""
        aside = beside(self._pool.address, f"moved_{epoch}")
        return await self._found(_HAPPENED.format(schema=aside), changes, envelope)

    async def _found(self, sql: str, changes: Sequence[Change], envelope: str) -> set[str]:
        if not changes:
            return set()
        found = await self._pool.read(
            sql,
            [change.row.id for change in changes],
            [change.history[-1].version if change.history else None for change in changes],
            envelope,
        )
        return {row[0] for row in found}
