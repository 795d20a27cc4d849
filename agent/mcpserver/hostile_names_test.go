package mcpserver

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/parley-chat/parley/agent"
	"github.com/parley-chat/parley/internal/testkit"
)

// TestHostileNames: names and descriptions are data in every tool that shows them, and what is pinned is held.
func TestHostileNames(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	alice := w.register("alice")
	raise(t, alice)
	addRoom(t, alice, false)
	s := alice.session(t, Options{Tools: ToolsAll, Raw: true})
	calls := []struct {
		tool      string
		arguments map[string]any
	}{
		{"parley_find", map[string]any{"query": "x"}},
		{"parley_find", map[string]any{"query": "x", "kind": "groups", "detailed": true}},
		{"parley_find", map[string]any{"query": "x", "kind": "channels"}},
		{"parley_lookup", map[string]any{"name": testkit.Eve, "fresh": true}},
		{"parley_lookup", map[string]any{"name": testkit.HostileRoom, "fresh": true, "detailed": true}},
		{"parley_lookup", map[string]any{"name": testkit.HostileChannel, "fresh": true}},
		{"parley_call", map[string]any{"operation": "getGroupChat", "arguments": map[string]any{"chat_id": testkit.HostileRoom}}},
	}
	for i, hostile := range testkit.Hostile {
		w.sendHostile(hostile)
		for _, j := range []int{i, i + 3} { // each tool with every third text; package agent checks the fence with all of them
			one := calls[j%len(calls)]
			text, result := s.call(one.tool, one.arguments)
			if result.IsError {
				t.Fatalf("%s %v: %s", one.tool, one.arguments, text)
			}
			checkMarked(t, text, result)
			if strings.Contains(text, testkit.Pinned) {
				t.Errorf("%v: a stranger's pinned text is shown", one.arguments)
			}
		}
	}
}

// TestHostileContacts: a name in the contact book is not shown where a stranger chose it, and is harmless where the owner trusts it.
func TestHostileContacts(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	alice := w.register("alice")
	s := alice.session(t, Options{Tools: ToolsAll})
	for _, hostile := range testkit.Hostile {
		for _, trusted := range []bool{false, true} {
			for id, kind := range map[string]string{
				testkit.HostileRoom: agent.KindGroup, testkit.HostileChannel: agent.KindChannel, testkit.Eve: agent.KindAgent,
			} {
				name := func(c *agent.Contact) { c.Kind, c.Name, c.Trusted = kind, hostile, trusted && kind != agent.KindAgent }
				testkit.NoError(t, alice.ChangeContact(t.Context(), id, name))
			}
			for tool, arguments := range map[string]map[string]any{
				"parley_contacts": {"detailed": true}, "parley_lookup": {"name": testkit.HostileRoom},
				"parley_create": {"kind": "group", "name": "x", "members": []string{testkit.HostileRoom}},
				"parley_send":   {"to": testkit.HostileRoom, "text": ""},
				"parley_admin":  {"action": "pin", "conversation": testkit.HostileChannel, "message_id": "x"},
			} {
				text, result := s.call(tool, arguments)
				checkInert(t, text)
				if !trusted {
					checkHeld(t, result)
				}
			}
		}
	}
}

// TestHostileRefusals: what a server says in a refusal is quoted on one line, in every tool.
func TestHostileRefusals(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	alice := w.register("alice")
	raise(t, alice)
	addRoom(t, alice, true)
	s := alice.session(t, Options{Tools: ToolsAll, Raw: true})
	calls := map[string]map[string]any{
		"parley_inbox": nil, "parley_read": {"conversation": testkit.HostileRoom}, "parley_find": {"query": "x"}, "parley_lookup": {"name": "me"},
		"parley_send":  {"to": testkit.HostileRoom, "text": "x"},
		"parley_react": {"message_id": "msg_01k70tc513egtarndz528z0001", "emoji": "none"},
		"parley_join":  {"conversation": testkit.HostileRoom}, "parley_contacts": {"action": "block", "name": testkit.Eve},
		"parley_create": {"kind": "group", "name": "x"}, "parley_admin": {"action": "delete", "conversation": testkit.HostileRoom},
		"parley_call": {"operation": "getOwnAgent"},
	}
	for i, hostile := range testkit.Hostile {
		w.Answer(func(rw http.ResponseWriter, _ *http.Request, _ http.Handler) {
			body, _ := json.Marshal(map[string]any{"success": false, "code": hostile, "message": hostile, "charged": false})
			rw.Header().Set("Content-Type", "application/json")
			rw.WriteHeader(http.StatusForbidden)
			_, _ = rw.Write(body) // the client may have gone
		})
		for tool, arguments := range calls {
			if i > 0 && tool != "parley_inbox" {
				continue // one text in every tool, and every text in one
			}
			text, result := s.call(tool, arguments)
			if lines := strings.Count(text, "\n"); !result.IsError || lines > 2 || utf8.RuneCountInString(text) > 1_000 {
				t.Errorf("%s returned %t, %d lines: %.300q", tool, result.IsError, lines, text)
			}
			if hostile != "" {
				contains(t, text, `the service says "`)
			}
			checkInert(t, text)
		}
	}
}

// TestHostilePushed: what is pushed into a session is held, or marked once the owner trusts the sender.
func TestHostilePushed(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	alice := w.register("alice")
	w.sendHostile(testkit.Hostile[0])
	connected, events := alice.listen(t, "")
	held := receive(t, events)
	contains(t, held.Content, "held from eve", "notice: (not shown) by (not shown) in (not shown)")
	checkAbsent(t, held.Content)
	addRoom(t, alice, true)
	var shown event
	for shown = receive(t, events); strings.Contains(shown.Content, "held from eve"); shown = receive(t, events) {
	}
	checkFenced(t, shown.Content)
	for _, value := range shown.Meta {
		checkAbsent(t, value)
	}
	for _, uri := range []string{operationsResource, skillResource} {
		resource, err := connected.ReadResource(t.Context(), &mcp.ReadResourceParams{URI: uri})
		testkit.NoError(t, err)
		checkAbsent(t, resource.Contents[0].Text)
	}
}

// TestHostileQuestions: a name in a question to the human is quoted, and loads nothing in the form.
func TestHostileQuestions(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	alice := w.register("alice")
	no := &human{action: "decline"}
	s := alice.connect(t, Options{}, no.options(), "")
	for _, hostile := range testkit.Hostile {
		name := func(c *agent.Contact) { c.Kind, c.Name = agent.KindGroup, hostile }
		testkit.NoError(t, alice.ChangeContact(t.Context(), testkit.HostileRoom, name))
		checkInert(t, s.fails("declined", "parley_contacts", map[string]any{"action": "trust", "name": testkit.HostileRoom}))
	}
	if len(no.questions) != len(testkit.Hostile) {
		t.Errorf("the human was asked %d times, want %d", len(no.questions), len(testkit.Hostile))
	}
	for _, question := range no.questions {
		checkInert(t, question)
		contains(t, question, testkit.HostileRoom)
		if strings.Contains(question, "\n") || utf8.RuneCountInString(question) > 1_000 {
			t.Errorf("the question is %.300q", question)
		}
	}
}
