"""Statements inside a transaction of the caller: the workflow, its delivery key, and the grouped statement.

The row is locked first, and waited for: in the caller's own transaction it is the caller who waits, by the caller's own
`lock_timeout`. The key is looked up in a later statement of its own, because a statement sees what was committed
when it began, which is before the wait. Then the group of one change is written as any other, by the same statement,
but without its bound on waiting: that is a setting, and would stay for the rest of the caller's transaction.
"""

# ruff: noqa: S608 -- the only name put into a statement is the schema's, which `address` has checked.

from interlock.store.postgres import columns
from interlock.store.postgres.hints import LEFT, channel
from interlock.store.postgres.statement import group_statement, micros
from interlock.store.postgres.writing import NO_HOLDER, values_of
from interlock.store.transactional import Asking, Found
from interlock.store.values import KEEP, Change, Delivered


class PostgresTransactions:
    """The statements for one schema."""

    def __init__(self, schema: str) -> None:
        self._schema = schema
        row = columns.row_of_table("w")
        workflow = f"SELECT {{}} FROM {schema}.workflows w WHERE w.id = $1::text"
        # The time is taken when the row is locked, and is there when the row is not.
        time = f"SELECT {micros('clock_timestamp()')}, l.* FROM (VALUES (1)) AS one LEFT JOIN l ON true"
        self._load = f"WITH l AS MATERIALIZED ({workflow.format(row)}) {time}"
        self._lock = f"WITH l AS MATERIALIZED ({workflow.format(row)} FOR NO KEY UPDATE) {time}"
        self._delivered = f"""SELECT e.version, e.to_state, e.key_digest FROM {schema}.workflow_events e
WHERE e.workflow_id = $1::text AND e.key = $2::text"""
        self._hint = f", pg_notify('{channel(schema)}', '{{}}')::text"

    def load(self, workflow: str, *, lock: bool) -> Asking[Found]:
        """Load the workflow; with `lock` its row is locked until the transaction ends."""
        [(now_us, *values)] = yield self._lock if lock else self._load, (workflow,)
        row = None if values[0] is None else columns.row_of(values)
        return Found(now_us, row)

    def delivered(self, workflow: str, key: str) -> Asking[Delivered | None]:
        """Load the recorded use of the key."""
        rows = yield self._delivered, (workflow, key)
        return columns.delivered_of(*rows[0]) if rows else None

    def noted(self) -> Asking[dict[str, str]]:
        """The notes of the store, by their names."""
        rows = yield f"SELECT n.name, n.text FROM {self._schema}.notes n", ()
        return {row[0]: row[1] for row in rows}

    def write(self, change: Change, *, hint: bool) -> Asking[bool]:
        """Write the change; return False when another writer was faster, and nothing was written."""
        parts = columns.parts_of([change])
        statement = group_statement(self._schema, parts, bounded=False)
        hint_sql = self._hint.format(LEFT if change.hold == KEEP else "") if hint else ""
        [row] = yield statement + hint_sql, values_of([change], parts, NO_HOLDER)
        return not row[1]
