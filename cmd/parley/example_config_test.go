//go:build !noserver

package main

import (
	"context"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/parley-chat/parley/cmd/parley/console"
	"github.com/parley-chat/parley/internal/testkit"
)

// TestExampleConfig: deploy/parley.yaml, which packages install as /etc/parley/parley.yaml, names every setting of serve with its default,
// and nothing else. As it is it sets nothing.
func TestExampleConfig(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../deploy/parley.yaml")
	if err != nil {
		t.Fatal(err)
	}
	setting := regexp.MustCompile(`(?m)^(?:# )?([a-z0-9]+(?:-[a-z0-9]+)*):(?: (.*))?$`)
	examples := map[string]string{}
	for _, match := range setting.FindAllStringSubmatch(string(text), -1) {
		examples[match[1]] = match[2]
	}
	for line := range strings.SplitSeq(string(text), "\n") {
		if line != "" && !strings.HasPrefix(line, "#") {
			t.Errorf("deploy/parley.yaml sets something: %s", line)
		}
	}
	empty := filepath.Join(t.TempDir(), "empty.yaml")
	if err := os.WriteFile(empty, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	printed := &testkit.Buffer{}
	_ = run(context.Background(), []string{"serve", "--print-config", "--config", empty}, console.Console{Out: printed, Err: printed}) // required settings are missing
	for _, match := range setting.FindAllStringSubmatch(strings.ReplaceAll(printed.String(), "  # not set", ""), -1) {
		name, value := match[1], strings.TrimSuffix(match[2], "  # default")
		example, ok := examples[name]
		switch {
		case !ok:
			t.Errorf("deploy/parley.yaml lacks the setting %s", name)
		case value != "" && value != example:
			t.Errorf("deploy/parley.yaml has %s: %s; the default is %s", name, example, value)
		}
		delete(examples, name)
	}
	for name := range examples {
		t.Errorf("deploy/parley.yaml has %s, which is not a setting of serve", name)
	}
}
