//go:build !noserver

package main

import (
	"encoding/json"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/parley-chat/parley/agent"
	"github.com/parley-chat/parley/internal/testkit"
)

func mustJSON(t *testing.T, value any) string {
	t.Helper()
	text, err := json.Marshal(value)
	testkit.NoError(t, err)
	return string(text)
}

// TestThreeCommands: with parley dev, one command makes an account and the next one sends a message to somebody new.
func TestThreeCommands(t *testing.T) {
	t.Parallel()
	server := playServer(t)
	alice, bob := newUser(t, server.URL), newUser(t, server.URL)
	if out, told, _ := bob.try("init", "--username", "bob", "--yes"); told != "" || !strings.Contains(out, `"funded":true`) {
		t.Errorf("init prints %s%s", out, told)
	}
	alice.run("init", "--username", "alice", "--yes")
	if again := alice.run("init", "--username", "alice"); again["username"] != "alice" {
		t.Errorf("the second init: %v", again)
	}
	if got := alice.fails(agent.ExitUsage, "init", "--username", "other", "--yes"); !strings.Contains(got["error"].(string), "is alice") {
		t.Errorf("another name for the account: %v", got)
	}
	const text = "hi\x1b[2J\u202e there <b>`x`"
	sent := alice.run("send", "bob", text)
	if sent["paid_usd"] != "0.006" || sent["chat_id"] == nil {
		t.Errorf("sent is %v, want one message and a look-up", sent)
	}
	if got := texts(bob.run("inbox")); !slices.Equal(got, []string{text}) {
		t.Errorf("bob got %q", got)
	}
	out, _, _ := bob.try("read", "alice", "--jq", ".messages[0] | .content, (.content | tojson)")
	if plain, inJSON, _ := strings.Cut(out, "\n"); plain != text || !json.Valid([]byte(inJSON)) {
		t.Errorf("--jq prints %q", out)
	}
	alice.run("send", "bob", "--", "- milk")
	testkit.Contains(t, alice.fails(agent.ExitUsage, "send", "bob", "- milk")["error"].(string),
		"write -- before a text that begins with a dash")
	if read := bob.run("read", "alice", "-n", "1"); !slices.Equal(texts(read), []string{"- milk"}) || read["paid_usd"] != "0.001" {
		t.Errorf("the chat is %v", read)
	}
	found := bob.run("read", "alice", "--grep", "[m]i", "-n", "1")
	if !slices.Equal(texts(found), []string{"- milk"}) || found["matched_as"] != "regex" {
		t.Errorf("the search found %v", found)
	}
	if found := bob.run("read", "alice", "--find", "<b>"); !slices.Equal(texts(found), []string{text}) || found["matched_as"] != "literal" {
		t.Errorf("the search for text found %v", found)
	}
	bob.run("send", "alice", "answer", "--reply-to", sent["message_id"].(string))
	if out, _, _ := alice.try("inbox", "--jq", ".messages[].content"); out != "answer\n" {
		t.Errorf("--jq prints %q", out)
	}
	alice.secretsAreHidden()
	bob.secretsAreHidden()
}

// TestBytes: what is not UTF-8 is refused wherever it stands, and a byte order mark is no part of a message.
func TestBytes(t *testing.T) {
	t.Parallel()
	alice := newAgent(t, playServer(t).URL, "alice")
	for _, args := range [][]string{{"send", "bob", "caf\xe9"}, {"profile", "edit", "--description", "caf\xe9"}, {"who", "\xff"},
		{"call", "searchAgents", "{\"query\":\"\xe9\"}"}, {"init", "--description", "\xff"}} {
		if got := alice.fails(agent.ExitUsage, args...); got["paid_usd"] != "0.00" || !strings.Contains(got["error"].(string), "UTF-8") {
			t.Errorf("%q: %v", args, got)
		}
	}
	newAgent(t, alice.env[1][len("PARLEY_SERVER="):], "bob")
	send := alice.command("send", "bob")
	send.Stdin = strings.NewReader("\ufeffhello")
	testkit.NoError(t, send.Run())
	if got := texts(alice.run("read", "bob")); !slices.Equal(got, []string{"hello"}) {
		t.Errorf("the message is %q", got)
	}
	wrong := alice.command("send", "bob", "-")
	wrong.Stdin = strings.NewReader("caf\xe9")
	if err := wrong.Run(); err == nil {
		t.Error("bytes of standard input are sent")
	}
}

