package mcpserver

import (
	"encoding/json"
	"maps"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/parley-chat/parley/internal/testkit"
	"github.com/parley-chat/parley/x402"
)

// longID is a word of a server that lies, in place of ids and names.
var longID = strings.Repeat("i", 4_000)

// huge is a response to any operation in which every text and every list is long.
func huge() map[string]any {
	item := map[string]any{"description": strings.Repeat("x", 4_000), "content": strings.Repeat("x", 20_000),
		"name": strings.Repeat("x", 4_000)}
	for _, name := range []string{
		"agent_id", "chat_id", "channel_id", "message_id", "sender_id", "actor_id", "source_id", "username", "sender_username", "actor_username",
		"source_name", "source_type", "type", "status", "next_before_message_id",
	} {
		item[name] = longID
	}
	ids, items := []any{}, []any{item}
	for i := range 100 {
		if i < 30 {
			ids = append(ids, longID)
		}
		items = append(items, map[string]any{"message_id": "msg_1", "sender_id": testkit.Eve, "sender_username": "eve", "content": "x",
			"username": "eve"})
	}
	response := map[string]any{
		"activity": map[string]any{"agents_count": longID, "messages_sent": longID}, "skill": map[string]any{"hub_url": longID},
	}
	for _, name := range []string{"messages", "notices", "agents", "groups", "channels", "members", "pinned_messages"} {
		response[name] = items
	}
	for _, name := range []string{"chat_ids", "subscribed_channel_ids", "administered_channel_ids"} {
		response[name] = ids
	}
	maps.Copy(response, item)
	return response
}

// TestResultsAreBounded: no tool has a result that is longer than clients show, whatever the server sends.
func TestResultsAreBounded(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	alice := w.register("alice")
	w.register("bob")
	alice.trust("bob")
	body, err := json.Marshal(huge())
	testkit.NoError(t, err)
	w.Answer(func(rw http.ResponseWriter, r *http.Request, next http.Handler) {
		if r.Header.Get(x402.HeaderPaymentSignature) == "" && r.URL.Path != "/health" && r.URL.Path != "/skill.json" {
			next.ServeHTTP(rw, r)
			return
		}
		_, _ = rw.Write(body)
	})
	addRoom(t, alice, true)
	s := alice.session(t, Options{Tools: ToolsAll, Raw: true})
	results := 0
	for _, arguments := range []map[string]any{
		{"name": "me", "kind": "agents", "query": "x", "conversation": testkit.HostileRoom, "service": true},
		{"name": testkit.HostileRoom, "fresh": true, "kind": "group", "query": "y",
			"conversation": testkit.HostileRoom, "stored": true, "n": 250},
		{"to": "bob", "text": "hi", "name": testkit.HostileChannel, "fresh": true, "kind": "groups", "query": "z", "action": "profile",
			"discoverable": true},
		{"operation": "listUnreadMessages", "name": testkit.Eve, "fresh": true, "message_id": "msg_01k70tc513egtarndz528z0000", "emoji": "👍"},
	} {
		for _, tool := range allTools {
			given := map[string]any{}
			for name, value := range arguments {
				if strings.Contains(tool.properties, `"`+name+`"`) {
					given[name] = value
				}
			}
			if strings.Contains(tool.properties, `"detailed"`) {
				given["detailed"] = true
			}
			_, result := s.call(tool.name, given)
			whole, _ := json.Marshal(result)
			if len(whole) > 60_000 || tool.name != "parley_call" && strings.Contains(string(whole), longID[:200]) {
				t.Errorf("%s %v: the result has %d bytes: %.300s", tool.name, given, len(whole), whole)
			}
			if !result.IsError {
				results++
			}
		}
	}
	if results < 15 {
		t.Errorf("only %d calls succeeded", results)
	}
}

// TestResponseThatIsNoJSON: a page of a proxy is paid for and said to be, and the next call is a new one.
func TestResponseThatIsNoJSON(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	alice := w.register("alice")
	var lied atomic.Bool
	w.Answer(func(rw http.ResponseWriter, r *http.Request, next http.Handler) {
		if r.URL.Path == "/agent/unread" && r.Header.Get(x402.HeaderPaymentSignature) != "" && lied.CompareAndSwap(false, true) {
			_, _ = rw.Write([]byte(`<html>sign in to the network</html>`))
			return
		}
		next.ServeHTTP(rw, r)
	})
	s := alice.session(t, Options{})
	text := s.fails("bad_response", "parley_inbox", nil)
	contains(t, text, "not as the contract says", "counts as paid", "is a new call")
	contains(t, s.does("parley_inbox", nil), "0 messages", "paid 0.001 USD")
}

// TestPublishing: a tool shows no text to everybody, unless the human opened the recipients to anyone.
func TestPublishing(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	alice := w.register("alice")
	edit := map[string]any{"operation": "editAgent", "arguments": map[string]any{"description": "secret"}}
	profile := map[string]any{"action": "profile", "description": "secret"}
	s := alice.session(t, Options{Tools: ToolsAll, Raw: true})
	contains(t, s.fails("approval_needed", "parley_call", edit), "parley profile edit --description TEXT", "paid 0.00 USD")
	s.fails("approval_needed", "parley_admin", profile)
	contains(t, alice.session(t, Options{Tools: ToolsAll, Anyone: true}).does("parley_admin", profile), "profile changed")
}
