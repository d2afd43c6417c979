-- +goose Up

-- What a request with an Idempotency-Key was given: first its command id, later its sealed answer.
CREATE TABLE outcomes (
    principal    text        NOT NULL,
    key          text        NOT NULL,
    request_hash bytea       NOT NULL,
    command      uuid        NOT NULL,
    status       smallint,             -- HTTP; null until answered
    answer       bytea,                -- sealed header and body
    created_at   timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (principal, key),
    CHECK ((status IS NULL) = (answer IS NULL))
);

-- Finds what has expired.
CREATE INDEX outcomes_created ON outcomes (created_at);
