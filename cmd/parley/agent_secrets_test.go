//go:build !noserver

package main

import (
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/parley-chat/parley/agent"
	"github.com/parley-chat/parley/internal/devnet"
	"github.com/parley-chat/parley/internal/testkit"
)

// TestSecretsAreNowhere: all commands, the MCP server and their errors show no key, TAN, payment or payment identifier in any form. The
// files of the wallet have them only in their places, and only their owner can read these. No command line has one.
func TestSecretsAreNowhere(t *testing.T) {
	testkit.Long(t)
	t.Parallel()
	server := playServer(t)
	w := newSecretWitness(t, server)
	account := devnet.Accounts()[7]
	alice := newUser(t, w.URL)
	bob := newUser(t, w.URL, "PARLEY_WALLET_KEY="+account.PrivateKey)
	w.add("bob's wallet key", account.PrivateKey, nil)
	bob.run("init", "--username", "bob", "--yes")
	alice.run("init", "--username", "alice", "--yes")
	for _, stored := range alice.storedSecrets() {
		w.add(stored.name, stored.text, stored.places)
	}
	everyCommand(alice)
	everyTool(alice)
	for _, line := range []string{"status", "send alice hello", "inbox", "key rotate", "call rotateKey"} {
		bob.run(strings.Fields(line)...)
	}
	failures(t, w, alice)
	interrupted(t, w, alice)
	secrets, counts := w.known()
	for name, atLeast := range map[string]int{"an API key": 8, "a TAN": 1, "a payment": 35, "a signature": 35, "a payment identifier": 35} {
		if counts[name] < atLeast {
			t.Errorf("the test has seen %s %d times, want at least %d", name, counts[name], atLeast)
		}
	}
	for _, u := range []*user{alice, bob} {
		u.hides(secrets)
	}
	lines := newHaystack(w.commandLines())
	for _, one := range secrets {
		if lines.has(one.text) {
			t.Errorf("a command line contains %s", one.name)
		}
	}
}

// everyCommand runs the commands. It ignores their success: a refusal must hide secrets too.
func everyCommand(u *user) {
	u.t.Helper()
	const id = "_01k70t94aqeembse7n65ptksh0"
	for _, line := range []string{
		"status", "send bob hello", "send alice hello", "inbox",
		"read bob -n 5",
		"read alice --grep hello", "find alice", "who alice", "who bob", "react msg" + id + " 👍", "contacts",
		"contacts block alice", "contacts unblock alice", "group create team", "group join chat" + id,
		"group info chat" + id, "channel create news", "channel join #news", "channel info channel" + id, "wallet balance",
		"wallet limit 0.90", "wallet report", "wallet deposits", "wallet refund", "config", "prices", "profile",
		"profile edit --description new", "profile --jq .",
		"call getOwnAgent", "call rotateKey", "call rotateKey {}", "call createAccount {\"username\":\"x\",\"tan\":\"y\"}", "key rotate",
		"call requestAccount {\"requested_username\":\"other\"}", "mcp --tools nonsense",
		"init --username again --yes", "init --secrets pocket --yes", "completion",
		"version", "--help", "send --help", "status",
	} {
		u.try(strings.Fields(line)...)
	}
	u.run("profile")
}

