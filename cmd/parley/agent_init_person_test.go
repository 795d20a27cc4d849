//go:build !noserver

package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/parley-chat/parley/cmd/parley/agent"
	"github.com/parley-chat/parley/internal/devnet"
	"github.com/parley-chat/parley/internal/testkit"
)

// TestInitWithoutPerson: init --yes pays for one account, and changes neither where the API key is nor who reads the blockchain.
func TestInitWithoutPerson(t *testing.T) {
	t.Parallel()
	play := playServer(t)
	key := writeFile(t, devnet.Accounts()[5].PrivateKey)
	alice := newUser(t, realServer(t, play), "PARLEY_WALLET_KEY_FILE="+key, "PARLEY_SECRETS=file", "PARLEY_PASSPHRASE=x")
	endpoint := play.facilitator(t) + "/rpc"
	alice.run("init", "--username", "alice", "--yes", "--rpc-url", endpoint)
	alice.run("wallet", "limits", "--per-call", "0.01", "--per-day", "0.05")
	settings, err := os.ReadFile(filepath.Join(alice.home, "config.json"))
	testkit.NoError(t, err)
	for _, args := range [][]string{{"--secrets", "encrypted"}, {"--rpc-url", "http://127.0.0.1:1"}} {
		refused := alice.fails(agent.ExitLimit, append([]string{"init", "--username", "alice2", "--yes"}, args...)...)
		if refused["code"] != "person_needed" {
			t.Errorf("init %s: %v", strings.Join(args, " "), refused)
		}
	}
	if now, err := os.ReadFile(filepath.Join(alice.home, "config.json")); string(now) != string(settings) || err != nil {
		t.Errorf("the settings are %s, %v; they were %s", now, err, settings)
	}
	// The API key is lost.
	testkit.NoError(t, os.Remove(filepath.Join(alice.home, "secrets.json")))
	out, told, code := alice.try("init", "--username", "alice3", "--yes")
	if code != agent.ExitLimit || out != "" || !strings.Contains(told, "person_needed") ||
		!strings.Contains(told, "0.99 USD were sent for one before") {
		t.Errorf("a second account: exit code %d\n%s%s", code, out, told)
	}
	if !strings.Contains(told, "0.01 USD per call, 0.05 per day") {
		t.Errorf("init does not show the limits of the wallet:\n%s", told)
	}
	var config struct {
		PlayMoney bool   `json:"play_money"`
		RPCURL    string `json:"rpc_url"`
	}
	if err := json.Unmarshal(settings, &config); err != nil || config.PlayMoney || config.RPCURL != endpoint {
		t.Errorf("the settings were %s, %v", settings, err)
	}
	costs := mustJSON(t, alice.run("wallet", "report"))
	if strings.Count(costs, `"charged_usd":"0.99"`) != 1 {
		t.Errorf("accounts cost %s", costs)
	}
}
