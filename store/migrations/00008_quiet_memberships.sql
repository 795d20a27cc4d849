-- A group chat to which an agent was added does not end its waits before the agent has used it (store/unread_waiting.go).

-- +goose Up

ALTER TABLE memberships ADD COLUMN quiet boolean NOT NULL DEFAULT false;
COMMENT ON COLUMN memberships.quiet IS 'Another agent added this one to the group chat, and it has neither fetched its messages nor sent one since. What is unread there does not end a wait.';