// TestExitCodes: each kind of failure has its code, and its error as JSON.
func TestExitCodes(t *testing.T) {
	t.Parallel()
	server := playServer(t)
	alice := newUser(t, server.URL)
	if got := alice.fails(agent.ExitNoKey, "send", "bob", "hi"); got["code"] != "no_account" ||
		!strings.HasPrefix(got["next"].(string), alice.remedy("init --server ")) {
		t.Errorf("without a wallet: %v", got)
	}
	alice.fails(agent.ExitUsage, "init", "--yes")
	alice.fails(agent.ExitUsage, "init", "--username", "Alice Dev!", "--yes")
	alice.fails(agent.ExitLimit, "init", "--username", "alice")
	alice.run("init", "--username", "alice", "--yes")
	for _, args := range [][]string{
		{"send"}, {"send", "bob", " "}, {"send", "bob", "hi", "--nonsense"}, {"call", "sendMessage"}, {"call", "getOwnAgent", "nonsense"},
		{"status", "--jq", "{"}, {"react", "msg_1"}, {"group", "edit", "chat_01k70t94aqeembse7n65ptksh0"}, {"inbox", "-n", "0"},
		{"call", "sendPrivateMessage", `{"content": 5}`}, {"sned", "bob", "hi"}, {"wallet", "limit", "much"}, {"read", "bob", "--grep", "[o"},
		{"wallet", "report", "--since", "yesterday"}, {"inbox", "--exec", "true"}, {"inbox", "--follow", "--keep"},
		{"inbox", "--key", "k"}, {"init", "--server", "127.0.0.1:1"}, {"wallet", "export", "-"},
		{"wallet", "export", alice.walletFile()}, {"group", "list"}, {"group"}, {"help", "nosuch"}, {"completion", "nosuch"},
	} {
		if got := alice.fails(agent.ExitUsage, args...); got["code"] != "usage" || got["charged"] != false || got["paid_usd"] != "0.00" {
			t.Errorf("parley %v: %v", args, got)
		}
	}
	if got := alice.fails(agent.ExitRefused, "send", "#nosuch", "hi"); got["code"] != "channel_not_found" || got["charged"] != false ||
		got["paid_usd"] != "0.005" || got["next"] == nil {
		t.Errorf("a channel that does not exist: %v", got)
	}
	alice.run("wallet", "limit", "0")
	if got := alice.fails(agent.ExitLimit, "inbox"); got["code"] != "limit" || got["next"] == nil {
		t.Errorf("with a limit of 0: %v", got)
	}
	alice.run("key", "rotate")
}

// TestNextRuns: what an error names as the next command runs as it is, up to an account.
func TestNextRuns(t *testing.T) {
	t.Parallel()
	server := playServer(t)
	alice := newUser(t, server.URL)
	alice.env = alice.env[2:] // neither folder nor server are in the environment
	next := alice.fails(agent.ExitNoKey, "--home", alice.home, "--server", server.URL, "status")["next"].(string)
	unknown := alice.fails(agent.ExitNoKey, "--home", alice.home, "status")["next"].(string)
	testkit.Contains(t, unknown, "init --server 'the URL of your server' --username agent_")
	agreed := alice.fails(agent.ExitLimit, exampleArgs(next)[1:]...)
	unknown = alice.fails(agent.ExitNoKey, "--home", alice.home, "inbox")["next"].(string)
	testkit.Contains(t, unknown, "init --server "+agent.Quoted(server.URL))
	testkit.Contains(t, agreed["error"].(string), server.URL+" takes payments on eip155:84532 to 0x", "an account costs 1.001 USD")
	made := alice.run(exampleArgs(agreed["next"].(string))[1:]...)
	if made["paid_usd"] != "1.001" {
		t.Errorf("%s: %v", agreed["next"], made)
	}
	if status := alice.run("call", "getHealth", "--home", alice.home); status["status"] != "OK" {
		t.Errorf("the status is %v", status)
	}
	alice.run("inbox", "--wait", "1", "--home", alice.home)
	if read := alice.run("inbox", "--wait", "2", "--home", alice.home); read["paid_usd"] != "0.001" {
		t.Errorf("an inbox that waits: %v", read)
	}
	again := alice.fails(agent.ExitLimit, "init", "--agree", "--server", server.URL, "--home", alice.home)
	if strings.Contains(again["error"].(string), "costs") {
		t.Errorf("agreeing again: %v", again)
	}
	alice.run(exampleArgs(again["next"].(string))[1:]...)
	server.stop(t)
	down := alice.fails(agent.ExitError, "call", "getHealth", "--home", alice.home)
	if down["code"] != "unreachable" || down["next"] != "parley call getHealth --home "+agent.Quoted(alice.home) {
		t.Errorf("without the server: %v", down)
	}
}

// TestLostLedger: a folder whose ledger is missing says so once, and goes on.
func TestLostLedger(t *testing.T) {
	t.Parallel()
	alice := newAgent(t, playServer(t).URL, "alice")
	testkit.NoError(t, os.Remove(alice.walletFile()))
	for _, want := range []bool{true, false} {
		_, told, code := alice.try("profile")
		if code != 0 || strings.Contains(told, "is missing, so what was paid before is not known") != want {
			t.Errorf("exit code %d: %s", code, told)
		}
	}
}
