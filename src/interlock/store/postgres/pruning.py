"""Pruning in PostgreSQL: a batch is one statement, and safe beside any number of engines.

It reads `limit` rows by `workflows_by_state`, locks those that match and are not locked, and deletes them with their
history. A final workflow gets no further history, so none is left over. Plain deletes
in the order of age are followed by autovacuum; decision 0008 has the figures, and why there are no partitions.
"""

# ruff: noqa: S608 -- the only name put into a statement is the schema's, which `address` has checked.

from collections.abc import Awaitable, Callable, Sequence

from interlock.sql.postgres.link import Record
from interlock.store.cursors import Cursor
from interlock.store.postgres.statement import micros, moment
from interlock.store.pruning import Batch, Old

BEFORE_ALL = Cursor(-(2**52), 0)


class PostgresPruning:
    """The way out of one schema."""

    def __init__(self, schema: str, write: Callable[[str, Sequence[object]], Awaitable[list[Record]]]) -> None:
        self._schema = schema
        self._write = write

    async def batch(self, old: Old, *, after: Cursor | None, limit: int, dry_run: bool = False) -> Batch:
        """Look at the next workflows and remove those that may go."""
        values = (old.machine, old.state, *(after or BEFORE_ALL), old.before_us, limit)
        [(ids, events, looked, entered_us, number)] = await self._write(self._statement(old, dry_run=dry_run), values)
        return Batch(tuple(ids), events, Cursor(entered_us, number) if looked == limit else None)

    def _statement(self, old: Old, *, dry_run: bool) -> str:
        schema = self._schema
        conditions = ["w.state = $2", "NOT w.active", "w.wake_at IS NULL"]
        if not old.owing:
            # Hashed: effects have no index by workflow, and only owed ones exist.
            conditions += [
                f"(w.id IN (SELECT workflow_id FROM {schema}.workflow_effects)) IS NOT TRUE",
                f"NOT EXISTS (SELECT FROM {schema}.dead_letters d WHERE d.workflow_id = w.id)",
            ]
        if old.history_only:
            conditions.append(f"EXISTS (SELECT FROM {schema}.workflow_events e WHERE e.workflow_id = w.id)")
        lock = "" if dry_run else "FOR UPDATE OF w SKIP LOCKED"
        history = f"FROM {schema}.workflow_events e"
        parts = [
            f"""looked AS MATERIALIZED (
    SELECT w.id, w.entered_at, w.number FROM {schema}.workflows w
    WHERE w.workflow_type = $1 AND w.state = $2 AND w.entered_at < {moment("$5::bigint")}
    AND (w.entered_at, w.number) > ({moment("$3::bigint")}, $4) ORDER BY w.entered_at, w.number LIMIT $6)""",
            f"""chosen AS MATERIALIZED (
    SELECT w.id FROM looked l JOIN {schema}.workflows w ON w.id = l.id
    WHERE {" AND ".join(conditions)} {lock})""",
            f"events AS (SELECT 1 {history} JOIN chosen c ON e.workflow_id = c.id)"
            if dry_run
            else f"events AS (DELETE {history} USING chosen c WHERE e.workflow_id = c.id RETURNING 1)",
        ]
        if not dry_run and not old.history_only:
            parts.append(f"gone AS (DELETE FROM {schema}.workflows w USING chosen c WHERE w.id = c.id)")
            if old.owing:
                parts += [
                    f"{table}_gone AS (DELETE FROM {schema}.{table} o USING chosen c WHERE o.workflow_id = c.id)"
                    for table in ("workflow_effects", "dead_letters")
                ]
        return f"""WITH {", ".join(parts)}
SELECT ARRAY(SELECT id FROM chosen), (SELECT count(*) FROM events), count(*), {micros("max(entered_at)")},
    (array_agg(number ORDER BY entered_at DESC, number DESC))[1] FROM looked"""
