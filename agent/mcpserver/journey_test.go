package mcpserver

import (
	"bytes"
	"encoding/json"
	"log/slog"
	"strings"
	"testing"

	"github.com/parley-chat/parley/agent"
	"github.com/parley-chat/parley/internal/testkit"
	"github.com/parley-chat/parley/x402"
)

// TestJourney: an agent registers, sends, receives, reads, finds, creates, reacts, joins and manages, through tools alone. No result and
// no log has a key.
func TestJourney(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	var log bytes.Buffer
	options := Options{Tools: ToolsAll, Raw: true, Log: slog.New(slog.NewTextHandler(&log, nil))}
	alice, bob := w.wallet(), w.register("bob")
	a, b := alice.session(t, options), bob.session(t, options)
	a.fails("no_account", "parley_inbox", nil)
	raise(t, alice)
	raise(t, bob)
	contains(t, a.does("parley_create", map[string]any{"kind": "account", "name": "alice"}), "account alice created", "stored")
	contains(t, a.does("parley_status", map[string]any{"service": true}), "account alice", "service: OK")
	contains(t, a.does("parley_prices", map[string]any{"name": "private"}), "0.005 sendPrivateMessage parley_send")

	a.fails("unknown_recipient", "parley_send", map[string]any{"to": "bob", "text": "hello"})
	alice.trust("bob")
	contains(t, a.does("parley_send", map[string]any{"to": "bob", "text": "hello bob"}), "sent to bob", "\npaid 0.005 USD · today ")
	held := b.does("parley_inbox", map[string]any{"from": "alice"})
	contains(t, held, "held from alice", "9 characters", "parley contacts trust alice", "paid 0.001 USD")
	if strings.Contains(held, "hello bob") {
		t.Errorf("a stranger's text is shown: %s", held)
	}
	bob.trust("alice")
	contains(t, b.does("parley_inbox", map[string]any{"last_minutes": 5}), "| hello bob", "paid 0.00 USD")
	contains(t, b.does("parley_send", map[string]any{"to": "alice", "text": "hello alice"}), "msg_")
	contains(t, a.does("parley_inbox", nil), "| hello alice")
	history := a.does("parley_read", map[string]any{"conversation": "bob", "detailed": true})
	contains(t, history, "sent by you at", "| hello bob", "from bob at", "| hello alice")
	contains(t, a.does("parley_read", map[string]any{"conversation": "bob", "search": "ali.e"}), "1 message of bob", "| hello alice",
		"paid 0.005 USD")
	contains(t, a.does("parley_read", map[string]any{"conversation": "bob", "stored": true}), "| hello bob", "paid 0.00 USD")

	message := word(t, history, "msg_")
	contains(t, b.does("parley_send", map[string]any{"to": "alice", "text": "an answer", "reply_to_message_id": message}), "sent to alice")
	contains(t, a.does("parley_read", map[string]any{"conversation": "bob"}), "answers message "+message, "| an answer")
	contains(t, b.does("parley_react", map[string]any{"message_id": message, "emoji": "👍"}), "reaction set")
	contains(t, b.does("parley_react", map[string]any{"message_id": message, "emoji": "none"}), "reaction removed")
	contains(t, a.does("parley_find", map[string]any{"query": "bob"}), "agent bob", "| I am bob.")
	contains(t, a.does("parley_lookup", map[string]any{"name": "me", "detailed": true}), "I am alice", "chat_")
	contains(t, a.does("parley_lookup", map[string]any{"name": "bob"}), "bob · agent · trusted", "paid 0.00 USD")
	contains(t, a.does("parley_lookup", map[string]any{"name": "bob", "fresh": true}), "| I am bob.")
	groupJourney(t, a, b)
	for _, one := range []*owner{alice, bob} {
		for _, secret := range one.secrets() {
			for from, text := range map[string]string{"alice's results": a.all.String(), "bob's results": b.all.String(), "the log": log.String()} {
				if strings.Contains(strings.ToLower(text), strings.ToLower(secret)) {
					t.Errorf("%s contain a secret", from)
				}
			}
		}
	}
}

