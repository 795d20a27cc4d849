//go:build !noserver

package main

import (
	"strings"
	"testing"

	"github.com/alecthomas/kong"

	"github.com/parley-chat/parley/agent"
)

// TestOperationsHaveCommands: each operation of the contract has a command that exists, and no other operation has one. The help of each
// command has examples.
func TestOperationsHaveCommands(t *testing.T) {
	t.Parallel()
	contract, err := agent.LoadContract()
	if err != nil {
		t.Fatal(err)
	}
	parser, err := kong.New(&commands{}, kong.Name("parley"))
	if err != nil {
		t.Fatal(err)
	}
	addExamples(parser.Model)
	paths := map[string]bool{}
	for _, leaf := range parser.Model.Leaves(false) {
		path := strings.TrimPrefix(leaf.FullPath(), "parley ")
		paths[path] = true
		group := leaf.ClosestGroup()
		if group == nil || group.Key != agentGroup {
			continue
		}
		if !strings.Contains(leaf.Detail, "Examples:\n  parley "+strings.Fields(path)[0]) && path != "init" {
			t.Errorf("parley %s --help has no examples", path)
		}
	}
	for path := range examples {
		if !paths[path] {
			t.Errorf("there are examples of parley %s, which does not exist", path)
		}
	}
	for id := range contract {
		if operationCommands[id] == "" {
			t.Errorf("operation %s has no command in operationCommands", id)
		}
	}
	for id, command := range operationCommands {
		if contract[id] == nil || !paths[command] {
			t.Errorf("operationCommands has %s: parley %s; the operation or the command does not exist", id, command)
		}
	}
}
