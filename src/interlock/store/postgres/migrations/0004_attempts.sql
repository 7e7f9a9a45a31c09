-- Attempts that have ended since the row of history before (B17), as JSON. Rows from before have none. Adding a column
-- without a default rewrites nothing, and processes of an earlier release, which name their columns, go on beside it.
ALTER TABLE workflow_events ADD COLUMN attempts bytea;

COMMENT ON COLUMN workflow_events.attempts IS 'Attempts that have ended since the row before, as JSON; null without any.';
