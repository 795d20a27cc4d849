package mcpserver

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/parley-chat/parley/agent"
	"github.com/parley-chat/parley/internal/testkit"
)

// sendHostile lets the server send hostile responses in place of real ones. text is a name and description.
func (w *world) sendHostile(text string) {
	w.Answer(func(rw http.ResponseWriter, r *http.Request, next http.Handler) {
		testkit.HostileServer(next, func() string { return text }).ServeHTTP(rw, r)
	})
}

// TestHostileHeld: nothing that a stranger wrote is in a result, and the client is told how to get it.
func TestHostileHeld(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	alice := w.register("alice")
	w.sendHostile(testkit.Hostile[0])
	addRoom(t, alice, false)
	s := alice.session(t, Options{})
	for tool, arguments := range map[string]map[string]any{
		"parley_inbox": nil, "parley_read": {"conversation": testkit.HostileRoom, "n": 100},
	} {
		text, result := s.call(tool, arguments)
		if result.IsError {
			t.Fatalf("%s: %s", tool, text)
		}
		checkHeld(t, result)
		contains(t, text, "held from eve", "parley contacts trust eve")
	}
	_, result := s.call("parley_read", map[string]any{"message_id": testkit.HostilePage().Messages[0].MessageID})
	checkHeld(t, result)
	_, result = s.call("parley_inbox", map[string]any{"after_message_id": testkit.HostilePage().Messages[0].MessageID, "detailed": true})
	checkHeld(t, result)
	_, result = s.call("parley_contacts", map[string]any{"detailed": true})
	checkHeld(t, result)
}

// addRoom adds the group chat of the hostile messages to the contacts, and eve.
func addRoom(t *testing.T, o *owner, trusted bool) {
	t.Helper()
	for id, kind := range map[string]string{testkit.HostileRoom: agent.KindGroup, testkit.Eve: agent.KindAgent} {
		testkit.NoError(t, o.ChangeContact(t.Context(), id, func(c *agent.Contact) { c.Kind, c.Name, c.Trusted = kind, "eve", trusted }))
	}
}

// TestHostileTrusted: what a trusted agent writes is data in every face, each message can be read whole, and no result is too long.
func TestHostileTrusted(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	alice := w.register("alice")
	w.sendHostile(testkit.Hostile[0])
	addRoom(t, alice, true)
	s := alice.session(t, Options{Tools: ToolsAll, Raw: true})
	for _, face := range []struct {
		tool      string
		arguments map[string]any
	}{
		{"parley_inbox", nil},
		{"parley_inbox", map[string]any{"detailed": true}},
		{"parley_read", map[string]any{"conversation": testkit.HostileRoom, "n": 100}},
		{"parley_read", map[string]any{"conversation": testkit.HostileRoom, "stored": true, "n": 100, "detailed": true}},
		{"parley_find", map[string]any{"query": "x", "kind": "groups"}},
		{"parley_call", map[string]any{"operation": "listUnreadMessages"}},
	} {
		text, result := s.call(face.tool, face.arguments)
		if result.IsError {
			t.Fatalf("%s: %s", face.tool, text)
		}
		t.Run(face.tool, func(t *testing.T) { checkMarked(t, text, result) })
	}
	for i, m := range testkit.HostilePage().Messages {
		text, result := s.call("parley_read", map[string]any{"message_id": m.MessageID})
		if result.IsError {
			t.Fatalf("message %d: %s", i, text)
		}
		t.Run(fmt.Sprint("message ", i), func(t *testing.T) { checkMarked(t, text, result) })
	}
}

// TestReadTheRest: what does not fit in a result can be read to its end, for free.
func TestReadTheRest(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	alice := w.register("alice")
	w.sendHostile(testkit.Hostile[0])
	addRoom(t, alice, true)
	s := alice.session(t, Options{})
	seen, last := 0, ""
	arguments := map[string]any{}
	for range len(testkit.Hostile) {
		text, result := s.call("parley_inbox", arguments)
		facts := result.StructuredContent.(map[string]any)
		seen += len(facts["messages"].([]any))
		if facts["left_out"] == nil {
			break
		}
		_, rest, _ := strings.Cut(text, "parley_inbox with after_message_id")
		last = word(t, rest, "msg_")
		arguments = map[string]any{"after_message_id": last}
	}
	if seen != len(testkit.Hostile) {
		t.Errorf("%d of %d messages were shown, the last before the end is %s", seen, len(testkit.Hostile), last)
	}
	before := w.Revenue()
	long := testkit.HostilePage().Messages[38].MessageID
	characters := 0
	for offset := 0.0; ; {
		text, result := s.call("parley_read", map[string]any{"message_id": long, "offset": offset})
		characters += strings.Count(text, "A")
		next, more := result.StructuredContent.(map[string]any)["next_offset"].(float64)
		if !more {
			break
		}
		offset = next
	}
	if characters < 16_384 || characters > 16_384+10 || w.Revenue() != before {
		t.Errorf("%d characters were read, and %d paid", characters, w.Revenue()-before)
	}
}