// everyTool uses the MCP server, whose requests, responses and log count as output.
func everyTool(u *user) {
	u.t.Helper()
	cmd := u.command("mcp", "--tools", "all")
	cmd.Stderr = u.all
	client := mcp.NewClient(&mcp.Implementation{Name: "test", Version: "1"}, nil)
	session, err := client.Connect(u.t.Context(), &mcp.LoggingTransport{Transport: &mcp.CommandTransport{Command: cmd}, Writer: u.all}, nil)
	testkit.NoError(u.t, err)
	defer session.Close() //nolint:errcheck // the process has done its work
	for _, tool := range []struct {
		name      string
		arguments map[string]any
		works     bool
	}{
		{"parley_status", map[string]any{"service": true}, true}, {"parley_status", map[string]any{"action": "prices"},
			true}, {"parley_inbox", nil, true},
		{"parley_send", map[string]any{"to": "bob", "text": "x"}, true},
		{"parley_find", map[string]any{"words": "alice"}, true}, {"parley_account", nil, true},
		{"parley_group", map[string]any{"action": "create", "name": "x"}, false},
		{"parley_account", map[string]any{"action": "rotate"}, true}, {"parley_call", map[string]any{"operation": "rotateKey"}, true},
		{"parley_call", map[string]any{"operation": "getOwnAgent"}, true}, {"parley_contacts", nil, true},
		{"parley_call", map[string]any{"operation": "createAccount", "arguments": map[string]any{"username": "x", "tan": "y"}}, false},
	} {
		result, err := session.CallTool(u.t.Context(), &mcp.CallToolParams{Name: tool.name, Arguments: tool.arguments})
		if err != nil || tool.works && result.IsError {
			u.t.Errorf("%s %v: %v, %s", tool.name, tool.arguments, err, mustJSON(u.t, result))
		}
	}
}

// failures runs commands with keys that are damaged, so that errors could quote them.
func failures(t *testing.T, w *secretWitness, alice *user) {
	t.Helper()
	whole, err := os.ReadFile(filepath.Join(alice.home, "secrets.json"))
	testkit.NoError(t, err)
	key := alice.storedSecrets()[0].text
	other := newUser(t, w.URL)
	other.all = alice.all
	for _, env := range []string{
		"PARLEY_WALLET_KEY=" + devnet.Accounts()[7].PrivateKey + "zz", "PARLEY_WALLET_KEY_FILE=" + key,
	} {
		broken := *other
		broken.env = slices.Concat(other.env, []string{env})
		if strings.HasPrefix(env, "PARLEY_WALLET_KEY_FILE=") {
			broken.env = slices.Concat(other.env, []string{"PARLEY_WALLET_KEY_FILE=" + filepath.Join(alice.home, "secrets.json")})
		}
		broken.fails(agent.ExitError, "init", "--username", "carol", "--yes")
	}
	damaged := filepath.Join(other.home, "secrets.json")
	testkit.NoError(t, os.MkdirAll(other.home, 0o700))
	testkit.NoError(t, os.WriteFile(damaged, whole[:len(whole)-3], 0o600))
	other.fails(agent.ExitError, "init", "--username", "carol", "--yes")
}

// interrupted kills a command whose payment has just been sent. The journal must have the payment now, in a file of its owner, and
// nothing has it after the next run.
func interrupted(t *testing.T, w *secretWitness, alice *user) {
	t.Helper()
	var send *exec.Cmd
	payment := ""
	w.mu.Lock()
	w.onPaid = func(rw http.ResponseWriter, r *http.Request) bool {
		payment = r.Header.Get("PAYMENT-SIGNATURE")
		_ = send.Process.Kill()
		testkit.HangUp(rw)
		return true
	}
	w.mu.Unlock()
	send = alice.command("send", "bob", "interrupted")
	send.Stdout, send.Stderr = alice.all, alice.all
	testkit.NoError(t, send.Start())
	_ = send.Wait()
	w.mu.Lock()
	w.onPaid = nil
	w.mu.Unlock()
	if open := alice.openPayments(); len(open) != 1 || !strings.Contains(open[0], payment) {
		t.Errorf("%d payments are open, want the one that was sent", len(open))
	}
	if info, err := os.Stat(alice.walletFile()); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the wallet's file: %v, %v, want the mode 0600", info.Mode(), err)
	}
	secrets, _ := w.known()
	alice.hides(secrets)
	alice.run("send", "bob", "interrupted")
	if left := alice.openPayments(); len(left) > 0 {
		t.Errorf("after the next run %d payments are open", len(left))
	}
}
