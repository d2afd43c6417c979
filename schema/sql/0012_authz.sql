-- +goose Up
-- Who may do what, and where everything is.
CREATE TABLE authz_tenants (
    tenant_id  text COLLATE "C" PRIMARY KEY,
    name       text COLLATE "C" NOT NULL,
    labels     jsonb            NOT NULL,
    policy     text             NOT NULL, -- JSON
    version    bigint           NOT NULL,
    position   bigint           NOT NULL,
    created_at timestamptz      NOT NULL,
    updated_at timestamptz      NOT NULL
);

CREATE TABLE authz_sites (
    site_id    text COLLATE "C" PRIMARY KEY,
    tenant_id  text COLLATE "C" NOT NULL,
    name       text COLLATE "C" NOT NULL,
    labels     jsonb            NOT NULL,
    policy     text             NOT NULL, -- JSON
    version    bigint           NOT NULL,
    position   bigint           NOT NULL,
    created_at timestamptz      NOT NULL,
    updated_at timestamptz      NOT NULL
);
CREATE INDEX authz_sites_tenant ON authz_sites (tenant_id, site_id);

CREATE TABLE authz_pools (
    pool_id    text COLLATE "C" PRIMARY KEY,
    tenant_id  text COLLATE "C" NOT NULL,
    site_id    text COLLATE "C" NOT NULL,
    name       text COLLATE "C" NOT NULL,
    labels     jsonb            NOT NULL,
    policy     text             NOT NULL, -- JSON
    version    bigint           NOT NULL,
    position   bigint           NOT NULL,
    created_at timestamptz      NOT NULL,
    updated_at timestamptz      NOT NULL
);
CREATE INDEX authz_pools_tenant ON authz_pools (tenant_id, pool_id);
CREATE INDEX authz_pools_site ON authz_pools (site_id, pool_id);

CREATE TABLE authz_nodes (
    node_id   text COLLATE "C" PRIMARY KEY,
    tenant_id text COLLATE "C" NOT NULL,
    site_id   text COLLATE "C" NOT NULL,
    pool_id   text COLLATE "C" NOT NULL,
    labels    jsonb            NOT NULL
);
CREATE INDEX authz_nodes_pool ON authz_nodes (pool_id, node_id);

CREATE TABLE authz_principals (
    principal_id text COLLATE "C" PRIMARY KEY,
    tenant_id    text COLLATE "C" NOT NULL,
    name         text COLLATE "C" NOT NULL,
    kind         text             NOT NULL,
    disabled     boolean          NOT NULL,
    version      bigint           NOT NULL,
    position     bigint           NOT NULL,
    created_at   timestamptz      NOT NULL,
    updated_at   timestamptz      NOT NULL
);
CREATE INDEX authz_principals_tenant ON authz_principals (tenant_id, principal_id);

CREATE TABLE authz_tokens (
    token_id     text COLLATE "C" PRIMARY KEY,
    principal_id text COLLATE "C" NOT NULL,
    hash         text COLLATE "C" NOT NULL,
    note         text             NOT NULL,
    expires_at   timestamptz,
    created_at   timestamptz      NOT NULL
);
CREATE INDEX authz_tokens_hash ON authz_tokens (hash);
CREATE INDEX authz_tokens_principal ON authz_tokens (principal_id, token_id);

CREATE TABLE authz_bindings (
    binding_id   text COLLATE "C" PRIMARY KEY,
    principal_id text COLLATE "C" NOT NULL,
    actions      text[]           NOT NULL,
    scope_kind   text             NOT NULL,
    scope_id     text COLLATE "C" NOT NULL,
    created_at   timestamptz      NOT NULL
);
CREATE INDEX authz_bindings_principal ON authz_bindings (principal_id, binding_id);
