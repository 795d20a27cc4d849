-- The schema says which programs can work with it (store/schema.go).

-- +goose Up

CREATE TABLE schema_compat (
    oldest bigint NOT NULL CHECK (oldest > 0)
);
CREATE UNIQUE INDEX schema_compat_single ON schema_compat ((true));
COMMENT ON TABLE schema_compat IS 'One row: the schema version of the oldest program that can work with this schema. A migration that takes something away from older programs raises it.';
INSERT INTO schema_compat (oldest) VALUES (1);