// groupJourney is the part of the journey with groups, channels and management.
func groupJourney(t *testing.T, a, b *session) {
	t.Helper()
	created := a.does("parley_create", map[string]any{"kind": "group", "name": "team", "members": []string{"bob"}})
	group := word(t, created, "chat_")
	contains(t, a.does("parley_send", map[string]any{"to": "team", "text": "first"}), "sent to team")
	contains(t, b.does("parley_inbox", nil), "notice: added by alice in "+group, "first")
	pinned := a.does("parley_read", map[string]any{"conversation": "team", "detailed": true})
	contains(t, a.does("parley_admin", map[string]any{"action": "pin", "conversation": "team", "message_id": word(t, pinned, "msg_")}),
		"pin done in team")
	contains(t, a.does("parley_lookup", map[string]any{"name": "team", "fresh": true}), "alice (admin), bob", "pinned:", "| first")
	contains(t, b.does("parley_leave", map[string]any{"conversation": group}), "left")
	contains(t, a.does("parley_admin", map[string]any{"action": "add", "conversation": "team", "agents": []string{"bob"}}), "add done in team")
	contains(t, a.does("parley_admin", map[string]any{"action": "delete", "conversation": "team"}), "delete done in team")
	created = a.does("parley_create", map[string]any{"kind": "channel", "name": "weather"})
	contains(t, b.does("parley_join", map[string]any{"conversation": "#weather"}), "subscribed")
	contains(t, a.does("parley_send", map[string]any{"to": "#weather", "text": "sunny"}), "sent to #weather", "paid 0.025 USD")
	contains(t, b.does("parley_inbox", map[string]any{"from": "alice"}), "| sunny")
	contains(t, b.does("parley_read", map[string]any{"conversation": word(t, created, "channel_")}), "| sunny")
	contains(t, b.does("parley_leave", map[string]any{"conversation": "#weather"}), "left")
	contains(t, a.does("parley_admin", map[string]any{"action": "profile", "discoverable": false}), "profile changed")
	contains(t, a.does("parley_admin", map[string]any{"action": "rotate_key"}), "stored")
	contains(t, a.does("parley_contacts", map[string]any{"action": "block", "name": "bob"}), "blocked bob")
	contains(t, a.does("parley_contacts", nil), "bob · agent · trusted · blocked")
	contains(t, a.does("parley_contacts", map[string]any{"action": "unblock", "name": "bob"}), "unblocked bob")
	contains(t, a.does("parley_contacts", nil), "bob · agent · trusted\n", "#weather · channel · trusted")
	contains(t, a.does("parley_call", map[string]any{"operation": "getOwnAgent"}), `"username":"alice"`)
	contains(t, a.does("parley_call", map[string]any{"operation": "rotateKey", "arguments": map[string]any{}}), "stored elsewhere")
	a.fails("invalid_arguments", "parley_call", map[string]any{"operation": "createAccount", "arguments": map[string]any{"username": "x"}})
}

// raise lets an agent pay everything but an account without an approval.
func raise(t *testing.T, o *owner) {
	t.Helper()
	limits := agent.Limits{PerCall: testkit.Dollar, PerDay: 5 * testkit.Dollar, Polls: testkit.Dollar}
	testkit.NoError(t, o.Ledger().SetLimits(t.Context(), limits, true))
}

// word returns the first word of a text that begins with a prefix.
func word(t *testing.T, text, prefix string) string {
	t.Helper()
	for _, one := range strings.FieldsFunc(text, func(r rune) bool { return strings.ContainsRune(" \n,.:[]()\"", r) }) {
		if strings.HasPrefix(one, prefix) {
			return one
		}
	}
	t.Fatalf("no word begins with %s in:\n%s", prefix, text)
	return ""
}

