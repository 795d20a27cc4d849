//go:build !noserver

package main

import (
	"flag"
	"fmt"
	"os"
	"reflect"
	"strings"
	"testing"

	"github.com/alecthomas/kong"
	"go.yaml.in/yaml/v3"

	"github.com/parley-chat/parley/cmd/parley/operator"
	"github.com/parley-chat/parley/cmd/parley/settings"
	"github.com/parley-chat/parley/internal/testkit"
)

//go:generate go test -run ^TestSettingsDocument$ . -update

var update = flag.Bool("update", false, "write deploy/parley.yaml")

const exampleHead = `# Settings of the Parley server. Values behind # are the defaults, or examples where there is none. After a change:
#
#   systemctl restart parley
#
# parley check --config FILE tries them. A key is the name of a flag. Flags and variables such as PARLEY_BASE_URL override this file. The
# value file:PATH of a secret reads it from a file.
`

// TestSettingsDocument: deploy/parley.yaml, which packages install as /etc/parley/parley.yaml, lists the settings of serve as the program
// has them.
func TestSettingsDocument(t *testing.T) {
	t.Parallel()
	parser, err := newParser(&serverSettings{}, kong.Vars{"version": ""})
	testkit.NoError(t, err)
	var example strings.Builder
	example.WriteString(exampleHead)
	count := 0
	for _, group := range append([]kong.Group{{}}, operator.Groups...) {
		if group.Key != "" {
			fmt.Fprintf(&example, "\n# --- %s\n", strings.TrimSuffix(group.Title, ":"))
		}
		for _, one := range leaf(parser, "serve").Flags {
			if len(one.Envs) == 0 || (one.Group == nil) != (group.Key == "") || one.Group != nil && one.Group.Key != group.Key {
				continue
			}
			count++
			if !settings.IsSettingsFile(one) {
				writeExample(t, &example, one)
			}
		}
	}
	if count > 32 {
		t.Errorf("there are %d settings, more than 32", count)
	}
	const name = "../../deploy/parley.yaml"
	if *update {
		if err := os.WriteFile(name, []byte(example.String()), 0o644); err != nil { //nolint:gosec // a document
			t.Error(err)
		}
	}
	if got, err := os.ReadFile(name); err != nil || string(got) != example.String() {
		t.Errorf("%s is not in step with the settings, %v; run: go generate ./cmd/parley", name, err)
	}
}

// leaf returns a command of the parser.
func leaf(parser *kong.Kong, name string) *kong.Node {
	for _, one := range parser.Model.Leaves(false) {
		if one.Name == name {
			return one
		}
	}
	panic("no command " + name)
}

func isSecret(one *kong.Flag) bool { return one.Target.Type() == reflect.TypeFor[settings.Secret]() }

func writeExample(t *testing.T, to *strings.Builder, one *kong.Flag) {
	t.Helper()
	value := one.Tag.Get("example")
	switch {
	case value != "":
	case isSecret(one):
		value = "file:/run/credentials/parley.service/parley_" + one.Name
	case one.Default != "":
		value = one.Default
	default:
		t.Errorf("the setting %s has neither a default nor the tag example", one.Name)
	}
	to.WriteString("\n")
	line := "#"
	for word := range strings.FieldsSeq(strings.TrimSuffix(one.Help, " "+settings.FileHint)) {
		if len(line)+1+len(word) > 120 {
			to.WriteString(line + "\n")
			line = "#"
		}
		line += " " + word
	}
	node := yaml.Node{Kind: yaml.ScalarNode, Value: value}
	if one.Target.Kind() == reflect.String {
		node.SetString(value)
	}
	encoded, err := yaml.Marshal(&node)
	testkit.NoError(t, err)
	text := strings.TrimSpace(string(encoded))
	if one.IsSlice() {
		text = value
	}
	fmt.Fprintf(to, "%s\n# %s: %s\n", line, one.Name, text)
}
