-- +goose Up
-- One row per version of a profile that a tenant stored. Few: they are looked through by audience.
CREATE TABLE profiles (
    profile_key text COLLATE "C" PRIMARY KEY, -- <tenant>/<id>@<version>
    tenant_id   text COLLATE "C" NOT NULL,
    audience    text COLLATE "C" NOT NULL, -- who finds it: the tenant, or public
    profile_id  text COLLATE "C" NOT NULL,
    profile_version bigint       NOT NULL,
    target      text             NOT NULL,
    description text             NOT NULL,
    digest      text             NOT NULL,
    used        boolean          NOT NULL, -- it never changes from then on
    created_at  timestamptz      NOT NULL,
    created_position bigint      NOT NULL,
    version     bigint           NOT NULL,
    position    bigint           NOT NULL,
    updated_at  timestamptz      NOT NULL,
    document    text             NOT NULL  -- JSON of the profile; text: a string in it may hold what jsonb refuses
);
CREATE INDEX profiles_audience ON profiles (audience, created_position);
CREATE INDEX profiles_id ON profiles (profile_id, profile_version);
