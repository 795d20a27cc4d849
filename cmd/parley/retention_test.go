//go:build !noserver

package main

import (
	"context"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/parley-chat/parley/internal/testkit"
	"github.com/parley-chat/parley/store/storetest"
)

// TestRetentionCommand: a dry run counts what a run removes, and removes nothing. parley storage shows who has stored most.
func TestRetentionCommand(t *testing.T) {
	t.Parallel()
	url := storetest.URL(t)
	parley := func(args ...string) (string, error) {
		ran := invoke(t, append(args, "--database-url", url)...)
		return ran.out, ran.err
	}
	size := storetest.Seeding{Agents: 10, Conversations: 20, Messages: 1000, Subscribers: 10}
	testkit.NoError(t, storetest.Seed(t.Context(), url, size, func(string) {}))
	connection, err := pgx.Connect(t.Context(), url)
	testkit.NoError(t, err)
	defer connection.Close(context.Background())
	count := func(condition string) (n int) {
		t.Helper()
		testkit.NoError(t, connection.QueryRow(t.Context(), "SELECT count(*) FROM messages WHERE "+condition).Scan(&n))
		return n
	}
	const old = "created_at < now() - interval '100 days'"
	all, outlived := count("true"), count(old)
	for _, example := range []struct {
		args []string
		says string
	}{
		{nil, "set --retention-messages (PARLEY_RETENTION_MESSAGES)"},
		{[]string{"--retention-messages=1h"}, "--retention-messages (PARLEY_RETENTION_MESSAGES) is 1h; " +
			"use 24h or longer, or 0s to keep everything for ever"},
	} {
		if _, err := parley(append([]string{"retention", "run"}, example.args...)...); err == nil ||
			!strings.Contains(err.Error(), example.says) {
			t.Errorf("retention run %v: %v, want %q", example.args, err, example.says)
		}
	}
	counted, err := parley("retention", "run", "--retention-messages=2400h", "--dry-run")
	if err != nil || count("true") != all {
		t.Errorf("after a dry run %d of %d messages are left (%v)", count("true"), all, err)
	}
	removed, err := parley("retention", "run", "--retention-messages=2400h")
	if err != nil || count("true") != all-outlived || count(old) != 0 {
		t.Errorf("%d of %d messages are left, %d of them old (%v); %d were old", count("true"), all, count(old), err, outlived)
	}
	inWords := func(text string) string { return strings.Join(strings.Fields(text), " ") }
	if inWords(removed) != inWords(strings.Replace(counted, "would be removed", "removed", 1)) {
		t.Errorf("the dry run says\n%s, the run\n%s", counted, removed)
	}
	var largest string
	err = connection.QueryRow(t.Context(), `SELECT username FROM agents a JOIN messages m ON m.sender_id = a.id GROUP BY username
		ORDER BY sum(octet_length(content)) DESC LIMIT 1`).Scan(&largest)
	testkit.NoError(t, err)
	shown, err := parley("storage", "--accounts=1")
	if err != nil || !strings.HasPrefix(shown, "table ") || !strings.Contains(shown, "\nmessages ") ||
		!strings.Contains(shown, " "+largest+" ") {
		t.Errorf("storage, of which %s has most (%v):\n%s", largest, err, shown)
	}
}
