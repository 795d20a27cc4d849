-- New messages are indexed when their list is full, by the call that fills it. With the default of 4 MiB that call took over half a second
-- if the messages had many different characters. Less than 1 MiB makes ordinary messages cost more.
-- +goose Up
ALTER INDEX messages_search SET (gin_pending_list_limit = 1024);
