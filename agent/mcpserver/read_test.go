package mcpserver

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/parley-chat/parley/internal/testkit"
)

// TestReadStored: what is read from the local store is the same conversation that the service would return, and a search finds in it what
// the service would find.
func TestReadStored(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	alice, bob := w.register("alice"), w.register("bob")
	raise(t, alice)
	bob.trust("alice")
	alice.trust("bob")
	a, b := alice.session(t, Options{}), bob.session(t, Options{})
	a.does("parley_create", map[string]any{"kind": "channel", "name": "news"})
	b.does("parley_join", map[string]any{"conversation": "#news"})
	a.does("parley_send", map[string]any{"to": "bob", "text": "Rain in (Lisbon), café"})
	a.does("parley_send", map[string]any{"to": "bob", "text": "sun in Porto"})
	a.does("parley_send", map[string]any{"to": "#news", "text": "a post"})
	message := word(t, b.does("parley_inbox", nil), "msg_")
	for search, want := range map[string]map[string]any{
		"rain":  {"conversation": "alice", "stored": true, "search": "rain|snow"},
		"(lisb": {"conversation": "alice", "stored": true, "search": "(lisb", "literal": true},
		"café":  {"conversation": "alice", "stored": true, "search": "cafe\u0301|snow"},
	} {
		if text := b.does("parley_read", want); !strings.Contains(text, "1 message of alice") || !strings.Contains(text, "| Rain in") {
			t.Errorf("the stored messages with %s are %s", search, text)
		}
	}
	contains(t, b.does("parley_read", map[string]any{"conversation": "alice", "stored": true}), "2 messages of alice")

	b.does("parley_react", map[string]any{"message_id": message, "emoji": "👍"})
	contains(t, a.does("parley_read", map[string]any{"conversation": "bob"}), "Reactions to the next message: 👍 1.")
	text := b.does("parley_read", map[string]any{"conversation": "alice", "search": " in ", "n": 1})
	_, shown, _ := strings.Cut(text, " id ")
	contains(t, text, "1 message of alice", "| sun in Porto", "Older ones: before_message_id "+word(t, shown, "msg_"))
}

// TestFullPageOfMatches: a search whose page is full says where the next one begins.
func TestFullPageOfMatches(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	alice := w.register("alice")
	var messages []map[string]any
	for i := range 50 {
		messages = append(messages, map[string]any{"message_id": fmt.Sprintf("msg_%d", 100-i), "content": "x", "created_at": 100 - i})
	}
	w.AnswerPaid(func(rw http.ResponseWriter, r *http.Request, next http.Handler) {
		_ = json.NewEncoder(rw).Encode(map[string]any{"messages": messages, "count": 50, "page": 1, "matched_as": "regex"})
	})
	addRoom(t, alice, true)
	contains(t, alice.session(t, Options{}).does("parley_read", map[string]any{"conversation": testkit.HostileRoom, "search": "x"}),
		"before_message_id msg_51")
}
