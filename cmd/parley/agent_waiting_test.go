//go:build !noserver

package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/parley-chat/parley/agent"
	"github.com/parley-chat/parley/internal/testkit"
)

// TestNothingThere: what is missing is said as JSON, without a server and without a key.
func TestNothingThere(t *testing.T) {
	t.Parallel()
	server := "http://" + testkit.FreeAddress(t)
	alice := newUser(t, server)
	alice.fails(agent.ExitUsage, "inbox", "-n", "-1")
	if got := alice.fails(agent.ExitError, "init", "--username", "alice", "--yes"); got["error"] !=
		"read the contract of "+server+": could not reach "+server+" (connection refused); nothing was sent; "+
			"name another server with --server URL, or start one with: parley dev" || got["code"] != "unreachable" || got["retryable"] != true {
		t.Errorf("without a server: %v", got)
	}
	testkit.NoError(t, os.MkdirAll(alice.home, 0o700))
	config := `{"address":"0x19E7E376E7C213B7E7e7e46cc70A5dD086DAff2A","secrets":"file"}`
	testkit.NoError(t, os.WriteFile(filepath.Join(alice.home, "config.json"), []byte(config), 0o600))
	if got := alice.fails(agent.ExitNoKey, "status"); got["code"] != "no_key" ||
		!strings.Contains(got["error"].(string), "PARLEY_WALLET_KEY") {
		t.Errorf("without the key of the environment: %v", got)
	}
}
