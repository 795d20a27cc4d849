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
	for _, line := range []string{"inbox --exec true", "inbox --forward-to https://example.com", "inbox --follow --cached"} {
		if got := bob.fails(agent.ExitUsage, strings.Fields(line)...); got["paid_usd"] != "0.00" {
			t.Errorf("parley %s: %v", line, got)
		}
	}
	sent := []string{"send", "alice", "three", "--anyone", "--jq"}
	if got := bob.fails(agent.ExitUsage, append(sent, ".to|test(1)")...); got["charged"] != true || got["paid_usd"] != "0.005" ||
		!strings.Contains(got["error"].(string), "the call was made") {
		t.Errorf("a call whose output failed: %v", got)
	}
	if again := bob.run(append(sent, ".")...); again["paid_usd"] != "0.00" || again["earlier"] != true {
		t.Errorf("the same command again: %v", again)
	}
	if out, _, code := bob.try("inbox", "--follow", "--forward-to", "http://example.com/"); code != agent.ExitUsage || out != "" {
		t.Errorf("messages leave the machine without TLS: exit code %d", code)
	}
}

// TestFollowInsists: a command that fails is run again, and its messages are not confirmed. The costs are told before and after.
func TestFollowInsists(t *testing.T) {
	t.Parallel()
	server := playServer(t)
	alice, bob := newAgent(t, server.URL, "alice"), newAgent(t, server.URL, "bob")
	if plan := bob.run("inbox", "--follow", "--dry-run"); plan["dry_run"] != true {
		t.Errorf("--dry-run returns %v", plan)
	}
	_, told, _ := bob.try("inbox", "--follow", "--dry-run", "--budget", "5")
	if !strings.Contains(told, "which is below --budget: 0.10 USD a day") ||
		!strings.Contains(told, "at most 0.007 USD an hour and 0.10 USD a day") {
		t.Errorf("a budget above the wallet's limit: %s", told)
	}
	bob.run("contacts", "trust", "alice")
	alice.run("send", "bob", "one", "--anyone")
	for _, test := range []struct{ exec, told, paid string }{
		{`echo failed >>"$WOKEN"; [ $(wc -l <"$WOKEN") -ge 2 ] && echo one >>"$WOKEN"; false`, "--exec: exit status 1; again in 2s", "0.001"},
		{`cat >"$WOKEN"`, "fetching costs at most", "0.00"}, // the message comes again, free
	} {
		woken := filepath.Join(t.TempDir(), "woken")
		follow := bob.command("inbox", "--follow", "--exec", test.exec)
		follow.Env = append(follow.Env, "WOKEN="+woken)
		errs := &testkit.Buffer{}
		follow.Stderr = errs
		testkit.NoError(t, follow.Start())
		if !testkit.Eventually(30*time.Second, func() bool {
			text, err := os.ReadFile(woken)
			return err == nil && strings.Contains(string(text), "one") && strings.Contains(errs.String(), test.told)
		}) {
			t.Errorf("the command does not get the message: %s", errs)
		}
		testkit.NoError(t, follow.Process.Signal(os.Interrupt))
		_ = follow.Wait()
		if !strings.Contains(errs.String(), `"error":"stopped; fetches: 1, cost: `+test.paid+` USD","paid_usd":"`+test.paid+`"`) {
			t.Errorf("it does not tell what it paid: %s", errs)
		}
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
