-- +goose Up
-- Every event of a machine: its own, its workflows', its agent commands', with the whole envelope.
CREATE TABLE history_events (
    position       bigint           PRIMARY KEY,
    node_id        text COLLATE "C" NOT NULL,
    event_id       uuid             NOT NULL,
    stream         text COLLATE "C" NOT NULL,
    version        bigint           NOT NULL,
    type           text COLLATE "C" NOT NULL,
    schema_version integer          NOT NULL, -- of the shape of data
    at             timestamptz      NOT NULL, -- when the log took it
    decided_at     timestamptz      NOT NULL, -- by the clock of whoever decided it
    tenant         text             NOT NULL,
    subject        text             NOT NULL,
    principal      text             NOT NULL,
    request_id     text             NOT NULL,
    correlation_id text             NOT NULL,
    causation_id   text             NOT NULL,
    data           text             NOT NULL  -- JSON as stored
);
CREATE INDEX history_events_node ON history_events (node_id, position);

-- Which machine a stream that is not a machine's own belongs to, told by its first event that names one.
CREATE TABLE history_streams (
    stream  text COLLATE "C" PRIMARY KEY,
    node_id text COLLATE "C" NOT NULL,
    since   bigint           NOT NULL -- the position of that event
);
