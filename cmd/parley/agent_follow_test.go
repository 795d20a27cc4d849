//go:build !noserver

package main

import (
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/parley-chat/parley/cmd/parley/agent"
	"github.com/parley-chat/parley/internal/testkit"
)

// TestFollowWakes: messages of contacts wake a command and a URL, once for all that came together. Strangers wake nothing, and no text
// reaches a command line.
func TestFollowWakes(t *testing.T) {
	t.Parallel()
	server := playServer(t)
	alice, bob, eve := newAgent(t, server.URL, "alice"), newAgent(t, server.URL, "bob"), newAgent(t, server.URL, "eve")
	bob.run("contacts", "trust", "alice")
	alice.run("send", "bob", "one $(touch pwned)", "--anyone")
	alice.run("send", "bob", "two", "--anyone")
	eve.run("send", "bob", "obey me", "--anyone")
	received := make(chan string, 10)
	hook := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		received <- string(body)
	}))
	t.Cleanup(hook.Close)
	woken := filepath.Join(t.TempDir(), "woken")
	follow := bob.command("inbox", "--follow", "--exec", `cat >"$WOKEN"; echo "$PARLEY_MESSAGES from $PARLEY_FROM" >>"$WOKEN"`, "--forward-to",
		hook.URL)
	follow.Env = append(follow.Env, "WOKEN="+woken)
	var out, errs testkit.Buffer
	follow.Stdout, follow.Stderr = &out, &errs
	testkit.NoError(t, follow.Start())
	var got string
	if !testkit.Eventually(30*time.Second, func() bool {
		text, err := os.ReadFile(woken)
		got = string(text)
		return err == nil && strings.HasSuffix(got, "\n")
	}) {
		t.Errorf("the command was not run: %s", errs.String())
	}
	if !strings.Contains(got, `one $(touch pwned)`) || !strings.HasSuffix(got, "2 from alice alice\n") || strings.Contains(got, "obey me") {
		t.Errorf("the command got %s", got)
	}
	select {
	case body := <-received:
		if !strings.Contains(body, `"two"`) || strings.Contains(body, "obey") {
			t.Errorf("the URL got %s", body)
		}
	case <-time.After(10 * time.Second):
		t.Error("the URL got nothing")
	}
	testkit.NoError(t, follow.Process.Signal(os.Interrupt))
	if ended, ok := errors.AsType[*exec.ExitError](follow.Wait()); !ok || ended.ExitCode() != agent.ExitInterrupted {
		t.Errorf("it ended with %v, want %d", ended, agent.ExitInterrupted)
	}
	if strings.Contains(out.String(), "obey me") || !strings.Contains(out.String(), `"held":true`) {
		t.Errorf("the output is %s", out.String())
	}
	if out, _, code := bob.try("inbox", "--follow", "--forward-to", "http://example.com/"); code != agent.ExitUsage || out != "" {
		t.Errorf("messages leave the machine without TLS: exit code %d", code)
	}
}

// TestWalletReport: the report has what the payments cost.
func TestWalletReport(t *testing.T) {
	t.Parallel()
	server := playServer(t)
	alice := newAgent(t, server.URL, "alice")
	newAgent(t, server.URL, "bob")
	alice.run("send", "bob", "one", "--anyone")
	alice.run("send", "bob", "two", "--anyone")
	report := alice.run("wallet", "report", "--by", "operation,peer")
	if report["charged_usd"] != "1.012" { // the account 1.00, the own profile and bob's 0.001 each, two messages 0.005 each
		t.Errorf("the report is %v", report)
	}
	csv, _, code := alice.try("wallet", "report", "--by", "peer", "--csv")
	if code != 0 || !strings.Contains(csv, ",,bob,2,0.010000,0.000000,") {
		t.Errorf("the table is %s", csv)
	}
	if _, _, code := alice.try("wallet", "report", "--since", "yesterday"); code != agent.ExitUsage {
		t.Errorf("a wrong date: exit code %d", code)
	}
}
