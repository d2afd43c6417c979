-- +goose Up
-- How far each projection has read the log. Rows and checkpoint move in one transaction; whoever holds the row's lock
-- owns the projection for that batch.
CREATE TABLE checkpoints (
    projection     text        PRIMARY KEY,
    version        integer     NOT NULL CHECK (version > 0),
    position       bigint      NOT NULL DEFAULT 0 CHECK (position >= 0),
    error          text,       -- why it stopped; null: it runs
    error_position bigint,     -- of the event it can't apply
    failed_at      timestamptz,
    updated_at     timestamptz NOT NULL DEFAULT now()
) WITH (fillfactor = 50);
