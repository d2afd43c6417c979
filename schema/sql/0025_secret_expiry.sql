-- +goose Up
-- A secret of a workflow's step is of no use for longer than this. Null: it stays until it is deleted.
ALTER TABLE secrets ADD COLUMN expires_at timestamptz;

-- Finds what is over.
CREATE INDEX secrets_expiry ON secrets (expires_at) WHERE expires_at IS NOT NULL;
