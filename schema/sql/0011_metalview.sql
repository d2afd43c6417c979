-- +goose Up
-- One row per machine: columns to filter by, the folded state, and the view as it is answered.
CREATE TABLE metalview_nodes (
    node_id          text COLLATE "C" PRIMARY KEY,
    tenant_id        text COLLATE "C" NOT NULL,
    site_id          text COLLATE "C" NOT NULL,
    pool_id          text COLLATE "C" NOT NULL,
    name             text COLLATE "C" NOT NULL,
    labels           jsonb            NOT NULL,
    provision_state  text COLLATE "C" NOT NULL,
    maintenance      boolean          NOT NULL,
    cordoned         boolean          NOT NULL,
    created_position bigint           NOT NULL,
    created_at       timestamptz      NOT NULL,
    version          bigint           NOT NULL,
    position         bigint           NOT NULL,
    updated_at       timestamptz      NOT NULL,
    state            text             NOT NULL, -- JSON of the fold; text: a string in it may hold what jsonb refuses
    view             text             NOT NULL -- JSON, as GET answers it
) WITH (fillfactor = 80);

-- Lists are newest first within a filter.
CREATE INDEX metalview_nodes_tenant ON metalview_nodes (tenant_id, node_id);
CREATE INDEX metalview_nodes_site ON metalview_nodes (site_id, node_id);
CREATE INDEX metalview_nodes_pool ON metalview_nodes (pool_id, node_id);
CREATE INDEX metalview_nodes_state ON metalview_nodes (provision_state, node_id);
CREATE INDEX metalview_nodes_name ON metalview_nodes (name, node_id);
CREATE INDEX metalview_nodes_labels ON metalview_nodes USING gin (labels);
