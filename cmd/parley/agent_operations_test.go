//go:build !noserver

package main

import (
	"strings"
	"testing"

	"github.com/alecthomas/kong"

	"github.com/parley-chat/parley/agent"
)

// TestOperationsHaveCommands: each operation of the contract has a command that exists, and no other operation has one.
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
	paths, examples := map[string]bool{}, 0
	for _, leaf := range parser.Model.Leaves(false) {
		path := strings.TrimPrefix(leaf.FullPath(), "parley ")
		paths[path] = true
		group := leaf.ClosestGroup()
		if group == nil || group.Key != agentGroup {
			continue
		}
		detail := leaf.Detail
		for parent := leaf.Parent; detail == "" && parent != nil; parent = parent.Parent {
			detail = parent.Detail
		}
		if !strings.Contains(detail, "Examples:\n  ") {
			t.Errorf("parley %s --help has no examples", path)
		}
		examples++
	}
	if examples < 40 {
		t.Errorf("only %d commands of an agent were found", examples)
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
