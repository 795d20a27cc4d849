package server_test

import (
	"strings"
	"testing"
	"time"

	"github.com/parley-chat/parley/client"
	"github.com/parley-chat/parley/internal/retention"
	"github.com/parley-chat/parley/internal/testkit"
	"github.com/parley-chat/parley/store"
)

// age makes messages older.
func (w *world) age(by time.Duration, messages ...string) {
	w.T.Helper()
	for _, content := range messages {
		w.Exec(`UPDATE messages SET created_at = created_at - CAST($1 AS interval) WHERE content = $2`, by, content)
	}
	w.Exec(`UPDATE conversations c SET created_at = (SELECT min(m.created_at) FROM messages m WHERE m.conversation_id = c.id)
		WHERE last_number > 0`)
}

// TestRetention: what callers see of messages that outlived the operator's retention, and what the operator sees.
func TestRetention(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	alice, bob := w.agent("alice"), w.agent("bob")
	chat := alice.createGroup("Planners", bob)
	first := alice.sendGroup(chat, "an old plan")
	second := bob.sendGroup(chat, "an old answer")
	third := alice.sendGroup(chat, "a new plan")
	bob.react(first, "👍")
	for _, message := range []string{first, third} {
		alice.groupMust("pin", chat, "message_id", message)
	}
	w.age(48*time.Hour, "an old plan", "an old answer")
	report, err := retention.Sweep(t.Context(), w.store, store.Retention{Messages: 24 * time.Hour}, false, nil)
	if err != nil || report.Messages != 2 || report.Reactions != 1 {
		t.Fatalf("removed: %+v (%v), want two messages and a reaction", report.Removed, err)
	}

	n, page := int64(10), int64(1)
	read, err := bob.ListGroupMessagesWithResponse(t.Context(), client.ListGroupMessagesRequest{ChatID: chat, N: &n, Page: &page})
	testkit.Require200(t, "bob fetches", read, err)
	if got := read.JSON200; got.Total != 1 || len(got.Messages) != 1 || got.Messages[0].MessageID != third || got.NextBeforeMessageID != nil {
		t.Errorf("bob fetches %+v, want the new message only", got)
	}
	if pins := alice.group(chat).PinnedMessageIds; len(pins) != 1 || pins[0] != third {
		t.Errorf("the pins are %v, want %s", pins, third)
	}
	if unread := bob.unread(nil, nil, nil); unread.TotalUnread != 0 {
		t.Errorf("bob has %d unread messages after it has fetched them all", unread.TotalUnread)
	}
	before := bob.groupCall("messages", chat, "before_message_id", second)
	reacts := bob.ask("/message/react", fields{"message_id": first, "emoji": "👍"})
	for what, got := range map[string]testkit.Reply{"a page before a removed message": before, "a reaction to a removed message": reacts} {
		if got.Status != 404 || got.Code != "message_not_found" || !strings.Contains(string(got.Body), `"charged":false`) {
			t.Errorf("%s: %v, want 404 message_not_found, not charged", what, got)
		}
	}
	if fourth := bob.sendGroup(chat, "a new answer"); alice.unread(nil, nil, nil).Messages[0].MessageID != fourth {
		t.Error("alice does not get the next message")
	}
	if health := w.call("GET", "/health", ""); !strings.Contains(string(health.Body), "4 messages have been sent.") {
		t.Errorf("/health counts other messages: %v", health)
	}
	if metrics := w.admin("/metrics"); !strings.Contains(metrics, `parley_retention_removed_total{kind="message"} 0`) {
		t.Error("/metrics does not count removed messages")
	}
}
