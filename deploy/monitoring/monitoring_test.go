// Package monitoring_test checks the alert rules and the dashboard.
package monitoring_test

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.yaml.in/yaml/v3"

	"github.com/parley-chat/parley/internal/testkit"
)

func read(t *testing.T, name string) string {
	t.Helper()
	content, err := os.ReadFile(name)
	testkit.NoError(t, err)
	return string(content)
}

// TestRunbooks: each alert says what is wrong and has a runbook with cause, how to look, and remedy; there are no others.
func TestRunbooks(t *testing.T) {
	t.Parallel()
	var rules struct {
		Groups []struct {
			Rules []struct {
				Alert               string
				Labels, Annotations map[string]string
			}
		}
	}
	testkit.NoError(t, yaml.Unmarshal([]byte(read(t, "rules.yaml")), &rules))
	manual := read(t, "../../docs/run.md")
	var names []string
	for _, rule := range rules.Groups[0].Rules {
		names = append(names, rule.Alert)
		want := "https://github.com/parley-chat/parley/blob/main/docs/run.md#" + strings.ToLower(rule.Alert)
		if severity := rule.Labels["severity"]; severity != "critical" && severity != "warning" || rule.Annotations["summary"] == "" ||
			rule.Annotations["description"] == "" || rule.Annotations["runbook_url"] != want {
			t.Errorf("%s has %v and %v, want a severity, a summary, a description and the runbook %s", rule.Alert, rule.Labels, rule.Annotations,
				want)
		}
	}
	var runbooks []string
	for _, part := range strings.Split(manual, "\n### ")[1:] {
		name, text, _ := strings.Cut(part, "\n")
		if !strings.HasPrefix(name, "Parley") {
			continue
		}
		runbooks = append(runbooks, name)
		text, _, _ = strings.Cut(text, "\n#")
		for _, item := range []string{"- **Cause**: ", "- **Look**: ", "- **Remedy**: "} {
			if !strings.Contains(text, item) {
				t.Errorf("the runbook of %s has no %q", name, item)
			}
		}
	}
	if diff := cmp.Diff(names, runbooks); diff != "" {
		t.Errorf("alerts and runbooks (-rules +docs/run.md):\n%s", diff)
	}
}

var metricForm = regexp.MustCompile(`\bparley_[a-z_]+`)

// TestMetricsExist: the program has each metric that the rules and the dashboard use.
func TestMetricsExist(t *testing.T) {
	t.Parallel()
	var metrics []string
	for _, folder := range []string{"server", "server/edge", "payment", "payment/channel", "store", "internal/retention"} {
		sources, err := filepath.Glob("../../" + folder + "/*.go")
		testkit.NoError(t, err)
		for _, source := range sources {
			metrics = append(metrics, metricForm.FindAllString(read(t, source), -1)...)
		}
	}
	for _, file := range []string{"rules.yaml", "dashboard.json"} {
		for _, name := range metricForm.FindAllString(read(t, file), -1) {
			base := name
			for _, suffix := range []string{"_bucket", "_count", "_sum"} {
				base = strings.TrimSuffix(base, suffix)
			}
			if !slices.Contains(metrics, base) {
				t.Errorf("%s uses %s, which Parley does not have", file, name)
			}
		}
	}
}
