-- +goose Up
-- An agent that takes over a site's network boot is looked after with the workflows that are not over, and those that ended since.
CREATE INDEX workflowview_workflows_ended ON workflowview_workflows (ended_at) WHERE ended_at IS NOT NULL;
