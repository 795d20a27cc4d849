//go:build !noserver

package main

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/alecthomas/kong"

	"github.com/parley-chat/parley/cmd/parley/agent"
	"github.com/parley-chat/parley/internal/devnet"
	"github.com/parley-chat/parley/internal/testkit"
	"github.com/parley-chat/parley/x402/evm"
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

// TestRealMoneyNeedsASafePlace: with a real network init stores no key in plaintext unless that is named, and takes no account without
// money.
func TestRealMoneyNeedsASafePlace(t *testing.T) {
	t.Parallel()
	play := playServer(t)
	server := realServer(t, play)
	alice := newUser(t, server)
	refused := alice.fails(agent.ExitNoKey, "init", "--username", "alice", "--yes")
	says(t, refused["error"].(string), "--secrets encrypted", "PARLEY_PASSPHRASE_FILE", "PARLEY_SIGNER", "--secrets file")
	if found, err := filepath.Glob(filepath.Join(alice.home, "[a-z]*")); err != nil || len(found) > 0 {
		t.Errorf("init left %v, %v", found, err)
	}
	poor := alice.fails(agent.ExitNoMoney, "init", "--username", "alice", "--yes", "--secrets", "file", "--rpc-url",
		play.facilitator(t)+"/rpc")
	if poor["code"] != "no_money" || !strings.Contains(poor["error"].(string), "send USDC") {
		t.Errorf("an empty wallet: %v", poor)
	}
	// Without an endpoint of the blockchain it is the server that refuses the payment.
	bob := newUser(t, server, "PARLEY_PASSPHRASE=correct horse")
	if got := bob.fails(agent.ExitNoMoney, "init", "--username", "bob", "--yes"); got["charged"] != false {
		t.Errorf("an empty wallet without an endpoint: %v", got)
	}
	if _, err := os.Stat(filepath.Join(bob.home, "secrets.age")); err != nil {
		t.Errorf("the keys are not in an encrypted file: %v", err)
	}
	bob.env = append(bob.env, "PARLEY_PASSPHRASE=wrong")
	if got := bob.fails(agent.ExitError, "status"); !strings.Contains(got["error"].(string), "wrong passphrase") {
		t.Errorf("with a wrong passphrase: %v", got)
	}
}

// TestLostSettings: init in a folder whose settings are lost keeps its wallet, and makes no second one if it cannot find the key.
func TestLostSettings(t *testing.T) {
	t.Parallel()
	alice := newUser(t, playServer(t).URL, "PARLEY_PASSPHRASE=correct horse")
	before := alice.run("init", "--username", "alice", "--yes")["wallet"]
	testkit.NoError(t, os.Remove(filepath.Join(alice.home, "config.json")))
	alice.env = append(alice.env, "PARLEY_PASSPHRASE=")
	alice.fails(agent.ExitNoKey, "init", "--username", "alice2", "--yes")
	refused := alice.fails(agent.ExitNoKey, "init", "--username", "alice2", "--yes", "--secrets", "file")
	says(t, refused["error"].(string), "config.json is missing", "name the place with --secrets")
	alice.env = append(alice.env, "PARLEY_PASSPHRASE=correct horse")
	if after := alice.run("init", "--username", "alice", "--yes"); after["wallet"] != before || after["paid_usd"] != "0.001" {
		t.Errorf("init again: %v, want the wallet %v", after, before)
	}
}

// TestSharedHome: a program neither makes a wallet in a folder that other users may write to, nor uses the settings in one.
func TestSharedHome(t *testing.T) {
	t.Parallel()
	alice := newUser(t, "http://127.0.0.1:1")
	testkit.NoError(t, os.MkdirAll(alice.home, 0o700))
	testkit.NoError(t, os.WriteFile(filepath.Join(alice.home, "config.json"), []byte(`{"signer":"touch signed","address":"0x1"}`), 0o600))
	testkit.NoError(t, os.Chmod(alice.home, 0o777))
	for _, command := range [][]string{{"init", "--username", "alice", "--yes"}, {"status"}, {"wallet", "balance"}, {"mcp"}} {
		if got := alice.fails(agent.ExitError, command...); !strings.Contains(got["error"].(string), "chmod go-w "+alice.home) {
			t.Errorf("parley %v: %v", command, got)
		}
	}
	if files, err := os.ReadDir(alice.home); err != nil || len(files) != 1 {
		t.Errorf("the folder has %v, %v", files, err)
	}
}

