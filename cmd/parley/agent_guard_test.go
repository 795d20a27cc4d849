//go:build linux && !noserver

package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/parley-chat/parley/cmd/parley/agent"
	"github.com/parley-chat/parley/internal/testkit"
)

// TestGuarded: what only a person may do is asked at the terminal, is not done after a no or with a piped yes, and needs the passphrase
// once there is one.
func TestGuarded(t *testing.T) {
	t.Parallel()
	server := playServer(t)
	alice := newAgent(t, server.URL, "alice")
	next, _ := alice.fails(agent.ExitLimit, "group", "create", "team")["next"].(string)
	alice.run("wallet", "freeze")
	guarded := [][]string{{"wallet", "limits", "--per-day", "2"}, strings.Fields(next)[1:], {"wallet", "unfreeze"},
		{"wallet", "export", filepath.Join(t.TempDir(), "key")}}
	for _, command := range guarded {
		if screen, err := alice.atTerminal("n\n", nil, command...); err == nil || !strings.Contains(screen, "[y/N]") {
			t.Errorf("parley %v without a yes: %v\n%s", command, err, screen)
		}
		piped := alice.command(command...)
		piped.Stdin = strings.NewReader("yes\n")
		if out, err := piped.CombinedOutput(); err == nil || !strings.Contains(string(out), "person_needed") {
			t.Errorf("parley %v with a piped yes: %v\n%s", command, err, out)
		}
	}
	if screen, err := alice.atTerminal("a\na\n", nil, "wallet", "passphrase"); err == nil ||
		!strings.Contains(screen, "at least 8 characters") {
		t.Errorf("a passphrase of one character is taken: %v\n%s", err, screen)
	}
	if screen, err := alice.atTerminal("correct horse\ncorrect horse\n", nil, "wallet", "passphrase"); err != nil {
		t.Fatal(err, screen)
	}
	for _, command := range append(guarded, []string{"wallet", "passphrase", "--remove"}) {
		answer := "y\n"
		if command[1] == "passphrase" {
			answer = ""
		}
		if screen, err := alice.atTerminal(answer+"wrong\n", nil, command...); err == nil ||
			!strings.Contains(screen, "not the wallet's passphrase") {
			t.Errorf("parley %v with a wrong passphrase: %v\n%s", command, err, screen)
		}
		if screen, err := alice.atTerminal(answer+"correct horse\n", nil, command...); err != nil {
			t.Errorf("parley %v with the passphrase: %v\n%s", command, err, screen)
		}
	}
	if secrets, err := os.ReadFile(filepath.Join(alice.home, "secrets.json")); err != nil || strings.Contains(string(secrets), "horse") {
		t.Errorf("the passphrase is stored, %v", err)
	}
}

// TestLostWalletFile: a wallet whose file went away pays nothing until a person accepts that.
func TestLostWalletFile(t *testing.T) {
	t.Parallel()
	server := playServer(t)
	alice := newAgent(t, server.URL, "alice")
	testkit.NoError(t, os.Remove(alice.walletFile()))
	for _, command := range [][]string{{"profile"}, {"wallet", "limits"}, {"init", "--username", "alice", "--yes"}, {"wallet", "check"}} {
		if got := alice.fails(agent.ExitLimit, command...); got["code"] != "state_changed" || got["next"] != "parley wallet check" ||
			!strings.Contains(got["error"].(string), "wallet.db") {
			t.Errorf("parley %v: %v", command, got)
		}
	}
	if got := alice.fails(agent.ExitLimit, "wallet", "check", "--accept"); got["code"] != "person_needed" {
		t.Errorf("without a person: %v", got)
	}
	if screen, err := alice.atTerminal("y\n", nil, "wallet", "check", "--accept"); err != nil {
		t.Fatal(err, screen)
	}
	if checked := alice.run("wallet", "check"); checked["state"] != "ok" {
		t.Errorf("after a person accepted it: %v", checked)
	}
}

// TestInitWaitsForMoney: without play money init says which address to fund, and with how much, and goes on when the money is there.
func TestInitWaitsForMoney(t *testing.T) {
	t.Parallel()
	play := playServer(t)
	endpoint := play.facilitator(t) + "/rpc"
	alice := newUser(t, realServer(t, play), "PARLEY_SECRETS=file", "PARLEY_RPC_URL="+endpoint)
	poor := alice.fails(agent.ExitNoMoney, "init", "--username", "alice", "--yes")
	address, _ := alice.settings()["address"].(string)
	if !strings.Contains(poor["error"].(string), address+" has 0.00 USDC and needs 1.01") ||
		poor["next"] != "parley init --username alice --yes" {
		t.Errorf("without money: %v", poor)
	}
	go func() {
		time.Sleep(time.Second)
		if err := agent.Fund(t.Context(), play.facilitator(t), address); err != nil {
			t.Error(err)
		}
	}()
	screen, err := alice.atTerminal("y\n", nil, "init", "--username", "alice")
	if err != nil || !strings.Contains(screen, "send at least 1.01 USDC on") || !strings.Contains(screen, "alice is ready") {
		t.Errorf("init does not wait for money: %v\n%s", err, screen)
	}
}
