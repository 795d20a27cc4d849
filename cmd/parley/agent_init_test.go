//go:build !noserver

package main

import (
	"bytes"
	"encoding/json"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/alecthomas/kong"

	"github.com/parley-chat/parley/agent"
	command "github.com/parley-chat/parley/cmd/parley/agent"
	"github.com/parley-chat/parley/internal/devnet"
	"github.com/parley-chat/parley/internal/testkit"
)

// realServer is a server of which nothing says that it takes play money.
func realServer(t *testing.T, play *process) string {
	t.Helper()
	facilitator := play.facilitator(t)
	return inFrontOf(t, play.URL, func(w http.ResponseWriter, r *http.Request, pass http.Handler) {
		if r.URL.Path != "/openapi.json" {
			pass.ServeHTTP(w, r)
			return
		}
		var document json.RawMessage
		get(t, play.URL+"/openapi.json", &document)
		_, _ = w.Write(bytes.ReplaceAll(document, []byte(facilitator), []byte("https://facilitator.example")))
	}).URL
}

// TestSharedHome: a program neither makes a wallet in a folder that other users may write to, nor uses the settings in one.
func TestSharedHome(t *testing.T) {
	t.Parallel()
	alice := newUser(t, "http://127.0.0.1:1")
	testkit.NoError(t, os.MkdirAll(alice.home, 0o700))
	testkit.NoError(t, os.WriteFile(filepath.Join(alice.home, "config.json"), []byte(`{"address":"0x1"}`), 0o600))
	testkit.NoError(t, os.Chmod(alice.home, 0o777))
	for _, command := range [][]string{{"init", "--username", "alice", "--yes"}, {"status"}, {"wallet", "balance"}} {
		if got := alice.fails(agent.ExitError, command...); !strings.Contains(got["error"].(string), "chmod go-w "+alice.home) {
			t.Errorf("parley %v: %v", command, got)
		}
	}
	if files, err := os.ReadDir(alice.home); err != nil || len(files) != 1 {
		t.Errorf("the folder has %v, %v", files, err)
	}
}

// TestGivenKey: a key from a file comes before those that are stored, and is stored nowhere.
func TestGivenKey(t *testing.T) {
	t.Parallel()
	server := playServer(t)
	account := devnet.Accounts()[5]
	key := writeFile(t, account.PrivateKey+"\n")
	alice := newUser(t, server.URL, "PARLEY_WALLET_KEY_FILE="+key, "PARLEY_WALLET_KEY=nonsense")
	made := alice.run("init", "--username", "alice", "--yes")
	if made["address"] != account.Address || made["wallet_key"] != "PARLEY_WALLET_KEY_FILE" {
		t.Errorf("the wallet is %v", made)
	}
	secrets, err := os.ReadFile(filepath.Join(alice.home, "secrets.json"))
	if err != nil || strings.Contains(string(secrets), strings.TrimPrefix(account.PrivateKey, "0x")) {
		t.Errorf("the key was stored, or nothing: %v", err)
	}
	if strings.Contains(alice.all.String(), strings.TrimPrefix(account.PrivateKey, "0x")) {
		t.Error("the key was printed")
	}
	alice.env = append(alice.env, "PARLEY_WALLET_KEY_FILE=", "PARLEY_WALLET_KEY=")
	alice.fails(agent.ExitNoKey, "status")
	if got := alice.fails(agent.ExitNoKey, "init", "--username", "alice", "--yes"); !strings.Contains(got["error"].(string), account.Address) {
		t.Errorf("init without the wallet's key made another: %v", got)
	}
}

// TestAgentAlone: the program without the server has none of the server's packages.
func TestAgentAlone(t *testing.T) {
	t.Parallel()
	listed, err := exec.CommandContext(t.Context(), "go", "list", "-tags", "noserver", "-deps", ".").Output()
	testkit.NoError(t, err)
	for _, without := range []string{
		"gorm.io/", "labstack/echo", "jackc/pgx", "parley/server", "parley/store", "parley/payment", "parley/devnet", "parley/internal/embedded",
	} {
		if strings.Contains(string(listed), without) {
			t.Errorf("the program without the server has a package of %s", without)
		}
	}
}

