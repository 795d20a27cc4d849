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
)

//go:generate go test -run ^TestSettingsDocuments$ . -update

var update = flag.Bool("update", false, "write deploy/parley.yaml and docs/settings.md")

const exampleHead = `# Settings of the Parley server. Values behind # are the defaults, or examples where there is none. After a change:
#
#   systemctl restart parley
#
# parley serve --print-config --config FILE shows the effective settings, and parley check --config FILE tries them. A key is the name of a
# flag. Flags and variables such as PARLEY_BASE_URL override this file. The value file:PATH of a secret reads it from a file.
`

const tableHead = `# Settings

The settings of 'parley serve'. A key of the configuration file is the name of the flag without '--'. The value 'file:PATH' of a secret
(marked *secret*) reads it from a file. A test of 'cmd/parley' generates this page.

Traces have the variables of OpenTelemetry: 'OTEL_EXPORTER_OTLP_ENDPOINT' is the collector (OTLP over HTTP, such as
'http://127.0.0.1:4318'; by default there are no traces, and they cost nothing), 'OTEL_EXPORTER_OTLP_HEADERS' the headers of requests to
it, and 'OTEL_TRACES_SAMPLER_ARG' the part of the requests that is traced, from 0 to 1 (0.1).
`

// TestSettingsDocuments: deploy/parley.yaml, which packages install as /etc/parley/parley.yaml, and docs/settings.md list the settings of
// serve as the program has them.
func TestSettingsDocuments(t *testing.T) {
	t.Parallel()
	parser, err := newParser(&serverSettings{}, kong.Vars{"version": ""})
	if err != nil {
		t.Fatal(err)
	}
	var example, table strings.Builder
	example.WriteString(exampleHead)
	table.WriteString(strings.ReplaceAll(tableHead, "'", "`"))
	count := 0
	for _, group := range append([]kong.Group{{Title: "The file"}}, operator.Groups...) {
		title := strings.TrimSuffix(group.Title, ":")
		fmt.Fprintf(&table, "\n## %s\n\n| flag | environment | default | meaning |\n|---|---|---|---|\n", title)
		if group.Key != "" {
			fmt.Fprintf(&example, "\n# --- %s\n", title)
		}
		for _, one := range leaf(parser, "serve").Flags {
			if len(one.Envs) == 0 || (one.Group == nil) != (group.Key == "") || one.Group != nil && one.Group.Key != group.Key {
				continue
			}
			count++
			writeRow(&table, one)
			if !settings.IsSettingsFile(one) {
				writeExample(t, &example, one)
			}
		}
	}
	if count > 32 {
		t.Errorf("there are %d settings, more than 32", count)
	}
	for name, want := range map[string]string{"../../deploy/parley.yaml": example.String(), "../../docs/settings.md": table.String()} {
		if *update {
			if err := os.WriteFile(name, []byte(want), 0o644); err != nil { //nolint:gosec // a document
				t.Error(err)
			}
		}
		if got, err := os.ReadFile(name); err != nil || string(got) != want {
			t.Errorf("%s is not in step with the settings, %v; run: go generate ./cmd/parley", name, err)
		}
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

func writeRow(to *strings.Builder, one *kong.Flag) {
	standard := "none"
	if one.HasDefault && one.Default != "" {
		standard = "`" + one.Default + "`"
	}
	help := one.Help
	if isSecret(one) {
		help = strings.TrimSuffix(help, " "+settings.FileHint) + " *secret*"
	}
	fmt.Fprintf(to, "| `--%s` | `%s` | %s | %s |\n", one.Name, one.Envs[0], standard, help)
}

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
	if err != nil {
		t.Fatal(err)
	}
	text := strings.TrimSpace(string(encoded))
	if one.IsSlice() {
		text = value
	}
	fmt.Fprintf(to, "%s\n# %s: %s\n", line, one.Name, text)
}
