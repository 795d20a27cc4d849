//go:build !noserver

package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/parley-chat/parley/cmd/parley/agent"
	"github.com/parley-chat/parley/internal/testkit"
)

// TestInstall: the server is added to the configuration of each runtime, once, and everything else in it stays.
func TestInstall(t *testing.T) {
	t.Parallel()
	u := newUser(t, "http://127.0.0.1:1")
	for runtime, test := range map[string]struct{ before, keeps string }{
		"claude": {`{"mcpServers":{"other":{"command":"x"}},"a":[1,2]}`, `"other"`}, "cursor": {``, `"mcpServers"`},
		"openclaw": {`{"gateway":{"port":18789},"mcp":{"sessionIdleTtlMs":5}}`, `18789`},
		"codex":    {"model = \"x\"\n\n[mcp_servers.other]\ncommand = \"y\"\n", "[mcp_servers.other]\ncommand = \"y\""},
	} {
		file := filepath.Join(t.TempDir(), "folder", "config")
		if test.before != "" {
			testkit.NoError(t, os.MkdirAll(filepath.Dir(file), 0o700))
			testkit.NoError(t, os.WriteFile(file, []byte(test.before), 0o600))
		}
		u.run("install", runtime, "--file", file, "--tools", "all")
		u.run("install", runtime, "--file", file)
		content, err := os.ReadFile(file)
		testkit.NoError(t, err)
		text := string(content)
		if !strings.Contains(text, test.keeps) || strings.Count(text, `"--tools"`) != 1 || !strings.Contains(text, `"core"`) ||
			!strings.Contains(text, "PARLEY_HOME") {
			t.Errorf("%s: the configuration is\n%s", runtime, text)
		}
		if runtime != "codex" && !json.Valid(content) {
			t.Errorf("%s: the configuration is no JSON", runtime)
		}
	}
	file := writeFile(t, "{ // JSON with comments\n}")
	if failed := u.fails(agent.ExitError, "install", "openclaw", "--file", file); !strings.Contains(failed["error"].(string), "--print") {
		t.Errorf("a file that cannot be changed: %v", failed)
	}
	if content, err := os.ReadFile(file); err != nil || !strings.Contains(string(content), "comments") {
		t.Errorf("the file was changed: %s, %v", content, err)
	}
	if out, _, code := u.try("install", "codex", "--print"); code != 0 || !strings.HasPrefix(out, "[mcp_servers.parley]\ncommand = ") {
		t.Errorf("--print prints %s", out)
	}
}
