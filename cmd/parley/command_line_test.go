//go:build !noserver

package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	parley "github.com/parley-chat/parley"
	"github.com/parley-chat/parley/internal/testkit"
)

// TestHelpCommand: parley help COMMAND prints what the command prints with --help, and the first help shows two first steps. The version
// names the commit, if the build knows it.
func TestHelpCommand(t *testing.T) {
	t.Parallel()
	for _, command := range [][]string{nil, {"send"}, {"contacts"}, {"contacts", "block"}, {"wallet", "report"}, {"payments"}, {"serve"}} {
		help := invoke(t, append([]string{"help"}, command...)...).good(t)
		if want := invoke(t, append(command[:len(command):len(command)], "--help")...).good(t); help != want || help == "" {
			t.Errorf("parley help %v is\n%s\nwant\n%s", command, help, want)
		}
		if strings.Contains(help, "\x1b") {
			t.Errorf("the help of %v is coloured", command)
		}
	}
	if top, _, _ := strings.Cut(invoke(t, "help").good(t), "Commands"); strings.Count(top, "\n    parley ") != 2 {
		t.Errorf("the help has no two lines of example at its top:\n%s", top)
	}
	if help := invoke(t).good(t); !strings.Contains(help, "\n") {
		t.Errorf("parley prints %q", help)
	}
	testkit.Contains(t, invoke(t, "help", "inbox").good(t), "--wait=SECONDS", "-n, --n=N ", "default 20", "PARLEY_MESSAGE_IDS")
	testkit.Contains(t, invoke(t, "help", "mcp").good(t), `{"mcpServers": {"parley": {`, `"env": {"PARLEY_HOME": `, "Also --home, --server")
	testkit.Contains(t, invoke(t, "channel", "subscribe", "--help").good(t), "channel join (subscribe) <conversation>")
	if help := invoke(t, "help", "send").good(t); len(help) > 600 {
		t.Errorf("the help of send has %d bytes", len(help))
	}
	for _, version := range []string{"version", "--version"} {
		testkit.Contains(t, invoke(t, version).good(t), "parley "+parley.Version())
	}
	if codes := invoke(t, "help", "exit-codes").good(t); !strings.Contains(codes, "outcome_open") {
		t.Errorf("the help of exit codes is\n%s", codes)
	}
	if wrong := invoke(t, "help", "nosuch"); wrong.err == nil || wrong.out != "" {
		t.Errorf("help of a command that does not exist: %q, %v", wrong.out, wrong.err)
	}
}

// TestConfig: the settings in force are shown without a wallet and without a server. Common flags stand before or after the command.
func TestConfig(t *testing.T) {
	t.Parallel()
	u := newUser(t, "http://env.example", "PARLEY_WALLET_KEY="+strings.Repeat("0", 63)+"7")
	wants := func(config map[string]any, name, value string) {
		t.Helper()
		if config[name] != value {
			t.Errorf("%s is %v, want %s", name, config[name], value)
		}
	}
	empty := u.run("config")
	wants(empty, "home", u.home)
	wants(empty, "server", "http://env.example")
	file := filepath.Join(u.home, "config.json")
	testkit.NoError(t, os.MkdirAll(u.home, 0o700))
	testkit.NoError(t, os.WriteFile(file, []byte(`{"server": "http://file.example", "username": "alice", "secrets": "keyring",
		"rpc_url": "https://chain.example/v2/apikey"}`), 0o600))
	for _, config := range []map[string]any{u.run("--secrets", "file", "--json", "config"), u.run("config", "--json", "--secrets=file")} {
		wants(config, "server", "http://env.example")
		wants(config, "username", "alice")
		wants(config, "secrets", "file")
	}
	u.env = append(u.env, "PARLEY_SERVER=")
	wants(u.run("config"), "server", "http://file.example")
	if printed := u.all.String(); strings.Contains(printed, "apikey") || strings.Contains(printed, "00007") {
		t.Errorf("a secret is shown:\n%s", printed)
	}
}

// TestWrongLines: what is said about a wrong command line names the mistake, without terms of the parser and regular expressions.
func TestWrongLines(t *testing.T) {
	t.Parallel()
	u := newUser(t, "http://127.0.0.1:1", "PARLEY_WALLET_KEY="+strings.Repeat("0", 63)+"7", "PARLEY_SECRETS=file")
	for line, want := range map[string]string{
		"status --jq":    "--jq needs a value; one that begins with a dash is written --jq=VALUE",
		"react msg_1 👍":  "<message-id>: it must have the form of msg_01k70tc513egtarndz528zps60",
		"react msg_1 x":  "<emoji> must be exactly one emoji, such as 👍, or give --remove",
		"sned bob hi":    `unexpected argument sned, did you mean "send"?`,
		"inbox -n 0":     "-n is a whole number from 1 to 250",
		"inbox -n -1":    "--n needs a value; one that begins with a dash is written --n=VALUE",
		"react a --key=": "--key is empty",
		"inbox --key k":  "parley inbox takes no --key: it changes nothing that is paid for",
		"inbox --wait x": "--wait is a whole number from 0 to 45",
		"send '' hi":     "<to> is empty: username, #channel, group name, or id",
	} {
		if got := u.fails(2, exampleArgs(line)...); got["error"] != want || got["code"] != "usage" || got["paid_usd"] != "0.00" {
			t.Errorf("parley %s: %v, want %q", line, got, want)
		}
	}
}
