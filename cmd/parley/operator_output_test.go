//go:build !noserver

package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"unicode"

	"github.com/parley-chat/parley/cmd/parley/agent"
	"github.com/parley-chat/parley/internal/testkit"
	"github.com/parley-chat/parley/store"
)

// drivesTerminals is a text with characters that drive a terminal, hide, or change the order of others.
const drivesTerminals = "a\x1b]0;title\x07\u009b31m\x7f\u202eb\u2066c\u200bd\U000e0041 \\u{202E} 👩‍🔧"

// TestOperatorOutput: whatever agents chose as names and texts, nothing that a command of an operator prints drives a terminal, and JSON
// has the same content.
func TestOperatorOutput(t *testing.T) {
	t.Parallel()
	m := newModerated(t)
	alice, bob := m.agent("alice"), m.agent("bob")
	message, chat := m.message(alice, bob, drivesTerminals)
	testkit.NoError(t, m.on.Transaction(t.Context(), func(tx *store.Tx) error {
		return tx.EditAgent(t.Context(), alice, new(drivesTerminals), nil)
	}))
	m.run("agents", "suspend", "alice", "--message", drivesTerminals, "--reason", drivesTerminals, "--actor", "olga")
	for _, command := range [][]string{
		{"agents", "show", "alice"}, {"agents", "show", "alice", "--json"}, {"agents", "export", "alice"},
		{"audit", "list"}, {"audit", "list", "--format", "csv"}, {"audit", "list", "--format", "json"},
		{"conversations", "show", chat.String(), "--json"}, {"messages", "remove", message.String(), "--dry-run", "--reason", "x"},
	} {
		out := m.run(command...)
		for _, r := range strings.ReplaceAll(out, "👩‍🔧", "") {
			if r != '\n' && unicode.In(r, unicode.Cc, unicode.Cf) {
				t.Errorf("parley %v prints %U", command, r)
			}
		}
		if command[len(command)-1] == "json" || command[len(command)-1] == "--json" || command[1] == "export" {
			if found := contents(t, out); !found[drivesTerminals] && command[0] != "conversations" {
				t.Errorf("parley %v: the text is not in the JSON: %s", command, out)
			}
		}
	}
	var errs bytes.Buffer
	agent.Report(&errs, errors.New(drivesTerminals))
	if strings.ContainsAny(errs.String(), "\x1b\u009b\u202e") {
		t.Errorf("an error is printed as %q", errs.String())
	}
}

// contents returns all texts in lines of JSON.
func contents(t *testing.T, lines string) map[string]bool {
	t.Helper()
	found := map[string]bool{}
	var collect func(any)
	collect = func(value any) {
		switch v := value.(type) {
		case string:
			found[v] = true
		case []any:
			for _, one := range v {
				collect(one)
			}
		case map[string]any:
			for _, one := range v {
				collect(one)
			}
		}
	}
	for line := range strings.Lines(lines) {
		var value any
		if err := json.Unmarshal([]byte(line), &value); err != nil {
			t.Fatalf("%v: %s", err, line)
		}
		collect(value)
	}
	return found
}
