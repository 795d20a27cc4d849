//go:build linux && !noserver

package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/parley-chat/parley/cmd/parley/agent"
	"github.com/parley-chat/parley/internal/testkit"
)

// TestGuarded: what only a person may do is asked at the terminal, is not done after a no or with a piped yes, and needs the passphrase
// once there is one.
func TestGuarded(t *testing.T) {
	t.Parallel()
	server := playServer(t)
	alice := newAgent(t, server.URL, "alice")
	approve := alice.approval("group", "create", "team")
	alice.run("wallet", "freeze")
	guarded := [][]string{{"wallet", "limits", "--per-day", "2"}, approve, {"wallet", "unfreeze"},
		{"wallet", "export", filepath.Join(t.TempDir(), "key")}}
	for _, command := range guarded {
		says(t, alice.personFails("n\n", command...), "[y/N]")
		piped := alice.command(command...)
		piped.Stdin = strings.NewReader("yes\n")
		if out, err := piped.CombinedOutput(); err == nil || !strings.Contains(string(out), "person_needed") {
			t.Errorf("parley %v with a piped yes: %v\n%s", command, err, out)
		}
	}
	says(t, alice.personFails("a\na\n", "wallet", "passphrase"), "at least 8 characters")
	alice.person("correct horse\ncorrect horse\n", "wallet", "passphrase")
	for _, command := range append(guarded, []string{"wallet", "passphrase", "--remove"}) {
		answer := "y\n"
		if command[1] == "passphrase" {
			answer = ""
		}
		says(t, alice.personFails(answer+"wrong\n", command...), "not the wallet's passphrase")
		alice.person(answer+"correct horse\n", command...)
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
		if got := alice.fails(agent.ExitLimit, command...); got["code"] != "state_changed" || got["next"] != alice.remedy("wallet check") ||
			!strings.Contains(got["error"].(string), "wallet.db") {
			t.Errorf("parley %v: %v", command, got)
		}
	}
	if got := alice.fails(agent.ExitLimit, "wallet", "check", "--accept"); got["code"] != "person_needed" {
		t.Errorf("without a person: %v", got)
	}
	alice.person("y\n", "wallet", "check", "--accept")
	if checked := alice.run("wallet", "check"); checked["state"] != "ok" {
		t.Errorf("after a person accepted it: %v", checked)
	}
}

// TestInitWaitsForMoney: without play money init says which address to fund, and with how much, and goes on when the money is there.
func TestInitWaitsForMoney(t *testing.T) {
	t.Parallel()
	play := playServer(t)
	facilitator := play.facilitator(t)
	var alice *user
	var looks atomic.Int32 // at the balance, by the init of a person
	endpoint := endpointWith(t, facilitator, func(body []byte) string {
		if bytes.Contains(body, []byte(`"eth_call"`)) && looks.Add(1) == 2 {
			address, _ := alice.settings()["address"].(string)
			if err := agent.Fund(t.Context(), facilitator, address); err != nil {
				t.Error(err)
			}
		}
		return ""
	})
	server := realServer(t, play)
	alice = newUser(t, server, "PARLEY_SECRETS=file", "PARLEY_RPC_URL="+endpoint)
	poor := alice.fails(agent.ExitNoMoney, "init", "--username", "alice", "--yes")
	address, _ := alice.settings()["address"].(string)
	if !strings.Contains(poor["error"].(string), address+" has 0.00 USDC and needs 1.01") ||
		poor["next"] != alice.remedy("init --server "+server+" --username alice --yes") {
		t.Errorf("without money: %v", poor)
	}
	looks.Store(0)
	says(t, alice.person("y\n", "init", "--username", "alice"), "send at least 1.01 USDC on", "alice is ready")
}
