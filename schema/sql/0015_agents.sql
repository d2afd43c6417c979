-- +goose Up
-- Agent commands that are not over: what agents may claim, and what they have.
CREATE TABLE agentqueue_commands (
    command_id text COLLATE "C" PRIMARY KEY,
    role       text COLLATE "C" NOT NULL,
    node_id    text COLLATE "C" NOT NULL,
    site_id    text COLLATE "C" NOT NULL,
    kind       text COLLATE "C" NOT NULL,
    status     text COLLATE "C" NOT NULL,
    agent_id   text COLLATE "C" NOT NULL, -- empty: nobody has it
    boot_id    text             NOT NULL,
    not_after  timestamptz      NOT NULL,
    position   bigint           NOT NULL -- of the request: the order in which they are claimed
) WITH (fillfactor = 70);
CREATE INDEX agentqueue_commands_node ON agentqueue_commands (node_id, role, position);
CREATE INDEX agentqueue_commands_site ON agentqueue_commands (site_id, role, position);

-- Agents that ever joined.
CREATE TABLE agents (
    agent_id      text COLLATE "C" PRIMARY KEY,
    tenant_id     text COLLATE "C" NOT NULL,
    site_id       text COLLATE "C" NOT NULL,
    node_id       text COLLATE "C" NOT NULL, -- empty: a site's agent
    role          text COLLATE "C" NOT NULL, -- of the newest session; before any, as joined
    name          text             NOT NULL,
    agent_version text             NOT NULL,
    boot_id       text             NOT NULL, -- of the newest session; empty: there was none
    claims        text             NOT NULL, -- JSON
    revoked       text             NOT NULL, -- why; empty: it is not
    joined_at     timestamptz      NOT NULL,
    session_at    timestamptz,
    version       bigint           NOT NULL,
    position      bigint           NOT NULL,
    updated_at    timestamptz      NOT NULL
) WITH (fillfactor = 80);
CREATE INDEX agents_site ON agents (site_id, agent_id);
CREATE INDEX agents_node ON agents (node_id, agent_id);
CREATE INDEX agents_tenant ON agents (tenant_id, agent_id);

-- Every certificate that an agent ever had, for ever: an old signature can still be checked.
CREATE TABLE node_certs (
    fingerprint text COLLATE "C" PRIMARY KEY, -- SHA-256 of the certificate, lower-case hex
    agent_id    text COLLATE "C" NOT NULL,
    node_id     text COLLATE "C" NOT NULL,
    role        text COLLATE "C" NOT NULL,
    public_key  text             NOT NULL, -- Ed25519, lower-case hex
    serial      text             NOT NULL,
    not_before  timestamptz      NOT NULL,
    not_after   timestamptz      NOT NULL,
    revoked_at  timestamptz,
    position    bigint           NOT NULL
);
CREATE INDEX node_certs_agent ON node_certs (agent_id, position);
