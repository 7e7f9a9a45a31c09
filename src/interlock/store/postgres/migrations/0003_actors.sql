-- Who caused a move (F1): the caller's `by`, or the API key of a request. Rows from before have none. Adding a column
-- without a default rewrites nothing, and processes of an earlier release, which name their columns, go on beside it.
ALTER TABLE workflow_events ADD COLUMN actor text;

COMMENT ON COLUMN workflow_events.actor IS 'Who caused it, where a caller has named one; null for the machine''s own.';
