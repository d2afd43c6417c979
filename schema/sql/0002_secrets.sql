-- +goose Up

-- Keys of the secret store, each wrapped (AES-256-GCM) by the operator's master key, which is never stored.
CREATE TABLE secret_keys (
    id            uuid        PRIMARY KEY,
    purpose       text        NOT NULL CHECK (purpose IN ('data', 'mint')),
    master_key_id text        NOT NULL, -- fingerprint of the master key that wraps this one
    wrapped       bytea       NOT NULL,
    created_at    timestamptz NOT NULL DEFAULT now(),
    retired_at    timestamptz
);

-- One key of each purpose is current. Replicas that start together on an empty store race on this index: one wins.
CREATE UNIQUE INDEX secret_keys_current ON secret_keys (purpose) WHERE retired_at IS NULL;

-- Values sealed under a data key with the secret's id as additional data, so that a row can't stand in for another.
CREATE TABLE secrets (
    id         uuid        PRIMARY KEY,
    key_id     uuid        NOT NULL REFERENCES secret_keys (id),
    sealed     bytea       NOT NULL,
    created_at timestamptz NOT NULL DEFAULT now()
);

-- Finds what a rotation still has to re-encrypt.
CREATE INDEX secrets_key ON secrets (key_id);
