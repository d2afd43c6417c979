-- +goose Up
-- One row per version of an image. Few: they are looked through by audience.
CREATE TABLE images (
    image_id   text COLLATE "C" PRIMARY KEY,
    tenant_id  text COLLATE "C" NOT NULL,
    audience   text COLLATE "C" NOT NULL, -- who sees it: the tenant, or public
    name       text COLLATE "C" NOT NULL,
    image_version text COLLATE "C" NOT NULL,
    digest     text             NOT NULL,
    bytes      bigint           NOT NULL,
    format     text             NOT NULL,
    url        text             NOT NULL,
    signer     text             NOT NULL,
    withdrawn  boolean          NOT NULL,
    reason     text             NOT NULL,
    registered_at timestamptz   NOT NULL,
    registered_position bigint  NOT NULL,
    version    bigint           NOT NULL,
    position   bigint           NOT NULL,
    updated_at timestamptz      NOT NULL
);
CREATE INDEX images_audience ON images (audience, registered_position);
CREATE INDEX images_name ON images (name, registered_position);
