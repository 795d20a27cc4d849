// Package monitoring_test checks the alert rules and the dashboard.
package monitoring_test

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.yaml.in/yaml/v3"
)

func read(t *testing.T, name string) string {
	t.Helper()
	content, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
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
	if err := yaml.Unmarshal([]byte(read(t, "rules.yaml")), &rules); err != nil {
		t.Fatal(err)
	}
	operations := read(t, "../../docs/operations.md")
	var names []string
	for _, rule := range rules.Groups[0].Rules {
		names = append(names, rule.Alert)
		want := "https://github.com/parley-chat/parley/blob/main/docs/operations.md#" + strings.ToLower(rule.Alert)
		if severity := rule.Labels["severity"]; severity != "critical" && severity != "warning" || rule.Annotations["summary"] == "" ||
			rule.Annotations["description"] == "" || rule.Annotations["runbook_url"] != want {
			t.Errorf("%s has %v and %v, want a severity, a summary, a description and the runbook %s", rule.Alert, rule.Labels, rule.Annotations, want)
		}
	}
	var runbooks []string
	for _, part := range strings.Split(operations, "\n#### ")[1:] {
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
		t.Errorf("alerts and runbooks (-rules +docs/operations.md):\n%s", diff)
	}
}

var metricForm = regexp.MustCompile(`\bparley_[a-z_]+`)

// TestMetricsAreDescribed: docs/operations.md describes each metric that the rules and the dashboard use.
func TestMetricsAreDescribed(t *testing.T) {
	t.Parallel()
	described := metricForm.FindAllString(read(t, "../../docs/operations.md"), -1)
	for _, file := range []string{"rules.yaml", "dashboard.json"} {
		for _, name := range metricForm.FindAllString(read(t, file), -1) {
			base := name
			for _, suffix := range []string{"_bucket", "_count", "_sum"} {
				base = strings.TrimSuffix(base, suffix)
			}
			if !slices.Contains(described, base) {
				t.Errorf("%s uses %s, which docs/operations.md does not describe", file, name)
			}
		}
	}
}