// TestInitAtTheSameTime: several runs make one wallet, and pay for one account.
func TestInitAtTheSameTime(t *testing.T) {
	t.Parallel()
	server := playServer(t)
	alice := newUser(t, server.URL)
	var runs []*exec.Cmd
	for range 4 {
		cmd := alice.command("init", "--username", "alice", "--yes")
		testkit.NoError(t, cmd.Start())
		runs = append(runs, cmd)
	}
	for _, cmd := range runs {
		if err := cmd.Wait(); err != nil {
			t.Error(err)
		}
	}
	if wallets, err := filepath.Glob(filepath.Join(alice.home, "wallets", "*")); err != nil || len(wallets) != 1 {
		t.Errorf("there are the wallets %v, %v", wallets, err)
	}
	if status := alice.run("status"); status["left_usd"] != "0.999" || status["username"] == nil {
		t.Errorf("the status is %v", status)
	}
}

// TestRealMoney: an empty wallet gets no account, and is told where to send how much. Other terms, another server and another wallet need a
// decision.
func TestRealMoney(t *testing.T) {
	t.Parallel()
	play := playServer(t)
	server := realServer(t, play)
	alice := newUser(t, server)
	init := []string{"init", "--username", "alice", "--yes"}
	poor := alice.fails(agent.ExitNoMoney, append(init, "--rpc-url", play.facilitator(t)+"/rpc")...)
	if poor["code"] != "no_money" || poor["charged"] != false {
		t.Errorf("an empty wallet: %v", poor)
	}
	testkit.Contains(t, poor["error"].(string), "has 0.00 USDC", "costs 1.001", "to 0x")
	bob := newUser(t, server) // without an endpoint of the blockchain it is the server that refuses the payment
	if got := bob.fails(agent.ExitNoMoney, "init", "--username", "bob", "--yes"); got["code"] != "no_money" || got["charged"] != false {
		t.Errorf("an empty wallet without an endpoint: %v", got)
	}
	carol := newAgent(t, play.URL, "carol")
	if got := carol.fails(agent.ExitLimit, "init", "--server", server, "--yes"); got["code"] != "terms_changed" ||
		got["next"] != carol.remedy("init --agree --server "+agent.Quoted(server)) {
		t.Errorf("other terms: %v", got)
	}
	if got := carol.fails(agent.ExitUsage, "send", "carol", "hi", "--server", server); !strings.Contains(got["error"].(string),
		"agreed to the terms of") {
		t.Errorf("a command for another server: %v", got)
	}
}

// TestLostSettings: init in a folder whose settings are lost keeps its wallet, and makes no second one if it cannot find the key.
func TestLostSettings(t *testing.T) {
	t.Parallel()
	alice := newAgent(t, playServer(t).URL, "alice")
	before := alice.settings()["address"]
	testkit.NoError(t, os.Remove(filepath.Join(alice.home, "config.json")))
	if got := alice.fails(agent.ExitUsage, "init", "--username", "other", "--yes"); !strings.Contains(got["error"].(string), "alice") {
		t.Errorf("init with another name than the account's: %v", got)
	}
	after := alice.run("init", "--username", "alice", "--description", "x", "--yes")
	if after["address"] != before || after["paid_usd"] != "0.00" || !strings.Contains(after["message"].(string), "keeps its description") {
		t.Errorf("init again: %v, want the wallet %v", after, before)
	}
	testkit.NoError(t, os.Remove(filepath.Join(alice.home, "secrets.json")))
	if got := alice.fails(agent.ExitNoKey, "init", "--username", "alice2", "--yes"); got["code"] != "no_key" {
		t.Errorf("without the key: %v", got)
	}
}

// TestDefaultServer: without a flag parley init uses the server that parley dev starts without a flag.
func TestDefaultServer(t *testing.T) {
	t.Parallel()
	var parsed commands
	if _, err := kong.Must(&parsed).Parse([]string{"dev"}); err != nil {
		t.Fatal(err)
	}
	if got := "http://" + parsed.Server.Development.Dev.Listen; got != command.DefaultServer {
		t.Errorf("parley dev listens on %s, parley init asks %s", got, command.DefaultServer)
	}
}