// TestPlayKeysStayPlayKeys: keys that are in plaintext because they were made for play money do not get real money.
func TestPlayKeysStayPlayKeys(t *testing.T) {
	t.Parallel()
	play := playServer(t)
	alice := newAgent(t, play.URL, "alice")
	other := realServer(t, play)
	if got := alice.fails(agent.ExitUsage, "init", "--server", other); !strings.Contains(got["error"].(string), "PARLEY_HOME") {
		t.Errorf("another server: %v", got)
	}
	if got := alice.fails(agent.ExitLimit, "init", "--server", other, "--secrets", "file"); got["code"] != "terms_changed" {
		t.Errorf("other terms without a person: %v", got)
	}
	if got := alice.fails(agent.ExitUsage, "send", "alice", "hi", "--server", other); !strings.Contains(got["error"].(string),
		"has agreed to the terms of") {
		t.Errorf("a command for another server: %v", got)
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
	// A signer that is not there.
	alice.env = append(alice.env, "PARLEY_SIGNER=false", "PARLEY_SIGNER_ADDRESS="+account.Address)
	if status := alice.run("status"); status["wallet_key"] != "signer command" {
		t.Errorf("the status is %v", status)
	}
}

// TestStrangers: with real money a program writes to contacts and to whoever wrote first.
func TestStrangers(t *testing.T) {
	t.Parallel()
	play := playServer(t)
	server := realServer(t, play)
	rich := func(name string) *user {
		key, err := evm.GenerateKey()
		testkit.NoError(t, err)
		testkit.NoError(t, agent.Fund(t.Context(), play.facilitator(t), evm.PubkeyToAddress(key.PublicKey).Hex()))
		file := writeFile(t, hex.EncodeToString(evm.FromECDSA(key)))
		return newAgent(t, server, name, "PARLEY_WALLET_KEY_FILE="+file, "PARLEY_SECRETS=file")
	}
	alice, bob := rich("alice"), rich("bob")
	if got := alice.fails(agent.ExitLimit, "send", "bob", "hi"); got["code"] != "stranger" || got["next"] != alice.remedy("contacts add bob") {
		t.Errorf("to a stranger: %v", got)
	}
	me := bob.run("profile")
	alice.fails(agent.ExitLimit, "call", "sendPrivateMessage",
		mustJSON(t, map[string]any{"recipient_agent_id": me["agent_id"], "content": "hi"}))
	for _, args := range [][]string{{"group", "create", "team", "--member", "bob"},
		{"group", "join", "chat_" + strings.Repeat("0", 26), "--message", "hi"}} {
		if got := alice.fails(agent.ExitLimit, args...); got["code"] != "stranger" {
			t.Errorf("parley %s: %v", args, got)
		}
	}
	alice.run("contacts", "add", "bob")
	alice.run("send", "bob", "hi")
	bob.run("inbox")
	bob.run("send", "alice", "who wrote first may be answered")
	// In a group chat that an agent began the texts of members are shown. So bob does not add alice, whom he does not trust.
	if got := bob.fails(agent.ExitLimit, "group", "create", "team", "--member", "alice"); got["code"] != "stranger" {
		t.Errorf("a group chat with a stranger: %v", got)
	}
	create := []string{"group", "create", "team", "--member", "alice", "--anyone"}
	bob.approve(create...)
	team := bob.run(create...)
	alice.run("send", fmt.Sprint(team["chat_id"]), "from a stranger in a group", "--anyone")
	bob.run("inbox")
	if got := texts(bob.run("inbox", "--cached")); len(got) != 2 || got[0]+got[1] != "" {
		t.Errorf("the texts of a stranger who was answered are shown: %q", got)
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
	if status := alice.run("status"); status["today_left_usd"] != "0.999" || status["account"] != true {
		t.Errorf("the status is %v", status)
	}
}

// TestDefaultServer: without a flag parley init uses the server that parley dev starts without a flag.
func TestDefaultServer(t *testing.T) {
	t.Parallel()
	var parsed commands
	if _, err := kong.Must(&parsed).Parse([]string{"dev"}); err != nil {
		t.Fatal(err)
	}
	if got := "http://" + parsed.Server.Development.Dev.Listen; got != agent.DefaultServer {
		t.Errorf("parley dev listens on %s, parley init asks %s", got, agent.DefaultServer)
	}
}
