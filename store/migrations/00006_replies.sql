-- A message can answer another one of its conversation.

-- +goose Up

ALTER TABLE messages ADD COLUMN reply_to uuid;
COMMENT ON COLUMN messages.reply_to IS 'The id of the message that this one answers. Retention can have removed that message, so it is no foreign key.';
