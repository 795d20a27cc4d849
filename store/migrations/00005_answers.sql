-- +goose Up

-- Answers are sealed, so PostgreSQL would try in vain to compress them.
ALTER TABLE payments ALTER COLUMN answer SET STORAGE EXTERNAL;

-- Long answers are erased some time after their payment's end (store/ledger.go); the index holds only what is to be erased.
CREATE INDEX payments_answers ON payments (valid_before) WHERE octet_length(answer) > 512;
