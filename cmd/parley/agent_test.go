//go:build !noserver

package main

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/parley-chat/parley/cmd/parley/agent"
	"github.com/parley-chat/parley/internal/testkit"
)

// TestThreeCommands: with parley dev, a stranger needs one command for an account, one for a contact and one for a message.
func TestThreeCommands(t *testing.T) {
	t.Parallel()
	server := playServer(t)
	alice, bob := newUser(t, server.URL), newUser(t, server.URL)
	_, told, _ := bob.try("init", "--username", "bob", "--yes")
	says(t, told, "plaintext file", "play money", "costs 1.00 USD, once")
	alice.run("init", "--username", "alice", "--yes")
	if again := alice.run("init", "--username", "alice", "--yes"); again["paid_usd"] != "0.00" || again["username"] != "alice" {
		t.Errorf("the second init paid: %v", again)
	}
	_, told, _ = alice.try("init", "--username", "other", "--yes")
	says(t, told, "--username other is ignored")
	says(t, mustJSON(t, alice.run("contacts", "add", "bob", "--dry-run")), `"price_usd":"0.001"`)
	says(t, mustJSON(t, alice.run("send", "bob", "hi", "--dry-run")), "bob is not in the contacts")
	says(t, mustJSON(t, alice.run("find", "x", "--max-usd", "0.001", "--dry-run")), "more than its own limit")
	alice.fails(agent.ExitLimit, "contacts", "add", "bob", "--max-usd", "0.0001")
	if got := alice.fails(agent.ExitLimit, "send", "bob", "hi"); got["code"] != "stranger" {
		t.Errorf("with play money a program writes to strangers: %v", got)
	}
	alice.run("contacts", "add", "bob")
	sent := alice.run("send", "bob", "hi\x1b[2J\u202e there")
	if sent["to"] != "bob" || sent["paid_usd"] != "0.005" {
		t.Errorf("sent is %v, want one message", sent)
	}
	if again := alice.run("send", "bob", "two"); again["paid_usd"] != "0.005" || again["message_id"] == sent["message_id"] {
		t.Errorf("the second message is %v", again)
	}
	inbox := bob.run("inbox")
	if got := texts(inbox); len(got) != 2 || got[0] != "" || !strings.Contains(mustJSON(t, inbox), `"held":true`) {
		t.Errorf("a stranger's text is not held: %v", inbox)
	}
	bob.run("contacts", "trust", "alice")
	shown := []string{`hi\u{001B}[2J\u{202E} there`, "two"}
	if cached := bob.run("inbox", "--cached"); !slices.Equal(texts(cached), shown) || cached["paid_usd"] != "0.00" {
		t.Errorf("the local copy is %v, want %q for nothing", cached, shown)
	}
	if read := bob.run("read", "alice", "-n", "5"); !slices.Equal(texts(read), shown) || read["paid_usd"] != "0.001" {
		t.Errorf("the chat is %v", read)
	}
	if found := bob.run("read", "alice", "--grep", "tw[o]"); !slices.Equal(texts(found), shown[1:]) || found["matched_as"] != "regex" {
		t.Errorf("the search found %v", found)
	}
	if found := bob.run("read", "alice", "--grep", "t", "-n", "1"); !slices.Equal(texts(found), shown[1:]) ||
		found["next_before_message_id"] == nil {
		t.Errorf("of two matches, at most one is %v", found)
	}
	if found := bob.run("read", "alice", "--grep", "[o", "--literal"); len(texts(found)) != 0 || found["matched_as"] != "literal" {
		t.Errorf("the search for text found %v", found)
	}
	wrong := bob.fails(agent.ExitUsage, "read", "alice", "--grep", "[o")
	if !strings.Contains(wrong["error"].(string), "--literal") || len(bob.rows("SELECT id FROM calls WHERE operation LIKE 'search%'")) != 3 {
		t.Errorf("an expression that is none was searched for: %v", wrong)
	}
	bob.run("send", "alice", "answer", "--reply-to", sent["message_id"].(string))
	says(t, mustJSON(t, bob.run("read", "alice", "-n", "1")), `"reply_to_message_id":"`+sent["message_id"].(string))
	if out, _, _ := alice.try("inbox", "--jq", ".messages[].text"); out != "answer\n" {
		t.Errorf("--jq prints %q", out)
	}
	if at, _ := bob.run("profile")["created_at"].(string); !strings.HasSuffix(at, "Z") {
		t.Errorf("the account was made at %q, want a time as in messages", at)
	}
	alice.secretsAreHidden()
	bob.secretsAreHidden()
}

