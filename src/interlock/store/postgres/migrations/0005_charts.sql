-- Charts over time (F7): what happened per machine, state and minute, added up by all processes; hours after a day.
CREATE TABLE workflow_charts (
    id text COLLATE "C" PRIMARY KEY,
    span_s bigint NOT NULL,
    since timestamptz NOT NULL,
    machine text NOT NULL,
    state text NOT NULL,
    moves bigint NOT NULL,
    started bigint NOT NULL,
    entered bigint NOT NULL,
    exited bigint NOT NULL,
    dwells bigint NOT NULL,
    dwell_us bigint NOT NULL,
    dwell_max_us bigint NOT NULL,
    failed bigint NOT NULL,
    refused bigint NOT NULL,
    dead_letters bigint NOT NULL,
    waiting bigint
);

-- The charts of a span of time.
CREATE INDEX workflow_charts_by_time ON workflow_charts (since);

COMMENT ON TABLE workflow_charts IS 'What happened per machine, state and minute (span_s 60) or hour (span_s 3600).';
COMMENT ON COLUMN workflow_charts.state IS 'Empty: the machine as a whole.';
COMMENT ON COLUMN workflow_charts.dwells IS 'How many of those that left were measured.';
COMMENT ON COLUMN workflow_charts.dwell_us IS 'How long these had been in the state, together.';
COMMENT ON COLUMN workflow_charts.waiting IS 'Due work that had not begun, of all processes; null: not sampled.';
