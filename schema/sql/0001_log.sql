-- +goose Up
CREATE TABLE events (
    position       bigint      PRIMARY KEY CHECK (position > 0),
    stream         text        COLLATE "C" NOT NULL CHECK (octet_length(stream) BETWEEN 3 AND 250 AND stream LIKE '_%-_%'),
    version        bigint      NOT NULL CHECK (version > 0),
    id             uuid        NOT NULL,
    type           text        COLLATE "C" NOT NULL CHECK (type <> ''),
    schema_version integer     NOT NULL CHECK (schema_version > 0),
    data           bytea       NOT NULL CHECK (octet_length(data) <= 262144),
    meta           bytea       NOT NULL,
    recorded_at    timestamptz NOT NULL DEFAULT statement_timestamp(),
    CONSTRAINT events_stream_version UNIQUE (stream, version),
    CONSTRAINT events_id UNIQUE (id)
);

COMMENT ON TABLE events IS 'The log: what happened, in the order in which it was committed. Rows are only ever added.';
COMMENT ON COLUMN events.position IS 'Order of commit over all streams, dense from 1: given under the advisory lock of the writer.';
COMMENT ON COLUMN events.stream IS 'The aggregate: <category>-<id>.';
COMMENT ON COLUMN events.version IS 'Order within the stream, dense from 1.';
COMMENT ON COLUMN events.id IS 'Identity: the same id never stands twice, so that a retry is recognised.';
COMMENT ON COLUMN events.type IS 'The public name, such as node.enrolled.';
COMMENT ON COLUMN events.schema_version IS 'Version of the shape of data, from 1.';
COMMENT ON COLUMN events.data IS 'JSON, as bytes: the hash of the chain is taken over them, so they are never re-encoded.';
COMMENT ON COLUMN events.meta IS 'JSON, as bytes: who, when, why, and the hash of the event before it in the stream.';
COMMENT ON COLUMN events.recorded_at IS 'When the log took it, by the clock of the database.';

-- +goose StatementBegin
CREATE FUNCTION events_are_only_added() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'the log is append-only: % refused', TG_OP USING ERRCODE = 'restrict_violation';
END
$$;
-- +goose StatementEnd

CREATE TRIGGER events_append_only BEFORE UPDATE OR DELETE OR TRUNCATE ON events
    FOR EACH STATEMENT EXECUTE FUNCTION events_are_only_added();
