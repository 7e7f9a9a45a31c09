-- The children of workflows: which workflow started them, and whether it knows that they have ended. A row is written
-- with the start and with the end of the child, in the same commit, and by its parent with the commit that counts it.
CREATE TABLE workflow_children (
    id text COLLATE "C" PRIMARY KEY,
    parent text COLLATE "C" NOT NULL,
    visit bigint NOT NULL,
    position bigint NOT NULL,
    state text NOT NULL,
    stage smallint NOT NULL
);

-- One page of a workflow's children, in the order of their declaration.
CREATE INDEX workflow_children_by_parent ON workflow_children (parent, visit, position);
-- The ends that a parent has not counted.
CREATE INDEX workflow_children_to_count ON workflow_children (parent, visit, position) WHERE stage = 1;

COMMENT ON TABLE workflow_children IS 'The children of each workflow, by the visit of its state that started them.';
COMMENT ON COLUMN workflow_children.state IS 'The state in which the child ended; empty while it lives.';
COMMENT ON COLUMN workflow_children.stage IS '0: it lives; 1: it has ended and its parent has not counted it; 2: counted.';
