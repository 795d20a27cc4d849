-- What retention removes (store/retention.go).

-- +goose Up

ALTER TABLE conversations
    ADD COLUMN first_number bigint NOT NULL DEFAULT 1,
    ADD COLUMN oldest_at timestamptz,
    ADD COLUMN erased_at timestamptz,
    ADD CONSTRAINT conversations_first_number_check CHECK (first_number BETWEEN 1 AND last_number + 1) NOT VALID;
COMMENT ON COLUMN conversations.first_number IS 'The number of the oldest message that was not removed; last_number + 1 if there is none. Only the oldest messages are removed, so the numbers from first_number to last_number have no gaps.';
COMMENT ON COLUMN conversations.oldest_at IS 'No message of the conversation is older; NULL: none is older than the conversation. So most conversations need no look at their messages.';
COMMENT ON COLUMN conversations.erased_at IS 'When everything of a deleted group chat or channel was erased. The row stays: calls get 410, and last_number counts the messages that were sent.';
