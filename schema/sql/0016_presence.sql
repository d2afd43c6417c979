-- +goose Up
-- Signs of life. They are not history: a row is overwritten, and losing the tables costs one contact of each agent.
CREATE TABLE agent_presence (
    agent_id     text COLLATE "C" PRIMARY KEY,
    boot_id      text             NOT NULL,
    role         text COLLATE "C" NOT NULL,
    last_contact timestamptz      NOT NULL, -- by the database's clock
    closed       text             NOT NULL, -- why the agent left on purpose; empty: it did not
    doing        text[]           NOT NULL
) WITH (fillfactor = 50);

-- How far the orders are that agents work on.
CREATE TABLE agent_progress (
    command_id text COLLATE "C" PRIMARY KEY,
    agent_id   text COLLATE "C" NOT NULL,
    percent    double precision NOT NULL, -- below zero: not known
    message    text             NOT NULL,
    at         timestamptz      NOT NULL
) WITH (fillfactor = 50);
CREATE INDEX agent_progress_at ON agent_progress (at);
