-- +goose Up
-- What findings are made from.
CREATE TABLE doctor_nodes (
    node_id         text COLLATE "C" PRIMARY KEY,
    tenant_id       text COLLATE "C" NOT NULL,
    site_id         text COLLATE "C" NOT NULL,
    pool_id         text COLLATE "C" NOT NULL,
    name            text             NOT NULL,
    provision_state text COLLATE "C" NOT NULL,
    entered_at      timestamptz      NOT NULL, -- the provision state
    failed_from     text             NOT NULL,
    failed_by       text             NOT NULL,
    error_code      text             NOT NULL,
    error_message   text             NOT NULL,
    settled         boolean          NOT NULL, -- in rescue with the ramdisk up: nothing is expected to happen
    voided          boolean          NOT NULL, -- its enrollment never finished and never will
    last_at         timestamptz      NOT NULL, -- of its newest event
    last_position   bigint           NOT NULL
);
CREATE INDEX doctor_nodes_state ON doctor_nodes (provision_state, last_at);

-- Claims that are held.
CREATE TABLE doctor_claims (
    stream   text COLLATE "C" PRIMARY KEY,
    kind     text             NOT NULL,
    scope    text COLLATE "C" NOT NULL,
    value    text             NOT NULL,
    node_id  text COLLATE "C" NOT NULL,
    position bigint           NOT NULL,
    at       timestamptz      NOT NULL
);
CREATE INDEX doctor_claims_node ON doctor_claims (node_id);
