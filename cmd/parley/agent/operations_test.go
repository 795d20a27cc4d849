package agent

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/alecthomas/kong"
	"github.com/itchyny/gojq"

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
		path := console.CommandName(leaf)
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

// TestTopics: the help lists each variable that the program reads, and each code of errors that the skill lists.
func TestTopics(t *testing.T) {
	t.Parallel()
	said := map[string]string{}
	for _, topic := range Topics {
		said[topic.Name] = fmt.Sprint(topic.Entries)
	}
	files, err := filepath.Glob("*.go")
	testkit.NoError(t, err)
	read := regexp.MustCompile(`(?:Getenv\("|env:")(PARLEY_[A-Z_]+)`)
	for _, file := range files {
		source, err := os.ReadFile(file)
		testkit.NoError(t, err)
		for _, found := range read.FindAllStringSubmatch(string(source), -1) {
			if !strings.Contains(said["environment"], found[1]+" ") {
				t.Errorf("parley help environment lacks %s", found[1])
			}
		}
	}
	skill, err := os.ReadFile("../../../skills/parley/SKILL.md")
	testkit.NoError(t, err)
	_, table, _ := strings.Cut(string(skill), "### Exit codes")
	table, _, _ = strings.Cut(table, "\n\n**")
	for _, code := range regexp.MustCompile("`([a-z_]+)`").FindAllStringSubmatch(table, -1) {
		if !strings.Contains(said["exit-codes"], code[1]) {
			t.Errorf("parley help exit-codes lacks %s", code[1])
		}
	}
}

var word = regexp.MustCompile(`'[^']*'|"[^"]*"|\S+`)

// unquoted removes the quotes of a shell around an argument.
func unquoted(arg string) string {
	if arg[0] == '\'' || arg[0] == '"' {
		return arg[1 : len(arg)-1]
	}
	return arg
}

// TestExamplesOfHeldMessages: the jq expressions in the help of inbox and read give a text for each message, also for one that is held.
func TestExamplesOfHeldMessages(t *testing.T) {
	t.Parallel()
	tried := 0
	for _, line := range append(examples["inbox"], examples["read"]...) {
		_, expression, found := strings.Cut(line, "--jq ")
		if !found {
			continue
		}
		tried++
		query, err := gojq.Parse(unquoted(expression))
		testkit.NoError(t, err)
		messages := []any{object{"from": "bob", "text": "hi"}, object{"from": "eve", "held": true, "characters": 7}}
		results := query.Run(object{"messages": messages})
		for range messages {
			if shown, _ := results.Next(); shown == nil {
				t.Errorf("%s gives nothing for a message", line)
			} else if _, text := shown.(string); !text {
				t.Errorf("%s gives %v", line, shown)
			}
		}
	}
	if tried < 2 {
		t.Errorf("only %d examples were tried", tried)
	}
}

func newParser(t *testing.T) *kong.Kong {
	t.Helper()
	_, running := NewInvocation(t.Context())
	return kong.Must(&Commands{}, kong.Name("parley"), kong.Bind(console.Console{Out: io.Discard, Err: io.Discard}, running))
}

// parse parses a command that helps, such as the next one of an error.
func parse(t *testing.T, line string) error {
	t.Helper()
	parser := newParser(t)
	var args []string
	for _, arg := range word.FindAllString(line, -1) {
		args = append(args, unquoted(arg))
	}
	_, err := parser.Parse(console.FlagsLast(args[1:], CommonFlags(parser.Model)))
	return err
}

// TestRemediesExist: the commands that errors, questions and outputs name exist, with their flags.
func TestRemediesExist(t *testing.T) {
	t.Parallel()
	model, checked := newParser(t).Model, 0
	mention := regexp.MustCompile("parley ([a-z]+)((?: [A-Za-z-]+)*)")
	for _, folder := range []string{".", "../../../agent"} {
		files, err := filepath.Glob(filepath.Join(folder, "*.go"))
		testkit.NoError(t, err)
		for _, file := range files {
			if strings.HasSuffix(file, "_test.go") {
				continue
			}
			source, err := parser.ParseFile(token.NewFileSet(), file, nil, 0)
			testkit.NoError(t, err)
			ast.Inspect(source, func(node ast.Node) bool {
				literal, ok := node.(*ast.BasicLit)
				if !ok || literal.Kind != token.STRING {
					return true
				}
				for _, found := range mention.FindAllString(literal.Value, -1) {
					words := strings.Fields(found)[1:]
					if i := slices.IndexFunc(model.Children, func(child *kong.Node) bool { return child.Name == words[0] }); i >= 0 {
						checked++
						checkMention(t, found, model.Children[i], words[1:])
					}
				}
				return true
			})
		}
	}
	if checked < 60 {
		t.Errorf("only %d commands were found", checked)
	}
}

// checkMention checks the words that follow a command in a text. They may end with prose.
func checkMention(t *testing.T, text string, command *kong.Node, words []string) {
	t.Helper()
	for _, word := range words {
		if name, isFlag := strings.CutPrefix(word, "--"); isFlag {
			known := slices.ContainsFunc(command.AllFlags(true), func(group []*kong.Flag) bool {
				return slices.ContainsFunc(group, func(flag *kong.Flag) bool { return flag.Name == name })
			})
			if !known {
				t.Errorf("%q: parley %s has no flag %s", text, console.CommandName(command), word)
			}
		} else if i := slices.IndexFunc(command.Children, func(child *kong.Node) bool { return child.Name == word }); i >= 0 {
			command = command.Children[i]
		}
	}
}

// TestExamplesParse: the examples in the help are command lines that the program understands.
func TestExamplesParse(t *testing.T) {
	t.Parallel()
	model, parsed := newParser(t).Model, 0
	AddExamples(model)
	for _, leaf := range model.Leaves(false) {
		for line := range strings.Lines(leaf.Detail) {
			if !strings.HasPrefix(line, "  ") || !strings.Contains(line, "parley ") {
				continue
			}
			var args []string
			command, _, _ := strings.Cut(line[strings.LastIndex(line, "parley ")+len("parley "):], " >")
			for _, arg := range word.FindAllString(command, -1) {
				args = append(args, unquoted(arg))
			}
			found, err := newParser(t).Parse(args)
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
