package failover

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/parley-chat/parley/internal/testkit"
)

// TestSettings: `make failover` tests the settings that docs/disaster.md recommends.
func TestSettings(t *testing.T) {
	t.Parallel()
	guide, err := os.ReadFile("../../docs/disaster.md")
	testkit.NoError(t, err)
	template, err := os.ReadFile("patroni.yml.tmpl")
	testkit.NoError(t, err)
	tested := strings.ReplaceAll(string(template), "{{.Synchronous}}", "true")
	names, found := regexp.MustCompile("`([a-z_]+)`"), 0
	for line := range strings.Lines(string(guide)) {
		cells := strings.Split(line, "|")
		if len(cells) != 5 {
			continue
		}
		settings := names.FindAllStringSubmatch(cells[1], -1)
		values := strings.Split(strings.TrimSpace(cells[2]), ", ")
		for i, setting := range settings {
			value := values[min(i, len(values)-1)]
			line := regexp.MustCompile(`(?m)^ *` + setting[1] + `: (\S+)`).FindStringSubmatch(tested)
			if line == nil || setting[1] == "max_connections" { // PostgreSQL's default; the guide has a formula
				continue
			}
			if found++; line[1] != value {
				t.Errorf("the guide says %s = %s, and %s is tested", setting[1], value, line[1])
			}
		}
	}
	if found < 9 {
		t.Errorf("%d settings of the guide are tested, want 9", found)
	}
}