func mustJSON(t *testing.T, value any) string {
	t.Helper()
	text, err := json.Marshal(value)
	testkit.NoError(t, err)
	return string(text)
}

// TestExitCodes: each kind of failure has its code, and its error as JSON.
func TestExitCodes(t *testing.T) {
	t.Parallel()
	server := playServer(t)
	alice := newUser(t, server.URL)
	if got := alice.fails(agent.ExitNoKey, "send", "bob", "hi"); got["next"] != alice.remedy("init --server "+server.URL) {
		t.Errorf("without a wallet: %v", got)
	}
	alice.fails(agent.ExitUsage, "init", "--yes")
	alice.fails(agent.ExitUsage, "init", "--username", "Alice Dev!", "--yes")
	alice.fails(agent.ExitUsage, "init", "--username", "alice")
	alice.run("init", "--username", "alice", "--yes")
	for _, args := range [][]string{
		{"send"}, {"send", "bob", " "}, {"send", "bob", "hi", "--nonsense"}, {"call", "sendMessage"},
		{"call", "getOwnAgent", "nonsense"}, {"status", "--jq", "{"},
		{"react", "msg_1"},
		{"group", "edit", "chat_01k70t94aqeembse7n65ptksh0"}, {"send", "bob", "hi", "--max-usd", "much"},
		{"call", "sendPrivateMessage", `{"content": 5}`}, {"sned", "bob", "hi"},
		{"group", "delete", "chat_01k70t94aqeembse7n65ptksh0"}, {"channel", "delete", "channel_01k70t94aqeembse7n65ptksh0"},
		{"group", "transfer", "chat_01k70t94aqeembse7n65ptksh0", "bob"}, {"channel", "transfer", "channel_01k70t94aqeembse7n65ptksh0", "bob"},
	} {
		if got := alice.fails(agent.ExitUsage, args...); got["code"] != "usage" || got["charged"] != false || got["paid_usd"] != "0.00" {
			t.Errorf("parley %v: %v", args, got)
		}
	}
	if got := alice.fails(agent.ExitRefused, "send", "nobody", "hi"); got["code"] != "agent_not_found" || got["charged"] != false ||
		got["paid_usd"] != "0.00" || got["status"] != 404.0 || got["request_id"] == nil {
		t.Errorf("to nobody: %v", got)
	}
	if got := alice.fails(agent.ExitRefused, "send", "#nosuch", "hi"); got["code"] != "channel_not_found" || got["charged"] != false ||
		got["paid_usd"] != "0.005" {
		t.Errorf("to a channel that does not exist: %v, want what the search cost", got)
	}
	if got := alice.fails(agent.ExitRefused, "group", "info", "team"); got["code"] != "chat_not_found" || got["paid_usd"] != "0.00" {
		t.Errorf("a group chat that is not known: %v", got)
	}
	if got := alice.fails(agent.ExitLimit, "find", "weather", "--max-usd", "0.004"); got["code"] != "limit" {
		t.Errorf("above --max-usd: %v", got)
	}
	says(t, mustJSON(t, alice.run("group", "create", "team", "--dry-run")), "only a person can allow it")
	group := alice.fails(agent.ExitLimit, "group", "create", "team")
	next, _ := group["next"].(string)
	if group["code"] != "approval_needed" || !strings.HasPrefix(next, alice.remedy("wallet approve ")) {
		t.Fatalf("above the limit: %v", group)
	}
	for _, args := range [][]string{
		strings.Fields(next)[3:], {"wallet", "limits", "--per-call", "1"}, {"wallet", "unfreeze"}, {"prices", "--accept"},
		{"wallet", "export", "key"},
	} {
		if got := alice.fails(agent.ExitLimit, args...); got["code"] != "person_needed" ||
			!strings.HasPrefix(got["next"].(string), alice.remedy(args[0])) {
			t.Errorf("parley %v without a terminal: %v", args, got)
		}
	}
	alice.run("wallet", "freeze")
	if got := alice.fails(agent.ExitLimit, "inbox"); got["code"] != "frozen" {
		t.Errorf("frozen: %v", got)
	}
}