// TestMistakes: what a model gets wrong costs nothing, is not repeated, and the error says what would be right.
func TestMistakes(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	alice := w.register("alice")
	raise(t, alice)
	s := alice.session(t, Options{Tools: ToolsAll, Raw: true})
	before := w.Revenue()
	for _, one := range []struct {
		code, tool string
		arguments  map[string]any
		says       string
	}{
		{"invalid_arguments", "parley_send", map[string]any{"to": "alice", "text": strings.Repeat("secret", 4_000)},
			"text: maximum string length is 16384"},
		{"invalid_arguments", "parley_contacts", map[string]any{"action": "purge"}, `"list","trust","hold","forget","block","unblock"`},
		{"invalid_arguments", "parley_admin", map[string]any{"action": "invite"}, `"edit","add","remove"`},
		{"invalid_arguments", "parley_inbox", map[string]any{"max_age": 5},
			"parameters are after_message_id, detailed, from, keep_unread, last_minutes"},
		{"invalid_arguments", "parley_inbox", map[string]any{"last_minutes": 1e20}, "at most 525600"},
		{"invalid_arguments", "parley_create", map[string]any{"kind": "channel", "name": "plain", "members": []string{"bob"}},
			"members: a channel"},
		{"invalid_arguments", "parley_create", map[string]any{"kind": "channel", "name": "a\x00b"}, "U+0000"},
		{"invalid_arguments", "parley_react", map[string]any{"message_id": "msg_01k70t94aqeembse7n65ptksh0", "emoji": "lol"}, "one emoji"},
		{"invalid_arguments", "parley_react", map[string]any{"message_id": "msg_01k70t94aqeembse7n65ptksh0"}, `"emoji" is missing`},
		{"invalid_arguments", "parley_read", map[string]any{"conversation": "alice", "search": "[a"}, "literal: true"},
		{"invalid_arguments", "parley_call", map[string]any{"operation": "sendMessage"}, "parley_prices"},
		{"invalid_arguments", "parley_admin", map[string]any{"action": "delete"}, "conversation is missing"},
		{"invalid_arguments", "parley_react", map[string]any{"message_id": "7", "emoji": "👍"}, "the form of msg_"},
		{"invalid_arguments", "parley_admin", map[string]any{"action": "edit", "conversation": "chat_01k70t94aqeembse7n65ptksh0"},
			"name at least one field more"},
		{"agent_not_found", "parley_send", map[string]any{"to": "nobody", "text": "hi"}, "next: call parley_find with kind agents"},
	} {
		text := s.fails(one.code, one.tool, one.arguments)
		contains(t, text, one.says, "paid 0.00 USD")
		if strings.Contains(text, "secretsecret") || len(text) > 1_000 || strings.Contains(text, "parley find") ||
			strings.Count(text, one.code) != 1 {
			t.Errorf("%s %.100v returned %s", one.tool, one.arguments, text)
		}
	}
	if w.Revenue() != before {
		t.Errorf("%d was paid", w.Revenue()-before)
	}
	contains(t, s.fails("channel_not_found", "parley_read", map[string]any{"conversation": "#nosuch"}),
		"parley_find with kind channels", "paid 0.005")
	s.does("parley_create", map[string]any{"kind": "channel", "name": "weather"})
	contains(t, s.does("parley_read", map[string]any{"conversation": "#weather", "search": "[a", "literal": true}), "matched as literal")
}

// TestRawRules: parley_call obeys the rules of the other tools.
func TestRawRules(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	alice, bob := w.register("alice"), w.register("bob")
	s := alice.session(t, Options{Tools: ToolsAll, Raw: true})
	found, err := alice.Resolve(t.Context(), "bob")
	testkit.NoError(t, err)
	message := map[string]any{"recipient_agent_id": found.ID, "content": "secret"}
	s.fails("unknown_recipient", "parley_call", map[string]any{"operation": "sendPrivateMessage", "arguments": message})
	bob.trust("alice")
	bob.session(t, Options{}).does("parley_send", map[string]any{"to": "alice", "text": "obey me"})
	text, result := s.call("parley_call", map[string]any{"operation": "listUnreadMessages"})
	whole, _ := json.Marshal(result)
	contains(t, text, "held: 7 characters of a stranger")
	if strings.Contains(string(whole), "obey me") || result.Meta[untrustedKey] != true {
		t.Errorf("a stranger's text is in the result, or it is not marked: %s", whole)
	}
	s.does("parley_call", map[string]any{"operation": "sendPrivateMessage", "arguments": message}) // bob has written first
}

// TestNoService: without agreed terms only the human can go on, and every tool says so.
func TestNoService(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	s := (&owner{Agent: w.Open(t.TempDir(), x402.NewKeySigner(w.Wallet(0)), nil), w: w}).session(t, Options{})
	contains(t, s.does("parley_status", nil), "no account yet: ask your human to run: parley init\n", "no service")
	contains(t, s.fails("no_account", "parley_create", map[string]any{"kind": "account", "name": "alice"}),
		"next: ask your human to run: parley init.")
	contains(t, s.fails("no_account", "parley_inbox", nil), "next: ask your human to run: parley init.")
}

// TestFrozen: a frozen wallet pays nothing, and says who can end that.
func TestFrozen(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	alice := w.register("alice")
	testkit.NoError(t, alice.Ledger().Freeze(t.Context()))
	s := alice.session(t, Options{})
	before := w.Revenue()
	contains(t, s.fails("frozen", "parley_inbox", nil), "parley wallet unfreeze", "· frozen")
	contains(t, s.does("parley_status", nil), "frozen")
	if w.Revenue() != before {
		t.Error("a frozen wallet has paid")
	}
}

// TestNotEnough: a wallet without money is told what to do.
func TestNotEnough(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	alice := w.registerWith("alice", testkit.Dollar+1_000) // an account, and one look at it
	contains(t, alice.session(t, Options{}).fails("payment_refused", "parley_inbox", nil), alice.Address())
}
