-- +goose Up
-- One row per token with which agents join. Not the token: not even its hash.
CREATE TABLE join_tokens (
    token_id   text COLLATE "C" PRIMARY KEY,
    tenant_id  text COLLATE "C" NOT NULL,
    site_id    text COLLATE "C" NOT NULL,
    pool_id    text COLLATE "C" NOT NULL,
    node_id    text COLLATE "C" NOT NULL,
    role       text COLLATE "C" NOT NULL,
    minted_at  timestamptz      NOT NULL,
    minted_position bigint      NOT NULL,
    expires_at timestamptz      NOT NULL,
    max_uses   bigint           NOT NULL,
    uses       bigint           NOT NULL,
    revoked    boolean          NOT NULL,
    expect     text             NOT NULL, -- JSON
    version    bigint           NOT NULL,
    position   bigint           NOT NULL,
    updated_at timestamptz      NOT NULL
);
CREATE INDEX join_tokens_tenant ON join_tokens (tenant_id, minted_position);
CREATE INDEX join_tokens_site ON join_tokens (site_id, minted_position);
CREATE INDEX join_tokens_node ON join_tokens (node_id, minted_position);
