-- +goose Up
-- Which process manager must look at which key, and when. Derived from the log: `metald` can build it again.
CREATE TABLE wakeups (
    manager      text        COLLATE "C" NOT NULL,
    key          text        COLLATE "C" NOT NULL,
    due          timestamptz NOT NULL DEFAULT now(),
    generation   bigint      NOT NULL DEFAULT 1, -- raised by each wake-up: one that comes during a pass is not lost
    leased_until timestamptz,                    -- null: nobody works on it
    holder       text        COLLATE "C",        -- one run of one process
    lease        bigint      NOT NULL DEFAULT 0, -- counts leases: an older one settles nothing
    attempts     integer     NOT NULL DEFAULT 0, -- passes in a row that failed
    error        text,                           -- of the last of them
    failing_since timestamptz,
    -- When it may be taken: not before it is due, nor while somebody has it.
    free_at      timestamptz NOT NULL GENERATED ALWAYS AS (greatest(due, leased_until)) STORED,
    PRIMARY KEY (manager, key)
) WITH (fillfactor = 50, autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_scale_factor = 0.5);
CREATE INDEX wakeups_free_at ON wakeups (free_at);
CREATE INDEX wakeups_failing ON wakeups (failing_since) WHERE attempts > 0;
