"""The queries of a store, each with the index that serves it.

The texts are made once per schema, so that each is prepared once per connection.
"""

# ruff: noqa: S608 -- the only name put into a statement is the schema's, which `address` has checked.

from interlock.store.postgres.columns import EFFECTS, HAPPENED, LETTERS, ROW, row_of_table
from interlock.store.postgres.statement import micros, moment


class Queries:
    """The questions, for one schema."""

    def __init__(self, schema: str) -> None:
        self.time = f"SELECT {micros('clock_timestamp()')}"
        # By the primary key, however many ids there are.
        self.load = f"SELECT {ROW} FROM {schema}.workflows WHERE id = ANY($1::text[])"
        # By workflow_events_by_key.
        self.delivered = f"""
SELECT e.workflow_id, e.key, e.version, e.to_state, e.key_digest
FROM unnest($1::text[], $2::text[]) AS k(workflow_id, key)
JOIN {schema}.workflow_events e ON e.workflow_id = k.workflow_id AND e.key = k.key"""
        self.history = f"""
SELECT {HAPPENED} FROM {schema}.workflow_events
WHERE workflow_id = $1 AND version > $2 ORDER BY version LIMIT $3"""
        # By workflows_by_type.
        self.find = f"""
SELECT {ROW}, number FROM {schema}.workflows
WHERE workflow_type = $1 AND number > $2 ORDER BY number LIMIT $3"""
        # By workflows_by_state, and so is `stalled`: as many rows of each state as are wanted of all.
        self.find_in_state = f"""
SELECT {ROW}, number FROM {schema}.workflows
WHERE workflow_type = $1 AND state = $2 AND (entered_at, number) > ({moment("$3::bigint")}, $4)
ORDER BY entered_at, number LIMIT $5"""
        self.stalled = f"""
SELECT found.* FROM unnest($2::text[], $3::bigint[]) AS s(state, before_us)
CROSS JOIN LATERAL (
    SELECT {row_of_table("w")}, w.number, w.entered_at AS since FROM {schema}.workflows w
    WHERE w.workflow_type = $1 AND w.state = s.state AND w.active AND w.entered_at < {moment("s.before_us")}
    ORDER BY w.entered_at, w.number LIMIT $4
) found ORDER BY found.since, found.number LIMIT $4"""
        # By workflow_effects_to_wake and dead_letters_by_age.
        self.effects = f"""
SELECT {EFFECTS} FROM {schema}.workflow_effects
WHERE (wake_at, id) > ({moment("$1::bigint")}, $2) ORDER BY wake_at, id LIMIT $3"""
        self.letters = f"""
SELECT {LETTERS} FROM {schema}.dead_letters
WHERE (since, id) > ({moment("$1::bigint")}, $2) AND ($3::text IS NULL OR kind = $3) ORDER BY since, id LIMIT $4"""
        # A sample of 100 %, to read the table from the first page to the last. These connections disable sequential
        # scans, and an index scan would read pages in random order.
        self.living = f"""
SELECT workflow_type, machine_version, state, count(*) FROM {schema}.workflows TABLESAMPLE SYSTEM (100)
GROUP BY workflow_type, machine_version, state"""
        self.note = f"""
INSERT INTO {schema}.notes (name, text) VALUES ($1, $2)
ON CONFLICT (name) DO UPDATE SET text = excluded.text"""
        self.noted = f"SELECT name, text FROM {schema}.notes"
