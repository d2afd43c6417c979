-- +goose Up
-- One row per workflow: columns to filter by, the fold without its profile, and the profile as it was.
CREATE TABLE workflowview_workflows (
    workflow_id     text COLLATE "C" PRIMARY KEY,
    tenant_id       text COLLATE "C" NOT NULL,
    site_id         text COLLATE "C" NOT NULL,
    pool_id         text COLLATE "C" NOT NULL,
    node_id         text COLLATE "C" NOT NULL,
    profile_id      text COLLATE "C" NOT NULL,
    profile_version bigint           NOT NULL,
    status          text COLLATE "C" NOT NULL,
    active          boolean          NOT NULL,
    deadline        timestamptz, -- of the step in flight
    ended_at        timestamptz,
    created_position bigint          NOT NULL,
    version         bigint           NOT NULL,
    position        bigint           NOT NULL,
    updated_at      timestamptz      NOT NULL,
    state           text             NOT NULL, -- JSON of the fold; text: a string in it may hold what jsonb refuses
    document        text             NOT NULL  -- JSON of the profile
) WITH (fillfactor = 70);

-- Lists are newest first within a filter.
CREATE UNIQUE INDEX workflowview_workflows_created ON workflowview_workflows (created_position);
CREATE INDEX workflowview_workflows_node ON workflowview_workflows (node_id, created_position);
CREATE INDEX workflowview_workflows_tenant ON workflowview_workflows (tenant_id, created_position);
CREATE INDEX workflowview_workflows_status ON workflowview_workflows (status, created_position);

-- Workflows that are not over, or failed: what findings about them are made from.
CREATE TABLE doctor_workflows (
    workflow_id     text COLLATE "C" PRIMARY KEY,
    tenant_id       text COLLATE "C" NOT NULL,
    site_id         text COLLATE "C" NOT NULL,
    pool_id         text COLLATE "C" NOT NULL,
    node_id         text COLLATE "C" NOT NULL,
    profile_id      text             NOT NULL,
    step_id         text             NOT NULL, -- in flight
    deadline        timestamptz, -- of the step in flight
    failed_at       timestamptz,
    error_code      text             NOT NULL,
    error_message   text             NOT NULL,
    position        bigint           NOT NULL
);
CREATE INDEX doctor_workflows_deadline ON doctor_workflows (deadline);
CREATE INDEX doctor_workflows_failed ON doctor_workflows (failed_at);
