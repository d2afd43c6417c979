-- +goose Up
-- Who serves network boot at each site, and until when. It is no history (the log has who took it): a row is overwritten, and
-- losing the table costs one contact of each agent. The gateways write it by its revision.
CREATE TABLE boot_leases (
    site_id  text COLLATE "C" PRIMARY KEY,
    agent_id text COLLATE "C" NOT NULL,
    boot_id  text             NOT NULL,
    term     bigint           NOT NULL,
    until    timestamptz      NOT NULL, -- by the database's clock
    revision bigint           NOT NULL
) WITH (fillfactor = 50);

-- Where an agent serves network boot. Empty: it does not.
ALTER TABLE agent_presence ADD COLUMN boot_url text NOT NULL DEFAULT '';
