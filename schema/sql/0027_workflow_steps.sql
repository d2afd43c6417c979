-- +goose Up
-- One row per step of a workflow, so that an event writes the step that it is about and not the whole workflow. The state of a
-- workflow is from now on the fold without its steps; the read model is built afresh under its new version.
CREATE TABLE workflowview_steps (
    workflow_id text COLLATE "C" NOT NULL,
    n           integer          NOT NULL, -- the order in which they run, from 0
    spec        text             NOT NULL, -- JSON: what never changes
    state       text             NOT NULL, -- JSON of the fold, without the spec
    PRIMARY KEY (workflow_id, n)
) WITH (fillfactor = 70);
