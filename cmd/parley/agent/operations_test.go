package agent

import (
	"io"
	"regexp"
	"strings"
	"testing"

	"github.com/alecthomas/kong"

	"github.com/parley-chat/parley/agent"
	"github.com/parley-chat/parley/cmd/parley/console"
	"github.com/parley-chat/parley/internal/testkit"
)

// TestOperationsHaveCommands: each operation of the contract has a command that exists, and no other operation has one. The help of each
// command has examples.
func TestOperationsHaveCommands(t *testing.T) {
	t.Parallel()
	contract, err := agent.LoadContract()
	testkit.NoError(t, err)
	parser, err := kong.New(&Commands{}, kong.Name("parley"))
	testkit.NoError(t, err)
	AddExamples(parser.Model)
	paths := map[string]bool{}
	for _, leaf := range parser.Model.Leaves(false) {
		path := strings.TrimPrefix(leaf.FullPath(), "parley ")
		paths[path] = true
		group := leaf.ClosestGroup()
		if group == nil || group.Key != Group {
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
		if agent.CallerOf(id).Command == "" {
			t.Errorf("operation %s has no command in agent.Callers", id)
		}
	}
	for _, caller := range agent.Callers {
		for _, id := range caller.Operations {
			if contract[id] == nil || !paths[caller.Command] {
				t.Errorf("agent.Callers has %s: parley %s; the operation or the command does not exist", id, caller.Command)
			}
		}
	}
}

var word = regexp.MustCompile(`'[^']*'|"[^"]*"|\S+`)

// TestExamplesParse: the examples in the help are command lines that the program understands.
func TestExamplesParse(t *testing.T) {
	t.Parallel()
	fresh := func() *kong.Kong {
		return kong.Must(&Commands{}, kong.Name("parley"), kong.Bind(console.Console{Out: io.Discard, Err: io.Discard}, &Invocation{}))
	}
	model, parsed := fresh().Model, 0
	AddExamples(model)
	for _, leaf := range model.Leaves(false) {
		for line := range strings.Lines(leaf.Detail) {
			if !strings.HasPrefix(line, "  ") || !strings.Contains(line, "parley ") {
				continue
			}
			var args []string
			command, _, _ := strings.Cut(line[strings.LastIndex(line, "parley ")+len("parley "):], " >")
			for _, arg := range word.FindAllString(command, -1) {
				args = append(args, strings.Trim(arg, `'"`))
			}
			found, err := fresh().Parse(args)
			if err != nil {
				t.Errorf("%q: %v", line, err)
			} else if got := found.Selected().FullPath(); got != leaf.FullPath() {
				t.Errorf("%q is an example of %s, in the help of %s", line, got, leaf.FullPath())
			}
			parsed++
		}
	}
	if parsed < 60 {
		t.Errorf("only %d examples were found", parsed)
	}
}
