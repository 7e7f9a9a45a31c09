-- The tables of a store. Names are looked up in the schema of the address; every text that identifies something is
-- compared by its bytes, so that order is the same on every server.

-- Numbers workflows in the order of their creation, for pages.
CREATE SEQUENCE workflow_numbers;

-- One row per workflow (B1).
CREATE TABLE workflows (
    id text COLLATE "C" PRIMARY KEY,
    workflow_type text COLLATE "C" NOT NULL,
    state text COLLATE "C" NOT NULL,
    context jsonb NOT NULL,
    version bigint NOT NULL,
    created_at timestamptz NOT NULL,
    updated_at timestamptz NOT NULL,
    -- When the current state was entered, and at which version.
    entered_at timestamptz NOT NULL,
    visit bigint NOT NULL,
    machine_version bigint NOT NULL,
    -- Neither final nor resting: expected to move on.
    active boolean NOT NULL,
    -- When somebody has to look at it again, at the latest; nobody has to when it is null.
    wake_at timestamptz,
    -- When its next timer fires, which needs no worker with room.
    timer_at timestamptz,
    -- Who looks after it, until when, and the how-manieth claim that is (G4: a fencing token).
    lease_owner text COLLATE "C",
    lease_until timestamptz,
    lease_token bigint NOT NULL DEFAULT 0,
    -- Counts every write of the row; what was decided upon another one is lost (B2).
    revision bigint NOT NULL,
    -- Of the group that wrote it last.
    envelope uuid,
    number bigint NOT NULL,
    duplicates bigint NOT NULL,
    ignored bigint NOT NULL,
    refused bigint NOT NULL,
    digest bytea NOT NULL,
    -- What the engine owes it: its running step, its timers, its undo log.
    owed bytea NOT NULL,
    -- The context letter by letter, where jsonb would not give it back like that: another order of keys, 1e22, -0.0.
    context_written text
) WITH (
    -- Room in each page for the next version of its rows.
    fillfactor = 70,
    -- A row is written many times: clean up after one in fifty instead of one in five, and do not pause for long.
    autovacuum_vacuum_scale_factor = 0.02,
    autovacuum_analyze_scale_factor = 0.02,
    autovacuum_vacuum_cost_delay = 1
);
-- `find` by machine, in the order of creation.
CREATE UNIQUE INDEX workflows_by_type ON workflows (workflow_type, number);
-- `find` by state in the order of arrival, and `stalled`.
CREATE INDEX workflows_by_state ON workflows (workflow_type, state, entered_at, number);
-- Claims. What somebody looks after is out of sight until the lease is over.
CREATE INDEX workflows_to_wake ON workflows (workflow_type, (greatest(wake_at, lease_until)))
WHERE wake_at IS NOT NULL;

-- Claims of workers without room: timers do not wait behind steps.
CREATE INDEX workflows_by_timer ON workflows (workflow_type, timer_at) WHERE timer_at IS NOT NULL;

-- One row per transition (B1), only ever added to.
CREATE TABLE workflow_events (
    id bigint GENERATED ALWAYS AS IDENTITY,
    workflow_id text COLLATE "C" NOT NULL,
    version bigint NOT NULL,
    from_state text COLLATE "C" NOT NULL,
    to_state text COLLATE "C" NOT NULL,
    event text COLLATE "C" NOT NULL,
    -- Null when the event has none.
    payload jsonb,
    context jsonb NOT NULL,
    created_at timestamptz NOT NULL,
    -- The delivery key, and the digest of what came with it (B5).
    key text COLLATE "C",
    key_digest bytea,
    -- Of the group that it was written with, by which an unknown outcome is resolved (G9).
    envelope uuid,
    payload_written text,
    context_written text,
    PRIMARY KEY (workflow_id, version)
) WITH (
    -- After one in twenty rows was added or pruned, so that room is found again soon and reads stay in the index.
    autovacuum_vacuum_insert_scale_factor = 0.05,
    autovacuum_vacuum_scale_factor = 0.05,
    autovacuum_analyze_scale_factor = 0.05
);
CREATE UNIQUE INDEX workflow_events_by_key ON workflow_events (workflow_id, key) WHERE key IS NOT NULL;

-- Side messages that are owed (B12); a row goes when its message is done.
CREATE TABLE workflow_effects (
    id text COLLATE "C" PRIMARY KEY,
    workflow_id text COLLATE "C" NOT NULL,
    version bigint NOT NULL,
    name text NOT NULL,
    attempts bigint NOT NULL,
    wake_at timestamptz NOT NULL,
    lease_owner text COLLATE "C",
    lease_until timestamptz,
    context json
) WITH (autovacuum_vacuum_scale_factor = 0.0, autovacuum_vacuum_threshold = 10000);
-- Pages and claims. The few that somebody is just trying are passed over, so their leases need no index.
CREATE INDEX workflow_effects_to_wake ON workflow_effects (wake_at, id);

-- What gave up and waits for a person.
CREATE TABLE dead_letters (
    id text COLLATE "C" PRIMARY KEY,
    kind text COLLATE "C" NOT NULL,
    workflow_id text COLLATE "C" NOT NULL,
    name text NOT NULL,
    attempts bigint NOT NULL,
    error text NOT NULL,
    since timestamptz NOT NULL,
    version bigint NOT NULL,
    key text NOT NULL,
    context json
);
CREATE INDEX dead_letters_by_age ON dead_letters (since, id);
-- Pruning, which leaves a workflow alone that a person has to look at.
CREATE INDEX dead_letters_by_workflow ON dead_letters (workflow_id);

-- Who may do something, one at a time (C10). A row stays when its lease is released, so that its token only ever grows.
CREATE TABLE leases (
    name text COLLATE "C" PRIMARY KEY,
    owner text COLLATE "C" NOT NULL,
    token bigint NOT NULL,
    -- When it was given to the owner, and when it ends; null: it was released.
    since timestamptz NOT NULL,
    until timestamptz
) WITH (
    -- Few rows that are written all the time: each finds room for its next version in its own page.
    fillfactor = 50,
    autovacuum_vacuum_scale_factor = 0.0,
    autovacuum_vacuum_threshold = 1000
);

-- What the engine must know of its own past.
CREATE TABLE notes (name text COLLATE "C" PRIMARY KEY, text text NOT NULL);

-- For people: where workflows are and how long they have been there.
CREATE VIEW workflow_states AS
SELECT workflow_type, machine_version, state, count(*) AS workflows, min(entered_at) AS longest_since
FROM workflows GROUP BY workflow_type, machine_version, state;

-- For people: what somebody looks after at this moment.
CREATE VIEW workflow_leases AS
SELECT id, workflow_type, state, lease_owner, lease_until, lease_token, wake_at
FROM workflows WHERE lease_until > now();

-- For people: what is due and nobody has claimed; a long list means too few workers.
CREATE VIEW workflows_due AS
SELECT id, workflow_type, state, greatest(wake_at, lease_until) AS due_at
FROM workflows WHERE wake_at IS NOT NULL AND greatest(wake_at, lease_until) <= now();
